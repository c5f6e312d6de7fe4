/*
 * Finds a Python that has the package: if possible the one that runs the measured command, so that
 * both use the same interpreter.
 */
#ifndef HR_CLI_FIND_PYTHON_H
#define HR_CLI_FIND_PYTHON_H

#define PYTHONS_TRIED 4

/* The Pythons tried: NULL-terminated lists of texts, freed by find_python_clear. */
struct find_python {
    char *path[PYTHONS_TRIED + 1];
    char *reason[PYTHONS_TRIED + 1]; /* why it failed: the last line of its output */
    int count;
};

/*
 * Returns the path of a Python that can import `module`, or NULL. If HEADRACE_PYTHON is set, only
 * that one is tried. Otherwise tries, in this order: the one named by the NULL-terminated `command`
 * or by the first line of its script; python3 and python on PATH; the one that started us.
 * `tried` owns all texts. Runs each candidate for as long as the import takes.
 */
const char *find_python(struct find_python *tried, char *const *command, const char *module);

void find_python_clear(struct find_python *tried);

#endif
