/*
 * Leases: batches that lie in the shared memory itself, and the windows that map it; also moving a
 * cursor, which makes leases private, and its end with its last lease. See cursor.h.
 *
 * In the usual case a batch costs no system call on its pages: its places are mapped already, no
 * page fault has happened since, and releasing it only moves the mark.
 */
#include "agent/client/cursor.h"

#include "base/error.h"
#include "base/memory.h"
#include "loader/attach.h"
#include "loader/batch_rows.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNMAPPED UINT64_MAX
/* Alignment of batches (headrace/loader.h). */
#define ALIGNMENT 64
/* Most released leases whose pages are not checked yet. */
#define RESTING_MAX 4
/* After this many batches in a row without a change, the job counts as one that does not write. */
#define UNCHANGED_ENOUGH 8

struct hr__lease_window {
    unsigned refs; /* its leases, and the cursor while it makes new leases here */
    char *base;
    size_t bytes;             /* two rings */
    struct hr__lease *leases; /* in this window */
    uint64_t offsets[];       /* for two rings of places: offset in the file mapped there */
};

static void release(struct hr_batch *batch);

static const struct hr__batch_owner lease_owner = {.release = release};

/* The position of a batch in a window: its places, counted over two rings, and its bytes. */
struct spot {
    uint64_t first, last;    /* places */
    uintptr_t begin, end;    /* offsets from the window's base, or addresses */
    const uint64_t *offsets; /* of the places in the file; NULL: not set */
};

static uint64_t byte_at(const struct hr__cursor_shape *s, uint64_t sample)
{
    return sample / s->chunk_samples * s->chunk_bytes + sample % s->chunk_samples * s->sample_bytes;
}

static struct spot spot_of(const struct hr__cursor *cursor, uint64_t from, uint64_t to)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    uint64_t first = from % s->ring_samples, last = first + (to - from) - 1;
    return (struct spot){
        .first = first / s->chunk_samples,
        .last = last / s->chunk_samples,
        .begin = byte_at(s, first),
        .end = byte_at(s, last) + s->sample_bytes,
    };
}

int hr__lease_is_possible(const struct hr__cursor *cursor, uint64_t from, uint64_t to)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    if (cursor->only_copies || to - from > s->ring_samples / 2)
        return 0;
    if (!s->is_gapless && from / s->chunk_samples != (to - 1) / s->chunk_samples)
        return 0;
    return spot_of(cursor, from, to).begin % ALIGNMENT == 0;
}

/* Windows. */

static struct hr__lease_window *make_window(const struct hr__cursor *cursor)
{
    uint64_t places = 2 * cursor->shape.places;
    struct hr__lease_window *w =
        hr__alloc(HR__TAG_AGENT, 1, sizeof *w + places * sizeof *w->offsets);
    if (!w)
        return NULL;
    w->refs = 1;
    w->bytes = places * cursor->shape.chunk_bytes;
    w->base = mmap(NULL, w->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->base == MAP_FAILED) {
        hr__free(w);
        return NULL;
    }
    memset(w->offsets, 0xff, places * sizeof *w->offsets);
    return w;
}

static void unref_window_locked(struct hr__lease_window **window)
{
    struct hr__lease_window *w = *window;
    *window = NULL;
    if (!w || --w->refs)
        return;
    munmap(w->base, w->bytes);
    hr__free(w);
}

static int overlaps(const struct hr__lease *lease, uintptr_t begin, uintptr_t end)
{
    return lease->begin < end && begin < lease->end;
}

static int is_covered(const struct hr__lease_window *w, const struct hr__lease *but,
                      uintptr_t begin, uintptr_t end)
{
    for (const struct hr__lease *l = w->leases; l; l = l->next)
        if (l != but && overlaps(l, begin, end))
            return 1;
    return 0;
}

