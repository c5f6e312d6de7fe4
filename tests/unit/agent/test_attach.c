/*
 * Attached loaders against a fake agent (fake_agent.h). Every batch is compared with the order
 * (order/order.h) and every byte with what the agent published, for several ranks, batch sizes,
 * restored states, joins, bad samples, expulsions, and agents that die.
 */
#include "fake_agent.h"

#include "../consumer.h"

#include "agent/client/attached.h"
#include "base/memory.h"
#include "loader/attach.h"
#include "order/order.h"

#include <headrace/headrace.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 203
#define SEED    42

struct attach_stage {
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
};

static void set_stage(struct attach_stage *s, size_t samples, int height, int width)
{
    struct hr_error error;
    struct hr_operation crop;
    char **paths = calloc(samples, sizeof *paths);
    int64_t *labels = calloc(samples, sizeof *labels);
    assert_non_null(paths);
    assert_non_null(labels);
    for (size_t i = 0; i < samples; i++)
        assert_true(asprintf(&paths[i], "/nowhere/%zu.jpg", i) > 0);
    if (hr_dataset_from_paths(&s->dataset, (const char *const *)paths, labels, samples, &error))
        fail_msg("%s", error.message);
    for (size_t i = 0; i < samples; i++)
        free(paths[i]);
    free(paths);
    free(labels);
    hr_operation_default(&crop, HR_CENTER_CROP);
    crop.u.center_crop.height = height;
    crop.u.center_crop.width = width;
    if (hr_recipe_create(&s->recipe, &crop, 1, NULL, &error))
        fail_msg("%s", error.message);
    hr_recipe_output(s->recipe, &s->spec);
    fake_agent_reset(samples, &s->spec);
}

static void clear_stage(struct attach_stage *s)
{
    fake_agent_join();
    hr_dataset_unref(&s->dataset);
    hr_recipe_unref(&s->recipe);
}

static void set_options(struct hr_loader_options *o)
{
    hr_loader_options_default(o);
    o->agent = "/nonexistent/agent.sock";
    o->stream = "stream";
    o->shuffle = 1;
    o->seed = SEED;
    o->batch_size = 16;
    o->window = 4;
}

static struct hr_loader *make(const struct attach_stage *s, const struct hr_loader_options *o)
{
    struct hr_loader *loader = NULL;
    struct hr_error error;
    if (hr_loader_create(&loader, s->dataset, s->recipe, o, &error))
        fail_msg("%s", error.message);
    return loader;
}

/* The expected batches of an epoch from a position on. */
struct expected {
    const struct hr_loader_options *options;
    struct hr__order *order;
    struct hr__cut cut;
    uint64_t epoch, number; /* of the next batch, since the start of the cut */
};

static void expect(struct expected *e, const struct hr_loader_options *o, uint64_t epoch,
                   uint64_t position)
{
    struct hr_error error;
    *e = (struct expected){.options = o, .epoch = epoch};
    e->cut = (struct hr__cut){.samples = fake_agent.samples,
                              .start = position,
                              .batch_size = (uint64_t)o->batch_size,
                              .ranks = (uint64_t)o->world_size,
                              .rank = (uint64_t)o->rank,
                              .drop_last = o->drop_last};
    assert_int_equal(
        hr__order_create(&e->order, fake_agent.samples, o->shuffle, o->seed, epoch, &error), 0);
}

static void check_content(const struct hr_batch *batch)
{
    struct hr_batch_view v;
    hr_batch_get(batch, &v);
    const unsigned char *image = v.images;
    for (size_t i = 0; i < v.count; i++)
        for (uint64_t b = 0; b < v.spec.bytes; b++)
            if (image[i * v.spec.bytes + b] != fake_sample_byte(v.epoch, (uint64_t)v.indices[i], b))
                fail_msg("epoch %d, batch %d, sample %zu, byte %d", (int)v.epoch, (int)v.number, i,
                         (int)b);
}

