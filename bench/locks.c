/*
 * The loader's lock traffic per sample, for bench/locks.py. Reading and preparing cost nothing here
 * (the program is linked with --wrap), so that all that is left of a sample's turn is what threads
 * do under locks and to counters that they share.
 *
 *   locks PATH THREADS SECONDS MEASURE   one line of JSON. PATH: `files`, workers that read their
 *       own files; `fill`, the same into a private cache, one epoch; `cache`, samples that the
 * cache has; `agent`, a crew for 8 queues. With MEASURE 1 each lock's claims, holds and waits are
 * timed, which costs time itself. locks handover   the time in which a line of memory goes from one
 * core to another locks counters THREADS   what counting a sample takes, in CPU time of a thread:
 * in one set of counters for all threads, and in a set for each core
 */
#include "../tests/unit/loader/wrapped.h"

#include "base/memory.h"
#include "base/round.h"
#include "loader/crew.h"
#include "loader/inside.h"
#include "loader/publisher.h"

#include <headrace/headrace.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES      2048
#define FILE_BYTES 64
#define QUEUES     8
#define CHUNK      64
#define PLACES     64
#define LOCKS      1024
/* A thread that held a lock for longer was not running for some of that time. */
#define LONGEST_NS 20000

/* ---- time ---- */

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

struct took {
    double wall_s, cpu_s;
};

static struct took now(void)
{
    return (struct took){seconds(), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
}

static struct took since(const struct took *start)
{
    struct took end = now();
    return (struct took){end.wall_s - start->wall_s, end.cpu_s - start->cpu_s};
}

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static double ns_per_tick;
static uint64_t longest;

static void calibrate(void)
{
    double start_s = seconds();
    uint64_t start = ticks();
    while (seconds() - start_s < 0.05)
        ;
    ns_per_tick = (seconds() - start_s) * 1e9 / (double)(ticks() - start);
    longest = (uint64_t)(LONGEST_NS / ns_per_tick);
}

/* ---- locks ---- */

/* What happened to one lock. Only the lock's holder writes it. */
struct traffic {
    pthread_mutex_t *_Atomic lock;
    const char *name; /* NULL: not one of those that are looked for */
    uint64_t since;   /* of the present hold; 0: none */
    int core;         /* of the present or last holder */
    int is_moved;     /* the holder before was on another core */
    uint64_t claims, cut, wait_ticks;
    uint64_t holds[2], hold_ticks[2]; /* by is_moved */
};

static struct traffic traffic[LOCKS];
static atomic_int is_measuring;

static struct traffic *traffic_of(pthread_mutex_t *lock)
{
    size_t at = (size_t)((uintptr_t)lock >> 4) * 2654435761u;
    for (size_t i = 0; i < LOCKS; i++) {
        struct traffic *t = &traffic[(at + i) % LOCKS];
        pthread_mutex_t *there = atomic_load_explicit(&t->lock, memory_order_relaxed);
        if (there == lock)
            return t;
        if (!there && (atomic_compare_exchange_strong(&t->lock, &there, lock) || there == lock))
            return t;
    }
    fprintf(stderr, "too many locks\n");
    exit(3);
}

static void begin_hold(pthread_mutex_t *lock, uint64_t asked)
{
    struct traffic *t = traffic_of(lock);
    uint64_t begun = ticks();
    int core = sched_getcpu();
    t->is_moved = core != t->core;
    t->core = core;
    t->claims++;
    t->wait_ticks += begun - asked;
    t->since = ticks();
}

static void end_hold(pthread_mutex_t *lock)
{
    struct traffic *t = traffic_of(lock);
    uint64_t held = ticks() - t->since;
    if (!t->since)
        return;
    t->since = 0;
    if (held > longest) {
        t->cut++;
    } else {
        t->holds[t->is_moved]++;
        t->hold_ticks[t->is_moved] += held;
    }
}

/* Of locks for reading, which threads hold side by side, only the claims are counted. */
static _Atomic uint64_t readers;

int __real_pthread_rwlock_rdlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock);
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __real_pthread_mutex_trylock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *lock);
int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);

