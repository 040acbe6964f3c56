/* Stochastic gradient descent with momentum over flat arrays, in one pass over memory:
 *
 *   d = gradient + decay * p,   v = momentum * v + d,   p = p - rate * v
 *
 * or, with Nesterov's momentum, p = p - rate * d - rate * momentum * v. Each segment of the arrays
 * has its own decay. Elements outside all segments do not change.
 *
 * A gradient may also be given as the product of two thin matrices: its elements are computed when
 * they are needed, and never written to memory.
 */
#include "edgeddl.h"
#include "simd.h"
#include "threads.h"

typedef struct {
    float *p, *v;
    float rate_d, rate_v, momentum;
} rule;

typedef struct {
    rule rule;
    const segment *segments;
    long count;
    const float *gradient;
} job;

typedef struct {
    rule rule;
    const matrix_place *places;
    const double *decays;
    long count, rank;
    const float *lefts, *rights;
} products_job;

static rule make_rule(float *parameters, float *velocity, double rate, double momentum,
                      int nesterov)
{
    return (rule){parameters, velocity, nesterov ? (float)rate : 0,
                  (float)(nesterov ? rate * momentum : rate), (float)momentum};
}

/* Whole and partial vectors use the same code: results do not depend on an element's position. */
ALWAYS_INLINE void update(const rule *r, vec d, float decay, long i, long count)
{
    vec p = load_some(r->p + i, count), v = load_some(r->v + i, count);
    if (decay != 0) /* an infinite parameter times 0 would be NaN */
        d += splat(decay) * p;
    v = splat(r->momentum) * v + d;
    p -= splat(r->rate_v) * v;
    if (r->rate_d != 0)
        p -= splat(r->rate_d) * d;
    store_some(r->v + i, v, count);
    store_some(r->p + i, p, count);
}

/* Each part takes its share of every segment. */
static void update_part(void *context, int part, int parts)
{
    const job j = *(const job *)context;
    for (const segment *s = j.segments; s < j.segments + j.count; s++) {
        const long length = s->end - s->start, end = s->start + part_start(length, part + 1, parts);
        const float decay = (float)s->decay;
        for (long i = s->start + part_start(length, part, parts); i < end; i += LANES)
            update(&j.rule, load_some(j.gradient + i, end - i), decay, i, end - i);
    }
}

int edgeddl_momentum_sgd(const segment *segments, long count, float *parameters,
                         const float *gradients, float *velocity, double rate,
                         double momentum, int nesterov)
{
    job j = {make_rule(parameters, velocity, rate, momentum, nesterov), segments, count, gradients};
    long longest = 0;
    for (long i = 0; i < count; i++)
        longest = max_long(longest, segments[i].end - segments[i].start);
    run_parts(update_part, &j, parts_for(longest, 1));
    return DONE;
}

/* `count` columns of a row of left right. */
ALWAYS_INLINE vec product(const float *left, const float *right, long columns, long rank,
                          long count)
{
    vec sum = {0};
    for (long k = 0; k < rank; k++)
        sum += splat(left[k]) * load_some(right + k * columns, count);
    return sum;
}

/* Each part takes its share of the rows of every matrix. */
static void update_products_part(void *context, int part, int parts)
{
    const products_job j = *(const products_job *)context;
    for (long m = 0; m < j.count; m++) {
        const matrix_place p = j.places[m];
        const float decay = (float)j.decays[m], *right = j.rights + p.right;
        const long last = part_start(p.rows, part + 1, parts);
        for (long row = part_start(p.rows, part, parts); row < last; row++) {
            const float *left = j.lefts + p.left + row * j.rank;
            const long at = p.gradient + row * p.columns;
            long c = 0;
            for (; c + LANES <= p.columns; c += LANES)
                update(&j.rule, product(left, right + c, p.columns, j.rank, LANES), decay, at + c,
                       LANES);
            if (c < p.columns)
                update(&j.rule, product(left, right + c, p.columns, j.rank, p.columns - c), decay,
                       at + c, p.columns - c);
        }
    }
}

int edgeddl_momentum_sgd_of_products(const matrix_place *places, const double *decays,
                                     long count, long rank, const float *lefts,
                                     const float *rights, float *parameters, float *velocity,
                                     double rate, double momentum, int nesterov)
{
    products_job j = {make_rule(parameters, velocity, rate, momentum, nesterov),
                      places, decays, count, rank, lefts, rights};
    long largest = 0;
    for (long m = 0; m < count; m++)
        largest = max_long(largest, places[m].rows * places[m].columns);
    run_parts(update_products_part, &j, parts_for(largest, 1));
    return DONE;
}
