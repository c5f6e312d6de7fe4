/* Advice, intervals and iterations of records with known answers. */
#include "written.h"

#include <math.h>
#include <string.h>

#define MB UINT64_C(1000000)

static const struct hr__advice *advice_of(const struct hr__memory *m, enum hr__advice_kind kind,
                                          uint64_t bytes)
{
    for (size_t i = 0; i < m->advice_count; i++)
        if (m->advice[i].kind == kind && m->advice[i].bytes == bytes)
            return &m->advice[i];
    return NULL;
}

static size_t count_of(const struct hr__memory *m, enum hr__advice_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < m->advice_count; i++)
        count += m->advice[i].kind == kind;
    return count;
}

/* Begins a call that reads or writes a block. */
static void call(struct written *w, enum hr_memory_kind kind, uint64_t ns, uint64_t address,
                 uint32_t op)
{
    w->call++;
    written_access(w, kind, ns, address, op);
}

/* Three blocks of 6 MB stay unused for 5 ms over the peak: at 12 GB/s each way a block of 6 MB
 * needs 1 ms. A block of 60 MB cannot be moved in its 8 ms. One block is accessed by the call that
 * runs at the peak. */
static void test_swap(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "op"), shape = written_name(w, "[3] float32");
    w->phase = HR_MEMORY_FORWARD;
    /* Before: many long intervals of larger blocks, unrelated to the peak. */
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 30 * MB, 0);
    for (uint64_t k = 0; k < 600; k++)
        call(w, k ? HR_MEMORY_READ : HR_MEMORY_WRITE, 1000 + k * 100000000, 64, op);
    written_put(w, HR_MEMORY_FREE, 60000000000, 64, 0, 0);
    uint64_t t = 100000000000;
    for (uint64_t k = 0; k < 3; k++) {
        written_put(w, HR_MEMORY_ALLOC, t + k, 1024 + 64 * k, 6 * MB, 0);
        written_put(w, HR_MEMORY_DESCRIBE, t + k, 1024 + 64 * k, 0, shape);
        call(w, HR_MEMORY_WRITE, t + 10 + k, 1024 + 64 * k, op);
    }
    written_put(w, HR_MEMORY_ALLOC, t + 20, 4096, 60 * MB, 0);
    call(w, HR_MEMORY_WRITE, t + 30, 4096, op);
    /* The call that runs at the peak has read this block before, and it is read again. */
    written_put(w, HR_MEMORY_ALLOC, t + 40, 8192, 7 * MB, 0);
    call(w, HR_MEMORY_WRITE, t + 50, 8192, op);
    call(w, HR_MEMORY_READ, t + 60, 8192, op);
    written_put(w, HR_MEMORY_ALLOC, t + 100, 16384, 1 * MB, 0); /* the peak */
    call(w, HR_MEMORY_WRITE, t + 200, 16384, op);
    written_put(w, HR_MEMORY_FREE, t + 300, 16384, 0, 0);
    w->phase = HR_MEMORY_BACKWARD;
    for (uint64_t k = 0; k < 3; k++)
        call(w, HR_MEMORY_READ, t + 5000000 + 10 + k, 1024 + 64 * k, op);
    call(w, HR_MEMORY_READ, t + 8000000, 4096, op);
    call(w, HR_MEMORY_READ, t + 9000000, 8192, op);
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->devices[0].timeline.peak.time_ns, t + 100);
    assert_int_equal(m->devices[0].timeline.peak_bytes, (18 + 60 + 7 + 1) * MB);
    assert_int_equal(count_of(m, HR__ADVICE_SWAP), 1);
    const struct hr__advice *swap = advice_of(m, HR__ADVICE_SWAP, 18 * MB);
    assert_non_null(swap);
    assert_int_equal(swap->blocks, 3);
    assert_int_equal(swap->ns, 5000000);
    assert_true(fabs(swap->cost_ns - 3 * 1e6) < 1);
    assert_int_equal(m->found.blocks[swap->block].bytes, 6 * MB);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* Small blocks of one kind count together; of a hundred kinds, the 40 best are reported. */
