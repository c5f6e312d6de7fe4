/* What the jobs of the soaks share; see worker.h. */
#include "worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { LINE_BYTES = 2048 };

volatile sig_atomic_t worker_is_ending;

static void end_soon(int signal_number)
{
    worker_is_ending = 1;
}

/* Logs go to standard error; they matter only if the job fails. */
static void print_log(void *arg, enum hr_log_level level, const char *message)
{
    if (level == HR_LOG_WARNING)
        fprintf(stderr, "log: %s\n", message);
}

void worker_begin(void)
{
    hr_log_set(print_log, NULL);
}

void worker_catch_end(void)
{
    struct sigaction action = {.sa_handler = end_soon};
    sigaction(SIGTERM, &action, NULL);
}

_Noreturn void worker_die(const struct hr_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    exit(3);
}

_Noreturn void worker_complain(const char *what, uint64_t epoch, uint64_t index)
{
    fprintf(stderr, "epoch %" PRIu64 ", sample %" PRIu64 ": %s\n", epoch, index, what);
    exit(9);
}

void worker_open(struct soak_worker *w, const char *folder, struct hr_recipe *recipe,
                 const struct hr_loader_options *options, size_t sums)
{
    struct hr_error error;
    struct hr_dataset_options opening;
    hr_dataset_options_default(&opening);
    opening.index = HR_INDEX_NONE;
    if (hr_dataset_open_folder(&w->dataset, folder, &opening, &error))
        worker_die(&error);
    int r = hr_loader_create(&w->loader, w->dataset, recipe, options, &error);
    if (r == -EINTR && worker_is_ending)
        exit(0);
    if (r)
        worker_die(&error);
    hr_recipe_unref(&recipe);
    w->reference = calloc(sums * hr_dataset_count(w->dataset), sizeof *w->reference);
    if (!w->reference)
        exit(3);
}

void worker_close(struct soak_worker *w)
{
    hr_loader_destroy(&w->loader);
    hr_dataset_unref(&w->dataset);
    free(w->reference);
    w->reference = NULL;
}

struct hr_recipe *worker_recipe(struct hr_operation *operations, int count)
{
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&operations[count], HR_TO_DTYPE);
    operations[count].u.to_dtype.dtype = HR_UINT8;
    if (hr_recipe_create(&recipe, operations, (size_t)count + 1, NULL, &error))
        worker_die(&error);
    return recipe;
}

struct hr_recipe *worker_crop(int side)
{
    struct hr_operation operations[2];
    hr_operation_default(&operations[0], HR_CENTER_CROP);
    operations[0].u.center_crop.height = operations[0].u.center_crop.width = side;
    return worker_recipe(operations, 1);
}

uint64_t worker_checksum(const struct hr_batch_view *view, size_t i)
{
    return XXH3_64bits((const char *)view->images + i * view->spec.bytes, view->spec.bytes);
}

int worker_write(const char *path, const uint64_t *sums, size_t count)
{
    FILE *f = fopen(path, "wb");
    if (f && fwrite(sums, sizeof *sums, count, f) == count && !fclose(f))
        return 0;
    perror(path);
    return 3;
}

void worker_read(const char *path, uint64_t *sums, size_t count)
{
    FILE *f = fopen(path, "rb");
    if (!f || fread(sums, sizeof *sums, count, f) != count) {
        perror(path);
        exit(3);
    }
    fclose(f);
}

void worker_print(const char *line, int length)
{
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(4);
}

void worker_print_batch(const char *head, const struct hr_batch_view *view)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof line, "%s", head);
    for (size_t i = 0; i < view->count && length + 24 < LINE_BYTES; i++)
        length +=
            snprintf(line + length, sizeof line - (size_t)length, " %" PRId64, view->indices[i]);
    line[length++] = '\n';
    worker_print(line, length);
}

int worker_read_keys(char **words, int count,
                     int (*set)(void *plan, const char *key, const char *value), void *plan)
{
    for (int i = 0; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (!value)
            return -1;
        *value++ = 0;
        if (set(plan, words[i], value))
            return -1;
    }
    return 0;
}
