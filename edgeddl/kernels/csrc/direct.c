/* Convolution with any window, and the gradient of its input, as products of patches and weights.
 *
 * Patches of some pixels at a time are gathered and multiplied by the weights, a [taps * c][k]
 * matrix. Gathering costs a few percent of the product and makes all windows alike.
 *
 * The gradient of x is a convolution too. Where windows step by sy x sx pixels, those pixels of x
 * that are alike modulo the step see the same taps: each such phase is a convolution of gy with a
 * part of the turned weights.
 */
#include <stdlib.h>

#include "patches.h"

enum { BLOCK_ROWS = 96 };   /* patches at a time */
enum { BLOCK_DEPTH = 256 }; /* numbers of each: a panel of weights then stays in the L1 cache */

/* Where results go: pixel (top + y * step_y, left + x * step_x) of [images][h][w][pixel] for the
 * patch (y, x). */
typedef struct {
    float *y;
    long h, w, pixel, top, left, step_y, step_x;
    const float *bias, *plus;
} target;

typedef struct {
    patches x;
    weights w;
    target to;
    float *panels, *own;
    long own_floats;
    int by_panels; /* whether threads take panels, or patches */
} job;

static long panel_count(const job *j) { return ceil_div(weight_columns(&j->w), TILE_COLUMNS); }

static void pack_panels(void *context, int part, int parts)
{
    const job *j = context;
    const long panels = panel_count(j);
    for (long panel = share(panels, part, parts); panel < share(panels, part + 1, parts); panel++) {
        float *packed = j->panels + panel * j->x.depth * TILE_COLUMNS;
        for (const piece *p = j->x.pieces; p < j->x.pieces + j->x.count; p++)
            for (long i = 0; i < p->pixels; i++, packed += p->count * TILE_COLUMNS)
                pack_weights(&j->w, p->tap + i, p->c, p->count, panel * TILE_COLUMNS, packed);
    }
}

/* Whether results lie in memory as the rows of the product do, in whole vectors. */
static int writes_directly(const job *j)
{
    const target *to = &j->to;
    return to->step_y == 1 && to->step_x == 1 && to->h == j->x.high && to->w == j->x.wide &&
           !to->bias && !to->plus && weight_columns(&j->w) % LANES == 0;
}

static void write_rows(const job *j, const float *rows, long row, long patch, long count,
                       long column, long columns)
{
    const patches *x = &j->x;
    const target *to = &j->to;
    for (long i = 0; i < count; i++, patch++, rows += row) {
        const long image = patch / x->wide / x->high;
        const long y = to->top + patch / x->wide % x->high * to->step_y;
        const long left = to->left + patch % x->wide * to->step_x;
        const long at = ((image * to->h + y) * to->w + left) * to->pixel + column;
        for (long k = 0; k < columns; k += LANES) {
            vec sum = load(rows + k);
            if (to->bias)
                sum += load_some(to->bias + column + k, columns - k);
            if (to->plus)
                sum += load_some(to->plus + at + k, columns - k);
            store_some(to->y + at + k, sum, columns - k);
        }
    }
}

/* The product of some patches with some panels of the weights. */
static void multiply_patches(const job *j, long patch, long rows, long panel_from, long panel_to,
                             float *gathered, float *results)
{
    const patches *x = &j->x;
    const long k = weight_columns(&j->w), width = round_up(k, TILE_COLUMNS);
    const int plain = is_plain(x), directly = writes_directly(j);
    long depth_before = 0;
    for (long first = 0, end; first < x->count; first = end) {
        end = chunk_end(x, first, BLOCK_DEPTH);
        const long depth = chunk_depth(x, first, end);
        if (!plain)
            gather(x, patch, rows, first, end, gathered, depth);
        for (long panel = panel_from; panel < panel_to; panel++) {
            const long column = panel * TILE_COLUMNS;
            const product m = {
                .depth = depth,
                .a = plain ? x->source + patch * x->pixel + x->pieces[first].c : gathered,
                .a_row = plain ? x->pixel : depth, .a_depth = 1,
                .b = j->panels + (panel * x->depth + depth_before) * TILE_COLUMNS,
                .b_depth = TILE_COLUMNS,
                .c = directly ? j->to.y + patch * j->to.pixel + column : results + column,
                .c_row = directly ? j->to.pixel : width,
                .add = depth_before > 0,
            };
            multiply(&m, rows, min_long(k - column, TILE_COLUMNS));
        }
        depth_before += depth;
    }
    if (!directly) {
        const long column = panel_from * TILE_COLUMNS;
        write_rows(j, results + column, width, patch, rows, column,
                   min_long(panel_to * TILE_COLUMNS, k) - column);
    }
}

