/* The what-if loss-tolerance: times against the simulated network, limits, and refusals. */
#include "traces.h"

#include "../test.h"

#include "base/memory.h"
#include "replay/network.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BYTES "\"In msg nelems\": 1000000, \"dtype\": \"Float\", \"Group size\": 4"

/* A step of 4 ms: a kernel of 1 ms, then an all-reduce of 2 ms on a stream of its own, for which
 * the CPU waits. `beside_us`: another kernel follows the first one, so long, beside it. */
static struct hr_replay *device_step(double beside_us, const char *bytes)
{
    struct trace_text *t = calloc(1, sizeof *t);
    char args[256];
    trace_add(t, "user_annotation", "ProfilerStep#1", "1", 0, 4000, "");
    trace_call(t, "cudaLaunchKernel", 1, 20, 10);
    trace_kernel(t, "gemm", 1, 40, 1000);
    trace_call(t, "cudaLaunchKernel", 2, 100, 10);
    snprintf(args, sizeof args, "\"device\": 0, \"stream\": 8, \"correlation\": 2%s%s",
             *bytes ? ", " : "", bytes);
    trace_add(t, "kernel", "ncclDevKernel_AllReduce_Sum_f32", "8", 1040, 2000, args);
    if (beside_us > 0) {
        trace_call(t, "cudaLaunchKernel", 3, 150, 10);
        trace_kernel(t, "gemm", 3, 1040, beside_us);
    }
    double end = beside_us > 2000 ? 1040 + beside_us : 3040;
    trace_call(t, "cudaDeviceSynchronize", 4, 200, end + 10 - 200);
    return trace_open(t, 0.05);
}

static double predict_us(struct hr_replay *replay, const char *first, const char *second)
{
    struct hr_replay_prediction p = {.size = sizeof p};
    struct hr_replay_scenario *s;
    struct hr_error error = {0};
    assert_int_equal(hr_replay_scenario_create(&s, replay, NULL), 0);
    if (hr_replay_apply(s, first, &error) || (second && hr_replay_apply(s, second, &error)) ||
        hr_replay_predict(s, &p, &error))
        fail_msg("%s: %s", first, error.message);
    hr_replay_scenario_destroy(&s);
    return p.iteration_s * 1e6;
}

/* Returns the ratio of two networks' times for the trace's all-reduce. */
static double ratio(struct hr__network n, double tolerance)
{
    struct hr__network_result before, after;
    n.workers = 4;
    assert_int_equal(hr__network_all_reduce(&before, &n, 4e6, NULL), 0);
    n.tolerance = tolerance;
    assert_int_equal(hr__network_all_reduce(&after, &n, 4e6, NULL), 0);
    return after.seconds / before.seconds;
}

static void times_follow_the_network(void **state)
{
    struct hr_replay *replay = device_step(0, BYTES);
    struct hr__network n;
    /* what is not on the way of a packet takes as long as before */
    double rest = predict_us(replay, "kernels:nccl x0", NULL);
    assert_float_equal(predict_us(replay, "loss-tolerance p=0", NULL), 4000, 1e-6);
    hr__network_default(&n);
    n.bytes_per_s = 1.5 * 4e6 / 2e-3; /* 2 (4 - 1) / 4 of the bytes in 2 ms */
    assert_float_equal(predict_us(replay, "loss-tolerance p=0.25", NULL),
                       rest + 2000 * ratio(n, 0.25), 0.01);
    n.bytes_per_s = 3.125e9;
    n.latency_s = 1e-5;
    assert_float_equal(predict_us(replay, "loss-tolerance p=0.25 link=25Gbit/s latency=10us", NULL),
                       rest + 2000 * ratio(n, 0.25), 0.01);
    n.topology = HR__NETWORK_SERVER;
    n.bytes_per_s = 8 * 4e6 / 2e-3;
    n.latency_s = 0;
    assert_float_equal(predict_us(replay, "loss-tolerance p=0.25 topology=ps", NULL),
                       rest + 2000 * ratio(n, 0.25), 0.01);
    hr_replay_destroy(&replay);
}