/* Checks that the batch is the next expected one. */
static void check_next(struct expected *e, const struct hr_loader *loader,
                       const struct hr_batch *batch)
{
    struct hr_batch_view v;
    struct hr_loader_state state;
    struct hr_error error;
    uint64_t positions[1024];
    size_t padding;
    hr_batch_get(batch, &v);
    assert_true(e->number < hr__cut_batches(&e->cut));
    size_t count = hr__cut_batch(&e->cut, e->number, positions, &padding);
    assert_int_equal(v.count, count);
    assert_int_equal(v.padding, padding);
    assert_int_equal(v.epoch, e->epoch);
    assert_int_equal(v.number, e->cut.start / (e->cut.batch_size * e->cut.ranks) + e->number);
    assert_int_equal((uintptr_t)v.images % 64, 0);
    assert_int_equal(v.spec.bytes, fake_agent.spec.bytes);
    size_t replaced = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t index = hr__order_at(e->order, positions[i]);
        int is_bad = fake_agent.bad_every && index % fake_agent.bad_every == 0;
        replaced += (size_t)is_bad;
        assert_int_equal(v.indices[i], index + (uint64_t)is_bad);
        assert_int_equal(v.labels[i], v.indices[i] % 7);
    }
    assert_int_equal(v.replaced, replaced);
    check_content(batch);
    e->number++;
    assert_int_equal(hr_loader_get_state(loader, &state, &error), 0);
    assert_int_equal(state.epoch, e->epoch);
    assert_int_equal(state.position, hr__cut_position(&e->cut, e->number));
}

/* Reads the rest of an epoch. Overwrites every other batch, and keeps some for a while. */
static void drain(struct expected *e, struct hr_loader *loader)
{
    struct hr_batch *batch, *kept = NULL;
    struct hr_batch_view v;
    while (next(loader, &batch)) {
        check_next(e, loader, batch);
        hr_batch_get(batch, &v);
        if (e->number % 2)
            memset(v.images, 0xAB, v.count * v.spec.bytes);
        if (e->number % 5 == 0 || !kept) {
            hr_batch_release(&kept);
            kept = batch;
        } else {
            hr_batch_release(&batch);
        }
    }
    hr_batch_release(&kept);
    assert_int_equal(e->number, hr__cut_batches(&e->cut));
    assert_int_equal(next(loader, &batch), 0);
    hr__order_destroy(&e->order);
}

static void test_epochs(void **state)
{
    /* 4096, 768, 1587 and 8649 bytes a sample: whole pages, parts of pages, and with gaps. */
    static const int sides[][2] = {{64, 64}, {16, 16}, {23, 23}, {31, 93}};
    static const int jobs[][4] = {/* batch, rank, ranks, drop_last */
                                  {16, 0, 1, 0}, {7, 0, 1, 1}, {16, 1, 2, 0}, {9, 3, 4, 0},
                                  {5, 2, 3, 1},  {1, 0, 1, 0}, {300, 0, 1, 0}};
    uint64_t before = hr__allocated(HR__TAG_AGENT);
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
            struct attach_stage s;
            struct hr_loader_options o;
            struct expected e;
            set_stage(&s, SAMPLES, sides[i][0], sides[i][1]);
            set_options(&o);
            o.batch_size = jobs[j][0];
            o.rank = jobs[j][1];
            o.world_size = jobs[j][2];
            o.drop_last = jobs[j][3];
            o.shuffle = j % 2;
            struct hr_loader *loader = make(&s, &o);
            for (uint64_t epoch = 0; epoch < 3; epoch++) {
                start(loader, epoch);
                expect(&e, &o, epoch, 0);
                drain(&e, loader);
            }
            struct hr_loader_stats stats = {.size = sizeof stats};
            hr_loader_get_stats(loader, &stats);
            assert_int_equal(stats.batches, 3 * hr_loader_batches(loader));
            assert_int_equal(stats.threads, 3);
            assert_int_equal(stats.reattached, 0);
            hr_loader_destroy(&loader);
            clear_stage(&s);
            assert_int_equal(fake_agent_seen.connections, 1);
            assert_int_equal(fake_agent_attach().batch_size, o.batch_size);
        }
    assert_int_equal(hr__allocated(HR__TAG_AGENT), before);
}

