/*
 * Crews: the choice of the publisher that gets the next worker; no publisher is forgotten or stays
 * in use; counters add up; idle workers sleep.
 */
#include "yard.h"

#include <headrace/cache.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 96
#define EVENTS  8192

static struct fixture fixture;
static struct yard yards[4];

/* Calls of the crew's watch, in order. */
static struct {
    pthread_mutex_t lock;
    const struct hr_loader *loader[EVENTS];
    uint64_t index[EVENTS];
    size_t count;
    int is_wrong;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The gate: the first sample of a worker waits here. */
static atomic_int gate_used, gate_open;

/* A folder for caches, separate from other programs'. */
static char shm[64];

static int setup(void **state)
{
    (void)state;
    fixture_make(&fixture, SAMPLES);
    strcpy(shm, "/dev/shm/hr-test-XXXXXX");
    assert_non_null(mkdtemp(shm));
    setenv("HEADRACE_SHM", shm, 1);
    seen.count = 0;
    seen.is_wrong = 0;
    atomic_store(&gate_used, 0);
    atomic_store(&gate_open, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", shm);
    assert_int_equal(system(command), 0);
    fixture_remove(&fixture);
    return 0;
}

/* Returns the number of cache segments. */
static int segments(void)
{
    char command[160];
    int count = -1;
    snprintf(command, sizeof command, "find %s -type f -name '*.*' | wc -l", shm);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &count), 1);
    pclose(f);
    return count;
}

static void watch(void *arg, const struct hr__crew_event *event)
{
    pthread_mutex_lock(&seen.lock);
    if (arg != &seen || event->end_ns < event->begin_ns || event->worker < 0 ||
        event->read_ns > event->end_ns - event->begin_ns || seen.count == EVENTS) {
        seen.is_wrong = 1;
    } else {
        seen.loader[seen.count] = event->loader;
        seen.index[seen.count++] = event->index;
    }
    pthread_mutex_unlock(&seen.lock);
}

