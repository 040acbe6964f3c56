/* Gradient of the weights for any window: the product of the patches, transposed, with gy.
 *
 * A small gradient is summed by each thread over patches of its own, and the sums are added up. Of
 * a large one each thread computes some rows and panels, over all patches.
 */
#include <stdlib.h>

#include "patches.h"

enum { BLOCK_ROWS = 96 };       /* patches at a time */
enum { BLOCK_DEPTH = 256 };     /* rows of the gradient at a time: they stay in the L2 cache */
/* Rows a multiple of 4 KB apart would all fall into the same few lines of the first-level cache. */
enum { PADDING = 16 };
enum { LARGEST_OWN = 1 << 16 }; /* numbers of a gradient that each thread has for itself */

typedef struct {
    patches x;
    const float *gy;
    float *gW;
    long k, k_all; /* of this group, of all */
    float *own;    /* workspace of the parts, or of the threads, own_floats each */
    long own_floats;
    int private;
} job;

static long panel_count(const job *j) { return ceil_div(j->k, TILE_COLUMNS); }

static long own_row(const job *j) { return round_up(j->k, LANES); }

/* Patches from .. to; panels panel_from .. panel_to of the pieces first .. end. */
static void sum_products(const job *j, long from, long to, long first, long end, long panel_from,
                         long panel_to, float *memory, float *sums, long sums_row)
{
    const long depth = chunk_depth(&j->x, first, end), blocks = ceil_div(to - from, BLOCK_ROWS);
    const long row = depth + PADDING;
    float *gathered = memory, *packed = memory + BLOCK_ROWS * (BLOCK_DEPTH + PADDING);
    for (long block = 0; block < blocks; block++) {
        const long patch = from + (to - from) * block / blocks;
        const long rows = from + (to - from) * (block + 1) / blocks - patch;
        gather(&j->x, patch, rows, first, end, gathered, row);
        for (long panel = panel_from; panel < panel_to; panel++) {
            const long column = panel * TILE_COLUMNS;
            const long columns = min_long(j->k - column, TILE_COLUMNS);
            for (long i = 0; i < rows; i++)
                memcpy(packed + i * TILE_COLUMNS, j->gy + (patch + i) * j->k_all + column,
                       (size_t)columns * sizeof(float));
            const product m = {
                .depth = rows,
                .a = gathered, .a_row = 1, .a_depth = row,
                .b = packed, .b_depth = TILE_COLUMNS,
                .c = sums + column, .c_row = sums_row,
                .add = block > 0,
            };
            multiply(&m, depth, columns);
        }
    }
}

static void sum_own_patches(void *context, int part, int parts)
{
    const job *j = context;
    const long count = patch_count(&j->x), row = own_row(j);
    float *sums = j->own + part * j->own_floats, *memory = sums + j->x.depth * row;
    for (long first = 0, end, depth = 0; first < j->x.count; first = end) {
        end = chunk_end(&j->x, first, BLOCK_DEPTH);
        sum_products(j, share(count, part, parts), share(count, part + 1, parts), first, end, 0,
                     panel_count(j), memory, sums + depth * row, row);
        depth += chunk_depth(&j->x, first, end);
    }
}

static void add_up(const job *j, int parts)
{
    for (long row = 0; row < j->x.depth; row++)
        for (int part = 0; part < parts; part++) {
            const float *sums = j->own + part * j->own_floats + row * own_row(j);
            float *gW = j->gW + row * j->k_all;
            for (long k = 0; k < j->k; k++)
                gW[k] = part ? gW[k] + sums[k] : sums[k];
        }
}

/* Chunks and panels are counted together; a part takes its share of them, in order. */
static void compute_own_panels(void *context, int part, int parts)
{
    const job *j = context;
    const long panels = panel_count(j);
    long chunks = 0;
    for (long first = 0; first < j->x.count; first = chunk_end(&j->x, first, BLOCK_DEPTH))
        chunks++;
    const long from = share(chunks * panels, part, parts);
    const long to = share(chunks * panels, part + 1, parts);
    for (long first = 0, end, chunk = 0, depth = 0; first < j->x.count; first = end, chunk++) {
        end = chunk_end(&j->x, first, BLOCK_DEPTH);
        const long panel_from = max_long(from - chunk * panels, 0);
        const long panel_to = min_long(to - chunk * panels, panels);
        if (panel_from < panel_to)
            sum_products(j, 0, patch_count(&j->x), first, end, panel_from, panel_to,
                         j->own + thread_number() * j->own_floats, j->gW + depth * j->k_all,
                         j->k_all);
        depth += chunk_depth(&j->x, first, end);
    }
}

static int compute(job *j)
{
    const long rows = patch_count(&j->x), sums = j->x.depth * own_row(j);
    j->private = j->k % LANES != 0 || sums <= LARGEST_OWN;
    const int parts = j->private ? sums_for(rows, sums)
                                 : sums_for(panel_count(j) * ceil_div(j->x.depth, BLOCK_DEPTH),
                                            rows * BLOCK_DEPTH * TILE_COLUMNS);
    j->own_floats = BLOCK_ROWS * (BLOCK_DEPTH + PADDING + TILE_COLUMNS) + (j->private ? sums : 0);
    j->own_floats = round_up(j->own_floats, 16);
    j->own = workspace((size_t)(thread_count() * j->own_floats));
    if (!j->own)
        return OUT_OF_MEMORY;
    run_parts(j->private ? sum_own_patches : compute_own_panels, j, parts);
    if (j->private)
        add_up(j, parts);
    return DONE;
}

int direct_weight_gradient(const conv *shape, const float *x, prologue before, const float *gy,
                           float *gW)
{
    const long k = shape->k / shape->groups;
    int result = DONE;
    for (long group = 0; group < shape->groups && result == DONE; group++) {
        job j = {
            .x = input_patches(shape, x, before, group, BLOCK_DEPTH),
            .gy = gy + group * k, .gW = gW + group * k, .k = k, .k_all = shape->k,
        };
        result = j.x.pieces ? compute(&j) : OUT_OF_MEMORY;
        free(j.x.pieces);
    }
    return result;
}
