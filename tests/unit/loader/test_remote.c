/*
 * Loaders whose batches another process prepares: the options, and the loader's use of an
 * attachment. A stand-in replaces the agent's client: its batches hold one sample, whose index is
 * the position, in memory of its own.
 */
#include "fixture.h"

#include "base/error.h"
#include "base/memory.h"
#include "loader/inside.h"

#include <headrace/stalls.h>

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fixture fixture;

/* Calls that the stand-in received. */
static struct {
    int created, destroyed, abandoned, released;
    int refuse;    /* the error with which create fails */
    int restored;  /* non-zero: the last start was a restore */
    int pushed;    /* number of indices received */
    int ended;     /* push_end was called */
    uint64_t bad;  /* every so many-th sample is bad; 0: none */
    uint64_t stop; /* the sample that ends the epoch; 0: none */
} seen;

/* The stand-in's own state, in loader->attached. */
struct remote_standin {
    struct hr_loader_state at;
};

static void standin_release(struct hr_batch *batch)
{
    seen.released++;
    hr__free(batch->images);
    hr__free(batch->labels);
    hr__free(batch->indices);
    hr__free(batch);
}

static const struct hr__batch_owner standin_owner = {.release = standin_release};

static int standin_create(struct hr_loader *l, struct hr_error *error)
{
    if (seen.refuse)
        return hr__fail(error, seen.refuse, "refused");
    assert_int_equal(l->pid, getpid());
    assert_null(l->attached);
    l->attached = hr__alloc(HR__TAG_LOADER, 1, sizeof(struct remote_standin));
    assert_non_null(l->attached);
    seen.created++;
    return 0;
}

static void standin_destroy(struct hr_loader *l)
{
    hr__free(l->attached);
    seen.destroyed++;
}

static void standin_abandon(struct hr_loader *l)
{
    hr__free(l->attached);
    seen.abandoned++;
}

static int standin_start(struct hr_loader *l, const struct hr_loader_state *from, int is_restored,
                         struct hr_error *error)
{
    struct remote_standin *s = l->attached;
    if (from->epoch == 99)
        return hr__fail(error, -ECONNRESET, "no such epoch here");
    s->at = *from;
    seen.restored = is_restored;
    return 0;
}

static struct hr_batch *make_batch(struct hr_loader *l, uint64_t position)
{
    struct remote_standin *s = l->attached;
    struct hr_batch *batch = hr__alloc(HR__TAG_LOADER, 1, sizeof *batch);
    batch->owner = &standin_owner;
    batch->spec = &fixture.spec;
    batch->images = hr__alloc_aligned(HR__TAG_SLOT, l->spec.bytes, 0);
    batch->labels = hr__alloc(HR__TAG_SLOT, 1, sizeof *batch->labels);
    batch->indices = hr__alloc(HR__TAG_SLOT, 1, sizeof *batch->indices);
    memset(batch->images, 7, l->spec.bytes);
    *batch->indices = (int64_t)position;
    batch->count = 1;
    batch->epoch = s->at.epoch;
    batch->number = position;
    atomic_store(&batch->refs, 1);
    return batch;
}

/* Called when a batch is due, as in an implementation. */
static int take_turn(struct hr_loader *l, struct hr_batch *batch, struct hr_error *error)
{
    int is_bad = seen.bad && batch->number % seen.bad == 0;
    if (is_bad) {
        hr__bad_insert(&batch->skipped, hr__bad_make(l, batch, 0, batch->number, "it is bad"));
        batch->bad = 1;
    }
    pthread_mutex_lock(&l->lock);
    l->epoch_seen += batch->count;
    l->epoch_bad += batch->bad;
    hr__bad_keep_locked(l, batch);
    int r = hr__bad_judge_locked(l, batch->epoch, 0, error);
    pthread_mutex_unlock(&l->lock);
    return r;
}

