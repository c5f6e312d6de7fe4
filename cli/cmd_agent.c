/*
 * headrace agent: serves jobs in the foreground, or talks to a running agent: its status, a trace,
 * its end.
 */
#include "cli.h"
#include "options.h"
#include "text.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATH_BYTES 256

struct agent_command {
    const char *socket, *cache, *metrics, *trace; /* NULL: not given */
    int threads, listener;                        /* listener -1: none */
    double idle, seconds;                         /* idle < 0: never ends by itself */
    int stop, status, verbose;
    char path[PATH_BYTES]; /* of the socket, for messages */
};

static int failed(int code, const struct hr_error *error)
{
    cli_failed("agent", code, error, "");
    return code == -EINVAL ? CLI_USAGE : CLI_FAILED;
}

/* ---- requests to a running agent ---- */

static int stop_it(const struct agent_command *c)
{
    struct hr_error error = {0};
    int r = hr_agent_end(c->socket, &error);
    return r ? failed(r, &error) : CLI_OK;
}

static int print_status(const struct agent_command *c)
{
    struct hr_error error = {0};
    char *text = NULL;
    int r = hr_agent_status(c->socket, &text, &error);
    if (r)
        return failed(r, &error);
    json_t *root = json_loads(text, 0, NULL);
    hr_text_free(text);
    return cli_print_json("agent", root, 12, CLI_OK);
}

/* Opens the file before recording, so that a wrong path fails at once. */
static int write_trace(const struct agent_command *c)
{
    struct hr_error error = {0};
    char *text = NULL;
    FILE *out = fopen(c->trace, "wbe");
    if (!out) {
        cli_complain("agent", "%s: %s", c->trace, strerror(errno));
        return CLI_FAILED;
    }
    int r = hr_agent_trace(c->socket, c->seconds, &text, &error);
    int bad = !r && fputs(text, out) < 0;
    hr_text_free(text);
    bad |= fclose(out);
    if (r || bad)
        remove(c->trace);
    if (r)
        return failed(r, &error);
    if (bad) {
        cli_complain("agent", "%s: the trace cannot be written: %s", c->trace, strerror(errno));
        return CLI_FAILED;
    }
    printf("%s: a trace of %g s, for ui.perfetto.dev or chrome://tracing\n", c->trace, c->seconds);
    return cli_finish("agent", CLI_OK);
}

/* ---- serving ---- */

/* The agent that the signal handler stops. */
static struct hr_agent *_Atomic serving;

static void on_signal(int number)
{
    struct hr_agent *agent = atomic_load(&serving);
    if (agent)
        hr_agent_stop(agent);
}

/* The signals that end an agent. They stay blocked until there is one. */
static void end_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

/* Finds the path it listens at: from the options, or from the listener passed to it. */
static void find_path(struct agent_command *c)
{
    struct sockaddr_un at;
    socklen_t length = sizeof at;
    if (c->socket && *c->socket)
        snprintf(c->path, sizeof c->path, "%s", c->socket);
    else if (c->listener >= 0 && !getsockname(c->listener, (struct sockaddr *)&at, &length) &&
             at.sun_family == AF_UNIX && length > offsetof(struct sockaddr_un, sun_path))
        snprintf(c->path, sizeof c->path, "%.*s",
                 (int)(length - offsetof(struct sockaddr_un, sun_path)), at.sun_path);
    else
        hr_agent_default_socket(c->path, sizeof c->path);
}

/* Prints that the agent serves, once it answers a status request. */
static void *announce(void *arg)
{
    const struct agent_command *c = arg;
    char *text = NULL, *path = text_escape(c->path);
    if (path && !hr_agent_status(c->path, &text, NULL)) {
        json_t *root = json_loads(text, 0, NULL);
        json_int_t threads = json_integer_value(json_object_get(root, "threads"));
        printf("serving at %s with %d thread%s\n", path, (int)threads, threads == 1 ? "" : "s");
        fflush(stdout);
        json_decref(root);
    }
    hr_text_free(text);
    free(path);
    return NULL;
}

static int run(struct agent_command *c, struct hr_agent *agent, struct hr_error *error)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigset_t ends, all, before;
    pthread_t announcer;
    end_signals(&ends);
    sigfillset(&all);
    atomic_store(&serving, agent);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    /* If the thread cannot be created, only that line is missing. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int has_announcer = !pthread_create(&announcer, NULL, announce, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigprocmask(SIG_UNBLOCK, &ends, NULL);
    int r = hr_agent_run(agent, error);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    atomic_store(&serving, NULL);
    if (has_announcer)
        pthread_join(announcer, NULL);
    return r;
}

static int serve(struct agent_command *c)
{
    struct hr_agent_options options;
    struct hr_agent *agent = NULL;
    struct hr_error error = {0};
    sigset_t ends;
    find_path(c);
    hr_agent_options_default(&options);
    options.socket = c->path;
    options.listener = c->listener;
    options.threads = c->threads;
    options.cache = c->cache;
    options.metrics = c->metrics;
    options.idle_ms = c->idle < 0 ? -1 : (int)(c->idle * 1000);
    end_signals(&ends);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    int r = hr_agent_create(&agent, &options, &error);
    if (!r)
        r = run(c, agent, &error);
    hr_agent_destroy(&agent);
    return r ? failed(r, &error) : cli_finish("agent", CLI_OK);
}

/* ---- the command line ---- */

