/* One rank's part in a ring all-reduce over byte streams; reference/ring.py says how it goes.
 *
 * It runs beside computing and at its expense, with caches that computing has filled. Between four
 * emulated boards on a Zen 4, 44.7 MB took 43 to 66 ms of processor time in Python and take 27 to
 * 40 here (three runs of each, in turn).
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "edgeddl.h"
#include "half.h"
#include "simd.h"
#include "threads.h"

/* What is to be added arrives here. So small that it stays in a cache, and so do the sums, until
 * they are sent. */
enum { BUFFER_BYTES = 128 << 10 };

typedef void add_function(void *sums, const void *arrived, long items);

static void add_floats(void *sums, const void *arrived, long items)
{
    float *restrict to = sums;
    const float *restrict from = arrived;
    for (long i = 0; i < items; i++)
        to[i] += from[i];
}

static void add_doubles(void *sums, const void *arrived, long items)
{
    double *restrict to = sums;
    const double *restrict from = arrived;
    for (long i = 0; i < items; i++)
        to[i] += from[i];
}

static void add_blocks(void *sums, const void *arrived, long items)
{
    half_block *to = sums;
    const half_block *from = arrived;
    for (long i = 0; i < items; i++) {
        float sum[BLOCK], addend[BLOCK];
        decode_block(to + i, BLOCK, sum);
        decode_block(from + i, BLOCK, addend);
        add_floats(sum, addend, BLOCK);
        encode_block(sum, BLOCK, to + i);
    }
}

typedef struct {
    char *bytes;
    long items, item_bytes;
    int size; /* ranks, and chunks */
} chunked_array;

/* Where a chunk begins, and where the one before it ends. */
static char *chunk_begin(const chunked_array *array, int chunk)
{
    const long before = min_long(chunk * ceil_div(array->items, array->size), array->items);
    return array->bytes + before * array->item_bytes;
}

/* Chunks on their way through a stream, one behind the other. */
typedef struct {
    int socket;
    int step, chunk;   /* which chunk is under way, and how many were before it */
    char *next, *end;  /* its bytes that have yet to pass */
    long passed, left; /* bytes of all chunks */
} flow;

static void begin_chunk(flow *way, const chunked_array *array, int chunk)
{
    way->chunk = (chunk + array->size) % array->size;
    way->next = chunk_begin(array, way->chunk);
    way->end = chunk_begin(array, way->chunk + 1);
}

static void move_on(flow *way, const chunked_array *array, long bytes)
{
    way->next += bytes;
    way->passed += bytes;
    way->left -= bytes;
    for (; way->left && way->next == way->end; way->step++)
        begin_chunk(way, array, way->chunk - 1);
}

static flow begin_flow(int socket, const chunked_array *array, int first)
{
    flow way = {.socket = socket};
    for (int step = 0; step < 2 * (array->size - 1); step++) {
        begin_chunk(&way, array, (first - step) % array->size);
        way.left += way.end - way.next;
    }
    begin_chunk(&way, array, first);
    move_on(&way, array, 0); /* past chunks without bytes */
    return way;
}

/* The bytes that a call has moved, 0 if there is nothing to move now, -1 if the stream is lost. */
static long moved(long result)
{
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : result;
}

typedef struct {
    chunked_array array;
    add_function *add;
    flow in, out;
    long own;   /* bytes of the chunk that is sent first */
    char *buffer; /* where what is to be added arrives */
    long partial;  /* bytes in it, of an item whose last ones have not arrived */
} ring;

/* Add or keep what has arrived. */
static long receive(ring *r)
{
    flow *in = &r->in;
    const bool adds = in->step < r->array.size - 1;
    long wanted = in->end - in->next;
    if (!in->left)
        return 0;
    if (adds)
        wanted = min_long(wanted, BUFFER_BYTES - r->partial);
    char *to = adds ? r->buffer + r->partial : in->next;
    const long count = recv(in->socket, to, wanted, MSG_DONTWAIT);
    if (count == 0)
        errno = EPIPE;
    if (count <= 0)
        return count ? moved(count) : -1;
    if (adds) {
        const long there = r->partial + count, items = there / r->array.item_bytes;
        r->add(in->next - r->partial, r->buffer, items);
        r->partial = there - items * r->array.item_bytes;
        memmove(r->buffer, r->buffer + there - r->partial, r->partial);
    }
    move_on(in, &r->array, count);
    return count;
}

/* Send the first chunk, and what has arrived and been added. */
static long send_ready(ring *r)
{
    flow *out = &r->out;
    long total = 0, count = 1;
    while (count > 0 && out->left) {
        const long ready = r->own + r->in.passed - r->partial - out->passed;
        if (!ready)
            break;
        count = moved(send(out->socket, out->next, min_long(out->end - out->next, ready),
                           MSG_DONTWAIT | MSG_NOSIGNAL));
        move_on(out, &r->array, max_long(count, 0));
        total += max_long(count, 0);
    }
    return count < 0 ? -1 : total;
}

/* Until `waking` bytes have arrived, or what is to be sent can be. A stream of which nothing more
 * is wanted stays out: its end would be told again and again. */
static bool wait_for_sockets(ring *r, long low_water, int milliseconds)
{
    const bool is_full = r->own + r->in.passed - r->partial > r->out.passed;
    struct pollfd polled[2] = {{.fd = -1}, {.fd = -1}}; /* poll leaves these out */
    if (r->in.left) {
        const int least = (int)min_long(low_water, r->in.left);
        setsockopt(r->in.socket, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
        polled[0] = (struct pollfd){.fd = r->in.socket, .events = POLLIN};
    }
    if (r->out.left)
        polled[1] = (struct pollfd){r->out.socket, POLLRDHUP | (is_full ? POLLOUT : 0), 0};
    poll(polled, 2, milliseconds);
    if (!(polled[1].revents & (POLLERR | POLLHUP | POLLRDHUP | POLLNVAL)))
        return true;
    int met = 0;
    socklen_t bytes = sizeof met;
    getsockopt(r->out.socket, SOL_SOCKET, SO_ERROR, &met, &bytes);
    errno = met ? met : EPIPE;
    return false;
}

/* Replace the array by its sum over all ranks: 0, or the error that the left neighbour's stream
 * has met, or minus that of the right one's. */
int edgeddl_ring_sum(int left, int right, int rank, int size, char kind, long items,
                     void *array, long low_water, int milliseconds)
{
    ring r = {.array = {array, items, sizeof(float), size}, .add = add_floats};
    if (kind == 'd') {
        r.array.item_bytes = sizeof(double);
        r.add = add_doubles;
    } else if (kind == 'h') {
        r.array.item_bytes = sizeof(half_block);
        r.add = add_blocks;
    }
    r.in = begin_flow(left, &r.array, (rank + size - 1) % size);
    r.out = begin_flow(right, &r.array, rank);
    r.own = chunk_begin(&r.array, rank + 1) - chunk_begin(&r.array, rank);
    r.buffer = (char *)workspace(BUFFER_BYTES / sizeof(float));
    if (!r.buffer)
        return ENOMEM;
    while (r.in.left || r.out.left) {
        const long received = receive(&r);
        if (received < 0)
            return errno;
        const long sent = send_ready(&r);
        if (sent < 0 || (!received && !sent && !wait_for_sockets(&r, low_water, milliseconds)))
            return -errno;
    }
    return 0;
}
