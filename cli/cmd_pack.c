/*
 * headrace pack: writes a dataset into one file that decodes fast. With --verify or --info,
 * inspects such a file.
 */
#include "cli.h"
#include "options.h"
#include "pack_report.h"
#include "progress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct pack_command {
    int form; /* enum hr_form; HR_FORMS: auto */
    int jobs, restart, force, on_error, trust, verify, info, json, no_progress, verbose;
    int sounds;
    int mono, rate; /* of waveforms; rate 0: not given */
    double max_growth;
    int keypoints;
    const char *label, *image, *coco, *staging; /* NULL: not given */
    const char *paths[2];                       /* SRC DST, or PACK */
};

static int parse(struct pack_command *c, int argc, char **argv)
{
    const char *forms[HR_FORMS + 2] = {[HR_FORMS] = "auto"};
    static const char *const policies[] = {"raise", "skip", NULL};
    const struct cli_option options[] = {
        {.name = "form",
         .kind = CLI_CHOICE,
         .target = &c->form,
         .value = "coefficients|planes|indexed|encoded|waveform|waveform16|auto",
         .choices = forms,
         .help = "how the images are stored (default: coefficients);\nof sounds: encoded (default) "
                 "or waveform"},
        {.name = "sounds",
         .target = &c->sounds,
         .help = "the samples of SRC are sounds (default: if there is\nno image)"},
        {.name = "mono", .target = &c->mono, .help = "waveforms: mix the channels to one"},
        {.name = "rate",
         .kind = CLI_NUMBER,
         .target = &c->rate,
         .value = "HZ",
         .least = HR_SOUND_MIN_RATE,
         .most = HR_SOUND_MAX_RATE,
         .help = "waveforms: resample to so many frames a second"},
        {.name = "jobs",
         .kind = CLI_NUMBER,
         .target = &c->jobs,
         .value = "N",
         .least = 1,
         .most = 256,
         .help = "threads that convert (default: the cores)"},
        {.name = "max-growth",
         .kind = CLI_REAL,
         .real = &c->max_growth,
         .value = "X",
         .least = 1,
         .help = "store an image unchanged if its item would take\nmore than X times its bytes"},
        {.name = "label",
         .kind = CLI_TEXT,
         .text = &c->label,
         .value = "FIELD",
         .help = "of tar files: the field with the label: cls,\njson:class_id, ...; of Parquet "
                 "tables: the column;\nnone: there is none"},
        {.name = "image",
         .kind = CLI_TEXT,
         .text = &c->image,
         .value = "COLUMN",
         .help = "of Parquet tables: the column of images"},
        {.name = "coco",
         .kind = CLI_TEXT,
         .text = &c->coco,
         .value = "FILE",
         .help =
             "COCO annotations of the images in the folder SRC:\nthe pack keeps boxes and labels"},
        {.name = "keypoints", .target = &c->keypoints, .help = "with --coco: keep key points, too"},
        {.name = "on-error",
         .kind = CLI_CHOICE,
         .target = &c->on_error,
         .value = "raise|skip",
         .choices = policies,
         .help = "a bad image ends the run (default), or is stored\nunchanged and listed"},
        {.name = "restart",
         .target = &c->restart,
         .help = "discard an unfinished DST.partial instead of\ncontinuing it"},
        {.name = "force", .target = &c->force, .help = "replace DST if it exists"},
        {.name = "trust",
         .target = &c->trust,
         .help = "do not decode each image to compare it with\nlibjpeg-turbo"},
        {.name = "staging",
         .kind = CLI_TEXT,
         .text = &c->staging,
         .value = "DIR",
         .help = "DST is a URL: where the bytes that are not sent yet\nare kept (default: "
                 "~/.cache/headrace/upload)"},
        {.name = "verify", .target = &c->verify, .help = "check PACK: every checksum, every image"},
        {.name = "info", .target = &c->info, .help = "describe the contents of PACK"},
        {.name = "json", .target = &c->json, .help = "print JSON (see headrace-pack(1))"},
        {.name = "no-progress", .target = &c->no_progress, .help = "draw no progress bar"},
        {.name = "verbose",
         .target = &c->verbose,
         .help = "also list the images that stay unchanged"},
    };
    const struct cli_syntax syntax = {
        .verb = "pack",
        .arguments = "SRC DST.hrpack [options]\n"
                     "       headrace pack --verify|--info PACK",
        .text = "Writes a dataset (a folder, a list, tar files, Parquet tables) into one file\n"
                "that opens at once and decodes several times faster, with the same pixels. To\n"
                "continue after an interruption or a kill, run the same command again. SRC and\n"
                "DST may be URLs of a bucket (s3://BUCKET/KEY).",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .optional = 1,
        .example = "  headrace pack /data/train train.hrpack     about 1.12 times the bytes\n"
                   "  headrace pack --verify train.hrpack        check it\n"
                   "  headrace pack --form waveform --rate 16000 --mono /data/speech speech.hrpack",
    };
    for (int form = 0; form < HR_FORMS; form++)
        forms[form] = hr_form_name((enum hr_form)form);
    int r = cli_parse(&syntax, argc, argv, c->paths);
    if (r >= 0)
        return r;
    if (c->verify && c->info)
        cli_complain("pack", "give either --verify or --info, not both");
    else if ((c->verify || c->info) && c->paths[1])
        cli_complain("pack", "--%s takes one pack; %s is one argument too many",
                     c->verify ? "verify" : "info", c->paths[1]);
    else if (c->coco && (c->label || c->image || c->sounds))
        cli_complain("pack",
                     "--coco is for a folder of images, --label, --image and --sounds are not");
    else if (c->keypoints && !c->coco)
        cli_complain("pack", "--keypoints needs --coco");
    else if (!c->verify && !c->info && !c->paths[1])
        cli_complain("pack", "DST is missing; usage: headrace pack SRC DST.hrpack");
    else
        return -1;
    return CLI_USAGE;
}

