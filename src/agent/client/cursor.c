/*
 * A cursor's header and control block: create, take, copy, wait. See cursor.h.
 */
#include "agent/client/cursor.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/futex.h"
#include "base/memory.h"
#include "base/round.h"
#include "loader/batch_rows.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than any ring has. Products of two such numbers and a sample's bytes are checked. */
#define COUNT_MAX (UINT64_C(1) << 32)
#define BYTES_MAX (UINT64_C(1) << 46)

static int bad_file(struct hr_error *error, const char *what)
{
    return hr__fail(error, -EPROTO,
                    "the agent's shared memory is invalid (%s): do the agent and this process have "
                    "the same version?",
                    what);
}

int hr__cursor_check_pushing(const struct hr__cursor *cursor, uint64_t batch_samples,
                             struct hr_error *error)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    if (s->chunk_samples != batch_samples)
        return bad_file(error, "chunks are no batches of this job");
    if (cursor->control_mapped <
        hr__control_bytes(cursor->pages.page_bytes, s->places, batch_samples))
        return bad_file(error, "the control block has no room for indices");
    return 0;
}

void hr__cursor_push(struct hr__cursor *cursor, uint64_t number, const int64_t *indices,
                     size_t count)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    struct hr__control_batch *batch = hr__control_batch(cursor->control, cursor->pages.page_bytes,
                                                        s->chunk_samples, number % s->places);
    atomic_store_explicit(&batch->count, count, memory_order_relaxed);
    memcpy(batch->indices, indices, count * sizeof *indices);
    atomic_store_explicit(&cursor->control->pushed, number + 1, memory_order_release);
}

/* Returns the length of a file that cannot shrink; 0: it can. */
static uint64_t sealed_size(int file)
{
    struct stat about;
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &about) || about.st_size < 0 ||
        (uint64_t)about.st_size > BYTES_MAX)
        return 0;
    return (uint64_t)about.st_size;
}

/* Rounds up to whole pages; leaves invalid sizes unchanged. */
static uint64_t whole_pages(uint64_t bytes, uint64_t page)
{
    return bytes > BYTES_MAX ? bytes : hr__round_up(bytes, page);
}

/* Reads and checks the shape in a header of `bytes`. Returns what is wrong, or NULL. */
static const char *take_shape(struct hr__cursor_shape *shape, const struct hr__header *header,
                              uint64_t bytes, uint64_t page)
{
    if (header->magic != HR__HEADER_MAGIC || header->version != HR__SHARE_VERSION)
        return "the header's version";
    if (header->page_bytes != page)
        return "the size of pages";
    *shape = (struct hr__cursor_shape){
        .sample_bytes = header->sample_bytes,
        .chunk_samples = header->chunk_samples,
        .chunk_bytes = header->chunk_bytes,
        .places = header->places,
        .data_bytes = header->data_bytes,
        .places_offset = header->places_offset,
        .samples_offset = header->samples_offset,
        .header_bytes = header->header_bytes,
        .record_bytes = header->record_bytes,
        .records_offset = header->records_offset,
        .is_gapless = header->is_gapless != 0,
    };
    struct hr__cursor_shape *s = shape;
    uint64_t used, ring_bytes, table, records;
    if (!s->sample_bytes || !s->chunk_samples || s->chunk_samples > COUNT_MAX || s->places < 2 ||
        s->places > COUNT_MAX)
        return "the ring's size";
    s->ring_samples = s->places * s->chunk_samples;
    if (__builtin_mul_overflow(s->chunk_samples, s->sample_bytes, &used) || used > BYTES_MAX ||
        s->chunk_bytes != whole_pages(used, page) || (s->is_gapless && s->chunk_bytes != used))
        return "the size of chunks";
    if (__builtin_mul_overflow(s->places, s->chunk_bytes, &ring_bytes) || ring_bytes > BYTES_MAX ||
        s->data_bytes < ring_bytes || s->data_bytes > BYTES_MAX)
        return "the size of the data";
    if (s->header_bytes > bytes || s->places_offset % 8 || s->samples_offset % 8 ||
        s->places_offset > s->header_bytes || s->samples_offset > s->header_bytes ||
        s->places * sizeof(struct hr__header_place) > s->header_bytes - s->places_offset ||
        __builtin_mul_overflow(s->ring_samples, sizeof(struct hr__header_sample), &table) ||
        table > s->header_bytes - s->samples_offset || s->records_offset % 8 ||
        s->records_offset > s->header_bytes ||
        __builtin_mul_overflow(s->ring_samples, s->record_bytes, &records) ||
        records > s->header_bytes - s->records_offset)
        return "the header's length";
    return NULL;
}

