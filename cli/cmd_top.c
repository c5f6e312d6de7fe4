/*
 * headrace top: shows what an agent and the loaders of this user's processes do, at intervals: on a
 * terminal as a screen that refreshes, otherwise as plain text or JSON.
 *
 * It only requests statuses and computes rates from their differences, so watching costs the agent
 * one answer per interval, and loaders nothing.
 */
#include "cli.h"
#include "options.h"
#include "progress.h"
#include "terminal.h"
#include "text.h"
#include "top_rates.h"
#include "top_view.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct top {
    const char *socket; /* NULL: the default socket */
    double interval;    /* seconds */
    int once, json;
    json_t *before, *after;  /* the last two statuses; before is NULL at first */
    struct hr_error trouble; /* error of the last request; code 0: the agent answered */
};

/* Parses a text of the library's, and frees it. Returns NULL and sets *error if it is no object. */
static json_t *parse(char *text, const char *whose, struct hr_error *error)
{
    json_t *status = json_loads(text, 0, NULL);
    hr_text_free(text);
    if (json_is_object(status))
        return status;
    json_decref(status);
    *error = (struct hr_error){.code = -EPROTO};
    snprintf(error->message, sizeof error->message,
             "the %s's status is not a JSON object: is it of another version?", whose);
    return NULL;
}

/* Returns non-zero if no agent serves the socket any more. */
static int is_gone(int code)
{
    return code == -ENOENT || code == -ECONNREFUSED;
}

/* Adds the loaders of this user's processes. Returns how many, or a negative errno. */
static int add_loaders(json_t *status, struct hr_error *error)
{
    char *text = NULL;
    int r = hr_loaders_status(&text, error);
    if (r)
        return r;
    json_t *root = parse(text, "loader", error);
    if (!root)
        return error->code;
    json_t *loaders = json_object_get(root, "loaders");
    int count = (int)json_array_size(loaders);
    json_object_set(status, "loaders", loaders);
    json_decref(root);
    return count;
}

/* Requests the status of the agent and of loaders. Either may be missing, unless the agent's socket
 * was named. Returns 0 or a negative errno, with an error. */
static int ask(struct top *t, struct hr_error *error)
{
    char *text = NULL;
    json_t *status = NULL;
    int r = hr_agent_status(t->socket, &text, error), count = 0;
    int is_alone = is_gone(r) && !t->socket;
    if (r && !is_alone)
        return r;
    status = is_alone ? json_pack("{s:i}", "version", 1) : parse(text, "agent", error);
    if (!status)
        return is_alone ? -ENOMEM : error->code;
    if (!t->socket)
        count = add_loaders(status, error);
    if (count < 0 || (is_alone && !count)) {
        json_decref(status);
        return count < 0 ? count : r;
    }
    json_decref(t->before);
    t->before = t->after;
    t->after = status;
    if (!top_add_rates(t->after, t->before))
        return 0;
    *error = (struct hr_error){.code = -ENOMEM, .message = "out of memory"};
    return -ENOMEM;
}

/* What has ended, if nothing is left to show. */
static const char *whose_end(const struct top *t)
{
    return json_object_get(t->after, "pid") ? "the agent has ended" : "the last loader has ended";
}

/* ---- plain text and JSON ---- */

static int print_view(const struct top *t)
{
    struct top_view view;
    size_t columns = 80, rows;
    if (isatty(STDOUT_FILENO))
        terminal_size(&columns, &rows);
    if (top_view_make(&view, t->after, columns))
        return -1;
    for (size_t i = 0; i < view.count; i++)
        puts(view.lines[i].text);
    top_view_clear(&view);
    return 0;
}

