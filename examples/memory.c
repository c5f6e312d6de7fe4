/*
 * Records the use of each block of its own memory, and prints a report: a network of two layers
 * learns a function, and each buffer is allocated with malloc and released with free.
 *
 *   cc memory.c $(pkg-config --cflags --libs headrace) -lheadrace-tap -lm -o memory
 *   ./memory [FILE]
 *
 * A program linked with the tap need not report its allocations: after hr_tap_begin the tap reports
 * every block of at least HEADRACE_TAP_LEAST bytes. The program itself reports reads and writes,
 * the categories of its blocks, and the starts of iterations. `headrace memory report` reads the
 * record (FILE, else memory.hrm).
 */
#include <headrace/headrace.h>
#include <headrace/memory.h>
#include <headrace/tap.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH      64
#define INPUTS     512
#define HIDDEN     256
#define ITERATIONS 12
#define RATE       0.05f

/* The recording and its position within an iteration. */
struct log {
    struct hr_memory_recorder *recorder;
    uint8_t phase; /* enum hr_memory_phase */
    uint32_t call; /* operators so far */
};

/* ---- callbacks of the tap; libraries' memory is not distinguished here, all is device 0 ---- */

static void report_block(void *arg, uint8_t kind, uint64_t address, uint64_t bytes)
{
    const struct log *log = arg;
    struct hr_memory_event event = {
        .address = address, .bytes = bytes, .kind = kind, .phase = log->phase};
    hr_memory_record(log->recorder, &event);
}

static void allocated(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    (void)device;
    report_block(arg, HR_MEMORY_ALLOC, address, bytes);
}

static void freed(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    (void)device;
    report_block(arg, HR_MEMORY_FREE, address, bytes);
}

static void failed(void *arg, uint64_t bytes, uint8_t device)
{
    (void)device;
    report_block(arg, HR_MEMORY_FAILED, 0, bytes);
}

/* ---- events that the program records itself ---- */

static void access_block(struct log *log, uint8_t kind, const char *op, const void *block)
{
    struct hr_memory_event event = {.address = (uintptr_t)block,
                                    .bytes = hr_memory_access(log->call, 0),
                                    .what = hr_memory_name(log->recorder, op),
                                    .kind = kind,
                                    .phase = log->phase};
    hr_memory_record(log->recorder, &event);
}

/* Records one operator that reads `a` and `b` and writes `to`; each may be NULL. */
static void operate(struct log *log, const char *op, const void *to, const void *a, const void *b)
{
    log->call++;
    if (a)
        access_block(log, HR_MEMORY_READ, op, a);
    if (b)
        access_block(log, HR_MEMORY_READ, op, b);
    if (to)
        access_block(log, HR_MEMORY_WRITE, op, to);
}

static void describe(struct log *log, const void *block, enum hr_memory_category category,
                     const char *name)
{
    struct hr_memory_event event = {.address = (uintptr_t)block,
                                    .bytes = hr_memory_about(category, 0),
                                    .what = hr_memory_name(log->recorder, name),
                                    .kind = HR_MEMORY_DESCRIBE};
    hr_memory_record(log->recorder, &event);
}

static void begin_iteration(struct log *log, uint64_t number)
{
    struct hr_memory_event event = {.bytes = number,
                                    .what = hr_memory_name(log->recorder, "iteration"),
                                    .kind = HR_MEMORY_MARK};
    hr_memory_record(log->recorder, &event);
}

/* ---- the network ---- */

static float *make(size_t count)
{
    float *block = malloc(count * sizeof *block);
    if (!block) {
        fprintf(stderr, "memory: out of memory\n");
        exit(3);
    }
    return block;
}

