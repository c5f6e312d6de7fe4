/*
 * The memory of a queue: which samples get places, which cursors are expelled, which memory is
 * leased. A random model of jobs takes, holds and releases samples; each job must find what was
 * published.
 */
#include "../test.h"

#include "agent/server/place.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE         4096u
#define BYSTANDERS   300
#define SAMPLE_BYTES 512u /* eight of them are a page */

int __real_fallocate64(int file, int mode, off_t offset, off_t length);
int __wrap_fallocate64(int file, int mode, off_t offset, off_t length);

/* Watches the memory of a queue: counts allocations outside its lock, and says which must fail. */
static struct {
    struct hr__places *places;
    int count, refused;
} memory;

int __wrap_fallocate64(int file, int mode, off_t offset, off_t length)
{
    if (memory.places && file == memory.places->data_file) {
        assert_int_equal(pthread_mutex_trylock(&memory.places->lock), 0);
        pthread_mutex_unlock(&memory.places->lock);
        memory.count++;
        if (memory.refused && memory.refused--) {
            errno = ENOSPC;
            return -1;
        }
    }
    return __real_fallocate64(file, mode, offset, length);
}

static unsigned rnd(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void note(void *arg)
{
    ++*(int *)arg;
}

static struct hr__places *make(uint64_t batch, uint64_t window, int *told)
{
    struct hr__places_wish wish = {.queue = 1,
                                   .sample_bytes = SAMPLE_BYTES,
                                   .batch_samples = batch,
                                   .window = window,
                                   .node = -1,
                                   .notify = note,
                                   .arg = told};
    struct hr__places *places;
    struct hr_error error;
    assert_int_equal(hr__places_create(&places, &wish, &error), 0);
    return places;
}

/* Starts a queue with one cursor. */
static void begin(struct hr__places *p, uint64_t epoch, uint64_t position, uint64_t first,
                  uint64_t samples)
{
    struct hr__chunk chunk;
    hr__places_begin(p, epoch, position, first, samples);
    assert_int_equal(hr__places_acquire(p, first, &chunk), -EAGAIN);
    assert_true(hr__places_go_on(p));
    assert_false(hr__places_go_on(p));
}

/* Returns the contents of sample `sequence` of an epoch. */
static uint32_t stamp(uint64_t epoch, uint64_t sequence)
{
    return (uint32_t)(sequence * 2654435761u + epoch * 97);
}

static void fill(struct hr__places *p, uint64_t number, const struct hr__chunk *chunk,
                 uint64_t epoch)
{
    for (uint64_t i = 0; i < p->chunk_samples; i++) {
        uint64_t sequence = number * p->chunk_samples + i;
        uint32_t *words = (uint32_t *)(void *)((uint8_t *)chunk->images + i * SAMPLE_BYTES);
        for (size_t w = 0; w < SAMPLE_BYTES / 4; w++)
            words[w] = stamp(epoch, sequence);
        chunk->labels[i] = (int64_t)sequence;
        chunk->indices[i] = (int64_t)sequence * 3;
    }
}

/* Prepares and publishes a chunk of `count` samples. Returns 0 or the result of acquire. */
static int advance(struct hr__places *p, uint64_t number, size_t count, uint64_t epoch)
{
    struct hr__chunk chunk;
    int r = hr__places_acquire(p, number, &chunk);
    if (r)
        return r;
    fill(p, number, &chunk, epoch);
    struct hr__chunk_done done = {.number = number, .epoch = epoch, .count = count};
    hr__places_publish(p, &done);
    return 0;
}

static uint64_t head_of(const struct hr__places *p)
{
    return atomic_load(&p->header->head);
}

/* Returns what a job sees at a sequence number. */
static const uint32_t *image_at(const struct hr__places *p, uint64_t sequence)
{
    uint64_t number = sequence / p->chunk_samples;
    const struct hr__header_place *places =
        (const void *)((const uint8_t *)p->header + p->header->places_offset);
    const struct hr__header_place *place = &places[number % p->places];
    assert_int_equal(atomic_load(&place->number), number);
    return (const void *)(p->data + atomic_load(&place->offset) +
                          sequence % p->chunk_samples * SAMPLE_BYTES);
}

static struct hr__place_cursor *cursor_at(struct hr__places *p, uint64_t batch, uint64_t epoch,
                                          uint64_t position, uint64_t *sequence)
{
    struct hr__place_cursor *cursor;
    struct hr_error error;
    struct hr__span span;
    assert_int_equal(hr__places_cursor_create(p, &cursor, batch, &error), 0);
    assert_true(hr__places_sit(p, cursor, (uint64_t[]){epoch, position}, 1, &span, sequence));
    assert_int_equal(atomic_load(&cursor->control->next), *sequence);
    return cursor;
}

static void test_chunk_sizes(void **state)
{
    assert_int_equal(hr__places_chunk(3 * 224 * 224 * 4, 64, 4096), 8);
    assert_int_equal(hr__places_chunk(3 * 224 * 224, 64, 4096), 8);
    assert_int_equal(hr__places_chunk(3 * 32 * 32, 128, 4096), 8);
    assert_int_equal(hr__places_chunk(256, 64, 4096), 16);
    assert_int_equal(hr__places_chunk(3 * 224 * 224 * 4, 3, 4096), 3); /* no larger than a batch */
    assert_int_equal(hr__places_chunk(1000, 100, 4096), 100);          /* 512 would fill pages */
}

/* A window larger than the machine's memory is refused at once, as is one that overflows. */
static void test_too_much(void **state)
{
    struct hr__places_wish wish = {
        .sample_bytes = (size_t)1 << 20, .batch_samples = 1024, .notify = note};
    struct hr__places *places;
    struct hr_error error;
    wish.window = 1 << 14; /* 16 TiB */
    assert_int_equal(hr__places_create(&places, &wish, &error), -ENOMEM);
    assert_non_null(strstr(error.message, "lower window or batch_size"));
    wish.window = (uint64_t)1 << 31;
    assert_int_equal(hr__places_create(&places, &wish, &error), -EFBIG);
    assert_null(places);
}

/* Pages of a queue at home on node 0, those that it may grow by as well. */
static void test_node(void **state)
{
    struct hr__places_wish wish = {
        .sample_bytes = SAMPLE_BYTES, .batch_samples = 16, .window = 4, .notify = note};
    for (wish.node = -1; wish.node < 1; wish.node++) {
        struct hr__places *p;
        struct hr_error error;
        assert_int_equal(hr__places_create(&p, &wish, &error), 0);
        for (int i = 0; i < 2; i++) {
            uint8_t *at = p->data + (i ? p->header->data_bytes - PAGE : 0);
            unsigned long nodes = 0;
            int policy = -1;
            if (syscall(SYS_get_mempolicy, &policy, &nodes, 8 * sizeof nodes + 1, at, 2)) {
                print_message("the kernel or the container refuses get_mempolicy\n");
            } else {
                assert_int_equal(policy, wish.node < 0 ? 0 : 1); /* default, preferred */
                assert_int_equal(nodes, wish.node < 0 ? 0 : 1);
            }
        }
        hr__places_destroy(&p);
    }
}

static void test_header(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    assert_int_equal(p->chunk_samples, 8);
    assert_int_equal(p->places, 8); /* no more than the window */
    assert_int_equal(p->header->is_gapless, 1);
    assert_int_equal(lseek(p->data_file, 0, SEEK_END), (off_t)(p->places * p->chunk_bytes));
    assert_int_equal(p->header->data_bytes, 3 * p->places * p->chunk_bytes);
    /* A job cannot write to the files, nor seal them. */
    assert_true(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, p->data_file, 0) == MAP_FAILED);
    assert_true(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, p->header_file, 0) == MAP_FAILED);
    assert_int_equal(write(p->data_file, "x", 1), -1);
    assert_int_equal(ftruncate(p->data_file, 0), -1);
    hr__places_destroy(&p);
    assert_null(p);
}

