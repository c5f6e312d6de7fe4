/* A checker (check.h): a preparer, and memory for the decoded pixels, which are not used. */
#include "bulk/check.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "codec/sound.h"
#include "dataset/names.h"

#include <headrace/recipe.h>

#include <errno.h>

struct hr__checker {
    struct hr_preparer *preparer;
    struct hr__decoder *masks; /* their decoder; NULL: there was no mask yet */
    int is_sound;              /* the sample has to be one */
    uint64_t max_pixels, max_source_bytes;
    void *pixels;
    size_t capacity; /* of the pixel memory, in bytes */
};

int hr__checker_create(struct hr__checker **out, struct hr_error *error)
{
    struct hr_recipe_options limits;
    struct hr__checker *c = hr__alloc(HR__TAG_LOADER, 1, sizeof *c);
    *out = NULL;
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder");
    hr_recipe_options_default(&limits);
    c->max_pixels = limits.max_pixels;
    c->max_source_bytes = limits.max_source_bytes;
    int r = hr_preparer_create(&c->preparer, error);
    if (r)
        hr__checker_destroy(&c);
    *out = c;
    return r;
}

void hr__checker_destroy(struct hr__checker **checker)
{
    struct hr__checker *c = *checker;
    *checker = NULL;
    if (!c)
        return;
    hr_preparer_destroy(&c->preparer);
    hr__decoder_destroy(&c->masks);
    hr__free(c->pixels);
    hr__free(c);
}

int hr__checker_info(struct hr__checker *checker, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error)
{
    int r = hr_preparer_info(checker->preparer, bytes, length, info, error);
    if (r && hr_sound_recognise(bytes, length))
        return hr__fail(error, r,
                        "this is a sound or video, and its name is that of an image: rename it, or "
                        "leave it out");
    return r ? r : hr__check_pixels(info, checker->max_pixels, error);
}

int hr__checker_expect(struct hr__checker *checker, const struct hr_dataset *dataset, size_t index,
                       const void *bytes, size_t length)
{
    char name[4097];
    size_t n = hr_dataset_key(dataset, index, name, sizeof name);
    if (n >= sizeof name)
        n = 0; /* no file has such a name: it is content alone that counts */
    /* A name that says nothing is that of a sound if the samples are sounds. */
    checker->is_sound =
        hr__name_is_sound(name, n) ||
        (!hr__name_is_image(name, n) &&
         (hr_sound_recognise(bytes, length) || hr_dataset_media(dataset) == HR_MEDIA_SOUNDS));
    return checker->is_sound;
}

int hr__checker_expects_sound(const struct hr__checker *checker)
{
    return checker->is_sound;
}

static int reserve(struct hr__checker *c, size_t needed, struct hr_error *error)
{
    if (needed <= c->capacity)
        return 0;
    hr__free(c->pixels);
    c->capacity = 0;
    c->pixels = hr__alloc_aligned(HR__TAG_LOADER, needed, 0);
    if (!c->pixels)
        return hr__fail(error, -ENOMEM, "out of memory for %zu bytes to decode to", needed);
    c->capacity = needed;
    return 0;
}

/* Decodes all frames of a sound, a part at a time. */
static int decode_sound(struct hr__checker *c, const void *bytes, size_t length,
                        struct hr_error *error)
{
    struct hr_sound_info info;
    uint64_t part = 1;
    int r = hr_form_of(bytes, length) == HR_FORM_ENCODED
                ? hr__sound_check_bytes(length, c->max_source_bytes, error)
                : 0;
    if (!r)
        r = hr_preparer_sound_info(c->preparer, bytes, length, &info, error);
    if (!r)
        part = (1 << 22) / (uint64_t)info.channels;
    for (uint64_t at = 0; !r && at < info.frames; at += part) {
        uint64_t count = info.frames - at < part ? info.frames - at : part;
        r = reserve(c, (size_t)count * (size_t)info.channels * sizeof(float), error);
        if (!r)
            r = hr_preparer_sound_decode(c->preparer, bytes, length, at, count, c->pixels, error);
    }
    return r;
}

int hr__checker_waveform(struct hr__checker *checker, enum hr_form form,
                         const struct hr_sound_head *head, const struct hr_item *file,
                         struct hr_item *item, struct hr_error *error)
{
    int r = hr__sound_check_bytes(file->length, checker->max_source_bytes, error);
    return r ? r
             : hr_preparer_waveform(checker->preparer, form, head, file->bytes, file->length, item,
                                    error);
}

/* Returns non-zero if a mask has its image's size, as that is stored or as it is shown. */
static int has_size(const struct hr_image_info *mask, const struct hr_image_info *image)
{
    return (mask->width == image->width && mask->height == image->height) ||
           (image->orientation >= 5 && mask->width == image->height &&
            mask->height == image->width);
}

int hr__checker_mask(struct hr__checker *checker, const void *bytes, size_t length,
                     const struct hr_image_info *image, struct hr_error *error)
{
    struct hr_image_info info;
    struct hr__planar pixels;
    int r = checker->masks ? 0 : hr__decoder_create(&checker->masks, error);
    if (r)
        return r;
    hr__decoder_want_indices(checker->masks, 1);
    r = hr__decoder_info(checker->masks, bytes, length, &info, error);
    if (!r)
        r = hr__check_pixels(&info, checker->max_pixels, error);
    if (!r && info.format != HR_IMAGE_PNG)
        r = hr__fail(error, -ENOTSUP, "it is %s: masks are PNG files of class indices",
                     hr_image_format_name(info.format));
    if (!r && image && !has_size(&info, image))
        r = hr__fail(error, -EBADMSG,
                     "it has %d x %d pixels (height x width), and the image %d x %d", info.height,
                     info.width, image->height, image->width);
    if (r)
        return r;
    const struct hr_region whole = {0, 0, info.width, info.height};
    return hr__decoder_region(checker->masks, bytes, length, &info, &whole, &pixels, error);
}

int hr__checker_decode(struct hr__checker *checker, const void *bytes, size_t length,
                       struct hr_error *error)
{
    struct hr__checker *c = checker;
    struct hr_image_info info;
    if (c->is_sound)
        return decode_sound(c, bytes, length, error);
    int r = hr__checker_info(c, bytes, length, &info, error);
    if (r)
        return r;
    size_t needed = (size_t)info.width * (size_t)info.height * 3;
    r = reserve(c, needed, error);
    if (r)
        return r;
    return hr_preparer_decode(c->preparer, bytes, length, NULL, c->pixels, c->capacity, error);
}
