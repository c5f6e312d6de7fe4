/*
 * Collects candidates as paths, in order, and tries to import the package with each. Symbolic
 * links are not resolved, because a virtual environment's Python is identified by the path that
 * starts it.
 */
#include "find_python.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_WORDS 16 /* words of a command to check: `env`, `numactl` and their options */

/* Returns the file that a shell would run for `word`, owned by the caller; NULL: none. */
static char *resolve(const char *word)
{
    struct stat status;
    if (strchr(word, '/'))
        return access(word, X_OK) ? NULL : strdup(word);
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; at;) {
        size_t length = strcspn(at, ":");
        char *file;
        if (asprintf(&file, "%.*s/%s", (int)length, length ? at : ".", word) < 0)
            return NULL;
        if (!access(file, X_OK) && !stat(file, &status) && S_ISREG(status.st_mode))
            return file;
        free(file);
        at = at[length] ? at + length + 1 : NULL;
    }
    return NULL;
}

/* Returns non-zero if a path ends in "python", "python3", "python3.12" or so. */
static int is_python(const char *word)
{
    const char *name = strrchr(word, '/');
    name = name ? name + 1 : word;
    if (strncmp(name, "python", 6))
        return 0;
    name += 6;
    return !name[strspn(name, "0123456789.")];
}

/* Returns the interpreter named in a script's first lines, owned by the caller; NULL: no Python. */
static char *interpreter(const char *file)
{
    char text[1024];
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (length < 2 || text[0] != '#' || text[1] != '!')
        return NULL;
    text[length] = 0;
    /* If a path is long or has blanks, pip writes a shell script that executes the interpreter. */
    char *exec = strstr(text, "\n'''exec' ");
    char *begin = exec ? exec + strlen("\n'''exec' ") : text + 2, *save;
    if (*begin == '"') {
        char *end = strchr(++begin, '"');
        if (end)
            *end = 0;
        return is_python(begin) ? strdup(begin) : NULL;
    }
    begin[strcspn(begin, "\n")] = 0;
    for (char *word = strtok_r(begin, " \t", &save); word; word = strtok_r(NULL, " \t", &save))
        if (is_python(word))
            return resolve(word);
    return NULL;
}

/* Adds `path`, which it takes over, unless it is NULL or in the list already. */
static void add(struct find_python *tried, char *path)
{
    int known = !path || tried->count == PYTHONS_TRIED;
    for (int i = 0; !known && i < tried->count; i++)
        known = !strcmp(tried->path[i], path);
    if (known)
        free(path);
    else
        tried->path[tried->count++] = path;
}

/* Adds the Python of a command: the first word that is a Python, or a script for one. */
static void add_of_command(struct find_python *tried, char *const *command)
{
    for (int i = 0; command[i] && i < MOST_WORDS; i++) {
        char *file = resolve(command[i]);
        if (!file)
            continue;
        char *found = is_python(file) ? file : interpreter(file);
        if (found != file)
            free(file);
        if (found) {
            add(tried, found);
            return;
        }
    }
}

/* Returns the last line of a process's output, with printable characters only. */
static char *last_line(char *text)
{
    size_t length = strlen(text);
    while (length && text[length - 1] == '\n')
        text[--length] = 0;
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    return strdup(*line ? line : "it cannot import the package");
}

static void in_child(const char *python, const char *code, int output)
{
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execl(python, python, "-P", "-c", code, (char *)NULL);
    dprintf(STDERR_FILENO, "it cannot be started: %s\n", strerror(errno));
    _exit(127);
}

/* Returns whether `python` can import the module; else *reason says why not. */
static int imports(const char *python, const char *module, char **reason)
{
    char code[128], text[4096];
    int ends[2], status = -1;
    size_t length = 0;
    snprintf(code, sizeof code, "import %s", module);
    if (pipe2(ends, O_CLOEXEC))
        return 0;
    pid_t child = fork();
    if (!child)
        in_child(python, code, ends[1]);
    close(ends[1]);
    for (ssize_t n = 1; child > 0 && n > 0;) {
        if (length == sizeof text - 1) { /* keep the end of the output */
            memmove(text, text + length / 2, length - length / 2);
            length -= length / 2;
        }
        n = read(ends[0], text + length, sizeof text - 1 - length);
        length += n > 0 ? (size_t)n : 0;
    }
    close(ends[0]);
    if (child > 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    text[length] = 0;
    *reason = status ? last_line(text) : NULL;
    return !status;
}

const char *find_python(struct find_python *tried, char *const *command, const char *module)
{
    const char *named = getenv("HEADRACE_PYTHON");
    *tried = (struct find_python){.count = 0};
    if (named && *named) {
        char *path = resolve(named);
        add(tried, path ? path : strdup(named));
    } else {
        add_of_command(tried, command);
        add(tried, resolve("python3"));
        add(tried, resolve("python"));
        const char *own = getenv("HEADRACE_OWN_PYTHON"); /* of the package that started us */
        add(tried, own && *own ? strdup(own) : NULL);
    }
    for (int i = 0; i < tried->count; i++)
        if (imports(tried->path[i], module, &tried->reason[i]))
            return tried->path[i];
    return NULL;
}

void find_python_clear(struct find_python *tried)
{
    for (int i = 0; i < tried->count; i++) {
        free(tried->path[i]);
        free(tried->reason[i]);
    }
    *tried = (struct find_python){.count = 0};
}
