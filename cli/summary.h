/* The figures that `headrace scan` reports about a dataset; summary_print.c prints them. */
#ifndef HR_CLI_SUMMARY_H
#define HR_CLI_SUMMARY_H

#include <headrace/dataset.h>
#include <headrace/sound.h>

#include <stddef.h>
#include <stdint.h>

/* Bucket i counts sizes in [2^i, 2^(i+1)) bytes; bucket 0 includes size 0. */
#define SUMMARY_BUCKETS 63

struct summary_class {
    int64_t label;
    char *name;       /* escaped; the label in digits if classes have no names */
    uint64_t samples; /* or rows, if these have labels */
    uint64_t bytes;
};

/* Sounds of one format, rate and number of channels. */
struct summary_kind_of_sound {
    struct hr_sound_info info; /* frames: 0 */
    uint64_t samples;
    double seconds;
};

/* What sounds are. Times in seconds; 0 if there is none. */
struct summary_sounds {
    struct summary_kind_of_sound *kinds; /* the most frequent first */
    size_t kind_count;
    uint64_t known; /* sounds whose headers say what they are */
    double total, shortest, median, longest;
};

/* The rows of samples (headrace/rows.h). */
struct summary_rows {
    char **columns; /* names, escaped */
    size_t column_count;
    uint64_t count, most; /* of all samples; of one */
    uint64_t empty;       /* samples without a row */
    int have_labels;      /* non-zero: classes are those of rows, and count these */
};

/* A bad sample. */
struct summary_bad {
    uint64_t index;
    char *path;   /* escaped */
    char *reason; /* escaped */
};

struct summary_bads {
    struct summary_bad *items;
    size_t count;
};

enum summary_kind { SUMMARY_FOLDER, SUMMARY_LIST, SUMMARY_PACK, SUMMARY_TAR, SUMMARY_PARQUET };

struct summary {
    char *path; /* as given on the command line, escaped */
    enum summary_kind kind;
    int named; /* non-zero: classes have names; else they are the labels that occur */
    uint64_t samples, bytes;
    struct summary_class *classes; /* by label */
    size_t class_count, empty_classes;
    uint64_t known;                           /* samples whose size is known */
    uint64_t smallest, median, largest, mean; /* bytes; 0 if no size is known */
    uint64_t buckets[SUMMARY_BUCKETS];
    struct summary_bads unreadable; /* size unknown, or certainly not a sample */
    int verified;                   /* non-zero: `bad` was determined */
    struct summary_bads bad;
    struct hr_dataset_info info;
    int is_sound; /* the samples are sounds */
    int surveyed; /* what follows is known */
    struct summary_sounds sounds;
    struct summary_rows rows;
};

/* Appends a sample, with escaped copies of the texts. Returns 0 or -ENOMEM. */
int summary_bads_add(struct summary_bads *bads, uint64_t index, const char *path,
                     const char *reason);

/* Appends the bad samples that verifying found. Returns 0 or -ENOMEM. */
int summary_bads_take(struct summary_bads *bads, const struct hr_verify_report *report);

/* Frees the list's contents. Accepts an empty list. */
void summary_bads_clear(struct summary_bads *bads);

/* Prints up to `at_most` samples, one a line. */
void summary_bads_print(const struct summary_bads *bads, size_t at_most);

/* Makes a JSON array of {index, path, reason}. NULL: out of memory. */
struct json_t *summary_bads_json(const struct summary_bads *bads);

/* Adds what the sounds are: `infos` of all samples, as hr_dataset_sounds gives them. Sorts them by
 * length. Those that are unknown are listed as unreadable. Returns 0 or -ENOMEM. */
int summary_add_sounds(struct summary *summary, const struct hr_dataset *dataset,
                       struct hr_sound_info *infos);

/* Adds what rows the samples have, and makes the classes if rows have labels. Returns 0 or -ENOMEM.
 */
int summary_add_rows(struct summary *summary, const struct hr_dataset *dataset);

/* Fills a zeroed summary from a dataset whose sizes are known. Returns 0 or -ENOMEM; call
 * summary_clear in both cases. */
int summary_make(struct summary *summary, const char *path, const struct hr_dataset *dataset);

/* Adds the bad samples that verifying found. Returns 0 or -ENOMEM. */
int summary_add_report(struct summary *summary, const struct hr_verify_report *report);

void summary_clear(struct summary *summary);

/* Returns non-zero if a person should check the dataset. */
int summary_has_problem(const struct summary *summary);

/* Prints text in 80 columns. `all_classes`: lists every class, by label. */
void summary_print(const struct summary *summary, int all_classes);

/* Returns the JSON described in headrace-scan(1); NULL: out of memory. */
struct json_t *summary_json(const struct summary *summary);

#endif
