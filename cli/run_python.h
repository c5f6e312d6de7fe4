/* Verbs whose work is the Python package's, which runs inside the user's script. */
#ifndef HR_CLI_RUN_PYTHON_H
#define HR_CLI_RUN_PYTHON_H

struct run_python {
    const char *verb;   /* of complaints: "stalls", "memory record" */
    const char *module; /* that is run: python -P -m MODULE OPTIONS -- COMMAND */
    const char *tried;  /* that a Python must be able to import */
    int rest;           /* position of the command in argv */
};

/* Finds a Python that has the package and becomes it, with argv's options and its command.
 * Comes back only with an enum cli_exit, after a complaint. */
int run_python(const struct run_python *run, int argc, char **argv);

#endif