/* The ring is smaller than a batch, so the batch comes in pieces. */
static void test_larger_than_ring(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct expected e;
    set_stage(&s, SAMPLES, 64, 64);
    set_options(&o);
    o.batch_size = 60;
    fake_agent.ring_samples = 32;
    struct hr_loader *loader = make(&s, &o);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        start(loader, epoch);
        expect(&e, &o, epoch, 0);
        drain(&e, loader);
    }
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

static void test_restore(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct expected e;
    struct hr_loader_state at;
    struct hr_error error;
    struct hr_batch *batch;
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    o.world_size = 2;
    o.rank = 1;
    struct hr_loader *loader = make(&s, &o);
    start(loader, 0);
    expect(&e, &o, 0, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next(loader, &batch), 1);
        check_next(&e, loader, batch);
        hr_batch_release(&batch);
    }
    assert_int_equal(hr_loader_get_state(loader, &at, &error), 0);
    hr__order_destroy(&e.order);
    /* From the middle, backwards, another epoch, and an epoch's very end. */
    static const uint64_t to[][2] = {{0, 96}, {0, 32}, {4, 64}, {2, SAMPLES}};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        at.epoch = to[i][0];
        at.position = to[i][1];
        assert_int_equal(hr_loader_restore(loader, &at, &error), 0);
        expect(&e, &o, at.epoch, at.position);
        drain(&e, loader);
    }
    assert_int_equal(fake_agent_seen.connections, 1);
    /* Another seed is another stream. Held batches stay valid. */
    start(loader, 1);
    assert_int_equal(next(loader, &batch), 1);
    o.seed = at.seed = 7;
    at.epoch = 1;
    at.position = 0;
    assert_int_equal(hr_loader_restore(loader, &at, &error), 0);
    expect(&e, &o, 1, 0);
    drain(&e, loader);
    assert_int_equal(fake_agent_seen.connections, 2);
    assert_int_equal(fake_agent_attach().seed, 7);
    check_content(batch);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