static int open_coco(const struct pack_command *c, struct cli_progress *progress,
                     struct hr_dataset **dataset, struct hr_error *error)
{
    struct hr_coco_options options;
    hr_coco_options_default(&options);
    options.keypoints = c->keypoints;
    options.progress = cli_progress_call;
    options.progress_arg = progress;
    return hr_dataset_open_coco(dataset, c->paths[0], c->coco, &options, error);
}

static int open_source(const struct pack_command *c, struct cli_progress *progress,
                       struct hr_dataset **dataset, struct hr_error *error)
{
    struct hr_dataset_options options;
    if (c->coco)
        return open_coco(c, progress, dataset, error);
    hr_dataset_options_default(&options);
    options.allow_empty_classes = 1; /* a class without images is a class */
    options.media = c->sounds ? HR_MEDIA_SOUNDS : HR_MEDIA_ANY;
    options.label = c->label;
    options.image = c->image;
    options.progress = cli_progress_call;
    options.progress_arg = progress;
    return hr_dataset_open(dataset, c->paths[0], &options, error);
}

static int write_pack(const struct pack_command *c, struct pack_report *report,
                      struct cli_progress *progress, struct hr_error *error)
{
    struct hr_dataset *dataset = NULL;
    struct hr_pack_options options;
    struct pack_meter meter = {0};
    hr_pack_options_default(&options);
    options.form = c->form == HR_FORMS ? HR_FORM_AUTO : c->form;
    options.head.mono = c->mono;
    options.head.rate = c->rate;
    options.threads = c->jobs;
    options.trust = c->trust;
    options.staging = c->staging;
    options.max_growth = c->max_growth;
    options.restart = c->restart;
    options.overwrite = c->force;
    options.on_error = (enum hr_on_error)c->on_error;
    options.progress = cli_progress_call;
    options.progress_arg = progress;
    options.notice = pack_report_notice;
    options.notice_arg = report;
    report->path = c->paths[1];
    report->verb = "pack";
    int r = open_source(c, progress, &dataset, error);
    if (!r) {
        double began = cli_now();
        meter.dataset = dataset;
        progress->bytes = pack_meter_bytes;
        progress->bytes_arg = &meter;
        r = hr_pack_write(dataset, c->paths[1], &options, &report->result, error);
        report->seconds = cli_now() - began;
    }
    hr_dataset_unref(&dataset);
    return r;
}

static int look_into(const struct pack_command *c, struct pack_report *report,
                     struct cli_progress *progress, struct hr_error *error)
{
    struct hr_verify_report *found = NULL;
    report->path = c->paths[0];
    report->verb = c->verify ? "verify" : "info";
    int r = hr_pack_inspect(c->paths[0], &report->result, error);
    if (!r && c->verify)
        r = hr_pack_verify(c->paths[0], c->jobs, cli_progress_call, progress, &found, error);
    if (!r && found && summary_bads_take(&report->bad, found))
        r = -ENOMEM;
    hr_verify_report_destroy(&found);
    return r;
}

/* Returns a hint at the option that remedies an error; "": none. */
static const char *remedy(int code, const char *message)
{
    if (code == -EEXIST)
        return "; --force replaces it";
    if (code == -ESTALE || strstr(message, "restart it"))
        return "; --restart starts over";
    return "";
}

static int failed(const struct pack_command *c, int code, const struct hr_error *error)
{
    if (cli_interrupted()) {
        cli_complain("pack", "interrupted%s",
                     c->paths[1] ? "; run the same command again to continue" : "");
        return CLI_INTERRUPTED;
    }
    return cli_failed("pack", code, error, remedy(code, error->message));
}

static int print(const struct pack_command *c, const struct pack_report *report)
{
    int status = report->bad.count ? CLI_PROBLEM : CLI_OK;
    if (c->json)
        return cli_print_json("pack", pack_report_json(report), 0, status);
    pack_report_print(report);
    if (c->verbose && report->kept.count) {
        printf("\nStored unchanged (the first ones):\n");
        summary_bads_print(&report->kept, report->kept.count);
    }
    if (c->verify && !report->bad.count)
        printf("\nEvery checksum is correct and every %s decodes.\n",
               report->result.media == HR_MEDIA_SOUNDS ? "sound" : "image");
    return cli_finish("pack", status);
}

int cmd_pack(int argc, char **argv)
{
    struct pack_command c = {.form = HR_FORM_COEFFICIENTS};
    struct pack_report report = {.result.size = sizeof report.result};
    struct cli_progress progress;
    struct hr_error error = {0};
    int status = parse(&c, argc, argv);
    if (status >= 0)
        return status;
    cli_progress_init(&progress, c.no_progress);
    struct cli_log log = {.verb = "pack", .verbose = &c.verbose};
    hr_log_set(cli_log_line, &log);
    int r = c.verify || c.info ? look_into(&c, &report, &progress, &error)
                               : write_pack(&c, &report, &progress, &error);
    cli_progress_clear(&progress);
    if (!r && report.out_of_memory)
        r = -ENOMEM;
    status = r ? failed(&c, r, &error) : print(&c, &report);
    hr_log_set(NULL, NULL);
    pack_report_clear(&report);
    return status;
}
