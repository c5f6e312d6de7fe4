/*
 * Shared caches that evict: users with different orders read little more than Belady's rule does,
 * one order evicts nothing, whoever is dead or stands still does not count, users join and leave,
 * and a user that is killed at any step leaves every item right and every block with one owner.
 *
 * Most tests run several users on one thread, with a clock of their own.
 */
#include "policies_fixture.h"
#include "segment_fixture.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cache/residents.h"
#include "cache/store_inside.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define MS  UINT64_C(1000000)

static uint64_t set_ns; /* the time, while a test sets it; 0: the kernel's */

/* The one that the library calls, too. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC || !set_ns)
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = hr__timespec(set_ns);
    return 0;
}

/* ---- users that go through a stream of uses ---- */

#define JOBS_MOST 8

struct run {
    struct policies_stream stream;
    uint64_t budget;
    int number; /* of the segment */
    struct hr__store *stores[JOBS_MOST];
    uint64_t read;  /* bytes */
    uint64_t place; /* added to all positions */
};

static uint64_t sample_at(const struct policies_stream *s, uint64_t use)
{
    return s->sample[s->slot[use]];
}

static void make_run(struct run *run, int number, uint32_t jobs, uint32_t epochs)
{
    struct policies_wish wish = {.samples = 600,
                                 .every = 1,
                                 .jobs = jobs,
                                 .hosts = 1,
                                 .epochs = epochs,
                                 .known = 2,
                                 .drawn = HR__RESIDENTS_DRAWN};
    *run = (struct run){.number = number};
    stream_make(&run->stream, &wish);
    run->stream.bytes = 0;
    for (uint64_t i = 0; i < wish.samples; i++)
        run->stream.bytes += run->stream.size[i] = (uint32_t)fixture_length(i);
    run->budget = run->stream.bytes / 2;
    for (uint32_t job = 0; job < jobs; job++) {
        run->stores[job] = fixture_open(number, run->budget, wish.samples);
        /* It would hold all samples. */
        atomic_store(&hr__store_segment(run->stores[job])->no_ring, 1);
    }
    set_ns = hr__now_ns();
}

static void end_run(struct run *run)
{
    set_ns = 0;
    for (int job = 0; job < JOBS_MOST; job++)
        if (run->stores[job])
            fixture_close(&run->stores[job]);
    fixture_drop(run->number);
    stream_free(&run->stream);
}

/* Tells a job's uses from `use` on: of this epoch and of the next one. */
static void tell(struct run *run, uint32_t job, const struct phase *phase, uint64_t use)
{
    const struct policies_stream *s = &run->stream;
    struct hr__store *store = run->stores[job];
    hr__store_begin_uses(store);
    for (; use < phase->ends; use++)
        if (stream_job(s, phase, use) == job)
            hr__store_add_use(store, sample_at(s, use));
    hr__store_end_uses(store);
    if (++phase == s->phases + s->phase_count)
        return;
    for (use = phase->begins; use < phase->ends; use++)
        if (stream_job(s, phase, use) == job)
            hr__store_add_use(store, sample_at(s, use));
}

/* Gets a sample from the cache, or reads it. */
static void get(struct run *run, struct hr__store *store, uint64_t sample)
{
    struct hr__key key = fixture_key(sample);
    if (fixture_find(store, sample))
        return;
    (void)hr__store_claim(store, &key);
    run->read += fixture_length(sample);
    fixture_offer(store, sample, 0);
}

/* One use of a job. `stream`: of its order. */
static void use_one(struct run *run, const struct phase *phase, uint64_t use, uint64_t stream)
{
    const struct policies_stream *s = &run->stream;
    uint32_t job = stream_job(s, phase, use);
    struct hr__store *store = run->stores[job];
    struct hr__cache_progress at = {
        .order = stream,
        .stream = stream,
        .position = run->place + use / phase->jobs,
        .samples = s->wish.samples,
    };
    set_ns += MS;
    if (!store)
        return;
    hr__store_note_place(store, &at);
    if (hr__store_asks(store) && (!hr__store_tells(store) || use < phase->begins + phase->jobs))
        tell(run, job, phase, use);
    if (hr__store_tells(store))
        hr__store_use(store, sample_at(s, use));
    get(run, store, sample_at(s, use));
}

/* Runs one epoch of all jobs. `same`: they say that their order is one. */
static void run_epoch(struct run *run, uint32_t epoch, int same)
{
    const struct phase *phase = &run->stream.phases[epoch];
    for (uint64_t use = phase->begins; use < phase->ends; use++)
        use_one(run, phase, use, same ? 1 : 1 + stream_job(&run->stream, phase, use));
}

static uint64_t evicted(const struct run *run)
{
    return hr__segment_books(hr__store_segment(run->stores[0])).evicted;
}

static double over_belady(struct run *run, uint32_t epochs)
{
    for (uint32_t epoch = 0; epoch < epochs; epoch++) {
        run_epoch(run, epoch, 0);
        fixture_audit(hr__store_segment(run->stores[0]));
    }
    return (double)run->read / (double)policies_reads(&run->stream, "belady", run->budget);
}

static void test_two_orders(void **state)
{
    struct run run;
    make_run(&run, 1, 2, 6);
    double over = over_belady(&run, 6);
    print_message("two orders read %.3f times what Belady's rule reads\n", over);
    assert_true(over < 1.2);
    assert_int_equal(hr__segment_orders(hr__store_segment(run.stores[0])), 2);
    assert_true(policies_reads(&run.stream, "never evict", run.budget) > run.read * 4 / 3);
    end_run(&run);
}

static void test_four_orders(void **state)
{
    struct run run;
    make_run(&run, 2, 4, 6);
    double over = over_belady(&run, 6);
    print_message("four orders read %.3f times what Belady's rule reads\n", over);
    assert_true(over < 1.25);
    end_run(&run);
}

/* Several users of one order evict nothing, and tell nothing. */
static void test_one_order(void **state)
{
    struct run run;
    make_run(&run, 3, 2, 3);
    for (uint32_t epoch = 0; epoch < 3; epoch++)
        run_epoch(&run, epoch, 1);
    struct hr__segment *s = hr__store_segment(run.stores[0]);
    assert_int_equal(evicted(&run), 0);
    assert_int_equal(atomic_load(&s->header->evicts), 0);
    assert_int_equal(hr__segment_books(s).block_bytes, 0);
    assert_int_equal(hr__segment_orders(s), 0);
    assert_null(run.stores[0]->orders.own);
    fixture_audit(s);
    end_run(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_orders),
        cmocka_unit_test(test_four_orders),
        cmocka_unit_test(test_one_order),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