/* The queue stops until it is started, runs to the end of the ring, and continues when a cursor
 * releases samples. */
static void test_room(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    struct hr__chunk chunk;
    assert_int_equal(hr__places_acquire(p, 1, &chunk), -EAGAIN);
    begin(p, 5, 0, 1, 1000);
    uint64_t first;
    struct hr__place_cursor *cursor = cursor_at(p, 16, 5, 0, &first);
    assert_int_equal(first, 8);
    uint64_t number = 1;
    while (!advance(p, number, 8, 5))
        number++;
    assert_int_equal(number, 1 + p->places);
    assert_int_equal(head_of(p), number * 8);
    assert_int_equal(atomic_load(&p->header->wants_room), 1);
    /* Taken but not released: the queue waits, because the job has enough. */
    atomic_store(&cursor->control->next, first + 16);
    assert_int_equal(advance(p, number, 8, 5), -EAGAIN);
    atomic_store(&cursor->control->mark, first + 16);
    assert_true(hr__places_take_room(p));
    assert_int_equal(advance(p, number, 8, 5), 0);
    assert_int_equal(advance(p, number + 1, 8, 5), 0);
    assert_int_equal(advance(p, number + 2, 8, 5), -EAGAIN);
    assert_int_equal(atomic_load(&p->header->tail), first + 16);
    assert_int_equal(p->pieces, p->places);
    for (uint64_t s = first + 16; s < head_of(p); s++)
        assert_int_equal(image_at(p, s)[7], stamp(5, s));
    hr__places_cursor_destroy(p, &cursor);
    hr__places_destroy(&p);
}

