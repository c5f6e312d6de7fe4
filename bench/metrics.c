/*
 * What it costs a loader to publish its status, for bench/metrics.py: CPU time of the consumer's
 * thread, which otherwise does it twice a second.
 *
 *   bench_metrics DATA TIMES   one line of JSON: microseconds of each of five groups of TIMES
 */
#include "loader/inside.h"
#include "loader/status.h"

#include <headrace/headrace.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define GROUPS 5

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void must(int result, const struct hr_error *error)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s\n", error->message);
    exit(3);
}

/* A loader within an epoch, whose threads soon have nothing to do. */
static struct hr_loader *begin(const char *data)
{
    struct hr_dataset *dataset = NULL;
    struct hr_recipe *recipe = NULL;
    struct hr_loader *loader = NULL;
    struct hr_batch *batch = NULL;
    struct hr_loader_options options;
    struct hr_operation crop;
    struct hr_error error = {0};
    hr_operation_default(&crop, HR_CENTER_CROP);
    crop.u.center_crop.height = crop.u.center_crop.width = 64;
    must(hr_dataset_open(&dataset, data, NULL, &error), &error);
    must(hr_recipe_create(&recipe, &crop, 1, NULL, &error), &error);
    hr_loader_options_default(&options);
    options.batch_size = 16;
    must(hr_loader_create(&loader, dataset, recipe, &options, &error), &error);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&dataset);
    must(hr_loader_start_epoch(loader, 0, &error), &error);
    must(hr_loader_next(loader, &batch, &error), &error);
    hr_batch_release(&batch);
    return loader;
}

int main(int argc, char **argv)
{
    long times = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (times < 1) {
        fprintf(stderr, "usage: bench_metrics DATA TIMES\n");
        return 2;
    }
    struct hr_loader *loader = begin(argv[1]);
    printf("{\"publication_us\": [");
    for (int group = 0; group < GROUPS; group++) {
        double start = cpu_us();
        for (long i = 0; i < times; i++) {
            loader->publication.due_ns = 0;
            hr__status_tick(loader);
        }
        printf("%s%.3f", group ? ", " : "", (cpu_us() - start) / (double)times);
    }
    printf("]}\n");
    hr_loader_destroy(&loader);
    return 0;
}
