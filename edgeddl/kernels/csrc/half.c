/* Conversion between float32 and half precision for the wire, by integer arithmetic.
 *
 * Multiplied by 2^-112, a number has the exponent bits that it needs in half precision: what is
 * left is to round 13 bits of the mantissa off and to move the sign. The caller's factor contains
 * that power of two. These loops stay on the caller's thread: it is the one that communicates,
 * while the pool's threads compute.
 */
#include <stdint.h>
#include <string.h>

#include "threads.h"

EXPORT int edgeddl_encode_half(long count, const float *restrict x, float multiplier,
                               uint16_t *restrict halves)
{
    for (long i = 0; i < count; i++) {
        const float scaled = x[i] * multiplier;
        uint32_t bits;
        memcpy(&bits, &scaled, sizeof bits);
        bits += 1 << 12; /* half of the last bit that stays */
        halves[i] = (uint16_t)((bits >> 13 & 0x7fff) | (bits >> 16 & 0x8000));
    }
    return DONE;
}

EXPORT int edgeddl_decode_half(long count, const uint16_t *restrict halves, float factor,
                               float *restrict x)
{
    for (long i = 0; i < count; i++) {
        const uint32_t half = halves[i];
        const uint32_t bits = (half & 0x7fff) << 13 | (half & 0x8000) << 16;
        float scaled;
        memcpy(&scaled, &bits, sizeof scaled);
        x[i] = scaled * factor;
    }
    return DONE;
}
