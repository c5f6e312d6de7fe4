/*
 * Names of files and directories, compared and selected as Python and
 * torchvision do it, so that a folder gives the same samples in the same order.
 */
#ifndef HR_DATASET_NAMES_H
#define HR_DATASET_NAMES_H

#include <stddef.h>

/*
 * Order of two names as Python's sorted() sees them: by code points of the
 * UTF-8 text, where each byte that is not UTF-8 counts as U+DC00 + byte
 * (PEP 383). For valid UTF-8 that is plain byte order. Pure; any thread.
 */
int hr__name_compare(const char *a, const char *b);

/* Non-zero when the name ends with one of torchvision's IMG_EXTENSIONS, in
 * upper or lower case; a name that is only an extension counts too. */
int hr__name_is_image(const char *name, size_t length);

/* A growing set of names: 0-terminated texts one after another. */
struct hr__names {
    char *text;
    size_t bytes, capacity; /* of text: used, allocated */
    const char **items;     /* sorted; made by hr__names_sort, into text */
    size_t count;
    int non_ascii; /* non-zero: some name has a byte >= 0x80 */
};

/* Appends a copy. Returns 0 or -ENOMEM. */
int hr__names_add(struct hr__names *names, const char *name, size_t length);

/* Makes items[], in the order of hr__name_compare. Returns 0 or -ENOMEM. */
int hr__names_sort(struct hr__names *names);

/* Frees what it holds and makes it empty again. */
void hr__names_clear(struct hr__names *names);

#endif
