/*
 * Checks the header of an item, which all forms share. Each form checks what follows the header.
 */
#include "codec/item.h"

#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int hr__item_recognise(const void *bytes, size_t length)
{
    return length >= sizeof(struct hr__item_header) &&
           !memcmp(bytes, HR__ITEM_MAGIC, HR__ITEM_MAGIC_BYTES);
}

int hr__item_is_rewritten(const void *bytes, size_t length)
{
    struct hr__item_header h = {.form = HR_FORM_ENCODED};
    return !hr__item_parse(&h, bytes, length, NULL) && h.form == HR_FORM_INDEXED &&
           h.flags & HR__ITEM_PROGRESSIVE;
}

static int has_profiles(const struct hr__item_header *h)
{
    return h->form == HR_FORM_COEFFICIENTS && h->version > 1;
}

/* Returns non-zero if the flags are known ones of the item's form and version. */
static int has_own_flags(const struct hr__item_header *h)
{
    int planes = h->form == HR_FORM_PLANES, rgb = (h->flags & HR__ITEM_RGB) != 0;
    if (h->flags & ~(HR__ITEM_WIDE | HR__ITEM_PROGRESSIVE | HR__ITEM_RGB))
        return 0;
    return rgb == (planes && h->version > HR__PLANES_YCC_VERSION) &&
           (!rgb || (h->components == 3 && h->h == 1 && h->v == 1));
}

static int is_sane(const struct hr__item_header *h)
{
    static const uint8_t zero[sizeof h->reserved];
    int grey = h->components == 1 && h->h == 1 && h->v == 1;
    int colour = h->components == 3 && hr__item_may_sample(h->h, h->v);
    return (grey || colour) && h->form > HR_FORM_ENCODED && h->form <= HR_FORM_INDEXED &&
           h->width - 1u < HR__ITEM_SIDE_MOST && h->height - 1u < HR__ITEM_SIDE_MOST &&
           h->orientation >= 1 && h->orientation <= 8 && has_own_flags(h) &&
           (has_profiles(h) ? h->profiles - 1u < HR__PROFILES_MOST : !h->profiles) &&
           !memcmp(h->reserved, zero, sizeof zero);
}

int hr__item_damaged(struct hr_error *error, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return hr__fail(error, -EBADMSG, "damaged item: %s; convert the file again", what);
}

int hr__item_parse(struct hr__item_header *out, const void *bytes, size_t length,
                   struct hr_error *error)
{
    struct hr__item_header h;
    if (!hr__item_recognise(bytes, length))
        return hr__item_damaged(error, "its header is missing");
    memcpy(&h, bytes, sizeof h);
    int latest = h.form == HR_FORM_COEFFICIENTS ? HR__COEFFICIENTS_VERSION
                 : h.form == HR_FORM_INDEXED    ? HR__INDEXED_VERSION
                                                : HR__PLANES_VERSION;
    if (h.version < 1 || h.version > latest)
        return hr__fail(error, -ENOTSUP,
                        "the item is of version %d and this Headrace knows versions up to %d; "
                        "convert the file again or use the Headrace that made the item",
                        h.version, latest);
    if (h.bytes != length)
        return hr__item_damaged(error, "it has %zu bytes and its header says %llu", length,
                                (unsigned long long)h.bytes);
    if (!is_sane(&h))
        return hr__item_damaged(
            error, "its header makes no sense (form %d, %u x %u pixels, %d components)", h.form,
            h.width, h.height, h.components);
    *out = h;
    return 0;
}
