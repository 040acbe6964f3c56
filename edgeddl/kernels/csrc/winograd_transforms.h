/* The algebra of Winograd's convolution F(4 x 4, 3 x 3); docs/kernels.md derives it.
 *
 *   y  = A' [ (G g G') * (B' d B) ] A      4 x 4 outputs from 6 x 6 inputs d and 3 x 3 weights g
 *   gW = G' [ (B' d B) * (A gy A') ] G     3 x 3 gradients, summed over all tiles
 *
 * The points are 0, +-p, +-q and infinity, p = sqrt(1/2), q = sqrt(2): they have a third of the
 * rounding error of the usual 0, +-1, +-2.
 *
 * With stride 2, y[a] = (g[0] e[a] + g[2] e[a + 1]) + g[1] f[a] for every other pixel e and the
 * pixels f between them. The sum in brackets is a filter with three taps, (0, g[0], g[2]), whose
 * point 0 gives nothing and is left out; pixels f are multiplied as they are, and share a weight.
 */
#ifndef EDGEDDL_WINOGRAD_TRANSFORMS_H
#define EDGEDDL_WINOGRAD_TRANSFORMS_H

#include "simd.h"

enum { OUTPUTS = 4, TAPS = 3, POINTS = 6, PLANES = POINTS * POINTS };
enum { POINTS_2 = 9, PLANES_2 = POINTS_2 * POINTS_2 }; /* with stride 2: points, then pixels */
enum { MOST_POINTS = POINTS_2, MOST_PLANES = PLANES_2 };

#define P 0.70710678f /* sqrt(1/2) */
#define Q 1.41421356f /* sqrt(2) */

typedef void one_way(const vec *in, vec *out);

ALWAYS_INLINE void input_one_way(const vec *d, vec *t) /* B' */
{
    const vec even_p = d[4] - 2.0f * d[2], odd_p = P * d[3] - Q * d[1];
    const vec even_q = d[4] - 0.5f * d[2], odd_q = Q * d[3] - P * d[1];
    t[0] = d[0] + d[4] - 2.5f * d[2];
    t[1] = even_p + odd_p;
    t[2] = even_p - odd_p;
    t[3] = even_q + odd_q;
    t[4] = even_q - odd_q;
    t[5] = d[1] + d[5] - 2.5f * d[3];
}

ALWAYS_INLINE void output_one_way(const vec *m, vec *y) /* A' */
{
    const vec sum_p = m[1] + m[2], difference_p = m[1] - m[2];
    const vec sum_q = m[3] + m[4], difference_q = m[3] - m[4];
    y[0] = m[0] + sum_p + sum_q;
    y[1] = P * difference_p + Q * difference_q;
    y[2] = 0.5f * sum_p + 2.0f * sum_q;
    y[3] = (0.5f * P) * difference_p + (2.0f * Q) * difference_q + m[5];
}

ALWAYS_INLINE void gradient_one_way(const vec *gy, vec *t) /* A */
{
    const vec even_p = gy[0] + 0.5f * gy[2], odd_p = P * gy[1] + (0.5f * P) * gy[3];
    const vec even_q = gy[0] + 2.0f * gy[2], odd_q = Q * gy[1] + (2.0f * Q) * gy[3];
    t[0] = gy[0];
    t[1] = even_p + odd_p;
    t[2] = even_p - odd_p;
    t[3] = even_q + odd_q;
    t[4] = even_q - odd_q;
    t[5] = gy[3];
}

ALWAYS_INLINE void weights_one_way(const vec *g, vec *t) /* G */
{
    const vec even_p = (-2.0f / 3) * g[0] - (1.0f / 3) * g[2], odd_p = (-2.0f / 3 * P) * g[1];
    const vec even_q = (1.0f / 6) * g[0] + (1.0f / 3) * g[2], odd_q = (1.0f / 6 * Q) * g[1];
    t[0] = g[0];
    t[1] = even_p + odd_p;
    t[2] = even_p - odd_p;
    t[3] = even_q + odd_q;
    t[4] = even_q - odd_q;
    t[5] = g[2];
}

