/*
 * The bytes of one sample (sample.h). One buffer holds the path of each sample's file in turn; the
 * path of a container belongs to the dataset.
 */
#include "loader/sample.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>

static int set_path(struct hr__sample *s, const struct hr_dataset *dataset, uint64_t index)
{
    size_t length = hr_dataset_path(dataset, index, s->path, s->path_capacity);
    if (length >= s->path_capacity) {
        size_t capacity = length + 64;
        char *path = hr__realloc(HR__TAG_LOADER, s->path, capacity, 1);
        if (!path)
            return -ENOMEM;
        s->path = path;
        s->path_capacity = capacity;
        hr_dataset_path(dataset, index, s->path, capacity);
    }
    return 0;
}

int hr__sample_aim(struct hr__sample *s, const struct hr_dataset *dataset, uint64_t index,
                   int direct, struct hr_error *error)
{
    void *user = s->read.user;
    int r = hr__dataset_range(dataset, index, direct, &s->range, error);
    if (r == 1) {
        s->read = (struct hr__read){
            .path = s->range.path,
            .expected = (int64_t)s->range.bytes,
            .is_range = 1,
            .fd = s->range.fd,
            .offset = s->range.offset,
            .http = s->range.http,
            .change = s->range.change,
            .uncached = s->uncached,
            .user = user,
        };
        return 0;
    }
    if (!r && set_path(s, dataset, index))
        r = hr__fail(error, -ENOMEM, "out of memory for its path");
    s->read = (struct hr__read){
        .path = s->path,
        .expected = hr_dataset_sample_bytes(dataset, index),
        .uncached = s->uncached,
        .http = r ? NULL : hr__dataset_http(dataset, s->path),
        .max_bytes = s->max_bytes,
        .user = user,
        .result = r,
    };
    if (s->read.http)
        s->read.change = hr__dataset_change(dataset, index);
    return r;
}

void hr__sample_aim_at(struct hr__sample *s, const struct hr__cache_place *place)
{
    s->range = (struct hr__range){.path = place->path, .offset = place->offset};
    s->read = (struct hr__read){
        .path = place->path,
        .expected = (int64_t)place->length,
        .is_range = 1,
        .fd = place->fd,
        .is_direct = place->is_direct,
        .offset = place->offset,
        .uncached = s->uncached,
        .user = s->read.user,
    };
}

int hr__sample_check(const struct hr__sample *s, struct hr_error *error)
{
    const struct hr__read *read = &s->read;
    int r = read->result;
    if (r && read->reason)
        return hr__fail(error, r, "%s", read->reason);
    if (r == -ENODATA && read->is_range)
        return hr__fail(error, r,
                        "%s ends before the %" PRIu64 " bytes at %" PRIu64
                        " that are this sample's: it was cut; copy it again",
                        s->range.path, s->range.bytes, s->range.offset);
    if (r == -EFBIG && s->max_bytes)
        return hr__fail(error, r,
                        "the file is larger than max_source_bytes of %" PRIu64
                        "; cut the recording, or raise the limit",
                        s->max_bytes);
    if (r)
        return hr__fail(error, r, "cannot read it: %s", hr__errno_text(r));
    if (read->is_range && !hr__range_check(&s->range, read->bytes, read->length))
        return hr__fail(error, -EBADMSG,
                        "its checksum differs: %s is damaged here; check it with headrace pack "
                        "--verify %s",
                        s->range.path, s->range.path);
    return 0;
}

int hr__sample_learn(const struct hr__sample *s, struct hr_dataset *dataset, uint64_t index)
{
    return s->read.version &&
           hr__dataset_learn(dataset, index, (int64_t)s->read.length, s->read.version);
}

int hr__sample_finish(struct hr__sample *s, struct hr_error *error)
{
    int r = hr__sample_check(s, error);
    if (s->read.result)
        s->read.bytes = NULL;
    if (r)
        hr__read_drop(&s->read);
    return r;
}

int hr__sample_read(struct hr__sample *s, const struct hr_dataset *dataset, uint64_t index,
                    struct hr_error *error)
{
    if (dataset->produced)
        return hr__fail(error, -ENOTSUP, "its bytes come from producers, not from a file");
    int r = hr__sample_aim(s, dataset, index, 0, error);
    if (r)
        return r;
    s->read.result = hr__read_file(&s->read, 0);
    return hr__sample_finish(s, error);
}

int hr_dataset_read(const struct hr_dataset *dataset, size_t index, void **bytes, size_t *length,
                    struct hr_error *error)
{
    struct hr__sample s = {.path_capacity = 0};
    struct hr_error why;
    *bytes = NULL;
    *length = 0;
    int r = hr__sample_read(&s, dataset, index, &why);
    if (r) {
        hr__fail(error, r, "sample %zu (%s): %s", index, s.read.path ? s.read.path : "?",
                 why.message);
    } else {
        *bytes = s.read.bytes;
        *length = s.read.length;
    }
    hr__sample_clear(&s);
    return r;
}

void hr_bytes_free(void *bytes)
{
    hr__free(bytes);
}

int hr__is_samples_fault(int code)
{
    return code != -ENOMEM && code != -EMFILE && code != -ENFILE && code != -ECANCELED &&
           code != -ESRCH;
}

void hr__sample_clear(struct hr__sample *s)
{
    hr__free(s->path);
    s->path = NULL;
    s->path_capacity = 0;
}
