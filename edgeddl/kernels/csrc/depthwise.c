/* Depthwise convolution: one window per channel (groups = c = k). There is no matrix product: the
 * kernels sum over the taps, one vector of channels at a time. A copy of the weights makes the taps
 * of a vector adjacent: [channels / LANES][taps][LANES].
 *
 * 3 x 3 windows with stride 1 slide along several rows at once: each pixel is loaded once for all
 * of these rows, and the weights are loaded once per strip. Other windows are computed together if
 * they are adjacent and see the same taps: the weights are loaded once for all of them.
 */
#include "patches.h"

enum {
    COLUMNS = 4,         /* outputs computed together, if they see the same taps */
    ROWS = TILE_VECTORS, /* rows of a strip: 3 sums each and 9 weights fit in 32 or 16 registers */
    STRIP = 28,          /* columns of a strip: the next channels find their pixels in the cache */
    CHANNELS = 64,       /* channels that are copied together */
};

/* Inputs of some outputs: pixels under high x wide taps, and the offsets of their weights. */
typedef struct {
    const float *x;
    long x_row, x_tap, x_step; /* strides to the next row of taps, tap, output */
    long W, W_row, W_tap;
    long high, wide;
    long out, out_step; /* offset of the first output, stride */
    long ahead, line, new_rows, new_columns; /* prefetch: pixels first seen by the next row */
} view;

/* A strip of outputs: columns first .. end of up to ROWS rows. */
typedef struct {
    const float *x;
    long at, line, pixel; /* inputs: offset of the first row in x; strides to the next row, pixel */
    long from, to;        /* range of the ROWS + 2 input rows that are inside the image */
    long source, out;     /* offsets of the rows in the whole batch, in all outputs */
    long rows, first, end;
} path;

typedef struct {
    const float *source, *bias, *plus;
    float *out;      /* y or gx; NULL for the gradient of the weights */
    const float *gy; /* set only for the gradient of the weights */
    long c, taps, kw;      /* channels; taps of the window; columns of the window */
    long rows, high, wide; /* outputs: rows of all images, rows and columns of an image */
    axis *y, *x;           /* one for each phase of the rows, of the columns */
    long y_phases, x_phases;
    float *W; /* the copy of the weights, or one array of gradient sums per part */
} job;

/* Computes adjacent outputs or, for the gradient of the weights, adds their contribution to it.
 * `columns` and `gradient` are constants where this is inlined. */
ALWAYS_INLINE void do_vector(const job *j, const view *s, const int columns, const int gradient,
                             long c, long lanes, float *weights)
{
    const float *outputs = (gradient ? j->gy : j->out) + s->out;
    vec out[COLUMNS];
    /* Prefetches as much as this step reads and writes, for the next row of outputs. The hardware
     * prefetcher does not recognise the access pattern, which is one vector of each pixel. */
    for (long row = 0; row < s->new_rows; row++)
        for (long i = 0; i < columns * s->new_columns; i++)
            __builtin_prefetch(s->x + s->ahead + row * s->line + c * columns * s->new_columns +
                                   i * LANES, 0, 2);
#pragma GCC unroll 4
    for (int i = 0; i < columns; i++) {
        __builtin_prefetch(outputs + j->wide * j->c + c * columns + i * LANES, 1, 2);
        const float *plus = j->plus ? j->plus + s->out + i * s->out_step : NULL;
        const float *start = gradient ? outputs + i * s->out_step : j->bias ? j->bias : plus;
        out[i] = start ? load_some(start + c, lanes) : (vec){0};
    }
    for (long row = 0; row < s->high; row++) {
        const float *x = s->x + row * s->x_row + c;
        float *W = weights + c * j->taps + s->W + row * s->W_row;
        for (long tap = 0; tap < s->wide; tap++, x += s->x_tap, W += s->W_tap) {
            vec w = load(W);
#pragma GCC unroll 4
            for (int i = 0; i < columns; i++)
                if (gradient)
                    w += load_some(x + i * s->x_step, lanes) * out[i];
                else
                    out[i] += load_some(x + i * s->x_step, lanes) * w;
            if (gradient)
                store(W, w);
        }
    }
    if (gradient)
        return;
#pragma GCC unroll 4
    for (int i = 0; i < columns; i++)
        store_some(j->out + s->out + i * s->out_step + c, out[i], lanes);
}

/* All channels of `columns` adjacent outputs. */
ALWAYS_INLINE void do_columns(const job *j, const view *s, const int columns, float *W)
{
    for (long c = 0; c < j->c; c += LANES)
        if (j->c - c >= LANES && j->gy)
            do_vector(j, s, columns, 1, c, LANES, W);
        else if (j->c - c >= LANES)
            do_vector(j, s, columns, 0, c, LANES, W);
        else if (j->gy)
            do_vector(j, s, columns, 1, c, j->c - c, W);
        else
            do_vector(j, s, columns, 0, c, j->c - c, W);
}

