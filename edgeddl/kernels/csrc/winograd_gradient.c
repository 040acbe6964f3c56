/* Gradient of the weights of a 3 x 3 or 5 x 5 convolution by Winograd's algorithm.
 *
 * Inputs are transformed to V, planes of [tiles][c], and gradients of the outputs to Y, planes of
 * [tiles][k]. In each plane the product V' Y sums over the tiles. The results for the 36 planes of
 * the weights, [c][k], are transformed to gradients of a window chunk by chunk. This last step is
 * linear. It is done for each block of tiles, so the sums over all tiles need only the memory of
 * the gradient itself.
 *
 * With few channels each thread sums over its own tiles, and the sums are added at the end. With
 * many channels all threads transform a block of tiles together, then each computes some chunks.
 */
#include "winograd_tiles.h"

enum { BLOCK_TILES = 64 };
/* Input channels of a chunk, which is one panel wide. With more channels, Y is read less often. But
 * the sums have to fit in the L2 cache, beside V and Y if these are in it as well. */
enum { OWN_CHUNK_ROWS = 32, SHARED_CHUNK_ROWS = 64 };
enum { LARGEST_PRIVATE = 64 * 64 };   /* largest c * k with private gradients */

typedef struct {
    const conv *shape;
    kind kind;
    float *gW;
    float *others; /* private gradients of all parts but the first, if there are any */
    long chunk_rows;
    planes sums; /* layout; each thread has its own memory for them */
} gradient;

static long gradient_floats(const conv *s) { return s->kh * s->kw * s->c * s->k; }

/* Transforms the sums of 36 planes to gradients of taps x taps. Returns zeros, or NaN where a
 * gradient is not finite. */
ALWAYS_INLINE vec write_taps(const conv *shape, planes sums, long c, long rows, long k,
                             long columns, float *gW, int add, const kind kind)
{
    const int taps = sizes[kind].taps;
    vec finite = {0};
    for (long row = 0; row < rows; row++)
        for (long column = 0; column < columns; column += LANES) {
            vec in[PLANES], out[MOST_PLANES];
#pragma GCC unroll 36
            for (int plane = 0; plane < PLANES; plane++)
                in[plane] = load(sums.first + plane * sums.plane + row * sums.row + column);
            both_ways(weight_gradient_one_way, kind, POINTS, taps, in, out);
#pragma GCC unroll 25
            for (int tap = 0; tap < taps * taps; tap++) {
                float *target = gW + (tap * shape->c + c + row) * shape->k + k + column;
                const long count = columns - column;
                __builtin_prefetch(target + 2 * shape->k, 1); /* 3 % faster from 256 channels on */
                const vec sum = add ? load_some(target, count) + out[tap] : out[tap];
                store_some(target, sum, count);
                finite += sum - sum;
            }
        }
    return finite;
}

static vec write_chunk(const gradient *job, planes sums, long c, long rows, long k, long columns,
                       float *gW, int add)
{
    const conv *s = job->shape;
    switch (job->kind) {
    case THREE: return write_taps(s, sums, c, rows, k, columns, gW, add, THREE);
    case FIVE: return write_taps(s, sums, c, rows, k, columns, gW, add, FIVE);
    default: return write_taps(s, sums, c, rows, k, columns, gW, add, STRIDE_2);
    }
}

