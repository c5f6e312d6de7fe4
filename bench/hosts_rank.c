/*
 * One rank of ours in bench/hosts.py (see hosts_worker.h): a loader whose items are on the hosts
 * that cache= names, or in a cache of its own.
 *
 * Before an epoch the harness may send the rates that all ranks measured, each as this program
 * printed it, in a line "rates R;R;...", for the plan of that epoch. This replaces the all-gather
 * of a training framework.
 */
#include "hosts_worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE_FORMAT "%d:%la:%la:%la:%la:%la:%la"

struct hosts_rank {
    struct worker_options options;
    struct together *together;
    struct hr_loader *loader;
    uint64_t epoch;
};

static enum hr_assignment assignment_of(const char *name)
{
    if (!name)
        return HR_ASSIGNMENT_AUTO;
    if (!strcmp(name, "local"))
        return HR_ASSIGNMENT_LOCAL;
    if (!strcmp(name, "exact"))
        return HR_ASSIGNMENT_EXACT;
    worker_die(name, "is no assignment");
}

static struct hr_loader *make_loader(const struct worker_options *wish)
{
    struct hr_dataset *dataset = worker_dataset(wish->data);
    struct hr_recipe *recipe = worker_recipe();
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr_error error;
    hr_loader_options_default(&options);
    options.batch_size = wish->batch;
    options.shuffle = 1;
    options.drop_last = 1;
    options.seed = wish->seed;
    options.rank = wish->rank;
    options.world_size = wish->world;
    options.threads = wish->threads;
    options.batches_ahead = wish->ahead;
    options.cache = wish->cache;
    options.assignment = assignment_of(wish->assignment);
    if (hr_loader_create(&loader, dataset, recipe, &options, &error))
        worker_die("loader", error.message);
    hr_dataset_unref(&dataset);
    hr_recipe_unref(&recipe);
    return loader;
}

/* Takes "R;R;..." of all ranks, for the next epoch. */
static void take_rates(struct hosts_rank *rank, char *text)
{
    struct hr_loader_rates *rates = calloc((size_t)rank->options.world, sizeof *rates);
    struct hr_error error;
    int count = 0;
    char *rest = NULL;
    if (!rates)
        worker_die("rates", "out of memory");
    for (char *one = strtok_r(text, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
        if (count == rank->options.world)
            worker_die("rates", "are of more ranks than there are");
        struct hr_loader_rates *r = &rates[count++];
        r->size = sizeof *r;
        if (sscanf(one, RATE_FORMAT, &r->host, &r->own_bytes_per_s, &r->peer_bytes_per_s,
                   &r->storage_bytes_per_s, &r->prepare_bytes_per_s, &r->wait_s, &r->ready_s) != 7)
            worker_die("rates", one);
    }
    if (hr_loader_set_rates(rank->loader, rank->epoch, rates, count, &error))
        worker_die("rates", error.message);
    free(rates);
}

static void print_rates(const struct hosts_rank *rank)
{
    struct hr_loader_rates r = {.size = sizeof r};
    struct hr_error error;
    if (!hr_loader_host_count(rank->loader))
        return;
    if (hr_loader_get_rates(rank->loader, &r, &error))
        worker_die("rates", error.message);
    printf(", \"rates\": \"" RATE_FORMAT "\"", r.host, r.own_bytes_per_s, r.peer_bytes_per_s,
           r.storage_bytes_per_s, r.prepare_bytes_per_s, r.wait_s, r.ready_s);
    printf(", \"own_mb_s\": %.2f, \"peer_mb_s\": %.2f, \"storage_mb_s\": %.2f, "
           "\"prepare_mb_s\": %.2f, \"ready_s\": %.4f",
           r.own_bytes_per_s / 1e6, r.peer_bytes_per_s / 1e6, r.storage_bytes_per_s / 1e6,
           r.prepare_bytes_per_s / 1e6, r.ready_s);
}

static void print_difference(const struct hr_loader_stats *before,
                             const struct hr_loader_stats *after)
{
    printf(", \"bytes_read\": %" PRIu64 ", \"cache_hits\": %" PRIu64 ", \"own_hits\": %" PRIu64
           ", \"own_bytes\": %" PRIu64 ", \"peer_hits\": %" PRIu64 ", \"peer_bytes\": %" PRIu64
           ", \"stored\": %" PRIu64 ", \"stored_bytes\": %" PRIu64 ", \"refused\": %" PRIu64
           ", \"read_ahead\": %" PRIu64,
           after->bytes_read - before->bytes_read, after->cache_hits - before->cache_hits,
           after->own_hits - before->own_hits, after->own_bytes - before->own_bytes,
           after->peer_hits - before->peer_hits, after->peer_bytes - before->peer_bytes,
           after->stored - before->stored, after->stored_bytes - before->stored_bytes,
           after->refused - before->refused, after->read_ahead - before->read_ahead);
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
        worker_die("next", error.message);
    if (!r)
        return 0;
    hr_batch_get(batch, &view);
    hr_batch_release(&batch);
    return view.count;
}

static struct worker_epoch run_epoch(struct hosts_rank *rank)
{
    struct worker_epoch out = {0};
    struct hr_error error;
    double start = worker_seconds(CLOCK_MONOTONIC), cpu = worker_seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (hr_loader_start_epoch(rank->loader, rank->epoch, &error))
        worker_die("epoch", error.message);
    for (;;) {
        double asked = worker_seconds(CLOCK_MONOTONIC);
        size_t samples = next_batch(rank->loader);
        double waited = worker_seconds(CLOCK_MONOTONIC) - asked;
        if (!samples)
            break;
        *(out.batches ? &out.wait_s : &out.first_s) += waited;
        out.batches++;
        out.samples += samples;
        worker_step(rank->together, &rank->options);
    }
    out.seconds = worker_seconds(CLOCK_MONOTONIC) - start;
    out.cpu_seconds = worker_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    rank->epoch++;
    return out;
}

static void pass(struct hosts_rank *rank)
{
    struct hr_loader_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    hr_loader_get_stats(rank->loader, &before);
    struct worker_epoch epoch = run_epoch(rank);
    hr_loader_get_stats(rank->loader, &after);
    printf("{");
    worker_print_epoch(&epoch);
    print_difference(&before, &after);
    print_rates(rank);
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char line[1 << 16];
    struct hosts_rank rank = {0};
    worker_parse(&rank.options, argc, argv);
    rank.together = worker_map_together(&rank.options);
    rank.loader = make_loader(&rank.options);
    printf("{\"name\": \"ready\", \"hosts\": %d}\n", hr_loader_host_count(rank.loader));
    fflush(stdout);
    while (worker_line(line, sizeof line)) {
        if (!strncmp(line, "rates ", 6))
            take_rates(&rank, line + 6);
        else if (!strcmp(line, "pass"))
            pass(&rank);
        else
            worker_die(line, "is no word of the harness");
    }
    hr_loader_destroy(&rank.loader);
    return 0;
}