static void compute(void *context, int part, int parts)
{
    const job *j = context;
    const long count = patch_count(&j->x), panels = panel_count(j);
    const long first = j->by_panels ? 0 : share(count, part, parts);
    const long rows = (j->by_panels ? count : share(count, part + 1, parts)) - first;
    const long panel_from = j->by_panels ? share(panels, part, parts) : 0;
    const long panel_to = j->by_panels ? share(panels, part + 1, parts) : panels;
    const long blocks = ceil_div(rows, BLOCK_ROWS);
    float *gathered = j->own + thread_number() * j->own_floats;
    float *results = gathered + BLOCK_ROWS * BLOCK_DEPTH;
    for (long block = 0; block < blocks; block++) {
        const long from = rows * block / blocks, to = rows * (block + 1) / blocks;
        multiply_patches(j, first + from, to - from, panel_from, panel_to, gathered, results);
    }
}

static int convolve(job *j)
{
    const long rows = patch_count(&j->x), panels = panel_count(j);
    const long packed = round_up(panels * j->x.depth * TILE_COLUMNS, 16);
    j->by_panels = rows < 2 * BLOCK_ROWS && panels > 1;
    const int parts = j->by_panels ? parts_for(panels, rows * j->x.depth * TILE_COLUMNS)
                                   : parts_for(rows, j->x.depth * weight_columns(&j->w));
    j->own_floats = BLOCK_ROWS * (BLOCK_DEPTH + panels * TILE_COLUMNS);
    j->panels = workspace((size_t)(packed + thread_count() * j->own_floats));
    if (!j->panels)
        return OUT_OF_MEMORY;
    j->own = j->panels + packed;
    run_parts(pack_panels, j, parts_for(panels, j->x.depth * TILE_COLUMNS));
    run_parts(compute, j, parts);
    return DONE;
}

static weights group_weights(const conv *shape, const float *W, long group, int turned)
{
    const long k = shape->k / shape->groups;
    return (weights){W + group * k, shape->c / shape->groups, k, shape->k, turned};
}

int direct_forward(const conv *shape, const float *x, prologue before, const float *W,
                   const float *bias, float *y)
{
    const long k = shape->k / shape->groups;
    int result = DONE;
    for (long group = 0; group < shape->groups && result == DONE; group++) {
        job j = {
            .x = input_patches(shape, x, before, group, BLOCK_DEPTH),
            .w = group_weights(shape, W, group, 0),
            .to = {y + group * k, shape->out_h, shape->out_w, shape->k, 0, 0, 1, 1,
                   bias ? bias + group * k : NULL, NULL},
        };
        result = j.x.pieces ? convolve(&j) : OUT_OF_MEMORY;
        free(j.x.pieces);
    }
    return result;
}

/* The pixels of gx at top + y * sy, left + x * sx, for all y and x. */
static int input_gradient_phase(const conv *s, const float *gy, const float *W, const float *plus,
                                float *gx, long group, long top, long left)
{
    const long c = s->c / s->groups, k = s->k / s->groups;
    const long pieces = s->kh * s->kw * ceil_div(k, BLOCK_DEPTH);
    job j = {
        .x = {
            .source = gy + group * k, .h = s->out_h, .w = s->out_w, .pixel = s->k,
            .images = s->n,
            .high = ceil_div(s->h - top, s->sy), .wide = ceil_div(s->w - left, s->sx),
            .step_y = 1, .step_x = 1,
            .pieces = malloc((size_t)pieces * sizeof(piece)),
        },
        .w = group_weights(s, W, group, 1),
        .to = {gx + group * c, s->h, s->w, s->c, top, left, s->sy, s->sx, NULL,
               plus ? plus + group * c : NULL},
    };
    if (!j.x.pieces)
        return OUT_OF_MEMORY;
    /* Tap (i, j) of the window at row oy of gy saw row oy * sy + i * dy - ph of x. */
    for (long i = 0; i < s->kh; i++)
        for (long jj = 0; jj < s->kw; jj++) {
            const long y = top + s->ph - i * s->dy, x = left + s->pw - jj * s->dx;
            if (y % s->sy == 0 && x % s->sx == 0)
                add_taps(&j.x, y / s->sy, x / s->sx, i * s->kw + jj, 1, k, BLOCK_DEPTH);
        }
    int result = DONE;
    if (j.x.count)
        result = convolve(&j);
    else /* these pixels are in no window */
        for (long patch = 0; patch < patch_count(&j.x); patch++) {
            const long image = patch / j.x.wide / j.x.high;
            const long y = top + patch / j.x.wide % j.x.high * s->sy;
            const long x = left + patch % j.x.wide * s->sx;
            const long at = ((image * s->h + y) * s->w + x) * s->c + group * c;
            if (plus)
                memcpy(gx + at, plus + at, (size_t)c * sizeof(float));
            else
                memset(gx + at, 0, (size_t)c * sizeof(float));
        }
    free(j.x.pieces);
    return result;
}

int direct_input_gradient(const conv *shape, const float *gy, const float *W, const float *plus,
                          float *gx)
{
    int result = DONE;
    for (long group = 0; group < shape->groups; group++)
        for (long top = 0; top < min_long(shape->sy, shape->h); top++)
            for (long left = 0; left < min_long(shape->sx, shape->w) && result == DONE; left++)
                result = input_gradient_phase(shape, gy, W, plus, gx, group, top, left);
    return result;
}
