/*
 * A reader gets what was recorded: by many threads, by a process that was killed, from files that
 * are truncated or damaged anywhere.
 */
#include "../../test.h"

#include "base/clock.h"
#include "memory/record/format.h"
#include "memory/record/record.h"
#include "memory/record/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXTENT_EVENTS HR__EXTENT_EVENTS_MOST

static char path[64];

static int set_up(void **state)
{
    strcpy(path, "/tmp/headrace-memory-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int tear_down(void **state)
{
    return unlink(path);
}

static struct hr_memory_recorder *make_recorder(void)
{
    struct hr_memory_recorder *r;
    struct hr_error error = {0};
    if (hr_memory_recorder_create(&r, path, NULL, &error))
        fail_msg("%s", error.message);
    return r;
}

static struct hr__record *open_record(void)
{
    struct hr__record *r;
    struct hr_error error = {0};
    if (hr__record_open(&r, path, &error))
        fail_msg("%s", error.message);
    return r;
}

/* Event `i` of a thread: both determine all members. */
static struct hr_memory_event event_of(uint32_t thread, uint64_t i)
{
    return (struct hr_memory_event){
        .time_ns = 1 + i * 16 + thread,
        .address = (uint64_t)thread << 32 | i,
        .bytes = i * 3,
        .what = thread + 1,
        .kind = (uint8_t)(1 + i % 4),
        .phase = (uint8_t)(i % 3),
        .device = (uint8_t)thread,
    };
}

struct record_worker {
    struct hr_memory_recorder *recorder;
    uint32_t thread;
    uint64_t count;
};

static void *work(void *arg)
{
    struct record_worker *w = arg;
    for (uint64_t i = 0; i < w->count; i++) {
        struct hr_memory_event event = event_of(w->thread, i);
        hr_memory_record(w->recorder, &event);
    }
    return NULL;
}

/* Reads everything: each thread's events are complete from the first on, in order, and times rise.
 * Counts the events of threads in counts[]; returns their total. */
static uint64_t read_all(struct hr__record *r, uint64_t *counts, uint32_t threads)
{
    const struct hr_memory_event *events;
    uint64_t total = 0, last = 0;
    int n;
    memset(counts, 0, threads * sizeof *counts);
    while ((n = hr__record_next(r, &events, NULL)) > 0)
        for (int i = 0; i < n; i++, total++) {
            uint32_t thread = (uint32_t)(events[i].address >> 32);
            assert_true(thread < threads);
            struct hr_memory_event want = event_of(thread, counts[thread]++);
            assert_memory_equal(&events[i], &want, sizeof want);
            assert_true(events[i].time_ns >= last);
            last = events[i].time_ns;
        }
    assert_int_equal(n, 0);
    return total;
}

static void test_threads(void **state)
{
    enum { THREADS = 5 };
    struct hr_memory_recorder *recorder = make_recorder();
    struct record_worker workers[THREADS];
    pthread_t ids[THREADS];
    uint64_t counts[THREADS], total = 0, recorded, lost;
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct record_worker){recorder, i, i * EXTENT_EVENTS + 7};
        total += workers[i].count;
        pthread_create(&ids[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    hr_memory_counts(recorder, &recorded, &lost);
    assert_int_equal(recorded, total);
    assert_int_equal(lost, 0);
    hr_memory_recorder_destroy(&recorder);
    assert_null(recorder);

    struct hr__record *r = open_record();
    struct hr__record_about about;
    hr__record_about(r, &about);
    assert_int_equal(about.events, total);
    assert_true(about.is_ended && !about.problem && !about.lost);
    assert_int_equal(about.pid, getpid());
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(read_all(r, counts, THREADS), total);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(counts[i], workers[i].count);
        hr__record_rewind(r);
    }
    assert_int_equal(hr__record_damage(r)->extents, 0);
    hr__record_close(&r);
}

/* A thread that ends leaves its place to the next: a thousand threads need few pieces. */
static void test_places_are_given_back(void **state)
{
    struct hr_memory_recorder *recorder = make_recorder();
    struct stat status;
    for (uint32_t i = 0; i < 1500; i++) {
        struct record_worker worker = {recorder, 0, 2};
        pthread_t id;
        pthread_create(&id, NULL, work, &worker);
        pthread_join(id, NULL);
    }
    hr_memory_recorder_destroy(&recorder);
    assert_int_equal(stat(path, &status), 0);
    assert_true(status.st_size <= HR__RECORD_HEADER + 2 * HR__EXTENT_BYTES);
    assert_int_equal(status.st_mode & 0777, 0600);
    struct hr__record *r = open_record();
    struct hr__record_about about;
    hr__record_about(r, &about);
    assert_int_equal(about.events, 3000);
    hr__record_close(&r);
}

struct ending {
    struct hr_memory_recorder *recorder;
    pthread_barrier_t *recorded;
};

static void *record_and_end(void *arg)
{
    struct ending *ending = arg;
    struct hr_memory_event event = event_of(0, 0);
    hr_memory_record(ending->recorder, &event);
    pthread_barrier_wait(ending->recorded);
    return NULL; /* gives its place back, while the recorder is destroyed */
}

/* Threads that no longer record may end at any time. */
static void test_threads_end_with_it(void **state)
{
    enum { THREADS = 8, ROUNDS = 60 };
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t ids[THREADS];
        pthread_barrier_t recorded;
        struct ending ending = {make_recorder(), &recorded};
        pthread_barrier_init(&recorded, NULL, THREADS + 1);
        for (int i = 0; i < THREADS; i++)
            pthread_create(&ids[i], NULL, record_and_end, &ending);
        pthread_barrier_wait(&recorded);
        hr_memory_recorder_destroy(&ending.recorder);
        for (int i = 0; i < THREADS; i++)
            pthread_join(ids[i], NULL);
        pthread_barrier_destroy(&recorded);
        struct hr__record *r = open_record();
        struct hr__record_about about;
        hr__record_about(r, &about);
        assert_int_equal(about.events, THREADS);
        hr__record_close(&r);
    }
}

static void test_names(void **state)
{
    struct hr_memory_recorder *recorder = make_recorder();
    char text[16];
    uint32_t add = hr_memory_name(recorder, "aten::add"),
             mul = hr_memory_name(recorder, "aten::mul");
    assert_int_equal(add, 1);
    assert_int_equal(mul, 2);
    assert_int_equal(hr_memory_name(recorder, "aten::add"), add);
    struct hr_memory_frame frames[2] = {{.file = add, .function = mul, .line = 7},
                                        {.file = mul, .function = add, .line = 9}};
    uint32_t one = hr_memory_stack(recorder, frames, 2), two = hr_memory_stack(recorder, frames, 1);
    assert_true(one && two && one != two);
    assert_int_equal(hr_memory_stack(recorder, frames, 2), one);
    assert_int_equal(hr_memory_stack(recorder, frames, 0), 0);
    hr_memory_fact(recorder, "batch size", "32");
    hr_memory_fact(recorder, "batch size", "64");
    for (int i = 0; i < 40000; i++) { /* several pieces of texts */
        snprintf(text, sizeof text, "name %d", i);
        assert_int_equal(hr_memory_name(recorder, text), 3 + i);
    }
    hr_memory_recorder_destroy(&recorder);

    struct hr__record *r = open_record();
    const struct hr_memory_frame *read;
    assert_string_equal(hr__record_name(r, add), "aten::add");
    assert_string_equal(hr__record_name(r, 39999 + 3), "name 39999");
    assert_string_equal(hr__record_name(r, 0), "?");
    assert_string_equal(hr__record_name(r, 50000), "?");
    assert_int_equal(hr__record_stack(r, one, &read), 2);
    assert_memory_equal(read, frames, sizeof frames);
    assert_int_equal(hr__record_stack(r, 3, &read), 0);
    assert_string_equal(hr__record_fact(r, "batch size"), "64");
    assert_null(hr__record_fact(r, "batch"));
    hr__record_close(&r);
}

/* Late times, like those of an accelerator, are sorted. */
static void test_order(void **state)
{
    struct hr_memory_recorder *recorder = make_recorder();
    const struct hr_memory_event *events;
    uint64_t count = 2 * EXTENT_EVENTS + 100, last = 0, total = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct hr_memory_event event = {.time_ns = 1 + (i ^ 0x3f), .kind = HR_MEMORY_READ};
        hr_memory_record(recorder, &event);
    }
    hr_memory_recorder_destroy(&recorder);
    struct hr__record *r = open_record();
    int n;
    while ((n = hr__record_next(r, &events, NULL)) > 0)
        for (int i = 0; i < n; i++, total++) {
            assert_true(events[i].time_ns >= last);
            last = events[i].time_ns;
        }
    assert_int_equal(total, count);
    hr__record_close(&r);
}

