/* 3 x 3 convolution with stride 1 or 2 and 5 x 5 convolution, and the gradient of their input, by
 * Winograd's algorithm (see the transforms).
 *
 * The result is cut into tiles. For some tiles at a time, inputs are transformed to V, planes of
 * [tiles][c]; each plane is multiplied by one of the 36 of the transformed weights U, [c][k], to a
 * plane M of [tiles][k]; M is transformed back to outputs.
 *
 * With few channels each thread takes tiles of its own, and all use the same U. With many channels
 * U is too large to be kept (38 MB for 512 x 512): threads transform V together, then each takes
 * some columns of the product and makes the part of U it needs.
 */
#include "winograd_tiles.h"

enum { FEWEST_TILES = 6 };         /* below, transforming the weights costs too much */
enum { LARGEST_KEPT = 128 * 128 }; /* c * k up to which U is made as a whole */
enum { SHARED_DEPTH = 128 };       /* else: channels for which it is made at a time */

/* Where a tile is narrower than a panel, the product runs down columns of U. */
enum { WEIGHT_PADDING = PANEL_COLUMNS > TILE_COLUMNS ? PADDING : 0 };

typedef struct forward forward;

/* A way to make size x size outputs of one tile, LANES channels from k on, of the planes of M;
 * returns a number that is finite if they are. */
typedef struct {
    int size;
    vec (*write)(const forward *job, position at, const float *m, long plane, long k);
} writing;

struct forward {
    const weights *w;
    kind kind;
    long taps;
    images x;
    const reading *in;
    const writing *out;
    float *y; /* [n][h][w][k] */
    long h, width, k;
    const float *bias, *plus;
    grid tiles;
    long most;         /* tiles of a block */
    long first, count; /* those of the present block */
    planes V, M, U;    /* with memory of their own in every thread, but for what is shared */
    float *own;        /* workspace of the threads, own_floats each: M, then V or U */
    long own_floats;
    long depth;    /* input channels of a product */
    int own_tiles; /* whether every thread has tiles of its own */
    int *finite;
};

static int plane_count(const forward *job) { return job->in->points * job->in->points; }

static long panel_count(const forward *job) { return ceil_div(job->k, PANEL_COLUMNS); }

ALWAYS_INLINE void transform_packed(const float *packed, long rows, one_way transform,
                                    const int taps, planes U)
{
    for (long r = 0; r < rows; r++)
        for (long k = 0; k < PANEL_COLUMNS; k += LANES) {
            vec in[MOST_TAPS * MOST_TAPS], out[PLANES];
#pragma GCC unroll 25
            for (int tap = 0; tap < taps * taps; tap++)
                in[tap] = load(packed + (tap * rows + r) * PANEL_COLUMNS + k);
            both_ways(transform, taps, POINTS, in, out);
#pragma GCC unroll 36
            for (int plane = 0; plane < PLANES; plane++)
                store(U.first + plane * U.plane + r * U.row + k, out[plane]);
        }
}

/* U for rows first .. first + rows of the panel that begins at `column`; packed has room for them
 * as they are. */
static void transform_weights(const forward *job, long first, long rows, long column,
                              float *packed, planes U)
{
    const weights *w = job->w;
    for (long tap = 0; tap < job->taps; tap++)
        pack_weights(w, w->turned ? job->taps - 1 - tap : tap, first, rows, column,
                     PANEL_COLUMNS, packed + tap * rows * PANEL_COLUMNS);
    if (job->kind == THREE)
        transform_packed(packed, rows, weights_one_way, TAPS, U);
    else if (job->kind == THREE_STRIDE_2)
        transform_packed(packed, rows, weights_one_way_2, TAPS, U);
    else
        transform_packed(packed, rows, weights_one_way_5, TAPS_5, U);
}

/* M = V U in all planes, for one panel. Asked for meanwhile: the weights of the next plane and, of
 * a thread's own tiles, the pixels that are read next, then those that will be written; else the
 * next plane of V. */
static void multiply_planes(const forward *job, planes V, planes U, planes M, long depth,
                            long columns, int add)
{
    const long first = job->first, tiles = job->count;
    const images y = {.x = job->y, .h = job->h, .w = job->width, .c = job->k};
    const int points = job->in->points, count = plane_count(job);
    const long steps = product_steps(depth, tiles, columns), half = count / 2 * steps;
    stream read = ask_for_tiles(&job->x, &job->tiles, first + tiles, tiles, half);
    stream written = ask_for_tiles(&y, &job->tiles, first, tiles, half);
    stream inputs = ask_for(V.first + V.plane, V.plane, steps);
    for (int plane = 0; plane < count; plane++) {
        stream weights =
            ask_for(U.first + weight_plane(plane + 1, points) * U.plane, U.plane, steps);
        const product m = {
            .depth = depth,
            .a = V.first + plane * V.plane, .a_row = V.row, .a_depth = 1,
            .b = U.first + weight_plane(plane, points) * U.plane, .b_depth = U.row,
            .c = M.first + plane * M.plane, .c_row = M.row,
            .add = add,
            .ahead = {&weights, !job->own_tiles ? &inputs : plane < count / 2 ? &read : &written},
        };
        multiply(&m, tiles, columns);
    }
}

