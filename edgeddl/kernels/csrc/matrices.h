/* The matrices of a bucket of gradients, and the thin ones that stand for them. */
#ifndef EDGEDDL_MATRICES_H
#define EDGEDDL_MATRICES_H

/* A matrix, and where what belongs to it begins in flat arrays (kernels/matrices.py). */
typedef struct {
    long rows, columns, gradient, error, left, right;
} matrix_place;

#endif
