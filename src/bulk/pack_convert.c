/*
 * Reads a sample, chooses its form, converts it, and detects bad samples.
 *
 * A sample that stays encoded is decoded whole once (not with `trust`), so that a bad sample is
 * found when the pack is made and not in the middle of a training run. If the source is a pack, an
 * item that already has the form asked for is kept; otherwise coefficients are turned back into a
 * JPEG.
 */
#include "bulk/pack_convert.h"

#include "base/error.h"
#include "bulk/ahead.h"
#include "bulk/check.h"
#include "codec/waveform.h"
#include "loader/sample.h"
#include "recipe/recipe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* Increment it if the converter's result for the same bytes, or the choice of a form, changes: an
 * unfinished pack of another version is not continued. */
#define CONVERSION_VERSION 4

struct hr__pack_maker {
    const struct hr_pack_options *options;
    struct hr__blocks *pool; /* not owned */
    struct hr__ahead *ahead; /* likewise */
    struct hr_converter *converter;
    struct hr_converter *restorer; /* a second converter, which turns an item of a pack into a JPEG
                                      for the first one to convert; made when needed */
    struct hr__checker *checker;
    struct hr__sample sample;
    uint64_t image_end;          /* the sample after the image whose header is below; 0: none */
    struct hr_image_info header; /* of an image whose mask follows; no format: it is bad */
};

uint64_t hr__pack_options_digest(const struct hr_pack_options *options)
{
    struct {
        uint32_t version;
        int32_t form, trust;
        uint32_t zero;
        double max_growth;
        uint64_t waveforms; /* form, head and decoders; 0: there are none */
    } parts = {CONVERSION_VERSION,  options->form,
               options->trust != 0, 0,
               options->max_growth, hr__waveform_digest(options->form, &options->head)};
    return XXH3_64bits(&parts, sizeof parts);
}

static int create_converter(struct hr_converter **out, const struct hr_pack_options *options,
                            struct hr_error *error)
{
    struct hr_converter_options converting;
    hr_converter_options_default(&converting);
    converting.trust = options->trust;
    converting.max_growth = options->max_growth;
    return hr_converter_create(out, &converting, error);
}

int hr__pack_maker_create(struct hr__pack_maker **out, const struct hr_pack_options *options,
                          struct hr__blocks *pool, struct hr__ahead *ahead, struct hr_error *error)
{
    struct hr__pack_maker *m = hr__alloc(HR__TAG_LOADER, 1, sizeof *m);
    *out = NULL;
    if (!m)
        return hr__fail(error, -ENOMEM, "out of memory for a converter");
    m->options = options;
    m->pool = pool;
    m->ahead = ahead;
    int r = create_converter(&m->converter, options, error);
    if (!r)
        r = hr__checker_create(&m->checker, error);
    if (r)
        hr__pack_maker_destroy(&m);
    *out = m;
    return r;
}

void hr__pack_maker_destroy(struct hr__pack_maker **maker)
{
    struct hr__pack_maker *m = *maker;
    *maker = NULL;
    if (!m)
        return;
    hr_converter_destroy(&m->converter);
    hr_converter_destroy(&m->restorer);
    hr__checker_destroy(&m->checker);
    hr__sample_clear(&m->sample);
    hr__free(m);
}

/* Records an error of the sample, which is then kept as it is, or of the machine. whose: "its mask:
 * " or "". */
static void fail(struct hr__made *made, int code, const char *whose, const struct hr_error *why)
{
    made->result = code;
    made->fatal = !hr__is_samples_fault(code);
    made->entry.kept = HR_PACK_KEPT_BAD;
    snprintf(made->reason, sizeof made->reason, "%s%.380s", whose,
             why->message[0] ? why->message : hr__errno_text(code));
}

/* The modification time of a sample's image file now, or HR_SIZE_UNKNOWN; of an object: as it was
 * listed. */
