/* PowerSGD's products of large matrices with thin ones, each in one pass over a matrix:
 *
 *   matrix [rows][columns],   left [rows][rank],   right [rank][columns]
 *
 * One call processes all matrices of a bucket: between calls the interpreter's code and data would
 * have to be fetched from memory as well.
 *
 * The products are memory-bound: the matrix is read and written in memory order, and right stays in
 * the L1 cache. RANKS components of the rank are in registers at a time. A larger rank takes
 * further passes over the same rows, which are then in the L1 cache as well.
 *
 * Everything runs on the calling thread, which communicates while the threads of the pool compute.
 * Except along a row, the order of sums does not depend on the vector width.
 */
#include <math.h>

#include "edgeddl.h"
#include "simd.h"
#include "threads.h"

enum { RANKS = 4, ROWS = TILE_VECTORS }; /* ROWS * RANKS vectors: half of the registers */
enum { ADD = 1, SUBTRACT = -1, REPLACE = 0 };

typedef struct {
    long columns, rank;
    float *matrix, *left, *right; /* at the first row and rank component to process */
    int product;                  /* ADD, SUBTRACT or REPLACE: how left right changes the matrix */
    const float *plus;            /* a matrix that is added afterwards, or NULL */
    int rows;                     /* rows processed at a time */
    long apart;                   /* distance between them, in rows */
} job;

/* Processes j->rows rows, for `ranks` components of the rank. */
typedef void row_function(const job *j, int ranks);
/* Processes `count` columns from c on. `kept` is passed from call to call. */
typedef void columns_function(const job *j, int ranks, long c, long count, vec *kept);

ALWAYS_INLINE void each_columns(const job *j, int ranks, columns_function *run, vec *kept)
{
    long c = 0;
    for (; c + LANES <= j->columns; c += LANES)
        run(j, ranks, c, LANES, kept);
    if (c < j->columns)
        run(j, ranks, c, j->columns - c, kept);
}

/* Processes the whole rank, RANKS at a time. Runs once if the rank is 0. */
ALWAYS_INLINE void each_rank(const job *all, long row, row_function *run)
{
    for (long k = 0; k == 0 || k < all->rank; k += RANKS) {
        job j = *all;
        j.matrix += row * j.columns, j.left += row * j.rank + k, j.right += k * j.columns;
        /* added after the whole product, as if the matrix had been stored in between */
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

/* Offset of the r-th row in the matrix. */
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

/* left = matrix right^T, for one row */
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
        /* The hardware prefetcher does not recognise several rows that are read in parallel. */
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

/* Replaces gradients by the product, or subtracts it from errors. Processes two rows at a time, one
 * in each half of a matrix: both are written in memory order. */
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

/* Independent sums: fast, and in the same order for every vector width. */
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

/* Gram-Schmidt for one column after the others: makes it orthogonal to them and its length 1. If at
 * most the fraction `dependent` of its length remains, it becomes 0; if it is not finite, NaN. */
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

/* Works in float64 on contiguous columns, each padded with zeros. */
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
