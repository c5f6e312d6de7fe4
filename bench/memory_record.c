/*
 * Makes or analyses a long record, for bench/memory.py:
 *
 *   memory_record make FILE EVENTS    writes the record of a training run that repeats
 *   memory_record analyse FILE        opens it
 *
 * Each prints one line of JSON: seconds, events, bytes; peak memory of the process.
 */
#include <headrace/memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define BLOCKS  500 /* allocated and freed by an iteration */
#define WEIGHTS 160
#define OPS     60

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct record_maker {
    struct hr_memory_recorder *recorder;
    uint32_t ops[OPS], shapes[OPS], call;
    uint64_t time_ns, events;
    enum hr_memory_phase phase;
};

static void put(struct record_maker *m, enum hr_memory_kind kind, uint64_t address, uint64_t bytes,
                uint32_t what)
{
    hr_memory_record(m->recorder, &(struct hr_memory_event){.time_ns = m->time_ns += 700,
                                                            .address = address,
                                                            .bytes = bytes,
                                                            .what = what,
                                                            .kind = (uint8_t)kind,
                                                            .phase = (uint8_t)m->phase});
    m->events++;
}

static uint64_t block_address(int k)
{
    return (UINT64_C(1) << 40) + (uint64_t)k * 65536;
}

static uint64_t weight_address(int k)
{
    return (UINT64_C(1) << 41) + (uint64_t)(k % WEIGHTS) * 65536;
}

/* One operator: reads two blocks, writes one that it allocates. */
static void forward(struct record_maker *m, int k)
{
    uint64_t access = hr_memory_access(++m->call, 0);
    uint32_t op = m->ops[k % OPS];
    put(m, HR_MEMORY_READ, weight_address(k), access, op);
    if (k)
        put(m, HR_MEMORY_READ, block_address(k - 1), access, op);
    put(m, HR_MEMORY_ALLOC, block_address(k), 1000 + 64 * (uint64_t)(k % 97), 0);
    put(m, HR_MEMORY_DESCRIBE, block_address(k), 0, m->shapes[k % OPS]);
    put(m, HR_MEMORY_WRITE, block_address(k), access, op);
}

static void backward(struct record_maker *m, int k)
{
    uint64_t access = hr_memory_access(++m->call, 0);
    uint32_t op = m->ops[(k + 7) % OPS];
    put(m, HR_MEMORY_READ, block_address(k), access, op);
    put(m, HR_MEMORY_READ, weight_address(k), access, op);
    put(m, HR_MEMORY_WRITE, weight_address(k), access, op);
    put(m, HR_MEMORY_FREE, block_address(k), 0, 0);
}

static int make(const char *path, uint64_t events)
{
    struct record_maker m = {.time_ns = 1};
    struct hr_error error = {0};
    char text[32];
    if (hr_memory_recorder_create(&m.recorder, path, NULL, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 3;
    }
    double begin = seconds();
    for (int k = 0; k < OPS; k++) {
        snprintf(text, sizeof text, "aten::op%d", k);
        m.ops[k] = hr_memory_name(m.recorder, text);
        snprintf(text, sizeof text, "[%d, 64] float32", k);
        m.shapes[k] = hr_memory_name(m.recorder, text);
    }
    uint32_t iteration = hr_memory_name(m.recorder, "iteration");
    for (int k = 0; k < WEIGHTS; k++)
        put(&m, HR_MEMORY_PRESENT, weight_address(k), 40000, 0);
    for (uint64_t n = 0; m.events < events; n++) {
        put(&m, HR_MEMORY_MARK, 0, n, iteration);
        m.phase = HR_MEMORY_FORWARD;
        for (int k = 0; k < BLOCKS; k++)
            forward(&m, k);
        m.phase = HR_MEMORY_BACKWARD;
        for (int k = BLOCKS; k--;)
            backward(&m, k);
    }
    hr_memory_recorder_destroy(&m.recorder);
    double took = seconds() - begin;
    struct stat status;
    if (stat(path, &status))
        return 3;
    printf("{\"seconds\": %.6f, \"events\": %llu, \"bytes\": %llu}\n", took,
           (unsigned long long)m.events, (unsigned long long)status.st_size);
    return 0;
}

static int analyse(const char *path)
{
    struct hr_memory *memory;
    struct hr_error error = {0};
    struct rusage usage;
    double begin = seconds();
    if (hr_memory_open(&memory, path, NULL, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 3;
    }
    double took = seconds() - begin;
    size_t length = strlen(hr_memory_json(memory));
    hr_memory_destroy(&memory);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"seconds\": %.6f, \"peak_kib\": %ld, \"json_bytes\": %zu}\n", took, usage.ru_maxrss,
           length);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "make"))
        return make(argv[2], strtoull(argv[3], NULL, 10));
    if (argc == 3 && !strcmp(argv[1], "analyse"))
        return analyse(argv[2]);
    fprintf(stderr, "usage: memory_record make FILE EVENTS | analyse FILE\n");
    return 2;
}
