/*
 * Vorbis in Ogg, through libvorbisfile. The whole length is the position that the last page states,
 * so a file that was cut off would only seem shorter: its last page must be complete and marked as
 * the last. Several streams one after another may differ in rate and channels, and are refused.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/sound_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#define OV_EXCLUDE_STATIC_CALLBACKS
#include <vorbis/vorbisfile.h>

#define OGG_HEADER 27 /* bytes, before the lengths of segments */

struct vorbis {
    OggVorbis_File file;
    int is_open;
    struct hr__sound_reader reader;
    struct hr_sound_info info;
};

static size_t read_items(void *to, size_t size, size_t count, void *arg)
{
    return size ? hr__sound_take(arg, to, size * count) / size : 0;
}

static int seek_bytes(void *arg, ogg_int64_t offset, int whence)
{
    return hr__sound_seek(arg, offset, whence) < 0 ? -1 : 0;
}

static long tell_bytes(void *arg)
{
    return (long)((struct hr__sound_reader *)arg)->at;
}

static void vorbis_destroy(void *state)
{
    struct vorbis *v = state;
    if (v->is_open)
        ov_clear(&v->file);
    hr__free(v);
}

/* Walks the pages. Checks that all are complete, up to one that is marked as the last. Bytes after
 * it (tags) are ignored. */
static int check_pages(const struct hr__sound_file *f, struct hr_error *error)
{
    size_t at = 0;
    int is_last = 0;
    while (f->length - at >= OGG_HEADER && !memcmp(f->bytes + at, "OggS", 4)) {
        const uint8_t *page = f->bytes + at;
        size_t length = OGG_HEADER + page[26], left = f->length - at;
        for (size_t i = 0; i < page[26] && OGG_HEADER + i < left; i++)
            length += page[OGG_HEADER + i];
        if (length > left)
            break;
        /* The library ignores a further stream that has the same number. */
        if (is_last && page[5] & 2)
            return hr__fail(error, -ENOTSUP,
                            "the Ogg file has another stream at byte %zu, behind its last page; "
                            "cut it there",
                            at);
        is_last = page[5] & 4;
        at += length;
    }
    if (is_last)
        return 0;
    return hr__fail(error, -EBADMSG,
                    "the Ogg file is damaged or ends at byte %zu, before its last page; restore or "
                    "remove it",
                    at);
}

static int vorbis_open(void **state, const struct hr__sound_file *file, struct hr_sound_info *info,
                       struct hr_error *error)
{
    static const ov_callbacks callbacks = {
        .read_func = read_items, .seek_func = seek_bytes, .tell_func = tell_bytes};
    struct vorbis *v = *state ? *state : hr__alloc(HR__TAG_CODEC, 1, sizeof *v);
    *state = v;
    if (!v)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder");
    if (v->is_open)
        ov_clear(&v->file);
    v->reader = (struct hr__sound_reader){.file = *file};
    v->is_open = 0;
    int r = check_pages(file, error);
    if (r)
        return r;
    r = ov_open_callbacks(&v->reader, &v->file, NULL, 0, callbacks);
    if (r)
        return hr__fail(error, -EBADMSG,
                        "the Vorbis file is damaged in its headers; restore or remove it");
    v->is_open = 1;
    const vorbis_info *facts = ov_info(&v->file, 0);
    ogg_int64_t frames = ov_pcm_total(&v->file, -1);
    if (ov_streams(&v->file) != 1)
        return hr__fail(error, -ENOTSUP, "the Ogg file has %ld streams one after another; cut it",
                        ov_streams(&v->file));
    if (!facts || frames < 0 || facts->rate < 0 || facts->rate > INT32_MAX)
        return hr__fail(error, -EBADMSG, "the Vorbis file is damaged; restore or remove it");
    info->rate = (int)facts->rate;
    info->channels = facts->channels;
    info->frames = (uint64_t)frames;
    v->info = *info;
    return 0;
}

static int vorbis_read(void *state, const struct hr__sound_window *window, struct hr_error *error)
{
    struct vorbis *v = state;
    uint64_t at = 0;
    if (ov_pcm_seek(&v->file, (ogg_int64_t)window->first))
        return hr__sound_ends(error, window->first, v->info.frames);
    while (at < window->count) {
        float **planes;
        int stream;
        uint64_t left = window->count - at;
        long n = ov_read_float(&v->file, &planes, left < 4096 ? (int)left : 4096, &stream);
        if (n <= 0)
            return hr__sound_ends(error, window->first + at, v->info.frames);
        for (int c = 0; c < v->info.channels; c++)
            memcpy(window->planes[c] + at, planes[c], (size_t)n * sizeof(float));
        at += (uint64_t)n;
    }
    return 0;
}

const struct hr__sound_class hr__sound_vorbis = {
    .open = vorbis_open, .read = vorbis_read, .destroy = vorbis_destroy};
