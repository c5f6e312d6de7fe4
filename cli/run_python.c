/* Executes a Python that has the package, in place of this command. */
#include "run_python.h"

#include "cli.h"
#include "find_python.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void complain_no_python(const char *verb, const struct find_python *tried)
{
    cli_complain(verb, "no Python was found that has the package headrace%s",
                 tried->count ? "; tried:" : "");
    for (int i = 0; i < tried->count; i++) {
        char *path = text_escape(tried->path[i]);
        fprintf(stderr, "  %s: %s\n", path ? path : "?", tried->reason[i] ? tried->reason[i] : "?");
        free(path);
    }
    fprintf(stderr,
            "Install the package (Python 3.11 or newer) where the script's torch is, or "
            "name a\nPython that has it: HEADRACE_PYTHON=/path/to/python headrace %s ...\n",
            verb);
}

static int become(const char *python, const struct run_python *run, int argc, char **argv)
{
    /* Room for python, -P, -m, the module, -- and NULL. */
    char **words = calloc((size_t)argc + 6, sizeof *words);
    int n = 0;
    if (!words) {
        cli_complain(run->verb, "out of memory");
        return CLI_FAILED;
    }
    words[n++] = (char *)python;
    words[n++] = "-P"; /* do not import our modules from the script's directory */
    words[n++] = "-m";
    words[n++] = (char *)run->module;
    for (int i = 1; i < run->rest; i++)
        if (strcmp(argv[i], "--"))
            words[n++] = argv[i];
    words[n++] = "--";
    for (int i = run->rest; i < argc; i++)
        words[n++] = argv[i];
    execv(python, words);
    cli_complain(run->verb, "%s cannot be started: %s", python, strerror(errno));
    free(words);
    return CLI_FAILED;
}

int run_python(const struct run_python *run, int argc, char **argv)
{
    struct find_python tried;
    int r = CLI_FAILED;
    if (run->rest >= argc) {
        cli_complain(run->verb, "a command to %s is missing: headrace %s -- python train.py",
                     run->purpose, run->verb);
        return CLI_USAGE;
    }
    const char *python = find_python(&tried, argv + run->rest, run->tried);
    if (python)
        r = become(python, run, argc, argv);
    else
        complain_no_python(run->verb, &tried);
    find_python_clear(&tried);
    return r;
}
