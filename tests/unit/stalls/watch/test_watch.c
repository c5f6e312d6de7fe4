/*
 * A watched loop: its batches, the measurements, and that the loader is afterwards as before. The
 * test makes small files beside those of other tests; if that is on a disk, cold and warm segments
 * must be verified by the bytes that the kernel read.
 */
#include "../../loader/fixture.h"

#include "base/clock.h"
#include "base/memory.h"
#include "stalls/watch/inside.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 400
#define BATCH   8

FIXTURE(SAMPLES)

static struct hr_loader *make_loader(void)
{
    struct hr_loader_options options;
    fixture_options(&options);
    options.external_order = 1;
    return fixture_loader(&fixture, &options);
}

static struct hr_stalls_watch *open_watch(struct hr_loader *loader, double time_s)
{
    struct hr_stalls_watch_options options;
    struct hr_stalls_watch *watch;
    struct hr_error error;
    hr_stalls_watch_options_default(&options);
    options.time_s = time_s;
    if (hr_stalls_watch_open(&watch, loader, &options, &error))
        fail_msg("%s", error.message);
    return watch;
}

static struct hr_batch *next(struct hr_stalls_watch *watch)
{
    struct hr_batch *batch;
    struct hr_error error;
    int r = hr_stalls_watch_next(watch, &batch, &error);
    if (r < 0)
        fail_msg("%s", error.message);
    assert_int_equal(r, batch != NULL);
    return batch;
}

/* A training step that keeps one core busy for this time. */
static void train(unsigned us)
{
    uint64_t until = hr__now_ns() + us * 1000u;
    while (hr__now_ns() < until) {
    }
}

static json_t *record_of(struct hr_stalls_watch *watch)
{
    char *text = hr__watch_record(watch);
    assert_non_null(text);
    json_error_t error;
    json_t *record = json_loads(text, 0, &error);
    if (!record)
        fail_msg("%s", error.text);
    free(text);
    return record;
}

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value))
        fail_msg("%s is no number", name);
    return json_number_value(value);
}

static const char *text(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_string(value))
        fail_msg("%s is no text", name);
    return json_string_value(value);
}

static int has_note(const json_t *record, const char *part)
{
    size_t i;
    json_t *note;
    json_array_foreach(json_object_get(record, "notes"), i, note)
    {
        if (strstr(json_string_value(note), part))
            return 1;
    }
    return 0;
}

/* Counts the segments of a phase, and in *verified those whose bytes came from the right place.
 * That includes segments that began with batches of a full queue, which do not count otherwise. */
static int count_segments(const json_t *record, const char *phase, int *verified)
{
    size_t i;
    json_t *segment;
    int count = 0;
    *verified = 0;
    json_array_foreach(json_object_get(record, "segments"), i, segment)
    {
        if (strcmp(text(segment, "phase"), phase))
            continue;
        count++;
        *verified += json_is_true(json_object_get(segment, "verified")) ||
                     strstr(text(segment, "reason"), "prepared before");
    }
    return count;
}

static double sum(const json_t *values)
{
    size_t i;
    json_t *value;
    double all = 0;
    json_array_foreach(values, i, value)
    {
        all += json_number_value(value);
    }
    return all;
}

static void check_segment(const json_t *segment)
{
    double batches = number(segment, "batches"), elapsed = number(segment, "elapsed_s");
    assert_true(batches >= 2);
    assert_true(number(segment, "samples") == batches * BATCH);
    assert_true(elapsed > 0);
    assert_true(json_array_size(json_object_get(segment, "wait_s")) == (size_t)batches);
    assert_true(json_array_size(json_object_get(segment, "batch_s")) == (size_t)batches);
    assert_true(fabs(sum(json_object_get(segment, "batch_s")) - elapsed) < 1e-6);
    assert_true(sum(json_object_get(segment, "wait_s")) <= elapsed);
    double cpu = number(segment, "process_cpu_s") + number(segment, "worker_cpu_s");
    assert_true(cpu >= 0 && cpu < elapsed * 4096);
}

