/* The verbs of headrace stalls that read results. */
#ifndef HR_CLI_STALLS_RESULT_H
#define HR_CLI_STALLS_RESULT_H

#include <headrace/stalls.h>

/* headrace stalls report and merge. argv[0] is the verb; returns an enum cli_exit. */
int stalls_report(int argc, char **argv);
int stalls_merge(int argc, char **argv);

/* Reads a result, given its file or its folder. Errors: those of hr_stalls_read. */
int stalls_result_read(struct hr_stalls **out, const char *path, struct hr_error *error);

#endif
