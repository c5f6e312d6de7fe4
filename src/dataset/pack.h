/*
 * Packs: the file format, and opening one.
 *
 *   superblock (4,096 bytes) | catalog block | items, each at a multiple of 64
 *
 * All in native byte order (recorded), bytes between the parts are zero. The
 * catalog block is catalog.h's, with ranges and labels, one directory "" and one
 * container "" (the pack itself): names are the keys of the source, mtimes those
 * of its files. It stands at the front because its size is known as soon as the
 * names are.
 *
 * A writer works on PATH.partial in state `writing`: for a sample whose item is
 * on storage it fills in the range and then, last, the size, which is
 * HR_SIZE_UNKNOWN until then, so that a killed run can be continued; in that state
 * the catalog's checksum is 0 and HR__CATALOG_SIZES is not set. In the end the
 * catalog is sealed, then the superblock says `complete`, and the file gets its
 * name.
 *
 * hr__pack_open_file trusts nothing: packs come from other people.
 */
#ifndef HR_DATASET_PACK_H
#define HR_DATASET_PACK_H

#include "dataset/catalog.h"

#include <headrace/form.h>

#define HR__PACK_MAGIC            "\x89HRPACK\n" /* 8 bytes without the zero */
#define HR__PACK_VERSION          1u
#define HR__PACK_SUPERBLOCK_BYTES 4096
#define HR__PACK_ITEM_ALIGNMENT   64

enum hr__pack_state { HR__PACK_WRITING = 1, HR__PACK_COMPLETE = 2 };

/* The first bytes of a pack; exactly HR__PACK_SUPERBLOCK_BYTES. */
struct hr__pack_superblock {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;     /* 0x01020304 as the writer's machine stores it */
    uint64_t checksum;       /* XXH3-64 of the bytes behind this field */
    uint32_t state;          /* enum hr__pack_state */
    int32_t form;            /* that the writer was asked for: enum hr_form, or -1: auto */
    uint64_t catalog_offset; /* HR__PACK_SUPERBLOCK_BYTES */
    uint64_t catalog_bytes;  /* of the catalog block */
    uint64_t items_offset;   /* where the first item may begin: after the catalog, a multiple
                                of HR__PACK_ITEM_ALIGNMENT */
    uint64_t bytes;          /* of the whole file; 0 while it is being written */
    uint64_t digest;         /* the writer's: of the source and the options, so that another
                                dataset does not continue this file */
    uint8_t reserved[HR__PACK_SUPERBLOCK_BYTES - 72]; /* 0 */
};

/*
 * An unfinished catalog for a pack of `dataset`: names, labels, classes and times
 * are those of the dataset (a subset too), sizes are unknown, ranges are empty.
 * On success *out is the caller's. Errors: -ENOMEM, -EOVERFLOW.
 */
int hr__pack_catalog(struct hr__catalog **out, const struct hr_dataset *dataset,
                     struct hr_error *error);

/* A superblock in state `writing`, sealed, for a catalog block of that size. */
void hr__pack_begin(struct hr__pack_superblock *super, uint64_t catalog_bytes, int form,
                    uint64_t digest);

/* Puts the checksum right after a change. */
void hr__pack_seal(struct hr__pack_superblock *super);

/*
 * Checks a superblock of whatever state by itself: magic, version, machine,
 * checksum, and that its parts follow one another.
 * Errors: -EBADMSG; -ENOTSUP: of a newer version or another machine. The messages
 * begin with `path`.
 */
int hr__pack_check(const struct hr__pack_superblock *super, const char *path,
                   struct hr_error *error);

/* Non-zero where a file that begins with these bytes is a pack. */
int hr__pack_recognise(const void *bytes, size_t length);

/*
 * Reads superblock and catalog of the complete pack open at `fd` and checks them:
 * every item lies between the front and the end of the file, at a multiple of
 * HR__PACK_ITEM_ALIGNMENT. `path` is for messages; `super` may be NULL. On
 * success *out is the caller's; the descriptor stays the caller's always. Blocks.
 * Errors: -EBADMSG: no pack, cut, or damaged; -EINPROGRESS: it is not finished;
 * -ENOTSUP; -ENOMEM; those of reading.
 */
int hr__pack_open_file(struct hr__catalog **out, struct hr__pack_superblock *super, int fd,
                       const char *path, struct hr_error *error);

/* The dataset of the complete pack at `path`. On success *out holds one reference.
 * Blocks. Errors: as hr__pack_open_file, and those of open. */
int hr__pack_dataset(struct hr_dataset **out, const char *path, struct hr_error *error);

/* Says why `path` cannot be opened, and where PATH.partial is there instead, what
 * to do about it. Returns `code`, a negative errno. */
int hr__pack_cannot_open(const char *path, int code, struct hr_error *error);

#endif
