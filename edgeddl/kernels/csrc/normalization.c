/* Batch normalisation of each channel over all rows (the pixels of all images):
 *
 *   y = x * scale + shift,   scale = gamma / sqrt(var + eps),   shift = beta - mean * scale
 *
 * or relu(y), or relu(y + residual). Backward, where g is the gradient of y:
 *
 *   gbeta = sum g,   ggamma = sum g * (x - mean) / std,
 *   gx = scale * (g - gbeta / rows - (x - mean) / std * ggamma / rows)
 */
#include <math.h>

#include "edgeddl.h"
#include "rows.h"

enum kind { PLAIN, RELU, RESIDUAL }; /* what follows the normalisation */

typedef struct {
    matrix m;
    enum kind kind;
    const float *x, *residual, *y, *gy;
    const float *mean, *scale, *shift, *to_x, *to_all; /* one number per channel */
    float *out, *sums;
} job;

/* Backward uses the same expression, so it finds exactly the zeros of the ReLU again. */
ALWAYS_INLINE vec normalized(const job *j, vec x, long c, long count)
{
    return x * load_some(j->scale + c, count) + load_some(j->shift + c, count);
}

/* The shift is computed from the rounded scale, so that y is beta at x = mean for any mean. */
static void scale_and_shift(long channels, const float *gamma, const float *beta, const float *mean,
                            const float *var, double eps, float *scale, float *shift)
{
    for (long c = 0; c < channels; c++) {
        scale[c] = (float)(gamma[c] / sqrt(var[c] + eps));
        shift[c] = (float)(beta[c] - (double)mean[c] * scale[c]);
    }
}

/* ---- forward ---- */

enum { STATISTICS = 3 }; /* per block: a point near its mean, and two sums of deviations from it */

ALWAYS_INLINE void sum_statistics(const void *context, long first, long last, long c, long count,
                                  int vectors, float *sums)
{
    const job *j = context;
    const long channels = j->m.channels;
    vec near[GROUP] = {0}, drift[GROUP] = {0}, squares[GROUP] = {0};
    for (long row = first; row < last; row++)
        for (int v = 0; v < vectors; v++)
            near[v] += load_some(j->x + row * channels + c + v * LANES, count);
    for (int v = 0; v < vectors; v++)
        near[v] *= splat(1 / (float)(last - first));
    for (long row = first; row < last; row++)
        for (int v = 0; v < vectors; v++) {
            vec d = load_some(j->x + row * channels + c + v * LANES, count) - near[v];
            drift[v] += d;
            squares[v] += d * d;
        }
    for (int v = 0; v < vectors; v++) {
        float *to = sums + c + v * LANES;
        store_some(to, near[v], count);
        store_some(to + channels, drift[v], count);
        store_some(to + 2 * channels, squares[v], count);
    }
}

static void statistics_part(void *context, int part, int parts)
{
    const job j = *(const job *)context;
    sum_blocks(&j.m, part, parts, sum_statistics, &j, j.sums, STATISTICS);
}

/* Combines the blocks' statistics by the update of Chan, Golub and LeVeque (1979). */
static void join_statistics(const matrix *m, const float *sums, double *total, float *mean,
                            float *var)
{
    const long channels = m->channels;
    double *means = total, *squares = total + channels;
    for (long c = 0; c < channels; c++)
        means[c] = squares[c] = 0;
    for (long b = 0; b < m->blocks; b++, sums += STATISTICS * channels) {
        const double before = (double)first_row(m, b), after = (double)first_row(m, b + 1);
        const double n = after - before, weight = n / after, inverse = 1 / n;
        for (long c = 0; c < channels; c++) {
            const double drift = sums[channels + c];
            const double delta = sums[c] + drift * inverse - means[c];
            squares[c] += sums[2 * channels + c] - drift * drift * inverse;
            squares[c] += delta * delta * before * weight;
            means[c] += delta * weight;
        }
    }
    for (long c = 0; c < channels; c++) {
        const double variance = squares[c] / (double)m->rows;
        mean[c] = (float)means[c];
        var[c] = variance < 0 ? 0 : (float)variance;
    }
}

