/* Gradient of the weights of a 3 x 3 or 5 x 5 convolution by Winograd's algorithm.
 *
 * Inputs and gradients of the outputs are transformed to V, planes of [tiles][c], and Y, planes of
 * [tiles][k]. In each plane the product V' Y sums over the tiles; what it gives for each of the 36
 * planes of the weights, [c][k], is transformed to gradients of a window chunk by chunk. As the last
 * step is linear, it is done for each block of tiles, and sums over all tiles need only the room of
 * the gradient itself.
 *
 * With few channels each thread sums over tiles of its own, and the sums are added up in the end.
 * With many channels threads transform a block of tiles together, then each computes some chunks.
 */
#include "winograd_tiles.h"

enum { BLOCK_TILES = 64 };
/* Input channels of a chunk, whose columns are a panel: the more there are, the less often Y is
 * read; but for its sums there must be room in the second-level cache beside V and Y, if they are
 * there, too. */
enum { OWN_CHUNK_ROWS = 32, SHARED_CHUNK_ROWS = 64 };
enum { LARGEST_PRIVATE = 64 * 64 };   /* c * k up to which each thread has a gradient of its own */

typedef struct {
    const conv *shape;
    const reading *read_x, *read_gy;
    grid tiles;
    images x, gy;
    float *gW;
    long chunk_rows;
    long most;         /* tiles of a block */
    long first, count; /* those of the block that is shared */
    planes V, Y, sums; /* with memory of their own in every thread, but for what is shared */
    float *own; /* workspace of the parts, or of the threads, own_floats each */
    long own_floats;
    int add, finite;
} gradient;

static int plane_count(const gradient *job)
{
    return job->read_x->points * job->read_x->points;
}

static long gradient_floats(const conv *s) { return s->kh * s->kw * s->c * s->k; }

/* Gradients of taps x taps from the sums of 36 planes; tells whether they are finite. */
ALWAYS_INLINE vec write_taps(const conv *shape, planes sums, long c, long rows, long k,
                             long columns, float *gW, int add, one_way transform, const int taps)
{
    vec finite = {0};
    for (long row = 0; row < rows; row++)
        for (long column = 0; column < columns; column += LANES) {
            vec in[PLANES], out[MOST_PLANES];
#pragma GCC unroll 36
            for (int plane = 0; plane < PLANES; plane++)
                in[plane] = load(sums.first + plane * sums.plane + row * sums.row + column);
            both_ways(transform, POINTS, taps, in, out);
#pragma GCC unroll 25
            for (int tap = 0; tap < taps * taps; tap++) {
                float *target = gW + (tap * shape->c + c + row) * shape->k + k + column;
                const long count = columns - column;
                __builtin_prefetch(target + 2 * shape->k, 1); /* 3 % with 256 channels and more */
                const vec sum = add ? load_some(target, count) + out[tap] : out[tap];
                store_some(target, sum, count);
                finite += sum - sum; /* zero, or NaN */
            }
        }
    return finite;
}

static vec write_chunk(const conv *s, planes sums, long c, long rows, long k, long columns,
                       float *gW, int add)
{
    if (kind_of(s) == THREE)
        return write_taps(s, sums, c, rows, k, columns, gW, add, weight_gradient_one_way, TAPS);
    if (kind_of(s) == THREE_STRIDE_2)
        return write_taps(s, sums, c, rows, k, columns, gW, add, weight_gradient_one_way_2, TAPS);
    return write_taps(s, sums, c, rows, k, columns, gW, add, weight_gradient_one_way_5, TAPS_5);
}

static long chunk_count(const gradient *job)
{
    return ceil_div(job->shape->c, job->chunk_rows) * ceil_div(job->shape->k, PANEL_COLUMNS);
}

/* Chunks from .. to of the gradient for `count` tiles. A chunk is chunk_rows x PANEL_COLUMNS. */
static void compute_chunks(gradient *job, planes V, planes Y, long first, long count, long from,
                           long to, float *memory, float *gW, int add)
{
    const long c = job->shape->c, k = job->shape->k, across = ceil_div(c, job->chunk_rows);
    const planes sums = put_at(memory, job->sums);
    /* Asked for meanwhile: the pixels of the tiles that come next or, if there are none, the next
     * planes of V and Y. */
    const int more = first + count < job->tiles.count;
    const long steps = product_steps(count, job->chunk_rows, PANEL_COLUMNS);
    const long all_steps = (to - from) * plane_count(job) * steps;
    stream inputs = ask_for_tiles(&job->x, &job->tiles, first + count, count, all_steps);
    stream outputs = ask_for_tiles(&job->gy, &job->tiles, first + count, count, all_steps);
    vec finite = {0};
    for (long chunk = from; chunk < to; chunk++) {
        const long column = chunk / across * PANEL_COLUMNS;
        const long columns = min_long(k - column, PANEL_COLUMNS);
        const long row = chunk % across * job->chunk_rows;
        const long rows = min_long(c - row, job->chunk_rows);
        if (!more) {
            inputs = ask_for(at_column(&V, row) + V.plane, V.plane, steps);
            outputs = ask_for(at_column(&Y, column) + Y.plane, Y.plane, steps);
        }
        for (int plane = 0; plane < plane_count(job); plane++) {
            const int points = job->read_x->points, sum = weight_plane(plane, points);
            const product m = {
                .depth = count,
                .a = at_column(&V, row) + plane * V.plane, .a_row = 1, .a_depth = V.row,
                .b = at_column(&Y, column) + plane * Y.plane, .b_depth = Y.row,
                .c = sums.first + sum * sums.plane, .c_row = sums.row,
                .add = plane / points >= POINTS || plane % points >= POINTS,
                .ahead = {&inputs, &outputs},
            };
            multiply(&m, rows, columns);
        }
        finite += write_chunk(job->shape, sums, row, rows, column, columns, gW, add);
    }
    for (int lane = 0; lane < LANES; lane++)
        if (finite[lane] != 0)
            __atomic_store_n(&job->finite, 0, __ATOMIC_RELAXED);
}

