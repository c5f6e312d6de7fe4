/*
 * One rank of the soak of several hosts: takes batches in step with the other ranks, as synchronous
 * training does, prints the samples of each batch, and compares their pixels with those of a plain
 * loader.
 *
 *   soak_hosts_worker reference FOLDER FILE SEED
 *       writes a checksum of each sample's pixels in each of EPOCHS epochs, and prints their
 *       orders: the samples of one epoch a line
 *   soak_hosts_worker run FOLDER FILE KEY=VALUE...
 *       keys: see struct hosts_plan. Prints "batch ROUND POSITION PADDING MS INDEX..." for each
 *       batch, with the time in MS that it was waited for, and "epoch ROUND MS HITS READ STORED
 *       REFUSED" at an epoch's end. Exit status 9: wrong pixels; 5: another rank is missing.
 *
 * A round is an epoch of the run; its images are those of epoch ROUND % EPOCHS. Ranks share a file
 * in memory: each rank's progress, the contents of the control file that rank 0 read at an epoch's
 * end, and their rates, which all of them set for the next epoch. SIGTERM ends a rank at once.
 *
 * This program replaces clock_gettime, to give each host another wall clock, and connect, to give
 * each host an address by which the proxies recognise it.
 */
#include "worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SIDE = 24,
    EPOCHS = 6,
    RANKS_MOST = 8,
    BATCH_MOST = 64,
    LINE_BYTES = 1024,
    TEXT_BYTES = 2048,
    STEP_US = 300,
    PATIENCE_S = 90, /* limit for waiting for another rank */
};

/* The options of the command line. */
struct hosts_plan {
    struct hr_loader_options loader;
    const char *control;  /* file with the hosts from the next round on, or "end" */
    const char *together; /* file of struct worker_together */
    uint64_t round, position;
    uint64_t pause_us; /* after each batch */
    int rates;         /* non-zero: ranks exchange their rates */
    const char *own;   /* appended to each text of hosts, for this rank only */
};

/* Memory shared by the ranks of one start. */
struct worker_together {
    atomic_ullong steps[RANKS_MOST]; /* number of barriers that each has reached */
    char text[TEXT_BYTES];           /* what rank 0 read at an epoch's end */
    struct hr_loader_rates rates[RANKS_MOST];
};

struct rank {
    struct hosts_plan plan;
    struct soak_worker worker; /* reference: EPOCHS x samples */
    struct worker_together *together;
    uint64_t steps;
    char hosts[TEXT_BYTES];     /* the hosts in use */
    char cache[2 * TEXT_BYTES]; /* the same, with this rank's own options */
};

static time_t clock_shift_s;
static uint32_t own_address; /* of connections, in network byte order; 0: any */

/* Replaces libc's function, in the library, too. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    int r = (int)syscall(SYS_clock_gettime, clock, t);
    if (!r && clock == CLOCK_REALTIME)
        t->tv_sec += clock_shift_s;
    return r;
}

/* Likewise. */
int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    if (own_address && address->sa_family == AF_INET) {
        struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = own_address};
        if (bind(fd, (struct sockaddr *)&from, sizeof from))
            return -1;
    }
    return (int)syscall(SYS_connect, fd, address, length);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void use_hosts(struct rank *rank, const char *hosts)
{
    snprintf(rank->hosts, sizeof rank->hosts, "%s", hosts);
    snprintf(rank->cache, sizeof rank->cache, "%s%s", rank->hosts, rank->plan.own);
}

/* ---- one sample ---- */

static void open_loader(struct rank *rank, const char *folder)
{
    /* The crop and the flip depend on seed, epoch and sample. */
    struct hr_operation operations[3];
    hr_operation_default(&operations[0], HR_RANDOM_RESIZED_CROP);
    operations[0].u.random_resized_crop.height = SIDE;
    operations[0].u.random_resized_crop.width = SIDE;
    hr_operation_default(&operations[1], HR_RANDOM_HORIZONTAL_FLIP);
    worker_open(&rank->worker, folder, worker_recipe(operations, 2), &rank->plan.loader, EPOCHS);
}

static uint64_t *reference_of(const struct rank *rank, uint64_t epoch, uint64_t index)
{
    return &rank->worker.reference[epoch * hr_dataset_count(rank->worker.dataset) + index];
}

/* ---- the ranks together ---- */

/* Waits until all ranks have arrived. Returns 0 if this rank must end. */
static int meet(struct rank *rank)
{
    atomic_ullong *steps = rank->together->steps;
    double until = seconds() + PATIENCE_S;
    atomic_store(&steps[rank->plan.loader.rank], ++rank->steps);
    for (int r = 0; r < rank->plan.loader.world_size; r++)
        while (atomic_load(&steps[r]) < rank->steps && !worker_is_ending) {
            if (seconds() > until) {
                fprintf(stderr, "rank %d does not come\n", r);
                exit(5);
            }
            usleep(STEP_US);
        }
    return !worker_is_ending;
}

