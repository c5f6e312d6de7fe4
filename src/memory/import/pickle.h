/*
 * Reading a pickle that holds plain values: numbers, texts, bytes, lists, tuples, dicts.
 *
 * A pickle is a program that can call anything. This reader has no such instructions: what
 * names, makes or changes an object (GLOBAL, REDUCE, BUILD, persistent ids, extensions, ...) ends
 * the reading with its name and place. Protocols 2 to 5 (Python's Lib/pickletools.py documents
 * them); 0 and 1, which write numbers as lines of text, are refused. A loop over the bytes, without
 * recursion; memory is bounded by a limit.
 *
 * Values may be shared, and a list may hold itself: who walks through them bounds the depth.
 */
#ifndef HR_MEMORY_IMPORT_PICKLE_H
#define HR_MEMORY_IMPORT_PICKLE_H

#include "memory/import/input.h"

enum hr__pickle_kind {
    HR__PICKLE_UNSET, /* never in what was read */
    HR__PICKLE_NONE,
    HR__PICKLE_BOOL,
    HR__PICKLE_INTEGER,
    HR__PICKLE_NATURAL, /* an integer of more than INT64_MAX */
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
        int64_t integer; /* of BOOL, too */
        uint64_t natural;
        double real;
        const char *text; /* UTF-8 (lone surrogates as three bytes), a zero behind it */
        struct hr__pickle_many *many;
    } as;
};

/* What LIST, TUPLE and DICT hold. */
struct hr__pickle_many {
    struct hr__pickle_value *items; /* of a DICT: key, value, key, value, ... */
    uint32_t count, room;
    uint32_t note; /* for who walks through them; 0 at first */
};

struct hr__pickle;

/* Reads one pickle. On success *out is the caller's. Errors: -EBADMSG: it is damaged, or has what
 * is refused, with opcode and place; -ENOMEM; of reading. */
int hr__pickle_read(struct hr__pickle **out, struct hr__input *in, struct hr_error *error);
void hr__pickle_destroy(struct hr__pickle **pickle);

/* What it holds; belongs to the pickle. */
const struct hr__pickle_value *hr__pickle_root(const struct hr__pickle *pickle);

/* The value of a key; NULL: `dict` has none, or is no dict. */
const struct hr__pickle_value *hr__pickle_get(const struct hr__pickle_value *dict, const char *key);

/* How many a LIST or TUPLE holds; 0 for anything else. */
uint32_t hr__pickle_count(const struct hr__pickle_value *list);
const struct hr__pickle_value *hr__pickle_at(const struct hr__pickle_value *list, uint32_t index);

/* An integer that is not negative, or a number without a fraction; 0: `value` (may be NULL) is
 * none. */
int hr__pickle_u64(const struct hr__pickle_value *value, uint64_t *out);

/* NULL: it is no text. */
const char *hr__pickle_text(const struct hr__pickle_value *value);

#endif