/* Killed at any moment: everything recorded before is there. */
static void test_killed(void **state)
{
    for (int round = 0; round < 8; round++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (!child) {
            struct hr_memory_recorder *recorder = make_recorder();
            hr_memory_name(recorder, "a name");
            struct record_worker worker = {recorder, 0, 1000};
            work(&worker);
            if (write(ready[1], "x", 1) != 1)
                _exit(1);
            for (uint64_t i = 1000;; i++) {
                struct hr_memory_event event = event_of(0, i);
                hr_memory_record(recorder, &event);
            }
        }
        assert_int_equal(read(ready[0], &byte, 1), 1);
        usleep((useconds_t)round * 700);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(ready[0]);
        close(ready[1]);
        struct hr__record *r = open_record();
        struct hr__record_about about;
        uint64_t count;
        hr__record_about(r, &about);
        assert_false(about.is_ended);
        assert_int_equal(about.pid, child);
        uint64_t total = read_all(r, &count, 1);
        assert_true(total >= 1000);
        assert_int_equal(total, about.events);
        assert_int_equal(hr__record_damage(r)->extents, 0);
        assert_string_equal(hr__record_name(r, 1), "a name");
        hr__record_close(&r);
    }
}

/* A child writes nothing into its parent's file. */
static void test_fork(void **state)
{
    struct hr_memory_recorder *recorder = make_recorder();
    struct record_worker worker = {recorder, 0, 10};
    uint64_t count;
    work(&worker);
    pid_t child = fork();
    if (!child) {
        struct hr_memory_event event = {.time_ns = 1, .address = UINT64_MAX, .kind = 1};
        hr_memory_record(recorder, &event);
        uint32_t id = hr_memory_name(recorder, "child's");
        hr_memory_recorder_destroy(&recorder);
        _exit(id ? 1 : 0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    hr_memory_recorder_destroy(&recorder);
    struct hr__record *r = open_record();
    assert_int_equal(read_all(r, &count, 1), 10);
    hr__record_close(&r);
}

/* Another program truncates the file to `length` while two threads write events, names and an
 * accelerator's times; what they write then is lost, and the recording ends. */
static void record_truncated(off_t length)
{
    struct hr_memory_recorder *recorder = make_recorder();
    struct record_worker workers[2] = {{recorder, 0, EXTENT_EVENTS + 7},
                                       {recorder, 1, EXTENT_EVENTS + 7}};
    struct hr_memory_ran ran = {.begin_ns = 1, .end_ns = 2};
    pthread_t other;
    uint64_t recorded, lost;
    hr_memory_name(recorder, "before");
    hr_memory_record_ran(recorder, &ran, 1);
    work(&workers[0]);
    if (truncate(path, length))
        _exit(1);
    hr_memory_name(recorder, "after");
    hr_memory_record_ran(recorder, &ran, 1);
    if (pthread_create(&other, NULL, work, &workers[1]))
        _exit(2);
    work(&workers[0]);
    pthread_join(other, NULL);
    hr_memory_counts(recorder, &recorded, &lost);
    if (hr__recorder_problem(recorder) != -ESTALE || !lost)
        _exit(3);
    hr_memory_recorder_destroy(&recorder);
    _exit(0);
}

static void test_truncated(void **state)
{
    const off_t lengths[] = {0, 100, HR__RECORD_HEADER, HR__RECORD_HEADER + 2 * HR__EXTENT_BYTES};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int status;
        pid_t child = fork();
        if (!child) {
            signal(SIGBUS, SIG_DFL); /* cmocka installs a handler of its own */
            record_truncated(lengths[i]);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        struct hr__record *r;
        struct hr_error error = {0};
        if (hr__record_open(&r, path, &error)) {
            assert_true(lengths[i] < HR__RECORD_HEADER && error.message[0]);
            continue;
        }
        struct hr__record_about about;
        hr__record_about(r, &about);
        assert_true(lengths[i] > 0);
        assert_int_equal(about.problem, -ESTALE);
        hr__record_close(&r);
    }
}

static void test_limit(void **state)
{
    struct hr_memory_recorder *recorder;
    struct hr_memory_recorder_options options;
    uint64_t count, recorded, lost;
    hr_memory_recorder_options_default(&options);
    options.limit_bytes = HR__RECORD_HEADER + 2 * HR__EXTENT_BYTES;
    assert_int_equal(hr_memory_recorder_create(&recorder, path, &options, NULL), 0);
    struct record_worker worker = {recorder, 0, 3 * EXTENT_EVENTS};
    work(&worker);
    hr_memory_counts(recorder, &recorded, &lost);
    assert_int_equal(recorded, 2 * EXTENT_EVENTS);
    assert_int_equal(lost, EXTENT_EVENTS);
    assert_int_equal(hr_memory_name(recorder, "too late"), 0);
    hr_memory_recorder_destroy(&recorder);
    struct hr__record *r = open_record();
    struct hr__record_about about;
    hr__record_about(r, &about);
    assert_int_equal(about.problem, -EFBIG);
    assert_int_equal(about.lost, EXTENT_EVENTS);
    assert_int_equal(read_all(r, &count, 1), 2 * EXTENT_EVENTS);
    hr__record_close(&r);
}

/* Returns the time of a call in the tests below, a function of the call. */
static struct hr_memory_ran ran_of(uint32_t call)
{
    return (struct hr_memory_ran){call * UINT64_C(100) + 7, call * UINT64_C(100) + 60, call,
                                  1 + call % 3};
}

static void assert_ran(const struct hr__record *r, uint32_t call)
{
    struct hr_memory_ran want = ran_of(call);
    const struct hr_memory_ran *got = hr__record_ran(r, want.device, call);
    assert_non_null(got);
    assert_memory_equal(got, &want, sizeof want);
    assert_null(hr__record_ran(r, want.device % 3 + 1, call));
}

struct ran_thread {
    struct hr_memory_recorder *recorder;
    uint32_t first, step, count;
};

static void *record_ran(void *arg)
{
    struct ran_thread *t = arg;
    struct hr_memory_ran batch[16];
    for (uint32_t i = 0, n = 0; i < t->count; i++) {
        batch[n++] = ran_of(t->first + i * t->step);
        if (n == 16 || i + 1 == t->count) {
            hr_memory_record_ran(t->recorder, batch, n);
            n = 0;
        }
    }
    return NULL;
}

/* Several threads, several extents, in any order; a call in several parts is one call. */
static void test_ran(void **state)
{
    enum { THREADS = 3, EACH = 9001 };
    struct hr_memory_recorder *recorder = make_recorder();
    pthread_t ids[THREADS];
    struct ran_thread threads[THREADS];
    struct hr_memory_event event = {.kind = HR_MEMORY_READ, .time_ns = 5};
    hr_memory_record(recorder, &event);
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i] = (struct ran_thread){recorder, 10 + i, THREADS, EACH};
        pthread_create(&ids[i], NULL, record_ran, &threads[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    struct hr_memory_ran parts[] = {
        {500, 600, 3, 1}, {400, 450, 3, 1}, {590, 700, 3, 1}, {10, 20, 3, 2}};
    hr_memory_record_ran(recorder, parts, 4);
    hr_memory_recorder_destroy(&recorder);

    struct hr__record *r = open_record();
    struct hr__record_about about;
    hr__record_about(r, &about);
    assert_int_equal(about.ran, THREADS * EACH + 2);
    assert_int_equal(about.events, 1);
    assert_int_equal(about.lost, 0);
    for (uint32_t call = 10; call < 10 + THREADS * EACH; call++)
        assert_ran(r, call);
    assert_null(hr__record_ran(r, 1, 9));
    assert_null(hr__record_ran(r, 1, 10 + THREADS * EACH));
    assert_null(hr__record_ran(r, 1, UINT32_MAX));
    const struct hr_memory_ran *whole = hr__record_ran(r, 1, 3);
    assert_non_null(whole);
    assert_int_equal(whole->begin_ns, 400);
    assert_int_equal(whole->end_ns, 700);
    assert_int_equal(hr__record_ran(r, 2, 3)->end_ns, 20);
    assert_int_equal(hr__record_damage(r)->extents, 0);
    hr__record_close(&r);
}

/* Without room, times are lost and counted; a record without times has none. */
static void test_ran_lost(void **state)
{
    struct hr_memory_recorder *recorder;
    struct hr_memory_recorder_options options;
    hr_memory_recorder_options_default(&options);
    options.limit_bytes = HR__RECORD_HEADER + HR__EXTENT_BYTES;
    assert_int_equal(hr_memory_recorder_create(&recorder, path, &options, NULL), 0);
    struct ran_thread telling = {recorder, 1, 1, HR__EXTENT_RAN_MOST + 21};
    record_ran(&telling);
    uint64_t recorded, lost;
    hr_memory_counts(recorder, &recorded, &lost);
    assert_int_equal(recorded, 0);
    assert_int_equal(lost, 21);
    hr_memory_recorder_destroy(&recorder);
    struct hr__record *r = open_record();
    struct hr__record_about about;
    hr__record_about(r, &about);
    assert_int_equal(about.ran, HR__EXTENT_RAN_MOST);
    assert_int_equal(about.lost, 21);
    assert_int_equal(about.problem, -EFBIG);
    assert_ran(r, HR__EXTENT_RAN_MOST);
    hr__record_close(&r);

    recorder = make_recorder();
    hr_memory_recorder_destroy(&recorder);
    r = open_record();
    assert_null(hr__record_ran(r, 1, 1));
    hr__record_close(&r);
}

static void refuse(const void *bytes, size_t length, int code, const char *word)
{
    struct hr__record *r;
    struct hr_error error = {0};
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, bytes, length), length);
    close(fd);
    assert_int_equal(hr__record_open(&r, path, &error), code);
    assert_null(r);
    assert_non_null(strstr(error.message, word));
    assert_non_null(strstr(error.message, path));
}

static void test_refused(void **state)
{
    struct hr_memory_recorder *recorder = make_recorder();
    struct hr__record *r;
    struct hr_error error = {0};
    char header[HR__RECORD_HEADER];
    hr_memory_recorder_destroy(&recorder);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, header, sizeof header), sizeof header);
    close(fd);
    struct hr__record_header *h = (void *)header;
    refuse("", 0, -EBADMSG, "no memory record");
    refuse("hello", 5, -EBADMSG, "no memory record");
    h->version = 9;
    refuse(header, sizeof header, -ENOTSUP, "version 9");
    h->version = 1;
    h->endian_mark = 0x04030201;
    refuse(header, sizeof header, -ENOTSUP, "byte order");
    h->endian_mark = HR__ENDIAN_MARK;
    h->start_ns++;
    refuse(header, sizeof header, -EBADMSG, "header is damaged");
    assert_int_equal(hr__record_open(&r, "/tmp", &error), -EINVAL);
    assert_int_equal(hr__record_open(&r, "/nowhere/at all", &error), -ENOENT);
    /* A file that is not a record is not replaced. */
    refuse("a letter", 8, -EBADMSG, "no memory record");
    assert_int_equal(hr_memory_recorder_create(&recorder, path, NULL, &error), -EEXIST);
    assert_null(recorder);
    assert_int_equal(hr_memory_recorder_create(&recorder, "/nowhere/x", NULL, &error), -ENOENT);
}

