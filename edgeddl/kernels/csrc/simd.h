/* Vectors of LANES floats by gcc's and clang's vector extensions: one source for all widths. */
#ifndef EDGEDDL_SIMD_H
#define EDGEDDL_SIMD_H

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "machine.h"

typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
typedef int ivec __attribute__((vector_size(LANES * sizeof(int))));
typedef float unaligned_vec
    __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE vec load(const float *p) { return *(const unaligned_vec *)p; }

ALWAYS_INLINE void store(float *p, vec v) { *(unaligned_vec *)p = v; }

ALWAYS_INLINE vec splat(float number) { return number - (vec){0}; }

#if defined(__AVX2__) && !defined(__AVX512F__)
ALWAYS_INLINE ivec first_lanes(long count) { return (ivec){0, 1, 2, 3, 4, 5, 6, 7} < (int)count; }
#endif

/* Loads the first `count` < LANES numbers, then zeros: for the end of a row of channels. */
ALWAYS_INLINE vec load_part(const float *p, long count)
{
#if defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1 << count) - 1), p);
#elif defined(__AVX2__)
    return (vec)_mm256_maskload_ps(p, (__m256i)first_lanes(count));
#else
    vec v = {0};
    for (int i = 0; i < LANES - 1; i++)
        if (i < count)
            v[i] = p[i];
    return v;
#endif
}

ALWAYS_INLINE void store_part(float *p, vec v, long count)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1 << count) - 1), (__m512)v);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(p, (__m256i)first_lanes(count), (__m256)v);
#else
    for (int i = 0; i < LANES - 1; i++)
        if (i < count)
            p[i] = v[i];
#endif
}

ALWAYS_INLINE vec load_some(const float *p, long count)
{
    return count >= LANES ? load(p) : load_part(p, count);
}

ALWAYS_INLINE void store_some(float *p, vec v, long count)
{
    if (count >= LANES)
        store(p, v);
    else
        store_part(p, v, count);
}

/* Selects a in the lanes where all bits of the mask are set, and b where none are. */
ALWAYS_INLINE vec choose(ivec mask, vec a, vec b)
{
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

/* max(v, 0), NaN where v is NaN, as in NumPy. */
ALWAYS_INLINE vec rectify(vec v) { return choose(v < (vec){0}, (vec){0}, v); }

ALWAYS_INLINE long min_long(long a, long b) { return a < b ? a : b; }

ALWAYS_INLINE long max_long(long a, long b) { return a > b ? a : b; }

ALWAYS_INLINE long ceil_div(long a, long b) { return (a + b - 1) / b; }

ALWAYS_INLINE long round_up(long a, long b) { return ceil_div(a, b) * b; }

#endif
