#include "patches.h"

#include <stdlib.h>

void add_taps(patches *p, long y, long x, long tap, long taps, long c, long most)
{
    if (taps > 1 && taps * c <= most) {
        p->pieces[p->count++] = (piece){y, x, taps, 0, c, tap};
    } else
        for (long t = 0; t < taps; t++)
            for (long first = 0; first < c; first += most)
                p->pieces[p->count++] =
                    (piece){y, x + t, 1, first, min_long(c - first, most), tap + t};
    p->depth += taps * c;
}

long chunk_end(const patches *p, long first, long most)
{
    long end = first, depth = 0;
    while (end < p->count && (end == first || depth + piece_depth(p->pieces + end) <= most))
        depth += piece_depth(p->pieces + end++);
    return end;
}

long chunk_depth(const patches *p, long first, long end)
{
    long depth = 0;
    for (; first < end; first++)
        depth += piece_depth(p->pieces + first);
    return depth;
}

static void copy(const float *from, long count, float *to)
{
    long i = 0;
    for (; i + LANES <= count; i += LANES)
        store(to + i, load(from + i));
    for (; i < count; i++)
        to[i] = from[i];
}

static void copy_normalized(const patches *p, const piece *piece, const float *from, long pixels,
                            float *to)
{
    for (long i = 0; i < pixels; i++)
        for (long c = 0; c < piece->count; c += LANES) {
            const long at = piece->c + c, lanes = piece->count - c;
            const vec scale = load_some(p->before.scale + at, lanes);
            const vec shift = load_some(p->before.shift + at, lanes);
            const vec x = load_some(from + i * p->pixel + c, lanes);
            store_some(to + i * piece->count + c, normalize(x, scale, shift), lanes);
        }
}

static void clear(float *to, long count)
{
    if (count > 0)
        memset(to, 0, (size_t)count * sizeof(float));
}

static void gather_piece(const patches *p, const piece *piece, long image, long y, long x,
                         float *to)
{
    const long row = y * p->step_y + piece->y, column = x * p->step_x + piece->x;
    const long inside_first = max_long(column, 0);
    const long inside = min_long(column + piece->pixels, p->w) - inside_first;
    if (row < 0 || row >= p->h || inside <= 0) {
        clear(to, piece_depth(piece));
        return;
    }
    const long before = (inside_first - column) * piece->count;
    const float *from = p->source + ((image * p->h + row) * p->w + inside_first) * p->pixel;
    clear(to, before);
    if (p->before.scale)
        copy_normalized(p, piece, from + piece->c, inside, to + before);
    else
        copy(from + piece->c, inside * piece->count, to + before);
    clear(to + before + inside * piece->count, piece_depth(piece) - before - inside * piece->count);
}

void gather(const patches *p, long patch, long rows, long first, long end, float *matrix,
            long stride)
{
    long x = patch % p->wide, y = patch / p->wide % p->high, image = patch / p->wide / p->high;
    for (long row = 0; row < rows; row++) {
        float *to = matrix + row * stride;
        for (long i = first; i < end; i++) {
            gather_piece(p, p->pieces + i, image, y, x, to);
            to += piece_depth(p->pieces + i);
        }
        if (++x == p->wide) {
            x = 0;
            if (++y == p->high) {
                y = 0;
                image++;
            }
        }
    }
}

int is_plain(const patches *p)
{
    int plain = p->step_y == 1 && p->step_x == 1 && p->high == p->h && p->wide == p->w;
    for (const piece *i = p->pieces; i < p->pieces + p->count; i++)
        plain = plain && i->pixels == 1 && i->y == 0 && i->x == 0;
    return plain && !p->before.scale;
}

patches input_patches(const conv *s, const float *x, prologue before, long group, long most)
{
    const long c = s->c / s->groups, pieces = s->kh * s->kw * ceil_div(c, most);
    patches p = {
        .source = x + group * c, .h = s->h, .w = s->w, .pixel = s->c, .before = before,
        .images = s->n, .high = s->out_h, .wide = s->out_w, .step_y = s->sy, .step_x = s->sx,
        .pieces = malloc((size_t)pieces * sizeof(piece)),
    };
    if (before.scale)
        p.before = (prologue){before.scale + group * c, before.shift + group * c};
    if (!p.pieces)
        return p;
    for (long i = 0; i < s->kh; i++)
        if (s->dx == 1 && s->groups == 1)
            add_taps(&p, i * s->dy - s->ph, -s->pw, i * s->kw, s->kw, c, most);
        else
            for (long j = 0; j < s->kw; j++)
                add_taps(&p, i * s->dy - s->ph, j * s->dx - s->pw, i * s->kw + j, 1, c, most);
    return p;
}
