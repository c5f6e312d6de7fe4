/* Prints segments of caches as text of 80 columns and as JSON; see cache_report.h. */
#include "cache_report.h"

#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_asked(const struct hr_cache_info *info, const char *dataset)
{
    char place[PATH_MAX];
    if (!dataset || !strcmp(info->dataset, dataset))
        return 1;
    return realpath(dataset, place) && !strcmp(info->dataset, place);
}

int cache_report_make(struct cache_report *report, const char *name, const char *dataset,
                      struct hr_error *error)
{
    struct hr_cache_list *list = NULL;
    *report = (struct cache_report){.count = 0};
    int r = hr_cache_list_create_of(&list, name, error);
    if (r)
        return r;
    size_t count = hr_cache_list_count(list);
    report->infos = calloc(count ? count : 1, sizeof *report->infos);
    for (size_t i = 0; report->infos && i < count; i++) {
        struct hr_cache_info *info = &report->infos[report->count];
        info->size = sizeof *info;
        hr_cache_list_get(list, i, info);
        report->count += (size_t)is_asked(info, dataset);
    }
    hr_cache_list_destroy(&list);
    return report->infos ? 0 : -ENOMEM;
}

void cache_report_clear(struct cache_report *report)
{
    free(report->infos);
    *report = (struct cache_report){.count = 0};
}

size_t cache_report_damaged(const struct cache_report *report)
{
    size_t count = 0;
    for (size_t i = 0; i < report->count; i++)
        count += report->infos[i].damaged != 0;
    return count;
}

uint64_t cache_report_items(const uint64_t items[HR_FORMS])
{
    uint64_t all = 0;
    for (int form = 0; form < HR_FORMS; form++)
        all += items[form];
    return all;
}

/* Copies the numbers of items by form. Returns their sum. */
static uint64_t items_by_form(const struct hr_cache_info *info, uint64_t out[HR_FORMS])
{
    for (int form = 0; form < HR_FORMS; form++)
        out[form] = info->forms[form].items;
    return cache_report_items(out);
}

static uint64_t items_of(const struct hr_cache_info *info)
{
    uint64_t items[HR_FORMS];
    return items_by_form(info, items);
}

/* Prints a line with untrusted text, escaped. */
static void print_escaped(const char *before, const char *text)
{
    char *escaped = text_escape(text);
    printf("%s%s\n", before, escaped ? escaped : "?");
    free(escaped);
}

void cache_report_print_table(const struct cache_report *report)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER];
    uint64_t allocated = 0;
    if (!report->count) {
        printf("There are no caches.\n");
        return;
    }
    printf("%-16s %12s %9s %9s %5s  %s\n", "NAME", "ITEMS", "USED", "OF", "USERS", "DATASET");
    for (size_t i = 0; i < report->count; i++) {
        const struct hr_cache_info *info = &report->infos[i];
        allocated += info->allocated_bytes;
        text_print_cell(*info->name ? info->name : info->damaged ? "?" : "(of a run)", 16);
        if (info->damaged)
            printf(" %12s %9s %9s %5d  ", "damaged", "", "", info->users);
        else
            printf(" %12s %9s %9s %5d  ", text_count(a, items_of(info)),
                   text_bytes(b, info->used_bytes), text_bytes(c, info->budget_bytes), info->users);
        print_escaped("", info->damaged ? info->path : info->dataset);
    }
    printf("\n%s of %s in %zu %s\n", text_bytes(a, allocated),
           report->infos[0].on_disk ? "disk" : "memory", report->count,
           report->count == 1 ? "segment" : "segments");
}

/* ---- text about one segment ---- */

static void print_users(const struct hr_cache_info *info)
{
    if (!info->users) {
        printf("  in use by     nobody\n");
        return;
    }
    printf("  in use by     %d %s:", info->users, info->users == 1 ? "process" : "processes");
    int known = info->users < HR_CACHE_PIDS ? info->users : HR_CACHE_PIDS;
    for (int i = 0; i < known; i++) {
        const char *comma = i + 1 < known ? "," : "";
        if (info->pids[i])
            printf(" %" PRId64 "%s", info->pids[i], comma);
        else
            printf(" one elsewhere%s", comma);
    }
    printf("%s\n", info->users > known ? ", and more" : "");
}

void cache_report_print_forms(const uint64_t items[HR_FORMS])
{
    char a[TEXT_NUMBER];
    const char *comma = "";
    for (int form = HR_FORMS - 1; form >= 0; form--)
        if (items[form]) {
            printf("%s%s %s", comma, text_count(a, items[form]), hr_form_name((enum hr_form)form));
            comma = ", ";
        }
}

