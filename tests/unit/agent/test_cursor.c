/*
 * A cursor against a fake queue. Batches are compared, byte for byte, with the published samples
 * and with what the test wrote into them, while the test keeps, changes and releases batches in any
 * order.
 */
#include "fake_queue.h"

#include "agent/client/cursor.h"
#include "base/clock.h"
#include "base/memory.h"
#include "loader/batch_rows.h"

#include <headrace/loader.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD_MAX 64

static uint32_t random_state;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 4) * below >> 28);
}

static struct hr_tensor_spec spec_of(uint64_t bytes)
{
    return (struct hr_tensor_spec){.dtype = HR_UINT8,
                                   .layout = HR_NHWC,
                                   .channels = 1,
                                   .height = 1,
                                   .width = (int)bytes,
                                   .bytes = bytes};
}

static struct hr__cursor *sit(const struct fake_queue *queue)
{
    struct hr__cursor *cursor = NULL;
    struct hr_error error;
    struct hr_tensor_spec spec = spec_of(queue->sample_bytes);
    int files[4];
    fake_queue_files(queue, files);
    if (hr__cursor_create(&cursor, &spec, 0, files, &error))
        fail_msg("%s", error.message);
    return cursor;
}

/* A batch that the test holds, and its expected contents. */
struct holding {
    struct hr_batch *batch;
    uint64_t from;
    size_t count;
    unsigned char *expected;
};

static void check(const struct fake_queue *queue, const struct holding *h)
{
    struct hr_batch_view view;
    hr_batch_get(h->batch, &view);
    assert_int_equal(view.count, h->count);
    assert_int_equal((uintptr_t)view.images % 64, 0);
    for (size_t i = 0; i < h->count; i++) {
        assert_int_equal(view.labels[i], (int64_t)(h->from + i) * 3 + 1);
        assert_int_equal(view.indices[i], (int64_t)(h->from + i) * 5);
    }
    assert_memory_equal(view.images, h->expected, h->count * queue->sample_bytes);
}

static void copy(struct fake_queue *queue, struct hr__cursor *cursor, uint64_t from, size_t count,
                 const unsigned char *expected)
{
    struct hr_error error;
    size_t chunks = hr__cursor_chunks(cursor, from, from + count);
    int64_t *numbers = calloc(3 * count + chunks, sizeof *numbers);
    unsigned char *images = malloc(count * queue->sample_bytes);
    assert_non_null(numbers);
    assert_non_null(images);
    struct hr__seen seen = {.labels = numbers,
                            .indices = numbers + count,
                            .instead = numbers + 2 * count,
                            .offsets = (uint64_t *)numbers + 3 * count};
    assert_int_equal(hr__cursor_look(cursor, from, from + count, &seen, &error), 0);
    assert_int_equal(hr__cursor_take(cursor, from, from + count), 0);
    if (hr__cursor_copy(cursor, from, count, seen.offsets, images, &error))
        fail_msg("%s", error.message);
    assert_memory_equal(images, expected, count * queue->sample_bytes);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(seen.labels[i], (int64_t)(from + i) * 3 + 1);
    hr__cursor_settle(cursor);
    free(images);
    free(numbers);
}

/* Takes a batch, in place or copied. Returns 1, or 0 if it is not ready. */
static int take(struct fake_queue *queue, struct hr__cursor *cursor, uint64_t from, size_t count,
                struct holding *h)
{
    struct hr_error error;
    if (hr__cursor_ready(cursor, from) < count)
        return 0;
    h->from = from;
    h->count = count;
    h->batch = NULL;
    h->expected = malloc(count * queue->sample_bytes);
    assert_non_null(h->expected);
    for (size_t i = 0; i < count; i++)
        for (uint64_t b = 0; b < queue->sample_bytes; b++)
            h->expected[i * queue->sample_bytes + b] = fake_byte(from + i, b);
    if (!hr__lease_is_possible(cursor, from, from + count)) {
        copy(queue, cursor, from, count, h->expected);
        free(h->expected);
        return 1;
    }
    struct hr__lease *lease = NULL;
    if (hr__lease_create(&lease, cursor, from, from + count, &error))
        fail_msg("%s", error.message);
    h->batch = &lease->batch;
    check(queue, h);
    return 1;
}