/* Reads the control file, on rank 0, for all ranks. */
static void read_control(struct rank *rank)
{
    char *text = rank->together->text;
    FILE *f = fopen(rank->plan.control, "r");
    text[0] = 0;
    if (f && !fgets(text, TEXT_BYTES, f))
        text[0] = 0;
    if (f)
        fclose(f);
    text[strcspn(text, "\n")] = 0;
}

/* Takes other hosts for the next epoch if the control file names them. Returns 0 if this rank must
 * end. */
static int take_control(struct rank *rank, uint64_t next)
{
    struct hr_error error;
    const char *text = rank->together->text;
    if (rank->plan.loader.rank == 0)
        read_control(rank);
    if (!meet(rank) || !strcmp(text, "end"))
        return 0;
    if (!text[0] || !strcmp(rank->hosts, text))
        return 1;
    use_hosts(rank, text);
    if (hr_loader_set_hosts(rank->worker.loader, next % EPOCHS, rank->cache, &error))
        worker_die(&error);
    return 1;
}

static int exchange_rates(struct rank *rank, uint64_t next)
{
    struct hr_error error;
    struct hr_loader_rates *own = &rank->together->rates[rank->plan.loader.rank];
    if (!rank->plan.rates)
        return 1;
    own->size = sizeof *own;
    if (hr_loader_get_rates(rank->worker.loader, own, &error))
        worker_die(&error);
    if (!meet(rank))
        return 0;
    if (hr_loader_set_rates(rank->worker.loader, next % EPOCHS, rank->together->rates,
                            rank->plan.loader.world_size, &error))
        worker_die(&error);
    return 1;
}

/* ---- batches ---- */

static void look(const struct rank *rank, const struct hr_batch_view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        uint64_t index = (uint64_t)view->indices[i];
        if (index >= hr_dataset_count(rank->worker.dataset))
            worker_complain("no such sample", view->epoch, index);
        if (worker_checksum(view, i) != *reference_of(rank, view->epoch, index))
            worker_complain("its pixels are wrong", view->epoch, index);
    }
}

static void record(const struct rank *rank, const struct hr_batch_view *view, uint64_t round,
                   double waited_s)
{
    struct hr_error error;
    struct hr_loader_state state;
    char head[128];
    if (hr_loader_get_state(rank->worker.loader, &state, &error))
        worker_die(&error);
    if (state.epoch != view->epoch || state.epoch != round % EPOCHS)
        worker_complain("the state is of another epoch", view->epoch, state.epoch);
    snprintf(head, sizeof head, "batch %" PRIu64 " %" PRIu64 " %zu %.0f", round, state.position,
             view->padding, waited_s * 1e3);
    worker_print_batch(head, view);
}

static void record_epoch(const struct rank *rank, uint64_t round, double waited_s,
                         struct hr_loader_stats *before)
{
    char line[LINE_BYTES];
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(rank->worker.loader, &stats);
    int length =
        snprintf(line, sizeof line,
                 "epoch %" PRIu64 " %.0f %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", round,
                 waited_s * 1e3, stats.cache_hits - before->cache_hits,
                 stats.bytes_read - before->bytes_read, stats.stored - before->stored,
                 stats.refused - before->refused);
    worker_print(line, length);
    *before = stats;
}

/* Takes the rest of a started epoch. Returns 0 if this rank must end. */
static int take_epoch(struct rank *rank, uint64_t round, struct hr_loader_stats *stats)
{
    struct hr_error error;
    struct hr_batch *batch;
    struct hr_batch_view view;
    while (!worker_is_ending) {
        double begin = seconds();
        int r;
        do
            r = hr_loader_next(rank->worker.loader, &batch, &error);
        while (r == -EINTR && !worker_is_ending);
        if (r == -EINTR)
            return 0;
        if (r < 0)
            worker_die(&error);
        double waited_s = seconds() - begin;
        if (!r) {
            record_epoch(rank, round, waited_s, stats);
            return 1;
        }
        hr_batch_get(batch, &view);
        look(rank, &view);
        record(rank, &view, round, waited_s);
        hr_batch_release(&batch);
        usleep((useconds_t)rank->plan.pause_us);
        if (!meet(rank))
            return 0;
    }
    return 0;
}

static void begin_epoch(struct rank *rank, uint64_t round)
{
    struct hr_error error;
    struct hr_loader_state state = {.version = 1,
                                    .shuffle = 1,
                                    .seed = rank->plan.loader.seed,
                                    .epoch = round % EPOCHS,
                                    .position = rank->plan.position,
                                    .samples = hr_dataset_count(rank->worker.dataset)};
    int r = round == rank->plan.round && state.position
                ? hr_loader_restore(rank->worker.loader, &state, &error)
                : hr_loader_start_epoch(rank->worker.loader, round % EPOCHS, &error);
    if (r)
        worker_die(&error);
}

static void run(struct rank *rank)
{
    struct hr_loader_stats stats = {.size = sizeof stats};
    for (uint64_t round = rank->plan.round;; round++) {
        begin_epoch(rank, round);
        if (!take_epoch(rank, round, &stats) || !take_control(rank, round + 1) ||
            !exchange_rates(rank, round + 1))
            return;
    }
}

/* ---- the command line ---- */

