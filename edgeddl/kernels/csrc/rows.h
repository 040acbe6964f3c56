/* Matrices with a row for each pixel and a column for each channel, processed in blocks of rows.
 *
 * The blocks depend only on the size of the matrix. Each block has its own sums, in float32. The
 * sums are combined in the order of the blocks, in double. Results therefore do not depend on the
 * number of threads, and rounding errors do not grow with the number of rows.
 */
#ifndef EDGEDDL_ROWS_H
#define EDGEDDL_ROWS_H

#include "simd.h"
#include "threads.h"

/* A block is read twice: 24 KB stay in the L1 cache, and blocks of wide rows in the L2 cache. */
enum { BLOCK_FLOATS = 6 << 10, FEWEST_ROWS = 32, MOST_ROWS = 512 };
enum { GROUP = 4 }; /* vectors of channels summed at a time, in registers */

typedef struct {
    long rows, channels, block_rows, blocks;
} matrix;

static inline matrix matrix_of(long rows, long channels)
{
    long fitting = BLOCK_FLOATS / max_long(channels, 1);
    long block_rows = max_long(min_long(fitting, MOST_ROWS), FEWEST_ROWS);
    return (matrix){rows, channels, block_rows, ceil_div(rows, block_rows)};
}

static inline long first_row(const matrix *m, long block)
{
    return min_long(block * m->block_rows, m->rows);
}

static inline void run_blocks(const matrix *m, part_function *run, void *job)
{
    run_parts(run, job, parts_for(m->blocks, m->block_rows * m->channels));
}

/* Processes `count` numbers from channel c on, which begin at index i of the matrix. */
typedef void vector_function(const void *job, long i, long c, long count);

/* Processes this part's blocks, one vector at a time. */
ALWAYS_INLINE void each_vector(const matrix *m, int part, int parts, vector_function *run,
                               const void *job)
{
    const long channels = m->channels, last = first_row(m, part_start(m->blocks, part + 1, parts));
    for (long row = first_row(m, part_start(m->blocks, part, parts)); row < last; row++) {
        long c = 0, i = row * channels;
        for (; c + LANES <= channels; c += LANES)
            run(job, i + c, c, LANES);
        if (c < channels)
            run(job, i + c, c, channels - c);
    }
}

/* Sums over rows first .. last, for `vectors` vectors of channels from c on with `count` channels
 * each. Writes the results to sums[...][channels]. */
typedef void sum_function(const void *job, long first, long last, long c, long count, int vectors,
                          float *sums);

/* Computes the sums of this part's blocks: sums is [blocks][quantities][channels]. */
ALWAYS_INLINE void sum_blocks(const matrix *m, int part, int parts, sum_function *run,
                              const void *job, float *sums, long quantities)
{
    const long end = part_start(m->blocks, part + 1, parts);
    for (long b = part_start(m->blocks, part, parts); b < end; b++) {
        const long channels = m->channels, first = first_row(m, b), last = first_row(m, b + 1);
        float *to = sums + b * quantities * channels;
        long c = 0;
        for (; c + GROUP * LANES <= channels; c += GROUP * LANES)
            run(job, first, last, c, LANES, GROUP, to);
        for (; c + LANES <= channels; c += LANES)
            run(job, first, last, c, LANES, 1, to);
        if (c < channels)
            run(job, first, last, c, channels - c, 1, to);
    }
}

/* total[i] = the sum over blocks of sums[block][i], for i < quantities * channels. */
static inline void join_sums(const matrix *m, const float *sums, long quantities, double *total)
{
    const long count = quantities * m->channels;
    for (long i = 0; i < count; i++)
        total[i] = 0;
    for (long b = 0; b < m->blocks; b++)
        for (long i = 0; i < count; i++)
            total[i] += sums[b * count + i];
}

#endif
