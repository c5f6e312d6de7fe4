/* What `headrace scan` says about a dataset, computed; printing is elsewhere. */
#ifndef HR_CLI_SUMMARY_H
#define HR_CLI_SUMMARY_H

#include <headrace/dataset.h>

#include <stddef.h>
#include <stdint.h>

/* Bucket i counts sizes in [2^i, 2^(i+1)) bytes; bucket 0 also size 0. */
#define SUMMARY_BUCKETS 63

struct summary_class {
    int64_t label;
    char *name; /* escaped; the label in digits where classes have no names */
    uint64_t samples;
    uint64_t bytes;
};

/* A sample that something is wrong with. */
struct summary_bad {
    uint64_t index;
    char *path;   /* escaped */
    char *reason; /* escaped */
};

struct summary_bads {
    struct summary_bad *items;
    size_t count;
};

enum summary_kind { SUMMARY_FOLDER, SUMMARY_LIST, SUMMARY_PACK, SUMMARY_TAR };

struct summary {
    char *path; /* as the person gave it, escaped */
    enum summary_kind kind;
    int named; /* non-zero: classes have names, else they are the labels that occur */
    uint64_t samples, bytes;
    struct summary_class *classes; /* by label */
    size_t class_count, empty_classes;
    uint64_t known;                           /* samples whose size is known */
    uint64_t smallest, median, largest, mean; /* bytes; 0 where nothing is known */
    uint64_t buckets[SUMMARY_BUCKETS];
    struct summary_bads unreadable; /* no size could be had, or they cannot be samples */
    int verified;                   /* non-zero: `bad` was looked for */
    struct summary_bads bad;
    struct hr_dataset_info info;
};

/* Appends escaped copies. Returns 0 or -ENOMEM. */
int summary_bads_add(struct summary_bads *bads, uint64_t index, const char *path,
                     const char *reason);

/* Appends what verifying found. Returns 0 or -ENOMEM. */
int summary_bads_take(struct summary_bads *bads, const struct hr_verify_report *report);

/* Frees what is there; accepts an empty one. */
void summary_bads_clear(struct summary_bads *bads);

/* Prints up to `at_most`, one a line. */
void summary_bads_print(const struct summary_bads *bads, size_t at_most);

/* A JSON array of {index, path, reason}; NULL: out of memory. */
struct json_t *summary_bads_json(const struct summary_bads *bads);

/* Fills a zeroed summary from a dataset whose sizes are known; returns 0 or
 * -ENOMEM; summary_clear frees what is there in both cases. */
int summary_make(struct summary *summary, const char *path, const struct hr_dataset *dataset);

/* Adds what verifying found. Returns 0 or -ENOMEM. */
int summary_add_report(struct summary *summary, const struct hr_verify_report *report);

void summary_clear(struct summary *summary);

/* Non-zero when a person should look at the dataset. */
int summary_has_problem(const struct summary *summary);

/* Prints for people, in 80 columns; `all_classes`: every class, by label. */
void summary_print(const struct summary *summary, int all_classes);

/* Prints the JSON that headrace-scan(1) describes. Returns 0 or -1. */
int summary_print_json(const struct summary *summary);

#endif
