/* Growing texts and escaping; see draft.h. */
#include "base/draft.h"

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes room for `more` bytes and the terminating zero. */
static bool reserve(struct hr__draft *d, size_t more)
{
    size_t wanted;
    if (__builtin_add_overflow(d->length, more, &wanted) || wanted == SIZE_MAX)
        d->failed = true;
    if (!d->failed)
        d->failed = hr__reserve(HR__TAG_REPORT, &d->text, wanted + 1) != 0;
    return !d->failed;
}

void hr__draft_add(struct hr__draft *d, const char *text, size_t length)
{
    if (!reserve(d, length))
        return;
    memcpy(d->text + d->length, text, length);
    d->length += length;
    d->text[d->length] = 0;
}

void hr__draft_put(struct hr__draft *d, const char *text)
{
    hr__draft_add(d, text, strlen(text));
}

void hr__draft_print(struct hr__draft *d, const char *format, ...)
{
    /* Usually the text fits at the first try. */
    for (size_t room = 256; reserve(d, room);) {
        va_list args;
        va_start(args, format);
        int n = vsnprintf(d->text + d->length, room + 1, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n <= room) {
            d->length += (size_t)n;
            return;
        }
        d->text[d->length] = 0;
        if (n < 0)
            break;
        room = (size_t)n;
    }
    d->failed = true;
}

void hr__draft_repeat(struct hr__draft *d, char c, size_t times)
{
    if (!reserve(d, times))
        return;
    memset(d->text + d->length, c, times);
    d->length += times;
    d->text[d->length] = 0;
}

void hr__draft_plain(struct hr__draft *d, const char *text)
{
    size_t most = strlen(text) * 4 + 1;
    if (!reserve(d, most))
        return;
    hr__printable(d->text + d->length, most, text);
    d->length += strlen(d->text + d->length);
}

/* Replaces each byte of `special` in the text from `at` on. */
static void replace_from(struct hr__draft *d, size_t at, const char *special,
                         const char *const *replacements)
{
    if (d->failed || at == d->length)
        return;
    size_t length = d->length - at;
    char *raw = hr__alloc(HR__TAG_REPORT, length, 1);
    if (!raw) {
        d->failed = true;
        return;
    }
    memcpy(raw, d->text + at, length);
    d->length = at;
    for (size_t i = 0; i < length; i++) {
        const char *found = strchr(special, raw[i]);
        if (found)
            hr__draft_put(d, replacements[found - special]);
        else
            hr__draft_add(d, raw + i, 1);
    }
    hr__free(raw);
}

void hr__draft_html(struct hr__draft *d, const char *text)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    size_t at = d->length;
    hr__draft_plain(d, text);
    replace_from(d, at, "&<>\"'", entities);
}

void hr__draft_lines_html(struct hr__draft *d, const char *text)
{
    while (*text && !d->failed) {
        size_t n = strcspn(text, "\n");
        struct hr__draft line = {.text = NULL};
        hr__draft_add(&line, text, n);
        d->failed |= line.failed;
        if (!d->failed)
            hr__draft_html(d, line.text);
        hr__draft_clear(&line);
        hr__draft_put(d, "\n");
        text += n + (text[n] == '\n');
    }
}

void hr__draft_json(struct hr__draft *d, const char *text)
{
    /* hr__printable has removed control bytes; <, > and & could end a script. */
    static const char *const escapes[] = {"\\\"", "\\\\", "\\u003c", "\\u003e", "\\u0026"};
    hr__draft_put(d, "\"");
    size_t at = d->length;
    hr__draft_plain(d, text);
    replace_from(d, at, "\"\\<>&", escapes);
    hr__draft_put(d, "\"");
}

int hr__draft_write(const struct hr__draft *d, const char *path, struct hr_error *error)
{
    if (d->failed)
        return hr__fail(error, -ENOMEM, "%s: out of memory", path);
    return hr__write_file(path, d->text ? d->text : "", d->length, error);
}

int hr__draft_finish(struct hr__draft *d, char **text, struct hr_error *error)
{
    hr__draft_put(d, ""); /* makes an empty draft a valid text */
    if (d->failed) {
        hr__draft_clear(d);
        return hr__fail(error, -ENOMEM, "out of memory for a text");
    }
    *text = d->text;
    *d = (struct hr__draft){.text = NULL};
    return 0;
}

void hr__draft_clear(struct hr__draft *d)
{
    hr__free(d->text);
    *d = (struct hr__draft){.text = NULL};
}

size_t hr__text_columns(const char *text, size_t length)
{
    size_t columns = 0;
    for (size_t i = 0; i < length; i++)
        columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

int hr__text_width(int columns)
{
    return columns < 40 ? 40 : columns > 160 ? 160 : columns;
}
