/*
 * Making slots, handing them out and taking them back (ring.h).
 *
 * The ring's lock guards the lists and counts. Only the accelerator's record and done, which do not
 * block, are called under it. Slots are made and freed without it, because page-locking takes
 * milliseconds.
 */
#include "loader/ring.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "loader/attach.h"
#include "loader/batch_rows.h"
#include "recipe/recipe.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* How long freeing a slot waits for a fence that cannot be recorded. */
#define UNRECORDED_PATIENCE_NS UINT64_C(2000000000)

/* How long to wait for slots while no copy completes: a device that is always busy must not stop
 * the loader. */
#define COPY_PATIENCE_NS UINT64_C(1000000000)

struct hr__ring {
    atomic_uint refs;   /* the loader and the batches handed out */
    atomic_int owner;   /* process id */
    size_t image_bytes; /* of one slot */
    size_t batch_size;
    struct hr__row_table *rows; /* of the samples, a reference; NULL: they have none */
    struct hr__ring_view view[HR_RECIPE_MAX_VIEWS];
    size_t views;
    int padded;          /* samples may differ in size */
    size_t masks_offset; /* of the masks, in bytes from the images; 0: there are none */
    const struct hr__accelerator *accelerator;
    void *accelerator_state;
    int whole_pages;
    struct hr__home home; /* of the consumer */

    pthread_mutex_t lock;     /* guards what follows */
    struct hr_batch *free;    /* ready for use, last used first because its pages are warm */
    struct hr_batch *pending; /* released; copies may still be in progress */
    size_t planned;           /* number of slots */
    size_t total;             /* slots that exist, wherever they are */
    size_t held;              /* how many of them are handed out */
    uint64_t moved_ns;        /* when a copy was last seen to complete or begin */
    uint64_t grown;
    size_t most_beyond; /* slots beyond the plan that there have been at once */
    int closed; /* the loader dropped its reference */
};

