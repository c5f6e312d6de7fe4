/*
 * Loaders that share a cache with other processes: each sample is read once, by one of them;
 * batches equal those of a loader without a cache; changed files are misses; and no process waits
 * for one that was killed.
 *
 * Processes are forked before any thread starts, run whole epochs, and leave digests of their
 * batches and counts of their reads in shared memory.
 */
#include "fixture.h"

#include "base/clock.h"
#include "base/memory.h"
#include "dataset/dataset.h"

#include <headrace/cache.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define SAMPLES 61
#define EPOCHS  4
#define JOBS    3

static struct fixture fixture;
static char shm[64];

/* The task and results of a process. */
struct shared_job {
    /* task */
    char cache[96];
    uint64_t seed;
    int form, threads, direct, rank, world;
    int until; /* ends only when so many processes have made their loaders */
    uint64_t epochs;
    /* results */
    uint64_t digest[EPOCHS], read[EPOCHS], hits;
    uint64_t kept[EPOCHS]; /* source bytes in the cache when the epoch began */
    char message[256];     /* the error; "": none */
    _Atomic int batches;
};

/* Memory of all processes. */
static struct {
    struct shared_job jobs[JOBS];
    _Atomic int here; /* processes that are ready to start */
    _Atomic int made; /* processes that have made their loader */
} * common;

static uint64_t file_bytes(size_t index)
{
    struct stat status;
    assert_int_equal(stat(fixture.paths[index], &status), 0);
    return (uint64_t)status.st_size;
}

static uint64_t all_bytes(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < SAMPLES; i++)
        bytes += file_bytes(i);
    return bytes;
}

/* Sets a file's time to a minute ago plus some seconds. */
static void set_time(size_t index, int seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += seconds - 60;
    t.tv_nsec = 0;
    const struct timespec times[2] = {t, t};
    assert_int_equal(utimensat(AT_FDCWD, fixture.paths[index], times, 0), 0);
}

static int setup(void **state)
{
    fixture_make(&fixture, SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++)
        set_time(i, 0);
    fixture_settle();
    strcpy(shm, "/dev/shm/hr-test-XXXXXX");
    assert_non_null(mkdtemp(shm));
    setenv("HEADRACE_SHM", shm, 1);
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(common != MAP_FAILED);
    return 0;
}

/* Removes the segments of kept caches. */
static int remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", shm);
    return system(command);
}

static int teardown(void **state)
{
    munmap(common, sizeof *common);
    assert_int_equal(remove_all(), 0);
    fixture_remove(&fixture);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    return 0;
}

/* Returns the number of segments. */
static int segments(void)
{
    char command[200];
    int count = -1;
    snprintf(command, sizeof command,
             "find %s -type f -name '*.*' -not -path '*-loaders/*' | wc -l", shm);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &count), 1);
    pclose(f);
    return count;
}

static struct shared_job *job_of(int i, const char *cache)
{
    struct shared_job *job = &common->jobs[i];
    memset(job, 0, sizeof *job);
    snprintf(job->cache, sizeof job->cache, "%s", cache);
    job->seed = FIXTURE_SEED;
    job->form = HR_FORM_AUTO;
    job->threads = 2;
    job->world = 1;
    job->epochs = EPOCHS;
    return job;
}

static void job_options(struct hr_loader_options *options, const struct shared_job *job)
{
    fixture_options(options);
    options->cache = job->cache;
    options->cache_form = job->form;
    options->seed = job->seed;
    options->threads = job->threads;
    options->direct_io = job->direct;
    options->rank = job->rank;
    options->world_size = job->world;
    options->batch_size = 5;
}

static uint64_t bytes_read(const struct hr_loader *loader)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    return stats.bytes_read;
}

static uint64_t bytes_kept(const struct hr_loader *loader)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    return stats.cache_source_bytes;
}

static void digest_batch(uint64_t *digest, const struct hr_batch *batch)
{
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    *digest = XXH3_64bits_withSeed(view.images, view.count * view.spec.bytes, *digest);
    *digest = XXH3_64bits_withSeed(view.indices, view.count * sizeof *view.indices, *digest);
}

