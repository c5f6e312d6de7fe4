/*
 * headrace plan: finds the fastest way to divide a profiled network over GPUs: stages of a
 * pipeline, replicas, microbatch, recomputation and schedule.
 */
#include "cli.h"
#include "options.h"
#include "predict_values.h"
#include "text.h"

#include <headrace/plan.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "plan"

struct plan_command {
    const char *profile, *memory, *link, *network, *page, *trace;
    int json, text;
    int schedule, recompute;                        /* 0: any, else 1 + the value */
    int stages, replicas, microbatch, chunks, gpus; /* 0: not given */
    int server_gpus, batch, rows;
    double state, gradients; /* negative: not given */
};

/* ---- the command line ---- */

static int parse(struct plan_command *c, int argc, char **argv)
{
    static const char *const schedules[] = {"any", "gpipe", "1f1b", "interleaved", "2bw", NULL};
    static const char *const recomputes[] = {"any", "no", "yes", NULL};
    const struct cli_option options[] = {
        {.name = "gpus",
         .kind = CLI_NUMBER,
         .target = &c->gpus,
         .value = "N",
         .help = "GPUs at most (required)",
         .least = 1,
         .most = 65536},
        {.name = "batch",
         .kind = CLI_NUMBER,
         .target = &c->batch,
         .value = "N",
         .help = "samples of a batch at most, over all replicas\n(required)",
         .least = 1,
         .most = 1000000000},
        {.name = "memory",
         .kind = CLI_TEXT,
         .text = &c->memory,
         .value = "SIZE",
         .help = "memory of each GPU: 40GiB (default: unlimited)"},
        {.name = "link",
         .kind = CLI_TEXT,
         .text = &c->link,
         .value = "SPEED",
         .help = "link between GPUs of a server: 300GB/s, 25Gbit/s\n(default: transfers take no "
                 "time)"},
        {.name = "server-gpus",
         .kind = CLI_NUMBER,
         .target = &c->server_gpus,
         .value = "N",
         .help = "GPUs of a server (default: all are in one)",
         .least = 1,
         .most = 65536},
        {.name = "network",
         .kind = CLI_TEXT,
         .text = &c->network,
         .value = "SPEED",
         .help = "link between servers, for each GPU (default: as\n--link)"},
        {.name = "schedule",
         .kind = CLI_CHOICE,
         .target = &c->schedule,
         .choices = schedules,
         .value = "any|gpipe|1f1b|interleaved|2bw",
         .help = "only this schedule"},
        {.name = "stages",
         .kind = CLI_NUMBER,
         .target = &c->stages,
         .value = "N",
         .help = "only so many stages",
         .least = 1,
         .most = 65536},
        {.name = "replicas",
         .kind = CLI_NUMBER,
         .target = &c->replicas,
         .value = "N",
         .help = "only so many replicas of each stage",
         .least = 1,
         .most = 65536},
        {.name = "microbatch",
         .kind = CLI_NUMBER,
         .target = &c->microbatch,
         .value = "N",
         .help = "only microbatches of so many samples",
         .least = 1,
         .most = 1000000},
        {.name = "chunks",
         .kind = CLI_NUMBER,
         .target = &c->chunks,
         .value = "N",
         .help = "parts of the network on each GPU, with interleaved\n(default: 2 and 4)",
         .least = 1,
         .most = 4096},
        {.name = "recompute",
         .kind = CLI_CHOICE,
         .target = &c->recompute,
         .choices = recomputes,
         .value = "any|no|yes",
         .help = "keep only the inputs of stages and run forward\npasses again"},
        {.name = "optimizer",
         .kind = CLI_REAL,
         .real = &c->state,
         .value = "X",
         .help = "bytes of the optimizer's state over those of the\nweights (default: 2, Adam's; "
                 "SGD 0, with momentum 1)"},
        {.name = "gradients",
         .kind = CLI_REAL,
         .real = &c->gradients,
         .value = "X",
         .help = "bytes of gradients over those of the weights\n(default: 1)"},
        {.name = "rows",
         .kind = CLI_NUMBER,
         .target = &c->rows,
         .value = "N",
         .help = "plans to show (default: 10)",
         .least = 1,
         .most = 1000},
        {.name = "text",
         .target = &c->text,
         .help = "print the text (default without other outputs)"},
        {.name = "page",
         .kind = CLI_TEXT,
         .text = &c->page,
         .value = "FILE",
         .help = "write one HTML page with the run of the first plan;\n- is standard output"},
        {.name = "trace",
         .kind = CLI_TEXT,
         .text = &c->trace,
         .value = "FILE",
         .help = "write that run as a trace for Perfetto"},
        {.name = "json", .target = &c->json, .help = "print JSON (see headrace-plan(1))"},
    };
    const struct cli_syntax syntax = {
        .verb = VERB,
        .arguments = "PROFILE --gpus N --batch N [options]",
        .text =
            "Finds the fastest way to divide a network over GPUs: stages of a pipeline, their\n"
            "replicas, microbatch, recomputation and schedule. PROFILE has the times and bytes\n"
            "of each layer (headrace.pipeline.profile writes it); - is standard input.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .example = "  headrace plan profile.json --gpus 16 --memory 40GiB --batch 512 \\\n"
                   "      --server-gpus 8 --link 300GB/s --network 100Gbit/s --page plan.html",
    };
    return cli_parse(&syntax, argc, argv, &c->profile);
}

