/* Plans against profiles whose best division is known by hand. */
#include "../report/shown.h"
#include "../test.h"
#include "base/memory.h"
#include "replay/pipeline_plan.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* Four equal layers: 1 s forward, 2 s backward, 10 MB of weights, 1 MB held, 0.1 MB sent; at
 * microbatches of 1 and, twice that, of 2. */
#define EQUAL                                                                                      \
    "{\"headrace_pipeline_profile\": 1, \"name\": \"four <equal> layers\","                        \
    " \"microbatches\": [1, 2], \"input_bytes\": [50000, 100000], \"layers\": ["                   \
    "{\"name\": \"block\", \"repeat\": 4, \"forward_s\": [1, 2], \"backward_s\": [2, 4],"          \
    " \"weight_bytes\": 10000000, \"held_bytes\": [1000000, 2000000],"                             \
    " \"output_bytes\": [100000, 200000]}]}"

static struct hr_plan_options options_of(int gpus, int batch)
{
    struct hr_plan_options o;
    hr_plan_options_default(&o);
    o.gpus = gpus;
    o.batch = batch;
    return o;
}

static struct hr_plan *plan(const char *profile, const struct hr_plan_options *o)
{
    struct hr_plan *made = NULL;
    struct hr_error error = {0};
    if (hr_plan_make(&made, profile, strlen(profile), "test", o, &error))
        fail_msg("%s", error.message);
    return made;
}

static void refuse(const char *profile, const struct hr_plan_options *o, const char *part)
{
    struct hr_plan *made = NULL;
    struct hr_error error = {0};
    assert_int_equal(hr_plan_make(&made, profile, strlen(profile), "test", o, &error), -EINVAL);
    assert_null(made);
    if (!strstr(error.message, part))
        fail_msg("%s", error.message);
}

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* ---- times ---- */

static void test_schedules_take_their_known_times(void **state)
{
    static const double steps[HR_PLAN_SCHEDULES] = {3 * 11, 3 * 11, 0, 3 * 8};
    for (int s = 0; s < HR_PLAN_SCHEDULES; s++) {
        struct hr_plan_options o = options_of(4, 8);
        if (s == HR_PLAN_INTERLEAVED)
            continue;
        o.schedule = s;
        o.stages = 4;
        o.microbatch = 1;
        o.recompute = 0;
        struct hr_plan *p = plan(EQUAL, &o);
        assert_int_equal(hr_plan_count(p), 1);
        assert_true(near(p->choices->step_s, steps[s]));
        assert_true(near(p->choices->samples_per_s, 8 / steps[s]));
        assert_true(near(p->choices->bubble + 1, 1 + 1 - 24 / steps[s]));
        assert_true(near(p->choices->fill_s + 1, s == HR_PLAN_2BW ? 10 : 1));
        hr_plan_destroy(&p);
    }
}

static void test_recomputation_costs_a_forward_pass(void **state)
{
    struct hr_plan_options o = options_of(4, 8);
    o.schedule = HR_PLAN_2BW;
    o.stages = 4;
    o.microbatch = 1;
    o.recompute = 1;
    struct hr_plan *p = plan(EQUAL, &o);
    assert_true(near(p->choices->step_s, 4 * 8));
    /* Held: 4 inputs, of the network on the first stage; beside them one microbatch's passes. */
    assert_true(near(p->choices->bytes[0].activations, 4 * 50000 + 1000000));
    assert_true(near(p->choices->bytes[1].activations, 3 * 100000 + 1000000));
    assert_true(near(p->choices->bytes[0].weights, 2 * 10e6));
    assert_true(near(p->choices->bytes[0].gradients, 10e6));
    assert_true(near(p->choices->bytes[0].state, 20e6));
    hr_plan_destroy(&p);
}

