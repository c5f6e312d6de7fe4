/* The strict reader; see prometheus.h. */
#include "../test.h"

#include "prometheus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct prometheus_reader {
    struct prometheus *out;
    char family[128]; /* family of the last HELP */
    int has_type, is_counter;
    char seen[PROMETHEUS_SAMPLES][128]; /* families */
    size_t seen_count;
};

/* Returns the length of [a-zA-Z_:][a-zA-Z0-9_:]* at p; labels may not contain ':'. */
static size_t name_length(const char *p, int is_label)
{
    size_t n = 0;
    while (isalpha((unsigned char)p[n]) || p[n] == '_' || (!is_label && p[n] == ':') ||
           (n && isdigit((unsigned char)p[n])))
        n++;
    return n;
}

static void read_help(struct prometheus_reader *r, const char *line)
{
    size_t n = name_length(line, 0);
    assert_true(n > 0 && n < sizeof r->family && line[n] == ' ' && line[n + 1]);
    for (const char *p = line + n + 1; *p; p++)
        if (*p == '\\')
            assert_true(p[1] == 'n' || p[1] == '\\');
    snprintf(r->family, sizeof r->family, "%.*s", (int)n, line);
    for (size_t i = 0; i < r->seen_count; i++)
        assert_string_not_equal(r->seen[i], r->family);
    assert_true(r->seen_count < PROMETHEUS_SAMPLES);
    strcpy(r->seen[r->seen_count++], r->family);
    r->has_type = 0;
}

static void read_type(struct prometheus_reader *r, const char *line)
{
    size_t n = strlen(r->family);
    assert_false(r->has_type);
    assert_memory_equal(line, r->family, n);
    assert_true(!strcmp(line + n, " counter") || !strcmp(line + n, " gauge"));
    r->has_type = 1;
    r->is_counter = !strcmp(line + n, " counter");
    assert_int_equal(r->is_counter, n > 6 && !strcmp(r->family + n - 6, "_total"));
}

/* Parses {...} and returns the position after it. */
static const char *read_labels(const char *p)
{
    char names[16][64];
    size_t count = 0;
    do {
        size_t n = name_length(++p, 1);
        assert_true(n > 0 && n < 64 && count < 16 && p[n] == '=' && p[n + 1] == '"');
        snprintf(names[count], sizeof names[count], "%.*s", (int)n, p);
        for (size_t i = 0; i < count; i++)
            assert_string_not_equal(names[i], names[count]);
        count++;
        for (p += n + 2; *p && *p != '"'; p++)
            if (*p == '\\') {
                p++;
                assert_true(*p == '"' || *p == '\\' || *p == 'n');
            }
        assert_int_equal(*p++, '"');
    } while (*p == ',');
    assert_int_equal(*p, '}');
    return p + 1;
}

static void read_sample(struct prometheus_reader *r, const char *line)
{
    size_t n = strlen(r->family);
    assert_true(r->has_type && name_length(line, 0) == n);
    assert_memory_equal(line, r->family, n);
    const char *p = line[n] == '{' ? read_labels(line + n) : line + n;
    assert_true(r->out->count < PROMETHEUS_SAMPLES);
    struct prometheus_sample *s = &r->out->samples[r->out->count];
    snprintf(s->series, sizeof s->series, "%.*s", (int)(p - line), line);
    snprintf(s->name, sizeof s->name, "%s", r->family);
    for (size_t i = 0; i < r->out->count; i++)
        assert_string_not_equal(r->out->samples[i].series, s->series);
    r->out->count++;
    assert_true(*p == ' ' && (isdigit((unsigned char)p[1]) || p[1] == '-'));
    char *end;
    s->value = strtod(p + 1, &end);
    assert_int_equal(*end, 0);
    assert_true(!r->is_counter || s->value >= 0);
}

void prometheus_read(struct prometheus *out, const char *text)
{
    struct prometheus_reader r = {.out = out};
    size_t length = strlen(text);
    out->count = 0;
    assert_true(length && text[length - 1] == '\n');
    char *copy = strdup(text), *rest = copy, *line;
    while ((line = strsep(&rest, "\n")) && rest) {
        if (!strncmp(line, "# HELP ", 7))
            read_help(&r, line + 7);
        else if (!strncmp(line, "# TYPE ", 7))
            read_type(&r, line + 7);
        else
            read_sample(&r, line);
    }
    free(copy);
}

double prometheus_value(const struct prometheus *p, const char *series)
{
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->samples[i].series, series))
            return p->samples[i].value;
    fail_msg("there is no series %s", series);
    return 0;
}