/* Updates the moving averages of the mean and of the unbiased variance. */
static void update_running(const matrix *m, const float *mean, const float *var, double decay,
                           float *running_mean, float *running_var)
{
    const double unbiased = (double)m->rows / (double)max_long(m->rows - 1, 1);
    for (long c = 0; c < m->channels; c++) {
        running_mean[c] = (float)(decay * running_mean[c] + (1 - decay) * mean[c]);
        running_var[c] = (float)(decay * running_var[c] + (1 - decay) * unbiased * var[c]);
    }
}

/* running_mean and running_var may both be NULL. */
static int find_statistics(const matrix *m, const float *x, float *mean, float *var, double decay,
                           float *running_mean, float *running_var)
{
    double *total = (double *)workspace((size_t)((4 + STATISTICS * m->blocks) * m->channels));
    if (!total)
        return OUT_OF_MEMORY;
    job j = {.m = *m, .x = x, .sums = (float *)(total + 2 * m->channels)};
    run_blocks(m, statistics_part, &j);
    join_statistics(m, j.sums, total, mean, var);
    if (running_mean)
        update_running(m, mean, var, decay, running_mean, running_var);
    return DONE;
}

/* If `fixed`, mean and var are inputs. Otherwise they are computed from x, and are outputs. */
int edgeddl_batch_normalization_fold(long rows, long channels, const float *x,
                                     const float *gamma, const float *beta, float *mean,
                                     float *var, double eps, int fixed, double decay,
                                     float *running_mean, float *running_var,
                                     float *scale, float *shift)
{
    const matrix m = matrix_of(rows, channels);
    if (!fixed && find_statistics(&m, x, mean, var, decay, running_mean, running_var) != DONE)
        return OUT_OF_MEMORY;
    scale_and_shift(channels, gamma, beta, mean, var, eps, scale, shift);
    return DONE;
}

ALWAYS_INLINE void apply(const void *context, long i, long c, long count)
{
    const job *j = context;
    vec y = normalized(j, load_some(j->x + i, count), c, count);
    if (j->kind == RESIDUAL)
        y += load_some(j->residual + i, count);
    store_some(j->out + i, j->kind == PLAIN ? y : rectify(y), count);
}

static void apply_part(void *context, int part, int parts)
{
    const job j = *(const job *)context;
    each_vector(&j.m, part, parts, apply, &j);
}

/* mean and var as above. y and residual may be the same array. */
int edgeddl_batch_normalization_forward(long rows, long channels, const float *x,
                                        const float *gamma, const float *beta, float *mean,
                                        float *var, double eps, int fixed, double decay,
                                        float *running_mean, float *running_var, int relu,
                                        const float *residual, float *y)
{
    const matrix m = matrix_of(rows, channels);
    if (!fixed && find_statistics(&m, x, mean, var, decay, running_mean, running_var) != DONE)
        return OUT_OF_MEMORY;
    float *scale = workspace((size_t)(2 * channels));
    if (!scale)
        return OUT_OF_MEMORY;
    float *shift = scale + channels;
    scale_and_shift(channels, gamma, beta, mean, var, eps, scale, shift);
    job j = {.m = m, .kind = residual ? RESIDUAL : relu ? RELU : PLAIN, .x = x,
             .residual = residual, .scale = scale, .shift = shift, .out = y};
    run_blocks(&m, apply_part, &j);
    return DONE;
}

/* ---- backward ---- */

/* g: gy where the result of the ReLU, if there is one, is above zero. With a residual, y is given
 * and not recomputed. */
ALWAYS_INLINE vec gradient(const job *j, vec x, long i, long c, long count)
{
    vec gy = load_some(j->gy + i, count), zero = {0};
    if (j->kind == PLAIN)
        return gy;
    vec y = j->kind == RELU ? normalized(j, x, c, count) : load_some(j->y + i, count);
    return choose(y > zero, gy, zero);
}