static int check(const struct agent_command *c, int has_seconds)
{
    int serves = c->threads || c->cache || c->idle >= 0 || c->metrics || c->listener >= 0;
    int asks = c->stop + c->status + (c->trace != NULL);
    if (asks > 1)
        cli_complain("agent", "give only one of --stop, --status and --trace");
    else if (asks && serves)
        cli_complain("agent", "--stop, --status and --trace are requests to a running agent: "
                              "the only other option that they take is --socket");
    else if (has_seconds && !c->trace)
        cli_complain("agent", "--seconds needs --trace");
    else if (c->trace && !(c->seconds > 0 && c->seconds <= 600))
        cli_complain("agent", "--seconds: it must be more than 0 and at most 600");
    else if (c->idle > 2e6)
        cli_complain("agent", "--idle: it must be at most 2000000 seconds");
    else
        return -1;
    return CLI_USAGE;
}

static int parse(struct agent_command *c, int argc, char **argv)
{
    const struct cli_option options[] = {
        {.name = "socket",
         .kind = CLI_TEXT,
         .text = &c->socket,
         .value = "PATH",
         .help = "the socket to serve or to connect to (default:\nHEADRACE_AGENT, else this user's "
                 "default path)"},
        {.name = "threads",
         .kind = CLI_NUMBER,
         .target = &c->threads,
         .value = "N",
         .least = 1,
         .most = 4096,
         .help = "threads that prepare (default: the cores of this\nprocess minus one)"},
        {.name = "cache",
         .kind = CLI_TEXT,
         .text = &c->cache,
         .value = "SPEC",
         .help = "keep samples in memory for all streams: 64GiB, or\n'shm:NAME?size=64GiB'"},
        {.name = "idle",
         .kind = CLI_REAL,
         .real = &c->idle,
         .value = "SECONDS",
         .help = "end after this time without a job (default: never)"},
        {.name = "metrics",
         .kind = CLI_TEXT,
         .text = &c->metrics,
         .value = "ADDRESS:PORT",
         .help = "serve metrics for Prometheus at http://.../metrics;\n:PORT accepts only this "
                 "machine"},
        {.name = "listener",
         .kind = CLI_NUMBER,
         .target = &c->listener,
         .value = "FD",
         .least = 0,
         .most = 1 << 20,
         .help = "serve this open listening socket (agent=\"auto\"\nstarts agents this way)"},
        {.name = "status",
         .target = &c->status,
         .help = "print the state of a running agent as JSON"},
        {.name = "trace",
         .kind = CLI_TEXT,
         .text = &c->trace,
         .value = "FILE",
         .help = "record a running agent as a trace for Perfetto"},
        {.name = "seconds",
         .kind = CLI_REAL,
         .real = &c->seconds,
         .value = "N",
         .help = "duration of the trace (default: 10; at most 600)"},
        {.name = "stop", .target = &c->stop, .help = "end a running agent"},
        {.name = "verbose", .target = &c->verbose, .help = "print more on standard error"},
    };
    const struct cli_syntax syntax = {
        .verb = "agent",
        .arguments = "[options]",
        .text =
            "Prepares batches for all jobs of this user on this host. Jobs attach with\n"
            "agent=\"auto\" or the socket's path; jobs that name the same stream share batches.\n"
            "Serves until Ctrl-C, SIGTERM or --stop.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .example = "  headrace agent --cache 64GiB --metrics :9400\n"
                   "  headrace agent --trace trace.json --seconds 5",
    };
    c->seconds = -1;
    int status = cli_parse(&syntax, argc, argv, NULL);
    if (status >= 0)
        return status;
    int has_seconds = c->seconds != -1;
    if (!has_seconds)
        c->seconds = 10;
    return check(c, has_seconds);
}

int cmd_agent(int argc, char **argv)
{
    struct agent_command c = {.listener = -1, .idle = -1};
    int status = parse(&c, argc, argv);
    if (status >= 0)
        return status;
    struct cli_log log = {.verb = "agent", .verbose = &c.verbose};
    hr_log_set(cli_log_line, &log);
    if (c.stop)
        status = stop_it(&c);
    else if (c.status)
        status = print_status(&c);
    else if (c.trace)
        status = write_trace(&c);
    else
        status = serve(&c);
    hr_log_set(NULL, NULL);
    return status;
}
