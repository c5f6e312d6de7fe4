/* headrace replay record: parses the options and starts the Python side. */
#include "replay_record.h"
#include "cli.h"
#include "options.h"
#include "run_python.h"

#define VERB "replay record"

/* The options of the Python side, parsed here only to report errors early. */
struct replay_record_command {
    int iterations, skip, no_modules, shapes, json, no_progress;
    int rest; /* index of the recorded command in argv */
    const char *out;
};

static int parse(struct replay_record_command *c, int argc, char **argv)
{
    const int most = 1 << 30;
    const struct cli_option options[] = {
        {.name = "out",
         .kind = CLI_TEXT,
         .text = &c->out,
         .value = "FILE",
         .help = "the trace (default: headrace-trace.json.gz); with\nseveral ranks .rankN is added "
                 "before its suffix"},
        {.name = "iterations",
         .kind = CLI_NUMBER,
         .target = &c->iterations,
         .value = "N",
         .least = 1,
         .most = most,
         .help = "record N iterations (default: 5); the script continues\nto its end"},
        {.name = "skip",
         .kind = CLI_NUMBER,
         .target = &c->skip,
         .value = "N",
         .most = most,
         .help = "let N iterations pass before them (default: 10)"},
        {.name = "no-modules", .target = &c->no_modules, .help = "do not mark the model's modules"},
        {.name = "shapes",
         .target = &c->shapes,
         .help = "record the shapes of operators' inputs, which ddp,\nbucket=, compress, priority, "
                 "overlap-optimizer and\noffload need"},
        {.name = "json",
         .target = &c->json,
         .help = "print the report as JSON; the script's output goes to\nstandard error"},
        {.name = "no-progress", .target = &c->no_progress, .help = "print no progress"},
    };
    const struct cli_syntax syntax = {
        .verb = VERB,
        .arguments = "[options] -- COMMAND [arguments]",
        .text = "Runs a PyTorch training script, unchanged, and records a trace of some of its\n"
                "iterations with torch.profiler. An iteration ends with a step of the optimizer.\n"
                "Then prints the report of headrace replay.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .rest = &c->rest,
        .example =
            "  headrace replay record -- python train.py --epochs 1 /data/imagenet\n"
            "  headrace replay record --out run.json.gz -- torchrun --nproc-per-node 8 train.py",
    };
    return cli_parse(&syntax, argc, argv, NULL);
}

int replay_record(int argc, char **argv)
{
    struct replay_record_command c = {.rest = argc};
    int r = parse(&c, argc, argv);
    if (r >= 0)
        return r;
    const struct run_python run = {.verb = VERB,
                                   .purpose = "record",
                                   .module = "headrace.replay",
                                   .tried = "headrace.replay.launch",
                                   .rest = c.rest};
    return run_python(&run, argc, argv);
}