/* Anyone can ask how far a queue is ahead, even while others hold its lock. */
static void test_hint(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    assert_true(hr__places_ahead(p) >= 1e9);
    begin(p, 0, 0, 1, 40);
    assert_true(hr__places_ahead(p) >= 1e9); /* nobody takes samples */
    uint64_t a, b;
    struct hr__place_cursor *cursor = cursor_at(p, 16, 0, 0, &a),
                            *other = cursor_at(p, 4, 0, 8, &b);
    assert_int_equal(advance(p, 1, 8, 0), 0);
    assert_int_equal(advance(p, 2, 8, 0), 0);
    pthread_mutex_lock(&p->lock);
    assert_float_equal(hr__places_ahead(p), 2, 0); /* of the furthest cursor: 8 samples, in its
                                                      batches */
    atomic_store(&cursor->control->next, a + 12);
    assert_float_equal(hr__places_ahead(p), 0.25, 0);
    atomic_store(&cursor->control->next, UINT64_MAX); /* jobs may write anything there */
    assert_float_equal(hr__places_ahead(p), 0, 0);
    pthread_mutex_unlock(&p->lock);
    hr__places_cursor_destroy(p, &cursor);
    assert_float_equal(hr__places_ahead(p), 2, 0);
    hr__places_await(p, true);
    assert_float_equal(hr__places_ahead(p), 0, 0);
    hr__places_await(p, false);
    hr__places_stop(p);
    assert_true(hr__places_ahead(p) >= 1e9);
    hr__places_cursor_destroy(p, &other);
    hr__places_destroy(&p);
}

struct asker {
    pthread_t thread;
    struct hr__places *places;
    _Atomic int is_over;
    uint64_t asked, wrong;
};

static void *asker_main(void *arg)
{
    struct asker *asker = arg;
    for (; !atomic_load(&asker->is_over) || !asker->asked; asker->asked++)
        asker->wrong += !(hr__places_ahead(asker->places) >= -2);
    return NULL;
}

/* Cursors come and go while the crew asks. */
static void test_hint_beside_cursors(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    begin(p, 0, 0, 1, 1000);
    struct asker asker = {.places = p};
    assert_int_equal(pthread_create(&asker.thread, NULL, asker_main, &asker), 0);
    struct hr__place_cursor *cursors[4] = {NULL};
    unsigned seed = 3;
    uint64_t at;
    for (int turn = 0; turn < 4000; turn++) {
        struct hr__place_cursor **cursor = &cursors[rnd(&seed) % 4];
        if (*cursor)
            hr__places_cursor_destroy(p, cursor);
        else
            *cursor = cursor_at(p, 16, 0, rnd(&seed) % 32, &at);
    }
    for (int i = 0; i < 4; i++)
        hr__places_cursor_destroy(p, &cursors[i]);
    atomic_store(&asker.is_over, 1);
    pthread_join(asker.thread, NULL);
    assert_int_equal(asker.wrong, 0);
    hr__places_destroy(&p);
}

