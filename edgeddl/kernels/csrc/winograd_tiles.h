/* Tiles of images, and the planes that they are transformed to. */
#ifndef EDGEDDL_WINOGRAD_TILES_H
#define EDGEDDL_WINOGRAD_TILES_H

#include "convolution.h"
#include "winograd_transforms.h"

/* Planes a multiple of 4 KB apart would all fall into the same few lines of the first-level cache.
 * Rows too, where the product runs down a column. */
enum { PADDING = 16 };

/* `count` planes of [rows][columns] numbers, e.g. [tiles][channels], in panels of `width` columns one
 * after the other, with room for whole vectors: what a product reads of a plane is adjacent. */
typedef struct {
    float *first;
    long width, row, plane, panel;
} planes;

static inline planes make_planes(float *memory, int count, long rows, long width, long padding)
{
    const long row = round_up(width, LANES) + padding, plane = rows * row + PADDING;
    return (planes){memory, width, row, plane, count * plane};
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

static inline planes from_column(const planes *p, long column)
{
    return put_at(at_column(p, column), *p);
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

/* An image batch [n][h][w][c] that is read in tiles. `nothing` is a row of zeros: pixels outside. */
typedef struct {
    const float *x;
    long h, w, c;
    long top, left; /* how far the first tile begins outside */
    prologue before;
    const float *nothing;
} images;

/* A way to read tiles of size x size pixels, `step` pixels apart, and to transform them to points x
 * points planes. */
typedef struct {
    int size, step, points;
    void (*transform)(const images *x, const float **pixels, const planes *V, long row);
} reading;

/* What there are tiles for. */
typedef enum { THREE, THREE_STRIDE_2, FIVE, KINDS } kind; /* windows of 3 x 3, 5 x 5 pixels */

static inline kind kind_of(const conv *s)
{
    return s->kh == TAPS_5 ? FIVE : s->sy == 2 ? THREE_STRIDE_2 : THREE;
}

/* By kind: x, for the forward pass and the gradient of weights; gy, for the gradient of weights;
 * gy, for that of x. */
extern const reading read_x[KINDS], read_gy[KINDS], read_turned_gy[KINDS];

/* The tiles first .. first + count, as planes of [tiles][channels], written from `row` on. */
void read_tiles(const images *x, const reading *how, const grid *tiles, long first, long count,
                long row, planes V);

/* The memory, about, where so many tiles are; of their first row, those before have seen nearly
 * all. */
static inline stream ask_for_tiles(const images *x, const grid *tiles, long first, long count,
                                   long steps)
{
    const long floats = x->h * x->w * x->c, each = tiles->high * tiles->wide;
    return ask_for(x->x + x->top * x->w * x->c + first * floats / each, count * floats / each,
                   steps);
}

#endif
