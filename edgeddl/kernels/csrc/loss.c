/* Softmax cross-entropy and its gradient. Logits are few, so all but the stored numbers are double.
 *
 *   log p_j = x_j - max - log(sum exp(x - max))
 *   loss of a row = -(1 - smoothing) log p_t - smoothing / classes * sum_j log p_j
 *
 * The loss is the mean over the rows whose label t is not ignored.
 */
#include <math.h>

#include "edgeddl.h"
#include "simd.h"
#include "threads.h"

typedef struct {
    long rows, classes;
    const float *x;
    const int *labels;
    double smoothing, weight; /* weight: 1 / the number of rows that are not ignored */
    int ignore_label;
    float *gradient;
    double *losses; /* one per row */
} job;

static double row_loss(const job *j, const float *x, int label, float *gradient)
{
    double largest = x[0], sum_exp = 0, sum = 0;
    for (long i = 1; i < j->classes; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (long i = 0; i < j->classes; i++) {
        const double e = exp(x[i] - largest);
        gradient[i] = (float)e;
        sum_exp += e;
        sum += x[i] - largest;
    }
    const double uniform = j->smoothing / (double)j->classes, log_sum = log(sum_exp);
    for (long i = 0; i < j->classes; i++) {
        const double target = uniform + (i == label ? 1 - j->smoothing : 0);
        gradient[i] = (float)(j->weight * (gradient[i] / sum_exp - target));
    }
    double loss = (1 - j->smoothing) * (log_sum - (x[label] - largest));
    if (j->smoothing > 0) /* 0 times an infinite logit of another class would be NaN */
        loss += uniform * ((double)j->classes * log_sum - sum);
    return loss;
}

static void loss_part(void *context, int part, int parts)
{
    const job *j = context;
    const long last = part_start(j->rows, part + 1, parts);
    for (long row = part_start(j->rows, part, parts); row < last; row++) {
        float *gradient = j->gradient + row * j->classes;
        const int label = j->labels[row];
        if (label == j->ignore_label) {
            memset(gradient, 0, (size_t)j->classes * sizeof(float));
            j->losses[row] = 0;
        } else {
            j->losses[row] = row_loss(j, j->x + row * j->classes, label, gradient);
        }
    }
}

int edgeddl_softmax_cross_entropy(long rows, long classes, const float *x, const int *labels,
                                  double smoothing, int ignore_label, float *gradient,
                                  double *loss)
{
    double *losses = (double *)workspace((size_t)(2 * rows));
    long counted = 0;
    if (!losses)
        return OUT_OF_MEMORY;
    for (long row = 0; row < rows; row++)
        counted += labels[row] != ignore_label;
    const double weight = 1 / (double)max_long(counted, 1);
    job j = {rows, classes, x, labels, smoothing, weight, ignore_label, gradient, losses};
    run_parts(loss_part, &j, parts_for(rows, 8 * classes)); /* exp costs about 8 additions */
    *loss = 0;
    for (long row = 0; row < rows; row++)
        *loss += weight * losses[row];
    return DONE;
}