static const char *map_files(struct hr__cursor *cursor, uint64_t record_bytes, const int files[4])
{
    uint64_t header_bytes = sealed_size(files[0]), control_bytes = sealed_size(files[2]);
    if (header_bytes < sizeof *cursor->header)
        return "the header";
    if (control_bytes < sizeof *cursor->control)
        return "the control block";
    cursor->data_size = sealed_size(files[1]);
    if (!cursor->data_size)
        return "the data";
    void *header = mmap(NULL, header_bytes, PROT_READ, MAP_SHARED, files[0], 0);
    if (header == MAP_FAILED)
        return "the header cannot be mapped";
    cursor->header = header;
    cursor->header_mapped = header_bytes;
    void *control = mmap(NULL, control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, files[2], 0);
    if (control == MAP_FAILED)
        return "the control block cannot be mapped";
    cursor->control = control;
    cursor->control_mapped = control_bytes;
    if (cursor->control->magic != HR__CONTROL_MAGIC ||
        cursor->control->version != HR__SHARE_VERSION)
        return "the control block's version";
    const char *wrong =
        take_shape(&cursor->shape, cursor->header, header_bytes, cursor->pages.page_bytes);
    if (!wrong && cursor->shape.sample_bytes != cursor->spec.bytes)
        wrong = "the size of samples";
    return !wrong && cursor->shape.record_bytes != record_bytes ? "the size of rows or masks"
                                                                : wrong;
}

void hr__cursor_free(struct hr__cursor *cursor)
{
    if (cursor->header)
        munmap((void *)(uintptr_t)cursor->header, cursor->header_mapped);
    if (cursor->control)
        munmap(cursor->control, cursor->control_mapped);
    close(cursor->data);
    close(cursor->bell);
    hr__pages_close(&cursor->pages);
    if (cursor->pid == getpid())
        pthread_mutex_destroy(&cursor->lock);
    hr__free(cursor);
}

int hr__cursor_create(struct hr__cursor **out, const struct hr_tensor_spec *spec,
                      uint64_t record_bytes, int files[4], struct hr_error *error)
{
    *out = NULL;
    const char *wrong = NULL;
    struct hr__cursor *cursor = hr__alloc(HR__TAG_AGENT, 1, sizeof *cursor);
    if (cursor) {
        atomic_init(&cursor->refs, 1);
        pthread_mutex_init(&cursor->lock, NULL);
        cursor->pid = getpid();
        cursor->spec = *spec;
        cursor->data = files[1];
        cursor->bell = files[3];
        cursor->pending = HR__SEQUENCE_NONE;
        hr__pages_open(&cursor->pages);
        wrong = map_files(cursor, record_bytes, files);
    } else {
        close(files[1]);
        close(files[3]);
    }
    close(files[0]);
    close(files[2]);
    if (!cursor)
        return hr__fail(error, -ENOMEM, "out of memory for a place in an agent's queue");
    if (wrong) {
        hr__cursor_free(cursor);
        return bad_file(error, wrong);
    }
    *out = cursor;
    return 0;
}

void hr__cursor_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* Only one thread writes, so no atomic addition is needed. */
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + more, memory_order_relaxed);
}

int hr__cursor_move_mark_locked(struct hr__cursor *cursor)
{
    uint64_t mark = cursor->pending < cursor->next ? cursor->pending : cursor->next;
    for (const struct hr__lease *l = cursor->shared; l; l = l->next_shared)
        if (l->from < mark)
            mark = l->from;
    atomic_store_explicit(&cursor->control->held, cursor->held, memory_order_relaxed);
    if (mark == cursor->mark)
        return 0;
    cursor->mark = mark;
    /* Store mark, then load wants_room; the agent does the opposite. Both are sequentially
     * consistent, so at least one of the two sees the other. */
    atomic_store_explicit(&cursor->control->mark, mark, memory_order_seq_cst);
    return atomic_load_explicit(&cursor->header->wants_room, memory_order_seq_cst) != 0;
}