ALWAYS_INLINE vec write_tile(const forward *job, position at, const float *m, long plane, long k,
                             one_way transform, const int points, const int size)
{
    const long count = job->k - k, top = at.row * size, left = at.column * size;
    const vec bias = job->bias ? load_some(job->bias + k, count) : (vec){0};
    vec in[MOST_PLANES], out[MOST_PLANES], sum = {0};
#pragma GCC unroll 81
    for (int i = 0; i < points * points; i++)
        in[i] = load(m + i * plane);
    both_ways(transform, points, size, in, out);
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

static vec write_y(const forward *job, position at, const float *m, long plane, long k)
{
    return write_tile(job, at, m, plane, k, output_one_way, POINTS, OUTPUTS);
}

static vec write_y_2(const forward *job, position at, const float *m, long plane, long k)
{
    return write_tile(job, at, m, plane, k, output_one_way_2, POINTS_2, OUTPUTS);
}

static vec write_y_5(const forward *job, position at, const float *m, long plane, long k)
{
    return write_tile(job, at, m, plane, k, output_one_way_5, POINTS, OUTPUTS_5);
}

static vec write_gx_2(const forward *job, position at, const float *m, long plane, long k)
{
    return write_tile(job, at, m, plane, k, turned_output_one_way_2, POINTS_2, 2 * OUTPUTS);
}

/* By kind. */
static const writing into_y[] = {
    {OUTPUTS, write_y}, {OUTPUTS, write_y_2}, {OUTPUTS_5, write_y_5}};
static const writing into_gx[] = {
    {OUTPUTS, write_y}, {2 * OUTPUTS, write_gx_2}, {OUTPUTS_5, write_y_5}};

static void write_outputs(const forward *job, planes M, long column)
{
    const long columns = min_long(job->k - column, PANEL_COLUMNS);
    vec finite = {0};
    for (long t = 0; t < job->count; t++) {
        const position at = tile_position(&job->tiles, job->first + t);
        for (long k = 0; k < columns; k += LANES) {
            const vec sum = job->out->write(job, at, M.first + t * M.row + k, M.plane, column + k);
            finite += sum - sum; /* zero, or NaN if any output is infinite or NaN */
        }
    }
    for (int lane = 0; lane < LANES; lane++)
        if (finite[lane] != 0)
            __atomic_store_n(job->finite, 0, __ATOMIC_RELAXED);
}

static float *own_memory(const forward *job)
{
    return job->own + thread_number() * job->own_floats;
}

static void make_all_weights(void *context, int part, int parts)
{
    const forward *job = context;
    const long panels = panel_count(job);
    for (long panel = share(panels, part, parts); panel < share(panels, part + 1, parts); panel++)
        transform_weights(job, 0, job->x.c, panel * PANEL_COLUMNS, own_memory(job),
                          from_column(&job->U, panel * PANEL_COLUMNS));
}

static void transform_inputs(void *context, int part, int parts)
{
    const forward *job = context;
    const long from = share(job->count, part, parts), to = share(job->count, part + 1, parts);
    read_tiles(&job->x, job->in, &job->tiles, job->first + from, to - from, from, job->V);
}

static void compute_panels(void *context, int part, int parts)
{
    const forward *job = context;
    const long c = job->x.c, panels = panel_count(job);
    const planes M = put_at(own_memory(job), job->M);
    for (long panel = share(panels, part, parts); panel < share(panels, part + 1, parts); panel++) {
        const long column = panel * PANEL_COLUMNS;
        planes U = from_column(&job->U, column);
        for (long depth = 0; depth < c; depth += job->depth) {
            const long rows = min_long(c - depth, job->depth);
            if (!job->own_tiles) {
                U = put_at(M.first + M.panel, job->U);
                transform_weights(job, depth, rows, column, U.first + U.panel, U);
            }
            multiply_planes(job, from_column(&job->V, depth), U, M, rows,
                            min_long(job->k - column, PANEL_COLUMNS), depth > 0);
        }
        write_outputs(job, M, column);
    }
}

/* Tiles first .. end, block by block: by all threads together, or by one if they are its own. */
static void compute_tiles(forward *job, long first, long end)
{
    const long blocks = ceil_div(end - first, job->most), work = plane_count(job) * job->x.c;
    const long panel_work = job->most * work * PANEL_COLUMNS;
    for (long block = 0; block < blocks; block++) {
        job->first = first + (end - first) * block / blocks;
        job->count = first + (end - first) * (block + 1) / blocks - job->first;
        run_parts(transform_inputs, job, job->own_tiles ? 1 : parts_for(job->count, work));
        run_parts(compute_panels, job,
                  job->own_tiles ? 1 : parts_for(panel_count(job), panel_work));
    }
}

static void compute_own_tiles(void *context, int part, int parts)
{
    forward job = *(const forward *)context;
    job.V.first = own_memory(&job) + job.M.panel;
    compute_tiles(&job, share(job.tiles.count, part, parts),
                  share(job.tiles.count, part + 1, parts));
}

/* Tiles of a block: of a thread's own, V and M stay in the second-level cache. */
static long block_tiles(const forward *job)
{
    if (!job->own_tiles)
        return min_long(job->tiles.count, job->kind == THREE_STRIDE_2 ? 64 : 128);
    const long floats = plane_count(job) * (job->x.c + PANEL_COLUMNS);
    const long fit = L2_BYTES / 3 / (long)sizeof(float) / floats;
    return min_long(max_long(fit, 2 * TILE_ROWS), 48);
}

static int convolve(forward *job)
{
    const long c = job->x.c;
    const int keep = c * job->k <= LARGEST_KEPT, count = plane_count(job);
    int finite = 1;
    job->finite = &finite;
    job->own_tiles = keep;
    job->most = block_tiles(job);
    job->depth = keep ? c : SHARED_DEPTH;
    job->V = make_planes(NULL, count, job->most, job->depth, 0);
    job->M = make_planes(NULL, count, job->most, PANEL_COLUMNS, 0);
    job->U = make_planes(NULL, PLANES, job->depth, PANEL_COLUMNS, WEIGHT_PADDING);
    const long inputs = planes_floats(&job->V, c), all_weights = planes_floats(&job->U, job->k);
    const long packed = job->taps * PANEL_COLUMNS * job->depth;
    const long own = packed + job->M.panel + (keep ? inputs : job->U.panel);
    const long shared = round_up(keep ? all_weights : inputs, PADDING);
    const long nothing = round_up(c, PADDING);
    job->own_floats = round_up(own, PADDING);
    float *memory = workspace((size_t)(nothing + shared + thread_count() * job->own_floats));
    if (!memory)
        return OUT_OF_MEMORY;
    memset(memory, 0, (size_t)c * sizeof(float));
    job->x.nothing = memory;
    job->own = memory + nothing + shared;
    if (keep) {
        job->U.first = memory + nothing;
        run_parts(make_all_weights, job, parts_for(panel_count(job), PLANES * c * PANEL_COLUMNS));
        run_parts(compute_own_tiles, job, parts_for(job->tiles.count, count * c * job->k));
    } else {
        job->V.first = memory + nothing;
        compute_tiles(job, 0, job->tiles.count);
    }
    return finite ? DONE : NOT_FINITE;
}

/* Those of y or, of_x, of gx. */
static grid result_tiles(const conv *s, int of_x)
{
    return of_x ? tile_grid(s->n, s->h, s->w, into_gx[kind_of(s)].size)
                : tile_grid(s->n, s->out_h, s->out_w, into_y[kind_of(s)].size);
}

int winograd_fits(const conv *s)
{
    const int window = s->kh == s->kw && (s->kh == TAPS || s->kh == TAPS_5);
    const int stride_1 = s->sy == 1 && s->sx == 1 && s->ph < s->kh && s->pw < s->kw;
    const int stride_2 = s->sy == 2 && s->sx == 2 && s->ph == 1 && s->pw == 1 && s->kh == TAPS;
    return window && (stride_1 || stride_2) && s->dy == 1 && s->dx == 1 && s->groups == 1 &&
           s->c >= 8 && s->k >= 8 && result_tiles(s, 0).count >= FEWEST_TILES;
}

long winograd_products(const conv *s, int of_x)
{
    return result_tiles(s, of_x).count * (kind_of(s) == THREE_STRIDE_2 ? PLANES_2 : PLANES);
}

int winograd_forward(const conv *s, const float *x, prologue before, const float *W,
                     const float *bias, float *y)
{
    const weights w = {W, s->c, s->k, s->k, 0};
    forward job = {
        .w = &w, .kind = kind_of(s), .taps = s->kh * s->kw,
        .x = {.x = x, .h = s->h, .w = s->w, .c = s->c, .top = s->ph, .left = s->pw,
              .before = before},
        .in = &read_x[kind_of(s)], .out = &into_y[kind_of(s)],
        .y = y, .h = s->out_h, .width = s->out_w, .k = s->k, .bias = bias,
        .tiles = result_tiles(s, 0),
    };
    return convolve(&job);
}

int winograd_input_gradient(const conv *s, const float *gy, const float *W, const float *plus,
                            float *gx)
{
    const weights w = {W, s->c, s->k, s->k, 1};
    forward job = {
        .w = &w, .kind = kind_of(s), .taps = s->kh * s->kw,
        .x = {.x = gy, .h = s->out_h, .w = s->out_w, .c = s->k},
        .in = &read_turned_gy[kind_of(s)], .out = &into_gx[kind_of(s)],
        .y = gx, .h = s->h, .width = s->w, .k = s->c, .plus = plus,
        .tiles = result_tiles(s, 1),
    };
    if (s->sy == 1)
        job.x.top = s->kh - 1 - s->ph, job.x.left = s->kw - 1 - s->pw;
    return convolve(&job);
}