static void test_links_slow_what_is_sent(void **state)
{
    struct hr_plan_options o = options_of(2, 4);
    o.schedule = HR_PLAN_2BW;
    o.stages = 2;
    o.microbatch = 1;
    o.recompute = 0;
    o.link_bytes_per_s = 1e6;
    struct hr_plan *p = plan(EQUAL, &o);
    /* Each stage sends 0.1 MB in each microbatch: one forward, the other backward. */
    assert_true(near(p->choices->step_s, 4 * (6 + 0.1)));
    hr_plan_destroy(&p);
    o = options_of(4, 8);
    o.schedule = HR_PLAN_1F1B;
    o.stages = 1;
    o.replicas = 4;
    o.microbatch = 1;
    o.recompute = 0;
    o.gpus_per_server = 2;
    o.link_bytes_per_s = 1e9;
    o.network_bytes_per_s = 1e6;
    p = plan(EQUAL, &o);
    /* A ring of 4 over the network: 2 * 3/4 of 40 MB. */
    assert_true(near(p->choices->step_s, 2 * 12 + 60));
    hr_plan_destroy(&p);
}

/* ---- divisions ---- */

/* Layers of 1, 2, 3, 4, 5, 6 (forward and backward together). */
#define RISING                                                                                     \
    "{\"headrace_pipeline_profile\": 1, \"microbatches\": [1], \"layers\": ["                      \
    "{\"name\": \"a\", \"forward_s\": [0.5], \"backward_s\": [0.5], \"weight_bytes\": 1,"          \
    " \"held_bytes\": [1], \"output_bytes\": [1]},"                                                \
    "{\"name\": \"b\", \"forward_s\": [1], \"backward_s\": [1], \"weight_bytes\": 1,"              \
    " \"held_bytes\": [1], \"output_bytes\": [1]},"                                                \
    "{\"name\": \"c\", \"forward_s\": [1], \"backward_s\": [2], \"weight_bytes\": 1,"              \
    " \"held_bytes\": [1], \"output_bytes\": [1]},"                                                \
    "{\"name\": \"d\", \"forward_s\": [2], \"backward_s\": [2], \"weight_bytes\": 1,"              \
    " \"held_bytes\": [1], \"output_bytes\": [1]},"                                                \
    "{\"name\": \"e\", \"forward_s\": [2], \"backward_s\": [3], \"weight_bytes\": 1,"              \
    " \"held_bytes\": [1], \"output_bytes\": [1]},"                                                \
    "{\"name\": \"f\", \"forward_s\": [3], \"backward_s\": [3], \"weight_bytes\": 1,"              \
    " \"held_bytes\": [1], \"output_bytes\": [1]}]}"

static void test_the_slowest_stage_is_as_fast_as_can_be(void **state)
{
    static const int cuts[] = {0, 3, 5, 6};
    struct hr_plan_options o = options_of(3, 3);
    o.schedule = HR_PLAN_2BW;
    o.stages = 3;
    o.recompute = 0;
    struct hr_plan *p = plan(RISING, &o);
    assert_memory_equal(p->choices->cuts, cuts, sizeof cuts);
    assert_true(near(p->choices->pace_s, 9)); /* 1 + 2 + 3, 4 + 5, 6 */
    hr_plan_destroy(&p);
    o.memory_bytes = 12; /* two layers of 2 + 1 + 2 bytes are 10, and hold 1 for each in flight */
    o.stages = 3;
    struct hr_error error = {0};
    assert_int_equal(hr_plan_make(&p, RISING, strlen(RISING), "test", &o, &error), 0);
    /* The first stage would hold 3: only one layer fits there, and three on none. */
    assert_int_equal(hr_plan_count(p), 0);
    assert_int_equal(p->refused_count, 1);
    assert_non_null(strstr(p->refused->reason, "of 12 B"));
    hr_plan_destroy(&p);
}

