/*
 * Claims: a loader whose cache reports that other processes are reading the samples it wants. The
 * cache wraps the private one, plays those other processes, and checks that no claim is forgotten,
 * made twice or ended twice, whatever happens to the samples.
 */
#include "fixture.h"

#include "../consumer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cache/backend.h"
#include "storage/reader.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 61

static struct fixture fixture;

/* The other processes, and the state of claims; for all loaders of a test. */
static struct {
    int asks;            /* number of times that a sample is reported as busy */
    int deliver;         /* every so many samples, the others have cached one; 0: never */
    int lie;             /* non-zero: samples are reported as cached but are not */
    int refuse;          /* non-zero: offers are refused */
    int truncate;        /* non-zero: found bytes turn into zeros while they are used */
    atomic_int for_ever; /* non-zero: all samples stay busy until the test ends that */
    atomic_int held;     /* claims held now */
    atomic_int yours, busy, errors;
} others;

struct claims_standin {
    struct hr__cache cache;
    struct hr__cache *inside;
    pthread_mutex_t lock; /* guards the members below */
    int asked[SAMPLES];
    int claimed[SAMPLES];
};

static struct claims_standin *of(struct hr__cache *cache)
{
    return (struct claims_standin *)cache;
}

int __real_hr__cache_create(struct hr__cache **out, const struct hr__cache_options *options,
                            struct hr_error *error);
int __wrap_hr__cache_create(struct hr__cache **out, const struct hr__cache_options *options,
                            struct hr_error *error);

static void fake_destroy(struct hr__cache *cache)
{
    struct claims_standin *s = of(cache);
    hr__cache_destroy(&s->inside);
    pthread_mutex_destroy(&s->lock);
    hr__free(s);
}

static int fake_find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item)
{
    static const uint8_t zeros[1 << 20];
    int r = hr__cache_find(of(cache)->inside, index, item);
    if (r && others.truncate) {
        assert_true(item->length <= sizeof zeros);
        item->bytes = zeros;
    }
    return r;
}

static int fake_unpin(struct hr__cache *cache, const struct hr__cache_item *item)
{
    return hr__cache_unpin(of(cache)->inside, item) && !others.truncate;
}

static int fake_has(struct hr__cache *cache, uint64_t index)
{
    return hr__cache_has(of(cache)->inside, index);
}

/* Stores an item as another process would. */
static void deliver(struct claims_standin *s, uint64_t index)
{
    struct hr__read read = {.path = fixture.paths[index], .expected = -1};
    if (hr__read_file(&read, 0))
        return;
    struct hr__cache_offer offer = {.index = index, .bytes = read.bytes, .length = read.length};
    hr__cache_offer(s->inside, &offer);
    hr__free(read.bytes);
}

static enum hr__claim fake_claim(struct hr__cache *cache, uint64_t index,
                                 struct hr__cache_ticket *ticket)
{
    struct claims_standin *s = of(cache);
    enum hr__claim answer = HR__CLAIM_YOURS;
    pthread_mutex_lock(&s->lock);
    others.errors += ticket->is_claimed;
    if (hr__cache_has(s->inside, index) || others.lie)
        answer = HR__CLAIM_FOUND;
    else if (s->claimed[index] || others.for_ever || s->asked[index]++ < others.asks)
        answer = HR__CLAIM_BUSY;
    if (answer == HR__CLAIM_YOURS && others.deliver && index % (uint64_t)others.deliver == 0) {
        deliver(s, index);
        if (hr__cache_has(s->inside, index))
            answer = HR__CLAIM_FOUND;
    }
    if (answer == HR__CLAIM_YOURS) {
        s->claimed[index] = ticket->is_claimed = 1;
        ticket->key[0] = index;
        others.held++;
        others.yours++;
    }
    others.busy += answer == HR__CLAIM_BUSY;
    pthread_mutex_unlock(&s->lock);
    return answer;
}

