/*
 * One job of the soak of caches: trains on a folder through a cache, epoch after epoch, and
 * compares the pixels of every sample with those read without a cache.
 *
 *   soak_cache_worker FOLDER reference FILE
 *       writes a checksum of each sample's pixels, read without a cache
 *   soak_cache_worker FOLDER run FILE SPEC SEED EPOCHS [RANKS]
 *       prints a line of JSON for each epoch; exit status 9 if pixels are wrong
 *
 * RANKS > 1: this is rank 0 of RANKS on this host, so a cache without a name is shared with the
 * others that the same process started.
 */
#include <headrace/headrace.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SIDE 32

static _Noreturn void die(const struct hr_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    exit(3);
}

static void tell(void *arg, enum hr_log_level level, const char *message)
{
    if (level == HR_LOG_WARNING)
        fprintf(stderr, "log: %s\n", message);
}

/* A crop that depends only on the sample. */
static struct hr_recipe *make_recipe(void)
{
    struct hr_operation operations[2];
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&operations[0], HR_CENTER_CROP);
    operations[0].u.center_crop.height = operations[0].u.center_crop.width = SIDE;
    hr_operation_default(&operations[1], HR_TO_DTYPE);
    operations[1].u.to_dtype.dtype = HR_UINT8;
    if (hr_recipe_create(&recipe, operations, 2, NULL, &error))
        die(&error);
    return recipe;
}

struct cache_job {
    struct hr_dataset *dataset;
    struct hr_loader *loader;
    uint64_t *reference; /* by sample */
};

static void open_job(struct cache_job *job, const char *folder,
                     const struct hr_loader_options *options)
{
    struct hr_error error;
    struct hr_dataset_options opening;
    hr_dataset_options_default(&opening);
    opening.index = HR_INDEX_NONE;
    struct hr_recipe *recipe = make_recipe();
    if (hr_dataset_open_folder(&job->dataset, folder, &opening, &error) ||
        hr_loader_create(&job->loader, job->dataset, recipe, options, &error))
        die(&error);
    hr_recipe_unref(&recipe);
    job->reference = calloc(hr_dataset_count(job->dataset), sizeof *job->reference);
    if (!job->reference)
        exit(3);
}

/* Runs one epoch; `learn`: stores the reference, otherwise compares with it. */
static void run_epoch(struct cache_job *job, uint64_t epoch, int learn)
{
    struct hr_error error;
    struct hr_batch *batch;
    struct hr_batch_view view;
    int r = hr_loader_start_epoch(job->loader, epoch, &error);
    if (r)
        die(&error);
    while ((r = hr_loader_next(job->loader, &batch, &error)) == 1) {
        hr_batch_get(batch, &view);
        for (size_t i = 0; i < view.count; i++) {
            uint64_t index = (uint64_t)view.indices[i];
            uint64_t sum = XXH3_64bits((char *)view.images + i * view.spec.bytes, view.spec.bytes);
            if (learn) {
                job->reference[index] = sum;
            } else if (sum != job->reference[index]) {
                fprintf(stderr, "epoch %" PRIu64 ": sample %" PRIu64 " has wrong pixels\n", epoch,
                        index);
                exit(9);
            }
        }
        hr_batch_release(&batch);
    }
    if (r)
        die(&error);
}

static void close_job(struct cache_job *job)
{
    hr_loader_destroy(&job->loader);
    hr_dataset_unref(&job->dataset);
    free(job->reference);
}

static int make_reference(const char *folder, const char *path)
{
    struct cache_job job;
    struct hr_loader_options options;
    hr_loader_options_default(&options);
    options.batch_size = 16;
    open_job(&job, folder, &options);
    run_epoch(&job, 0, 1);
    size_t count = hr_dataset_count(job.dataset);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(job.reference, sizeof *job.reference, count, f) != count || fclose(f)) {
        perror(path);
        return 3;
    }
    close_job(&job);
    return 0;
}

static void read_reference(struct cache_job *job, const char *path)
{
    size_t count = hr_dataset_count(job->dataset);
    FILE *f = fopen(path, "rb");
    if (!f || fread(job->reference, sizeof *job->reference, count, f) != count) {
        perror(path);
        exit(3);
    }
    fclose(f);
}

static int run(char **argv, int argc)
{
    struct cache_job job;
    struct hr_loader_options options;
    hr_loader_options_default(&options);
    options.batch_size = 16;
    options.shuffle = 1;
    options.threads = 2;
    options.cache = argv[4];
    options.seed = strtoull(argv[5], NULL, 10);
    uint64_t epochs = strtoull(argv[6], NULL, 10), before = 0;
    options.epochs = epochs;
    if (argc > 7)
        options.world_size = options.local_world_size = atoi(argv[7]);
    open_job(&job, argv[1], &options);
    read_reference(&job, argv[3]);
    for (uint64_t epoch = 0; epoch < epochs; epoch++) {
        struct hr_loader_stats stats = {.size = sizeof stats};
        run_epoch(&job, epoch, 0);
        hr_loader_get_stats(job.loader, &stats);
        printf("{\"epoch\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"read\": %" PRIu64
               ", \"hits\": %" PRIu64 ", \"cached\": %" PRIu64 "}\n",
               epoch, stats.samples, stats.bytes_read - before, stats.cache_hits,
               stats.cache_bytes);
        fflush(stdout);
        before = stats.bytes_read;
    }
    close_job(&job);
    return 0;
}

int main(int argc, char **argv)
{
    hr_log_set(tell, NULL);
    if (argc == 4 && !strcmp(argv[2], "reference"))
        return make_reference(argv[1], argv[3]);
    if ((argc == 7 || argc == 8) && !strcmp(argv[2], "run"))
        return run(argv, argc);
    fprintf(stderr, "usage: soak_cache_worker FOLDER reference FILE | FOLDER run FILE SPEC SEED "
                    "EPOCHS [RANKS]\n");
    return 2;
}
