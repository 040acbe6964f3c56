/* Gradient of the weights for any window: the product of the transposed patches with gy.
 *
 * If the gradient is small, each thread sums over its own patches, and the sums are added at the
 * end. If it is large, each thread computes some rows and panels over all patches.
 */
#include "patches.h"

enum { BLOCK_ROWS = 512 };      /* rows of the gradient per block: they stay in the L2 cache */
enum { LARGEST_OWN = 1 << 17 }; /* largest gradient, in numbers, with private sums */

typedef struct {
    patches x;
    const float *gy;
    float *gW;
    long k;         /* of this group; x.out_pixel is that of all groups */
    float *own;     /* private sums of the parts, if they have any */
    int result;
} job;

static long panel_count(const job *j) { return ceil_div(j->k, TILE_COLUMNS); }

static long own_row(const job *j) { return round_up(j->k, LANES); }

/* Lists the patches of a block as the depth of a product. Adjacent patches form one run. Each patch
 * is multiplied by a row of gy or of a packed panel of gy. */
static long find_depth(const block *b, int packed, run *runs)
{
    const long step = b->p->x.step * b->p->pixel, out = b->p->out_pixel;
    long count = 0;
    for (long i = 0; i < b->count; i++) {
        const place *at = b->places + i;
        if (i && at->a == at[-1].a + step && at->c == at[-1].c + out)
            runs[count - 1].depth++;
        else
            runs[count++] = (run){at->a, packed ? i : at->c / out, 1};
    }
    return count;
}

/* Adds the products of patches patch_from .. patch_to, numbers first .. end of each, with panels
 * panel_from .. panel_to of gy. */
static void sum_products(job *j, long patch_from, long patch_to, long first, long end,
                         long panel_from, long panel_to, float *sums, long sums_row)
{
    /* If neither holds, gy already is one panel of whole vectors. */
    const int pack = j->x.out_pixel != TILE_COLUMNS || j->k % LANES != 0;
    const long to = min_long(panel_to * TILE_COLUMNS, j->k);
    const long packed_floats = BLOCK_PATCHES * TILE_COLUMNS;
    float *packed = part_workspace((size_t)(packed_floats + run_floats(&j->x)), &j->result);
    if (!packed)
        return;
    run depth[BLOCK_PATCHES];
    block b;
    start_blocks(&b, &j->x, patch_from, patch_to, packed + packed_floats);
    while (next_block(&b)) {
        product m = {
            .runs = depth, .run_count = find_depth(&b, pack, depth),
            .a_row = 1, .a_depth = j->x.x.step * j->x.pixel,
            .b = pack ? packed : j->gy + b.out, .b_depth = TILE_COLUMNS,
            .c_row = sums_row, .add = 1,
        };
        for (long column = panel_from * TILE_COLUMNS; column < to; column += TILE_COLUMNS) {
            const long columns = min_long(to - column, TILE_COLUMNS);
            for (long i = 0; pack && i < b.count; i++)
                for (long k = 0; k < columns; k += LANES)
                    store(packed + i * TILE_COLUMNS + k,
                          load_some(j->gy + b.out + b.places[i].c + column + k, columns - k));
            for (const run *seen = b.runs; seen < b.runs + b.run_count; seen++) {
                const long row = max_long(seen->b, first);
                const long rows = min_long(seen->b + seen->depth, end) - row;
                m.a = b.source + seen->a + row - seen->b;
                m.c = sums + row * sums_row + column;
                if (rows > 0)
                    multiply(&m, rows, columns);
            }
        }
    }
}

static void sum_own_patches(void *context, int part, int parts)
{
    job *j = context;
    const long count = patch_count(&j->x), depth = patch_depth(&j->x), row = own_row(j);
    float *sums = j->own + part * depth * row;
    memset(sums, 0, (size_t)(depth * row) * sizeof(float));
    sum_products(j, part_start(count, part, parts), part_start(count, part + 1, parts), 0, depth, 0,
                 panel_count(j), sums, row);
}

static void add_up(const job *j, int parts)
{
    const long depth = patch_depth(&j->x);
    for (long row = 0; row < depth; row++)
        for (int part = 0; part < parts; part++) {
            const float *sums = j->own + (part * depth + row) * own_row(j);
            float *gW = j->gW + row * j->x.out_pixel;
            for (long k = 0; k < j->k; k++)
                gW[k] = part ? gW[k] + sums[k] : sums[k];
        }
}

/* Clears whole rows before they are summed panel by panel: the hardware prefetcher does not predict
 * the next row of a single panel. */
static void clear_rows(void *context, int part, int parts)
{
    const job *j = context;
    const long depth = patch_depth(&j->x), last = part_start(depth, part + 1, parts);
    for (long row = part_start(depth, part, parts); row < last; row++)
        memset(j->gW + row * j->x.out_pixel, 0, (size_t)j->k * sizeof(float));
}

/* An item is a block of rows in one panel. Each part takes its share of the items. */
static void compute_own_panels(void *context, int part, int parts)
{
    job *j = context;
    const long panels = panel_count(j), depth = patch_depth(&j->x);
    const long items = panels * ceil_div(depth, BLOCK_ROWS);
    const long last = part_start(items, part + 1, parts);
    for (long item = part_start(items, part, parts); item < last; item++) {
        const long first = item / panels * BLOCK_ROWS;
        const long panel = item % panels;
        sum_products(j, 0, patch_count(&j->x), first, min_long(first + BLOCK_ROWS, depth), panel,
                     panel + 1, j->gW, j->x.out_pixel);
    }
}

static int compute(job *j)
{
    const long rows = patch_count(&j->x), depth = patch_depth(&j->x), sums = depth * own_row(j);
    if (j->k % LANES != 0 || sums <= LARGEST_OWN) {
        const int parts = sums_for(rows, sums);
        j->own = workspace((size_t)(parts * sums));
        if (!j->own)
            return OUT_OF_MEMORY;
        run_parts(sum_own_patches, j, parts);
        add_up(j, parts);
    } else {
        const long blocks = panel_count(j) * ceil_div(depth, BLOCK_ROWS);
        run_parts(clear_rows, j, parts_for(depth, j->k));
        run_parts(compute_own_panels, j, sums_for(blocks, rows * BLOCK_ROWS * TILE_COLUMNS));
    }
    return j->result;
}

int direct_weight_gradient(const conv *s, const float *x, const float *gy, float *gW)
{
    const long k = s->k / s->groups;
    int result = DONE;
    for (long group = 0; group < s->groups && result == DONE; group++) {
        job j = {
            .x = input_patches(s, x, group),
            .gy = gy + group * k, .gW = gW + group * k, .k = k,
        };
        result = compute(&j);
    }
    return result;
}
