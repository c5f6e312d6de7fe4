/* Reads JSON as a stream; see json_reader.h. */
#include "base/json_reader.h"

#include "base/error.h"
#include "base/input.h"
#include "base/memory.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Longest number. Python writes 24 bytes at most; others may write long tails of zeros. */
#define NUMBER_BYTES 400

struct hr__json_reader {
    struct hr__input *in, own; /* in: own, or borrowed */
    char *name;                /* for errors */
    locale_t locale;           /* "C", for strtod */
    int depth;
    uint8_t is_array[HR__JSON_DEPTH], is_begun[HR__JSON_DEPTH];
    struct hr_error error;
};

static int make(struct hr__json_reader **out, const char *name, struct hr_error *error)
{
    struct hr__json_reader *s = hr__alloc(HR__TAG_BASE, 1, sizeof *s);
    *out = s;
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for reading %s", name);
    s->in = &s->own;
    s->name = hr__strdup(HR__TAG_BASE, name);
    s->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (s->name && s->locale)
        return 0;
    hr__json_reader_close(out);
    return hr__fail(error, -ENOMEM, "out of memory for reading %s", name);
}

int hr__json_reader_of(struct hr__json_reader **out, const void *bytes, size_t length,
                       const char *name, struct hr_error *error)
{
    int r = make(out, name, error);
    if (!r)
        hr__input_memory((*out)->in, (*out)->name, bytes, length);
    return r;
}

int hr__json_reader_open(struct hr__json_reader **out, const char *path, struct hr_error *error)
{
    int r = make(out, path, error);
    if (!r)
        r = hr__input_open((*out)->in, (*out)->name, error);
    if (r)
        hr__json_reader_close(out);
    return r;
}

int hr__json_reader_on(struct hr__json_reader **out, struct hr__input *in, struct hr_error *error)
{
    int r = make(out, in->name, error);
    if (!r)
        (*out)->in = in;
    return r;
}

void hr__json_reader_close(struct hr__json_reader **stream)
{
    struct hr__json_reader *s = *stream;
    *stream = NULL;
    if (!s)
        return;
    hr__input_close(&s->own);
    if (s->locale)
        freelocale(s->locale);
    hr__free(s->name);
    hr__free(s);
}

const char *hr__json_reader_name(const struct hr__json_reader *s)
{
    return s->name;
}

int hr__json_reader_error(const struct hr__json_reader *s, struct hr_error *error)
{
    if (s->error.code && error)
        *error = s->error;
    return s->error.code;
}

uint64_t hr__json_reader_place(const struct hr__json_reader *s, uint64_t *length)
{
    *length = s->in->length;
    return hr__input_at(s->in);
}

/* Sets the error and ends the stream. Returns 0. */
static int wrong(struct hr__json_reader *s, int code, const char *what)
{
    uint64_t length, place = hr__json_reader_place(s, &length);
    if (!s->error.code) {
        int r = hr__fail(&s->error, code, "%s: at byte %llu: %s", s->name,
                         (unsigned long long)place, what);
        s->in->next = s->in->end;
        (void)r;
    }
    return 0;
}

/* Reads more of the file. Returns 0 at its end. */
static int refill(struct hr__json_reader *s)
{
    if (s->error.code)
        return 0;
    if (hr__input_fill(s->in))
        return 1;
    if (s->in->code) {
        int r = hr__input_ended(s->in, "JSON", &s->error);
        (void)r;
    }
    return 0;
}

/* Returns the next byte without taking it; -1 at the end. */
static inline int look(struct hr__json_reader *s)
{
    if (s->in->next == s->in->end && !refill(s))
        return -1;
    return *s->in->next;
}

static inline int take(struct hr__json_reader *s)
{
    int c = look(s);
    s->in->next += c >= 0;
    return c;
}

/* Skips blanks. Returns the byte after them, not taken; -1 at the end. */
static int look_past_blanks(struct hr__json_reader *s)
{
    int c = look(s);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        s->in->next++;
        c = look(s);
    }
    return c;
}

int hr__json_reader_peek(struct hr__json_reader *s)
{
    int c = look_past_blanks(s);
    switch (c) {
    case '{':
    case '[':
    case '"':
    case 't':
    case 'f':
    case 'n':
    case '-':
    case 'N':
    case 'I':
    case '0' ... '9':
        return c;
    default:
        break;
    }
    return wrong(s, -EBADMSG, c < 0 ? "the file ends in the middle" : "no value begins here");
}

