/* Convolution: shapes, and declarations that its algorithms share.
 *
 *   n images, c channels of h x w pixels   ->   k channels of out_h x out_w pixels
 *   x [n][h][w][c]    W [kh][kw][c/groups][k]    y [n][out_h][out_w][k]
 *
 * gx, gW and gy are the gradients of x, W and y, with the same shapes. gx is itself a convolution:
 * of gy with the weights rotated by 180 degrees and c and k exchanged. `bias` [k] and `plus`, which
 * has the shape of the result, are added to the result. Either may be NULL.
 */
#ifndef EDGEDDL_CONVOLUTION_H
#define EDGEDDL_CONVOLUTION_H

#include "edgeddl.h"
#include "gemm.h"
#include "threads.h"

/* Applied to x as it is read, if scale is given: max(x * scale + shift, 0) for each channel. With
 * Winograd's algorithm the normalised and rectified activation need not be stored. */
typedef struct {
    const float *scale, *shift;
} folded_norm;

ALWAYS_INLINE vec normalize(vec x, vec scale, vec shift) { return rectify(x * scale + shift); }

/* The weights as the right-hand matrix of a product, in panels of columns. Forward, rows are input
 * channels c and columns are output channels k. For the gradient of x it is the reverse. */
typedef struct {
    const float *W;
    long c, k;      /* of one group */
    long row;       /* stride between input channels: k of all groups */
    int transposed;
} weights;

ALWAYS_INLINE long weight_columns(const weights *w) { return w->transposed ? w->c : w->k; }

/* Packs rows first .. first + rows of one tap (a position in the window) for the panel that begins
 * at `column`, as [rows][width]. Fills columns beyond the last one with zeros. */
void pack_weights(const weights *w, long tap, long first, long rows, long column, long width,
                  float *panel);

/* Winograd's algorithm: 3 x 3 windows with stride 1 or 2, and 5 x 5 windows with stride 1. */
int winograd_fits(const conv *shape);
/* Multiplications per pair of an input and an output channel. gx may take more than y. */
long winograd_products(const conv *shape, int input_gradient);
int winograd_forward(const conv *shape, const float *x, folded_norm norm, const float *W,
                     const float *bias, float *y);
int winograd_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                            float *gx);
int winograd_weight_gradient(const conv *shape, const float *x, folded_norm norm, const float *gy,
                             float *gW);

/* Direct convolution, for any window: matrix products of patches that are read in place. */
long direct_products(const conv *shape); /* multiplications per pair of channels */
int direct_forward(const conv *shape, const float *x, const float *W, const float *bias, float *y);
int direct_weight_gradient(const conv *shape, const float *x, const float *gy, float *gW);
int direct_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                          float *gx);

/* Depthwise convolution: as many groups as channels. */
int depthwise_forward(const conv *shape, const float *x, const float *W, const float *bias,
                      float *y);
int depthwise_weight_gradient(const conv *shape, const float *x, const float *gy, float *gW);
int depthwise_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                             float *gx);

#endif
