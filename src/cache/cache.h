/*
 * A cache keeps items of a dataset's samples in memory from their first read until it is destroyed.
 *
 * If the order uses each sample once per epoch, to evict nothing is optimal: an epoch reads exactly
 * the samples that were not cached when it began (VLDB'21, "Analyzing and Mitigating Data Stalls in
 * DNN Training", MinIO). Shared caches whose users have different orders evict by next use
 * (store_orders.h), and so does the private one of evicting.h; what follows is said of the others.
 *
 * An item enters once. Either it is admitted in its final form, or it waits in staging
 * until a worker converts it and settles it in its final form. Staged items are hits like all
 * others. Final items are adjacent in one arena and never move. An item that does not fit into the
 * budget is refused; cached items stay. Staged bytes count in the budget, so staging has no limit
 * of its own. If conversion would grow an item beyond the budget, the item is settled unconverted.
 *
 * There are two backings. The private one (private.c) is anonymous memory of this process. No other
 * process can write to it, so its items carry no checksum. The shared one (shared.c) is a segment
 * of shared memory or on a disk (store.h). Its items have checksums, and other processes may be
 * reading a sample that this process misses.
 *
 * Items on a disk are not found but located: the caller reads them as it reads files, and verifies
 * what it read. A third backing (tiers.c) is two others, memory and a disk behind it.
 *
 * Samples are identified by their index in the dataset. Each hit first checks the sample's file
 * (dataset/stamp.h): if the file has changed since it was read, by whomever, the hit is a miss.
 */
#ifndef HR_CACHE_CACHE_H
#define HR_CACHE_CACHE_H

#include <headrace/dataset.h>
#include <headrace/form.h>

#include <stddef.h>
#include <stdint.h>

/* Item sizes are rounded up to 64 bytes, which adds at most this many. */
#define HR__CACHE_PADDING 63u

struct hr__cache;
struct hr__cache_spec;
struct hr__worth;

struct hr__cache_options {
    struct hr_dataset *dataset; /* the dataset, whose files are checked; NULL: no checks (tests) */
    uint64_t samples;           /* number of samples in the dataset */
    uint64_t budget_bytes;      /* limit on the items' bytes, each rounded up to 64. Address space
                                 * of this size is reserved; memory is taken as items come */
};

/* Creates a cache with a private backing, which takes its own reference to the dataset. On success
 * the caller owns *out. Errors: -EINVAL: a budget of 0; -ENOMEM, with what was refused and the
 * remedy in the message. */
int hr__cache_create(struct hr__cache **out, const struct hr__cache_options *options,
                     struct hr_error *error);

/*
 * Creates a cache with a shared backing: opens or creates the dataset's segment. `run`: as in
 * struct hr__segment_wish. Takes its own reference to the dataset. On success the caller owns *out.
 * Errors: as hr_cache_open.
 */
int hr__cache_create_shared(struct hr__cache **out, struct hr_dataset *dataset,
                            const struct hr__cache_spec *spec, const char *run,
                            struct hr_error *error);

/* Creates a cache of two tiers and takes ownership of both, even on failure: `memory` is asked
 * first. On success the caller owns *out. Errors: -ENOMEM. */
int hr__cache_create_tiers(struct hr__cache **out, struct hr__cache *memory, struct hr__cache *disk,
                           struct hr_error *error);

/* Frees everything. No item may be pinned or in conversion. Accepts NULL. */
void hr__cache_destroy(struct hr__cache **cache);

/* Frees the cache in a forked child, which did not inherit the items. Takes no lock, and frees only
 * what no thread can have been changing at the fork. */
void hr__cache_abandon(struct hr__cache **cache);

/* A hit: an item's bytes in place, valid until hr__cache_unpin. */
struct hr__cache_item {
    const uint8_t *bytes; /* 64-byte aligned */
    size_t length;
    enum hr_form form;
    uint64_t index; /* index of the sample */
    int pinned;     /* private to the backing */
    void *copy;     /* private to the backing */
};

/* Looks up a sample. Returns 1 and pins its item, or 0 if it is not cached. Any thread; takes no
 * lock. Blocks while it queries the sample's file. */
int hr__cache_find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item);

/* Ends the use of an item from hr__cache_find; its bytes may go away. Returns 0 if the bytes were
 * not intact all the time, because somebody truncated the segment's file: discard what was made of
 * them. Otherwise returns 1. Any thread, no lock. */
int hr__cache_unpin(struct hr__cache *cache, const struct hr__cache_item *item);