static void unref(struct hr__ring *ring)
{
    if (atomic_fetch_sub_explicit(&ring->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (atomic_load(&ring->owner) == getpid() && ring->accelerator)
        ring->accelerator->close(ring->accelerator_state);
    pthread_mutex_destroy(&ring->lock);
    hr__row_table_unref(&ring->rows);
    hr__free(ring);
}

/* Frees memory only: for a half-made slot, and in a forked child. */
static void free_memory(struct hr_batch *batch)
{
    if (batch->images)
        hr__numa_unbind(batch->images, batch->ring->image_bytes, batch->ring->home.node);
    hr__free(batch->images);
    hr__free(batch->labels);
    hr__free(batch->indices);
    hr__free(batch->positions);
    hr__free(batch->extents);
    hr__free(batch->mask_extents);
    hr__batch_rows_destroy(&batch->rows);
    hr__free(batch);
}

static void free_slot(struct hr_batch *batch)
{
    struct hr__ring *ring = batch->ring;
    ring->accelerator->forget(ring->accelerator_state, &batch->fence);
    ring->accelerator->unlock(ring->accelerator_state, batch->images);
    free_memory(batch);
}

/* Allocates the memory for images: 64-byte aligned; in whole pages if it is to be page-locked;
 * aligned to a huge page if it is large enough to benefit. */
static int make_images(struct hr__ring *ring, struct hr_batch *batch)
{
    size_t alignment = 64;
    size_t bytes = ring->image_bytes;
    if (ring->whole_pages)
        alignment = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes >= HUGE_PAGE_BYTES)
        alignment = HUGE_PAGE_BYTES;
    if (alignment > 64)
        bytes = hr__round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
    batch->images = hr__alloc_aligned_to(HR__TAG_SLOT, bytes, 0, alignment);
    if (!batch->images)
        return -ENOMEM;
    if (alignment == HUGE_PAGE_BYTES)
        /* Optional: without huge pages the memory only is slower. */
        (void)madvise(batch->images, bytes, MADV_HUGEPAGE);
    hr__numa_bind(batch->images, ring->image_bytes, ring->home.node);
    return 0;
}

/* Makes the extents of a padded slot, whose fresh memory may hold anything. */
static int make_extents(const struct hr__ring *ring, struct hr_batch *batch)
{
    batch->extents =
        hr__alloc(HR__TAG_SLOT, ring->batch_size * batch->spec->dims, sizeof *batch->extents);
    if (ring->masks_offset)
        batch->mask_extents =
            hr__alloc(HR__TAG_SLOT, ring->batch_size * 2, sizeof *batch->mask_extents);
    if (!batch->extents || (ring->masks_offset && !batch->mask_extents))
        return -ENOMEM;
    for (size_t i = 0; i < ring->batch_size * batch->spec->dims; i++)
        batch->extents[i] = batch->spec->shape[i % batch->spec->dims];
    return 0;
}

static void release_slot(struct hr_batch *batch);

static const struct hr__batch_owner slot_owner = {.release = release_slot,
                                                  .give_back = hr__ring_return};

static int make_slot(struct hr__ring *ring, struct hr_batch **out, struct hr_error *error)
{
    struct hr_batch *batch = hr__alloc(HR__TAG_LOADER, 1, sizeof *batch);
    int r = -ENOMEM;
    if (!batch)
        goto fail;
    batch->owner = &slot_owner;
    batch->spec = &ring->view[0].spec;
    batch->ring = ring;
    batch->labels = hr__alloc(HR__TAG_SLOT, ring->batch_size, sizeof *batch->labels);
    batch->indices = hr__alloc(HR__TAG_SLOT, ring->batch_size, sizeof *batch->indices);
    batch->positions = hr__alloc(HR__TAG_LOADER, ring->batch_size, sizeof *batch->positions);
    if (!batch->labels || !batch->indices || !batch->positions || make_images(ring, batch))
        goto fail;
    if (ring->padded && make_extents(ring, batch))
        goto fail;
    if (ring->masks_offset)
        batch->masks = (uint8_t *)batch->images + ring->masks_offset;
    r = ring->rows ? hr__batch_rows_create(&batch->rows, ring->rows, ring->batch_size, error) : 0;
    if (!r)
        r = ring->accelerator->lock(ring->accelerator_state, batch->images, ring->image_bytes,
                                    error);
    if (r) {
        free_memory(batch);
        return r;
    }
    *out = batch;
    return 0;
fail:
    if (batch)
        free_memory(batch);
    return hr__fail(error, r,
                    "out of memory for a batch of %zu bytes: lower batch_size or batches_ahead",
                    ring->image_bytes);
}

/* Finds the places of the views in a slot, and its size. */
static int lay_out(struct hr__ring *ring, const struct hr__ring_options *options,
                   struct hr_error *error)
{
    ring->views = hr_recipe_views(options->recipe);
    ring->padded = hr__recipe_options(options->recipe)->padded;
    for (size_t v = 0; v < ring->views; v++) {
        struct hr__ring_view *view = &ring->view[v];
        size_t bytes;
        hr_recipe_view_output(options->recipe, v, &view->spec);
        view->offset = ring->image_bytes;
        if (__builtin_mul_overflow(options->batch_size, view->spec.bytes, &bytes) ||
            bytes > SIZE_MAX / 4 - ring->image_bytes)
            return hr__fail(error, -EINVAL, "batch_size %zu x %zu bytes per sample is too large",
                            options->batch_size, view->spec.bytes);
        ring->image_bytes += v + 1 < ring->views ? (bytes + 63) & ~(size_t)63 : bytes;
    }
    if (options->masks) { /* they have a byte for each pixel of the images */
        const struct hr_tensor_spec *spec = &ring->view[0].spec;
        ring->masks_offset = (ring->image_bytes + 63) & ~(size_t)63;
        ring->image_bytes =
            ring->masks_offset + options->batch_size * (size_t)spec->height * (size_t)spec->width;
    }
    return 0;
}

int hr__ring_create(struct hr__ring **out, const struct hr__ring_options *options,
                    struct hr_error *error)
{
    *out = NULL;
    struct hr__ring *ring = hr__alloc(HR__TAG_LOADER, 1, sizeof *ring);
    if (!ring)
        return hr__fail(error, -ENOMEM, "out of memory for the ring of batches");
    int r = lay_out(ring, options, error);
    if (r) {
        hr__free(ring);
        return r;
    }
    const struct hr__accelerator *accelerator =
        options->pinned ? &hr__accelerator_cuda : &hr__accelerator_none;
    r = accelerator->open(&ring->accelerator_state, error);
    if (r) {
        hr__free(ring);
        return r;
    }
    ring->accelerator = accelerator;
    char bus_id[64];
    int has_device = accelerator->bus_id(ring->accelerator_state, bus_id, sizeof bus_id);
    ring->home = hr__numa_home("", has_device ? bus_id : NULL, options->processes);
    atomic_init(&ring->refs, 1);
    atomic_init(&ring->owner, getpid());
    ring->batch_size = options->batch_size;
    ring->planned = options->planned;
    ring->whole_pages = options->pinned;
    ring->rows = hr__row_table_ref(options->rows);
    pthread_mutex_init(&ring->lock, NULL);
    *out = ring;
    return 0;
}

void hr__ring_set_owner(struct hr__ring *ring, int pid)
{
    atomic_store(&ring->owner, pid);
}

static void record(struct hr__ring *ring, struct hr_batch *batch)
{
    batch->recorded = !ring->accelerator->record(ring->accelerator_state, &batch->fence);
}

/* Returns non-zero if no copy can still be reading the slot. */
static int is_idle(struct hr__ring *ring, struct hr_batch *batch)
{
    return batch->recorded && ring->accelerator->done(ring->accelerator_state, &batch->fence);
}

/* Puts an idle slot into the free list and returns NULL, or removes it from the ring and returns it
 * for the caller to free after unlocking. */
static struct hr_batch *settle_locked(struct hr__ring *ring, struct hr_batch *batch)
{
    if (!ring->closed && ring->total - ring->held <= ring->planned) {
        batch->next = ring->free;
        ring->free = batch;
        return NULL;
    }
    ring->total--;
    return batch;
}

/* Settles pending slots whose copies are complete. Returns a list of slots to free. */
static struct hr_batch *poll_locked(struct hr__ring *ring)
{
    struct hr_batch *surplus = NULL;
    struct hr_batch **link = &ring->pending;
    while (*link) {
        struct hr_batch *batch = *link;
        if (!is_idle(ring, batch)) {
            link = &batch->next;
            continue;
        }
        *link = batch->next;
        ring->moved_ns = hr__now_ns();
        if (settle_locked(ring, batch)) {
            batch->next = surplus;
            surplus = batch;
        }
    }
    return surplus;
}

static void free_list(struct hr_batch *list)
{
    while (list) {
        struct hr_batch *next = list->next;
        free_slot(list);
        list = next;
    }
}

/* Returns non-zero if waiting for a fence is likely to free a slot soon. */
static int copies_move_locked(const struct hr__ring *ring)
{
    const struct hr_batch *batch = ring->pending;
    while (batch && !batch->recorded)
        batch = batch->next;
    return batch && hr__now_ns() - ring->moved_ns < COPY_PATIENCE_NS;
}

int hr__ring_acquire(struct hr__ring *ring, int grow, struct hr_batch **out, size_t *beyond,
                     struct hr_error *error)
{
    pthread_mutex_lock(&ring->lock);
    struct hr_batch *surplus = poll_locked(ring);
    struct hr_batch *batch = ring->free;
    int make = !batch && (ring->total < ring->planned || grow);
    int r = 0;
    if (!batch && !make)
        r = copies_move_locked(ring) ? -EBUSY : -EAGAIN;
    if (batch)
        ring->free = batch->next;
    else if (make)
        ring->total++;
    pthread_mutex_unlock(&ring->lock);
    free_list(surplus);
    if (make) {
        r = make_slot(ring, &batch, error);
        pthread_mutex_lock(&ring->lock);
        if (r) {
            ring->total--;
        } else if (ring->total > ring->planned) {
            ring->grown++;
            if (ring->total - ring->planned > ring->most_beyond)
                *beyond = ring->most_beyond = ring->total - ring->planned;
        }
        pthread_mutex_unlock(&ring->lock);
    }
    if (r)
        return r;
    batch->next = NULL;
    *out = batch;
    return 0;
}

void hr__ring_return(struct hr_batch *batch)
{
    struct hr__ring *ring = batch->ring;
    pthread_mutex_lock(&ring->lock);
    struct hr_batch *surplus = settle_locked(ring, batch);
    pthread_mutex_unlock(&ring->lock);
    if (surplus)
        free_slot(surplus);
}

void hr__ring_deliver(struct hr_batch *batch)
{
    struct hr__ring *ring = batch->ring;
    atomic_store_explicit(&batch->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ring->refs, 1, memory_order_relaxed);
    batch->recorded = 0;
    pthread_mutex_lock(&ring->lock);
    ring->held++;
    pthread_mutex_unlock(&ring->lock);
}

/* Waits until copies from a slot of a closed ring are complete, then frees it. If the fence cannot
 * be recorded for long (a stream capture that does not end), the memory is leaked: that is better
 * than changing it during a copy. */
static void retire(struct hr__ring *ring, struct hr_batch *batch)
{
    uint64_t start = hr__now_ns();
    long pause_ns = 20000;
    while (!is_idle(ring, batch)) {
        if (!batch->recorded && hr__now_ns() - start > UNRECORDED_PATIENCE_NS) {
            hr__log(HR_LOG_WARNING,
                    "a stream capture hides whether copies from a batch are complete: its %zu "
                    "bytes are not freed",
                    ring->image_bytes);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        if (!batch->recorded) {
            /* Each try disturbs a capture in progress, so try rarely. */
            pause_ns = 100000000;
            record(ring, batch);
        } else if (pause_ns < 1000000) {
            pause_ns *= 2;
        }
    }
    free_slot(batch);
}

/* The consumer may have changed what the largest sample takes of each place. */
static void widen_extents(struct hr_batch *batch)
{
    size_t dims = batch->spec->dims;
    for (size_t d = 0; batch->extents && d < dims; d++) {
        int64_t most = 0;
        for (size_t i = 0; i < batch->count; i++)
            most = batch->extents[i * dims + d] > most ? batch->extents[i * dims + d] : most;
        for (size_t i = 0; i < batch->count; i++)
            batch->extents[i * dims + d] = most;
    }
}

/* Takes back a slot at its last release. */
static void take_back(struct hr__ring *ring, struct hr_batch *batch)
{
    widen_extents(batch);
    record(ring, batch);
    int idle = is_idle(ring, batch);
    struct hr_batch *surplus = NULL;
    pthread_mutex_lock(&ring->lock);
    ring->held--;
    int closed = ring->closed;
    /* Recording works (again). Record the missing fences on this thread, which just released a
     * batch: doing it from other threads might disturb a capture. */
    for (struct hr_batch *b = batch->recorded ? ring->pending : NULL; b; b = b->next)
        if (!b->recorded)
            record(ring, b);
    if (closed) {
        ring->total--;
    } else if (idle) {
        surplus = settle_locked(ring, batch);
    } else {
        if (!ring->pending)
            ring->moved_ns = hr__now_ns();
        batch->next = ring->pending;
        ring->pending = batch;
    }
    pthread_mutex_unlock(&ring->lock);
    if (surplus)
        free_slot(surplus);
    if (closed)
        retire(ring, batch);
}

static void release_slot(struct hr_batch *batch)
{
    struct hr__ring *ring = batch->ring;
    if (atomic_load_explicit(&ring->owner, memory_order_relaxed) == getpid())
        take_back(ring, batch);
    else
        free_memory(batch); /* a forked child, whose copy of the memory is its own */
    unref(ring);
}

void hr__ring_close(struct hr__ring **pointer)
{
    struct hr__ring *ring = *pointer;
    if (!ring)
        return;
    pthread_mutex_lock(&ring->lock);
    ring->closed = 1;
    struct hr_batch *idle = ring->free;
    struct hr_batch *pending = ring->pending;
    ring->free = ring->pending = NULL;
    ring->total = ring->held;
    pthread_mutex_unlock(&ring->lock);
    free_list(idle);
    while (pending) {
        struct hr_batch *next = pending->next;
        retire(ring, pending);
        pending = next;
    }
    unref(ring);
    *pointer = NULL;
}

static void free_memory_list(struct hr_batch *list)
{
    while (list) {
        struct hr_batch *next = list->next;
        free_memory(list);
        list = next;
    }
}

void hr__ring_abandon(struct hr__ring **pointer)
{
    struct hr__ring *ring = *pointer;
    if (!ring)
        return;
    /* If the lock was held at the fork, it will never be released here, and the lists may be
     * half-changed: leak their memory. */
    if (!pthread_mutex_trylock(&ring->lock)) {
        free_memory_list(ring->free);
        free_memory_list(ring->pending);
        ring->free = ring->pending = NULL;
        pthread_mutex_unlock(&ring->lock);
    }
    unref(ring);
    *pointer = NULL;
}

struct hr__home hr__ring_home(const struct hr__ring *ring)
{
    return ring->home;
}

void hr__ring_plan(struct hr__ring *ring, int more)
{
    pthread_mutex_lock(&ring->lock);
    ring->planned += (size_t)(ssize_t)more;
    pthread_mutex_unlock(&ring->lock);
}

void hr__ring_counts(const struct hr__ring *ring, struct hr__ring_counts *counts)
{
    struct hr__ring *r = (struct hr__ring *)ring;
    pthread_mutex_lock(&r->lock);
    counts->slots = r->total;
    counts->grown = r->grown;
    pthread_mutex_unlock(&r->lock);
    counts->slot_bytes = r->image_bytes + r->batch_size * 2 * sizeof(int64_t);
    if (r->padded)
        counts->slot_bytes += r->batch_size * r->view[0].spec.dims * sizeof(int64_t);
    if (r->rows)
        counts->slot_bytes += hr__batch_rows_bytes(r->rows, r->batch_size);
}

void hr_batch_get(const struct hr_batch *batch, struct hr_batch_view *view)
{
    *view = (struct hr_batch_view){
        .images = batch->images,
        .spec = *batch->spec,
        .labels = batch->labels,
        .indices = batch->indices,
        .count = batch->count,
        .epoch = batch->epoch,
        .number = batch->number,
        .padding = batch->padding,
        .replaced = batch->replaced,
    };
}

void *hr__batch_place(const struct hr_batch *batch, size_t view, size_t place)
{
    const struct hr__ring_view *at = &batch->ring->view[view];
    return (char *)batch->images + at->offset + place * at->spec.bytes;
}

size_t hr__batch_views(const struct hr_batch *batch)
{
    return batch->ring ? batch->ring->views : 1;
}

int hr_batch_images(const struct hr_batch *batch, size_t view, void **images,
                    struct hr_tensor_spec *spec)
{
    if (view >= hr__batch_views(batch))
        return -ERANGE;
    *images = batch->ring ? hr__batch_place(batch, view, 0) : batch->images;
    *spec = batch->ring ? batch->ring->view[view].spec : *batch->spec;
    return 0;
}

struct hr_batch *hr_batch_ref(struct hr_batch *batch)
{
    atomic_fetch_add_explicit(&batch->refs, 1, memory_order_relaxed);
    return batch;
}

void hr_batch_release(struct hr_batch **pointer)
{
    struct hr_batch *batch = *pointer;
    if (!batch)
        return;
    *pointer = NULL;
    /* acq_rel: what this thread did with the memory happens before its reuse. */
    if (atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) != 1)
        return;
    batch->owner->release(batch);
}
