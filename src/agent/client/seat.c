/*
 * See seat.h: the board and the desk, taking, copying, waiting.
 */
#include "agent/client/seat.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/memory.h"
#include "base/round.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than any ring has; products of two such numbers and a sample's bytes are checked. */
#define COUNT_MAX (UINT64_C(1) << 32)
#define BYTES_MAX (UINT64_C(1) << 46)

static int bad_file(struct hr_error *error, const char *what)
{
    return hr__fail(error, -EPROTO,
                    "the agent's shared memory is not what it should be (%s): are the agent and "
                    "this process of the same version?",
                    what);
}

int hr__seat_check_pushing(const struct hr__seat *seat, uint64_t batch_samples,
                           struct hr_error *error)
{
    const struct hr__seat_shape *s = &seat->shape;
    if (s->chunk_samples != batch_samples)
        return bad_file(error, "chunks are no batches of this job");
    if (seat->desk_mapped < hr__desk_bytes(seat->pages.page_bytes, s->places, batch_samples))
        return bad_file(error, "the desk has no room for indices");
    return 0;
}

void hr__seat_push(struct hr__seat *seat, uint64_t number, const int64_t *indices, size_t count)
{
    const struct hr__seat_shape *s = &seat->shape;
    struct hr__desk_batch *batch =
        hr__desk_batch(seat->desk, seat->pages.page_bytes, s->chunk_samples, number % s->places);
    atomic_store_explicit(&batch->count, count, memory_order_relaxed);
    memcpy(batch->indices, indices, count * sizeof *indices);
    atomic_store_explicit(&seat->desk->pushed, number + 1, memory_order_release);
}

/* The length of a file that cannot shrink, 0: it can. */
static uint64_t sealed_size(int file)
{
    struct stat about;
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &about) || about.st_size < 0 ||
        (uint64_t)about.st_size > BYTES_MAX)
        return 0;
    return (uint64_t)about.st_size;
}

/* Rounded up to whole pages; what is no size at all stays so. */
static uint64_t whole_pages(uint64_t bytes, uint64_t page)
{
    return bytes > BYTES_MAX ? bytes : hr__round_up(bytes, page);
}

/* What is wrong about a board of `bytes`, or NULL. */
static const char *take_shape(struct hr__seat_shape *shape, const struct hr__board *board,
                              uint64_t bytes, uint64_t page)
{
    if (board->magic != HR__BOARD_MAGIC || board->version != HR__SHARE_VERSION)
        return "the board's version";
    if (board->page_bytes != page)
        return "the size of pages";
    *shape = (struct hr__seat_shape){
        .sample_bytes = board->sample_bytes,
        .chunk_samples = board->chunk_samples,
        .chunk_bytes = board->chunk_bytes,
        .places = board->places,
        .data_bytes = board->data_bytes,
        .places_offset = board->places_offset,
        .samples_offset = board->samples_offset,
        .board_bytes = board->board_bytes,
        .is_gapless = board->is_gapless != 0,
    };
    struct hr__seat_shape *s = shape;
    uint64_t used, ring_bytes, table;
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
    if (s->board_bytes > bytes || s->places_offset % 8 || s->samples_offset % 8 ||
        s->places_offset > s->board_bytes || s->samples_offset > s->board_bytes ||
        s->places * sizeof(struct hr__board_place) > s->board_bytes - s->places_offset ||
        __builtin_mul_overflow(s->ring_samples, sizeof(struct hr__board_sample), &table) ||
        table > s->board_bytes - s->samples_offset)
        return "the board's length";
    return NULL;
}

static const char *map_files(struct hr__seat *seat, const int files[4])
{
    uint64_t board_bytes = sealed_size(files[0]), desk_bytes = sealed_size(files[2]);
    if (board_bytes < sizeof *seat->board)
        return "the board";
    if (desk_bytes < sizeof *seat->desk)
        return "the desk";
    seat->data_size = sealed_size(files[1]);
    if (!seat->data_size)
        return "the data";
    void *board = mmap(NULL, board_bytes, PROT_READ, MAP_SHARED, files[0], 0);
    if (board == MAP_FAILED)
        return "the board cannot be mapped";
    seat->board = board;
    seat->board_mapped = board_bytes;
    void *desk = mmap(NULL, desk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, files[2], 0);
    if (desk == MAP_FAILED)
        return "the desk cannot be mapped";
    seat->desk = desk;
    seat->desk_mapped = desk_bytes;
    if (seat->desk->magic != HR__DESK_MAGIC || seat->desk->version != HR__SHARE_VERSION)
        return "the desk's version";
    const char *wrong = take_shape(&seat->shape, seat->board, board_bytes, seat->pages.page_bytes);
    return !wrong && seat->shape.sample_bytes != seat->spec.bytes ? "the size of samples" : wrong;
}

