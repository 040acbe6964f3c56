/* Stochastic gradient descent with momentum over flat arrays, in one walk over memory:
 *
 *   d = gradient + decay * p,   v = momentum * v + d,   p = p - rate * v
 *
 * or, with Nesterov's momentum, p = p - rate * d - rate * momentum * v.
 */
#include "simd.h"
#include "threads.h"

typedef struct {
    long count;
    float *p, *v;
    const float *gradient;
    float rate_d, rate_v, momentum, decay;
} job;

/* Whole vectors and the last part of one go the same way: an element's place does not matter. */
ALWAYS_INLINE void update(const job *j, long i, long count)
{
    vec p = load_some(j->p + i, count), v = load_some(j->v + i, count);
    vec d = load_some(j->gradient + i, count);
    if (j->decay != 0) /* an infinite parameter times 0 would be NaN */
        d += splat(j->decay) * p;
    v = splat(j->momentum) * v + d;
    p -= splat(j->rate_v) * v;
    if (j->rate_d != 0)
        p -= splat(j->rate_d) * d;
    store_some(j->v + i, v, count);
    store_some(j->p + i, p, count);
}

static void update_part(void *context, int part, int parts)
{
    const job j = *(const job *)context;
    const long vectors = ceil_div(j.count, LANES), end = share(vectors, part + 1, parts) * LANES;
    long i = share(vectors, part, parts) * LANES;
    for (; i + LANES <= min_long(end, j.count); i += LANES)
        update(&j, i, LANES);
    if (i < min_long(end, j.count))
        update(&j, i, j.count - i);
}

EXPORT int edgeddl_momentum_sgd(long count, float *parameters, const float *gradients,
                                float *velocity, double rate, double momentum, double decay,
                                int nesterov)
{
    job j = {count, parameters, velocity, gradients, nesterov ? (float)rate : 0,
             (float)(nesterov ? rate * momentum : rate), (float)momentum, (float)decay};
    run_parts(update_part, &j, parts_for(count, 1));
    return DONE;
}
