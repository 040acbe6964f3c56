/* The algebra of Winograd's convolution; docs/kernels.md derives it.
 *
 *   y  = A' [ (G g G') * (B' d B) ] A      4 x 4 outputs from 6 x 6 inputs d and 3 x 3 weights g
 *   gW = G' [ (B' d B) * (A gy A') ] G     3 x 3 gradients, summed over all tiles
 *
 * or 2 x 2 outputs and 5 x 5 weights: both have 6 points, and the same B.
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
enum { OUTPUTS_5 = 2, TAPS_5 = 5 }; /* of 5 x 5 windows */
enum { POINTS_2 = 9, PLANES_2 = POINTS_2 * POINTS_2 }; /* with stride 2: points, then pixels */
enum { MOST_POINTS = POINTS_2, MOST_PLANES = PLANES_2, MOST_TAPS = TAPS_5 };

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

/* The values at the points of a polynomial with `count` coefficients a, those at +-p and +-q times
 * over_p and over_q: A, or with 1 / N(t), the derivative of the product of all (t - point), G. */
ALWAYS_INLINE void evaluate(const vec *a, const int count, const float over_p, const float over_q,
                            vec *t)
{
    vec even_p = a[0], odd_p = a[1], even_q = a[0], odd_q = a[1];
    if (count > 2)
        even_p += 0.5f * a[2], even_q += 2.0f * a[2];
    if (count > 3)
        odd_p += 0.5f * a[3], odd_q += 2.0f * a[3];
    if (count > 4)
        even_p += 0.25f * a[4], even_q += 4.0f * a[4];
    even_p *= over_p, odd_p *= over_p * P, even_q *= over_q, odd_q *= over_q * Q;
    t[0] = a[0];
    t[1] = even_p + odd_p;
    t[2] = even_p - odd_p;
    t[3] = even_q + odd_q;
    t[4] = even_q - odd_q;
    t[5] = a[count - 1];
}

/* The transpose of that: A', or G'. */
ALWAYS_INLINE void collect(const vec *t, const int count, const float over_p, const float over_q,
                           vec *a)
{
    const vec even_p = over_p * (t[1] + t[2]), odd_p = (over_p * P) * (t[1] - t[2]);
    const vec even_q = over_q * (t[3] + t[4]), odd_q = (over_q * Q) * (t[3] - t[4]);
    a[0] = t[0] + even_p + even_q;
    a[1] = odd_p + odd_q;
    if (count > 2)
        a[2] = 0.5f * even_p + 2.0f * even_q;
    if (count > 3)
        a[3] = 0.5f * odd_p + 2.0f * odd_q;
    if (count > 4)
        a[4] = 0.25f * even_p + 4.0f * even_q;
    a[count - 1] += t[5];
}

#define OVER_P (-2.0f / 3) /* 1 / N(+-p) */
#define OVER_Q (1.0f / 6)

ALWAYS_INLINE void output_one_way(const vec *m, vec *y) { collect(m, OUTPUTS, 1, 1, y); }

ALWAYS_INLINE void gradient_one_way(const vec *gy, vec *t) { evaluate(gy, OUTPUTS, 1, 1, t); }

ALWAYS_INLINE void weights_one_way(const vec *g, vec *t) { evaluate(g, TAPS, OVER_P, OVER_Q, t); }

ALWAYS_INLINE void weight_gradient_one_way(const vec *m, vec *g)
{
    collect(m, TAPS, OVER_P, OVER_Q, g);
}

/* 5 x 5 windows. */

ALWAYS_INLINE void output_one_way_5(const vec *m, vec *y) { collect(m, OUTPUTS_5, 1, 1, y); }

ALWAYS_INLINE void gradient_one_way_5(const vec *gy, vec *t) { evaluate(gy, OUTPUTS_5, 1, 1, t); }

ALWAYS_INLINE void weights_one_way_5(const vec *g, vec *t)
{
    evaluate(g, TAPS_5, OVER_P, OVER_Q, t);
}

ALWAYS_INLINE void weight_gradient_one_way_5(const vec *m, vec *g)
{
    collect(m, TAPS_5, OVER_P, OVER_Q, g);
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