static void loss(void **state)
{
    struct hr_replay *replay = device_step(0, BYTES);
    double before = INFINITY;
    /* the record's network loses as much: nothing changes without tolerance */
    assert_float_equal(
        predict_us(replay, "loss-tolerance p=0 loss=0.02 recorded-loss=0.02 draws=3", NULL), 4000,
        1e-6);
    double retried = predict_us(replay, "loss-tolerance p=0 loss=0.02 draws=3", NULL);
    assert_true(retried > 4000);
    assert_true(predict_us(replay, "loss-tolerance p=0 loss=0.02 draws=3", NULL) == retried);
    assert_true(predict_us(replay, "loss-tolerance p=0 loss=0.02 draws=3 seed=9", NULL) != retried);
    for (int percent = 0; percent <= 90; percent += 10) {
        char text[80];
        snprintf(text, sizeof text, "loss-tolerance p=0.%02d loss=0.02 draws=3", percent);
        double us = predict_us(replay, text, NULL);
        assert_true(us <= before);
        before = us;
    }
    assert_true(before < retried);
    /* one path of the link's rate for four workers; spraying divides it no worse than hashes */
    double hashed = predict_us(replay, "loss-tolerance p=0 paths=4", NULL);
    assert_float_equal(hashed, 4000, 1e-6); /* what the record had */
    assert_true(predict_us(replay, "loss-tolerance p=0 paths=4 balance=spray", NULL) < hashed);
    hr_replay_destroy(&replay);
}

/* Communication behind a longer kernel: what it gains, nobody sees. */
static void hidden_communication(void **state)
{
    struct hr_replay *replay = device_step(2500, BYTES);
    assert_float_equal(predict_us(replay, "loss-tolerance p=0.9", NULL), 4000, 1e-6);
    assert_float_equal(predict_us(replay, "loss-tolerance p=0", NULL), 4000, 1e-6);
    assert_true(predict_us(replay, "loss-tolerance p=0 loss=0.05 draws=2", NULL) > 4000);
    hr_replay_destroy(&replay);
}

/* Collectives of gloo do not say their bytes: these follow from the link and the time. */
static void gloo(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    trace_add(t, "user_annotation", "ProfilerStep#1", "1", 0, 1000, "");
    trace_op(t, "c10d::allreduce_", 100, 20);
    trace_add(t, "user_annotation", "gloo:all_reduce", "2", 110, 590, "");
    trace_op(t, "aten::copy_", 720, 30);
    struct hr_replay *replay = trace_open(t, 0.05);
    double us = predict_us(replay, "loss-tolerance p=0.5 link=1GB/s workers=2", NULL);
    assert_float_equal(us, 1000 - 295, 2); /* a part of a packet more */
    us = predict_us(replay, "loss-tolerance p=0 link=1GB/s workers=2", "python x1");
    assert_float_equal(us, 1000, 1e-6);
    struct hr_replay_scenario *s;
    struct hr_error error = {0};
    assert_int_equal(hr_replay_scenario_create(&s, replay, NULL), 0);
    assert_int_equal(hr_replay_apply(s, "loss-tolerance p=0.1 workers=2", &error), -EINVAL);
    assert_non_null(strstr(error.message, "give link="));
    assert_int_equal(hr_replay_apply(s, "loss-tolerance p=0.1 link=1GB/s", &error), -EINVAL);
    assert_non_null(strstr(error.message, "give workers="));
    hr_replay_scenario_destroy(&s);
    hr_replay_destroy(&replay);
}

