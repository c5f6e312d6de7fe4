/*
 * stalls.json: the recorded data, what a search found (the suggestions) and, for other readers, the
 * derived figures. Reading takes the first two and derives the rest again, so that a file cannot
 * contradict itself and a newer library's better analysis applies to older files.
 *
 * Each member of the whole has a line, and so has each rank: a result of thousands of ranks is
 * written one rank at a time.
 */
#include "base/draft.h"
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"
#include "stalls/model/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1

static const struct hr__json_range share_or_not = {0, 1, NAN};

/* ---- writing ---- */

static int add_bytes(const char *bytes, size_t length, void *arg)
{
    struct hr__draft *draft = arg;
    hr__draft_add(draft, bytes, length);
    return draft->failed ? -1 : 0;
}

/* Writes and consumes the value; NULL means out of memory. */
static void add_value(struct hr__draft *t, json_t *value)
{
    if (!value || json_dump_callback(value, add_bytes, t, JSON_COMPACT | JSON_ENCODE_ANY))
        t->failed = true;
    json_decref(value);
}

static json_t *interval(struct hr_interval i)
{
    if (!(i.value == i.value))
        return json_null();
    json_t *o = json_object();
    if (hr__json_set(o, "value", hr__json_real(i.value)) &&
        hr__json_set(o, "low", hr__json_real(i.low)) &&
        hr__json_set(o, "high", hr__json_real(i.high)))
        return o;
    json_decref(o);
    return NULL;
}