/* Returns the bytes of a small record with all kinds of events. */
static char *small_record(size_t *length)
{
    struct hr_memory_recorder *recorder = make_recorder();
    struct stat status;
    uint32_t name = hr_memory_name(recorder, "aten::add");
    struct hr_memory_frame frame = {.file = name, .line = 3};
    hr_memory_stack(recorder, &frame, 1);
    hr_memory_fact(recorder, "device", "cpu");
    struct record_worker worker = {recorder, 0, 500};
    work(&worker);
    struct ran_thread telling = {recorder, 1, 1, 300};
    record_ran(&telling);
    hr_memory_recorder_destroy(&recorder);
    assert_int_equal(stat(path, &status), 0);
    *length = (size_t)status.st_size;
    char *bytes = malloc(*length);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, bytes, *length), *length);
    close(fd);
    return bytes;
}

/* Returns where an extent's contents begin. */
static size_t extent_of(const char *bytes, size_t length, enum hr__extent_kind kind)
{
    for (size_t at = HR__RECORD_HEADER; at < length; at += HR__EXTENT_BYTES)
        if (((const struct hr__extent_header *)(const void *)(bytes + at))->kind == (uint32_t)kind)
            return at + sizeof(struct hr__extent_header);
    fail_msg("no extent of kind %d", kind);
    return 0;
}

