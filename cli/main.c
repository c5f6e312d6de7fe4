/*
 * The headrace command: its verbs.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct cli_verb verbs[] = {
    {"agent", NULL, "prepare batches for all jobs of this host", cmd_agent},
    {"cache", NULL, "samples kept in memory: what is there, fill, drop", cmd_cache},
    {"memory", NULL, "what every block of memory of a training script does", cmd_memory},
    {"pack", NULL, "a dataset into one file that decodes several times faster", cmd_pack},
    {"predict", NULL, "what a change would bring to a measured training run", cmd_predict},
    {"scan", NULL, "what a dataset holds: classes, sizes, damaged files", cmd_scan},
    {"stalls", NULL, "where the time of a training script goes", cmd_stalls},
    {"top", NULL, "what the agent of this host does, as it does it", cmd_top},
    {"unpack", NULL, "the image files of a pack again", cmd_unpack},
    {"version", NULL, "the version, and what this machine offers", cmd_version},
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