/* The fast job continues, the slow one is notified, and the samples that it holds do not change. */
static void test_expel_and_lend(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 8, &told);
    begin(p, 0, 0, 1, 1000);
    uint64_t a, b;
    struct hr__place_cursor *fast = cursor_at(p, 16, 0, 0, &a);
    struct hr__place_cursor *slow = cursor_at(p, 16, 0, 0, &b);
    uint64_t number = 1;
    while (!advance(p, number, 8, 0))
        number++;
    /* The slow job holds its first batch; the fast one has taken nearly everything. */
    atomic_store(&slow->control->next, b + 16);
    const uint32_t *held = image_at(p, b), before = held[0];
    atomic_store(&fast->control->next, a + 96);
    atomic_store(&fast->control->mark, a + 96);
    assert_int_equal(advance(p, number, 8, 0), -EAGAIN); /* two batches are enough */
    atomic_store(&fast->control->next, a + 104);
    atomic_store(&fast->control->mark, a + 104);
    /* Memory is allocated without holding the lock; if there is none, the queue waits for room. */
    memory.places = p;
    memory.refused = 2;
    assert_int_equal(advance(p, number, 8, 0), -EAGAIN);
    assert_int_equal(memory.count, 2);
    assert_true(hr__places_take_room(p));
    assert_int_equal(p->pieces, p->places);
    assert_int_equal(advance(p, number++, 8, 0), 0);
    assert_int_equal(memory.count, 3);
    assert_int_equal(p->pieces, p->places + 1);
    memory.places = NULL;
    atomic_store(&fast->control->next, a + 112);
    atomic_store(&fast->control->mark, a + 112);
    assert_int_equal(advance(p, number++, 8, 0), 0);
    assert_int_equal(p->leased_count, 2);
    assert_int_equal(held[0], before);
    assert_false(hr__places_was_expelled(p, slow)); /* only held samples were in the way */
    atomic_store(&fast->control->next, a + 120);
    atomic_store(&fast->control->mark, a + 120);
    assert_int_equal(advance(p, number++, 8, 0), 0);
    assert_true(atomic_load(&slow->control->floor) > b + 16);
    assert_true(told > 0);
    assert_true(hr__places_was_expelled(p, slow));
    assert_false(hr__places_was_expelled(p, slow));
    assert_int_equal(held[0], before);
    struct hr__span span;
    uint64_t sequence;
    assert_false(hr__places_sit(p, slow, (uint64_t[]){0, 16}, 1, &span, &sequence));
    /* It returns to a place that is intact; leased memory comes back when the job releases it. */
    assert_true(hr__places_sit(p, slow, (uint64_t[]){0, 48}, 1, &span, &sequence));
    assert_int_equal(sequence, 8 + 48);
    atomic_store(&slow->control->mark, sequence);
    atomic_store(&fast->control->next, head_of(p));
    atomic_store(&fast->control->mark, head_of(p));
    while (!advance(p, number, 8, 0))
        number++;
    hr__places_cursor_destroy(p, &slow);
    assert_int_equal(p->leased_count, 0);
    assert_true(p->pieces <= p->places + 3);
    hr__places_cursor_destroy(p, &fast);
    hr__places_destroy(&p);
}

static void test_waits_for_slow(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    hr__places_set_waiting(p, true);
    begin(p, 0, 0, 1, 1000);
    uint64_t a, b;
    struct hr__place_cursor *fast = cursor_at(p, 16, 0, 0, &a);
    struct hr__place_cursor *slow = cursor_at(p, 16, 0, 0, &b);
    uint64_t number = 1;
    while (!advance(p, number, 8, 0))
        number++;
    atomic_store(&fast->control->next, head_of(p));
    atomic_store(&fast->control->mark, head_of(p));
    assert_int_equal(advance(p, number, 8, 0), -EAGAIN);
    assert_false(hr__places_was_expelled(p, slow));
    atomic_store(&slow->control->next, b + 8);
    atomic_store(&slow->control->mark, b + 8);
    assert_int_equal(advance(p, number, 8, 0), 0);
    hr__places_cursor_destroy(p, &fast);
    hr__places_cursor_destroy(p, &slow);
    hr__places_destroy(&p);
}

