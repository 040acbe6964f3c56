#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include "edgeddl.h"

/* A worker that has just finished is likely to get more work at once, so it spins for some time
 * before it sleeps. A caller that waits for its workers yields its core after a while. */
#define SECONDS_BEFORE_SLEEP 50e-6
enum { LOOKS_BEFORE_YIELD = 20000, LOOKS_AT_A_TIME = 64 };
/* About 10 microseconds of work, the cost of waking a thread. */
enum { SMALLEST_PART = 1 << 14 };
enum { PARTS_PER_THREAD = 4 };
enum { MOST_THREADS = 256 };

static struct {
    pthread_mutex_t in_use; /* held by one caller at a time; others run their parts themselves */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int running;           /* number of workers */
    atomic_int threads;    /* requested, including the caller */
    atomic_uint round;     /* counts the calls: workers wait for it to change */
    atomic_int unfinished; /* workers that have not finished this round */
    atomic_int sleeping;
    part_function *run;
    void *context;
    int parts;
    atomic_int next; /* the first part that is not taken */
} pool = {
    .in_use = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .threads = 1,
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static unsigned wait_for_round(unsigned seen)
{
    const double start = seconds();
    do
        for (int look = 0; look < LOOKS_AT_A_TIME; look++) {
            if (atomic_load(&pool.round) != seen)
                return atomic_load(&pool.round);
            pause_briefly();
        }
    while (seconds() - start < SECONDS_BEFORE_SLEEP);
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&pool.round) == seen)
        pthread_cond_wait(&pool.changed, &pool.lock);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.lock);
    return atomic_load(&pool.round);
}

static void take_parts(void)
{
    int part;
    while ((part = atomic_fetch_add(&pool.next, 1)) < pool.parts)
        pool.run(pool.context, part, pool.parts);
}

static void *work(void *last_round)
{
    unsigned round = (unsigned)(uintptr_t)last_round;
    for (;;) {
        round = wait_for_round(round);
        const int closing = !pool.run;
        if (!closing)
            take_parts();
        atomic_fetch_sub(&pool.unfinished, 1);
        if (closing)
            return NULL;
    }
}

static void start_round(part_function *run, void *context, int parts)
{
    pool.run = run;
    pool.context = context;
    pool.parts = parts;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.unfinished, pool.running);
    atomic_fetch_add(&pool.round, 1);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.changed);
        pthread_mutex_unlock(&pool.lock);
    }
}

static void wait_for_workers(void)
{
    for (int look = 0; atomic_load(&pool.unfinished); look++)
        if (look < LOOKS_BEFORE_YIELD)
            pause_briefly();
        else
            sched_yield();
}

static void forget_workers(void) /* a forked child has no workers */
{
    pool.running = 0;
    atomic_store(&pool.sleeping, 0);
    pthread_mutex_init(&pool.in_use, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.changed, NULL);
}

static void start_workers(int wanted)
{
    static int prepared_to_fork = 0;
    if (!prepared_to_fork)
        prepared_to_fork = !pthread_atfork(NULL, NULL, forget_workers);
    for (; pool.running < wanted; pool.running++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(uintptr_t)atomic_load(&pool.round)))
            return; /* continue with fewer workers */
        pthread_detach(thread);
    }
}

void run_parts(part_function *run, void *context, int parts)
{
    if (parts > 1 && !pthread_mutex_trylock(&pool.in_use)) {
        start_workers(atomic_load(&pool.threads) - 1);
        start_round(run, context, parts);
        take_parts();
        wait_for_workers();
        pthread_mutex_unlock(&pool.in_use);
        return;
    }
    for (int part = 0; part < parts; part++)
        run(context, part, parts);
}

static int parts_of(long pieces, long work, long most)
{
    const long worth = pieces * work / SMALLEST_PART;
    const long parts = pieces < most ? pieces : most;
    return worth < 2 || parts < 2 ? 1 : (int)(parts < worth ? parts : worth);
}

int parts_for(long pieces, long work)
{
    const long threads = atomic_load(&pool.threads);
    return threads == 1 ? 1 : parts_of(pieces, work, threads * PARTS_PER_THREAD);
}

int sums_for(long pieces, long work)
{
    return parts_of(pieces, work, atomic_load(&pool.threads));
}

void edgeddl_set_threads(int threads)
{
    threads = threads < 1 ? 1 : threads < MOST_THREADS ? threads : MOST_THREADS;
    pthread_mutex_lock(&pool.in_use);
    if (pool.running > threads - 1) {
        start_round(NULL, NULL, 0);
        wait_for_workers();
        pool.running = 0;
    }
    atomic_store(&pool.threads, threads);
    pthread_mutex_unlock(&pool.in_use);
}

int edgeddl_get_threads(void) { return atomic_load(&pool.threads); }

/* Workspaces: each thread has one of each kind. It grows on demand, and is freed when the thread
 * ends. Workspaces have their own pages: on malloc's heap each growth would leave a hole among
 * short-lived arrays. The size in bytes is stored before the numbers. */

enum { HEADER = 4096 }; /* numbers begin at a page boundary */
enum { OF_CALLS, OF_PARTS, KINDS };

static pthread_key_t space_keys[KINDS];
static pthread_once_t space_once = PTHREAD_ONCE_INIT;

static void free_space(void *pages) { munmap(pages, *(size_t *)pages); }

static void make_space_keys(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        pthread_key_create(&space_keys[kind], free_space);
}

static float *space(int kind, size_t floats)
{
    const size_t bytes = HEADER + floats * sizeof(float);
    pthread_once(&space_once, make_space_keys);
    char *pages = pthread_getspecific(space_keys[kind]);
    if (!pages || *(size_t *)pages < bytes) {
        if (pages)
            free_space(pages);
        pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED)
            pages = NULL;
        if (pthread_setspecific(space_keys[kind], pages) || !pages)
            return NULL;
#ifdef MADV_HUGEPAGE
        madvise(pages, bytes, MADV_HUGEPAGE); /* 1 to 5 % faster */
#endif
        *(size_t *)pages = bytes;
    }
    return (float *)(pages + HEADER);
}

float *workspace(size_t floats) { return space(OF_CALLS, floats); }

float *part_workspace(size_t floats, int *result)
{
    float *memory = space(OF_PARTS, floats);
    if (!memory)
        set_result(result, OUT_OF_MEMORY);
    return memory;
}
