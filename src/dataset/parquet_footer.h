/*
 * The footer of a Parquet file (parquet.thrift of Apache Parquet): its columns, and where the pages
 * of a column are. Footers are untrusted.
 */
#ifndef HR_DATASET_PARQUET_FOOTER_H
#define HR_DATASET_PARQUET_FOOTER_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__byte_source;

/* Physical types that images and labels have. */
enum hr__parquet_type {
    HR__PARQUET_INT32 = 1,
    HR__PARQUET_INT64 = 2,
    HR__PARQUET_BYTE_ARRAY = 6,
};

/* What the values of a column mean, as far as it matters here. */
enum hr__parquet_kind {
    HR__PARQUET_PLAIN,    /* what the physical type says */
    HR__PARQUET_UNSIGNED, /* whole numbers without a sign */
    HR__PARQUET_OTHER,    /* texts, dates, decimal fractions ... */
};

/* A column: a leaf of the schema. */
struct hr__parquet_column {
    char *name; /* names from below the root, joined by dots; owned */
    enum hr__parquet_kind kind;
    int type;        /* enum hr__parquet_type, or another */
    int definitions; /* most optional or repeated groups around a value, with itself */
    int repeated;    /* non-zero: a row may have several values */
};

/* The values of one column in one row group. */
struct hr__parquet_chunk {
    uint64_t start, end; /* of its pages, in the file */
    uint64_t values;     /* with nulls */
    int codec;           /* compression of its pages; 0: none */
};

struct hr__parquet_footer {
    uint8_t *bytes; /* owned */
    size_t length;
    uint64_t end; /* where the pages end at the latest: where the footer begins */
    struct hr__parquet_column *columns;
    size_t column_count;
    uint64_t rows;
    size_t group_count; /* of row groups */
    char *features; /* JSON that Hugging Face's datasets wrote, 0-terminated; NULL: none; owned */
};

/* Returns non-zero if a file that begins with these bytes is a Parquet file. */
int hr__parquet_recognise(const void *bytes, size_t length);

/*
 * Reads the footer of a file or an object. On success free *out with
 * hr__parquet_footer_clear. Messages name its path. Errors: -EBADMSG: damaged or cut off; -ENOTSUP:
 * encrypted; -ENOMEM; of reading. Blocks.
 */
int hr__parquet_footer_read(struct hr__parquet_footer *out, struct hr__byte_source *source,
                            struct hr_error *error);

void hr__parquet_footer_clear(struct hr__parquet_footer *footer);

/* Finds `column` in all row groups. `chunks` has room for group_count. Returns 0; -EBADMSG:
 * damaged; -ENOTSUP: encrypted, or its values are in another file. Pure. */
int hr__parquet_chunks(const struct hr__parquet_footer *footer, size_t column,
                       struct hr__parquet_chunk *chunks);

#endif