/* The division is the best of all: compared with trying every one. */
static void test_divisions_are_those_of_trying_all(void **state)
{
    unsigned random = 7;
    for (int round = 0; round < 40; round++) {
        char text[4096] = "{\"headrace_pipeline_profile\": 1, \"microbatches\": [1], \"layers\": [";
        int layers = 5 + round % 4, times[8], outputs[8];
        for (int i = 0; i < layers; i++) {
            times[i] = 1 + (int)((random = random * 1103515245 + 12345) >> 16) % 20;
            outputs[i] = (int)((random = random * 1103515245 + 12345) >> 16) % 10;
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used,
                     "%s{\"name\": \"x\", \"forward_s\": [%d], \"backward_s\": [%d], "
                     "\"weight_bytes\": 0, \"held_bytes\": [0], \"output_bytes\": [%d]}",
                     i ? "," : "", times[i], times[i], outputs[i]);
        }
        strcat(text, "]}");
        double best = INFINITY;
        for (int a = 1; a < layers - 1; a++)
            for (int b = a + 1; b < layers; b++) {
                double sums[3] = {outputs[a - 1], outputs[a - 1] + outputs[b - 1], outputs[b - 1]};
                for (int i = 0; i < layers; i++)
                    sums[(i >= a) + (i >= b)] += 2 * times[i];
                best = fmin(best, fmax(sums[0], fmax(sums[1], sums[2])));
            }
        struct hr_plan_options o = options_of(3, 3);
        o.schedule = HR_PLAN_2BW;
        o.stages = 3;
        o.recompute = 0;
        o.link_bytes_per_s = 1;
        struct hr_plan *p = plan(text, &o);
        assert_true(near(p->choices->pace_s, best));
        hr_plan_destroy(&p);
    }
}

/* ---- what fits ---- */

static void test_memory_decides_what_is_planned(void **state)
{
    struct hr_plan_options o = options_of(4, 8);
    o.schedule = HR_PLAN_GPIPE;
    o.stages = 4;
    o.microbatch = 1;
    o.recompute = 0;
    /* Weights, gradients and Adam's state: 40 MB; eight microbatches in flight: 8 MB. */
    o.memory_bytes = 48000000;
    struct hr_plan *p = plan(EQUAL, &o);
    assert_int_equal(hr_plan_count(p), 1);
    assert_true(near(p->choices->memory_bytes, 48e6));
    hr_plan_destroy(&p);
    o.memory_bytes--;
    p = plan(EQUAL, &o);
    assert_int_equal(hr_plan_count(p), 0);
    assert_int_equal(p->refused_count, 1);
    assert_string_equal(p->refused->reason, "stage 1 needs 45.8 MiB of 45.8 MiB");
    assert_int_equal(p->considered, 1);
    assert_int_equal(p->full, 1);
    hr_plan_destroy(&p);
}

/* Every plan says what each of its stages holds; with 1F1B, d - s microbatches on stage s. */
static void test_each_plan_says_the_memory_of_its_stages(void **state)
{
    char path[64];
    struct hr_error error = {0};
    struct hr_plan_options o = options_of(4, 8);
    o.memory_bytes = 100000000;
    struct hr_plan *p = plan(EQUAL, &o);
    json_t *all = json_loads(hr_plan_json(p), 0, NULL), *plans = json_object_get(all, "plans");
    size_t i;
    json_t *one;
    assert_true(json_array_size(plans) > 3);
    json_array_foreach(plans, i, one)
    {
        const struct hr__choice *c = &p->choices[i];
        json_t *gpus = json_object_get(one, "gpus");
        assert_int_equal(json_array_size(gpus), c->devices);
        for (int d = 0; d < c->devices; d++) {
            assert_true(hr__device_total(&c->bytes[d]) <= c->memory_bytes);
            if (c->schedule == HR_PLAN_1F1B && c->microbatches >= c->devices)
                assert_int_equal(json_integer_value(json_object_get(json_array_get(gpus, (size_t)d),
                                                                    "microbatches")),
                                 c->devices - d);
        }
        assert_true(near(hr__device_total(&c->bytes[c->fullest]), c->memory_bytes));
    }
    json_decref(all);
    shown_make_path(path);
    assert_int_equal(hr_plan_write_text(p, path, 100, &error), 0);
    const char *text = strstr(shown_read(path), "what the GPU of each stage holds");
    assert_non_null(text);
    assert_non_null(strstr(text, "1f1b with 4 stages"));
    hr_plan_destroy(&p);
    o.memory_bytes = 60000000; /* some do not fit */
    p = plan(EQUAL, &o);
    assert_true(p->full > 0 && p->full <= p->considered - p->fit);
    assert_int_equal(hr_plan_write_text(p, path, 100, &error), 0);
    assert_non_null(strstr(shown_read(path), "more memory than a GPU has"));
    hr_plan_destroy(&p);
}

