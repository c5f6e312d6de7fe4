/*
 * Measures the cost of taking a batch that an agent has ready: the CPU time of the job's thread
 * for next and release.
 *
 *   handover SOCKET DATA BATCHES PAUSE_MS [touch]
 *
 * The job is slower than the agent: it sleeps PAUSE_MS per batch, so that it never waits for one.
 * Batches that it had to wait for are counted separately and left out. It sleeps for several
 * batches at once and then takes them one after the other. The first of these finds the
 * processor's caches as the agent left them, and is also reported separately. Batches are 64
 * samples of 224 x 224 as float32. `touch`: one byte of each page of the images is read before
 * the release, so that page faults are included. Prints one line of JSON: median and
 * 99th percentile in microseconds, and the included time of reading the clock itself.
 */
#include <headrace/headrace.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* BURST: batches after a pause, fewer than the window of a stream. */
enum { BATCH = 64, SIDE = 224, WARM_UP = 20, BURST = 5, CLOCK_READS = 10000 };

/* If taking a batch took longer, it was not ready. */
#define WAITED_NS 50000

struct handover_job {
    struct hr_dataset *dataset;
    struct hr_loader *loader;
    uint64_t epoch;
    int touch;
    unsigned sum; /* of the bytes that were read, so that the reads are not optimised away */
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "handover: %s: %s\n", what, why);
    exit(3);
}

static double thread_cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static struct hr_recipe *training_recipe(void)
{
    struct hr_operation ops[4];
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&ops[0], HR_RANDOM_RESIZED_CROP);
    ops[0].u.random_resized_crop.height = ops[0].u.random_resized_crop.width = SIDE;
    hr_operation_default(&ops[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&ops[2], HR_TO_DTYPE);
    ops[2].u.to_dtype.dtype = HR_FLOAT32;
    ops[2].u.to_dtype.scale = 1;
    hr_operation_default(&ops[3], HR_NORMALIZE);
    for (int c = 0; c < 3; c++) {
        ops[3].u.normalize.mean[c] = 0.45;
        ops[3].u.normalize.std[c] = 0.225;
    }
    if (hr_recipe_create(&recipe, ops, 4, NULL, &error))
        die("recipe", error.message);
    return recipe;
}

static void attach(struct handover_job *job, const char *socket, const char *data)
{
    struct hr_error error;
    struct hr_loader_options options;
    struct hr_recipe *recipe = training_recipe();
    if (hr_dataset_open_folder(&job->dataset, data, NULL, &error))
        die(data, error.message);
    hr_loader_options_default(&options);
    options.agent = socket;
    options.batch_size = BATCH;
    options.shuffle = 1;
    options.drop_last = 1;
    if (hr_loader_create(&job->loader, job->dataset, recipe, &options, &error) ||
        hr_loader_start_epoch(job->loader, 0, &error))
        die(socket, error.message);
    hr_recipe_unref(&recipe);
}

static uint64_t waited_ns(const struct handover_job *job)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(job->loader, &stats);
    return stats.wait_ns;
}

static void touch_pages(struct handover_job *job, const struct hr_batch_view *view)
{
    const volatile unsigned char *bytes = view->images;
    size_t length = view->count * view->spec.bytes, page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < length; i += page)
        job->sum += bytes[i];
}

/* Takes one batch. Returns the microseconds; negative if the batch was not ready. */
static double take(struct handover_job *job)
{
    for (;;) {
        struct hr_batch *batch;
        struct hr_batch_view view;
        struct hr_error error;
        uint64_t before = waited_ns(job);
        double begin = thread_cpu_us();
        int r = hr_loader_next(job->loader, &batch, &error);
        if (r == 1) {
            if (job->touch) {
                hr_batch_get(batch, &view);
                touch_pages(job, &view);
            }
            hr_batch_release(&batch);
            double us = thread_cpu_us() - begin;
            return waited_ns(job) - before > WAITED_NS ? -1 : us;
        }
        if (r < 0 && r != -EINTR)
            die("next", error.message);
        if (!r && hr_loader_start_epoch(job->loader, ++job->epoch, &error))
            die("epoch", error.message);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the time of two readings of the clock, in microseconds. */
static double clock_cost_us(void)
{
    double begin = thread_cpu_us();
    for (int i = 0; i < CLOCK_READS; i++)
        (void)thread_cpu_us();
    return (thread_cpu_us() - begin) / CLOCK_READS;
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 6 || (argc == 6 && strcmp(argv[5], "touch") != 0)) {
        fprintf(stderr, "usage: handover SOCKET DATA BATCHES PAUSE_MS [touch]\n");
        return 2;
    }
    size_t wanted = strtoul(argv[3], NULL, 10), count = 0, firsts = 0, waited = 0;
    useconds_t pause_us = (useconds_t)(strtod(argv[4], NULL) * 1e3 * BURST);
    struct handover_job job = {.touch = argc == 6};
    double *us = malloc((wanted + BURST) * sizeof *us);
    double *first = malloc((wanted + BURST) * sizeof *first);
    if (!us || !first || !wanted)
        die("BATCHES", "there must be some, and memory for their times");
    attach(&job, argv[1], argv[2]);
    for (int i = 0; i < WARM_UP; i++)
        (void)take(&job);
    while (count < wanted) {
        usleep(pause_us);
        for (int i = 0; i < BURST; i++) {
            double t = take(&job);
            if (t >= 0)
                us[count++] = t;
            else if (++waited > wanted)
                die("PAUSE_MS", "the agent is slower than this job: pause for longer");
            if (t >= 0 && i == 0)
                first[firsts++] = t;
        }
    }
    qsort(us, count, sizeof *us, compare);
    qsort(first, firsts, sizeof *first, compare);
    printf("{\"median_us\": %.3f, \"p99_us\": %.3f, \"first_us\": %.3f, \"clock_us\": %.3f, "
           "\"batches\": %zu, \"waited\": %zu, \"touched\": %d, \"sum\": %u}\n",
           us[count / 2], us[(count - 1) * 99 / 100], firsts ? first[firsts / 2] : 0,
           clock_cost_us(), count, waited, job.touch, job.sum);
    free(first);
    free(us);
    hr_loader_destroy(&job.loader);
    hr_dataset_unref(&job.dataset);
    return 0;
}
