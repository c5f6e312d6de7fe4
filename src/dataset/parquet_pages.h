/*
 * The values of a column in one row group of a Parquet file: where the bytes of each image are, or
 * the numbers themselves. Pages are untrusted.
 *
 * Only bytes that are stored as they are have a place in the file: their pages may be of version 1
 * or 2, plain or with a dictionary, but not compressed. Pages with numbers may be compressed with
 * Snappy.
 */
#ifndef HR_DATASET_PARQUET_PAGES_H
#define HR_DATASET_PARQUET_PAGES_H

#include "dataset/parquet_footer.h"

/* First bytes of a value that are kept, to recognise the format of an image. */
#define HR__PARQUET_FIRST 12

struct hr__byte_source;

struct hr__parquet_range {
    uint64_t offset, bytes; /* 0 bytes: null or empty */
    uint8_t first[HR__PARQUET_FIRST];
    int is_null;
};

/* The file or object that pages are read from. */
struct hr__parquet_reader {
    struct hr__byte_source *source; /* borrowed */
    uint8_t *window;                /* the bytes of the file at `start`; owned */
    uint64_t start, length;
    char unsupported[80]; /* after -ENOTSUP: "is compressed with ZSTD" */
    struct hr_error why;  /* after an error of reading; code 0: none */
};

/* On success free it with hr__parquet_reader_clear. Errors: -ENOMEM. */
int hr__parquet_reader_begin(struct hr__parquet_reader *reader, struct hr__byte_source *source);
void hr__parquet_reader_clear(struct hr__parquet_reader *reader);

/*
 * Reads all chunk->values values of a chunk into `out`, which has room for them; nothing may be
 * repeated. Ranges: of a column of BYTE_ARRAY. Numbers: of INT32 or INT64; a null has no number and
 * fails. Errors: -EBADMSG: damaged; -ENODATA: a null; -ENOTSUP; -ENOMEM; of reading. Block.
 */
int hr__parquet_read_ranges(struct hr__parquet_reader *reader,
                            const struct hr__parquet_column *column,
                            const struct hr__parquet_chunk *chunk, struct hr__parquet_range *out);
int hr__parquet_read_numbers(struct hr__parquet_reader *reader,
                             const struct hr__parquet_column *column,
                             const struct hr__parquet_chunk *chunk, int64_t *out);

#endif