static void test_what_a_schedule_needs_is_said(void **state)
{
    struct hr_plan_options o = options_of(4, 3);
    o.schedule = HR_PLAN_2BW;
    o.stages = 4;
    struct hr_plan *p = plan(EQUAL, &o);
    assert_int_equal(hr_plan_count(p), 0);
    assert_non_null(strstr(p->refused->reason, "3 for 4 stages"));
    hr_plan_destroy(&p);
}

/* All plans of a small search, each run: none is faster than the first, and they fall. */
static void test_the_first_plan_is_the_fastest(void **state)
{
    struct hr_plan_options o = options_of(8, 32);
    o.rows = 1000;
    o.link_bytes_per_s = 1e6;
    struct hr_plan *all = plan(EQUAL, &o);
    assert_true(hr_plan_count(all) > 50);
    for (int i = 1; i < all->count; i++)
        assert_true(all->choices[i].samples_per_s <= all->choices[i - 1].samples_per_s);
    o.rows = 3;
    struct hr_plan *few = plan(EQUAL, &o);
    assert_int_equal(hr_plan_count(few), 3);
    for (int i = 0; i < 3; i++)
        assert_true(near(few->choices[i].samples_per_s, all->choices[i].samples_per_s));
    assert_true(few->alone_per_s == all->alone_per_s);
    hr_plan_destroy(&few);
    hr_plan_destroy(&all);
}

/* ---- what is shown ---- */

static void test_a_plan_is_shown(void **state)
{
    char path[64];
    struct hr_error error = {0};
    struct hr_plan_options o = options_of(4, 8);
    o.memory_bytes = 100000000;
    o.link_bytes_per_s = 1e9;
    struct hr_plan *p = plan(EQUAL, &o);
    shown_make_path(path);
    assert_int_equal(hr_plan_write_text(p, path, 100, &error), 0);
    const char *text = shown_read(path);
    assert_int_equal(strncmp(text, "Fastest: ", 9), 0);
    assert_non_null(strstr(text, "\nplans "));
    assert_true(shown_widest(text) <= 100);
    assert_int_equal(hr_plan_write_page(p, path, &error), 0);
    text = shown_read(path);
    assert_non_null(strstr(text, "four &lt;equal&gt; layers"));
    assert_null(strstr(text, "<equal>"));
    assert_non_null(strstr(text, "id=\"chart-gantt\""));
    assert_int_equal(hr_plan_write_trace(p, path, &error), 0);
    json_t *trace = json_loads(shown_read(path), 0, NULL);
    assert_non_null(trace);
    assert_true(json_array_size(json_object_get(trace, "traceEvents")) >
                (size_t)p->run.device_count * p->run.device_tasks);
    json_decref(trace);
    json_t *json = json_loads(hr_plan_json(p), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "plans")), 10);
    json_t *first = json_object_get(json, "first");
    assert_int_equal(json_array_size(json_object_get(first, "tasks")),
                     (size_t)p->run.device_count * p->run.device_tasks);
    json_decref(json);
    hr_plan_destroy(&p);
}

/* ---- refusals ---- */

