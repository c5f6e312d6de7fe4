/* The ring of a segment; see store_ring.h. */
#include "cache/store_ring.h"

#include "base/round.h"
#include "cache/directory.h"
#include "cache/store_words.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct hr__ring_header) == HR__SEGMENT_ALIGN, "an item stays aligned");

static uint64_t padded(uint64_t length)
{
    return hr__round_up(length, HR__SEGMENT_ALIGN);
}

int hr__ring_takes(const struct hr__segment *s, uint64_t length)
{
    /* At most a quarter: several threads stage at once, and none must lose what was just staged. */
    return padded(length) <= s->layout.ring_bytes / 4;
}

static int take_ring(struct hr__segment *s, void *unused)
{
    if (hr__segment_books(s).ring_allocated)
        return 0;
    char why[HR__CAPACITY_WHY];
    int r = hr__segment_populate(s, s->layout.ring_offset, s->layout.ring_bytes, why);
    if (r)
        return r;
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return -EAGAIN;
    books->ring_allocated = s->layout.ring_bytes;
    hr__segment_commit(s);
    return 0;
}

int hr__ring_allocate(struct hr__segment *s)
{
    if (hr__segment_books(s).ring_allocated)
        return 0;
    if (atomic_load(&s->no_ring))
        return -ENOSPC;
    /* Under the directory's lock: a process that is refused frees what it was granted, which
     * another process must not have begun to use. */
    int r = hr__directory_make_room(s, 0, 0, take_ring, NULL);
    if (r == -ENOSPC || r == -ENOMEM)
        atomic_store(&s->no_ring, 1);
    return r;
}

/* Returns the position of the header of the next item, of `length` bytes. */
static uint64_t next_position(const struct hr__segment *s, const struct hr__books *books,
                              uint64_t length)
{
    uint64_t size = s->layout.ring_bytes, at = books->ring_head % size;
    uint64_t bytes = sizeof(struct hr__ring_header) + padded(length);
    return at + bytes > size ? books->ring_head + (size - at) : books->ring_head;
}

uint64_t hr__ring_wanted_tail(const struct hr__segment *s, const struct hr__books *books,
                              uint64_t length)
{
    uint64_t end =
        next_position(s, books, length) + sizeof(struct hr__ring_header) + padded(length);
    return end > s->layout.ring_bytes ? end - s->layout.ring_bytes : 0;
}

int hr__ring_header_at(const struct hr__segment *s, const struct hr__books *books,
                       uint64_t position, struct hr__ring_header *out)
{
    hr__words_load((uint64_t *)out, s->ring + position % s->layout.ring_bytes,
                   sizeof *out / sizeof(uint64_t));
    uint64_t size = s->layout.ring_bytes;
    int entry = out->entry < s->layout.index_slots || out->entry == HR__RING_GAP;
    return out->position == position && out->bytes >= sizeof *out &&
                   out->bytes % HR__SEGMENT_ALIGN == 0 &&
                   out->bytes <= books->ring_head - position &&
                   out->bytes <= size - position % size && entry
               ? 0
               : -EBADMSG;
}

void hr__ring_advance(struct hr__segment *s, struct hr__books *books, uint64_t tail)
{
    atomic_store_explicit(&s->header->ring_tail, tail, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    if (books->ring_cursor < tail)
        books->ring_cursor = tail;
}

static void write_header(struct hr__segment *s, const struct hr__ring_header *header)
{
    hr__words_store(s->ring + header->position % s->layout.ring_bytes, (const uint64_t *)header,
                    sizeof *header / sizeof(uint64_t));
}

uint64_t hr__ring_write(struct hr__segment *s, struct hr__books *books, uint64_t entry,
                        const struct hr__store_offer *offer)
{
    struct hr__words_from pieces = {offer->pieces, 0};
    struct hr__ring_header header = {.position = next_position(s, books, offer->length),
                                     .bytes = sizeof header + padded(offer->length),
                                     .entry = entry,
                                     .sample = offer->sample};
    hr__segment_step(HR__STEP_RING);
    if (header.position != books->ring_head) {
        struct hr__ring_header gap = {.position = books->ring_head,
                                      .bytes = header.position - books->ring_head,
                                      .entry = HR__RING_GAP};
        write_header(s, &gap);
    }
    write_header(s, &header);
    hr__words_write(s->ring + header.position % s->layout.ring_bytes + sizeof header, &pieces,
                    offer->length);
    hr__segment_step(HR__STEP_BYTES);
    books->ring_head = header.position + header.bytes;
    return header.position + sizeof header;
}

int hr__ring_copy(const struct hr__segment *s, uint64_t position, void *out, size_t length)
{
    uint64_t at = position % s->layout.ring_bytes, words = (length + 7) / 8;
    if (at % HR__SEGMENT_ALIGN || words * 8 > s->layout.ring_bytes - at ||
        !hr__ring_is_valid(s, position))
        return 0;
    hr__words_load(out, s->ring + at, words);
    atomic_thread_fence(memory_order_acquire);
    return hr__ring_is_valid(s, position);
}
