/* Records made by hand; see memory_fixture.h. */
#include "../../test.h"

#include "memory_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAYERS 3
#define FILES  16

static const char *const ops[] = {"aten::addmm", "aten::relu", "aten::mm", "aten::add_"};
static const char *const hostile_ops[] = {"</script><script>alert(1)</script>", "a\033[31m\"&'b",
                                          "<img src=x onerror=alert(1)>", "--><!--"};
static char folder[64], paths[FILES][160];
static int path_count;

struct memory_writer {
    const struct memory_fixture *f;
    struct hr_memory_recorder *recorder;
    uint64_t now, layer_bytes, sample_bytes;
    uint32_t op[4], shape[4], part[LAYERS], mark, stack[LAYERS];
    uint32_t call;
    uint8_t phase;
};

static void put(struct memory_writer *w, enum hr_memory_kind kind, uint64_t address, uint64_t bytes,
                uint32_t what)
{
    struct hr_memory_event event = {.time_ns = w->now,
                                    .address = address,
                                    .bytes = bytes,
                                    .what = what,
                                    .kind = (uint8_t)kind,
                                    .phase = w->phase,
                                    .device = (uint8_t)w->f->device};
    hr_memory_record(w->recorder, &event);
}

/* An operator's call: 50 us. */
static void call(struct memory_writer *w)
{
    w->now += 50000;
    w->call++;
}

static void access_of(struct memory_writer *w, enum hr_memory_kind kind, uint64_t address, int op)
{
    put(w, kind, address, hr_memory_access(w->call, 0), w->op[op]);
}

static void describe(struct memory_writer *w, uint64_t address, enum hr_memory_category category,
                     int layer, int shape)
{
    put(w, HR_MEMORY_DESCRIBE, address, hr_memory_about(category, layer < 0 ? 0 : w->part[layer]),
        w->shape[shape]);
}

static uint64_t parameter(int layer)
{
    return 0x10000000 + (uint64_t)layer * 0x1000000;
}

static uint64_t gradient(int layer)
{
    return 0x20000000 + (uint64_t)layer * 0x1000000;
}

static uint64_t activation(int layer)
{
    return 0x30000000 + (uint64_t)layer * 0x1000000;
}

static void forward(struct memory_writer *w)
{
    w->phase = HR_MEMORY_FORWARD;
    put(w, HR_MEMORY_ALLOC, activation(LAYERS), w->sample_bytes / 4, 0);
    describe(w, activation(LAYERS), HR_MEMORY_INPUT, -1, 0);
    access_of(w, HR_MEMORY_WRITE, activation(LAYERS), 2);
    for (int layer = 0; layer < LAYERS; layer++) {
        call(w);
        put(w, HR_MEMORY_ALLOC, activation(layer), w->sample_bytes, w->stack[layer]);
        describe(w, activation(layer), HR_MEMORY_ACTIVATION, layer, 1);
        access_of(w, HR_MEMORY_READ, activation(layer ? layer - 1 : LAYERS), 0);
        access_of(w, HR_MEMORY_READ, parameter(layer), 0);
        access_of(w, HR_MEMORY_WRITE, activation(layer), 0);
    }
    if (w->f->with_relu_kept) {
        call(w);
        put(w, HR_MEMORY_ALLOC, 0x50000000, w->sample_bytes * 2, w->stack[0]);
        describe(w, 0x50000000, HR_MEMORY_ACTIVATION, 0, 2);
        access_of(w, HR_MEMORY_WRITE, 0x50000000, 1);
    }
}

static void backward(struct memory_writer *w, int extra)
{
    w->phase = HR_MEMORY_BACKWARD;
    for (int layer = LAYERS; layer-- > 0;) {
        call(w);
        put(w, HR_MEMORY_ALLOC, 0x40000000, w->layer_bytes / 2, 0);
        access_of(w, HR_MEMORY_WRITE, 0x40000000, 2);
        put(w, HR_MEMORY_ALLOC, gradient(layer), w->layer_bytes, 0);
        describe(w, gradient(layer), HR_MEMORY_GRADIENT, layer, 3);
        access_of(w, HR_MEMORY_READ, activation(layer), 2);
        access_of(w, HR_MEMORY_WRITE, gradient(layer), 2);
        if (extra && !layer) {
            call(w);
            access_of(w, HR_MEMORY_READ, parameter(0), 2);
        }
        w->now += 1000;
        put(w, HR_MEMORY_FREE, 0x40000000, w->layer_bytes / 2, 0);
        put(w, HR_MEMORY_FREE, activation(layer), w->sample_bytes, 0);
    }
    put(w, HR_MEMORY_FREE, activation(LAYERS), w->sample_bytes / 4, 0);
    if (w->f->with_relu_kept)
        put(w, HR_MEMORY_FREE, 0x50000000, w->sample_bytes * 2, 0);
}