static int begin(struct hr__json_reader *s, int bracket, const char *what)
{
    if (hr__json_reader_peek(s) != bracket)
        return s->error.code ? 0 : wrong(s, -EBADMSG, what);
    if (s->depth == HR__JSON_DEPTH)
        return wrong(s, -EFBIG, "values are nested too deeply");
    s->in->next++;
    s->is_array[s->depth] = bracket == '[';
    s->is_begun[s->depth++] = 0;
    return 1;
}

int hr__json_reader_object(struct hr__json_reader *s)
{
    return begin(s, '{', "an object ({...}) is expected here");
}

int hr__json_reader_array(struct hr__json_reader *s)
{
    return begin(s, '[', "an array ([...]) is expected here");
}

/* Goes to the next member or element. Returns 0 at the end. */
static int next(struct hr__json_reader *s, int is_array)
{
    int close = is_array ? ']' : '}';
    if (s->error.code || !s->depth || s->is_array[s->depth - 1] != is_array)
        return wrong(s, -EBADMSG, "values are read in the wrong order");
    int c = look_past_blanks(s);
    if (c == close) {
        s->in->next++;
        s->depth--;
        return 0;
    }
    if (s->is_begun[s->depth - 1]) {
        if (c != ',')
            return wrong(s, -EBADMSG,
                         c < 0 ? "the file ends in the middle" : "a comma is expected here");
        s->in->next++;
    }
    s->is_begun[s->depth - 1] = 1;
    return 1;
}

int hr__json_reader_more(struct hr__json_reader *s)
{
    return next(s, 1) && hr__json_reader_peek(s);
}

/* Returns the first byte from `at` on that ends a span of plain text: a quotation mark, a backslash
 * or a control character; `end` if there is none. */
static const uint8_t *plain_end(const uint8_t *at, const uint8_t *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = UINT64_C(0x8080808080808080);
    for (uint64_t word; end - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        uint64_t quote = word ^ ones * '"', slash = word ^ ones * '\\';
        if ((((quote - ones) & ~quote) | ((slash - ones) & ~slash) |
             ((word - ones * 0x20) & ~word)) &
            tops)
            break;
    }
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20)
        at++;
    return at;
}

/* Reads four hexadecimal digits; -1: there are none. */
static int hexadecimal(struct hr__json_reader *s)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int c = take(s), low = c | 0x20;
        if (c >= '0' && c <= '9')
            value = value * 16 + c - '0';
        else if (low >= 'a' && low <= 'f')
            value = value * 16 + low - 'a' + 10;
        else
            return -1;
    }
    return value;
}

/* Reads what follows \u. Returns a code point; -1: it is not valid. */
static int escaped_code(struct hr__json_reader *s)
{
    int code = hexadecimal(s);
    if (code < 0xd800 || code > 0xdfff)
        return code;
    if (code > 0xdbff || take(s) != '\\' || take(s) != 'u')
        return -1;
    int low = hexadecimal(s);
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + (code - 0xd800) * 0x400 + low - 0xdc00;
}

static size_t encode(int code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | code);
    return n;
}

/* Reads an escape sequence after its backslash. Returns its length in `out`; 0: it is not valid. */
static size_t escape(struct hr__json_reader *s, char out[4])
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    int c = take(s);
    if (c == 'u') {
        int code = escaped_code(s);
        return code < 0 ? 0 : encode(code, out);
    }
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (!found)
        return 0;
    out[0] = meanings[found - letters];
    return 1;
}

/* Reads a string. What does not fit into text[capacity] is dropped, and *fits is 0 then. */
static int read_string(struct hr__json_reader *s, char *text, size_t capacity, int *fits)
{
    size_t used = 0;
    *fits = 1;
    if (look_past_blanks(s) != '"')
        return wrong(s, -EBADMSG, "a text is expected here");
    s->in->next++;
    for (;;) {
        char piece[4];
        size_t n;
        const uint8_t *stop = plain_end(s->in->next, s->in->end);
        size_t plain = (size_t)(stop - s->in->next);
        if (used + plain >= capacity)
            *fits = 0;
        if (*fits) {
            memcpy(text + used, s->in->next, plain);
            used += plain;
        }
        s->in->next = stop;
        int c = take(s);
        if (c == '"')
            break;
        if (c >= 0x20 && c != '\\') { /* the first byte after a refill */
            s->in->next--;
            continue;
        }
        if (c < 0x20)
            return wrong(s, -EBADMSG,
                         c < 0 ? "the file ends in the middle" : "a control character in a text");
        n = escape(s, piece);
        if (!n || (n == 1 && !piece[0]))
            return wrong(s, -EBADMSG, n ? "a zero in a text" : "no such escape sequence");
        if (used + n >= capacity)
            *fits = 0;
        for (size_t i = 0; i < n && *fits; i++)
            text[used++] = piece[i];
    }
    text[used] = 0;
    return 1;
}

