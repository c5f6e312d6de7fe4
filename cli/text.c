/* Formats numbers with separators and units, and escapes names for terminals. */
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_COLUMNS = 60, USUAL_COLUMNS = 80, MOST_COLUMNS = 120 };

const char *text_count(char buffer[TEXT_NUMBER], uint64_t value)
{
    char digits[TEXT_NUMBER];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            buffer[at++] = ',';
        buffer[at++] = digits[i];
    }
    buffer[at] = 0;
    return buffer;
}

const char *text_bytes(char buffer[TEXT_NUMBER], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    /* 999.5 would be printed as 1000 */
    while (value >= 999.5 && unit < 6) {
        value /= 1024;
        unit++;
    }
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(buffer, TEXT_NUMBER, "%.*f %s", decimals, value, units[unit]);
    return buffer;
}

/* Returns the length of the well-formed UTF-8 sequence at p (RFC 3629), 0 if there is none. */
static int sequence_length(const unsigned char *p)
{
    int length = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (p[0] > 0xF4)
        return 0;
    for (int i = 1; i < length; i++)
        if (p[i] < 0x80 || p[i] > 0xBF)
            return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
        (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return length;
}

/* Returns whether p points at a control character (C0, DEL, C1), which could control a terminal. */
static int is_control(const unsigned char *p)
{
    return p[0] < 0x20 || p[0] == 0x7F || (p[0] == 0xC2 && p[1] < 0xA0);
}

char *text_escape(const char *text)
{
    char *out = malloc(strlen(text) * 4 + 1), *to = out;
    const unsigned char *p = (const unsigned char *)text;
    while (out && *p) {
        int length = sequence_length(p);
        if (length && !is_control(p)) {
            memcpy(to, p, (size_t)length);
            to += length;
            p += length;
        } else {
            to += sprintf(to, "\\x%02X", *p++);
        }
    }
    if (out)
        *to = 0;
    return out;
}

size_t text_columns(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

void text_put_cell(FILE *out, const char *text, size_t columns)
{
    size_t width = text_columns(text);
    if (width <= columns) {
        fprintf(out, "%s%*s", text, (int)(columns - width), "");
        return;
    }
    size_t kept = 0, at = 0;
    while (kept < columns - 3 || ((unsigned char)text[at] & 0xC0) == 0x80)
        kept += ((unsigned char)text[at++] & 0xC0) != 0x80;
    fprintf(out, "%.*s...", (int)at, text);
}

void text_print_cell(const char *text, size_t columns)
{
    text_put_cell(stdout, text, columns);
}

int text_width(void)
{
    struct winsize size;
    const char *set = getenv("COLUMNS");
    int columns = set ? atoi(set) : 0;
    if (columns <= 0 && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
        columns = size.ws_col;
    if (columns <= 0)
        columns = USUAL_COLUMNS;
    return columns < LEAST_COLUMNS  ? LEAST_COLUMNS
           : columns > MOST_COLUMNS ? MOST_COLUMNS
                                    : columns;
}

char *text_read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rbe");
    char *text = NULL;
    size_t capacity = 0, got = 0;
    while (file && !ferror(file) && !feof(file)) {
        if (capacity - got < 2) {
            capacity = capacity ? 2 * capacity : 65536;
            char *larger = realloc(text, capacity);
            if (!larger)
                break;
            text = larger;
        }
        got += fread(text + got, 1, capacity - got - 1, file);
    }
    int whole = file && feof(file) && !ferror(file), code = errno;
    if (file)
        fclose(file);
    if (!whole) {
        free(text);
        errno = code;
        return NULL;
    }
    text[got] = 0;
    *length = got;
    return text;
}