/* Without memory for a lease, the queue waits for the job that holds the samples. */
static void test_lends_no_more_than_it_has(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    begin(p, 0, 0, 1, 100000);
    struct hr__place_cursor *held[8], *fast;
    uint64_t at, number = 1;
    fast = cursor_at(p, 16, 0, 0, &at);
    for (int i = 0; i < 8; i++) {
        uint64_t sequence, position = atomic_load(&fast->control->next) - 8;
        held[i] = cursor_at(p, 16, 0, position, &sequence);
        while (!advance(p, number, 8, 0))
            number++;
        /* The job stops while it holds most of a ring. */
        uint64_t to = head_of(p) < sequence + 48 ? head_of(p) : sequence + 48;
        atomic_store(&held[i]->control->next, to);
        atomic_store(&fast->control->next, to);
        atomic_store(&fast->control->mark, to);
    }
    while (!advance(p, number, 8, 0))
        number++;
    assert_true(p->pieces <= 3 * p->places);
    assert_true(p->pieces > 2 * p->places);
    assert_int_equal(p->spares, 0);
    for (int i = 0; i < 8; i++)
        hr__places_cursor_destroy(p, &held[i]);
    assert_int_equal(p->leased_count, 0);
    assert_int_equal(advance(p, number, 8, 0), 0);
    hr__places_cursor_destroy(p, &fast);
    hr__places_destroy(&p);
}

/* Epochs follow each other; an earlier one can be taken while it is whole in the ring. */
static void test_spans(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    begin(p, 0, 0, 1, 20);
    uint64_t a, sequence;
    struct hr__span span;
    struct hr__place_cursor *cursor = cursor_at(p, 16, 0, 0, &a);
    assert_int_equal(advance(p, 1, 8, 0), 0);
    assert_int_equal(advance(p, 2, 8, 0), 0);
    told = 0;
    assert_int_equal(advance(p, 3, 4, 0), 0);
    assert_int_equal(told, 1);
    assert_int_equal(head_of(p), 8 + 20);
    uint64_t first = hr__places_stop(p);
    assert_int_equal(first, 5);
    begin(p, 1, 0, first, 20);
    assert_int_equal(head_of(p), 40);
    assert_int_equal(atomic_load(&p->header->epoch), 1);
    assert_true(hr__places_sit(p, NULL, (uint64_t[]){0, 16}, 1, &span, &sequence));
    assert_int_equal(sequence, 8 + 16);
    assert_true(hr__places_sit(p, NULL, (uint64_t[]){1, 0}, 1, &span, &sequence));
    assert_int_equal(sequence, 40);
    assert_false(hr__places_sit(p, NULL, (uint64_t[]){2, 0}, 1, &span, &sequence));
    assert_false(hr__places_sit(p, NULL, (uint64_t[]){1, 5}, 2, &span, &sequence)); /* odd */
    assert_true(hr__places_sit(p, NULL, (uint64_t[]){1, 6}, 2, &span, &sequence));
    assert_int_equal(sequence, 43);
    hr__places_cursor_destroy(p, &cursor);
    hr__places_destroy(&p);
}

/* A queue is restarted before it has prepared the samples for which a job was placed, and while a
 * job waits for samples far ahead. Neither job may take the new samples for its own. */
static void test_begins_again(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    begin(p, 0, 40, 1, 24);
    uint64_t near, far, sequence;
    struct hr__span span;
    struct hr__place_cursor *a = cursor_at(p, 16, 0, 40, &near);
    struct hr__place_cursor *b = cursor_at(p, 16, 0, 60, &far);
    hr__places_expel_all(p);
    assert_true(atomic_load(&a->control->floor) > near);
    assert_true(atomic_load(&b->control->floor) > far);
    assert_true(hr__places_was_expelled(p, a));
    uint64_t first = hr__places_stop(p);
    assert_true(first * p->chunk_samples > near && first * p->chunk_samples > far);
    begin(p, 0, 8, first, 56);
    assert_int_equal(advance(p, first, 8, 0), 0);
    assert_true(hr__places_sit(p, a, (uint64_t[]){0, 40}, 1, &span, &sequence));
    assert_int_equal(sequence, first * p->chunk_samples + 32);
    assert_int_equal(span.position, 8);
    hr__places_cursor_destroy(p, &a);
    hr__places_cursor_destroy(p, &b);
    hr__places_destroy(&p);
}

static int records;
static const struct hr__places *records_of;
static uint64_t records_head;