int hr__json_reader_text(struct hr__json_reader *s, char *text, size_t capacity)
{
    int fits;
    text[0] = 0;
    if (s->error.code || !read_string(s, text, capacity, &fits))
        return 0;
    return fits || wrong(s, -EFBIG, "the text before this place is too long");
}

int hr__json_reader_text_cut(struct hr__json_reader *s, char *text, size_t capacity)
{
    int fits;
    text[0] = 0;
    return !s->error.code && read_string(s, text, capacity, &fits);
}

int hr__json_reader_key(struct hr__json_reader *s, char *key, size_t capacity)
{
    int fits;
    key[0] = 0;
    if (!next(s, 0) || !read_string(s, key, capacity, &fits))
        return 0;
    if (!fits)
        key[0] = 0; /* no key that anybody asks for */
    if (look_past_blanks(s) != ':')
        return wrong(s, -EBADMSG, "a colon is expected here");
    s->in->next++;
    return hr__json_reader_peek(s) != 0;
}

/* Returns non-zero for the bytes of numbers and of NaN and Infinity. */
static int is_of_number(int c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == '+' || c == '-' || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z');
}

/* Checks JSON's grammar of numbers. Returns non-zero for a number; *whole: without point and
 * exponent. */
static int is_number(const char *text, int *whole)
{
    size_t i = text[0] == '-', digits = strspn(text + i, "0123456789");
    *whole = 1;
    if (!digits || (digits > 1 && text[i] == '0'))
        return 0;
    i += digits;
    if (text[i] == '.') {
        *whole = 0;
        digits = strspn(text + ++i, "0123456789");
        if (!digits)
            return 0;
        i += digits;
    }
    if (text[i] == 'e' || text[i] == 'E') {
        *whole = 0;
        i++;
        i += text[i] == '+' || text[i] == '-';
        digits = strspn(text + i, "0123456789");
        if (!digits)
            return 0;
        i += digits;
    }
    return !text[i];
}

/* Computes a number of at most 15 digits and no exponent, which is exact in double; others by
 * strtod. */
static double value_of(const struct hr__json_reader *s, const char *text)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t digits = 0;
    size_t count = 0, behind = 0;
    int is_fraction = 0;
    for (const char *at = text + (text[0] == '-'); *at; at++) {
        if (*at == '.') {
            is_fraction = 1;
            continue;
        }
        if (*at < '0' || *at > '9' || ++count > 15)
            return strtod_l(text, NULL, s->locale);
        digits = digits * 10 + (uint64_t)(*at - '0');
        behind += (size_t)is_fraction;
    }
    double value = (double)digits / powers[behind];
    return text[0] == '-' ? -value : value;
}

int hr__json_reader_number(struct hr__json_reader *s, struct hr__json_number *number)
{
    char text[NUMBER_BYTES];
    size_t n = 0;
    int whole;
    *number = (struct hr__json_number){0};
    if (s->error.code)
        return 0;
    for (int c = look_past_blanks(s); c >= 0 && is_of_number(c); c = look(s)) {
        if (n == sizeof text - 1)
            return wrong(s, -EFBIG, "a number is too long");
        text[n++] = (char)c;
        s->in->next++;
    }
    text[n] = 0;
    if (!strcmp(text, "NaN"))
        number->real = NAN;
    else if (!strcmp(text, "Infinity") || !strcmp(text, "-Infinity"))
        number->real = text[0] == '-' ? -INFINITY : INFINITY;
    else if (!is_number(text, &whole))
        return wrong(s, -EBADMSG, "a number is expected before this place");
    else {
        number->real = value_of(s, text);
        number->is_integer = whole && fabs(number->real) < 9007199254740992.0;
        number->integer = number->is_integer ? (int64_t)number->real : 0;
    }
    return 1;
}

/* Adds a digit to a magnitude. Saturates at 2^63 - 1. */
static uint64_t with_digit(uint64_t value, int c)
{
    return value > (INT64_MAX - 9) / 10 ? (uint64_t)INT64_MAX : value * 10 + (uint64_t)(c - '0');
}