static int standin_next(struct hr_loader *l, struct hr_batch **out, struct hr_error *error)
{
    struct remote_standin *s = l->attached;
    if (s->at.position == fixture.count)
        return 0;
    struct hr_batch *batch = make_batch(l, s->at.position);
    if (seen.stop && batch->number == seen.stop) {
        pthread_mutex_lock(&l->lock);
        hr__free(l->failed);
        l->failed = hr__bad_make(l, batch, 0, batch->number, "it ends here");
        pthread_mutex_unlock(&l->lock);
        hr_batch_release(&batch);
        return hr__fail(error, -EBADMSG, "sample %llu: it ends here",
                        (unsigned long long)seen.stop);
    }
    int r = take_turn(l, batch, error);
    if (r) {
        hr_batch_release(&batch);
        return r;
    }
    s->at.position++;
    hr__count(&hr__counters_here(l)->batches, 1);
    *out = batch;
    return 1;
}

static int standin_push(struct hr_loader *l, struct hr__push *push, struct hr_error *error)
{
    if (seen.ended)
        return hr__fail(error, -EINVAL, "a batch was pushed after push_end");
    seen.pushed += (int)push->count;
    hr__free(push);
    return 0;
}

static int standin_push_end(struct hr_loader *l, struct hr_error *error)
{
    seen.ended++;
    return 0;
}

static int standin_state(const struct hr_loader *l, struct hr_loader_state *state,
                         struct hr_error *error)
{
    (void)error;
    *state = ((const struct remote_standin *)l->attached)->at;
    return 0;
}

static void standin_stats(const struct hr_loader *l, struct hr_loader_stats *stats)
{
    stats->missed = 3;
    stats->alone = stats->batches;
    stats->threads = l->options.window;
}

static const struct hr__attachment standin = {
    .create = standin_create,
    .destroy = standin_destroy,
    .abandon = standin_abandon,
    .start = standin_start,
    .next = standin_next,
    .push = standin_push,
    .push_end = standin_push_end,
    .get_state = standin_state,
    .get_stats = standin_stats,
};

const struct hr__attachment *hr__library_attachment(void)
{
    return &standin;
}

static int setup(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    return 0;
}

static void agent_options(struct hr_loader_options *o)
{
    fixture_options(o);
    o->agent = "auto";
}

static void refuse(const struct hr_loader_options *o, const char *word)
{
    struct hr_loader *loader;
    struct hr_error error;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, o, &error),
                     -EINVAL);
    assert_null(loader);
    if (!strstr(error.message, word))
        fail_msg("no \"%s\" in: %s", word, error.message);
    assert_int_equal(seen.created, 0);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    struct hr_loader_options o;
    char name[200];
    memset(name, 'n', sizeof name);
    name[128] = 0;
    agent_options(&o);
    o.agent = NULL;
    o.stream = "many";
    refuse(&o, "needs an agent");
    o.agent = "auto";
    o.external_order = 1;
    refuse(&o, "cannot be shared with others");
    o.external_order = 0;
    o.agent = NULL;
    o.agent = "";
    refuse(&o, "needs an agent");
    agent_options(&o);
    o.stream = name;
    refuse(&o, "128 bytes");
    agent_options(&o);
    o.batches_ahead = 7;
    refuse(&o, "from 9");
    agent_options(&o);
    o.join = (enum hr_join)2;
    refuse(&o, "join");
    agent_options(&o);
    o.lag = (enum hr_lag) - 1;
    refuse(&o, "lag");
    agent_options(&o);
    o.cache = "size=nonsense";
    refuse(&o, "nonsense");
    agent_options(&o);
    name[127] = 0;
    o.stream = name;
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    assert_int_equal(seen.created, 1);
    hr_loader_destroy(&loader);
    assert_int_equal(seen.destroyed, 1);
}