static int measures(void)
{
    return atomic_load_explicit(&is_measuring, memory_order_relaxed);
}

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    if (measures())
        atomic_fetch_add_explicit(&readers, 1, memory_order_relaxed);
    return __real_pthread_rwlock_rdlock(lock);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (!measures())
        return __real_pthread_mutex_lock(lock);
    uint64_t asked = ticks();
    int r = __real_pthread_mutex_lock(lock);
    begin_hold(lock, asked);
    return r;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *lock)
{
    uint64_t asked = ticks();
    int r = __real_pthread_mutex_trylock(lock);
    if (!r && measures())
        begin_hold(lock, asked);
    return r;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    if (measures())
        end_hold(lock);
    return __real_pthread_mutex_unlock(lock);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    if (measures())
        end_hold(lock);
    int r = __real_pthread_cond_wait(cond, lock);
    if (measures())
        begin_hold(lock, ticks());
    return r;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    if (measures())
        end_hold(lock);
    int r = __real_pthread_cond_timedwait(cond, lock, until);
    if (measures())
        begin_hold(lock, ticks());
    return r;
}

/* ---- samples that cost nothing ---- */

/* Puts this thread on the nth of the cores, counted in a circle. */
static void stay_on(int nth)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all))
        return;
    nth %= CPU_COUNT(&all);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && nth-- == 0)
            CPU_SET(core, &one);
    if (CPU_COUNT(&one))
        sched_setaffinity(0, sizeof one, &one);
}

int __wrap_hr__preparer_run_item(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                                 const struct hr_item *item, const struct hr_draw_key *key,
                                 const struct hr__prepared *prepared, struct hr_error *error)
{
    /* While locks are timed, workers take turns on all cores: the kernel would keep threads that
     * wake each other on one core, where no line of memory ever moves. */
    static _Thread_local int is_placed;
    static atomic_int placed;
    if (measures() && !is_placed) {
        is_placed = 1;
        stay_on(atomic_fetch_add(&placed, 1));
    }
    return 0;
}

int __wrap_hr__read_file(struct hr__read *read, uint64_t max_bytes)
{
    read->bytes = hr__alloc_aligned(HR__TAG_STORAGE, FILE_BYTES, 64);
    read->length = FILE_BYTES;
    if (!read->bytes)
        return -ENOMEM;
    memset(read->bytes, 0xff, FILE_BYTES);
    return 0;
}

static _Noreturn void die(const struct hr_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    exit(3);
}

static struct hr_dataset *make_dataset(char folder[64])
{
    struct hr_dataset_options options;
    struct hr_dataset *dataset;
    struct hr_error error;
    char path[128];
    strcpy(folder, "/tmp/headrace-locks-XXXXXX");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(3);
    }
    snprintf(path, sizeof path, "%s/class", folder);
    mkdir(path, 0700);
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/class/%d.jpg", folder, i);
        FILE *file = fopen(path, "we");
        if (!file || fprintf(file, "%64d", i) != FILE_BYTES || fclose(file)) {
            perror(path);
            exit(3);
        }
    }
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* caches refuse newer files */
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    if (hr_dataset_open_folder(&dataset, folder, &options, &error))
        die(&error);
    return dataset;
}

static struct hr_recipe *make_recipe(void)
{
    struct hr_operation crop;
    struct hr_recipe *recipe;
    struct hr_recipe_options options;
    struct hr_error error;
    hr_operation_default(&crop, HR_CENTER_CROP);
    crop.u.center_crop.height = crop.u.center_crop.width = 8;
    hr_recipe_options_default(&options);
    if (hr_recipe_create(&recipe, &crop, 1, &options, &error))
        die(&error);
    return recipe;
}

/* ---- one loader with a consumer ---- */

static uint64_t run_epoch(struct hr_loader *loader, uint64_t epoch)
{
    struct hr_error error;
    struct hr_batch *batch;
    struct hr_batch_view view;
    uint64_t samples = 0;
    int r;
    if (hr_loader_start_epoch(loader, epoch, &error))
        die(&error);
    while ((r = hr_loader_next(loader, &batch, &error)) != 0) {
        if (r < 0)
            die(&error);
        hr_batch_get(batch, &view);
        samples += view.count;
        hr_batch_release(&batch);
    }
    return samples;
}