static void test_best(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "op");
    uint64_t sum = 0;
    for (uint64_t k = 0; k < 1000; k++) {
        uint64_t kind = k % 100;
        written_put(w, HR_MEMORY_ALLOC, 10 + k, 64 + 64 * k, 10000 + 100 * kind, 0);
        call(w, HR_MEMORY_WRITE, 2000 + k, 64 + 64 * k, op);
        sum += 10000 + 100 * kind;
    }
    /* Not made by the call that runs at the peak. */
    written_put(w, HR_MEMORY_ALLOC, 8000, 1 << 21, 5, 0);
    call(w, HR_MEMORY_WRITE, 9000, 1 << 21, op);
    written_put(w, HR_MEMORY_ALLOC, 10000, 1 << 20, 5, 0);
    call(w, HR_MEMORY_WRITE, 10001, 1 << 20, op);
    written_put(w, HR_MEMORY_FREE, 10002, 1 << 20, 0, 0);
    for (uint64_t k = 0; k < 1000; k++)
        call(w, HR_MEMORY_READ, 100000000 + k, 64 + 64 * k, op);
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->devices[0].timeline.peak_bytes, sum + 10);
    assert_int_equal(m->advice_count, HR__ADVICE_MOST);
    for (uint64_t k = 0; k < HR__ADVICE_MOST; k++) {
        assert_int_equal(m->advice[k].kind, HR__ADVICE_SWAP);
        assert_int_equal(m->advice[k].blocks, 10);
        assert_int_equal(m->advice[k].bytes, 10 * (10000 + 100 * (99 - k)));
    }
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

static void test_late_free(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "op"), shape = written_name(w, "[1] float32");
    w->phase = HR_MEMORY_FORWARD;
    for (uint64_t k = 0; k < 5; k++)
        written_put(w, HR_MEMORY_ALLOC, 10 + k, 64 + 64 * k, (10 + k) * MB, 0);
    written_put(w, HR_MEMORY_DESCRIBE, 15, 64 + 64 * 4, 0, shape); /* a tensor */
    call(w, HR_MEMORY_WRITE, 100, 64, op);       /* its last access; freed after the peak */
    call(w, HR_MEMORY_WRITE, 110, 64 + 64, op);  /* used again after the peak */
    call(w, HR_MEMORY_WRITE, 120, 64 + 128, op); /* operand of the call at the peak */
    call(w, HR_MEMORY_READ, 200, 64 + 128, op);
    written_put(w, HR_MEMORY_ALLOC, 300, 1024, 1 * MB, 0); /* the peak, within that call */
    written_access(w, HR_MEMORY_WRITE, 310, 1024, op);
    call(w, HR_MEMORY_READ, 400, 64 + 64, op);
    for (uint64_t k = 0; k < 5; k++)
        written_put(w, HR_MEMORY_FREE, 500 + k, 64 + 64 * k, 0, 0);
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->devices[0].timeline.peak.time_ns, 300);
    assert_int_equal(m->devices[0].running_call, w->call - 1);
    assert_int_equal(count_of(m, HR__ADVICE_LATE_FREE), 1);
    const struct hr__advice *late = advice_of(m, HR__ADVICE_LATE_FREE, 10 * MB);
    assert_non_null(late);
    assert_int_equal(late->begin_ns, 100);
    assert_int_equal(late->ns, 400);
    /* Of two untouched blocks, one is known to be a tensor; the other is workspace. */
    assert_int_equal(count_of(m, HR__ADVICE_UNTOUCHED), 1);
    assert_non_null(advice_of(m, HR__ADVICE_UNTOUCHED, 14 * MB));
    assert_int_equal(m->found.blocks[3].category, HR_MEMORY_WORKSPACE);
    assert_int_equal(m->found.blocks[4].category, HR_MEMORY_TEMPORARY);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* Computed in 10 us and used 10 ms later: cheap. Computed in 5 ms: not cheap. */