static void scribble(const struct fake_queue *queue, struct holding *h)
{
    struct hr_batch_view view;
    hr_batch_get(h->batch, &view);
    size_t bytes = h->count * queue->sample_bytes;
    size_t begin = pick(3) ? pick((uint32_t)bytes) : 0;
    size_t length = pick(3) ? 1 + pick(200) : bytes;
    if (!pick(4)) /* its end */
        begin = bytes > 10 ? bytes - 10 : 0;
    if (length > bytes - begin)
        length = bytes - begin;
    unsigned char value = (unsigned char)pick(256);
    memset((unsigned char *)view.images + begin, value, length);
    memset(h->expected + begin, value, length);
}

static void release(struct holding *held, size_t *count, size_t i)
{
    hr_batch_release(&held[i].batch);
    free(held[i].expected);
    held[i] = held[--*count];
}

/* One queue and one cursor, with random actions of a job. */
static void play(uint64_t sample_bytes, uint64_t batch, uint64_t ring, int steps, unsigned keep,
                 unsigned seldom)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct holding held[HELD_MAX];
    size_t count = 0;
    uint64_t at = 0, epoch_end = UINT64_MAX;
    assert_non_null(queue);
    fake_queue_make(queue, sample_bytes, 0, batch, ring);
    struct hr__cursor *cursor = sit(queue);
    struct hr_error error;
    assert_int_equal(hr__cursor_go_to(cursor, 0, &error), 0);
    size_t fixed = batch;
    for (int step = 0; step < steps; step++) {
        switch (pick(5)) {
        case 0:
        case 1: {
            /* Sometimes an epoch ends within a chunk. */
            uint64_t n = queue->chunk_samples;
            if (epoch_end == UINT64_MAX && !pick(20))
                n = 1 + pick((uint32_t)n);
            if (epoch_end == UINT64_MAX && fake_queue_publish(queue, n, 0) &&
                n < queue->chunk_samples)
                epoch_end = (queue->next_chunk - 1) * queue->chunk_samples + n;
            break;
        }
        case 2: {
            size_t want = pick(3) ? fixed : 1 + pick((uint32_t)batch);
            if (epoch_end != UINT64_MAX && at + want > epoch_end)
                want = (size_t)(epoch_end - at);
            if (!want) {
                at = queue->next_chunk * queue->chunk_samples;
                epoch_end = UINT64_MAX;
                assert_int_equal(hr__cursor_go_to(cursor, at, &error), 0);
                break;
            }
            if (count == HELD_MAX)
                release(held, &count, pick(HELD_MAX));
            if (take(queue, cursor, at, want, &held[count]) == 1) {
                at += want;
                count += held[count].batch != NULL;
            }
            break;
        }
        case 3:
            if (count && !pick(seldom))
                scribble(queue, &held[pick((uint32_t)count)]);
            break;
        case 4:
            while (count > pick(keep + 1))
                release(held, &count, pick(2) ? 0 : pick((uint32_t)count));
            break;
        }
        for (size_t i = 0; i < count; i++)
            check(queue, &held[i]);
        assert_int_equal(atomic_load(&queue->control->held), count);
    }
    assert_true(at > 0);
    while (count)
        release(held, &count, pick((uint32_t)count));
    assert_int_equal(atomic_load(&queue->control->mark), atomic_load(&queue->control->next));
    assert_int_equal(cursor->next, at);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

static void test_any_order(void **state)
{
    /* Samples of whole pages, that share pages, of which many are in a page, and with gaps. */
    static const uint64_t sizes[] = {4096, 2048, 512, 64, 192, 1536, 4544, 12288, 37};
    for (unsigned seed = 1; seed <= 4; seed++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            random_state = seed * 977 + (unsigned)i;
            uint64_t batch = 1 + pick(20);
            /* Every other job writes so seldom that it counts as one that does not write. */
            play(sizes[i], batch, batch * (4 + pick(5)), 600, seed % 2 ? 3 : 12, seed > 2 ? 16 : 2);
        }
}

