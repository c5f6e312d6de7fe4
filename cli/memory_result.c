/*
 * headrace memory report, diff and import: report on records, compare them, and convert records of
 * other tools. A damaged record is read as far as possible; the missing parts are reported, and
 * the exit status is 1.
 */
#include "cli.h"
#include "memory_verbs.h"
#include "options.h"
#include "predict_values.h"
#include "text.h"

#include <headrace/memory.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT "memory report"
#define DIFF   "memory diff"
#define IMPORT "memory import"

enum { FILES_MOST = 64 };

/* Parses a bandwidth. Returns 0, or -1 after a complaint. */
static int take_rate(const char *option, const char *text, double *bytes_per_s)
{
    return predict_value_take(REPORT, option, PREDICT_SPEED, text, "a speed (12GB/s)", bytes_per_s);
}

/* ---- records ---- */

/* Reports parts of a record that are unreadable or were not recorded. Returns 1 if it is damaged.
 */
static int print_gaps(const char *verb, const char *path, const struct hr_memory *memory)
{
    const char *what = NULL, *problem = NULL;
    json_int_t offset = 0, bytes = 0, lost = 0;
    int ended = 1, is_damaged = 0;
    char count[TEXT_NUMBER];
    char *name = text_escape(path);
    json_t *all = json_loads(hr_memory_json(memory), 0, NULL);
    json_t *run = all ? json_object_get(all, "run") : NULL;
    if (!name || !run || json_unpack(run, "{s?b, s?I}", "ended", &ended, "lost", &lost))
        goto done;
    problem = json_string_value(json_object_get(run, "problem"));
    if (!json_unpack(json_object_get(run, "damage"), "{s:s, s:I, s:I}", "what", &what, "offset",
                     &offset, "bytes", &bytes)) {
        char *escaped = text_escape(what);
        is_damaged = 1;
        cli_complain(verb, "%s is damaged: %s (at byte %lld); about %s are left out", name,
                     escaped ? escaped : "", (long long)offset, text_bytes(count, (uint64_t)bytes));
        free(escaped);
    }
    if (!ended)
        cli_complain(verb, "%s is incomplete: its process was killed, or is still recording", name);
    if (problem)
        cli_complain(verb, "%s: the recording ended early: %s", name, problem);
    if (lost)
        cli_complain(verb, "%s: %s events were lost", name, text_count(count, (uint64_t)lost));
done:
    json_decref(all);
    free(name);
    return is_damaged;
}

static void close_all(struct hr_memory **memories, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hr_memory_destroy(&memories[i]);
}

/* Opens all records or none. Returns how many are damaged, or a negative errno. */
static int open_all(struct hr_memory **memories, const char *const *paths, size_t count,
                    const struct hr_memory_options *options, const char *verb)
{
    struct hr_error error = {0};
    int r = 0, damaged = 0;
    for (size_t i = 0; i < count; i++)
        memories[i] = NULL;
    for (size_t i = 0; i < count && !r; i++) {
        r = hr_memory_open(&memories[i], paths[i], options, &error);
        if (!r)
            damaged += print_gaps(verb, paths[i], memories[i]);
    }
    if (!r)
        return damaged;
    close_all(memories, count);
    cli_failed(verb, r, &error, "");
    return r;
}

/* ---- report ---- */

struct report {
    const char *paths[FILES_MOST + 1];
    const char *page, *h2d, *d2h;
    int text, json;
    size_t count;
};

static void print_json(struct hr_memory *const *memories, size_t count)
{
    if (count == 1) {
        fputs(hr_memory_json(memories[0]), stdout);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const char *text = hr_memory_json(memories[i]);
        printf("%s%.*s", i ? ",\n" : "[", (int)strcspn(text, "\n"), text);
    }
    puts("]");
}

static int write_report(const struct report *c, struct hr_memory *const *memories,
                        struct hr_error *error)
{
    const struct hr_memory *const *all = (const struct hr_memory *const *)memories;
    int r = 0;
    if (c->page)
        r = hr_memory_write_page(all, c->count, c->page, error);
    if (!r && c->json)
        print_json(memories, c->count);
    if (!r && (c->text || !(c->page || c->json)))
        r = hr_memory_write_text(all, c->count, "-", text_width(), error);
    return r;
}

static int parse_report(struct report *c, int argc, char **argv)
{
    const struct cli_option options[] = {
        {.name = "text",
         .target = &c->text,
         .help = "print the text (default without other outputs)"},
        {.name = "page",
         .kind = CLI_TEXT,
         .text = &c->page,
         .value = "FILE",
         .help = "write one HTML page that needs no network; - is\nstandard output"},
        {.name = "html", .kind = CLI_TEXT, .text = &c->page, .value = "FILE", .help = "the same"},
        {.name = "json",
         .target = &c->json,
         .help = "print the analysis as JSON; a list for several records"},
        {.name = "h2d",
         .kind = CLI_TEXT,
         .text = &c->h2d,
         .value = "RATE",
         .help = "bandwidth from host to device (default: from the\nrecord, else 12GB/s)"},
        {.name = "d2h",
         .kind = CLI_TEXT,
         .text = &c->d2h,
         .value = "RATE",
         .help = "bandwidth from device to host; both determine which\nblocks could be swapped"},
    };
    const struct cli_syntax syntax = {
        .verb = REPORT,
        .arguments = "FILE... [options]",
        .text = "Analyses records: the peak and its parts, the intervals in which blocks are not\n"
                "used, the pattern that repeats, and what would save memory. Several records\n"
                "(batch sizes, ranks) are shown side by side. A FILE may also be a memory\n"
                "snapshot or a trace of PyTorch's.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .optional = FILES_MOST - 1,
        .example = "  headrace memory report headrace-memory.hrm\n"
                   "  headrace memory report b16.hrm b32.hrm b64.hrm --page report.html",
    };
    return cli_parse(&syntax, argc, argv, c->paths);
}

