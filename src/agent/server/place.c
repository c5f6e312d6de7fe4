/* Creates a queue's memory, its cursors and its spans; see place.h. */
#include "agent/server/place_inside.h"

#include "base/error.h"
#include "base/futex.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/numa.h"
#include "base/round.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Since Linux 5.1; older headers lack it. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* The data file may grow to this many rings, leased pieces included. */
#define RINGS 3

/* Pause between two checks whether a cursor to be freed is still being read. */
#define READER_PAUSE_NS 20000

#define CHUNK_LEAST  8
#define CHUNK_MOST   64
#define PLACES_LEAST 3

/* Most bytes of one file. */
#define SIZE_MOST (UINT64_C(1) << 46)

uint64_t hr__places_chunk(size_t sample_bytes, uint64_t batch_samples, uint64_t page_bytes)
{
    for (uint64_t c = CHUNK_LEAST; c <= CHUNK_MOST && c <= batch_samples; c++)
        if (c * sample_bytes % page_bytes == 0)
            return c;
    return batch_samples;
}

/* A file of shared memory. */
struct shared_file {
    const char *name;
    uint64_t bytes;  /* allocated at once */
    uint64_t mapped; /* address space, for what it may grow to */
    int node;        /* that its pages are to be on; -1: any */
    int seals;
};

/* Creates and maps an anonymous file, and seals it. Returns the file or a negative errno. */
static int make_file(const struct shared_file *wish, void **map, struct hr_error *error)
{
    int file = memfd_create(wish->name, MFD_CLOEXEC | MFD_ALLOW_SEALING), r;
    if (file < 0)
        return hr__fail(error, -errno, "a queue's shared memory: %s", hr__errno_text(errno));
    void *at = mmap(NULL, wish->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        r = hr__fail(error, -errno, "mapping %" PRIu64 " MiB of shared memory: %s",
                     wish->mapped >> 20, hr__errno_text(errno));
        close(file);
        return r;
    }
    /* The node becomes a property of the file: whoever allocates a page of it gets it there. */
    hr__numa_bind(at, wish->mapped, wish->node);
    /* Not posix_fallocate: where the kernel cannot allocate, that writes the file instead. */
    r = fallocate(file, 0, 0, (off_t)wish->bytes) ? -errno : 0;
    if (r)
        hr__fail(error, r,
                 "%" PRIu64 " MiB of shared memory for a stream's batches: %s; lower window or "
                 "batch_size, or give the machine more memory",
                 (wish->bytes >> 20) + 1, hr__errno_text(r));
    else if (fcntl(file, F_ADD_SEALS, wish->seals) < 0)
        r = hr__fail(error, -errno, "sealing shared memory: %s", hr__errno_text(errno));
    if (r) {
        munmap(at, wish->mapped);
        close(file);
        return r;
    }
    *map = at;
    return file;
}

static int check_size(const struct hr__places *p, struct hr_error *error)
{
    uint64_t bytes, records;
    if (__builtin_mul_overflow(p->chunk_bytes, p->places * RINGS, &bytes) ||
        __builtin_mul_overflow(p->ring_samples, p->wish.record_bytes, &records) ||
        bytes > SIZE_MOST || records > SIZE_MOST)
        return hr__fail(error, -EFBIG,
                        "a ring of %" PRIu64 " batches of %" PRIu64 " samples of %zu bytes is too "
                        "large: lower window or batch_size",
                        p->wish.window, p->wish.batch_samples, p->wish.sample_bytes);
    return 0;
}

/* Checks the limits first: an allocation beyond them would not fail, but make the kernel kill
 * processes. */
