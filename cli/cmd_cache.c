/*
 * headrace cache: shows, fills and drops the caches that stay in memory between epochs and runs.
 * Each of its verbs has its own options.
 */
#include "cache_report.h"
#include "cache_servers.h"
#include "cli.h"
#include "options.h"
#include "progress.h"
#include "text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct cache_command {
    const char *verb; /* "cache list" and so on */
    int (*run)(struct cache_command *c);
    int is_quiet; /* as in struct cli_log */
    int json, force, jobs, no_progress, verbose;
    const char *dataset;       /* option of drop */
    const char *label, *image; /* option of warm */
    const char *arguments[2];  /* NULL: not given */
};

/* Runs a verb whose command line was parsed with the result r. */
static int run(struct cache_command *c, int r)
{
    if (r >= 0)
        return r;
    struct cli_log log = {.verb = c->verb, .verbose = &c->verbose, .is_quiet = c->is_quiet};
    hr_log_set(cli_log_line, &log);
    int status = c->run(c);
    hr_log_set(NULL, NULL);
    return status;
}

/* Parses the command line of a verb that has no other options. */
static int parse_plain(struct cache_command *c, struct cli_syntax *syntax, int argc, char **argv)
{
    const struct cli_option options[] = {
        {.name = "json", .target = &c->json, .help = "print JSON (see headrace-cache(1))"},
        {.name = "verbose", .target = &c->verbose, .help = "print more on standard error"},
    };
    syntax->verb = c->verb;
    syntax->options = options;
    syntax->option_count = (int)(sizeof options / sizeof *options);
    return cli_parse(syntax, argc, argv, c->arguments);
}

/* ---- list and info ---- */

static void none_found(const struct cache_command *c, const char *name, const char *dataset)
{
    char *cache = text_escape(name), *of = text_escape(dataset ? dataset : "");
    if (cache && of && dataset)
        cli_complain(c->verb,
                     "cache %s holds no samples of %s; headrace cache list shows all datasets",
                     cache, of);
    else
        cli_complain(c->verb, "there is no cache %s; headrace cache list shows all caches",
                     cache ? cache : "");
    free(cache);
    free(of);
}

static int look(struct cache_command *c, void (*print)(const struct cache_report *report))
{
    struct cache_report report;
    struct hr_error error = {0};
    const char *name = c->arguments[0], *dataset = c->arguments[1];
    int r = cache_report_make(&report, name, dataset, &error);
    int status = cache_report_damaged(&report) ? CLI_PROBLEM : CLI_OK;
    if (r) {
        status = cli_failed(c->verb, r, &error, "");
    } else if (name && !report.count) {
        none_found(c, name, dataset);
        status = CLI_FAILED;
    } else if (c->json) {
        status = cli_print_json(c->verb, cache_report_json(&report), 0, status);
    } else {
        print(&report);
        status = cli_finish(c->verb, status);
    }
    cache_report_clear(&report);
    return status;
}

/* A damaged segment is a line of the list, and no failure of it: it may be another program's, and
 * its next user makes it again. */
static int list(struct cache_command *c)
{
    int status = look(c, cache_report_print_table);
    if (status != CLI_PROBLEM)
        return status;
    cli_complain(c->verb,
                 "a segment is damaged: the next start makes it again, headrace cache drop "
                 "removes it; headrace cache info says more");
    return CLI_OK;
}

static int cache_list(int argc, char **argv)
{
    struct cache_command c = {.verb = "cache list", .run = list};
    struct cli_syntax syntax = {
        .arguments = "[options]",
        .text = "Lists the caches of this user and of its groups: one line for each dataset.",
        .example = "  headrace cache list",
    };
    return run(&c, parse_plain(&c, &syntax, argc, argv));
}

static int info(struct cache_command *c)
{
    return look(c, cache_report_print);
}

static int cache_info(int argc, char **argv)
{
    struct cache_command c = {.verb = "cache info", .run = info};
    struct cli_syntax syntax = {
        .arguments = "[NAME [DATASET]] [options]",
        .text = "Describes a cache: the processes that use it, how full it is, the reads that it\n"
                "saved, the forms of its items and why, and where its memory is. DATASET is as\n"
                "headrace cache list shows it, or a path to it. Without NAME: all caches in\n"
                "memory, private ones too. A cache on a disk is named by its directory:\n"
                "disk:/nvme/headrace.",
        .optional = 2,
        .example = "  headrace cache info imagenet",
    };
    return run(&c, parse_plain(&c, &syntax, argc, argv));
}

