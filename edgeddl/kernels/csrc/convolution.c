/* The entry points: which algorithm computes what. */
#include "convolution.h"

/* Tiles reach beyond small images, and products with what is there cost as much as others. Of a
 * 1 x 1 image Winograd's algorithm takes 36 products, and patches, which leave out the padding, 1.
 * Otherwise equal numbers of products are equally fast; the transforms are a quarter more. */
static int winograd_pays(const conv *s, int of_x)
{
    return winograd_fits(s) && 4 * direct_products(s) > 5 * winograd_products(s, of_x);
}

static int is_depthwise(const conv *s)
{
    return s->groups == s->c && s->c == s->k && s->groups > 1;
}

EXPORT int edgeddl_convolution_forward(const conv *shape, const float *x, const float *scale,
                                       const float *shift, const float *W, const float *bias,
                                       float *y)
{
    const prologue before = {scale, shift};
    int result = NOT_FINITE;
    begin_call();
    if (winograd_pays(shape, 0))
        result = winograd_forward(shape, x, before, W, bias, y);
    if (result == NOT_FINITE)
        result = is_depthwise(shape) && !scale ? depthwise_forward(shape, x, W, bias, y)
                                               : direct_forward(shape, x, before, W, bias, y);
    end_call();
    return result;
}

EXPORT int edgeddl_convolution_input_gradient(const conv *shape, const float *gy, const float *W,
                                              const float *plus, float *gx)
{
    int result = NOT_FINITE;
    begin_call();
    if (winograd_pays(shape, 1))
        result = winograd_input_gradient(shape, gy, W, plus, gx);
    if (result == NOT_FINITE)
        result = is_depthwise(shape) ? depthwise_input_gradient(shape, gy, W, plus, gx)
                                     : direct_input_gradient(shape, gy, W, plus, gx);
    end_call();
    return result;
}

EXPORT int edgeddl_convolution_weight_gradient(const conv *shape, const float *x,
                                               const float *scale, const float *shift,
                                               const float *gy, float *gW)
{
    const prologue before = {scale, shift};
    const long count = shape->kh * shape->kw * (shape->c / shape->groups) * shape->k;
    int result = NOT_FINITE;
    if (shape->n == 0) {
        memset(gW, 0, (size_t)count * sizeof(float));
        return DONE;
    }
    begin_call();
    if (winograd_pays(shape, 0))
        result = winograd_weight_gradient(shape, x, before, gy, gW);
    if (result == NOT_FINITE)
        result = is_depthwise(shape) && !scale ? depthwise_weight_gradient(shape, x, gy, gW)
                                               : direct_weight_gradient(shape, x, before, gy, gW);
    end_call();
    return result;
}