static void test_recompute(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t cheap = written_name(w, "cheap"), dear = written_name(w, "dear");
    hr_memory_fact(w->recorder, "probe ns per call", "2000");
    w->phase = HR_MEMORY_FORWARD;
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 900 * MB, 0);
    call(w, HR_MEMORY_WRITE, 1000, 64, cheap);
    written_put(w, HR_MEMORY_ALLOC, 12000, 128, 800 * MB, 0);
    call(w, HR_MEMORY_WRITE, 13000, 128, dear);
    written_put(w, HR_MEMORY_ALLOC, 5012000, 256, 1, 0);
    call(w, HR_MEMORY_WRITE, 5013000, 256, dear);
    call(w, HR_MEMORY_READ, 10013000, 256, dear);
    w->phase = HR_MEMORY_BACKWARD;
    call(w, HR_MEMORY_READ, 20000000, 64, dear);
    call(w, HR_MEMORY_READ, 20010000, 128, dear);
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(count_of(m, HR__ADVICE_RECOMPUTE), 1);
    const struct hr__advice *again = advice_of(m, HR__ADVICE_RECOMPUTE, 900 * MB);
    assert_non_null(again);
    /* From 1000 to 13000, less the time of recording. */
    assert_true(fabs(again->cost_ns - 10000) < 1e-6);
    assert_int_equal(again->ns, 19999000 - 4 * 2000);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* In iterations of 2 ms: four blocks at 30 us each cost too much, one at 5 us does not. */
static void test_recompute_of_iterations(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t cheap = written_name(w, "cheap"), dear = written_name(w, "dear");
    uint32_t mark = written_name(w, "iteration");
    for (uint64_t n = 0; n < 4; n++) {
        uint64_t t = 1000000 + 2000000 * n;
        written_put(w, HR_MEMORY_MARK, t - 1, 0, n, mark);
        w->phase = HR_MEMORY_FORWARD;
        for (uint64_t k = 0; k < 5; k++) {
            written_put(w, HR_MEMORY_ALLOC, t + 30000 * k, 64 + 64 * k, k < 4 ? 8 * MB : MB, 0);
            call(w, HR_MEMORY_WRITE, t + 30000 * k, 64 + 64 * k, k < 4 ? dear : cheap);
        }
        written_put(w, HR_MEMORY_ALLOC, t + 125000, 1024, 1, 0);
        call(w, HR_MEMORY_WRITE, t + 125000, 1024, written_name(w, "other"));
        written_put(w, HR_MEMORY_FREE, t + 125100, 1024, 0, 0);
        w->phase = HR_MEMORY_BACKWARD;
        for (uint64_t k = 5; k--;) {
            call(w, HR_MEMORY_READ, t + 1900000 - k, 64 + 64 * k, written_name(w, "back"));
            written_put(w, HR_MEMORY_FREE, t + 1950000 - k, 64 + 64 * k, 0, 0);
        }
    }
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->iteration_ns, 2000000);
    assert_int_equal(m->devices[0].timeline.peak_bytes, 33 * MB + 1);
    assert_int_equal(count_of(m, HR__ADVICE_RECOMPUTE), 1);
    const struct hr__advice *again = advice_of(m, HR__ADVICE_RECOMPUTE, MB);
    assert_non_null(again);
    assert_true(fabs(again->cost_ns - 5000) < 1e-6);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* ---- intervals ---- */

static void test_within_call(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "add");
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 100, 0);
    call(w, HR_MEMORY_WRITE, 100, 64, op);
    call(w, HR_MEMORY_READ, 500, 64, op); /* add(a, a) */
    written_access(w, HR_MEMORY_READ, 500, 64, op);
    call(w, HR_MEMORY_WRITE, 900, 64, op);
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->intervals.seen, 2);
    assert_int_equal(m->intervals.of[HR__WRITE_READ].sum_ns, 400);
    assert_int_equal(m->intervals.of[HR__READ_WRITE].sum_ns, 400);
    assert_int_equal(m->intervals.of[HR__READ_READ].count, 0);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* Call numbers go down when threads take turns: then nothing is subtracted. No difference becomes
 * negative. */
