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
#include "worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 32

/* Runs one epoch; `learn`: stores the reference, otherwise compares with it. */
static void run_epoch(struct soak_worker *job, uint64_t epoch, int learn)
{
    struct hr_error error;
    struct hr_batch *batch;
    struct hr_batch_view view;
    int r = hr_loader_start_epoch(job->loader, epoch, &error);
    if (r)
        worker_die(&error);
    while ((r = hr_loader_next(job->loader, &batch, &error)) == 1) {
        hr_batch_get(batch, &view);
        for (size_t i = 0; i < view.count; i++) {
            uint64_t index = (uint64_t)view.indices[i];
            uint64_t sum = worker_checksum(&view, i);
            if (learn)
                job->reference[index] = sum;
            else if (sum != job->reference[index])
                worker_complain("its pixels are wrong", epoch, index);
        }
        hr_batch_release(&batch);
    }
    if (r)
        worker_die(&error);
}

static int make_reference(const char *folder, const char *path)
{
    struct soak_worker job;
    struct hr_loader_options options;
    hr_loader_options_default(&options);
    options.batch_size = 16;
    worker_open(&job, folder, worker_crop(SIDE), &options, 1);
    run_epoch(&job, 0, 1);
    int status = worker_write(path, job.reference, hr_dataset_count(job.dataset));
    worker_close(&job);
    return status;
}

static int run(char **argv, int argc)
{
    struct soak_worker job;
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
    worker_open(&job, argv[1], worker_crop(SIDE), &options, 1);
    worker_read(argv[3], job.reference, hr_dataset_count(job.dataset));
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
    worker_close(&job);
    return 0;
}

int main(int argc, char **argv)
{
    worker_begin();
    if (argc == 4 && !strcmp(argv[2], "reference"))
        return make_reference(argv[1], argv[3]);
    if ((argc == 7 || argc == 8) && !strcmp(argv[2], "run"))
        return run(argv, argc);
    fprintf(stderr, "usage: soak_cache_worker FOLDER reference FILE | FOLDER run FILE SPEC SEED "
                    "EPOCHS [RANKS]\n");
    return 2;
}