static void end_claim(struct claims_standin *s, const struct hr__cache_ticket *ticket)
{
    pthread_mutex_lock(&s->lock);
    others.errors += !s->claimed[ticket->key[0]];
    s->claimed[ticket->key[0]] = 0;
    s->asked[ticket->key[0]] = 0;
    others.held--;
    pthread_mutex_unlock(&s->lock);
}

static void fake_unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket)
{
    end_claim(of(cache), ticket);
}

static int fake_offer(struct hr__cache *cache, const struct hr__cache_offer *offer)
{
    struct hr__cache_offer copy = *offer;
    copy.ticket = NULL;
    int r = others.refuse ? 0 : hr__cache_offer(of(cache)->inside, &copy);
    others.errors += !offer->ticket;
    if (offer->ticket && offer->ticket->is_claimed) {
        others.errors += offer->ticket->key[0] != offer->index;
        end_claim(of(cache), offer->ticket);
    }
    return r;
}

static struct hr__cache_staged *fake_take(struct hr__cache *cache, struct hr__cache_item *item)
{
    return hr__cache_take(of(cache)->inside, item);
}

static uint64_t fake_room(struct hr__cache *cache, const struct hr__cache_staged *staged,
                          uint64_t leave_free)
{
    return hr__cache_room(of(cache)->inside, staged, leave_free);
}

static int fake_settle(struct hr__cache *cache, struct hr__cache_staged *staged,
                       const struct hr__cache_final *final)
{
    return hr__cache_settle(of(cache)->inside, staged, final);
}

static void fake_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    hr__cache_get_counts(of(cache)->inside, counts);
}

static uint64_t fake_waiting(const struct hr__cache *cache)
{
    return hr__cache_waiting(((const struct claims_standin *)cache)->inside);
}

static void fake_publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                         int asked)
{
}

static const struct hr__cache_backend fake = {
    .destroy = fake_destroy,
    .abandon = fake_destroy,
    .find = fake_find,
    .unpin = fake_unpin,
    .has = fake_has,
    .claim = fake_claim,
    .unclaim = fake_unclaim,
    .offer = fake_offer,
    .take = fake_take,
    .room = fake_room,
    .settle = fake_settle,
    .get_counts = fake_counts,
    .waiting = fake_waiting,
    .publish = fake_publish,
};

int __wrap_hr__cache_create(struct hr__cache **out, const struct hr__cache_options *options,
                            struct hr_error *error)
{
    struct claims_standin *s = hr__alloc(HR__TAG_CACHE, 1, sizeof *s);
    assert_non_null(s);
    pthread_mutex_init(&s->lock, NULL);
    s->cache.backend = &fake;
    s->cache.budget_bytes = options->budget_bytes;
    *out = &s->cache;
    /* Files do not change here, and items are offered without a ticket of the private cache. */
    struct hr__cache_options inside = *options;
    inside.dataset = NULL;
    return __real_hr__cache_create(&s->inside, &inside, error);
}

static int setup(void **state)
{
    fixture_make(&fixture, SAMPLES);
    memset(&others, 0, sizeof others);
    return 0;
}

static int teardown(void **state)
{
    fixture_remove(&fixture);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    return 0;
}

/* Ways to read samples: the reading threads, and their number. */
#define WAYS 8

static void way_options(struct hr_loader_options *options, int way)
{
    static const int threads[] = {1, 2, 5, 1};
    fixture_options(options);
    options->cache = "1000000000";
    options->cache_form = HR_FORM_ENCODED;
    options->threads = threads[way % 4];
    options->direct_io = way / 4; /* the fetchers read */
    options->no_io_uring = way % 2;
    options->batches_ahead = 1 + way % 3;
    options->staging_bytes = way % 3 ? 16 << 20 : 6000;
}

static void run_epoch(struct hr_loader *loader, uint64_t epoch)
{
    start(loader, epoch);
    for (uint64_t b = 0; b < hr_loader_batches(loader); b++) {
        struct hr_batch *batch = fixture_next(loader);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
    }
}

