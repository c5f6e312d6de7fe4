/* Categories, parts of the model, fragmentation, batch sizes, notes, and their JSON. */
#include "written.h"

#include "base/memory.h"
#include "memory/record/format.h"
#include "memory/report/json.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define KB UINT64_C(1000)

static void call(struct written *w, enum hr_memory_kind kind, uint64_t ns, uint64_t address,
                 uint32_t op)
{
    w->call++;
    written_access(w, kind, ns, address, op);
}

static json_t *json_of(struct written *w)
{
    struct hr__record *record;
    struct hr__memory *m = written_analyse(w, &record);
    json_error_t problem;
    char *text;
    assert_int_equal(hr__memory_to_json(m, record, &text, NULL), 0);
    json_t *root = json_loads(text, 0, &problem);
    if (!root)
        fail_msg("%s at %d", problem.text, problem.position);
    hr__free(text);
    hr__memory_destroy(&m);
    hr__record_close(&record);
    return root;
}

/* Returns the value at a path of names and indices: "devices.0.peak". */
static json_t *at(json_t *root, const char *path)
{
    char name[128];
    json_t *here = root;
    while (*path && here) {
        size_t length = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        here = json_is_array(here) ? json_array_get(here, (size_t)atoi(name))
                                   : json_object_get(here, name);
        path += length + (path[length] == '.');
    }
    return here;
}

static long long integer_at(json_t *root, const char *path)
{
    json_t *value = at(root, path);
    if (!json_is_integer(value))
        fail_msg("%s is no integer", path);
    return json_integer_value(value);
}

static const char *text_at(json_t *root, const char *path)
{
    const char *value = json_string_value(at(root, path));
    return value ? value : "";
}

/* ---- categories ---- */

/* One iteration with an activation and a temporary block. */
static uint64_t iterate(struct written *w, uint64_t now, int is_cut)
{
    uint32_t relu = written_name(w, "relu"), mul = written_name(w, "mul");
    w->phase = HR_MEMORY_FORWARD;
    written_put(w, HR_MEMORY_ALLOC, now + 1, 64, 100, 0);
    call(w, HR_MEMORY_WRITE, now + 2, 64, relu);
    written_put(w, HR_MEMORY_ALLOC, now + 3, 128, 50, 0);
    call(w, HR_MEMORY_WRITE, now + 4, 128, mul);
    call(w, HR_MEMORY_READ, now + 5, 128, relu);
    if (is_cut)
        return now + 5;
    written_put(w, HR_MEMORY_FREE, now + 6, 128, 0, 0);
    w->phase = HR_MEMORY_BACKWARD;
    written_put(w, HR_MEMORY_ALLOC, now + 7, 192, 25, 0); /* recomputed by checkpointing */
    call(w, HR_MEMORY_WRITE, now + 8, 192, relu);
    call(w, HR_MEMORY_READ, now + 9, 192, mul);
    written_put(w, HR_MEMORY_FREE, now + 10, 192, 0, 0);
    call(w, HR_MEMORY_READ, now + 11, 64, relu);
    written_put(w, HR_MEMORY_FREE, now + 12, 64, 0, 0);
    return now + 13;
}

