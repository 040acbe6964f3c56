/* Convolution with a window of its own for each channel (groups = c = k): no matrix product, but
 * sums over the taps, channel by channel.
 *
 * Outputs side by side that see the same taps are done together, a vector of channels at a time:
 * weights are then loaded once for all of them. The taps of such a vector lie side by side, too, in
 * a copy of the weights: [channels / LANES][taps][LANES].
 */
#include <stdlib.h>

#include "patches.h"

/* Outputs at a time. With 8, 512 channels take a third longer: their pixels, 2 KB apart, probably no
 * longer fit into the few lines of the first-level cache that they fall into. */
enum { COLUMNS = 4 };

/* What some outputs see: pixels through high x wide taps, and where the weights of these are. */
typedef struct {
    const float *x;
    long x_row, x_tap, x_step; /* to the next row of taps, tap, output */
    long W, W_row, W_tap;
    long high, wide;
    long out, out_step; /* where the outputs lie */
    long ahead, line, new_rows, new_columns; /* pixels that only the next row sees */
} view;

typedef struct {
    long c, taps, kw;      /* channels; taps, of a row */
    long rows, high, wide; /* outputs: all rows, those of an image, columns */
    axis *y, *x;           /* one for each phase of rows, of columns */
    long y_phases, x_phases;
    const float *source, *W, *bias, *plus;
    float *out;      /* y, or gx; or else: */
    const float *gy; /* of which, with x, the weights' gradients are summed */
    float *sums;     /* of the parts, as the copy of the weights */
} job;

/* Asks for what the next row of outputs reads, and where it is written, as much as this step reads
 * and writes: the processor does not foresee it, as a vector of each pixel is read at a time. */
ALWAYS_INLINE void look_ahead(const job *j, const view *s, const float *out, const int columns,
                              long c)
{
    for (long row = 0; row < s->new_rows; row++)
        for (long i = 0; i < columns * s->new_columns; i++)
            __builtin_prefetch(s->x + s->ahead + row * s->line + c * columns * s->new_columns +
                                   i * LANES, 0, 2);
#pragma GCC unroll 4
    for (int i = 0; i < columns; i++)
        __builtin_prefetch(out + s->out + j->wide * j->c + c * columns + i * LANES, 1, 2);
}

/* `columns` and `slides` are constants where this is inlined. A window of three taps that slides by
 * one shows each pixel three times: it is loaded once. */
ALWAYS_INLINE void sum_taps(const job *j, const view *s, const int columns, const int slides,
                            long c, long lanes)
{
    vec sum[COLUMNS];
    look_ahead(j, s, j->out, columns, c);
#pragma GCC unroll 4
    for (int i = 0; i < columns; i++) {
        const float *plus = j->plus ? j->plus + s->out + i * s->out_step : NULL;
        const float *start = j->bias ? j->bias : plus;
        sum[i] = start ? load_some(start + c, lanes) : (vec){0};
    }
    for (long row = 0; row < s->high; row++) {
        const float *x = s->x + row * s->x_row + c, *W = j->W + c * j->taps + s->W + row * s->W_row;
        if (slides) {
            const vec w[3] = {load(W), load(W + s->W_tap), load(W + 2 * s->W_tap)};
#pragma GCC unroll 6
            for (int i = 0; i < columns + 2; i++) {
                const vec pixel = load_some(x + i * s->x_step, lanes);
#pragma GCC unroll 3
                for (int tap = 0; tap < 3; tap++)
                    if (i >= tap && i - tap < columns)
                        sum[i - tap] += pixel * w[tap];
            }
        } else
            for (long tap = 0; tap < s->wide; tap++) {
                const vec w = load(W + tap * s->W_tap);
#pragma GCC unroll 4
                for (int i = 0; i < columns; i++)
                    sum[i] += load_some(x + tap * s->x_tap + i * s->x_step, lanes) * w;
            }
    }
#pragma GCC unroll 4
    for (int i = 0; i < columns; i++)
        store_some(j->out + s->out + i * s->out_step + c, sum[i], lanes);
}

