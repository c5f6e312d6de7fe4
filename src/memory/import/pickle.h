/*
 * Reads a pickle of plain values: numbers, texts, bytes, lists, tuples, dicts.
 *
 * A pickle is a program that can call anything. This reader implements no such instruction: one
 * that names, creates or changes an object (GLOBAL, REDUCE, BUILD, persistent ids, extensions, ...)
 * is an error that reports the opcode and its position. Supports protocols 2 to 5 (documented in
 * Python's Lib/pickletools.py); rejects 0 and 1, which write numbers as lines of text. The reader
 * is a loop over the bytes, without recursion; its memory is limited.
 *
 * Values may be shared, and a list may contain itself: code that walks them must limit the depth.
 */
#ifndef HR_MEMORY_IMPORT_PICKLE_H
#define HR_MEMORY_IMPORT_PICKLE_H

#include "base/input.h"

enum hr__pickle_kind {
    HR__PICKLE_UNSET, /* never in the result */
    HR__PICKLE_NONE,
    HR__PICKLE_BOOL,
    HR__PICKLE_INTEGER,
    HR__PICKLE_NATURAL, /* an integer above INT64_MAX */
    HR__PICKLE_REAL,
    HR__PICKLE_TEXT,
    HR__PICKLE_BYTES,
    HR__PICKLE_LIST,
    HR__PICKLE_TUPLE,
    HR__PICKLE_DICT,
};

struct hr__pickle_many;

struct hr__pickle_value {
    uint32_t kind;   /* enum hr__pickle_kind */
    uint32_t length; /* of TEXT and BYTES, in bytes */
    union {
        int64_t integer; /* also of BOOL */
        uint64_t natural;
        double real;
        const char *text; /* UTF-8 (lone surrogates as three bytes), zero-terminated */
        struct hr__pickle_many *many;
    } as;
};

/* Contents of a LIST, TUPLE or DICT. */
struct hr__pickle_many {
    struct hr__pickle_value *items; /* of a DICT: key, value, key, value, ... */
    uint32_t count, room;
    uint32_t note; /* for use by the caller; 0 at first */
};

struct hr__pickle;

/* Reads one pickle. The caller destroys *out. Errors: -EBADMSG: damaged, or a forbidden opcode,
 * with its position; -ENOMEM; those of reading. */
int hr__pickle_read(struct hr__pickle **out, struct hr__input *in, struct hr_error *error);
void hr__pickle_destroy(struct hr__pickle **pickle);

/* Returns the value read; the pickle owns it. */
const struct hr__pickle_value *hr__pickle_root(const struct hr__pickle *pickle);

/* Returns the value of a key; NULL: no such key, or `dict` is not a dict. */
const struct hr__pickle_value *hr__pickle_get(const struct hr__pickle_value *dict, const char *key);

/* Returns the length of a LIST or TUPLE; 0 for anything else. */
uint32_t hr__pickle_count(const struct hr__pickle_value *list);
const struct hr__pickle_value *hr__pickle_at(const struct hr__pickle_value *list, uint32_t index);

/* Converts a non-negative integer, or a number without a fraction. Returns 0 if `value` (may be
 * NULL) is neither. */
int hr__pickle_u64(const struct hr__pickle_value *value, uint64_t *out);

/* Returns NULL if the value is not a text. */
const char *hr__pickle_text(const struct hr__pickle_value *value);

#endif