/* list(loader): the job keeps everything, and the queue never waits for it. */
static void test_keeps_all(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct holding held[HELD_MAX];
    size_t count = 0;
    assert_non_null(queue);
    fake_queue_make(queue, 4544, 0, 16, 64);
    struct hr__cursor *cursor = sit(queue);
    for (uint64_t at = 0; count < HELD_MAX; at += 16) {
        while (fake_queue_publish(queue, queue->chunk_samples, 0))
            if (queue->next_chunk * queue->chunk_samples >= at + 64)
                break;
        assert_int_equal(take(queue, cursor, at, 16, &held[count]), 1);
        assert_non_null(held[count++].batch);
        assert_true(at + 16 - atomic_load(&queue->control->mark) <= 64);
    }
    assert_true(cursor->owned >= HELD_MAX - 4);
    assert_true(queue->file_bytes <= 3 * queue->places * queue->chunk_bytes);
    for (size_t i = 0; i < count; i++)
        check(queue, &held[i]);
    while (count)
        release(held, &count, pick((uint32_t)count));
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* The first batch is kept for ever: this costs one more window, not one for each round of the
 * ring. */
static void test_keeps_first(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct holding first, last = {0}, now;
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 64);
    struct hr__cursor *cursor = sit(queue);
    for (uint64_t at = 0; at < 64 * 50; at += 8) {
        while (atomic_load(&queue->header->head) < at + 16)
            assert_int_equal(fake_queue_publish(queue, queue->chunk_samples, 0), 1);
        assert_int_equal(take(queue, cursor, at, 8, &now), 1);
        if (!at)
            first = now;
        else if (at > 8) {
            hr_batch_release(&last.batch);
            free(last.expected);
        }
        last = now;
    }
    check(queue, &first);
    assert_int_equal(cursor->owned, 1);
    assert_int_equal(cursor->windows, 2);
    hr_batch_release(&first.batch);
    hr_batch_release(&last.batch);
    free(first.expected);
    free(last.expected);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* A job that is too slow loses the samples that it has not taken, and none that it holds. */
static void test_expelled(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct holding held;
    struct hr_error error;
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 32);
    struct hr__cursor *cursor = sit(queue);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fake_queue_publish(queue, 8, 0), 1);
    assert_int_equal(take(queue, cursor, 0, 8, &held), 1);
    assert_int_equal(fake_queue_publish(queue, 8, 0), 1);
    assert_int_equal(fake_queue_publish(queue, 8, 0), 0);
    assert_int_equal(fake_queue_publish(queue, 8, 1), 1);
    struct hr__lease *lease;
    assert_true(hr__cursor_is_lost(cursor, 8));
    assert_int_equal(hr__cursor_take(cursor, 8, 16), -ESTALE);
    assert_int_equal(hr__lease_create(&lease, cursor, 8, 16, &error), -ESTALE);
    assert_int_equal(atomic_load(&queue->control->next), 8);
    check(queue, &held);
    /* Returns to the queue, at its oldest sample. */
    atomic_store(&queue->control->floor, 0);
    assert_int_equal(hr__cursor_go_to(cursor, 16, &error), 0);
    struct holding other;
    assert_int_equal(take(queue, cursor, 16, 8, &other), 1);
    hr_batch_release(&other.batch);
    free(other.expected);
    /* Backwards: batches held beyond the position become the job's own copies. */
    assert_int_equal(take(queue, cursor, 24, 8, &other), 1);
    assert_int_equal(hr__cursor_go_to(cursor, 16, &error), 0);
    assert_int_equal(cursor->owned, 2);
    struct holding again;
    assert_int_equal(take(queue, cursor, 16, 16, &again), 1);
    check(queue, &other);
    check(queue, &held);
    hr_batch_release(&again.batch);
    hr_batch_release(&other.batch);
    hr_batch_release(&held.batch);
    free(again.expected);
    free(other.expected);
    free(held.expected);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* Written pages are found by both of the kernel's interfaces, and without any. */
