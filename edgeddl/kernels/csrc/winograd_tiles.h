/* Tiles of images, and the planes that they are transformed to. */
#ifndef EDGEDDL_WINOGRAD_TILES_H
#define EDGEDDL_WINOGRAD_TILES_H

#include "convolution.h"
#include "winograd_transforms.h"

/* Planes a multiple of 4 KB apart would all fall into the same few lines of the first-level cache.
 * Rows too, where the product runs down a column. */
enum { PADDING = 16 };

/* Planes of [rows][columns] numbers, e.g. [tiles][channels], with room for whole vectors. */
typedef struct {
    float *first;
    long row, plane;
} planes;

static inline planes make_planes(float *memory, long rows, long columns, long padding)
{
    const long row = round_up(columns, LANES) + padding;
    return (planes){memory, row, rows * row + PADDING};
}

static inline long planes_floats(int count, long rows, long columns, long padding)
{
    return count * make_planes(NULL, rows, columns, padding).plane;
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
    void (*transform)(const images *x, const float **pixels, float *target, long plane);
} reading;

/* By stride - 1: x, for the forward pass and the gradient of weights; gy, for the gradient of
 * weights; gy, for that of x. */
extern const reading read_x[2], read_gy[2], read_turned_gy[2];

/* The tiles first .. first + count, as planes of [tiles][channels], written from `row` on. */
void read_tiles(const images *x, const reading *how, const grid *tiles, long first, long count,
                long row, planes V);

#endif