/* Computes chunks of chunk_rows x PANEL_COLUMNS of the gradient, for the tiles of a block. */
static void compute_chunks(void *context, int part, int parts)
{
    const tile_loop *w = context;
    const gradient *job = w->job;
    const planes V = w->V[0], Y = w->V[1], sums = put_at(own_memory(w), job->sums);
    const long c = w->in[0].c, k = w->in[1].c, across = ceil_div(c, job->chunk_rows);
    const long from = part_start(w->items, part, parts), to = part_start(w->items, part + 1, parts);
    float *gW = w->part ? job->others + (w->part - 1) * gradient_floats(job->shape) : job->gW;
    /* Prefetched meanwhile: the pixels of the next tiles or, if there are none, the next planes of
     * V and Y. */
    const int points = w->points;
    const long next = w->first + w->count;
    const long steps = product_steps(w->count, job->chunk_rows, PANEL_COLUMNS);
    const long all_steps = (to - from) * points * points * steps;
    prefetch inputs = prefetch_tiles(&w->in[0], &w->tiles, next, w->count, all_steps);
    prefetch outputs = prefetch_tiles(&w->in[1], &w->tiles, next, w->count, all_steps);
    vec finite = {0};
    for (long chunk = from; chunk < to && sums.first; chunk++) {
        const long column = chunk / across * PANEL_COLUMNS;
        const long columns = min_long(k - column, PANEL_COLUMNS);
        const long row = chunk % across * job->chunk_rows;
        const long rows = min_long(c - row, job->chunk_rows);
        if (next == w->tiles.count) {
            inputs = prefetch_range(at_column(&V, row) + V.plane, V.plane, steps);
            outputs = prefetch_range(at_column(&Y, column) + Y.plane, Y.plane, steps);
        }
        for (int plane = 0; plane < points * points; plane++) {
            const product m = {
                .depth = w->count,
                .a = at_column(&V, row) + plane * V.plane, .a_row = 1, .a_depth = V.row,
                .b = at_column(&Y, column) + plane * Y.plane, .b_depth = Y.row,
                .c = sums.first + weight_plane(plane, points) * sums.plane, .c_row = sums.row,
                .add = plane / points >= POINTS || plane % points >= POINTS,
                .ahead = {&inputs, &outputs},
            };
            multiply(&m, rows, columns);
        }
        finite += write_chunk(job, sums, row, rows, column, columns, gW, w->block > 0);
    }
    check_finite(w, finite);
}

/* Tiles of a block. If each thread has its own tiles, V and Y stay in a cache. */
static long block_tiles(const tile_loop *w)
{
    const long floats = w->points * w->points * (w->in[0].c + w->in[1].c);
    const long fit = GRADIENT_BYTES / (long)sizeof(float) / floats;
    const long most = w->own_tiles ? min_long(max_long(fit, 24), BLOCK_TILES) : BLOCK_TILES;
    return min_long(w->tiles.count, most);
}

static void add_up(const gradient *job, int parts)
{
    const long length = gradient_floats(job->shape);
    for (const float *other = job->others; --parts > 0; other += length)
        for (long i = 0; i < length; i++)
            job->gW[i] += other[i];
}

int winograd_weight_gradient(const conv *s, const float *x, folded_norm norm, const float *gy,
                             float *gW)
{
    const kind kind = kind_of(s, 0);
    const int private = s->c * s->k <= LARGEST_PRIVATE, points = sizes[kind].points;
    gradient job = {.shape = s, .kind = kind, .gW = gW};
    job.chunk_rows = private ? OWN_CHUNK_ROWS : SHARED_CHUNK_ROWS;
    job.sums = make_planes(PLANES, job.chunk_rows, PANEL_COLUMNS, 0);
    int result = DONE;
    tile_loop w = {
        .tiles = tile_grid(s->n, s->out_h, s->out_w, sizes[kind].gradients), .points = points,
        .in = {{.x = x, .h = s->h, .w = s->w, .c = s->c, .kind = kind, .top = s->ph, .left = s->pw,
                .norm = norm},
               {.x = gy, .h = s->out_h, .w = s->out_w, .c = s->k, .kind = kind, .for_weights = 1}},
        .widths = {SHARED_CHUNK_ROWS, PANEL_COLUMNS},
        .compute = compute_chunks, .job = &job,
        .items = ceil_div(s->c, job.chunk_rows) * ceil_div(s->k, PANEL_COLUMNS),
        .own_tiles = private, .own_floats = job.sums.panel, .result = &result,
    };
    w.most = block_tiles(&w);
    w.item_work = w.most * points * points * job.chunk_rows * PANEL_COLUMNS;
    const int parts =
        private ? sums_for(w.tiles.count / 8, 8 * points * points * s->c * s->k) : 1;
    job.others = prepare_tile_loop(&w, PADDING, (parts - 1) * gradient_floats(s));
    if (!job.others)
        return OUT_OF_MEMORY;
    run_tile_loop(&w, parts);
    add_up(&job, parts);
    return result;
}
