/*
 * The effect of a cache on a run that preparation limits, epoch by epoch: without a cache, and with
 * all or half of the bytes in each form. The files are in the page cache, so that only preparation
 * counts, and the consumer does nothing.
 *
 *   bench_caching FOLDER [SAMPLES [EPOCHS [THREADS]]]
 *
 * Prints for each epoch the samples per second of CPU time (which other programs on the machine
 * hardly affect), and the epoch after which the total CPU time is below that of as many median
 * epochs without a cache. Items are converted during the run, so the figures include conversions.
 */
#include <headrace/headrace.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_EPOCHS 200

static const struct setting {
    const char *name;
    int form;
    double budget; /* of the bytes of all files */
} settings[] = {
    {"no cache", HR_FORM_ENCODED, 0},        {"encoded, all", HR_FORM_ENCODED, 1.1},
    {"indexed, all", HR_FORM_INDEXED, 1.1},  {"coefficients, all", HR_FORM_COEFFICIENTS, 1.6},
    {"planes, all", HR_FORM_PLANES, 8},      {"encoded, half", HR_FORM_ENCODED, 0.5},
    {"indexed, half", HR_FORM_INDEXED, 0.5}, {"coefficients, half", HR_FORM_COEFFICIENTS, 0.5},
    {"auto, half", HR_FORM_AUTO, 0.5},       {"auto, twice", HR_FORM_AUTO, 2},
};
#define SETTINGS (sizeof settings / sizeof *settings)

struct caching_run {
    double cpu_s[MAX_EPOCHS]; /* total at the end of each epoch */
    struct hr_loader_stats stats;
};

static _Noreturn void die(const struct hr_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    exit(3);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Opens a folder; takes evenly spaced samples of it. */
static struct hr_dataset *open_samples(const char *path, size_t most)
{
    struct hr_dataset_options options;
    struct hr_dataset *all, *some;
    struct hr_error error;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    options.wait_sizes = 1;
    if (hr_dataset_open_folder(&all, path, &options, &error))
        die(&error);
    size_t count = hr_dataset_count(all), n = count < most ? count : most;
    int64_t *indices = malloc((n + !n) * sizeof *indices);
    if (!indices)
        exit(3);
    for (size_t i = 0; i < n; i++)
        indices[i] = (int64_t)(i * count / n);
    if (hr_dataset_subset(&some, all, indices, n, &error))
        die(&error);
    free(indices);
    hr_dataset_unref(&all);
    return some;
}

static struct hr_recipe *make_recipe(void)
{
    struct hr_operation operations[4];
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&operations[0], HR_RANDOM_RESIZED_CROP);
    operations[0].u.random_resized_crop.height = operations[0].u.random_resized_crop.width = 224;
    hr_operation_default(&operations[1], HR_RANDOM_HORIZONTAL_FLIP);
    hr_operation_default(&operations[2], HR_TO_DTYPE);
    operations[2].u.to_dtype.dtype = HR_FLOAT32;
    operations[2].u.to_dtype.scale = 1;
    hr_operation_default(&operations[3], HR_NORMALIZE);
    for (int c = 0; c < 3; c++) {
        operations[3].u.normalize.mean[c] = 0.45;
        operations[3].u.normalize.std[c] = 0.225;
    }
    if (hr_recipe_create(&recipe, operations, 4, NULL, &error))
        die(&error);
    return recipe;
}

static void read_epoch(struct hr_loader *loader, uint64_t epoch)
{
    struct hr_batch *batch;
    struct hr_error error;
    int r = hr_loader_start_epoch(loader, epoch, &error);
    while (!r && (r = hr_loader_next(loader, &batch, &error)) == 1) {
        hr_batch_release(&batch);
        r = 0;
    }
    if (r)
        die(&error);
}

static void run(struct hr_dataset *dataset, struct hr_recipe *recipe,
                const struct hr_loader_options *options, struct caching_run *out)
{
    struct hr_loader *loader;
    struct hr_error error;
    if (hr_loader_create(&loader, dataset, recipe, options, &error))
        die(&error);
    double start = cpu_seconds();
    for (uint64_t epoch = 0; epoch < options->epochs; epoch++) {
        read_epoch(loader, epoch);
        out->cpu_s[epoch] = cpu_seconds() - start;
    }
    out->stats.size = sizeof out->stats;
    hr_loader_get_stats(loader, &out->stats);
    hr_loader_destroy(&loader);
}

