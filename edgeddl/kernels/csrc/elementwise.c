/* ReLU and addition: number by number, in plain loops that compilers make vector code of. */
#include "simd.h"
#include "threads.h"

typedef struct {
    const float *a, *b;
    float *out;
    long count;
} arrays;

/* The first number of a part: parts are of whole vectors. */
static long part_begin(const arrays *job, int part, int parts)
{
    return min_long(share(ceil_div(job->count, LANES), part, parts) * LANES, job->count);
}

static void relu_forward(void *context, int part, int parts)
{
    const arrays job = *(const arrays *)context;
    const float *restrict x = job.a;
    float *restrict y = job.out;
    const long end = part_begin(&job, part + 1, parts);
    for (long i = part_begin(&job, part, parts); i < end; i++)
        y[i] = x[i] < 0 ? 0 : x[i]; /* NaN stays */
}

static void relu_backward(void *context, int part, int parts)
{
    const arrays job = *(const arrays *)context;
    const float *restrict y = job.a, *restrict gy = job.b;
    float *restrict gx = job.out;
    const long end = part_begin(&job, part + 1, parts);
    for (long i = part_begin(&job, part, parts); i < end; i++) {
        const float g = gy[i];
        gx[i] = y[i] > 0 ? g : 0;
    }
}

static void add(void *context, int part, int parts)
{
    const arrays job = *(const arrays *)context;
    const float *restrict x = job.a, *restrict y = job.b;
    float *restrict sum = job.out;
    const long end = part_begin(&job, part + 1, parts);
    for (long i = part_begin(&job, part, parts); i < end; i++)
        sum[i] = x[i] + y[i];
}

EXPORT int edgeddl_relu_forward(const float *x, float *y, long count)
{
    run_parts(relu_forward, &(arrays){x, NULL, y, count}, parts_for(count, 1));
    return DONE;
}

EXPORT int edgeddl_relu_backward(const float *y, const float *gy, float *gx, long count)
{
    run_parts(relu_backward, &(arrays){y, gy, gx, count}, parts_for(count, 1));
    return DONE;
}

EXPORT int edgeddl_add(const float *x, const float *y, float *sum, long count)
{
    run_parts(add, &(arrays){x, y, sum, count}, parts_for(count, 1));
    return DONE;
}
