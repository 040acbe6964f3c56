/* Convolution with a window of its own for each channel (groups = c = k): no matrix product, but
 * sums over the taps, channel by channel.
 */
#include <stdlib.h>

#include "convolution.h"

/* A pixel that is seen through a tap, and the weights of that tap. */
typedef struct {
    const float *pixel, *W;
} seen;

static void sum_taps(const seen *taps, long count, long c, const float *start, float *y)
{
    for (long i = 0; i < c; i += LANES) {
        vec sum = start ? load_some(start + i, c - i) : (vec){0};
        if (c - i >= LANES)
            for (long t = 0; t < count; t++)
                sum += load(taps[t].pixel + i) * load(taps[t].W + i);
        else
            for (long t = 0; t < count; t++)
                sum += load_part(taps[t].pixel + i, c - i) * load_part(taps[t].W + i, c - i);
        store_some(y + i, sum, c - i);
    }
}

typedef struct {
    const conv *shape;
    const float *x, *gy, *W, *bias, *plus;
    float *out;
    seen *taps; /* kh * kw for each thread */
    float *own; /* gradients of the parts */
} job;

static void forward_rows(void *context, int part, int parts)
{
    const job *j = context;
    const conv *s = j->shape;
    seen *taps = j->taps + thread_number() * s->kh * s->kw;
    const long rows = s->n * s->out_h;
    for (long row = share(rows, part, parts); row < share(rows, part + 1, parts); row++) {
        const long image = row / s->out_h, top = row % s->out_h * s->sy - s->ph;
        for (long column = 0; column < s->out_w; column++) {
            const long left = column * s->sx - s->pw;
            long count = 0;
            for (long a = 0; a < s->kh; a++) {
                const long y = top + a * s->dy;
                if (y < 0 || y >= s->h)
                    continue;
                for (long b = 0; b < s->kw; b++) {
                    const long x = left + b * s->dx;
                    if (x >= 0 && x < s->w)
                        taps[count++] = (seen){j->x + ((image * s->h + y) * s->w + x) * s->c,
                                               j->W + (a * s->kw + b) * s->c};
                }
            }
            sum_taps(taps, count, s->c, j->bias, j->out + (row * s->out_w + column) * s->c);
        }
    }
}

static void input_gradient_rows(void *context, int part, int parts)
{
    const job *j = context;
    const conv *s = j->shape;
    seen *taps = j->taps + thread_number() * s->kh * s->kw;
    const long rows = s->n * s->h;
    for (long row = share(rows, part, parts); row < share(rows, part + 1, parts); row++) {
        const long image = row / s->h, bottom = row % s->h + s->ph;
        for (long column = 0; column < s->w; column++) {
            const long right = column + s->pw;
            long count = 0;
            for (long a = 0; a < s->kh; a++) {
                const long y = (bottom - a * s->dy) / s->sy;
                if (bottom < a * s->dy || (bottom - a * s->dy) % s->sy || y >= s->out_h)
                    continue;
                for (long b = 0; b < s->kw; b++) {
                    const long x = (right - b * s->dx) / s->sx;
                    if (right >= b * s->dx && (right - b * s->dx) % s->sx == 0 && x < s->out_w)
                        taps[count++] =
                            (seen){j->gy + ((image * s->out_h + y) * s->out_w + x) * s->c,
                                   j->W + (a * s->kw + b) * s->c};
                }
            }
            const long at = (row * s->w + column) * s->c;
            sum_taps(taps, count, s->c, j->plus ? j->plus + at : NULL, j->out + at);
        }
    }
}

/* Adds the products of a row of x, every sx-th pixel, with a row of gy to gW. */
static void add_row_products(const float *x, long step, const float *gy, long c, long count,
                             float *gW)
{
    enum { VECTORS = 4 };
    long i = 0;
    for (; i + VECTORS * LANES <= c; i += VECTORS * LANES) {
        vec sum[VECTORS] = {0};
        for (long pixel = 0; pixel < count; pixel++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                sum[v] += load(x + pixel * step + i + v * LANES) *
                          load(gy + pixel * c + i + v * LANES);
        for (int v = 0; v < VECTORS; v++)
            store(gW + i + v * LANES, load(gW + i + v * LANES) + sum[v]);
    }
    for (; i < c; i += LANES) {
        vec sum = {0};
        for (long pixel = 0; pixel < count; pixel++)
            sum += load_some(x + pixel * step + i, c - i) * load_some(gy + pixel * c + i, c - i);
        store_some(gW + i, load_some(gW + i, c - i) + sum, c - i);
    }
}

static void sum_weight_gradient(void *context, int part, int parts)
{
    const job *j = context;
    const conv *s = j->shape;
    const long length = s->kh * s->kw * s->c, rows = s->n * s->out_h;
    float *gW = j->own + part * length;
    memset(gW, 0, (size_t)length * sizeof(float));
    for (long row = share(rows, part, parts); row < share(rows, part + 1, parts); row++)
        for (long tap = 0; tap < s->kh * s->kw; tap++) {
            const long y = row % s->out_h * s->sy - s->ph + tap / s->kw * s->dy;
            const long left = tap % s->kw * s->dx - s->pw; /* the pixel seen in column 0 */
            const long first = left < 0 ? ceil_div(-left, s->sx) : 0;
            const long end = s->w > left ? min_long(s->out_w, ceil_div(s->w - left, s->sx)) : 0;
            if (y < 0 || y >= s->h || first >= end)
                continue;
            const long pixel = (row / s->out_h * s->h + y) * s->w + left + first * s->sx;
            add_row_products(j->x + pixel * s->c, s->sx * s->c,
                             j->gy + (row * s->out_w + first) * s->c, s->c, end - first,
                             gW + tap * s->c);
        }
}

static int run_rows(part_function *run, job *j, long rows, long columns)
{
    const conv *s = j->shape;
    const int parts = parts_for(rows, columns * s->c * s->kh * s->kw);
    j->taps = malloc((size_t)(thread_count() * s->kh * s->kw) * sizeof(seen));
    if (!j->taps)
        return OUT_OF_MEMORY;
    run_parts(run, j, parts);
    free(j->taps);
    return DONE;
}

int depthwise_forward(const conv *shape, const float *x, const float *W, const float *bias,
                      float *y)
{
    job j = {.shape = shape, .x = x, .W = W, .bias = bias, .out = y};
    return run_rows(forward_rows, &j, shape->n * shape->out_h, shape->out_w);
}

int depthwise_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                             float *gx)
{
    job j = {.shape = shape, .gy = gy, .W = W, .plus = plus, .out = gx};
    return run_rows(input_gradient_rows, &j, shape->n * shape->h, shape->w);
}

int depthwise_weight_gradient(const conv *shape, const float *x, const float *gy, float *gW)
{
    const long length = shape->kh * shape->kw * shape->c;
    const int parts = sums_for(shape->n * shape->out_h, shape->out_w * length);
    job j = {.shape = shape, .x = x, .gy = gy, .own = workspace((size_t)(parts * length))};
    if (!j.own)
        return OUT_OF_MEMORY;
    run_parts(sum_weight_gradient, &j, parts);
    for (long i = 0; i < length; i++) {
        gW[i] = j.own[i];
        for (int part = 1; part < parts; part++)
            gW[i] += j.own[part * length + i];
    }
    return DONE;
}