static void test_order_of_calls(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "op");
    hr_memory_fact(w->recorder, "probe ns per call", "300");
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 100, 0);
    w->call = 10;
    written_access(w, HR_MEMORY_WRITE, 1000, 64, op);
    w->call = 12;
    written_access(w, HR_MEMORY_READ, 2000, 64, op); /* 1000 less 600 */
    w->call = 11;
    written_access(w, HR_MEMORY_READ, 2500, 64, op); /* 500 */
    w->call = 19;
    written_access(w, HR_MEMORY_READ, 3000, 64, op); /* 500 less 2400 */
    w->call = UINT32_MAX;
    written_access(w, HR_MEMORY_WRITE, 4000, 64, op); /* of another thread: much earlier */
    w->call = 1;
    written_access(w, HR_MEMORY_WRITE, 5000, 64, op); /* the number wrapped around: two calls */
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->intervals.of[HR__WRITE_READ].sum_ns, 400);
    assert_int_equal(m->intervals.of[HR__READ_READ].sum_ns, 500);
    assert_int_equal(m->intervals.of[HR__READ_WRITE].sum_ns, 1000);
    assert_int_equal(m->intervals.of[HR__WRITE_WRITE].sum_ns, 400);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* ---- clocks ---- */

static void ran(struct written *w, uint32_t number, uint64_t begin_ns, uint64_t end_ns)
{
    struct hr_memory_ran one = {begin_ns, end_ns, number, w->device};
    hr_memory_record_ran(w->recorder, &one, 1);
}

static void test_device_times(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "op");
    hr_memory_fact(w->recorder, "probe ns per call", "100");
    w->flags = HR_MEMORY_HOST_TIME;
    w->device = 2; /* the times of all of its calls are known */
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 100, 0);
    written_put(w, HR_MEMORY_ALLOC, 11, 128, 90, 0);
    call(w, HR_MEMORY_WRITE, 20, 64, op);
    ran(w, w->call, 1000, 6000);
    call(w, HR_MEMORY_WRITE, 30, 128, op);
    ran(w, w->call, 6000, 7000);
    written_put(w, HR_MEMORY_ALLOC, 40, 256, 1, 0); /* the peak, long before any access */
    call(w, HR_MEMORY_READ, 50, 64, op);
    ran(w, w->call, 26000, 27000);
    call(w, HR_MEMORY_READ, 60, 128, op);
    ran(w, w->call, 6500, 26500); /* on another stream: before the end of the other call */
    w->device = 1;                /* not known */
    written_put(w, HR_MEMORY_ALLOC, 70, 64, 1000, 0);
    call(w, HR_MEMORY_WRITE, 80, 64, op);
    written_put(w, HR_MEMORY_ALLOC, 90, 128, 10, 0);
    call(w, HR_MEMORY_READ, 100000000, 64, op);
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->intervals.seen, 3);
    /* 20,000 from the end to the beginning, nothing subtracted; 0; the host's 99,999,920 less
     * 100. */
    assert_int_equal(m->intervals.of[HR__WRITE_READ].sum_ns, 20000 + 99999920 - 100);
    assert_int_equal(m->device_count, 2);
    assert_true(m->devices[0].host_timed && !m->devices[1].host_timed);
    assert_true(m->no_swap_advice && !m->is_device_clock);
    /* 100 bytes can leave and return in 20 us. For the other device that is unknown. */
    assert_int_equal(count_of(m, HR__ADVICE_SWAP), 1);
    const struct hr__advice *swap = advice_of(m, HR__ADVICE_SWAP, 100);
    assert_non_null(swap);
    assert_int_equal(swap->begin_ns, 6000);
    assert_int_equal(swap->ns, 20000);
    assert_int_equal(m->main_device, 0);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* The times of one call in 300 were lost: intervals between two clocks are left out, all others
 * stay. */
static void test_lost_times(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "op");
    w->flags = HR_MEMORY_HOST_TIME;
    w->device = 1;
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 100, 0);
    for (uint64_t k = 0; k < 300; k++) {
        call(w, k ? HR_MEMORY_READ : HR_MEMORY_WRITE, 20 + k, 64, op);
        if (k != 150)
            ran(w, w->call, 1000 * k + 1, 1000 * k + 501);
    }
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->intervals.left_out, 2);
    assert_int_equal(m->intervals.seen, 297);
    assert_int_equal(m->intervals.of[HR__READ_READ].sum_ns, 296 * 500);
    assert_true(!m->devices[0].host_timed && m->is_device_clock);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* ---- iterations ---- */

/* Writes iterations of 40 behaviours; a bit of `odd` adds one access to that iteration. `at_end`:
 * number of accesses after the last mark, in another iteration; -1: blocks are freed. */
