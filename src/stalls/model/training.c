/*
 * Simulates training loops and loaders as actors on a machine (machine.h): each runs one work item
 * at a time and continues when that ends.
 *
 * A rank waits for its next batch, receives it (batch_cpu_s), steps, and waits for the other ranks.
 * torch's loader: worker w makes batches w, w + W, ...; receiving batch k lets batch k +
 * batches_ahead begin; for one batch a worker reads missing files and prepares, sample after
 * sample. Without workers the loop does this itself when it needs the batch. Headrace's loader:
 * threads take the first available sample of the window; reads run ahead of them. For a worker of
 * torch's, successive samples without a read are one work item, which makes no difference.
 */
#include "stalls/model/training.h"

#include "base/memory.h"
#include "stalls/model/machine.h"

#include <errno.h>

enum stage { IDLE, READING, PREPARING, DELAYED, RECEIVING, STEPPING, RESTING };

struct training_worker {
    enum stage stage;
    uint64_t batch; /* torch's loader: the current batch, or the next */
    int sample;     /* next sample in the batch */
    uint64_t item;  /* Headrace's loader: the current sample, counted from the run's start */
    double delay_s; /* delay after the work */
};

struct loop {
    enum stage stage;
    uint64_t taken; /* batches taken */
    bool waiting;   /* for batch `taken` */
    double rest_s;  /* of the step, after its CPU work */
    int *left;      /* window: samples (Headrace) or 1 (torch) still to do, per batch */
    /* Headrace's loader. */
    uint64_t next_here, next_missing; /* first samples not examined yet */
    uint64_t *reads;                  /* ring of missing samples */
    uint64_t issued, arrived, used;   /* counters of that ring */
    uint32_t *idle;                   /* stack of idle workers */
    int idle_count;
};

struct training {
    const struct hr__system *system;
    const struct hr__draws *draws;
    struct hr__machine machine;
    struct loop *loops;
    struct training_worker *workers; /* by rank; a loop without workers has one */
    int *left;
    uint64_t *reads;
    uint32_t *idle;
    int per_rank; /* workers */
    uint64_t window, batch;
    int arrived; /* ranks that have finished their step */
    uint64_t steps;
};

/* ---- samples ---- */

static size_t draw_of(const struct training *t, int rank, uint64_t sample)
{
    size_t offset = t->draws->samples / (size_t)t->system->ranks * (size_t)rank;
    return (size_t)((sample + offset) % t->draws->samples);
}

static bool is_missing(const struct training *t, int rank, uint64_t sample)
{
    return t->system->missing > 0 &&
           t->draws->chance[draw_of(t, rank, sample)] < t->system->missing;
}

static double cpu_of(const struct training *t, int rank, uint64_t sample, bool missing)
{
    return t->draws->prepare_s[draw_of(t, rank, sample)] + (missing ? t->system->missing_cpu_s : 0);
}

static void begin_read(struct training *t, int rank, uint32_t id, uint64_t sample)
{
    hr__machine_read(&t->machine, id, t->draws->bytes[draw_of(t, rank, sample)]);
}

static uint32_t id_of_worker(const struct training *t, size_t worker)
{
    return (uint32_t)((size_t)t->system->ranks + worker);
}

/* ---- the training loop ---- */

static void receive_if_ready(struct training *t, int rank)
{
    struct loop *loop = &t->loops[rank];
    if (!loop->waiting || loop->left[loop->taken % t->window])
        return;
    loop->waiting = false;
    loop->stage = RECEIVING;
    hr__machine_run(&t->machine, (uint32_t)rank, t->system->batch_cpu_s);
}

static void worker_begin(struct training *t, size_t worker);

static void want_batch(struct training *t, int rank)
{
    t->loops[rank].waiting = true;
    t->loops[rank].stage = IDLE;
    if (!t->system->workers)
        worker_begin(t, (size_t)rank);
    else
        receive_if_ready(t, rank);
}

