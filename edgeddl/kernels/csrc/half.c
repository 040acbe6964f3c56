/* Conversion between float32 and half precision for the wire, in integer arithmetic.
 *
 * Multiplying a number by 2^-112 gives it the exponent bits that it needs in half precision. It
 * remains to round off 13 bits of the mantissa and to move the sign. A block's factor includes this
 * power of two. These loops run on the calling thread, which communicates while the pool computes.
 */
#include <math.h>
#include <string.h>

#include "edgeddl.h"
#include "half.h"
#include "simd.h"
#include "threads.h"

/* Factor of a block: divided by it, the largest magnitude becomes a half in [2^14, 2^15). */
static float factor_for(const float *numbers, long count)
{
    enum { MANTISSA_BITS = 23, HALF = 126, LARGEST_EXPONENT = 30 }; /* 2^30 needs factor 2^127 */
    int32_t largest = 0; /* as integers, magnitudes have the same order, with NaN above all */
    for (long i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    const int exponent = (largest >> MANTISSA_BITS) - HALF;
    return exponent > LARGEST_EXPONENT ? NAN : ldexpf(1, 112 - 15 + exponent);
}

void encode_block(const float *restrict numbers, long count, half_block *restrict block)
{
    block->factor = factor_for(numbers, count);
    const float multiplier = 1 / block->factor;
    for (long i = 0; i < count; i++) {
        const float scaled = numbers[i] * multiplier;
        uint32_t bits;
        memcpy(&bits, &scaled, sizeof bits);
        bits += 0xfff + (bits >> 13 & 1); /* add half of the last kept bit; ties to even */
        block->halves[i] = (uint16_t)((bits >> 13 & 0x7fff) | (bits >> 16 & 0x8000));
    }
    memset(block->halves + count, 0, (size_t)(BLOCK - count) * sizeof *block->halves);
}

void decode_block(const half_block *restrict block, long count, float *restrict numbers)
{
    const float factor = block->factor;
    for (long i = 0; i < count; i++) {
        const uint32_t half = block->halves[i];
        const uint32_t bits = (half & 0x7fff) << 13 | (half & 0x8000) << 16;
        float scaled;
        memcpy(&scaled, &bits, sizeof scaled);
        numbers[i] = scaled * factor;
    }
}

int edgeddl_encode_half(long count, const float *numbers, half_block *blocks)
{
    for (long first = 0; first < count; first += BLOCK)
        encode_block(numbers + first, min_long(BLOCK, count - first), blocks++);
    return DONE;
}

int edgeddl_decode_half(long count, const half_block *blocks, float *numbers)
{
    for (long first = 0; first < count; first += BLOCK)
        decode_block(blocks++, min_long(BLOCK, count - first), numbers + first);
    return DONE;
}