static void write_file(const char *bytes, size_t length)
{
    int fd = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, bytes, length), length);
    close(fd);
}

static void test_cut(void **state)
{
    size_t length;
    char *bytes = small_record(&length);
    size_t events_at = extent_of(bytes, length, HR__EXTENT_EVENTS);
    size_t ran_at = extent_of(bytes, length, HR__EXTENT_RAN);
    for (size_t cut = HR__RECORD_HEADER; cut < length; cut += 1 + cut % 4999) {
        uint64_t count;
        write_file(bytes, cut);
        struct hr__record *r = open_record();
        uint64_t want = cut <= events_at ? 0 : (cut - events_at) / sizeof(struct hr_memory_event);
        want = want < 500 ? want : 500;
        assert_int_equal(read_all(r, &count, 1), want);
        if (cut > events_at && want < 500) {
            assert_true(hr__record_damage(r)->extents > 0);
            assert_non_null(strstr(hr__record_damage(r)->what, "ends within"));
        }
        want = cut <= ran_at ? 0 : (cut - ran_at) / sizeof(struct hr_memory_ran);
        struct hr__record_about about;
        hr__record_about(r, &about);
        assert_int_equal(about.ran, want < 300 ? want : 300);
        for (uint32_t call = 1; call <= about.ran; call++)
            assert_ran(r, call);
        hr__record_close(&r);
    }
    free(bytes);
}