/* After ddp: a gradient of 1 MB goes around a ring of four. */
static void after_ddp(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 500, "");
    trace_add(t, "cpu_op", "aten::mm", "1", 10, 50, "\"Sequence number\": 0");
    trace_add(t, "cpu_op", "autograd::engine::evaluate_function: MmBackward0", "1", 100, 100,
              "\"Sequence number\": 0");
    trace_op(t, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 200, 10);
    trace_add(t, "cpu_op", "torch::autograd::AccumulateGrad", "1", 202, 6,
              "\"Input Dims\": [[1000, 250]], \"Input type\": [\"float\"]");
    trace_add(t, "user_annotation", "Optimizer.step#SGD.step", "1", 300, 100, "");
    trace_op(t, "aten::add_", 310, 80);
    struct hr_replay *replay = trace_open(t, 0.05);
    const char *ddp = "ddp ranks=4 link=1GB/s latency=10us";
    double us = predict_us(replay, ddp, NULL);
    assert_float_equal(
        predict_us(replay, ddp, "loss-tolerance p=0 workers=4 link=1GB/s latency=10us"), us, 1e-6);
    /* six steps of 250 kB each: 1500 us of bytes, 60 us of latency */
    double half = predict_us(replay, ddp, "loss-tolerance p=0.5 workers=4 link=1GB/s latency=10us");
    assert_float_equal(half, us - 750, 8);
    /* what ddp said need not be said again */
    assert_true(predict_us(replay, ddp, "loss-tolerance p=0.5") == half);
    assert_true(predict_us(replay, ddp, "loss-tolerance p=0.5 latency=30us") != half);
    hr_replay_destroy(&replay);
}

static void refusals(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *words;
    } wrong[] = {
        {"loss-tolerance", -EINVAL, "p= is missing"},
        {"loss-tolerance p=1", -EINVAL, "p is 1"},
        {"loss-tolerance p=x", -EINVAL, "p= takes a number"},
        {"loss-tolerance p=0 loss=0.9", -EINVAL, "loss is 0.9"},
        {"loss-tolerance p=0 loss=-1", -EINVAL, "loss="},
        {"loss-tolerance p=0 colour=1", -EINVAL, "colour"},
        {"loss-tolerance p=0 topology=star", -EINVAL, "ring or ps"},
        {"loss-tolerance p=0 balance=random", -EINVAL, "hash or spray"},
        {"loss-tolerance p=0 balance=spray", -EINVAL, "needs paths="},
        {"loss-tolerance p=0 workers=1", -EINVAL, "at least 2"},
        {"loss-tolerance p=0 workers=1e6", -EINVAL, "workers"},
        {"loss-tolerance p=0 packet=1", -EINVAL, "packet"},
        {"loss-tolerance p=0 timeout=0s", -EINVAL, "timeout"},
        {"loss-tolerance p=0 draws=0", -EINVAL, "draws"},
        {"loss-tolerance p=0 loss=0.1 workers=1000", -E2BIG, "packet=9000"},
    };
    struct hr_replay *replay = device_step(0, BYTES);
    struct hr_replay_scenario *s;
    struct hr_error error = {0};
    assert_int_equal(hr_replay_scenario_create(&s, replay, NULL), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int code = hr_replay_apply(s, wrong[i].text, &error);
        if (code != wrong[i].code || !strstr(error.message, wrong[i].words))
            fail_msg("%s: %d %s", wrong[i].text, code, error.message);
    }
    /* changes of the exchange would undo it, and a second one does not know the first one's */
    assert_int_equal(hr_replay_apply(s, "loss-tolerance p=0.1", &error), 0);
    assert_int_equal(hr_replay_apply(s, "loss-tolerance p=0.1", &error), -EINVAL);
    assert_non_null(strstr(error.message, "once"));
    assert_int_equal(hr_replay_apply(s, "bucket=1MB", &error), -EINVAL);
    assert_int_equal(hr_replay_apply(s, "gpu x2", &error), 0);
    hr_replay_scenario_destroy(&s);
    hr_replay_destroy(&replay);
    struct trace_text *t = calloc(1, sizeof *t);
    trace_step(t);
    replay = trace_open(t, 0.05);
    assert_int_equal(hr_replay_scenario_create(&s, replay, NULL), 0);
    assert_int_equal(hr_replay_apply(s, "loss-tolerance p=0", &error), -ENODATA);
    assert_non_null(strstr(error.message, "no communication"));
    hr_replay_scenario_destroy(&s);
    hr_replay_destroy(&replay);
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_follow_the_network),
        cmocka_unit_test(loss),
        cmocka_unit_test(hidden_communication),
        cmocka_unit_test(gloo),
        cmocka_unit_test(after_ddp),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