static void test_texts_are_copied(void **state)
{
    (void)state;
    struct hr_loader_options o;
    char agent[] = "/run/a.sock", stream[] = "s", command[] = "c", cache[] = "1MiB";
    agent_options(&o);
    o.agent = agent;
    o.stream = stream;
    o.agent_command = command;
    o.cache = cache;
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    memset(agent, 0, sizeof agent);
    memset(stream, 0, sizeof stream);
    memset(command, 0, sizeof command);
    memset(cache, 0, sizeof cache);
    assert_string_equal(loader->options.agent, "/run/a.sock");
    assert_string_equal(loader->options.stream, "s");
    assert_string_equal(loader->options.agent_command, "c");
    assert_string_equal(loader->options.cache, "1MiB");
    assert_null(loader->cache);
    hr_loader_destroy(&loader);
}

static void test_a_refusal_is_the_callers(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_loader *loader;
    struct hr_error error;
    agent_options(&o);
    seen.refuse = -ECONNREFUSED;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &o, &error),
                     -ECONNREFUSED);
    assert_null(loader);
    assert_string_equal(error.message, "refused");
    assert_int_equal(seen.destroyed, 0);
}

static void test_an_order_of_ones_own_is_passed_on(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_error error;
    agent_options(&o);
    o.external_order = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    struct hr_stalls_watch *watch;
    assert_int_equal(seen.created, 1);
    assert_int_equal(hr_stalls_watch_open(&watch, loader, NULL, &error), -ENOTSUP);
    assert_non_null(strstr(error.message, "an agent prepares"));
    assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
    assert_int_equal(hr_loader_push(loader, (int64_t[]){4, 2}, 2, NULL), 0);
    assert_int_equal(hr_loader_push(loader, (int64_t[]){4, (int64_t)fixture.count}, 2, &error),
                     -ERANGE);
    assert_int_equal(seen.pushed, 2);
    assert_int_equal(hr_loader_push_end(loader, NULL), 0);
    assert_int_equal(seen.ended, 1);
    assert_int_equal(hr_loader_push(loader, (int64_t[]){4}, 1, &error), -EINVAL);
    hr_loader_destroy(&loader);
    assert_int_equal(seen.destroyed, 1);
}

static void test_calls_are_passed_on(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_loader_state at;
    struct hr_error error;
    agent_options(&o);
    o.shuffle = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    assert_int_equal(hr_loader_push(loader, (int64_t[]){0}, 1, &error), -EINVAL);
    assert_int_equal(hr_loader_start_epoch(loader, 99, &error), -ECONNRESET);
    assert_int_equal(hr_loader_start_epoch(loader, 5, &error), 0);
    assert_int_equal(seen.restored, 0);
    struct hr_batch *first = fixture_next(loader), *second = fixture_next(loader);
    assert_int_equal(hr_loader_get_state(loader, &at, &error), 0);
    assert_int_equal(at.version, 1);
    assert_int_equal(at.epoch, 5);
    assert_int_equal(at.seed, FIXTURE_SEED);
    assert_int_equal(at.shuffle, 1);
    assert_int_equal(at.samples, fixture.count);
    assert_int_equal(at.position, 2);
    hr_batch_release(&first);
    assert_int_equal(seen.released, 1);

    at.seed = 6;
    at.position = fixture.count;
    assert_int_equal(hr_loader_restore(loader, &at, &error), 0);
    assert_int_equal(seen.restored, 1);
    assert_int_equal(loader->seed, 6);
    assert_int_equal(hr_loader_next(loader, &first, &error), 0);
    at.position++;
    assert_int_equal(hr_loader_restore(loader, &at, &error), -EINVAL);

    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    assert_int_equal(stats.missed, 3);
    assert_int_equal(stats.batches, 2);
    assert_int_equal(stats.alone, 2);
    assert_int_equal(stats.threads, 8);
    assert_int_equal(stats.wait.count, 3);
    assert_int_equal(hr_loader_batches(loader), (fixture.count + 7) / 8);

    /* A batch outlives its loader. */
    hr_loader_destroy(&loader);
    struct hr_batch_view view;
    hr_batch_get(hr_batch_ref(second), &view);
    assert_int_equal(view.count, 1);
    assert_int_equal(view.number, 1);
    assert_int_equal(view.spec.bytes, fixture.spec.bytes);
    assert_int_equal(((uint8_t *)view.images)[0], 7);
    struct hr_batch *again = second;
    hr_batch_release(&again);
    assert_int_equal(seen.released, 1);
    hr_batch_release(&second);
    assert_int_equal(seen.released, 2);
}