/* Runs the epochs of a job; stores an error in its message. */
static void run(struct shared_job *job)
{
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    struct hr_batch *batch;
    struct hr_error error = {0};
    job_options(&options, job);
    int r = hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error);
    common->made++;
    for (uint64_t epoch = 0; !r && epoch < job->epochs; epoch++) {
        uint64_t before = bytes_read(loader);
        job->kept[epoch] = bytes_kept(loader);
        r = hr_loader_start_epoch(loader, epoch, &error);
        while (!r && (r = hr_loader_next(loader, &batch, &error)) == 1) {
            digest_batch(&job->digest[epoch], batch);
            hr_batch_release(&batch);
            job->batches++;
            r = 0;
            if ((uint64_t)job->batches % hr_loader_batches(loader) == 0)
                break;
        }
        job->read[epoch] = bytes_read(loader) - before;
    }
    if (r < 0)
        snprintf(job->message, sizeof job->message, "%.250s", error.message);
    if (loader) {
        struct hr_loader_stats stats = {.size = sizeof stats};
        hr_loader_get_stats(loader, &stats);
        job->hits = stats.cache_hits;
    }
    while (common->made < job->until)
        sched_yield();
    hr_loader_destroy(&loader);
}

/* Starts a process; it waits until all have started. */
static pid_t spawn(int i, int of)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    common->here++;
    while (common->here < of)
        sched_yield();
    run(&common->jobs[i]);
    _exit(common->jobs[i].message[0] != 0);
}

static void wait_for(pid_t pid, int i)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("process %d: status %x: %s", i, (unsigned)status, common->jobs[i].message);
}

static void run_together(int count)
{
    pid_t pids[JOBS];
    common->here = common->made = 0;
    for (int i = 0; i < count; i++)
        pids[i] = spawn(i, count);
    for (int i = 0; i < count; i++)
        wait_for(pids[i], i);
}

static void run_one(int i)
{
    common->here = 0;
    wait_for(spawn(i, 1), i);
}

/* Compares a job's results with those of the same job without a cache. */
static void check(int i)
{
    static struct shared_job plain;
    plain = common->jobs[i];
    plain.cache[0] = 0;
    plain.batches = 0;
    memset(plain.digest, 0, sizeof plain.digest);
    common->jobs[JOBS - 1] = plain;
    run_one(JOBS - 1);
    assert_memory_equal(common->jobs[i].digest, common->jobs[JOBS - 1].digest, sizeof plain.digest);
}

static uint64_t read_of(int count, int epoch)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += common->jobs[i].read[epoch];
    return bytes;
}

/* Everything fits: two processes read each file once, for any orders, forms, threads and
 * readers. */
static void test_all_fits(void **state)
{
    uint64_t bytes = all_bytes();
    for (int way = 0; way < 8; way++) {
        for (int i = 0; i < 2; i++) {
            static const char *const texts[] = {"shm:all?size=64MiB&form=encoded",
                                                "shm:all?size=64MiB&form=planes",
                                                "shm:all?size=64MiB&form=indexed"};
            struct shared_job *job = job_of(i, texts[way % 3]);
            job->seed += way / 2 % 2 ? (uint64_t)i : 0;
            job->direct = way / 4;
            job->threads = 1 + (way + i) % 3;
        }
        run_together(2);
        uint64_t read = 0;
        for (int epoch = 0; epoch < EPOCHS; epoch++)
            read += read_of(2, epoch);
        assert_int_equal(read, bytes);
        check(0);
        check(1);
        assert_int_equal(segments(), 1);
        /* The next run starts with a full cache. */
        common->jobs[0].batches = 0;
        memset(common->jobs[0].digest, 0, sizeof common->jobs[0].digest);
        run_one(0);
        assert_int_equal(read_of(1, 0), 0);
        assert_int_equal(common->jobs[0].hits, EPOCHS * SAMPLES);
        check(0);
        assert_int_equal(remove_all(), 0);
        assert_int_equal(mkdir(shm, 0700), 0);
    }
}

