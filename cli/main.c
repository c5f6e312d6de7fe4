/*
 * The headrace command: its verbs.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct cli_verb verbs[] = {
    {"agent", NULL, "prepare batches for all jobs of this host", cmd_agent},
    {"cache", NULL, "list, describe, fill and drop caches of samples in memory", cmd_cache},
    {"memory", NULL, "record and analyse the memory blocks of a training script", cmd_memory},
    {"pack", NULL, "write a dataset into one file that decodes several times faster", cmd_pack},
    {"plan", NULL, "divide a network over GPUs: the fastest pipeline", cmd_plan},
    {"predict", NULL, "predict the effect of a change on a measured training run", cmd_predict},
    {"replay", NULL, "predict from a trace what an optimisation would bring", cmd_replay},
    {"scan", NULL, "report the contents of a dataset and its problems", cmd_scan},
    {"stalls", NULL, "measure where the time of a training script goes", cmd_stalls},
    {"top", NULL, "show the current activity of this host's agent", cmd_top},
    {"unpack", NULL, "write the image files of a pack", cmd_unpack},
    {"version", NULL, "print the version and the instruction set in use", cmd_version},
};

int main(int argc, char **argv)
{
    const struct cli_verbs all = {
        .text = "Finds the stalls in DNN training and removes them.",
        .verbs = verbs,
        .count = (int)(sizeof verbs / sizeof *verbs),
        .example = "headrace scan /data/train --verify",
    };
    if (argc > 1 && !strcmp(argv[1], "--version")) {
        printf("headrace %s\n", hr_version());
        return cli_finish(NULL, CLI_OK);
    }
    return cli_choose(&all, argc, argv);
}