/* Gives up a window for new leases: unmaps places without a lease, but keeps their addresses. */
static void retire_locked(struct hr__cursor *cursor)
{
    struct hr__lease_window *w = cursor->window;
    uint64_t bytes = cursor->shape.chunk_bytes;
    for (uint64_t p = 0; w->leases && p < 2 * cursor->shape.places; p++) {
        uintptr_t begin = (uintptr_t)w->base + p * bytes;
        if (w->offsets[p] == UNMAPPED || is_covered(w, NULL, begin, begin + bytes))
            continue;
        (void)mmap((void *)begin, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        w->offsets[p] = UNMAPPED;
    }
    unref_window_locked(&cursor->window);
}

/* Lists. */

static void link_lease_locked(struct hr__lease *lease)
{
    struct hr__cursor *cursor = lease->cursor;
    struct hr__lease_window *w = lease->window;
    lease->next = w->leases;
    if (w->leases)
        w->leases->previous = lease;
    w->leases = lease;
    w->refs++;
    lease->next_shared = cursor->shared;
    if (cursor->shared)
        cursor->shared->previous_shared = lease;
    cursor->shared = lease;
    cursor->held++;
    atomic_fetch_add_explicit(&cursor->refs, 1, memory_order_relaxed);
}

static void unlink_shared_locked(struct hr__lease *lease)
{
    struct hr__cursor *cursor = lease->cursor;
    if (lease->next_shared)
        lease->next_shared->previous_shared = lease->previous_shared;
    if (lease->previous_shared)
        lease->previous_shared->next_shared = lease->next_shared;
    else if (cursor->shared == lease)
        cursor->shared = lease->next_shared;
    lease->previous_shared = lease->next_shared = NULL;
}

static void unlink_window_locked(struct hr__lease *lease)
{
    if (lease->next)
        lease->next->previous = lease->previous;
    if (lease->previous)
        lease->previous->next = lease->next;
    else
        lease->window->leases = lease->next;
    unref_window_locked(&lease->window);
}

/* Dropping pages. */

static uintptr_t page_of(const struct hr__cursor *cursor, uintptr_t address)
{
    return address & ~(uintptr_t)(cursor->pages.page_bytes - 1);
}

/* Writes the first and last page if the batch shares them. Returns how many these are. */
static int edges_of(const struct hr__lease *lease, uintptr_t pages[2])
{
    uintptr_t first = page_of(lease->cursor, lease->begin),
              last = page_of(lease->cursor, lease->end);
    int n = 0;
    if (first != lease->begin)
        pages[n++] = first;
    if (last != lease->end && !(n && first == last))
        pages[n++] = last;
    return n;
}

/* Drops private copies of pages that belong to the batch alone. Returns whether there were any. */
static int drop_inside(const struct hr__lease *lease)
{
    const struct hr__cursor *cursor = lease->cursor;
    uintptr_t begin = page_of(cursor, lease->begin + cursor->pages.page_bytes - 1);
    uintptr_t end = page_of(cursor, lease->end);
    return begin < end && hr__pages_drop(&cursor->pages, (void *)begin, end - begin);
}

/* The same for the pages at its ends, if no other lease covers them. */
static int drop_edges_locked(const struct hr__lease *lease)
{
    const struct hr__cursor *cursor = lease->cursor;
    size_t bytes = cursor->pages.page_bytes;
    uintptr_t pages[2];
    int count = edges_of(lease, pages), found = 0;
    for (int i = 0; i < count; i++)
        if (!is_covered(lease->window, lease, pages[i], pages[i] + bytes))
            found |= hr__pages_drop(&cursor->pages, (void *)pages[i], bytes);
    return found;
}

/* Keeps the lease's memory for the next lease, or frees it. */
static void free_lease_locked(struct hr__cursor *cursor, struct hr__lease *lease)
{
    if (cursor->spare && cursor->spare->bytes >= lease->bytes) {
        hr__free(lease);
        return;
    }
    hr__free(cursor->spare);
    cursor->spare = lease;
}

/* Checks the pages of the resting leases, and ends these leases. */
static void look_locked(struct hr__cursor *cursor)
{
    uint64_t faults = hr__pages_faults();
    cursor->faults = faults;
    while (cursor->resting) {
        struct hr__lease *lease = cursor->resting;
        int is_suspect = lease->faults != faults, found = 0;
        cursor->resting = lease->next_shared;
        if (is_suspect)
            found |= drop_inside(lease);
        if (is_suspect || lease->is_edge_private)
            found |= drop_edges_locked(lease);
        if (found)
            cursor->is_changing = 1;
        unlink_window_locked(lease);
        free_lease_locked(cursor, lease);
    }
    cursor->resting_count = 0;
}

/* Returns whether the batch can be mapped in the window without changing the map under a lease. */
static int fits_locked(const struct hr__cursor *cursor, const struct spot *spot)
{
    const struct hr__lease_window *w = cursor->window;
    uint64_t bytes = cursor->shape.chunk_bytes;
    uintptr_t base = (uintptr_t)w->base;
    if (!w->leases)
        return 1;
    if (is_covered(w, NULL, base + spot->begin, base + spot->end))
        return 0;
    for (uint64_t p = spot->first; p <= spot->last; p++) {
        uintptr_t place = base + p * bytes;
        if (w->offsets[p] != spot->offsets[p - spot->first] &&
            is_covered(w, NULL, place, place + bytes))
            return 0;
    }
    return 1;
}

/* Maps a place. Returns -ENOTSUP if this process locks its memory. */
static int map_place_locked(struct hr__cursor *cursor, uint64_t place, uint64_t offset,
                            struct hr_error *error)
{
    struct hr__lease_window *w = cursor->window;
    uint64_t bytes = cursor->shape.chunk_bytes;
    char *at = w->base + place * bytes;
    w->offsets[place] = UNMAPPED;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
             cursor->data, (off_t)offset) == MAP_FAILED)
        return hr__fail(error, -ENOMEM,
                        "no room to map the agent's memory: %s; hold fewer batches, or raise the "
                        "limits of address space (ulimit -v) and of maps (vm.max_map_count)",
                        hr__errno_text(errno));
    if (hr__pages_is_private(&cursor->pages, at) == 1) {
        cursor->only_copies = 1;
        return hr__fail(error, -ENOTSUP, "this process locks its memory: batches are copied");
    }
    w->offsets[place] = offset;
    return 0;
}

