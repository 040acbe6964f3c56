/* ReLU and addition, element by element, in plain loops that compilers vectorise. */
#include "edgeddl.h"
#include "simd.h"
#include "threads.h"

typedef struct {
    enum { RELU, RELU_GRADIENT, ADD } what;
    const float *a, *b;
    float *out;
    long count;
} arrays;

/* First element of a part. Parts consist of whole vectors. */
static long part_begin(const arrays *job, int part, int parts)
{
    return min_long(part_start(ceil_div(job->count, LANES), part, parts) * LANES, job->count);
}

static void compute_part(void *context, int part, int parts)
{
    const arrays job = *(const arrays *)context;
    const float *restrict a = job.a, *restrict b = job.b;
    float *restrict out = job.out;
    const long first = part_begin(&job, part, parts), end = part_begin(&job, part + 1, parts);
    if (job.what == RELU)
        for (long i = first; i < end; i++)
            out[i] = a[i] < 0 ? 0 : a[i]; /* keeps NaN */
    else if (job.what == RELU_GRADIENT)
        for (long i = first; i < end; i++) {
            const float g = b[i];
            out[i] = a[i] > 0 ? g : 0;
        }
    else
        for (long i = first; i < end; i++)
            out[i] = a[i] + b[i];
}

static int compute(arrays job)
{
    run_parts(compute_part, &job, parts_for(job.count, 1));
    return DONE;
}

int edgeddl_relu_forward(const float *x, float *y, long count)
{
    return compute((arrays){RELU, x, NULL, y, count});
}

int edgeddl_relu_backward(const float *y, const float *gy, float *gx, long count)
{
    return compute((arrays){RELU_GRADIENT, y, gy, gx, count});
}

int edgeddl_add(const float *x, const float *y, float *sum, long count)
{
    return compute((arrays){ADD, x, y, sum, count});
}