static struct hr_loader_stats stats_of(const struct hr_loader *loader)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    return stats;
}

/* Busy for a while, then claimed or cached: the batches are right, each sample is read once by
 * someone, and every claim ends. */
static void test_busy_for_a_while(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        for (int asks = 0; asks < 4; asks++) {
            struct hr_loader_options options;
            way_options(&options, way);
            memset(&others, 0, sizeof others);
            others.asks = asks;
            others.deliver = asks % 2 ? 3 : 0;
            struct hr_loader *loader = fixture_loader(&fixture, &options);
            run_epoch(loader, 0);
            int ours = 0;
            for (int i = 0; i < SAMPLES; i++)
                ours += !others.deliver || i % others.deliver;
            assert_int_equal(others.yours, ours);
            assert_int_equal(others.busy, asks * SAMPLES);
            assert_int_equal(stats_of(loader).cache_hits, SAMPLES - ours);
            run_epoch(loader, 1);
            assert_int_equal(others.yours, ours);
            assert_int_equal(others.held, 0);
            hr_loader_destroy(&loader);
            assert_int_equal(others.errors, 0);
        }
    }
}

/* Items that do not fit are claimed again in each epoch. */
static void test_refused_offers(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct hr_loader_options options;
        way_options(&options, way);
        memset(&others, 0, sizeof others);
        others.refuse = 1;
        others.asks = 1;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        run_epoch(loader, 0);
        run_epoch(loader, 1);
        assert_int_equal(others.yours, 2 * SAMPLES);
        assert_int_equal(others.held, 0);
        hr_loader_destroy(&loader);
        assert_int_equal(others.errors, 0);
    }
}

/* Reported as cached and not found: the sample is read. */
static void test_found_and_not_there(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct hr_loader_options options;
        way_options(&options, way);
        memset(&others, 0, sizeof others);
        others.lie = 1;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        run_epoch(loader, 0);
        hr_loader_destroy(&loader);
        assert_int_equal(others.errors + others.held, 0);
    }
}

/* Bytes disappear while a sample is prepared from them: its file is read. */
static void test_truncated_while_used(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct hr_loader_options options;
        way_options(&options, way);
        memset(&others, 0, sizeof others);
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        run_epoch(loader, 0);
        others.truncate = 1;
        run_epoch(loader, 1);
        assert_int_equal(stats_of(loader).cache_hits, 0);
        hr_loader_destroy(&loader);
        assert_int_equal(others.errors + others.held, 0);
    }
}

/* Samples that fail, and their stand-ins. */
static void test_bad_samples(void **state)
{
    fixture_spoil(&fixture, 3, "no image");
    fixture_spoil(&fixture, 17, "");
    fixture_spoil(&fixture, 40, NULL);
    for (int way = 0; way < WAYS; way++) {
        for (int skip = 0; skip < 2; skip++) {
            struct hr_loader_options options;
            struct hr_batch *batch;
            struct hr_error error;
            way_options(&options, way);
            memset(&others, 0, sizeof others);
            others.asks = way % 2;
            others.refuse = way / 2 % 2;
            options.on_error = skip ? HR_ON_ERROR_SKIP : HR_ON_ERROR_RAISE;
            options.max_bad_share = 1;
            struct hr_loader *loader = fixture_loader(&fixture, &options);
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                int r;
                start(loader, epoch);
                while ((r = hr_loader_next(loader, &batch, &error)) == 1)
                    hr_batch_release(&batch);
                assert_true(skip ? r == 0 : r < 0);
            }
            hr_loader_destroy(&loader);
            assert_int_equal(others.errors, 0);
            assert_int_equal(others.held, 0);
        }
    }
}

