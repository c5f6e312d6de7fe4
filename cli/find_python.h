/*
 * Which Python has the package: the one that runs the command, if that can be told, so that
 * what is measured and what measures are of one kind.
 */
#ifndef HR_CLI_FIND_PYTHON_H
#define HR_CLI_FIND_PYTHON_H

#define PYTHONS_TRIED 4

/* What was tried: NULL-terminated lists of texts that find_python_clear frees. */
struct find_python {
    char *path[PYTHONS_TRIED + 1];
    char *reason[PYTHONS_TRIED + 1]; /* the last line that it said */
    int count;
};

/*
 * The path of a Python that can import `module`: the one that HEADRACE_PYTHON names, and no
 * other; otherwise the one that the NULL-terminated `command` names, or the first line of the
 * script that it names; otherwise python3 or python on PATH. NULL where none can; `tried`
 * owns all texts. Starts each for as long as the import takes.
 */
const char *find_python(struct find_python *tried, char *const *command, const char *module);

void find_python_clear(struct find_python *tried);

#endif
