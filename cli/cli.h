/*
 * Declarations shared by the verbs of the headrace command. A verb is a file cmd_*.c with one
 * function, listed in the table of main.c. It uses the public API only.
 */
#ifndef HR_CLI_CLI_H
#define HR_CLI_CLI_H

#include <headrace/headrace.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_PROBLEM = 1,       /* the verb did its work and found a problem */
    CLI_USAGE = 2,         /* the command line is wrong */
    CLI_FAILED = 3,        /* the verb could not do its work */
    CLI_INTERRUPTED = 130, /* Ctrl-C; the value that shells use */
};

/* One verb. */
struct cli_verb {
    const char *name;
    const char *arguments; /* for the help of a verb with verbs of its own; NULL: none */
    const char *summary;   /* one line of the help */
    /* argv[0] is the verb. Returns an enum cli_exit. */
    int (*run)(int argc, char **argv);
};

/* Verbs to choose from. */
struct cli_verbs {
    const char *of;   /* the verb that they belong to; NULL: headrace itself */
    const char *text; /* what they do; lines */
    const struct cli_verb *verbs;
    int count;
    const char *example; /* one line */
};

/* Runs the verb argv[1]; prints the help, or complains about an unknown verb. Returns an enum
 * cli_exit. */
int cli_choose(const struct cli_verbs *verbs, int argc, char **argv);

int cmd_agent(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_memory(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_stalls(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_unpack(int argc, char **argv);
int cmd_version(int argc, char **argv);

/* Prints "headrace VERB: message" to stderr; `verb` may be NULL. */
void cli_complain(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the message of an error and what to do about it ("": nothing). Returns CLI_FAILED. */
int cli_failed(const char *verb, int code, const struct hr_error *error, const char *remedy);

/* A callback of hr_log_set: prints warnings, and all other lines if *verbose. */
struct cli_log {
    const char *verb;
    const int *verbose;
    int is_quiet; /* non-zero: no warnings, because the result reports them */
};
void cli_log_line(void *log, enum hr_log_level level, const char *message);

/* Flushes stdout. Returns CLI_FAILED if writing failed, else `status`. */
int cli_finish(const char *verb, int status);

/* Prints JSON, which it frees; NULL: it could not be made. `digits` of fractions, 0: all. Complains
 * and returns CLI_FAILED if that fails, else `status`. */
struct json_t;
int cli_print_json(const char *verb, struct json_t *root, int digits, int status);

/* Returns the name nearest to `word` among `count` names; NULL: none is similar. */
const char *cli_nearest(const char *word, const char *const *names, int count);

#endif
