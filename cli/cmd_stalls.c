/*
 * headrace stalls: measures where the time of a training script goes. The Python package measures,
 * inside the script; this verb finds a Python that has the package and executes it. The verbs that
 * read results need no Python.
 */
#include "cli.h"
#include "options.h"
#include "run_python.h"
#include "stalls_result.h"

#include <string.h>

#define VERB "stalls"

/* The options of the Python side, parsed here only to report errors early. */
struct stalls_command {
    int batches, loader, warm_up, no_device, unguarded, then_run, json, no_progress;
    int rest; /* index of the measured command in argv */
    double seconds, precision;
    const char *data, *out, *channel;
};

static int parse(struct stalls_command *c, int argc, char **argv)
{
    const int most = 1 << 30;
    const struct cli_option options[] = {
        {.name = "data",
         .kind = CLI_TEXT,
         .text = &c->data,
         .value = "DIR",
         .help = "folder of the dataset's files, if it cannot be\ndetected (iterable datasets)"},
        {.name = "out",
         .kind = CLI_TEXT,
         .text = &c->out,
         .value = "DIR",
         .help = "folder for the results (default: headrace-stalls)"},
        {.name = "time",
         .kind = CLI_REAL,
         .real = &c->seconds,
         .value = "S",
         .least = 1,
         .help = "measure at most S seconds (default: 150)"},
        {.name = "batches",
         .kind = CLI_NUMBER,
         .target = &c->batches,
         .value = "N",
         .least = 1,
         .most = most,
         .help = "measure at most N batches"},
        {.name = "precision",
         .kind = CLI_REAL,
         .real = &c->precision,
         .value = "P",
         .help = "stop once each share of the time is known to +-P\n(default: 0.02)"},
        {.name = "warm-up",
         .kind = CLI_NUMBER,
         .target = &c->warm_up,
         .value = "N",
         .least = 1,
         .most = most,
         .help = "batches before the measurement (default: 5, or more\nif the steps still differ "
                 "in time)"},
        {.name = "loader",
         .kind = CLI_NUMBER,
         .target = &c->loader,
         .value = "N",
         .least = 1,
         .most = most,
         .help = "measure the script's N-th loader (default: the first\nwhose loop trains)"},
        {.name = "no-device",
         .target = &c->no_device,
         .help = "replay no batches from the device's memory"},
        {.name = "channel",
         .kind = CLI_TEXT,
         .text = &c->channel,
         .value = "HOST:PORT",
         .help = "with several hosts: where their ranks meet, a port of\nrank 0's host "
                 "(default: MASTER_PORT + 29)"},
        {.name = "unguarded",
         .target = &c->unguarded,
         .help =
             "let the script change files; by default its changes\nare redirected and discarded"},
        {.name = "then-run",
         .target = &c->then_run,
         .help =
             "afterwards run the command again, unmeasured; the\nexit status is that of this run"},
        {.name = "json",
         .target = &c->json,
         .help = "print stalls.json instead of text; the script's\noutput goes to standard "
                 "error"},
        {.name = "no-progress", .target = &c->no_progress, .help = "draw no progress bar"},
    };
    const struct cli_syntax syntax = {
        .verb = VERB,
        .arguments = "[options] -- COMMAND [arguments]\n"
                     "       headrace stalls report STALLS.JSON [options]\n"
                     "       headrace stalls merge OUT PART PART... [options]",
        .text =
            "Runs a PyTorch training script, unchanged, and reports how long it waits for\n"
            "preparation, for storage and for copies, and what would change that. Discard\n"
            "what the run trains: after the measurement (3 minutes at most, unless steps are\n"
            "long) the script is ended where it asks for a batch, and no code after that\n"
            "runs.\n"
            "\nreport writes the outputs of a result again; merge joins the results of several\n"
            "hosts.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .rest = &c->rest,
        .example = "  headrace stalls -- python train.py --epochs 90 /data/imagenet\n"
                   "  headrace stalls --then-run -- torchrun --nproc-per-node 8 train.py",
    };
    return cli_parse(&syntax, argc, argv, NULL);
}

static int measure(int argc, char **argv)
{
    struct stalls_command c = {.rest = argc};
    int r = parse(&c, argc, argv);
    if (r >= 0)
        return r;
    const struct run_python run = {.verb = VERB,
                                   .purpose = "measure",
                                   .module = "headrace.stalls",
                                   .tried = "headrace.stalls.launch",
                                   .rest = c.rest};
    return run_python(&run, argc, argv);
}

int cmd_stalls(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "report"))
        return stalls_report(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "merge"))
        return stalls_merge(argc - 1, argv + 1);
    return measure(argc, argv);
}
