/*
 * What-ifs by name, on top of the primitives. Each says what it assumes, and the source of that:
 * most are the models of "Daydream" (ATC'20).
 */
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(kind) (1u << (kind))
#define CPU_KINDS (BIT(HR__TASK_OP) | BIT(HR__TASK_CALL) | BIT(HR__TASK_UNTRACED))
#define DEVICE_KINDS                                                                               \
    (BIT(HR__TASK_KERNEL) | BIT(HR__TASK_COPY) | BIT(HR__TASK_SET) | BIT(HR__TASK_COLLECTIVE))

static struct hr_replay_selector of_kinds(uint32_t kinds)
{
    struct hr_replay_selector s;
    hr_replay_selector_default(&s);
    s.kinds = kinds;
    return s;
}

/* Selects and scales; -ENODATA if nothing is selected. */
static int scale(struct hr_replay_scenario *s, const struct hr_replay_selector *which,
                 double factor, const char *what, struct hr_error *error)
{
    struct hr__task_marks marks;
    int code = hr__select(&marks, &s->graph, which, error);
    if (code)
        return code;
    if (marks.count)
        hr__scale(&s->graph, marks.is_marked, factor);
    else
        code = hr__fail(error, -ENODATA, "the trace has no %s", what);
    hr__free(marks.is_marked);
    return code;
}

/* ---- scaling ---- */

static int apply_gpu(struct hr_replay_scenario *s, const char *pattern, double factor,
                     struct hr_error *error)
{
    struct hr_replay_selector which = of_kinds(BIT(HR__TASK_KERNEL) | BIT(HR__TASK_SET));
    return scale(s, &which, 1 / factor, "kernels of a device", error);
}

static int apply_link(struct hr_replay_scenario *s, const char *pattern, double factor,
                      struct hr_error *error)
{
    struct hr_replay_selector which = of_kinds(BIT(HR__TASK_COLLECTIVE));
    s->exchange.fixed_s /= factor; /* for changes of the exchange that follow */
    s->exchange.byte_s /= factor;
    s->exchange.latency_s /= factor;
    s->exchange.link_bytes_per_s *= factor;
    return scale(s, &which, 1 / factor, "kernels that communicate (NCCL)", error);
}

static int apply_kernels(struct hr_replay_scenario *s, const char *pattern, double factor,
                         struct hr_error *error)
{
    char what[300];
    struct hr_replay_selector which = of_kinds(DEVICE_KINDS);
    which.name = pattern;
    snprintf(what, sizeof what, "work of a device whose name contains '%.200s'", pattern);
    return scale(s, &which, factor, what, error);
}

static int apply_ops(struct hr_replay_scenario *s, const char *pattern, double factor,
                     struct hr_error *error)
{
    char what[300];
    struct hr_replay_selector which = of_kinds(CPU_KINDS);
    which.within = pattern;
    snprintf(what, sizeof what, "CPU time in operators or modules whose name contains '%.200s'",
             pattern);
    return scale(s, &which, factor, what, error);
}

static int apply_layer(struct hr_replay_scenario *s, const char *pattern, double factor,
                       struct hr_error *error)
{
    char what[300];
    struct hr_replay_selector which = of_kinds(CPU_KINDS | DEVICE_KINDS);
    which.within = pattern;
    snprintf(what, sizeof what, "operator or module whose name contains '%.200s'", pattern);
    return scale(s, &which, factor, what, error);
}

static int apply_python(struct hr_replay_scenario *s, const char *pattern, double factor,
                        struct hr_error *error)
{
    struct hr_replay_selector which = of_kinds(BIT(HR__TASK_UNTRACED));
    which.phases = ~BIT(HR__PHASE_DATA);
    return scale(s, &which, 1 / factor, "time outside operators", error);
}

static int apply_launch(struct hr_replay_scenario *s, const char *pattern, double factor,
                        struct hr_error *error)
{
    struct hr_replay_selector which = of_kinds(BIT(HR__TASK_CALL));
    which.name = "Launch";
    return scale(s, &which, factor, "calls that launch kernels", error);
}

/* ---- removing ---- */

static int apply_remove(struct hr_replay_scenario *s, const char *pattern, double factor,
                        struct hr_error *error)
{
    struct hr__task_marks marks;
    /* what waits for a device goes as well: its return is a task of its own */
    struct hr_replay_selector which = of_kinds(CPU_KINDS | DEVICE_KINDS | BIT(HR__TASK_RETURN));
    which.within = pattern;
    int code = hr__select(&marks, &s->graph, &which, error);
    if (code)
        return code;
    if (marks.count)
        hr__remove(&s->graph, marks.is_marked);
    else
        code = hr__fail(error, -ENODATA,
                        "the trace has no operator, module or kernel whose name contains '%.200s'",
                        pattern);
    hr__free(marks.is_marked);
    return code;
}

