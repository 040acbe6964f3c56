/* Every function and type that the library exports.
 *
 * Each file that defines one of these functions includes this header, so the compiler checks the
 * definition. tests/unit/kernels/test_header.py compares it with the bindings in Python. Functions
 * that return int return DONE or OUT_OF_MEMORY (threads.h) unless their comment says otherwise.
 *
 * Images are [n][h][w][c], weights [kh][kw][c/groups][k]. Pointers marked "or NULL" are optional.
 */
#ifndef EDGEDDL_H
#define EDGEDDL_H

#include <stdint.h>

#pragma GCC visibility push(default) /* everything else is hidden: -fvisibility=hidden */

/* A convolution: n images of h x w pixels with c channels, to out_h x out_w pixels with k. */
typedef struct {
    long n, h, w, c, k;
    long kh, kw, sy, sx, ph, pw, dy, dx; /* window, stride, padding, dilation */
    long groups, out_h, out_w;
} conv;

/* A pooling layer. */
typedef struct {
    long n, h, w, c;
    long kh, kw, sy, sx, ph, pw; /* window, stride, padding */
    long out_h, out_w;
} pooling;

/* Elements [start, end) of flat parameter arrays, with their weight decay. */
typedef struct {
    long start, end;
    double decay;
} segment;

/* A gradient matrix: its shape, and its offset in each of PowerSGD's flat arrays. */
typedef struct {
    long rows, columns, gradient, error, left, right;
} matrix_place;

enum { BLOCK = 1024 }; /* numbers in a half_block */

/* Numbers in half precision with a power of two as common factor. */
typedef struct {
    float factor; /* NaN: the block contains numbers that are not finite or too large */
    uint16_t halves[BLOCK];
} half_block;

/* Convolution (convolution.c). With `scale` and `shift` (per channel, or NULL), x is replaced by
 * max(x * scale + shift, 0) as it is read. `bias` and `plus` (or NULL) are added to the result. */
int edgeddl_convolution_forward(const conv *shape, const float *x, const float *scale,
                                const float *shift, const float *W, const float *bias, float *y);
int edgeddl_convolution_weight_gradient(const conv *shape, const float *x, const float *scale,
                                        const float *shift, const float *gy, float *gW);
int edgeddl_convolution_input_gradient(const conv *shape, const float *gy, const float *W,
                                       const float *plus, float *gx);

/* Batch normalisation of rows x channels numbers (normalization.c). If `fixed`, mean and var are
 * read. Otherwise they are computed from x and written, and running_mean and running_var (or NULL)
 * are updated. `fold` only computes the normalisation as x * scale + shift. */
int edgeddl_batch_normalization_forward(long rows, long channels, const float *x,
                                        const float *gamma, const float *beta, float *mean,
                                        float *var, double eps, int fixed, double decay,
                                        float *running_mean, float *running_var, int relu,
                                        const float *residual, float *y);
int edgeddl_batch_normalization_fold(long rows, long channels, const float *x, const float *gamma,
                                     const float *beta, float *mean, float *var, double eps,
                                     int fixed, double decay, float *running_mean,
                                     float *running_var, float *scale, float *shift);
/* y (or NULL) is the output of a normalisation with a residual. Then g receives the gradient of the
 * residual. gx may be gy, and g may be y. */
int edgeddl_batch_normalization_backward(long rows, long channels, const float *x, const float *y,
                                         const float *gy, const float *gamma, const float *beta,
                                         const float *mean, const float *var, double eps, int relu,
                                         int fixed, float *g, float *gx, float *ggamma,
                                         float *gbeta);

/* ReLU, addition and the sums of columns (elementwise.c, sums.c). */
int edgeddl_relu_forward(const float *x, float *y, long count);
int edgeddl_relu_backward(const float *y, const float *gy, float *gx, long count);
int edgeddl_add(const float *x, const float *y, float *sum, long count);
int edgeddl_channel_sums(long rows, long channels, const float *x, float *result);

/* Max pooling if `largest`, else average pooling (pooling.c). Average pooling's backward ignores x
 * and y, which may be NULL. */
int edgeddl_pooling_forward(const pooling *shape, int largest, const float *x, float *y);
int edgeddl_pooling_backward(const pooling *shape, int largest, const float *x, const float *y,
                             const float *gy, float *gx);
int edgeddl_global_average_forward(long images, long pixels, long channels, const float *x,
                                   float *y);
int edgeddl_global_average_backward(long images, long pixels, long channels, const float *gy,
                                    float *gx);

/* The mean cross-entropy of the rows that count, and its gradient (loss.c). */
int edgeddl_softmax_cross_entropy(long rows, long classes, const float *x, const int *labels,
                                  double smoothing, int ignore_label, float *gradient,
                                  double *loss);

/* Momentum SGD, in place; gradients are flat arrays or products left * right (optimizer.c). */
int edgeddl_momentum_sgd(const segment *segments, long count, float *parameters,
                         const float *gradients, float *velocity, double rate, double momentum,
                         int nesterov);
int edgeddl_momentum_sgd_of_products(const matrix_place *places, const double *decays, long count,
                                     long rank, const float *lefts, const float *rights,
                                     float *parameters, float *velocity, double rate,
                                     double momentum, int nesterov);

/* PowerSGD (low_rank.c), for each matrix: left is [rows][rank]; factor, previous and right are
 * [rank][columns].
 *
 * error += gradient - left * previous, or only gradient if previous is NULL; then
 * left = error * factor^T */
int edgeddl_low_rank_left(const matrix_place *places, long count, long rank, float *errors,
                          const float *gradients, float *previous, float *factors, float *lefts);
/* right = left^T * error */
int edgeddl_low_rank_right(const matrix_place *places, long count, long rank, float *errors,
                           float *lefts, float *rights);
/* If `product` is 0, matrices are gradients: gradient = left * right. If it is -1, they are errors:
 * error -= left * right. */
int edgeddl_low_rank_product(const matrix_place *places, long count, long rank, float *lefts,
                             float *rights, int product, float *matrices);
/* Makes the columns of left orthonormal. A column becomes 0 if at most the fraction `dependent` of
 * its length remains without its projections on the columns before it. */
int edgeddl_low_rank_orthonormalise(const matrix_place *places, long count, long rank,
                                    double dependent, float *lefts);

/* Conversion between float32 and half precision (half.c). */
int edgeddl_encode_half(long count, const float *numbers, half_block *blocks);
int edgeddl_decode_half(long count, const half_block *blocks, float *numbers);

/* Ring all-reduce of an array of floats ('f'), doubles ('d') or half_blocks ('h') over the sockets
 * `left` and `right` (ring.c). A waiting rank wakes up when `low_water` bytes have arrived or after
 * the timeout. Returns 0, the errno of the left socket, or minus the errno of the right one. */
int edgeddl_ring_sum(int left, int right, int rank, int size, char kind, long items, void *array,
                     long low_water, int milliseconds);

/* The library itself (library.c, threads.c). */
const char *edgeddl_compiler(void);
void edgeddl_keep_memory(void);
void edgeddl_set_threads(int threads);
int edgeddl_get_threads(void); /* the number of threads */
double edgeddl_measure_peak(int threads); /* GFLOPS */

#pragma GCC visibility pop

#endif
