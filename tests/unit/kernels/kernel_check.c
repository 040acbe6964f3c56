/* Compares kernels with plain loops, from several threads at once. It is for machines without
 * Python (an emulator) and for the thread sanitizer. Compile it with the kernels' sources.
 *
 * The exit code is 0 if all results are correct. Otherwise it is 1, and each wrong result is
 * printed on a line.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "convolution.h"
#include "edgeddl.h"

static atomic_int failures;

static float *random_numbers(long count, unsigned seed)
{
    float *numbers = malloc((size_t)(count + 1) * sizeof *numbers);
    for (long i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return numbers;
}

/* The error is relative to the root mean square: for sums of float32 products it is about 1e-6. */
static void compare(const char *what, const conv *s, const float *found, const double *exact,
                    long count)
{
    double squares = 0, worst = 0;
    for (long i = 0; i < count; i++) {
        squares += exact[i] * exact[i];
        worst = fmax(worst, fabs(found[i] - exact[i]));
        if (!isfinite(found[i]))
            worst = INFINITY;
    }
    if (!(worst <= 2e-5 * sqrt(squares / (double)count))) {
        atomic_fetch_add(&failures, 1);
        printf("%s: error %g; n %ld h %ld w %ld c %ld k %ld window %ld %ld stride %ld groups %ld\n",
               what, worst, s->n, s->h, s->w, s->c, s->k, s->kh, s->kw, s->sy, s->groups);
    }
}

/* Sums all products of a convolution into y, gW and gx. */
static void convolve_slowly(const conv *s, const float *x, const float *W, const float *gy,
                            double *y, double *gW, double *gx)
{
    const long c_each = s->c / s->groups, k_each = s->k / s->groups;
    for (long n = 0; n < s->n; n++)
        for (long oy = 0; oy < s->out_h; oy++)
            for (long ox = 0; ox < s->out_w; ox++)
                for (long tap = 0; tap < s->kh * s->kw; tap++) {
                    const long iy = oy * s->sy - s->ph + tap / s->kw * s->dy;
                    const long ix = ox * s->sx - s->pw + tap % s->kw * s->dx;
                    if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w)
                        continue;
                    const long in = ((n * s->h + iy) * s->w + ix) * s->c;
                    const long out = ((n * s->out_h + oy) * s->out_w + ox) * s->k;
                    for (long k = 0; k < s->k; k++)
                        for (long c = 0; c < c_each; c++) {
                            const long weight = (tap * c_each + c) * s->k + k;
                            const long pixel = in + k / k_each * c_each + c;
                            y[out + k] += (double)x[pixel] * W[weight];
                            gW[weight] += (double)x[pixel] * gy[out + k];
                            gx[pixel] += (double)gy[out + k] * W[weight];
                        }
                }
}

static void check_convolution(conv s)
{
    s.out_h = (s.h + 2 * s.ph - (s.kh - 1) * s.dy - 1) / s.sy + 1;
    s.out_w = (s.w + 2 * s.pw - (s.kw - 1) * s.dx - 1) / s.sx + 1;
    const long x_size = s.n * s.h * s.w * s.c, y_size = s.n * s.out_h * s.out_w * s.k;
    const long W_size = s.kh * s.kw * s.c / s.groups * s.k, size = x_size + y_size + W_size;
    float *x = random_numbers(x_size, 1), *W = random_numbers(W_size, 2);
    float *gy = random_numbers(y_size, 3), *found = random_numbers(size, 4);
    double *exact = calloc((size_t)size, sizeof *exact);
    convolve_slowly(&s, x, W, gy, exact, exact + y_size, exact + y_size + W_size);
    edgeddl_convolution_forward(&s, x, NULL, NULL, W, NULL, found);
    compare("forward", &s, found, exact, y_size);
    edgeddl_convolution_weight_gradient(&s, x, NULL, NULL, gy, found);
    compare("weight gradient", &s, found, exact + y_size, W_size);
    edgeddl_convolution_input_gradient(&s, gy, W, NULL, found);
    compare("input gradient", &s, found, exact + y_size + W_size, x_size);
    free(x), free(W), free(gy), free(found), free(exact);
}

