/* Entry points of convolution: choose the algorithm for each call. */
#include <stdlib.h>

#include "convolution.h"
#include "edgeddl.h"

/* Winograd tiles extend beyond small images, and products with padding cost as much as others. A
 * 1 x 1 image takes 36 products with Winograd and 1 with direct convolution, which skips the
 * padding. A product takes the same time in both; the transforms add about a quarter, hence 5/4. */
static int winograd_pays(const conv *s, int input_gradient)
{
    return winograd_fits(s) && 4 * direct_products(s) > 5 * winograd_products(s, input_gradient);
}

static int is_depthwise(const conv *s)
{
    return s->groups == s->c && s->c == s->k && s->groups > 1;
}

/* Winograd's algorithm normalises x as it reads it. The other algorithms read a normalised copy.
 * They run for other windows, for small images, and after Winograd's algorithm has met a number
 * that is not finite. */
typedef struct {
    const float *x;
    long pixels, c;
    folded_norm norm;
    float *copy;
} normalization;

static void normalize_part(void *context, int part, int parts)
{
    const normalization *j = context;
    const long end = part_start(j->pixels, part + 1, parts);
    for (long pixel = part_start(j->pixels, part, parts); pixel < end; pixel++)
        for (long c = 0; c < j->c; c += LANES) {
            const long i = pixel * j->c + c, count = j->c - c;
            const vec scale = load_some(j->norm.scale + c, count);
            const vec shift = load_some(j->norm.shift + c, count);
            store_some(j->copy + i, normalize(load_some(j->x + i, count), scale, shift), count);
        }
}

/* The caller frees the copy. NULL if there is no memory. */
static float *normalized_copy(const conv *s, const float *x, folded_norm norm)
{
    const long pixels = s->n * s->h * s->w;
    float *copy = malloc((size_t)(pixels * s->c + 1) * sizeof(float));
    normalization j = {x, pixels, s->c, norm, copy};
    if (copy)
        run_parts(normalize_part, &j, parts_for(pixels, s->c));
    return copy;
}

int edgeddl_convolution_forward(const conv *shape, const float *x, const float *scale,
                                const float *shift, const float *W, const float *bias,
                                float *y)
{
    const folded_norm norm = {scale, shift};
    int result = NOT_FINITE;
    if (winograd_pays(shape, 0))
        result = winograd_forward(shape, x, norm, W, bias, y);
    if (result != NOT_FINITE)
        return result;
    float *copy = scale ? normalized_copy(shape, x, norm) : NULL;
    if (scale && !copy)
        return OUT_OF_MEMORY;
    result = is_depthwise(shape) ? depthwise_forward(shape, copy ? copy : x, W, bias, y)
                                 : direct_forward(shape, copy ? copy : x, W, bias, y);
    free(copy);
    return result;
}

int edgeddl_convolution_input_gradient(const conv *shape, const float *gy, const float *W,
                                       const float *plus, float *gx)
{
    int result = NOT_FINITE;
    if (winograd_pays(shape, 1))
        result = winograd_input_gradient(shape, gy, W, plus, gx);
    if (result != NOT_FINITE)
        return result;
    return is_depthwise(shape) ? depthwise_input_gradient(shape, gy, W, plus, gx)
                               : direct_input_gradient(shape, gy, W, plus, gx);
}

int edgeddl_convolution_weight_gradient(const conv *shape, const float *x,
                                        const float *scale, const float *shift,
                                        const float *gy, float *gW)
{
    const folded_norm norm = {scale, shift};
    const long count = shape->kh * shape->kw * (shape->c / shape->groups) * shape->k;
    int result = NOT_FINITE;
    if (shape->n == 0) {
        memset(gW, 0, (size_t)count * sizeof(float));
        return DONE;
    }
    if (winograd_pays(shape, 0))
        result = winograd_weight_gradient(shape, x, norm, gy, gW);
    if (result != NOT_FINITE)
        return result;
    float *copy = scale ? normalized_copy(shape, x, norm) : NULL;
    if (scale && !copy)
        return OUT_OF_MEMORY;
    result = is_depthwise(shape) ? depthwise_weight_gradient(shape, copy ? copy : x, gy, gW)
                                 : direct_weight_gradient(shape, copy ? copy : x, gy, gW);
    free(copy);
    return result;
}