static void test_profiles_are_refused_by_name(void **state)
{
#define LAYER(more)                                                                                \
    "{\"headrace_pipeline_profile\": 1, \"microbatches\": [1, 2], \"layers\": [{\"name\": "        \
    "\"x\"" more "}]}"
    static const char *const cases[][2] = {
        {"[]", "test is not an object"},
        {"[", "test is not JSON"},
        {"{}", "no profile of a pipeline"},
        {"{\"headrace_pipeline_profile\": 1}", "microbatches is missing"},
        {"{\"headrace_pipeline_profile\": 1, \"microbatches\": [2, 1]}", "must rise"},
        {"{\"headrace_pipeline_profile\": 1, \"microbatches\": [1.5]}", "whole numbers"},
        {"{\"headrace_pipeline_profile\": 1, \"microbatches\": [1]}", "layers is missing"},
        {LAYER(""), "layers[0] (x).weight_bytes is missing"},
        {LAYER(", \"weight_bytes\": 1"), "layers[0] (x).forward_s is missing; write 2 numbers"},
        {LAYER(", \"weight_bytes\": 1, \"forward_s\": [1]"), "has 1 numbers; write 2"},
        {LAYER(", \"weight_bytes\": 1, \"forward_s\": [1, 0]"),
         "layers[0] (x).forward_s is 0 for microbatches of 2: it was not measured"},
        {LAYER(", \"weight_bytes\": 1, \"forward_s\": [1, 1], \"backward_s\": [0, 1]"),
         "layers[0] (x).backward_s is 0 for microbatches of 1"},
        {LAYER(", \"weight_bytes\": 1, \"forward_s\": [1, 1e9]"), "at most 1000000"},
        {LAYER(", \"weight_bytes\": -1"), "weight_bytes is -1"},
        {LAYER(", \"repeat\": 0"), "repeat is 0"},
    };
    struct hr_plan_options o = options_of(1, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i][0], &o, cases[i][1]);
}

static void test_options_are_refused_by_name(void **state)
{
    struct hr_plan_options o = options_of(0, 1);
    refuse(EQUAL, &o, "gpus is 0");
    o = options_of(4, 0);
    refuse(EQUAL, &o, "batch is 0");
    o = options_of(4, 8);
    o.microbatch = 3;
    refuse(EQUAL, &o, "no times for microbatches of 3, only for 1, 2");
    o = options_of(8, 8);
    o.stages = 5;
    refuse(EQUAL, &o, "5 stages are more than the 4 layers");
    o.stages = 4;
    o.replicas = 3;
    refuse(EQUAL, &o, "replicas is 3: it must be from 1 to 2");
    o = options_of(4, 8);
    o.state_ratio = NAN;
    refuse(EQUAL, &o, "state_ratio");
}

/* Every allocation fails once: an error and nothing left. */
static void test_failed_allocations_leave_nothing(void **state)
{
    struct hr_plan_options o = options_of(4, 8);
    o.rows = 3;
    uint64_t before = hr__allocated(HR__TAG_REPLAY);
    for (uint64_t n = 1;; n++) {
        struct hr_plan *p = NULL;
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 0);
        int r = hr_plan_make(&p, EQUAL, strlen(EQUAL), "test", &o, &error);
        hr__alloc_fail_at(0, 0);
        hr_plan_destroy(&p);
        assert_int_equal(hr__allocated(HR__TAG_REPLAY), before);
        if (!r)
            break;
        assert_int_equal(r, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules_take_their_known_times),
        cmocka_unit_test(test_recomputation_costs_a_forward_pass),
        cmocka_unit_test(test_links_slow_what_is_sent),
        cmocka_unit_test(test_the_slowest_stage_is_as_fast_as_can_be),
        cmocka_unit_test(test_divisions_are_those_of_trying_all),
        cmocka_unit_test(test_memory_decides_what_is_planned),
        cmocka_unit_test(test_each_plan_says_the_memory_of_its_stages),
        cmocka_unit_test(test_what_a_schedule_needs_is_said),
        cmocka_unit_test(test_the_first_plan_is_the_fastest),
        cmocka_unit_test(test_a_plan_is_shown),
        cmocka_unit_test(test_profiles_are_refused_by_name),
        cmocka_unit_test(test_options_are_refused_by_name),
        cmocka_unit_test(test_failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