/* The same for the gradient of the weights. */
ALWAYS_INLINE void add_products(const job *j, const view *s, const int columns, const int slides,
                                long c, long lanes, float *gW)
{
    vec gy[COLUMNS];
    look_ahead(j, s, j->gy, columns, c);
#pragma GCC unroll 4
    for (int i = 0; i < columns; i++)
        gy[i] = load_some(j->gy + s->out + i * s->out_step + c, lanes);
    for (long row = 0; row < s->high; row++) {
        const float *x = s->x + row * s->x_row + c;
        float *W = gW + c * j->taps + s->W + row * s->W_row;
        if (slides) {
            vec sum[3] = {load(W), load(W + s->W_tap), load(W + 2 * s->W_tap)};
#pragma GCC unroll 6
            for (int i = 0; i < columns + 2; i++) {
                const vec pixel = load_some(x + i * s->x_step, lanes);
#pragma GCC unroll 3
                for (int tap = 0; tap < 3; tap++)
                    if (i >= tap && i - tap < columns)
                        sum[tap] += pixel * gy[i - tap];
            }
#pragma GCC unroll 3
            for (int tap = 0; tap < 3; tap++)
                store(W + tap * s->W_tap, sum[tap]);
        } else
            for (long tap = 0; tap < s->wide; tap++) {
                vec sum = load(W + tap * s->W_tap);
#pragma GCC unroll 4
                for (int i = 0; i < columns; i++)
                    sum += load_some(x + tap * s->x_tap + i * s->x_step, lanes) * gy[i];
                store(W + tap * s->W_tap, sum);
            }
    }
}

/* All channels of some columns. */
ALWAYS_INLINE void do_columns(const job *j, const view *s, const int columns, const int slides,
                              float *gW)
{
    for (long c = 0; c < j->c; c += LANES)
        if (j->c - c >= LANES && gW)
            add_products(j, s, columns, slides, c, LANES, gW);
        else if (j->c - c >= LANES)
            sum_taps(j, s, columns, slides, c, LANES);
        else if (gW)
            add_products(j, s, columns, slides, c, j->c - c, gW);
        else
            sum_taps(j, s, columns, slides, c, j->c - c);
}

/* Outputs side by side that see the same taps. */
static void do_span(const job *j, view *s, long columns, float *gW)
{
    const int slides = s->wide == 3 && s->x_step == s->x_tap;
    for (long now; columns > 0; columns -= now) {
        now = columns >= COLUMNS ? COLUMNS : 1;
        if (now == 1)
            do_columns(j, s, 1, 0, gW);
        else if (slides)
            do_columns(j, s, COLUMNS, 1, gW);
        else
            do_columns(j, s, COLUMNS, 0, gW);
        s->x += now * s->x_step;
        s->out += now * s->out_step;
    }
}

/* A row of outputs: of y or gx or, if gW is given, of gy. */
static void do_row(const job *j, long row, float *gW)
{
    const axis *ay = j->y + row % j->high % j->y_phases;
    const span up = span_from(ay, row % j->high / j->y_phases);
    const long top = row / j->high * ay->pixels + ay->origin + up.first * ay->step +
                     up.from * ay->tap_step;
    const long W_row = ay->window_first + up.from * ay->window_step;
    for (const axis *ax = j->x; ax < j->x + j->x_phases; ax++)
        for (long column = 0, end; column < ax->outputs; column = end) {
            const span across = span_from(ax, column);
            const long left = ax->origin + column * ax->step + across.from * ax->tap_step;
            const long W_column = ax->window_first + across.from * ax->window_step;
            view s = {
                .x = j->source, .x_row = ay->tap_step * ax->pixels * j->c,
                .x_tap = ax->tap_step * j->c, .x_step = ax->step * j->c,
                .W = (W_row * j->kw + W_column) * LANES,
                .W_row = ay->window_step * j->kw * LANES, .W_tap = ax->window_step * LANES,
                .high = up.to - up.from, .wide = across.to - across.from,
                .out = (row * j->wide + ax->place + column * ax->place_step) * j->c,
                .out_step = ax->place_step * j->c,
                .ahead = ((up.to - 1 - up.from) * ay->tap_step + 1) * ax->pixels * j->c,
                .line = ax->pixels * j->c, .new_rows = ay->step, .new_columns = ax->step,
            };
            if (s.high && s.wide) /* otherwise they see nothing */
                s.x += (top * ax->pixels + left) * j->c;
            end = across.end;
            do_span(j, &s, end - column, gW);
        }
}