void hr__cursor_ring(struct hr__cursor *cursor)
{
    eventfd_write(cursor->bell, 1);
}

uint64_t hr__cursor_ready(const struct hr__cursor *cursor, uint64_t from)
{
    uint64_t head = atomic_load_explicit(&cursor->header->head, memory_order_acquire);
    return head > from ? head - from : 0;
}

int hr__cursor_is_lost(const struct hr__cursor *cursor, uint64_t from)
{
    return atomic_load_explicit(&cursor->control->floor, memory_order_seq_cst) > from;
}

int hr__cursor_take(struct hr__cursor *cursor, uint64_t from, uint64_t to)
{
    int r = 0, ring = 0;
    pthread_mutex_lock(&cursor->lock);
    assert(cursor->next == from && cursor->pending == HR__SEQUENCE_NONE);
    cursor->pending = from;
    cursor->next = to;
    /* Store next, then load floor; the agent does the opposite. Either we see that the samples are
     * lost, or the agent sees that we hold them (share.h). */
    atomic_store_explicit(&cursor->control->next, to, memory_order_seq_cst);
    if (hr__cursor_is_lost(cursor, from)) {
        cursor->pending = HR__SEQUENCE_NONE;
        cursor->next = from;
        atomic_store_explicit(&cursor->control->next, from, memory_order_seq_cst);
        ring = hr__cursor_move_mark_locked(cursor);
        r = -ESTALE;
    }
    pthread_mutex_unlock(&cursor->lock);
    if (ring)
        hr__cursor_ring(cursor);
    return r;
}

void hr__cursor_settle(struct hr__cursor *cursor)
{
    pthread_mutex_lock(&cursor->lock);
    cursor->pending = HR__SEQUENCE_NONE;
    int ring = hr__cursor_move_mark_locked(cursor);
    pthread_mutex_unlock(&cursor->lock);
    if (ring)
        hr__cursor_ring(cursor);
}

size_t hr__cursor_chunks(const struct hr__cursor *cursor, uint64_t from, uint64_t to)
{
    uint64_t samples = cursor->shape.chunk_samples;
    return (to - 1) / samples - from / samples + 1;
}

/* Writes where in the file the images of the chunk of `sequence` begin. */
static int look_at_place(struct hr__cursor *cursor, uint64_t sequence, uint64_t *offset,
                         struct hr_error *error)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    uint64_t chunk = sequence / s->chunk_samples;
    const char *places = (const char *)cursor->header + s->places_offset;
    const struct hr__header_place *place =
        (const struct hr__header_place *)(const void *)places + chunk % s->places;
    uint64_t number = atomic_load_explicit(&place->number, memory_order_acquire);
    uint64_t at = atomic_load_explicit(&place->offset, memory_order_acquire);
    if (number != chunk)
        return bad_file(error, "another chunk lies at a place");
    if (at % cursor->pages.page_bytes || at > BYTES_MAX)
        return bad_file(error, "a chunk begins within a page");
    if (at + s->chunk_bytes > cursor->data_size) {
        cursor->data_size = sealed_size(cursor->data);
        if (at + s->chunk_bytes > cursor->data_size)
            return bad_file(error, "a chunk lies beyond the data's end");
    }
    *offset = at;
    return 0;
}

/* Reads the extents of a sample. Returns 0 if they are not inside its place. */
static int take_extents(const struct hr__cursor *cursor, const struct hr__header_sample *sample,
                        int64_t *extents)
{
    int is_inside = 1;
    for (size_t d = 0; d < cursor->spec.dims; d++) {
        extents[d] = sample->extents[d];
        is_inside &= extents[d] >= 1 && extents[d] <= cursor->spec.shape[d];
    }
    return is_inside;
}