/* Where an item is on a disk. */
struct hr__cache_place {
    int fd;           /* of the cache, open while that exists; with O_DIRECT if `is_direct` */
    int is_direct;    /* non-zero: read it with O_DIRECT */
    const char *path; /* of the same file; owned by the cache */
    uint64_t offset;  /* in the file; a multiple of 4096 */
    size_t length;
    size_t source_bytes; /* the sample's size on storage */
    enum hr_form form;
    uint64_t key[2], checksum; /* private to the backing */
};

/* Finds where a sample's item is on a disk. Returns 1, or 0 if it is on none. Any thread; takes no
 * lock. Blocks while it queries the sample's file. */
int hr__cache_locate(struct hr__cache *cache, uint64_t index, struct hr__cache_place *place);

/* Checks bytes that were read from a place; NULL: they could not be read. Returns 1, or 0 if they
 * are not the item's; the item is then dropped. Any thread; blocks for a short lock then. */
int hr__cache_verify(struct hr__cache *cache, const struct hr__cache_place *place,
                     const void *bytes, size_t length);

/* Returns non-zero if hr__cache_find or hr__cache_locate would probably find the sample. Any
 * thread, no lock. */
int hr__cache_has(struct hr__cache *cache, uint64_t index);

/* How far a loader came. */
struct hr__cache_progress {
    uint64_t order;    /* digest of everything that determines its order; 0: it is nobody else's */
    uint64_t stream;   /* the same for all ranks of a job; 0: nobody can know it */
    uint64_t position; /* in the order; continues from epoch to epoch */
    uint64_t samples;  /* of an epoch of all ranks */
    int repeats;       /* non-zero: it does not use each sample once an epoch */
};

/* Records this loader's progress. The cache keeps processes with the same order close together.
 * Returns non-zero if the loader is to tell its uses (hr__cache_begin_uses) from here on, because
 * processes with other orders use the cache, too, or its own repeats samples. Any thread, no lock.
 */
int hr__cache_note_place(struct hr__cache *cache, const struct hr__cache_progress *at);

/* What a sample's reader has to do. */
enum hr__claim {
    HR__CLAIM_FOUND, /* nothing: the sample is cached */
    HR__CLAIM_YOURS, /* read it; then hr__cache_offer, or hr__cache_unclaim on failure */
    HR__CLAIM_BUSY,  /* another process is reading it: ask again soon */
    HR__CLAIM_ALONE, /* read it without waiting for other readers */
};

/* The state of a sample's file when its read began, to detect changes during the read. The claimer
 * keeps it from the claim to the offer. Zeroed: no state. */
struct hr__cache_ticket {
    uint64_t key[2]; /* private to the backing */
    int is_claimed;  /* others wait: end it with hr__cache_offer or hr__cache_unclaim */
    struct {
        uint64_t key[2];
        int is_claimed;
    } tiers[2]; /* private to tiers.c */
};

/*
 * Announces that this process reads a sample, so that others need not. The answer is BUSY only
 * while the process that reads it is alive and makes progress, or while a process with the same
 * order catches up. So repeated calls end, after about two seconds at most. A private backing
 * answers FOUND or ALONE. *ticket must hold no claim before; it holds one afterwards only if the
 * answer is YOURS. Any thread; blocks for a short lock, and for a query of the file if its size is
 * unknown.
 *
 * If the sample's item is on a disk, the answer is ALONE at best: hr__cache_locate tells where to
 * read it.
 */
enum hr__claim hr__cache_claim(struct hr__cache *cache, uint64_t index,
                               struct hr__cache_ticket *ticket);

/* Withdraws the announcement; does nothing if the ticket holds no claim. Any thread. */
void hr__cache_unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket);

/* A sample that has been read. */
struct hr__cache_offer {
    uint64_t index;
    struct hr__cache_ticket *ticket; /* from hr__cache_claim; holds no claim afterwards. NULL: for a
                                      * private backing */
    const void *bytes;               /* copied */
    const struct hr_item_part *parts; /* HR_ITEM_PARTS of them in place of `bytes`; NULL: none */
    size_t length;
    size_t source_bytes; /* the sample's size on storage; 0: length */
    enum hr_form form;   /* form of the bytes */
    int convert;         /* non-zero: stage it for a conversion; 0: this is its final form */
    int is_on_disk;      /* the bytes come from hr__cache_locate */
    size_t reserve;      /* bytes to keep free in the budget for the converted item; if less than
                          * length, no extra bytes */
};

