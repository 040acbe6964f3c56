/* Tiles of images, the planes they are transformed to, and how threads divide the work. */
#ifndef EDGEDDL_WINOGRAD_TILES_H
#define EDGEDDL_WINOGRAD_TILES_H

#include "convolution.h"
#include "winograd_transforms.h"

/* The kind for y and the gradient of the weights or, if input_gradient, for gx. */
static inline kind kind_of(const conv *s, int input_gradient)
{
    const kind stride_2 = input_gradient ? TRANSPOSED_2 : STRIDE_2;
    return s->kh == sizes[FIVE].taps ? FIVE : s->sy == 1 ? THREE : stride_2;
}

/* Planes a multiple of 4 KB apart would all map to the same few sets of the L1 cache. So would rows
 * where the product runs down a column. */
enum { PADDING = 16 };

/* `count` planes of [rows][columns] numbers, e.g. [tiles][channels], stored as consecutive panels
 * of `width` columns with room for whole vectors. A product reads a contiguous part of a plane. */
typedef struct {
    float *first;
    long width, row, plane, panel;
} planes;

static inline planes make_planes(int count, long rows, long width, long padding)
{
    const long row = round_up(width, LANES) + padding, plane = rows * row + PADDING;
    return (planes){NULL, width, row, plane, count * plane};
}

/* Size in numbers of planes with `columns` columns. */
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

/* The plane of the weights for a plane of inputs. With stride 2, several inputs share a weight. */
static inline int weight_plane(int plane, int points)
{
    return (int)(min_long(plane / points, POINTS - 1) * POINTS +
                 min_long(plane % points, POINTS - 1));
}

/* Tiles of an image, and of the batch. Inputs and outputs have the same tiles. */
typedef struct {
    long high, wide, count;
} grid;

static inline grid tile_grid(long n, long h, long w, long size)
{
    const long high = ceil_div(h, size), wide = ceil_div(w, size);
    return (grid){high, wide, n * high * wide};
}

typedef struct {
    long image, row, column; /* of the tile, in units of tiles */
} position;

static inline position tile_position(const grid *tiles, long tile)
{
    const long in_image = tile % (tiles->high * tiles->wide);
    return (position){tile / (tiles->high * tiles->wide), in_image / tiles->wide,
                      in_image % tiles->wide};
}

/* A batch of images [n][h][w][c] that is read in tiles. `nothing` is a row of zeros for pixels
 * outside the image. */
typedef struct {
    const float *x;
    long h, w, c;
    kind kind;
    int for_weights; /* whether this is gy, for the gradient of the weights */
    long top, left;  /* how far the first tile begins outside the image */
    folded_norm norm;
    const float *nothing;
} images;

/* Prefetches approximately the memory of `count` tiles. It skips the first rows: the tiles before
 * have read nearly all of them. */
static inline prefetch prefetch_tiles(const images *x, const grid *tiles, long first, long count,
                                      long steps)
{
    const long floats = x->h * x->w * x->c, each = tiles->high * tiles->wide;
    return prefetch_range(x->x + x->top * x->w * x->c + first * floats / each,
                          count * floats / each, steps);
}

/* Computes all tiles block by block. The tiles of a block are read and transformed to V, planes of
 * [tiles][channels]. Then `compute` computes the results from V, in `items`.
 *
 * Either each thread processes its own tiles, or all threads transform a block together and then
 * divide the items. */
typedef struct {
    grid tiles;
    int points;     /* values of a transformed tile along an axis */
    images in[2];   /* inputs of the tiles; x of the second may be NULL */
    long widths[2]; /* width of the panels of V, if threads share it */
    planes V[2];
    part_function *compute; /* computes some items; its context is this struct */
    const void *job;        /* further arguments of compute */
    long items, item_work;
    long most;       /* largest number of tiles in a block */
    int own_tiles;   /* whether each thread has its own tiles */
    long own_floats; /* memory that compute needs in each thread */
    int *result;
    int part;                 /* the part of this thread, if it has its own tiles */
    long block, first, count; /* the current block of this part; its tiles */
} tile_loop;

/* Lays out V and allocates it, if threads share it, together with `floats` numbers. Returns the
 * address of these numbers, or NULL if there is no memory. */
float *prepare_tile_loop(tile_loop *w, long padding, long floats);

/* `parts` counts only if each thread has its own tiles. */
void run_tile_loop(tile_loop *w, int parts);

/* Memory of this thread for compute. NULL if there is none. */
float *own_memory(const tile_loop *w);

/* Checks sums of outputs minus themselves: zero, or NaN if any output is infinite or NaN. */
static inline void check_finite(const tile_loop *w, vec zeros)
{
    for (int lane = 0; lane < LANES; lane++)
        if (zeros[lane] != 0)
            set_result(w->result, NOT_FINITE);
}

#endif