/* Half fits: it is cached, and no process reads it again, however far apart the processes are. */
static void test_half_fits(void **state)
{
    uint64_t bytes = all_bytes();
    for (int way = 0; way < 4; way++) {
        char cache[96];
        snprintf(cache, sizeof cache, "shm:half?size=64MiB&share=%.6f&form=%s",
                 (double)bytes / 2 / (64 << 20), way % 2 ? "coefficients" : "encoded");
        for (int i = 0; i < 2; i++) {
            struct shared_job *job = job_of(i, cache);
            job->direct = way / 2;
            job->threads = 1 + (way + i) % 3;
        }
        run_together(2);
        assert_true(read_of(2, 0) >= bytes);
        for (int i = 0; i < 2; i++) {
            const struct shared_job *job = &common->jobs[i];
            for (int epoch = 0; epoch < EPOCHS; epoch++)
                assert_true(job->read[epoch] <= bytes - job->kept[epoch]);
            assert_in_range(job->kept[EPOCHS - 1], way % 2 ? bytes / 5 : bytes * 2 / 5, bytes / 2);
        }
        check(0);
        check(1);
        assert_int_equal(remove_all(), 0);
        assert_int_equal(mkdir(shm, 0700), 0);
    }
}

/* Ranks share a private cache, which ends with the last of them. */
static void test_ranks(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct shared_job *job = job_of(i, "64MiB");
        job->world = 2;
        job->rank = i;
        job->until = 2;
    }
    run_together(2);
    uint64_t read = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        read += read_of(2, epoch);
    assert_int_equal(read, all_bytes());
    check(0);
    check(1);
    assert_int_equal(segments(), 0);
}

/* Replaces a file by another picture. */
static void replace_file(size_t index, size_t by, int seconds)
{
    char command[512];
    snprintf(command, sizeof command, "cp %s %s.new && mv %s.new %s", fixture.paths[by],
             fixture.paths[index], fixture.paths[index], fixture.paths[index]);
    assert_int_equal(system(command), 0);
    set_time(index, seconds);
    fixture_settle();
}

/* A file that changes between two runs is one miss. */
static void test_changed_files(void **state)
{
    for (int direct = 0; direct < 2; direct++) {
        job_of(0, "shm:changes?size=64MiB")->direct = direct;
        run_one(0);
        replace_file(7, 8, 5 + direct);
        set_time(9, 5 + direct);
        fixture_settle();
        job_of(0, "shm:changes?size=64MiB")->direct = direct;
        run_one(0);
        assert_int_equal(read_of(1, 0), file_bytes(7) + file_bytes(9));
        assert_int_equal(read_of(1, 1) + read_of(1, 2), 0);
        check(0);
    }
}

static atomic_int to_replace;

/* Changes a file after its check and just before it is read. */
static void replace_before_read(const char *path)
{
    if (!strcmp(path, fixture.paths[5]) && atomic_exchange(&to_replace, 0))
        replace_file(5, 6, 30);
}

/* A file that changes while it is read is used, but not cached under its old stamp. */
static void test_changed_while_read(void **state)
{
    char copy[128], command[300];
    struct hr_error error;
    snprintf(copy, sizeof copy, "%s/original", fixture.dir);
    snprintf(command, sizeof command, "cp -p %s %s", fixture.paths[5], copy);
    assert_int_equal(system(command), 0);
    job_of(0, "shm:race?size=64MiB")->epochs = 1;
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    job_options(&options, &common->jobs[0]);
    to_replace = 1;
    fixture_before_read = replace_before_read;
    if (hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error) ||
        hr_loader_start_epoch(loader, 0, &error))
        fail_msg("%s", error.message);
    for (uint64_t b = 0; b < hr_loader_batches(loader); b++) {
        struct hr_batch *batch = fixture_next(loader);
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
    }
    assert_int_equal(to_replace, 0);
    hr_loader_destroy(&loader);
    fixture_before_read = NULL;
    /* With its old times, to the nanosecond. */
    snprintf(command, sizeof command, "mv %s %s", copy, fixture.paths[5]);
    assert_int_equal(system(command), 0);
    job_of(0, "shm:race?size=64MiB");
    run_one(0);
    assert_int_equal(read_of(1, 0), file_bytes(5));
    check(0);
}

