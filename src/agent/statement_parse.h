/*
 * A statement taken apart, before anything is opened: what it says, checked. Apart from
 * statement.c so that any bytes may be tried on it without touching a file.
 */
#ifndef HR_AGENT_STATEMENT_PARSE_H
#define HR_AGENT_STATEMENT_PARSE_H

#include "agent/statement_recipe.h"
#include "dataset/describe.h"

#define HR__STATEMENT_VERSION   1
#define HR__STATEMENT_DEPTH_MAX 8 /* of subsets of subsets */

struct hr__stated_dataset {
    int is_subset; /* of `of`: its samples at `indices` */
    struct hr__stated_dataset *of;
    int64_t *indices;
    size_t index_count;

    enum hr__source_kind kind;
    char **paths;      /* absolute: the one; of TAR and PATHS any number */
    size_t path_count; /* how many */
    int64_t *labels;   /* PATHS: as many */
    uint64_t count;    /* the others: samples that were found there */
    uint8_t digest[HR__DIGEST_BYTES];
    enum hr_index_policy index; /* FOLDER */
    int allow_empty_classes;    /* FOLDER */
};

struct hr__statement {
    struct hr__stated_dataset *dataset;
    struct hr__stated_recipe recipe;
};

/* The words of enum hr__source_kind and enum hr_index_policy, by value, ended by NULL. */
extern const char *const hr__source_words[];
extern const char *const hr__index_words[];

/* On success *out is the caller's, for hr__statement_clear. Errors: -EPROTO says what is wrong
 * and where; -ENOMEM. Pure. */
int hr__statement_parse(struct hr__statement *out, const char *text, size_t length,
                        struct hr_error *error);

/* Accepts one that is zero. */
void hr__statement_clear(struct hr__statement *statement);

#endif
