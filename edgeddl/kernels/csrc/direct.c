/* Direct convolution with any window, and the gradient of its input: the product of patches, which
 * are read in place, and the weights, a [taps * c][k] matrix.
 */
#include "patches.h"

typedef struct {
    patches x;
    weights w;
    long kw; /* width of the window */
    const float *bias, *plus;
    float *out;
    float *panels; /* the packed weights */
    int by_panels; /* threads divide the panels; otherwise, the patches */
    int result;
} job;

static long panel_count(const job *j) { return ceil_div(weight_columns(&j->w), TILE_COLUMNS); }

static void pack_panels(void *context, int part, int parts)
{
    const job *j = context;
    const axis *ay = &j->x.y, *ax = &j->x.x;
    const long panels = panel_count(j), c = j->x.c;
    const long last = part_start(panels, part + 1, parts);
    for (long panel = part_start(panels, part, parts); panel < last; panel++) {
        float *packed = j->panels + panel * patch_depth(&j->x) * TILE_COLUMNS;
        for (long y = 0; y < ay->taps; y++)
            for (long x = 0; x < ax->taps; x++, packed += c * TILE_COLUMNS) {
                const long row = ay->window_first + y * ay->window_step;
                const long column = ax->window_first + x * ax->window_step;
                pack_weights(&j->w, row * j->kw + column, 0, c, panel * TILE_COLUMNS, TILE_COLUMNS,
                             packed);
            }
    }
}

/* Multiplies a block of patches by panels panel_from .. panel_to of the weights. */
static void multiply_block(const job *j, const block *b, long panel_from, long panel_to)
{
    const long columns = weight_columns(&j->w);
    long first = 0, end;
    do { /* one chunk of the depth at a time */
        long depth = 0;
        for (end = first; end < b->run_count && depth + b->runs[end].depth <= BLOCK_DEPTH; end++)
            depth += b->runs[end].depth;
        for (long panel = panel_from; panel < panel_to; panel++) {
            const long column = panel * TILE_COLUMNS;
            const product m = {
                .runs = b->runs + first, .run_count = end - first, .places = b->places,
                .a = b->source, .a_depth = 1,
                .b = j->panels + panel * patch_depth(&j->x) * TILE_COLUMNS,
                .b_depth = TILE_COLUMNS,
                .c = j->out + b->out + column,
                .bias = j->bias ? j->bias + column : NULL,
                .plus = j->plus ? j->plus + b->out + column : NULL,
                .add = first > 0,
            };
            multiply(&m, b->count, min_long(columns - column, TILE_COLUMNS));
        }
        first = end;
    } while (first < b->run_count);
}

static void compute(void *context, int part, int parts)
{
    job *j = context;
    const long count = patch_count(&j->x), panels = panel_count(j);
    float *memory = part_workspace((size_t)run_floats(&j->x), &j->result);
    if (!memory)
        return;
    block b;
    start_blocks(&b, &j->x, j->by_panels ? 0 : part_start(count, part, parts),
                 j->by_panels ? count : part_start(count, part + 1, parts), memory);
    while (next_block(&b))
        multiply_block(j, &b, j->by_panels ? part_start(panels, part, parts) : 0,
                       j->by_panels ? part_start(panels, part + 1, parts) : panels);
}

static int convolve(job *j)
{
    drop_unseen_taps(&j->x.y);
    drop_unseen_taps(&j->x.x);
    const long depth = patch_depth(&j->x), panels = panel_count(j), rows = patch_count(&j->x);
    const long work = max_long(depth, 1); /* pixels that no window sees are written as well */
    j->by_panels = rows < BLOCK_PATCHES && panels > 1;
    j->panels = workspace((size_t)(panels * depth * TILE_COLUMNS));
    if (!j->panels)
        return OUT_OF_MEMORY;
    run_parts(pack_panels, j, parts_for(panels, depth * TILE_COLUMNS));
    run_parts(compute, j, j->by_panels ? parts_for(panels, rows * work * TILE_COLUMNS)
                                       : parts_for(rows, work * weight_columns(&j->w)));
    return j->result;
}

static weights group_weights(const conv *s, const float *W, long group, int transposed)
{
    const long k = s->k / s->groups;
    return (weights){W + group * k, s->c / s->groups, k, s->k, transposed};
}

/* Counts the taps that see a pixel of the image, over all outputs of an axis. */
static long taps_seen(axis a)
{
    long seen = 0;
    for (span s = {0}; s.end < a.outputs;) {
        s = span_from(&a, s.end);
        seen += (s.end - s.first) * (s.to - s.from);
    }
    return seen;
}

long direct_products(const conv *s)
{
    return s->n * taps_seen(forward_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy)) *
           taps_seen(forward_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx));
}

int direct_forward(const conv *s, const float *x, const float *W, const float *bias, float *y)
{
    const long k = s->k / s->groups;
    int result = DONE;
    for (long group = 0; group < s->groups && result == DONE; group++) {
        job j = {
            .x = input_patches(s, x, group),
            .w = group_weights(s, W, group, 0), .kw = s->kw,
            .bias = bias ? bias + group * k : NULL, .out = y + group * k,
        };
        result = convolve(&j);
    }
    return result;
}

/* Computes the pixels of gx at top + y * sy, left + x * sx, for all y and x. */
static int input_gradient_phase(const conv *s, const float *gy, const float *W, const float *plus,
                                float *gx, long group, long top, long left)
{
    const long c = s->c / s->groups, k = s->k / s->groups;
    job j = {
        .x = {
            .source = gy + group * k, .images = s->n, .pixel = s->k, .c = k,
            .y = gradient_axis(s->h, s->out_h, s->kh, s->sy, s->ph, s->dy, top),
            .x = gradient_axis(s->w, s->out_w, s->kw, s->sx, s->pw, s->dx, left),
            .out_h = s->h, .out_w = s->w, .out_pixel = s->c,
        },
        .w = group_weights(s, W, group, 1), .kw = s->kw,
        .plus = plus ? plus + group * c : NULL, .out = gx + group * c,
    };
    return convolve(&j);
}

int direct_input_gradient(const conv *s, const float *gy, const float *W, const float *plus,
                          float *gx)
{
    int result = DONE;
    for (long group = 0; group < s->groups; group++)
        for (long top = 0; top < min_long(s->sy, s->h); top++)
            for (long left = 0; left < min_long(s->sx, s->w) && result == DONE; left++)
                result = input_gradient_phase(s, gy, W, plus, gx, group, top, left);
    return result;
}
