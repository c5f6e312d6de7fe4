/*
 * The trace recorder with threads that never stop, and its output: JSON of bounded size with the
 * recorded events.
 */
#include "../test.h"

#include "agent/server/trace.h"
#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WORKERS 3

/* only their addresses are used */
static char queues[2];
#define LOADER(i) ((const struct hr_loader *)&queues[i])

static json_t *written(struct hr__trace *t)
{
    char *text = NULL;
    json_error_t where;
    hr__trace_stop(t);
    assert_int_equal(hr__trace_write(t, &text, NULL), 0);
    json_t *root = json_loads(text, 0, &where);
    if (!root)
        fail_msg("line %d: %s", where.line, where.text);
    hr__free(text);
    return root;
}

static int is(const json_t *event, const char *member, const char *text)
{
    const char *value = json_string_value(json_object_get(event, member));
    return value && !strcmp(value, text);
}

static double number(const json_t *event, const char *member)
{
    return json_number_value(json_object_get(event, member));
}

/* Returns the only event of that kind and name; fails the test if there is none or more than
 * one. */
static const json_t *only(const json_t *root, const char *kind, const char *name)
{
    const json_t *found = NULL, *e;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (!is(e, "ph", kind) || !is(e, "name", name))
            continue;
        assert_null(found);
        found = e;
    }
    assert_non_null(found);
    return found;
}