static int apply_data(struct hr_replay_scenario *s, const char *pattern, double factor,
                      struct hr_error *error)
{
    struct hr_replay_selector which = of_kinds(CPU_KINDS);
    which.phases = BIT(HR__PHASE_DATA);
    return scale(s, &which, 0, "wait for a torch.utils.data.DataLoader", error);
}

/* ---- models ---- */

/* Returns whether a kernel computes in 16 bits already. */
static int is_half(const char *name)
{
    static const char *const words[] = {"half", "Half", "h16816",   "h884",  "hgemm", "fp16",
                                        "f16",  "bf16", "BFloat16", "h1688", "s16816"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return 1;
    return 0;
}

/* Returns whether a kernel is limited by arithmetic: a matrix product or a convolution. */
static int is_dense(const char *name)
{
    static const char *const words[] = {"gemm",     "Gemm",   "GEMM", "conv",  "Conv",
                                        "cutlass",  "scudnn", "xmma", "wgrad", "dgrad",
                                        "winograd", "fft2d",  "Cijk"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return 1;
    return 0;
}

/* Returns whether a dense kernel runs on tensor cores in TF32, where 16 bits are twice as fast. */
static int is_tf32(const char *name)
{
    return strstr(name, "tf32") || strstr(name, "s1688");
}

static int apply_amp(struct hr_replay_scenario *s, const char *pattern, double factor,
                     struct hr_error *error)
{
    size_t changed = 0;
    for (size_t i = 0; i < s->graph.task_count; i++) {
        struct hr__graph_task *task = &s->graph.tasks[i];
        const char *name = hr__graph_name(&s->graph, task);
        if (task->kind != HR__TASK_KERNEL || task->phase == HR__PHASE_OPTIMIZER || is_half(name))
            continue;
        task->length_ns /= is_dense(name) && !is_tf32(name) ? 3 : 2;
        changed++;
    }
    if (!changed)
        return hr__fail(error, -ENODATA,
                        "the trace has no kernels of a device in single precision");
    return 0;
}

static int apply_graphs(struct hr_replay_scenario *s, const char *pattern, double factor,
                        struct hr_error *error)
{
    struct hr_replay_selector which = of_kinds(CPU_KINDS);
    if (!s->graph.counts.kernels)
        return hr__fail(error, -ENODATA, "the trace has no kernels of a device");
    if (s->graph.is_whole)
        return hr__fail(
            error, -ENODATA,
            "the trace has no steps of the profiler: call its step(), or name a window");
    which.phases = ~BIT(HR__PHASE_DATA);
    return scale(s, &which, 0, "CPU work", error);
}

static int apply_norm(struct hr_replay_scenario *s, const char *pattern, double factor,
                      struct hr_error *error)
{
    struct hr_replay_selector which = of_kinds(BIT(HR__TASK_KERNEL));
    which.within = "batch_?norm|BatchNorm";
    int code = scale(s, &which, 0.5, "kernels of batch normalization", error);
    if (code)
        return code;
    which.within = "aten::relu|aten::threshold_backward|aten::clamp_min";
    code = scale(s, &which, 0, "", error);
    return code == -ENODATA ? 0 : code;
}

/* Sources that several share. */
#define DAYDREAM "Daydream (Zhu and others, ATC'20)"
#define SCALING  "definition: the times are multiplied (Daydream's primitive, ATC'20)"

/* What a user must say. */
#define NEEDS_NAME                                                                                 \
    "needs a name: one of the critical path's, of an operator, or of a module (recorded by "       \
    "headrace replay record)"

const struct hr__what_if hr__what_ifs[] = {
    {.name = "data-ready",
     .example = "data-ready",
     .assumes = "The next batch is always there when the loop asks a torch.utils.data.DataLoader "
                "for it.",
     .source = "definition: the annotations enumerate(DataLoader) of PyTorch's profiler take no "
               "time",
     .tried = {"data-ready"},
     .apply = apply_data},
    {.name = "amp",
     .example = "amp",
     .assumes = "Mixed precision: matrix products and convolutions on the device take a third "
                "(those in TF32 half), other kernels half; the optimizer and the CPU stay. Kernels "
                "in 16 bits already stay.",
     .source = DAYDREAM "; TF32: NVIDIA's data sheet of the A100, which has twice the speed in 16 "
                        "bits",
     .tried = {"amp"},
     .apply = apply_amp},
    {.name = "fused-optimizer",
     .example = "fused-optimizer",
     .assumes = "One launch, and one kernel that takes as long as all the kernels of a step. On "
                "the CPU, for SGD, Adam, AdamW and Adagrad: the time between operators goes, and "
                "the operators shrink to one pass over memory, by the tensors that each of them "
                "touches.",
     .source = DAYDREAM "; on the CPU the tensors that torch.optim's steps and "
                        "torch._fused_adamw_ and its like read and write",
     .tried = {"fused-optimizer"},
     .apply = hr__apply_optimizer},
    {.name = "cuda-graphs",
     .example = "cuda-graphs",
     .assumes = "At most this: everything but waiting for data is captured, launching costs "
                "nothing, and Python outside the graph nothing either.",
     .source = "PyTorch's documentation (CUDA semantics, Why CUDA Graphs?): a replay skips Python, "
               "C++ and the driver",
     .tried = {"cuda-graphs"},
     .apply = apply_graphs},
    {.name = "batch-norm-fused",
     .example = "batch-norm-fused",
     .assumes = "Activations within batch normalization: batch normalization takes half, "
                "activations (relu) nothing.",
     .source = DAYDREAM ", on Restructuring Batch Normalization (Jung and others, MLSys 2019); it "
                        "predicted 12.7 % where 7 % were measured",
     .tried = {"batch-norm-fused"},
     .apply = apply_norm},
    {.name = "python",
     .example = "python x2",
     .assumes = "Python, and all else on the CPU that no operator covers, takes 1/F; without the "
                "profiler it is less already.",
     .source = SCALING,
     .tried = {"python x2"},
     .needs_factor = 1,
     .apply = apply_python},
    {.name = "gpu",
     .example = "gpu x2",
     .assumes = "All kernels take 1/F; copies and communication stay.",
     .source = SCALING,
     .tried = {"gpu x2"},
     .needs_factor = 1,
     .apply = apply_gpu},
    {.name = "link",
     .example = "link x2",
     .assumes = "Communication takes 1/F; in the trace of a single rank it includes waiting for "
                "the others.",
     .source = SCALING,
     .tried = {"link x2"},
     .needs_factor = 1,
     .apply = apply_link},
    {.name = "ddp",
     .example = "ddp ranks=16 link=25Gbit/s latency=10us algorithm=ring bucket=25MB",
     .assumes = "Each rank does what the trace shows. Buckets fill in the order of gradients "
                "(first 1 MiB, then 25 MiB, or bucket=) and are all-reduced one after the other "
                "beside the backward pass. With n ranks a ring takes 2(n-1) steps of a latency and "
                "1/n of the bytes, a tree 2 log2(n) latencies and the same bytes. The link carries "
                "link= without headers, each way; copies into buckets are free. NCCL took 34 % "
                "longer on average in Daydream, because computing slows it down.",
     .source = DAYDREAM "; buckets: Li and others, VLDB 2020; ring: Patarasuk and Yuan, JPDC 2009; "
                        "tree: Sanders and others, 2009",
     .needs = "needs the run that you plan, as 'ddp ranks=8 link=25Gbit/s latency=10us'",
     .apply = hr__apply_ddp,
     .keys = " ranks= link= latency= algorithm= bucket="},
    {.name = "bucket=",
     .example = "bucket=25MB",
     .assumes = "As ddp, in buckets of this size. If the trace has all-reduces of NCCL, a bucket "
                "takes a time for each all-reduce and a time for each byte, as these did (least "
                "squares); in the trace of a single rank this includes waiting for the others.",
     .source = DAYDREAM "; PyTorch's documentation (DistributedDataParallel, bucket_cap_mb) and Li "
                        "and others, VLDB 2020",
     .tried = {"bucket=5MB", "bucket=100MB"},
     .apply = hr__apply_bucket},
    {.name = "compress",
     .example = "compress ratio=0.5 rate=10GB/s",
     .assumes = "ratio= of the gradients' bytes is exchanged; compressing, where the gradients are "
                "made, and decompressing each go over all bytes at rate=, or are free without it. "
                "With rounds= the bytes go in several all-reduces, one after the other, each with "
                "its latency (PowerSGD: P, then Q). Accuracy is not predicted.",
     .source = DAYDREAM ", on DGC (Lin and others, ICLR 2018); PowerSGD: Vogels and others, "
                        "NeurIPS 2019; half of the bytes: torch's fp16_compress_hook",
     .tried = {"compress ratio=0.5"},
     .apply = hr__apply_compress,
     .keys = " ratio= rate= rounds="},
    {.name = "priority",
     .example = "priority",
     .assumes = "Gradients are cut into slices (slice=200kB); those of the first layers go first, "
                "and only the next forward operator of a layer waits for its own. Updates are made "
                "as gradients arrive, beside the rest.",
     .source = "P3 (Jayarajan and others, MLSys 2019); Daydream's errors with it were up to 16 %",
     .tried = {"priority"},
     .apply = hr__apply_priority,
     .keys = " slice="},
    {.name = "overlap-optimizer",
     .example = "overlap-optimizer",
     .assumes = "The optimizer's work is divided by the gradients' bytes; each part follows its "
                "bucket's exchange, or its gradient, and runs beside the rest. Computing and "
                "updating do not slow each other down; launching stays where it is.",
     .source = "torch.distributed.optim's _apply_optimizer_in_backward: a hook of each gradient "
               "updates its parameter",
     .tried = {"overlap-optimizer"},
     .apply = hr__apply_overlap},
    {.name = "offload",
     .example = "offload link=12.8GB/s layers=aten::conv",
     .assumes = "The input of each such layer but the last is copied to the host while the layer "
                "computes, and back during the backward pass of the layer behind it; both layers "
                "wait for the copies, which take bytes / link= (12.8 GB/s). This costs time; the "
                "memory that it frees is not predicted (headrace memory shows it).",
     .source = "vDNN (Rhu and others, MICRO'16): convolutions, 12.8 GB/s",
     .tried = {"offload"},
     .apply = hr__apply_offload,
     .keys = " link= layers="},
    {.name = "recompute",
     .example = "recompute",
     .assumes = "Each forward operator (in layers=REGEX) that has a backward one runs again right "
                "before it, as long as the first time; Python between the operators does not "
                "count. This costs time; the memory that it frees is not predicted (headrace "
                "memory shows it).",
     .source = "Training Deep Nets with Sublinear Memory Cost (Chen and others, 2016)",
     .tried = {"recompute"},
     .apply = hr__apply_recompute,
     .keys = " layers="},
    {.name = "loss-tolerance",
     .example = "loss-tolerance p=0.05 loss=0.01",
     .assumes = "Times of collectives change as those of an all-reduce in a simulation, packet by "
                "packet, of a ring or a parameter server: from a lossless transport with "
                "recorded-loss= (0) to one that is content with 1-p of each message's packets "
                "where loss= is lost. This predicts the time only, not the accuracy, which lost "
                "gradients change; in a ring a loss reaches all later steps, with a server one "
                "worker's gradient. Loss is independent from packet to packet, and the transport "
                "does not take it for congestion.",
     .source = "DLCP (Wang and others, arXiv 2008.08445); MLT (Wang and others, NSDI'24)",
     .tried = {"loss-tolerance p=0.01 packet=9000"},
     .apply = hr__apply_network,
     .keys = " p= loss= recorded-loss= link= latency= workers= topology= paths= balance= small="
             " packet= queue= mark= timeout= draws= seed="},
    {.name = "launch-overhead",
     .example = "launch-overhead x0.5",
     .assumes = "Calls that launch kernels take F times as long. The profiler makes launches "
                "slower than they are without it: F is your choice.",
     .source = SCALING,
     .tried = {"launch-overhead x0.5"},
     .needs_factor = 1,
     .apply = apply_launch},
    {.name = "kernels:",
     .example = "kernels:REGEX x0.5",
     .assumes = "All work of the device whose name contains the expression takes F times as long.",
     .source = SCALING,
     .needs = NEEDS_NAME,
     .needs_factor = 1,
     .apply = apply_kernels},
    {.name = "ops:",
     .example = "ops:REGEX x0.5",
     .assumes = "The CPU time in operators and modules whose name contains the expression, and in "
                "their backward operators, takes F times as long.",
     .source = SCALING,
     .needs = NEEDS_NAME,
     .needs_factor = 1,
     .apply = apply_ops},
    {.name = "layer:",
     .example = "layer:REGEX x0.5",
     .assumes = "The CPU time in operators and modules whose name contains the expression, and in "
                "their backward operators, and all that they launch, takes F times as long.",
     .source = SCALING,
     .needs = NEEDS_NAME,
     .needs_factor = 1,
     .apply = apply_layer},
    {.name = "remove:",
     .example = "remove:REGEX",
     .assumes = "What the expression names goes, with all within it, its backward operators and "
                "its kernels; what waited for it waits for what was before it.",
     .source = "definition: tasks are removed (Daydream's primitive, ATC'20)",
     .needs = NEEDS_NAME,
     .apply = apply_remove},
};
const size_t hr__what_if_count = sizeof hr__what_ifs / sizeof *hr__what_ifs;

/* ---- texts ---- */

/* Returns whether more follows a name: "kernels:", "bucket=". */
static int is_open(const struct hr__what_if *w)
{
    char end = w->name[strlen(w->name) - 1];
    return end == ':' || end == '=';
}

/* Returns whether a text begins with the name of a what-if. */
static int is_named(const struct hr__what_if *w, const char *text)
{
    size_t length = strlen(w->name);
    if (strncmp(text, w->name, length))
        return 0;
    return is_open(w) || !text[length] || text[length] == ' ';
}

const struct hr__what_if *hr__what_if_find(const char *text, struct hr_error *error)
{
    char names[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < hr__what_if_count; i++) {
        if (is_named(&hr__what_ifs[i], text))
            return &hr__what_ifs[i];
        int n = snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                         hr__what_ifs[i].example);
        used += n > 0 && (size_t)n < sizeof names - used ? (size_t)n : 0;
    }
    int r = hr__fail(error, -EINVAL, "'%.100s' is no what-if; there are: %s", text, names);
    (void)r;
    return NULL;
}

/* Takes a factor, "x2", from the end of a text, which is cut there. Returns 0 if it has none. */
static int take_factor(char *text, double *factor)
{
    char *x = strrchr(text, ' '), *end;
    if (!x || x[1] != 'x')
        return 0;
    double value = strtod(x + 2, &end);
    if (end == x + 2 || *end || !(value >= 0 && value <= 1e6))
        return 0;
    while (x > text && x[-1] == ' ')
        x--;
    *x = 0;
    *factor = value;
    return 1;
}

int hr_replay_is_what_if(const char *text)
{
    for (size_t i = 0; i < hr__what_if_count; i++)
        if (is_named(&hr__what_ifs[i], text))
            return 1;
    return 0;
}

int hr_replay_is_argument(const char *what_if, const char *word)
{
    const char *end = strchr(word, '=');
    char key[40];
    double factor;
    for (size_t i = 0; i < hr__what_if_count; i++) {
        const struct hr__what_if *w = &hr__what_ifs[i];
        if (!is_named(w, what_if))
            continue;
        snprintf(key, sizeof key, " %.30s", word);
        if (w->needs_factor)
            return !strchr(what_if, ' ') && take_factor(key, &factor);
        snprintf(key, sizeof key, " %.*s", end && end - word < 30 ? (int)(end + 1 - word) : 0,
                 word);
        return strlen(key) > 2 && w->keys && strstr(w->keys, key);
    }
    return 0;
}

/* Returns whether a what-if makes communication anew. */
static int makes_communication(const struct hr__what_if *w)
{
    return w->apply == hr__apply_ddp || w->apply == hr__apply_bucket ||
           w->apply == hr__apply_compress || w->apply == hr__apply_priority ||
           w->apply == hr__apply_overlap || w->apply == hr__apply_network;
}

int hr_replay_apply(struct hr_replay_scenario *s, const char *what_if, struct hr_error *error)
{
    double factor = 1;
    const struct hr__what_if *w = hr__what_if_find(what_if, error);
    if (!w)
        return -EINVAL;
    if (s->is_on_network && makes_communication(w))
        return hr__fail(error, -EINVAL,
                        "'%.200s' after loss-tolerance: name loss-tolerance once, and behind what "
                        "changes the exchange of gradients",
                        what_if);
    char *text = hr__strdup(HR__TAG_REPLAY, what_if);
    if (!text)
        return hr__fail(error, -ENOMEM, "out of memory for a what-if");
    int has_factor = take_factor(text, &factor), code = 0;
    size_t length = strlen(w->name);
    int has_pattern = is_open(w),
        divides = w->apply == apply_gpu || w->apply == apply_link || w->apply == apply_python;
    if (has_factor != w->needs_factor || (!has_pattern && !w->keys && text[length]) ||
        (has_pattern && !text[length]) || (divides && !(factor > 0)))
        code = hr__fail(error, -EINVAL, "'%.200s': write it as '%s'%s", what_if, w->example,
                        w->needs_factor ? ", with a factor from 0 to 1000000" : "");
    if (!code)
        code = w->apply(s, text + length, factor, error);
    hr__free(text);
    return code;
}
