#include "winograd_tiles.h"

/* Where the size x size pixels of a tile are. */
static void find_pixels(const images *x, long image, long top, long left, const int size,
                        const float **pixels)
{
    const long corner = (image * x->h + top) * x->w + left;
    for (int i = 0; i < size; i++) {
        const int row_inside = (unsigned long)(top + i) < (unsigned long)x->h;
        for (int j = 0; j < size; j++) {
            const int inside = row_inside & ((unsigned long)(left + j) < (unsigned long)x->w);
            pixels[i * size + j] = inside ? x->x + (corner + i * x->w + j) * x->c : x->nothing;
        }
    }
}

ALWAYS_INLINE void transform_channels(const images *x, const float **pixels, one_way transform,
                                      const int size, const int points, const int prepare, long c,
                                      long count, float *target, long plane)
{
    vec in[MOST_PLANES], out[MOST_PLANES], scale, shift;
    if (prepare) {
        scale = load_some(x->before.scale + c, count);
        shift = load_some(x->before.shift + c, count);
    }
#pragma GCC unroll 81
    for (int i = 0; i < size * size; i++) {
        in[i] = load_some(pixels[i] + c, count);
        if (prepare && pixels[i] != x->nothing)
            in[i] = normalize(in[i], scale, shift);
    }
    both_ways(transform, size, points, in, out);
#pragma GCC unroll 81
    for (int i = 0; i < points * points; i++)
        store(target + i * plane, out[i]);
}

ALWAYS_INLINE void transform_tile(const images *x, const float **pixels, one_way transform,
                                  const int size, const int points, const int prepare,
                                  const planes *V, long row)
{
    long c = 0;
    for (; c + LANES <= x->c; c += LANES)
        transform_channels(x, pixels, transform, size, points, prepare, c, LANES,
                           at_column(V, c) + row * V->row, V->plane);
    if (c < x->c)
        transform_channels(x, pixels, transform, size, points, prepare, c, x->c - c,
                           at_column(V, c) + row * V->row, V->plane);
}

static void transform_x(const images *x, const float **pixels, const planes *V, long row)
{
    if (x->before.scale)
        transform_tile(x, pixels, input_one_way, POINTS, POINTS, 1, V, row);
    else
        transform_tile(x, pixels, input_one_way, POINTS, POINTS, 0, V, row);
}

static void transform_x_2(const images *x, const float **pixels, const planes *V, long row)
{
    if (x->before.scale)
        transform_tile(x, pixels, input_one_way_2, 2 * OUTPUTS + 1, POINTS_2, 1, V, row);
    else
        transform_tile(x, pixels, input_one_way_2, 2 * OUTPUTS + 1, POINTS_2, 0, V, row);
}

static void transform_gy(const images *gy, const float **pixels, const planes *V, long row)
{
    transform_tile(gy, pixels, gradient_one_way, OUTPUTS, POINTS, 0, V, row);
}

static void transform_gy_2(const images *gy, const float **pixels, const planes *V, long row)
{
    transform_tile(gy, pixels, gradient_one_way_2, OUTPUTS, POINTS_2, 0, V, row);
}

static void transform_gy_5(const images *gy, const float **pixels, const planes *V, long row)
{
    transform_tile(gy, pixels, gradient_one_way_5, OUTPUTS_5, POINTS, 0, V, row);
}

static void transform_turned_2(const images *gy, const float **pixels, const planes *V, long row)
{
    transform_tile(gy, pixels, turned_input_one_way_2, OUTPUTS + 1, POINTS_2, 0, V, row);
}

const reading read_x[] = {{POINTS, OUTPUTS, POINTS, transform_x},
                          {2 * OUTPUTS + 1, 2 * OUTPUTS, POINTS_2, transform_x_2},
                          {POINTS, OUTPUTS_5, POINTS, transform_x}};
const reading read_gy[] = {{OUTPUTS, OUTPUTS, POINTS, transform_gy},
                           {OUTPUTS, OUTPUTS, POINTS_2, transform_gy_2},
                           {OUTPUTS_5, OUTPUTS_5, POINTS, transform_gy_5}};
const reading read_turned_gy[] = {{POINTS, OUTPUTS, POINTS, transform_x},
                                  {OUTPUTS + 1, OUTPUTS, POINTS_2, transform_turned_2},
                                  {POINTS, OUTPUTS_5, POINTS, transform_x}};

void read_tiles(const images *x, const reading *how, const grid *tiles, long first, long count,
                long row, planes V)
{
    const float *pixels[MOST_PLANES];
    for (long t = 0; t < count; t++) {
        const position at = tile_position(tiles, first + t);
        find_pixels(x, at.image, at.row * how->step - x->top, at.column * how->step - x->left,
                    how->size, pixels);
        how->transform(x, pixels, &V, row + t);
    }
}