/* ---- drop ---- */

/* The segments before the drop, for the report. */
struct dropped {
    size_t segments;
    uint64_t in_use_bytes; /* of segments in use */
    char dataset[sizeof((struct hr_cache_info *)0)->dataset];
};

static int look_before(struct dropped *out, const struct cache_command *c, struct hr_error *error)
{
    struct cache_report report;
    *out = (struct dropped){.segments = 0};
    int r = cache_report_make(&report, c->arguments[0], c->dataset, error);
    for (size_t i = 0; !r && i < report.count; i++)
        if (report.infos[i].users)
            out->in_use_bytes += report.infos[i].allocated_bytes;
    out->segments = report.count;
    /* Use the dataset's text as the library stores it. */
    const char *dataset = report.count ? report.infos[0].dataset : c->dataset;
    if (c->dataset)
        snprintf(out->dataset, sizeof out->dataset, "%s", dataset);
    cache_report_clear(&report);
    return r;
}

static void print_dropped(const struct cache_command *c, const struct dropped *before,
                          uint64_t freed, uint64_t left)
{
    char a[TEXT_NUMBER];
    size_t dropped = before->segments > left ? before->segments - (size_t)left : 0;
    if (dropped)
        printf("%s: %zu %s dropped, %s of %s freed\n", c->arguments[0], dropped,
               dropped == 1 ? "segment" : "segments", text_bytes(a, freed),
               hr_cache_kind(c->arguments[0]) == HR_CACHE_DISK ? "disk" : "memory");
    if (c->force && before->in_use_bytes)
        printf("%s: %s are in use, and will be freed when their users end\n", c->arguments[0],
               text_bytes(a, before->in_use_bytes));
    if (left)
        printf("%s: %" PRIu64 " %s in use and kept; --force drops segments in use, too\n",
               c->arguments[0], left, left == 1 ? "segment is" : "segments are");
}

static int run_drop(struct cache_command *c)
{
    struct hr_error error = {0};
    struct dropped before;
    uint64_t freed = 0, left = 0;
    int r = look_before(&before, c, &error);
    if (!r)
        r = hr_cache_drop(c->arguments[0], c->dataset ? before.dataset : NULL, c->force, &freed,
                          &left, &error);
    if (r)
        return cli_failed(c->verb, r, &error, "");
    int status = left ? CLI_PROBLEM : CLI_OK;
    if (c->json)
        return cli_print_json(c->verb,
                              json_pack("{s:i, s:s, s:I, s:I}", "layout", 1, "name",
                                        c->arguments[0], "freed_bytes", (json_int_t)freed, "left",
                                        (json_int_t)left),
                              0, status);
    print_dropped(c, &before, freed, left);
    return cli_finish(c->verb, status);
}

static int cache_drop(int argc, char **argv)
{
    struct cache_command c = {.verb = "cache drop", .run = run_drop};
    const struct cli_option options[] = {
        {.name = "dataset",
         .kind = CLI_TEXT,
         .text = &c.dataset,
         .value = "D",
         .help = "drop only the segment of this dataset"},
        {.name = "force",
         .target = &c.force,
         .help = "drop segments in use, too; their users continue with\nwhat they have"},
        {.name = "json", .target = &c.json, .help = "print JSON (see headrace-cache(1))"},
        {.name = "verbose", .target = &c.verbose, .help = "print more on standard error"},
    };
    const struct cli_syntax syntax = {
        .verb = c.verb,
        .arguments = "NAME [options]",
        .text = "Drops a kept cache and frees its memory, or its disk (NAME is then\n"
                "disk:/DIRECTORY). Segments in use are kept, and the exit status is then 1.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .example = "  headrace cache drop imagenet\n"
                   "  headrace cache drop imagenet --dataset /data/val",
    };
    return run(&c, cli_parse(&syntax, argc, argv, c.arguments));
}

/* ---- warm ---- */

static int warm(const struct cache_command *c, struct hr_cache_warm_report *report, double *seconds,
                struct cli_progress *progress, struct hr_error *error)
{
    struct hr_dataset *dataset = NULL;
    struct hr_dataset_options options;
    hr_dataset_options_default(&options);
    options.allow_empty_classes = 1; /* a class without images is a class */
    options.media = HR_MEDIA_ANY;
    options.label = c->label;
    options.image = c->image;
    options.progress = cli_progress_call;
    options.progress_arg = progress;
    int r = hr_dataset_open(&dataset, c->arguments[1], &options, error);
    double began = cli_now();
    if (!r)
        r = hr_cache_warm(dataset, c->arguments[0], c->jobs, cli_progress_call, progress, report,
                          error);
    *seconds = cli_now() - began;
    hr_dataset_unref(&dataset);
    return r;
}