/* Adjacent outputs that see the same taps. */
static void do_span(const job *j, view *s, long columns, float *W)
{
    for (long now; columns > 0; columns -= now) {
        now = columns >= COLUMNS ? COLUMNS : 1;
        if (now == 1)
            do_columns(j, s, 1, W);
        else
            do_columns(j, s, COLUMNS, W);
        s->x += now * s->x_step;
        s->out += now * s->out_step;
    }
}

/* One row of outputs: of y, gx or gy. */
static void do_row(const job *j, long row, float *W)
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
            if (s.high && s.wide) /* else they see only padding */
                s.x += (top * ax->pixels + left) * j->c;
            end = across.end;
            do_span(j, &s, end - column, W);
        }
}

/* Slides the window along a strip, for one vector of channels. Registers hold the weights or their
 * gradients and, for each row, the sums or gy of the three columns that see the current pixels. */
ALWAYS_INLINE void slide_window(const job *j, const path p, const int gradient, long c, long lanes,
                                float *weights)
{
    const axis a = *j->x;
    const long step = a.window_step * LANES, next = j->wide * j->c, line = a.pixels * j->c;
    const float *const outputs = gradient ? j->gy : j->out, *const plus = j->plus;
    const vec start = j->bias ? load_some(j->bias + c, lanes) : (vec){0};
    float *W = weights + c * j->taps + (j->y->window_first * 3 + a.window_first) * LANES;
    vec w[9], out[ROWS][3] = {0};
    for (int i = 0; i < 9; i++)
        w[i] = load(W + i * step);
    for (long column = p.first - 2; column < p.end; column++) { /* first that sees the pixels */
        const long at = p.out + column * j->c + c, last = at + 2 * j->c;
        const long pixel = column + 2 + a.origin;
        const int at_end = column < p.first || column + 2 >= p.end;
#pragma GCC unroll 4
        for (int row = 0; row < ROWS; row++) {
            /* prefetch what the next rows read and write, as above */
            __builtin_prefetch(outputs + last + (ROWS + row) * next, 1, 2);
            __builtin_prefetch(
                j->source + (p.source + (ROWS + 2 + row) * line + pixel * j->c + c), 0, 2);
            out[row][2] = start;
            if (gradient && row < p.rows && column + 2 < p.end)
                out[row][2] = load_some(outputs + last + row * next, lanes);
        }
#pragma GCC unroll 6
        for (int i = 0; i < ROWS + 2; i++) {
            if (i < p.from || i >= p.to || pixel < 0 || pixel >= a.pixels)
                continue;
            const vec x = load_some(p.x + (p.at + i * p.line + pixel * p.pixel + c), lanes);
#pragma GCC unroll 3
            for (int tap = 0; tap < 3; tap++) {
                const long seen_by = column + 2 - tap;
                if (gradient && at_end && (seen_by < p.first || seen_by >= p.end))
                    continue; /* forward never stores the sums of these */
#pragma GCC unroll 4
                for (int row = max_long(i - 2, 0); row < min_long(i + 1, ROWS); row++)
                    if (!gradient)
                        out[row][2 - tap] += x * w[(i - row) * 3 + tap];
                    else if (row < p.rows)
                        w[(i - row) * 3 + tap] += x * out[row][2 - tap];
            }
        }
#pragma GCC unroll 4
        for (int row = 0; row < ROWS; row++) {
            if (!gradient && row < p.rows && column >= p.first) {
                const vec more = plus ? load_some(plus + at + row * next, lanes) : (vec){0};
                store_some(j->out + at + row * next, out[row][0] + more, lanes);
            }
            out[row][0] = out[row][1], out[row][1] = out[row][2];
        }
    }
    for (int i = 0; i < 9 && gradient; i++)
        store(W + i * step, w[i]);
}

/* Copies CHANNELS channels of the pixels that a strip reads into contiguous memory. */
static void copy_pixels(const job *j, path *p, long c, float *copy)
{
    const long from = max_long(p->first + j->x->origin, 0), line = j->x->pixels * j->c;
    const long to = min_long(p->end + 2 + j->x->origin, j->x->pixels);
    p->x = copy, p->at = -from * CHANNELS - c;
    p->pixel = CHANNELS, p->line = (STRIP + 2) * CHANNELS;
    for (long row = p->from; row < p->to; row++)
        for (long pixel = from; pixel < to; pixel++)
            memcpy(copy + row * p->line + (pixel - from) * CHANNELS,
                   j->source + (p->source + row * line + pixel * j->c + c),
                   CHANNELS * sizeof(float));
}

