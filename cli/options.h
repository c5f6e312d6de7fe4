/*
 * The command line of a verb: a table of options, from which both the parser and the help text are
 * made, so that they cannot disagree.
 */
#ifndef HR_CLI_OPTIONS_H
#define HR_CLI_OPTIONS_H

enum cli_option_kind { CLI_FLAG, CLI_NUMBER, CLI_CHOICE, CLI_REAL, CLI_TEXT };

struct cli_option {
    const char *name; /* without the dashes */
    enum cli_option_kind kind;
    int *target;                /* FLAG: set to 1; NUMBER: the value; CHOICE: index of the word */
    double *real;               /* REAL: the value, at least `least` */
    const char **text;          /* TEXT: points into argv */
    const char *value;          /* name of the value in the help: "N" or "a|b|c" */
    const char *help;           /* lines of at most 52 columns, separated by \n */
    int least, most;            /* NUMBER: the range; REAL: the least */
    const char *const *choices; /* CHOICE: the words, NULL-terminated */
};

/* The command line of a verb. */
struct cli_syntax {
    const char *verb;
    const char *arguments; /* in the usage line, e.g. "PATH [options]" */
    const char *text;      /* what the verb does; lines of at most 78 columns */
    const struct cli_option *options;
    int option_count;
    int positional;      /* number of required arguments */
    int optional;        /* number of further, optional arguments */
    int *rest;           /* if not NULL, the first argument ends the options; its index in argv is
                            stored here, argc if there is none */
    const char *example; /* lines, each a command and what it does */
};

/*
 * Parses argv[1..]. Stores pointers into argv in `positional`: syntax->positional of them, and up
 * to syntax->optional more; optional ones that are missing are left unchanged. Returns -1 to go
 * on. Otherwise the verb returns the result at once: CLI_OK after --help, CLI_USAGE after a
 * complaint.
 */
int cli_parse(const struct cli_syntax *syntax, int argc, char **argv, const char **positional);

#endif
