/* PowerSGD's products of large matrices with thin ones, each in one walk over a matrix:
 *
 *   matrix [rows][columns],   left [rows][rank],   right [rank][columns]
 *
 * A call does all matrices of a bucket: between calls the interpreter would come from memory, too.
 *
 * Memory is what they wait for: the matrix is read and written in its order, while right comes from
 * the first-level cache. RANKS of the rank are in registers at a time; with more, the same rows are
 * walked again, and come from there as well.
 *
 * All of it stays on the caller's thread: it is the one that communicates, while the pool's threads
 * compute. But for those along a row, sums are in order, whatever the width of vectors.
 */
#include <math.h>

#include "edgeddl.h"
#include "simd.h"
#include "threads.h"

enum { RANKS = 4, ROWS = TILE_VECTORS }; /* ROWS * RANKS vectors: half of the registers */
enum { ADD = 1, SUBTRACT = -1, REPLACE = 0 };

typedef struct {
    long columns, rank;
    float *matrix, *left, *right; /* at the row, and at the first of the rank, to begin with */
    int product;                  /* what to do to the matrix with left right */
    const float *plus;            /* another matrix to add to it then, or NULL */
    int rows;                     /* so many at a time, */
    long apart;                   /* one so many rows behind the other */
} job;

/* Does something to j->rows rows, for so many of the rank. */
typedef void row_function(const job *j, int ranks);
/* To `count` columns of it, from c on, with what is kept from columns to columns. */
typedef void columns_function(const job *j, int ranks, long c, long count, vec *kept);

ALWAYS_INLINE void each_columns(const job *j, int ranks, columns_function *run, vec *kept)
{
    long c = 0;
    for (; c + LANES <= j->columns; c += LANES)
        run(j, ranks, c, LANES, kept);
    if (c < j->columns)
        run(j, ranks, c, j->columns - c, kept);
}

/* All of the rank; once also if it is 0. */
ALWAYS_INLINE void each_rank(const job *all, long row, row_function *run)
{
    for (long k = 0; k == 0 || k < all->rank; k += RANKS) {
        job j = *all;
        j.matrix += row * j.columns, j.left += row * j.rank + k, j.right += k * j.columns;
        /* after all of the product, as if the matrix had been stored in between */
        j.plus = j.plus && j.rank - k <= RANKS ? j.plus + row * j.columns : NULL;
        j.product = j.product == REPLACE && k > 0 ? ADD : j.product;
        switch (min_long(j.rank - k, RANKS)) {
        case 0: run(&j, 0); break;
        case 1: run(&j, 1); break;
        case 2: run(&j, 2); break;
        case 3: run(&j, 3); break;
        default: run(&j, RANKS);
        }
    }
}

/* Where the r-th of the rows begins in the matrix. */
ALWAYS_INLINE long row_start(const job *j, int r) { return r * j->apart * j->columns; }

ALWAYS_INLINE void spread_left(const job *j, int ranks, float sign, vec *left)
{
    for (int r = 0; r < j->rows; r++)
        for (int k = 0; k < ranks; k++)
            left[r * RANKS + k] = splat(sign * j->left[r * j->apart * j->rank + k]);
}

ALWAYS_INLINE vec right_columns(const job *j, int k, long c, long count)
{
    return load_some(j->right + k * j->columns + c, count);
}

ALWAYS_INLINE void add_product_columns(const job *j, int ranks, long c, long count, vec *left)
{
    vec sum[ROWS];
    for (int r = 0; r < j->rows; r++)
        sum[r] = j->product == REPLACE ? (vec){0}
                                       : load_some(j->matrix + row_start(j, r) + c, count);
    for (int k = 0; k < ranks; k++) {
        const vec right = right_columns(j, k, c, count);
        for (int r = 0; r < j->rows; r++)
            sum[r] += left[r * RANKS + k] * right;
    }
    for (int r = 0; r < j->rows && j->plus; r++)
        sum[r] += load_some(j->plus + row_start(j, r) + c, count);
    for (int r = 0; r < j->rows; r++)
        store_some(j->matrix + row_start(j, r) + c, sum[r], count);
}

/* matrix = matrix +- left right + plus, or the product alone */
ALWAYS_INLINE void add_product(const job *j, int ranks)
{
    vec left[ROWS * RANKS];
    spread_left(j, ranks, j->product == SUBTRACT ? -1 : 1, left);
    each_columns(j, ranks, add_product_columns, left);
}

ALWAYS_INLINE void make_left_columns(const job *j, int ranks, long c, long count, vec *sums)
{
    const vec matrix = load_some(j->matrix + c, count);
    for (int k = 0; k < ranks; k++)
        sums[k] += matrix * right_columns(j, k, c, count);
}

