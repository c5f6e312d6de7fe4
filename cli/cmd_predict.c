/*
 * headrace predict: predicts how a change (cores, memory, disk, device or loader) would affect a
 * training run that headrace stalls has measured.
 */
#include "cli.h"
#include "options.h"
#include "predict_report.h"
#include "predict_values.h"
#include "stalls_result.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define VERB "predict"

/* Options with values. One of them may be given as a series. */
enum axis {
    AXIS_CACHE,
    AXIS_SHARE,
    AXIS_CORES,
    AXIS_STORAGE,
    AXIS_SPEEDUP,
    AXIS_GPUS,
    AXIS_WORKERS,
    AXES
};

static const struct {
    const char *name, *words; /* words: printed before or after the value */
    enum predict_kind kind;
    int behind;
} axes[AXES] = {
    {"cache", "a cache of", PREDICT_SIZE, 0},
    {"cache-share", "of the dataset cached", PREDICT_SHARE, 1},
    {"cores", "cores", PREDICT_COUNT, 1},
    {"storage", "storage", PREDICT_SPEED, 0},
    {"gpu-speedup", "device", PREDICT_TIMES, 0},
    {"gpus", "GPUs", PREDICT_COUNT, 1},
    {"workers", "workers", PREDICT_COUNT, 1},
};

struct predict_command {
    const char *path, *text[AXES];
    struct predict_values values[AXES];
    int page_cache, loader, form, json; /* form: 0 auto, else 1 + enum hr_form */
    double stall;
    int varied; /* an axis; -1: none */
    char what[256];
};

static int failed(int code, const struct hr_error *error)
{
    cli_failed(VERB, code, error, "");
    return code == -EINVAL ? CLI_USAGE : CLI_FAILED;
}

/* ---- the command line ---- */

static int parse(struct predict_command *c, int argc, char **argv)
{
    static const char *const loaders[] = {"same", "headrace", NULL};
    const char *forms[HR_FORMS + 2] = {"auto"};
    const struct cli_option options[] = {
        {.name = "cache",
         .kind = CLI_TEXT,
         .text = &c->text[AXIS_CACHE],
         .value = "SIZE",
         .help = "a cache of SIZE (64GiB) that never evicts"},
        {.name = "cache-share",
         .kind = CLI_TEXT,
         .text = &c->text[AXIS_SHARE],
         .value = "X",
         .help = "the same, as a share (0..1) of the dataset"},
        {.name = "page-cache",
         .target = &c->page_cache,
         .help = "the cache is the kernel's page cache, which evicts\nfiles that the epoch still "
                 "needs"},
        {.name = "cores",
         .kind = CLI_TEXT,
         .text = &c->text[AXIS_CORES],
         .value = "N",
         .help = "cores of each host"},
        {.name = "workers",
         .kind = CLI_TEXT,
         .text = &c->text[AXIS_WORKERS],
         .value = "N",
         .help = "workers of each rank's loader"},
        {.name = "storage",
         .kind = CLI_TEXT,
         .text = &c->text[AXIS_STORAGE],
         .value = "SPEED",
         .help = "storage of each host: 2GB/s, or x2 (a factor of the\nmeasured speed)"},
        {.name = "gpu-speedup",
         .kind = CLI_TEXT,
         .text = &c->text[AXIS_SPEEDUP],
         .value = "X",
         .help = "steps take 1/X of the time"},
        {.name = "gpus",
         .kind = CLI_TEXT,
         .text = &c->text[AXIS_GPUS],
         .value = "N",
         .help = "ranks of all hosts together"},
        {.name = "loader",
         .kind = CLI_CHOICE,
         .target = &c->loader,
         .choices = loaders,
         .value = "same|headrace",
         .help = "Headrace's loader instead of the script's"},
        {.name = "form",
         .kind = CLI_CHOICE,
         .target = &c->form,
         .choices = forms,
         .value = "auto|encoded|indexed|coefficients|planes|waveform",
         .help = "form of the items in its cache; auto (default): the\nfastest"},
        {.name = "stall",
         .kind = CLI_REAL,
         .real = &c->stall,
         .value = "X",
         .help = "share of waiting that suggestions may leave\n(default: 0.02)"},
        {.name = "json", .target = &c->json, .help = "print JSON (see headrace-predict(1))"},
    };
    const struct cli_syntax syntax = {
        .verb = VERB,
        .arguments = "RESULT [changes]",
        .text = "Predicts the effect of changes on a run that headrace stalls has measured: the\n"
                "speed, the share of waiting, and the cheapest change that ends the waiting.\n"
                "RESULT is its stalls.json, or the folder of that file. One of the values may be\n"
                "a list (1,2,4) or a range (1..16); the output is then a table with a curve.",
        .options = options,
        .option_count = (int)(sizeof options / sizeof *options),
        .positional = 1,
        .example = "  headrace predict headrace-stalls --cores 16 --storage x2\n"
                   "  headrace predict headrace-stalls --cache-share 0..1",
    };
    for (int form = 0; form < HR_FORMS; form++)
        forms[1 + form] = hr_form_name((enum hr_form)form);
    return cli_parse(&syntax, argc, argv, &c->path);
}

static void add_words(struct predict_command *c, const char *format, const char *a, const char *b)
{
    size_t used = strlen(c->what);
    if (used)
        used += (size_t)snprintf(c->what + used, sizeof c->what - used, ", ");
    if (used < sizeof c->what)
        snprintf(c->what + used, sizeof c->what - used, format, a, b);
}

