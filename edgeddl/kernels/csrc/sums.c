/* Sums over all rows of a matrix, and means over the pixels of each image. */
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

EXPORT int edgeddl_channel_sums(long rows, long channels, const float *x, float *result)
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

typedef struct {
    long images, pixels, channels;
    const float *from;
    float *to;
} averaging;

static void average_part(void *context, int part, int parts)
{
    const averaging job = *(const averaging *)context;
    const long size = job.pixels * job.channels, last = share(job.images, part + 1, parts);
    for (long n = share(job.images, part, parts); n < last; n++) {
        const summation image = {.m.channels = job.channels, .x = job.from + n * size};
        float *y = job.to + n * job.channels;
        each_group(job.channels, sum_rows, &image, 0, job.pixels, y);
        for (long c = 0; c < job.channels; c++)
            y[c] /= (float)job.pixels;
    }
}

static void spread_part(void *context, int part, int parts)
{
    const averaging job = *(const averaging *)context;
    const long last = share(job.images, part + 1, parts);
    for (long n = share(job.images, part, parts); n < last; n++) {
        const float *gy = job.from + n * job.channels;
        float *first = job.to + n * job.pixels * job.channels;
        for (long c = 0; c < job.channels; c++)
            first[c] = gy[c] / (float)job.pixels;
        for (long pixel = 1; pixel < job.pixels; pixel++)
            memcpy(first + pixel * job.channels, first, (size_t)job.channels * sizeof(float));
    }
}

EXPORT int edgeddl_global_average_forward(long images, long pixels, long channels, const float *x,
                                          float *y)
{
    averaging job = {images, pixels, channels, x, y};
    run_parts(average_part, &job, parts_for(images, pixels * channels));
    return DONE;
}

EXPORT int edgeddl_global_average_backward(long images, long pixels, long channels,
                                           const float *gy, float *gx)
{
    averaging job = {images, pixels, channels, gy, gx};
    run_parts(spread_part, &job, parts_for(images, pixels * channels));
    return DONE;
}
