/* Max pooling and average pooling. Images are [n][h][w][c]. */
#include <math.h>

#include "edgeddl.h"
#include "simd.h"
#include "threads.h"

typedef struct {
    pooling shape;
    int largest; /* max pooling; otherwise average pooling, where padding counts as zeros */
    const float *x, *y, *gy;
    float *out;
} job;

ALWAYS_INLINE vec larger(vec a, vec b) /* NaN if either is NaN, as in NumPy */
{
    return choose((b > a) | (b != b), b, a);
}

/* Pools `count` channels of window (i, j) of an image. */
ALWAYS_INLINE vec reduce(const pooling *s, const float *image, long i, long j, long count,
                         int largest)
{
    const long top = i * s->sy - s->ph, left = j * s->sx - s->pw;
    const long bottom = min_long(top + s->kh, s->h), right = min_long(left + s->kw, s->w);
    vec result = largest ? splat(-INFINITY) : (vec){0};
    for (long y = max_long(top, 0); y < bottom; y++)
        for (long x = max_long(left, 0); x < right; x++) {
            vec pixel = load_some(image + (y * s->w + x) * s->c, count);
            result = largest ? larger(result, pixel) : result + pixel;
        }
    return largest ? result : result / splat((float)(s->kh * s->kw));
}

ALWAYS_INLINE void forward(const job *job, int part, int parts, int largest)
{
    const pooling s = job->shape;
    const long last = part_start(s.n * s.out_h, part + 1, parts);
    for (long row = part_start(s.n * s.out_h, part, parts); row < last; row++) {
        const float *image = job->x + row / s.out_h * s.h * s.w * s.c;
        const long i = row % s.out_h;
        for (long j = 0; j < s.out_w; j++) {
            float *y = job->out + (row * s.out_w + j) * s.c;
            long c = 0;
            for (; c + LANES <= s.c; c += LANES)
                store(y + c, reduce(&s, image + c, i, j, LANES, largest));
            if (c < s.c)
                store_part(y + c, reduce(&s, image + c, i, j, s.c - c, largest), s.c - c);
        }
    }
}

static void forward_part(void *context, int part, int parts)
{
    const job *job = context;
    if (job->largest)
        forward(job, part, parts, 1);
    else
        forward(job, part, parts, 0);
}

/* Adds the gradient of window (i, j) to that of the image. Average pooling adds an equal share of
 * gy to each pixel. Max pooling adds gy to the first pixel that equals the maximum, which may be in
 * the padding, where every value is -infinity. */
ALWAYS_INLINE void spread(const pooling *s, const float *image, long i, long j, vec peak, vec gy,
                          float *gradient, long count, int largest)
{
    const long top = i * s->sy - s->ph, left = j * s->sx - s->pw;
    const ivec is_nan = peak != peak;
    ivec undecided = (ivec){0} == (ivec){0};
    for (long y = top; y < top + s->kh; y++)
        for (long x = left; x < left + s->kw; x++) {
            if (y < 0 || y >= s->h || x < 0 || x >= s->w) {
                undecided &= peak != splat(-INFINITY);
                continue;
            }
            const long at = (y * s->w + x) * s->c;
            vec g = gy;
            if (largest) {
                const vec pixel = load_some(image + at, count);
                const ivec wins = undecided & ((pixel == peak) | (is_nan & (pixel != pixel)));
                undecided &= ~wins;
                g = choose(wins, gy, (vec){0});
            }
            store_some(gradient + at, load_some(gradient + at, count) + g, count);
        }
}

/* Windows may overlap, so one thread processes the whole image. */
static void backward_part(void *context, int part, int parts)
{
    const job *job = context;
    const pooling s = job->shape;
    const long windows = s.out_h * s.out_w, size = s.h * s.w * s.c;
    const vec area = splat((float)(s.kh * s.kw));
    for (long n = part_start(s.n, part, parts); n < part_start(s.n, part + 1, parts); n++) {
        float *gradient = job->out + n * size;
        memset(gradient, 0, (size_t)size * sizeof(float));
        for (long at = 0; at < windows * s.c; at += s.c) {
            const long i = at / s.c / s.out_w, j = at / s.c % s.out_w;
            for (long c = 0; c < s.c; c += LANES) {
                const long count = min_long(LANES, s.c - c), from = n * windows * s.c + at + c;
                vec gy = load_some(job->gy + from, count);
                if (job->largest)
                    spread(&s, job->x + n * size + c, i, j, load_some(job->y + from, count), gy,
                           gradient + c, count, 1);
                else
                    spread(&s, NULL, i, j, (vec){0}, gy / area, gradient + c, count, 0);
            }
        }
    }
}

int edgeddl_pooling_forward(const pooling *s, int largest, const float *x, float *y)
{
    job job = {.shape = *s, .largest = largest, .x = x, .out = y};
    run_parts(forward_part, &job, parts_for(s->n * s->out_h, s->out_w * s->c * s->kh * s->kw));
    return DONE;
}

/* Only max pooling needs x and y. */
int edgeddl_pooling_backward(const pooling *s, int largest, const float *x, const float *y,
                             const float *gy, float *gx)
{
    job job = {.shape = *s, .largest = largest, .x = x, .y = y, .gy = gy, .out = gx};
    run_parts(backward_part, &job, parts_for(s->n, s->out_h * s->out_w * s->c * s->kh * s->kw));
    return DONE;
}

/* Pooling over whole images: each image is a row of pixels and one window. */
static pooling whole_images(long images, long pixels, long channels)
{
    return (pooling){.n = images, .h = 1, .w = pixels, .c = channels, .kh = 1, .kw = pixels,
                     .sy = 1, .sx = 1, .out_h = 1, .out_w = 1};
}

int edgeddl_global_average_forward(long images, long pixels, long channels, const float *x,
                                   float *y)
{
    const pooling s = whole_images(images, pixels, channels);
    return edgeddl_pooling_forward(&s, 0, x, y);
}

int edgeddl_global_average_backward(long images, long pixels, long channels,
                                    const float *gy, float *gx)
{
    const pooling s = whole_images(images, pixels, channels);
    return edgeddl_pooling_backward(&s, 0, NULL, NULL, gy, gx);
}
