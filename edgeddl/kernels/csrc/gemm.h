/* Matrix product on register tiles, the inner loop of every convolution.
 *
 *   c[row][column] (+)= sum over depth of  a[row][depth] * b[depth][column]
 *
 * Rows of b are contiguous and padded to whole vectors. a is read number by number, so that it may
 * lie anywhere: with (a_row, a_depth) = (stride, 1) it is a matrix, with (1, stride) a transposed
 * one; `runs` and `places` make it a matrix that nobody has laid out, as the patches of an image.
 * There is no packing of a and no BLAS: operands are blocked by the callers.
 */
#ifndef EDGEDDL_GEMM_H
#define EDGEDDL_GEMM_H

#include "simd.h"

/* A part of the depth: where its numbers begin in a row of a; which rows of b they meet. */
typedef struct {
    long a, b, depth;
} run;

/* Where a row begins in a, and in c. */
typedef struct {
    long a, c;
} place;

/* Memory that is asked for while products are computed, `step` bytes on in each step of depth of
 * each register tile. */
typedef struct {
    const char *at;
    long step;
} prefetch;

typedef struct {
    long depth;
    const float *a;
    long a_row, a_depth;
    const float *b;
    long b_depth;
    float *c;
    long c_row;
    int add; /* to what is in c */
    prefetch *ahead[2]; /* either may be NULL; they move on */
    const run *runs; /* if given, instead of depth */
    long run_count;
    const place *places; /* if given, instead of a_row and c_row; no column too many is written */
    const float *bias, *plus; /* a row, a matrix like c: added, if given */
} product;

/* So many numbers in so many steps. Past their end it goes on asking, which costs little: memory is
 * not read by it, and need not be there. */
prefetch prefetch_range(const float *first, long floats, long steps);

/* In how many steps of depth, of all register tiles, a product is computed. */
long product_steps(long depth, long rows, long columns);

/* Any number of rows and columns; one stride of a is 1. c is written in whole vectors. */
void multiply(const product *m, long rows, long columns);

#endif
