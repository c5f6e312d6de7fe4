/*
 * Prints predictions as text of at most 80 columns and as JSON; see predict_report.h. The present
 * and the predicted figures stand side by side; a series becomes a table with a bar for each rate.
 * An asterisk marks predictions beyond the measured machine.
 */
#include "predict_report.h"

#include "text.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BAR 18

/* ---- text ---- */

static const char *rate(char out[TEXT_NUMBER], double value)
{
    if (isnan(value))
        snprintf(out, TEXT_NUMBER, "-");
    else if (value >= 1e15)
        snprintf(out, TEXT_NUMBER, "unlimited");
    else if (value >= 99.95)
        text_count(out, (uint64_t)(value + 0.5));
    else
        snprintf(out, TEXT_NUMBER, value >= 9.995 ? "%.1f" : "%.2f", value);
    return out;
}

static const char *percent(char out[TEXT_NUMBER], double share)
{
    snprintf(out, TEXT_NUMBER, "%.0f %%", 100 * share);
    return out;
}

static const char *interval(char out[2 * TEXT_NUMBER], const struct hr_stalls_prediction *p)
{
    char low[TEXT_NUMBER], high[TEXT_NUMBER];
    if (isnan(p->low))
        snprintf(out, 2 * TEXT_NUMBER, "-");
    else
        snprintf(out, 2 * TEXT_NUMBER, "%.15s to %.15s", rate(low, p->low), rate(high, p->high));
    return out;
}

static double waiting(const struct hr_stalls_prediction *p)
{
    return p->share[2] + p->share[3];
}

/* Prints a row with the present figure and, if there is one, the predicted one. */
static void row(const char *name, const char *now, const char *then)
{
    printf("%-30s%20s", name, now);
    if (then)
        printf("%20s", then);
    putchar('\n');
}

typedef const char *(*cell_fn)(char out[TEXT_NUMBER], double value);

static void number_row(const char *name, cell_fn cell, double now, double then, int both)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    row(name, cell(a, now), both ? cell(b, then) : NULL);
}

static void print_sides(const struct predict_report *report)
{
    const struct hr_stalls_prediction *now = &report->now.prediction;
    const struct hr_stalls_prediction *then = report->count ? &report->points->prediction : now;
    char a[2 * TEXT_NUMBER], b[2 * TEXT_NUMBER];
    int both = report->count > 0;
    row("", now->measured ? "now, as measured" : "now",
        both ? then->extrapolated ? "then *" : "then" : NULL);
    number_row("samples/s", rate, now->rate, then->rate, both);
    row("  range", interval(a, now), both ? interval(b, then) : NULL);
    for (int i = 0; i < 4; i++)
        if (i != 1 || now->share[i] > 0.0005 || then->share[i] > 0.0005)
            number_row(hr_stalls_share_name(i), percent, now->share[i], then->share[i], both);
    number_row("files in memory", percent, now->cached, then->cached, both);
    number_row("cores busy", percent, now->core_share, then->core_share, both);
    number_row("min(F, P, G) of DS-Analyzer", rate, now->reference_rate, then->reference_rate,
               both);
    number_row("  G, the device", rate, now->device_rate, then->device_rate, both);
    number_row("  P, preparation", rate, now->prepare_rate, then->prepare_rate, both);
    number_row("  F, fetching", rate, now->fetch_rate, then->fetch_rate, both);
}

static void print_bar(double value, double most)
{
    int length = most > 0 ? (int)(BAR * value / most + 0.5) : 0;
    for (int i = 0; i < BAR; i++)
        putchar(i < length ? '#' : ' ');
}

static void print_point(const char *label, const struct hr_stalls_prediction *p, double most)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    printf("%-11.11s%10s%c ", label, rate(a, p->rate), p->extrapolated ? '*' : ' ');
    print_bar(p->rate, most);
    printf("%8.0f%6.0f%7.0f%7.0f%10s\n", 100 * p->share[0], 100 * p->share[1], 100 * p->share[2],
           100 * p->share[3], rate(b, p->reference_rate));
}

static void print_series(const struct predict_report *report)
{
    double most = report->now.prediction.rate;
    for (int i = 0; i < report->count; i++)
        most = fmax(most, report->points[i].prediction.rate);
    printf("%-11s%10s  %*s%8s%6s%7s%7s%10s\n", report->varied, "samples/s", BAR, "", "compute",
           "copy", "prep.", "fetch", "min(FPG)");
    print_point("now", &report->now.prediction, most);
    for (int i = 0; i < report->count; i++)
        print_point(report->points[i].label, &report->points[i].prediction, most);
    printf("compute, copy, preparation, fetch: %% of the time\n");
}

/* Prints each assumption once, those about the present run first. */
static void print_assumptions(const struct predict_report *report)
{
    const char *last = "";
    for (int i = -1; i < report->count; i++) {
        const struct hr_stalls_prediction *p =
            i < 0 ? &report->now.prediction : &report->points[i].prediction;
        int repeated = i >= 0 && report->varied && i + 1 < report->count &&
                       p->extrapolated == report->points[i + 1].prediction.extrapolated;
        if (!p->why[0] || !strcmp(p->why, last) || repeated)
            continue;
        char *why = text_escape(p->why);
        printf("%s %s: %s\n", p->extrapolated ? "*" : "-",
               i < 0            ? "now"
               : report->varied ? report->points[i].label
                                : "then",
               why ? why : "");
        free(why);
        last = p->why;
    }
}