static void wait_at_gate(uint64_t index)
{
    (void)index;
    if (atomic_exchange(&gate_used, 1))
        return;
    while (!atomic_load(&gate_open))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void publisher_options(struct hr_loader_options *o)
{
    fixture_options(o);
    o->batch_size = 8;
    o->batches_ahead = 4;
}

static struct hr__crew *watched_crew(int threads)
{
    struct hr__crew *crew = crew_make(threads);
    hr__crew_watch(crew, watch, &seen);
    return crew;
}

static void wait_for_gate(void)
{
    while (!atomic_load(&gate_used))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Where the two publishers are at home. */
static int nodes[2] = {-1, -1};

/* Starts two publishers with work for the one worker, which is held until both have some. */
static void start_two(struct hr__crew *crew, double ahead0, double ahead1)
{
    struct hr_loader_options o;
    publisher_options(&o);
    fixture_before_prepare = wait_at_gate;
    for (int i = 0; i < 2; i++) {
        yard_make(&yards[i], crew, &fixture, &o);
        hr__publisher_set_home(yards[i].publisher, (struct hr__home){.node = nodes[i]});
        atomic_store(&yards[i].ahead, i ? ahead1 : ahead0);
    }
    yard_start(&yards[0], 0, 0);
    wait_for_gate();
    yard_start(&yards[1], 0, 0);
    atomic_store(&gate_open, 1);
    for (int i = 0; i < 2; i++)
        yard_wait(&yards[i], SAMPLES);
}

static void end_two(struct hr__crew *crew)
{
    yard_remove(&yards[0]);
    yard_remove(&yards[1]);
    hr__crew_destroy(&crew);
    assert_int_equal(seen.is_wrong, 0);
    assert_int_equal(seen.count, 2 * SAMPLES);
}

static void test_due_first(void **state)
{
    (void)state;
    struct hr__crew *crew = watched_crew(1);
    start_two(crew, 5, 0);
    const struct hr_loader *late = yards[0].publisher, *due = yards[1].publisher;
    /* The sample with which the worker was held, then all of the publisher that is due. */
    assert_ptr_equal(seen.loader[0], late);
    for (size_t i = 1; i <= SAMPLES; i++)
        assert_ptr_equal(seen.loader[i], due);
    for (size_t i = SAMPLES + 1; i < 2 * SAMPLES; i++)
        assert_ptr_equal(seen.loader[i], late);
    end_two(crew);
}

/* A worker of node 1 prefers its node's publisher, by one batch. */
static void test_own_node_first(void **state)
{
    (void)state;
    yard_node = 1;
    nodes[0] = 0;
    nodes[1] = 1;
    for (int far = 0; far < 2; far++) {
        atomic_store(&gate_used, 0);
        atomic_store(&gate_open, 0);
        seen.count = 0;
        struct hr__crew *crew = watched_crew(1);
        start_two(crew, 1, far ? 2.5 : 1.5);
        for (size_t i = 1; i < SAMPLES; i++)
            assert_ptr_equal(seen.loader[i], yards[!far].publisher);
        end_two(crew);
    }
    yard_node = nodes[0] = nodes[1] = -1;
}

/* The crew compares the publishers again before each sample. */
static void test_equals_take_turns(void **state)
{
    (void)state;
    struct hr__crew *crew = watched_crew(1);
    start_two(crew, 1, 1);
    for (size_t i = 1; i + 1 < 2 * SAMPLES; i++)
        assert_ptr_not_equal(seen.loader[i], seen.loader[i - 1]);
    end_two(crew);
}

/* A publisher without room for chunks leaves the workers to the others, however due it is. */
static void test_publisher_without_room_holds_nobody_up(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr__crew *crew = watched_crew(2);
    publisher_options(&o);
    for (int i = 0; i < 2; i++)
        yard_make(&yards[i], crew, &fixture, &o);
    yards[0].limit = 1;
    atomic_store(&yards[1].ahead, 100);
    yard_start(&yards[0], 0, 0);
    for (uint64_t epoch = 0; epoch < 5; epoch++)
        yard_wait(&yards[1], yard_start(&yards[1], epoch, 0));
    assert_int_equal(yard_read(&yards[0], &yards[0].samples), 8);
    assert_true(yard_read(&yards[0], &yards[0].refused) < 10);
    yard_open(&yards[0], UINT64_MAX);
    yard_wait(&yards[0], SAMPLES);
    yard_remove(&yards[0]);
    yard_remove(&yards[1]);
    hr__crew_destroy(&crew);
}

static uint64_t count_seen(const struct hr_loader *loader)
{
    uint64_t n = 0;
    for (size_t i = 0; i < seen.count; i++)
        n += seen.loader[i] == loader;
    return n;
}

/* Publishers with different ways of reading are added and removed while others work. */
static void test_many_publishers(void **state)
{
    (void)state;
    struct hr_loader_options o, embedded;
    struct samples expected;
    fixture_before_prepare = fixture_delay;
    struct hr__crew *crew = watched_crew(3);
    for (int i = 0; i < 4; i++) {
        publisher_options(&o);
        o.batch_size = 5 + 3 * i;
        o.direct_io = i == 2;
        o.seed = (uint64_t)i;
        yard_make(&yards[i], crew, &fixture, &o);
        yards[i].refuse_every = 3;
        atomic_store(&yards[i].ahead, i % 2 ? 0.5 : -1);
        yard_start(&yards[i], 1, 0);
    }
    for (int i = 0; i < 4; i++) {
        struct hr_loader_stats stats = {.size = sizeof stats};
        const struct hr_loader *publisher = yards[i].publisher;
        yard_wait(&yards[i], SAMPLES);
        hr_loader_get_stats(publisher, &stats);
        assert_int_equal(stats.samples, SAMPLES);
        assert_int_equal(stats.prepare.count, SAMPLES);
        assert_int_equal(stats.fetch.count, SAMPLES);
        assert_int_equal(stats.staged_bytes, 0);
        publisher_options(&o);
        o.seed = (uint64_t)i;
        embedded_options(&embedded, &o);
        samples_make(&expected, &fixture, &embedded, 1, 0);
        samples_compare(&expected, &yards[i], 0, 1);
        samples_free(&expected);
        yard_remove(&yards[i]);
        pthread_mutex_lock(&seen.lock);
        assert_int_equal(count_seen(publisher), SAMPLES);
        pthread_mutex_unlock(&seen.lock);
        /* A new publisher may get the memory of the old one. */
        pthread_mutex_lock(&seen.lock);
        for (size_t n = 0; n < seen.count; n++)
            seen.loader[n] = seen.loader[n] == publisher ? NULL : seen.loader[n];
        pthread_mutex_unlock(&seen.lock);
    }
    hr__crew_destroy(&crew);
    assert_int_equal(seen.is_wrong, 0);
    assert_int_equal(seen.count, 4 * SAMPLES);
}

static atomic_int destroyer; /* its thread */

static void *destroy_publisher(void *arg)
{
    atomic_store(&destroyer, (int)gettid());
    yard_remove(arg);
    return NULL;
}

/* Waits until the thread that destroys a publisher is waiting itself. */
static void wait_for_destroyer(void)
{
    char path[64], state = 0;
    do {
        FILE *stat;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&destroyer));
        if (!atomic_load(&destroyer) || !(stat = fopen(path, "r")))
            continue;
        assert_int_equal(fscanf(stat, "%*d (%*[^)]) %c", &state), 1);
        fclose(stat);
    } while (state != 'S');
}