/* Finds or makes a window for the batch and maps its places. *spot gets the addresses. */
static int place_locked(struct hr__cursor *cursor, struct spot *spot, struct hr_error *error)
{
    int r = 0;
    if (cursor->resting && !fits_locked(cursor, spot))
        look_locked(cursor);
    if (!cursor->window || !fits_locked(cursor, spot)) {
        struct hr__lease_window *w = make_window(cursor);
        if (!w)
            return hr__fail(error, -ENOMEM, "out of memory for a map of the agent's memory");
        if (cursor->window)
            retire_locked(cursor);
        cursor->window = w;
        cursor->windows++;
    }
    for (uint64_t p = spot->first; p <= spot->last && !r; p++) {
        uint64_t offset = spot->offsets[p - spot->first];
        if (cursor->window->offsets[p] != offset)
            r = map_place_locked(cursor, p, offset, error);
    }
    spot->begin += (uintptr_t)cursor->window->base;
    spot->end += (uintptr_t)cursor->window->base;
    return r;
}

/* Pages at a batch's ends, which other batches may share. */

/* Returns whether other leases may have made the page private. */
static int is_suspect(const struct hr__lease *lease, uintptr_t page)
{
    size_t bytes = lease->cursor->pages.page_bytes;
    if (!is_covered(lease->window, lease, page, page + bytes))
        return 0;
    uint64_t faults = hr__pages_faults();
    for (const struct hr__lease *l = lease->window->leases; l; l = l->next)
        if (l != lease && overlaps(l, page, page + bytes) &&
            (l->is_own || l->is_edge_private || l->faults != faults))
            return 1;
    return 0;
}

