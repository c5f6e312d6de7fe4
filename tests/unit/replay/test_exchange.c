/* What-ifs about the exchange of gradients, the optimizer beside it, and memory: on traces whose
 * predictions were computed on paper. */
#include "traces.h"

#include "../test.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

#define DDP   "ddp ranks=2 link=1GB/s bucket=1MB"
#define SHAPE "\"Input Dims\": [[1000, 250]], \"Input type\": [\"float\"]"

/* A gradient of 1 MB on the CPU: a backward operator of 100 us, then 10 us to store it. */
static void add_gradient(struct trace_text *t, double at, int sequence, const char *shape)
{
    char args[64];
    snprintf(args, sizeof args, "\"Sequence number\": %d", sequence);
    trace_add(t, "cpu_op", "autograd::engine::evaluate_function: MmBackward0", "1", at, 100, args);
    trace_op(t, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at + 100,
             10);
    trace_add(t, "cpu_op", "torch::autograd::AccumulateGrad", "1", at + 102, 6, shape);
}

/* Steps of 440 us of two layers of 50 us, their gradients, and an optimizer of 100 us. */
static struct hr_replay *training(int steps, const char *shape)
{
    struct trace_text *t = calloc(1, sizeof *t);
    char text[64];
    for (int i = 0; i < steps; i++) {
        double at = 440.0 * i;
        snprintf(text, sizeof text, "ProfilerStep#%d", i);
        trace_add(t, "user_annotation", text, "1", at, 440, "");
        for (int layer = 0; layer < 2; layer++) {
            snprintf(text, sizeof text, "\"Sequence number\": %d", 2 * i + layer);
            trace_add(t, "cpu_op", layer ? "aten::second" : "aten::first", "1", at + 50 * layer, 50,
                      text);
        }
        add_gradient(t, at + 100, 2 * i + 1, shape);
        add_gradient(t, at + 210, 2 * i, shape);
        trace_add(t, "user_annotation", "Optimizer.step#SGD.step", "1", at + 330, 100, "");
        trace_op(t, "aten::add_", at + 340, 80);
    }
    return trace_open(t, 0.05);
}

static double with(const struct hr_replay *of, const char *a, const char *b, const char *c)
{
    return trace_predict_us(of, (const char *const[]){a, b, c, NULL});
}

