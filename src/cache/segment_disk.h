/*
 * A segment on a disk: one file that only its owner may open.
 *
 *   header | users | index | mark | items
 *
 * Everything up to the mark is mapped and changes in transactions, as in memory (segment.h). Items
 * are written and read with system calls, outside all locks. Each begins at a multiple of
 * HR__DISK_ALIGN behind the item that was begun before it, so a position is never used twice while
 * the segment has users, and freed space is given back to the file system as a hole.
 *
 * Nothing is synced. After a power failure the index may be older or newer than the items, and any
 * page of it older than another. The first user of a segment therefore checks every entry, counts
 * anew, and frees what no entry refers to: items that were being written, or were dropped; an item
 * is used only if its checksum is right.
 *
 * Private to the cache room.
 */
#ifndef HR_CACHE_SEGMENT_DISK_H
#define HR_CACHE_SEGMENT_DISK_H

#include "base/round.h"
#include "cache/segment.h"

#include <sys/uio.h>

/* Of items in the file, for O_DIRECT. */
#define HR__DISK_ALIGN UINT64_C(4096)

/* No item ends behind this offset. */
#define HR__DISK_END (UINT64_C(1) << 50)

/* Returns the bytes that an item occupies. */
static inline uint64_t hr__disk_padded(uint64_t length)
{
    return hr__round_up(length, HR__DISK_ALIGN);
}

/* Returns non-zero if an item of `length` bytes may be at `offset`. */
static inline int hr__disk_is_place(uint64_t offset, uint64_t length)
{
    return length && length <= UINT32_MAX && offset % HR__DISK_ALIGN == 0 &&
           offset <= HR__DISK_END - hr__disk_padded(length);
}

/* Allocates space for everything up to the mark. Errors: -ENOSPC and others. */
int hr__segment_disk_allocate(struct hr__segment *segment, struct hr_error *error);

/* Opens the file for items. `is_first`: nobody uses the segment, and nobody can begin to: repairs
 * it, as described above. */
int hr__segment_disk_open(struct hr__segment *segment, int is_first, struct hr_error *error);

/* Frees the space of an item that was being written when its writer died, if `value` is one; within
 * a transaction, which then changes the entry. Does nothing for segments in memory. */
void hr__segment_give_back(struct hr__segment *segment, struct hr__books *books,
                           const struct hr__entry_value *value);

/* Frees the space of an item. */
void hr__segment_punch(struct hr__segment *segment, uint64_t offset, uint64_t length);

/* Writes an item's bytes to their place, whole pages of them, and changes `pieces`. Leaves nothing
 * in the page cache if the kernel or O_DIRECT allows that. Errors: -ENOSPC, -EFBIG, -EIO and
 * others. Blocks. */
int hr__segment_disk_write(struct hr__segment *segment, uint64_t offset, struct iovec *pieces,
                           int count);

/* Reads an item into `out`, which has room for hr__disk_padded(length) bytes and is aligned to
 * HR__DISK_ALIGN. Errors: -ENODATA: the file ends before; others. Blocks. */
int hr__segment_disk_read(const struct hr__segment *segment, uint64_t offset, void *out,
                          size_t length);

#endif