/* If a neighbour made a page private before our samples were there, copies our part into it. */
static int mend_edges_locked(struct hr__lease *lease, struct hr_error *error)
{
    struct hr__cursor *cursor = lease->cursor;
    const struct hr__lease_window *w = lease->window;
    uintptr_t pages[2];
    int count = edges_of(lease, pages);
    for (int i = 0; i < count; i++) {
        if (!is_suspect(lease, pages[i]) || !hr__pages_is_private(&cursor->pages, (void *)pages[i]))
            continue;
        uintptr_t end = pages[i] + cursor->pages.page_bytes;
        uintptr_t from = lease->begin > pages[i] ? lease->begin : pages[i];
        uintptr_t to = lease->end < end ? lease->end : end;
        uint64_t inside = from - (uintptr_t)w->base, bytes = cursor->shape.chunk_bytes;
        lease->is_edge_private = 1;
        int r = hr__cursor_read(cursor, w->offsets[inside / bytes] + inside % bytes, to - from,
                                (void *)from, error);
        if (r)
            return r;
    }
    return 0;
}

/* Private copies of batches that are kept long. */

static int own_locked(struct hr__lease *lease, struct hr_error *error)
{
    struct hr__cursor *cursor = lease->cursor;
    size_t page = cursor->pages.page_bytes;
    uintptr_t begin = page_of(cursor, lease->begin), end = page_of(cursor, lease->end + page - 1);
    if (hr__pages_own(&cursor->pages, (void *)begin, end - begin))
        return hr__fail(error, -ENOMEM,
                        "out of memory for a copy of %zu bytes of a batch that is kept: release "
                        "batches sooner",
                        (size_t)(end - begin));
    for (struct hr__lease *l = lease->window->leases; l; l = l->next)
        if (l != lease && overlaps(l, begin, end))
            l->is_edge_private = 1;
    lease->is_own = 1;
    unlink_shared_locked(lease);
    cursor->owned++;
    return 0;
}

/* Makes private copies of leases that end after `from` and begin before `before`. */
static int own_some_locked(struct hr__cursor *cursor, uint64_t from, uint64_t before,
                           struct hr_error *error)
{
    int r = 0;
    for (struct hr__lease *l = cursor->shared, *next; l && !r; l = next) {
        next = l->next_shared;
        if (l->to > from && l->from < before && !l->is_leaving)
            r = own_locked(l, error);
    }
    return r;
}

/* Does the same without the lock held, then moves the mark. */
static int own_some(struct hr__cursor *cursor, uint64_t from, uint64_t before,
                    struct hr_error *error)
{
    pthread_mutex_lock(&cursor->lock);
    int r = own_some_locked(cursor, from, before, error);
    int ring = hr__cursor_move_mark_locked(cursor);
    pthread_mutex_unlock(&cursor->lock);
    if (ring)
        hr__cursor_ring(cursor);
    return r;
}

int hr__lease_own_all(struct hr__cursor *cursor, struct hr_error *error)
{
    return own_some(cursor, 0, UINT64_MAX, error);
}

int hr__lease_make_way(struct hr__cursor *cursor, uint64_t from, uint64_t to,
                       struct hr_error *error)
{
    /* Assume that the next batch is as large. */
    uint64_t reach = cursor->shape.ring_samples - (to - from);
    return to > reach ? own_some(cursor, 0, to - reach, error) : 0;
}

int hr__cursor_go_to(struct hr__cursor *cursor, uint64_t sequence, struct hr_error *error)
{
    /* Held samples beyond `next` would be unknown to the agent, so make these leases private. */
    int r = own_some(cursor, sequence, UINT64_MAX, error);
    /* So would samples taken more than a ring's length ago. */
    if (!r && sequence > cursor->shape.ring_samples)
        r = own_some(cursor, 0, sequence - cursor->shape.ring_samples, error);
    if (r)
        return r;
    pthread_mutex_lock(&cursor->lock);
    cursor->pending = HR__SEQUENCE_NONE;
    cursor->next = sequence;
    atomic_store_explicit(&cursor->control->next, sequence, memory_order_seq_cst);
    int ring = hr__cursor_move_mark_locked(cursor);
    pthread_mutex_unlock(&cursor->lock);
    if (ring)
        hr__cursor_ring(cursor);
    return 0;
}