static void exchanged(void **state)
{
    struct hr_replay *r = training(1, SHAPE);
    /* The first gradient is there at 208, the second one at 318; a bucket takes 1 ms; 120 follow.
     */
    assert_float_equal(with(r, DDP, NULL, NULL), 2328, 1e-3);
    assert_float_equal(with(r, DDP " latency=10us", NULL, NULL), 2368, 1e-3);
    /* Four ranks: 3/2 of the bytes; 6 latencies in a ring, 4 in a tree. */
    assert_float_equal(with(r, "ddp ranks=4 link=8Gbit/s bucket=1MB latency=10us", NULL, NULL),
                       208 + 2 * 1560 + 120, 1e-3);
    assert_float_equal(
        with(r, "ddp ranks=4 link=1GB/s bucket=1MB latency=10us algorithm=tree", NULL, NULL),
        208 + 2 * 1540 + 120, 1e-3);
    /* One bucket for both, in any way to say so; the default's first one has 1 MiB: both. */
    assert_float_equal(with(r, DDP, "bucket=10MB", NULL), 2438, 1e-3);
    assert_float_equal(with(r, "ddp ranks=2 link=1GB/s", NULL, NULL), 2438, 1e-3);
    assert_float_equal(with(r, "ddp ranks=2 link=1GB/s", "bucket=1MB", NULL), 2328, 1e-3);
    assert_float_equal(with(r, DDP, "link x2", NULL), 208 + 1000 + 120, 1e-3);
    assert_float_equal(with(r, DDP, "link x2", "bucket=10MB"), 318 + 1000 + 120, 1e-3);
    assert_float_equal(with(r, DDP, "compress ratio=0.5", NULL), 1328, 1e-3);
    /* Compression delays the second gradient, decompression follows: 308, 808, 1308, 1408. */
    assert_float_equal(with(r, DDP, "compress ratio=0.5 rate=10GB/s", NULL), 1528, 1e-3);
    /* Two all-reduces a bucket, the second of which follows the first: the latency counts twice. */
    assert_float_equal(with(r, DDP " latency=10us", "compress ratio=0.5", NULL), 1368, 1e-3);
    assert_float_equal(with(r, DDP " latency=10us", "compress ratio=0.5 rounds=2", NULL), 1408,
                       1e-3);
    /* Half of the optimizer's 100 us follows each bucket. */
    assert_float_equal(with(r, DDP, "overlap-optimizer", NULL), 2278, 1e-3);
    /* The gradient of a layer that is gone stays where it is. */
    assert_float_equal(with(r, "remove:aten::second", DDP, NULL), 50 + 110 + 8 + 1000 + 120 - 2, 5);
    hr_replay_destroy(&r);
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

static void by_priority(void **state)
{
    struct hr_replay *r = training(2, SHAPE);
    /* In slices of 1 MB: the first layer's gradient is there at 2208, applied at 2258, and its
     * forward pass waits for it; the same again. */
    assert_float_equal(with(r, DDP, "priority slice=1MB", NULL), 2258, 1e-3);
    /* In slices of 0.5 MB the first layer's overtakes: it is applied at 1733, the second layer's at
     * 2233; in the next step the last slice is applied at 4416. */
    assert_float_equal(with(r, DDP, "priority slice=500kB", NULL), 2208, 1e-3);
    hr_replay_destroy(&r);
}

static void computed_again(void **state)
{
    struct hr_replay *r = training(1, "");
    assert_float_equal(with(r, "recompute", NULL, NULL), 540, 1e-3);
    assert_float_equal(with(r, "recompute layers=second", NULL, NULL), 490, 1e-3);
    assert_float_equal(with(r, "ops:aten::first x2", "recompute", NULL), 440 + 150 + 150, 1e-3);
    hr_replay_destroy(&r);
}

/* Applies to a trace; returns the code, and checks words of the message. */
static int refused(const struct hr_replay *of, const char *first, const char *second,
                   const char *words)
{
    struct hr_replay_scenario *s;
    struct hr_error error = {0};
    assert_int_equal(hr_replay_scenario_create(&s, of, &error), 0);
    int code = hr_replay_apply(s, first, &error);
    if (second) {
        assert_int_equal(code, 0);
        code = hr_replay_apply(s, second, &error);
    }
    if (!strstr(error.message, words))
        fail_msg("'%s' does not say '%s'", error.message, words);
    hr_replay_scenario_destroy(&s);
    return code;
}

static void what_is_lacking(void **state)
{
    struct hr_replay *r = training(1, SHAPE), *plain = training(1, "");
    assert_int_equal(refused(plain, DDP, NULL, "record --shapes"), -ENODATA);
    assert_int_equal(refused(r, "bucket=1MB", NULL, "no all-reduces of NCCL: name ddp"), -ENODATA);
    assert_int_equal(refused(r, "compress ratio=0.5", NULL, "name ddp"), -ENODATA);
    assert_int_equal(refused(r, "priority", NULL, "name ddp"), -ENODATA);
    assert_int_equal(refused(r, "overlap-optimizer", NULL, "share a CPU thread"), -ENODATA);
    assert_int_equal(refused(r, "offload", NULL, "no kernels of a device"), -ENODATA);
    assert_int_equal(refused(r, "recompute layers=third", NULL, "within 'third'"), -ENODATA);
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"ddp", "ranks= is missing"},
        {"ddp ranks=2", "link= is missing: it takes a speed"},
        {"ddp ranks=1 link=1GB/s", "ranks must be from 2"},
        {"ddp ranks=2.5 link=1GB/s", "ranks= takes a whole number"},
        {"ddp ranks=2 link=1", "link= takes a speed"},
        {"ddp ranks=2 link=nanGB/s", "link= takes a speed"},
        {"ddp ranks=2 link=1GB/s ranks=2", "given twice"},
        {"ddp ranks=2 link=1GB/s speed=1", "'speed=1' is no argument of it; there are: ranks="},
        {"ddp ranks=2 link=1GB/s algorithm=star", "must be ring or tree"},
        {"ddp ranks=2 link=1GB/s latency=1", "a time"},
        {"ddp ranks=2 link=1GB/s bucket=0", "more than 0"},
        {"bucket=0", "more than 0"},
        {"bucket=1MB/s", "a size"},
        {"bucket=", "write it as"},
        {"compress ratio=2", "from 0 to 1"},
        {"compress ratio=0.5 rounds=0", "rounds from 1 to 100"},
        {"priority slice=1", "1 KiB at least"},
        {"offload link=0GB/s", "more than 0"},
        {"recompute layers=(", "regular expression"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(refused(r, wrong[i].text, NULL, wrong[i].words), -EINVAL);
    hr_replay_destroy(&plain);
    hr_replay_destroy(&r);
}

static void words_of_a_command_line(void **state)
{
    assert_true(hr_replay_is_what_if("amp") && hr_replay_is_what_if("ddp ranks=2"));
    assert_true(hr_replay_is_what_if("kernels:gemm x2") && hr_replay_is_what_if("bucket=1MB"));
    assert_false(hr_replay_is_what_if("amp.json") || hr_replay_is_what_if("trace.json"));
    assert_true(hr_replay_is_argument("gpu", "x2"));
    assert_false(hr_replay_is_argument("gpu x2", "x2") || hr_replay_is_argument("amp", "x2"));
    assert_true(hr_replay_is_argument("ddp ranks=2", "bucket=1MB"));
    assert_false(hr_replay_is_argument("amp", "bucket=1MB"));
    assert_false(hr_replay_is_argument("ddp", "=1MB") || hr_replay_is_argument("ddp", "anks=1"));
}

/* ---- on a device ---- */

/* Adds a kernel of 100 us within an operator. */
static void add_work(struct trace_text *t, const char *op, const char *args, int number, double at)
{
    trace_add(t, "cpu_op", op, "1", 10.0 * number, 9, args);
    trace_call(t, "cudaLaunchKernel", number, 10.0 * number + 2, 5);
    trace_kernel(t, op, number, at, 100);
}

static void kept_by_the_host(void **state)
{
    struct trace_text *t = calloc(1, sizeof *t);
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 520, "");
    add_work(t, "aten::normal", "", 0, 10);
    add_work(t, "aten::conv2d", "\"Sequence number\": 0, " SHAPE, 1, 110);
    add_work(t, "aten::conv2d", "\"Sequence number\": 1, " SHAPE, 2, 210);
    add_work(t, "autograd::engine::evaluate_function: ConvolutionBackward0",
             "\"Sequence number\": 1", 3, 310);
    trace_op(t, "torch::autograd::AccumulateGrad", 38, 1);
    add_work(t, "autograd::engine::evaluate_function: ConvolutionBackward0",
             "\"Sequence number\": 0", 4, 410);
    trace_op(t, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 49.2, 0.8);
    trace_add(t, "cpu_op", "torch::autograd::AccumulateGrad", "1", 49.4, 0.4, SHAPE);
    trace_call(t, "cudaDeviceSynchronize", 9, 55, 456);
    struct hr_replay *r = trace_open(t, 0.5);
    /* The first layer's input leaves from 110 on and must be gone at 210; it comes back from 310 on
     * and is needed at 410: 1 MB at 10 GB/s is in time, at 5 GB/s each copy delays 100 us. */
    double alone = with(r, "gpu x1", NULL, NULL);
    assert_float_equal(with(r, "offload link=10GB/s", NULL, NULL), alone, 1e-3);
    assert_float_equal(with(r, "offload link=5GB/s", NULL, NULL), alone + 200, 1e-3);
    assert_int_equal(refused(r, "offload layers=aten::linear", NULL, "layers=REGEX"), -ENODATA);
    hr_replay_destroy(&r);
}