static int64_t mtime_now(const struct hr__sample *sample, const struct hr_dataset *dataset,
                         uint64_t index)
{
    struct stat st;
    if (sample->read.is_range || sample->read.http)
        return hr__dataset_mtime_ns(dataset, index);
    if (stat(sample->read.path, &st))
        return HR_SIZE_UNKNOWN;
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

/* Reads the sample's bytes as they are on storage into made->bytes, also if their checksum is
 * wrong. Reads the modification time before the bytes, so that a change in between is noticed when
 * the pack is continued. */
static int read_sample(struct hr__pack_maker *m, struct hr_dataset *dataset, uint64_t index,
                       struct hr__made *made, struct hr_error *why)
{
    struct hr__sample *s = &m->sample;
    int is_ahead = hr__ahead_wait(m->ahead, index);
    int r = hr__sample_aim(s, dataset, index, 0, why);
    if (is_ahead)
        hr__ahead_take(m->ahead, index, &s->read);
    if (r) {
        hr__read_drop(&s->read);
        return r;
    }
    int64_t mtime_ns = mtime_now(s, dataset, index);
    if (!is_ahead)
        s->read.result = hr__read_file(&s->read, 0);
    r = hr__sample_check(s, why);
    if (s->read.result) {
        s->read.bytes = NULL;
        hr__read_drop(&s->read); /* the reason */
        return r;
    }
    made->bytes = s->read.bytes;
    made->entry.bytes = made->bytes;
    made->entry.length = s->read.length;
    made->entry.form = hr_form_of(made->bytes, s->read.length);
    made->entry.mtime_ns = mtime_ns;
    made->entry.source_bytes = s->read.length;
    if (s->read.is_range && s->range.source_bytes)
        made->entry.source_bytes = s->range.source_bytes;
    return r;
}

/* Replaces the bytes by a converter's item. */
static int take_item(struct hr__pack_maker *m, const struct hr_item *item, struct hr__made *made)
{
    void *bytes = hr__blocks_alloc(m->pool, item->length ? item->length : 1);
    if (!bytes)
        return -ENOMEM;
    memcpy(bytes, item->bytes, item->length);
    hr__free(made->bytes);
    made->bytes = bytes;
    made->entry.bytes = bytes;
    made->entry.length = item->length;
    made->entry.form = item->form;
    if (hr__item_is_rewritten(item->bytes, item->length))
        snprintf(made->reason, sizeof made->reason,
                 "it is progressive: the pack holds, and unpack writes, a baseline JPEG with the "
                 "same coefficients and metadata");
    return 0;
}

static int is_jpeg(const struct hr__pack_entry *entry)
{
    const uint8_t *p = entry->bytes;
    return entry->length >= 3 && p[0] == 0xFF && p[1] == 0xD8 && p[2] == 0xFF;
}

/* Keeps the sample as it is; `why` may be NULL. */
static int keep(struct hr__pack_maker *m, struct hr__made *made, enum hr_pack_kept kept,
                const struct hr_error *why, struct hr_error *error)
{
    made->entry.kept = kept;
    if (why)
        snprintf(made->reason, sizeof made->reason, "%.399s", why->message);
    if (m->options->trust)
        return 0;
    return hr__checker_decode(m->checker, made->entry.bytes, made->entry.length, error);
}

/* The reason to keep a sample that a converter refused; HR_PACK_CONVERTED if the error is not a
 * refusal but an error of the sample. */
static enum hr_pack_kept refusal(int code, const struct hr__pack_entry *entry)
{
    if (code == -ENOSPC)
        return HR_PACK_KEPT_GROWTH;
    if (code == -ENOTSUP)
        return is_jpeg(entry) ? HR_PACK_KEPT_KIND : HR_PACK_KEPT_FORMAT;
    return HR_PACK_CONVERTED;
}

static int convert_to(struct hr__pack_maker *m, struct hr__made *made, enum hr_form form,
                      struct hr_error *error)
{
    struct hr_item item;
    struct hr_error why = {0};
    int r =
        hr_converter_run(m->converter, form, made->entry.bytes, made->entry.length, &item, &why);
    if (!r)
        return take_item(m, &item, made);
    enum hr_pack_kept kept = refusal(r, &made->entry);
    if (kept)
        return keep(m, made, kept, &why, error);
    return hr__fail(error, r, "%s", why.message[0] ? why.message : hr__errno_text(r));
}

/* How many bytes the image would take in a form; 0: its header shows that it cannot have it. */
static uint64_t bytes_as(struct hr__pack_maker *m, const struct hr__made *made, enum hr_form form)
{
    struct hr_form_estimate estimate = {.size = sizeof estimate};
    if (hr_converter_estimate(m->converter, form, made->entry.bytes, made->entry.length, &estimate,
                              NULL))
        return 0;
    return estimate.possible ? estimate.bytes : 0;
}

/* Converts to the form that is worth its bytes. Has to convert to coefficients to know their size;
 * converts again while that, or a refusal, changes the choice. */
static int convert_auto(struct hr__pack_maker *m, struct hr__made *made, struct hr_error *error)
{
    struct hr_image_info info;
    struct hr_item item;
    struct hr_error why;
    enum hr_pack_kept kept = HR_PACK_KEPT_WORTH;
    uint64_t bytes[HR_FORMS] = {[HR_FORM_ENCODED] = made->entry.length};
    int r = hr__checker_info(m->checker, made->entry.bytes, made->entry.length, &info, error);
    if (r)
        return r;
    bytes[HR_FORM_PLANES] = bytes_as(m, made, HR_FORM_PLANES);
    bytes[HR_FORM_INDEXED] = bytes_as(m, made, HR_FORM_INDEXED);
    enum hr_form form = HR_FORM_COEFFICIENTS, last = HR_FORM_ENCODED;
    while (form != HR_FORM_ENCODED && form != last) {
        struct hr_error now = {0};
        r = hr_converter_run(m->converter, form, made->entry.bytes, made->entry.length, &item,
                             &now);
        if (r && !refusal(r, &made->entry))
            return hr__fail(error, r, "%s", now.message[0] ? now.message : hr__errno_text(r));
        /* of a PNG this is no reason: it may have planes */
        if (r && form == HR_FORM_COEFFICIENTS && info.format != HR_IMAGE_PNG) {
            kept = refusal(r, &made->entry);
            why = now;
        }
        bytes[form] = r ? 0 : item.length;
        last = r ? HR_FORM_ENCODED : form;
        form = hr__pack_worth(info.format, (uint64_t)info.width * (uint64_t)info.height, bytes);
    }
    if (form != HR_FORM_ENCODED)
        return take_item(m, &item, made);
    /* an impossible conversion gets a reason text; too small a gain does not */
    return keep(m, made, kept, kept == HR_PACK_KEPT_WORTH ? NULL : &why, error);
}

/* Turns an item of a pack that is not in the form asked for back into the JPEG it came from. Planes
 * stay as they are, because their JPEG is lost. */
static int restore(struct hr__pack_maker *m, struct hr__made *made, struct hr_error *error)
{
    struct hr_item item;
    int r = m->restorer ? 0 : create_converter(&m->restorer, m->options, error);
    if (!r)
        r = hr_converter_restore(m->restorer, made->entry.bytes, made->entry.length, &item, error);
    return r ? r : take_item(m, &item, made);
}

/* Sounds stay files, or become waveforms. */
static int convert_sound(struct hr__pack_maker *m, struct hr__made *made, struct hr_error *error)
{
    int wanted = m->options->form;
    const struct hr_item file = {made->entry.bytes, made->entry.length, made->entry.form};
    struct hr_item item;
    struct hr_error why = {0};
    if (wanted < 0 || !hr__form_is_waveform((enum hr_form)wanted))
        return keep(m, made, wanted == HR_FORM_ENCODED ? HR_PACK_KEPT_ASKED : HR_PACK_KEPT_FORMAT,
                    NULL, error);
    if (file.form != HR_FORM_ENCODED)
        return m->options->trust ? 0
                                 : hr__checker_decode(m->checker, file.bytes, file.length, error);
    int r = hr__checker_waveform(m->checker, (enum hr_form)wanted, &m->options->head, &file, &item,
                                 &why);
    if (!r && m->options->max_growth > 0 &&
        (double)item.length > m->options->max_growth * (double)file.length)
        r = hr__fail(&why, -ENOSPC, "its waveform takes %zu bytes", item.length);
    if (!r)
        return take_item(m, &item, made);
    if (r == -ENOSPC || r == -ERANGE)
        return keep(m, made, HR_PACK_KEPT_GROWTH, &why, error);
    return hr__fail(error, r, "%s", why.message);
}

static int convert(struct hr__pack_maker *m, struct hr__made *made, struct hr_error *error)
{
    int wanted = m->options->form, r = 0;
    if (hr__checker_expects_sound(m->checker))
        return convert_sound(m, made, error);
    if (made->entry.form != HR_FORM_ENCODED && wanted != (int)made->entry.form) {
        if (made->entry.form == HR_FORM_PLANES)
            return 0;
        r = restore(m, made, error);
    } else if (made->entry.form != HR_FORM_ENCODED) {
        return m->options->trust
                   ? 0
                   : hr__checker_decode(m->checker, made->entry.bytes, made->entry.length, error);
    }
    if (r)
        return r;
    if (wanted == HR_FORM_ENCODED)
        return keep(m, made, HR_PACK_KEPT_ASKED, NULL, error);
    if (wanted == HR_FORM_AUTO)
        return convert_auto(m, made, error);
    return convert_to(m, made, (enum hr_form)wanted, error);
}

/* Notes the header of an image whose mask is sample `index` + 1. */
static void note_image(struct hr__pack_maker *m, uint64_t index, const struct hr__made *made)
{
    const void *bytes = made->entry.bytes;
    m->image_end = index + 1;
    m->header = (struct hr_image_info){0};
    if (hr__checker_info(m->checker, bytes, made->entry.length, &m->header, NULL))
        m->header = (struct hr_image_info){0};
}

/* Notes the header of the image before a mask, if another thread or an earlier run packed it. */
static void find_image(struct hr__pack_maker *m, struct hr_dataset *dataset, uint64_t mask)
{
    struct hr__made image = {0};
    if (m->image_end == mask)
        return;
    m->image_end = mask;
    m->header = (struct hr_image_info){0};
    if (!read_sample(m, dataset, mask - 1, &image, NULL))
        note_image(m, mask - 1, &image);
    hr__free(image.bytes);
}

/* A mask stays the file it is. Its size is not compared with that of a bad image. */
static int keep_mask(struct hr__pack_maker *m, struct hr_dataset *dataset, uint64_t index,
                     struct hr__made *made, struct hr_error *error)
{
    made->entry.kept =
        m->options->form == HR_FORM_ENCODED ? HR_PACK_KEPT_ASKED : HR_PACK_KEPT_FORMAT;
    if (m->options->trust)
        return 0;
    find_image(m, dataset, index);
    return hr__checker_mask(m->checker, made->entry.bytes, made->entry.length,
                            m->header.format ? &m->header : NULL, error);
}

void hr__pack_make(struct hr__pack_maker *maker, struct hr_dataset *dataset, uint64_t index,
                   struct hr__made *made)
{
    struct hr_error why = {0};
    memset(made, 0, offsetof(struct hr__made, reason));
    made->reason[0] = 0;
    made->result = made->fatal = 0;
    made->entry.mtime_ns = HR_SIZE_UNKNOWN;
    int is_mask = dataset->is_paired && index % 2;
    int r = read_sample(maker, dataset, index, made, &why);
    if (!r && is_mask) {
        r = keep_mask(maker, dataset, index, made, &why);
    } else if (!r) {
        if (dataset->is_paired)
            note_image(maker, index, made);
        hr__checker_expect(maker->checker, dataset, index, made->entry.bytes, made->entry.length);
        r = convert(maker, made, &why);
    }
    if (r)
        fail(made, r, is_mask ? "its mask: " : "", &why);
    made->entry.checksum = XXH3_64bits(made->entry.bytes, made->entry.length);
}
