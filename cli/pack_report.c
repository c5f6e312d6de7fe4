/* Prints the contents of a pack as text of 80 columns and as JSON; see pack_report.h. */
#include "pack_report.h"

#include "text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define BADS_AT_MOST 20  /* listed in text, and of rewritten files */
#define KEPT_AT_MOST 100 /* kept in memory, and listed in JSON */

/* Keys of the JSON, by enum hr_pack_kept. */
static const char *const kept_keys[HR_PACK_KEPT_COUNT] = {
    "converted", "asked", "format", "kind", "growth", "worth", "bad",
};

void pack_report_notice(void *arg, const struct hr_bad_sample *sample, enum hr_pack_kept kept)
{
    struct pack_report *report = arg;
    struct summary_bads *bads = kept == HR_PACK_KEPT_BAD    ? &report->bad
                                : kept == HR_PACK_CONVERTED ? &report->rewritten
                                                            : &report->kept;
    if (bads == &report->kept && bads->count >= KEPT_AT_MOST)
        return;
    if (summary_bads_add(bads, sample->index, sample->path, sample->reason))
        report->out_of_memory = 1;
}

void pack_report_clear(struct pack_report *report)
{
    summary_bads_clear(&report->bad);
    summary_bads_clear(&report->kept);
    summary_bads_clear(&report->rewritten);
}

static double ratio(uint64_t bytes, uint64_t of)
{
    return of ? (double)bytes / (double)of : 0;
}

static const char *noun(const struct hr_pack_result *r, uint64_t count)
{
    if (r->media == HR_MEDIA_SOUNDS)
        return count == 1 ? "sound" : "sounds";
    return count == 1 ? "image" : "images";
}

/* Writes what waveforms were made with, as transforms. */
static const char *head_text(char out[64], const struct hr_sound_head *head)
{
    char rate[40] = "";
    if (head->rate)
        snprintf(rate, sizeof rate, "Resample(new_freq=%d)", head->rate);
    snprintf(out, 64, "%s%s%s", head->mono ? "Mono()" : "", head->mono && head->rate ? ", " : "",
             rate);
    return *out ? out : "neither Mono nor Resample";
}

static void print_forms(const struct hr_pack_result *r)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], head[64];
    for (int form = HR_FORMS - 1; form >= 0; form--)
        if (r->forms[form].samples)
            printf("  %-14s %12s %12s\n", hr_form_name((enum hr_form)form),
                   text_count(a, r->forms[form].samples), text_bytes(b, r->forms[form].bytes));
    if (r->forms[HR_FORM_WAVEFORM].samples || r->forms[HR_FORM_WAVEFORM16].samples)
        printf("    after %s\n", head_text(head, &r->head));
    for (int kept = HR_PACK_KEPT_ASKED + 1; kept < HR_PACK_KEPT_COUNT; kept++)
        if (r->samples_kept[kept])
            printf("    %s encoded: %s\n", text_count(a, r->samples_kept[kept]),
                   r->media == HR_MEDIA_SOUNDS && kept == HR_PACK_KEPT_FORMAT
                       ? "sounds stay so, except as waveform"
                       : hr_pack_kept_text((enum hr_pack_kept)kept));
}

void pack_report_print(const struct pack_report *report)
{
    const struct hr_pack_result *r = &report->result;
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER];
    char *path = text_escape(report->path);
    printf("%s\n", path ? path : "?");
    free(path);
    printf("  %s %s, ", text_count(a, r->samples - r->masks), noun(r, r->samples - r->masks));
    if (r->masks)
        printf("%s %s, ", text_count(a, r->masks), r->masks == 1 ? "mask" : "masks");
    printf("%s", text_bytes(b, r->pack_bytes));
    if (r->source_bytes)
        printf(", %.2f times the %s of the %s files", ratio(r->pack_bytes, r->source_bytes),
               text_bytes(c, r->source_bytes), noun(r, 1));
    printf("\n");
    print_forms(r);
    if (r->rows_bytes)
        printf("  %-14s %12s %12s\n", "rows", "", text_bytes(b, r->rows_bytes));
    if (report->seconds > 0)
        printf("  %.1f s, %.0f %s/s, %.1f MB/s of %s files\n", report->seconds,
               (double)(r->samples - r->continued) / report->seconds, noun(r, 0),
               (double)r->source_bytes * ratio(r->samples - r->continued, r->samples) /
                   report->seconds / 1e6,
               noun(r, 1));
    if (r->continued)
        printf("  %s %s were there already: an earlier run was continued\n",
               text_count(a, r->continued), noun(r, 0));
    if (report->rewritten.count) {
        printf("\n%s progressive %s in the pack:\n", text_count(a, report->rewritten.count),
               report->rewritten.count == 1 ? "file is a baseline JPEG"
                                            : "files are baseline JPEGs");
        summary_bads_print(&report->rewritten, BADS_AT_MOST);
    }
    if (report->bad.count) {
        printf("\n%s %s %s bad:\n", text_count(a, report->bad.count), noun(r, report->bad.count),
               report->bad.count == 1 ? "is" : "are");
        summary_bads_print(&report->bad, BADS_AT_MOST);
    }
}

static json_t *json_forms(const struct hr_pack_result *r)
{
    json_t *forms = json_object();
    for (int form = 0; forms && form < HR_FORMS; form++)
        json_object_set_new(forms, hr_form_name((enum hr_form)form),
                            json_pack("{s:I, s:I}", "samples", (json_int_t)r->forms[form].samples,
                                      "bytes", (json_int_t)r->forms[form].bytes));
    return forms;
}

static json_t *json_kept(const struct hr_pack_result *r)
{
    json_t *kept = json_object();
    for (int i = HR_PACK_KEPT_ASKED; kept && i < HR_PACK_KEPT_COUNT; i++)
        json_object_set_new(kept, kept_keys[i], json_integer((json_int_t)r->samples_kept[i]));
    return kept;
}

json_t *pack_report_json(const struct pack_report *report)
{
    const struct hr_pack_result *r = &report->result;
    char *path = text_escape(report->path);
    json_t *root = json_pack(
        "{s:i, s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:f, s:I, s:o, s:o, s:o, s:o, s:o, "
        "s:b, s:b, s:i, s:I}",
        "layout", 1, "verb", report->verb, "path", path ? path : "?", "samples",
        (json_int_t)r->samples, "source_bytes", (json_int_t)r->source_bytes, "bytes",
        (json_int_t)r->pack_bytes, "growth", ratio(r->pack_bytes, r->source_bytes), "continued",
        (json_int_t)r->continued, "seconds", report->seconds, "rows_bytes",
        (json_int_t)r->rows_bytes, "forms", json_forms(r), "encoded", json_kept(r), "kept",
        summary_bads_json(&report->kept), "rewritten", summary_bads_json(&report->rewritten), "bad",
        summary_bads_json(&report->bad), "ok", !report->bad.count, "mono", r->head.mono, "rate",
        r->head.rate, "masks", (json_int_t)r->masks);
    free(path);
    return root;
}

uint64_t pack_meter_bytes(void *arg, uint64_t done)
{
    struct pack_meter *m = arg;
    if (done < m->done)
        m->done = m->bytes = 0;
    for (; m->done < done && m->done < hr_dataset_count(m->dataset); m->done++) {
        int64_t size = hr_dataset_sample_bytes(m->dataset, m->done);
        m->bytes += size > 0 ? (uint64_t)size : 0;
    }
    return m->bytes;
}