static void begin_step(struct training *t, int rank)
{
    const struct hr__system *s = t->system;
    struct loop *loop = &t->loops[rank];
    double step_s = t->draws->step_s[(loop->taken - 1) % t->draws->steps];
    double mean_s = t->draws->step_mean_s;
    int threads = s->step_threads > 0 ? s->step_threads : 1;
    /* The work varies with the step's length and never exceeds it. */
    double share = mean_s > 0 ? s->step_cpu_s / threads / mean_s : 0;
    double work_s = step_s * (share < 1 ? share : 1);
    loop->rest_s = step_s - work_s;
    loop->stage = work_s > 0 ? STEPPING : RESTING;
    if (work_s > 0)
        hr__machine_step(&t->machine, (uint32_t)rank, work_s, threads);
    else
        hr__machine_wait(&t->machine, (uint32_t)rank, loop->rest_s);
}

static void arrive(struct training *t)
{
    if (++t->arrived < t->system->ranks)
        return;
    t->arrived = 0;
    t->steps++;
    for (int r = 0; r < t->system->ranks; r++)
        want_batch(t, r);
}

/* ---- torch's loader ---- */

static void batch_done(struct training *t, int rank, uint64_t batch)
{
    t->loops[rank].left[batch % t->window] = 0;
    receive_if_ready(t, rank);
}

/* Runs the work of the samples up to the next one that must be read first. */
static void worker_prepare(struct training *t, size_t index, bool first_was_read)
{
    struct training_worker *w = &t->workers[index];
    int rank = (int)(index / (size_t)t->per_rank), first = w->sample;
    double work_s = 0;
    bool missing = first_was_read;
    do {
        work_s += cpu_of(t, rank, w->batch * t->batch + (uint64_t)w->sample, missing);
        w->sample++;
        missing = false;
    } while (w->sample < t->system->batch_size &&
             !is_missing(t, rank, w->batch * t->batch + (uint64_t)w->sample));
    w->delay_s = t->system->delay_s * (w->sample - first);
    w->stage = PREPARING;
    hr__machine_run(&t->machine, id_of_worker(t, index), work_s);
}

static void worker_begin(struct training *t, size_t index)
{
    struct training_worker *w = &t->workers[index];
    int rank = (int)(index / (size_t)t->per_rank);
    const struct loop *loop = &t->loops[rank];
    uint64_t end = loop->taken + (t->system->workers ? t->window : loop->waiting);
    w->stage = IDLE;
    if (w->batch >= end)
        return;
    uint64_t sample = w->batch * t->batch + (uint64_t)w->sample;
    if (!is_missing(t, rank, sample)) {
        worker_prepare(t, index, false);
        return;
    }
    w->stage = READING;
    begin_read(t, rank, id_of_worker(t, index), sample);
}

static void worker_goes_on(struct training *t, size_t index)
{
    struct training_worker *w = &t->workers[index];
    int rank = (int)(index / (size_t)t->per_rank);
    if (w->stage == READING) {
        worker_prepare(t, index, true);
    } else if (w->stage == PREPARING && w->delay_s > 0) {
        w->stage = DELAYED;
        hr__machine_wait(&t->machine, id_of_worker(t, index), w->delay_s);
    } else {
        if (w->sample == t->system->batch_size) {
            uint64_t done = w->batch;
            w->sample = 0;
            w->batch += (uint64_t)t->per_rank;
            batch_done(t, rank, done);
        }
        worker_begin(t, index);
    }
}

/* ---- Headrace's loader ---- */

static uint64_t window_end(const struct training *t, int rank)
{
    return (t->loops[rank].taken + t->window) * t->batch;
}

/* Starts reads in order, as many in flight as the loader can keep. */
static void fetch(struct training *t, int rank)
{
    struct loop *loop = &t->loops[rank];
    uint64_t end = window_end(t, rank), ring = t->window * t->batch;
    uint32_t id = id_of_worker(t, (size_t)t->per_rank * (size_t)t->system->ranks + (size_t)rank);
    while (loop->issued - loop->arrived < (uint64_t)t->system->fetches_ahead &&
           loop->next_missing < end) {
        uint64_t sample = loop->next_missing++;
        if (!is_missing(t, rank, sample))
            continue;
        loop->reads[loop->issued++ % ring] = sample;
        begin_read(t, rank, id, sample);
    }
}