/* Parses a size or a speed. Returns 0, or -1 after a complaint. */
static int take_value(const char *option, const char *text, enum predict_kind kind, double *value)
{
    return predict_value_take(
        VERB, option, kind, text,
        kind == PREDICT_SIZE ? "a size (40GiB)" : "a speed (300GB/s, 25Gbit/s)", value);
}

/* Returns -1 to go on, else an exit status. */
static int take_options(const struct plan_command *c, struct hr_plan_options *o)
{
    double memory = 0;
    hr_plan_options_default(o);
    if (!c->gpus || !c->batch) {
        cli_complain(VERB, "give --gpus and --batch: how many GPUs there are, and the samples of a "
                           "batch");
        return CLI_USAGE;
    }
    if (take_value("memory", c->memory, PREDICT_SIZE, &memory) ||
        take_value("link", c->link, PREDICT_SPEED, &o->link_bytes_per_s) ||
        take_value("network", c->network, PREDICT_SPEED, &o->network_bytes_per_s))
        return CLI_USAGE;
    if (c->network && !c->server_gpus) {
        cli_complain(VERB, "--network is the link between servers: give --server-gpus, too");
        return CLI_USAGE;
    }
    o->memory_bytes = (uint64_t)memory;
    o->gpus = c->gpus;
    o->batch = c->batch;
    o->gpus_per_server = c->server_gpus;
    o->rows = c->rows ? c->rows : o->rows;
    o->state_ratio = c->state >= 0 ? c->state : o->state_ratio;
    o->gradient_ratio = c->gradients >= 0 ? c->gradients : o->gradient_ratio;
    o->schedule = c->schedule - 1;
    o->recompute = c->recompute - 1;
    o->stages = c->stages ? c->stages : HR_PLAN_ANY;
    o->replicas = c->replicas ? c->replicas : HR_PLAN_ANY;
    o->microbatch = c->microbatch ? c->microbatch : HR_PLAN_ANY;
    o->chunks = c->chunks ? c->chunks : HR_PLAN_ANY;
    return -1;
}

/* ---- planning ---- */

static int write_all(const struct plan_command *c, const struct hr_plan *plan,
                     struct hr_error *error)
{
    int r = 0;
    if (c->page)
        r = hr_plan_write_page(plan, c->page, error);
    if (!r && c->trace)
        r = hr_plan_write_trace(plan, c->trace, error);
    if (!r && c->json)
        puts(hr_plan_json(plan));
    if (!r && (c->text || !(c->page || c->trace || c->json)))
        r = hr_plan_write_text(plan, "-", text_width(), error);
    return r;
}

int cmd_plan(int argc, char **argv)
{
    struct plan_command c = {.state = -1, .gradients = -1};
    struct hr_plan_options options;
    struct hr_error error = {0};
    struct hr_plan *plan = NULL;
    size_t length = 0;
    int r = parse(&c, argc, argv);
    if (r < 0)
        r = take_options(&c, &options);
    if (r >= 0)
        return r;
    const char *path = strcmp(c.profile, "-") ? c.profile : "/dev/stdin";
    char *text = text_read_file(path, &length);
    if (!text) {
        cli_complain(VERB, "cannot read %s: %s", c.profile, strerror(errno ? errno : ENOMEM));
        return CLI_FAILED;
    }
    r = hr_plan_make(&plan, text, length, c.profile, &options, &error);
    free(text);
    if (r)
        return cli_failed(VERB, r, &error, "");
    r = write_all(&c, plan, &error);
    int count = hr_plan_count(plan);
    hr_plan_destroy(&plan);
    return r ? cli_failed(VERB, r, &error, "") : cli_finish(VERB, count ? CLI_OK : CLI_PROBLEM);
}
