/*
 * Cuts: the assignment of torch's DistributedSampler, equal counts on all ranks, and every sample
 * exactly once in an epoch, for any restores in between.
 */
#include "../test.h"

#include "base/random.h"
#include "order/order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 };

/* Compares a line of the golden file with the same line written from our batches. */
static void check_line(const char *line)
{
    struct hr__cut cut = {0};
    int used = 0;
    assert_int_equal(sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %d %" SCNu64 " %n",
                            &cut.samples, &cut.ranks, &cut.batch_size, &cut.drop_last, &cut.rank,
                            &used),
                     5);
    char text[4096] = "";
    size_t length = 0;
    for (uint64_t b = 0; b < hr__cut_batches(&cut); b++) {
        uint64_t positions[MOST];
        size_t padding, n = hr__cut_batch(&cut, b, positions, &padding);
        for (size_t i = 0; i < n; i++)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%" PRIu64,
                                       i ? "," : "", positions[i]);
        length += (size_t)snprintf(text + length, sizeof text - length, "|");
    }
    assert_string_equal(length ? text : "-", line + used);
}

static void deals_as_torch_does(void **state)
{
    char path[4096], line[4096];
    const char *root = getenv("HEADRACE_SOURCE_ROOT");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/tests/golden/distributed_sampler.txt", root);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    int lines = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        check_line(line);
        lines++;
    }
    fclose(file);
    assert_int_equal(lines, 104);
}

/* The positions that the ranks take from [start, number of batches) on, counted. */
struct tally {
    unsigned taken[MOST];
    unsigned padded;
};

/* Runs `batches` batches (or to the end) on all ranks; checks the properties of each batch; returns
 * the position after them. */
static uint64_t run(struct hr__cut cut, uint64_t batches, struct tally *tally)
{
    uint64_t all = hr__cut_batches(&cut);
    if (batches > all)
        batches = all;
    for (uint64_t b = 0; b < batches; b++) {
        size_t first_count = 0;
        for (cut.rank = 0; cut.rank < cut.ranks; cut.rank++) {
            uint64_t positions[MOST + 1];
            size_t padding = 99;
            assert_int_equal(hr__cut_batches(&cut), all);
            memset(positions, 0xff, sizeof positions);
            size_t n = hr__cut_batch(&cut, b, positions, &padding);
            assert_true(n >= 1 && n <= cut.batch_size && padding <= n);
            assert_int_equal(positions[n], UINT64_MAX);
            if (!cut.rank)
                first_count = n;
            assert_int_equal(n, first_count);
            if (b + 1 < all || cut.drop_last) {
                assert_int_equal(n, cut.batch_size);
                assert_int_equal(padding, 0);
            }
            for (size_t i = 0; i < n - padding; i++) {
                assert_true(positions[i] >= cut.start && positions[i] < cut.samples);
                tally->taken[positions[i]]++;
            }
            for (size_t i = n - padding; i < n; i++)
                assert_true(positions[i] < cut.samples);
            tally->padded += (unsigned)padding;
        }
    }
    cut.rank = 0;
    uint64_t position = hr__cut_position(&cut, batches);
    assert_true(position <= cut.samples);
    return position;
}

static void every_position_once(void **state)
{
    for (uint64_t samples = 1; samples <= 70; samples++)
        for (uint64_t ranks = 1; ranks <= 9; ranks += 2)
            for (uint64_t batch = 1; batch <= 8; batch++)
                for (int drop_last = 0; drop_last < 2; drop_last++) {
                    struct tally tally = {0};
                    struct hr__cut cut = {.samples = samples,
                                          .batch_size = batch,
                                          .ranks = ranks,
                                          .drop_last = drop_last};
                    uint64_t end = run(cut, UINT64_MAX, &tally);
                    uint64_t whole = samples / (batch * ranks) * batch * ranks;
                    assert_int_equal(end, drop_last ? whole : samples);
                    for (uint64_t p = 0; p < samples; p++)
                        assert_int_equal(tally.taken[p], p < end);
                    uint64_t pads = drop_last ? 0 : (ranks - samples % ranks) % ranks;
                    assert_int_equal(tally.padded, pads);
                }
}

