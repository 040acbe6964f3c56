/* 3 x 3 convolution with stride 1 or 2 and 5 x 5 convolution, and the gradient of their input, by
 * Winograd's algorithm (winograd_transforms.h).
 *
 * The result is divided into tiles. For a block of tiles, inputs are transformed to V, planes of
 * [tiles][c]. Each plane is multiplied by one of the 36 planes of the transformed weights U,
 * [c][k], which gives a plane of M, [tiles][k]. M is transformed back to outputs.
 *
 * With few channels each thread processes its own tiles, and all threads share U. With many
 * channels U is too large to keep (38 MB for 512 x 512): all threads transform V together, then
 * each computes some columns of the product and the part of U that they need.
 */
#include "winograd_tiles.h"

enum { FEWEST_TILES = 6 };         /* with fewer, transforming the weights costs too much */
enum { LARGEST_KEPT = 128 * 128 }; /* largest c * k for which all of U is kept */
enum { SHARED_DEPTH = 128 };       /* otherwise: channels for which U is computed at a time */

/* If a register tile is narrower than a panel, the product runs down columns of U. */
enum { WEIGHT_PADDING = PANEL_COLUMNS > TILE_COLUMNS ? PADDING : 0 };

typedef struct {
    kind kind;
    weights w;
    float *y; /* [n][h][width][k] */
    long h, width, k;
    const float *bias, *plus;
    long depth;  /* input channels of a product */
    planes U, M; /* layout; each thread has its own memory, except for a U that is kept */
} forward;

static long tap_count(const forward *job) { return sizes[job->kind].taps * sizes[job->kind].taps; }

ALWAYS_INLINE void transform_packed(const float *packed, long rows, const kind kind, planes U)
{
    const int taps = sizes[kind].taps;
    for (long r = 0; r < rows; r++)
        for (long k = 0; k < PANEL_COLUMNS; k += LANES) {
            vec in[MOST_TAPS * MOST_TAPS], out[PLANES];
#pragma GCC unroll 25
            for (int tap = 0; tap < taps * taps; tap++)
                in[tap] = load(packed + (tap * rows + r) * PANEL_COLUMNS + k);
            both_ways(weights_one_way, kind, taps, POINTS, in, out);
#pragma GCC unroll 36
            for (int plane = 0; plane < PLANES; plane++)
                store(U.first + plane * U.plane + r * U.row + k, out[plane]);
        }
}

/* Computes U for rows first .. first + rows of the panel that begins at `column`. `packed` has room
 * for the packed weights. */
static void transform_weights(const forward *job, long first, long rows, long column,
                              float *packed, planes U)
{
    const long taps = tap_count(job);
    for (long tap = 0; tap < taps; tap++)
        pack_weights(&job->w, job->w.transposed ? taps - 1 - tap : tap, first, rows, column,
                     PANEL_COLUMNS, packed + tap * rows * PANEL_COLUMNS);
    if (job->kind == THREE)
        transform_packed(packed, rows, THREE, U);
    else if (job->kind == FIVE)
        transform_packed(packed, rows, FIVE, U);
    else
        transform_packed(packed, rows, STRIDE_2, U);
}

/* M = V U in all planes, for one panel. Prefetched meanwhile: the weights of the next plane and, if
 * each thread has its own tiles, the pixels that are read next, then those that will be written;
 * otherwise the next plane of V. */
static void multiply_planes(const tile_loop *w, const float *V, planes U, planes M, long depth,
                            long columns, int add)
{
    const forward *job = w->job;
    const images y = {.x = job->y, .h = job->h, .w = job->width, .c = job->k};
    const int count = w->points * w->points;
    const long V_plane = w->V[0].plane;
    const long steps = product_steps(depth, w->count, columns), half = count / 2 * steps;
    prefetch read = prefetch_tiles(&w->in[0], &w->tiles, w->first + w->count, w->count, half);
    prefetch written = prefetch_tiles(&y, &w->tiles, w->first, w->count, half);
    prefetch inputs = prefetch_range(V + V_plane, V_plane, steps);
    for (int plane = 0; plane < count; plane++) {
        prefetch weights =
            prefetch_range(U.first + weight_plane(plane + 1, w->points) * U.plane, U.plane, steps);
        const product m = {
            .depth = depth,
            .a = V + plane * V_plane, .a_row = w->V[0].row, .a_depth = 1,
            .b = U.first + weight_plane(plane, w->points) * U.plane, .b_depth = U.row,
            .c = M.first + plane * M.plane, .c_row = M.row,
            .add = add,
            .ahead = {&weights, !w->own_tiles ? &inputs : plane < count / 2 ? &read : &written},
        };
        multiply(&m, w->count, columns);
    }
}