static void put_iterations(struct written *w, int count, uint64_t odd, int at_end)
{
    uint32_t op = written_name(w, "op"), other = written_name(w, "other");
    uint32_t mark = written_name(w, "iteration");
    uint64_t now = 1;
    for (int k = 0; k < 33; k++)
        written_put(w, HR_MEMORY_ALLOC, now++, 1 << 20 | (uint64_t)k * 64, 1000, 0);
    for (int n = 0; n < count + (at_end >= 0); n++) {
        int left = n == count ? at_end : 1000;
        written_put(w, HR_MEMORY_MARK, now++, 0, (uint64_t)n, mark);
        for (int k = 0; k < 10 && left-- > 0; k++) {
            written_put(w, HR_MEMORY_ALLOC, now++, 64 + (uint64_t)k * 64, 100, 0);
            written_access(w, HR_MEMORY_WRITE, now++, 64 + (uint64_t)k * 64, op);
        }
        for (int k = 0; k < 10 && left-- > 0; k++)
            written_access(w, HR_MEMORY_READ, now++, 64, op);
        if (odd >> n & 1)
            written_access(w, HR_MEMORY_READ, now++, 64, other);
        for (int k = 0; k < 10 && left-- > 0; k++)
            written_put(w, HR_MEMORY_FREE, now++, 64 + (uint64_t)k * 64, 0, 0);
    }
    if (at_end < 0) {
        written_put(w, HR_MEMORY_MARK, now++, 0, (uint64_t)count, mark);
        for (int k = 0; k < 33; k++)
            written_put(w, HR_MEMORY_FREE, now++, 1 << 20 | (uint64_t)k * 64, 0, 0);
    }
}

static void check_iterations(void **state, int count, uint64_t odd, int at_end, int count_expected)
{
    struct written *w = *state;
    struct hr__record *record;
    put_iterations(w, count, odd, at_end);
    struct hr__memory *m = written_analyse(w, &record);
    const struct hr__period *p = &m->period;
    assert_int_equal(p->behaviours, 40);
    assert_true(p->by_marks);
    assert_int_equal(p->count, count_expected);
    assert_int_equal(p->same, count_expected - __builtin_popcountll(odd));
    for (int n = 0; n < count_expected; n++) {
        const struct hr__iteration *one = &p->iterations[n];
        int is_odd = odd >> n & 1,
            odd_before = __builtin_popcountll(odd & ((UINT64_C(1) << n) - 1));
        assert_int_equal(one->is_same, !is_odd);
        assert_int_equal(one->begin, 33 + 40 * n + odd_before);
        assert_int_equal(one->end - one->begin, 40 + is_odd);
        assert_int_equal(one->blocks, 10);
        assert_int_equal(one->peak_bytes, 33 * 1000 + 10 * 100);
        if (is_odd)
            assert_int_equal(one->differs_at, one->begin + 30);
    }
    assert_int_equal(m->iteration_blocks, 10);
    assert_int_equal(m->iteration_ns, 41);
    hr__memory_destroy(&m);
    hr__record_close(&record);
    written_tear_down(state);
    assert_int_equal(written_set_up(state), 0);
}

static void test_marked(void **state)
{
    check_iterations(state, 50, 0, -1, 50);
    check_iterations(state, 50, 1, -1, 50);                   /* the first */
    check_iterations(state, 50, UINT64_C(1) << 23, -1, 50);   /* one in the middle */
    check_iterations(state, 50, UINT64_C(1) << 49, -1, 50);   /* the last */
    check_iterations(state, 50, UINT64_C(3) << 40, -1, 50);   /* two together */
    check_iterations(state, 3, 1, -1, 3);                     /* few */
    check_iterations(state, 20, 0, 1000, 21);                 /* without a mark at the end */
    check_iterations(state, 20, UINT64_C(1) << 20, 1000, 21); /* the same, with an odd one */
    check_iterations(state, 20, 0, 13, 20);                   /* incomplete */
}

