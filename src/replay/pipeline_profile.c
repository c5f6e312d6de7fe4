/* Reads profiles of networks; see pipeline_profile.h. A time of zero is refused: it was not
 * measured, and a plan would move such layers to and fro at no cost. */
#include "replay/pipeline_profile.h"

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define VERSION    1
#define KEY        "headrace_pipeline_profile"
#define MOST_S     1e6
#define MOST_BYTES 1e15

void hr__profile_clear(struct hr__profile *p)
{
    for (int i = 0; i < p->entry_count; i++) {
        hr__free(p->entries[i].forward_s);
        hr__free(p->entries[i].backward_s);
        hr__free(p->entries[i].held_bytes);
        hr__free(p->entries[i].output_bytes);
    }
    hr__free(p->entries);
    hr__free(p->layers);
    hr__free(p->sizes);
    hr__free(p->input_bytes);
    *p = (struct hr__profile){.entries = NULL};
}

static void check_version(struct hr__json *reader, const json_t *root)
{
    if (!json_object_get(root, KEY)) {
        hr__json_fail(reader, -EINVAL, "",
                      "is no profile of a pipeline: it lacks " KEY
                      " (headrace.pipeline.profile writes one)");
        return;
    }
    int64_t version =
        hr__json_integer(reader, root, KEY, (struct hr__json_range){0, 1e6, HR__REQUIRED});
    if (!reader->code && version != VERSION)
        hr__json_fail(reader, -ENOTSUP, KEY, "is %" PRId64 "; headrace %s reads version %d",
                      version, hr_version(), VERSION);
}

static void read_sizes(struct hr__json *reader, const json_t *root, struct hr__profile *p)
{
    p->size_count = (int)hr__json_numbers(reader, root, "microbatches", SIZE_MAX,
                                          HR__PROFILE_MOST_SIZES, &p->sizes);
    if (!p->size_count)
        hr__json_fail(reader, -EINVAL, "microbatches",
                      "is missing or empty; list the samples of each measured microbatch");
    for (int i = 0; i < p->size_count; i++) {
        double size = p->sizes[i];
        if (!(size >= 1 && size <= 1e6 && size == (double)(int)size))
            hr__json_fail(reader, -EINVAL, "microbatches",
                          "has %.15g; write whole numbers from 1 to 1000000", size);
        else if (i && size <= p->sizes[i - 1])
            hr__json_fail(reader, -EINVAL, "microbatches", "must rise: %.15g follows %.15g", size,
                          p->sizes[i - 1]);
    }
}

/* Reads a value for each size. `most`: of a value; times must not be 0. */
static double *read_values(struct hr__json *reader, const json_t *layer, const char *name,
                           const struct hr__profile *p, double most)
{
    double *values;
    size_t n = (size_t)p->size_count;
    if (!json_object_get(layer, name)) {
        hr__json_fail(reader, -EINVAL, name,
                      "is missing; write %zu numbers, one for each of "
                      "microbatches",
                      n);
        return NULL;
    }
    if (!hr__json_numbers(reader, layer, name, n, n, &values))
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (values[i] > most)
            hr__json_fail(reader, -EINVAL, name, "has %.15g; at most %.15g is possible", values[i],
                          most);
        else if (most == MOST_S && values[i] <= 0)
            hr__json_fail(reader, -EINVAL, name,
                          "is 0 for microbatches of %.0f: it was not measured; measure it, or join "
                          "the layer with the one beside it",
                          p->sizes[i]);
    }
    return values;
}

static void read_entry(struct hr__json *reader, const json_t *o, struct hr__profile *p,
                       struct hr__profile_layer *entry)
{
    hr__json_name(reader, o, "name", entry->name, sizeof entry->name);
    entry->repeat = (int)hr__json_integer(reader, o, "repeat",
                                          (struct hr__json_range){1, HR__PROFILE_MOST_LAYERS, 1});
    entry->weight_bytes = hr__json_number(reader, o, "weight_bytes",
                                          (struct hr__json_range){0, MOST_BYTES, HR__REQUIRED});
    entry->update_s = hr__json_number(reader, o, "update_s", (struct hr__json_range){0, MOST_S, 0});
    entry->forward_s = read_values(reader, o, "forward_s", p, MOST_S);
    entry->backward_s = read_values(reader, o, "backward_s", p, MOST_S);
    entry->held_bytes = read_values(reader, o, "held_bytes", p, MOST_BYTES);
    entry->output_bytes = read_values(reader, o, "output_bytes", p, MOST_BYTES);
}

/* Enters an entry with its name, so that messages have both. */
static void read_entries(struct hr__json *reader, const json_t *root, struct hr__profile *p)
{
    json_t *all = hr__json_array(reader, root, "layers", HR__PROFILE_MOST_LAYERS);
    size_t count = all ? json_array_size(all) : 0;
    if (!count)
        hr__json_fail(reader, -EINVAL, "layers", "is missing or empty; list the network's layers");
    if (reader->code)
        return;
    p->entries = hr__alloc(HR__TAG_REPLAY, count, sizeof *p->entries);
    if (!p->entries)
        hr__json_no_memory(reader);
    for (size_t i = 0; i < count && !reader->code; i++) {
        char label[2 * HR__PROFILE_NAME_BYTES];
        json_t *o = hr__json_element(reader, all, "layers", i);
        const char *name = json_string_value(json_object_get(o, "name"));
        snprintf(label, sizeof label, "layers[%zu] (%.60s)", i, name ? name : "no name");
        size_t mark = hr__json_enter(reader, label, -1);
        if (o)
            read_entry(reader, o, p, &p->entries[p->entry_count++]);
        hr__json_leave(reader, mark);
        p->layer_count += o ? p->entries[i].repeat : 0;
        if (p->layer_count > HR__PROFILE_MOST_LAYERS)
            hr__json_fail(reader, -EINVAL, "layers", "are more than %d in all",
                          HR__PROFILE_MOST_LAYERS);
    }
}

static void list_layers(struct hr__json *reader, struct hr__profile *p)
{
    int at = 0;
    if (reader->code)
        return;
    p->layers = hr__alloc(HR__TAG_REPLAY, (size_t)p->layer_count, sizeof *p->layers);
    if (!p->layers) {
        hr__json_no_memory(reader);
        return;
    }
    for (int i = 0; i < p->entry_count; i++)
        for (int k = 0; k < p->entries[i].repeat; k++)
            p->layers[at++] = i;
}

int hr__profile_read(struct hr__profile *out, const char *text, size_t length, const char *where,
                     struct hr_error *error)
{
    struct hr__json reader = {.where = where, .error = error};
    *out = (struct hr__profile){.entries = NULL};
    json_t *root = hr__json_parse(&reader, text, length);
    if (root)
        check_version(&reader, root);
    if (root && !reader.code) {
        hr__json_text(&reader, root, "name", out->name, sizeof out->name);
        read_sizes(&reader, root, out);
    }
    if (root && !reader.code) {
        read_entries(&reader, root, out);
        list_layers(&reader, out);
        if (json_object_get(root, "input_bytes"))
            out->input_bytes = read_values(&reader, root, "input_bytes", out, MOST_BYTES);
        else if (!reader.code &&
                 !(out->input_bytes = hr__alloc(HR__TAG_REPLAY, (size_t)out->size_count,
                                                sizeof *out->input_bytes)))
            hr__json_no_memory(&reader);
    }
    json_decref(root);
    if (reader.code)
        hr__profile_clear(out);
    return reader.code;
}