int hr__json_reader_fixed(struct hr__json_reader *s, int decimals, int64_t *value)
{
    uint64_t magnitude = 0;
    int digits = 0, is_round = 0, is_negative, c = look_past_blanks(s);
    *value = 0;
    if (s->error.code)
        return 0;
    is_negative = c == '-';
    if (is_negative) {
        s->in->next++;
        c = look(s);
    }
    for (; c >= '0' && c <= '9'; s->in->next++, c = look(s), digits++)
        magnitude = with_digit(magnitude, c);
    if (!digits)
        return wrong(s, -EBADMSG, "a number is expected here");
    if (c == '.') {
        s->in->next++;
        for (c = look(s); c >= '0' && c <= '9'; s->in->next++, c = look(s)) {
            if (decimals > 0)
                magnitude = with_digit(magnitude, c);
            else if (!decimals)
                is_round = c >= '5';
            decimals--;
        }
    }
    if (is_of_number(c))
        return wrong(s, -EBADMSG, "a number without an exponent is expected here");
    for (; decimals > 0; decimals--)
        magnitude = with_digit(magnitude, '0');
    magnitude += is_round && magnitude < INT64_MAX;
    *value = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return 1;
}

int hr__json_reader_flag(struct hr__json_reader *s, int *flag)
{
    struct hr__json_number number;
    int c = hr__json_reader_peek(s);
    *flag = c == 't';
    if (c == 't' || c == 'f') {
        for (const char *word = c == 't' ? "true" : "false"; *word; word++)
            if (take(s) != *word)
                return wrong(s, -EBADMSG, "true or false is expected before this place");
        return 1;
    }
    if (!c || !hr__json_reader_number(s, &number))
        return 0;
    *flag = number.integer == 1;
    if (!number.is_integer || number.integer < 0 || number.integer > 1)
        return wrong(s, -EBADMSG, "0 or 1 is expected before this place");
    return 1;
}

/* Skips the rest of a string after its first quotation mark. */
static int skip_string(struct hr__json_reader *s)
{
    for (;;) {
        s->in->next = plain_end(s->in->next, s->in->end);
        int c = take(s);
        if (c == '"')
            return 1;
        if (c == '\\')
            c = take(s);
        if (c < 0x20)
            return wrong(s, -EBADMSG,
                         c < 0 ? "the file ends in the middle" : "a control character in a text");
    }
}

/* Skips what is in brackets, after the first of them. Most of a file of annotations is that: the
 * numbers of polygons. */
static int skip_nested(struct hr__json_reader *s, int bracket)
{
    uint8_t close[HR__JSON_DEPTH];
    int depth = 0;
    close[depth++] = bracket == '[' ? ']' : '}';
    while (depth) {
        const uint8_t *at = s->in->next, *end = s->in->end;
        /* digits, letters and blanks are neither brackets (from 0x5b on) nor quotation marks */
        while (at < end && (*at < 0x5b ? *at != '"' : (*at | 0x20) != 0x7b && (*at | 0x20) != 0x7d))
            at++;
        s->in->next = at;
        int c = take(s);
        if (c < 0)
            return wrong(s, -EBADMSG, "the file ends in the middle");
        if (c == '"') {
            if (!skip_string(s))
                return 0;
        } else if (c == '[' || c == '{') {
            if (depth + s->depth >= HR__JSON_DEPTH)
                return wrong(s, -EFBIG, "values are nested too deeply");
            close[depth++] = c == '[' ? ']' : '}';
        } else if (c == ']' || c == '}') {
            if (close[--depth] != c)
                return wrong(s, -EBADMSG, "a bracket does not match the one that it closes");
        }
    }
    return 1;
}

int hr__json_reader_skip(struct hr__json_reader *s)
{
    int c = hr__json_reader_peek(s);
    if (!c)
        return 0;
    if (c == '"' || c == '[' || c == '{') {
        s->in->next++;
        return c == '"' ? skip_string(s) : skip_nested(s, c);
    }
    for (c = look(s); c >= 0 && is_of_number(c); c = look(s))
        s->in->next++;
    return 1;
}

int hr__json_reader_end(struct hr__json_reader *s)
{
    if (s->error.code)
        return 0;
    return look_past_blanks(s) < 0 ? !s->error.code
                                   : wrong(s, -EBADMSG, "something follows the end of the JSON");
}
