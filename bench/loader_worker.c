/*
 * Our side of bench/loader.py without Python: reads an image folder through the loader with a
 * consumer that does nothing, or times opening a folder. Prints one line of JSON per measurement.
 *
 *   loader_worker epochs DATA THREADS BATCH EPOCHS   each epoch: seconds, CPU
 *                              seconds, samples, resident bytes afterwards
 *   loader_worker list DATA    names and classes, no index
 *   loader_worker scan DATA    with sizes and times, no index
 *   loader_worker index DATA   writes the index file
 *   loader_worker reopen DATA  opens through the index file
 *   loader_worker open PATH    opens a dataset of any kind and reads the first sample
 *   loader_worker first DATA THREADS BATCH   opens through the index file and
 *                              waits for the first batch
 */
#include <headrace/headrace.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void die(const struct hr_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    exit(3);
}

static long long resident_bytes(void)
{
    long long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%lld %lld", &size, &resident) != 2)
            resident = 0;
        fclose(f);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

static struct hr_dataset *open_folder(const char *path, enum hr_index_policy index, int sizes)
{
    struct hr_dataset_options options;
    struct hr_dataset *dataset;
    struct hr_error error;
    hr_dataset_options_default(&options);
    options.index = index;
    options.wait_sizes = sizes;
    if (hr_dataset_open_folder(&dataset, path, &options, &error))
        die(&error);
    return dataset;
}

static void time_open(const char *path, enum hr_index_policy index, int sizes)
{
    double start = seconds(CLOCK_MONOTONIC);
    struct hr_dataset *dataset = open_folder(path, index, sizes);
    double took = seconds(CLOCK_MONOTONIC) - start;
    struct hr_dataset_info info = {.size = sizeof info};
    hr_dataset_get_info(dataset, &info);
    printf("{\"seconds\": %.6f, \"samples\": %zu, \"from_index\": %d, \"memory_bytes\": %llu}\n",
           took, hr_dataset_count(dataset), info.from_index, (unsigned long long)info.memory_bytes);
    hr_dataset_unref(&dataset);
}

static struct hr_recipe *training_recipe(void)
{
    struct hr_operation ops[4];
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&ops[0], HR_RANDOM_RESIZED_CROP);
    ops[0].u.random_resized_crop.height = ops[0].u.random_resized_crop.width = 224;
    hr_operation_default(&ops[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&ops[2], HR_TO_DTYPE);
    ops[2].u.to_dtype.dtype = HR_FLOAT32;
    ops[2].u.to_dtype.scale = 1;
    hr_operation_default(&ops[3], HR_NORMALIZE);
    for (int c = 0; c < 3; c++) {
        ops[3].u.normalize.mean[c] = 0.45;
        ops[3].u.normalize.std[c] = 0.225;
    }
    struct hr_recipe_options options;
    hr_recipe_options_default(&options);
    if (hr_recipe_create(&recipe, ops, 4, &options, &error))
        die(&error);
    return recipe;
}

static struct hr_loader *make_loader(struct hr_dataset *dataset, int threads, int batch)
{
    struct hr_recipe *recipe = training_recipe();
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr_error error;
    hr_loader_options_default(&options);
    options.threads = threads;
    options.batch_size = batch;
    options.shuffle = 1;
    options.drop_last = 1;
    if (hr_loader_create(&loader, dataset, recipe, &options, &error))
        die(&error);
    hr_recipe_unref(&recipe);
    return loader;
}

/* Takes the next batch. Returns its samples; 0 at the end. */
static size_t next_batch(struct hr_loader *loader)
{
    struct hr_batch *batch;
    struct hr_batch_view view;
    struct hr_error error;
    int r;
    do
        r = hr_loader_next(loader, &batch, &error);
    while (r == -EINTR);
    if (r < 0)
        die(&error);
    if (!r)
        return 0;
    hr_batch_get(batch, &view);
    hr_batch_release(&batch);
    return view.count;
}

/* Holds batches until every planned slot is in use. This is the most memory that the loader takes;
 * otherwise its use depends on when the consumer happens to be late. Returns their samples. */
static size_t fill_queue(struct hr_loader *loader)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    struct hr_batch *held[2] = {NULL};
    struct hr_error error;
    size_t samples = 0;
    for (int i = 0; i < 2; i++)
        if (hr_loader_next(loader, &held[i], &error) > 0) {
            struct hr_batch_view view;
            hr_batch_get(held[i], &view);
            samples += view.count;
        }
    /* At most ten seconds: a short epoch has no more batches to prepare. */
    for (int i = 0; held[1] && i < 10000; i++) {
        hr_loader_get_stats(loader, &stats);
        if (stats.ready_batches >= (uint64_t)stats.batches_ahead)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    hr_batch_release(&held[0]);
    hr_batch_release(&held[1]);
    return samples;
}

static void run_epochs(const char *path, int threads, int batch, int epochs)
{
    struct hr_error error;
    struct hr_dataset *dataset = open_folder(path, HR_INDEX_USER_CACHE, 1);
    struct hr_loader *loader = make_loader(dataset, threads, batch);
    for (int epoch = 0; epoch < epochs; epoch++) {
        double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
        size_t samples = 0, n;
        if (hr_loader_start_epoch(loader, (uint64_t)epoch, &error))
            die(&error);
        if (!epoch)
            samples = fill_queue(loader);
        while ((n = next_batch(loader)))
            samples += n;
        struct hr_loader_stats stats = {.size = sizeof stats};
        struct hr_dataset_info info = {.size = sizeof info};
        hr_loader_get_stats(loader, &stats);
        hr_dataset_get_info(dataset, &info);
        printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"samples\": %zu, "
               "\"resident_bytes\": %lld, \"slots_bytes\": %llu, \"index_bytes\": %llu, "
               "\"io_uring\": %d}\n",
               seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, samples,
               resident_bytes(), (unsigned long long)(stats.slots * stats.slot_bytes),
               (unsigned long long)info.memory_bytes, stats.io_uring);
        fflush(stdout);
    }
    hr_loader_destroy(&loader);
    hr_dataset_unref(&dataset);
}

