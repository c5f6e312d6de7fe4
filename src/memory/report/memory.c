/* The public functions for analyses: include/headrace/memory.h. */
#include "base/memory.h"
#include "base/error.h"
#include "base/versioned.h"
#include "memory/import/import.h"
#include "memory/report/json.h"
#include "memory/report/opened.h"

#include <errno.h>
#include <string.h>

static const struct hr_memory_options defaults = {.size = sizeof defaults};

void hr_memory_options_init(struct hr_memory_options *options, size_t size)
{
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int check(const struct hr_memory_options *o, struct hr_error *error)
{
    if (!(o->h2d_bytes_per_s >= 0 && o->h2d_bytes_per_s < 1e15 && o->d2h_bytes_per_s >= 0 &&
          o->d2h_bytes_per_s < 1e15))
        return hr__fail(error, -EINVAL, "bandwidths must be positive numbers of bytes per second");
    if (o->points < 0 || o->points == 1 || o->points > 1000000)
        return hr__fail(error, -EINVAL, "a timeline of %d points: it must be from 2 to 1000000",
                        o->points);
    return 0;
}

int hr_memory_open(struct hr_memory **out, const char *path,
                   const struct hr_memory_options *options, struct hr_error *error)
{
    struct hr_memory_options o = defaults;
    *out = NULL;
    int code =
        options ? hr__versioned_take(&o, sizeof o, options, "struct hr_memory_options", error) : 0;
    if (!code)
        code = check(&o, error);
    if (code)
        return code;
    struct hr_memory *m = hr__alloc(HR__TAG_MEMORY, 1, sizeof *m);
    if (!m)
        return hr__fail(error, -ENOMEM, "out of memory while analysing a record");
    struct hr__memory_wish wish = {.h2d_bytes_per_s = o.h2d_bytes_per_s,
                                   .d2h_bytes_per_s = o.d2h_bytes_per_s,
                                   .points = (size_t)o.points};
    const char *slash = strrchr(path, '/');
    m->name = hr__strdup(HR__TAG_MEMORY, slash ? slash + 1 : path);
    code = m->name ? hr__import_open(&m->record, path, error)
                   : hr__fail(error, -ENOMEM, "out of memory while analysing a record");
    if (!code) {
        code = hr__memory_analyse(&m->found, m->record, &wish, error);
        if (code == -ENODATA)
            hr__fail(error, code, "%s has no events: nothing ran while it was recorded", path);
    }
    if (!code)
        code = hr__memory_to_json(m->found, m->record, &m->json, error);
    if (code)
        hr_memory_destroy(&m);
    *out = m;
    return code;
}

const char *hr_memory_json(const struct hr_memory *memory)
{
    return memory->json;
}

void hr_memory_destroy(struct hr_memory **memory)
{
    struct hr_memory *m = *memory;
    if (!m)
        return;
    *memory = NULL;
    hr__memory_destroy(&m->found);
    hr__record_close(&m->record);
    hr__free(m->json);
    hr__free(m->name);
    hr__free(m);
}