static void check_normalization(long rows, long channels)
{
    const long size = rows * channels;
    float *x = random_numbers(size, 1), *residual = random_numbers(size, 2);
    float *gamma = random_numbers(channels, 3), *beta = random_numbers(channels, 4);
    float *found = random_numbers(size + 2 * channels, 5);
    double *exact = calloc((size_t)(size + 2 * channels), sizeof *exact);
    double *mean = exact + size, *var = mean + channels;
    const double eps = 1e-3;
    for (long i = 0; i < size; i++)
        mean[i % channels] += x[i] / (double)rows;
    for (long i = 0; i < size; i++)
        var[i % channels] += pow(x[i] - mean[i % channels], 2) / (double)rows;
    for (long i = 0; i < size; i++) {
        const long c = i % channels;
        const double x_hat = (x[i] - mean[c]) / sqrt(var[c] + eps);
        exact[i] = fmax(gamma[c] * x_hat + beta[c] + residual[i], 0);
    }
    float *found_mean = found + size, *found_var = found_mean + channels;
    edgeddl_batch_normalization_forward(rows, channels, x, gamma, beta, found_mean, found_var, eps,
                                        0, 0, NULL, NULL, 1, residual, found);
    const conv s = {.n = rows, .c = channels};
    compare("normalised", &s, found, exact, size);
    compare("mean and variance", &s, found_mean, mean, 2 * channels);
    free(x), free(residual), free(gamma), free(beta), free(found), free(exact);
}

/* With given statistics, mean 0 and variance 1: gx = gy * gamma where y is above 0. */
static void check_normalization_gradients(long rows, long channels)
{
    const long size = rows * channels;
    float *x = random_numbers(size, 1), *y = random_numbers(size, 2), *gy = random_numbers(size, 3);
    float *vectors = random_numbers(4 * channels, 4), *found = random_numbers(2 * size + 2 * channels, 5);
    float *gamma = vectors, *beta = gamma + channels, *mean = beta + channels, *var = mean + channels;
    double *exact = calloc((size_t)(2 * size + 2 * channels), sizeof *exact);
    double *ggamma = exact + 2 * size, *gbeta = ggamma + channels;
    for (long c = 0; c < channels; c++)
        mean[c] = 0, var[c] = 1;
    for (long i = 0; i < size; i++) {
        const long c = i % channels;
        exact[i] = y[i] > 0 ? gy[i] : 0;
        exact[size + i] = exact[i] * gamma[c];
        ggamma[c] += exact[i] * x[i];
        gbeta[c] += exact[i];
    }
    edgeddl_batch_normalization_backward(rows, channels, x, y, gy, gamma, beta, mean, var, 0, 1, 1,
                                         found, found + size, found + 2 * size,
                                         found + 2 * size + channels);
    const conv s = {.n = rows, .c = channels};
    compare("gradient of the residual", &s, found, exact, size);
    compare("gradient of what is normalised", &s, found + size, exact + size, size);
    compare("gradients of gamma and beta", &s, found + 2 * size, ggamma, 2 * channels);
    free(x), free(y), free(gy), free(vectors), free(found), free(exact);
}

static void check_optimizer(long count)
{
    float *p = random_numbers(count, 1), *g = random_numbers(count, 2), *v = random_numbers(count, 3);
    double *exact = calloc((size_t)count, sizeof *exact);
    for (long i = 0; i < count; i++)
        exact[i] = p[i] - 0.1 * (0.9 * v[i] + g[i] + 0.01 * p[i]);
    const segment halves[] = {{0, count / 2, 0.01}, {count / 2, count, 0.01}};
    edgeddl_momentum_sgd(halves, 2, p, g, v, 0.1, 0.9, 0);
    compare("step", &(conv){.n = count}, p, exact, count);
    free(p), free(g), free(v), free(exact);
}

static void check_optimizer_of_products(long rows, long columns, long rank)
{
    const long size = rows * columns;
    float *left = random_numbers(rows * rank, 1), *right = random_numbers(rank * columns, 2);
    float *p = random_numbers(size, 3), *v = random_numbers(size, 4);
    double *exact = calloc((size_t)size, sizeof *exact), decay = 0.01;
    for (long i = 0; i < size; i++) {
        double gradient = 0;
        for (long k = 0; k < rank; k++)
            gradient += (double)left[i / columns * rank + k] * right[k * columns + i % columns];
        exact[i] = p[i] - 0.1 * (0.9 * v[i] + gradient + decay * p[i]);
    }
    const matrix_place place = {.rows = rows, .columns = columns};
    edgeddl_momentum_sgd_of_products(&place, &decay, 1, rank, left, right, p, v, 0.1, 0.9, 0);
    compare("step by products", &(conv){.n = rows, .c = columns, .k = rank}, p, exact, size);
    free(left), free(right), free(p), free(v), free(exact);
}

