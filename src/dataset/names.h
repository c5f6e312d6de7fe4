/*
 * Compares and selects file and directory names as Python and torchvision do, so that a folder
 * gives the same samples in the same order.
 */
#ifndef HR_DATASET_NAMES_H
#define HR_DATASET_NAMES_H

#include <stddef.h>

/*
 * Compares two names in the order of Python's sorted(): by code points of the UTF-8 text, where
 * each byte that is not valid UTF-8 counts as U+DC00 + byte (PEP 383). For valid UTF-8 this is byte
 * order. Pure; any thread.
 */
int hr__name_compare(const char *a, const char *b);

/* Returns non-zero if the name ends with one of torchvision's IMG_EXTENSIONS, in upper or lower
 * case. A name that is only an extension counts too. */
int hr__name_is_image(const char *name, size_t length);

/* The same for sounds, also in formats that are not decoded: leaving them out would be silent. */
int hr__name_is_sound(const char *name, size_t length);

/* A growing list of names: 0-terminated texts, one after another. */
struct hr__names {
    char *text;
    size_t bytes;       /* of text used */
    const char **items; /* pointers into text, sorted; set by hr__names_sort */
    size_t count;
    int non_ascii; /* non-zero: some name has a byte >= 0x80 */
};

/* Appends a copy of the name. Returns 0 or -ENOMEM. */
int hr__names_add(struct hr__names *names, const char *name, size_t length);

/* Fills items[], in the order of hr__name_compare. Returns 0 or -ENOMEM. */
int hr__names_sort(struct hr__names *names);

/* Frees the contents and makes the list empty again. */
void hr__names_clear(struct hr__names *names);

#endif