/* Returns the spare block or a new one. Only struct hr__lease in it is zeroed. */
static struct hr__lease *get_block(struct hr__cursor *cursor, size_t bytes)
{
    pthread_mutex_lock(&cursor->lock);
    struct hr__lease *lease = cursor->spare;
    if (lease && lease->bytes >= bytes)
        cursor->spare = NULL;
    else
        lease = NULL;
    pthread_mutex_unlock(&cursor->lock);
    if (lease)
        bytes = lease->bytes;
    else
        lease = hr__alloc_aligned(HR__TAG_AGENT, bytes, 0);
    if (lease) {
        memset(lease, 0, sizeof *lease);
        lease->bytes = bytes;
    }
    return lease;
}

/* Makes a lease that is in no list yet, with the header's entries. */
static int make_lease(struct hr__lease **out, struct hr__cursor *cursor, uint64_t from, uint64_t to,
                      struct hr_error *error)
{
    size_t count = to - from, chunks = hr__cursor_chunks(cursor, from, to);
    size_t extents = cursor->is_padded ? count * cursor->spec.dims : 0;
    size_t bytes = sizeof(struct hr__lease) + (3 * count + extents + chunks) * sizeof(int64_t);
    struct hr__lease *lease = get_block(cursor, bytes);
    if (!lease)
        return hr__fail(error, -ENOMEM, "out of memory for a batch of %zu samples", count);
    struct hr_batch *batch = &lease->batch;
    struct hr__seen *seen = &lease->seen;
    seen->labels = (int64_t *)(lease + 1);
    seen->indices = seen->labels + count;
    seen->instead = seen->indices + count;
    seen->extents = extents ? seen->instead + count : NULL;
    seen->offsets = (uint64_t *)(seen->instead + count + extents);
    int r = hr__cursor_look(cursor, from, to, seen, error);
    if (r) {
        hr__free(lease);
        return r;
    }
    lease->cursor = cursor;
    lease->from = from;
    lease->to = to;
    batch->owner = &lease_owner;
    batch->spec = &cursor->spec;
    atomic_init(&batch->refs, 1);
    batch->count = count;
    batch->labels = seen->labels;
    batch->indices = seen->indices;
    batch->extents = seen->extents;
    batch->replaced = seen->replaced;
    *out = lease;
    return 0;
}

/* Maps the lease in a window and adds it to the lists. */
static int settle_lease(struct hr__lease *lease, struct hr_error *error)
{
    struct hr__cursor *cursor = lease->cursor;
    struct spot spot = spot_of(cursor, lease->from, lease->to);
    int ring = 0;
    spot.offsets = lease->seen.offsets;
    pthread_mutex_lock(&cursor->lock);
    int r = place_locked(cursor, &spot, error);
    lease->faults = cursor->faults;
    lease->window = cursor->window;
    lease->begin = spot.begin;
    lease->end = spot.end;
    lease->batch.images = (void *)spot.begin;
    if (!r)
        r = mend_edges_locked(lease, error);
    if (!r) {
        link_lease_locked(lease);
        cursor->pending = HR__SEQUENCE_NONE;
        ring = hr__cursor_move_mark_locked(cursor);
    }
    pthread_mutex_unlock(&cursor->lock);
    if (ring)
        hr__cursor_ring(cursor);
    return r;
}

int hr__lease_create(struct hr__lease **out, struct hr__cursor *cursor, uint64_t from, uint64_t to,
                     struct hr_error *error)
{
    *out = NULL;
    struct hr__lease *lease = NULL;
    int r = make_lease(&lease, cursor, from, to, error);
    if (r)
        return r;
    r = hr__lease_make_way(cursor, from, to, error);
    if (!r)
        r = hr__cursor_take(cursor, from, to);
    if (r)
        goto fail;
    r = settle_lease(lease, error);
    if (!r) {
        *out = lease;
        return 0;
    }
    (void)hr__cursor_go_to(cursor, from, NULL);
fail:
    hr__free(lease);
    return r;
}

/* Returns whether the pages can be checked later. */
static int may_rest_locked(const struct hr__lease *lease)
{
    const struct hr__cursor *cursor = lease->cursor;
    return lease->window == cursor->window && !lease->is_own && !lease->is_edge_private &&
           !cursor->is_changing;
}

static void rest_locked(struct hr__lease *lease)
{
    struct hr__cursor *cursor = lease->cursor;
    lease->next_shared = cursor->resting;
    cursor->resting = lease;
    if (++cursor->resting_count >= RESTING_MAX)
        look_locked(cursor);
}

