/*
 * Field tables: each names the members of a JSON object and their places in a struct. One table
 * reads, writes, copies and frees.
 *
 * The reader (json.h) remembers a failure to read. Reading allocates into the struct; free that
 * with hr__fields_clear, on failure too.
 */
#ifndef HR_STALLS_MODEL_FIELDS_H
#define HR_STALLS_MODEL_FIELDS_H

#include "base/json.h"

enum hr__field_kind {
    HR__FIELD_INT,      /* int */
    HR__FIELD_COUNT,    /* uint64_t */
    HR__FIELD_COUNT_32, /* uint32_t */
    HR__FIELD_KNOWN,    /* uint64_t; 0: null */
    HR__FIELD_REAL,     /* double; NaN: null */
    HR__FIELD_BOOL,
    HR__FIELD_NOT,        /* bool, negated in JSON */
    HR__FIELD_MAYBE,      /* int: 1, 0; -1: null */
    HR__FIELD_WORD,       /* an enum or a bool: the index in `words` */
    HR__FIELD_TEXT,       /* char[] */
    HR__FIELD_KNOWN_TEXT, /* char[]; "": null */
    HR__FIELD_NAME,       /* char[]: required */
    HR__FIELD_ARRAY,      /* double[] of up to `most`; its length is the int at `count` */
    HR__FIELD_NUMBERS,    /* double *; its length is the size_t at `count` */
    HR__FIELD_SERIES,     /* double *; its length must equal the uint64_t at `count` */
    HR__FIELD_TEXTS,      /* char **; its length is the size_t at `count` */
    HR__FIELD_LIST,       /* array of structs of `size`, by `fields`; length as TEXTS */
    HR__FIELD_OBJECT,     /* an object of its own whose members are in the same struct */
};

struct hr__field {
    const char *name; /* NULL ends a table */
    enum hr__field_kind kind;
    size_t offset, size, count; /* in the struct; of the member or a list's element */
    double low, high, absent;   /* as struct hr__json_range; for an object HR__REQUIRED or 0 */
    size_t most;                /* largest length of an array, list or texts */
    const char *const *words;
    const struct hr__field *fields;
    /* Checks members against each other: called after each element, or an object, is read. */
    void (*check)(struct hr__json *reader, const json_t *object, void *out, size_t index);
};

void hr__fields_read(struct hr__json *reader, const json_t *object, const struct hr__field *fields,
                     void *out);
/* Adds the fields to an object; false: out of memory. */
bool hr__fields_write(json_t *object, const struct hr__field *fields, const void *from);

/* Gives a struct that was copied byte by byte its own copies of what its pointers share. Returns
 * false if out of memory; the remaining pointers are then NULL. */
bool hr__fields_own(const struct hr__field *fields, void *copy);
/* Frees what the pointers own and sets them to NULL. */
void hr__fields_clear(const struct hr__field *fields, void *from);

/* Sets a member, taking the reference; false if value is NULL or memory is out. */
bool hr__json_set(json_t *object, const char *name, json_t *value);

#endif