/* Few channels. */

static long own_tiles(const gradient *job)
{
    const long floats = plane_count(job) * (job->shape->c + job->shape->k);
    const long fit = GRADIENT_BYTES / (long)sizeof(float) / floats;
    return min_long(max_long(fit, 24), BLOCK_TILES);
}

static void gradient_of_own_tiles(void *context, int part, int parts)
{
    gradient *job = context;
    const conv *shape = job->shape;
    const long first = share(job->tiles.count, part, parts), most = job->most;
    const long end = share(job->tiles.count, part + 1, parts), blocks = ceil_div(end - first, most);
    float *memory = job->own + part * job->own_floats;
    float *gW = part ? memory : job->gW;
    memory += gradient_floats(shape);
    const planes V = put_at(memory, job->V), Y = put_at(V.first + V.panel, job->Y);
    memory = Y.first + Y.panel;
    for (long block = 0; block < blocks; block++) {
        const long from = first + (end - first) * block / blocks;
        const long count = first + (end - first) * (block + 1) / blocks - from;
        read_tiles(&job->x, job->read_x, &job->tiles, from, count, 0, V);
        read_tiles(&job->gy, job->read_gy, &job->tiles, from, count, 0, Y);
        compute_chunks(job, V, Y, from, count, 0, chunk_count(job), memory, gW, block > 0);
    }
}

static void add_up(gradient *job, int parts)
{
    const long length = gradient_floats(job->shape);
    for (int part = 1; part < parts; part++) {
        const float *other = job->own + part * job->own_floats;
        for (long i = 0; i < length; i++)
            job->gW[i] += other[i];
    }
}

/* Many channels. */

static void transform_shared_tiles(void *context, int part, int parts)
{
    gradient *job = context;
    const long from = share(job->count, part, parts);
    const long count = share(job->count, part + 1, parts) - from;
    read_tiles(&job->x, job->read_x, &job->tiles, job->first + from, count, from, job->V);
    read_tiles(&job->gy, job->read_gy, &job->tiles, job->first + from, count, from, job->Y);
}

static void compute_own_chunks(void *context, int part, int parts)
{
    gradient *job = context;
    const long chunks = chunk_count(job);
    compute_chunks(job, job->V, job->Y, job->first, job->count, share(chunks, part, parts),
                   share(chunks, part + 1, parts), job->own + thread_number() * job->own_floats,
                   job->gW, job->add);
}

int winograd_weight_gradient(const conv *shape, const float *x, prologue before, const float *gy,
                             float *gW)
{
    const long c = shape->c, k = shape->k, channels = max_long(c, k);
    gradient job = {
        .shape = shape, .gW = gW, .finite = 1,
        .read_x = &read_x[kind_of(shape)], .read_gy = &read_gy[kind_of(shape)],
        .tiles = tile_grid(shape->n, shape->out_h, shape->out_w, read_gy[kind_of(shape)].step),
    };
    const int count = plane_count(&job);
    const int private = c * k <= LARGEST_PRIVATE;
    const long tiles = min_long(job.tiles.count, private ? own_tiles(&job) : BLOCK_TILES);
    job.most = tiles;
    job.chunk_rows = private ? OWN_CHUNK_ROWS : SHARED_CHUNK_ROWS;
    const long chunk_work = tiles * count * job.chunk_rows * PANEL_COLUMNS;
    const int parts = private ? sums_for(job.tiles.count / 8, 8 * count * c * k)
                              : parts_for(chunk_count(&job), chunk_work);
    job.V = make_planes(NULL, count, tiles, private ? c : SHARED_CHUNK_ROWS, PADDING);
    job.Y = make_planes(NULL, count, tiles, private ? k : PANEL_COLUMNS, PADDING);
    job.sums = make_planes(NULL, PLANES, job.chunk_rows, PANEL_COLUMNS, 0);
    const long v = planes_floats(&job.V, c), y = planes_floats(&job.Y, k);
    job.own_floats = job.sums.panel;
    if (private)
        job.own_floats += gradient_floats(shape) + v + y;
    job.own_floats = round_up(job.own_floats, PADDING);
    const long nothing = round_up(channels, PADDING);
    const long shared = private ? 0 : round_up(v + y, PADDING);
    float *memory = workspace((size_t)(nothing + shared + thread_count() * job.own_floats));
    if (!memory)
        return OUT_OF_MEMORY;
    memset(memory, 0, (size_t)channels * sizeof(float));
    job.x = (images){x, shape->h, shape->w, c, shape->ph, shape->pw, before, memory};
    job.gy = (images){gy, shape->out_h, shape->out_w, k, 0, 0, {NULL, NULL}, memory};
    job.own = memory + nothing + shared;
    if (private) {
        run_parts(gradient_of_own_tiles, &job, parts);
        add_up(&job, parts);
        return job.finite ? DONE : NOT_FINITE;
    }
    job.V.first = memory + nothing;
    job.Y.first = memory + nothing + v;
    const long blocks = ceil_div(job.tiles.count, tiles);
    for (long block = 0; block < blocks; block++) {
        job.first = job.tiles.count * block / blocks;
        job.count = job.tiles.count * (block + 1) / blocks - job.first;
        job.add = block > 0;
        run_parts(transform_shared_tiles, &job, parts_for(job.count, count * (c + k)));
        run_parts(compute_own_chunks, &job, parts);
    }
    return job.finite ? DONE : NOT_FINITE;
}
