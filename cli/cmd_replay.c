/*
 * headrace replay: what would an optimisation bring? Replays traces of PyTorch's profiler with
 * changes. The first word is a trace; those after it that name a what-if, or are no files, begin
 * the what-ifs.
 */
#include "cli.h"
#include "options.h"
#include "replay_record.h"
#include "text.h"

#include <headrace/replay.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB "replay"

enum { WORDS_MOST = 4096, WHAT_IF_BYTES = 1024 };

struct replay_command {
    const char *words[WORDS_MOST + 1];
    const char *window, *trace, *page;
    double limit; /* percent */
    int json, instance;
    size_t traces;   /* words that are traces */
    char **what_ifs; /* owned */
    size_t what_if_count;
};

static int parse(struct replay_command *c, int argc, char **argv)
{
    const int most = 1 << 30;
    const struct cli_option options[] = {
        {.name = "json", .target = &c->json, .help = "print the report as JSON"},
        {.name = "window",
         .kind = CLI_TEXT,
         .text = &c->window,
         .value = "NAME",
         .help = "replay the annotations whose names contain NAME\n(default: the profiler's steps, "
                 "or all)"},
        {.name = "instance",
         .kind = CLI_NUMBER,
         .target = &c->instance,
         .value = "N",
         .most = most,
         .help = "only the N-th of them, from 0 on"},
        {.name = "page",
         .kind = CLI_TEXT,
         .text = &c->page,
         .value = "FILE",
         .help = "write one HTML page that needs no network; - is\nstandard output"},
        {.name = "trace",
         .kind = CLI_TEXT,
         .text = &c->trace,
         .value = "FILE",
         .help = "write the predicted run as a trace for Perfetto; - is\nstandard output"},
        {.name = "limit",
         .kind = CLI_REAL,
         .real = &c->limit,
         .value = "PERCENT",
         .help = "predict nothing if a replay without changes, or with\nthe usual latencies, "
                 "differs by more (default: 5)"},
    };
    const struct cli_syntax syntax = {
        .verb = VERB,
        .arguments = "TRACE... [WHAT-IF...] [options]",
        .text = "Replays traces of PyTorch's profiler, one of each rank, and predicts how long an\n"
                "iteration would take after a change. Changes named in a row are made one upon\n"
                "the other; without any, those that apply are tried and ranked.\n"
                "headrace replay record -- COMMAND records a trace of a script.\n\n"
                "What-ifs: data-ready, amp, fused-optimizer, cuda-graphs, batch-norm-fused,\n"
                "gpu xF, link xF, python xF, launch-overhead xF, kernels:REGEX xF,\n"
                "ops:REGEX xF, layer:REGEX xF, remove:REGEX, ddp ranks=N link=SPEED,\n"
                "bucket=SIZE, compress ratio=R, priority, overlap-optimizer, offload,\n"
                "recompute, loss-tolerance p=SHARE.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .optional = WORDS_MOST - 1,
        .example = "  headrace replay trace.json.gz\n"
                   "  headrace replay traces/ gpu x2 amp --json\n"
                   "  headrace replay trace.json.gz --page replay.html\n"
                   "  headrace replay trace.json 'kernels:gemm x0.5' --trace after.json\n"
                   "  headrace replay trace.json ddp ranks=16 link=25Gbit/s latency=10us",
    };
    return cli_parse(&syntax, argc, argv, c->words);
}

/* Appends a word to a what-if, which is freed. Returns NULL if out of memory. */
static char *joined(char *what_if, const char *word)
{
    char *text = NULL;
    int r = asprintf(&text, "%s %s", what_if, word);
    free(what_if);
    return r < 0 ? NULL : text;
}

/* Divides the words: traces come first. Words "x2" and "ranks=16" belong to the what-if before
 * them. Returns 0, or -1 if out of memory. */
static int divide(struct replay_command *c)
{
    size_t count = 0;
    while (count < WORDS_MOST && c->words[count])
        count++;
    for (c->traces = 1; c->traces < count; c->traces++)
        if (hr_replay_is_what_if(c->words[c->traces]) || access(c->words[c->traces], F_OK))
            break;
    c->what_ifs = calloc(count + 1, sizeof *c->what_ifs);
    if (!c->what_ifs)
        return -1;
    for (size_t i = c->traces; i < count; i++) {
        char **last = c->what_if_count ? &c->what_ifs[c->what_if_count - 1] : NULL;
        if (last && hr_replay_is_argument(*last, c->words[i]))
            *last = joined(*last, c->words[i]);
        else
            *(last = &c->what_ifs[c->what_if_count++]) = strdup(c->words[i]);
        if (!*last)
            return -1;
    }
    return 0;
}

static int write_trace(const struct replay_command *c, const struct hr_replay *replay,
                       struct hr_error *error)
{
    struct hr_replay_scenario *s;
    int r = hr_replay_scenario_create(&s, replay, error);
    for (size_t i = 0; i < c->what_if_count && !r; i++)
        r = hr_replay_apply(s, c->what_ifs[i], error);
    if (!r)
        r = hr_replay_write_trace(s, c->trace, error);
    hr_replay_scenario_destroy(&s);
    return r;
}

static int print(const struct replay_command *c, const struct hr_replay *replay,
                 struct hr_error *error)
{
    const char *const *what_ifs = (const char *const *)c->what_ifs;
    char *text;
    int r = c->json ? hr_replay_report_json(replay, what_ifs, c->what_if_count, &text, error)
                    : hr_replay_report_text(replay, what_ifs, c->what_if_count, text_width(), &text,
                                            error);
    if (r)
        return r;
    fputs(text, stdout);
    if (c->json)
        putchar('\n');
    hr_replay_free(text);
    return 0;
}

static int report(const struct replay_command *c, const struct hr_replay *replay,
                  struct hr_error *error)
{
    int r = c->json || !c->page ? print(c, replay, error) : 0;
    if (!r && c->page)
        r = hr_replay_write_page(replay, (const char *const *)c->what_ifs, c->what_if_count,
                                 c->page, error);
    return r || !c->trace ? r : write_trace(c, replay, error);
}

static int run(const struct replay_command *c)
{
    struct hr_replay_options options;
    struct hr_replay_summary summary = {.size = sizeof summary};
    struct hr_replay *replay;
    struct hr_error error = {0};
    hr_replay_options_default(&options);
    options.window = c->window;
    options.instance = c->instance;
    options.limit = c->limit / 100;
    int r = hr_replay_open(&replay, c->words, c->traces, &options, &error);
    if (!r)
        r = report(c, replay, &error);
    if (!r)
        hr_replay_summarise(replay, &summary);
    hr_replay_destroy(&replay);
    if (!r)
        return cli_finish(VERB, summary.is_trusted ? CLI_OK : CLI_PROBLEM);
    int status = cli_failed(VERB, r, &error, "");
    return r == -ENOTSUP ? CLI_PROBLEM : status; /* nothing is predicted from this trace */
}

int cmd_replay(int argc, char **argv)
{
    struct replay_command c = {.instance = -1, .limit = 5};
    if (argc > 1 && !strcmp(argv[1], "record"))
        return replay_record(argc - 1, argv + 1);
    int r = parse(&c, argc, argv);
    if (r >= 0)
        return r;
    if (divide(&c)) {
        cli_complain(VERB, "out of memory");
        r = CLI_FAILED;
    } else {
        r = run(&c);
    }
    for (size_t i = 0; i < c.what_if_count; i++)
        free(c.what_ifs[i]);
    free(c.what_ifs);
    return r;
}
