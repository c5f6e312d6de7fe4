/*
 * The headrace command: finds the verb and calls it.
 */
#include "cli.h"

#include <stdarg.h>
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

void cli_complain(const char *verb, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "headrace%s%s: ", verb ? " " : "", verb ? verb : "");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

int cli_finish(const char *verb, int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    cli_complain(verb, "cannot write to standard output");
    return CLI_FAILED;
}

/* Returns how many letters to change, add, drop or swap with a neighbour turn a into b: the
 * restricted Damerau-Levenshtein distance of the first MAX_WORD letters. */
static int distance(const char *a, const char *b)
{
    enum { MAX_WORD = 32 };
    int rows[3][MAX_WORD + 1], n = (int)strnlen(a, MAX_WORD), m = (int)strnlen(b, MAX_WORD);
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int least = above[j - 1] + (a[i - 1] != b[j - 1]);
            least = above[j] + 1 < least ? above[j] + 1 : least;
            least = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < least)
                least = before[j - 2] + 1;
            row[j] = least;
        }
    }
    return rows[n % 3][m];
}

const char *cli_nearest(const char *word, const char *const *names, int count)
{
    const char *nearest = NULL;
    int length = (int)strlen(word), least = length;
    for (int i = 0; i < count; i++) {
        int d = distance(word, names[i]), other = (int)strlen(names[i]);
        /* If more than one letter in three differs, it is another word. */
        int most = (length > other ? length : other) / 3;
        if (d < least && d <= (most ? most : 1) && d < other) {
            least = d;
            nearest = names[i];
        }
    }
    return nearest;
}

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
