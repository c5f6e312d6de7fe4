/*
 * headrace memory: reports on every memory block of a training script. The Python package records
 * inside the script; the other verbs read records and need no Python.
 */
#include "cli.h"
#include "memory_verbs.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *arguments, *summary;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"record", "-- COMMAND", "run a training script and record it", memory_record},
    {"report", "FILE...", "report on records: text, a page, JSON", memory_report},
    {"diff", "BEFORE AFTER", "compare two records", memory_diff},
    {"import", "FROM TO", "convert a file of another tool to a record", memory_import},
};

#define VERBS (int)(sizeof verbs / sizeof *verbs)

static void print_help(FILE *out)
{
    fputs("Usage: headrace memory VERB [options]\n\n"
          "Reports for each block of memory of a training script when it is allocated,\n"
          "read, written and freed, and by which operator; and which blocks could be freed\n"
          "sooner, swapped out or recomputed.\n\nVerbs:\n",
          out);
    for (int i = 0; i < VERBS; i++)
        fprintf(out, "  %-8s%-18s %s\n", verbs[i].name, verbs[i].arguments, verbs[i].summary);
    fputs("\nheadrace memory VERB --help describes a verb.\n\n"
          "Example:\n  headrace memory record -- python train.py\n",
          out);
}

int cmd_memory(int argc, char **argv)
{
    const char *names[VERBS];
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_help(stdout);
        return cli_finish("memory", CLI_OK);
    }
    for (int i = 0; i < VERBS; i++) {
        names[i] = verbs[i].name;
        if (!strcmp(argv[1], verbs[i].name))
            return verbs[i].run(argc - 1, argv + 1);
    }
    const char *near = cli_nearest(argv[1], names, VERBS);
    cli_complain("memory", "unknown verb %s%s%s; see headrace memory --help", argv[1],
                 near ? "; did you mean " : "", near ? near : "");
    return CLI_USAGE;
}