static double argument(const json_t *event, const char *name)
{
    const json_t *value = json_object_get(json_object_get(event, "args"), name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void look(struct hr__trace *t, uint64_t head, uint64_t mark, uint64_t next, uint64_t wait_ns)
{
    hr__trace_cursor(t, &(struct hr__trace_cursor){.number = 9,
                                                   .queue = 70,
                                                   .pid = 4242,
                                                   .rank = 1,
                                                   .program = "train \"a\"\\\n",
                                                   .head = head,
                                                   .mark = mark,
                                                   .next = next,
                                                   .wait_ns = wait_ns});
}

static void test_events(void **state)
{
    struct hr__trace *t = NULL;
    assert_int_equal(hr__trace_create(&t, WORKERS, NULL), 0);
    uint64_t now = hr__now_ns();
    struct hr__crew_event e = {.begin_ns = now, .end_ns = now + 1, .loader = LOADER(0)};
    hr__trace_watch(t, &e); /* no recording runs */
    hr__trace_published(t, 70, 0, 8);
    look(t, 8, 0, 0, 0);
    assert_int_equal(hr__trace_start(t, NULL), 0);
    assert_int_equal(hr__trace_start(t, NULL), -EBUSY);
    hr__trace_queue(t, LOADER(0), 70, "stream \"a\"");
    now = hr__now_ns();
    e = (struct hr__crew_event){.begin_ns = now,
                                .end_ns = now + 2500,
                                .read_ns = 1000,
                                .worker = 2,
                                .loader = LOADER(0),
                                .index = 123};
    hr__trace_watch(t, &e);
    hr__trace_published(t, 70, 16, 8);
    look(t, 24, 0, 8, 1000);
    look(t, 24, 8, 16, 1500);
    look(t, 24, 8, 16, 1500);
    json_t *root = written(t);
    assert_int_equal(hr__trace_start(t, NULL), 0); /* it can be started again */
    hr__trace_cancel(t);
    const json_t *sample = only(root, "X", "sample"), *read = only(root, "X", "read");
    assert_int_equal(number(sample, "pid"), getpid());
    assert_int_equal(number(sample, "tid"), 3);
    assert_true(number(sample, "dur") == 2.5 && number(read, "dur") == 1);
    assert_true(argument(sample, "index") == 123 && argument(sample, "queue") == 70);
    const json_t *ready = only(root, "i", "ready"), *takes = only(root, "i", "takes");
    assert_true(argument(ready, "sequence") == 16 && argument(ready, "samples") == 8);
    assert_int_equal(number(takes, "pid"), 4242);
    assert_true(argument(takes, "sequence") == 8 && argument(takes, "samples") == 8);
    assert_true(argument(only(root, "i", "releases"), "samples") == 8);
    assert_true(number(only(root, "X", "waits"), "dur") == 0.5);
    const json_t *queue = only(root, "C", "cursor 1");
    assert_true(argument(queue, "ready") == 8 && argument(queue, "held") == 8);
    json_decref(root);
    hr__trace_destroy(&t);
    assert_null(t);
    hr__trace_destroy(&t);
    assert_int_equal(hr__allocated(HR__TAG_AGENT), 0);
}

/* A queue's memory may be reused for another queue. */
static void test_queues_at_one_address(void **state)
{
    struct hr__trace *t = NULL;
    size_t i, seen = 0;
    json_t *e;
    assert_int_equal(hr__trace_create(&t, WORKERS, NULL), 0);
    assert_int_equal(hr__trace_start(t, NULL), 0);
    for (uint64_t queue = 5; queue < 7; queue++) {
        hr__trace_queue(t, LOADER(1), queue, "x");
        uint64_t now = hr__now_ns();
        hr__trace_watch(t,
                        &(struct hr__crew_event){
                            .begin_ns = now, .end_ns = now, .loader = LOADER(1), .index = queue});
    }
    json_t *root = written(t);
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (!is(e, "name", "sample"))
            continue;
        assert_true(argument(e, "queue") == argument(e, "index"));
        seen++;
    }
    assert_int_equal(seen, 2);
    json_decref(root);
    hr__trace_destroy(&t);
}

struct busy {
    struct hr__trace *trace;
    int worker;
    atomic_bool *stop;
    atomic_int *done; /* number of events of all threads */
};

static void *work(void *arg)
{
    struct busy *b = arg;
    for (uint64_t i = 0; !atomic_load(b->stop); i++) {
        uint64_t now = hr__now_ns();
        hr__trace_watch(b->trace, &(struct hr__crew_event){.begin_ns = now,
                                                           .end_ns = now + 10,
                                                           .worker = b->worker,
                                                           .loader = LOADER(0),
                                                           .index = i});
        atomic_fetch_add(b->done, 1);
        if (i % 64 == 0) {
            usleep(100);
            hr__trace_published(b->trace, 70, i, 64);
            look(b->trace, i + 64, i, i + 32, i);
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    atomic_bool stop = false;
    atomic_int done = 0;
    struct hr__trace *t = NULL;
    pthread_t threads[WORKERS];
    struct busy busy[WORKERS];
    assert_int_equal(hr__trace_create(&t, WORKERS, NULL), 0);
    for (int i = 0; i < WORKERS; i++) {
        busy[i] = (struct busy){.trace = t, .worker = i, .stop = &stop, .done = &done};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &busy[i]), 0);
    }
    for (int round = 0; round < 5; round++) {
        assert_int_equal(hr__trace_start(t, NULL), 0);
        hr__trace_queue(t, LOADER(0), 70, "x");
        for (int before = done; done < before + 1000 * round;)
            usleep(100);
        if (round == 1) {
            hr__trace_cancel(t);
            continue;
        }
        json_t *root = written(t);
        const json_t *other = json_object_get(root, "otherData");
        size_t events = json_array_size(json_object_get(root, "traceEvents"));
        /* Events that were under way at the beginning or the end may be missing. */
        assert_true(events + WORKERS * 2 >= (size_t)(1000 * round));
        assert_true(number(other, "length_us") >= 0);
        /* On a busy machine this thread may come too late, and then a worker's ring is full. */
        assert_true(number(other, "lost samples") == 0 || events >= 1024);
        json_decref(root);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    hr__trace_destroy(&t);
    assert_int_equal(hr__allocated(HR__TAG_AGENT), 0);
}

/* The newest events are kept, in order, and the number of lost ones is reported. */
static void test_bound(void **state)
{
    struct hr__trace *t = NULL;
    size_t i;
    json_t *e;
    double last = -1, count = 0;
    assert_int_equal(hr__trace_create(&t, WORKERS, NULL), 0);
    assert_int_equal(hr__trace_start(t, NULL), 0);
    uint64_t now = hr__now_ns();
    for (uint64_t k = 0; k < 70000; k++)
        hr__trace_watch(
            t, &(struct hr__crew_event){.begin_ns = now + k, .end_ns = now + k, .index = k});
    json_t *root = written(t);
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        if (!is(e, "name", "sample"))
            continue;
        assert_true(last < 0 || argument(e, "index") == last + 1);
        last = argument(e, "index");
        count++;
    }
    assert_true(last == 69999 && count == 65536);
    assert_true(number(json_object_get(root, "otherData"), "lost samples") == 70000 - 65536);
    json_decref(root);
    hr__trace_destroy(&t);
}

static void test_memory(void **state)
{
    struct hr__trace *t = NULL;
    char *text = NULL;
    for (uint64_t n = 1; n < 3; n++) {
        hr__alloc_fail_at(n, 0);
        assert_int_equal(hr__trace_create(&t, WORKERS, NULL), -ENOMEM);
    }
    hr__alloc_fail_at(0, 0);
    assert_int_equal(hr__trace_create(&t, WORKERS, NULL), 0);
    for (uint64_t n = 1; n <= WORKERS + 1; n++) {
        hr__alloc_fail_at(1, 1);
        assert_int_equal(hr__trace_start(t, NULL), -ENOMEM);
        hr__alloc_fail_at(0, 0);
    }
    assert_int_equal(hr__trace_start(t, NULL), 0);
    hr__alloc_fail_at(1, 1);
    hr__trace_queue(t, LOADER(0), 1, "x");
    look(t, 1, 0, 0, 0);
    hr__trace_stop(t);
    assert_int_equal(hr__trace_write(t, &text, NULL), -ENOMEM);
    hr__alloc_fail_at(0, 0);
    assert_int_equal(hr__trace_start(t, NULL), 0);
    hr__trace_destroy(&t);
    assert_int_equal(hr__allocated(HR__TAG_AGENT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),  cmocka_unit_test(test_queues_at_one_address),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_bound),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
