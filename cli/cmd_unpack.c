/* headrace unpack: writes the images of a pack as files into a directory. */
#include "cli.h"
#include "options.h"
#include "pack_report.h"
#include "progress.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct unpack_command {
    int jobs, force, on_error, json, no_progress;
    const char *paths[2]; /* PACK DIR */
};

static int parse(struct unpack_command *c, int argc, char **argv)
{
    static const char *const policies[] = {"raise", "skip", NULL};
    const struct cli_option options[] = {
        {.name = "jobs",
         .kind = CLI_NUMBER,
         .target = &c->jobs,
         .value = "N",
         .least = 1,
         .most = 256,
         .help = "number of threads (default: the cores)"},
        {.name = "force", .target = &c->force, .help = "replace files that exist"},
        {.name = "on-error",
         .kind = CLI_CHOICE,
         .target = &c->on_error,
         .value = "raise|skip",
         .choices = policies,
         .help = "an image that is damaged in the pack ends the run\n"
                 "(default), or is left out and listed"},
        {.name = "json", .target = &c->json, .help = "print JSON (see headrace-unpack(1))"},
        {.name = "no-progress", .target = &c->no_progress, .help = "draw no progress bar"},
    };
    const struct cli_syntax syntax = {
        .verb = "unpack",
        .arguments = "PACK DIR [options]",
        .text = "Writes every sample of a pack below DIR, at the path that it had in the\n"
                "dataset: coefficients as JPEG files with the same coefficients, planes as PNG\n"
                "files, waveforms as WAV files, all others (masks, too) unchanged. Progressive\n"
                "images that were indexed become baseline JPEG files with the same coefficients.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 2,
        .example = "  headrace unpack train.hrpack /data/train-again",
    };
    return cli_parse(&syntax, argc, argv, c->paths);
}

static int run(const struct unpack_command *c, struct pack_report *report,
               struct cli_progress *progress, struct hr_error *error)
{
    struct hr_dataset *dataset = NULL;
    struct hr_pack_options options;
    struct pack_meter meter = {0};
    hr_pack_options_default(&options);
    options.threads = c->jobs;
    options.overwrite = c->force;
    options.on_error = (enum hr_on_error)c->on_error;
    options.progress = cli_progress_call;
    options.progress_arg = progress;
    options.notice = pack_report_notice;
    options.notice_arg = report;
    int r = hr_dataset_open_pack(&dataset, c->paths[0], NULL, error);
    if (r)
        return r;
    meter.dataset = dataset;
    progress->bytes = pack_meter_bytes;
    progress->bytes_arg = &meter;
    r = hr_pack_unpack(c->paths[0], c->paths[1], &options, &report->result, error);
    hr_dataset_unref(&dataset);
    return r;
}

static int failed(int code, const struct hr_error *error)
{
    if (cli_interrupted()) {
        cli_complain("unpack", "interrupted; to start over, give the same command with --force");
        return CLI_INTERRUPTED;
    }
    return cli_failed("unpack", code, error, code == -EEXIST ? "; --force replaces it" : "");
}

static void print_text(const struct unpack_command *c, const struct pack_report *report)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    char *directory = text_escape(c->paths[1]);
    printf("%s: %s %s, %s\n", directory ? directory : "?", text_count(a, report->result.samples),
           report->result.samples == 1 ? "image file" : "image files",
           text_bytes(b, report->result.pack_bytes));
    free(directory);
    if (report->result.rows_bytes)
        printf("  The pack's rows (boxes, labels and the like) are not written: open the pack for "
               "them.\n");
    if (report->bad.count) {
        printf("\n%s left out, damaged in the pack:\n", text_count(a, report->bad.count));
        summary_bads_print(&report->bad, report->bad.count);
    }
}

int cmd_unpack(int argc, char **argv)
{
    struct unpack_command c = {0};
    struct pack_report report = {.verb = "unpack", .result.size = sizeof report.result};
    struct cli_progress progress;
    struct hr_error error = {0};
    int status = parse(&c, argc, argv);
    if (status >= 0)
        return status;
    cli_progress_init(&progress, c.no_progress);
    int r = run(&c, &report, &progress, &error);
    cli_progress_clear(&progress);
    if (!r && report.out_of_memory)
        r = -ENOMEM;
    status = report.bad.count ? CLI_PROBLEM : CLI_OK;
    report.path = c.paths[0];
    if (r) {
        status = failed(r, &error);
    } else if (c.json) {
        status = cli_print_json("unpack", pack_report_json(&report), 0, status);
    } else {
        print_text(&c, &report);
        status = cli_finish("unpack", status);
    }
    pack_report_clear(&report);
    return status;
}