static void first_batch(const char *path, int threads, int batch)
{
    struct hr_error error;
    double start = seconds(CLOCK_MONOTONIC);
    struct hr_dataset *dataset = open_folder(path, HR_INDEX_USER_CACHE, 0);
    struct hr_loader *loader = make_loader(dataset, threads, batch);
    if (hr_loader_start_epoch(loader, 0, &error))
        die(&error);
    size_t n = next_batch(loader);
    printf("{\"seconds\": %.6f, \"samples\": %zu}\n", seconds(CLOCK_MONOTONIC) - start, n);
    hr_loader_destroy(&loader);
    hr_dataset_unref(&dataset);
}

static void open_and_read(const char *path)
{
    struct hr_dataset *dataset;
    struct hr_error error;
    void *bytes;
    size_t length;
    double start = seconds(CLOCK_MONOTONIC);
    if (hr_dataset_open(&dataset, path, NULL, &error) ||
        hr_dataset_read(dataset, 0, &bytes, &length, &error))
        die(&error);
    printf("{\"seconds\": %.6f, \"samples\": %zu, \"bytes\": %zu}\n",
           seconds(CLOCK_MONOTONIC) - start, hr_dataset_count(dataset), length);
    hr_bytes_free(bytes);
    hr_dataset_unref(&dataset);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 2 ? argv[1] : "";
    if (!strcmp(verb, "epochs") && argc == 6)
        run_epochs(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
    else if (!strcmp(verb, "first") && argc == 5)
        first_batch(argv[2], atoi(argv[3]), atoi(argv[4]));
    else if (!strcmp(verb, "open"))
        open_and_read(argv[2]);
    else if (!strcmp(verb, "list"))
        time_open(argv[2], HR_INDEX_NONE, 0);
    else if (!strcmp(verb, "scan"))
        time_open(argv[2], HR_INDEX_NONE, 1);
    else if (!strcmp(verb, "index"))
        time_open(argv[2], HR_INDEX_USER_CACHE, 1);
    else if (!strcmp(verb, "reopen"))
        time_open(argv[2], HR_INDEX_USER_CACHE, 0);
    else {
        fprintf(stderr, "usage: see the head of bench/loader_worker.c\n");
        return 2;
    }
    return 0;
}
