/* 3 x 3 convolution with stride 1, and its gradients, by Winograd's algorithm (see the transforms).
 *
 * The image is cut into tiles of 4 x 4 outputs. For some tiles at a time, inputs are transformed to
 * V, 36 planes of [tiles][c]; each plane is multiplied by the transformed weights U, 36 planes of
 * [c][k], to 36 planes M of [tiles][k]; M is transformed back to outputs.
 *
 * Threads share the work in one of two ways. With few channels and many tiles each thread takes
 * tiles of its own, and all use the same U. With many channels U is too large to be kept (38 MB for
 * 512 x 512): threads transform V together, then each takes some columns of the product and makes
 * the part of U it needs.
 */
#include "winograd_tiles.h"

/* Tiles of a thread's own block: V and M stay in the second-level cache. */
ALWAYS_INLINE long own_tiles(long c)
{
    const long fit = L2_BYTES / 2 / (long)sizeof(float) / PLANES / (c + TILE_COLUMNS);
    return min_long(max_long(fit, 4 * TILE_ROWS), 48);
}
enum { SHARED_TILES = 128 };        /* of a block that all threads work on */
enum { SHARED_DEPTH = 128 };        /* channels for which U is made at a time */
enum { LARGEST_KEPT = 128 * 128 };  /* c * k up to which U is made as a whole */
enum { FEWEST_TILES = 6 };          /* below, transforming the weights costs too much */

/* U for rows first .. first + rows of the panel that begins at `column`; packed has room for them
 * as they are. */
static void transform_weights(const weights *w, long first, long rows, long column, float *packed,
                              planes U)
{
    const int taps = TAPS * TAPS;
    for (int tap = 0; tap < taps; tap++)
        pack_weights(w, w->turned ? taps - 1 - tap : tap, first, rows, column,
                     packed + tap * rows * TILE_COLUMNS);
    for (long i = 0; i < rows * TILE_COLUMNS; i += LANES) {
        vec in[TAPS * TAPS], out[PLANES];
#pragma GCC unroll 9
        for (int tap = 0; tap < taps; tap++)
            in[tap] = load(packed + tap * rows * TILE_COLUMNS + i);
        both_ways(weights_one_way, TAPS, POINTS, in, out);
#pragma GCC unroll 36
        for (int plane = 0; plane < PLANES; plane++)
            store(U.first + plane * U.plane + i, out[plane]);
    }
}

typedef struct {
    const conv *shape;
    grid tiles;
    images x;
    const weights *w;
    const float *bias, *plus;
    float *y;
    long first, count; /* tiles of the block that is shared */
    planes V, U;       /* what is shared */
    float *own;        /* workspace of the threads, own_floats each */
    long own_floats;
    int finite;
} forward;

static long panel_count(const forward *job) { return ceil_div(job->shape->k, TILE_COLUMNS); }

/* M = V U in one plane, for one panel. */
static void multiply_plane(int plane, planes V, planes U, planes M, long tiles, long depth,
                           long columns, int add)
{
    const product m = {
        .depth = depth,
        .a = V.first + plane * V.plane, .a_row = V.row, .a_depth = 1,
        .b = U.first + plane * U.plane, .b_depth = U.row,
        .c = M.first + plane * M.plane, .c_row = M.row,
        .add = add,
        .next = U.first + (plane + 1) * U.plane,
    };
    multiply(&m, tiles, columns);
}

