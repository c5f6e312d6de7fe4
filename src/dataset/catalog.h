/*
 * The catalog: names, sizes and other data of a dataset's samples, in one block of memory. Written
 * to a file unchanged, the block is the index file.
 *
 * Layout (native byte order, every section 8-byte aligned):
 *   header | directories | class names | names | sizes | mtimes
 *          | changes (with HR__CATALOG_CHANGES) | labels (with HR__CATALOG_LABELS)
 *          | ranges, containers (with HR__CATALOG_RANGES)
 *          | directory of each sample | arena
 * Texts are 0-terminated in the arena, whose last byte is 0; sections hold offsets into it. A
 * sample needs 28 bytes, its name and a zero. A change needs 8 bytes more, a label 8 and a range
 * 32.
 *
 * Samples are in dataset order, those of one directory adjacent. Directories are in the order of
 * their samples. All directories that were walked are listed, even without samples, because they
 * are used to validate the index. In a catalog with ranges, samples are pieces of container files.
 */
#ifndef HR_DATASET_CATALOG_H
#define HR_DATASET_CATALOG_H

#include <headrace/dataset.h>

#include <stddef.h>
#include <stdint.h>

#define HR__CATALOG_MAGIC   "HRINDEX"
#define HR__CATALOG_VERSION 2u

enum hr__catalog_flags {
    HR__CATALOG_SIZES = 1,   /* all sizes and mtimes have been queried */
    HR__CATALOG_LABELS = 2,  /* labels section present; otherwise a sample has the label of its
                              * directory */
    HR__CATALOG_RANGES = 4,  /* ranges and containers present: a sample is a piece of a container;
                              * otherwise it is a file of its own */
    HR__CATALOG_CHANGES = 8, /* changes present: samples are files of their own */
};

struct hr__catalog_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order; /* 0x01020304 as the writer's machine stores it */
    uint64_t checksum;   /* XXH3-64 of everything after this field; only in files */
    uint64_t bytes;      /* size of the whole block */
    uint64_t classes;    /* counts */
    uint64_t directories;
    uint64_t samples;
    uint64_t arena_bytes;
    uint64_t containers; /* 0 without HR__CATALOG_RANGES */
    uint64_t root;       /* arena offset: canonical path of the root; "" for lists */
    uint32_t flags;      /* enum hr__catalog_flags */
    uint32_t reserved;   /* 0 */
};

struct hr__catalog_directory {
    uint64_t path;     /* arena offset: path below the root; "" for lists */
    uint32_t label;    /* label of its samples */
    uint32_t reserved; /* 0 */
    uint64_t first;    /* its samples are [first, first + count) */
    uint64_t count;
    uint64_t inode; /* device, inode and times from just before it was listed */
    int64_t mtime_ns;
    int64_t ctime_ns;
    int64_t listed_ns; /* CLOCK_REALTIME when listing it began */
};

/* A container: a file that holds samples. */
struct hr__catalog_container {
    uint64_t path;    /* arena offset: relative to the dataset's base, or absolute; "": the base
                       * itself */
    uint64_t bytes;   /* size of the file; 0: unknown, not checked */
    int64_t mtime_ns; /* modification time when scanned; 0: not checked. Of an object: the digest
                       * of its ETag */
};

enum hr__catalog_range_flags {
    HR__RANGE_HAS_CHECKSUM = 1,
    HR__RANGE_KEPT_MASK = 7 << 8, /* packs: why the item is still encoded (enum hr_pack_kept) */
};

/* Shift of HR__RANGE_KEPT_MASK. */
#define HR__RANGE_KEPT_SHIFT 8

/* Position of a sample's bytes. Their number is in sizes[], which is filled from the start in such
 * a catalog (HR__CATALOG_SIZES). */
struct hr__catalog_range {
    uint64_t offset;       /* of the first byte, in the container */
    uint64_t checksum;     /* XXH3-64 of the bytes; 0 without HR__RANGE_HAS_CHECKSUM */
    uint64_t source_bytes; /* size of the image file the item was made from; 0: unknown */
    uint32_t container;    /* index of the container */
    uint16_t form;         /* enum hr_form */
    uint16_t flags;        /* enum hr__catalog_range_flags */
};

/* The sizes and sections of a new catalog. */
struct hr__catalog_shape {
    uint64_t classes, directories, samples, arena_bytes;
    int labels;          /* non-zero: include a labels section */
    int changes;         /* non-zero: include a changes section */
    uint64_t containers; /* > 0: include ranges and this many containers */
};

/* The block and pointers to its sections. */
struct hr__catalog {
    struct hr__catalog_header *header; /* the block; owned */
    struct hr__catalog_directory *directories;
    uint64_t *class_names;            /* arena offsets */
    uint64_t *names;                  /* arena offsets */
    int64_t *sizes;                   /* bytes or HR_SIZE_UNKNOWN; atomic access while filling */
    int64_t *mtimes_ns;               /* modification times; accessed like sizes */
    uint64_t *changes;                /* `change` of struct hr__stamp; likewise; or NULL */
    int64_t *labels;                  /* or NULL */
    struct hr__catalog_range *ranges; /* or NULL */
    struct hr__catalog_container *containers; /* or NULL */
    uint32_t *sample_directory;
    char *arena;
    uint64_t arena_used; /* arena bytes used while the catalog is being built */
    int untrusted;       /* non-zero: must not be written as an index (see walk.h) */
    uint64_t device;     /* used by stamp.c: the device checked last and the result; atomic */
};

/* Creates a catalog of that shape: zeros, with sizes and mtimes unknown. On success the caller owns
 * *out. Errors: -ENOMEM, -EOVERFLOW. */
int hr__catalog_create(struct hr__catalog **out, const struct hr__catalog_shape *shape);

/* Copies text into the arena, which must have room. Returns its offset. */
uint64_t hr__catalog_text(struct hr__catalog *catalog, const char *text, size_t length);

/*
 * Makes a catalog of an untrusted `block` of `bytes` bytes, allocated with hr__alloc or
 * hr__alloc_aligned. Checks the checksum and every count, offset and name, so later accesses stay
 * inside the block and paths below the root. A catalog with labels must have one directory, with
 * the path ""; its names may be any texts but the empty one, those of classes any texts; if it has
 * classes, its labels are numbers of them. Ranges must lie in a container of the
 * table and, if its size is known, inside it. The caller has to check the containers' paths. *out
 * takes ownership of the block on success only. Errors: -EBADMSG (other format, version or machine,
 * or damaged), -ENOMEM.
 */
int hr__catalog_adopt(struct hr__catalog **out, void *block, size_t bytes);

/*
 * Points *out into `block`, the 8-byte aligned catalog of a file that is still being written.
 * Checks the header and layout, but neither the checksum nor the contents. The caller keeps the
 * block; do not pass *out to hr__catalog_destroy. Errors: -EBADMSG.
 */
int hr__catalog_map(struct hr__catalog *out, void *block, size_t bytes);

/* Returns the checksum to store in the header of a catalog file. */
uint64_t hr__catalog_checksum(const struct hr__catalog_header *block);

void hr__catalog_destroy(struct hr__catalog **catalog);

static inline const char *hr__catalog_at(const struct hr__catalog *catalog, uint64_t offset)
{
    return catalog->arena + offset;
}

/* Sizes and times are written while others read them. Each value stands alone, so relaxed ordering
 * suffices. */
static inline int64_t hr__catalog_load(const int64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

static inline void hr__catalog_store(int64_t *value, int64_t now)
{
    __atomic_store_n(value, now, __ATOMIC_RELAXED);
}

#endif
