/*
 * One job of the soak of the agent: takes batches of a stream, epoch after epoch, prints the
 * samples of each batch, and compares their pixels with those prepared without an agent.
 *
 *   soak_share_worker reference FOLDER FILE
 *       writes a checksum of each sample's pixels, prepared in this process
 *   soak_share_worker status SOCKET
 *       prints the status of an agent
 *   soak_share_worker run FOLDER FILE KEY=VALUE...
 *       keys: see struct share_plan. Prints "missed M" before the first batch and, for each batch,
 *       "EPOCH POSITION INDEX...", with the position in the order after the batch. Exit
 *       status 9: wrong pixels, or a batch whose description is wrong.
 *
 * Some batches are kept for a while, partly overwritten, and compared again before they are
 * released: nothing that the agent or other jobs do may change them. SIGTERM ends a job after the
 * current batch.
 */
#include "worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE_EVEN = 32, SIDE_ODD = 28, HELD_MOST = 32, BATCH_MOST = 64 };

/* The options of the command line. */
struct share_plan {
    struct hr_loader_options loader;
    uint64_t epochs;   /* number of epochs that this job takes */
    uint64_t pause_us; /* after each batch */
    uint64_t hold;     /* largest number of batches that it holds */
    uint64_t dice;     /* seed for choosing batches to hold and to overwrite; not 0 */
    uint64_t from[2];  /* epoch and position at which to continue */
    int is_restored;
    int side; /* of the samples */
};

struct held {
    struct hr_batch *batch;
    int is_changed; /* it was overwritten */
};

struct share_job {
    struct share_plan plan;
    struct soak_worker worker; /* reference: by sample, with SIDE_EVEN, then with SIDE_ODD */
    struct held held[HELD_MOST];
    size_t held_count;
};

/* xorshift64. */
static uint64_t roll(struct share_job *job, uint64_t sides)
{
    uint64_t x = job->plan.dice;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    job->plan.dice = x;
    return x % sides;
}

static uint64_t *reference_of(const struct share_job *job, uint64_t index)
{
    size_t count = hr_dataset_count(job->worker.dataset);
    return &job->worker.reference[index + (job->plan.side == SIDE_EVEN ? 0 : count)];
}

/* Compares a whole batch. */
static void look(const struct share_job *job, const struct hr_batch *batch, const char *when)
{
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    for (size_t i = 0; i < view.count; i++) {
        uint64_t index = (uint64_t)view.indices[i];
        if (index >= hr_dataset_count(job->worker.dataset))
            worker_complain("no such sample", view.epoch, index);
        if (worker_checksum(&view, i) != *reference_of(job, index))
            worker_complain(when, view.epoch, index);
    }
}

static void release(struct share_job *job, size_t which)
{
    struct held *held = &job->held[which];
    if (!held->is_changed)
        look(job, held->batch, "its pixels changed while it was held");
    hr_batch_release(&held->batch);
    job->held[which] = job->held[--job->held_count];
}

/* Holds a batch, or releases it at once; overwrites some. */
static void keep(struct share_job *job, struct hr_batch *batch)
{
    struct hr_batch_view view;
    struct held *held = &job->held[job->held_count++];
    *held = (struct held){.batch = batch};
    if (roll(job, 4) == 0) {
        hr_batch_get(batch, &view);
        memset(view.images, 0xA5, view.count * view.spec.bytes);
        held->is_changed = 1;
    }
    while (job->held_count > job->plan.hold || (job->held_count && roll(job, 3) == 0))
        release(job, roll(job, job->held_count));
}

static void record(const struct share_job *job, const struct hr_batch *batch)
{
    struct hr_error error;
    struct hr_loader_state state;
    struct hr_batch_view view;
    char head[64];
    hr_batch_get(batch, &view);
    if (hr_loader_get_state(job->worker.loader, &state, &error))
        worker_die(&error);
    if (state.epoch != view.epoch)
        worker_complain("the state is of another epoch", view.epoch, state.epoch);
    snprintf(head, sizeof head, "%" PRIu64 " %" PRIu64, state.epoch, state.position);
    worker_print_batch(head, &view);
}

static void report_missed(const struct share_job *job)
{
    char line[64];
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(job->worker.loader, &stats);
    int length = snprintf(line, sizeof line, "missed %" PRIu64 "\n", stats.missed);
    worker_print(line, length);
}

/* Takes the rest of a started epoch. */
static void take_epoch(struct share_job *job, int *is_first)
{
    struct hr_error error;
    struct hr_batch *batch;
    while (!worker_is_ending) {
        int r = hr_loader_next(job->worker.loader, &batch, &error);
        if (r == -EINTR)
            continue;
        if (r < 0)
            worker_die(&error);
        if (!r)
            return;
        if (*is_first)
            report_missed(job);
        *is_first = 0;
        look(job, batch, "its pixels are wrong");
        record(job, batch);
        keep(job, batch);
        if (job->plan.pause_us)
            usleep((useconds_t)job->plan.pause_us);
    }
}