/* Outputs of one tile, LANES channels from k on; returns a number that is finite if they are. */
ALWAYS_INLINE vec write_tile(const forward *job, position at, const float *m, long plane, long k)
{
    const conv *shape = job->shape;
    const long count = shape->k - k;
    const vec bias = job->bias ? load_some(job->bias + k, count) : (vec){0};
    vec in[PLANES], out[OUTPUTS * OUTPUTS];
#pragma GCC unroll 36
    for (int i = 0; i < PLANES; i++)
        in[i] = load(m + i * plane);
    both_ways(output_one_way, POINTS, OUTPUTS, in, out);
    const long high = min_long(OUTPUTS, shape->out_h - at.top);
    const long wide = min_long(OUTPUTS, shape->out_w - at.left);
    const long first = ((at.image * shape->out_h + at.top) * shape->out_w + at.left) * shape->k + k;
    const int whole = high == OUTPUTS && wide == OUTPUTS && count >= LANES;
#pragma GCC unroll 16
    for (int i = 0; i < OUTPUTS * OUTPUTS; i++) {
        const long at_pixel = first + (i / OUTPUTS * shape->out_w + i % OUTPUTS) * shape->k;
        if (whole)
            store(job->y + at_pixel,
                  job->plus ? out[i] + load(job->plus + at_pixel) : out[i] + bias);
        else if (i / OUTPUTS < high && i % OUTPUTS < wide) {
            const vec other = job->plus ? load_some(job->plus + at_pixel, count) : bias;
            store_some(job->y + at_pixel, out[i] + other, count);
        }
    }
    return out[0] + out[3] + out[12] + out[15]; /* every plane is in one of the corners */
}

static void write_outputs(forward *job, planes M, long first, long count, long column)
{
    const long columns = min_long(job->shape->k - column, TILE_COLUMNS);
    vec finite = {0};
    for (long t = 0; t < count; t++) {
        const position at = tile_position(&job->tiles, first + t);
        for (long k = 0; k < columns; k += LANES) {
            const vec sum = write_tile(job, at, M.first + t * M.row + k, M.plane, column + k);
            finite += sum - sum; /* zero, or NaN if any output is infinite or NaN */
        }
    }
    for (int lane = 0; lane < LANES; lane++)
        if (finite[lane] != 0)
            __atomic_store_n(&job->finite, 0, __ATOMIC_RELAXED);
}

/* Few channels: every thread its own tiles, one U for all. */

static void make_all_weights(void *context, int part, int parts)
{
    forward *job = context;
    const long c = job->shape->c, panels = panel_count(job);
    for (long panel = share(panels, part, parts); panel < share(panels, part + 1, parts); panel++) {
        planes U = job->U;
        U.first += panel * planes_floats(c, TILE_COLUMNS, 0);
        transform_weights(job->w, 0, c, panel * TILE_COLUMNS,
                          job->own + thread_number() * job->own_floats, U);
    }
}

static void forward_own_tiles(void *context, int part, int parts)
{
    forward *job = context;
    const long c = job->shape->c, k = job->shape->k, most = own_tiles(c);
    const long first = share(job->tiles.count, part, parts);
    const long end = share(job->tiles.count, part + 1, parts), blocks = ceil_div(end - first, most);
    float *memory = job->own + thread_number() * job->own_floats;
    const planes V = make_planes(memory, most, c, 0);
    const planes M = make_planes(memory + planes_floats(most, c, 0), most, TILE_COLUMNS, 0);
    for (long block = 0; block < blocks; block++) {
        const long from = first + (end - first) * block / blocks;
        const long count = first + (end - first) * (block + 1) / blocks - from;
        transform_inputs(&job->x, job->shape, &job->tiles, from, count, 0, V);
        for (long panel = 0; panel < panel_count(job); panel++) {
            planes U = job->U;
            U.first += panel * planes_floats(c, TILE_COLUMNS, 0);
            const long column = panel * TILE_COLUMNS, columns = min_long(k - column, TILE_COLUMNS);
            for (int plane = 0; plane < PLANES; plane++)
                multiply_plane(plane, V, U, M, count, c, columns, 0);
            write_outputs(job, M, from, count, column);
        }
    }
}

/* Many channels: all threads transform the tiles of a block, then each computes some panels. */

static void transform_shared_inputs(void *context, int part, int parts)
{
    forward *job = context;
    const long from = share(job->count, part, parts), to = share(job->count, part + 1, parts);
    transform_inputs(&job->x, job->shape, &job->tiles, job->first + from, to - from, from, job->V);
}

