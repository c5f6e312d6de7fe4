/*
 * Reads a large JSON file element by element: one element's text at a time is in memory, for the
 * JSON library to parse. Elements that nobody asks for are skipped by counting brackets.
 */
#ifndef HR_MEMORY_IMPORT_JSON_STREAM_H
#define HR_MEMORY_IMPORT_JSON_STREAM_H

#include "memory/import/input.h"

struct hr__json_stream {
    struct hr__input *in;
    char *text; /* of what next and key have found, a zero behind it; owned */
    size_t length, room;
    uint64_t at;  /* its offset in the file */
    int is_first; /* no comma is due yet */
};

/* Zeroes it but for the input, which is borrowed. */
void hr__json_stream_init(struct hr__json_stream *stream, struct hr__input *in);
void hr__json_stream_clear(struct hr__json_stream *stream);

/* The next byte that is no space, which stays; -1: there is none. */
int hr__json_peek(struct hr__json_stream *stream);

/* Goes into an array or object: '[' or '{' is what comes next. */
int hr__json_begin(struct hr__json_stream *stream, char bracket, struct hr_error *error);

/* Its next element: 1; 0: it has ended; negative: -EBADMSG with the place, -ENOMEM. */
int hr__json_next(struct hr__json_stream *stream, struct hr_error *error);

/* Of an object, its next key, as written between the quotes; its value is to be captured,
 * skipped or entered then. Likewise. */
int hr__json_key(struct hr__json_stream *stream, struct hr_error *error);

/* A value: its text, or past it. 0, -EBADMSG, -ENOMEM. */
int hr__json_capture(struct hr__json_stream *stream, struct hr_error *error);
int hr__json_skip(struct hr__json_stream *stream, struct hr_error *error);

/* An array or object that was entered has ended; what it lies in goes on. */
static inline void hr__json_left(struct hr__json_stream *stream)
{
    stream->is_first = 0;
}

#endif