/* Random chains of stops and restores, each with another number of ranks and another batch size:
 * every position still comes exactly once. */
static void restores_lose_and_repeat_nothing(void **state)
{
    struct hr__random random;
    hr__random_init(&random, 1, 99, 0, 0);
    for (int round = 0; round < 3000; round++) {
        struct tally tally = {0};
        struct hr__cut cut = {.samples = 1 + hr__random_below(&random, MOST)};
        do {
            cut.batch_size = 1 + hr__random_below(&random, 40);
            cut.ranks = 1 + hr__random_below(&random, 12);
            cut.start = run(cut, 1 + hr__random_below(&random, 4), &tally);
        } while (cut.start < cut.samples);
        for (uint64_t p = 0; p < cut.samples; p++)
            assert_int_equal(tally.taken[p], 1);
    }
}

/* With the same ranks and batch size, the batches after a restore are the same as without it. */
static void restore_continues(void **state)
{
    for (int drop_last = 0; drop_last < 2; drop_last++)
        for (uint64_t rank = 0; rank < 3; rank++) {
            struct hr__cut whole = {
                .samples = 100, .batch_size = 7, .ranks = 3, .rank = rank, .drop_last = drop_last};
            for (uint64_t done = 0; done <= hr__cut_batches(&whole); done++) {
                struct hr__cut rest = whole;
                rest.start = hr__cut_position(&whole, done);
                assert_int_equal(hr__cut_batches(&rest), hr__cut_batches(&whole) - done);
                for (uint64_t b = 0; b < hr__cut_batches(&rest); b++) {
                    uint64_t a[7], c[7];
                    size_t pad_a, pad_c;
                    size_t n = hr__cut_batch(&whole, done + b, a, &pad_a);
                    assert_int_equal(hr__cut_batch(&rest, b, c, &pad_c), n);
                    assert_int_equal(pad_a, pad_c);
                    assert_memory_equal(a, c, n * sizeof *a);
                }
            }
        }
}

/* More ranks than samples: padding repeats the order. */
static void padding_cycles(void **state)
{
    for (uint64_t rank = 0; rank < 8; rank++) {
        struct hr__cut cut = {.samples = 3, .batch_size = 4, .ranks = 8, .rank = rank};
        uint64_t positions[4];
        size_t padding;
        assert_int_equal(hr__cut_batches(&cut), 1);
        assert_int_equal(hr__cut_batch(&cut, 0, positions, &padding), 1);
        assert_int_equal(positions[0], rank % 3);
        assert_int_equal(padding, rank >= 3);
    }
}

static void edges(void **state)
{
    struct hr__cut cut = {.samples = 0, .batch_size = 4, .ranks = 2};
    assert_int_equal(hr__cut_batches(&cut), 0);
    assert_int_equal(hr__cut_position(&cut, 3), 0);
    cut = (struct hr__cut){.samples = 10, .start = 10, .batch_size = 4, .ranks = 2};
    assert_int_equal(hr__cut_batches(&cut), 0);
    assert_int_equal(hr__cut_position(&cut, 0), 10);
    cut.start = 12; /* beyond the end: a state of another dataset */
    assert_int_equal(hr__cut_batches(&cut), 0);
    assert_int_equal(hr__cut_position(&cut, 1), 10);
    cut = (struct hr__cut){.samples = 10, .batch_size = UINT64_MAX / 2, .ranks = 5, .rank = 4};
    uint64_t positions[10];
    size_t padding;
    assert_int_equal(hr__cut_batches(&cut), 1);
    assert_int_equal(hr__cut_batch(&cut, 0, positions, &padding), 2);
    assert_int_equal(padding, 0);
    assert_int_equal(positions[1], 9);
    assert_int_equal(hr__cut_position(&cut, 1), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deals_as_torch_does),
        cmocka_unit_test(every_position_once),
        cmocka_unit_test(restores_lose_and_repeat_nothing),
        cmocka_unit_test(restore_continues),
        cmocka_unit_test(padding_cycles),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests_name("order-cut", tests, NULL, NULL);
}
