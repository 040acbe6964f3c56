/* The matrices of a bucket of gradients, and the thin matrices whose products approximate them. */
#ifndef EDGEDDL_MATRICES_H
#define EDGEDDL_MATRICES_H

/* A matrix, and the offsets of its data in flat arrays (kernels/matrices.py). */
typedef struct {
    long rows, columns, gradient, error, left, right;
} matrix_place;

#endif