static void step(struct memory_writer *w)
{
    w->phase = HR_MEMORY_OPTIMIZER;
    for (int layer = 0; layer < LAYERS; layer++) {
        call(w);
        access_of(w, HR_MEMORY_READ, gradient(layer), 3);
        access_of(w, HR_MEMORY_WRITE, parameter(layer), 3);
    }
    w->phase = HR_MEMORY_OUTSIDE;
    for (int layer = 0; layer < LAYERS; layer++)
        put(w, HR_MEMORY_FREE, gradient(layer), w->layer_bytes, 0);
    w->now += 20000;
}

static void names(struct memory_writer *w)
{
    static const char *const shapes[] = {"[64, 784] float32", "[64, 4096] float32",
                                         "[64, 8192] float32", "[512, 512] float32"};
    static const char *const parts[] = {"features.0", "features.3", "classifier"};
    const char *const *op = w->f->is_hostile ? hostile_ops : ops;
    const char *file = w->f->is_hostile ? "/tmp/<b>&amp;\"\033[2J.py" : "/path/to/mlp/train.py";
    for (int i = 0; i < 4; i++) {
        w->op[i] = hr_memory_name(w->recorder, op[i]);
        w->shape[i] = hr_memory_name(w->recorder, w->f->is_hostile ? op[3 - i] : shapes[i]);
    }
    for (int i = 0; i < LAYERS; i++) {
        struct hr_memory_frame frame = {.file = hr_memory_name(w->recorder, file),
                                        .function = hr_memory_name(w->recorder, "forward"),
                                        .line = w->f->first_line + 20 + (uint32_t)i};
        w->part[i] = hr_memory_name(w->recorder, w->f->is_hostile ? op[i] : parts[i]);
        w->stack[i] = hr_memory_stack(w->recorder, &frame, 1);
    }
    w->mark = hr_memory_name(w->recorder, "iteration");
}

static void facts(struct memory_writer *w)
{
    char batch[24];
    snprintf(batch, sizeof batch, "%d", w->f->batch);
    hr_memory_fact(w->recorder, "command",
                   w->f->is_hostile ? "</title><script>alert(1)</script>\033[1m"
                                    : "train.py --mlp");
    hr_memory_fact(w->recorder, "batch size", batch);
    hr_memory_fact(w->recorder, "capacity bytes", "1073741824");
    hr_memory_fact(w->recorder, "allocations", "allocator");
    if (w->f->is_hostile)
        hr_memory_fact(w->recorder, "note x", "<svg onload=alert(1)> was compiled");
}

static void write_events(struct memory_writer *w)
{
    w->now = 1000;
    if (w->f->device)
        put(w, HR_MEMORY_SEGMENT, 0x10000000, 0x50000000, 0);
    for (int layer = 0; layer < LAYERS; layer++) {
        put(w, HR_MEMORY_PRESENT, parameter(layer), w->layer_bytes, 0);
        describe(w, parameter(layer), HR_MEMORY_PARAMETER, layer, 3);
    }
    put(w, HR_MEMORY_MARK, 0, 0, w->mark);
    for (int i = 0; i < w->f->iterations; i++) {
        forward(w);
        backward(w, i == w->f->odd);
        step(w);
        put(w, HR_MEMORY_MARK, 0, (uint64_t)i + 1, w->mark);
    }
    if (w->f->refuses)
        put(w, HR_MEMORY_FAILED, 0, UINT64_C(3) << 30, 0);
}

const char *memory_fixture_path(const struct memory_fixture *f)
{
    static char path[160];
    if (!*folder) {
        strcpy(folder, "/tmp/headrace-memory-XXXXXX");
        assert_non_null(mkdtemp(folder));
    }
    snprintf(path, sizeof path, "%s/%s", folder, f->name);
    return path;
}

struct hr_memory *memory_fixture_open(const struct memory_fixture *f)
{
    struct memory_writer w = {.f = f,
                              .layer_bytes = f->size ? f->size : 1 << 20,
                              .sample_bytes = (uint64_t)f->batch * 16384};
    const char *path = memory_fixture_path(f);
    struct hr_error error = {0};
    struct hr_memory *memory;
    int known = 0;
    for (int i = 0; i < path_count; i++)
        known |= !strcmp(paths[i], path);
    assert_true(known || path_count < FILES);
    if (!known)
        strcpy(paths[path_count++], path);
    if (hr_memory_recorder_create(&w.recorder, path, NULL, &error))
        fail_msg("%s", error.message);
    names(&w);
    facts(&w);
    write_events(&w);
    hr_memory_recorder_destroy(&w.recorder);
    if (hr_memory_open(&memory, path, NULL, &error))
        fail_msg("%s", error.message);
    return memory;
}

void memory_fixture_clean(void)
{
    while (path_count)
        unlink(paths[--path_count]);
    if (*folder)
        rmdir(folder);
    *folder = 0;
}