static void test_pages(void **state)
{
    struct hr__pages pages;
    hr__pages_open(&pages);
    size_t page = pages.page_bytes;
    int file = memfd_create("headrace-test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, 700 * (off_t)page), 0);
    volatile unsigned char *at =
        mmap(NULL, 700 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    for (int way = 0; way < 3; way++) {
        struct hr__pages some = pages;
        if (way)
            some.can_scan = 0;
        if (way == 2)
            some.file = -1;
        uint64_t faults = hr__pages_faults();
        for (size_t i = 0; i < 700; i += 3)
            at[i * page + 7] = 9;
        assert_true(hr__pages_faults() >= faults + 234);
        unsigned char sum = 0;
        for (size_t i = 0; i < 700; i++)
            sum |= at[i * page];
        assert_int_equal(sum, 0);
        if (way < 2 && pages.file >= 0)
            for (size_t i = 0; i < 700; i++)
                assert_int_equal(hr__pages_is_private(&some, (char *)at + i * page), i % 3 == 0);
        hr__pages_drop(&some, (char *)at + 3 * page, 697 * page);
        for (size_t i = 0; i < 700; i++)
            assert_int_equal(at[i * page + 7], i ? 0 : 9);
        hr__pages_drop(&some, (char *)at, page);
        assert_int_equal(at[7], 0);
        /* Pages that are present and not written cause no fault. */
        faults = hr__pages_faults();
        for (size_t i = 0; i < 700; i++)
            sum |= at[i * page];
        uint64_t first = hr__pages_faults() - faults;
        faults = hr__pages_faults();
        for (size_t i = 0; i < 700; i++)
            sum |= at[i * page];
        assert_true(hr__pages_faults() - faults <= first);
        assert_int_equal(hr__pages_own(&some, (char *)at + page, 5 * page), 0);
        for (size_t i = 0; way < 2 && pages.file >= 0 && i < 10; i++)
            assert_int_equal(hr__pages_is_private(&some, (char *)at + i * page), i >= 1 && i < 6);
        hr__pages_drop(&some, (char *)at, 10 * page);
    }
    munmap((void *)at, 700 * page);
    close(file);
    hr__pages_close(&pages);
}

/* Other threads release batches while this one takes more. */
struct cursor_hand {
    pthread_mutex_t lock;
    struct hr_batch *waiting[8];
    int count, is_over;
};

static void *releaser(void *arg)
{
    struct cursor_hand *hand = arg;
    for (;;) {
        pthread_mutex_lock(&hand->lock);
        struct hr_batch *batch = hand->count ? hand->waiting[--hand->count] : NULL;
        int is_over = hand->is_over;
        pthread_mutex_unlock(&hand->lock);
        if (!batch && is_over)
            return NULL;
        struct hr_batch_view view;
        if (batch) {
            hr_batch_get(batch, &view);
            memset(view.images, 1, 100);
        }
        hr_batch_release(&batch);
    }
}

static void test_threads(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct cursor_hand hand = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[2];
    assert_non_null(queue);
    fake_queue_make(queue, 1536, 0, 8, 64);
    struct hr__cursor *cursor = sit(queue);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, releaser, &hand), 0);
    for (uint64_t at = 0; at < 8 * 1000; at += 8) {
        /* A thread that does not run while it releases a batch holds the mark back. */
        while (at > atomic_load(&queue->control->mark) + 128)
            usleep(100);
        while (atomic_load(&queue->header->head) < at + 8)
            assert_int_equal(fake_queue_publish(queue, queue->chunk_samples, 0), 1);
        struct holding h;
        assert_int_equal(take(queue, cursor, at, 8, &h), 1);
        free(h.expected);
        for (int is_given = 0; !is_given;) {
            pthread_mutex_lock(&hand.lock);
            if (hand.count < 8) {
                hand.waiting[hand.count++] = h.batch;
                is_given = 1;
            }
            pthread_mutex_unlock(&hand.lock);
        }
    }
    pthread_mutex_lock(&hand.lock);
    hand.is_over = 1;
    pthread_mutex_unlock(&hand.lock);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&queue->control->mark), 8 * 1000);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* A forked child frees batches and does not touch the control block. */
