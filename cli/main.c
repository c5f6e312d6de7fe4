/*
 * The headrace command: finds the verb and calls it.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct cli_verb verbs[] = {
    {"agent", "prepare batches for all jobs of this host", cmd_agent},
    {"cache", "samples kept in memory: what is there, fill, drop", cmd_cache},
    {"memory", "what every block of memory of a training script does", cmd_memory},
    {"pack", "a dataset into one file that decodes several times faster", cmd_pack},
    {"predict", "what a change would bring to a measured training run", cmd_predict},
    {"scan", "what a dataset holds: classes, sizes, damaged files", cmd_scan},
    {"stalls", "where the time of a training script goes", cmd_stalls},
    {"top", "what the agent of this host does, as it does it", cmd_top},
    {"unpack", "the image files of a pack again", cmd_unpack},
    {"version", "the version, and what this machine offers", cmd_version},
};

#define VERBS (int)(sizeof verbs / sizeof *verbs)

static void print_help(FILE *out)
{
    fputs("Usage: headrace VERB [options]\n\n"
          "Finds the stalls in DNN training and removes them.\n\nVerbs:\n",
          out);
    for (int i = 0; i < VERBS; i++)
        fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    fputs("\nheadrace VERB --help tells more of each.\n\n"
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
