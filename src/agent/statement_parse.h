/*
 * Parses and checks a statement without opening anything. Separate from statement.c, so that a
 * fuzzer can run it on any bytes without touching a file.
 */
#ifndef HR_AGENT_STATEMENT_PARSE_H
#define HR_AGENT_STATEMENT_PARSE_H

#include "agent/statement_recipe.h"
#include "dataset/describe.h"

#define HR__STATEMENT_VERSION   1
#define HR__STATEMENT_DEPTH_MAX 8 /* nested subsets */

struct hr__stated_dataset {
    int is_subset; /* it is the samples of `of` at `indices` */
    struct hr__stated_dataset *of;
    int64_t *indices;
    size_t index_count;

    enum hr__source_kind kind;
    char **paths; /* absolute; any number for TAR, PARQUET, RANGES and PATHS; else
                   * one */
    size_t path_count;
    int64_t *labels; /* PATHS: one for each path */
    int64_t *ranges; /* RANGES: struct hr_dataset_range, its four numbers for each sample */
    size_t range_count;
    uint64_t count; /* other kinds: number of samples that the job found */
    uint8_t digest[HR__DIGEST_BYTES];
    enum hr_index_policy index; /* FOLDER */
    enum hr_media media;        /* FOLDER */
    int allow_empty_classes;    /* FOLDER */
    char endpoints[2][256]; /* of S3, of Google Cloud Storage; "": none of the samples are there */
    char label[256], image[256];  /* TAR, PARQUET: as in hr_dataset_options; "": NULL */
    struct hr__produced produced; /* PRODUCED; its digest is `digest` */
};

struct hr__statement {
    struct hr__stated_dataset *dataset;
    struct hr__stated_recipe recipe;
    int has_rows;                     /* non-zero: the dataset has rows */
    uint8_t rows[HR__DIGEST_BYTES];   /* their digest */
    struct hr__stated_dataset *masks; /* of the samples; NULL: they have none */
};

/* The JSON words of enum hr__source_kind and enum hr_index_policy, by value; NULL-terminated. */
extern const char *const hr__source_words[];
extern const char *const hr__index_words[];

/* The names of `endpoints`. */
extern const char *const hr__endpoint_words[2];

/* On success *out is the caller's, freed with hr__statement_clear. Errors: -EPROTO, with what is
 * wrong and where; -ENOMEM. Pure. */
int hr__statement_parse(struct hr__statement *out, const char *text, size_t length,
                        struct hr_error *error);

/* Accepts an all-zero statement. */
void hr__statement_clear(struct hr__statement *statement);

#endif
