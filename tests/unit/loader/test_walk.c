/*
 * Random walks over everything that a consumer can do, in any order: epochs dropped and restored
 * halfway, batches held and released late, loaders replaced, slow workers and readers. Every batch
 * is compared with the order.
 */
#include "fixture.h"

#include "base/memory.h"
#include "order/order.h"

#include <errno.h>
#include <string.h>

#define SAMPLES 61
#define HELD    6

static struct fixture fixture;

struct walk_counts {
    uint32_t random;
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr__order *order; /* of the current epoch */
    struct hr__cut cut;
    uint64_t epoch;
    uint64_t number; /* of the next batch, from cut.start */
    struct hr_batch *held[HELD];
};

static uint32_t draw(struct walk_counts *w, uint32_t below)
{
    /* The linear congruential generator of Numerical Recipes, good enough to choose steps. */
    w->random = w->random * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(w->random >> 8) * below >> 24);
}

static void expect_from(struct walk_counts *w, uint64_t epoch, uint64_t position)
{
    struct hr_error error;
    hr__order_destroy(&w->order);
    assert_int_equal(hr__order_create(&w->order, SAMPLES, 1, FIXTURE_SEED, epoch, &error), 0);
    w->epoch = epoch;
    w->number = 0;
    w->cut = (struct hr__cut){.samples = SAMPLES,
                              .start = position,
                              .batch_size = (uint64_t)w->options.batch_size,
                              .ranks = (uint64_t)w->options.world_size,
                              .rank = (uint64_t)w->options.rank};
}

static void start(struct walk_counts *w)
{
    struct hr_error error;
    uint64_t epoch = draw(w, 1000);
    assert_int_equal(hr_loader_start_epoch(w->loader, epoch, &error), 0);
    expect_from(w, epoch, 0);
}

/* Replaces the loader by one with other options. */
static void replace(struct walk_counts *w, int keep_place)
{
    struct hr_error error;
    struct hr_loader_state state;
    if (keep_place)
        assert_int_equal(hr_loader_get_state(w->loader, &state, &error), 0);
    hr_loader_destroy(&w->loader);
    fixture_options(&w->options);
    w->options.batch_size = 1 + (int)draw(w, 12);
    w->options.world_size = 1 + (int)draw(w, 3);
    w->options.rank = (int)draw(w, (uint32_t)w->options.world_size);
    w->options.threads = 1 + (int)draw(w, 4);
    w->options.batches_ahead = 1 + (int)draw(w, 4);
    w->options.staging_bytes = 1000 + draw(w, 30000);
    w->options.direct_io = (int)draw(w, 2);
    w->options.no_io_uring = draw(w, 4) == 0;
    w->loader = fixture_loader(&fixture, &w->options);
    if (keep_place) {
        assert_int_equal(hr_loader_restore(w->loader, &state, &error), 0);
        expect_from(w, state.epoch, state.position);
    } else {
        start(w);
    }
}

static void step(struct walk_counts *w)
{
    struct hr_error error;
    struct hr_batch *batch;
    uint64_t positions[16];
    size_t padding;
    int r = hr_loader_next(w->loader, &batch, &error);
    if (w->number == hr__cut_batches(&w->cut)) {
        assert_int_equal(r, 0);
        start(w);
        return;
    }
    assert_int_equal(r, 1);
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    assert_int_equal(view.epoch, w->epoch);
    assert_int_equal(view.count, hr__cut_batch(&w->cut, w->number++, positions, &padding));
    assert_int_equal(view.padding, padding);
    for (size_t i = 0; i < view.count; i++)
        assert_int_equal(view.indices[i], hr__order_at(w->order, positions[i]));
    struct hr_batch **place = &w->held[draw(w, HELD)];
    hr_batch_release(place);
    *place = batch;
}

static void walk(uint32_t seed, int steps)
{
    struct walk_counts w = {.random = seed};
    fixture_options(&w.options);
    w.loader = fixture_loader(&fixture, &w.options);
    start(&w);
    for (int i = 0; i < steps; i++) {
        uint32_t choice = draw(&w, 40);
        struct hr_batch **place = &w.held[draw(&w, HELD)];
        if (choice < 3)
            start(&w);
        else if (choice < 6)
            replace(&w, choice == 5);
        else if (choice < 12 && *place)
            /* It was held for any time, and is unchanged. */
            fixture_check(&fixture, *place, 0, 0);
        else if (choice < 20)
            hr_batch_release(place);
        else
            step(&w);
    }
    hr_loader_destroy(&w.loader);
    for (int i = 0; i < HELD; i++)
        hr_batch_release(&w.held[i]);
    hr__order_destroy(&w.order);
}

static void delay_read(const char *path)
{
    fixture_delay(strlen(path));
}

static void test_walks(void **state)
{
    for (uint32_t seed = 1; seed <= 4; seed++) {
        fixture_make(&fixture, SAMPLES);
        fixture_before_prepare = seed % 2 ? fixture_delay : NULL;
        fixture_before_read = seed == 3 ? delay_read : NULL;
        walk(seed, 300);
        fixture_remove(&fixture);
        assert_int_equal(hr__allocated(HR__TAG_LOADER), 0);
        assert_int_equal(hr__allocated(HR__TAG_SLOT), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