ALWAYS_INLINE void weight_gradient_one_way(const vec *m, vec *g) /* G' */
{
    const vec sum_p = (-2.0f / 3) * (m[1] + m[2]), sum_q = (1.0f / 6) * (m[3] + m[4]);
    g[0] = m[0] + sum_p + sum_q;
    g[1] = (-2.0f / 3 * P) * (m[1] - m[2]) + (1.0f / 6 * Q) * (m[3] - m[4]);
    g[2] = 0.5f * sum_p + 2.0f * sum_q + m[5];
}

/* Stride 2. */

ALWAYS_INLINE void two_taps_input(vec e0, vec e1, vec e2, vec e3, vec e4, vec *t)
{
    const vec d[POINTS] = {{0}, e0, e1, e2, e3, e4};
    vec all[POINTS];
    input_one_way(d, all);
    for (int i = 1; i < POINTS; i++)
        t[i - 1] = all[i];
}

ALWAYS_INLINE void input_one_way_2(const vec *d, vec *t)
{
    two_taps_input(d[0], d[2], d[4], d[6], d[8], t);
    for (int i = 0; i < OUTPUTS; i++)
        t[POINTS - 1 + i] = d[2 * i + 1];
}

ALWAYS_INLINE void output_one_way_2(const vec *m, vec *y)
{
    const vec all[POINTS] = {{0}, m[0], m[1], m[2], m[3], m[4]};
    output_one_way(all, y);
    for (int i = 0; i < OUTPUTS; i++)
        y[i] += m[POINTS - 1 + i];
}

ALWAYS_INLINE void gradient_one_way_2(const vec *gy, vec *t)
{
    vec all[POINTS];
    gradient_one_way(gy, all);
    for (int i = 1; i < POINTS; i++)
        t[i - 1] = all[i];
    for (int i = 0; i < OUTPUTS; i++)
        t[POINTS - 1 + i] = gy[i];
}

ALWAYS_INLINE void weights_one_way_2(const vec *g, vec *t)
{
    const vec outer[TAPS] = {{0}, g[0], g[2]};
    vec all[POINTS];
    weights_one_way(outer, all);
    for (int i = 1; i < POINTS; i++)
        t[i - 1] = all[i];
    t[POINTS - 1] = g[1];
}

ALWAYS_INLINE void weight_gradient_one_way_2(const vec *m, vec *g)
{
    const vec all[POINTS] = {{0}, m[0], m[1], m[2], m[3], m[4]};
    vec outer[TAPS];
    weight_gradient_one_way(all, outer);
    g[0] = outer[1], g[1] = m[POINTS - 1], g[2] = outer[2];
}

/* For the gradient of x, weights are turned: pixels f of gx, which come first, see gy[a] through
 * the middle tap, pixels e see gy[a] and gy[a + 1] through the outer ones. */
ALWAYS_INLINE void turned_input_one_way_2(const vec *gy, vec *t)
{
    two_taps_input(gy[0], gy[1], gy[2], gy[3], gy[4], t);
    for (int i = 0; i < OUTPUTS; i++)
        t[POINTS - 1 + i] = gy[i];
}

ALWAYS_INLINE void turned_output_one_way_2(const vec *m, vec *gx)
{
    const vec all[POINTS] = {{0}, m[0], m[1], m[2], m[3], m[4]};
    vec e[OUTPUTS];
    output_one_way(all, e);
    for (int i = 0; i < OUTPUTS; i++)
        gx[2 * i] = m[POINTS - 1 + i], gx[2 * i + 1] = e[i];
}

/* in, [from][from], to out, [to][to]: along the columns, then along the rows. */
ALWAYS_INLINE void both_ways(one_way transform, const int from, const int to, const vec *in,
                             vec *out)
{
    vec half[MOST_PLANES];
#pragma GCC unroll 9
    for (int j = 0; j < from; j++) {
        vec column[MOST_POINTS], result[MOST_POINTS];
#pragma GCC unroll 9
        for (int i = 0; i < from; i++)
            column[i] = in[i * from + j];
        transform(column, result);
#pragma GCC unroll 9
        for (int i = 0; i < to; i++)
            half[i * from + j] = result[i];
    }
#pragma GCC unroll 9
    for (int i = 0; i < to; i++)
        transform(half + i * from, out + i * to);
}

#endif
