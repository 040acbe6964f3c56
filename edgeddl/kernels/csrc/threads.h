/* A small thread pool, and memory that kernels keep from call to call.
 *
 * Work is divided into `parts` in advance, always in the same way. The result of a part does not
 * depend on the thread that computes it, so results do not depend on timing. Threads take parts as
 * they become free.
 */
#ifndef EDGEDDL_THREADS_H
#define EDGEDDL_THREADS_H

#include <stddef.h>

/* Return values of kernels. NOT_FINITE: the fast algorithm met infinity or NaN, which it would
 * spread to other results; use the plain algorithm. */
enum { DONE = 0, OUT_OF_MEMORY = 1, NOT_FINITE = 2 };

/* Sets a result that concurrent parts share. */
static inline void set_result(int *result, int what)
{
    __atomic_store_n(result, what, __ATOMIC_RELAXED);
}

typedef void part_function(void *context, int part, int parts);

/* Calls run(context, part, parts) for every part, concurrently on the threads that are free. */
void run_parts(part_function *run, void *context, int parts);

/* Number of parts for `pieces` pieces of work with `work` numbers each. There are several parts per
 * thread, so that all threads finish at the same time even if one is slower. No part is so small
 * that dispatching it costs more than computing it. */
int parts_for(long pieces, long work);

/* The same, with at most one part per thread: for parts with large results that are added up. */
int sums_for(long pieces, long work);

/* The first of `count` pieces for this part. The part ends where part + 1 begins. */
static inline long part_start(long count, int part, int parts) { return count * part / parts; }

/* Time of a monotonic clock. */
double seconds(void);

/* Memory of this thread for one call, shared by all parts of the call. It is aligned to 64 bytes
 * and valid until the thread's next request. NULL if there is no memory. */
float *workspace(size_t floats);

/* Likewise, for one part while it runs. If there is no memory, *result becomes OUT_OF_MEMORY. */
float *part_workspace(size_t floats, int *result);

#endif