static void count_record(void *arg, const struct hr__place_record *record)
{
    records++;
    records_head = head_of(records_of);
    assert_string_equal(record->path, "a/b.jpg");
    assert_string_equal(record->reason, record->is_halt ? "cut off" : "no image");
    assert_int_equal(record->index, record->is_halt ? 78 : 77);
    if (arg)
        *(uint64_t *)arg = record->sequence;
}

/* Records are published before the samples that they are about. */
static void test_records(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    records_of = p;
    begin(p, 0, 0, 1, 100);
    struct hr__chunk chunk;
    assert_int_equal(hr__places_acquire(p, 1, &chunk), 0);
    fill(p, 1, &chunk, 0);
    struct hr__chunk_bad bad = {.place = 3, .index = 77, .path = "a/b.jpg", .reason = "no image"};
    hr__places_publish(
        p, &(struct hr__chunk_done){.number = 1, .count = 8, .bad_count = 1, .bad = &bad});
    assert_int_equal(told, 1);
    assert_int_equal(head_of(p), 8);
    assert_int_equal(advance(p, 2, 8, 0), 0);
    assert_int_equal(head_of(p), 8);
    uint64_t sequence = 0;
    records = 0;
    hr__places_publish_records(p, count_record, &sequence);
    assert_int_equal(records, 1);
    assert_int_equal(records_head, 8);
    assert_int_equal(sequence, 11);
    assert_int_equal(head_of(p), 24);
    const struct hr__header_sample *samples =
        (const void *)((const uint8_t *)p->header + p->header->samples_offset);
    assert_int_equal(samples[11 % p->ring_samples].instead, 77);
    assert_int_equal(samples[10 % p->ring_samples].instead, -1);
    assert_int_equal(samples[10 % p->ring_samples].index, 30);
    /* The queue ends at its fifth sample. */
    assert_int_equal(hr__places_acquire(p, 3, &chunk), 0);
    fill(p, 3, &chunk, 0);
    struct hr__chunk_done done = {
        .number = 3,
        .count = 4,
        .error = {.code = -EBADMSG},
        .failed = {.place = 4, .index = 78, .path = "a/b.jpg", .reason = "cut off"}};
    hr__places_publish(p, &done);
    assert_int_equal(atomic_load(&p->header->halt), HR__SEQUENCE_NONE);
    hr__places_publish_records(p, count_record, &sequence);
    assert_int_equal(records, 2);
    assert_int_equal(atomic_load(&p->header->halt), 28);
    assert_int_equal(head_of(p), 28);
    records = 0;
    hr__places_recall(p, 12, 108, count_record, &sequence);
    assert_int_equal(records, 1);
    assert_int_equal(sequence, 28);
    hr__places_destroy(&p);
}

static void keep_record(void *arg, const struct hr__place_record *record)
{
    *(struct hr__place_record *)arg = *record;
    records++;
}

/* Ends the queue at place 4 of chunk `number`, without memory for the message. */
static void halt_poor(struct hr__places *p, uint64_t number)
{
    struct hr__chunk chunk;
    assert_int_equal(hr__places_acquire(p, number, &chunk), 0);
    fill(p, number, &chunk, 0);
    struct hr__chunk_done done = {
        .number = number,
        .count = 4,
        .error = {.code = -EBADMSG, .message = "sample 78 is cut off"},
        .failed = {.place = 4, .index = 78, .path = "a/b.jpg", .reason = "cut off"}};
    hr__alloc_fail_at(1, 1);
    hr__places_publish(p, &done);
    hr__alloc_fail_at(0, 0);
}

/* A queue's end is reported even without memory for the details, each time. */
static void test_halt_without_memory(void **state)
{
    int told = 0;
    struct hr__places *p = make(16, 4, &told);
    struct hr__place_record record;
    uint64_t first = 1;
    for (int round = 0; round < 3; round++) {
        begin(p, 0, 0, first, 100);
        told = 0;
        halt_poor(p, first);
        assert_true(told > 0);
        uint64_t end = first * p->chunk_samples + 4;
        /* The second end is not reported before the third comes. */
        if (round == 1) {
            first = hr__places_stop(p);
            continue;
        }
        records = 0;
        hr__places_publish_records(p, keep_record, &record);
        assert_int_equal(records, 1);
        assert_true(record.is_halt);
        assert_false(record.has_sample);
        assert_int_equal(record.sequence, end);
        assert_int_equal(record.error.code, -EBADMSG);
        assert_string_equal(record.error.message, "sample 78 is cut off");
        assert_int_equal(atomic_load(&p->header->halt), end);
        records = 0;
        hr__places_recall(p, end - 4, end, keep_record, &record);
        assert_int_equal(records, 1);
        assert_int_equal(record.sequence, end);
        first = hr__places_stop(p);
    }
    hr__places_destroy(&p);
}

