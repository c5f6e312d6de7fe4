/*
 * A set of non-overlapping address ranges (pieces): the memory an allocator took from a device. The
 * ranges it takes and returns need not match (PyTorch's expandable segments), so a change is
 * reported as one piece removed and others added.
 */
#ifndef HR_MEMORY_IMPORT_PIECES_H
#define HR_MEMORY_IMPORT_PIECES_H

#include <stddef.h>
#include <stdint.h>

struct hr__memory_piece {
    uint64_t begin, end;
};

/* Initialize with zeros. Sorted by address. */
struct hr__pieces {
    struct hr__memory_piece *pieces;
    size_t count;
};

enum hr__piece_change {
    HR__PIECE_NEW,     /* a piece was added */
    HR__PIECE_GONE,    /* a piece was removed */
    HR__PIECE_MISSING, /* to be removed, but in no piece */
};

typedef int (*hr__piece_fn)(void *arg, enum hr__piece_change change, struct hr__memory_piece piece);

/* Add a range, except what is already in a piece, or remove it from the pieces. `fn` (may be NULL)
 * is called for each change; if it returns non-zero, that ends the operation. Errors: -ENOMEM,
 * fn's. */
int hr__pieces_add(struct hr__pieces *pieces, struct hr__memory_piece range, hr__piece_fn fn,
                   void *arg);
int hr__pieces_remove(struct hr__pieces *pieces, struct hr__memory_piece range, hr__piece_fn fn,
                      void *arg);
void hr__pieces_clear(struct hr__pieces *pieces);

#endif