/* A file that is being written is not admitted. */
static void test_fresh_files(void **state)
{
    job_of(0, "shm:fresh?size=64MiB")->epochs = 1;
    utimensat(AT_FDCWD, fixture.paths[11], NULL, 0);
    run_one(0);
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    job_of(0, "shm:fresh?size=64MiB");
    run_one(0);
    /* The test may have taken so long that the file was old by then. */
    assert_true(read_of(1, 0) == file_bytes(11) || !read_of(1, 0));
    assert_int_equal(read_of(1, 1), 0);
    check(0);
}

/* The others do not wait for a process that was killed in the middle of an epoch, and it leaves no
 * wrong byte. */
static void test_killed(void **state)
{
    for (int round = 0; round < 8; round++) {
        int when = 1 + round * 3;
        const char *text = round % 3 ? "shm:killed?size=64MiB&form=coefficients"
                                     : "shm:killed?size=64MiB&form=indexed";
        job_of(0, text)->direct = round % 2;
        job_of(1, text)->direct = round / 2 % 2;
        common->here = 0;
        pid_t victim = spawn(0, 2), other = spawn(1, 2);
        while (common->jobs[0].batches < when)
            sched_yield();
        kill(victim, SIGKILL);
        int status;
        assert_int_equal(waitpid(victim, &status, 0), victim);
        wait_for(other, 1);
        check(1);
        job_of(0, text);
        run_one(0);
        assert_int_equal(read_of(1, 1), 0);
        check(0);
        assert_int_equal(remove_all(), 0);
        assert_int_equal(mkdir(shm, 0700), 0);
    }
}

/* The next start removes the segments of killed ranks, even if it makes no segment itself. */
static void test_killed_ranks(void **state)
{
    common->here = 0;
    for (int rank = 0; rank < 2; rank++) {
        struct shared_job *job = job_of(rank, "64MiB");
        job->rank = rank;
        job->world = 2;
    }
    pid_t ranks[2] = {spawn(0, 2), spawn(1, 2)};
    while (!common->jobs[0].batches || !common->jobs[1].batches)
        sched_yield();
    for (int rank = 0; rank < 2; rank++)
        kill(ranks[rank], SIGSTOP);
    int there = segments(), killed = 0;
    for (int rank = 0; rank < 2; rank++) {
        int status;
        kill(ranks[rank], SIGKILL);
        assert_int_equal(waitpid(ranks[rank], &status, 0), ranks[rank]);
        killed += WIFSIGNALED(status);
    }
    /* The ranks may have ended before they were killed. */
    assert_true(there == 1 || killed < 2);
    assert_int_equal(segments(), there);
    job_of(0, "64MiB")->epochs = 1;
    run_one(0);
    check(0);
    assert_int_equal(segments(), 0);
}

/* A subset and its parent share items in two loaders of one process. */
static void test_subset(void **state)
{
    struct hr_error error;
    struct hr_dataset *whole = hr_dataset_ref(fixture.dataset), *subset;
    int64_t indices[20];
    uint64_t bytes = 0;
    job_of(0, "shm:subset?size=64MiB")->epochs = 1;
    run_one(0);
    for (int i = 0; i < 20; i++) {
        indices[i] = (i * 7 + 3) % SAMPLES;
        bytes += file_bytes((size_t)indices[i]);
    }
    assert_int_equal(hr_dataset_subset(&subset, whole, indices, 20, &error), 0);
    hr_dataset_unref(&fixture.dataset);
    fixture.dataset = subset;
    job_of(0, "shm:subset?size=64MiB");
    run_one(0);
    assert_int_equal(read_of(1, 0) + read_of(1, 1), 0);
    check(0);
    assert_int_equal(segments(), 1);
    assert_true(bytes > 0);
    fixture.dataset = whole;
    hr_dataset_unref(&subset);
}

static int lines;
static char line[512];