static void forward_own_panels(void *context, int part, int parts)
{
    forward *job = context;
    const long c = job->shape->c, k = job->shape->k, panels = panel_count(job);
    float *memory = job->own + thread_number() * job->own_floats;
    const planes M = make_planes(memory, SHARED_TILES, TILE_COLUMNS, 0);
    memory += planes_floats(SHARED_TILES, TILE_COLUMNS, 0);
    const planes U = make_planes(memory, SHARED_DEPTH, TILE_COLUMNS, 0);
    float *packed = memory + planes_floats(SHARED_DEPTH, TILE_COLUMNS, 0);
    for (long panel = share(panels, part, parts); panel < share(panels, part + 1, parts); panel++) {
        const long column = panel * TILE_COLUMNS;
        for (long depth = 0; depth < c; depth += SHARED_DEPTH) {
            const long rows = min_long(c - depth, SHARED_DEPTH);
            planes V = job->V;
            V.first += depth;
            transform_weights(job->w, depth, rows, column, packed, U);
            for (int plane = 0; plane < PLANES; plane++)
                multiply_plane(plane, V, U, M, job->count, rows,
                               min_long(k - column, TILE_COLUMNS), depth > 0);
        }
        write_outputs(job, M, job->first, job->count, column);
    }
}

int winograd_fits(const conv *s)
{
    return s->kh == 3 && s->kw == 3 && s->sy == 1 && s->sx == 1 && s->dy == 1 && s->dx == 1 &&
           s->groups == 1 && s->c >= 8 && s->k >= 8 && tile_grid(s).count >= FEWEST_TILES;
}

int winograd_forward(const conv *shape, const float *x, prologue before, const weights *w,
                     const float *bias, const float *plus, float *y)
{
    const long c = shape->c, k = shape->k, panels = ceil_div(k, TILE_COLUMNS);
    forward job = {.shape = shape, .tiles = tile_grid(shape), .w = w, .bias = bias, .plus = plus,
                   .y = y};
    const int keep = c * k <= LARGEST_KEPT;
    const long packed = TAPS * TAPS * TILE_COLUMNS * (keep ? c : SHARED_DEPTH);
    const long tiles = min_long(job.tiles.count, SHARED_TILES);
    const int parts = keep ? parts_for(job.tiles.count, PLANES * c * k)
                           : parts_for(panels, tiles * PLANES * c * TILE_COLUMNS);
    long shared;
    if (keep) {
        job.own_floats = planes_floats(own_tiles(c), c, 0) +
                         planes_floats(own_tiles(c), TILE_COLUMNS, 0) + packed;
        shared = panels * planes_floats(c, TILE_COLUMNS, 0);
    } else {
        job.own_floats = planes_floats(SHARED_TILES, TILE_COLUMNS, 0) +
                         planes_floats(SHARED_DEPTH, TILE_COLUMNS, 0) + packed;
        shared = planes_floats(tiles, c, 0);
    }
    job.own_floats = round_up(job.own_floats, PADDING);
    shared = round_up(shared, PADDING);
    const long nothing = round_up(c, PADDING);
    float *memory = workspace((size_t)(nothing + shared + thread_count() * job.own_floats));
    if (!memory)
        return OUT_OF_MEMORY;
    memset(memory, 0, (size_t)c * sizeof(float));
    job.x = (images){x, shape->h, shape->w, c, before, memory};
    job.own = memory + nothing + shared;
    job.finite = 1;
    if (keep) {
        job.U = make_planes(memory + nothing, c, TILE_COLUMNS, 0);
        run_parts(make_all_weights, &job, parts_for(panels, PLANES * c * TILE_COLUMNS));
        run_parts(forward_own_tiles, &job, parts);
    } else {
        job.V = make_planes(memory + nothing, tiles, c, 0);
        const long blocks = ceil_div(job.tiles.count, tiles);
        for (long block = 0; block < blocks; block++) {
            job.first = job.tiles.count * block / blocks;
            job.count = job.tiles.count * (block + 1) / blocks - job.first;
            run_parts(transform_shared_inputs, &job, parts_for(job.count, PLANES * c));
            run_parts(forward_own_panels, &job, parts);
        }
    }
    return job.finite ? DONE : NOT_FINITE;
}
