/*
 * Shared caches that evict: users with different orders read little more than Belady's rule does,
 * one order evicts nothing, whoever is dead or stands still does not count, users join and leave,
 * a user that is killed at any step leaves every item right and every block with one owner, and
 * wrong bytes end nobody.
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

struct orders_run {
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

static void make_run(struct orders_run *run, int number, uint32_t jobs, uint32_t epochs)
{
    struct policies_wish wish = {.samples = 600,
                                 .every = 1,
                                 .jobs = jobs,
                                 .hosts = 1,
                                 .epochs = epochs,
                                 .known = 2,
                                 .drawn = HR__RESIDENTS_DRAWN};
    *run = (struct orders_run){.number = number};
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

static void end_run(struct orders_run *run)
{
    set_ns = 0;
    for (int job = 0; job < JOBS_MOST; job++)
        if (run->stores[job])
            fixture_close(&run->stores[job]);
    fixture_drop(run->number);
    stream_free(&run->stream);
}

/* Tells a job's uses from `use` on: of this epoch and of the next one. */
static void tell(struct orders_run *run, uint32_t job, const struct phase *phase, uint64_t use)
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
static void get(struct orders_run *run, struct hr__store *store, uint64_t sample)
{
    struct hr__key key = fixture_key(sample);
    if (fixture_find(store, sample))
        return;
    (void)hr__store_claim(store, &key);
    run->read += fixture_length(sample);
    fixture_offer(store, sample, 0);
}

