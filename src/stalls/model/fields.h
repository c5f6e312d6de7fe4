/*
 * Tables of fields: what members a JSON object has and where they stand in a struct. One table
 * reads, writes, copies and frees.
 *
 * A failure to read is remembered by the reader (json.h). Readers allocate into the struct; what
 * they allocated is freed by hr__fields_clear, on failure too.
 */
#ifndef HR_STALLS_MODEL_FIELDS_H
#define HR_STALLS_MODEL_FIELDS_H

#include "base/json.h"

enum hr__field_kind {
    HR__FIELD_INT,        /* int */
    HR__FIELD_COUNT,      /* uint64_t */
    HR__FIELD_COUNT_32,   /* uint32_t */
    HR__FIELD_KNOWN,      /* uint64_t; 0: null */
    HR__FIELD_REAL,       /* double; NaN: null */
    HR__FIELD_BOOL,       /* bool */
    HR__FIELD_NOT,        /* bool, the opposite of what JSON says */
    HR__FIELD_MAYBE,      /* int: 1, 0; -1: null */
    HR__FIELD_WORD,       /* an enum, or a bool: the index in `words` */
    HR__FIELD_TEXT,       /* char[] */
    HR__FIELD_KNOWN_TEXT, /* the same; "": null */
    HR__FIELD_NAME,       /* char[]: must be there */
    HR__FIELD_ARRAY,      /* double[] of `most`, an int that counts at `count` */
    HR__FIELD_NUMBERS,    /* double *, a size_t that counts at `count` */
    HR__FIELD_SERIES,     /* double * of exactly as many as the uint64_t at `count` says */
    HR__FIELD_TEXTS,      /* char **, counted the same */
    HR__FIELD_LIST,       /* an array of structs of `size`, by `fields`, counted the same */
    HR__FIELD_OBJECT,     /* members of the same struct in an object of their own */
};

struct hr__field {
    const char *name; /* NULL ends a table */
    enum hr__field_kind kind;
    size_t offset, size, count; /* in the struct; of the member, or of a list's element */
    double low, high, absent;   /* as struct hr__json_range; of an object HR__REQUIRED, or 0 */
    size_t most;                /* elements of an array, a list or texts */
    const char *const *words;
    const struct hr__field *fields;
    /* What belongs together: called for each element, or for an object, when it was read. */
    void (*check)(struct hr__json *reader, const json_t *object, void *out, size_t index);
};

void hr__fields_read(struct hr__json *reader, const json_t *object, const struct hr__field *fields,
                     void *out);
/* Adds them to an object; false: out of memory. */
bool hr__fields_write(json_t *object, const struct hr__field *fields, const void *from);

/* Of a struct that was copied and shares what pointers point to: replaces that by copies of its
 * own, or by nothing where memory is out; false then. */
bool hr__fields_own(const struct hr__field *fields, void *copy);
/* Frees what pointers point to, and forgets it. */
void hr__fields_clear(const struct hr__field *fields, void *from);

/* Sets a member, taking the reference; false where value is NULL or memory is out. */
bool hr__json_set(json_t *object, const char *name, json_t *value);

#endif