/* Blocks that are still live at the end have the category of other blocks of their kind. */
static void test_cut(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint64_t now = 100;
    for (int n = 0; n < 3; n++)
        now = iterate(w, now, 0);
    iterate(w, now, 1);
    struct hr__memory *m = written_analyse(w, &record);
    assert_int_equal(m->found.count, 3 * 3 + 2);
    for (uint32_t i = 0; i < m->found.count; i++) {
        const struct hr__block *b = &m->found.blocks[i];
        assert_int_equal(b->category, b->bytes == 100 ? HR_MEMORY_ACTIVATION : HR_MEMORY_TEMPORARY);
    }
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* An allocation fails in the first forward pass: live blocks wait for the backward pass, although
 * all are freed when the script ends. */
static void test_refused(void **state)
{
    struct written *w = *state;
    uint64_t now = iterate(w, 100, 1);
    written_put(w, HR_MEMORY_FAILED, now + 1, 0, 1 << 30, 0);
    written_put(w, HR_MEMORY_FREE, now + 2, 64, 0, 0);
    written_put(w, HR_MEMORY_FREE, now + 3, 128, 0, 0);
    json_t *root = json_of(w);
    assert_int_equal(integer_at(root, "devices.0.peak.activation"), 150);
    assert_int_equal(integer_at(root, "odd.refused_bytes"), 1 << 30);
    json_decref(root);
}

/* A block that the optimizer's step describes as a gradient is one from its allocation on: at the
 * peak, too. */
static void test_described_late(void **state)
{
    struct written *w = *state;
    uint32_t op = written_name(w, "mm"), shape = written_name(w, "[4] float32");
    w->phase = HR_MEMORY_BACKWARD;
    written_put(w, HR_MEMORY_ALLOC, 100, 64, 400, 0);
    call(w, HR_MEMORY_WRITE, 110, 64, op);
    written_put(w, HR_MEMORY_ALLOC, 120, 1024, 100, 0);
    call(w, HR_MEMORY_WRITE, 130, 1024, op);
    written_put(w, HR_MEMORY_FREE, 140, 1024, 0, 0);
    w->phase = HR_MEMORY_OPTIMIZER;
    written_put(w, HR_MEMORY_DESCRIBE, 200, 64, HR_MEMORY_GRADIENT, shape);
    json_t *root = json_of(w);
    assert_int_equal(integer_at(root, "devices.0.peak_ns"), 120);
    assert_int_equal(integer_at(root, "devices.0.peak.gradient"), 400);
    assert_int_equal(integer_at(root, "devices.0.timeline.bytes.gradient.1"), 400);
    json_decref(root);
}

/* ---- parts, groups ---- */

static void test_parts(void **state)
{
    struct written *w = *state;
    uint32_t op = written_name(w, "op"), first = written_name(w, "layer1"),
             second = written_name(w, "layer2"), shape = written_name(w, "[1] uint8");
    struct hr_memory_frame frames[4] = {
        {written_name(w, "lib/torch/nn/functional.py"), written_name(w, "relu"), 9, 0},
        {written_name(w, "<frozen importlib>"), written_name(w, "load"), 1, 0},
        {written_name(w, "/path/to/train.py"), written_name(w, "forward"), 20, 0},
        {written_name(w, "/path/to/train.py"), written_name(w, "main"), 50, 0},
    };
    uint32_t stack = hr_memory_stack(w->recorder, frames, 4),
             library = hr_memory_stack(w->recorder, frames, 2);
    for (uint64_t k = 0; k < 6; k++) {
        written_put(w, HR_MEMORY_ALLOC, 10 + k, 64 + 64 * k, 100 + 1000 * (k / 2),
                    k < 2   ? stack
                    : k < 4 ? library
                            : 0);
        uint32_t part = k < 2 ? first : k < 5 ? second : 0;
        written_put(w, HR_MEMORY_DESCRIBE, 10 + k, 64 + 64 * k,
                    hr_memory_about(k % 2 ? HR_MEMORY_PARAMETER : HR_MEMORY_ACTIVATION, part),
                    shape);
        call(w, HR_MEMORY_WRITE, 20 + k, 64 + 64 * k, op);
    }
    w->device = HR_MEMORY_LIBRARIES;
    written_put(w, HR_MEMORY_ALLOC, 30, 64, 77, 0);
    json_t *root = json_of(w);
    assert_int_equal(json_array_size(at(root, "devices.0.parts")), 3);
    assert_string_equal(text_at(root, "devices.0.parts.0.part"), "layer2");
    assert_int_equal(integer_at(root, "devices.0.parts.0.blocks"), 3);
    assert_int_equal(integer_at(root, "devices.0.parts.0.bytes.activation"), 1100 + 2100);
    assert_int_equal(integer_at(root, "devices.0.parts.0.bytes.parameter"), 1100);
    assert_string_equal(text_at(root, "devices.0.parts.1.part"), "layer1");
    assert_true(json_is_null(at(root, "devices.0.parts.2.part")));
    assert_int_equal(integer_at(root, "devices.0.parts.2.bytes.parameter"), 2100);
    /* The innermost of the user's lines first; for a library, all lines. */
    assert_int_equal(json_array_size(at(root, "devices.0.peak_blocks")), 6);
    assert_int_equal(json_array_size(at(root, "devices.0.peak_blocks.0.stack")), 0);
    for (size_t i = 0; i < 6; i++) {
        json_t *group = json_array_get(at(root, "devices.0.peak_blocks"), i);
        if (integer_at(group, "bytes") == 100) {
            assert_string_equal(text_at(group, "stack.0"), "/path/to/train.py:20 forward");
            assert_int_equal(json_array_size(at(group, "stack")), 2);
        } else if (integer_at(group, "bytes") == 1100) {
            assert_int_equal(json_array_size(at(group, "stack")), 2);
        }
    }
    assert_string_equal(text_at(root, "devices.1.device"), "libraries");
    assert_int_equal(integer_at(root, "devices.1.peak.workspace"), 77);
    assert_int_equal(integer_at(root, "check.peak_backward_bytes.libraries"), 77);
    assert_int_equal(integer_at(root, "check.live_negative"), 0);
    json_decref(root);
}

/* ---- fragmentation ---- */

/* Segments of 1000 bytes at 10000 and 20000, one of 500 at 11000, beside the first. */
static void put_segments(struct written *w)
{
    w->device = 1;
    written_put(w, HR_MEMORY_SEGMENT, 100, 10000, 1000, 0);
    written_put(w, HR_MEMORY_ALLOC, 110, 10000, 300, 0);
    written_put(w, HR_MEMORY_ALLOC, 120, 10400, 100, 0);
    written_put(w, HR_MEMORY_SEGMENT, 130, 20000, 1000, 0);
    written_put(w, HR_MEMORY_ALLOC, 140, 20000, 1000, 0);
    written_put(w, HR_MEMORY_FREE, 150, 20000, 0, 0);
    written_put(w, HR_MEMORY_SEGMENT, 160, 11000, 500, 0); /* 2500 reserved: the most */
}

static void test_fragments(void **state)
{
    struct written *w = *state;
    put_segments(w);
    written_put(w, HR_MEMORY_ALLOC, 170, 11100, 200, 0); /* 600 allocated: the most at that time */
    written_put(w, HR_MEMORY_FREE, 180, 11100, 0, 0);
    written_put(w, HR_MEMORY_SEGMENT_FREE, 190, 20000, 1000, 0);
    written_put(w, HR_MEMORY_ALLOC, 200, 10500, 400, 0);
    w->device = 0;
    written_put(w, HR_MEMORY_ALLOC, 210, 64, 9, 0);
    json_t *root = json_of(w), *f = at(root, "devices.1.fragmentation");
    assert_true(json_is_null(at(root, "devices.0.fragmentation")));
    assert_int_equal(integer_at(f, "reserved_bytes"), 2500);
    assert_int_equal(integer_at(f, "ns"), 170);
    assert_int_equal(integer_at(f, "allocated_bytes"), 600);
    assert_int_equal(integer_at(f, "segments"), 3);
    assert_int_equal(integer_at(f, "largest_free_bytes"), 1000); /* the whole of the second */
    /* 600 of the first and 300 of the third; the second could be returned. */
    assert_int_equal(integer_at(f, "unusable_bytes"), 900);
    size_t points = json_array_size(at(f, "timeline.ns"));
    assert_int_equal(points, json_array_size(at(f, "timeline.reserved")));
    json_t *last = json_array_get(at(f, "timeline.reserved"), points - 1);
    assert_int_equal(json_integer_value(last), 1500);
    last = json_array_get(at(f, "timeline.allocated"), points - 1);
    assert_int_equal(json_integer_value(last), 800);
    json_decref(root);
}

/* A block across the border of two segments: they count as one, with the free space after it. */
static void test_crossing(void **state)
{
    struct written *w = *state;
    put_segments(w);
    written_put(w, HR_MEMORY_SEGMENT_FREE, 165, 20000, 1000, 0);
    written_put(w, HR_MEMORY_SEGMENT, 170, 11500, 1100, 0); /* 2600: the most */
    written_put(w, HR_MEMORY_ALLOC, 180, 10900, 150, 0);
    written_put(w, HR_MEMORY_ALLOC, 190, 11450, 100, 0);
    json_t *root = json_of(w), *f = at(root, "devices.0.fragmentation");
    assert_int_equal(integer_at(f, "reserved_bytes"), 2600);
    assert_int_equal(integer_at(f, "allocated_bytes"), 650);
    assert_int_equal(integer_at(f, "segments"), 3);
    assert_int_equal(integer_at(f, "largest_free_bytes"), 12600 - 11550);
    assert_int_equal(integer_at(f, "unusable_bytes"), 2600 - 650);
    json_decref(root);
}

/* ---- batch sizes ---- */

static int is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void test_fit(void **state)
{
    struct hr__fit fit;
    const struct hr__fit_point one = {64, 4000, 6400};
    hr__memory_fit(&fit, &one, 1, 14000);
    assert_true(is_near(fit.bytes_per_sample, 100) && is_near(fit.fixed_bytes, 4000));
    assert_true(fit.batch_that_fits == 100); /* exactly */
    hr__memory_fit(&fit, &one, 1, 13999);
    assert_true(fit.batch_that_fits == 99);
    hr__memory_fit(&fit, &one, 1, NAN);
    assert_true(isnan(fit.batch_that_fits) && is_near(fit.bytes_per_sample, 100));
    /* With two points, the line through them: what does not grow is not reported as fixed for
     * either. */
    const struct hr__fit_point two[] = {{10, 1000, 1500}, {30, 1000, 2500}};
    hr__memory_fit(&fit, two, 2, 12000);
    assert_true(is_near(fit.bytes_per_sample, 50) && is_near(fit.fixed_bytes, 2000));
    assert_true(fit.batch_that_fits == 200);
    /* Least squares: y = 7 x + 100 with errors +6, -12, +6 at equal distances. */
    const struct hr__fit_point more[] = {{1, 0, 113}, {2, 0, 102}, {3, 0, 127}, {NAN, 1, 1}};
    hr__memory_fit(&fit, more, 4, 800);
    assert_true(is_near(fit.bytes_per_sample, 7) && is_near(fit.fixed_bytes, 100));
    assert_true(fit.batch_that_fits == 100);
    /* The same batch size twice, nothing that grows, and no points. */
    const struct hr__fit_point same[] = {{8, 10, 80}, {8, 10, 160}};
    hr__memory_fit(&fit, same, 2, 1000);
    assert_true(is_near(fit.bytes_per_sample, 15) && is_near(fit.fixed_bytes, 10));
    const struct hr__fit_point flat[] = {{8, 10, 90}, {16, 10, 90}};
    hr__memory_fit(&fit, flat, 2, 1000);
    assert_true(isnan(fit.batch_that_fits) && fabs(fit.bytes_per_sample) < 1e-9);
    hr__memory_fit(&fit, NULL, 0, 1000);
    assert_true(isnan(fit.batch_that_fits) && isnan(fit.bytes_per_sample));
}

static int has_note(json_t *root, const char *words)
{
    size_t i;
    json_t *note;
    json_array_foreach(at(root, "run.notes"), i,
                       note) if (strstr(json_string_value(note), words)) return 1;
    return 0;
}

/* Blocks outside all recorded segments: shares of segments would exceed 1. */
static void test_partial_segments(void **state)
{
    struct written *w = *state;
    w->device = 1;
    written_put(w, HR_MEMORY_SEGMENT, 100, 10000, 1000, 0);
    written_put(w, HR_MEMORY_ALLOC, 110, 10000, 500, 0);
    written_put(w, HR_MEMORY_ALLOC, 120, 50000, 8000, 0);
    json_t *root = json_of(w);
    assert_true(json_is_null(at(root, "devices.0.fragmentation")));
    assert_true(has_note(root, "fragmentation is unknown"));
    json_decref(root);
}

static void test_batch(void **state)
{
    struct written *w = *state;
    hr_memory_fact(w->recorder, "batch size", "10");
    hr_memory_fact(w->recorder, "capacity bytes", "3000");
    hr_memory_fact(w->recorder, "capacity bytes cpu", "5000");
    for (uint8_t device = 0; device < 2; device++) {
        w->device = device;
        written_put(w, HR_MEMORY_ALLOC, 10 + device, 64, 1000, 0);
        written_put(w, HR_MEMORY_DESCRIBE, 10 + device, 64, HR_MEMORY_PARAMETER, 0);
        written_put(w, HR_MEMORY_ALLOC, 20 + device, 128, 500, 0);
        written_put(w, HR_MEMORY_DESCRIBE, 20 + device, 128, HR_MEMORY_ACTIVATION, 0);
    }
    json_t *root = json_of(w);
    assert_string_equal(text_at(root, "batch.device"), "cuda:0");
    assert_true(json_number_value(at(root, "batch.bytes_per_sample")) == 50);
    assert_true(json_number_value(at(root, "batch.fixed_bytes")) == 1000);
    assert_true(json_number_value(at(root, "batch.that_fits")) == 40);
    assert_string_equal(text_at(root, "batch.devices.0.device"), "cpu");
    /* For the host's memory, which other programs use, there is no statement. */
    assert_true(json_is_null(at(root, "batch.devices.0.that_fits")));
    assert_true(json_is_null(at(root, "batch.devices.0.capacity_bytes")));
    json_decref(root);
}

/* ---- what is said ---- */

static void test_notes(void **state)
{
    struct written *w = *state;
    hr_memory_fact(w->recorder, "note compiled", "A model was compiled: old.");
    hr_memory_fact(w->recorder, "allocations", "storages");
    hr_memory_fact(w->recorder, "model", "a=b");
    hr_memory_fact(w->recorder, "note compiled", "A model was compiled: its insides are not seen.");
    w->device = 3;
    w->flags = HR_MEMORY_HOST_TIME;
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 100, 0);
    call(w, HR_MEMORY_WRITE, 20, 64, written_name(w, "op"));
    json_t *root = json_of(w);
    assert_int_equal(json_array_size(at(root, "run.notes")), 3);
    assert_string_equal(text_at(root, "run.notes.0"),
                        "A model was compiled: its insides are not seen.");
    assert_true(has_note(root, "known from tensors only") && has_note(root, "are the host's"));
    assert_string_equal(text_at(root, "run.allocations"), "storages");
    assert_string_equal(text_at(root, "run.clock"), "host");
    assert_string_equal(text_at(root, "run.facts.model"), "a=b");
    assert_null(at(root, "run.facts.note compiled"));
    json_decref(root);
}

