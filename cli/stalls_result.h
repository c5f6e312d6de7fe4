/* The verbs of headrace stalls that work on results. */
#ifndef HR_CLI_STALLS_RESULT_H
#define HR_CLI_STALLS_RESULT_H

/* headrace stalls report, merge; argv[0] is the verb; an enum cli_exit. */
int stalls_report(int argc, char **argv);
int stalls_merge(int argc, char **argv);

/* Columns for text on standard output: the terminal's, within limits. */
int stalls_columns(void);

#endif