static double epoch_seconds(const struct caching_run *run, uint64_t epoch)
{
    return run->cpu_s[epoch] - (epoch ? run->cpu_s[epoch - 1] : 0);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_epoch(const struct caching_run *run, uint64_t epochs)
{
    double seconds[MAX_EPOCHS];
    for (uint64_t e = 0; e < epochs; e++)
        seconds[e] = epoch_seconds(run, e);
    qsort(seconds, epochs, sizeof *seconds, compare);
    return seconds[epochs / 2];
}

static void report(const struct caching_run *runs, size_t samples, uint64_t epochs)
{
    double plain_s = median_epoch(&runs[0], epochs);
    printf("samples per CPU second, by epoch:\n%-20s", "");
    for (uint64_t e = 0; e < epochs; e += e < 4 ? 1 : epochs / 8 + 1)
        printf("%7" PRIu64, e + 1);
    printf("   repaid    MiB   enc/ix/coef/planes  read MiB  ms/item\n");
    for (size_t s = 0; s < SETTINGS; s++) {
        const struct caching_run *r = &runs[s];
        uint64_t repaid = epochs;
        printf("%-20s", settings[s].name);
        for (uint64_t e = 0; e < epochs; e += e < 4 ? 1 : epochs / 8 + 1)
            printf("%7.0f", (double)samples / epoch_seconds(r, e));
        while (repaid && r->cpu_s[repaid - 1] < plain_s * (double)repaid)
            repaid--;
        if (s && repaid < epochs)
            printf("%9" PRIu64, repaid + 1);
        else
            printf("%9s", "-");
        printf("%7.0f  %5" PRIu64 "/%" PRIu64 "/%" PRIu64 "/%" PRIu64 "  %8.0f  %7.2f\n",
               (double)r->stats.cache_bytes / (1 << 20), r->stats.cache_encoded,
               r->stats.cache_indexed, r->stats.cache_coefficients, r->stats.cache_planes,
               (double)r->stats.bytes_read / (1 << 20),
               r->stats.converted
                   ? (double)r->stats.conversion_ns / (double)r->stats.converted * 1e-6
                   : 0.0);
    }
}

int main(int argc, char **argv)
{
    static struct caching_run runs[SETTINGS];
    struct hr_loader_options options;
    struct hr_loader_stats warm;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER [SAMPLES [EPOCHS [THREADS]]]\n", argv[0]);
        return 2;
    }
    struct hr_dataset *dataset =
        open_samples(argv[1], argc > 2 ? strtoul(argv[2], NULL, 10) : 1000);
    struct hr_recipe *recipe = make_recipe();
    hr_loader_options_default(&options);
    options.batch_size = 64;
    options.shuffle = 1;
    options.threads = argc > 4 ? atoi(argv[4]) : 0;
    options.epochs = 1;
    run(dataset, recipe, &options, &runs[0]);
    warm = runs[0].stats;
    options.epochs = argc > 3 ? strtoul(argv[3], NULL, 10) : 40;
    if (options.epochs < 1 || options.epochs > MAX_EPOCHS)
        options.epochs = MAX_EPOCHS;
    for (size_t s = 0; s < SETTINGS; s++) {
        char cache[32];
        snprintf(cache, sizeof cache, "%.0f", (double)warm.bytes_read * settings[s].budget);
        options.cache = settings[s].budget > 0 ? cache : NULL;
        options.cache_form = settings[s].form;
        run(dataset, recipe, &options, &runs[s]);
    }
    size_t samples = hr_dataset_count(dataset);
    printf("%zu samples, %.0f MiB, %d threads, %s\n", samples, (double)warm.bytes_read / (1 << 20),
           warm.threads, hr_isa_name());
    report(runs, samples, options.epochs);
    hr_dataset_unref(&dataset);
    hr_recipe_unref(&recipe);
    return 0;
}
