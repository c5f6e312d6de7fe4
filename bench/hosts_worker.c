/* See hosts_worker.h. */
#include "hosts_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CROP 16
/* How long to wait for a rank: one that reads from a slow disk takes long, one that died never
 * comes. */
#define PATIENCE_S 120

double worker_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

_Noreturn void worker_die(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail);
    exit(3);
}

static const char *value_of(const char *argument, const char *name)
{
    size_t length = strlen(name);
    return !strncmp(argument, name, length) && argument[length] == '=' ? argument + length + 1
                                                                       : NULL;
}

static int number_of(const char *name, const char *value, long most)
{
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (errno || *end || end == value || n < 0 || n > most)
        worker_die(name, "is no number that is possible here");
    return (int)n;
}

static void take(struct worker_options *options, const char *argument)
{
    const struct {
        const char *name;
        const char **text;
        int *number;
    } known[] = {
        {"data", &options->data, NULL},
        {"cache", &options->cache, NULL},
        {"assignment", &options->assignment, NULL},
        {"together", &options->together, NULL},
        {"rank", NULL, &options->rank},
        {"world", NULL, &options->world},
        {"batch", NULL, &options->batch},
        {"threads", NULL, &options->threads},
        {"ahead", NULL, &options->ahead},
    };
    const char *value;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!(value = value_of(argument, known[i].name)))
            continue;
        if (known[i].text)
            *known[i].text = value;
        else
            *known[i].number = number_of(known[i].name, value, 1 << 20);
        return;
    }
    if ((value = value_of(argument, "step_us")))
        options->step_us = (uint64_t)number_of("step_us", value, 10 * 1000 * 1000);
    else if ((value = value_of(argument, "seed")))
        options->seed = (uint64_t)number_of("seed", value, INT_MAX);
    else
        worker_die(argument, "is no option");
}

void worker_parse(struct worker_options *options, int argc, char **argv)
{
    *options = (struct worker_options){.world = 1, .batch = 64, .threads = 2, .ahead = 4};
    for (int i = 1; i < argc; i++)
        take(options, argv[i]);
    if (!options->data || !options->together)
        worker_die(argv[0], "data and together are needed");
    if (options->rank >= options->world || options->batch < 1 || options->threads < 1 ||
        options->ahead < 1)
        worker_die(argv[0], "rank, world, batch, threads or ahead is out of range");
}

struct together *worker_map_together(const struct worker_options *options)
{
    int fd = open(options->together, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        worker_die(options->together, strerror(errno));
    void *place = mmap(NULL, sizeof(struct together), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (place == MAP_FAILED)
        worker_die(options->together, strerror(errno));
    close(fd);
    return place;
}

static void wait_for_others(struct together *together, uint32_t generation)
{
    double until = worker_seconds(CLOCK_MONOTONIC) + PATIENCE_S;
    struct timespec second = {.tv_sec = 1};
    while (atomic_load(&together->generation) == generation) {
        if (worker_seconds(CLOCK_MONOTONIC) > until)
            worker_die("step", "the other ranks do not come");
        syscall(SYS_futex, &together->generation, FUTEX_WAIT, generation, &second, NULL, 0);
    }
}

void worker_step(struct together *together, const struct worker_options *options)
{
    struct timespec step = {.tv_sec = (time_t)(options->step_us / 1000000),
                            .tv_nsec = (long)(options->step_us % 1000000) * 1000};
    if (options->step_us)
        nanosleep(&step, NULL);
    uint32_t generation = atomic_load(&together->generation);
    if (atomic_fetch_add(&together->arrived, 1) + 1 < (uint32_t)options->world) {
        wait_for_others(together, generation);
        return;
    }
    /* No rank may arrive at the next step before its generation has begun. */
    atomic_store(&together->arrived, 0);
    atomic_fetch_add(&together->generation, 1);
    syscall(SYS_futex, &together->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void worker_print_epoch(const struct worker_epoch *epoch)
{
    printf("\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"first_s\": %.6f, \"wait_s\": %.6f, "
           "\"samples\": %llu, \"batches\": %llu",
           epoch->seconds, epoch->cpu_seconds, epoch->first_s, epoch->wait_s,
           (unsigned long long)epoch->samples, (unsigned long long)epoch->batches);
}

int worker_line(char *line, size_t room)
{
    if (!fgets(line, (int)room, stdin))
        return 0;
    line[strcspn(line, "\n")] = 0;
    return 1;
}

struct hr_dataset *worker_dataset(const char *path)
{
    struct hr_dataset_options options;
    struct hr_dataset *dataset;
    struct hr_error error;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_USER_CACHE;
    options.wait_sizes = 1;
    if (hr_dataset_open(&dataset, path, &options, &error))
        worker_die("dataset", error.message);
    return dataset;
}

struct hr_recipe *worker_recipe(void)
{
    struct hr_operation crop;
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_operation_default(&crop, HR_CENTER_CROP);
    crop.u.center_crop.height = crop.u.center_crop.width = CROP;
    if (hr_recipe_create(&recipe, &crop, 1, NULL, &error))
        worker_die("recipe", error.message);
    return recipe;
}