/* Without accesses the purpose of blocks is unknown, and there is no advice. */
static void test_imported(void **state)
{
    struct written *w = *state;
    uint32_t shape = written_name(w, "[9] int8");
    for (uint64_t k = 0; k < 3; k++) {
        written_put(w, HR_MEMORY_ALLOC, 10 + k, 64 + 64 * k, 100, 0);
        written_put(w, HR_MEMORY_DESCRIBE, 10 + k, 64 + 64 * k, 0, shape);
    }
    json_t *root = json_of(w);
    assert_int_equal(integer_at(root, "devices.0.peak.unknown"), 300);
    assert_int_equal(json_array_size(at(root, "advice")), 0);
    assert_true(has_note(root, "were not recorded"));
    json_decref(root);
}

/* A process that was killed: the record has no end. */
static void test_unended(void **state)
{
    struct written *w = *state;
    struct hr__memory *m;
    struct hr__record *record;
    written_put(w, HR_MEMORY_ALLOC, 10, 64, 100, 0);
    assert_int_equal(hr__record_open(&record, w->path, NULL), 0);
    assert_int_equal(hr__memory_analyse(&m, record, &(struct hr__memory_wish){.points = 0}, NULL),
                     0);
    assert_int_equal(m->note_count, 2);
    assert_non_null(strstr(m->notes[0], "was not ended"));
    hr__memory_destroy(&m);
    hr__record_close(&record);
}

