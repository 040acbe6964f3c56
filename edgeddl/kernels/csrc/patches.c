#include "patches.h"

enum { GROUP_PATCHES = 1024 }; /* enough that even the classes of corners fill register tiles */

axis forward_axis(long pixels, long outputs, long window, long stride, long padding, long dilation)
{
    return (axis){pixels, outputs, window, -padding, stride, dilation, 0, 1, 0, 1};
}

axis gradient_axis(long pixels, long outputs, long window, long stride, long padding, long dilation,
                   long phase)
{
    /* Forward, output o sees pixel o * stride + i * dilation - padding through tap i. The pixel is
     * of this phase if (phase + padding - i * dilation) is a multiple of the stride. */
    long first = -1, last = -1, taps = 0;
    for (long i = 0; i < window; i++)
        if ((phase + padding - i * dilation) % stride == 0) {
            first = taps ? first : i;
            last = i;
            taps++;
        }
    const long apart = taps > 1 ? (last - first) / (taps - 1) : 1;
    return (axis){
        .pixels = outputs, .outputs = ceil_div(pixels - phase, stride), .taps = taps,
        .origin = taps ? (phase + padding - last * dilation) / stride : 0, .step = 1,
        .tap_step = taps > 1 ? apart * dilation / stride : 1,
        .window_first = last, .window_step = -apart,
        .place = phase, .place_step = stride,
    };
}

span span_from(const axis *a, long first)
{
    const long pixel = a->origin + first * a->step; /* seen through tap 0 */
    span s = {first, first + 1, 0, 0};
    const long from = pixel < 0 ? ceil_div(-pixel, a->tap_step) : 0;
    const long left = max_long(a->pixels - pixel, 0);
    const long to = min_long(ceil_div(left, a->tap_step), a->taps);
    if (from >= to)
        return s;
    /* Outputs until tap to - 1 leaves the image, or tap from - 1 enters it. */
    const long last = (a->pixels - 1 - pixel - (to - 1) * a->tap_step) / a->step + 1;
    const long enter = from ? ceil_div(-pixel - (from - 1) * a->tap_step, a->step) : last;
    s.end = min_long(first + min_long(last, enter), a->outputs);
    s.from = from, s.to = to;
    return s;
}

static long length(const span *s) { return s->end - s->first; }

void drop_unseen_taps(axis *a)
{
    const long ends = (a->outputs - 1) * a->step; /* distance from the first to the last output */
    for (; a->taps > 0 && a->origin + ends < 0; a->taps--)
        a->origin += a->tap_step, a->window_first += a->window_step;
    while (a->taps > 0 && a->origin + (a->taps - 1) * a->tap_step >= a->pixels)
        a->taps--;
}

patches input_patches(const conv *s, const float *x, long group)
{
    const long c = s->c / s->groups;
    return (patches){
        .source = x + group * c, .images = s->n, .pixel = s->c, .c = c,
        .y = forward_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy),
        .x = forward_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx),
        .out_h = s->out_h, .out_w = s->out_w, .out_pixel = s->k,
    };
}

/* Images that are processed together, class by class. */
static long group_images(const patches *p)
{
    const long fill = ceil_div(GROUP_PATCHES, max_long(p->y.outputs * p->x.outputs, 1));
    return min_long(fill, max_long(p->images, 1));
}

/* Whether the taps of a row see adjacent numbers. */
static int has_long_runs(const patches *p) { return p->x.tap_step == 1 && p->pixel == p->c; }

long run_floats(const patches *p)
{
    const long rows = p->y.taps, taps = p->x.taps;
    const long runs = has_long_runs(p) ? rows * ceil_div(taps * p->c, BLOCK_DEPTH)
                                       : rows * taps * ceil_div(p->c, BLOCK_DEPTH);
    return round_up(runs * (long)(sizeof(run) / sizeof(float)), 16);
}

void start_blocks(block *b, const patches *p, long from, long to, float *memory)
{
    b->p = p, b->at = from, b->end = to, b->group = group_images(p), b->runs = (run *)memory;
}

static void find_runs(block *b, const span *row, const span *column)
{
    const patches *p = b->p;
    const long together = has_long_runs(p) ? column->to - column->from : 1;
    b->run_count = 0;
    for (long i = row->from; i < row->to; i++)
        for (long j = column->from; j < column->to; j += together) {
            const long y = (i - row->from) * p->y.tap_step, x = (j - column->from) * p->x.tap_step;
            const long from = (y * p->x.pixels + x) * p->pixel, number = (i * p->x.taps + j) * p->c;
            for (long d = 0; d < together * p->c; d += BLOCK_DEPTH)
                b->runs[b->run_count++] =
                    (run){from + d, number + d, min_long(together * p->c - d, BLOCK_DEPTH)};
        }
}

static void find_places(block *b, const span *row, const span *column, long patch)
{
    const patches *p = b->p;
    const axis *ay = &p->y, *ax = &p->x;
    const long high = length(row), wide = length(column);
    long x = patch % wide, y = patch / wide % high, image = patch / wide / high;
    for (long i = 0; i < b->count; i++) {
        const long oy = row->first + y, ox = column->first + x;
        const long py = ay->origin + oy * ay->step + row->from * ay->tap_step;
        const long px = ax->origin + ox * ax->step + column->from * ax->tap_step;
        const long out_y = ay->place + oy * ay->place_step, out_x = ax->place + ox * ax->place_step;
        b->places[i] = (place){((image * ay->pixels + py) * ax->pixels + px) * p->pixel,
                               ((image * p->out_h + out_y) * p->out_w + out_x) * p->out_pixel};
        if (++x == wide) {
            x = 0;
            if (++y == high)
                y = 0, image++;
        }
    }
}

int next_block(block *b)
{
    const patches *p = b->p;
    if (b->at == b->end)
        return 0;
    const long in_group = b->group * p->y.outputs * p->x.outputs;
    const long group = b->at / in_group;
    const long images = min_long(b->group, p->images - group * b->group);
    long patch = b->at % in_group;
    span row = span_from(&p->y, 0), column = span_from(&p->x, 0); /* find its class: */
    for (; patch >= images * length(&row) * p->x.outputs; row = span_from(&p->y, row.end))
        patch -= images * length(&row) * p->x.outputs;
    for (; patch >= images * length(&row) * length(&column); column = span_from(&p->x, column.end))
        patch -= images * length(&row) * length(&column);
    b->count = min_long(images * length(&row) * length(&column) - patch, b->end - b->at);
    b->count = ceil_div(b->count, ceil_div(b->count, BLOCK_PATCHES)); /* blocks of equal size */
    b->at += b->count;
    find_runs(b, &row, &column);
    find_places(b, &row, &column, patch);
    b->source = p->source + group * b->group * p->y.pixels * p->x.pixels * p->pixel;
    b->out = group * b->group * p->out_h * p->out_w * p->out_pixel;
    return 1;
}