static void print_suggestions(const struct predict_report *report)
{
    char a[TEXT_NUMBER];
    double wait = waiting(&report->now.prediction);
    if (wait <= report->stall) {
        printf("Training hardly waits for data (%.0f %% of the time).\n", 100 * wait);
        return;
    }
    if (report->unknown[0]) {
        printf("What would end the waiting (%.0f %% of the time now) is %s\n", 100 * wait,
               report->unknown);
        return;
    }
    if (!report->suggestion_count) {
        printf("No single change, and no two together, would reduce waiting from %.0f %% to %.3g "
               "%%.\n",
               100 * wait, 100 * report->stall);
        return;
    }
    const struct hr_stalls_suggestion *s = report->suggestions;
    double leaves = waiting(&s->prediction);
    int is_relief = leaves > report->stall;
    if (is_relief)
        printf("%s would cut the waiting from %.0f %% of the time to %.0f %%: %s samples/s%s\n",
               s->text, 100 * wait, 100 * leaves, rate(a, s->prediction.rate),
               s->prediction.extrapolated ? " *" : "");
    if (is_relief && report->suggestion_count == 1)
        return;
    printf("The cheapest change that ends the waiting (%.0f %% of the time now):\n", 100 * wait);
    for (int i = is_relief; i < report->suggestion_count; i++) {
        char *text = text_escape(s[i].text);
        printf("%s%s: %s samples/s%s\n", i > is_relief ? "  or " : "  ", text ? text : "",
               rate(a, s[i].prediction.rate), s[i].prediction.extrapolated ? " *" : "");
        free(text);
    }
}

void predict_report_print(const struct predict_report *report)
{
    char *path = text_escape(report->path);
    printf("%s%s%s\n\n", path ? path : "", report->what[0] ? ": " : "", report->what);
    free(path);
    if (report->varied)
        print_series(report);
    else
        print_sides(report);
    putchar('\n');
    print_assumptions(report);
    print_suggestions(report);
    int starred = report->now.prediction.extrapolated;
    for (int i = 0; i < report->count; i++)
        starred |= report->points[i].prediction.extrapolated;
    for (int i = 0; i < report->suggestion_count; i++)
        starred |= report->suggestions[i].prediction.extrapolated;
    if (starred)
        printf("* beyond the measured range\n");
}

/* ---- JSON ---- */

/* Makes a number; null if it is unknown or infinite, which JSON cannot express. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *change_json(const struct hr_stalls_change *c)
{
    json_t *o = json_object();
    int bad = !o;
    if (c->cache_share >= 0)
        bad |= json_object_set_new(o, "cache_share", json_real(c->cache_share));
    if (c->cache_bytes)
        bad |= json_object_set_new(o, "cache_bytes", json_integer((json_int_t)c->cache_bytes));
    if (c->page_cache)
        bad |= json_object_set_new(o, "page_cache", json_true());
    if (c->cores)
        bad |= json_object_set_new(o, "cores", json_integer(c->cores));
    if (c->storage_bytes_per_s > 0)
        bad |= json_object_set_new(o, "storage_bytes_per_s", json_real(c->storage_bytes_per_s));
    if (c->storage_factor > 0)
        bad |= json_object_set_new(o, "storage_factor", json_real(c->storage_factor));
    if (c->device_speedup > 0)
        bad |= json_object_set_new(o, "gpu_speedup", json_real(c->device_speedup));
    if (c->ranks)
        bad |= json_object_set_new(o, "gpus", json_integer(c->ranks));
    if (c->workers)
        bad |= json_object_set_new(o, "workers", json_integer(c->workers));
    if (c->loader == HR_STALLS_LOADER_HEADRACE) {
        bad |= json_object_set_new(o, "loader", json_string("headrace"));
        if (c->form != HR_FORM_AUTO)
            bad |= json_object_set_new(o, "form", json_string(hr_form_name((enum hr_form)c->form)));
    }
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *prediction_json(const struct hr_stalls_change *change,
                               const struct hr_stalls_prediction *p)
{
    json_t *shares = json_object();
    for (int i = 0; i < HR_STALLS_SHARES; i++)
        json_object_set_new(shares, hr_stalls_share_name(i), json_real(p->share[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:f, s:{s:o, s:o, s:o, s:o}, s:b, s:s, s:f, s:b}",
                     "change", change_json(change), "rate", number(p->rate), "low", number(p->low),
                     "high", number(p->high), "share", shares, "core_share", p->core_share,
                     "reference", "rate", number(p->reference_rate), "device",
                     number(p->device_rate), "preparation", number(p->prepare_rate), "fetch",
                     number(p->fetch_rate), "extrapolated", p->extrapolated, "why", p->why,
                     "cached", p->cached, "measured", p->measured);
}

json_t *predict_report_json(const struct predict_report *report)
{
    char *path = text_escape(report->path);
    json_t *points = json_array(), *suggestions = json_array();
    int bad = !path || !points || !suggestions;
    for (int i = 0; i < report->count && !bad; i++)
        bad = json_array_append_new(
            points, prediction_json(&report->points[i].change, &report->points[i].prediction));
    for (int i = 0; i < report->suggestion_count && !bad; i++) {
        const struct hr_stalls_suggestion *s = &report->suggestions[i];
        json_t *one = prediction_json(&s->change, &s->prediction);
        bad = json_object_set_new(one, "text", json_string(s->text)) ||
              json_array_append_new(suggestions, one);
    }
    json_t *root =
        bad ? NULL
            : json_pack("{s:i, s:s, s:o, s:O, s:f, s:O}", "layout", 1, "file", path, "now",
                        prediction_json(&report->now.change, &report->now.prediction),
                        "predictions", points, "stall", report->stall, "suggestions", suggestions);
    if (root && report->unknown[0])
        bad = json_object_set_new(root, "unknown", json_string(report->unknown));
    json_decref(points);
    json_decref(suggestions);
    free(path);
    if (!bad)
        return root;
    json_decref(root);
    return NULL;
}
