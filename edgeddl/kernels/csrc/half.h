/* Half precision for the wire: blocks of numbers, each with its own power of two. */
#ifndef EDGEDDL_HALF_H
#define EDGEDDL_HALF_H

#include "edgeddl.h"

void encode_block(const float *numbers, long count, half_block *block);
void decode_block(const half_block *block, long count, float *numbers);

#endif