/* Reads the values and finds the option with a series. Returns -1 to go on. */
static int read_values(struct predict_command *c)
{
    char value[32];
    c->varied = -1;
    for (int i = 0; i < AXES; i++) {
        const char *problem;
        struct predict_values *v = &c->values[i];
        if (!c->text[i])
            continue;
        if (predict_values_parse(v, axes[i].kind, c->text[i], &problem)) {
            cli_complain(VERB, "--%s %s: %s", axes[i].name, c->text[i], problem);
            return CLI_USAGE;
        }
        if (v->count > 1 && c->varied >= 0) {
            cli_complain(VERB, "--%s and --%s both have several values: only one option may",
                         axes[c->varied].name, axes[i].name);
            return CLI_USAGE;
        }
        if (v->count > 1)
            c->varied = i;
        predict_value_print(value, axes[i].kind, v->value[0], v->times[0]);
        if (v->count == 1)
            add_words(c, "%s %s", axes[i].behind ? value : axes[i].words,
                      axes[i].behind ? axes[i].words : value);
    }
    if (c->page_cache)
        add_words(c, "%s%s", "the kernel's page cache", "");
    if (c->form && !c->loader) {
        cli_complain(VERB, "--form is for Headrace's loader: give --loader headrace, too");
        return CLI_USAGE;
    }
    if (c->loader)
        add_words(c, "Headrace's loader%s%s", c->form ? ", form " : "",
                  c->form ? hr_form_name((enum hr_form)(c->form - 1)) : "");
    return -1;
}

/* ---- predicting ---- */

static void set_axis(struct hr_stalls_change *change, enum axis axis, double value, int times)
{
    if (axis == AXIS_CACHE)
        change->cache_bytes = (uint64_t)value;
    else if (axis == AXIS_SHARE)
        change->cache_share = value;
    else if (axis == AXIS_CORES)
        change->cores = (int)value;
    else if (axis == AXIS_STORAGE && times)
        change->storage_factor = value;
    else if (axis == AXIS_STORAGE)
        change->storage_bytes_per_s = value;
    else if (axis == AXIS_SPEEDUP)
        change->device_speedup = value;
    else if (axis == AXIS_GPUS)
        change->ranks = (int)value;
    else
        change->workers = (int)value;
}

static struct hr_stalls_change change_of(const struct predict_command *c, int number)
{
    struct hr_stalls_change change;
    hr_stalls_change_default(&change);
    change.page_cache = c->page_cache;
    change.loader = c->loader ? HR_STALLS_LOADER_HEADRACE : HR_STALLS_LOADER_SAME;
    change.form = c->form ? c->form - 1 : HR_FORM_AUTO;
    for (int i = 0; i < AXES; i++) {
        const struct predict_values *v = &c->values[i];
        int k = i == c->varied ? number : 0;
        if (v->count)
            set_axis(&change, (enum axis)i, v->value[k], v->times[k]);
    }
    return change;
}

static int predict(const struct hr_stalls *stalls, struct predict_point *point,
                   struct hr_error *error)
{
    point->prediction = (struct hr_stalls_prediction){.size = sizeof point->prediction};
    return hr_stalls_predict(stalls, &point->change, &point->prediction, error);
}

static int fill(const struct predict_command *c, const struct hr_stalls *stalls,
                struct predict_report *report, struct hr_error *error)
{
    int changed = c->what[0] || c->varied >= 0;
    report->count = c->varied >= 0 ? c->values[c->varied].count : changed;
    hr_stalls_change_default(&report->now.change);
    int r = predict(stalls, &report->now, error);
    for (int i = 0; i < report->count && !r; i++) {
        struct predict_point *point = &report->points[i];
        const struct predict_values *v = &c->values[c->varied < 0 ? 0 : c->varied];
        if (c->varied >= 0)
            predict_value_print(point->label, axes[c->varied].kind, v->value[i], v->times[i]);
        point->change = change_of(c, i);
        r = predict(stalls, point, error);
    }
    if (r)
        return r;
    report->suggestions->size = sizeof *report->suggestions;
    r = hr_stalls_suggest(stalls, c->stall, report->suggestions, PREDICT_MOST_SUGGESTIONS, error);
    if (r == -ENODATA) {
        snprintf(report->unknown, sizeof report->unknown, "%s", error->message);
        r = 0;
    }
    if (r < 0)
        return r;
    /* The suggestion "nothing" is not a change. */
    report->suggestion_count = r && strcmp(report->suggestions->text, "nothing") ? r : 0;
    return 0;
}

static int run(const struct predict_command *c)
{
    struct predict_point points[PREDICT_MOST_VALUES] = {0};
    struct predict_report report = {.path = c->path,
                                    .what = c->what,
                                    .varied = c->varied >= 0 ? axes[c->varied].name : NULL,
                                    .stall = c->stall,
                                    .points = points};
    struct hr_stalls *stalls = NULL;
    struct hr_error error = {0};
    int r = stalls_result_read(&stalls, c->path, &error);
    if (r) {
        failed(r, &error);
        return CLI_FAILED;
    }
    r = fill(c, stalls, &report, &error);
    hr_stalls_destroy(&stalls);
    if (r)
        return failed(r, &error);
    if (c->json)
        return cli_print_json(VERB, predict_report_json(&report), 7, CLI_OK);
    predict_report_print(&report);
    return cli_finish(VERB, CLI_OK);
}

int cmd_predict(int argc, char **argv)
{
    struct predict_command c = {.stall = 0.02};
    int r = parse(&c, argc, argv);
    if (r < 0)
        r = read_values(&c);
    if (r >= 0)
        return r;
    if (c.stall > 1) {
        cli_complain(VERB, "--stall %g: it must be a share from 0 to 1", c.stall);
        return CLI_USAGE;
    }
    return run(&c);
}