enum { GRADIENTS = 2 }; /* sums per block: g * (x - mean), and g */

ALWAYS_INLINE void sum_gradients(const void *context, long first, long last, long c, long count,
                                 int vectors, float *sums)
{
    const job *j = context;
    const long channels = j->m.channels;
    vec to_gamma[GROUP] = {0}, to_beta[GROUP] = {0};
    for (long row = first; row < last; row++)
        for (int v = 0; v < vectors; v++) {
            const long channel = c + v * LANES, i = row * channels + channel;
            vec x = load_some(j->x + i, count), g = gradient(j, x, i, channel, count);
            to_gamma[v] += g * (x - load_some(j->mean + channel, count));
            to_beta[v] += g;
            if (j->kind == RESIDUAL)
                store_some(j->out + i, g, count);
        }
    for (int v = 0; v < vectors; v++) {
        store_some(sums + c + v * LANES, to_gamma[v], count);
        store_some(sums + channels + c + v * LANES, to_beta[v], count);
    }
}

static void gradients_part(void *context, int part, int parts)
{
    const job j = *(const job *)context;
    sum_blocks(&j.m, part, parts, sum_gradients, &j, j.sums, GRADIENTS);
}

/* gx = scale * (g + to_all + (x - mean) * to_x) */
ALWAYS_INLINE void input_gradient(const void *context, long i, long c, long count)
{
    const job *j = context;
    vec x = load_some(j->x + i, count), g = gradient(j, x, i, c, count);
    vec from_x = (x - load_some(j->mean + c, count)) * load_some(j->to_x + c, count);
    vec sum = g + load_some(j->to_all + c, count) + from_x;
    store_some(j->out + i, sum * load_some(j->scale + c, count), count);
}

static void input_gradient_part(void *context, int part, int parts)
{
    const job j = *(const job *)context;
    each_vector(&j.m, part, parts, input_gradient, &j);
}

/* y is given if there was a residual; then g, the gradient of the residual, is written as well. If
 * `fixed`, the statistics do not depend on x. gx may be the array gy, and g the array y. */
int edgeddl_batch_normalization_backward(long rows, long channels, const float *x,
                                         const float *y, const float *gy,
                                         const float *gamma, const float *beta,
                                         const float *mean, const float *var, double eps,
                                         int relu, int fixed, float *g, float *gx,
                                         float *ggamma, float *gbeta)
{
    matrix m = matrix_of(rows, channels);
    double *total = (double *)workspace((size_t)((8 + GRADIENTS * m.blocks) * channels));
    if (!total)
        return OUT_OF_MEMORY;
    float *scale = (float *)(total + 2 * channels), *shift = scale + channels;
    float *to_x = shift + channels, *to_all = to_x + channels;
    scale_and_shift(channels, gamma, beta, mean, var, eps, scale, shift);
    job j = {.m = m, .kind = y ? RESIDUAL : relu ? RELU : PLAIN, .x = x, .y = y, .gy = gy,
             .mean = mean, .scale = scale, .shift = shift, .to_x = to_x, .to_all = to_all,
             .out = g, .sums = to_all + channels};
    run_blocks(&m, gradients_part, &j);
    join_sums(&m, j.sums, GRADIENTS, total);
    for (long c = 0; c < channels; c++) {
        const double deviation = sqrt(var[c] + eps);
        ggamma[c] = (float)(total[c] / deviation);
        gbeta[c] = (float)total[channels + c];
        to_x[c] = fixed ? 0 : (float)(-ggamma[c] / (deviation * (double)rows));
        to_all[c] = fixed ? 0 : (float)(-gbeta[c] / (double)rows);
    }
    if (y)
        j.kind = PLAIN, j.gy = g;
    j.out = gx;
    run_blocks(&m, input_gradient_part, &j);
    return DONE;
}
