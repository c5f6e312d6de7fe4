/*
 * Parses the text that specifies a cache (grammar: include/headrace/cache.h). Pure.
 */
#ifndef HR_CACHE_SPEC_H
#define HR_CACHE_SPEC_H

#include "cache/secret.h"

#include <headrace/base.h>

#include <stdint.h>

#define HR__CACHE_NAME 64

/* No form was specified. */
#define HR__FORM_UNSET (-2)

struct hr__cache_spec {
    char name[HR__CACHE_NAME];   /* letters, digits, '-' and '_'; "": private */
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

/* Returns non-zero if a cache's text names servers on several hosts: it begins with
 * "memcached:". */
int hr__hosts_is(const char *text);

/* Errors: -EINVAL, with what is wrong in `text`, where, and what to write instead. */
int hr__cache_spec_parse(struct hr__cache_spec *out, const char *text, struct hr_error *error);

#endif