/* The drawn iterations, and medians. */
static void test_lifetimes(void **state)
{
    struct written *w = *state;
    uint32_t mark = written_name(w, "iteration");
    uint64_t now = 100;
    for (uint64_t n = 0; n < 9; n++) {
        written_put(w, HR_MEMORY_MARK, now, 0, n, mark);
        now = iterate(w, now, 0);
    }
    written_put(w, HR_MEMORY_MARK, now, 0, 9, mark);
    json_t *root = json_of(w);
    assert_int_equal(integer_at(root, "pattern.iterations"), 9);
    assert_int_equal(integer_at(root, "pattern.blocks"), 3);
    assert_int_equal(integer_at(root, "pattern.iteration_ns"), 13);
    assert_int_equal(json_array_size(at(root, "lifetimes.iterations")), 5);
    assert_int_equal(integer_at(root, "lifetimes.iterations.0.begin_ns"), 101 + 2 * 13);
    assert_int_equal(integer_at(root, "lifetimes.iterations.4.end_ns"), 101 + 7 * 13);
    assert_int_equal(integer_at(root, "pattern.peak_bytes_each.4"), 150);
    assert_int_equal(json_array_size(at(root, "lifetimes.blocks")), 5 * 3 + 1);
    json_decref(root);
}

/* Whichever allocation fails, it is reported, and nothing leaks. */
static void test_out_of_memory(void **state)
{
    struct written *w = *state;
    struct hr__record *record;
    uint32_t mark = written_name(w, "iteration"), part = written_name(w, "layer");
    uint64_t now = 1000, failures = 0, n = 1;
    hr_memory_fact(w->recorder, "note x", "A note.");
    put_segments(w);
    w->device = 0;
    for (uint64_t k = 0; k < 4; k++) {
        written_put(w, HR_MEMORY_MARK, now, 0, k, mark);
        now = iterate(w, now, k == 3);
    }
    written_put(w, HR_MEMORY_DESCRIBE, now, 64, hr_memory_about(HR_MEMORY_UNKNOWN, part), 0);
    record = written_done(w);
    uint64_t before = hr__allocated(HR__TAG_MEMORY);
    for (int code = -ENOMEM; code; n++) {
        struct hr__memory *m = NULL;
        struct hr_error error = {0};
        char *text = NULL;
        hr__alloc_fail_at(n, 0);
        code = hr__memory_analyse(&m, record, &(struct hr__memory_wish){.points = 9}, &error);
        if (!code)
            code = hr__memory_to_json(m, record, &text, &error);
        hr__alloc_fail_at(0, 0);
        if (code) {
            assert_int_equal(code, -ENOMEM);
            assert_true(*error.message);
            failures++;
        }
        hr__free(text);
        hr__memory_destroy(&m);
        hr__record_rewind(record);
        assert_true(hr__allocated(HR__TAG_MEMORY) <= before + HR__EXTENT_ROOM + 4096);
    }
    assert_true(failures > 30);
    hr__record_close(&record);
    assert_int_equal(hr__allocated(HR__TAG_MEMORY), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, written_set_up, written_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_cut),       TEST(test_refused),       TEST(test_described_late),
        TEST(test_parts),     TEST(test_fragments),     TEST(test_crossing),
        TEST(test_fit),       TEST(test_batch),         TEST(test_partial_segments),
        TEST(test_notes),     TEST(test_imported),      TEST(test_unended),
        TEST(test_lifetimes), TEST(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