static int check_memory(const struct hr__places *p, struct hr_error *error)
{
    uint64_t bytes =
        p->places * p->chunk_bytes + p->ring_samples * p->wish.record_bytes + p->control_bytes;
    struct hr__memory_limits now;
    hr__memory_limits_read(&now, "", -1);
    if (bytes > now.available)
        return hr__fail(error, -ENOMEM,
                        "a ring of %" PRIu64 " batches of %" PRIu64 " samples takes %" PRIu64
                        " MiB, and the machine has %" PRIu64
                        " MiB to give: lower window or batch_size",
                        p->wish.window, p->wish.batch_samples, bytes >> 20, now.available >> 20);
    if (bytes > now.group_left)
        return hr__fail(error, -ENOMEM,
                        "a ring of %" PRIu64 " batches of %" PRIu64 " samples takes %" PRIu64
                        " MiB, and %s leaves the agent %" PRIu64
                        " MiB: raise it, or lower window or batch_size",
                        p->wish.window, p->wish.batch_samples, bytes >> 20, now.left_file,
                        now.group_left >> 20);
    return 0;
}

static int make_header(struct hr__places *p, uint64_t page, struct hr_error *error)
{
    struct hr__header b = {
        .magic = HR__HEADER_MAGIC,
        .version = HR__SHARE_VERSION,
        .page_bytes = (uint32_t)page,
        .queue = p->wish.queue,
        .sample_bytes = p->wish.sample_bytes,
        .chunk_samples = p->chunk_samples,
        .chunk_bytes = p->chunk_bytes,
        .places = p->places,
        .data_bytes = RINGS * p->places * p->chunk_bytes,
        .is_gapless = p->chunk_bytes == p->chunk_samples * p->wish.sample_bytes,
        .places_offset = sizeof b,
        .record_bytes = p->wish.record_bytes,
    };
    b.samples_offset = b.places_offset + p->places * sizeof(struct hr__header_place);
    b.records_offset = b.samples_offset + p->ring_samples * sizeof(struct hr__header_sample);
    b.header_bytes = hr__round_up(b.records_offset + p->ring_samples * b.record_bytes, page);
    void *map;
    const struct shared_file wish = {
        .name = "headrace-header",
        .bytes = b.header_bytes,
        .mapped = b.header_bytes,
        .node = p->wish.node,
        .seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
    };
    int file = make_file(&wish, &map, error);
    if (file < 0)
        return file;
    p->header_file = file;
    p->header = map;
    memcpy(map, &b, offsetof(struct hr__header, head));
    atomic_store(&p->header->halt, HR__SEQUENCE_NONE);
    for (uint64_t i = 0; i < p->places; i++)
        atomic_store(&hr__header_places(p)[i].number, HR__SEQUENCE_NONE);
    return 0;
}

/* Allocates the pieces of the ring at once, so that a ring too large is refused here. */
static int make_data(struct hr__places *p, struct hr_error *error)
{
    void *map;
    const struct shared_file wish = {
        .name = "headrace-data",
        .bytes = p->places * p->chunk_bytes,
        .mapped = p->header->data_bytes,
        .node = p->wish.node,
        .seals = F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
    };
    int file = make_file(&wish, &map, error);
    if (file < 0)
        return file;
    p->data_file = file;
    p->data = map;
    p->pieces = p->places;
    for (uint64_t i = 0; i < p->places; i++)
        p->ring[i] = (struct hr__place){.number = HR__SEQUENCE_NONE, .piece = i};
    return 0;
}