static json_t *shares(const struct hr_interval *share, int count)
{
    json_t *o = json_object();
    bool ok = o;
    for (int i = 0; ok && i < count; i++)
        ok = hr__json_set(o, hr_stalls_share_name(i), interval(share[i]));
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *phases_of(const struct hr_stalls *s)
{
    json_t *all = json_object();
    bool ok = all;
    for (int p = 0; ok && p < HR_STALLS_PHASES; p++) {
        json_t *o = json_object();
        ok = hr__json_set(o, "measured", json_boolean(s->summary.measured[p])) &&
             hr__json_set(o, "rate", interval(s->summary.rate[p])) &&
             hr__json_set(o, "step_s", interval(s->step_s[p]));
        ok &= hr__json_set(all, hr__phase_names[p], o);
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *relief_of(const struct hr_stalls *s)
{
    json_t *o = *s->relief ? json_object() : json_null();
    if (json_is_null(o) || (hr__json_set(o, "change", hr__json_string(s->relief)) &&
                            hr__json_set(o, "waits", hr__json_real(s->relief_waits))))
        return o;
    json_decref(o);
    return NULL;
}

static json_t *ranks_of(const struct hr_stalls *s)
{
    json_t *array = json_array();
    bool ok = array;
    for (int i = 0; ok && i < s->rank_count; i++) {
        json_t *o = json_object();
        ok = hr__json_set(o, "rank", json_integer(s->ranks[i].rank)) &&
             hr__json_set(o, "waiting", interval(s->waiting[i])) &&
             hr__json_set(o, "straggles", json_boolean(s->straggles[i])) &&
             hr__json_set(o, "alone_s", interval(s->alone_s[i]));
        ok &= !json_array_append_new(array, o);
    }
    if (ok)
        return array;
    json_decref(array);
    return NULL;
}

/* Returns the model's prediction for partly cached epochs. */
static json_t *now_of(const struct hr_stalls *s)
{
    json_t *o = isnan(s->now_waits) ? json_null() : json_object();
    if (json_is_null(o) || (hr__json_set(o, "cached", hr__json_real(s->now_cached)) &&
                            hr__json_set(o, "waits", hr__json_real(s->now_waits))))
        return o;
    json_decref(o);
    return NULL;
}

/* Adds texts and changes of the suggestions; null: unknown. */
static bool set_suggestions(json_t *head, const struct hr_stalls *s)
{
    return s->has_suggestions ? hr__fields_write(head, hr__suggestions_fields, s)
                              : hr__json_set(head, "suggestions", json_null());
}

static json_t *derived(const struct hr_stalls *s)
{
    json_t *o = json_object();
    bool ok = hr__json_set(o, "phases", phases_of(s)) &&
              hr__json_set(o, "device_rate", interval(s->summary.device_rate)) &&
              hr__json_set(o, "prepare_rate", interval(s->summary.prepare_rate)) &&
              hr__json_set(o, "fetch_rate", interval(s->summary.fetch_rate)) &&
              hr__json_set(o, "share", shares(s->summary.share, 4)) &&
              hr__json_set(o, "warm_share", shares(s->summary.warm_share, 3)) &&
              hr__json_set(o, "prepare_cpu_s", hr__json_real(s->prepare_cpu_s)) &&
              hr__json_set(o, "training_cpu_s", hr__json_real(s->training_cpu_s)) &&
              hr__json_set(o, "ranks", ranks_of(s));
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

/* Writes the members of an object, one per line. */
static void add_members(struct hr__draft *t, const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        hr__draft_put(t, ",\n");
        add_value(t, json_string(name));
        hr__draft_put(t, ": ");
        add_value(t, json_incref(value));
    }
}

static void add_list(struct hr__draft *t, const struct hr_stalls *s, bool hosts)
{
    int count = hosts ? s->host_count : s->rank_count;
    hr__draft_put(t, hosts ? ",\n\"hosts\": [" : ",\n\"ranks\": [");
    for (int i = 0; i < count && !t->failed; i++) {
        json_t *o = json_object();
        bool ok = hosts ? hr__fields_write(o, hr__host_fields, &s->hosts[i])
                        : hr__fields_write(o, hr__rank_fields, &s->ranks[i]);
        hr__draft_put(t, i ? ",\n" : "\n");
        add_value(t, o);
        t->failed |= !ok;
    }
    hr__draft_put(t, "\n]");
}

int hr__stalls_to_json(const struct hr_stalls *s, char **text, size_t *length,
                       struct hr_error *error)
{
    struct hr__draft t = {0};
    json_t *head = json_object();
    bool ok = hr__json_set(head, "headrace", json_string(hr_version())) &&
              hr__json_set(head, "sentence", hr__json_string(s->sentence)) &&
              hr__json_set(head, "remedy", *s->remedy ? hr__json_string(s->remedy) : json_null()) &&
              hr__json_set(head, "relief", relief_of(s)) && set_suggestions(head, s) &&
              hr__json_set(head, "now", now_of(s)) && hr__json_set(head, "derived", derived(s)) &&
              hr__json_set(head, "command", hr__json_string(s->command)) && hr__write_run(head, s);
    hr__draft_put(&t, "{\n\"headrace_stalls\": ");
    add_value(&t, json_integer(VERSION));
    if (ok)
        add_members(&t, head);
    json_decref(head);
    add_list(&t, s, true);
    add_list(&t, s, false);
    hr__draft_put(&t, "\n}\n");
    if (!ok || t.failed) {
        hr__draft_clear(&t);
        return hr__fail(error, -ENOMEM, "out of memory for the text of a result of %d ranks",
                        s->rank_count);
    }
    *text = t.text;
    *length = t.length;
    return 0;
}

/* ---- reading ---- */

static void check_version(struct hr__json *reader, const json_t *root)
{
    if (!json_object_get(root, "headrace_stalls")) {
        hr__json_fail(reader, -EINVAL, "", "%s",
                      json_object_get(root, "headrace_stalls_record")
                          ? "is a record of one rank, not a result: headrace stalls merge makes a "
                            "result of records"
                          : "is no stalls.json: it lacks headrace_stalls");
        return;
    }
    int64_t version = hr__json_integer(reader, root, "headrace_stalls",
                                       (struct hr__json_range){0, 1e6, HR__REQUIRED});
    if (version != VERSION)
        hr__json_fail(reader, -ENOTSUP, "headrace_stalls",
                      "is %" PRId64 "; headrace %s reads version %d: use a newer headrace", version,
                      hr_version(), VERSION);
}

/* Allocates zeroed memory for an array's elements, and returns the array. */
static void *list_for(struct hr__json *reader, const json_t *root, const char *name, size_t size,
                      json_t **array)
{
    *array = hr__json_array(reader, root, name, HR__STALLS_MAX_RANKS);
    if (!reader->code && (!*array || !json_array_size(*array)))
        hr__json_fail(reader, -EINVAL, name, "is missing or empty; write an array of objects");
    if (reader->code)
        return NULL;
    void *list = hr__alloc(HR__TAG_STALLS, json_array_size(*array), size);
    if (!list)
        hr__json_no_memory(reader);
    return list;
}

static bool host_known(const struct hr_stalls *s, const char *name)
{
    for (int i = 0; i < s->host_count; i++)
        if (!strcmp(s->hosts[i].name, name))
            return true;
    return false;
}

static void read_lists(struct hr__json *reader, const json_t *root, struct hr_stalls *s)
{
    json_t *hosts, *ranks;
    s->hosts = list_for(reader, root, "hosts", sizeof *s->hosts, &hosts);
    s->host_count = s->hosts ? (int)json_array_size(hosts) : 0;
    for (int i = 0; i < s->host_count && !reader->code; i++) {
        json_t *e = hr__json_element(reader, hosts, "hosts", (size_t)i);
        size_t mark = hr__json_enter(reader, "hosts", i);
        hr__fields_read(reader, e, hr__host_fields, &s->hosts[i]);
        hr__json_leave(reader, mark);
    }
    s->ranks = list_for(reader, root, "ranks", sizeof *s->ranks, &ranks);
    s->rank_count = s->ranks ? (int)json_array_size(ranks) : 0;
    for (int i = 0; i < s->rank_count && !reader->code; i++) {
        struct hr__rank_record *rank = &s->ranks[i];
        json_t *e = hr__json_element(reader, ranks, "ranks", (size_t)i);
        size_t mark = hr__json_enter(reader, "ranks", i);
        hr__fields_read(reader, e, hr__rank_fields, rank);
        if (rank->rank >= s->world_size || (i && rank->rank <= rank[-1].rank))
            hr__json_fail(reader, -EINVAL, "rank",
                          "is %d; write the ranks below world_size, each once, in rising order",
                          rank->rank);
        if (!reader->code && !host_known(s, rank->host))
            hr__json_fail(reader, -EINVAL, "host", "is none of hosts");
        hr__json_leave(reader, mark);
    }
}

static char *text_member(struct hr__json *reader, const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    if (value && !json_is_string(value))
        hr__json_fail(reader, -EINVAL, name, "is not a text");
    const char *text = json_string_value(value);
    char *copy = hr__strdup(HR__TAG_STALLS, text ? text : "");
    if (!copy)
        hr__json_no_memory(reader);
    return copy;
}

int hr__stalls_from_json(struct hr_stalls **out, const char *text, size_t length, const char *where,
                         struct hr_error *error)
{
    struct hr__json reader = {.where = where, .error = error};
    *out = NULL;
    json_t *root = hr__json_parse(&reader, text, length);
    if (!root)
        return reader.code;
    struct hr_stalls *s = hr__stalls_create();
    if (s)
        check_version(&reader, root);
    else
        hr__json_no_memory(&reader);
    if (!reader.code) {
        hr__read_run(&reader, root, s);
        s->command = text_member(&reader, root, "command");
        hr__json_text(&reader, root, "remedy", s->remedy, sizeof s->remedy);
        const json_t *relief = hr__json_object(&reader, root, "relief");
        hr__json_text(&reader, relief, "change", s->relief, sizeof s->relief);
        s->relief_waits =
            hr__json_number(&reader, relief, "waits",
                            (struct hr__json_range){0, 1, *s->relief ? HR__REQUIRED : NAN});
        hr__fields_read(&reader, root, hr__suggestions_fields, s);
        s->has_suggestions = json_is_array(json_object_get(root, "suggestions"));
        const json_t *now = hr__json_object(&reader, root, "now");
        s->now_cached = hr__json_number(&reader, now, "cached", share_or_not);
        s->now_waits = hr__json_number(&reader, now, "waits", share_or_not);
        if (!reader.code)
            read_lists(&reader, root, s);
    }
    json_decref(root);
    int r = reader.code ? reader.code : hr__stalls_derive(s, error);
    if (r)
        hr_stalls_destroy(&s);
    *out = s;
    return r;
}
