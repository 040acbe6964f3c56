/* Tiles of images, the planes that they are transformed to, and who computes what of them. */
#ifndef EDGEDDL_WINOGRAD_TILES_H
#define EDGEDDL_WINOGRAD_TILES_H

#include "convolution.h"
#include "winograd_transforms.h"

/* For y and the gradient of the weights or, of_x, for gx. */
static inline kind kind_of(const conv *s, int of_x)
{
    return s->kh == sizes[FIVE].taps ? FIVE : s->sy == 1 ? THREE : of_x ? TRANSPOSED_2 : STRIDE_2;
}

/* Planes a multiple of 4 KB apart would all fall into the same few lines of the first-level cache.
 * Rows too, where the product runs down a column. */
enum { PADDING = 16 };

/* `count` planes of [rows][columns] numbers, e.g. [tiles][channels], in panels of `width` columns
 * one after the other, with room for whole vectors: what a product reads of a plane is adjacent. */
typedef struct {
    float *first;
    long width, row, plane, panel;
} planes;

static inline planes make_planes(int count, long rows, long width, long padding)
{
    const long row = round_up(width, LANES) + padding, plane = rows * row + PADDING;
    return (planes){NULL, width, row, plane, count * plane};
}

/* How many numbers there are in planes of so many columns. */
static inline long planes_floats(const planes *p, long columns)
{
    return ceil_div(columns, p->width) * p->panel;
}

static inline planes put_at(float *memory, planes p)
{
    p.first = memory;
    return p;
}

static inline float *at_column(const planes *p, long column)
{
    return p->first + column / p->width * p->panel + column % p->width;
}

/* The plane of the weights that a plane of inputs is multiplied by: see stride 2. */
static inline int weight_plane(int plane, int points)
{
    return (int)(min_long(plane / points, POINTS - 1) * POINTS +
                 min_long(plane % points, POINTS - 1));
}

/* Tiles of an image, and of the batch; they are the same for inputs and outputs. */
typedef struct {
    long high, wide, count;
} grid;

static inline grid tile_grid(long n, long h, long w, long size)
{
    const long high = ceil_div(h, size), wide = ceil_div(w, size);
    return (grid){high, wide, n * high * wide};
}

typedef struct {
    long image, row, column; /* of the tile, counted in tiles */
} position;

static inline position tile_position(const grid *tiles, long tile)
{
    const long in_image = tile % (tiles->high * tiles->wide);
    return (position){tile / (tiles->high * tiles->wide), in_image / tiles->wide,
                      in_image % tiles->wide};
}

/* An image batch [n][h][w][c] that is read in tiles. `nothing` is a row of zeros: pixels
 * outside. */
typedef struct {
    const float *x;
    long h, w, c;
    kind kind;
    int for_weights; /* this is gy, for the gradient of the weights */
    long top, left;  /* how far the first tile begins outside */
    folded_norm norm;
    const float *nothing;
} images;

/* The memory, about, where so many tiles are; of their first row, those before have seen nearly
 * all. */
static inline prefetch prefetch_tiles(const images *x, const grid *tiles, long first, long count,
                                      long steps)
{
    const long floats = x->h * x->w * x->c, each = tiles->high * tiles->wide;
    return prefetch_range(x->x + x->top * x->w * x->c + first * floats / each,
                          count * floats / each, steps);
}

/* All tiles are computed block by block: those of a block are read and transformed to V, planes of
 * [tiles][channels]; then `compute` makes of these what is wanted, in `items`.
 *
 * Either each thread takes tiles of its own, or all threads transform a block together and then
 * share the items. */
typedef struct {
    grid tiles;
    int points;     /* of a tile along an axis */
    images in[2];   /* what tiles are read of; the second may have no x */
    long widths[2]; /* of the panels of V, where threads share it */
    planes V[2];
    part_function *compute; /* some items; its context is the walk */
    const void *job;        /* what else it needs */
    long items, item_work;
    long most;       /* tiles of a block */
    int own_tiles;   /* whether every thread has tiles of its own */
    long own_floats; /* that compute needs for itself */
    int *result;
    int part;                 /* of the walk, if tiles are the thread's own */
    long block, first, count; /* the present block, of this part; its tiles */
} tile_loop;

/* Lays out V, and finds memory for it, where threads share it, and for `floats` numbers, where
 * these are returned; NULL if there is none. */
float *prepare_tile_loop(tile_loop *w, long padding, long floats);

/* In so many parts, if threads have tiles of their own. */
void run_tile_loop(tile_loop *w, int parts);

/* What compute has for itself; NULL if there is none. */
float *own_memory(const tile_loop *w);

/* For sums of outputs minus themselves: zero, or NaN if any is infinite or NaN. */
static inline void check_finite(const tile_loop *w, vec zeros)
{
    for (int lane = 0; lane < LANES; lane++)
        if (zeros[lane] != 0)
            set_result(w->result, NOT_FINITE);
}

#endif