static void compute_rows(void *context, int part, int parts)
{
    const job *j = context;
    for (long row = share(j->rows, part, parts); row < share(j->rows, part + 1, parts); row++)
        do_row(j, row, NULL);
}

static long packed_length(const job *j) { return j->taps * round_up(j->c, LANES); }

static void sum_rows(void *context, int part, int parts)
{
    const job *j = context;
    const long length = packed_length(j);
    float *gW = j->sums + part * length;
    memset(gW, 0, (size_t)length * sizeof(float));
    for (long row = share(j->rows, part, parts); row < share(j->rows, part + 1, parts); row++)
        do_row(j, row, gW);
}

static int compute(job *j, const float *W)
{
    float *packed = workspace((size_t)packed_length(j));
    if (!packed)
        return OUT_OF_MEMORY;
    for (long c = 0; c < j->c; c += LANES)
        for (long tap = 0; tap < j->taps; tap++)
            store(packed + c * j->taps + tap * LANES, load_some(W + tap * j->c + c, j->c - c));
    j->W = packed;
    run_parts(compute_rows, j, parts_for(j->rows, j->wide * j->c * j->taps));
    return DONE;
}

int depthwise_forward(const conv *s, const float *x, const float *W, const float *bias, float *y)
{
    axis rows = forward_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy);
    axis columns = forward_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx);
    job j = {s->c, s->kh * s->kw, s->kw, s->n * s->out_h, s->out_h, s->out_w, &rows, &columns, 1, 1,
             .source = x, .bias = bias, .out = y};
    return compute(&j, W);
}

int depthwise_input_gradient(const conv *s, const float *gy, const float *W, const float *plus,
                             float *gx)
{
    axis *phases = malloc((size_t)(s->sy + s->sx) * sizeof(axis));
    if (!phases)
        return OUT_OF_MEMORY;
    for (long i = 0; i < s->sy; i++)
        phases[i] = gradient_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy, i);
    for (long i = 0; i < s->sx; i++)
        phases[s->sy + i] = gradient_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx, i);
    job j = {s->c, s->kh * s->kw, s->kw, s->n * s->h, s->h, s->w, phases, phases + s->sy, s->sy,
             s->sx, .source = gy, .plus = plus, .out = gx};
    const int result = compute(&j, W);
    free(phases);
    return result;
}

int depthwise_weight_gradient(const conv *s, const float *x, const float *gy, float *gW)
{
    axis rows = forward_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy);
    axis columns = forward_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx);
    job j = {s->c, s->kh * s->kw, s->kw, s->n * s->out_h, s->out_h, s->out_w, &rows, &columns, 1, 1,
             .source = x, .gy = gy};
    const long length = packed_length(&j);
    const int parts = sums_for(j.rows, j.wide * length);
    j.sums = workspace((size_t)(parts * length));
    if (!j.sums)
        return OUT_OF_MEMORY;
    run_parts(sum_rows, &j, parts);
    for (long c = 0; c < j.c; c += LANES)
        for (long tap = 0; tap < j.taps; tap++) {
            vec sum = load(j.sums + c * j.taps + tap * LANES);
            for (int part = 1; part < parts; part++)
                sum += load(j.sums + part * length + c * j.taps + tap * LANES);
            store_some(gW + tap * j.c + c, sum, j.c - c);
        }
    return DONE;
}