/* The trace's own all-reduce of 1 MB took 300 us, as much as the gradient has. more: arguments of
 * another one before it, of 250 kB and 120 us; NULL: there is none. */
static struct hr_replay *exchange_trace(const char *more)
{
    struct trace_text *t = calloc(1, sizeof *t);
    trace_add(t, "user_annotation", "ProfilerStep#0", "1", 0, 720, "");
    add_work(t, "aten::mm", "\"Sequence number\": 0", 0, 10);
    add_work(t, "autograd::engine::evaluate_function: MmBackward0", "\"Sequence number\": 0", 1,
             110);
    trace_op(t, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 20, 9);
    trace_add(t, "cpu_op", "torch::autograd::AccumulateGrad", "1", 21, 6, SHAPE);
    trace_call(t, "cudaLaunchKernel", 2, 23, 2);
    trace_add(t, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "20", 210, 300,
              "\"device\": 0, \"stream\": 20, \"correlation\": 2, \"In msg nelems\": 250000, "
              "\"dtype\": \"Float\", \"Group size\": 2, \"Process Group Name\": \"0\", "
              "\"Process Group Description\": \"default_pg\", \"Process Group Ranks\": \"[0, 1]\"");
    if (more)
        trace_add(t, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "20", 80, 120, more);
    trace_call(t, "cudaEventRecord", 5, 29.2, 0.2);
    trace_call(t, "cudaStreamWaitEvent", 6, 29.5, 0.2);
    trace_add(t, "cuda_sync", "Stream Wait Event", "7", 29.5, 0.2,
              "\"cuda_sync_kind\": \"Stream Wait Event\", \"stream\": 7, \"device\": 0, "
              "\"correlation\": 6, \"wait_on_stream\": 20, "
              "\"wait_on_cuda_event_record_corr_id\": 5");
    trace_add(t, "user_annotation", "Optimizer.step#SGD.step", "1", 30, 10, "");
    add_work(t, "aten::add_", "", 3, 510);
    trace_call(t, "cudaDeviceSynchronize", 9, 55, 556);
    return trace_open(t, 0.9);
}

