/*
 * Reads a large JSON file element by element. One element's text at a time is in memory, for the
 * JSON library to parse. Elements that are not requested are skipped by counting brackets.
 */
#ifndef HR_MEMORY_IMPORT_JSON_STREAM_H
#define HR_MEMORY_IMPORT_JSON_STREAM_H

#include "base/input.h"

struct hr__json_stream {
    struct hr__input *in;
    char *text; /* text found by next and key, zero-terminated; owned */
    size_t length;
    uint64_t at;  /* its offset in the file */
    int is_first; /* no comma is expected yet */
};

/* Clears everything but the input, which is borrowed. */
void hr__json_stream_init(struct hr__json_stream *stream, struct hr__input *in);
void hr__json_stream_clear(struct hr__json_stream *stream);

/* Returns the next byte after spaces, without consuming it; -1: the end. */
int hr__json_peek(struct hr__json_stream *stream);

/* Enters an array or object, whose bracket '[' or '{' must come next. */
int hr__json_begin(struct hr__json_stream *stream, char bracket, struct hr_error *error);

/* Captures its next element. Returns 1; 0: its end; -EBADMSG with the position; -ENOMEM. */
int hr__json_next(struct hr__json_stream *stream, struct hr_error *error);

/* Reads an object's next key, raw between the quotes. The caller then captures, skips or enters its
 * value. Returns the same. */
int hr__json_key(struct hr__json_stream *stream, struct hr_error *error);

/* Capture the text of a value, or skip the value. Return 0, -EBADMSG or -ENOMEM. */
int hr__json_capture(struct hr__json_stream *stream, struct hr_error *error);
int hr__json_skip(struct hr__json_stream *stream, struct hr_error *error);

/* Call after the end of an entered array or object; continues in the enclosing one. */
static inline void hr__json_left(struct hr__json_stream *stream)
{
    stream->is_first = 0;
}

#endif
