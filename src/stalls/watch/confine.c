/*
 * Confines this process to fewer cores, to measure how the loader scales with them. Changes the
 * affinity of every thread and restores it, because we cannot know which threads of a training
 * program matter.
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/watch/inside.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Cores that fit a mask. */
#define MASK_CORES 8192

struct mask {
    unsigned long words[MASK_CORES / (8 * sizeof(unsigned long))];
};

struct thread {
    pid_t id;
    struct mask before;
};

struct hr__confinement {
    struct mask own; /* of the calling thread */
    struct thread *threads;
    size_t count;
};

static int get_mask(pid_t id, struct mask *mask)
{
    memset(mask, 0, sizeof *mask);
    return sched_getaffinity(id, sizeof *mask, (cpu_set_t *)mask->words) ? -errno : 0;
}

static int set_mask(pid_t id, const struct mask *mask)
{
    return sched_setaffinity(id, sizeof *mask, (const cpu_set_t *)mask->words) ? -errno : 0;
}

/* Calls `act` for each thread of the process until one call fails. */
static int for_each_thread(int (*act)(void *arg, pid_t id), void *arg)
{
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        return -errno;
    int r = 0;
    const struct dirent *entry;
    while (!r && (entry = readdir(tasks))) {
        pid_t id = (pid_t)strtol(entry->d_name, NULL, 10);
        if (id > 0)
            r = act(arg, id);
    }
    closedir(tasks);
    return r;
}

static int remember(void *arg, pid_t id)
{
    struct hr__confinement *c = arg;
    if (hr__reserve(HR__TAG_LOADER, &c->threads, c->count + 1))
        return -ENOMEM;
    c->threads[c->count].id = id;
    /* A thread that has ended meanwhile needs no entry. */
    if (!get_mask(id, &c->threads[c->count].before))
        c->count++;
    return 0;
}

static const struct thread *find(const struct hr__confinement *c, pid_t id)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->threads[i].id == id)
            return &c->threads[i];
    return NULL;
}

static int give_back(void *arg, pid_t id)
{
    const struct hr__confinement *c = arg;
    const struct thread *thread = find(c, id);
    (void)set_mask(id, thread ? &thread->before : &c->own);
    return 0;
}

/* Returns the first `cores` of the cores that any thread may use. */
static struct mask first_of(const struct hr__confinement *c, int cores)
{
    struct mask all = {{0}}, some = {{0}};
    size_t words = sizeof all.words / sizeof *all.words, bits = 8 * sizeof *all.words;
    for (size_t i = 0; i < c->count; i++)
        for (size_t word = 0; word < words; word++)
            all.words[word] |= c->threads[i].before.words[word];
    for (size_t core = 0; core < MASK_CORES && cores > 0; core++) {
        unsigned long bit = 1ul << core % bits;
        if (all.words[core / bits] & bit) {
            some.words[core / bits] |= bit;
            cores--;
        }
    }
    return some;
}

static int confine_one(void *arg, pid_t id)
{
    int r = set_mask(id, arg);
    return r == -ESRCH ? 0 : r;
}

int hr__confine(struct hr__confinement **out, int cores, struct hr_error *error)
{
    *out = NULL;
    struct hr__confinement *c = hr__alloc(HR__TAG_LOADER, 1, sizeof *c);
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for the affinity of threads");
    int r = get_mask(0, &c->own);
    if (!r)
        r = for_each_thread(remember, c);
    struct mask some = first_of(c, cores);
    *out = c;
    if (!r)
        r = for_each_thread(confine_one, &some);
    if (!r)
        return 0;
    hr__confine_end(out);
    return hr__fail(error, r, "cannot confine this process to %d cores: %s", cores,
                    hr__errno_text(r));
}

void hr__confine_end(struct hr__confinement **confinement)
{
    struct hr__confinement *c = *confinement;
    if (!c)
        return;
    *confinement = NULL;
    (void)for_each_thread(give_back, c);
    hr__free(c->threads);
    hr__free(c);
}