/* Removing a publisher waits for the sample in preparation, and delays no other. */
static void test_leaving_waits_for_the_sample_in_hand(void **state)
{
    (void)state;
    struct hr_loader_options o;
    pthread_t thread;
    struct hr__crew *crew = watched_crew(2);
    publisher_options(&o);
    o.batches_ahead = 1;
    for (int i = 0; i < 2; i++)
        yard_make(&yards[i], crew, &fixture, &o);
    fixture_before_prepare = wait_at_gate;
    yard_start(&yards[0], 0, 0);
    wait_for_gate();
    const struct hr_loader *publisher = yards[0].publisher;
    assert_int_equal(pthread_create(&thread, NULL, destroy_publisher, &yards[0]), 0);
    wait_for_destroyer();
    yard_wait(&yards[1], yard_start(&yards[1], 0, 0));
    assert_int_equal(yard_read(&yards[0], &yards[0].dropped), 0);
    atomic_store(&gate_open, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_mutex_lock(&seen.lock);
    uint64_t published = count_seen(publisher);
    pthread_mutex_unlock(&seen.lock);
    assert_in_range(published, 1, 8);
    yard_remove(&yards[1]);
    hr__crew_destroy(&crew);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void test_idle_workers_sleep(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr__crew *crew = crew_make(4);
    publisher_options(&o);
    for (int i = 0; i < 3; i++) {
        yard_make(&yards[i], crew, &fixture, &o);
        yards[i].limit = i ? 3 - (uint64_t)i : UINT64_MAX;
        yard_start(&yards[i], 0, 0);
    }
    yard_wait(&yards[0], SAMPLES);
    yard_wait(&yards[1], 16);
    yard_wait(&yards[2], 8);
    uint64_t before;
    do { /* workers that poll would never stop using CPU time */
        before = cpu_ns();
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    } while (cpu_ns() - before > 2000000);
    for (int i = 0; i < 3; i++)
        yard_remove(&yards[i]);
    hr__crew_destroy(&crew);
}

/* Idle workers convert waiting items; measured costs decide how many. */
static void wait_for_conversions(void)
{
    struct hr_loader_stats one = {.size = sizeof one}, two = {.size = sizeof two};
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        hr_loader_get_stats(yards[0].publisher, &one);
        hr_loader_get_stats(yards[1].publisher, &two);
        /* The counters follow a moment after the items. */
    } while (one.cache_waiting || one.converted + two.converted < one.cache_coefficients);
    assert_true(one.cache_coefficients > 0);
    assert_int_equal(one.converted + two.converted, one.cache_coefficients);
    assert_int_equal(one.cache_encoded + one.cache_coefficients, SAMPLES);
}

/* Publishers of a process share an unnamed cache, whatever their ranks: the others find what one
 * has read, and idle workers convert it. */
static void check_shared_cache(int form)
{
    struct hr_loader_options o, embedded;
    struct samples expected;
    struct hr_loader_stats stats = {.size = sizeof stats};
    struct hr__crew *crew = crew_make(2);
    publisher_options(&o);
    o.cache = "64MiB";
    o.cache_form = form;
    o.epochs = 40; /* enough that converting pays off by the typical costs */
    for (int i = 0; i < 2; i++)
        yard_make(&yards[i], crew, &fixture, &o);
    yard_wait(&yards[0], yard_start(&yards[0], 0, 0));
    yard_wait(&yards[1], yard_start(&yards[1], 3, 0));
    hr_loader_get_stats(yards[1].publisher, &stats);
    assert_int_equal(stats.cache_hits, SAMPLES);
    assert_int_equal(stats.bytes_read, 0);
    embedded_options(&embedded, &o);
    samples_make(&expected, &fixture, &embedded, 3, 0);
    samples_compare(&expected, &yards[1], 0, 3);
    samples_free(&expected);
    if (form == HR_FORM_COEFFICIENTS)
        wait_for_conversions();
    assert_int_equal(segments(), 1);
    /* Simultaneously, from cached items only. */
    for (uint64_t epoch = 4; epoch < 7; epoch++) {
        for (int i = 0; i < 2; i++)
            yard_start(&yards[i], epoch, 0);
        for (int i = 0; i < 2; i++)
            yard_wait(&yards[i], SAMPLES);
    }
    yard_remove(&yards[0]);
    assert_int_equal(segments(), 1);
    yard_remove(&yards[1]);
    assert_int_equal(segments(), 0);
    hr__crew_destroy(&crew);
}

static void test_publishers_share_a_cache(void **state)
{
    (void)state;
    check_shared_cache(HR_FORM_ENCODED);
    check_shared_cache(HR_FORM_COEFFICIENTS);
    check_shared_cache(HR_FORM_INDEXED);
}

/* Publishers that start together read each sample once between them. */
static void test_publishers_read_each_sample_once(void **state)
{
    (void)state;
    struct hr_loader_options o;
    fixture_before_prepare = fixture_delay;
    for (int fetchers_read = 0; fetchers_read < 2; fetchers_read++) {
        struct hr__crew *crew = crew_make(3);
        uint64_t reads = 0;
        publisher_options(&o);
        o.cache = "64MiB";
        o.cache_form = HR_FORM_ENCODED;
        o.direct_io = fetchers_read;
        for (int i = 0; i < 3; i++) {
            o.seed = (uint64_t)i / 2; /* two with the same order, and one with another */
            yard_make(&yards[i], crew, &fixture, &o);
        }
        for (int i = 0; i < 3; i++)
            yard_start(&yards[i], 0, 0);
        for (int i = 0; i < 3; i++) {
            struct hr_loader_stats stats = {.size = sizeof stats};
            yard_wait(&yards[i], SAMPLES);
            hr_loader_get_stats(yards[i].publisher, &stats);
            assert_int_equal(stats.samples, SAMPLES);
            reads += stats.fetch.count;
        }
        assert_int_equal(reads, SAMPLES);
        for (int i = 0; i < 3; i++)
            yard_remove(&yards[i]);
        hr__crew_destroy(&crew);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_due_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_node_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_equals_take_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_publisher_without_room_holds_nobody_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_many_publishers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaving_waits_for_the_sample_in_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idle_workers_sleep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_publishers_share_a_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(test_publishers_read_each_sample_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
