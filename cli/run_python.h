/* Runs a verb that the Python package implements, inside the user's script. */
#ifndef HR_CLI_RUN_PYTHON_H
#define HR_CLI_RUN_PYTHON_H

struct run_python {
    const char *verb;    /* for complaints: "stalls", "memory record" */
    const char *purpose; /* of the command: "measure", "record" */
    const char *module;  /* module to run: python -P -m MODULE OPTIONS -- COMMAND */
    const char *tried;   /* module that a Python must be able to import */
    int rest;            /* index of the user's command in argv */
};

/* Finds a Python that has the package and executes it with the options and command of argv. Returns
 * only on failure, after a complaint, as where the command is missing: an enum cli_exit. */
int run_python(const struct run_python *run, int argc, char **argv);

#endif
