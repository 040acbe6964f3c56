/* Patches: what a window shows of an image, gathered as the rows of a matrix. */
#ifndef EDGEDDL_PATCHES_H
#define EDGEDDL_PATCHES_H

#include "convolution.h"

/* Some adjacent pixels of a patch, and some of their channels: copied in one go. */
typedef struct {
    long y, x;      /* of the first pixel, relative to that of the patch */
    long pixels;    /* side by side; more than one only with all channels */
    long c, count;  /* first channel, and how many */
    long tap;       /* of the window, of the first pixel; the others follow */
} piece;

typedef struct {
    const float *source; /* [images][h][w], `pixel` numbers each */
    long h, w, pixel;
    prologue before;
    long images, high, wide; /* patches */
    long step_y, step_x;     /* how far they lie apart */
    long count;              /* of pieces */
    piece *pieces;
    long depth; /* numbers of a patch */
} patches;

ALWAYS_INLINE long piece_depth(const piece *p) { return p->pixels * p->count; }

ALWAYS_INLINE long patch_count(const patches *p) { return p->images * p->high * p->wide; }

/* Adds the taps of a window: pixels of a tap or, where they are adjacent, a row of taps in pieces
 * of at most `most` numbers each. */
void add_taps(patches *p, long y, long x, long tap, long taps, long c, long most);

/* The pieces from `first` on that together have at most `most` numbers, but at least one: the end
 * of them; and how many numbers they have. */
long chunk_end(const patches *p, long first, long most);
long chunk_depth(const patches *p, long first, long end);

/* Pieces first .. end of `rows` patches from `patch` on, as rows `stride` numbers apart. */
void gather(const patches *p, long patch, long rows, long first, long end, float *matrix,
            long stride);

/* Whether the image itself is that matrix, `pixel` numbers a row: a window of one pixel, moved by
 * one. */
int is_plain(const patches *p);

/* The patches of a convolution's input, of one group. The caller frees the pieces, which are NULL
 * if there is no memory. */
patches input_patches(const conv *shape, const float *x, prologue before, long group, long most);

#endif