/* Epochs that are dropped halfway, and loaders that end then. */
static void test_dropped_epochs(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct hr_loader_options options;
        way_options(&options, way);
        options.batches_ahead = 3;
        memset(&others, 0, sizeof others);
        others.asks = 2;
        others.refuse = way % 2;
        fixture_before_prepare = way % 3 ? fixture_delay : NULL;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        for (uint64_t epoch = 0; epoch < 12; epoch++) {
            start(loader, epoch);
            for (uint64_t b = 0; b < epoch % 4; b++) {
                struct hr_batch *batch = fixture_next(loader);
                fixture_check(&fixture, batch, 0, 0);
                hr_batch_release(&batch);
            }
        }
        hr_loader_destroy(&loader);
        assert_int_equal(others.errors, 0);
        assert_int_equal(others.held, 0);
    }
}

/* Samples of a dropped epoch wait for other processes and hold slots that the next epoch needs; the
 * threads that hold them must not wait for these slots. */
static void test_slots_of_dropped_epochs(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct hr_loader_options options;
        struct hr_batch *batch;
        struct hr_error error;
        way_options(&options, way);
        options.batches_ahead = 3;
        options.staging_bytes = 16 << 20;
        options.wait_ms = 20;
        memset(&others, 0, sizeof others);
        others.for_ever = 1;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            start(loader, epoch);
            assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
        }
        others.for_ever = 0;
        int r = -EINTR;
        for (int tries = 0; r == -EINTR && tries < 12000; tries++)
            r = hr_loader_next(loader, &batch, &error);
        assert_int_equal(r, 1);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
        hr_loader_destroy(&loader);
        assert_int_equal(others.errors, 0);
        assert_int_equal(others.held, 0);
    }
}

/* Other processes that never finish: the consumer can still be interrupted, start another epoch and
 * destroy the loader at once; it continues when they finish. */
static void test_busy_for_ever(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct hr_loader_options options;
        struct hr_batch *batch;
        struct hr_error error;
        way_options(&options, way);
        options.wait_ms = 10;
        memset(&others, 0, sizeof others);
        others.for_ever = 1;
        uint64_t start_ns = hr__now_ns();
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            start(loader, epoch);
            assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
        }
        assert_int_equal(others.held, 0);
        if (way % 2) {
            others.for_ever = 0;
            options.wait_ms = 0;
            int r;
            while ((r = hr_loader_next(loader, &batch, &error)) == -EINTR)
                continue;
            assert_int_equal(r, 1);
            fixture_check(&fixture, batch, 0, 0);
            hr_batch_release(&batch);
        }
        hr_loader_destroy(&loader);
        assert_int_equal(others.errors, 0);
        assert_int_equal(others.held, 0);
        /* Asking keeps no core busy: 8 at a time, then a pause. */
        assert_true((uint64_t)others.busy < 5000 + (hr__now_ns() - start_ns) / 10000);
    }
}

/* The same sample several times in a batch: the second waits for the first, which the same thread
 * may have to finish. */
static void test_repeats(void **state)
{
    for (int way = 0; way < WAYS; way++) {
        struct hr_loader_options options;
        struct hr_error error;
        way_options(&options, way);
        options.external_order = 1;
        memset(&others, 0, sizeof others);
        others.refuse = way % 2;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        start(loader, 0);
        for (int64_t b = 0; b < 10; b++) {
            int64_t indices[8] = {b, b, 5, 5, 5, b + 1, 60 - b, b};
            assert_int_equal(hr_loader_push(loader, indices, 8, &error), 0);
        }
        for (uint64_t b = 0; b < 10; b++) {
            struct hr_batch *batch = fixture_next(loader);
            fixture_check(&fixture, batch, 1, b * 8);
            hr_batch_release(&batch);
        }
        hr_loader_destroy(&loader);
        assert_int_equal(others.errors, 0);
        assert_int_equal(others.held, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_busy_for_a_while, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_offers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found_and_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated_while_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_samples, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dropped_epochs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slots_of_dropped_epochs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_busy_for_ever, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repeats, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