static int make_reference(const char *folder, const char *path, const char *seed)
{
    struct rank rank = {.steps = 0};
    struct hr_batch *batch;
    struct hr_batch_view view;
    struct hr_error error;
    int r = 0;
    hr_loader_options_default(&rank.plan.loader);
    rank.plan.loader.batch_size = BATCH_MOST;
    rank.plan.loader.shuffle = 1;
    rank.plan.loader.seed = strtoull(seed, NULL, 10);
    open_loader(&rank, folder);
    for (uint64_t epoch = 0; epoch < EPOCHS && !r; epoch++) {
        r = hr_loader_start_epoch(rank.worker.loader, epoch, &error);
        while (!r && (r = hr_loader_next(rank.worker.loader, &batch, &error)) == 1) {
            hr_batch_get(batch, &view);
            for (size_t i = 0; i < view.count - view.padding; i++) {
                *reference_of(&rank, epoch, (uint64_t)view.indices[i]) = worker_checksum(&view, i);
                printf("%" PRId64 " ", view.indices[i]);
            }
            hr_batch_release(&batch);
            r = 0;
        }
        puts("");
    }
    if (r)
        worker_die(&error);
    int status =
        worker_write(path, rank.worker.reference, EPOCHS * hr_dataset_count(rank.worker.dataset));
    worker_close(&rank.worker);
    return status;
}

static void map_together(struct rank *rank)
{
    int fd = open(rank->plan.together, O_RDWR | O_CLOEXEC);
    rank->together =
        fd < 0 ? MAP_FAILED
               : mmap(NULL, sizeof *rank->together, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (rank->together == MAP_FAILED) {
        perror(rank->plan.together);
        exit(3);
    }
    close(fd);
}

/* Sets one key. Returns 0, or -1 if it does not exist. */
static int set(void *arg, const char *key, const char *value)
{
    struct hosts_plan *plan = arg;
    struct hr_loader_options *o = &plan->loader;
    uint64_t number = strtoull(value, NULL, 10);
    if (!strcmp(key, "hosts"))
        o->cache = value;
    else if (!strcmp(key, "own"))
        plan->own = value;
    else if (!strcmp(key, "control"))
        plan->control = value;
    else if (!strcmp(key, "together"))
        plan->together = value;
    else if (!strcmp(key, "seed"))
        o->seed = number;
    else if (!strcmp(key, "rank"))
        o->rank = (int)number;
    else if (!strcmp(key, "world"))
        o->world_size = (int)number;
    else if (!strcmp(key, "batch"))
        o->batch_size = (int)number;
    else if (!strcmp(key, "ahead"))
        o->batches_ahead = (int)number;
    else if (!strcmp(key, "exact"))
        o->assignment = number ? HR_ASSIGNMENT_EXACT : HR_ASSIGNMENT_LOCAL;
    else if (!strcmp(key, "rates"))
        plan->rates = (int)number;
    else if (!strcmp(key, "round"))
        plan->round = number;
    else if (!strcmp(key, "position"))
        plan->position = number;
    else if (!strcmp(key, "pause_us"))
        plan->pause_us = number;
    else if (!strcmp(key, "clock_s"))
        clock_shift_s = (time_t)strtoll(value, NULL, 10);
    else if (!strcmp(key, "address"))
        own_address = inet_addr(value);
    else
        return -1;
    return 0;
}

/* Parses the keys. Returns 0, or -1 if one is unknown or out of range. Modifies the texts. */
static int read_plan(struct hosts_plan *plan, char **words, int count)
{
    hr_loader_options_default(&plan->loader);
    plan->loader.shuffle = 1;
    plan->loader.threads = 1;
    plan->own = "";
    if (worker_read_keys(words, count, set, plan))
        return -1;
    const struct hr_loader_options *o = &plan->loader;
    return !o->cache || strlen(o->cache) >= TEXT_BYTES || strlen(plan->own) >= TEXT_BYTES ||
                   !plan->control || !plan->together || o->batch_size > BATCH_MOST ||
                   o->world_size > RANKS_MOST
               ? -1
               : 0;
}

static int run_rank(int argc, char **argv)
{
    struct rank rank = {.steps = 0};
    if (read_plan(&rank.plan, argv + 4, argc - 4)) {
        fprintf(stderr, "soak_hosts_worker: a key is unknown or out of range\n");
        return 2;
    }
    worker_catch_end();
    map_together(&rank);
    use_hosts(&rank, rank.plan.loader.cache);
    rank.plan.loader.cache = rank.cache;
    open_loader(&rank, argv[2]);
    worker_read(argv[3], rank.worker.reference, EPOCHS * hr_dataset_count(rank.worker.dataset));
    run(&rank);
    worker_close(&rank.worker);
    return 0;
}

int main(int argc, char **argv)
{
    worker_begin();
    if (argc == 5 && !strcmp(argv[1], "reference"))
        return make_reference(argv[2], argv[3], argv[4]);
    if (argc >= 4 && !strcmp(argv[1], "run"))
        return run_rank(argc, argv);
    fprintf(stderr, "usage: soak_hosts_worker reference FOLDER FILE SEED | "
                    "run FOLDER FILE KEY=VALUE...\n");
    return 2;
}
