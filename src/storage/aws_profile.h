/*
 * The settings of AWS's tools: one profile of the shared config and credentials files.
 *
 * The files are INI: "[profile NAME]" in the config file, "[NAME]" in the credentials file, then
 * lines "key = value". An indented line belongs to the key above it, so "addressing_style" below
 * "s3 =" is read as "s3.addressing_style".
 */
#ifndef HR_STORAGE_AWS_PROFILE_H
#define HR_STORAGE_AWS_PROFILE_H

#include <headrace/base.h>

#include <stddef.h>

/* Keys and values of one profile, those found first first. */
struct hr__aws_profile {
    char **keys, **values;
    size_t count;
    int is_found; /* some file has it */
};

/* Adds the lines of section `name` of a file's text. `is_config`: other sections than "default"
 * begin with "profile ". Lines that are none of the format are left out. Errors: -ENOMEM. */
int hr__aws_profile_parse(struct hr__aws_profile *profile, const char *text, size_t length,
                          const char *name, int is_config);

/* Reads profile `name` from the files that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, or
 * those in ~/.aws. Files that are not there are empty. On success the caller clears *out. Errors:
 * -ENOMEM; those of reading a file. */
int hr__aws_profile_read(struct hr__aws_profile *out, const char *name, struct hr_error *error);

/* Returns the value of a key, owned by the profile; NULL if there is none or it is empty. */
const char *hr__aws_profile_get(const struct hr__aws_profile *profile, const char *key);

void hr__aws_profile_clear(struct hr__aws_profile *profile);

/* Returns an environment variable, or NULL if it is not set or empty. */
const char *hr__setting(const char *name);

#endif
