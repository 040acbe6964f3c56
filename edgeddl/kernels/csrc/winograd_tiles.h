/* Tiles of 4 x 4 outputs, and the planes that they are transformed to. */
#ifndef EDGEDDL_WINOGRAD_TILES_H
#define EDGEDDL_WINOGRAD_TILES_H

#include "convolution.h"
#include "winograd_transforms.h"

/* Planes a multiple of 4 KB apart would all fall into the same few lines of the first-level cache.
 * Rows too, where the product runs down a column. */
enum { PADDING = 16 };

typedef struct {
    long high, wide, count; /* tiles of an image, and of the batch */
} grid;

static inline grid tile_grid(const conv *shape)
{
    const long high = ceil_div(shape->out_h, OUTPUTS), wide = ceil_div(shape->out_w, OUTPUTS);
    return (grid){high, wide, shape->n * high * wide};
}

typedef struct {
    long image, top, left; /* of the tile's first output pixel */
} position;

static inline position tile_position(const grid *tiles, long tile)
{
    const long in_image = tile % (tiles->high * tiles->wide);
    return (position){tile / (tiles->high * tiles->wide), in_image / tiles->wide * OUTPUTS,
                      in_image % tiles->wide * OUTPUTS};
}

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

static inline long planes_floats(long rows, long columns, long padding)
{
    return PLANES * make_planes(NULL, rows, columns, padding).plane;
}

/* An image batch [n][h][w][c] as tiles see it. `nothing` is a row of zeros: pixels outside. */
typedef struct {
    const float *x;
    long h, w, c;
    prologue before;
    const float *nothing;
} images;

/* The tiles first .. first + count of x, as V; of gy, as Y: planes of [tiles][channels], written
 * from `row` on. */
void transform_inputs(const images *x, const conv *shape, const grid *tiles, long first, long count,
                      long row, planes V);
void transform_gradients(const images *gy, const grid *tiles, long first, long count, long row,
                         planes Y);

#endif
