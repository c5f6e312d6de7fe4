/*
 * The headrace command: finds the verb and calls it.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct cli_verb verbs[] = {
    {"agent", "prepare batches for all jobs of this host", cmd_agent},
    {"cache", "list, describe, fill and drop caches of samples in memory", cmd_cache},
    {"memory", "record and analyse the memory blocks of a training script", cmd_memory},
    {"pack", "write a dataset into one file that decodes several times faster", cmd_pack},
    {"predict", "predict the effect of a change on a measured training run", cmd_predict},
    {"scan", "report the contents of a dataset and its problems", cmd_scan},
    {"stalls", "measure where the time of a training script goes", cmd_stalls},
    {"top", "show the current activity of this host's agent", cmd_top},
    {"unpack", "write the image files of a pack", cmd_unpack},
    {"version", "print the version and the instruction set in use", cmd_version},
};

#define VERBS (int)(sizeof verbs / sizeof *verbs)

static void print_help(FILE *out)
{
    fputs("Usage: headrace VERB [options]\n\n"
          "Finds the stalls in DNN training and removes them.\n\nVerbs:\n",
          out);
    for (int i = 0; i < VERBS; i++)
        fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    fputs("\nheadrace VERB --help describes a verb.\n\n"
          "Example:\n  headrace scan /data/train --verify\n",
          out);
}

static int unknown_verb(const char *word)
{
    const char *names[VERBS];
    for (int i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    const char *near = cli_nearest(word, names, VERBS);
    cli_complain(NULL, "unknown verb %s%s%s; see headrace --help", word,
                 near ? "; did you mean " : "", near ? near : "");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return cli_finish(NULL, CLI_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("headrace %s\n", hr_version());
        return cli_finish(NULL, CLI_OK);
    }
    for (int i = 0; i < VERBS; i++)
        if (!strcmp(argv[1], verbs[i].name))
            return verbs[i].run(argc - 1, argv + 1);
    return unknown_verb(argv[1]);
}
