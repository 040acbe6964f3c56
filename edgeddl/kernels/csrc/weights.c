#include "convolution.h"

/* b[column][row] = a[row][column] for 4 x 4 numbers, by exchanging 2 x 2 blocks, then numbers. */
typedef float quad __attribute__((vector_size(16)));
typedef float unaligned_quad __attribute__((vector_size(16), aligned(4), may_alias));

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int quad_index __attribute__((vector_size(16)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (quad_index){__VA_ARGS__})
#endif

ALWAYS_INLINE void transpose_4x4(const float *a, long a_row, float *b, long b_row)
{
    quad r0 = *(const unaligned_quad *)a, r1 = *(const unaligned_quad *)(a + a_row);
    quad r2 = *(const unaligned_quad *)(a + 2 * a_row);
    quad r3 = *(const unaligned_quad *)(a + 3 * a_row);
    quad low01 = SHUFFLE(r0, r1, 0, 4, 1, 5), high01 = SHUFFLE(r0, r1, 2, 6, 3, 7);
    quad low23 = SHUFFLE(r2, r3, 0, 4, 1, 5), high23 = SHUFFLE(r2, r3, 2, 6, 3, 7);
    *(unaligned_quad *)b = SHUFFLE(low01, low23, 0, 1, 4, 5);
    *(unaligned_quad *)(b + b_row) = SHUFFLE(low01, low23, 2, 3, 6, 7);
    *(unaligned_quad *)(b + 2 * b_row) = SHUFFLE(high01, high23, 0, 1, 4, 5);
    *(unaligned_quad *)(b + 3 * b_row) = SHUFFLE(high01, high23, 2, 3, 6, 7);
}

/* Rows are short and far apart: the hardware prefetcher does not predict the next ones. */
enum { ROWS_AHEAD = 8 };

ALWAYS_INLINE void prefetch_row(const float *row, long columns)
{
    for (long c = 0; c < columns; c += 64 / (long)sizeof(float))
        __builtin_prefetch(row + c);
}

static void transpose(const float *a, long a_row, long rows, long columns, float *b, long b_row)
{
    const long whole_rows = rows & ~3L, whole_columns = columns & ~3L;
    for (long r = 0; r < whole_rows; r += 4) {
        for (int i = 0; i < 4; i++)
            prefetch_row(a + (r + ROWS_AHEAD + i) * a_row, columns);
        for (long c = 0; c < whole_columns; c += 4)
            transpose_4x4(a + r * a_row + c, a_row, b + c * b_row + r, b_row);
    }
    for (long r = 0; r < rows; r++)
        for (long c = r < whole_rows ? whole_columns : 0; c < columns; c++)
            b[c * b_row + r] = a[r * a_row + c];
}

void pack_weights(const weights *w, long tap, long first, long rows, long column, long width,
                  float *panel)
{
    const long columns = min_long(weight_columns(w) - column, width);
    const float *source = w->W + tap * w->c * w->row;
    if (w->transposed)
        transpose(source + column * w->row + first, w->row, columns, rows, panel, width);
    else
        for (long r = 0; r < rows; r++) {
            const float *row = source + (first + r) * w->row + column;
            prefetch_row(row + ROWS_AHEAD * w->row, columns);
            memcpy(panel + r * width, row, (size_t)columns * sizeof(float));
        }
    if (columns < width)
        for (long r = 0; r < rows; r++)
            memset(panel + r * width + columns, 0,
                   (size_t)(width - columns) * sizeof(float));
}