/* Writes LANES channels of a tile, from k on, from the planes of M. Returns a number that is finite
 * if they are. */
ALWAYS_INLINE vec write_tile(const forward *job, position at, const float *m, long plane, long k,
                             const kind kind)
{
    const int points = sizes[kind].points, size = sizes[kind].outputs;
    const long count = job->k - k, top = at.row * size, left = at.column * size;
    const vec bias = job->bias ? load_some(job->bias + k, count) : (vec){0};
    vec in[MOST_PLANES], out[MOST_PLANES], sum = {0};
#pragma GCC unroll 81
    for (int i = 0; i < points * points; i++)
        in[i] = load(m + i * plane);
    both_ways(output_one_way, kind, points, size, in, out);
    const long high = min_long(size, job->h - top), wide = min_long(size, job->width - left);
    const long first = ((at.image * job->h + top) * job->width + left) * job->k + k;
    const int whole = high == size && wide == size && count >= LANES;
#pragma GCC unroll 64
    for (int i = 0; i < size * size; i++) {
        const long pixel = first + (i / size * job->width + i % size) * job->k;
        sum += out[i];
        if (whole)
            store(job->y + pixel, job->plus ? out[i] + load(job->plus + pixel) : out[i] + bias);
        else if (i / size < high && i % size < wide) {
            const vec other = job->plus ? load_some(job->plus + pixel, count) : bias;
            store_some(job->y + pixel, out[i] + other, count);
        }
    }
    return sum;
}

static vec write_vector(const forward *job, position at, const float *m, long plane, long k)
{
    switch (job->kind) {
    case THREE: return write_tile(job, at, m, plane, k, THREE);
    case FIVE: return write_tile(job, at, m, plane, k, FIVE);
    case STRIDE_2: return write_tile(job, at, m, plane, k, STRIDE_2);
    default: return write_tile(job, at, m, plane, k, TRANSPOSED_2);
    }
}

static void write_outputs(const tile_loop *w, planes M, long column)
{
    const forward *job = w->job;
    const long columns = min_long(job->k - column, PANEL_COLUMNS);
    vec finite = {0};
    for (long t = 0; t < w->count; t++) {
        const position at = tile_position(&w->tiles, w->first + t);
        for (long k = 0; k < columns; k += LANES) {
            const vec sum =
                write_vector(job, at, M.first + t * M.row + k, M.plane, column + k);
            finite += sum - sum;
        }
    }
    check_finite(w, finite);
}

static void make_all_weights(void *context, int part, int parts)
{
    const tile_loop *w = context;
    const forward *job = w->job;
    float *packed = own_memory(w);
    for (long panel = part_start(w->items, part, parts);
         panel < part_start(w->items, part + 1, parts) && packed; panel++)
        transform_weights(job, 0, job->depth, panel * PANEL_COLUMNS, packed,
                          put_at(job->U.first + panel * job->U.panel, job->U));
}

/* The memory of a thread holds M and, unless U is kept, U and the packed weights. */
static void compute_panels(void *context, int part, int parts)
{
    const tile_loop *w = context;
    const forward *job = w->job;
    const long c = w->in[0].c;
    const planes M = put_at(own_memory(w), job->M);
    for (long panel = part_start(w->items, part, parts);
         panel < part_start(w->items, part + 1, parts) && M.first; panel++) {
        const long column = panel * PANEL_COLUMNS;
        planes U = put_at(job->U.first + panel * job->U.panel, job->U);
        for (long depth = 0; depth < c; depth += job->depth) {
            const long rows = min_long(c - depth, job->depth);
            if (!w->own_tiles) {
                U.first = M.first + M.panel;
                transform_weights(job, depth, rows, column, U.first + U.panel, U);
            }
            multiply_planes(w, at_column(&w->V[0], depth), U, M, rows,
                            min_long(job->k - column, PANEL_COLUMNS), depth > 0);
        }
        write_outputs(w, M, column);
    }
}

