/*
 * Parses the text that specifies a cache (grammar: include/headrace/cache.h). Pure.
 */
#ifndef HR_CACHE_SPEC_H
#define HR_CACHE_SPEC_H

#include "cache/secret.h"

#include <headrace/base.h>

#include <stdint.h>

#define HR__CACHE_NAME 64
#define HR__CACHE_PATH 200

/* The name of all segments in a directory on disk. */
#define HR__DISK_NAME "disk"

/* No form was specified. */
#define HR__FORM_UNSET (-2)

struct hr__cache_spec {
    char name[HR__CACHE_NAME];   /* letters, digits, '-' and '_'; "": private; on disk
                                  * HR__DISK_NAME */
    char path[HR__CACHE_PATH];   /* on disk: its directory, absolute; "": in memory */
    char group[HR__CACHE_NAME];  /* "": only the owner */
    uint64_t size_bytes;         /* limit for the name; if private, for this dataset; > 0 */
    uint64_t share_bytes;        /* part of it for this dataset */
    char key_file[HR__KEY_FILE]; /* "": none */
    int form;                    /* enum hr_form, HR_FORM_AUTO or HR__FORM_UNSET */
    /* Set by the caller, not by the text: a digest and a description of what items depend on
     * besides their files (recipe/recipe.h); 0: on nothing. Other waveforms are in another
     * segment. */
    uint64_t variant;
    char variant_text[HR__CACHE_NAME];
};

/* Returns non-zero if a text specifies a kept cache: it begins with "shm:". */
int hr__cache_spec_is_kept(const char *text);

#define HR__HOSTS_SCHEME "memcached:"

/* Returns non-zero if a cache's text names servers on several hosts: it begins with "memcached:",
 * or with a disk and a comma before that. */
int hr__hosts_is(const char *text);

/* Returns the part of such a text from "memcached:" on, or NULL. */
const char *hr__hosts_text_of(const char *text);

/* The tiers of a cache, in the order in which a sample is looked for. */
struct hr__cache_tiers {
    struct hr__cache_spec first;
    struct hr__cache_spec disk; /* behind memory; path "": there is none */
};

/* Returns non-zero if a text specifies a cache on disk, or begins like one: "disk:". */
int hr__cache_spec_is_disk(const char *text);

/* Copies the directory of a text that begins with "disk:", up to its options. Errors: -EINVAL. */
int hr__cache_spec_directory(char out[HR__CACHE_PATH], const char *text, struct hr_error *error);

/* Parse the text of a single cache, and of tiers in a row. Errors: -EINVAL, with what is wrong in
 * `text`, where, and what to write instead. */
int hr__cache_spec_parse(struct hr__cache_spec *out, const char *text, struct hr_error *error);
int hr__cache_tiers_parse(struct hr__cache_tiers *out, const char *text, struct hr_error *error);

/* Parses the disk before "memcached:" in the text of hosts; out->path "": there is none. Errors: as
 * above. */
int hr__hosts_disk_parse(struct hr__cache_spec *out, const char *text, struct hr_error *error);

#endif
