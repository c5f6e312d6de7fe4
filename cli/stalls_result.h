/* The verbs of headrace stalls that work on results. */
#ifndef HR_CLI_STALLS_RESULT_H
#define HR_CLI_STALLS_RESULT_H

#include <headrace/stalls.h>

/* headrace stalls report, merge; argv[0] is the verb; an enum cli_exit. */
int stalls_report(int argc, char **argv);
int stalls_merge(int argc, char **argv);

/* Reads a result, by its file or by the folder that it is in. Errors: as hr_stalls_read. */
int stalls_result_read(struct hr_stalls **out, const char *path, struct hr_error *error);

#endif
