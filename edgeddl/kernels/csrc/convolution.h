/* Convolution: shapes, and what its algorithms share.
 *
 *   n images, c channels of h x w pixels   ->   k channels of out_h x out_w pixels
 *   x [n][h][w][c]    W [kh][kw][c/groups][k]    y [n][out_h][out_w][k]
 *
 * gx, gW and gy are gradients, of the same shapes. Gradients of x are themselves convolutions, of
 * gy with the weights turned by 180 degrees and c and k exchanged. `bias` and `plus`, the latter of
 * the shape of the result, are added to it; either may be NULL.
 */
#ifndef EDGEDDL_CONVOLUTION_H
#define EDGEDDL_CONVOLUTION_H

#include "edgeddl.h"
#include "gemm.h"
#include "threads.h"

/* What is done to x as it is read: max(x * scale + shift, 0) for each channel, if scale is given.
 * To Winograd's algorithm a normalised and rectified activation need not exist in memory. */
typedef struct {
    const float *scale, *shift;
} folded_norm;

ALWAYS_INLINE vec normalize(vec x, vec scale, vec shift) { return rectify(x * scale + shift); }

/* The weights as the right-hand matrix of a product, in panels of some columns.
 * Forward, its rows are input channels c and its columns output channels k; turned, for the
 * gradient of x, rows are k and columns c. */
typedef struct {
    const float *W;
    long c, k;      /* of one group */
    long row;       /* distance of two input channels in memory: k of all groups */
    int transposed;
} weights;

ALWAYS_INLINE long weight_columns(const weights *w) { return w->transposed ? w->c : w->k; }

/* Rows first .. first + rows of one tap (position in the window) of the panel that begins at
 * `column`, as [rows][width]; zeros beyond the last column. */
void pack_weights(const weights *w, long tap, long first, long rows, long column, long width,
                  float *panel);

/* 3 x 3 windows with stride 1 or 2 and 5 x 5 windows with stride 1, by Winograd's algorithm. */
int winograd_fits(const conv *shape);
/* For each pair of an input and an output channel; those of gx may be more. */
long winograd_products(const conv *shape, int of_x);
int winograd_forward(const conv *shape, const float *x, folded_norm norm, const float *W,
                     const float *bias, float *y);
int winograd_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                            float *gx);
int winograd_weight_gradient(const conv *shape, const float *x, folded_norm norm, const float *gy,
                             float *gW);

/* Any window, by products of patches, read in the image itself. */
long direct_products(const conv *shape); /* for each pair of channels */
int direct_forward(const conv *shape, const float *x, const float *W, const float *bias, float *y);
int direct_weight_gradient(const conv *shape, const float *x, const float *gy, float *gW);
int direct_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                          float *gx);

/* As many groups as channels. */
int depthwise_forward(const conv *shape, const float *x, const float *W, const float *bias,
                      float *y);
int depthwise_weight_gradient(const conv *shape, const float *x, const float *gy, float *gW);
int depthwise_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                             float *gx);

#endif
