/* Matrix product on register tiles, the inner loop of every convolution.
 *
 *   c[row][column] (+)= sum over depth of  a[row][depth] * b[depth][column]
 *
 * Rows of b are contiguous and padded to whole vectors. a is read number by number, so that its
 * strides are free: with (a_row, a_depth) = (stride, 1) it is a matrix, with (1, stride) a
 * transposed one. There is no packing of a and no BLAS: operands are blocked by the callers.
 */
#ifndef EDGEDDL_GEMM_H
#define EDGEDDL_GEMM_H

#include "simd.h"

typedef struct {
    long depth;
    const float *a;
    long a_row, a_depth;
    const float *b;
    long b_depth;
    float *c;
    long c_row;
    int add; /* to what is in c */
    const float *next; /* what the next product reads as b: asked for, line by line, meanwhile */
} product;

/* One tile: `rows` by `vectors` accumulators stay in registers over the whole depth. Both are
 * constants where this is inlined, and so is one of the strides of a. */
ALWAYS_INLINE void multiply_tile(const product *m, const int rows, const int vectors,
                                 const long a_row, const long a_depth)
{
    vec sum[TILE_ROWS][TILE_VECTORS];
    const float *a = m->a, *b = m->b, *next = m->next;
    const long b_depth = m->b_depth;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[r][v] = m->add ? load(m->c + r * m->c_row + v * LANES) : (vec){0};
#pragma GCC unroll 4
    for (long d = 0; d < m->depth; d++) {
        vec row[TILE_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            row[v] = load(b + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const vec number = splat(a[r * a_row]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[r][v] += number * row[v];
        }
        __builtin_prefetch(next, 0, 2);
        next += 64 / sizeof(float);
        a += a_depth;
        b += b_depth;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            store(m->c + r * m->c_row + v * LANES, sum[r][v]);
}

/* Any number of rows, up to TILE_COLUMNS columns; one stride of a is 1. c is written in whole
 * vectors. */
void multiply(const product *m, long rows, long columns);

#endif
