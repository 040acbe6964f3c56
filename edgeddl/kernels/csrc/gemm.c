#include "gemm.h"

#if TILE_ROWS > 6 || TILE_VECTORS > 4
#error "more cases are needed below"
#endif

#define TILE(rows, vectors)                                                                        \
    case rows:                                                                                     \
        if (rows <= TILE_ROWS && vectors <= TILE_VECTORS)                                          \
            multiply_tile(m, rows, vectors, a_row, a_depth);                                       \
        return;

#define TILES(vectors)                                                                             \
    switch (rows) {                                                                                \
        TILE(1, vectors) TILE(2, vectors) TILE(3, vectors)                                         \
        TILE(4, vectors) TILE(5, vectors) TILE(6, vectors)                                         \
    }

ALWAYS_INLINE void choose_tile(const product *m, int rows, int vectors, long a_row, long a_depth)
{
    switch (vectors) {
    case 1:
        TILES(1) return;
    case 2:
        TILES(2) return;
    case 3:
        TILES(3) return;
    case 4:
        TILES(4) return;
    }
}

static void multiply_rows(const product *m, int rows, int vectors)
{
    choose_tile(m, rows, vectors, m->a_row, 1);
}

static void multiply_transposed_rows(const product *m, int rows, int vectors)
{
    choose_tile(m, rows, vectors, 1, m->a_depth);
}

void multiply(const product *m, long rows, long columns)
{
    /* Rows are split evenly: two tiles of 5 are faster than one of 6 and one of 4. */
    const long tiles = ceil_div(rows, TILE_ROWS);
    const int vectors = (int)ceil_div(columns, LANES);
    for (long tile = 0; tile < tiles; tile++) {
        const long first = rows * tile / tiles, next = rows * (tile + 1) / tiles;
        product part = *m;
        if (!part.next)
            part.next = part.b;
        part.a += first * m->a_row;
        part.c += first * m->c_row;
        part.next += tile * m->depth * (64 / (long)sizeof(float));
        if (m->a_depth == 1)
            multiply_rows(&part, (int)(next - first), vectors);
        else
            multiply_transposed_rows(&part, (int)(next - first), vectors);
    }
}