int hr__seat_create(struct hr__seat **out, const struct hr_tensor_spec *spec, int files[4],
                    struct hr_error *error)
{
    *out = NULL;
    const char *wrong = NULL;
    struct hr__seat *seat = hr__alloc(HR__TAG_AGENT, 1, sizeof *seat);
    if (seat) {
        atomic_init(&seat->refs, 1);
        pthread_mutex_init(&seat->lock, NULL);
        seat->pid = getpid();
        seat->spec = *spec;
        seat->data = files[1];
        seat->bell = files[3];
        seat->pending = HR__SEQUENCE_NONE;
        hr__pages_open(&seat->pages);
        wrong = map_files(seat, files);
    } else {
        close(files[1]);
        close(files[3]);
    }
    close(files[0]);
    close(files[2]);
    if (!seat)
        return hr__fail(error, -ENOMEM, "out of memory for a place in an agent's lane");
    if (wrong) {
        hr__seat_unref(&seat);
        return bad_file(error, wrong);
    }
    *out = seat;
    return 0;
}

void hr__seat_unref(struct hr__seat **pointer)
{
    struct hr__seat *seat = *pointer;
    if (!seat)
        return;
    *pointer = NULL;
    if (atomic_fetch_sub_explicit(&seat->refs, 1, memory_order_acq_rel) != 1)
        return;
    /* No lease is left, so the only window is the next lease's. In a forked child the lists
     * may be as they were in the middle of a change: then the window stays. */
    if (seat->pid == getpid() || !pthread_mutex_trylock(&seat->lock))
        hr__lease_clear(seat);
    if (seat->board)
        munmap((void *)(uintptr_t)seat->board, seat->board_mapped);
    if (seat->desk)
        munmap(seat->desk, seat->desk_mapped);
    close(seat->data);
    close(seat->bell);
    hr__pages_close(&seat->pages);
    if (seat->pid == getpid())
        pthread_mutex_destroy(&seat->lock);
    hr__free(seat);
}

void hr__seat_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* One thread writes. */
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + more, memory_order_relaxed);
}

int hr__seat_move_mark_locked(struct hr__seat *seat)
{
    uint64_t mark = seat->pending < seat->next ? seat->pending : seat->next;
    for (const struct hr__lease *l = seat->shared; l; l = l->next_shared)
        if (l->from < mark)
            mark = l->from;
    atomic_store_explicit(&seat->desk->held, seat->held, memory_order_relaxed);
    if (mark == seat->mark)
        return 0;
    seat->mark = mark;
    /* In one order with wants_room: either we see that it is wanted, or who wants it sees the
     * mark. */
    atomic_store_explicit(&seat->desk->mark, mark, memory_order_seq_cst);
    return atomic_load_explicit(&seat->board->wants_room, memory_order_seq_cst) != 0;
}

void hr__seat_ring(struct hr__seat *seat)
{
    eventfd_write(seat->bell, 1);
}

int hr__seat_go_to(struct hr__seat *seat, uint64_t sequence, struct hr_error *error)
{
    /* What is held beyond would be ahead of `next`, where the agent does not look for it. */
    int r = hr__lease_own_from(seat, sequence, error);
    /* Nor does it where it was taken more than a ring ago. */
    if (!r && sequence > seat->shape.ring_samples)
        r = hr__lease_own_before(seat, sequence - seat->shape.ring_samples, error);
    if (r)
        return r;
    pthread_mutex_lock(&seat->lock);
    seat->pending = HR__SEQUENCE_NONE;
    seat->next = sequence;
    atomic_store_explicit(&seat->desk->next, sequence, memory_order_seq_cst);
    int ring = hr__seat_move_mark_locked(seat);
    pthread_mutex_unlock(&seat->lock);
    if (ring)
        hr__seat_ring(seat);
    return 0;
}

uint64_t hr__seat_ready(const struct hr__seat *seat, uint64_t from)
{
    uint64_t head = atomic_load_explicit(&seat->board->head, memory_order_acquire);
    return head > from ? head - from : 0;
}

int hr__seat_is_lost(const struct hr__seat *seat, uint64_t from)
{
    return atomic_load_explicit(&seat->desk->floor, memory_order_seq_cst) > from;
}

int hr__seat_take(struct hr__seat *seat, uint64_t from, uint64_t to)
{
    int r = 0, ring = 0;
    pthread_mutex_lock(&seat->lock);
    assert(seat->next == from && seat->pending == HR__SEQUENCE_NONE);
    seat->pending = from;
    seat->next = to;
    /* In one order with floor: either we see that the agent took the place, or it sees that
     * we hold it (share.h). */
    atomic_store_explicit(&seat->desk->next, to, memory_order_seq_cst);
    if (hr__seat_is_lost(seat, from)) {
        seat->pending = HR__SEQUENCE_NONE;
        seat->next = from;
        atomic_store_explicit(&seat->desk->next, from, memory_order_seq_cst);
        ring = hr__seat_move_mark_locked(seat);
        r = -ESTALE;
    }
    pthread_mutex_unlock(&seat->lock);
    if (ring)
        hr__seat_ring(seat);
    return r;
}