static int is_in_memory(void)
{
    struct hr_storage_residency residency = {.size = sizeof residency};
    struct hr_error error;
    assert_int_equal(hr_storage_check((const char *const *)fixture.paths, 1, &residency, &error),
                     0);
    return residency.in_memory;
}

/* ---- what is handed out ---- */

/* Returns a checksum of a batch's contents. */
static uint64_t digest(const struct hr_batch *batch)
{
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    const uint8_t *bytes = view.images;
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < view.count * view.spec.bytes; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    for (size_t i = 0; i < view.count; i++)
        hash = (hash ^ (uint64_t)view.indices[i] ^ (uint64_t)view.labels[i] << 32) * 1099511628211u;
    return hash;
}

static void every_batch_is_right(void **state)
{
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 0.8);
    struct hr_batch *batch;
    int phases[HR_STALLS_PHASES] = {0};
    while ((batch = next(watch))) {
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        /* Replays, too: they are batches of the warm-up, whose epoch is 0. */
        fixture_check(&fixture, batch, 1, view.number * BATCH);
        if (watch->stage == HR__WATCH_RUN) {
            phases[watch->chosen.phase]++;
            assert_int_equal(view.epoch == 0, watch->chosen.phase == HR_STALLS_HOST);
        }
        hr_batch_release(&batch);
        assert_null(batch);
    }
    assert_null(next(watch));
    assert_true(phases[HR_STALLS_HOST] > 0 && phases[HR_STALLS_WARM] > 0);
    assert_int_equal(phases[HR_STALLS_DEVICE], 0);
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    assert_int_equal(stats.grown_slots, 0);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

/* The kernel may evict files that nobody has mapped; the files of a warm segment are held. */
static void files_are_held(const struct hr_stalls_watch *watch)
{
    struct hr_storage_held now = {.size = sizeof now};
    struct hr_error error = {0};
    assert_non_null(watch->set.hold);
    if (hr_storage_hold_look(watch->set.hold, &now, &error))
        fail_msg("%s", error.message);
    assert_int_equal(now.files, watch->set.name_count);
    assert_true(now.bytes > 0);
    assert_int_equal(now.held_bytes, now.bytes);
}

static void cold_and_warm_are_of_the_same_batches(void **state)
{
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 0.8);
    uint64_t digests[64][2] = {{0}};
    int seen[64][2] = {{0}}, pairs = 0;
    struct hr_batch *batch;
    while ((batch = next(watch))) {
        int set = watch->chosen.set, warm = watch->chosen.phase == HR_STALLS_WARM;
        if (watch->stage == HR__WATCH_RUN && watch->chosen.phase != HR_STALLS_HOST && set < 64) {
            if (warm && !seen[set][1])
                files_are_held(watch);
            if (watch->given == 1) /* it may run again */
                digests[set][warm] = seen[set][warm] = 0;
            digests[set][warm] = digests[set][warm] * 31 + digest(batch);
            seen[set][warm]++;
        }
        hr_batch_release(&batch);
        train(200);
    }
    for (int set = 0; set < 64; set++) {
        if (!seen[set][0] || !seen[set][1])
            continue;
        assert_int_equal(seen[set][0], seen[set][1]);
        assert_true(digests[set][0] == digests[set][1]);
        pairs++;
    }
    assert_true(pairs >= 2 || is_in_memory());
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

static void what_a_loop_writes_is_undone(void **state)
{
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 0.6);
    struct hr_batch *batch, *before = NULL;
    int replays = 0;
    while ((batch = next(watch))) {
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        fixture_check(&fixture, batch, 1, view.number * BATCH);
        replays += watch->stage == HR__WATCH_RUN && watch->chosen.phase == HR_STALLS_HOST;
        memset(view.images, 0x7f, view.count * view.spec.bytes);
        view.labels[0] = -5;
        /* The loop may hold its last batch for a step. */
        hr_batch_release(&before);
        before = batch;
    }
    hr_batch_release(&before);
    assert_true(replays > 10);
    json_t *record = record_of(watch);
    assert_true(has_note(record, "writes into its batches"));
    json_decref(record);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

