/* Patches: the pixels that a window sees, read in place.
 *
 * Some taps of a patch near an edge see padding. These taps are skipped: patches are processed
 * class by class, where all patches of a class see the image through the same taps. Nothing is
 * copied or padded, and a patch consists of a few runs of adjacent numbers.
 */
#ifndef EDGEDDL_PATCHES_H
#define EDGEDDL_PATCHES_H

#include "convolution.h"

/* One axis of a convolution, or of the gradient of its input. Output o sees pixel
 * origin + o * step + t * tap_step through tap t. */
typedef struct {
    long pixels, outputs, taps;
    long origin, step, tap_step;
    long window_first, window_step; /* tap t is the window's tap window_first + t * window_step */
    long place, place_step;         /* output o is at place + o * place_step */
} axis;

/* Outputs first .. end, which see the image through the same taps, from .. to. */
typedef struct {
    long first, end, from, to;
} span;

axis forward_axis(long pixels, long outputs, long window, long stride, long padding, long dilation);

/* One phase of the gradient of x. Pixels of x with the same position modulo the stride see the same
 * taps. Each phase is a convolution of gy with a part of the weights, rotated by 180 degrees. */
axis gradient_axis(long pixels, long outputs, long window, long stride, long padding, long dilation,
                   long phase);

/* The span that begins with output `first`. */
span span_from(const axis *a, long first);

/* Drops taps at either end through which no output sees the image. A 3 x 3 window on a 1 x 1 image
 * keeps one tap. */
void drop_unseen_taps(axis *a);

typedef struct {
    const float *source; /* [images][y.pixels][x.pixels][pixel]; c channels are read */
    long images, pixel, c;
    axis y, x;
    long out_h, out_w, out_pixel; /* layout of the results or their gradients */
} patches;

/* The patches of a convolution's input, for one group of channels. */
patches input_patches(const conv *s, const float *x, long group);

ALWAYS_INLINE long patch_count(const patches *p)
{
    return p->images * p->y.outputs * p->x.outputs;
}

ALWAYS_INLINE long patch_depth(const patches *p) { return p->y.taps * p->x.taps * p->c; }

enum { BLOCK_PATCHES = 192 }; /* patches per block */
enum { BLOCK_DEPTH = 512 };   /* depth of a product: such a panel of weights stays in L2 */

/* Some patches of one class. Iterating over a range of patches yields all its blocks. */
typedef struct {
    const float *source;         /* the group of images of these patches */
    long out;                    /* offset of the group's results */
    place places[BLOCK_PATCHES]; /* offsets of the first number in source, of the result */
    long count;
    run *runs; /* the numbers that are seen, and their indices in a whole patch */
    long run_count;
    /* state of the iteration */
    const patches *p;
    long at, end;
    long group; /* images processed together, class by class */
} block;

/* Memory that an iteration needs for its runs. */
long run_floats(const patches *p);

void start_blocks(block *b, const patches *p, long from, long to, float *memory);

/* Advances to the next block. Returns 0 if there is none. */
int next_block(block *b);

#endif