static int run(struct share_job *job)
{
    struct hr_error error;
    int is_first = 1, r;
    /* The job's own epoch numbers; the stream may be at another epoch. */
    for (uint64_t epoch = 0; epoch < job->plan.epochs && !worker_is_ending; epoch++) {
        if (epoch == 0 && job->plan.is_restored) {
            struct hr_loader_state state = {.version = 1,
                                            .shuffle = 1,
                                            .seed = job->plan.loader.seed,
                                            .epoch = job->plan.from[0],
                                            .position = job->plan.from[1],
                                            .samples = hr_dataset_count(job->worker.dataset)};
            r = hr_loader_restore(job->worker.loader, &state, &error);
        } else {
            uint64_t from = job->plan.is_restored ? job->plan.from[0] : 0;
            r = hr_loader_start_epoch(job->worker.loader, from + epoch, &error);
        }
        if (r == -EINTR && worker_is_ending)
            break;
        if (r)
            worker_die(&error);
        take_epoch(job, &is_first);
    }
    while (job->held_count)
        release(job, 0);
    return 0;
}

static int make_reference(const char *folder, const char *path)
{
    static const int sides[] = {SIDE_EVEN, SIDE_ODD};
    uint64_t *all = NULL;
    size_t count = 0;
    for (int k = 0; k < 2; k++) {
        struct share_job job = {.plan.side = sides[k]};
        struct hr_batch *batch;
        struct hr_batch_view view;
        struct hr_error error;
        hr_loader_options_default(&job.plan.loader);
        worker_open(&job.worker, folder, worker_crop(sides[k]), &job.plan.loader, 2);
        count = hr_dataset_count(job.worker.dataset);
        all = realloc(all, 2 * count * sizeof *all);
        if (!all || hr_loader_start_epoch(job.worker.loader, 0, &error))
            exit(3);
        int r;
        while ((r = hr_loader_next(job.worker.loader, &batch, &error)) == 1) {
            hr_batch_get(batch, &view);
            for (size_t i = 0; i < view.count; i++)
                all[(size_t)k * count + (size_t)view.indices[i]] = worker_checksum(&view, i);
            hr_batch_release(&batch);
        }
        if (r)
            worker_die(&error);
        worker_close(&job.worker);
    }
    int status = worker_write(path, all, 2 * count);
    free(all);
    return status;
}

/* Sets one key. Returns 0, or -1 if it does not exist. */
static int set(void *arg, const char *key, const char *value)
{
    struct share_plan *plan = arg;
    struct hr_loader_options *o = &plan->loader;
    uint64_t number = strtoull(value, NULL, 10);
    if (!strcmp(key, "stream"))
        o->stream = value;
    else if (!strcmp(key, "cache"))
        o->cache = value;
    else if (!strcmp(key, "seed"))
        o->seed = number;
    else if (!strcmp(key, "batch"))
        o->batch_size = (int)number;
    else if (!strcmp(key, "rank"))
        o->rank = (int)number;
    else if (!strcmp(key, "world"))
        o->world_size = (int)number;
    else if (!strcmp(key, "window"))
        o->window = (int)number;
    else if (!strcmp(key, "join"))
        o->join = strcmp(value, "now") ? HR_JOIN_EPOCH : HR_JOIN_NOW;
    else if (!strcmp(key, "lag"))
        o->lag = strcmp(value, "wait") ? HR_LAG_ALONE : HR_LAG_WAIT;
    else if (!strcmp(key, "epochs"))
        plan->epochs = number;
    else if (!strcmp(key, "pause_us"))
        plan->pause_us = number;
    else if (!strcmp(key, "hold"))
        plan->hold = number;
    else if (!strcmp(key, "dice"))
        plan->dice = number;
    else if (!strcmp(key, "side"))
        plan->side = (int)number;
    else if (!strcmp(key, "from"))
        plan->is_restored =
            sscanf(value, "%" SCNu64 ":%" SCNu64, &plan->from[0], &plan->from[1]) == 2;
    else
        return -1;
    return 0;
}

/* Parses the keys. Returns 0, or -1 if one is unknown or out of range. Modifies the texts. */
static int read_plan(struct share_plan *plan, char **words, int count)
{
    *plan = (struct share_plan){.epochs = UINT64_MAX, .side = SIDE_EVEN, .dice = 1};
    hr_loader_options_default(&plan->loader);
    plan->loader.agent = "auto";
    plan->loader.shuffle = 1;
    if (worker_read_keys(words, count, set, plan))
        return -1;
    return plan->loader.batch_size > BATCH_MOST || plan->hold >= HELD_MOST || !plan->dice ? -1 : 0;
}

static int run_job(int argc, char **argv)
{
    struct share_job job = {0};
    if (read_plan(&job.plan, argv + 4, argc - 4)) {
        fprintf(stderr, "soak_share_worker: a key is unknown or out of range\n");
        return 2;
    }
    worker_catch_end();
    worker_open(&job.worker, argv[2], worker_crop(job.plan.side), &job.plan.loader, 2);
    worker_read(argv[3], job.worker.reference, 2 * hr_dataset_count(job.worker.dataset));
    int r = run(&job);
    worker_close(&job.worker);
    return r;
}

static int report_status(const char *socket)
{
    struct hr_error error;
    char *json;
    if (hr_agent_status(socket, &json, &error))
        worker_die(&error);
    puts(json);
    hr_text_free(json);
    return 0;
}

int main(int argc, char **argv)
{
    worker_begin();
    if (argc == 4 && !strcmp(argv[1], "reference"))
        return make_reference(argv[2], argv[3]);
    if (argc == 3 && !strcmp(argv[1], "status"))
        return report_status(argv[2]);
    if (argc >= 4 && !strcmp(argv[1], "run"))
        return run_job(argc, argv);
    fprintf(stderr, "usage: soak_share_worker reference FOLDER FILE | status SOCKET | "
                    "run FOLDER FILE KEY=VALUE...\n");
    return 2;
}
