/* Reads large JSON files element by element; see json_stream.h. */
#include "memory/import/json_stream.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ELEMENT_MOST (16u << 20)
#define DEPTH_MOST   1000

/* State of the scanner within a value. */
struct json_stream_scan {
    uint32_t depth;
    int is_text, is_escaped, is_done;
};

void hr__json_stream_init(struct hr__json_stream *stream, struct hr__input *in)
{
    *stream = (struct hr__json_stream){.in = in, .is_first = 1};
}

void hr__json_stream_clear(struct hr__json_stream *stream)
{
    hr__free(stream->text);
    stream->text = NULL;
    stream->length = 0;
}

static int bad(const struct hr__json_stream *s, const char *what, struct hr_error *error)
{
    return hr__fail(error, -EBADMSG, "%s: byte %" PRIu64 ": %s: the file is damaged, or no JSON",
                    s->in->name, hr__input_at(s->in), what);
}

static int is_space(int byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

int hr__json_peek(struct hr__json_stream *stream)
{
    int byte;
    while (is_space(byte = hr__input_peek(stream->in)))
        stream->in->next++;
    return byte;
}

int hr__json_begin(struct hr__json_stream *stream, char bracket, struct hr_error *error)
{
    int byte = hr__json_peek(stream);
    if (byte < 0)
        return hr__input_ended(stream->in, "JSON", error);
    if (byte != bracket)
        return bad(stream, bracket == '[' ? "[ is missing" : "{ is missing", error);
    stream->in->next++;
    stream->is_first = 1;
    return 0;
}

/* Moves to the next element of the container that ends with `bracket`. Returns 1, 0 at its end, or
 * a negative errno. */
static int step(struct hr__json_stream *s, char bracket, struct hr_error *error)
{
    int byte = hr__json_peek(s);
    if (byte == bracket) {
        s->in->next++;
        return 0;
    }
    if (byte >= 0 && !s->is_first) {
        if (byte != ',')
            return bad(s, "a comma is missing", error);
        s->in->next++;
        byte = hr__json_peek(s);
    }
    s->is_first = 0;
    return byte < 0 ? hr__input_ended(s->in, "JSON", error) : 1;
}

static int keep(struct hr__json_stream *s, const uint8_t *bytes, size_t length,
                struct hr_error *error)
{
    if (length > ELEMENT_MOST - s->length)
        return bad(s, "an element of more than 16 MiB", error);
    if (hr__reserve(HR__TAG_MEMORY, &s->text, s->length + length + 1))
        return hr__fail(error, -ENOMEM, "out of memory while reading %s", s->in->name);
    memcpy(s->text + s->length, bytes, length);
    s->length += length;
    s->text[s->length] = 0;
    return 0;
}

/* Scans through a value. Returns the byte where it ends, or `end`; the byte after a number does not
 * belong to it. NULL: nested too deeply. */
static const uint8_t *scan(struct json_stream_scan *state, const uint8_t *at, const uint8_t *end)
{
    for (; at < end; at++) {
        uint8_t c = *at;
        if (state->is_text) {
            if (state->is_escaped)
                state->is_escaped = 0;
            else if (c == '\\')
                state->is_escaped = 1;
            else if (c == '"')
                state->is_text = 0;
            else
                continue;
            if (state->is_text || state->depth)
                continue;
            state->is_done = 1;
            return at + 1;
        }
        if (c == '"') {
            state->is_text = 1;
        } else if (c == '{' || c == '[') {
            if (++state->depth > DEPTH_MOST)
                return NULL;
        } else if (c == '}' || c == ']') {
            state->is_done = state->depth <= 1;
            if (!state->depth)
                return at;
            if (!--state->depth)
                return at + 1;
        } else if (!state->depth && (c == ',' || is_space(c))) {
            state->is_done = 1;
            return at;
        }
    }
    return end;
}

/* Reads or skips a value; is_kept: stores its text. */
static int value(struct hr__json_stream *s, int is_kept, struct hr_error *error)
{
    struct json_stream_scan state = {0};
    s->length = 0;
    if (hr__json_peek(s) < 0)
        return hr__input_ended(s->in, "JSON", error);
    s->at = hr__input_at(s->in);
    while (!state.is_done) {
        if (s->in->next == s->in->end && !hr__input_fill(s->in))
            return hr__input_ended(s->in, "an element of JSON", error);
        const uint8_t *end = scan(&state, s->in->next, s->in->end);
        if (!end)
            return bad(s, "it is nested too deeply", error);
        int code = is_kept ? keep(s, s->in->next, (size_t)(end - s->in->next), error) : 0;
        if (code)
            return code;
        s->in->next = end;
    }
    return hr__input_at(s->in) > s->at ? 0 : bad(s, "a value is missing", error);
}

int hr__json_capture(struct hr__json_stream *stream, struct hr_error *error)
{
    return value(stream, 1, error);
}

int hr__json_skip(struct hr__json_stream *stream, struct hr_error *error)
{
    return value(stream, 0, error);
}

int hr__json_next(struct hr__json_stream *stream, struct hr_error *error)
{
    int found = step(stream, ']', error);
    if (found <= 0)
        return found;
    int code = value(stream, 1, error);
    return code ? code : 1;
}

int hr__json_key(struct hr__json_stream *stream, struct hr_error *error)
{
    int found = step(stream, '}', error);
    if (found <= 0)
        return found;
    if (hr__json_peek(stream) != '"')
        return bad(stream, "a key is missing", error);
    int code = value(stream, 1, error);
    if (code)
        return code;
    if (hr__json_peek(stream) != ':')
        return bad(stream, "a colon is missing", error);
    stream->in->next++;
    stream->length -= 2;
    memmove(stream->text, stream->text + 1, stream->length);
    stream->text[stream->length] = 0;
    return 1;
}
