/* Stochastic gradient descent with momentum over flat arrays, in one walk over memory:
 *
 *   d = gradient + decay * p,   v = momentum * v + d,   p = p - rate * v
 *
 * or, with Nesterov's momentum, p = p - rate * d - rate * momentum * v. Segments of the arrays have
 * each its decay; what is in none of them stays as it is.
 */
#include "simd.h"
#include "threads.h"

typedef struct {
    long start, end;
    double decay;
} segment;

typedef struct {
    const segment *segments;
    long count;
    float *p, *v;
    const float *gradient;
    float rate_d, rate_v, momentum;
} job;

/* Whole vectors and the last part of one go the same way: an element's place does not matter. */
ALWAYS_INLINE void update(const job *j, float decay, long i, long count)
{
    vec p = load_some(j->p + i, count), v = load_some(j->v + i, count);
    vec d = load_some(j->gradient + i, count);
    if (decay != 0) /* an infinite parameter times 0 would be NaN */
        d += splat(decay) * p;
    v = splat(j->momentum) * v + d;
    p -= splat(j->rate_v) * v;
    if (j->rate_d != 0)
        p -= splat(j->rate_d) * d;
    store_some(j->v + i, v, count);
    store_some(j->p + i, p, count);
}

/* Each part takes its share of every segment. */
static void update_part(void *context, int part, int parts)
{
    const job j = *(const job *)context;
    for (const segment *s = j.segments; s < j.segments + j.count; s++) {
        const long length = s->end - s->start, end = s->start + share(length, part + 1, parts);
        const float decay = (float)s->decay;
        long i = s->start + share(length, part, parts);
        for (; i + LANES <= end; i += LANES)
            update(&j, decay, i, LANES);
        if (i < end)
            update(&j, decay, i, end - i);
    }
}

EXPORT int edgeddl_momentum_sgd(const segment *segments, long count, float *parameters,
                                const float *gradients, float *velocity, double rate,
                                double momentum, int nesterov)
{
    job j = {segments, count, parameters, velocity, gradients, nesterov ? (float)rate : 0,
             (float)(nesterov ? rate * momentum : rate), (float)momentum};
    long longest = 0;
    for (long i = 0; i < count; i++)
        longest = max_long(longest, segments[i].end - segments[i].start);
    run_parts(update_part, &j, parts_for(longest, 1));
    return DONE;
}
