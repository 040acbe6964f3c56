/* Patches: what a window shows of an image, read where it lies.
 *
 * Patches near an edge see padding through some of their taps. These taps are left out: patches are
 * taken class by class, those of a class seeing the image through the same taps. So nothing is
 * copied or padded, and a patch is some runs of numbers that are adjacent in memory.
 */
#ifndef EDGEDDL_PATCHES_H
#define EDGEDDL_PATCHES_H

#include "convolution.h"

/* One axis of a convolution, or of the gradient of its input. Through tap t output o sees pixel
 * origin + o * step + t * tap_step. */
typedef struct {
    long pixels, outputs, taps;
    long origin, step, tap_step;
    long window_first, window_step; /* tap t is the window's tap window_first + t * window_step */
    long place, place_step;         /* output o lies at place + o * place_step */
} axis;

/* Outputs first .. end see the same taps, from .. to. */
typedef struct {
    long first, end, from, to;
} span;

axis forward_axis(long pixels, long outputs, long window, long stride, long padding, long dilation);

/* The gradient of x. Pixels of x that are alike modulo the stride see the same taps: each such
 * phase is a convolution of gy with a part of the weights, turned by 180 degrees. */
axis gradient_axis(long pixels, long outputs, long window, long stride, long padding, long dilation,
                   long phase);

/* The span that begins with output `first`. */
span span_from(const axis *a, long first);

/* Leaves out taps at either end through which no output sees the image: of a 3 x 3 window on a
 * 1 x 1 image one is left. */
void drop_unseen_taps(axis *a);

typedef struct {
    const float *source; /* [images][y.pixels][x.pixels], `pixel` numbers each, c of them seen */
    long images, pixel, c;
    axis y, x;
    long out_h, out_w, out_pixel; /* where results, or their gradients, lie */
} patches;

/* The patches of a convolution's input, of one group of channels. */
patches input_patches(const conv *s, const float *x, long group);

ALWAYS_INLINE long patch_count(const patches *p)
{
    return p->images * p->y.outputs * p->x.outputs;
}

ALWAYS_INLINE long patch_depth(const patches *p) { return p->y.taps * p->x.taps * p->c; }

enum { BLOCK_PATCHES = 192 }; /* at a time */
enum { BLOCK_DEPTH = 512 };   /* numbers of each at a time: such a panel of weights stays in L2 */

/* Some patches of a class. A walk goes over all blocks of a range of patches. */
typedef struct {
    const float *source;         /* the images of the patches' group */
    long out;                    /* where results of the group begin */
    place places[BLOCK_PATCHES]; /* of the first number seen, in source; of the result */
    long count;
    run *runs; /* what is seen, and which numbers of a whole patch these are */
    long run_count;
    /* of the walk */
    const patches *p;
    long at, end;
    long group; /* images that are done together, class by class */
} block;

/* Memory that a walk needs, for runs. */
long run_floats(const patches *p);

void start_blocks(block *b, const patches *p, long from, long to, float *memory);

/* The next block; 0 if there is none. */
int next_block(block *b);

#endif