/* Impossible times of accelerators: everything before them is read, and the damage reported. */
static void test_ran_damage(void **state)
{
    size_t length;
    char *bytes = small_record(&length);
    size_t at = extent_of(bytes, length, HR__EXTENT_RAN);
    struct hr__extent_header *head = (void *)(bytes + at - sizeof *head);
    struct hr_memory_ran *ran = (void *)(bytes + at);
    struct hr__record *r;
    struct hr__record_about about;
    head->is_ended = 0; /* as if the process was killed: without a checksum */
    const struct hr_memory_ran wrong[] = {
        {5, 9, 1, 0},
        {5, 9, 1, 255},
        {9, 5, 1, 1},
        {5, UINT64_MAX, 1, 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hr_memory_ran was = ran[100 + i];
        ran[100 + i] = wrong[i];
        write_file(bytes, length);
        r = open_record();
        hr__record_about(r, &about);
        assert_int_equal(about.ran, 100 + i);
        assert_int_equal(hr__record_damage(r)->extents, 1);
        assert_non_null(strstr(hr__record_damage(r)->what, "accelerator"));
        hr__record_close(&r);
        ran[100 + i] = was;
    }
    head->is_ended = 1;
    ran[299].end_ns++;
    write_file(bytes, length);
    r = open_record();
    hr__record_about(r, &about);
    assert_int_equal(about.ran, 0);
    assert_non_null(strstr(hr__record_damage(r)->what, "checksum"));
    hr__record_close(&r);
    ran[299].end_ns--;
    head->used -= 8;
    write_file(bytes, length);
    r = open_record();
    hr__record_about(r, &about);
    assert_int_equal(about.ran, 0);
    assert_non_null(strstr(hr__record_damage(r)->what, "ends within one"));
    hr__record_close(&r);
    free(bytes);
}

/* Any byte is changed: no crash, and everything that is read was recorded, because checksums detect
 * the rest. */
static void test_damage(void **state)
{
    size_t length;
    char *bytes = small_record(&length);
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 400; round++) {
        struct hr__record *r;
        uint64_t count;
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* Parts of the file that are used: the heads and what follows them. */
        size_t piece = random % (length / HR__EXTENT_BYTES + 1);
        size_t at = piece ? HR__RECORD_HEADER + (piece - 1) * HR__EXTENT_BYTES : 0;
        at += (random >> 8) % (piece ? 800 : 104);
        char was = bytes[at];
        bytes[at] ^= (char)(1 << (random >> 40) % 8);
        write_file(bytes, length);
        struct hr_error error = {0};
        if (!hr__record_open(&r, path, &error)) {
            uint64_t total = 0;
            const struct hr_memory_event *events;
            for (int n; (n = hr__record_next(r, &events, NULL)) > 0;)
                total += (uint64_t)n;
            count = total;
            assert_true(count == 500 || count == 0 || hr__record_damage(r)->extents);
            hr__record_fact(r, "device");
            hr__record_close(&r);
        } else {
            assert_true(error.message[0]);
        }
        bytes[at] = was;
    }
    free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_threads),
        TEST(test_places_are_given_back),
        TEST(test_threads_end_with_it),
        TEST(test_names),
        TEST(test_order),
        TEST(test_killed),
        TEST(test_fork),
        TEST(test_truncated),
        TEST(test_limit),
        TEST(test_refused),
        TEST(test_cut),
        TEST(test_damage),
        TEST(test_ran),
        TEST(test_ran_lost),
        TEST(test_ran_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