static void exchange_of_the_trace(void **state)
{
    struct hr_replay *r = exchange_trace(NULL);
    double alone = with(r, "gpu x1", NULL, NULL);
    assert_int_equal(refused(r, DDP, NULL, "on several ranks already"), -ENODATA);
    /* The exchange as in the trace: 300 us after 210; then half of it. */
    assert_float_equal(with(r, "bucket=1MB", NULL, NULL), alone, 1);
    assert_float_equal(with(r, "compress ratio=0.5", NULL, NULL), alone - 150, 1);
    /* The optimizer's kernel of 100 us is beside the stream, but still follows the exchange. */
    assert_float_equal(with(r, "overlap-optimizer", NULL, NULL), alone, 1);
    hr_replay_destroy(&r);
}

/* All-reduces of two sizes tell what each costs, 60 us, and what each byte costs. */
static void exchange_of_several_sizes(void **state)
{
    struct hr_replay *r = exchange_trace(
        "\"device\": 0, \"stream\": 20, \"In msg nelems\": 62500, \"dtype\": \"Float\", "
        "\"Group size\": 2, \"Process Group Name\": \"0\"");
    double alone = with(r, "gpu x1", NULL, NULL);
    assert_float_equal(with(r, "bucket=1MB", NULL, NULL), alone, 1);
    assert_float_equal(with(r, "compress ratio=0.5", NULL, NULL), alone - 120, 1);
    assert_float_equal(with(r, "compress ratio=0.5 rounds=2", NULL, NULL), alone - 60, 1);
    hr_replay_destroy(&r);
}

/* Which of several groups exchanges gradients is not known, and the report names them. */
static void exchange_of_several_groups(void **state)
{
    char *text;
    struct hr_error error = {0};
    struct hr_replay *r = exchange_trace(
        "\"device\": 0, \"stream\": 20, \"In msg nelems\": 62500, \"dtype\": \"Float\", "
        "\"Group size\": 4, \"Process Group Name\": \"1\", \"Process Group Description\": "
        "\"tensor_parallel\", \"Process Group Ranks\": \"[0, 2, 4, 6]\"");
    assert_int_equal(refused(r, "bucket=1MB", NULL,
                             "all-reduces of group 'tensor_parallel' (ranks [0, 2, 4, 6]) and of "
                             "group 'default_pg' (ranks [0, 1]): which of them"),
                     -ENODATA);
    assert_int_equal(hr_replay_report_text(r, NULL, 0, 2000, &text, &error), 0);
    assert_non_null(strstr(text, "by process group: group 'default_pg' (ranks [0, 1]) 1, group "
                                 "'tensor_parallel' (ranks [0, 2, 4, 6]) 1."));
    hr_replay_free(text);
    hr_replay_destroy(&r);
}

/* Advice tries what changes an exchange where the trace has one. */
static void advice_on_an_exchange(void **state)
{
    static const char *const tried[] = {"bucket=5MB",         "bucket=100MB",
                                        "compress ratio=0.5", "loss-tolerance p=0.01 packet=9000",
                                        "overlap-optimizer",  "launch-overhead x0.5",
                                        "recompute",          "link x2"};
    char *text, line[100];
    struct hr_error error = {0};
    struct hr_replay *r = exchange_trace(NULL);
    assert_int_equal(hr_replay_report_json(r, NULL, 0, &text, &error), 0);
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        snprintf(line, sizeof line, "\"what\": \"%s\",\n   \"assumes\"", tried[i]);
        if (!strstr(text, line))
            fail_msg("%s is not tried in %s", tried[i], text);
    }
    assert_non_null(strstr(text,
                           "\"what\": \"ddp\",\n   \"why\": \"the trace is of a run on several "
                           "ranks already"));
    hr_replay_free(text);
    hr_replay_destroy(&r);
    r = training(1, SHAPE);
    assert_int_equal(hr_replay_report_text(r, NULL, 0, 2000, &text, &error), 0);
    assert_non_null(strstr(text, "ddp: needs the run that you plan"));
    hr_replay_free(text);
    hr_replay_destroy(&r);
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanged),
        cmocka_unit_test(by_priority),
        cmocka_unit_test(computed_again),
        cmocka_unit_test(what_is_lacking),
        cmocka_unit_test(words_of_a_command_line),
        cmocka_unit_test(kept_by_the_host),
        cmocka_unit_test(exchange_of_the_trace),
        cmocka_unit_test(exchange_of_several_sizes),
        cmocka_unit_test(exchange_of_several_groups),
        cmocka_unit_test(advice_on_an_exchange),
    };
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