/* The result of dropping the pages of a released lease. */
struct traces {
    uint64_t faults; /* page faults of the process before the check */
    int is_suspect;  /* pages may have become private since the lease was made */
    int found;       /* some had */
};

/* Begins to release a lease whose pages are dropped at once. That may take long, so it happens
 * without the lock; until it ends the lease still keeps its addresses. Returns whether the whole
 * window will be unmapped with it: it is the last lease of a window without new ones. */
static int begin_leaving_locked(struct hr__lease *lease)
{
    lease->is_leaving = 1;
    return lease->window != lease->cursor->window && lease->window->refs == 1;
}

/* Drops the pages that belong to the lease alone. Its is_own and faults do not change meanwhile. */
static struct traces give_back(const struct hr__lease *lease, int is_last)
{
    struct traces t = {.faults = hr__pages_faults()};
    t.is_suspect = !is_last && (lease->is_own || t.faults != lease->faults);
    t.found = t.is_suspect && drop_inside(lease);
    return t;
}

static void end_leaving_locked(struct hr__lease *lease, const struct traces *traces)
{
    struct hr__cursor *cursor = lease->cursor;
    int found = traces->found;
    if (traces->faults > cursor->faults)
        cursor->faults = traces->faults;
    if (traces->is_suspect || lease->is_edge_private)
        found |= drop_edges_locked(lease);
    cursor->unchanged = found ? 0 : cursor->unchanged + 1;
    if (cursor->unchanged >= UNCHANGED_ENOUGH)
        cursor->is_changing = 0;
    unlink_window_locked(lease);
    unlink_shared_locked(lease);
    free_lease_locked(cursor, lease);
}

/* Frees what is left of leases: resting ones, the spare block and the window. */
static void clear(struct hr__cursor *cursor)
{
    while (cursor->resting) {
        struct hr__lease *lease = cursor->resting;
        cursor->resting = lease->next_shared;
        unlink_window_locked(lease);
        hr__free(lease);
    }
    hr__free(cursor->spare);
    cursor->spare = NULL;
    unref_window_locked(&cursor->window);
}

void hr__cursor_unref(struct hr__cursor **pointer)
{
    struct hr__cursor *cursor = *pointer;
    if (!cursor)
        return;
    *pointer = NULL;
    if (atomic_fetch_sub_explicit(&cursor->refs, 1, memory_order_acq_rel) != 1)
        return;
    /* No lease is left, so only the window for the next lease remains. In a forked child the lists
     * may have been copied in the middle of a change; then the window stays mapped. */
    if (cursor->pid == getpid() || !pthread_mutex_trylock(&cursor->lock))
        clear(cursor);
    hr__cursor_free(cursor);
}

static void release(struct hr_batch *batch)
{
    struct hr__lease *lease =
        (struct hr__lease *)(void *)((char *)batch - offsetof(struct hr__lease, batch));
    struct hr__cursor *cursor = lease->cursor;
    hr__batch_rows_destroy(&batch->rows);
    hr__free(batch->masks);
    hr__free(batch->mask_extents);
    batch->masks = NULL;
    batch->mask_extents = NULL;
    if (cursor->pid != getpid()) {
        /* A forked child: locks and lists belong to its parent. */
        hr__free(lease);
        hr__cursor_unref(&cursor);
        return;
    }
    pthread_mutex_lock(&cursor->lock);
    if (may_rest_locked(lease)) {
        unlink_shared_locked(lease);
        rest_locked(lease);
    } else {
        int is_last = begin_leaving_locked(lease);
        pthread_mutex_unlock(&cursor->lock);
        struct traces traces = give_back(lease, is_last);
        pthread_mutex_lock(&cursor->lock);
        end_leaving_locked(lease, &traces);
    }
    cursor->held--;
    int ring = hr__cursor_move_mark_locked(cursor);
    pthread_mutex_unlock(&cursor->lock);
    if (ring)
        hr__cursor_ring(cursor);
    hr__cursor_unref(&cursor);
}