/* left = matrix right^T, of one row */
ALWAYS_INLINE void make_left(const job *j, int ranks)
{
    typedef float quad __attribute__((vector_size(4 * sizeof(float))));
    vec sums[RANKS] = {0};
    each_columns(j, ranks, make_left_columns, sums);
    for (int k = 0; k < ranks; k++) {
        quad sum = {0}, quads[LANES / 4];
        memcpy(quads, &sums[k], sizeof quads);
        for (int i = 0; i < LANES / 4; i++)
            sum += quads[i];
        j->left[k] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
}

ALWAYS_INLINE void add_to_right_columns(const job *j, int ranks, long c, long count, vec *left)
{
    vec right[RANKS];
    for (int k = 0; k < ranks; k++)
        right[k] = right_columns(j, k, c, count);
    for (int r = 0; r < j->rows; r++) {
        const vec matrix = load_some(j->matrix + row_start(j, r) + c, count);
        for (int k = 0; k < ranks; k++)
            right[k] += left[r * RANKS + k] * matrix;
        /* Rows side by side are an order that processors do not foresee. */
        __builtin_prefetch(j->matrix + j->rows * (j->columns + c) + r * LANES);
    }
    for (int k = 0; k < ranks; k++)
        store_some(j->right + k * j->columns + c, right[k], count);
}

/* right = right + left^T matrix */
ALWAYS_INLINE void add_to_right(const job *j, int ranks)
{
    vec left[ROWS * RANKS];
    spread_left(j, ranks, 1, left);
    each_columns(j, ranks, add_to_right_columns, left);
}

int edgeddl_low_rank_left(const matrix_place *places, long count, long rank, float *errors,
                          const float *gradients, float *previous, float *factors, float *lefts)
{
    for (const matrix_place *p = places; p < places + count; p++) {
        float *matrix = errors + p->error, *left = lefts + p->left, *factor = factors + p->right;
        const job add = {p->columns, previous ? rank : 0, matrix, left,
                         previous ? previous + p->right : factor, SUBTRACT,
                         gradients + p->gradient, 1, 0};
        const job multiply = {p->columns, rank, matrix, left, factor, 0, NULL, 1, 0};
        for (long row = 0; row < p->rows; row++) {
            each_rank(&add, row, add_product);
            each_rank(&multiply, row, make_left);
        }
    }
    return DONE;
}

int edgeddl_low_rank_right(const matrix_place *places, long count, long rank, float *errors,
                           float *lefts, float *rights)
{
    for (const matrix_place *p = places; p < places + count; p++) {
        float *matrix = errors + p->error, *left = lefts + p->left, *right = rights + p->right;
        const job several = {p->columns, rank, matrix, left, right, 0, NULL, ROWS, 1};
        const job one = {p->columns, rank, matrix, left, right, 0, NULL, 1, 0};
        long row = 0;
        memset(right, 0, (size_t)(rank * p->columns) * sizeof *right);
        for (; row + ROWS <= p->rows; row += ROWS)
            each_rank(&several, row, add_to_right);
        for (; row < p->rows; row++)
            each_rank(&one, row, add_to_right);
    }
    return DONE;
}

/* Of gradients, which the product replaces, or of errors, from which it is subtracted. Two rows at
 * a time, one in each half of a matrix: both are written in the order of memory. */
int edgeddl_low_rank_product(const matrix_place *places, long count, long rank, float *lefts,
                             float *rights, int product, float *matrices)
{
    for (const matrix_place *p = places; p < places + count; p++) {
        float *matrix = matrices + (product == REPLACE ? p->gradient : p->error);
        float *left = lefts + p->left, *right = rights + p->right;
        const long half = p->rows / 2;
        const job two = {p->columns, rank, matrix, left, right, product, NULL, 2, half};
        const job one = {p->columns, rank, matrix, left, right, product, NULL, 1, 0};
        for (long row = 0; row < half; row++)
            each_rank(&two, row, add_product);
        if (p->rows % 2)
            each_rank(&one, p->rows - 1, add_product);
    }
    return DONE;
}

/* Sums side by side: fast, and in the same order whatever the width of vectors. */
enum { SUMS = 8 };

static double dot(const double *a, const double *b, long count)
{
    double sums[SUMS] = {0}, sum = 0;
    for (long i = 0; i < count; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            sums[k] += a[i + k] * b[i + k];
    for (int k = 0; k < SUMS; k++)
        sum += sums[k];
    return sum;
}

/* Gram-Schmidt for one column behind others: its length becomes 1; or 0, if no larger part of it
 * than `dependent` is left without them. What is not finite becomes NaN. */
static void orthonormalise(const double *others, double *column, long count, double dependent)
{
    const double before = dot(column, column, count);
    for (; others < column; others += count) {
        const double along = dot(others, column, count);
        for (long i = 0; i < count; i++)
            column[i] -= along * others[i];
    }
    const double square = dot(column, column, count);
    const double scale = square > dependent * dependent * before ? 1 / sqrt(square) : 0;
    for (long i = 0; i < count; i++)
        column[i] *= scale;
}

/* In float64, column behind column, with zeros at the end of each. */
int edgeddl_low_rank_orthonormalise(const matrix_place *places, long count, long rank,
                                    double dependent, float *lefts)
{
    for (const matrix_place *p = places; p < places + count; p++) {
        const long length = round_up(p->rows, SUMS);
        const size_t bytes = (size_t)(rank * length) * sizeof(double);
        double *columns = (double *)workspace(bytes / sizeof(float)), *column = columns;
        if (!columns)
            return OUT_OF_MEMORY;
        memset(columns, 0, bytes);
        for (float *left = lefts + p->left; column < columns + rank * length; left++) {
            for (long row = 0; row < p->rows; row++)
                column[row] = left[row * rank];
            orthonormalise(columns, column, length, dependent);
            for (long row = 0; row < p->rows; row++)
                left[row * rank] = (float)column[row];
            column += length;
        }
    }
    return DONE;
}
