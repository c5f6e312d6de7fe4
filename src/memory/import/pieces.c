/* Address ranges; see pieces.h. There are only thousands, so a sorted array suffices. */
#include "memory/import/pieces.h"

#include "base/memory.h"

#include <errno.h>
#include <string.h>

/* Returns the first piece that ends after an address. */
static size_t first_behind(const struct hr__pieces *p, uint64_t address)
{
    size_t low = 0, high = p->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (p->pieces[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int report(hr__piece_fn fn, void *arg, enum hr__piece_change change,
                  struct hr__memory_piece piece)
{
    return fn ? fn(arg, change, piece) : 0;
}

static int insert(struct hr__pieces *p, size_t at, struct hr__memory_piece piece)
{
    if (hr__reserve(HR__TAG_MEMORY, &p->pieces, p->count + 1))
        return -ENOMEM;
    memmove(p->pieces + at + 1, p->pieces + at, (p->count - at) * sizeof piece);
    p->pieces[at] = piece;
    p->count++;
    return 0;
}

int hr__pieces_add(struct hr__pieces *p, struct hr__memory_piece range, hr__piece_fn fn, void *arg)
{
    size_t i = first_behind(p, range.begin);
    int code = 0;
    for (uint64_t at = range.begin; at < range.end && !code; i++) {
        int is_other = i < p->count && p->pieces[i].begin < range.end;
        uint64_t stop = is_other ? p->pieces[i].begin : range.end;
        if (stop > at) {
            struct hr__memory_piece piece = {at, stop};
            code = insert(p, i, piece);
            if (!code)
                code = report(fn, arg, HR__PIECE_NEW, piece);
            at = stop;
        } else {
            at = p->pieces[i].end;
        }
    }
    return code;
}

/* Removes a range from piece `i`, which overlaps it; *next: the first piece after it. */
static int cut(struct hr__pieces *p, size_t i, struct hr__memory_piece range, size_t *next,
               struct hr__memory_piece left[2])
{
    struct hr__memory_piece piece = p->pieces[i];
    left[0] = (struct hr__memory_piece){piece.begin,
                                        range.begin > piece.begin ? range.begin : piece.begin};
    left[1] = (struct hr__memory_piece){range.end < piece.end ? range.end : piece.end, piece.end};
    int has_left = left[0].end > left[0].begin, has_right = left[1].end > left[1].begin;
    *next = i + (size_t)has_left + (size_t)has_right;
    if (has_left)
        p->pieces[i] = left[0];
    if (has_left && has_right)
        return insert(p, i + 1, left[1]);
    if (has_right)
        p->pieces[i] = left[1];
    if (!has_left && !has_right) {
        memmove(p->pieces + i, p->pieces + i + 1, (p->count - i - 1) * sizeof piece);
        p->count--;
    }
    return 0;
}

int hr__pieces_remove(struct hr__pieces *p, struct hr__memory_piece range, hr__piece_fn fn,
                      void *arg)
{
    size_t i = first_behind(p, range.begin);
    uint64_t at = range.begin;
    int code = 0;
    while (at < range.end && !code) {
        if (i == p->count || p->pieces[i].begin >= range.end)
            return report(fn, arg, HR__PIECE_MISSING, (struct hr__memory_piece){at, range.end});
        struct hr__memory_piece piece = p->pieces[i], left[2];
        if (piece.begin > at)
            code = report(fn, arg, HR__PIECE_MISSING, (struct hr__memory_piece){at, piece.begin});
        if (!code)
            code = cut(p, i, range, &i, left);
        if (!code)
            code = report(fn, arg, HR__PIECE_GONE, piece);
        for (int side = 0; side < 2 && !code; side++)
            if (left[side].end > left[side].begin)
                code = report(fn, arg, HR__PIECE_NEW, left[side]);
        at = piece.end;
    }
    return code;
}

void hr__pieces_clear(struct hr__pieces *p)
{
    hr__free(p->pieces);
    *p = (struct hr__pieces){.pieces = NULL};
}
