/* The algebra of Winograd's convolution; docs/explanation/kernels.md derives it.
 *
 *   y  = A' [ (G g G') * (B' d B) ] A      4 x 4 outputs from 6 x 6 inputs d and 3 x 3 weights g
 *   gW = G' [ (B' d B) * (A gy A') ] G     3 x 3 gradients, summed over all tiles
 *
 * or 2 x 2 outputs and 5 x 5 weights: both have 6 points and the same B.
 *
 * The points are 0, +-p, +-q and infinity, p = sqrt(1/2), q = sqrt(2). They have a third of the
 * rounding error of the usual points 0, +-1, +-2.
 *
 * With stride 2, y[a] = (g[0] e[a] + g[2] e[a + 1]) + g[1] f[a] for every other pixel e and the
 * pixels f between them. The sum in brackets is a filter with three taps, (0, g[0], g[2]). Its
 * point 0 contributes nothing and is left out. Pixels f are multiplied without a transform, and
 * share a weight.
 */
#ifndef EDGEDDL_WINOGRAD_TRANSFORMS_H
#define EDGEDDL_WINOGRAD_TRANSFORMS_H

#include "simd.h"

enum { OUTPUTS = 4, POINTS = 6, PLANES = POINTS * POINTS };
enum { MOST_TAPS = 5, MOST_POINTS = 9, MOST_PLANES = MOST_POINTS * MOST_POINTS };

/* Kinds of tiles: for 3 x 3 windows, 5 x 5 windows, 3 x 3 windows with stride 2, and the gradient
 * of the input of the latter. */
typedef enum { THREE, FIVE, STRIDE_2, TRANSPOSED_2 } kind;

/* Sizes of a tile along an axis. */
static const struct {
    int taps;         /* of the window */
    int inputs, step; /* pixels read; distance to those of the next tile */
    int points;       /* values they are transformed to; with stride 2, pixels f follow them */
    int outputs;      /* pixels written */
    int gradients;    /* pixels of gy read for the gradient of the weights */
} sizes[] = {
    [THREE] = {3, POINTS, OUTPUTS, POINTS, OUTPUTS, OUTPUTS},
    [FIVE] = {5, POINTS, 2, POINTS, 2, 2},
    [STRIDE_2] = {3, 2 * OUTPUTS + 1, 2 * OUTPUTS, MOST_POINTS, OUTPUTS, OUTPUTS},
    [TRANSPOSED_2] = {3, OUTPUTS + 1, OUTPUTS, MOST_POINTS, 2 * OUTPUTS, 0},
};

ALWAYS_INLINE int has_stride_2(kind k) { return k == STRIDE_2 || k == TRANSPOSED_2; }

#define P 0.70710678f /* sqrt(1/2) */
#define Q 1.41421356f /* sqrt(2) */

ALWAYS_INLINE void input_points(const vec *d, vec *t) /* B' */
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

/* Evaluates a polynomial with `count` coefficients a at the points, and multiplies the values at
 * +-p and +-q by over_p and over_q. With factors of 1 this is A. With 1 / N(t), where N is the
 * derivative of the product of all (t - point), it is G. */
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

/* The transpose of the above: A', or G'. */
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

/* With stride 2, point 0 is left out. */

ALWAYS_INLINE void take_points(const kind k, const vec *all, vec *t)
{
    const int first = has_stride_2(k);
    for (int i = first; i < POINTS; i++)
        t[i - first] = all[i];
}

ALWAYS_INLINE void give_points(const kind k, const vec *t, vec *all)
{
    const int first = has_stride_2(k);
    all[0] = (vec){0};
    for (int i = first; i < POINTS; i++)
        all[i] = t[i - first];
}

/* A transform along one axis. */
typedef void one_way(const kind k, const vec *in, vec *out);

/* For the gradient of x the weights are rotated: pixels f of gx, which come first, see gy[a]
 * through the middle tap. Pixels e see gy[a] and gy[a + 1] through the outer taps. */
ALWAYS_INLINE void input_one_way(const kind k, const vec *d, vec *t)
{
    const int step = k == STRIDE_2 ? 2 : 1; /* from one pixel e to the next */
    vec e[POINTS], all[POINTS];
    e[0] = has_stride_2(k) ? (vec){0} : d[0];
    for (int i = 1; i < POINTS; i++)
        e[i] = has_stride_2(k) ? d[step * (i - 1)] : d[i];
    input_points(e, all);
    take_points(k, all, t);
    for (int i = 0; i < OUTPUTS && has_stride_2(k); i++)
        t[POINTS - 1 + i] = d[step * i + step - 1];
}

ALWAYS_INLINE void output_one_way(const kind k, const vec *m, vec *y)
{
    vec all[POINTS], e[OUTPUTS];
    give_points(k, m, all);
    collect(all, has_stride_2(k) ? OUTPUTS : sizes[k].outputs, 1, 1, has_stride_2(k) ? e : y);
    for (int i = 0; i < OUTPUTS && has_stride_2(k); i++)
        if (k == TRANSPOSED_2)
            y[2 * i] = m[POINTS - 1 + i], y[2 * i + 1] = e[i];
        else
            y[i] = e[i] + m[POINTS - 1 + i];
}

ALWAYS_INLINE void gradient_one_way(const kind k, const vec *gy, vec *t)
{
    vec all[POINTS];
    evaluate(gy, sizes[k].gradients, 1, 1, all);
    take_points(k, all, t);
    for (int i = 0; i < OUTPUTS && has_stride_2(k); i++)
        t[POINTS - 1 + i] = gy[i];
}

ALWAYS_INLINE void weights_one_way(const kind k, const vec *g, vec *t)
{
    const vec outer[] = {{0}, g[0], g[2]};
    vec all[POINTS];
    evaluate(has_stride_2(k) ? outer : g, sizes[k].taps, OVER_P, OVER_Q, all);
    take_points(k, all, t);
    if (has_stride_2(k))
        t[POINTS - 1] = g[1];
}

ALWAYS_INLINE void weight_gradient_one_way(const kind k, const vec *m, vec *g)
{
    vec all[POINTS];
    give_points(k, m, all);
    collect(all, sizes[k].taps, OVER_P, OVER_Q, g);
    if (has_stride_2(k))
        g[0] = g[1], g[1] = m[POINTS - 1];
}

/* Transforms in, [from][from], to out, [to][to]: along the columns, then along the rows. */
ALWAYS_INLINE void both_ways(one_way transform, const kind k, const int from, const int to,
                             const vec *in, vec *out)
{
    vec half[MOST_PLANES];
#pragma GCC unroll 9
    for (int j = 0; j < from; j++) {
        vec column[MOST_POINTS], result[MOST_POINTS];
#pragma GCC unroll 9
        for (int i = 0; i < from; i++)
            column[i] = in[i * from + j];
        transform(k, column, result);
#pragma GCC unroll 9
        for (int i = 0; i < to; i++)
            half[i * from + j] = result[i];
    }
#pragma GCC unroll 9
    for (int i = 0; i < to; i++)
        transform(k, half + i * from, out + i * to);
}

#endif
