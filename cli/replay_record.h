/* headrace replay record; argv[0] is the verb; returns an enum cli_exit. */
#ifndef HR_CLI_REPLAY_RECORD_H
#define HR_CLI_REPLAY_RECORD_H

int replay_record(int argc, char **argv);

#endif