static void print_fill(const struct hr_cache_info *info)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER];
    uint64_t items[HR_FORMS], all = items_by_form(info, items);
    printf("  holds         %s %s, %s of %s (%.0f %%)\n", text_count(a, all),
           all == 1 ? "item" : "items", text_bytes(b, info->used_bytes),
           text_bytes(c, info->budget_bytes),
           info->budget_bytes ? 100 * (double)info->used_bytes / (double)info->budget_bytes : 0);
    if (all) {
        printf("  forms         ");
        cache_report_print_forms(items);
        if (info->staged)
            printf(" (%s of them wait for a conversion)", text_count(a, info->staged));
        printf("\n");
    }
    if (info->refused)
        printf("  full          %s times an item did not fit\n", text_count(a, info->refused));
    if (info->orders || info->evicted)
        printf("  evicts        ");
    if (info->orders)
        printf("by next use over %u order%s, %s items so far\n", info->orders,
               info->orders == 1 ? "" : "s", text_count(a, info->evicted));
    else if (info->evicted)
        printf("nothing now, %s items before\n", text_count(a, info->evicted));
    if (info->foreign)
        printf(
            info->on_disk
                ? "  damaged       %s items were not as they had been written, and were dropped\n"
                : "  foreign       %s times an item had been made without the key file\n",
            text_count(a, info->foreign));
    uint64_t looks = info->hits + info->misses;
    printf("  hits          %s of %s (%.1f %%), which saved %s of reads\n",
           text_count(a, info->hits), text_count(b, looks),
           looks ? 100 * (double)info->hits / (double)looks : 0, text_bytes(c, info->saved_bytes));
}

/* Writes a time with three digits: "61.2 us". */
static const char *text_us(char out[TEXT_NUMBER], double us)
{
    const char *unit = us < 999.5 ? "us" : "ms";
    double value = us < 999.5 ? us : us / 1000;
    snprintf(out, TEXT_NUMBER, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, unit);
    return out;
}

/* Prints after how many uses a conversion has saved the time that it took. */
static void print_worth(const struct hr_cache_form *file, const struct hr_cache_form *form)
{
    char a[TEXT_NUMBER];
    double saved = file->prepare_us - form->prepare_us;
    if (!form->convert_us)
        return;
    printf(", %s to convert", text_us(a, form->convert_us));
    if (form->growth)
        printf(", %.2f times the bytes", form->growth);
    if (!file->prepare_us || !form->prepare_us)
        return;
    if (saved > 0)
        printf(":\n%32s repays after %.0f %s", "", ceil(form->convert_us / saved),
               ceil(form->convert_us / saved) == 1 ? "use" : "uses");
    else
        printf(":\n%32s saves nothing", "");
}

static void print_choice(const struct hr_cache_info *info)
{
    char a[TEXT_NUMBER];
    const char *form = hr_form_name((enum hr_form)info->form);
    int measured = info->read_us > 0;
    for (int i = 0; i < HR_FORMS; i++)
        measured |= info->forms[i].prepare_us > 0 || info->forms[i].convert_us > 0;
    if (!measured)
        return;
    if (info->form_asked != HR_FORM_AUTO)
        printf("  converts to   %s, as was asked; measured a sample:\n", form ? form : "?");
    else
        printf("  converts to   %s, which by these costs of a sample trains fastest:\n",
               form ? form : "?");
    for (int i = 0; i < HR_FORMS; i++) {
        const struct hr_cache_form *one = &info->forms[i];
        if (!one->prepare_us && !one->convert_us)
            continue;
        printf("%16s%-13s ", "", hr_form_name((enum hr_form)i));
        if (one->prepare_us)
            printf("%s to prepare", text_us(a, one->prepare_us));
        else
            printf("not prepared yet");
        print_worth(&info->forms[HR_FORM_ENCODED], one);
        printf("\n");
    }
    if (info->read_us)
        printf("%16s%-13s %s to read\n", "", "from storage", text_us(a, info->read_us));
}

static void print_memory(const struct hr_cache_info *info)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    if (info->on_disk) {
        printf("  disk          %s, with its index\n", text_bytes(a, info->allocated_bytes));
        return;
    }
    printf("  memory        %s, with its index and staging; %s in huge pages\n",
           text_bytes(a, info->allocated_bytes),
           info->huge_bytes ? text_bytes(b, info->huge_bytes) : "none");
    int nodes = 0;
    for (int i = 0; i < HR_CACHE_NODES; i++)
        nodes += info->node_bytes[i] > 0;
    if (nodes < 2)
        return;
    printf("  NUMA nodes   ");
    for (int i = 0; i < HR_CACHE_NODES; i++)
        if (info->node_bytes[i])
            printf(" %d: %s%s", i, text_bytes(a, info->node_bytes[i]), --nodes ? "," : "");
    printf("\n");
}