/* Admits an item. Returns 1, or 0 if it was there already, does not fit, memory was refused, or its
 * file has changed since the claim. Except in the last case, processes that wait for the item get
 * it all the same. Ends the claim. Any thread; blocks for a short lock, a query of the file, and
 * the copy. */
int hr__cache_offer(struct hr__cache *cache, const struct hr__cache_offer *offer);

/* An item in conversion. The worker that took it owns it until it is settled. */
struct hr__cache_staged;

/* Takes the staged item that has waited longest and puts its bytes in *item (do not unpin them).
 * Returns NULL if none waits. Any thread. */
struct hr__cache_staged *hr__cache_take(struct hr__cache *cache, struct hr__cache_item *item);

/* Returns how many bytes a taken item may have after its conversion, as of now; `leave_free` as
 * below. Any thread. */
uint64_t hr__cache_room(struct hr__cache *cache, const struct hr__cache_staged *staged,
                        uint64_t leave_free);

/* The result of a conversion. */
struct hr__cache_final {
    const void *bytes; /* copied; NULL: keep the item as it is */
    size_t length;
    enum hr_form form;
    uint64_t leave_free; /* bytes of the budget that must stay free when the item grows */
};

/*
 * Settles a taken item in its final form and frees `staged`. Returns 1 if the item is now as in
 * `final`. Returns 0 if it stays as it is: as requested, or because the budget has no room for its
 * growth, or memory was refused. The item is a hit at every moment. Any thread.
 */
int hr__cache_settle(struct hr__cache *cache, struct hr__cache_staged *staged,
                     const struct hr__cache_final *final);

/* A snapshot; each value is read separately. */
struct hr__cache_counts {
    uint64_t items[HR_FORMS]; /* staged items count in the form that they have */
    uint64_t bytes;           /* of all items, each rounded up to 64 */
    uint64_t reserved;        /* of the budget: bytes, plus room kept for conversions */
    uint64_t source_bytes; /* total size on storage of the cached samples: what an epoch no longer
                            * has to read */
    uint64_t staged;       /* items waiting for conversion or in it */
    uint64_t staged_bytes; /* their bytes */
    uint64_t refused;      /* offers that did not fit, since the start */
};

void hr__cache_get_counts(struct hr__cache *cache, struct hr__cache_counts *counts);

/* The same of the items on a disk; all 0 if the cache has none there. hr__cache_get_counts is of
 * the first tier. */
void hr__cache_get_disk_counts(struct hr__cache *cache, struct hr__cache_counts *counts);

/* Returns non-zero if the cache has only a disk: nothing is converted later, as nothing is staged.
 * Constant. */
int hr__cache_is_disk(const struct hr__cache *cache);

/* Returns non-zero if the cache evicts: then nothing is staged, and the functions below tell it the
 * uses that its loader will make. Constant for a private cache (evicting.h). A shared one evicts
 * while it is full and has users with different orders (store_orders.h). */
int hr__cache_evicts(const struct hr__cache *cache);

/* begin: an epoch begins; forgets the uses added before. add: the next known uses, in order. end:
 * the uses added from now on are of the next epoch. use: a sample is used now. Any thread; they
 * block for a short lock. */
void hr__cache_begin_uses(struct hr__cache *cache);
void hr__cache_add_uses(struct hr__cache *cache, const int64_t *indices, size_t count);
void hr__cache_end_uses(struct hr__cache *cache);
void hr__cache_use(struct hr__cache *cache, uint64_t index);

/* Returns the number of items of all forms. */
static inline uint64_t hr__all_items(const uint64_t items[HR_FORMS])
{
    uint64_t all = 0;
    for (int form = 0; form < HR_FORMS; form++)
        all += items[form];
    return all;
}

/* Returns the most bytes that items may have. Constant. */
uint64_t hr__cache_budget(const struct hr__cache *cache);

/* Returns non-zero if items outlive the run. Constant. */
int hr__cache_is_kept(const struct hr__cache *cache);

/* Publishes the measured costs and the chosen form, for programs that inspect the cache. `asked`:
 * HR_FORM_AUTO, or the form requested. */
void hr__cache_publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                       int asked);

/* Logs what a kept cache leaves in memory and how to drop it, unless another process still uses it.
 * Does nothing for a cache that is not kept. */
void hr__cache_log_kept(struct hr__cache *cache);

/* Returns how many items wait to be taken. Takes no lock: the number is a hint. */
uint64_t hr__cache_waiting(const struct hr__cache *cache);

#endif
