/* Verbs to choose from: their help, and which one is meant. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

enum { MOST_VERBS = 16 };

static void print_help(FILE *out, const struct cli_verbs *v)
{
    const char *space = v->of ? " " : "", *of = v->of ? v->of : "";
    fprintf(out, "Usage: headrace%s%s VERB [options]\n\n%s\n\nVerbs:\n", space, of, v->text);
    for (int i = 0; i < v->count; i++) {
        const struct cli_verb *verb = &v->verbs[i];
        if (verb->arguments)
            fprintf(out, "  %-8s%-18s %s\n", verb->name, verb->arguments, verb->summary);
        else
            fprintf(out, "  %-10s %s\n", verb->name, verb->summary);
    }
    fprintf(out, "\nheadrace%s%s VERB --help describes a verb.\n\nExample:\n  %s\n", space, of,
            v->example);
}

static int unknown(const struct cli_verbs *v, const char *word)
{
    const char *names[MOST_VERBS];
    int count = v->count < MOST_VERBS ? v->count : MOST_VERBS;
    for (int i = 0; i < count; i++)
        names[i] = v->verbs[i].name;
    const char *near = cli_nearest(word, names, count);
    cli_complain(v->of, "unknown verb %s%s%s; see headrace %s%s--help", word,
                 near ? "; did you mean " : "", near ? near : "", v->of ? v->of : "",
                 v->of ? " " : "");
    return CLI_USAGE;
}

int cli_choose(const struct cli_verbs *v, int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr, v);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        (!v->of && !strcmp(argv[1], "help"))) {
        print_help(stdout, v);
        return cli_finish(v->of, CLI_OK);
    }
    for (int i = 0; i < v->count; i++)
        if (!strcmp(argv[1], v->verbs[i].name))
            return v->verbs[i].run(argc - 1, argv + 1);
    return unknown(v, argv[1]);
}
