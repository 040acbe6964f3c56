/* A small pool of threads, and memory that kernels keep from call to call.
 *
 * Work is cut into `parts` beforehand, the same way every time, and what comes out does not depend
 * on who computes a part: results do not depend on timing. Threads take parts as they become free.
 */
#ifndef EDGEDDL_THREADS_H
#define EDGEDDL_THREADS_H

#include <stddef.h>

/* What kernels return. NOT_FINITE: the fast algorithm met infinity or NaN, which it spreads; use
 * the plain one. */
enum { DONE = 0, OUT_OF_MEMORY = 1, NOT_FINITE = 2 };

/* For parts, which run at the same time. */
static inline void set_result(int *result, int what)
{
    __atomic_store_n(result, what, __ATOMIC_RELAXED);
}

typedef void part_function(void *context, int part, int parts);

/* Calls run(context, part, parts) for every part, at the same time where threads are free. */
void run_parts(part_function *run, void *context, int parts);

/* Parts for so many pieces of work, of `work` numbers each: some for each thread, so that all end
 * at the same time though one be slower, but none so small that handing it over costs more than it
 * does. */
int parts_for(long pieces, long work);

/* The same, but at most one for each thread: for parts with large results that are added up. */
int sums_for(long pieces, long work);

/* The first of `count` pieces for this part; those of part + 1 begin where its end. */
static inline long share(long count, int part, int parts) { return count * part / parts; }

/* By a clock that only goes forward. */
double seconds(void);

/* Memory of this thread, aligned to 64 bytes, valid until the thread asks for more; NULL if there
 * is none. For what a call has for all its parts. */
float *workspace(size_t floats);

/* Likewise, for what a part has for itself while it runs; if there is none, *result says so. */
float *part_workspace(size_t floats, int *result);

#endif