/* One use of a job. `stream`: of its order. */
static void use_one(struct orders_run *run, const struct phase *phase, uint64_t use,
                    uint64_t stream)
{
    const struct policies_stream *s = &run->stream;
    uint32_t job = stream_job(s, phase, use);
    struct hr__store *store = run->stores[job];
    struct hr__cache_progress at = {
        .order = stream,
        .stream = stream,
        .position = use / phase->jobs,
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
static void run_epoch(struct orders_run *run, uint32_t epoch, int same)
{
    const struct phase *phase = &run->stream.phases[epoch];
    for (uint64_t use = phase->begins; use < phase->ends; use++)
        use_one(run, phase, use, same ? 1 : 1 + stream_job(&run->stream, phase, use));
}

static uint64_t evicted(const struct orders_run *run)
{
    return hr__segment_books(hr__store_segment(run->stores[0])).evicted;
}

static double over_belady(struct orders_run *run, uint32_t epochs)
{
    for (uint32_t epoch = 0; epoch < epochs; epoch++) {
        run_epoch(run, epoch, 0);
        fixture_audit(hr__store_segment(run->stores[0]));
    }
    return (double)run->read / (double)policies_reads(&run->stream, "belady", run->budget);
}

static void test_two_orders(void **state)
{
    struct orders_run run;
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
    struct orders_run run;
    make_run(&run, 2, 4, 6);
    double over = over_belady(&run, 6);
    print_message("four orders read %.3f times what Belady's rule reads\n", over);
    assert_true(over < 1.25);
    end_run(&run);
}

/* Several users of one order evict nothing, and tell nothing. */
static void test_one_order(void **state)
{
    struct orders_run run;
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

/* ---- jobs of different speeds ---- */

#define FASTER 4
#define EPOCHS 8 /* of the fast job */

/* Two jobs whose uses alternate in the stream become a slow one and one that is FASTER times as
 * fast, which goes through all of its epochs meanwhile. Returns by use who makes it. */
static uint8_t *slow_down(struct policies_stream *s)
{
    uint64_t all = s->wish.samples * EPOCHS, at = 0;
    uint32_t *slot = policies_array(2 * all, sizeof *slot);
    uint32_t *last = policies_array(s->slots, sizeof *last);
    uint8_t *job = policies_array(2 * all, 1);
    for (uint64_t n = 0; n < all; n++)
        for (uint64_t j = 0; j < (n % FASTER ? 1 : 2); j++) {
            job[at] = j == 1;
            slot[at++] = s->slot[j ? 2 * (n / FASTER) + 1 : 2 * n];
        }
    hr__free(s->slot);
    s->slot = slot;
    s->uses = at;
    s->phase_count = 1;
    s->phases[0].ends = at;
    memset(last, 0xff, s->slots * sizeof *last);
    while (at-- > 0) {
        s->next[at] = last[slot[at]];
        last[slot[at]] = (uint32_t)at;
    }
    hr__free(last);
    return job;
}

/* Tells what a job uses from its `done`th use on, in this epoch and the next one. */
static void tell_own(struct orders_run *run, const uint8_t *jobs, uint8_t job, uint64_t use,
                     uint64_t done)
{
    const struct policies_stream *s = &run->stream;
    uint64_t n = s->wish.samples, ends = (done / n + 1) * n;
    hr__store_begin_uses(run->stores[job]);
    for (; use < s->uses && done < ends + n; use++) {
        if (jobs[use] != job)
            continue;
        if (done == ends)
            hr__store_end_uses(run->stores[job]);
        hr__store_add_use(run->stores[job], sample_at(s, use));
        done++;
    }
    if (done <= ends)
        hr__store_end_uses(run->stores[job]);
}

/* The users' clocks are merged by their speeds, which are measured. */
static void test_different_speeds(void **state)
{
    struct orders_run run;
    make_run(&run, 12, 2, EPOCHS);
    uint8_t *jobs = slow_down(&run.stream);
    uint64_t done[2] = {0, 0};
    for (uint64_t use = 0; use < run.stream.uses; use++) {
        uint8_t job = jobs[use];
        struct hr__store *store = run.stores[job];
        struct hr__cache_progress at = {.order = job + 1u,
                                        .stream = job + 1u,
                                        .position = done[job],
                                        .samples = run.stream.wish.samples};
        set_ns += MS;
        hr__store_note_place(store, &at);
        if (hr__store_asks(store) &&
            (!hr__store_tells(store) || done[job] % run.stream.wish.samples == 0))
            tell_own(&run, jobs, job, use, done[job]);
        if (hr__store_tells(store))
            hr__store_use(store, sample_at(&run.stream, use));
        get(&run, store, sample_at(&run.stream, use));
        done[job]++;
    }
    const struct hr__store_orders *o = &run.stores[0]->orders;
    assert_int_equal(o->count, 2);
    double faster = o->counted[1].use_ns / o->counted[0].use_ns;
    double over = (double)run.read / (double)policies_reads(&run.stream, "belady", run.budget);
    print_message("a job %.2f times as fast as another: %.3f times what Belady's rule reads\n",
                  faster, over);
    assert_true(faster > 0.8 * FASTER && faster < 1.25 * FASTER);
    assert_true(over < 1.2);
    fixture_audit(hr__store_segment(run.stores[0]));
    hr__free(jobs);
    end_run(&run);
}

/* ---- users that come, stand still and go ---- */

#define SAMPLES UINT64_C(600)

/* Sample number `i` of an order. */
static uint64_t of_order(unsigned order, uint64_t i)
{
    static const uint64_t steps[] = {7, 11, 13, 17};
    return i * steps[order] % SAMPLES;
}

static void look(struct hr__store *const *stores, unsigned count)
{
    set_ns += 200 * MS;
    for (unsigned i = 0; i < count; i++)
        hr__store_look_around(stores[i], set_ns);
}

/* A step of each user. */
static void step(struct hr__store *const *stores, unsigned count, uint64_t at)
{
    for (unsigned i = 0; i < count; i++)
        hr__store_use(stores[i], of_order(i, at));
    look(stores, count);
}

/* Fills the segment, and has its users tell orders of their own. */
static void begin_telling(struct hr__store *const *stores, unsigned count)
{
    set_ns = hr__now_ns();
    for (unsigned i = 0; i < count; i++) /* it would hold all samples */
        atomic_store(&hr__store_segment(stores[i])->no_ring, 1);
    for (uint64_t i = 0; i < SAMPLES; i++)
        fixture_offer(stores[0], i, 0);
    for (unsigned i = 0; i < count; i++) {
        struct hr__cache_progress at = {.order = i + 1, .stream = i + 1, .samples = SAMPLES};
        hr__store_note_place(stores[i], &at);
        atomic_store(&stores[i]->is_full, 1);
    }
    look(stores, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(hr__store_asks(stores[i]), count > 1);
        hr__store_begin_uses(stores[i]);
        for (uint64_t n = 0; n < SAMPLES; n++)
            hr__store_add_use(stores[i], of_order(i, n));
        hr__store_end_uses(stores[i]);
    }
    for (uint64_t at = 0; at < 3; at++)
        step(stores, count, at);
}

/* Offers the next samples of an order that are not there. Returns how many were kept. */
static int offer_next(struct hr__store *store, unsigned order, uint64_t from, int count)
{
    int kept = 0;
    for (uint64_t n = from; count && n < SAMPLES; n++) {
        if (fixture_find(store, of_order(order, n)))
            continue;
        kept += fixture_offer(store, of_order(order, n), 0);
        count--;
    }
    return kept;
}

static void open_stores(struct hr__store **stores, unsigned count, int number)
{
    for (unsigned i = 0; i < count; i++)
        stores[i] = fixture_open(number, 2 * MIB, SAMPLES);
}

static void close_stores(struct hr__store **stores, unsigned count, int number)
{
    set_ns = 0;
    for (unsigned i = 0; i < count; i++)
        if (stores[i])
            fixture_close(&stores[i]);
    fixture_drop(number);
}

/* Who has left, or stands still, does not count; who moves again, or comes, does. */
static void test_who_counts(void **state)
{
    struct hr__store *stores[3];
    open_stores(stores, 3, 4);
    begin_telling(stores, 3);
    struct hr__segment *s = hr__store_segment(stores[0]);
    assert_int_equal(stores[0]->orders.count, 3);
    assert_int_equal(hr__segment_orders(s), 3);
    assert_int_equal(offer_next(stores[0], 0, 3, 5), 5);
    /* the third stands still */
    for (uint64_t at = 3; at < 9; at++)
        step(stores, 2, at);
    assert_int_equal(stores[0]->orders.count, 2);
    assert_int_equal(offer_next(stores[0], 0, 9, 5), 5);
    step(stores, 3, 9);
    assert_int_equal(stores[0]->orders.count, 3);
    /* the second, too, leaves: one order evicts nothing */
    fixture_close(&stores[2]);
    look(stores, 2);
    assert_int_equal(stores[0]->orders.count, 2);
    fixture_close(&stores[1]);
    look(stores, 1);
    assert_int_equal(hr__store_asks(stores[0]), 0);
    assert_int_equal(hr__store_tells(stores[0]), 0);
    uint64_t evicted_before = hr__segment_books(s).evicted;
    offer_next(stores[0], 0, 10, 20);
    assert_int_equal(hr__segment_books(s).evicted, evicted_before);
    assert_int_equal(hr__segment_orders(s), 0);
    /* the second comes again */
    open_stores(&stores[1], 1, 4);
    begin_telling(stores, 2);
    assert_int_equal(hr__segment_orders(s), 2);
    assert_true(offer_next(stores[1], 1, 3, 20) > 10);
    assert_true(hr__segment_books(s).evicted > evicted_before);
    fixture_audit(s);
    stores[2] = NULL;
    close_stores(stores, 3, 4);
}

/* The same order an epoch later is another one. */
static void test_an_epoch_apart(void **state)
{
    struct hr__store *stores[2];
    open_stores(stores, 2, 5);
    set_ns = hr__now_ns();
    struct hr__cache_progress at = {.order = 1, .stream = 1, .samples = SAMPLES};
    hr__store_note_place(stores[0], &at);
    at.position = SAMPLES - 1;
    hr__store_note_place(stores[1], &at);
    atomic_store(&stores[0]->is_full, 1);
    look(stores, 1);
    assert_int_equal(hr__store_asks(stores[0]), 0);
    at.position = SAMPLES;
    hr__store_note_place(stores[1], &at);
    look(stores, 1);
    assert_int_equal(hr__store_asks(stores[0]), 1);
    close_stores(stores, 2, 5);
}

/* One order that repeats samples evicts, too. */
static void test_one_order_that_repeats(void **state)
{
    struct hr__store *stores[1];
    open_stores(stores, 1, 13);
    begin_telling(stores, 1);
    assert_int_equal(offer_next(stores[0], 0, 3, 5), 0);
    struct hr__cache_progress at = {.order = 1, .stream = 1, .samples = SAMPLES, .repeats = 1};
    hr__store_note_place(stores[0], &at);
    look(stores, 1);
    assert_int_equal(hr__store_asks(stores[0]), 1);
    hr__store_begin_uses(stores[0]);
    for (uint64_t n = 0; n < 3 * SAMPLES; n++)
        hr__store_add_use(stores[0], of_order(0, n / 3));
    hr__store_end_uses(stores[0]);
    for (uint64_t n = 0; n < 9; n++) {
        hr__store_use(stores[0], of_order(0, n / 3));
        look(stores, 1);
    }
    assert_int_equal(offer_next(stores[0], 0, 3, 5), 5);
    assert_int_equal(hr__segment_orders(hr__store_segment(stores[0])), 1);
    at.repeats = 0;
    hr__store_note_place(stores[0], &at);
    look(stores, 1);
    assert_int_equal(hr__store_asks(stores[0]), 0);
    fixture_audit(hr__store_segment(stores[0]));
    close_stores(stores, 1, 13);
}

/* An item that is used in place when evicting begins is not whole afterwards; a copy is. Once all
 * users have left, items are used in place again. */
static void test_items_in_use(void **state)
{
    struct hr__store *stores[2];
    struct hr__cache_item item, copy;
    open_stores(stores, 2, 6);
    begin_telling(stores, 2);
    uint64_t sample = 0;
    while (!fixture_find(stores[0], sample))
        sample++;
    struct hr__key key = fixture_key(sample);
    assert_int_equal(hr__store_find(stores[0], &key, &item), 1);
    assert_null(item.copy);
    assert_int_equal(hr__store_is_whole(stores[0], &item), 1);
    assert_true(offer_next(stores[1], 1, 3, 5) > 0);
    assert_int_equal(hr__store_is_whole(stores[0], &item), 0);
    hr__store_clear(&item);
    sample = of_order(1, 3);
    key = fixture_key(sample);
    assert_int_equal(hr__store_find(stores[0], &key, &copy), 1);
    assert_non_null(copy.copy);
    assert_int_equal(hr__store_is_whole(stores[0], &copy), 1);
    hr__store_clear(&copy);
    fixture_close(&stores[0]);
    fixture_close(&stores[1]);
    open_stores(stores, 1, 6);
    for (sample = 0; sample < SAMPLES; sample++) {
        key = fixture_key(sample);
        if (!hr__store_find(stores[0], &key, &item))
            continue;
        struct hr__found found;
        uint64_t free;
        hr__store_search(hr__store_segment(stores[0]), &key, 0, &found, &free);
        assert_int_equal(item.copy != NULL, found.word.taken);
        hr__store_clear(&item);
    }
    close_stores(stores, 2, 6);
}

static void test_no_memory_for_an_order(void **state)
{
    struct hr__store *stores[2];
    open_stores(stores, 2, 7);
    for (uint64_t n = 1; n < 5; n++) {
        hr__alloc_fail_at(n, 0);
        hr__store_begin_uses(stores[0]);
        hr__store_add_use(stores[0], 1);
        hr__alloc_fail_at(0, 0);
        hr__store_end_uses(stores[0]);
        assert_true(stores[0]->orders.own || !hr__store_tells(stores[0]));
        hr__store_use(stores[0], 1);
        atomic_store(&stores[0]->orders.mute_ns, 0);
        hr__future_order_destroy(&stores[0]->orders.own);
    }
    close_stores(stores, 2, 7);
}

/* ---- killed at every step ---- */

static int steps_left;

static void die_at_step(int at)
{
    if (!--steps_left)
        kill(getpid(), SIGKILL);
}

/* A user that evicts is killed at every step: each item is right or gone, and no block is lost.
 * `is_first`: nothing was evicted before. */
static void kill_at_every_step(int is_first)
{
    test_has_one_thread();
    int survived = 0;
    for (int steps = 1; !survived; steps++) {
        struct hr__store *store = fixture_open(8, 2 * MIB, SAMPLES), *stores[2];
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            hr__store_abandon(&store);
            open_stores(stores, 2, 8);
            begin_telling(stores, 2);
            if (!is_first)
                offer_next(stores[0], 0, 3, 3);
            steps_left = steps;
            hr__segment_test_step = die_at_step;
            offer_next(stores[1], 1, 3, is_first ? 1 : 4);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        survived = WIFEXITED(status);
        if (!survived)
            assert_int_equal(WTERMSIG(status), SIGKILL);
        open_stores(stores, 2, 8);
        fixture_audit(hr__store_segment(store));
        for (uint64_t i = 0; i < SAMPLES; i++)
            fixture_find(store, i);
        begin_telling(stores, 2);
        assert_true(offer_next(stores[0], 0, 3, 4) > 0);
        fixture_audit(hr__store_segment(store));
        assert_int_equal(hr__segment_is_sound(hr__store_segment(store)), 1);
        set_ns = 0;
        fixture_close(&store);
        close_stores(stores, 2, 8);
        assert_true(steps < 1000);
    }
}

static void test_killed_at_every_step(void **state)
{
    kill_at_every_step(0);
    kill_at_every_step(1);
}

/* ---- wrong bytes ---- */

/* Writes a wrong word somewhere into what users believe when they evict. */
static void scribble(const struct hr__segment *s, struct hr__random *random)
{
    const uint64_t books = offsetof(struct hr__segment_header, ring_tail);
    const uint64_t parts[][2] = {
        {books, sizeof *s->header - books},
        {s->layout.index_offset, s->layout.index_slots * sizeof *s->entries},
        {s->layout.blocks_offset, s->layout.arena_bytes / HR__BLOCK_MIN * sizeof *s->blocks},
        {s->layout.uses_offset, 2 * s->layout.uses_bytes},
    };
    const uint64_t *part = parts[hr__random_below(random, sizeof parts / sizeof *parts)];
    uint64_t at = part[0] / 8 * 8 + hr__random_below(random, part[1] / 8) * 8;
    uint64_t *word = (uint64_t *)(void *)((char *)s->header + at);
    uint64_t wrong[] = {hr__random_u64(random), hr__random_u32(random) >> 16,
                        *word ^ UINT64_C(1) << hr__random_below(random, 64)};
    *word = wrong[hr__random_below(random, sizeof wrong / sizeof *wrong)];
}

static void say_nothing(void *arg, enum hr_log_level level, const char *message)
{
}

/* Users of a segment with wrong bytes live, and find right items or none. */
static void test_scribbled_over(void **state)
{
    struct hr__random random;
    hr__random_init(&random, 1, 2, 3, 4);
    hr_log_set(say_nothing, NULL);
    for (int turn = 0; turn < 200; turn++) {
        struct hr__store *stores[2];
        open_stores(stores, 2, 11);
        begin_telling(stores, 2);
        assert_true(offer_next(stores[0], 0, 3, 3) > 0);
        for (int words = 0; words < 1 + turn % 10; words++)
            scribble(hr__store_segment(stores[0]), &random);
        for (uint64_t at = 3; at < 9; at++) {
            step(stores, 2, at);
            offer_next(stores[at % 2], at % 2, at, 5);
        }
        for (uint64_t i = 0; i < SAMPLES; i++)
            fixture_find(stores[1], i);
        (void)hr__segment_orders(hr__store_segment(stores[0]));
        close_stores(stores, 2, 11);
    }
    hr_log_set(NULL, NULL);
}

/* ---- threads and processes ---- */

#define RACERS 3

struct racer {
    struct hr__store *store;
    unsigned order;
    uint64_t from;
};

static void *race(void *arg)
{
    const struct racer *racer = arg;
    struct hr__key key;
    for (uint64_t n = racer->from; n < 3 * SAMPLES; n += RACERS) {
        uint64_t sample = of_order(racer->order, n);
        hr__store_use(racer->store, sample);
        if (fixture_find(racer->store, sample))
            continue;
        key = fixture_key(sample);
        (void)hr__store_claim(racer->store, &key);
        fixture_offer(racer->store, sample, 0);
    }
    return NULL;
}

/* Two users go through their orders at once, each with several threads. They count as they stood
 * before: their clock stands still. */
static void race_both(struct hr__store *const *stores)
{
    pthread_t threads[2 * RACERS];
    struct racer racers[2 * RACERS];
    for (unsigned i = 0; i < 2 * RACERS; i++) {
        racers[i] = (struct racer){stores[i % 2], i % 2, i / 2};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < 2 * RACERS; i++)
        pthread_join(threads[i], NULL);
}

static void test_threads(void **state)
{
    struct hr__store *stores[2];
    open_stores(stores, 2, 9);
    begin_telling(stores, 2);
    assert_true(offer_next(stores[0], 0, 3, 3) > 0);
    race_both(stores);
    assert_true(hr__segment_books(hr__store_segment(stores[0])).evicted > 100);
    fixture_audit(hr__store_segment(stores[0]));
    close_stores(stores, 2, 9);
}

static void test_processes(void **state)
{
    test_has_one_thread();
    struct hr__store *store = fixture_open(10, 2 * MIB, SAMPLES), *stores[2];
    pid_t children[2];
    for (unsigned i = 0; i < 2; i++) {
        children[i] = fork();
        if (!children[i]) {
            hr__store_abandon(&store);
            open_stores(stores, 2, 10);
            begin_telling(stores, 2);
            race_both(stores);
            set_ns = 0;
            fixture_close(&stores[0]);
            fixture_close(&stores[1]);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_true(hr__segment_books(hr__store_segment(store)).evicted > 100);
    fixture_audit(hr__store_segment(store));
    for (uint64_t i = 0; i < SAMPLES; i++)
        fixture_find(store, i);
    fixture_close(&store);
    fixture_drop(10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_orders),
        cmocka_unit_test(test_four_orders),
        cmocka_unit_test(test_one_order),
        cmocka_unit_test(test_different_speeds),
        cmocka_unit_test(test_one_order_that_repeats),
        cmocka_unit_test(test_who_counts),
        cmocka_unit_test(test_an_epoch_apart),
        cmocka_unit_test(test_items_in_use),
        cmocka_unit_test(test_no_memory_for_an_order),
        cmocka_unit_test(test_killed_at_every_step),
        cmocka_unit_test(test_scribbled_over),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