/* Up to ROWS rows of outputs of one image. */
static void do_rows(const job *j, long row, float *W)
{
    /* If pixels are a multiple of 2 KB apart, most loads share the low bits of their address with a
     * recent store (4K aliasing). The processor assumes that the addresses are equal and delays the
     * load. A copy of the pixels has other addresses. */
    const int copied = !j->gy && j->c * sizeof(float) % 2048 == 0;
    float copy[(ROWS + 2) * (STRIP + 2) * CHANNELS];
    const long y = row % j->high, top = y + j->y->origin, line = j->x->pixels * j->c;
    const long rows = min_long(ROWS, j->high - y), strips = ceil_div(j->wide, STRIP);
    path p = {.x = j->source, .line = line, .pixel = j->c,
              .from = max_long(-top, 0), .to = min_long(rows + 2, j->y->pixels - top),
              .source = (row / j->high * j->y->pixels + top) * line, .out = row * j->wide * j->c,
              .rows = rows};
    p.at = p.source;
    for (long i = 0; i < strips; i++)
        for (long c = 0; c < j->c; c += LANES) {
            p.first = j->wide * i / strips, p.end = j->wide * (i + 1) / strips;
            if (copied && c % CHANNELS == 0)
                copy_pixels(j, &p, c, copy);
            if (j->c - c >= LANES && j->gy)
                slide_window(j, p, 1, c, LANES, W);
            else if (j->c - c >= LANES)
                slide_window(j, p, 0, c, LANES, W);
            else if (j->gy)
                slide_window(j, p, 1, c, j->c - c, W);
            else
                slide_window(j, p, 0, c, j->c - c, W);
        }
}

static int slides(const axis *a, long phases)
{
    return phases == 1 && a->taps == 3 && a->step == 1 && a->tap_step == 1;
}

static long packed_length(const job *j) { return j->taps * round_up(j->c, LANES); }

static void do_part(void *context, int part, int parts)
{
    const job *j = context;
    const int slide = slides(j->x, j->x_phases) && slides(j->y, j->y_phases);
    const long in_image = slide ? ceil_div(j->high, ROWS) : j->high;
    const long count = j->rows / max_long(j->high, 1) * in_image;
    float *W = j->gy ? j->W + part * packed_length(j) : j->W;
    if (j->gy)
        memset(W, 0, (size_t)packed_length(j) * sizeof(float));
    for (long i = part_start(count, part, parts); i < part_start(count, part + 1, parts); i++)
        if (slide)
            do_rows(j, i / in_image * j->high + i % in_image * ROWS, W);
        else
            do_row(j, i, W);
}

/* Reads W or, if gW is given, writes gW. The gradient of x has sy x sx phases. */
static int compute(const conv *s, job j, int input_gradient, const float *W, float *gW)
{
    j.c = s->c, j.taps = s->kh * s->kw, j.kw = s->kw;
    j.high = input_gradient ? s->h : s->out_h, j.wide = input_gradient ? s->w : s->out_w;
    j.rows = s->n * j.high;
    j.y_phases = input_gradient ? s->sy : 1, j.x_phases = input_gradient ? s->sx : 1;
    const long length = packed_length(&j), work = j.wide * length;
    const int parts = gW ? sums_for(j.rows, work) : parts_for(j.rows, work);
    const int copies = gW ? parts : 1;
    const size_t phases = (size_t)(j.y_phases + j.x_phases);
    j.W = workspace((size_t)(copies * length) + phases * sizeof(axis) / sizeof(float));
    if (!j.W)
        return OUT_OF_MEMORY;
    j.y = (axis *)(j.W + copies * length), j.x = j.y + j.y_phases;
    for (long i = 0; i < j.y_phases; i++)
        j.y[i] = input_gradient ? gradient_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy, i)
                                : forward_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy);
    for (long i = 0; i < j.x_phases; i++)
        j.x[i] = input_gradient ? gradient_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx, i)
                                : forward_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx);
    for (long tap = 0; tap < j.taps && W; tap++)
        for (long c = 0; c < j.c; c += LANES)
            store(j.W + c * j.taps + tap * LANES, load_some(W + tap * j.c + c, j.c - c));
    run_parts(do_part, &j, parts);
    for (long tap = 0; tap < j.taps && gW; tap++)
        for (long c = 0; c < j.c; c += LANES) {
            vec sum = load(j.W + c * j.taps + tap * LANES);
            for (int part = 1; part < parts; part++)
                sum += load(j.W + part * length + c * j.taps + tap * LANES);
            store_some(gW + tap * j.c + c, sum, j.c - c);
        }
    return DONE;
}

int depthwise_forward(const conv *s, const float *x, const float *W, const float *bias, float *y)
{
    return compute(s, (job){.source = x, .bias = bias, .out = y}, 0, W, NULL);
}

int depthwise_input_gradient(const conv *s, const float *gy, const float *W, const float *plus,
                             float *gx)
{
    return compute(s, (job){.source = gy, .plus = plus, .out = gx}, 1, W, NULL);
}

int depthwise_weight_gradient(const conv *s, const float *x, const float *gy, float *gW)
{
    return compute(s, (job){.source = x, .gy = gy}, 0, NULL, gW);
}
