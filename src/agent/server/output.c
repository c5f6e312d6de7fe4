/* Growing texts; see output.h. */
#include "agent/server/output.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(struct hr__output *o, size_t more)
{
    if (o->failed || more < o->capacity - o->length)
        return !o->failed;
    size_t capacity = o->capacity ? o->capacity : 4096;
    while (capacity - o->length <= more && capacity <= SIZE_MAX / 4)
        capacity *= 2;
    char *grown =
        capacity - o->length > more ? hr__realloc(HR__TAG_AGENT, o->text, capacity, 1) : NULL;
    if (!grown) {
        o->failed = true;
        return false;
    }
    o->text = grown;
    o->capacity = capacity;
    return true;
}

void hr__output_put(struct hr__output *o, const char *text)
{
    size_t length = strlen(text);
    if (!reserve(o, length))
        return;
    memcpy(o->text + o->length, text, length + 1);
    o->length += length;
}

void hr__output_print(struct hr__output *o, const char *format, ...)
{
    /* Mostly it fits at once. */
    for (int again = 0; again < 2 && reserve(o, 256); again++) {
        size_t room = o->capacity - o->length;
        va_list args;
        va_start(args, format);
        int n = vsnprintf(o->text + o->length, room, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < room) {
            o->length += (size_t)n;
            return;
        }
        o->text[o->length] = 0;
        if (n < 0 || !reserve(o, (size_t)n))
            break;
    }
    o->failed = true;
}

void hr__output_number(struct hr__output *o, double value, int decimals)
{
    uint64_t scale = 1;
    double whole, part = modf(fabs(value), &whole);
    if (!(whole < 9e18)) { /* NaN too */
        hr__output_put(o, "0");
        return;
    }
    for (int i = 0; i < decimals; i++)
        scale *= 10;
    /* The whole part apart, so that nine decimals of a large number do not overflow. */
    uint64_t number = (uint64_t)whole, rest = (uint64_t)llround(part * (double)scale);
    number += rest / scale;
    rest %= scale;
    for (; rest && rest % 10 == 0; decimals--)
        rest /= 10;
    hr__output_print(o, "%s%" PRIu64, value < 0 && (number || rest) ? "-" : "", number);
    if (rest)
        hr__output_print(o, ".%0*" PRIu64, decimals, rest);
}

void hr__output_json(struct hr__output *o, const char *text)
{
    size_t most = strlen(text) * 4 + 1;
    char *plain = o->failed ? NULL : hr__alloc(HR__TAG_AGENT, most, 1);
    if (!plain) {
        o->failed = true;
        return;
    }
    hr__printable(plain, most, text);
    hr__output_put(o, "\"");
    for (char *p = plain; *p;) {
        size_t n = strcspn(p, "\"\\");
        hr__output_print(o, "%.*s", (int)n, p);
        p += n;
        if (*p)
            hr__output_print(o, "\\%c", *p++);
    }
    hr__output_put(o, "\"");
    hr__free(plain);
}

int hr__output_finish(struct hr__output *o, char **text, struct hr_error *error)
{
    hr__output_put(o, ""); /* an empty one is a text too */
    if (o->failed) {
        hr__output_clear(o);
        return hr__fail(error, -ENOMEM, "out of memory for a text of the agent");
    }
    *text = o->text;
    *o = (struct hr__output){.text = NULL};
    return 0;
}

void hr__output_clear(struct hr__output *o)
{
    hr__free(o->text);
    *o = (struct hr__output){.text = NULL};
}