static void test_join(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct expected e;
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    fake_agent.join_epoch = 6;
    fake_agent.join_position = 40;
    fake_agent.waits_first = 1;
    struct hr_loader *loader = make(&s, &o);
    start(loader, 0);
    expect(&e, &o, 6, 40);
    drain(&e, loader);
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    assert_int_equal(stats.missed, 40);
    /* The loader's next epoch is the stream's next. */
    start(loader, 1);
    expect(&e, &o, 7, 0);
    drain(&e, loader);
    assert_int_equal(fake_agent_seen.first_seeks, 1);
    assert_int_equal(fake_agent_seen.last_seek_epoch, 7);
    /* The state is the stream's, and continuing from it gives the same batches. */
    struct hr_loader_state at = {
        .version = 1, .shuffle = 1, .seed = SEED, .epoch = 9, .position = 16, .samples = SAMPLES};
    struct hr_error error;
    assert_int_equal(hr_loader_restore(loader, &at, &error), 0);
    expect(&e, &o, 9, 16);
    drain(&e, loader);
    start(loader, 10);
    expect(&e, &o, 10, 0);
    drain(&e, loader);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

static void test_expelled(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct expected e;
    for (int sides = 16; sides <= 64; sides += 48) {
        set_stage(&s, SAMPLES, sides, sides);
        set_options(&o);
        fake_agent.expel_at = 48;
        fake_agent.return_at = 112;
        struct hr_loader *loader = make(&s, &o);
        start(loader, 0);
        expect(&e, &o, 0, 0);
        drain(&e, loader);
        struct hr_loader_stats stats = {.size = sizeof stats};
        hr_loader_get_stats(loader, &stats);
        assert_true(stats.alone >= 2 && stats.alone < 10);
        assert_true(fake_agent_seen.alone_cursors >= 1);
        assert_true(fake_agent_seen.main_cursors >= 2);
        start(loader, 1);
        expect(&e, &o, 1, 0);
        drain(&e, loader);
        /* It left its own queue, and the main queue when it read the second epoch alone. */
        assert_int_equal(fake_agent_seen.leaves, 2);
        hr_loader_destroy(&loader);
        clear_stage(&s);
    }
}

static void test_bad_samples(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct expected e;
    struct hr_skipped_sample skipped;
    for (int ring = 0; ring <= 24; ring += 24) {
        set_stage(&s, SAMPLES, 16, 16);
        set_options(&o);
        o.on_error = HR_ON_ERROR_SKIP;
        o.max_bad_share = 0.2;
        fake_agent.bad_every = 10;
        fake_agent.ring_samples = (uint64_t)ring; /* small, so that batches are copied */
        struct hr_loader *loader = make(&s, &o);
        start(loader, 0);
        expect(&e, &o, 0, 0);
        drain(&e, loader);
        assert_int_equal(hr_loader_skipped_count(loader), 21);
        for (uint64_t i = 0; i < 21; i++) {
            char reason[64];
            assert_int_equal(hr_loader_skipped_get(loader, i, &skipped), 0);
            snprintf(reason, sizeof reason, "reason %d", (int)skipped.index);
            assert_string_equal(skipped.reason, reason);
            assert_int_equal(skipped.index % 10, 0);
            assert_int_equal(skipped.epoch, 0);
            snprintf(reason, sizeof reason, "/nowhere/%d.jpg", (int)skipped.index);
            assert_string_equal(skipped.path, reason);
        }
        hr_loader_destroy(&loader);
        clear_stage(&s);
    }
    /* Too many bad samples: checked from the 100th sample on. */
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    o.on_error = HR_ON_ERROR_SKIP;
    fake_agent.bad_every = 10;
    struct hr_loader *loader = make(&s, &o);
    struct hr_batch *batch;
    struct hr_error error;
    int r, n = 0;
    start(loader, 0);
    while ((r = hr_loader_next(loader, &batch, &error)) == 1) {
        hr_batch_release(&batch);
        n++;
    }
    assert_int_equal(r, -EOVERFLOW);
    assert_int_equal(n, 6);
    assert_non_null(strstr(error.message, "max_bad_share"));
    assert_int_equal(next(loader, &batch), 0);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

static void test_halt(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_skipped_sample failed;
    struct hr_batch *batch;
    struct hr_error error;
    for (int ring = 0; ring <= 24; ring += 24) {
        set_stage(&s, SAMPLES, 16, 16);
        set_options(&o);
        o.shuffle = 0;
        fake_agent.halt_index = 70;
        fake_agent.ring_samples = (uint64_t)ring;
        struct hr_loader *loader = make(&s, &o);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            int r, n = 0;
            start(loader, epoch);
            assert_int_equal(hr_loader_failed_get(loader, &failed), -ENOENT);
            while ((r = hr_loader_next(loader, &batch, &error)) == 1) {
                check_content(batch);
                hr_batch_release(&batch);
                n++;
            }
            assert_int_equal(r, -EBADMSG);
            assert_int_equal(n, 4);
            assert_string_equal(error.message, "sample 70 is spoilt");
            assert_int_equal(hr_loader_failed_get(loader, &failed), 0);
            assert_int_equal(failed.index, 70);
            assert_string_equal(failed.reason, "spoilt");
            assert_string_equal(failed.path, "/nowhere/70.jpg");
            assert_int_equal(next(loader, &batch), 0);
        }
        hr_loader_destroy(&loader);
        clear_stage(&s);
    }
}

/* The agent announces the end of a queue only once; a loader that has no memory to store that must
 * not wait for the queue. */
static void test_halt_without_memory(void **state)
{
    struct fake_queue queue;
    struct hr_error error;
    struct hr__cursor *cursor = NULL;
    int ends[2], files[4];
    struct hr_tensor_spec spec = {
        .layout = HR_NHWC, .channels = 1, .height = 1, .width = 512, .bytes = 512};
    fake_queue_make(&queue, spec.bytes, 8, 16, 64);
    fake_queue_files(&queue, files);
    if (hr__cursor_create(&cursor, &spec, 0, files, &error))
        fail_msg("%s", error.message);
    cursor->number = 5;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct hr__attached a = {
        .socket = ends[0], .state = HR__PLACED, .cursors = cursor, .cursor = cursor};
    pthread_mutex_init(&a.lock, NULL);
    struct hr__wire_message m = {
        .type = HR__WIRE_HALT,
        .halt = {.cursor = 5, .error = {.code = -EBADMSG, .message = "sample 70 is spoilt"}}};
    assert_int_equal(hr__wire_send(ends[1], &m), 0);
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__session_receive(&a, &error), -ENOMEM);
    hr__alloc_fail_at(0, 0);
    assert_non_null(strstr(error.message, "sample 70 is spoilt"));
    assert_int_equal(a.state, HR__CLOSED);
    assert_null(a.cursors);
    char byte;
    assert_int_equal(read(ends[1], &byte, 1), 0); /* the connection is closed */
    close(ends[1]);
    pthread_mutex_destroy(&a.lock);
    fake_queue_remove(&queue);
}