static int print_json(const struct top *t)
{
    int bad = json_dumpf(t->after, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
    putchar('\n');
    return bad;
}

static void sleep_for(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

/* Ctrl-C ends it, as with every command. */
static int run_plain(struct top *t)
{
    struct hr_error error = {0};
    int r = ask(t, &error);
    for (int shown = 0; !r; shown++) {
        sleep_for(t->interval);
        r = ask(t, &error);
        if (r)
            break;
        if (shown && !t->json)
            putchar('\n');
        if (t->json ? print_json(t) : print_view(t))
            return cli_finish("top", CLI_FAILED);
        int status = cli_finish("top", CLI_OK);
        if (status || t->once)
            return status;
    }
    if (is_gone(r) && t->before) {
        cli_complain("top", "%s", whose_end(t));
        return CLI_OK;
    }
    return cli_failed("top", error.code, &error, "");
}

/* ---- the screen ---- */

static void put_line(FILE *out, const struct top_line *line)
{
    fprintf(out, "%s%s%s\033[K", line->is_title ? "\033[1m" : "", line->text,
            line->is_title ? "\033[0m" : "");
}

/* Draws the screen with one write, so that it does not flicker. */
static int draw(const struct top *t)
{
    char *text = NULL;
    size_t length, columns, rows;
    struct top_view view;
    terminal_size(&columns, &rows);
    if (top_view_make(&view, t->after, columns))
        return -1;
    FILE *out = open_memstream(&text, &length);
    if (!out) {
        top_view_clear(&view);
        return -1;
    }
    /* The last row shows the keys, or how many lines did not fit. */
    size_t shown = view.count < rows ? view.count : rows - 1;
    fputs("\033[H", out);
    for (size_t i = 0; i < shown; i++) {
        put_line(out, &view.lines[i]);
        fputs("\r\n", out);
    }
    if (t->trouble.code)
        fprintf(out, "\033[7mno answer: the agent is stopped or very busy\033[0m");
    else if (shown < view.count)
        fprintf(out, "%zu more lines; q: quit", view.count - shown);
    else
        fprintf(out, "q: quit");
    fputs("\033[K\033[J", out);
    top_view_clear(&view);
    int bad = ferror(out);
    bad |= fclose(out);
    if (!bad)
        bad = terminal_write(text, length);
    free(text);
    return bad;
}

/* Draws until the user ends it or the agent is gone. Returns 0 or the error of ask. */
static int show(struct top *t, struct hr_error *error)
{
    double next = cli_now() + (t->interval < 0.5 ? t->interval : 0.5); /* show rates soon */
    char key = 0;
    for (;;) {
        if (draw(t))
            return 0; /* the terminal is gone */
        double left = next - cli_now();
        switch (terminal_wait(left > 0 ? left : 0, &key)) {
        case TERMINAL_END:
            return 0;
        case TERMINAL_KEY:
            if (key == 'q' || key == 'Q' || key == 3)
                return 0;
            break;
        case TERMINAL_SIZE:
            break;
        case TERMINAL_TIME: {
            int r = ask(t, error);
            t->trouble.code = r;
            if (r && r != -ETIMEDOUT)
                return r;
            next = cli_now() + t->interval;
        }
        }
    }
}

static int run_screen(struct top *t)
{
    struct hr_error error = {0};
    int r = ask(t, &error);
    if (r)
        return cli_failed("top", error.code, &error, "");
    if (terminal_begin()) {
        terminal_end();
        cli_complain("top", "the terminal cannot be used as a screen: %s", strerror(errno));
        return CLI_FAILED;
    }
    r = show(t, &error);
    terminal_end();
    if (is_gone(r))
        cli_complain("top", "%s", whose_end(t));
    else if (r)
        return cli_failed("top", error.code, &error, "");
    return terminal_signal() == SIGINT ? CLI_INTERRUPTED : CLI_OK;
}

int cmd_top(int argc, char **argv)
{
    struct top t = {.interval = 1};
    const struct cli_option options[] = {
        {.name = "socket",
         .kind = CLI_TEXT,
         .text = &t.socket,
         .value = "PATH",
         .help =
             "this agent only (default: this user's, and the loaders\nof this user's processes)"},
        {.name = "interval",
         .kind = CLI_REAL,
         .real = &t.interval,
         .value = "S",
         .help = "seconds between two queries (default: 1)"},
        {.name = "once", .target = &t.once, .help = "print the activity of one interval, and end"},
        {.name = "json",
         .target = &t.json,
         .help = "print the status with rates as JSON, one object per\nline (see headrace-top(1))"},
    };
    const struct cli_syntax syntax = {
        .verb = "top",
        .arguments = "[options]",
        .text = "Shows the current activity of an agent and of the loaders of this user's\n"
                "processes: samples per second, where the time goes, how full the queues are,\n"
                "how long training waits. Loaders that wait long for bytes or cores are the\n"
                "ones to look at with headrace stalls.\n"
                "On a terminal it refreshes until q or Ctrl-C is pressed; elsewhere it prints\n"
                "text every interval.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .example = "  headrace top\n"
                   "  headrace top --once --json",
    };
    int status = cli_parse(&syntax, argc, argv, NULL);
    if (status >= 0)
        return status;
    if (!(t.interval >= 0.1 && t.interval <= 3600)) {
        cli_complain("top", "--interval: it must be a number from 0.1 to 3600");
        return CLI_USAGE;
    }
    status = t.once || t.json || !terminal_can_be_screen() ? run_plain(&t) : run_screen(&t);
    json_decref(t.before);
    json_decref(t.after);
    return status;
}