static void test_fork(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct holding held;
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 32);
    struct hr__cursor *cursor = sit(queue);
    assert_int_equal(fake_queue_publish(queue, 8, 0), 1);
    assert_int_equal(take(queue, cursor, 0, 8, &held), 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        hr__cursor_unref(&cursor);
        struct hr_batch_view view;
        hr_batch_get(held.batch, &view);
        int same = !memcmp(view.images, held.expected, 8 * 4096);
        hr_batch_release(&held.batch);
        _exit(!same || atomic_load(&queue->control->mark) != 0 ||
              atomic_load(&queue->control->held) != 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check(queue, &held);
    hr_batch_release(&held.batch);
    free(held.expected);
    assert_int_equal(atomic_load(&queue->control->mark), 8);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* Invalid headers are refused, also if they become invalid later. */
static void test_wrong_boards(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct hr_error error;
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 32);
    struct hr_tensor_spec spec = spec_of(4096);
    uint64_t *const fields[] = {
        &queue->header->magic,        &queue->header->sample_bytes,   &queue->header->chunk_samples,
        &queue->header->chunk_bytes,  &queue->header->places,         &queue->header->places_offset,
        &queue->header->data_bytes,   &queue->header->samples_offset, &queue->header->header_bytes,
        &queue->header->record_bytes, &queue->header->records_offset, &queue->control->magic};
    static const uint64_t values[] = {0, 3, UINT64_MAX, UINT64_MAX / 2, UINT64_C(1) << 40};
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            uint64_t before = *fields[f];
            struct hr__cursor *cursor = NULL;
            int files[4];
            *fields[f] = values[v];
            fake_queue_files(queue, files);
            int r = hr__cursor_create(&cursor, &spec, 0, files, &error);
            /* three places, a larger file, tables elsewhere: all valid */
            int is_allowed = (fields[f] == &queue->header->places && v == 1) ||
                             (fields[f] == &queue->header->data_bytes && v == 4) ||
                             (fields[f] == &queue->header->places_offset && !v) ||
                             (fields[f] == &queue->header->samples_offset && !v) ||
                             (fields[f] == &queue->header->record_bytes && !v) ||
                             (fields[f] == &queue->header->records_offset && !v);
            if (r != (is_allowed ? 0 : -EPROTO))
                fail_msg("field %zu, value %zu: %d", f, v, r);
            hr__cursor_unref(&cursor);
            *fields[f] = before;
        }
    struct hr__cursor *cursor = sit(queue);
    struct hr__lease *lease;
    assert_int_equal(fake_queue_publish(queue, 8, 0), 1);
    atomic_store(&queue->at[0].offset, queue->file_bytes);
    assert_int_equal(hr__lease_create(&lease, cursor, 0, 8, &error), -EPROTO);
    atomic_store(&queue->at[0].offset, 12);
    assert_int_equal(hr__lease_create(&lease, cursor, 0, 8, &error), -EPROTO);
    atomic_store(&queue->at[0].offset, 0);
    atomic_store(&queue->at[0].number, 7);
    assert_int_equal(hr__lease_create(&lease, cursor, 0, 8, &error), -EPROTO);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* The rows of samples are copied; more than a sample can have are refused. Here the records lie
 * where the header's entries of samples are: the number of rows, then two values. */
static void test_rows(void **state)
{
    static const uint64_t offsets[2] = {0, 2};
    static const int64_t values[2] = {7, 8};
    const struct hr_column column = {.name = "class", .dtype = HR_INT64};
    const struct hr__row_source from = {&column, 1, offsets, (const void *const[]){values}};
    struct fake_queue *queue = malloc(sizeof *queue);
    struct hr__cursor *cursor = NULL;
    struct hr__row_table *table;
    struct hr__batch_rows *rows;
    struct hr_error error;
    int files[4];
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 32);
    int64_t(*records)[3] = (void *)queue->samples;
    queue->header->record_bytes = sizeof *records;
    queue->header->records_offset = queue->header->samples_offset;
    assert_int_equal(hr__row_table_create(&table, 1, &from, NULL), 0);
    assert_int_equal(table->layout.bytes, queue->header->record_bytes);
    assert_int_equal(hr__batch_rows_create(&rows, table, 3, NULL), 0);
    struct hr_tensor_spec spec = spec_of(4096);
    fake_queue_files(queue, files);
    assert_int_equal(hr__cursor_create(&cursor, &spec, 32, files, &error), -EPROTO);
    fake_queue_files(queue, files);
    assert_int_equal(hr__cursor_create(&cursor, &spec, 24, files, &error), 0);
    for (int i = 0; i < 3; i++)
        memcpy(records[i], ((const int64_t[]){2 - i, 10 * i, 5}), sizeof *records);
    assert_int_equal(hr__cursor_rows(cursor, 0, 3, rows, 0, &error), 0);
    hr__batch_rows_gather(rows, 3);
    assert_int_equal(rows->offsets[3], 3);
    assert_memory_equal(rows->values[0], ((const int64_t[]){0, 5, 10}), 3 * sizeof(int64_t));
    records[1][0] = 3;
    assert_int_equal(hr__cursor_rows(cursor, 0, 3, rows, 0, &error), -EPROTO);
    records[1][0] = -1;
    assert_int_equal(hr__cursor_rows(cursor, 0, 3, rows, 0, &error), -EPROTO);
    atomic_store(&queue->control->floor, 8);
    assert_int_equal(hr__cursor_rows(cursor, 0, 3, rows, 0, &error), -ESTALE);
    hr__batch_rows_destroy(&rows);
    hr__row_table_unref(&table);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* The extents of padded samples are read; those that do not lie in a sample's place are refused. */
static void test_extents(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct hr__cursor *cursor = NULL;
    struct hr_error error;
    int64_t labels[3], indices[3], instead[3], extents[6];
    uint64_t offset;
    struct hr__seen seen = {labels, indices, extents, 0, instead, &offset, 0};
    int files[4];
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 32);
    struct hr_tensor_spec spec = spec_of(4096);
    spec.dims = 2;
    spec.shape[0] = 4;
    spec.shape[1] = 1024;
    fake_queue_files(queue, files);
    assert_int_equal(hr__cursor_create(&cursor, &spec, 0, files, &error), 0);
    cursor->is_padded = 1;
    atomic_store(&queue->at[0].number, 0);
    for (int i = 0; i < 3; i++)
        queue->samples[i] =
            (struct hr__header_sample){.instead = -1, .extents = {4 - i, 1024 - 100 * i}};
    assert_int_equal(hr__cursor_look(cursor, 0, 3, &seen, &error), 0);
    assert_memory_equal(extents, ((const int64_t[]){4, 1024, 3, 924, 2, 824}), sizeof extents);
    static const int64_t wrong[][2] = {{5, 1}, {4, 1025}, {0, 9}, {4, 0}, {-1, 1}, {1, INT64_MIN}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(queue->samples[2].extents, wrong[i], sizeof wrong[i]);
        assert_int_equal(hr__cursor_look(cursor, 0, 3, &seen, &error), -EPROTO);
        assert_non_null(strstr(error.message, "the size of a sample"));
    }
    atomic_store(&queue->control->floor, 8);
    assert_int_equal(hr__cursor_look(cursor, 0, 3, &seen, &error), -ESTALE);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

/* Failed allocations lose and leak nothing. */
static void test_out_of_memory(void **state)
{
    struct fake_queue *queue = malloc(sizeof *queue);
    struct hr_error error;
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 32);
    struct hr_tensor_spec spec = spec_of(4096);
    uint64_t before = hr__allocated(HR__TAG_AGENT);
    struct hr__cursor *cursor = NULL;
    int files[4];
    fake_queue_files(queue, files);
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__cursor_create(&cursor, &spec, 0, files, &error), -ENOMEM);
    assert_null(cursor);
    assert_int_equal(fcntl(files[1], F_GETFD), -1);
    cursor = sit(queue);
    assert_int_equal(fake_queue_publish(queue, 8, 0), 1);
    struct hr__lease *lease = NULL;
    for (int n = 1; n <= 2; n++) {
        hr__alloc_fail_at((uint64_t)n, 0);
        assert_int_equal(hr__lease_create(&lease, cursor, 0, 8, &error), -ENOMEM);
    }
    hr__alloc_fail_at(0, 0);
    assert_int_equal(hr__lease_create(&lease, cursor, 0, 8, &error), 0);
    struct hr_batch *batch = &lease->batch;
    hr__cursor_unref(&cursor);
    hr_batch_release(&batch);
    assert_int_equal(hr__allocated(HR__TAG_AGENT), before);
    fake_queue_remove(queue);
    free(queue);
}

/* A queue that was refused room while the cursor still had enough samples must not wait for
 * ever. */
static void test_waiting_rings(void **state)
{
    struct fake_queue *queue = calloc(1, sizeof *queue);
    assert_non_null(queue);
    fake_queue_make(queue, 4096, 0, 8, 32);
    struct hr__cursor *cursor = sit(queue);
    struct pollfd bell = {.fd = queue->bell_file, .events = POLLIN};
    uint32_t rung = hr__cursor_bell(cursor);
    assert_int_equal(hr__cursor_wait(cursor, rung, 8, hr__now_ns() + 1000), -ETIMEDOUT);
    assert_int_equal(poll(&bell, 1, 0), 0);
    atomic_store(&queue->header->wants_room, 1);
    assert_int_equal(hr__cursor_wait(cursor, rung, 8, hr__now_ns() + 1000), -ETIMEDOUT);
    assert_int_equal(poll(&bell, 1, 0), 1);
    hr__cursor_unref(&cursor);
    fake_queue_remove(queue);
    free(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),         cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_keeps_all),     cmocka_unit_test(test_keeps_first),
        cmocka_unit_test(test_expelled),      cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),          cmocka_unit_test(test_wrong_boards),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_waiting_rings),
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
