/* Arguments of what-ifs: "ranks=16 link=25Gbit/s latency=10us". */
#include "replay/scenario.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct argument_unit {
    const char *word;
    double factor;
};

static const struct argument_unit byte_units[] = {{"", 1},
                                                  {"B", 1},
                                                  {"KB", 1e3},
                                                  {"kB", 1e3},
                                                  {"MB", 1e6},
                                                  {"GB", 1e9},
                                                  {"KiB", 1ull << 10},
                                                  {"MiB", 1ull << 20},
                                                  {"GiB", 1ull << 30},
                                                  {NULL, 0}};
static const struct argument_unit speed_units[] = {{"B/s", 1},
                                                   {"KB/s", 1e3},
                                                   {"MB/s", 1e6},
                                                   {"GB/s", 1e9},
                                                   {"MiB/s", 1ull << 20},
                                                   {"GiB/s", 1ull << 30},
                                                   {"kbit/s", 1e3 / 8},
                                                   {"Kbit/s", 1e3 / 8},
                                                   {"Mbit/s", 1e6 / 8},
                                                   {"Gbit/s", 1e9 / 8},
                                                   {NULL, 0}};
static const struct argument_unit time_units[] = {
    {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
static const struct argument_unit none[] = {{"", 1}, {NULL, 0}};

/* What a value of each kind is, and its units. */
static const struct {
    const struct argument_unit *units;
    const char *words;
} kinds[] = {
    [HR__ARGUMENT_COUNT] = {none, "a whole number"},
    [HR__ARGUMENT_REAL] = {none, "a number"},
    [HR__ARGUMENT_BYTES] = {byte_units, "a size (25MB, 1MiB)"},
    [HR__ARGUMENT_SPEED] = {speed_units, "a speed (25Gbit/s, 12GB/s)"},
    [HR__ARGUMENT_TIME] = {time_units, "a time (10us, 0.5ms)"},
};

static int take_value(struct hr__argument *a, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    const struct argument_unit *unit = kinds[a->kind].units;
    while (unit->word && strcmp(unit->word, end))
        unit++;
    if (end == text || !unit->word || !(value >= 0 && value <= 1e15))
        return 0;
    a->value = value * unit->factor;
    return a->kind != HR__ARGUMENT_COUNT || floor(value) == value;
}

/* Takes one word. */
static int take(struct hr__argument *all, size_t count, const char *word, struct hr_error *error)
{
    size_t length = strcspn(word, "="), used = 0;
    char keys[256] = "";
    for (size_t i = 0; i < count; i++) {
        struct hr__argument *a = &all[i];
        int n = snprintf(keys + used, sizeof keys - used, "%s%s=", i ? ", " : "", a->key);
        used += n > 0 && (size_t)n < sizeof keys - used ? (size_t)n : 0;
        if (strlen(a->key) != length || strncmp(a->key, word, length) || word[length] != '=')
            continue;
        if (a->is_given)
            return hr__fail(error, -EINVAL, "%s= is given twice", a->key);
        a->is_given = 1;
        if (a->kind == HR__ARGUMENT_TEXT)
            snprintf(a->text, sizeof a->text, "%s", word + length + 1);
        else if (!take_value(a, word + length + 1))
            return hr__fail(error, -EINVAL, "'%.100s': %s= takes %s", word, a->key,
                            kinds[a->kind].words);
        return 0;
    }
    return hr__fail(error, -EINVAL, "'%.100s' is no argument of it; there are: %s", word, keys);
}

int hr__arguments_take(struct hr__argument *arguments, size_t count, const char *words,
                       struct hr_error *error)
{
    char word[256];
    int code = 0;
    for (const char *at = words + strspn(words, " "); *at && !code; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length >= sizeof word)
            return hr__fail(error, -EINVAL, "'%.60s...' is too long: at most 255 bytes", at);
        memcpy(word, at, length);
        word[length] = 0;
        code = take(arguments, count, word, error);
        at += length;
    }
    for (size_t i = 0; i < count && !code; i++)
        if (arguments[i].is_needed && !arguments[i].is_given)
            code = arguments[i].kind == HR__ARGUMENT_TEXT
                       ? hr__fail(error, -EINVAL, "%s= is missing", arguments[i].key)
                       : hr__fail(error, -EINVAL, "%s= is missing: it takes %s", arguments[i].key,
                                  kinds[arguments[i].kind].words);
    return code;
}
