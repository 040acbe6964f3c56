/* The entry points: which algorithm computes what. */
#include "convolution.h"

/* Tiles reach beyond small images, and products with what is there cost as much as others. Of a
 * 1 x 1 image Winograd's algorithm takes 36 products, and patches, which leave out the padding, 1.
 * Otherwise equal numbers of products are equally fast; the transforms are a quarter more. */
static int winograd_pays(const conv *s)
{
    return winograd_fits(s) && 4 * direct_products(s) > 5 * winograd_products(s);
}

static int is_depthwise(const conv *s)
{
    return s->groups == s->c && s->c == s->k && s->groups > 1;
}

static int choose_forward(const conv *shape, const float *x, const float *scale,
                          const float *shift, const float *W, const float *bias, float *y)
{
    const prologue before = {scale, shift};
    if (winograd_pays(shape)) {
        const int result = winograd_forward(shape, x, before, W, bias, y);
        if (result != NOT_FINITE)
            return result;
    }
    if (is_depthwise(shape) && !scale)
        return depthwise_forward(shape, x, W, bias, y);
    return direct_forward(shape, x, before, W, bias, y);
}

static int choose_input_gradient(const conv *shape, const float *gy, const float *W,
                                 const float *plus, float *gx)
{
    if (winograd_pays(shape)) {
        const int result = winograd_input_gradient(shape, gy, W, plus, gx);
        if (result != NOT_FINITE)
            return result;
    }
    if (is_depthwise(shape))
        return depthwise_input_gradient(shape, gy, W, plus, gx);
    return direct_input_gradient(shape, gy, W, plus, gx);
}

static int choose_weight_gradient(const conv *shape, const float *x, const float *scale,
                                  const float *shift, const float *gy, float *gW)
{
    const prologue before = {scale, shift};
    if (shape->n == 0) {
        const long count = shape->kh * shape->kw * (shape->c / shape->groups) * shape->k;
        memset(gW, 0, (size_t)count * sizeof(float));
        return DONE;
    }
    if (winograd_pays(shape)) {
        const int result = winograd_weight_gradient(shape, x, before, gy, gW);
        if (result != NOT_FINITE)
            return result;
    }
    if (is_depthwise(shape) && !scale)
        return depthwise_weight_gradient(shape, x, gy, gW);
    return direct_weight_gradient(shape, x, before, gy, gW);
}

EXPORT int edgeddl_convolution_forward(const conv *shape, const float *x, const float *scale,
                                       const float *shift, const float *W, const float *bias,
                                       float *y)
{
    begin_call();
    const int result = choose_forward(shape, x, scale, shift, W, bias, y);
    end_call();
    return result;
}

EXPORT int edgeddl_convolution_input_gradient(const conv *shape, const float *gy, const float *W,
                                              const float *plus, float *gx)
{
    begin_call();
    const int result = choose_input_gradient(shape, gy, W, plus, gx);
    end_call();
    return result;
}

EXPORT int edgeddl_convolution_weight_gradient(const conv *shape, const float *x,
                                               const float *scale, const float *shift,
                                               const float *gy, float *gW)
{
    begin_call();
    const int result = choose_weight_gradient(shape, x, scale, shift, gy, gW);
    end_call();
    return result;
}