/* A job of the model. */
struct place_model {
    struct hr__place_cursor *cursor;
    uint64_t next, end, batch;
    uint64_t held[4]; /* begins of batches */
    const uint32_t *image[4][64];
    int count;
    uint64_t taken, expelled;
};

static void check_held(const struct place_model *m)
{
    for (int i = 0; i < m->count; i++)
        for (uint64_t s = 0; s < m->batch; s++)
            assert_int_equal(m->image[i][s][5], stamp(0, m->held[i] + s));
}

static void model_release(struct place_model *m, int i)
{
    m->count--;
    for (; i < m->count; i++) {
        m->held[i] = m->held[i + 1];
        memcpy(m->image[i], m->image[i + 1], sizeof m->image[i]);
    }
    uint64_t mark = m->next;
    for (i = 0; i < m->count; i++)
        mark = m->held[i] < mark ? m->held[i] : mark;
    atomic_store(&m->cursor->control->mark, mark);
}

static void model_take(struct hr__places *p, struct place_model *m)
{
    if (m->count == 4 || m->next + m->batch > head_of(p) || m->next + m->batch > m->end)
        return;
    /* Batches kept for more than a ring have been copied by then. */
    while (m->count && m->next + m->batch - m->held[0] > p->ring_samples - m->batch)
        model_release(m, 0);
    if (atomic_load(&m->cursor->control->floor) <= m->next)
        for (uint64_t s = 0; s < m->batch; s++)
            m->image[m->count][s] = image_at(p, m->next + s);
    atomic_store(&m->cursor->control->next, m->next + m->batch);
    if (atomic_load(&m->cursor->control->floor) > m->next) {
        atomic_store(&m->cursor->control->next, m->next);
        return;
    }
    m->held[m->count++] = m->next;
    m->next += m->batch;
    m->taken++;
}

static void test_model(void **state)
{
    unsigned seed = 7;
    for (int round = 0; round < 40; round++) {
        int told = 0;
        uint64_t at, number = 1;
        struct hr__places *p = make(8 + rnd(&seed) % 24, 3 + rnd(&seed) % 4, &told);
        begin(p, 0, 0, 1, 1000000);
        struct place_model jobs[3] = {0};
        for (int j = 0; j < 3; j++) {
            jobs[j].batch = 5 + rnd(&seed) % 20;
            jobs[j].cursor = cursor_at(p, jobs[j].batch, 0, 0, &at);
            jobs[j].next = at;
            jobs[j].end = at + 1000000;
        }
        for (int step = 0; step < 4000; step++) {
            struct place_model *m = &jobs[rnd(&seed) % (step % 1000 < 500 ? 3 : 2)];
            unsigned what = rnd(&seed) % 4;
            if (what == 0 && m->count)
                model_release(m, (int)(rnd(&seed) % (unsigned)m->count));
            else if (what == 1)
                model_take(p, m);
            else if (!advance(p, number, 8, 0))
                number++;
            for (int j = 0; j < 3; j++) {
                struct hr__span span;
                struct place_model *e = &jobs[j];
                check_held(e);
                if (!hr__places_was_expelled(p, e->cursor))
                    continue;
                e->expelled++;
                /* The oldest place that is still there. */
                uint64_t back;
                assert_true(hr__places_back(p, &back));
                assert_true(
                    hr__places_sit(p, e->cursor, (uint64_t[]){0, back - 8}, 1, &span, &back));
                e->next = back;
            }
        }
        assert_true(jobs[0].taken + jobs[1].taken > 100);
        for (int j = 0; j < 3; j++)
            hr__places_cursor_destroy(p, &jobs[j].cursor);
        assert_int_equal(p->leased_count, 0);
        hr__places_destroy(&p);
    }
}

/* The same with threads, standing in for processes. */
struct taker {
    pthread_t thread;
    struct hr__places *places;
    struct hr__place_cursor *cursor;
    uint64_t batch, taken, lost, wrong;
    unsigned seed;
    _Atomic int *is_over;
};