int hr__cursor_look(struct hr__cursor *cursor, uint64_t from, uint64_t to, struct hr__seen *out,
                    struct hr_error *error)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    const char *samples = (const char *)cursor->header + s->samples_offset;
    const struct hr__header_sample *ring = (const struct hr__header_sample *)(const void *)samples;
    size_t chunks = hr__cursor_chunks(cursor, from, to);
    out->replaced = out->noted = 0;
    for (size_t i = 0; i < chunks; i++) {
        int r = look_at_place(cursor, from + i * s->chunk_samples, &out->offsets[i], error);
        if (r)
            /* The agent moves the floor before it changes the header, so this is no error then. */
            return hr__cursor_is_lost(cursor, from) ? -ESTALE : r;
    }
    for (uint64_t i = 0; i < to - from; i++) {
        const struct hr__header_sample *sample = &ring[(from + i) % s->ring_samples];
        out->labels[i] = sample->label;
        out->indices[i] = sample->index;
        out->instead[i] = sample->instead;
        if (cursor->is_padded &&
            !take_extents(cursor, sample, out->extents + i * cursor->spec.dims))
            return hr__cursor_is_lost(cursor, from) ? -ESTALE
                                                    : bad_file(error, "the size of a sample");
        out->noted += sample->instead >= 0;
        out->replaced += sample->instead >= 0 && sample->instead != sample->index;
    }
    return 0;
}

int hr__cursor_rows(const struct hr__cursor *cursor, uint64_t from, size_t count,
                    struct hr__batch_rows *rows, size_t place, struct hr_error *error)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    const char *records = (const char *)cursor->header + s->records_offset;
    for (size_t i = 0; i < count; i++) {
        const char *record = records + (from + i) % s->ring_samples * s->record_bytes;
        if (hr__row_record_copy(rows->layout, hr__batch_record(rows, place + i),
                                (const struct hr__row_record *)(const void *)record))
            return hr__cursor_is_lost(cursor, from) ? -ESTALE
                                                    : bad_file(error, "the number of rows");
    }
    return 0;
}

void hr__cursor_masks(const struct hr__cursor *cursor, uint64_t from, size_t count, uint8_t *out)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    const char *records = (const char *)cursor->header + s->records_offset;
    for (size_t i = 0; i < count; i++)
        memcpy(out + i * s->record_bytes, records + (from + i) % s->ring_samples * s->record_bytes,
               s->record_bytes);
}

int hr__cursor_read(const struct hr__cursor *cursor, uint64_t offset, uint64_t bytes, void *out,
                    struct hr_error *error)
{
    int code = hr__read_exactly(cursor->data, out, bytes, offset);
    if (!code)
        return 0;
    return hr__fail(error, code == -ENODATA ? -EPROTO : code,
                    "samples in the agent's shared memory cannot be read: %s",
                    code == -ENODATA ? "they lie beyond its end" : hr__errno_text(code));
}

int hr__cursor_copy(const struct hr__cursor *cursor, uint64_t from, size_t count,
                    const uint64_t *offsets, void *out, struct hr_error *error)
{
    const struct hr__cursor_shape *s = &cursor->shape;
    char *to = out;
    for (uint64_t end = from + count; from < end; offsets++) {
        uint64_t place = from % s->chunk_samples, n = s->chunk_samples - place;
        if (n > end - from)
            n = end - from;
        int r = hr__cursor_read(cursor, *offsets + place * s->sample_bytes, n * s->sample_bytes, to,
                                error);
        if (r)
            return r;
        to += n * s->sample_bytes;
        from += n;
    }
    return 0;
}

uint32_t hr__cursor_bell(const struct hr__cursor *cursor)
{
    return atomic_load_explicit(&cursor->header->bell, memory_order_acquire);
}

int hr__cursor_wait(struct hr__cursor *cursor, uint32_t bell, uint64_t wants, uint64_t until_ns)
{
    /* A job that keeps old batches goes on without moving its mark, until it has taken all that is
     * ready. Then it has to ask again for room that it was refused while it had enough. Store
     * wants, then load wants_room: either we see wants_room, or the agent sees that we wait. */
    atomic_store_explicit(&cursor->control->wants, wants, memory_order_seq_cst);
    if (atomic_load_explicit(&cursor->header->wants_room, memory_order_seq_cst))
        hr__cursor_ring(cursor);
    int r = hr__futex_wait(&cursor->header->bell, bell, until_ns, 1);
    atomic_store_explicit(&cursor->control->wants, 0, memory_order_relaxed);
    return r;
}
