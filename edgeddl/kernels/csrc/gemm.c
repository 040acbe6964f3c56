#include "gemm.h"

/* A step of a narrow tile is too short for two prefetches. */
enum { BOTH_STREAMS = TILE_COLUMNS >= 64 };

typedef struct {
    long row;           /* the first row */
    long lanes;         /* used in the last vector of each row */
    const float *start; /* initial sums: laid out like c, or one row for all; NULL for 0 */
    int start_rows;
    prefetch ahead[2];
} tile;

/* Keeps `rows` x `vectors` accumulators in registers over the whole depth. Both are constants where
 * this is inlined. The rows of a transposed matrix are adjacent numbers. */
ALWAYS_INLINE void multiply_tile(const product *m, const tile *t, const int rows, const int vectors,
                                 const int transposed)
{
    _Static_assert(TILE_ROWS <= 6 && TILE_VECTORS <= 4, "more cases are needed below");
    if (rows > TILE_ROWS || vectors > TILE_VECTORS)
        return;
    vec sum[TILE_ROWS][TILE_VECTORS];
    const float *a[TILE_ROWS];
    long c[TILE_ROWS];
    prefetch now = t->ahead[0], then = t->ahead[1];
    const long a_depth = transposed ? m->a_depth : 1, b_depth = m->b_depth;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const long row = t->row + r;
        a[r] = m->a + (transposed ? row : m->places ? m->places[row].a : row * m->a_row);
        c[r] = m->places ? m->places[row].c : row * m->c_row;
        const float *start = t->start + (t->start_rows ? c[r] : 0);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const long lanes = v < vectors - 1 ? LANES : t->lanes;
            sum[r][v] = t->start ? load_some(start + v * LANES, lanes) : (vec){0};
        }
    }
    for (const run *part = m->runs; part < m->runs + m->run_count; part++) {
        const float *b = m->b + part->b * b_depth;
        long at = part->a;
#pragma GCC unroll 4
        for (long d = 0; d < part->depth; d++) {
            vec row[TILE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                row[v] = load(b + v * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                const vec number = splat(transposed ? a[0][at + r] : a[r][at]);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    sum[r][v] += number * row[v];
            }
            __builtin_prefetch(now.at, 0, 2);
            now.at += now.step;
            if (BOTH_STREAMS) {
                __builtin_prefetch(then.at, 0, 2);
                then.at += then.step;
            } else { /* alternate; free in an unrolled loop */
                const prefetch other = now;
                now = then, then = other;
            }
            at += a_depth;
            b += b_depth;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            store_some(m->c + c[r] + v * LANES, sum[r][v], v < vectors - 1 ? LANES : t->lanes);
}

/* One instance of the tile for every size: both sizes have to be constants. */

ALWAYS_INLINE void choose_vectors(const product *m, const tile *t, const int rows, long vectors,
                                  const int transposed)
{
    switch (vectors) {
    case 1: multiply_tile(m, t, rows, 1, transposed); break;
    case 2: multiply_tile(m, t, rows, 2, transposed); break;
    case 3: multiply_tile(m, t, rows, 3, transposed); break;
    case 4: multiply_tile(m, t, rows, 4, transposed); break;
    }
}

ALWAYS_INLINE void choose_tile(const product *m, const tile *t, long rows, long vectors,
                               const int transposed)
{
    switch (rows) {
    case 1: choose_vectors(m, t, 1, vectors, transposed); break;
    case 2: choose_vectors(m, t, 2, vectors, transposed); break;
    case 3: choose_vectors(m, t, 3, vectors, transposed); break;
    case 4: choose_vectors(m, t, 4, vectors, transposed); break;
    case 5: choose_vectors(m, t, 5, vectors, transposed); break;
    case 6: choose_vectors(m, t, 6, vectors, transposed); break;
    }
}

/* Multiplies up to TILE_COLUMNS columns. */
static void multiply_columns(const product *m, long rows, long columns)
{
    long depth = 0;
    for (long i = 0; i < m->run_count; i++)
        depth += m->runs[i].depth;
    const long vectors = ceil_div(columns, LANES);
    /* Rows are split evenly: two tiles of 5 are faster than one of 6 and one of 4. */
    const long tiles = ceil_div(rows, TILE_ROWS);
    tile t = {
        .lanes = m->places ? columns - (vectors - 1) * LANES : LANES,
        .start = m->add ? m->c : m->bias ? m->bias : m->plus, .start_rows = m->add || !m->bias,
    };
    for (long i = 0; i < tiles; i++) {
        t.row = rows * i / tiles;
        const long count = rows * (i + 1) / tiles - t.row;
        for (int s = 0; s < 2; s++)
            t.ahead[s] = *m->ahead[s];
        if (m->a_depth == 1)
            choose_tile(m, &t, count, vectors, 0);
        else
            choose_tile(m, &t, count, vectors, 1);
        for (int s = 0; s < 2; s++)
            m->ahead[s]->at += (BOTH_STREAMS ? depth : depth / 2) * m->ahead[s]->step;
    }
}

prefetch prefetch_range(const float *first, long floats, long steps)
{
    const long bytes = floats * (long)sizeof(float), turns = BOTH_STREAMS ? steps : (steps + 1) / 2;
    return (prefetch){(const char *)first, min_long(ceil_div(bytes, max_long(turns, 1)), 64)};
}

long product_steps(long depth, long rows, long columns)
{
    return depth * ceil_div(rows, TILE_ROWS) * ceil_div(columns, TILE_COLUMNS);
}

void multiply(const product *whole, long rows, long columns)
{
    product m = *whole;
    const run one = {0, 0, m.depth};
    if (!m.runs)
        m.runs = &one, m.run_count = 1;
    prefetch none = {(const char *)m.b, 0}; /* mapped: looking up an unmapped address takes long */
    for (int s = 0; s < 2; s++)
        if (!m.ahead[s])
            m.ahead[s] = &none;
    for (long column = 0; column < columns; column += TILE_COLUMNS) {
        m.b = whole->b + column;
        m.c = whole->c + column;
        m.bias = whole->bias ? whole->bias + column : NULL;
        m.plus = whole->plus ? whole->plus + column : NULL;
        multiply_columns(&m, rows, min_long(columns - column, TILE_COLUMNS));
    }
}
