/* Shared by all verbs: errors, log lines, JSON, a full standard output, words that nearly match. */
#include "cli.h"

#include "text.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_complain(const char *verb, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "headrace%s%s: ", verb ? " " : "", verb ? verb : "");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

int cli_failed(const char *verb, int code, const struct hr_error *error, const char *remedy)
{
    const char *what = error->message;
    if (code == -ENOMEM && !error->code)
        what = "out of memory";
    else if (!*what)
        what = strerror(-code);
    char *message = text_escape(what);
    cli_complain(verb, "%s%s", message ? message : "out of memory", remedy);
    free(message);
    return CLI_FAILED;
}

void cli_log_line(void *arg, enum hr_log_level level, const char *message)
{
    const struct cli_log *log = arg;
    char *escaped = text_escape(message);
    if (escaped && ((level == HR_LOG_WARNING && !log->is_quiet) || *log->verbose))
        cli_complain(log->verb, "%s", escaped);
    free(escaped);
}

int cli_finish(const char *verb, int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    cli_complain(verb, "cannot write to standard output");
    return CLI_FAILED;
}

int cli_print_json(const char *verb, json_t *root, int digits, int status)
{
    int bad = !root || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
    json_decref(root);
    if (bad) {
        cli_complain(verb, "cannot write JSON");
        return CLI_FAILED;
    }
    putchar('\n');
    return cli_finish(verb, status);
}

/* Returns how many letters to change, add, drop or swap with a neighbour turn a into b: the
 * restricted Damerau-Levenshtein distance of the first MAX_WORD letters. */
static int distance(const char *a, const char *b)
{
    enum { MAX_WORD = 32 };
    int rows[3][MAX_WORD + 1], n = (int)strnlen(a, MAX_WORD), m = (int)strnlen(b, MAX_WORD);
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int least = above[j - 1] + (a[i - 1] != b[j - 1]);
            least = above[j] + 1 < least ? above[j] + 1 : least;
            least = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < least)
                least = before[j - 2] + 1;
            row[j] = least;
        }
    }
    return rows[n % 3][m];
}

const char *cli_nearest(const char *word, const char *const *names, int count)
{
    const char *nearest = NULL;
    int length = (int)strlen(word), least = length;
    for (int i = 0; i < count; i++) {
        int d = distance(word, names[i]), other = (int)strlen(names[i]);
        /* If more than one letter in three differs, it is another word. */
        int most = (length > other ? length : other) / 3;
        if (d < least && d <= (most ? most : 1) && d < other) {
            least = d;
            nearest = names[i];
        }
    }
    return nearest;
}