static void print_one(const struct hr_cache_info *info)
{
    char a[TEXT_NUMBER];
    char *dataset = text_escape(info->dataset);
    if (info->damaged) {
        print_escaped("", *info->name ? info->name : "a cache");
        print_escaped("  file          ", info->path);
        print_escaped("  damaged       ", info->problem);
        printf("  %-13s %s; the next start makes it again, headrace cache drop removes it\n",
               info->on_disk ? "disk" : "memory", text_bytes(a, info->allocated_bytes));
        free(dataset);
        return;
    }
    printf("%s: %s\n", *info->name ? info->name : "of a run", dataset ? dataset : "?");
    free(dataset);
    print_escaped("  file          ", info->path);
    print_users(info);
    print_fill(info);
    print_choice(info);
    print_memory(info);
}

void cache_report_print(const struct cache_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        if (i)
            printf("\n");
        print_one(&report->infos[i]);
    }
    if (!report->count)
        printf("There are no caches.\n");
}

/* ---- JSON ---- */

/* Adds a value under the name of a form; steals it. Returns `object`, or NULL and frees it. */
static json_t *with_form(json_t *object, int form, json_t *value)
{
    if (!json_object_set_new(object, hr_form_name((enum hr_form)form), value))
        return object;
    json_decref(object);
    return NULL;
}

json_t *cache_report_forms(const uint64_t values[HR_FORMS])
{
    json_t *object = json_object();
    for (int form = 0; object && form < HR_FORMS; form++)
        object = with_form(object, form, json_integer((json_int_t)values[form]));
    return object;
}

static json_t *json_items(const struct hr_cache_info *info)
{
    uint64_t items[HR_FORMS];
    items_by_form(info, items);
    return cache_report_forms(items);
}

/* Makes a measured number; null if it was not measured. */
static json_t *number_or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

/* Makes an object of one member of struct hr_cache_form, by form. */
static json_t *costs(const struct hr_cache_info *info, size_t member)
{
    json_t *object = json_object();
    for (int form = 0; object && form < HR_FORMS; form++) {
        double value;
        memcpy(&value, (const char *)&info->forms[form] + member, sizeof value);
        object = with_form(object, form, number_or_null(value));
    }
    return object;
}

static json_t *numbers(const int64_t *values, int count)
{
    json_t *array = json_array();
    for (int i = 0; array && i < count; i++)
        json_array_append_new(array, json_integer((json_int_t)values[i]));
    return array;
}

static json_t *nodes(const struct hr_cache_info *info)
{
    int64_t values[HR_CACHE_NODES];
    int count = 0;
    for (int i = 0; i < HR_CACHE_NODES; i++) {
        values[i] = (int64_t)info->node_bytes[i];
        if (values[i])
            count = i + 1;
    }
    return numbers(values, count);
}

static const char *form_text(int form)
{
    const char *name = form == HR_FORM_AUTO ? "auto" : hr_form_name((enum hr_form)form);
    return name ? name : "?";
}

static json_t *json_of(const struct hr_cache_info *info)
{
    char *dataset = text_escape(info->dataset), *path = text_escape(info->path);
    char *problem = text_escape(info->problem);
    json_t *object = json_pack(
        "{s:s, s:s?, s:s?, s:b, s:s?, s:I, s:i, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:o, s:I, s:o, s:b, s:I, s:I}",
        "name", info->name, "dataset", dataset, "path", path, "damaged", info->damaged, "problem",
        info->damaged ? problem : NULL, "allocated_bytes", (json_int_t)info->allocated_bytes,
        "users", info->users, "size_bytes", (json_int_t)info->size_bytes, "budget_bytes",
        (json_int_t)info->budget_bytes, "used_bytes", (json_int_t)info->used_bytes, "items",
        json_items(info), "staged", (json_int_t)info->staged, "source_bytes",
        (json_int_t)info->source_bytes, "hits", (json_int_t)info->hits, "misses",
        (json_int_t)info->misses, "saved_bytes", (json_int_t)info->saved_bytes, "refused",
        (json_int_t)info->refused, "foreign", (json_int_t)info->foreign, "pids",
        numbers(info->pids, info->users < HR_CACHE_PIDS ? info->users : HR_CACHE_PIDS),
        "huge_bytes", (json_int_t)info->huge_bytes, "node_bytes", nodes(info), "on_disk",
        info->on_disk, "orders", (json_int_t)info->orders, "evicted", (json_int_t)info->evicted);
    if (object)
        json_object_update_new(
            object, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "form", form_text(info->form),
                              "form_asked", form_text(info->form_asked), "prepare_us",
                              costs(info, offsetof(struct hr_cache_form, prepare_us)), "convert_us",
                              costs(info, offsetof(struct hr_cache_form, convert_us)), "growth",
                              costs(info, offsetof(struct hr_cache_form, growth)), "read_us",
                              number_or_null(info->read_us)));
    free(dataset);
    free(path);
    free(problem);
    return object;
}

json_t *cache_report_json(const struct cache_report *report)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < report->count; i++)
        json_array_append_new(array, json_of(&report->infos[i]));
    return array ? json_pack("{s:i, s:o}", "layout", 1, "caches", array) : NULL;
}