int hr__places_create(struct hr__places **out, const struct hr__places_wish *wish,
                      struct hr_error *error)
{
    *out = NULL;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct hr__places *p = hr__alloc(HR__TAG_AGENT, 1, sizeof *p);
    if (!p)
        return hr__fail(error, -ENOMEM, "out of memory for a queue");
    pthread_mutex_init(&p->lock, NULL);
    p->wish = *wish;
    p->header_file = p->data_file = p->room = -1;
    p->is_stopped = true;
    p->chunk_samples = wish->is_pushed
                           ? wish->batch_samples
                           : hr__places_chunk(wish->sample_bytes, wish->batch_samples, page);
    p->chunk_bytes = hr__round_up(p->chunk_samples * wish->sample_bytes, page);
    p->places = (wish->window * wish->batch_samples + p->chunk_samples - 1) / p->chunk_samples;
    /* A batch may begin anywhere in a chunk, and one more chunk must fit to go on. */
    if (p->places < PLACES_LEAST)
        p->places = PLACES_LEAST;
    p->ring_samples = p->places * p->chunk_samples;
    p->control_bytes =
        wish->is_pushed ? hr__control_bytes(page, p->places, p->chunk_samples) : page;
    int r = check_size(p, error);
    if (!r)
        r = check_memory(p, error);
    if (r)
        goto fail;
    p->ring = hr__alloc(HR__TAG_AGENT, p->places, sizeof *p->ring);
    p->spare = hr__alloc(HR__TAG_AGENT, RINGS * p->places, sizeof *p->spare);
    p->leased = hr__alloc(HR__TAG_AGENT, RINGS * p->places, sizeof *p->leased);
    p->labels = hr__alloc(HR__TAG_AGENT, p->ring_samples, sizeof *p->labels);
    p->indices = hr__alloc(HR__TAG_AGENT, p->ring_samples, sizeof *p->indices);
    p->extents = hr__alloc(HR__TAG_AGENT, p->ring_samples * wish->dims + 1, sizeof *p->extents);
    if (!p->ring || !p->spare || !p->leased || !p->labels || !p->indices || !p->extents) {
        r = hr__fail(error, -ENOMEM, "out of memory for a queue");
        goto fail;
    }
    p->room = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->room < 0) {
        r = hr__fail(error, -errno, "a queue's eventfd: %s", hr__errno_text(errno));
        goto fail;
    }
    r = make_header(p, page, error);
    if (!r)
        r = make_data(p, error);
    if (r)
        goto fail;
    *out = p;
    return 0;
fail:
    hr__places_destroy(&p);
    return r;
}

void hr__places_destroy(struct hr__places **places)
{
    struct hr__places *p = *places;
    *places = NULL;
    if (!p)
        return;
    while (p->records) {
        struct hr__place_record *record = p->records;
        p->records = record->next;
        hr__place_record_free(p, record);
    }
    if (p->data)
        munmap(p->data, p->header->data_bytes);
    if (p->header)
        munmap(p->header, p->header->header_bytes);
    for (int i = 0; i < 3; i++) {
        int file = i == 0 ? p->header_file : i == 1 ? p->data_file : p->room;
        if (file >= 0)
            close(file);
    }
    hr__free(p->ring);
    hr__free(p->spare);
    hr__free(p->leased);
    hr__free(p->labels);
    hr__free(p->indices);
    hr__free(p->extents);
    pthread_mutex_destroy(&p->lock);
    hr__free(p);
}

/* Returns a chunk number beyond every sample that a cursor takes or waits for. Cursors may stand
 * beyond `acquired`: in a span of which nothing was prepared, or waiting for what comes next. */
static uint64_t fresh_number_locked(const struct hr__places *p)
{
    /* +1: a thread that is acquiring the next chunk now may still get it, and drop it later. */
    uint64_t fresh = p->acquired + 1;
    if (p->span_count && p->spans[0].first / p->chunk_samples >= fresh)
        fresh = p->spans[0].first / p->chunk_samples + 1;
    for (const struct hr__place_cursor *s = p->cursors; s; s = s->next) {
        uint64_t next = hr__cursor_next(p, s);
        if (s->base != HR__SEQUENCE_NONE && next / p->chunk_samples >= fresh)
            fresh = next / p->chunk_samples + 1;
    }
    return fresh;
}

uint64_t hr__places_stop(struct hr__places *p)
{
    pthread_mutex_lock(&p->lock);
    p->is_stopped = true;
    uint64_t first = fresh_number_locked(p);
    pthread_mutex_unlock(&p->lock);
    return first;
}

bool hr__places_go_on(struct hr__places *p)
{
    pthread_mutex_lock(&p->lock);
    bool was_stopped = p->is_stopped;
    p->is_stopped = p->span_count == 0;
    pthread_mutex_unlock(&p->lock);
    return was_stopped;
}

