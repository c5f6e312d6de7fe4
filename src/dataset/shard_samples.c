/* Collects the pieces of container files, and makes a catalog of them; see shard_samples.h. */
#include "dataset/shard_samples.h"

#include "base/error.h"
#include "base/memory.h"
#include "storage/http.h"
#include "storage/url.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The index pass over all files. */
struct shard_pass {
    struct hr__shard *files;
    hr__shard_fn collect;
    void *self;
    struct hr__progress *progress;
    struct hr__http_client *http; /* the client of objects; NULL: there are none */
};

static int collect_file(const struct shard_pass *pass, struct hr__shard *file)
{
    struct hr__byte_source source;
    int r = hr__source_open(&source, file->path, pass->http, &file->error);
    if (r)
        return r;
    file->file_bytes = source.bytes;
    file->mtime_ns = source.mtime_ns;
    file->change = source.change;
    r = pass->collect(pass->self, file, &source);
    hr__source_close(&source);
    return r;
}

static void collect_one(void *arg, size_t i)
{
    const struct shard_pass *pass = arg;
    struct hr__shard *file = &pass->files[i];
    int r = hr__progress_cancelled(pass->progress) ? -ECANCELED : collect_file(pass, file);
    if (r) {
        file->error.code = r;
        hr__progress_cancel(pass->progress);
    }
    hr__progress_add(pass->progress, 1);
}

int hr__shard_collect(struct hr__shard **out, const struct hr__shard_source *source,
                      hr__shard_fn collect, void *self, struct hr_error *error)
{
    size_t count = source->count;
    int r = 0;
    *out = NULL;
    struct hr__shard *files = hr__alloc(HR__TAG_DATASET, count, sizeof *files);
    if (!files)
        return hr__fail(error, -ENOMEM, "out of memory for %zu shards", count);
    for (size_t i = 0; i < count; i++)
        files[i] =
            (struct hr__shard){.path = source->paths[i], .index = i, .progress = source->progress};
    struct shard_pass pass = {
        .files = files, .collect = collect, .self = self, .progress = source->progress};
    for (size_t i = 0; !r && !pass.http && i < count; i++)
        if (hr__url_is(source->paths[i]))
            r = hr__http_create(&pass.http, error);
    if (r) {
        hr__shard_free(files, count);
        return r;
    }
    hr__progress_stage(source->progress, "reading shards", count);
    source->executor->run(source->executor->self, count, collect_one, &pass);
    hr__http_unref(&pass.http);
    for (size_t i = 0; i < count; i++)
        if (files[i].error.code && (!r || r == -ECANCELED)) {
            r = files[i].error.code;
            if (error)
                *error = files[i].error;
        }
    if (r == -ECANCELED || (!r && hr__progress_end(source->progress)))
        r = hr__fail(error, -ECANCELED, "reading shards was cancelled");
    if (r)
        hr__shard_free(files, count);
    else
        *out = files;
    return r;
}

int hr__shard_add(struct hr__shard *file, const char *name, const struct hr__shard_sample *item)
{
    size_t length = strlen(name) + 1;
    if (hr__reserve(HR__TAG_DATASET, &file->text, file->text_bytes + length) ||
        hr__reserve(HR__TAG_DATASET, &file->items, file->count + 1))
        return hr__fail(&file->error, -ENOMEM, "out of memory for the names in %s", file->path);
    memcpy(file->text + file->text_bytes, name, length);
    file->items[file->count] = *item;
    file->items[file->count].name = file->text_bytes;
    file->count++;
    file->text_bytes += length;
    return 0;
}

static void fill_file(struct hr__catalog *c, const struct hr__shard *file, uint64_t *sample)
{
    c->containers[file->index] = (struct hr__catalog_container){
        hr__catalog_text(c, file->path, strlen(file->path)), file->file_bytes,
        file->change ? (int64_t)file->change : file->mtime_ns};
    for (size_t k = 0; k < file->count; k++) {
        const struct hr__shard_sample *item = &file->items[k];
        const char *name = hr__shard_name(file, k);
        uint64_t i = *sample;
        if (item->is_label)
            continue;
        c->names[i] = hr__catalog_text(c, name, strlen(name));
        c->sizes[i] = (int64_t)item->bytes;
        c->mtimes_ns[i] = file->mtime_ns;
        c->labels[i] = item->label;
        c->ranges[i] = (struct hr__catalog_range){.offset = item->offset,
                                                  .source_bytes = item->bytes,
                                                  .container = (uint32_t)file->index};
        ++*sample;
    }
}

int hr__shard_catalog(struct hr__catalog **out, const struct hr__shard *files, size_t count,
                      const struct hr__names *classes, struct hr_error *error)
{
    struct hr__catalog_shape shape = {.classes = classes ? classes->count : 0,
                                      .directories = 1,
                                      .arena_bytes = (classes ? classes->bytes : 0) + 1,
                                      .labels = 1,
                                      .containers = count};
    *out = NULL;
    for (size_t i = 0; i < count; i++) {
        shape.arena_bytes += strlen(files[i].path) + 1 + files[i].text_bytes;
        for (size_t k = 0; k < files[i].count; k++)
            shape.samples += !files[i].items[k].is_label;
    }
    if (!shape.samples)
        return hr__fail(error, -ENODATA, "no image in %s%s", files[0].path,
                        count > 1 ? " and the other shards" : "");
    int r = hr__catalog_create(out, &shape);
    if (r)
        return hr__fail(error, r, "out of memory for %" PRIu64 " samples", shape.samples);
    struct hr__catalog *c = *out;
    uint64_t sample = 0;
    c->directories[0].path = hr__catalog_text(c, "", 0);
    c->header->root = c->directories[0].path;
    c->directories[0].count = shape.samples;
    c->header->flags |= HR__CATALOG_SIZES;
    c->untrusted = 1;
    const char *name = shape.classes ? classes->text : NULL;
    for (size_t i = 0; i < shape.classes; i++, name += strlen(name) + 1)
        c->class_names[i] = hr__catalog_text(c, name, strlen(name));
    for (size_t i = 0; i < count; i++)
        fill_file(c, &files[i], &sample);
    return 0;
}

void hr__shard_free(struct hr__shard *files, size_t count)
{
    for (size_t i = 0; files && i < count; i++) {
        hr__free(files[i].items);
        hr__free(files[i].text);
    }
    hr__free(files);
}
