/* One rank's part of a ring all-reduce over sockets; comm/ring/reference.py explains it.
 *
 * It runs concurrently with the kernels, takes processor time from them, and finds the caches full
 * of their data. Between four emulated boards on a Zen 4, 44.7 MB took 43 to 66 ms of processor
 * time in Python and take 27 to 40 ms here (three runs of each, alternating).
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

/* Size of the receive buffer for chunks that are added. It is small enough to stay in a cache, and
 * so are the sums until they are sent. */
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
    int size; /* number of ranks and of chunks */
} chunked_array;

/* Start of a chunk, and end of the previous one. */
static char *chunk_begin(const chunked_array *array, int chunk)
{
    const long before = min_long(chunk * ceil_div(array->items, array->size), array->items);
    return array->bytes + before * array->item_bytes;
}

/* A sequence of chunks that is sent or received through a socket. */
typedef struct {
    int socket;
    int step, chunk;   /* number of completed chunks; index of the current one */
    char *next, *end;  /* remaining bytes of the current chunk */
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
    move_on(&way, array, 0); /* skips empty chunks */
    return way;
}

/* Bytes that a call has transferred, 0 if it would have blocked, -1 if the connection is lost. */
static long moved(long result)
{
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : result;
}

typedef struct {
    chunked_array array;
    add_function *add;
    flow in, out;
    long own;   /* bytes of the chunk that is sent first */
    char *buffer; /* receive buffer for chunks that are added */
    long partial;  /* bytes in it of an item that has not fully arrived */
} ring;

/* Receives bytes, and adds or stores them. */
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

/* Sends the rank's own chunk, and the bytes that have been received and added. */
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

/* Waits until enough bytes have arrived or the outgoing socket accepts data. Returns false if the
 * outgoing connection is lost. A finished socket is not polled: poll would always report its end. */
static bool wait_for_sockets(ring *r, long low_water, int milliseconds)
{
    const bool is_full = r->own + r->in.passed - r->partial > r->out.passed;
    struct pollfd polled[2] = {{.fd = -1}, {.fd = -1}}; /* poll ignores these */
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

/* Replaces the array by its sum over all ranks. Returns 0, or the errno of the left neighbour's
 * socket, or minus the errno of the right neighbour's socket. */
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