void hr__places_begin(struct hr__places *p, uint64_t epoch, uint64_t position, uint64_t first,
                      uint64_t samples)
{
    pthread_mutex_lock(&p->lock);
    memmove(p->spans + 1, p->spans, (HR__SPANS - 1) * sizeof *p->spans);
    p->span_count += p->span_count < HR__SPANS;
    uint64_t sequence = first * p->chunk_samples;
    p->spans[0] = (struct hr__span){
        .epoch = epoch,
        .position = position,
        .first = sequence,
        .end = sequence + samples,
        .published = sequence,
    };
    p->published = sequence;
    p->is_awaited = false;
    atomic_store(&p->header->halt, HR__SEQUENCE_NONE);
    atomic_store(&p->header->epoch, epoch);
    atomic_store(&p->header->head, sequence);
    hr__places_ring(p);
    pthread_mutex_unlock(&p->lock);
}

void hr__places_await(struct hr__places *p, bool is_awaited)
{
    pthread_mutex_lock(&p->lock);
    p->is_awaited = is_awaited;
    pthread_mutex_unlock(&p->lock);
}

void hr__places_set_waiting(struct hr__places *p, bool is_waiting)
{
    pthread_mutex_lock(&p->lock);
    p->wish.is_waiting = is_waiting;
    pthread_mutex_unlock(&p->lock);
}

bool hr__places_span(struct hr__places *p, struct hr__span *out)
{
    pthread_mutex_lock(&p->lock);
    bool is_there = p->span_count > 0;
    *out = p->spans[0];
    pthread_mutex_unlock(&p->lock);
    return is_there;
}