static void print_warm(const struct cache_command *c, const struct hr_cache_warm_report *report,
                       double seconds)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    char *dataset = text_escape(c->arguments[1]);
    printf("%s: %s of %s samples are cached\n", dataset ? dataset : "?",
           text_count(a, report->cached), text_count(b, report->samples));
    free(dataset);
    printf("  %s", text_bytes(a, report->used_bytes));
    if (cache_report_items(report->items_of_form)) {
        printf(": ");
        cache_report_print_forms(report->items_of_form);
    }
    printf("\n  %.1f s, %s read, %.1f MB/s\n", seconds, text_bytes(a, report->read_bytes),
           seconds > 0 ? (double)report->read_bytes / seconds / 1e6 : 0);
    if (report->cached + report->bad < report->samples)
        printf("  the others do not fit: training reads them from storage\n");
    if (report->bad)
        printf("  %s cannot be read: headrace scan --verify lists them\n",
               text_count(a, report->bad));
}

static int run_warm(struct cache_command *c)
{
    struct hr_cache_warm_report report = {.size = sizeof report};
    struct cli_progress progress;
    struct hr_error error = {0};
    double seconds = 0;
    cli_progress_init(&progress, c->no_progress);
    int r = warm(c, &report, &seconds, &progress, &error);
    cli_progress_clear(&progress);
    if (r && cli_interrupted()) {
        cli_complain(c->verb, "interrupted; run the same command again to continue");
        return CLI_INTERRUPTED;
    }
    if (r)
        return cli_failed(c->verb, r, &error, "");
    int status = report.bad ? CLI_PROBLEM : CLI_OK;
    if (c->json)
        return cli_print_json(
            c->verb,
            json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:f}", "layout", 1, "samples",
                      (json_int_t)report.samples, "cached", (json_int_t)report.cached, "bad",
                      (json_int_t)report.bad, "read_bytes", (json_int_t)report.read_bytes,
                      "used_bytes", (json_int_t)report.used_bytes, "items",
                      cache_report_forms(report.items_of_form), "seconds", seconds),
            0, status);
    print_warm(c, &report, seconds);
    return cli_finish(c->verb, status);
}

static int cache_warm(int argc, char **argv)
{
    struct cache_command c = {.verb = "cache warm", .run = run_warm};
    const struct cli_option options[] = {
        {.name = "jobs",
         .kind = CLI_NUMBER,
         .target = &c.jobs,
         .value = "N",
         .least = 1,
         .most = 256,
         .help = "threads that read and convert (default: the cores)"},
        {.name = "label",
         .kind = CLI_TEXT,
         .text = &c.label,
         .value = "FIELD",
         .help = "of tar files: the field with the label: cls,\njson:class_id, ...; of Parquet "
                 "tables: the column;\nnone: there is none"},
        {.name = "image",
         .kind = CLI_TEXT,
         .text = &c.image,
         .value = "COLUMN",
         .help = "of Parquet tables: the column of images"},
        {.name = "json", .target = &c.json, .help = "print JSON (see headrace-cache(1))"},
        {.name = "no-progress", .target = &c.no_progress, .help = "draw no progress bar"},
        {.name = "verbose", .target = &c.verbose, .help = "print more on standard error"},
    };
    const struct cli_syntax syntax = {
        .verb = c.verb,
        .arguments = "SPEC DATASET [options]",
        .text = "Fills a kept cache before the first run. SPEC is the text that the run will use,\n"
                "shm:NAME?size=64GiB or disk:/DIRECTORY?size=1TiB; put it in quotes. To continue\n"
                "after an interruption, run the same command again.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 2,
        .example = "  headrace cache warm 'shm:imagenet?size=64GiB' /data/train",
    };
    return run(&c, cli_parse(&syntax, argc, argv, c.arguments));
}

/* ---- verify ---- */