static void count_lines(void *arg, enum hr_log_level level, const char *message)
{
    if (!strstr(message, "cache"))
        return;
    lines++;
    snprintf(line, sizeof line, "%d %s", (int)level, message);
}

/* The last process that leaves a kept cache logs one line about it. */
static void test_kept_is_logged(void **state)
{
    struct hr_loader *loaders[2] = {NULL, NULL};
    struct hr_error error;
    lines = 0;
    hr_log_set(count_lines, NULL);
    for (int i = 0; i < 2; i++) {
        struct hr_loader_options options;
        struct hr_batch *batch;
        job_options(&options, job_of(i, "shm:told?size=64MiB"));
        if (hr_loader_create(&loaders[i], fixture.dataset, fixture.recipe, &options, &error) ||
            hr_loader_start_epoch(loaders[i], 0, &error))
            fail_msg("%s", error.message);
        batch = fixture_next(loaders[i]);
        hr_batch_release(&batch);
    }
    hr_loader_destroy(&loaders[0]);
    assert_int_equal(lines, 0);
    hr_loader_destroy(&loaders[1]);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(line, "headrace cache drop told"));
    hr_log_set(NULL, NULL);
}

/* In a forked child, the cache of a loader that has run is empty; a loader that has not run opens
 * the segment for itself. */
