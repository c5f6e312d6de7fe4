/*
 * Reads structs in Thrift's compact protocol (thrift-compact-protocol.md of Apache Thrift), in
 * which Parquet describes files and pages. The bytes are untrusted: nothing is read outside them,
 * and reading takes time in proportion to their number. Allocates nothing.
 *
 *     struct hr__thrift_field f = {0};
 *     while (hr__thrift_next(t, &f))
 *         if (f.id == 3)
 *             rows = hr__thrift_integer(t, &f);
 *         else
 *             hr__thrift_skip(t, &f);
 *
 * After an error, every call returns 0 or nothing; check `bad` at the end.
 */
#ifndef HR_DATASET_THRIFT_H
#define HR_DATASET_THRIFT_H

#include <stddef.h>
#include <stdint.h>

struct hr__thrift {
    const uint8_t *at, *end;
    int bad; /* non-zero: the bytes are no such struct, or end too early */
};

/* Types of fields. */
enum hr__thrift_type {
    HR__THRIFT_TRUE = 1,
    HR__THRIFT_FALSE = 2,
    HR__THRIFT_I16 = 4,
    HR__THRIFT_I32 = 5,
    HR__THRIFT_I64 = 6,
    HR__THRIFT_BINARY = 8,
    HR__THRIFT_LIST = 9,
    HR__THRIFT_STRUCT = 12,
};

/* The field that is read next. Begin each struct with {0}. */
struct hr__thrift_field {
    int id;
    int type; /* enum hr__thrift_type, or another */
};

/* Bytes inside the struct. */
struct hr__thrift_text {
    const char *bytes;
    size_t length;
};

/* Reads the header of the next field. Returns 0 at the end of the struct. */
int hr__thrift_next(struct hr__thrift *t, struct hr__thrift_field *f);

/* Reads the value of a field; a value of another type is an error. */
int64_t hr__thrift_integer(struct hr__thrift *t, const struct hr__thrift_field *f);
int hr__thrift_bool(struct hr__thrift *t, const struct hr__thrift_field *f);
struct hr__thrift_text hr__thrift_text(struct hr__thrift *t, const struct hr__thrift_field *f);

/* Begins a field that is a struct. Returns non-zero if it is one. */
int hr__thrift_struct(struct hr__thrift *t, const struct hr__thrift_field *f);

/* Begins a list. Returns the number of its elements, and how to read each in *element. */
size_t hr__thrift_list(struct hr__thrift *t, const struct hr__thrift_field *f,
                       struct hr__thrift_field *element);

/* Skips the value of a field. */
void hr__thrift_skip(struct hr__thrift *t, const struct hr__thrift_field *f);

/* Reads a variable-length number of up to 64 bits (ULEB128). */
uint64_t hr__thrift_varint(struct hr__thrift *t);

#endif