struct patience {
    int asked;
    int least; /* number of progress calls that continue; after `enough` of them the agent
                  answers */
    int enough;
};

static int lose_patience(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    struct patience *patience = arg;
    assert_int_equal(done, 0);
    assert_int_equal(total, 0);
    assert_string_equal(stage, "attaching");
    if (patience->asked++ != patience->least)
        return 0;
    if (patience->enough)
        atomic_store(&fake_agent.is_silent, 0);
    return !patience->enough;
}

/* The loader waits for a slow agent until its progress function cancels. */
static void test_patience(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_loader_state at = {.version = 1, .shuffle = 1, .seed = SEED + 1, .samples = SAMPLES};
    struct hr_error error;
    struct hr_loader *loader = NULL;
    struct patience patience = {.least = 2};
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    o.progress = lose_patience;
    o.progress_arg = &patience;
    atomic_store(&fake_agent.is_silent, 1);
    assert_int_equal(hr_loader_create(&loader, s.dataset, s.recipe, &o, &error), -ECANCELED);
    assert_null(loader);
    assert_int_equal(patience.asked, 3);
    fake_agent_join();
    assert_int_equal(atomic_load(&fake_agent_seen.hung_up), 1);
    patience = (struct patience){.least = 2, .enough = 1};
    loader = make(&s, &o);
    assert_true(patience.asked >= 3);
    /* Another order is another stream: the loader attaches again. */
    atomic_store(&fake_agent.is_silent, 1);
    patience = (struct patience){.least = 1};
    assert_int_equal(hr_loader_restore(loader, &at, &error), -ECANCELED);
    assert_int_equal(patience.asked, 2);
    fake_agent_join();
    atomic_store(&fake_agent.is_silent, 0);
    struct hr_batch *batch;
    assert_int_equal(hr_loader_restore(loader, &at, &error), 0);
    assert_int_equal(next(loader, &batch), 1);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

static void test_death(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_batch *batch, *held;
    struct hr_error error;
    struct expected e;
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    fake_agent.deaths = 1;
    fake_agent.die_after = 6; /* two more than the ring holds */
    struct hr_loader *loader = make(&s, &o);
    int r;
    start(loader, 0);
    expect(&e, &o, 0, 0);
    assert_int_equal(next(loader, &held), 1);
    check_next(&e, loader, held);
    while ((r = hr_loader_next(loader, &batch, &error)) == 1) {
        check_next(&e, loader, batch);
        hr_batch_release(&batch);
    }
    assert_int_equal(r, -ECONNRESET);
    assert_non_null(strstr(error.message, "/nonexistent/agent.sock"));
    assert_int_equal(hr_loader_next(loader, &batch, &error), -ECONNRESET);
    check_content(held);
    /* The same loader resumes at the new agent on that path. */
    struct hr_loader_state at;
    assert_int_equal(hr_loader_get_state(loader, &at, &error), 0);
    assert_true(at.position >= 16 && at.position < SAMPLES);
    assert_int_equal(hr_loader_restore(loader, &at, &error), 0);
    drain(&e, loader);
    check_content(held);
    hr_batch_release(&held);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

/* Reads epoch 0 although the agent dies: the loader reattaches `reattached` times, and a batch that
 * is held meanwhile does not change. */
static void drain_reattached(struct hr_loader *loader, const struct hr_loader_options *o,
                             uint64_t reattached)
{
    struct expected e;
    struct hr_batch *held;
    struct hr_loader_stats stats = {.size = sizeof stats};
    start(loader, 0);
    expect(&e, o, 0, 0);
    assert_int_equal(next(loader, &held), 1);
    check_next(&e, loader, held);
    drain(&e, loader);
    start(loader, 1);
    expect(&e, o, 1, 0);
    drain(&e, loader);
    check_content(held); /* although the agent overwrites the batch's old memory */
    hr_batch_release(&held);
    hr_loader_get_stats(loader, &stats);
    assert_int_equal(stats.reattached, reattached);
}

static void test_death_auto(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    for (int ring = 0; ring <= 24; ring += 24) {
        set_stage(&s, SAMPLES, 16, 16);
        set_options(&o);
        o.agent = "auto";
        fake_agent.deaths = 3;
        fake_agent.die_after = 3;
        fake_agent.ring_samples = (uint64_t)ring;
        struct hr_loader *loader = make(&s, &o);
        drain_reattached(loader, &o, 3);
        assert_int_equal(fake_agent_seen.first_seeks, 1);
        hr_loader_destroy(&loader);
        clear_stage(&s);
    }
    /* Agents that end before they send anything. */
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    o.agent = "auto";
    fake_agent.deaths = 100;
    fake_agent.die_after = 0;
    struct hr_loader *loader = NULL;
    struct hr_error error;
    assert_int_equal(hr_loader_create(&loader, s.dataset, s.recipe, &o, &error), -ECONNRESET);
    assert_null(loader);
    assert_int_equal(fake_agent_seen.connections, 4);
    clear_stage(&s);
}

/* An invalid message costs a connection but no sample; if each HELLO is answered with one, that is
 * an error. */
static void test_garbled(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_error error;
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    o.agent = "auto";
    fake_agent.garbled_cursors = 3;
    struct hr_loader *loader = make(&s, &o);
    drain_reattached(loader, &o, 3);
    hr_loader_destroy(&loader);
    clear_stage(&s);
    set_stage(&s, SAMPLES, 16, 16);
    fake_agent.garbles = 100;
    assert_int_equal(hr_loader_create(&loader, s.dataset, s.recipe, &o, &error), -EPROTONOSUPPORT);
    assert_non_null(strstr(error.message, "version"));
    assert_int_equal(fake_agent_seen.connections, 4);
    clear_stage(&s);
}

/* An agent has another working directory: it would read another key file, or none. */
static void test_key_file_of_the_working_directory(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_error error;
    struct hr_loader *loader = NULL;
    char here[512], whole[600];
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    o.cache = "shm:x?size=1MiB&key_file= some.key";
    assert_int_equal(hr_loader_create(&loader, s.dataset, s.recipe, &o, &error), -EINVAL);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(whole, sizeof whole, "write key_file=%s/some.key", here);
    assert_non_null(strstr(error.message, whole));
    assert_int_equal(fake_agent_seen.connections, 0);
    o.cache = "shm:x?size=1MiB&key_file=/some.key";
    loader = make(&s, &o);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

static void test_refused(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_loader *loader = NULL;
    struct hr_error error;
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    fake_agent.refuses = 1;
    assert_int_equal(hr_loader_create(&loader, s.dataset, s.recipe, &o, &error), -EINVAL);
    assert_string_equal(error.message, "another recipe");
    assert_null(loader);
    clear_stage(&s);
    /* The dataset has changed. */
    set_stage(&s, SAMPLES, 16, 16);
    fake_agent.samples = SAMPLES + 1;
    assert_int_equal(hr_loader_create(&loader, s.dataset, s.recipe, &o, &error), -ESTALE);
    clear_stage(&s);
}

static atomic_int signals;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

/* The thread to interrupt, until it reports that it was. */
struct caller {
    pthread_t thread;
    atomic_int was_interrupted;
};

/* Sends signals repeatedly: a handler that runs before or after the wait does not end it. */
static void *send_signals(void *arg)
{
    struct caller *caller = arg;
    do {
        usleep(120000);
        pthread_kill(caller->thread, SIGUSR1);
    } while (!atomic_load(&caller->was_interrupted));
    return NULL;
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void test_interrupted(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_batch *batch;
    struct hr_error error;
    set_stage(&s, SAMPLES, 64, 64);
    set_options(&o);
    fake_agent.stops_after = 2; /* one batch */
    o.wait_ms = 60;
    struct hr_loader *loader = make(&s, &o);
    start(loader, 0);
    while (hr_loader_next(loader, &batch, &error) == -EINTR)
        ;
    hr_batch_release(&batch);
    uint64_t begin = now_ms();
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
    assert_true(now_ms() - begin >= 55);
    hr_loader_destroy(&loader);
    clear_stage(&s);
    /* A handler ends the wait, even with SA_RESTART; no timeout does. */
    set_stage(&s, SAMPLES, 64, 64);
    fake_agent.stops_after = 2;
    o.wait_ms = 0;
    loader = make(&s, &o);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
    sigaction(SIGUSR1, &action, &old);
    struct caller self = {.thread = pthread_self()};
    pthread_t thread;
    start(loader, 0);
    assert_int_equal(next(loader, &batch), 1);
    hr_batch_release(&batch);
    assert_int_equal(pthread_create(&thread, NULL, send_signals, &self), 0);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
    assert_true(atomic_load(&signals) > 0);
    atomic_store(&self.was_interrupted, 1);
    pthread_join(thread, NULL);
    sigaction(SIGUSR1, &old, NULL);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

/* Batches stay valid after the loader is gone, whatever the agent does with its memory. */
static void test_held(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_batch *held[3];
    for (int side = 16; side <= 64; side += 48) {
        set_stage(&s, SAMPLES, side, side);
        set_options(&o);
        struct hr_loader *loader = make(&s, &o);
        start(loader, 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(next(loader, &held[i]), 1);
        hr_loader_destroy(&loader);
        fake_agent_join();
        assert_int_equal(fake_agent_seen.overwritten, 1);
        for (int i = 2; i >= 0; i--) {
            check_content(held[i]);
            hr_batch_release(&held[i]);
        }
        clear_stage(&s);
    }
}

/* list(loader), twice. */
static void test_keeps_all(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_batch *held[64];
    int count = 0;
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    struct hr_loader *loader = make(&s, &o);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        start(loader, epoch);
        while (next(loader, &held[count]))
            count++;
    }
    assert_int_equal(count, 26);
    while (count--) {
        check_content(held[count]);
        hr_batch_release(&held[count]);
    }
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

static void test_fork(void **state)
{
    struct attach_stage s;
    struct hr_loader_options o;
    struct hr_batch *batch, *other;
    struct hr_error error;
    struct expected e;
    set_stage(&s, SAMPLES, 16, 16);
    set_options(&o);
    struct hr_loader *loader = make(&s, &o);
    start(loader, 0);
    expect(&e, &o, 0, 0);
    assert_int_equal(next(loader, &batch), 1);
    check_next(&e, loader, batch);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        int r = hr_loader_next(loader, &other, &error);
        check_content(batch);
        hr_loader_destroy(&loader);
        hr_batch_release(&batch);
        _exit(r != -ECHILD);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_content(batch);
    hr_batch_release(&batch);
    drain(&e, loader);
    hr_loader_destroy(&loader);
    clear_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_larger_than_ring),
        cmocka_unit_test(test_restore),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_expelled),
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_halt),
        cmocka_unit_test(test_halt_without_memory),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_death_auto),
        cmocka_unit_test(test_garbled),
        cmocka_unit_test(test_key_file_of_the_working_directory),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_keeps_all),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