static void take_and_check(struct taker *t, uint64_t *next)
{
    struct hr__places *p = t->places;
    const uint32_t *images[32];
    for (uint64_t i = 0; i < t->batch; i++) {
        uint64_t s = *next + i;
        const struct hr__header_place *place =
            (const struct hr__header_place *)(const void *)((const uint8_t *)p->header +
                                                            p->header->places_offset) +
            s / p->chunk_samples % p->places;
        images[i] = (const void *)(p->data + atomic_load(&place->offset) +
                                   s % p->chunk_samples * SAMPLE_BYTES);
    }
    atomic_store(&t->cursor->control->next, *next + t->batch);
    if (atomic_load(&t->cursor->control->floor) > *next) {
        atomic_store(&t->cursor->control->next, *next);
        return;
    }
    for (int look = 0; look < 2; look++) {
        for (uint64_t i = 0; i < t->batch; i++)
            for (size_t w = 0; w < SAMPLE_BYTES / 4; w += 31)
                t->wrong += images[i][w] != stamp(0, *next + i);
        if (rnd(&t->seed) % 8 == 0)
            nanosleep(&(struct timespec){.tv_nsec = rnd(&t->seed) % 500000}, NULL);
    }
    *next += t->batch;
    t->taken++;
    atomic_store(&t->cursor->control->mark, *next);
}

static void *taker_main(void *arg)
{
    struct taker *t = arg;
    uint64_t next = atomic_load(&t->cursor->control->next);
    while (!atomic_load(t->is_over)) {
        struct hr__span span;
        uint64_t back;
        if (atomic_load(&t->cursor->control->floor) > next) {
            hr__places_was_expelled(t->places, t->cursor);
            if (!hr__places_back(t->places, &back) ||
                !hr__places_sit(t->places, t->cursor, (uint64_t[]){0, back - 8}, 1, &span, &back))
                continue;
            next = back;
            atomic_store(&t->cursor->control->mark, next);
            t->lost++;
        }
        if (next + t->batch <= head_of(t->places))
            take_and_check(t, &next);
        else
            sched_yield();
    }
    return NULL;
}

static void test_threads(void **state)
{
    int told = 0;
    uint64_t at, number = 1;
    _Atomic int is_over = 0;
    struct hr__places *p = make(16, 4, &told);
    begin(p, 0, 0, 1, UINT64_C(1) << 40);
    /* Many other cursors slow the agent's checks down, so that much can happen meanwhile. */
    struct hr__place_cursor *bystanders[BYSTANDERS];
    struct hr_error error;
    for (int i = 0; i < BYSTANDERS; i++) {
        assert_int_equal(hr__places_cursor_create(p, &bystanders[i], 16, &error), 0);
        hr__places_cursor_hand_over(p, bystanders[i]);
    }
    struct taker takers[3] = {0};
    for (unsigned i = 0; i < 3; i++) {
        takers[i] =
            (struct taker){.places = p, .batch = 16 - 3 * i, .seed = i, .is_over = &is_over};
        takers[i].cursor = cursor_at(p, takers[i].batch, 0, 0, &at);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&takers[i].thread, NULL, taker_main, &takers[i]), 0);
    for (int turns = 0; turns < 200000 && number < 10000; turns++)
        if (!advance(p, number, 8, 0))
            number++;
        else
            sched_yield();
    atomic_store(&is_over, 1);
    uint64_t taken = 0;
    for (int i = 0; i < 3; i++) {
        pthread_join(takers[i].thread, NULL);
        taken += takers[i].taken;
        assert_int_equal(takers[i].wrong, 0);
        hr__places_cursor_destroy(p, &takers[i].cursor);
    }
    for (int i = 0; i < BYSTANDERS; i++)
        hr__places_cursor_destroy(p, &bystanders[i]);
    assert_true(taken > 100);
    assert_int_equal(p->leased_count, 0);
    hr__places_destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunk_sizes),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_node),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_hint),
        cmocka_unit_test(test_hint_beside_cursors),
        cmocka_unit_test(test_expel_and_lend),
        cmocka_unit_test(test_waits_for_slow),
        cmocka_unit_test(test_lends_no_more_than_it_has),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_begins_again),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_halt_without_memory),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
