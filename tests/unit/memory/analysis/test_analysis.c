/* Blocks, live bytes, intervals and the period of records with known answers. */
#include "../../test.h"

#include "memory/analysis/intervals.h"
#include "memory/analysis/period.h"
#include "memory/analysis/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static struct hr_memory_recorder *recorder;

static int set_up(void **state)
{
    strcpy(path, "/tmp/headrace-memory-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) || hr_memory_recorder_create(&recorder, path, NULL, NULL);
}

static int tear_down(void **state)
{
    hr_memory_recorder_destroy(&recorder);
    return unlink(path);
}

static void put(enum hr_memory_kind kind, uint64_t time_ns, uint64_t address, uint64_t bytes,
                uint32_t what)
{
    struct hr_memory_event event = {.time_ns = time_ns,
                                    .address = address,
                                    .bytes = bytes,
                                    .what = what,
                                    .kind = (uint8_t)kind};
    hr_memory_record(recorder, &event);
}

static struct hr__record *done(void)
{
    struct hr__record *record;
    hr_memory_recorder_destroy(&recorder);
    assert_int_equal(hr__record_open(&record, path, NULL), 0);
    return record;
}

static void test_blocks(void **state)
{
    struct hr__blocks_found found;
    uint32_t op = hr_memory_name(recorder, "aten::add"), it = hr_memory_name(recorder, "iteration");
    uint32_t shape = hr_memory_name(recorder, "[2, 3] float32");
    put(HR_MEMORY_PRESENT, 10, 0x1000, 64, 0);
    put(HR_MEMORY_MARK, 11, 0, 0, it);
    put(HR_MEMORY_ALLOC, 12, 0x2000, 100, 0);
    put(HR_MEMORY_WRITE, 13, 0x2000, 0, op);
    put(HR_MEMORY_DESCRIBE, 13, 0x2000, HR_MEMORY_ACTIVATION, shape);
    put(HR_MEMORY_READ, 15, 0x3000, 0, op); /* unknown: no event announced it */
    put(HR_MEMORY_READ, 20, 0x2000, 0, op);
    put(HR_MEMORY_FREE, 22, 0x2000, 100, 0);
    put(HR_MEMORY_FREE, 23, 0x9000, 8, 0); /* unknown */
    put(HR_MEMORY_MARK, 24, 0, 1, it);
    put(HR_MEMORY_ALLOC, 25, 0x2000, 200, 0); /* the same address: another block */
    put(HR_MEMORY_ALLOC, 26, 0x2000, 300, 0); /* its free was lost */
    put(HR_MEMORY_FREE, 27, 0x3000, 77, 0);
    put(HR_MEMORY_FAILED, 28, 0, 12345, 0);
    struct hr__record *record = done();
    assert_int_equal(hr__blocks_find(&found, record, NULL, NULL, NULL), 0);
    assert_int_equal(found.count, 5);
    assert_int_equal(found.iterations, 2);
    assert_int_equal(found.accesses, 3);
    assert_int_equal(found.odd_frees, 1);
    assert_int_equal(found.odd_allocs, 1);
    assert_int_equal(found.failed, 1);
    assert_int_equal(found.failed_bytes, 12345);
    assert_int_equal(found.begin_ns, 10);
    assert_int_equal(found.end_ns, 28);
    const struct hr__block *b = found.blocks;
    assert_true(b[0].was_present && !b[0].is_ghost && b[0].category == HR_MEMORY_WORKSPACE);
    assert_int_equal(b[0].free_ns, HR__STILL_LIVE);
    assert_int_equal(b[1].bytes, 100);
    assert_int_equal(b[1].alloc_ns, 12);
    assert_int_equal(b[1].free_ns, 22);
    assert_int_equal(b[1].first_ns, 13);
    assert_int_equal(b[1].last_ns, 20);
    assert_true(b[1].reads == 1 && b[1].writes == 1 && b[1].iteration == 1);
    assert_int_equal(b[1].category, HR_MEMORY_ACTIVATION);
    assert_string_equal(hr__record_name(record, b[1].name), "[2, 3] float32");
    assert_true(b[2].is_ghost && b[2].bytes == 77 && b[2].free_ns == 27);
    assert_true(b[3].bytes == 200 && b[3].free_ns == 26 && b[3].iteration == 2);
    assert_true(b[4].bytes == 300 && b[4].free_ns == HR__STILL_LIVE);
    hr__blocks_found_clear(&found);
    hr__record_close(&record);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Random blocks; the peak and the live bytes at each moment are counted separately, from the end to
 * the beginning. */
static void test_timeline(void **state)
{
    enum { LIVES = 3000 };
    static uint64_t ends[LIVES], bytes[LIVES];
    uint64_t random = 42, now = 100, live = 0, peak = 0, peak_ns = 0;
    for (int i = 0; i < 20000; i++) {
        int k = (int)(next_random(&random) % LIVES);
        now += 1 + next_random(&random) % 50;
        if (!ends[k]) {
            bytes[k] = 1 + next_random(&random) % 100000;
            live += bytes[k];
            ends[k] = 1;
            put(HR_MEMORY_ALLOC, now, 64 + 64 * (uint64_t)k, bytes[k], 0);
            put(HR_MEMORY_DESCRIBE, now, 64 + 64 * (uint64_t)k, 1 + k % 7, 0);
        } else {
            live -= bytes[k];
            ends[k] = 0;
            put(HR_MEMORY_FREE, now, 64 + 64 * (uint64_t)k, 0, 0);
        }
        if (live > peak) {
            peak = live;
            peak_ns = now;
        }
    }
    struct hr__record *record = done();
    struct hr__blocks_found found;
    assert_int_equal(hr__blocks_find(&found, record, NULL, NULL, NULL), 0);
    for (size_t most = 2; most < 50000; most = most * 7) {
        struct hr__timeline t;
        assert_int_equal(hr__timeline_make(&t, &found, 0, most, NULL), 0);
        assert_int_equal(t.peak_bytes, peak);
        assert_int_equal(t.peak.time_ns, peak_ns);
        assert_int_equal(t.end_bytes, live);
        assert_true(t.count <= most + 2);
        uint64_t highest = 0, last = 0;
        for (size_t i = 0; i < t.count; i++) {
            uint64_t sum = 0, by_hand = 0;
            for (int c = 0; c < HR__CATEGORIES; c++)
                sum += t.points[i].bytes[c];
            for (uint32_t k = 0; k < found.count; k++)
                if (hr__block_lives(&found.blocks[k], t.points[i].time_ns))
                    by_hand += found.blocks[k].bytes;
            assert_int_equal(sum, by_hand);
            assert_true(t.points[i].time_ns >= last);
            last = t.points[i].time_ns;
            highest = sum > highest ? sum : highest;
        }
        assert_int_equal(highest, peak);
        hr__timeline_clear(&t);
    }
    /* Backwards: begins with what is live at the end and undoes each event. */
    uint64_t back = live, back_peak = live;
    uint32_t a = found.count, b = found.freed_count;
    while (a || b) {
        const struct hr__block *begun = a ? &found.blocks[a - 1] : NULL;
        const struct hr__block *ended = b ? &found.blocks[found.freed[b - 1]] : NULL;
        if (ended && (!begun || ended->free_ns > begun->alloc_ns)) {
            back += ended->bytes;
            b--;
        } else {
            assert_true(back >= begun->bytes);
            back -= begun->bytes;
            a--;
        }
        back_peak = back > back_peak ? back : back_peak;
    }
    assert_int_equal(back, 0);
    assert_int_equal(back_peak, peak);
    hr__blocks_found_clear(&found);
    hr__record_close(&record);
}

static void test_intervals(void **state)
{
    static struct hr__intervals i;
    struct hr__blocks_found found;
    hr__intervals_init(&i, 6.3e9, 6.4e9, 0);
    /* The paper's example: 25 us at 6.4 and 6.3 GB/s are 79.37 KB. */
    assert_true(fabs(hr__swap_bytes(&i, 25000) - 79370.08) < 0.01);
    assert_true(isnan(hr__intervals_quantile(&i, -1, 0.5)));
    uint32_t op = hr_memory_name(recorder, "op");
    /* 100 blocks: written, read 25 us later, written 1 ms after that; one waits for a second. */
    for (uint64_t k = 0; k < 100; k++) {
        uint64_t at = 1000 + k * 2000000, address = 64 + k * 64;
        put(HR_MEMORY_ALLOC, at, address, k == 7 ? 1u << 30 : 60000, 0);
        put(HR_MEMORY_WRITE, at, address, hr_memory_access((uint32_t)(4 * k), 0), op);
        put(HR_MEMORY_READ, at + 25000, address, hr_memory_access((uint32_t)(4 * k + 1), 0), op);
        put(HR_MEMORY_WRITE, at + 1025000, address, hr_memory_access((uint32_t)(4 * k + 2), 0), op);
    }
    put(HR_MEMORY_READ, 2000000000, 64 + 7 * 64, hr_memory_access(1000, 0), op);
    struct hr__record *record = done();
    for (int probed = 0; probed < 2; probed++) {
        uint64_t probe = probed ? 5000 : 0;
        hr__intervals_init(&i, 6.3e9, 6.4e9, (double)probe);
        assert_int_equal(hr__blocks_find(&found, record, hr__intervals_add, &i, NULL), 0);
        assert_int_equal(i.of[HR__WRITE_READ].count, 101);
        assert_int_equal(i.of[HR__READ_WRITE].count, 100);
        assert_int_equal(i.of[HR__READ_READ].count + i.of[HR__WRITE_WRITE].count, 0);
        assert_int_equal(i.of[HR__READ_WRITE].sum_ns, 100 * (1000000 - probe));
        assert_int_equal(i.seen, 201);
        assert_int_equal(i.scatter_count, 201);
        double middle = hr__intervals_quantile(&i, HR__WRITE_READ, 0.5);
        assert_true(middle >= (double)(25000 - probe) && middle <= 1.1 * (double)(25000 - probe));
        middle = hr__intervals_quantile(&i, HR__READ_WRITE, 0.99);
        assert_true(middle >= (double)(1000000 - probe) && middle <= 1.1 * 1000000);
        hr__intervals_sort(&i);
        assert_int_equal(i.outliers[0].bytes, 1u << 30);
        assert_true(i.outliers[0].ns > 1900000000);
        /* 60,000 bytes need 18.9 us; a gibibyte 338 ms. */
        assert_int_equal(i.swappable, 99 + 99 + 1);
        hr__blocks_found_clear(&found);
    }
    hr__record_close(&record);
}

/* Many intervals: the scatter plot keeps an even selection; outliers are the largest of all. */
static void test_many_intervals(void **state)
{
    static struct hr__intervals i;
    struct hr__blocks_found found;
    uint64_t now = 1, random = 7, longest[3] = {0, 0, 0};
    put(HR_MEMORY_ALLOC, now, 64, 1u << 30, 0);
    put(HR_MEMORY_WRITE, now, 64, 0, 0);
    for (int k = 0; k < 50000; k++) {
        uint64_t ns = 1 + next_random(&random) % 1000000;
        now += ns;
        put(HR_MEMORY_READ, now, 64, 0, 0);
        for (int l = 0; l < 3; l++)
            if (ns > longest[l]) {
                memmove(longest + l + 1, longest + l, (size_t)(2 - l) * sizeof *longest);
                longest[l] = ns;
                break;
            }
    }
    struct hr__record *record = done();
    hr__intervals_init(&i, 6.3e9, 6.4e9, 0);
    assert_int_equal(hr__blocks_find(&found, record, hr__intervals_add, &i, NULL), 0);
    hr__intervals_sort(&i);
    assert_int_equal(i.outlier_count, HR__ATI_OUTLIERS);
    for (int l = 0; l < 3; l++)
        assert_int_equal(i.outliers[l].ns, longest[l]);
    assert_int_equal(i.stride, 16);
    assert_int_equal(i.scatter_count, (50000 + 15) / 16);
    for (size_t k = 1; k < i.scatter_count; k++)
        assert_true(i.scatter[k].begin_ns > i.scatter[k - 1].begin_ns);
    hr__blocks_found_clear(&found);
    hr__record_close(&record);
}

/* Writes `count` iterations of the same 40 behaviours, each with a loop; iteration `odd` has one
 * more access; -1: none. */
static void put_iterations(int count, int odd)
{
    uint32_t op = hr_memory_name(recorder, "op"), other = hr_memory_name(recorder, "other");
    uint64_t now = 1;
    for (int k = 0; k < 33; k++) /* before training */
        put(HR_MEMORY_ALLOC, now++, 1 << 20 | (uint64_t)k * 64, 1000 + (uint64_t)k, 0);
    for (int n = 0; n < count; n++) {
        for (int k = 0; k < 10; k++) {
            put(HR_MEMORY_ALLOC, now++, 64 + (uint64_t)k * 64, 100 * (1 + (uint64_t)k), 0);
            put(HR_MEMORY_WRITE, now++, 64 + (uint64_t)k * 64, 0, op);
        }
        for (int k = 0; k < 10; k++)
            put(HR_MEMORY_READ, now++, 64 + 5 * 64, 0, op);
        if (n == odd)
            put(HR_MEMORY_READ, now++, 64, 0, other);
        for (int k = 0; k < 10; k++)
            put(HR_MEMORY_FREE, now++, 64 + (uint64_t)k * 64, 0, 0);
        now += 50;
    }
    for (int k = 0; k < 33; k++) /* and after it */
        put(HR_MEMORY_FREE, now++, 1 << 20 | (uint64_t)k * 64, 0, 0);
}

static void find_period(struct hr__period *period, struct hr__behaviours *b)
{
    struct hr__record *record = done();
    struct hr__blocks_found found;
    memset(b, 0, sizeof *b);
    assert_int_equal(hr__blocks_find(&found, record, hr__behaviours_add, b, NULL), 0);
    assert_int_equal(hr__period_find(period, b, NULL), 0);
    hr__blocks_found_clear(&found);
    hr__record_close(&record);
}

static void test_period(void **state)
{
    struct hr__behaviours b;
    struct hr__period p;
    put_iterations(100, -1);
    find_period(&p, &b);
    assert_int_equal(b.count, 33 + 100 * 40 + 33);
    assert_int_equal(p.behaviours, 40);
    assert_true(p.count >= 99 && p.count <= 100);
    assert_int_equal(p.same, p.count);
    for (size_t i = 1; i < p.count; i++)
        assert_int_equal(p.iterations[i].begin - p.iterations[i - 1].begin, 40);
    hr__period_clear(&p);
    hr__behaviours_clear(&b);
}

static void test_altered(void **state)
{
    struct hr__behaviours b;
    struct hr__period p;
    put_iterations(60, 41);
    find_period(&p, &b);
    assert_int_equal(p.behaviours, 40);
    assert_int_equal(p.count - p.same, 1);
    for (size_t i = 0; i < p.count; i++) {
        const struct hr__iteration *one = &p.iterations[i];
        if (one->is_same)
            continue;
        /* The additional access is the 31st behaviour of iteration 41. */
        assert_int_equal(one->differs_at, 33 + 41 * 40 + 30);
        assert_true(one->begin <= one->differs_at && one->differs_at < one->end);
        assert_int_equal((one->end - one->begin) % 40, 1);
    }
    hr__period_clear(&p);
    hr__behaviours_clear(&b);
}

static void test_no_period(void **state)
{
    struct hr__behaviours b;
    struct hr__period p;
    uint64_t random = 3;
    for (uint64_t k = 0; k < 3000; k++)
        put(HR_MEMORY_ALLOC, 1 + k, 64 + 64 * k, next_random(&random) >> 24, 0);
    find_period(&p, &b);
    assert_int_equal(p.count, 0);
    assert_int_equal(p.behaviours, 0);
    hr__period_clear(&p);
    hr__behaviours_clear(&b);
    /* Also without any access. */
    assert_int_equal(hr__period_find(&p, &b, NULL), 0);
    assert_int_equal(p.behaviours, 0);
    hr__period_clear(&p);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_blocks), TEST(test_timeline), TEST(test_intervals), TEST(test_many_intervals),
        TEST(test_period), TEST(test_altered),  TEST(test_no_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