int memory_report(int argc, char **argv)
{
    struct report c = {.text = 0};
    struct hr_memory_options options;
    struct hr_memory *memories[FILES_MOST];
    struct hr_error error = {0};
    int r = parse_report(&c, argc, argv);
    if (r >= 0)
        return r;
    hr_memory_options_default(&options);
    if (take_rate("h2d", c.h2d, &options.h2d_bytes_per_s) ||
        take_rate("d2h", c.d2h, &options.d2h_bytes_per_s))
        return CLI_USAGE;
    while (c.count < FILES_MOST && c.paths[c.count])
        c.count++;
    int damaged = open_all(memories, c.paths, c.count, &options, REPORT);
    if (damaged < 0)
        return CLI_FAILED;
    r = write_report(&c, memories, &error);
    close_all(memories, c.count);
    return r ? cli_failed(REPORT, r, &error, "")
             : cli_finish(REPORT, damaged ? CLI_PROBLEM : CLI_OK);
}

/* ---- diff ---- */

struct diff {
    const char *paths[2];
    int json;
    double fail_above; /* percent; negative: never */
};

/* Returns `otherwise` if nothing grew beyond the limit. */
static int write_diff(const struct diff *c, const struct hr_memory *before,
                      const struct hr_memory *after, int otherwise)
{
    struct hr_memory_comparison *comparison = NULL;
    struct hr_error error = {0};
    int r = hr_memory_compare(&comparison, before, after, &error);
    if (!r && c->json)
        fputs(hr_memory_comparison_json(comparison), stdout);
    else if (!r)
        r = hr_memory_write_comparison_text(comparison, "-", text_width(), &error);
    double percent = r ? 0 : 100 * hr_memory_comparison_growth(comparison);
    hr_memory_comparison_destroy(&comparison);
    if (r)
        return cli_failed(DIFF, r, &error, "");
    if (c->fail_above < 0 || percent <= c->fail_above)
        return cli_finish(DIFF, otherwise);
    r = cli_finish(DIFF, CLI_PROBLEM);
    cli_complain(DIFF, "the peak grew by %.1f %%, which is more than %g %%", percent,
                 c->fail_above);
    return r;
}

int memory_diff(int argc, char **argv)
{
    struct diff c = {.fail_above = -1};
    struct hr_memory *memories[2];
    const struct cli_option options[] = {
        {.name = "json", .target = &c.json, .help = "print JSON"},
        {.name = "fail-above",
         .kind = CLI_REAL,
         .real = &c.fail_above,
         .value = "PERCENT",
         .help = "exit with status 1 if the peak of a device grew by\nmore"},
    };
    const struct cli_syntax syntax = {
        .verb = DIFF,
        .arguments = "BEFORE AFTER [options]",
        .text = "Compares two records: peaks, groups of blocks that appeared, disappeared or\n"
                "grew, iterations, intervals.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 2,
        .example = "  headrace memory diff main.hrm branch.hrm --fail-above 5",
    };
    int r = cli_parse(&syntax, argc, argv, c.paths);
    if (r >= 0)
        return r;
    int damaged = open_all(memories, c.paths, 2, NULL, DIFF);
    if (damaged < 0)
        return CLI_FAILED;
    r = write_diff(&c, memories[0], memories[1], damaged ? CLI_PROBLEM : CLI_OK);
    close_all(memories, 2);
    return r;
}

/* ---- import ---- */

int memory_import(int argc, char **argv)
{
    const char *paths[2];
    struct hr_error error = {0};
    const struct cli_syntax syntax = {
        .verb = IMPORT,
        .arguments = "FROM TO",
        .text = "Converts the file of another tool to a record: a memory snapshot of PyTorch\n"
                "(none of which is executed), a trace of its profiler with memory events, or its\n"
                "raw memory timeline; these may be gzipped. They contain allocations but no\n"
                "accesses.",
        .positional = 2,
        .example = "  headrace memory import snapshot.pickle snapshot.hrm",
    };
    int r = cli_parse(&syntax, argc, argv, paths);
    if (r >= 0)
        return r;
    r = hr_memory_import(paths[0], paths[1], &error);
    if (r)
        return cli_failed(IMPORT, r, &error, "");
    char *name = text_escape(paths[1]);
    printf("%s: headrace memory report analyses it\n", name ? name : paths[1]);
    free(name);
    return cli_finish(IMPORT, CLI_OK);
}
