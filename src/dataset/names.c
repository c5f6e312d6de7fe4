/*
 * File names: Python's order, torchvision's extensions, and a sorted list.
 *
 * Sorting dominates the walk of large directories. Names in a directory mostly share a prefix, so
 * each name gets the eight bytes after the common prefix as an integer key. Names are compared in
 * full only if their keys are equal.
 */
#include "dataset/names.h"

#include "base/memory.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns the length of the well-formed UTF-8 sequence at p (RFC 3629), or 0 if there is none. */
static int sequence_length(const unsigned char *p)
{
    unsigned char low = 0x80, high = 0xBF;
    int length;
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        length = 2;
    } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        length = 3;
        if (p[0] == 0xE0)
            low = 0xA0; /* overlong forms excluded */
        else if (p[0] == 0xED)
            high = 0x9F; /* surrogates excluded */
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        length = 4;
        if (p[0] == 0xF0)
            low = 0x90;
        else if (p[0] == 0xF4)
            high = 0x8F; /* at most U+10FFFF */
    } else {
        return 0;
    }
    if (p[1] < low || p[1] > high)
        return 0;
    for (int i = 2; i < length; i++)
        if (p[i] < 0x80 || p[i] > 0xBF)
            return 0;
    return length;
}

static uint32_t next_code(const unsigned char **at)
{
    const unsigned char *p = *at;
    int length = sequence_length(p);
    if (length <= 1) {
        *at += 1;
        return length ? p[0] : 0xDC00u + p[0];
    }
    uint32_t code = p[0] & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++)
        code = code << 6 | (p[i] & 0x3F);
    *at += length;
    return code;
}

int hr__name_compare(const char *a, const char *b)
{
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    size_t i = 0;
    while (x[i] == y[i] && x[i])
        i++;
    /* A byte below 0x80 is never part of a longer sequence. So both names decode the same up to
     * here, and these bytes decide. */
    if (x[i] < 0x80 && y[i] < 0x80)
        return (int)x[i] - (int)y[i];
    for (;;) {
        uint32_t p = next_code(&x), q = next_code(&y);
        if (p != q)
            return p < q ? -1 : 1;
        if (!p)
            return 0;
    }
}

/* Returns non-zero if a name ends with one of the extensions, which a NULL ends. */
static int has_extension(const char *name, size_t length, const char *const *extensions)
{
    for (; *extensions; extensions++) {
        size_t n = strlen(*extensions);
        if (length >= n && !strcasecmp(name + length - n, *extensions))
            return 1;
    }
    return 0;
}

int hr__name_is_image(const char *name, size_t length)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png",  ".ppm",  ".bmp",
                                             ".pgm", ".tif",  ".tiff", ".webp", NULL};
    return has_extension(name, length, extensions);
}

int hr__name_is_sound(const char *name, size_t length)
{
    static const char *const extensions[] = {".wav", ".flac", ".mp3",  ".ogg", ".oga", ".opus",
                                             ".m4a", ".aac",  ".aiff", ".aif", ".wma", NULL};
    return has_extension(name, length, extensions);
}

int hr__names_add(struct hr__names *names, const char *name, size_t length)
{
    if (hr__reserve(HR__TAG_DATASET, &names->text, names->bytes + length + 1))
        return -ENOMEM;
    char *at = names->text + names->bytes;
    memcpy(at, name, length);
    at[length] = 0;
    for (size_t i = 0; i < length && !names->non_ascii; i++)
        names->non_ascii = (unsigned char)at[i] >= 0x80;
    names->bytes += length + 1;
    names->count++;
    return 0;
}

struct keyed {
    uint64_t key; /* eight bytes after the common prefix, first byte highest */
    const char *name;
};

static int compare_keyed(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return hr__name_compare(x->name, y->name);
}

static uint64_t key_of(const char *name)
{
    uint64_t key = 0;
    for (int i = 0; i < 8; i++) {
        key = key << 8 | (unsigned char)*name;
        name += *name != 0;
    }
    return key;
}

/* Returns the length of the prefix that all names share. */
static size_t common_prefix(const struct hr__names *names)
{
    size_t prefix = strlen(names->text);
    const char *name = names->text;
    for (size_t i = 1; i < names->count && prefix; i++) {
        name += strlen(name) + 1;
        size_t same = 0;
        while (same < prefix && name[same] == names->text[same])
            same++;
        prefix = same;
    }
    return prefix;
}

int hr__names_sort(struct hr__names *names)
{
    if (!names->count)
        return 0;
    struct keyed *keyed = hr__alloc(HR__TAG_DATASET, names->count, sizeof *keyed);
    names->items = hr__alloc(HR__TAG_DATASET, names->count, sizeof *names->items);
    if (!keyed || !names->items) {
        hr__free(keyed);
        return -ENOMEM;
    }
    size_t prefix = names->non_ascii ? 0 : common_prefix(names);
    const char *name = names->text;
    int sorted = 1;
    for (size_t i = 0; i < names->count; i++, name += strlen(name) + 1) {
        keyed[i].name = name;
        /* bytes decide only if all names are ASCII; otherwise all keys are equal */
        keyed[i].key = names->non_ascii ? 0 : key_of(name + prefix);
        sorted = sorted && (!i || compare_keyed(&keyed[i - 1], &keyed[i]) <= 0);
    }
    if (!sorted)
        qsort(keyed, names->count, sizeof *keyed, compare_keyed);
    for (size_t i = 0; i < names->count; i++)
        names->items[i] = keyed[i].name;
    hr__free(keyed);
    return 0;
}

void hr__names_clear(struct hr__names *names)
{
    hr__free(names->text);
    hr__free(names->items);
    memset(names, 0, sizeof *names);
}
