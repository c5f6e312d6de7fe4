/*
 * headrace scan: opens a dataset as training would and reports its contents. With --verify,
 * decodes every image.
 */
#include "cli.h"
#include "options.h"
#include "progress.h"
#include "summary.h"

#include <errno.h>
#include <stdlib.h>

struct scan_options {
    int json, verify, threads, index, classes, sounds, keypoints, no_progress, verbose;
    const char *label, *image, *coco; /* NULL: not given */
};

static int parse(struct scan_options *o, int argc, char **argv, const char **path)
{
    /* in the order of enum hr_index_policy */
    static const char *const policies[] = {"user", "beside", "none", NULL};
    const struct cli_option options[] = {
        {.name = "verify",
         .target = &o->verify,
         .help = "read and decode every image; list the bad ones"},
        {.name = "classes", .target = &o->classes, .help = "list every class, by label"},
        {.name = "sounds",
         .target = &o->sounds,
         .help = "the samples are sounds (default: if there is no image)"},
        {.name = "json", .target = &o->json, .help = "print JSON (see headrace-scan(1))"},
        {.name = "threads",
         .kind = CLI_NUMBER,
         .target = &o->threads,
         .value = "N",
         .least = 1,
         .most = 256,
         .help = "number of threads (default: 16 to examine files, the\ncores to decode them)"},
        {.name = "index",
         .kind = CLI_CHOICE,
         .target = &o->index,
         .value = "user|beside|none",
         .choices = policies,
         .help = "where to keep the index for the next scan or run: in\n"
                 "the user's cache directory (default), in the\n"
                 "dataset's, or nowhere (every file is examined again)"},
        {.name = "label",
         .kind = CLI_TEXT,
         .text = &o->label,
         .value = "FIELD",
         .help = "of tar files: the field with the label: cls,\njson:class_id, ...; of Parquet "
                 "tables: the column;\nnone: there is none"},
        {.name = "image",
         .kind = CLI_TEXT,
         .text = &o->image,
         .value = "COLUMN",
         .help = "of Parquet tables: the column of images"},
        {.name = "coco",
         .kind = CLI_TEXT,
         .text = &o->coco,
         .value = "FILE",
         .help = "PATH is a folder of images, and FILE a COCO file\nwith their boxes and labels"},
        {.name = "keypoints", .target = &o->keypoints, .help = "with --coco: read key points, too"},
        {.name = "no-progress", .target = &o->no_progress, .help = "draw no progress bar"},
        {.name = "verbose", .target = &o->verbose, .help = "print more on standard error"},
    };
    const struct cli_syntax syntax = {
        .verb = "scan",
        .arguments = "PATH [options]",
        .text = "Reports the contents of a dataset (classes, images, their sizes; of sounds,\n"
                "formats, rates, channels and lengths) and its problems. PATH is a folder with\n"
                "one directory per class, a list of lines \"path<TAB>label\", tar files, Parquet\n"
                "tables, a pack, or with --coco a folder of images.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .example = "  headrace scan /data/train                its contents\n"
                   "  headrace scan /data/train --verify       and its damaged images\n"
                   "  headrace scan val.txt --json             a list, for a program\n"
                   "  headrace scan --coco train.json images   images with boxes",
    };
    int status = cli_parse(&syntax, argc, argv, path);
    if (status >= 0)
        return status;
    if (o->coco && (o->label || o->image || o->sounds))
        cli_complain("scan",
                     "--coco is for a folder of images, --label, --image and --sounds are not");
    else if (o->keypoints && !o->coco)
        cli_complain("scan", "--keypoints needs --coco");
    else
        return status;
    return CLI_USAGE;
}

/* Logs warnings always, other levels with --verbose. Any thread calls it, so it writes once. */
static int failed(struct cli_progress *progress, int code, const struct hr_error *error)
{
    cli_progress_clear(progress);
    if (cli_interrupted()) {
        cli_complain("scan", "interrupted");
        return CLI_INTERRUPTED;
    }
    return cli_failed("scan", code, error, "");
}

/* Reads what the sounds are from their headers. */
static int survey(struct summary *summary, struct hr_dataset *dataset, const struct scan_options *o,
                  struct cli_progress *progress, struct hr_error *error)
{
    size_t count = hr_dataset_count(dataset);
    struct hr_sound_info *infos = calloc(count + 1, sizeof *infos);
    int r = infos
                ? hr_dataset_sounds(dataset, o->threads, cli_progress_call, progress, infos, error)
                : -ENOMEM;
    if (!r)
        r = summary_add_sounds(summary, dataset, infos);
    free(infos);
    return r;
}

static int open_dataset(struct hr_dataset **dataset, const char *path, const struct scan_options *o,
                        struct cli_progress *progress, struct hr_error *error)
{
    struct hr_dataset_options options;
    struct hr_coco_options coco;
    hr_dataset_options_default(&options);
    options.index = (enum hr_index_policy)o->index;
    options.threads = o->threads;
    options.label = o->label;
    options.image = o->image;
    options.media = o->sounds ? HR_MEDIA_SOUNDS : HR_MEDIA_ANY;
    options.wait_sizes = 1;
    options.allow_empty_classes = 1; /* to be reported, not a failure */
    options.progress = cli_progress_call;
    options.progress_arg = progress;
    if (!o->coco)
        return hr_dataset_open(dataset, path, &options, error);
    hr_coco_options_default(&coco);
    coco.keypoints = o->keypoints;
    coco.progress = cli_progress_call;
    coco.progress_arg = progress;
    return hr_dataset_open_coco(dataset, path, o->coco, &coco, error);
}

static int collect(struct summary *summary, const char *path, const struct scan_options *o,
                   struct cli_progress *progress, struct hr_error *error)
{
    struct hr_dataset *dataset = NULL;
    struct hr_verify_report *report = NULL;
    int r = open_dataset(&dataset, path, o, progress, error);
    if (!r)
        r = summary_make(summary, path, dataset);
    if (!r && summary->is_sound)
        r = survey(summary, dataset, o, progress, error);
    if (!r && o->verify)
        r = hr_dataset_verify(dataset, o->threads, cli_progress_call, progress, &report, error);
    if (!r && report)
        r = summary_add_report(summary, report);
    if (!r)
        hr_dataset_get_info(dataset, &summary->info); /* the requests of all that */
    hr_verify_report_destroy(&report);
    hr_dataset_unref(&dataset);
    return r;
}

int cmd_scan(int argc, char **argv)
{
    struct scan_options o = {0};
    struct summary summary = {0};
    struct cli_progress progress;
    struct hr_error error = {0};
    const char *path = NULL;
    int status = parse(&o, argc, argv, &path);
    if (status >= 0)
        return status;
    cli_progress_init(&progress, o.no_progress);
    struct cli_log log = {.verb = "scan", .verbose = &o.verbose};
    hr_log_set(cli_log_line, &log);
    int r = collect(&summary, path, &o, &progress, &error);
    if (r || cli_interrupted()) {
        status = failed(&progress, r, &error);
        goto done;
    }
    cli_progress_clear(&progress);
    status = summary_has_problem(&summary) ? CLI_PROBLEM : CLI_OK;
    if (o.json) {
        status = cli_print_json("scan", summary_json(&summary), 0, status);
    } else {
        summary_print(&summary, o.classes);
        status = cli_finish("scan", status);
    }
done:
    hr_log_set(NULL, NULL);
    summary_clear(&summary);
    return status;
}
