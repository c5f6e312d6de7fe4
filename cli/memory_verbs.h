/* The verbs of headrace memory; argv[0] is the verb; each returns an enum cli_exit. */
#ifndef HR_CLI_MEMORY_VERBS_H
#define HR_CLI_MEMORY_VERBS_H

int memory_record(int argc, char **argv);
int memory_report(int argc, char **argv);
int memory_diff(int argc, char **argv);
int memory_import(int argc, char **argv);

#endif