static int run_verify(struct cache_command *c)
{
    struct hr_cache_verify_report report = {.size = sizeof report};
    struct cli_progress progress;
    struct hr_error error = {0};
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    cli_progress_init(&progress, c->no_progress);
    int r =
        hr_cache_verify(c->arguments[0], c->jobs, cli_progress_call, &progress, &report, &error);
    cli_progress_clear(&progress);
    if (r && cli_interrupted()) {
        cli_complain(c->verb, "interrupted");
        return CLI_INTERRUPTED;
    }
    if (r)
        return cli_failed(c->verb, r, &error, "");
    int status = report.bad ? CLI_PROBLEM : CLI_OK;
    if (c->json)
        return cli_print_json(c->verb,
                              json_pack("{s:i, s:I, s:I, s:I, s:I}", "layout", 1, "items",
                                        (json_int_t)report.items, "bytes", (json_int_t)report.bytes,
                                        "bad", (json_int_t)report.bad, "skipped",
                                        (json_int_t)report.skipped),
                              0, status);
    printf("%s: %s items were read, %s\n", c->arguments[0], text_count(a, report.items),
           text_bytes(b, report.bytes));
    if (report.bad)
        printf("  %s were bad and dropped; they are read from their source again: check the disk\n",
               text_count(a, report.bad));
    if (report.skipped)
        printf("  %s items were made with a key file: add &key_file=PATH\n",
               text_count(a, report.skipped));
    return cli_finish(c->verb, status);
}

static int cache_verify(int argc, char **argv)
{
    struct cache_command c = {.verb = "cache verify", .run = run_verify};
    const struct cli_option options[] = {
        {.name = "jobs",
         .kind = CLI_NUMBER,
         .target = &c.jobs,
         .value = "N",
         .least = 1,
         .most = 256,
         .help = "threads that read (default: the cores)"},
        {.name = "json", .target = &c.json, .help = "print JSON (see headrace-cache(1))"},
        {.name = "no-progress", .target = &c.no_progress, .help = "draw no progress bar"},
        {.name = "verbose", .target = &c.verbose, .help = "print more on standard error"},
    };
    const struct cli_syntax syntax = {
        .verb = c.verb,
        .arguments = "disk:/DIRECTORY [options]",
        .text = "Reads all items of a cache on a disk and compares them with their checksums. Bad\n"
                "items are dropped; their samples are read from their source again. The exit\n"
                "status is 1 if there are any.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .example = "  headrace cache verify disk:/nvme/headrace",
    };
    return run(&c, cli_parse(&syntax, argc, argv, c.arguments));
}

/* ---- servers ---- */

static int run_servers(struct cache_command *c)
{
    struct hr_cache_servers *servers;
    struct hr_error error = {0};
    int problems = 0;
    int r = hr_cache_servers_create(&servers, c->arguments[0], &error);
    if (r)
        return cli_failed(c->verb, r, &error, "");
    json_t *root = NULL;
    if (c->json)
        root = cache_servers_json(servers, &problems);
    else
        problems = cache_servers_print(servers);
    hr_cache_servers_destroy(&servers);
    int status = problems ? CLI_PROBLEM : CLI_OK;
    return c->json ? cli_print_json(c->verb, root, 0, status) : cli_finish(c->verb, status);
}

static int cache_servers(int argc, char **argv)
{
    struct cache_command c = {.verb = "cache servers", .run = run_servers, .is_quiet = 1};
    struct cli_syntax syntax = {
        .arguments = "SPEC [options]",
        .text = "Checks the memcached servers of several hosts: whether they answer, how much\n"
                "memory they have, and whether they were started with the right options. SPEC is\n"
                "the text that the run will use; put it in quotes. The exit status is 1 if there\n"
                "is a problem.",
        .positional = 1,
        .example = "  headrace cache servers 'memcached:node1,node2?size=48GiB'",
    };
    return run(&c, parse_plain(&c, &syntax, argc, argv));
}

/* ---- the table of verbs ---- */

static const struct cli_verb verbs[] = {
    {"list", "", "list all caches", cache_list},
    {"info", "[NAME [DATASET]]", "describe a cache", cache_info},
    {"warm", "SPEC DATASET", "fill a cache before the first run", cache_warm},
    {"drop", "NAME", "drop a cache and free its memory", cache_drop},
    {"verify", "disk:/DIRECTORY", "read and check all items of a cache on a disk", cache_verify},
    {"servers", "SPEC", "check the memcached servers of several hosts", cache_servers},
};

int cmd_cache(int argc, char **argv)
{
    const struct cli_verbs all = {
        .of = "cache",
        .text = "Lists, describes, fills and drops caches, which keep samples in memory or on a\n"
                "disk between epochs, processes and runs.",
        .verbs = verbs,
        .count = (int)(sizeof verbs / sizeof *verbs),
        .example = "headrace cache info imagenet",
    };
    return cli_choose(&all, argc, argv);
}