/* Tiles of a block. If each thread has its own tiles, V and M stay in the L2 cache. */
static long block_tiles(const tile_loop *w)
{
    if (!w->own_tiles)
        return min_long(w->tiles.count, w->points == POINTS ? 128 : 64);
    const long floats = w->points * w->points * (w->in[0].c + PANEL_COLUMNS);
    const long fit = L2_BYTES / 3 / (long)sizeof(float) / floats;
    return min_long(max_long(fit, 2 * TILE_ROWS), 48);
}

/* Tiles of y or, if input_gradient, of gx. */
static grid result_tiles(const conv *s, int input_gradient)
{
    const int size = sizes[kind_of(s, input_gradient)].outputs;
    return input_gradient ? tile_grid(s->n, s->h, s->w, size)
                          : tile_grid(s->n, s->out_h, s->out_w, size);
}

static int convolve(forward *job, images x, long n)
{
    int result = DONE;
    const int keep = x.c * job->k <= LARGEST_KEPT;
    tile_loop w = {
        .tiles = tile_grid(n, job->h, job->width, sizes[job->kind].outputs),
        .points = sizes[job->kind].points, .in = {x}, .widths = {SHARED_DEPTH},
        .compute = compute_panels, .job = job, .items = ceil_div(job->k, PANEL_COLUMNS),
        .own_tiles = keep, .result = &result,
    };
    const long count = w.points * w.points;
    w.most = block_tiles(&w);
    w.item_work = w.most * count * x.c * PANEL_COLUMNS;
    job->depth = keep ? x.c : SHARED_DEPTH;
    job->M = make_planes(count, w.most, PANEL_COLUMNS, 0);
    job->U = make_planes(PLANES, job->depth, PANEL_COLUMNS, WEIGHT_PADDING);
    const long packed = tap_count(job) * PANEL_COLUMNS * job->depth;
    w.own_floats = keep ? max_long(job->M.panel, packed) : job->M.panel + job->U.panel + packed;
    job->U.first = prepare_tile_loop(&w, 0, keep ? planes_floats(&job->U, job->k) : 0);
    if (!job->U.first)
        return OUT_OF_MEMORY;
    if (keep)
        run_parts(make_all_weights, &w, parts_for(w.items, PLANES * x.c * PANEL_COLUMNS));
    run_tile_loop(&w, parts_for(w.tiles.count, count * x.c * job->k));
    return result;
}

int winograd_fits(const conv *s)
{
    const int five = s->kh == 5 && s->kw == 5, three = s->kh == 3 && s->kw == 3;
    const int stride_1 = s->sy == 1 && s->sx == 1 && s->ph < s->kh && s->pw < s->kw;
    const int stride_2 = s->sy == 2 && s->sx == 2 && s->ph == 1 && s->pw == 1;
    return ((stride_1 && (three || five)) || (stride_2 && three)) && s->dy == 1 && s->dx == 1 &&
           s->groups == 1 && s->c >= 8 && s->k >= 8 && result_tiles(s, 0).count >= FEWEST_TILES;
}

long winograd_products(const conv *s, int input_gradient)
{
    const long points = sizes[kind_of(s, input_gradient)].points;
    return result_tiles(s, input_gradient).count * points * points;
}

int winograd_forward(const conv *s, const float *x, folded_norm norm, const float *W,
                     const float *bias, float *y)
{
    forward job = {
        .kind = kind_of(s, 0), .w = {W, s->c, s->k, s->k, 0},
        .y = y, .h = s->out_h, .width = s->out_w, .k = s->k, .bias = bias,
    };
    const images from = {.x = x, .h = s->h, .w = s->w, .c = s->c, .kind = job.kind,
                         .top = s->ph, .left = s->pw, .norm = norm};
    return convolve(&job, from, s->n);
}

int winograd_input_gradient(const conv *s, const float *gy, const float *W, const float *plus,
                            float *gx)
{
    forward job = {
        .kind = kind_of(s, 1), .w = {W, s->c, s->k, s->k, 1},
        .y = gx, .h = s->h, .width = s->w, .k = s->c, .plus = plus,
    };
    images from = {.x = gy, .h = s->out_h, .w = s->out_w, .c = s->k, .kind = job.kind};
    if (s->sy == 1)
        from.top = s->kh - 1 - s->ph, from.left = s->kw - 1 - s->pw;
    return convolve(&job, from, s->n);
}
