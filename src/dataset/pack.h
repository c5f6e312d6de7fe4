/*
 * The pack file format, and opening a pack.
 *
 *   superblock (4,096 bytes) | catalog block | block of rows | items
 *
 * The block of rows (row_block.h) is there if the dataset has rows; it and each item begin at a
 * multiple of 64. Of a dataset with masks, each image's item is followed by its mask's, a PNG file,
 * which has an entry of its own in the catalog; names are without the directory that all have in
 * common.
 *
 * Everything is in native byte order (recorded); bytes between the parts are zero. The catalog
 * block has the format of catalog.h, with ranges and labels, one directory "" and one container ""
 * (the pack itself). Names are the keys of the source, mtimes those of its files. The catalog
 * precedes the items because its size is known as soon as the names are.
 *
 * A writer works on PATH.partial, in state `writing`. When a sample's item is on storage, the
 * writer fills in its range and, last, its size, which is HR_SIZE_UNKNOWN until then; so a later
 * run can continue after a kill. In that state the catalog's checksum is 0 and HR__CATALOG_SIZES is
 * not set. At the end the writer seals the catalog, sets the superblock to `complete`, and renames
 * the file.
 *
 * hr__pack_read trusts nothing in the file, because packs come from other people.
 */
#ifndef HR_DATASET_PACK_H
#define HR_DATASET_PACK_H

#include "dataset/catalog.h"
#include "storage/source.h"

#include <headrace/form.h>

#define HR__PACK_MAGIC "\x89HRPACK\n" /* 8 bytes without the final zero */
/* 2: items may be indexed; 3: rows or waveforms; 4: masks. The lowest that suffices is written. */
#define HR__PACK_VERSION          4u
#define HR__PACK_SUPERBLOCK_BYTES 4096
#define HR__PACK_ITEM_ALIGNMENT   64

enum hr__pack_state { HR__PACK_WRITING = 1, HR__PACK_COMPLETE = 2 };

/* The start of a pack; exactly HR__PACK_SUPERBLOCK_BYTES. */
struct hr__pack_superblock {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;     /* 0x01020304 as the writer's machine stores it */
    uint64_t checksum;       /* XXH3-64 of the bytes after this field */
    uint32_t state;          /* enum hr__pack_state */
    int32_t form;            /* the form requested of the writer: enum hr_form, or -1: auto */
    uint64_t catalog_offset; /* HR__PACK_SUPERBLOCK_BYTES */
    uint64_t catalog_bytes;  /* size of the catalog block */
    uint64_t items_offset;   /* earliest position of items: after the catalog and the rows, a
                              * multiple of HR__PACK_ITEM_ALIGNMENT */
    uint64_t bytes;          /* size of the whole file; 0 while it is being written */
    uint64_t digest;         /* the writer's digest of the source and the options, so that no other
                              * dataset continues this file */
    uint64_t rows_bytes;     /* size of the block of rows; 0: there is none */
    uint32_t mono, rate;     /* of waveforms: what they were made with (struct hr_sound_head); else
                              * 0 */
    uint32_t masks;          /* 1: samples are images and their masks in turn; 0: they are not */
    uint8_t reserved[HR__PACK_SUPERBLOCK_BYTES - 92]; /* 0 */
};

/* Returns where the block of rows is, if there is one. */
uint64_t hr__pack_rows_offset(const struct hr__pack_superblock *super);

/*
 * Creates an unfinished catalog for a pack of `dataset`. Names, labels, classes and times are the
 * dataset's (which may be a subset); sizes are unknown, ranges empty. On success the caller owns
 * *out. Errors: -ENOMEM, -EOVERFLOW.
 */
int hr__pack_catalog(struct hr__catalog **out, const struct hr_dataset *dataset,
                     struct hr_error *error);

/* Notes that the samples are images and their masks in turn. */
void hr__pack_pair(struct hr__pack_superblock *super);

/* Initialises and seals a superblock in state `writing`, for blocks of these sizes. */
void hr__pack_begin(struct hr__pack_superblock *super, uint64_t catalog_bytes, uint64_t rows_bytes,
                    int form, uint64_t digest);

/* Updates the checksum after a change. */
void hr__pack_seal(struct hr__pack_superblock *super);

/*
 * Checks a superblock in any state: magic, version, machine, checksum, and the order of its parts.
 * Errors: -EBADMSG; -ENOTSUP: a newer version or another machine. Messages begin with `path`.
 */
int hr__pack_check(const struct hr__pack_superblock *super, const char *path,
                   struct hr_error *error);

/* Returns non-zero if a file that begins with these bytes is a pack. */
int hr__pack_recognise(const void *bytes, size_t length);

/*
 * Reads and checks the superblock and catalog of the complete pack that `source` opened: every item
 * must lie between the catalog and the end of the file, at a multiple of HR__PACK_ITEM_ALIGNMENT.
 * `super` may be NULL. On success the caller owns *out. The source stays the caller's. Blocks.
 * Errors: -EBADMSG: not a pack, truncated or damaged; -EINPROGRESS: unfinished; -ENOTSUP; -ENOMEM;
 * read errors.
 */
int hr__pack_read(struct hr__catalog **out, struct hr__pack_superblock *super,
                  struct hr__byte_source *source, struct hr_error *error);

/* Opens the file or object at `path` for hr__pack_read. Errors: those of hr__source_open; of a file
 * that is no regular one, those of reading it. */
int hr__pack_open(struct hr__byte_source *out, const char *path, struct hr_error *error);

/* Opens the complete pack at `path` as a dataset, with its rows. On success *out holds one
 * reference. Blocks. Errors: as hr__pack_read, and those of open. */
int hr__pack_dataset(struct hr_dataset **out, const char *path, struct hr_error *error);

/* Reports why `path` cannot be opened and, if PATH.partial exists instead, what to do about it.
 * Returns `code`, a negative errno. */
int hr__pack_cannot_open(const char *path, int code, struct hr_error *error);

#endif
