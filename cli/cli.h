/*
 * What the verbs of the headrace command share. A verb is one cmd_*.c file with
 * one function in the table of main.c; it sees only the public API.
 */
#ifndef HR_CLI_CLI_H
#define HR_CLI_CLI_H

#include <headrace/headrace.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_PROBLEM = 1,       /* the verb did its work and found a problem */
    CLI_USAGE = 2,         /* the command line is wrong */
    CLI_FAILED = 3,        /* the verb could not do its work */
    CLI_INTERRUPTED = 130, /* Ctrl-C, as shells count it */
};

/* One verb. */
struct cli_verb {
    const char *name;
    const char *summary; /* one line of `headrace --help` */
    /* argv[0] is the verb; returns an enum cli_exit */
    int (*run)(int argc, char **argv);
};

int cmd_agent(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_memory(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_stalls(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_unpack(int argc, char **argv);
int cmd_version(int argc, char **argv);

/* Prints "headrace VERB: message" to stderr; `verb` may be NULL. */
void cli_complain(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends stdout: what could not be written is CLI_FAILED, else `status`. */
int cli_finish(const char *verb, int status);

/* The one of `count` names nearest to `word`, NULL where none is near. */
const char *cli_nearest(const char *word, const char *const *names, int count);

#endif