bool hr__places_back(struct hr__places *p, uint64_t *sequence)
{
    pthread_mutex_lock(&p->lock);
    const struct hr__span *span = &p->spans[0];
    bool found = false;
    for (const struct hr__place_cursor *s = p->cursors; s && p->span_count; s = s->next) {
        uint64_t next = hr__cursor_next(p, s);
        if (!s->is_taking || s->end != span->end || next < span->first || next >= s->end)
            continue;
        *sequence = found && *sequence < next ? *sequence : next;
        found = true;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

int hr__places_takers(struct hr__places *p, const struct hr__place_cursor *but)
{
    pthread_mutex_lock(&p->lock);
    int count = 0;
    for (const struct hr__place_cursor *s = p->cursors; s; s = s->next)
        count += s != but && s->is_taking;
    pthread_mutex_unlock(&p->lock);
    return count;
}

uint64_t hr__places_progress(struct hr__places *p, bool *is_stuck, bool *is_over)
{
    uint64_t progress = 0;
    pthread_mutex_lock(&p->lock);
    *is_stuck = *is_over = true;
    for (const struct hr__place_cursor *s = p->cursors; s; s = s->next) {
        if (!s->is_taking)
            continue;
        uint64_t next = hr__cursor_next(p, s);
        progress += next;
        *is_over &= next >= s->end;
        *is_stuck &= next >= s->end || next < p->spans[0].published;
    }
    pthread_mutex_unlock(&p->lock);
    return progress;
}

int hr__places_cursor_create(struct hr__places *p, struct hr__place_cursor **out,
                             uint64_t batch_samples, struct hr_error *error)
{
    *out = NULL;
    struct hr__place_cursor *cursor = hr__alloc(HR__TAG_AGENT, 1, sizeof *cursor);
    if (!cursor)
        return hr__fail(error, -ENOMEM, "out of memory for a cursor");
    void *map;
    const struct shared_file wish = {
        .name = "headrace-control",
        .bytes = p->control_bytes,
        .mapped = p->control_bytes,
        .node = p->wish.node,
        .seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    };
    int file = make_file(&wish, &map, error);
    if (file < 0) {
        hr__free(cursor);
        return file;
    }
    cursor->file = file;
    cursor->control = map;
    cursor->control->magic = HR__CONTROL_MAGIC;
    cursor->control->version = HR__SHARE_VERSION;
    cursor->batch_samples = batch_samples;
    cursor->base = HR__SEQUENCE_NONE;
    pthread_mutex_lock(&p->lock);
    cursor->next = p->cursors;
    p->cursors = cursor;
    pthread_mutex_unlock(&p->lock);
    *out = cursor;
    return 0;
}

void hr__places_cursor_destroy(struct hr__places *p, struct hr__place_cursor **out)
{
    struct hr__place_cursor *cursor = *out;
    *out = NULL;
    if (!cursor)
        return;
    pthread_mutex_lock(&p->lock);
    struct hr__place_cursor *_Atomic *link = &p->cursors;
    while (*link != cursor)
        link = &(*link)->next;
    *link = cursor->next;
    hr__places_reclaim_locked(p);
    pthread_mutex_unlock(&p->lock);
    /* A thread that entered the list before may still read this cursor: for a few loads, unless it
     * was preempted. */
    while (atomic_load(&p->readers))
        nanosleep(&(struct timespec){.tv_nsec = READER_PAUSE_NS}, NULL);
    munmap(cursor->control, p->control_bytes);
    if (cursor->file >= 0)
        close(cursor->file);
    hr__free(cursor);
}

void hr__places_cursor_hand_over(struct hr__places *places, struct hr__place_cursor *cursor)
{
    close(cursor->file);
    cursor->file = -1;
}

/* Converts a position to its sequence in the span. Returns false if the span lacks it. */
static bool sequence_of(const struct hr__span *span, const uint64_t epoch_position[2],
                        uint64_t step, uint64_t *out)
{
    if (span->epoch != epoch_position[0] || epoch_position[1] < span->position ||
        (epoch_position[1] - span->position) % step)
        return false;
    uint64_t samples = (epoch_position[1] - span->position) / step;
    *out = span->first + samples;
    return samples <= span->end - span->first;
}

/* Returns whether span `i` has the sequence or will have it soon. */
static bool is_there_locked(const struct hr__places *p, int i, uint64_t sequence)
{
    const struct hr__span *span = &p->spans[i];
    if (sequence < p->tail || (i && span->published != span->end))
        return false; /* a former span publishes nothing more */
    uint64_t soon = i || span->is_halted ? 0 : p->ring_samples;
    return sequence <= span->published + soon;
}

static void sit_locked(struct hr__places *p, struct hr__place_cursor *cursor, uint64_t sequence,
                       uint64_t end)
{
    uint64_t past[2], present[2];
    hr__cursor_holds_locked(p, cursor, past, present);
    if (cursor->base == HR__SEQUENCE_NONE)
        atomic_store(&cursor->control->mark, sequence);
    if (past[0] == past[1]) {
        memcpy(past, present, sizeof past);
    } else if (present[0] < present[1]) {
        /* Merge what it holds from both times into one range. */
        past[0] = past[0] < present[0] ? past[0] : present[0];
        past[1] = past[1] > present[1] ? past[1] : present[1];
    }
    memcpy(cursor->past, past, sizeof cursor->past);
    cursor->base = sequence;
    cursor->end = end;
    atomic_store(&cursor->control->next, sequence);
    atomic_store(&cursor->control->pushed, sequence / p->chunk_samples);
    cursor->is_taking = true;
    cursor->is_expelled = false;
}

bool hr__places_sit(struct hr__places *p, struct hr__place_cursor *cursor,
                    const uint64_t epoch_position[2], uint64_t step, struct hr__span *at,
                    uint64_t *sequence)
{
    bool found = false;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->span_count && !found; i++) {
        *at = p->spans[i];
        found = sequence_of(at, epoch_position, step, sequence) &&
                (!cursor || *sequence >= cursor->floor) && is_there_locked(p, i, *sequence);
    }
    if (found && cursor)
        sit_locked(p, cursor, *sequence, at->end);
    pthread_mutex_unlock(&p->lock);
    return found;
}

int hr__places_pushed(struct hr__places *p, const struct hr__place_cursor *cursor, uint64_t number,
                      int64_t *indices, size_t *count, struct hr_error *error)
{
    if (number >= atomic_load_explicit(&cursor->control->pushed, memory_order_acquire))
        return 0;
    uint64_t most = p->chunk_samples, done = (p->published + most - 1) / most;
    if (number >= done + p->places)
        return hr__fail(error, -EPROTO, "a job pushed more than %" PRIu64 " batches ahead",
                        p->places);
    const struct hr__control_batch *batch =
        hr__control_batch(cursor->control, p->header->page_bytes, most, number % p->places);
    /* Copy before checking: the job may write there at any time. */
    *count = atomic_load_explicit(&batch->count, memory_order_relaxed);
    if (!*count || *count > most)
        return hr__fail(error, -EPROTO, "a job pushed a batch of %zu samples: from 1 to %" PRIu64,
                        *count, most);
    memcpy(indices, batch->indices, *count * sizeof *indices);
    return 1;
}

void hr__places_set_last(struct hr__places *p, struct hr__place_cursor *cursor, bool is_last)
{
    pthread_mutex_lock(&p->lock);
    cursor->is_last = is_last;
    pthread_mutex_unlock(&p->lock);
}

void hr__places_rise(struct hr__places *p, struct hr__place_cursor *cursor)
{
    pthread_mutex_lock(&p->lock);
    cursor->is_taking = false;
    cursor->is_expelled = false;
    bool is_taken = p->is_awaited;
    for (const struct hr__place_cursor *s = p->cursors; s; s = s->next)
        is_taken |= s->is_taking;
    /* Stop at once: the loop may place this cursor again, and nobody keeps these samples. */
    p->is_stopped |= !is_taken;
    pthread_mutex_unlock(&p->lock);
}

void hr__places_expel_all(struct hr__places *p)
{
    pthread_mutex_lock(&p->lock);
    /* Above the next sequence of every cursor, or a cursor would not notice it. */
    uint64_t floor = fresh_number_locked(p) * p->chunk_samples;
    for (struct hr__place_cursor *s = p->cursors; s; s = s->next) {
        if (!s->is_taking || hr__cursor_next(p, s) >= s->end)
            continue;
        s->is_expelled = true;
        s->is_taking = false;
        s->floor = floor;
        atomic_store(&s->control->floor, s->floor);
    }
    hr__places_ring(p);
    pthread_mutex_unlock(&p->lock);
}

bool hr__places_was_expelled(struct hr__places *p, struct hr__place_cursor *cursor)
{
    pthread_mutex_lock(&p->lock);
    /* Also expelled: the job took back a take that the queue had counted. */
    bool is =
        cursor->is_expelled || (cursor->is_taking && hr__cursor_next(p, cursor) < cursor->floor);
    if (is)
        cursor->is_taking = false;
    cursor->is_expelled = false;
    pthread_mutex_unlock(&p->lock);
    return is;
}

void hr__places_get_status(struct hr__places *p, struct hr__places_status *out)
{
    pthread_mutex_lock(&p->lock);
    const struct hr__span *span = &p->spans[0];
    uint64_t next = 0;
    bool is_taken = hr__places_furthest(p, &next, NULL);
    *out = (struct hr__places_status){
        .epoch = span->epoch,
        .position_samples = span->published - span->first,
        .span_samples = span->end - span->first,
        .span_position = span->position,
        .ready_samples = is_taken && next < span->published ? span->published - next : 0,
        .memory_bytes = p->pieces * p->chunk_bytes + p->header->header_bytes,
        .leased_bytes = p->leased_count * p->chunk_bytes,
        .wants_room = p->is_short,
        .is_stopped = p->is_stopped,
    };
    pthread_mutex_unlock(&p->lock);
}

void hr__places_cursor_status(struct hr__places *p, const struct hr__place_cursor *cursor,
                              struct hr__place_cursor_status *out)
{
    pthread_mutex_lock(&p->lock);
    const struct hr__control *d = cursor->control;
    uint64_t past[2], present[2];
    hr__cursor_holds_locked(p, cursor, past, present);
    uint64_t next = hr__cursor_next(p, cursor), head = p->spans[0].published;
    *out = (struct hr__place_cursor_status){
        .mark = past[0] < past[1] ? past[0] : present[0],
        .next = next,
        .behind_samples = next < head ? head - next : 0,
        .batches = atomic_load(&d->batches),
        .samples = atomic_load(&d->samples),
        .wait_ns = atomic_load(&d->wait_ns),
        .step_ns = atomic_load(&d->step_ns),
        .copied = atomic_load(&d->copied),
        .held = atomic_load(&d->held),
        .is_waiting = atomic_load(&d->wants) != 0,
    };
    pthread_mutex_unlock(&p->lock);
}