static void test_fork(void **state)
{
/* Sanitizers' runtimes do not survive a fork while other threads allocate. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    struct hr_loader_options options;
    struct hr_error error;
    struct hr_loader *ran = NULL, *fresh = NULL;
    job_options(&options, job_of(0, "shm:fork?size=64MiB"));
    if (hr_loader_create(&ran, fixture.dataset, fixture.recipe, &options, &error) ||
        hr_loader_create(&fresh, fixture.dataset, fixture.recipe, &options, &error) ||
        hr_loader_start_epoch(ran, 0, &error))
        fail_msg("%s", error.message);
    for (uint64_t b = 0; b < hr_loader_batches(ran); b++) {
        struct hr_batch *batch = fixture_next(ran);
        hr_batch_release(&batch);
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct hr_loader_stats stats = {.size = sizeof stats};
        hr_loader_get_stats(ran, &stats);
        int bad = stats.cache_bytes != 0;
        hr_loader_destroy(&ran);
        bad |= hr_loader_start_epoch(fresh, 1, &error) != 0;
        for (uint64_t b = 0; !bad && b < hr_loader_batches(fresh); b++) {
            struct hr_batch *batch = NULL;
            bad |= hr_loader_next(fresh, &batch, &error) != 1;
            hr_batch_release(&batch);
        }
        bad |= bytes_read(fresh) != 0;
        hr_loader_destroy(&fresh);
        _exit(bad);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    hr_loader_destroy(&fresh);
    hr_loader_destroy(&ran);
#endif
}

/* An allocation that fails anywhere is an error or costs a hit; nothing leaks. */
static void test_allocation_failures(void **state)
{
    int failures = 0;
    for (uint64_t n = 1; n < 60; n++) {
        struct shared_job *job = job_of(0, "shm:failing?size=8MiB");
        job->epochs = 1;
        hr__alloc_fail_at(n, 0);
        run(job);
        hr__alloc_fail_at(0, 0);
        failures += job->message[0] != 0;
        assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    }
    assert_true(failures > 10);
}

static int warm(const char *spec, struct hr_cache_warm_report *report, hr_progress_fn progress)
{
    struct hr_error error = {0};
    *report = (struct hr_cache_warm_report){.size = sizeof *report};
    int r = hr_cache_warm(fixture.dataset, spec, 3, progress, NULL, report, &error);
    assert_int_equal(r, error.code);
    if (r)
        assert_true(strlen(error.message) > 0);
    return r;
}

/* A cache that was filled before the run, in any form: the run reads nothing. */
static void test_warm(void **state)
{
    struct hr_cache_warm_report report;
    uint64_t bytes = all_bytes();
    for (int f = HR_FORM_AUTO; f < IMAGE_FORMS; f++) {
        char spec[96];
        snprintf(spec, sizeof spec, "shm:warm%d?size=64MiB&form=%s", f + 1,
                 f == HR_FORM_AUTO ? "auto" : hr_form_name((enum hr_form)f));
        assert_int_equal(warm(spec, &report, NULL), 0);
        assert_int_equal(report.samples, SAMPLES);
        assert_int_equal(report.cached, SAMPLES);
        assert_int_equal(report.read_bytes, bytes);
        assert_int_equal(report.bad, 0);
        /* There is room for the largest form, so `auto` chooses the fastest. */
        assert_int_equal(report.items_of_form[f == HR_FORM_AUTO ? HR_FORM_PLANES : f], SAMPLES);
        assert_true(report.used_bytes > bytes / 2);
        assert_int_equal(warm(spec, &report, NULL), 0);
        assert_int_equal(report.cached, SAMPLES);
        assert_int_equal(report.read_bytes, 0);
        job_of(0, spec);
        run_one(0);
        assert_int_equal(read_of(1, 0), 0);
        assert_int_equal(common->jobs[0].hits, EPOCHS * SAMPLES);
        check(0);
    }
}

static uint64_t items_of(const struct hr_cache_warm_report *report)
{
    uint64_t items = 0;
    for (int f = 0; f < HR_FORMS; f++)
        items += report->items_of_form[f];
    return items;
}

/* Samples that do not fit are not read repeatedly. Those that fit are there, and the rest of the
 * space is used for larger forms; which, depends on how fast they were measured. */
static void test_warm_part(void **state)
{
    struct hr_cache_warm_report report;
    uint64_t bytes = all_bytes();
    for (int tenths = 3; tenths <= 23; tenths += 4) {
        char spec[96];
        snprintf(spec, sizeof spec, "shm:part%d?size=64MiB&share=%.6f", tenths,
                 (double)bytes * tenths / 10 / (64 << 20));
        assert_int_equal(warm(spec, &report, NULL), 0);
        assert_true(report.used_bytes <= bytes * (unsigned)tenths / 10 + 64);
        assert_true(report.used_bytes >= bytes * (unsigned)tenths / 10 * 9 / 10);
        assert_int_equal(items_of(&report), report.cached);
        assert_true(tenths < 10 || report.cached == SAMPLES);
        job_of(0, spec);
        run_one(0);
        assert_int_equal(common->jobs[0].hits, EPOCHS * report.cached);
        check(0);
    }
}

/* Called before the first sample and then now and then: the third call cancels. */
static int cancel(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    assert_int_equal(total, SAMPLES);
    return 1;
}

static void slow_read(const char *path)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void test_warm_fails(void **state)
{
    struct hr_cache_warm_report report;
    assert_int_equal(warm("64MiB", &report, NULL), -EINVAL);
    assert_int_equal(warm("shm:x", &report, NULL), -EINVAL);
    fixture_before_read = slow_read;
    assert_int_equal(warm("shm:cancelled?size=64MiB", &report, cancel), -ECANCELED);
    fixture_before_read = NULL;
    assert_true(report.cached < SAMPLES);
    uint64_t cached = report.cached, read = report.read_bytes;
    assert_int_equal(warm("shm:cancelled?size=64MiB", &report, NULL), 0);
    assert_int_equal(report.cached, SAMPLES);
    assert_int_equal(report.read_bytes, all_bytes() - read);
    assert_true(cached > 0 || !read);
    fixture_spoil(&fixture, 3, NULL);
    assert_int_equal(truncate(fixture.paths[4], 200), 0);
    set_time(4, 0);
    assert_int_equal(warm("shm:bad?size=64MiB&form=coefficients", &report, NULL), 0);
    assert_int_equal(report.bad, 2);
    assert_int_equal(report.cached, SAMPLES - 2);
    for (uint64_t n = 1; n < 60; n++) {
        hr__alloc_fail_at(n, 0);
        int r = warm("shm:failing?size=8MiB", &report, NULL);
        hr__alloc_fail_at(0, 0);
        assert_true(r == 0 || r == -ENOMEM);
        assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_fits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_fits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_while_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fresh_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_subset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_is_logged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_warm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_warm_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_warm_fails, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
