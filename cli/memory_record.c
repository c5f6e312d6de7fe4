/* headrace memory record: parses the options and starts the Python side. */
#include "cli.h"
#include "memory_verbs.h"
#include "options.h"
#include "predict_values.h"
#include "run_python.h"

#include <string.h>

#define VERB "memory record"

/* The options of the Python side, parsed here only to report errors early. */
struct record_command {
    int iterations, stacks, batch_size, no_tap, json, no_progress;
    int rest; /* index of the recorded command in argv */
    const char *out, *limit, *least;
};

static int parse(struct record_command *c, int argc, char **argv)
{
    const int most = 1 << 30;
    const struct cli_option options[] = {
        {.name = "out",
         .kind = CLI_TEXT,
         .text = &c->out,
         .value = "FILE",
         .help = "the record (default: headrace-memory.hrm); with several\nranks .rankN is added "
                 "before its suffix"},
        {.name = "iterations",
         .kind = CLI_NUMBER,
         .target = &c->iterations,
         .value = "N",
         .most = most,
         .help = "record N iterations (default: 20; 0: all); the script\ncontinues to its end"},
        {.name = "stacks",
         .target = &c->stacks,
         .help = "also record which lines of the script made each block"},
        {.name = "batch-size",
         .kind = CLI_NUMBER,
         .target = &c->batch_size,
         .value = "N",
         .least = 1,
         .most = most,
         .help = "samples in a batch of one process (default: the inputs'\nfirst "
                 "dimension)"},
        {.name = "limit",
         .kind = CLI_TEXT,
         .text = &c->limit,
         .value = "SIZE",
         .help = "limit on the record of each process (4GiB); later events\nare lost"},
        {.name = "least",
         .kind = CLI_TEXT,
         .text = &c->least,
         .value = "BYTES",
         .help = "record blocks of other libraries from this size on\n(default: 65536)"},
        {.name = "no-tap", .target = &c->no_tap, .help = "preload nothing: blocks of tensors only"},
        {.name = "json",
         .target = &c->json,
         .help = "print the analysis as JSON; the script's output goes to\nstandard error"},
        {.name = "no-progress", .target = &c->no_progress, .help = "print no progress"},
    };
    const struct cli_syntax syntax = {
        .verb = VERB,
        .arguments = "[options] -- COMMAND [arguments]",
        .text = "Runs a PyTorch training script, unchanged, and records when each block of its\n"
                "memory is allocated, used and freed. The script trains as usual, to its end,\n"
                "with its own results and exit status.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .rest = &c->rest,
        .example = "  headrace memory record -- python train.py --epochs 1 /data/imagenet\n"
                   "  headrace memory record --out run.hrm -- torchrun --nproc-per-node 8 train.py",
    };
    return cli_parse(&syntax, argc, argv, NULL);
}

static int check_size(const char *option, const char *text)
{
    double bytes;
    if (!text || !text[strspn(text, "0123456789")])
        return -1;
    return predict_value_take(VERB, option, PREDICT_SIZE, text, "a size (4GiB, 500MB) or bytes",
                              &bytes)
               ? CLI_USAGE
               : -1;
}

int memory_record(int argc, char **argv)
{
    struct record_command c = {.rest = argc};
    int r = parse(&c, argc, argv);
    if (r < 0)
        r = check_size("limit", c.limit);
    if (r < 0)
        r = check_size("least", c.least);
    if (r >= 0)
        return r;
    const struct run_python run = {.verb = VERB,
                                   .purpose = "record",
                                   .module = "headrace.memory",
                                   .tried = "headrace.memory.launch",
                                   .rest = c.rest};
    return run_python(&run, argc, argv);
}