/* Every view is restored, and samples with all views are prepared to measure the forms. */
static void views_are_watched(void **state)
{
    struct hr_recipe *pair[] = {fixture.recipe, fixture.recipe}, *one = fixture.recipe;
    struct hr_error error;
    assert_int_equal(hr_recipe_create_views(&fixture.recipe, pair, 2, &error), 0);
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 0.6);
    struct hr_batch *batch;
    uint8_t first[SAMPLES] = {0}; /* byte of the second view, by batch of the warm-up */
    int replays = 0;
    while ((batch = next(watch))) {
        struct hr_batch_view view;
        struct hr_tensor_spec spec;
        void *images;
        hr_batch_get(batch, &view);
        assert_int_equal(hr_batch_images(batch, 1, &images, &spec), 0);
        uint8_t *byte = images;
        if (watch->stage == HR__WATCH_RUN && watch->chosen.phase == HR_STALLS_HOST) {
            assert_int_equal(*byte, first[view.number]);
            replays++;
        } else if (!view.epoch) {
            first[view.number] = *byte;
        }
        *byte ^= 0xff;
        hr_batch_release(&batch);
    }
    assert_true(replays > 10);
    json_t *record = record_of(watch);
    assert_true(has_note(record, "writes into its batches"));
    const json_t *forms = json_object_get(json_object_get(record, "headrace"), "forms");
    assert_int_equal(json_array_size(forms), IMAGE_FORMS);
    json_decref(record);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
    hr_recipe_unref(&fixture.recipe);
    fixture.recipe = one;
}

static void batches_outlive_watch_and_loader(void **state)
{
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 5);
    struct hr_batch *held[12];
    uint64_t digests[12];
    /* Five batches of the warm-up, then replays; all are kept. */
    for (int i = 0; i < 12; i++) {
        held[i] = next(watch);
        digests[i] = digest(held[i]);
    }
    assert_ptr_equal(held[5], held[7]);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
    for (int i = 0; i < 12; i++) {
        assert_true(digest(held[i]) == digests[i]);
        hr_batch_release(&held[i]);
    }
}

/* ---- what is measured ---- */

static void check_proof(const json_t *record)
{
    int verified, rounds = count_segments(record, "host", &verified);
    assert_true(rounds >= 2);
    assert_int_equal(verified, 0);
    assert_int_equal(count_segments(record, "warm", &verified), rounds);
    assert_int_equal(verified, rounds);
    int cold = count_segments(record, "cold", &verified);
    const json_t *phases = json_object_get(record, "phases");
    if (is_in_memory()) {
        assert_int_equal(cold, 0);
        assert_non_null(strstr(text(phases, "cold"), "in memory"));
    } else {
        assert_int_equal(cold, rounds);
        assert_int_equal(verified, rounds);
        assert_null(json_object_get(phases, "cold"));
    }
    assert_non_null(strstr(text(phases, "device"), "on the CPU"));
}

static void check_alone(const json_t *record)
{
    size_t i;
    json_t *drain, *form, *depth;
    int all = 0, cold = 0;
    json_array_foreach(json_object_get(record, "drains"), i, drain)
    {
        assert_true(number(drain, "samples") >= BATCH * 3);
        assert_true(number(drain, "elapsed_s") > 0);
        cold += !strcmp(text(drain, "phase"), "cold");
        all += number(drain, "cores") == number(json_object_get(record, "machine"), "cores");
    }
    assert_int_equal(cold, is_in_memory() ? 0 : HR__WATCH_COLD_DRAINS);
    assert_int_equal(all, HR__WATCH_ALL_DRAINS + cold);
    const json_t *storage = json_object_get(record, "storage");
    assert_int_equal(json_array_size(json_object_get(storage, "depths")),
                     is_in_memory() ? 0 : HR__WATCH_DEPTHS);
    json_array_foreach(json_object_get(storage, "depths"), i, depth)
    {
        const json_t *parts = json_object_get(depth, "parts");
        assert_true(json_is_array(parts) && json_array_size(parts) <= HR_STORAGE_PARTS);
    }
    assert_true(number(storage, "memory_bytes_per_s") > 1e6);
    json_array_foreach(json_object_get(json_object_get(record, "headrace"), "forms"), i, form)
    {
        assert_true(number(form, "cpu_s") > 1e-6 && number(form, "cpu_s") < 0.1);
        assert_true(number(form, "bytes") > 100);
    }
    assert_int_equal(i, IMAGE_FORMS);
}