/* Takes the first sample of the window that a worker can begin. */
static bool take_sample(struct training *t, int rank, uint64_t *sample, bool *was_read)
{
    struct loop *loop = &t->loops[rank];
    uint64_t end = window_end(t, rank), ring = t->window * t->batch;
    bool reads_ahead = t->system->fetches_ahead > 0, arrived = loop->used < loop->arrived;
    while (reads_ahead && loop->next_here < end && is_missing(t, rank, loop->next_here))
        loop->next_here++;
    bool here = loop->next_here < end;
    if (arrived && (!here || loop->reads[loop->used % ring] < loop->next_here)) {
        *sample = loop->reads[loop->used++ % ring];
        *was_read = true;
        return true;
    }
    *sample = loop->next_here;
    *was_read = false;
    loop->next_here += here;
    return here;
}

static void feed(struct training *t, int rank)
{
    struct loop *loop = &t->loops[rank];
    uint64_t sample;
    bool was_read;
    while (loop->idle_count && take_sample(t, rank, &sample, &was_read)) {
        uint32_t index = loop->idle[--loop->idle_count], id = id_of_worker(t, index);
        struct training_worker *w = &t->workers[index];
        w->item = sample;
        w->delay_s = t->system->delay_s;
        if (!was_read && is_missing(t, rank, sample)) {
            w->stage = READING;
            begin_read(t, rank, id, sample);
        } else {
            w->stage = PREPARING;
            hr__machine_run(&t->machine, id, cpu_of(t, rank, sample, was_read));
        }
    }
}

static void thread_goes_on(struct training *t, size_t index)
{
    struct training_worker *w = &t->workers[index];
    int rank = (int)(index / (size_t)t->per_rank);
    struct loop *loop = &t->loops[rank];
    uint64_t batch = w->item / t->batch;
    if (w->stage == READING) {
        w->stage = PREPARING;
        hr__machine_run(&t->machine, id_of_worker(t, index), cpu_of(t, rank, w->item, true));
        return;
    }
    if (w->stage == PREPARING && w->delay_s > 0) {
        w->stage = DELAYED;
        hr__machine_wait(&t->machine, id_of_worker(t, index), w->delay_s);
        return;
    }
    w->stage = IDLE;
    loop->idle[loop->idle_count++] = (uint32_t)index;
    if (--loop->left[batch % t->window] == 0)
        receive_if_ready(t, rank);
    feed(t, rank);
}

/* ---- the run ---- */

/* Gives a batch to the loop; the loader may go on by one batch. */
static void take_batch(struct training *t, int rank)
{
    struct loop *loop = &t->loops[rank];
    bool headrace = t->system->loader == HR__LOADER_HEADRACE && t->system->workers;
    loop->left[loop->taken++ % t->window] = headrace ? t->system->batch_size : 1;
    if (headrace) {
        fetch(t, rank);
        feed(t, rank);
    } else if (t->system->workers) {
        uint64_t last = loop->taken + t->window - 1;
        size_t index = (size_t)rank * (size_t)t->per_rank + (size_t)(last % (uint64_t)t->per_rank);
        if (t->workers[index].stage == IDLE && t->workers[index].batch == last)
            worker_begin(t, index);
    }
}

static void loop_goes_on(struct training *t, int rank)
{
    struct loop *loop = &t->loops[rank];
    if (loop->stage == RECEIVING) {
        take_batch(t, rank);
        begin_step(t, rank);
    } else if (loop->stage == STEPPING && loop->rest_s > 0) {
        loop->stage = RESTING;
        hr__machine_wait(&t->machine, (uint32_t)rank, loop->rest_s);
    } else {
        arrive(t);
    }
}

static void go_on(struct training *t, uint32_t id)
{
    size_t ranks = (size_t)t->system->ranks, workers = ranks * (size_t)t->per_rank;
    bool headrace = t->system->loader == HR__LOADER_HEADRACE && t->system->workers;
    if (id < ranks) {
        loop_goes_on(t, (int)id);
    } else if (id - ranks >= workers) {
        int rank = (int)(id - ranks - workers);
        t->loops[rank].arrived++;
        fetch(t, rank);
        feed(t, rank);
    } else if (headrace) {
        thread_goes_on(t, id - ranks);
    } else {
        worker_goes_on(t, id - ranks);
    }
}