static void test_bad_samples_are_kept_and_judged(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_error error;
    struct hr_batch *batch;
    struct hr_skipped_sample skipped;
    agent_options(&o);
    o.on_error = HR_ON_ERROR_SKIP;
    o.max_bad_share = 0.1;
    seen.bad = 5;
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    assert_int_equal(hr_loader_start_epoch(loader, 3, &error), 0);
    /* A fifth is bad, which is checked from the 100th sample on. */
    for (int i = 0; i < 99; i++) {
        batch = fixture_next(loader);
        hr_batch_release(&batch);
    }
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EOVERFLOW);
    assert_non_null(strstr(error.message, "20 of 100 samples of epoch 3"));
    assert_non_null(strstr(error.message, "it is bad"));
    assert_int_equal(hr_loader_skipped_count(loader), 20);
    assert_int_equal(hr_loader_skipped_get(loader, 2, &skipped), 0);
    assert_int_equal(skipped.index, 10);
    assert_int_equal(skipped.epoch, 3);
    assert_string_equal(skipped.path, fixture.paths[10]);
    /* A new start counts from 0 again. */
    seen.bad = 0;
    seen.stop = 100;
    assert_int_equal(hr_loader_start_epoch(loader, 4, &error), 0);
    for (int i = 0; i < 100; i++) {
        batch = fixture_next(loader);
        hr_batch_release(&batch);
    }
    assert_int_equal(hr_loader_failed_get(loader, &skipped), -ENOENT);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EBADMSG);
    assert_int_equal(hr_loader_failed_get(loader, &skipped), 0);
    assert_int_equal(skipped.index, 100);
    assert_string_equal(skipped.reason, "it ends here");
    assert_int_equal(hr_loader_start_epoch(loader, 5, &error), 0);
    assert_int_equal(hr_loader_failed_get(loader, &skipped), -ENOENT);
    hr_loader_destroy(&loader);
}

static void test_forked_child_abandons(void **state)
{
    (void)state;
    struct hr_loader_options o;
    agent_options(&o);
    o.stream = "many";
    struct hr_loader *loader = fixture_loader(&fixture, &o);
    pid_t child = fork();
    if (!child) {
        struct hr_error error;
        struct hr_batch *batch;
        struct hr_loader_stats stats = {.size = sizeof stats};
        int ok = hr_loader_start_epoch(loader, 0, &error) == -ECHILD;
        ok &= hr_loader_next(loader, &batch, &error) == -ECHILD;
        hr_loader_get_stats(loader, &stats);
        ok &= !stats.missed;
        hr_loader_destroy(&loader);
        ok &= seen.abandoned == 1 && !seen.destroyed && !loader;
        _exit(!ok);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(hr_loader_start_epoch(loader, 0, NULL), 0);
    hr_loader_destroy(&loader);
    assert_int_equal(seen.destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_options_are_checked, setup),
        cmocka_unit_test_setup(test_texts_are_copied, setup),
        cmocka_unit_test_setup(test_a_refusal_is_the_callers, setup),
        cmocka_unit_test_setup(test_an_order_of_ones_own_is_passed_on, setup),
        cmocka_unit_test_setup(test_calls_are_passed_on, setup),
        cmocka_unit_test_setup(test_bad_samples_are_kept_and_judged, setup),
        cmocka_unit_test_setup(test_forked_child_abandons, setup),
    };
    fixture_make(&fixture, 120);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_remove(&fixture);
    return failed;
}