/* What to measure. */
struct wish {
    const char *path;
    int threads, measure;
    double time_s;
};

static uint64_t run_loader(struct hr_dataset *dataset, struct hr_recipe *recipe,
                           const struct wish *wish, struct took *took)
{
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr_error error;
    int is_cached = strcmp(wish->path, "files") != 0, is_filling = !strcmp(wish->path, "fill");
    hr_loader_options_default(&options);
    options.batch_size = 256;
    options.batches_ahead = 4;
    options.shuffle = 1;
    options.threads = wish->threads;
    options.cache = is_cached ? "64MiB" : NULL;
    options.cache_form = is_cached ? HR_FORM_ENCODED : HR_FORM_AUTO;
    if (hr_loader_create(&loader, dataset, recipe, &options, &error))
        die(&error);
    traffic_of(&loader->lock)->name = "loader";
    uint64_t samples = 0, epoch = 0;
    if (!is_filling)
        run_epoch(loader, epoch++);
    atomic_store(&is_measuring, wish->measure);
    struct took start = now();
    do
        samples += run_epoch(loader, epoch++);
    while (!is_filling && since(&start).wall_s < wish->time_s);
    *took = since(&start);
    atomic_store(&is_measuring, 0);
    hr_loader_destroy(&loader);
    return samples;
}

/* ---- a crew with queues whose chunks nobody reads ---- */

struct queue {
    struct hr_loader *publisher;
    uint8_t *images[PLACES];
    int64_t labels[PLACES][CHUNK], indices[PLACES][CHUNK];
    _Atomic uint64_t published, next; /* chunks */
    _Atomic uint64_t samples;
};

static int acquire(void *self, uint64_t number, struct hr__chunk *out)
{
    struct queue *q = self;
    size_t at = number % PLACES;
    atomic_store(&q->next, number + 1);
    *out = (struct hr__chunk){
        .images = q->images[at], .labels = q->labels[at], .indices = q->indices[at]};
    return 0;
}

static void drop(void *self, uint64_t number)
{
}

static void publish(void *self, const struct hr__chunk_done *done)
{
    struct queue *q = self;
    atomic_fetch_add(&q->published, 1);
    atomic_fetch_add(&q->samples, done->count);
}

/* The queue that is furthest behind is served first. */
static double ahead(void *self)
{
    return (double)atomic_load(&((struct queue *)self)->published);
}

static const struct hr__publisher_ops ops = {acquire, drop, publish, ahead};

static void make_queue(struct queue *q, struct hr__crew *crew, struct hr_dataset *dataset,
                       struct hr_recipe *recipe, int number)
{
    struct hr_loader_options options;
    struct hr_tensor_spec spec;
    struct hr_error error;
    hr_loader_options_default(&options);
    options.batch_size = CHUNK;
    options.batches_ahead = 8;
    options.shuffle = 1;
    options.seed = (uint64_t)number;
    hr_recipe_output(recipe, &spec);
    for (int i = 0; i < PLACES; i++)
        q->images[i] = aligned_alloc(64, hr__round_up(CHUNK * spec.bytes, 64));
    if (hr__publisher_create(&q->publisher, crew, dataset, recipe, &options, &ops, q, &error))
        die(&error);
    traffic_of(&q->publisher->lock)->name = "queue";
}

static uint64_t run_queues(struct queue *queues, uint64_t epoch)
{
    struct hr_error error;
    uint64_t samples, before[QUEUES], all = 0;
    for (int i = 0; i < QUEUES; i++) {
        struct queue *q = &queues[i];
        before[i] = atomic_load(&q->samples);
        if (hr__publisher_start(q->publisher, epoch, 0, atomic_load(&q->next), &samples, &error))
            die(&error);
    }
    for (int i = 0; i < QUEUES; i++) {
        while (atomic_load(&queues[i].samples) - before[i] < samples)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        all += samples;
    }
    return all;
}

