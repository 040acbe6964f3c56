/* Information about the library and the machine, and malloc's settings. */
#include <limits.h>
#include <malloc.h>

#include "edgeddl.h"
#include "simd.h"
#include "threads.h"

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

const char *edgeddl_compiler(void) { return COMPILER; }

/* Makes malloc keep freed memory for later calls instead of returning it to the system.
 *
 * A training step allocates the same large arrays as the previous one. By default malloc would map
 * each of them again, and the system clears every page when it is first touched. */
void edgeddl_keep_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
#endif
}

/* Independent sums: enough to hide the latency of a multiply-add (4 to 7 cycles, 2 per cycle), and
 * few enough to stay in registers. */
enum { SUMS = LANES == 16 ? 24 : 14 };
enum { ROUNDS = 1 << 20, REPETITIONS = 20 };

static void multiply_add(void *context, int part, int parts)
{
    float *results = context;
    vec sums[SUMS], factor = splat(0.999f), addend = splat(0.001f * (float)(part + 1));
    for (int i = 0; i < SUMS; i++)
        sums[i] = splat((float)(i % parts));
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++)
            sums[i] = sums[i] * factor + addend;
    }
    vec total = {0};
    for (int i = 0; i < SUMS; i++)
        total += sums[i];
    results[part] = total[0]; /* a use, so that the compiler keeps the loop */
}

/* GFLOPS of multiply-adds without memory access, the best of REPETITIONS. */
double edgeddl_measure_peak(int threads)
{
    float *results = workspace((size_t)threads);
    double best = 1e9;
    if (!results)
        return 0;
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        double start = seconds();
        run_parts(multiply_add, results, threads);
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    return 2e-9 * SUMS * LANES * ROUNDS * threads / best;
}
