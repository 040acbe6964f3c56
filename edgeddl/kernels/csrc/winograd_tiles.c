#include "winograd_tiles.h"

/* Finds the addresses of the size x size pixels of a tile. */
static void find_pixels(const images *x, long image, long top, long left, const int size,
                        const float **pixels)
{
    const long corner = (image * x->h + top) * x->w + left;
    for (int i = 0; i < size; i++) {
        const int row_inside = (unsigned long)(top + i) < (unsigned long)x->h;
        for (int j = 0; j < size; j++) {
            const int inside = row_inside & ((unsigned long)(left + j) < (unsigned long)x->w);
            pixels[i * size + j] = inside ? x->x + (corner + i * x->w + j) * x->c : x->nothing;
        }
    }
}

ALWAYS_INLINE void transform_channels(const images *x, const float **pixels, one_way transform,
                                      const kind kind, const int size, const int prepare, long c,
                                      long count, float *target, long plane)
{
    const int points = sizes[kind].points;
    vec in[MOST_PLANES], out[MOST_PLANES], scale, shift;
    if (prepare) {
        scale = load_some(x->norm.scale + c, count);
        shift = load_some(x->norm.shift + c, count);
    }
#pragma GCC unroll 81
    for (int i = 0; i < size * size; i++) {
        in[i] = load_some(pixels[i] + c, count);
        if (prepare && pixels[i] != x->nothing)
            in[i] = normalize(in[i], scale, shift);
    }
    both_ways(transform, kind, size, points, in, out);
#pragma GCC unroll 81
    for (int i = 0; i < points * points; i++)
        store(target + i * plane, out[i]);
}

ALWAYS_INLINE void transform_tile(const images *x, const float **pixels, one_way transform,
                                  const kind kind, const int size, const int prepare,
                                  const planes *V, long row)
{
    long c = 0;
    for (; c + LANES <= x->c; c += LANES)
        transform_channels(x, pixels, transform, kind, size, prepare, c, LANES,
                           at_column(V, c) + row * V->row, V->plane);
    if (c < x->c)
        transform_channels(x, pixels, transform, kind, size, prepare, c, x->c - c,
                           at_column(V, c) + row * V->row, V->plane);
}

/* Transforms x or, for the gradient of x, gy. */
ALWAYS_INLINE void transform_input(const images *x, const float **pixels, const kind kind,
                                   const planes *V, long row)
{
    if (x->norm.scale)
        transform_tile(x, pixels, input_one_way, kind, sizes[kind].inputs, 1, V, row);
    else
        transform_tile(x, pixels, input_one_way, kind, sizes[kind].inputs, 0, V, row);
}

static void transform_inputs(const images *x, const float **pixels, const planes *V, long row)
{
    switch (x->kind) {
    case STRIDE_2: transform_input(x, pixels, STRIDE_2, V, row); break;
    case TRANSPOSED_2: transform_input(x, pixels, TRANSPOSED_2, V, row); break;
    default: transform_input(x, pixels, THREE, V, row); /* FIVE has the same points */
    }
}

/* Transforms gy for the gradient of the weights. */
static void transform_gradients(const images *gy, const float **pixels, const planes *V, long row)
{
    switch (gy->kind) {
    case THREE: transform_tile(gy, pixels, gradient_one_way, THREE, OUTPUTS, 0, V, row); break;
    case FIVE: transform_tile(gy, pixels, gradient_one_way, FIVE, 2, 0, V, row); break;
    default: transform_tile(gy, pixels, gradient_one_way, STRIDE_2, OUTPUTS, 0, V, row);
    }
}

/* Transforms tiles first .. first + count to V, from `row` on. */
static void read_tiles(const images *x, const grid *tiles, long first, long count, long row,
                       const planes *V)
{
    const int size = x->for_weights ? sizes[x->kind].gradients : sizes[x->kind].inputs;
    const int step = x->for_weights ? size : sizes[x->kind].step;
    const float *pixels[MOST_PLANES];
    for (long t = 0; t < count; t++) {
        const position at = tile_position(tiles, first + t);
        find_pixels(x, at.image, at.row * step - x->top, at.column * step - x->left, size, pixels);
        if (x->for_weights)
            transform_gradients(x, pixels, V, row + t);
        else
            transform_inputs(x, pixels, V, row + t);
    }
}

static void read_part(void *context, int part, int parts)
{
    const tile_loop *w = context;
    const long from = part_start(w->count, part, parts), to = part_start(w->count, part + 1, parts);
    for (int i = 0; i < 2 && w->in[i].x; i++)
        read_tiles(&w->in[i], &w->tiles, w->first + from, to - from, from, &w->V[i]);
}

/* Computes tiles first .. end: with all threads, or with this one alone if it owns the tiles. */
static void compute_tiles(tile_loop *w, long first, long end)
{
    const long blocks = ceil_div(end - first, w->most);
    const long read_work = w->points * w->points * (w->in[0].c + w->in[1].c);
    for (w->block = 0; w->block < blocks; w->block++) {
        w->first = first + (end - first) * w->block / blocks;
        w->count = first + (end - first) * (w->block + 1) / blocks - w->first;
        run_parts(read_part, w, w->own_tiles ? 1 : parts_for(w->count, read_work));
        run_parts(w->compute, w, w->own_tiles ? 1 : parts_for(w->items, w->item_work));
    }
}

float *own_memory(const tile_loop *w)
{
    return part_workspace((size_t)w->own_floats, w->result);
}

/* The memory of a thread holds what compute needs, then V. */
static void compute_own_tiles(void *context, int part, int parts)
{
    tile_loop w = *(const tile_loop *)context;
    const long floats = w.own_floats;
    w.own_floats += w.V[0].panel + w.V[1].panel;
    float *memory = own_memory(&w);
    if (!memory)
        return;
    w.V[0].first = memory + floats;
    w.V[1].first = w.V[0].first + w.V[0].panel;
    w.part = part;
    compute_tiles(&w, part_start(w.tiles.count, part, parts),
                  part_start(w.tiles.count, part + 1, parts));
}

float *prepare_tile_loop(tile_loop *w, long padding, long floats)
{
    const long nothing = round_up(max_long(w->in[0].c, w->in[1].c), PADDING);
    long shared = 0;
    w->own_floats = round_up(w->own_floats, PADDING);
    for (int i = 0; i < 2 && w->in[i].x; i++) {
        w->V[i] = make_planes(w->points * w->points, w->most,
                              w->own_tiles ? w->in[i].c : w->widths[i], padding);
        shared += w->own_tiles ? 0 : planes_floats(&w->V[i], w->in[i].c);
    }
    float *memory = workspace((size_t)(nothing + round_up(shared, PADDING) + floats));
    if (!memory)
        return NULL;
    memset(memory, 0, (size_t)nothing * sizeof(float));
    w->in[0].nothing = w->in[1].nothing = memory;
    w->V[0].first = memory + nothing;
    w->V[1].first = w->V[0].first + planes_floats(&w->V[0], w->in[0].c);
    return memory + nothing + round_up(shared, PADDING);
}

void run_tile_loop(tile_loop *w, int parts)
{
    if (w->own_tiles)
        run_parts(compute_own_tiles, w, parts);
    else
        compute_tiles(w, 0, w->tiles.count);
}