static uint64_t run_agent(struct hr_dataset *dataset, struct hr_recipe *recipe,
                          const struct wish *wish, struct took *took)
{
    struct hr__crew *crew;
    struct hr_error error;
    struct queue *queues = calloc(QUEUES, sizeof *queues);
    if (!queues || hr__crew_create(&crew, wish->threads, &error))
        die(&error);
    for (int i = 0; i < QUEUES; i++)
        make_queue(&queues[i], crew, dataset, recipe, i);
    uint64_t samples = 0, epoch = 0;
    run_queues(queues, epoch++);
    atomic_store(&is_measuring, wish->measure);
    struct took start = now();
    do
        samples += run_queues(queues, epoch++);
    while (since(&start).wall_s < wish->time_s);
    *took = since(&start);
    atomic_store(&is_measuring, 0);
    for (int i = 0; i < QUEUES; i++) {
        hr_loader_destroy(&queues[i].publisher);
        for (int k = 0; k < PLACES; k++)
            free(queues[i].images[k]);
    }
    hr__crew_destroy(&crew);
    free(queues);
    return samples;
}

/* ---- results ---- */

/* Names the busiest of the locks that have no name. */
static void name_busiest(const char *name)
{
    struct traffic *most = NULL;
    for (size_t i = 0; i < LOCKS; i++)
        if (traffic[i].claims && !traffic[i].name && (!most || traffic[i].claims > most->claims))
            most = &traffic[i];
    if (most)
        most->name = name;
}

static void print_class(const char *name, uint64_t samples, const char *comma)
{
    struct traffic sum = {0};
    int locks = 0;
    for (size_t i = 0; i < LOCKS; i++) {
        const struct traffic *t = &traffic[i];
        const char *called = t->name ? t->name : "other";
        if (!t->claims || strcmp(called, name))
            continue;
        locks++;
        sum.claims += t->claims;
        for (int moved = 0; moved < 2; moved++) {
            sum.holds[moved] += t->holds[moved];
            sum.hold_ticks[moved] += t->hold_ticks[moved];
        }
        sum.cut += t->cut;
        sum.wait_ticks += t->wait_ticks;
    }
    if (!locks)
        return;
    double hold_ns[2];
    for (int moved = 0; moved < 2; moved++)
        hold_ns[moved] = sum.holds[moved] ? (double)sum.hold_ticks[moved] /
                                                (double)sum.holds[moved] * ns_per_tick
                                          : 0;
    printf("%s{\"name\": \"%s\", \"locks\": %d, \"claims\": %.4f, \"hold_ns\": %.1f, "
           "\"moved_hold_ns\": %.1f, \"moved\": %llu, \"wait_ns\": %.1f, \"cut\": %llu}",
           comma, name, locks, (double)sum.claims / (double)samples, hold_ns[0], hold_ns[1],
           (unsigned long long)sum.holds[1],
           (double)sum.wait_ticks / (double)sum.claims * ns_per_tick, (unsigned long long)sum.cut);
}

static void measure_path(const struct wish *wish)
{
    char folder[64], command[128];
    struct took took;
    struct hr_dataset *dataset = make_dataset(folder);
    struct hr_recipe *recipe = make_recipe();
    int is_agent = !strcmp(wish->path, "agent");
    uint64_t samples = is_agent ? run_agent(dataset, recipe, wish, &took)
                                : run_loader(dataset, recipe, wish, &took);
    if (!is_agent)
        name_busiest(strcmp(wish->path, "fill") ? "ring" : "cache");
    printf("{\"path\": \"%s\", \"threads\": %d, \"samples_per_s\": %.0f, \"cpu_ns\": %.0f, "
           "\"locks\": [",
           wish->path, wish->threads, (double)samples / took.wall_s,
           took.cpu_s * 1e9 / (double)samples);
    static const char *const names[] = {"loader", "queue", "cache", "ring", "other"};
    const char *comma = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        print_class(names[i], samples, comma);
        for (size_t k = 0; k < LOCKS; k++)
            if (traffic[k].claims && !strcmp(traffic[k].name ? traffic[k].name : "other", names[i]))
                comma = ", ";
    }
    printf("], \"readers\": %.4f}\n", (double)atomic_load(&readers) / (double)samples);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&dataset);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    (void)!system(command);
}

