/*
 * headrace memory: reports on every memory block of a training script. The Python package records
 * inside the script; the other verbs read records and need no Python.
 */
#include "cli.h"
#include "memory_verbs.h"

static const struct cli_verb verbs[] = {
    {"record", "-- COMMAND", "run a training script and record it", memory_record},
    {"report", "FILE...", "what records tell: text, a page, JSON", memory_report},
    {"diff", "BEFORE AFTER", "what is different between two records", memory_diff},
    {"import", "FROM TO", "a record of what other tools wrote", memory_import},
};

int cmd_memory(int argc, char **argv)
{
    const struct cli_verbs all = {
        .of = "memory",
        .text = "Tells for each block of memory of a training script when it is allocated, read,\n"
                "written and freed, by which operator; and what could be freed, swapped or made\n"
                "again.",
        .verbs = verbs,
        .count = (int)(sizeof verbs / sizeof *verbs),
        .example = "headrace memory record -- python train.py",
    };
    return cli_choose(&all, argc, argv);
}
