/*
 * Makes a record of a small training run with known times and sizes.
 * Usage: memory_make OUT BATCH ITERATIONS [cut|none|failed]
 *
 * An iteration takes 1 ms: an input of 400 bytes a sample, an activation of 200 a sample, a
 * gradient of 40000 bytes; parameters are 40000 bytes. `cut`: the process ends without ending the
 * record; `none`: there are no events; `failed`: an allocation fails.
 */
#include <headrace/memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARAMETERS UINT64_C(0x10000)
#define INPUT      UINT64_C(0x20000)
#define ACTIVATION UINT64_C(0x30000)
#define GRADIENT   UINT64_C(0x40000)

struct maker {
    struct hr_memory_recorder *recorder;
    uint64_t now_ns;
    uint32_t call;
    uint8_t phase;
};

static void put(struct maker *m, enum hr_memory_kind kind, uint64_t address, uint64_t bytes,
                uint32_t what)
{
    struct hr_memory_event event = {
        .time_ns = m->now_ns,
        .address = address,
        .bytes = bytes,
        .what = what,
        .kind = (uint8_t)kind,
        .phase = m->phase,
    };
    m->now_ns += 10000;
    hr_memory_record(m->recorder, &event);
}

static void access_of(struct maker *m, enum hr_memory_kind kind, uint64_t address, const char *op)
{
    put(m, kind, address, hr_memory_access(m->call, 0), hr_memory_name(m->recorder, op));
}

static void describe(struct maker *m, uint64_t address, enum hr_memory_category category,
                     const char *what)
{
    put(m, HR_MEMORY_DESCRIBE, address, hr_memory_about(category, 0),
        hr_memory_name(m->recorder, what));
}

static void iterate(struct maker *m, uint64_t batch, uint64_t number)
{
    uint64_t begin_ns = m->now_ns;
    m->phase = HR_MEMORY_OUTSIDE;
    put(m, HR_MEMORY_MARK, 0, number, hr_memory_name(m->recorder, "iteration"));
    put(m, HR_MEMORY_ALLOC, INPUT, 400 * batch, 0);
    describe(m, INPUT, HR_MEMORY_INPUT, "[100] float32");
    m->call++;
    access_of(m, HR_MEMORY_WRITE, INPUT, "aten.randn");
    m->phase = HR_MEMORY_FORWARD;
    put(m, HR_MEMORY_ALLOC, ACTIVATION, 200 * batch, 0);
    describe(m, ACTIVATION, HR_MEMORY_ACTIVATION, "[50] float32");
    m->call++;
    access_of(m, HR_MEMORY_READ, INPUT, "aten.mm");
    access_of(m, HR_MEMORY_READ, PARAMETERS, "aten.mm");
    access_of(m, HR_MEMORY_WRITE, ACTIVATION, "aten.mm");
    m->phase = HR_MEMORY_BACKWARD;
    put(m, HR_MEMORY_ALLOC, GRADIENT, 40000, 0);
    describe(m, GRADIENT, HR_MEMORY_GRADIENT, "[100, 100] float32");
    m->call++;
    access_of(m, HR_MEMORY_READ, ACTIVATION, "aten.mm_backward");
    access_of(m, HR_MEMORY_WRITE, GRADIENT, "aten.mm_backward");
    put(m, HR_MEMORY_FREE, ACTIVATION, 200 * batch, 0);
    put(m, HR_MEMORY_FREE, INPUT, 400 * batch, 0);
    m->phase = HR_MEMORY_OPTIMIZER;
    m->call++;
    access_of(m, HR_MEMORY_READ, GRADIENT, "aten.add_");
    access_of(m, HR_MEMORY_WRITE, PARAMETERS, "aten.add_");
    put(m, HR_MEMORY_FREE, GRADIENT, 40000, 0);
    m->now_ns = begin_ns + 1000000;
}

int main(int argc, char **argv)
{
    struct maker m = {.now_ns = 1000};
    struct hr_error error = {0};
    const char *how = argc > 4 ? argv[4] : "";
    if (argc < 4)
        return 2;
    if (hr_memory_recorder_create(&m.recorder, argv[1], NULL, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 3;
    }
    hr_memory_fact(m.recorder, "command", "train.py");
    hr_memory_fact(m.recorder, "batch size", argv[2]);
    hr_memory_fact(m.recorder, "allocations", "allocator");
    if (strcmp(how, "none")) {
        put(&m, HR_MEMORY_PRESENT, PARAMETERS, 40000, 0);
        describe(&m, PARAMETERS, HR_MEMORY_PARAMETER, "[100, 100] float32");
        for (int i = 0; i < atoi(argv[3]); i++)
            iterate(&m, (uint64_t)atoi(argv[2]), (uint64_t)i);
    }
    if (!strcmp(how, "failed"))
        put(&m, HR_MEMORY_FAILED, 0, UINT64_C(1) << 40, 0);
    if (!strcmp(how, "cut"))
        _exit(0);
    hr_memory_recorder_destroy(&m.recorder);
    return 0;
}
