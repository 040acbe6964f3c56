#include "winograd_tiles.h"

/* Where the size x size pixels of a tile are. */
ALWAYS_INLINE void find_pixels(const images *x, long image, long top, long left, const int size,
                               const float **pixels)
{
    const float *corner = x->x + ((image * x->h + top) * x->w + left) * x->c;
#pragma GCC unroll 6
    for (int i = 0; i < size; i++) {
        const int row_inside = (unsigned long)(top + i) < (unsigned long)x->h;
#pragma GCC unroll 6
        for (int j = 0; j < size; j++) {
            const int inside = row_inside & ((unsigned long)(left + j) < (unsigned long)x->w);
            pixels[i * size + j] = inside ? corner + (i * x->w + j) * x->c : x->nothing;
        }
    }
}

ALWAYS_INLINE void transform_channels(const images *x, const float **pixels, one_way transform,
                                      const int size, const int prepare, long c, long count,
                                      float *target, long plane)
{
    vec in[PLANES], out[PLANES], scale, shift;
    if (prepare) {
        scale = load_some(x->before.scale + c, count);
        shift = load_some(x->before.shift + c, count);
    }
#pragma GCC unroll 36
    for (int i = 0; i < size * size; i++) {
        in[i] = load_some(pixels[i] + c, count);
        if (prepare && pixels[i] != x->nothing)
            in[i] = normalize(in[i], scale, shift);
    }
    both_ways(transform, size, POINTS, in, out);
#pragma GCC unroll 36
    for (int i = 0; i < PLANES; i++)
        store(target + i * plane, out[i]);
}

ALWAYS_INLINE void transform_tile(const images *x, const float **pixels, one_way transform,
                                  const int size, const int prepare, float *target, long plane)
{
    long c = 0;
    for (; c + LANES <= x->c; c += LANES)
        transform_channels(x, pixels, transform, size, prepare, c, LANES, target + c, plane);
    if (c < x->c)
        transform_channels(x, pixels, transform, size, prepare, c, x->c - c, target + c, plane);
}

void transform_inputs(const images *x, const conv *shape, const grid *tiles, long first, long count,
                      long row, planes V)
{
    const float *pixels[PLANES];
    for (long t = 0; t < count; t++) {
        const position at = tile_position(tiles, first + t);
        float *target = V.first + (row + t) * V.row;
        find_pixels(x, at.image, at.top - shape->ph, at.left - shape->pw, POINTS, pixels);
        if (x->before.scale)
            transform_tile(x, pixels, input_one_way, POINTS, 1, target, V.plane);
        else
            transform_tile(x, pixels, input_one_way, POINTS, 0, target, V.plane);
    }
}

void transform_gradients(const images *gy, const grid *tiles, long first, long count, long row,
                         planes Y)
{
    const float *pixels[PLANES];
    for (long t = 0; t < count; t++) {
        const position at = tile_position(tiles, first + t);
        find_pixels(gy, at.image, at.top, at.left, OUTPUTS, pixels);
        transform_tile(gy, pixels, gradient_one_way, OUTPUTS, 0, Y.first + (row + t) * Y.row,
                       Y.plane);
    }
}
