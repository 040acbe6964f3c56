/* Half precision for the wire: blocks of numbers, each with its own power of two. */
#ifndef EDGEDDL_HALF_H
#define EDGEDDL_HALF_H

#include <stdint.h>

enum { BLOCK = 1024 }; /* numbers per block, as in kernels/halves.py */

typedef struct {
    float factor; /* NaN if the block has a number that is not finite or too large */
    uint16_t halves[BLOCK];
} half_block;

void encode_block(const float *numbers, long count, half_block *block);
void decode_block(const half_block *block, long count, float *numbers);

#endif