void hr__seat_settle(struct hr__seat *seat)
{
    pthread_mutex_lock(&seat->lock);
    seat->pending = HR__SEQUENCE_NONE;
    int ring = hr__seat_move_mark_locked(seat);
    pthread_mutex_unlock(&seat->lock);
    if (ring)
        hr__seat_ring(seat);
}

size_t hr__seat_chunks(const struct hr__seat *seat, uint64_t from, uint64_t to)
{
    uint64_t samples = seat->shape.chunk_samples;
    return (to - 1) / samples - from / samples + 1;
}

/* Where the images of the chunk of `sequence` lie in the file. */
static int look_at_place(struct hr__seat *seat, uint64_t sequence, uint64_t *offset,
                         struct hr_error *error)
{
    const struct hr__seat_shape *s = &seat->shape;
    uint64_t chunk = sequence / s->chunk_samples;
    const char *places = (const char *)seat->board + s->places_offset;
    const struct hr__board_place *place =
        (const struct hr__board_place *)(const void *)places + chunk % s->places;
    uint64_t number = atomic_load_explicit(&place->number, memory_order_acquire);
    uint64_t at = atomic_load_explicit(&place->offset, memory_order_acquire);
    if (number != chunk)
        return bad_file(error, "another chunk lies at a place");
    if (at % seat->pages.page_bytes || at > BYTES_MAX)
        return bad_file(error, "a chunk begins within a page");
    if (at + s->chunk_bytes > seat->data_size) {
        seat->data_size = sealed_size(seat->data);
        if (at + s->chunk_bytes > seat->data_size)
            return bad_file(error, "a chunk lies beyond the data's end");
    }
    *offset = at;
    return 0;
}

int hr__seat_look(struct hr__seat *seat, uint64_t from, uint64_t to, struct hr__seen *out,
                  struct hr_error *error)
{
    const struct hr__seat_shape *s = &seat->shape;
    const char *samples = (const char *)seat->board + s->samples_offset;
    const struct hr__board_sample *ring = (const struct hr__board_sample *)(const void *)samples;
    size_t chunks = hr__seat_chunks(seat, from, to);
    out->replaced = out->noted = 0;
    for (size_t i = 0; i < chunks; i++) {
        int r = look_at_place(seat, from + i * s->chunk_samples, &out->offsets[i], error);
        if (r)
            /* The agent moves the floor before it changes what it says. */
            return hr__seat_is_lost(seat, from) ? -ESTALE : r;
    }
    for (uint64_t i = 0; i < to - from; i++) {
        const struct hr__board_sample *sample = &ring[(from + i) % s->ring_samples];
        out->labels[i] = sample->label;
        out->indices[i] = sample->index;
        out->instead[i] = sample->instead;
        out->noted += sample->instead >= 0;
        out->replaced += sample->instead >= 0 && sample->instead != sample->index;
    }
    return 0;
}

int hr__seat_read(const struct hr__seat *seat, uint64_t offset, uint64_t bytes, void *out,
                  struct hr_error *error)
{
    for (char *to = out; bytes;) {
        ssize_t n = pread(seat->data, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return hr__fail(error, n ? -errno : -EPROTO,
                            "samples in the agent's shared memory cannot be read: %s",
                            n ? hr__errno_text(errno) : "they lie beyond its end");
        to += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

int hr__seat_copy(const struct hr__seat *seat, uint64_t from, size_t count, const uint64_t *offsets,
                  void *out, struct hr_error *error)
{
    const struct hr__seat_shape *s = &seat->shape;
    char *to = out;
    for (uint64_t end = from + count; from < end; offsets++) {
        uint64_t place = from % s->chunk_samples, n = s->chunk_samples - place;
        if (n > end - from)
            n = end - from;
        int r =
            hr__seat_read(seat, *offsets + place * s->sample_bytes, n * s->sample_bytes, to, error);
        if (r)
            return r;
        to += n * s->sample_bytes;
        from += n;
    }
    return 0;
}

uint32_t hr__seat_bell(const struct hr__seat *seat)
{
    return atomic_load_explicit(&seat->board->bell, memory_order_acquire);
}

int hr__seat_wait(struct hr__seat *seat, uint32_t bell, uint64_t wants, uint64_t until_ns)
{
    /* Who keeps old batches goes on without moving the mark, until he has taken all that is
     * there. Room that was refused while he had enough is asked for again, in one order with
     * wants_room: either we see it, or the agent sees that we wait. */
    atomic_store_explicit(&seat->desk->wants, wants, memory_order_seq_cst);
    if (atomic_load_explicit(&seat->board->wants_room, memory_order_seq_cst))
        hr__seat_ring(seat);
    int r = hr__futex_wait(&seat->board->bell, bell, until_ns, 1);
    atomic_store_explicit(&seat->desk->wants, 0, memory_order_relaxed);
    return r;
}
