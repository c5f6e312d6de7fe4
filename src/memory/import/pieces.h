/*
 * Bytes of an address space, as pieces that do not overlap: what an allocator took from a
 * device. What it takes and gives back need not be the same ranges (PyTorch's expandable
 * segments); so a change is reported as one piece removed and others added.
 */
#ifndef HR_MEMORY_IMPORT_PIECES_H
#define HR_MEMORY_IMPORT_PIECES_H

#include <stddef.h>
#include <stdint.h>

struct hr__memory_piece {
    uint64_t begin, end;
};

/* Zeroed: none. Sorted by address. */
struct hr__pieces {
    struct hr__memory_piece *pieces;
    size_t count, room;
};

enum hr__piece_change {
    HR__PIECE_NEW,     /* there is this piece now */
    HR__PIECE_GONE,    /* there was, and is not any more */
    HR__PIECE_MISSING, /* was to go, and was in no piece */
};

typedef int (*hr__piece_fn)(void *arg, enum hr__piece_change change, struct hr__memory_piece piece);

/* What of `range` is in no piece becomes some; what is goes from them. `fn` (may be NULL) is told
 * of each change, and ends it with what is not 0. Errors: -ENOMEM, fn's. */
int hr__pieces_add(struct hr__pieces *pieces, struct hr__memory_piece range, hr__piece_fn fn,
                   void *arg);
int hr__pieces_remove(struct hr__pieces *pieces, struct hr__memory_piece range, hr__piece_fn fn,
                      void *arg);
void hr__pieces_clear(struct hr__pieces *pieces);

#endif