static void clear(struct training *t)
{
    hr__machine_clear(&t->machine);
    hr__free(t->loops);
    hr__free(t->workers);
    hr__free(t->left);
    hr__free(t->reads);
    hr__free(t->idle);
}

static int init(struct training *t, const struct hr__system *s, const struct hr__draws *draws)
{
    bool headrace = s->loader == HR__LOADER_HEADRACE && s->workers;
    *t = (struct training){.system = s, .draws = draws, .batch = (uint64_t)s->batch_size};
    t->per_rank = s->workers ? s->workers : 1;
    t->window = s->workers ? (uint64_t)s->batches_ahead : 1;
    size_t ranks = (size_t)s->ranks, workers = ranks * (size_t)t->per_rank;
    size_t ring = headrace ? (size_t)t->window * (size_t)t->batch : 0;
    size_t ahead = headrace ? (size_t)s->fetches_ahead : 0;
    if (ahead > ring)
        ahead = ring;
    int r = hr__machine_init(&t->machine, s, ranks + workers, workers + ranks * ahead);
    t->loops = hr__alloc(HR__TAG_STALLS, ranks, sizeof *t->loops);
    t->workers = hr__alloc(HR__TAG_STALLS, workers, sizeof *t->workers);
    t->left = hr__alloc(HR__TAG_STALLS, ranks * t->window, sizeof *t->left);
    t->reads = hr__alloc(HR__TAG_STALLS, ranks * ring + 1, sizeof *t->reads);
    t->idle = hr__alloc(HR__TAG_STALLS, workers, sizeof *t->idle);
    if (r || !t->loops || !t->workers || !t->left || !t->reads || !t->idle)
        return -ENOMEM;
    for (size_t i = 0; i < ranks * t->window; i++)
        t->left[i] = headrace ? s->batch_size : 1;
    for (size_t i = 0; i < ranks; i++) {
        t->loops[i].left = t->left + i * t->window;
        t->loops[i].reads = t->reads + i * ring;
        t->loops[i].idle = t->idle + i * (size_t)t->per_rank;
    }
    for (size_t i = 0; i < workers; i++)
        t->workers[i].batch = i % (size_t)t->per_rank;
    return 0;
}

/* Spreads the start of worker processes. If they began together and times were constant, they would
 * compete for cores and storage at the same moments forever; real ones drift apart. */
static void worker_starts(struct training *t, size_t index)
{
    const struct hr__system *s = t->system;
    double batch_s = (s->delay_s + t->draws->prepare_s[0]) * s->batch_size;
    t->workers[index].stage = DELAYED;
    hr__machine_wait(&t->machine, id_of_worker(t, index),
                     batch_s * (double)t->workers[index].batch / t->per_rank);
}

static void begin(struct training *t)
{
    bool headrace = t->system->loader == HR__LOADER_HEADRACE && t->system->workers;
    for (int rank = 0; rank < t->system->ranks; rank++) {
        struct loop *loop = &t->loops[rank];
        for (int w = 0; w < t->per_rank; w++) {
            size_t index = (size_t)rank * (size_t)t->per_rank + (size_t)w;
            if (headrace)
                loop->idle[loop->idle_count++] = (uint32_t)index;
            else if (t->system->workers)
                worker_starts(t, index);
        }
        if (headrace) {
            fetch(t, rank);
            feed(t, rank);
        }
        want_batch(t, rank);
    }
}

int hr__training_run(const struct hr__system *system, const struct hr__draws *draws,
                     uint64_t settle, uint64_t batches, double *batch_s, double *core_share)
{
    struct training t;
    int r = init(&t, system, draws);
    if (!r) {
        double begun = 0, busy = 0;
        begin(&t);
        while (t.steps < settle + batches) {
            uint64_t steps = t.steps;
            go_on(&t, hr__machine_next(&t.machine));
            if (t.steps == settle && steps < settle) {
                begun = t.machine.now;
                busy = t.machine.busy_core_s;
            }
        }
        double passed = t.machine.now - begun;
        *batch_s = passed / (double)batches;
        *core_share = passed > 0 ? (t.machine.busy_core_s - busy) / (passed * system->cores) : 0;
    }
    clear(&t);
    return r;
}
