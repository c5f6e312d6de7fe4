/*
 * headrace memory: reports on every memory block of a training script. The Python package records
 * inside the script; the other verbs read records and need no Python.
 */
#include "cli.h"
#include "memory_verbs.h"

static const struct cli_verb verbs[] = {
    {"record", "-- COMMAND", "run a training script and record it", memory_record},
    {"report", "FILE...", "report on records: text, a page, JSON", memory_report},
    {"diff", "BEFORE AFTER", "compare two records", memory_diff},
    {"import", "FROM TO", "convert a file of another tool to a record", memory_import},
};

int cmd_memory(int argc, char **argv)
{
    const struct cli_verbs all = {
        .of = "memory",
        .text = "Reports for each block of memory of a training script when it is allocated,\n"
                "read, written and freed, and by which operator; and which blocks could be freed\n"
                "sooner, swapped out or recomputed.",
        .verbs = verbs,
        .count = (int)(sizeof verbs / sizeof *verbs),
        .example = "headrace memory record -- python train.py",
    };
    return cli_choose(&all, argc, argv);
}