/* ---- handing a line of memory over ---- */

#define BURSTS 2000
#define TURNS  500 /* of a burst */

static _Alignas(64) atomic_uint ball;

static void *answer(void *arg)
{
    stay_on(1);
    for (unsigned turn = 1; turn < 2 * BURSTS * TURNS; turn += 2) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != turn)
            ;
        atomic_store_explicit(&ball, turn + 1, memory_order_release);
    }
    return NULL;
}

static void measure_handover(void)
{
    pthread_t thread;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || pthread_create(&thread, NULL, answer, NULL)) {
        printf("{\"handover_ns\": null}\n");
        return;
    }
    stay_on(0);
    unsigned turn = 0;
    double least_s = 1;
    for (int burst = 0; burst < BURSTS; burst++) {
        double start_s = seconds();
        for (int i = 0; i < TURNS; i++, turn += 2) {
            atomic_store_explicit(&ball, turn + 1, memory_order_release);
            while (atomic_load_explicit(&ball, memory_order_acquire) != turn + 2)
                ;
        }
        /* The shortest one: in others, one of the threads did not run all the time. */
        if (seconds() - start_s < least_s)
            least_s = seconds() - start_s;
    }
    pthread_join(thread, NULL);
    printf("{\"handover_ns\": %.1f}\n", least_s * 1e9 / (2 * TURNS));
}

/* ---- counters ---- */

#define COUNTS 1000000

static struct hr__counters sets[HR__COUNTER_SETS];

struct counting {
    pthread_t thread;
    pthread_barrier_t *start;
    int nth, is_shared;
    double ns;
};

/* What a worker counts that reads a file and prepares its sample. */
static void *count_samples(void *arg)
{
    struct counting *c = arg;
    stay_on(c->nth);
    pthread_barrier_wait(c->start);
    double start_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < COUNTS; i++) {
        struct hr__counters *here = &sets[c->is_shared ? 0 : hr__counter_set()];
        hr__count(&here->bytes_read, 100000);
        hr__count(&here->staged_bytes, 100000);
        hr__histogram_add(&here->fetch, 20000);
        hr__histogram_add(&here->prepare, 400000);
        hr__uncount(&here->staged_bytes, 100000);
        hr__count(&here->samples, 1);
    }
    c->ns = (seconds_of(CLOCK_THREAD_CPUTIME_ID) - start_s) * 1e9 / COUNTS;
    return NULL;
}

static double counting_ns(int threads, int is_shared)
{
    struct counting *all = calloc((size_t)threads, sizeof *all);
    pthread_barrier_t start;
    double sum = 0;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; all && i < threads; i++) {
        all[i] = (struct counting){.start = &start, .nth = i, .is_shared = is_shared};
        if (pthread_create(&all[i].thread, NULL, count_samples, &all[i]))
            exit(3);
    }
    for (int i = 0; all && i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        sum += all[i].ns;
    }
    free(all);
    return sum / threads;
}

static void measure_counters(int threads)
{
    double shared = counting_ns(threads, 1), apart = counting_ns(threads, 0);
    printf("{\"threads\": %d, \"shared_ns\": %.1f, \"sets_ns\": %.1f}\n", threads, shared, apart);
}

int main(int argc, char **argv)
{
    calibrate();
    if (argc == 5 && atoi(argv[2]) > 0)
        measure_path(&(struct wish){.path = argv[1],
                                    .threads = atoi(argv[2]),
                                    .time_s = atof(argv[3]),
                                    .measure = atoi(argv[4])});
    else if (argc == 2 && !strcmp(argv[1], "handover"))
        measure_handover();
    else if (argc == 3 && !strcmp(argv[1], "counters") && atoi(argv[2]) > 0)
        measure_counters(atoi(argv[2]));
    else {
        fprintf(stderr, "usage: see the head of bench/locks.c\n");
        return 2;
    }
    return 0;
}