static void a_whole_run_is_recorded(void **state)
{
    struct hr_loader *loader = make_loader();
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    struct hr_stalls_watch *watch = open_watch(loader, 1.5);
    struct hr_batch *batch;
    while ((batch = next(watch))) {
        train(1000);
        hr_batch_release(&batch);
    }
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    json_t *record = record_of(watch);
    assert_true(!strcmp(text(record, "ended"), "limit") ||
                !strcmp(text(record, "ended"), "precise"));
    size_t i;
    json_t *segment;
    double last = -1, steps = 0, step_s = 0;
    json_array_foreach(json_object_get(record, "segments"), i, segment)
    {
        check_segment(segment);
        assert_true(number(segment, "begin_s") > last);
        last = number(segment, "begin_s");
        if (!strcmp(text(segment, "phase"), "host")) {
            steps += number(segment, "batches");
            step_s += number(segment, "elapsed_s");
        }
    }
    /* The step spins for a millisecond of the clock. */
    assert_true(step_s / steps >= 0.001);
    check_proof(record);
    check_alone(record);
    json_t *dataset = json_object_get(record, "dataset");
    assert_true(number(dataset, "samples") == SAMPLES);
    assert_true(number(dataset, "bytes") > 0);
    assert_int_equal(json_array_size(json_object_get(dataset, "sizes")), SAMPLES);
    assert_string_equal(text(json_object_get(record, "loader"), "kind"), "headrace");
    assert_true(number(record, "first_batch_s") > 0);
    json_decref(record);
    struct hr_stalls *stalls;
    struct hr_error error;
    if (hr_stalls_watch_result(watch, &stalls, &error))
        fail_msg("%s", error.message);
    hr_stalls_destroy(&stalls);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

static atomic_int is_awaited; /* whether the loop waits for a batch */

/* Makes two workers take 8 ms for a batch of 8, all of which the loop waits for: they go on only
 * then. */
static void slow(uint64_t index)
{
    while (!atomic_load(&is_awaited))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void waiting_is_seen(void **state)
{
    fixture_before_prepare = slow;
    atomic_store(&is_awaited, 1);
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 0.6);
    struct hr_batch *batch;
    while ((batch = next(watch))) {
        atomic_store(&is_awaited, 0);
        train(1000);
        atomic_store(&is_awaited, 1);
        hr_batch_release(&batch);
    }
    json_t *record = record_of(watch), *segment;
    double loaded = 0, longest_s = 0;
    size_t i, k;
    json_array_foreach(json_object_get(record, "segments"), i, segment)
    {
        const json_t *waits = json_object_get(segment, "wait_s");
        if (!strcmp(text(segment, "phase"), "host"))
            continue;
        assert_true(number(segment, "elapsed_s") / number(segment, "batches") >= 0.0075);
        loaded += number(segment, "batches");
        for (k = 0; k < json_array_size(waits); k++)
            longest_s = fmax(longest_s, json_number_value(json_array_get(waits, k)));
    }
    /* A busy machine makes batches longer, and where it keeps the loop from beginning to wait,
     * waits shorter. During a step, each worker still ends the sample it is at. */
    assert_true(loaded > 0);
    assert_true(longest_s >= 0.004);
    json_decref(record);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

static void a_cache_is_reported(void **state)
{
    struct hr_loader_options options;
    fixture_options(&options);
    options.external_order = 1;
    options.cache = "64MiB";
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    struct hr_stalls_watch *watch = open_watch(loader, 0.6);
    struct hr_batch *batch;
    while ((batch = next(watch))) {
        train(200);
        hr_batch_release(&batch);
    }
    json_t *record = record_of(watch);
    int verified;
    /* All measured samples have been offered to the cache, which has room for all. */
    assert_true(has_note(record, "100 % of the measured samples were in it"));
    assert_true(number(json_object_get(record, "loader"), "cache_bytes") == 64 << 20);
    assert_int_equal(count_segments(record, "cold", &verified) > 0, !is_in_memory());
    json_decref(record);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

static void containers_are_dropped_whole(void **state)
{
    struct hr_error error = {0};
    struct hr_pack_options pack_options;
    struct hr_pack_result result = {.size = sizeof result};
    struct hr_dataset *pack = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s.pack", fixture.dir);
    hr_pack_options_default(&pack_options);
    if (hr_pack_write(fixture.dataset, path, &pack_options, &result, &error) ||
        hr_dataset_open_pack(&pack, path, NULL, &error))
        fail_msg("%s", error.message);
    struct hr_loader_options options;
    struct hr_loader *loader;
    fixture_options(&options);
    options.external_order = 1;
    if (hr_loader_create(&loader, pack, fixture.recipe, &options, &error))
        fail_msg("%s", error.message);
    struct hr_stalls_watch *watch = open_watch(loader, 0.6);
    assert_true(watch->set.containers);
    assert_int_equal(watch->set.name_count, 1);
    assert_string_equal(watch->set.names[0], path);
    struct hr_batch *batch;
    while ((batch = next(watch)))
        hr_batch_release(&batch);
    json_t *record = record_of(watch);
    assert_true(has_note(record, "containers"));
    check_proof(record);
    json_decref(record);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
    hr_dataset_unref(&pack);
    assert_int_equal(unlink(path), 0);
}

static void a_small_dataset_is_never_called_cold(void **state)
{
    struct hr_dataset *few;
    struct hr_error error;
    const int64_t indices[] = {3, 5, 9, 11, 20, 27, 33, 40, 41, 42, 43, 50};
    assert_int_equal(hr_dataset_subset(&few, fixture.dataset, indices, 12, &error), 0);
    struct hr_loader_options options;
    struct hr_loader *loader;
    fixture_options(&options);
    options.external_order = 1;
    assert_int_equal(hr_loader_create(&loader, few, fixture.recipe, &options, &error), 0);
    struct hr_stalls_watch *watch = open_watch(loader, 0.5);
    struct hr_batch *batch;
    while ((batch = next(watch)))
        hr_batch_release(&batch);
    json_t *record = record_of(watch);
    int verified;
    assert_int_equal(count_segments(record, "cold", &verified), 0);
    assert_true(count_segments(record, "warm", &verified) >= 2);
    if (!is_in_memory())
        assert_non_null(strstr(text(json_object_get(record, "phases"), "cold"), "12 samples"));
    json_decref(record);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
    hr_dataset_unref(&few);
}

/* A thread that lives until the barrier was reached twice. */
static void *live(void *barrier)
{
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

static int cores_of(pthread_t thread, cpu_set_t *cores)
{
    assert_int_equal(pthread_getaffinity_np(thread, sizeof *cores, cores), 0);
    return CPU_COUNT(cores);
}

static void threads_get_their_cores_back(void **state)
{
    pthread_barrier_t barrier;
    pthread_t threads[3];
    cpu_set_t before[3], now, last;
    struct hr__confinement *confinement;
    struct hr_error error;
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, live, &barrier), 0);
    pthread_barrier_wait(&barrier);
    /* One of them may use only the last core. */
    cores_of(threads[0], &now);
    CPU_ZERO(&last);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &now)) {
            CPU_ZERO(&last);
            CPU_SET(core, &last);
        }
    assert_int_equal(pthread_setaffinity_np(threads[1], sizeof last, &last), 0);
    for (int i = 0; i < 3; i++)
        cores_of(threads[i], &before[i]);
    if (hr__confine(&confinement, 1, &error))
        fail_msg("%s", error.message);
    cores_of(threads[0], &now);
    for (int i = 0; i < 3; i++) {
        cpu_set_t same;
        assert_int_equal(cores_of(threads[i], &same), 1);
        assert_true(CPU_EQUAL(&same, &now));
    }
    hr__confine_end(&confinement);
    assert_null(confinement);
    for (int i = 0; i < 3; i++) {
        cores_of(threads[i], &now);
        assert_true(CPU_EQUAL(&now, &before[i]));
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

/* ---- leaving, errors, signals ---- */

/* Checks that the loader works as usual. */
static void check_loader_works(struct hr_loader *loader)
{
    struct hr_error error;
    int64_t indices[BATCH] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(hr_loader_start_epoch(loader, 7, &error), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(hr_loader_push(loader, indices, BATCH, &error), 0);
    assert_int_equal(hr_loader_push_end(loader, &error), 0);
    for (int i = 0; i < 3; i++) {
        struct hr_batch *batch = fixture_next(loader);
        fixture_check(&fixture, batch, 1, (uint64_t)i * BATCH);
        hr_batch_release(&batch);
    }
    struct hr_batch *none;
    assert_int_equal(hr_loader_next(loader, &none, &error), 0);
}

static void leaving_early_leaves_nothing(void **state)
{
    struct hr_loader *loader = make_loader();
    static const int counts[] = {0, 1, 4, 5, 6, 20, 47, 48, 60, 90};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct hr_stalls_watch *watch = open_watch(loader, 2);
        for (int n = 0; n < counts[i]; n++) {
            struct hr_batch *batch = next(watch);
            assert_non_null(batch);
            hr_batch_release(&batch);
        }
        json_t *record = record_of(watch);
        assert_string_equal(text(record, "ended"), "script");
        json_decref(record);
        struct hr_stalls *stalls;
        struct hr_error error;
        if (counts[i] < 20) {
            assert_int_equal(hr_stalls_watch_result(watch, &stalls, &error), -ENODATA);
            assert_null(stalls);
        }
        hr_stalls_watch_close(&watch);
        check_loader_works(loader);
    }
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    /* The slots planned for a loader without a watch. */
    assert_in_range(stats.slots, 1, 4);
    hr_loader_destroy(&loader);
}

static void a_bad_sample_ends_it(void **state)
{
    fixture_spoil(&fixture, 77, "no image");
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 5);
    struct hr_batch *batch;
    struct hr_error error = {0};
    int r;
    while ((r = hr_stalls_watch_next(watch, &batch, &error)) == 1)
        hr_batch_release(&batch);
    assert_true(r == -EBADMSG || r == -ENOTSUP);
    assert_non_null(strstr(error.message, "00077.jpg"));
    assert_null(next(watch));
    json_t *record = record_of(watch);
    assert_string_equal(text(record, "ended"), "script");
    assert_true(has_note(record, "00077.jpg"));
    json_decref(record);
    hr_stalls_watch_close(&watch);
    check_loader_works(loader);
    hr_loader_destroy(&loader);
}

static volatile sig_atomic_t signals;

static void count_signal(int number_)
{
    signals++;
}

static void signals_interrupt_and_lose_nothing(void **state)
{
    fixture_before_prepare = slow;
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART}, old;
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    struct itimerval every = {{0, 7000}, {0, 7000}}, never = {{0, 0}, {0, 0}};
    struct hr_loader *loader = make_loader();
    struct hr_stalls_watch *watch = open_watch(loader, 1);
    struct hr_batch *batch;
    struct hr_error error = {0};
    int r, interrupted = 0, batches = 0;
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
    while ((r = hr_stalls_watch_next(watch, &batch, &error))) {
        if (r == -EINTR) {
            assert_null(batch);
            interrupted++;
            /* Long steps never finish at this rate. */
            if (watch->stage == HR__WATCH_AFTER)
                setitimer(ITIMER_REAL, &never, NULL);
            continue;
        }
        if (r < 0)
            fail_msg("%s", error.message);
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        fixture_check(&fixture, batch, 1, view.number * BATCH);
        hr_batch_release(&batch);
        batches++;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    assert_true(signals > 0 && interrupted > 0 && batches > 4);
    json_t *record = record_of(watch);
    size_t i;
    json_t *segment;
    json_array_foreach(json_object_get(record, "segments"), i, segment) check_segment(segment);
    assert_true(i >= 1);
    json_decref(record);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

/* Each allocation fails once, at any time: the result is an error, or the memory was not needed. */
static void memory_runs_out(void **state)
{
    int refused = 0;
    for (uint64_t n = 1; n <= 60; n++) {
        struct hr_loader *loader = make_loader();
        struct hr_stalls_watch *watch;
        struct hr_batch *batch;
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 0);
        int r = hr_stalls_watch_open(&watch, loader, NULL, &error);
        for (int i = 0; !r && i < 8; i++) {
            r = hr_stalls_watch_next(watch, &batch, &error);
            hr_batch_release(&batch);
            r = r == 1 ? 0 : r;
        }
        hr__alloc_fail_at(0, 0);
        if (r) {
            assert_true(r == -ENOMEM || r == -EAGAIN);
            assert_true(strlen(error.message) > 5);
            refused++;
        }
        hr_stalls_watch_close(&watch);
        check_loader_works(loader);
        hr_loader_destroy(&loader);
    }
    assert_true(refused > 20);
}

static void what_cannot_be_watched_is_refused(void **state)
{
    struct hr_loader_options options;
    struct hr_stalls_watch_options watch_options;
    struct hr_stalls_watch *watch;
    struct hr_error error;
    fixture_options(&options);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_stalls_watch_open(&watch, loader, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "external_order"));
    hr_loader_destroy(&loader);
    options.external_order = 1;
    options.world_size = 2;
    loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_stalls_watch_open(&watch, loader, NULL, &error), -ENOTSUP);
    hr_loader_destroy(&loader);
    struct fixture masked = fixture;
    assert_int_equal(
        hr_dataset_with_masks(&masked.dataset, fixture.dataset, fixture.dataset, &error), 0);
    options.world_size = 1;
    loader = fixture_loader(&masked, &options);
    hr_dataset_unref(&masked.dataset);
    assert_int_equal(hr_stalls_watch_open(&watch, loader, NULL, &error), -ENOTSUP);
    assert_non_null(strstr(error.message, "has masks"));
    hr_loader_destroy(&loader);
    loader = make_loader();
    hr_stalls_watch_options_default(&watch_options);
    watch_options.time_s = -1;
    assert_int_equal(hr_stalls_watch_open(&watch, loader, &watch_options, &error), -EINVAL);
    assert_non_null(strstr(error.message, "time_s"));
    hr_stalls_watch_options_default(&watch_options);
    watch_options.precision = NAN;
    assert_int_equal(hr_stalls_watch_open(&watch, loader, &watch_options, &error), -EINVAL);
    assert_non_null(strstr(error.message, "precision"));
    assert_null(watch);
    /* Fewer batches than two rounds need: reported as soon as it is known, at the first segment. */
    hr_stalls_watch_options_default(&watch_options);
    watch_options.batches = 3;
    assert_int_equal(hr_stalls_watch_open(&watch, loader, &watch_options, &error), 0);
    struct hr_batch *batch;
    for (int i = 0; i < 5; i++) {
        batch = next(watch);
        hr_batch_release(&batch);
    }
    assert_int_equal(hr_stalls_watch_next(watch, &batch, &error), -EINVAL);
    hr_stalls_watch_close(&watch);
    assert_null(watch);
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_batch_is_right, setup, teardown),
        cmocka_unit_test_setup_teardown(cold_and_warm_are_of_the_same_batches, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_loop_writes_is_undone, setup, teardown),
        cmocka_unit_test_setup_teardown(views_are_watched, setup, teardown),
        cmocka_unit_test_setup_teardown(batches_outlive_watch_and_loader, setup, teardown),
        cmocka_unit_test_setup_teardown(a_whole_run_is_recorded, setup, teardown),
        cmocka_unit_test_setup_teardown(waiting_is_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cache_is_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(containers_are_dropped_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(a_small_dataset_is_never_called_cold, setup, teardown),
        cmocka_unit_test(threads_get_their_cores_back),
        cmocka_unit_test_setup_teardown(leaving_early_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bad_sample_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(signals_interrupt_and_lose_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_watched_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
