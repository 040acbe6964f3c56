/* Sums over all rows of a matrix. */
#include "edgeddl.h"
#include "rows.h"

typedef struct {
    matrix m;
    const float *x;
    float *sums; /* [blocks][channels] */
} summation;

ALWAYS_INLINE void sum_rows(const void *context, long first, long last, long c, long count,
                            int vectors, float *sums)
{
    const summation *job = context;
    vec sum[GROUP] = {0};
    for (long row = first; row < last; row++)
        for (int v = 0; v < vectors; v++)
            sum[v] += load_some(job->x + row * job->m.channels + c + v * LANES, count);
    for (int v = 0; v < vectors; v++)
        store_some(sums + c + v * LANES, sum[v], count);
}

static void sum_part(void *context, int part, int parts)
{
    const summation job = *(const summation *)context;
    sum_blocks(&job.m, part, parts, sum_rows, &job, job.sums, 1);
}

int edgeddl_channel_sums(long rows, long channels, const float *x, float *result)
{
    matrix m = matrix_of(rows, channels);
    double *total = (double *)workspace((size_t)((2 + m.blocks) * channels));
    if (!total)
        return OUT_OF_MEMORY;
    summation job = {m, x, (float *)(total + channels)};
    run_blocks(&m, sum_part, &job);
    join_sums(&m, job.sums, 1, total);
    for (long c = 0; c < channels; c++)
        result[c] = (float)total[c];
    return DONE;
}