/* Sizes change in every iteration: no two are the same, but the iterations are found. */
static void test_none_alike(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t op = written_name(w, "op"), mark = written_name(w, "iteration");
    for (uint64_t n = 0; n <= 9; n++) {
        written_put(w, HR_MEMORY_MARK, 10 + 1000 * n, 0, n, mark);
        for (uint64_t k = 0; k < 9 && n < 9; k++) {
            written_put(w, HR_MEMORY_ALLOC, 20 + 1000 * n + k, 64, 1000 + n * 16 + k, 0);
            call(w, HR_MEMORY_WRITE, 20 + 1000 * n + k, 64, op);
            written_put(w, HR_MEMORY_FREE, 20 + 1000 * n + k, 64, 0, 0);
        }
    }
    struct hr__memory *m = written_analyse(w, &record);
    assert_true(m->period.behaviours == 0 && m->period.same == 0 && m->period.by_marks);
    assert_int_equal(m->period.count, 9);
    assert_int_equal(m->period.iterations[4].peak_bytes, 1000 + 4 * 16 + 8);
    assert_int_equal(m->iteration_ns, 1000);
    assert_int_equal(m->iteration_blocks, 9);
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* An optimizer's step: writes a block of this optimizer's parameters. */
static void put_step(struct written *w, uint64_t *now, uint64_t optimizer, uint64_t number)
{
    w->phase = HR_MEMORY_OPTIMIZER;
    written_access(w, HR_MEMORY_WRITE, (*now)++, (optimizer + 1) << 20, written_name(w, "add_"));
    w->phase = HR_MEMORY_OUTSIDE;
    written_put(w, HR_MEMORY_MARK, (*now)++, 0, number, written_name(w, "iteration"));
}

/* Twelve equal layers, with blocks of the given size. */
static void put_layers(struct written *w, uint64_t *now, uint64_t bytes)
{
    uint32_t op = written_name(w, "mm");
    w->phase = HR_MEMORY_FORWARD;
    for (int layer = 0; layer < 12; layer++) {
        for (uint64_t k = 1; k <= 10; k++) {
            written_put(w, HR_MEMORY_ALLOC, (*now)++, 64 * k, bytes + k, 0);
            written_access(w, HR_MEMORY_WRITE, (*now)++, 64 * k, op);
        }
        for (uint64_t k = 1; k <= 10; k++)
            written_put(w, HR_MEMORY_FREE, (*now)++, 64 * k, 0, 0);
    }
    w->phase = HR_MEMORY_OUTSIDE;
}

static void begin_steps(struct written *w, uint64_t *now)
{
    for (uint64_t k = 1; k <= 2; k++)
        written_put(w, HR_MEMORY_ALLOC, (*now)++, k << 20, 1000, 0);
    written_put(w, HR_MEMORY_MARK, (*now)++, 0, 0, written_name(w, "iteration"));
}

/* Layers repeat more often than steps, and no two steps are the same: iterations are the steps. */
static void test_steps_not_layers(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint64_t now = 1;
    begin_steps(w, &now);
    for (uint64_t n = 0; n < 20; n++) {
        put_layers(w, &now, 1000 + n % 10);
        put_step(w, &now, 0, n + 1);
    }
    struct hr__memory *m = written_analyse(w, &record);
    assert_true(m->period.by_marks);
    assert_int_equal(m->period.count, 20);
    assert_int_equal(m->period.same, 2); /* each length comes twice */
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* Two optimizers take turns: an iteration has a step of each. */
static void test_optimizers_in_turn(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint64_t now = 1;
    begin_steps(w, &now);
    for (uint64_t n = 0; n < 20; n++) {
        put_layers(w, &now, n % 2 ? 500 : 1000);
        put_step(w, &now, n % 2, n + 1);
    }
    struct hr__memory *m = written_analyse(w, &record);
    assert_true(m->period.by_marks);
    assert_int_equal(m->period.count, 10);
    assert_int_equal(m->period.same, 10);
    assert_int_equal(m->period.behaviours, 2 * (12 * 30 + 1));
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, written_set_up, written_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_swap),
        TEST(test_best),
        TEST(test_late_free),
        TEST(test_recompute),
        TEST(test_recompute_of_iterations),
        TEST(test_within_call),
        TEST(test_order_of_calls),
        TEST(test_device_times),
        TEST(test_lost_times),
        TEST(test_marked),
        TEST(test_none_alike),
        TEST(test_steps_not_layers),
        TEST(test_optimizers_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
