/* Matrix product on register tiles, the inner loop of every convolution.
 *
 *   c[row][column] (+)= sum over depth of  a[row][depth] * b[depth][column]
 *
 * Rows of b are contiguous and padded to whole vectors. a is read number by number and may have any
 * layout: with (a_row, a_depth) = (stride, 1) it is a matrix, with (1, stride) a transposed one.
 * `runs` and `places` describe a matrix that is never stored, such as the patches of an image.
 * There is no packing of a and no BLAS: the callers block the operands.
 */
#ifndef EDGEDDL_GEMM_H
#define EDGEDDL_GEMM_H

#include "simd.h"

/* A part of the depth: its offset in a row of a, its first row of b, its length. */
typedef struct {
    long a, b, depth;
} run;

/* Offsets of a row in a and in c. */
typedef struct {
    long a, c;
} place;

/* Memory to prefetch while a product is computed. Each step of depth of each register tile advances
 * the address by `step` bytes. */
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
    int add; /* add to c instead of overwriting it */
    prefetch *ahead[2]; /* prefetched, and advanced; either may be NULL */
    const run *runs; /* if given, replace depth */
    long run_count;
    const place *places; /* if given, replace a_row and c_row; c is then written without padding */
    const float *bias, *plus; /* added if given: a row, a matrix laid out like c */
} product;

/* Prefetches `floats` numbers in `steps` steps. Further steps go past the end, which costs little:
 * a prefetch never faults, so that memory need not exist. */
prefetch prefetch_range(const float *first, long floats, long steps);

/* Steps of depth that a product takes, summed over its register tiles. */
long product_steps(long depth, long rows, long columns);

/* Any number of rows and columns. One stride of a is 1. c is written in whole vectors. */
void multiply(const product *m, long rows, long columns);

#endif