static void check_orthonormal(const float *left, const conv *s)
{
    const long rank = s->k;
    float *found = calloc((size_t)(rank * rank), sizeof *found);
    double *exact = calloc((size_t)(rank * rank), sizeof *exact);
    for (long i = 0; i < s->n * rank; i++)
        for (long k = 0; k < rank; k++)
            found[i % rank * rank + k] += left[i] * left[i / rank * rank + k];
    for (long k = 0; k < rank; k++)
        exact[k * rank + k] = 1;
    compare("orthonormal", s, found, exact, rank * rank);
    free(found), free(exact);
}

static void check_low_rank(long rows, long columns, long rank)
{
    const long size = rows * columns;
    float *matrix = random_numbers(size, 1), *gradient = random_numbers(size, 2);
    float *left = random_numbers(rows * rank, 3), *previous = random_numbers(rank * columns, 4);
    float *factor = random_numbers(rank * columns, 5), *right = random_numbers(rank * columns, 6);
    double *exact = calloc((size_t)(size + rank * (rows + columns)), sizeof *exact);
    double *exact_left = exact + size, *exact_right = exact_left + rows * rank;
    for (long i = 0; i < size; i++) {
        const long row = i / columns, c = i % columns;
        exact[i] = matrix[i] + gradient[i];
        for (long k = 0; k < rank; k++)
            exact[i] -= (double)left[row * rank + k] * previous[k * columns + c];
        for (long k = 0; k < rank; k++)
            exact_left[row * rank + k] += exact[i] * factor[k * columns + c];
    }
    for (long i = 0; i < size; i++)
        for (long k = 0; k < rank; k++)
            exact_right[k * columns + i % columns] += exact[i] * exact_left[i / columns * rank + k];
    const matrix_place p = {.rows = rows, .columns = columns};
    edgeddl_low_rank_left(&p, 1, rank, matrix, gradient, previous, factor, left);
    edgeddl_low_rank_right(&p, 1, rank, matrix, left, right);
    const conv s = {.n = rows, .c = columns, .k = rank};
    compare("matrix", &s, matrix, exact, size);
    compare("left", &s, left, exact_left, rows * rank);
    compare("right", &s, right, exact_right, rank * columns);
    edgeddl_low_rank_orthonormalise(&p, 1, rank, 1e-7, left);
    check_orthonormal(left, &s);
    free(matrix), free(gradient), free(left), free(previous), free(factor), free(right), free(exact);
}

static void *check_everything(void *nothing)
{
    const conv same = {.kh = 3, .kw = 3, .sy = 1, .sx = 1, .ph = 1, .pw = 1, .dy = 1, .dx = 1};
    conv s = same;
    s.n = 2, s.h = 13, s.w = 10, s.c = 17, s.k = 30, s.groups = 1;
    check_convolution(s); /* Winograd's algorithm, few channels */
    s.n = 1, s.h = 5, s.c = 130, s.k = 131;
    check_convolution(s); /* many channels */
    s.n = 2, s.c = 17, s.k = 30, s.sy = s.sx = 2;
    check_convolution(s);
    s.kh = s.kw = 1, s.ph = s.pw = 0;
    check_convolution(s);
    s = same;
    s.n = 2, s.h = 9, s.w = 20, s.c = 3, s.k = 33, s.groups = 1, s.kh = 5;
    check_convolution(s);
    s = same;
    s.n = 2, s.h = 13, s.w = 10, s.c = 17, s.k = 30, s.groups = 1;
    s.kh = s.kw = 5, s.ph = s.pw = 2;
    check_convolution(s);
    s = same;
    s.n = 2, s.h = 9, s.w = 20, s.c = 12, s.k = 18, s.groups = 3, s.dy = 2;
    check_convolution(s);
    s.dy = 1, s.c = s.k = s.groups = 19;
    check_convolution(s); /* depthwise */
    check_normalization(1000, 35);
    check_normalization(3, 1);
    check_normalization_gradients(1000, 35);
    check_normalization_gradients(3, 1);
    check_optimizer(70001);
    check_optimizer_of_products(50, 67, 4);
    check_low_rank(50, 67, 4);
    check_low_rank(7, 35, 6);
    return nothing;
}

int main(void)
{
    enum { CALLERS = 3 };
    pthread_t callers[CALLERS];
    edgeddl_set_threads(3);
    for (int i = 0; i < CALLERS; i++)
        pthread_create(callers + i, NULL, check_everything, NULL);
    for (int threads = 1; threads <= 4; threads++)
        edgeddl_set_threads(threads);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i], NULL);
    return atomic_load(&failures) != 0;
}
