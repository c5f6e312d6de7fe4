/*
 * The names of a dataset, in one block of memory that is also the index file.
 *
 * Layout (native byte order, every section 8-byte aligned):
 *   header | directories | class names | names | sizes | mtimes
 *          | changes (where flagged) | labels (where flagged)
 *          | ranges, containers (where flagged)
 *          | directory of each sample | arena
 * Texts are 0-terminated in the arena, whose last byte is 0; sections hold
 * offsets into it. A sample costs 28 bytes, its name and a zero; a change 8, a label 8
 * and a range 32 bytes more.
 *
 * Samples stand in dataset order, those of one directory side by side.
 * Directories stand in the order of their samples; all that were walked are
 * there, also those without samples, because the index is validated by them.
 * A catalog with ranges belongs to samples that are pieces of container files.
 */
#ifndef HR_DATASET_CATALOG_H
#define HR_DATASET_CATALOG_H

#include <headrace/dataset.h>

#include <stddef.h>
#include <stdint.h>

#define HR__CATALOG_MAGIC   "HRINDEX"
#define HR__CATALOG_VERSION 2u

enum hr__catalog_flags {
    HR__CATALOG_SIZES = 1,   /* sizes and mtimes have been asked for, all of them */
    HR__CATALOG_LABELS = 2,  /* labels section present; otherwise a sample's label is
                                its directory's */
    HR__CATALOG_RANGES = 4,  /* ranges and containers present: a sample's bytes are those of
                                a piece of a container; otherwise of a file of its own */
    HR__CATALOG_CHANGES = 8, /* changes present: samples are files of their own */
};

struct hr__catalog_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order; /* 0x01020304 as the writer's machine stores it */
    uint64_t checksum;   /* XXH3-64 of all that follows this field; only in files */
    uint64_t bytes;      /* of the whole block */
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
    uint32_t label;    /* of its samples */
    uint32_t reserved; /* 0 */
    uint64_t first;    /* its samples are [first, first + count) */
    uint64_t count;
    uint64_t inode; /* as it was just before it was listed */
    int64_t mtime_ns;
    int64_t ctime_ns;
    int64_t listed_ns; /* CLOCK_REALTIME when listing began */
};

/* A file that holds samples. */
struct hr__catalog_container {
    uint64_t path;    /* arena offset: relative to the dataset's base, or absolute; "": the base
                         itself */
    uint64_t bytes;   /* that it has; 0: not known, not checked */
    int64_t mtime_ns; /* as it was when it was looked through; 0: not checked */
};

enum hr__catalog_range_flags {
    HR__RANGE_HAS_CHECKSUM = 1,
    HR__RANGE_KEPT_MASK = 7 << 8, /* packs: enum hr_pack_kept, why the item is encoded */
};

/* Where HR__RANGE_KEPT_MASK begins. */
#define HR__RANGE_KEPT_SHIFT 8

/* Where the bytes of a sample are; how many they are is in sizes[], known from the
 * beginning (HR__CATALOG_SIZES). */
struct hr__catalog_range {
    uint64_t offset;       /* of the first, in the container */
    uint64_t checksum;     /* XXH3-64 of the bytes; 0 without HR__RANGE_HAS_CHECKSUM */
    uint64_t source_bytes; /* of the image file that the item was made from; 0: not known */
    uint32_t container;    /* which */
    uint16_t form;         /* enum hr_form */
    uint16_t flags;        /* enum hr__catalog_range_flags */
};

/* What a new catalog must hold. */
struct hr__catalog_shape {
    uint64_t classes, directories, samples, arena_bytes;
    int labels;          /* non-zero: with a labels section */
    int changes;         /* non-zero: with a changes section */
    uint64_t containers; /* > 0: with ranges, and so many containers */
};

/* The block and where its sections are. */
struct hr__catalog {
    struct hr__catalog_header *header; /* the block; owned */
    struct hr__catalog_directory *directories;
    uint64_t *class_names;            /* arena offsets */
    uint64_t *names;                  /* arena offsets */
    int64_t *sizes;                   /* bytes or HR_SIZE_UNKNOWN; atomic access while filling */
    int64_t *mtimes_ns;               /* the same */
    uint64_t *changes;                /* struct hr__stamp, change; the same; or NULL */
    int64_t *labels;                  /* or NULL */
    struct hr__catalog_range *ranges; /* or NULL */
    struct hr__catalog_container *containers; /* or NULL */
    uint32_t *sample_directory;
    char *arena;
    uint64_t arena_used; /* while it is being built */
    int untrusted;       /* non-zero: must not become an index (see walk.h) */
    uint64_t device;     /* that was looked at last, and about it: of stamp.c; atomic */
};

/* An empty catalog of that shape: everything 0, sizes and mtimes unknown. On
 * success *out is the caller's. Errors: -ENOMEM, -EOVERFLOW. */
int hr__catalog_create(struct hr__catalog **out, const struct hr__catalog_shape *shape);

/* Copies text into the arena, which must have room; returns its offset. */
uint64_t hr__catalog_text(struct hr__catalog *catalog, const char *text, size_t length);

/*
 * Takes `block` (from hr__alloc or hr__alloc_aligned, `bytes` long, from
 * outside) as a catalog after checking the checksum and every count, offset and
 * name in it: no later access can leave the block, and no path the root. With
 * labels there is one directory, whose path is "", and names are any texts but
 * the empty one. Ranges lie in a container of the table and, where its bytes are
 * known, inside it; what paths containers may have is for the caller to check.
 * On success the block belongs to *out, on failure to the caller.
 * Errors: -EBADMSG (another format, version, machine, or damaged), -ENOMEM.
 */
int hr__catalog_adopt(struct hr__catalog **out, void *block, size_t bytes);

/*
 * Points *out into `block`, the 8-byte aligned catalog of a file that is still
 * being written: header and layout are checked, neither checksum nor contents
 * are. The block stays the caller's, and *out is not for hr__catalog_destroy.
 * Errors: -EBADMSG.
 */
int hr__catalog_map(struct hr__catalog *out, void *block, size_t bytes);

/* Checksum of the block as a file has it. */
uint64_t hr__catalog_checksum(const struct hr__catalog_header *block);

void hr__catalog_destroy(struct hr__catalog **catalog);

static inline const char *hr__catalog_at(const struct hr__catalog *catalog, uint64_t offset)
{
    return catalog->arena + offset;
}

/* Sizes and times are written behind the readers' backs: single values,
 * nothing else hangs on them, so relaxed order is enough. */
static inline int64_t hr__catalog_load(const int64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

static inline void hr__catalog_store(int64_t *value, int64_t now)
{
    __atomic_store_n(value, now, __ATOMIC_RELAXED);
}

#endif