/* One step of gradient descent on the mean of squares; returns it. */
static float learn(struct log *log, float *weights, const float *outputs, unsigned *state)
{
    float loss = 0, error[BATCH];
    log->phase = HR_MEMORY_FORWARD;
    float *x = make(BATCH * INPUTS), *hidden = make(BATCH * HIDDEN);
    for (int i = 0; i < BATCH * INPUTS; i++)
        x[i] = (float)((*state = *state * 1103515245u + 12345u) >> 16 & 255) / 255 - 0.5f;
    operate(log, "load", x, NULL, NULL);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HIDDEN; h++) {
            float sum = 0;
            for (int i = 0; i < INPUTS; i++)
                sum += x[b * INPUTS + i] * weights[h * INPUTS + i];
            hidden[b * HIDDEN + h] = tanhf(sum);
        }
    operate(log, "linear tanh", hidden, x, weights);
    for (int b = 0; b < BATCH; b++) {
        error[b] = -sinf(3 * x[b * INPUTS]);
        for (int h = 0; h < HIDDEN; h++)
            error[b] += hidden[b * HIDDEN + h] * outputs[h];
        loss += error[b] * error[b] / BATCH;
    }
    operate(log, "linear loss", NULL, hidden, NULL);

    log->phase = HR_MEMORY_BACKWARD;
    float *gradient = make(HIDDEN * INPUTS);
    memset(gradient, 0, HIDDEN * INPUTS * sizeof *gradient);
    operate(log, "zero", gradient, NULL, NULL);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HIDDEN; h++) {
            float t = hidden[b * HIDDEN + h], back = error[b] * outputs[h] * (1 - t * t);
            for (int i = 0; i < INPUTS; i++)
                gradient[h * INPUTS + i] += back * x[b * INPUTS + i] / BATCH;
        }
    operate(log, "linear tanh backward", gradient, x, hidden);

    log->phase = HR_MEMORY_OPTIMIZER;
    for (int i = 0; i < HIDDEN * INPUTS; i++)
        weights[i] -= RATE * gradient[i];
    describe(log, gradient, HR_MEMORY_GRADIENT, "[256, 512] float");
    operate(log, "sgd", weights, gradient, weights);
    free(gradient);
    free(hidden);
    free(x);
    log->phase = HR_MEMORY_OUTSIDE;
    return loss;
}

static void train(struct log *log)
{
    unsigned state = 1;
    float first = 0, last = 0, outputs[HIDDEN];
    float *weights = make(HIDDEN * INPUTS);
    describe(log, weights, HR_MEMORY_PARAMETER, "[256, 512] float");
    for (int i = 0; i < HIDDEN * INPUTS; i++)
        weights[i] = 0.05f * sinf((float)i);
    for (int h = 0; h < HIDDEN; h++)
        outputs[h] = h % 2 ? 0.1f : -0.1f;
    for (int k = 0; k < ITERATIONS; k++) {
        begin_iteration(log, (uint64_t)k);
        last = learn(log, weights, outputs, &state);
        first = k ? first : last;
    }
    free(weights);
    printf("loss %.4f, then %.4f\n\n", (double)first, (double)last);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "memory.hrm";
    struct log log = {.recorder = NULL};
    struct hr_memory *memory = NULL;
    struct hr_error error = {0};
    struct hr_tap tap = {.version = HR_TAP_VERSION,
                         .arg = &log,
                         .allocated = allocated,
                         .freed = freed,
                         .failed = failed};
    int r = hr_memory_recorder_create(&log.recorder, path, NULL, &error);
    if (!r) {
        hr_memory_fact(log.recorder, "allocations", "allocator");
        r = hr_tap_begin(&tap);
        if (r)
            snprintf(error.message, sizeof error.message, "the tap is in use");
    }
    if (!r) {
        train(&log);
        hr_tap_end();
    }
    hr_memory_recorder_destroy(&log.recorder);
    if (!r)
        r = hr_memory_open(&memory, path, NULL, &error);
    if (!r)
        r = hr_memory_write_text((const struct hr_memory *const *)&memory, 1, "-", 100, &error);
    if (r)
        fprintf(stderr, "memory: %s\n", error.message);
    hr_memory_destroy(&memory);
    return r ? 3 : 0;
}
