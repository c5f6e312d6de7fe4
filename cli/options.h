/*
 * The command line of one verb: a table of options, from which both the parser
 * and the help text are made, so that they cannot disagree.
 */
#ifndef HR_CLI_OPTIONS_H
#define HR_CLI_OPTIONS_H

enum cli_option_kind { CLI_FLAG, CLI_NUMBER, CLI_CHOICE, CLI_REAL, CLI_TEXT };

struct cli_option {
    const char *name; /* without the dashes */
    enum cli_option_kind kind;
    int *target;                /* FLAG: becomes 1; NUMBER: the value; CHOICE: its position */
    double *real;               /* REAL: the value, at least `least` */
    const char **text;          /* TEXT: points into argv */
    const char *value;          /* how the help calls the value, "N" or "a|b|c" */
    const char *help;           /* lines of at most 52 columns, divided by \n */
    int least, most;            /* NUMBER: the range; REAL: the least */
    const char *const *choices; /* CHOICE: the words, NULL-terminated */
};

/* A verb's command line. */
struct cli_syntax {
    const char *verb;
    const char *arguments; /* of the usage line, e.g. "PATH [options]" */
    const char *text;      /* what it does; lines of at most 78 columns */
    const struct cli_option *options;
    int option_count;
    int positional;      /* how many arguments it takes */
    int optional;        /* how many more it may be given */
    int *rest;           /* not NULL: the first argument ends the command line; its
                            position in argv, argc if there is none */
    const char *example; /* lines of commands with what they do */
};

/*
 * Parses argv[1..]. `positional` takes pointers into argv, syntax->positional and up
 * to `optional` more; those that are not given stay as they are.
 * Returns -1 to go on; else what the verb returns at once: CLI_OK after
 * --help, CLI_USAGE after a complaint.
 */
int cli_parse(const struct cli_syntax *syntax, int argc, char **argv, const char **positional);

#endif
