/*
 * A cache that never evicts: items of a dataset's samples, kept in memory from
 * the first time they are read until the cache is destroyed.
 *
 * For an order that uses each sample once per epoch that is optimal: an epoch
 * reads exactly the samples that were not cached when it began (VLDB'21,
 * "Analyzing and Mitigating Data Stalls in DNN Training", MinIO).
 *
 * An item enters once. It is either admitted in its final form, or waits encoded
 * in staging until somebody converts it and settles it in its final form; staged
 * items are hits like all others. Final items lie side by side in one arena and
 * never move. When an item does not fit into the budget any more it is refused,
 * and what is cached stays. Staged bytes count in the budget, so staging needs no
 * bound of its own here; an item that grows by its conversion beyond the budget
 * is settled as it was.
 *
 * There are two backings. The private one (private.c) is anonymous memory of this
 * process: nobody else can write to it, so its items carry no checksum. The shared one
 * (shared.c) is a segment of shared memory (store.h), whose items have checksums and
 * whose other users may be reading what this process misses.
 *
 * Samples are told by their index in the dataset. Each hit looks at the sample's file first
 * (dataset/stamp.h): one that has changed since it was read is a miss, whoever changed it.
 */
#ifndef HR_CACHE_CACHE_H
#define HR_CACHE_CACHE_H

#include <headrace/dataset.h>
#include <headrace/form.h>

#include <stddef.h>
#include <stdint.h>

/* Items are rounded up to 64 bytes, which adds so many at most. */
#define HR__CACHE_PADDING 63u

struct hr__cache;
struct hr__cache_spec;
struct hr__worth;

struct hr__cache_options {
    struct hr_dataset *dataset; /* whose files are looked at; NULL: nothing changes (tests) */
    uint64_t samples;           /* of the dataset */
    uint64_t budget_bytes;      /* of items, each rounded up to 64 bytes; address space for as
                                   many is reserved, memory is taken as items come */
};

/* A private backing, which takes its own reference to the dataset. On success *out is the caller's.
 * Errors: -EINVAL: a budget of 0; -ENOMEM names what was refused and the remedy. */
int hr__cache_create(struct hr__cache **out, const struct hr__cache_options *options,
                     struct hr_error *error);

/*
 * A shared backing: the dataset's segment, opened or made; `run` as in struct
 * hr__segment_wish. Takes its own reference to the dataset. On success *out is the
 * caller's. Errors: as hr_cache_open.
 */
int hr__cache_create_shared(struct hr__cache **out, struct hr_dataset *dataset,
                            const struct hr__cache_spec *spec, const char *run,
                            struct hr_error *error);

/* Frees everything. Nothing is pinned, and no item is being converted, by then.
 * Accepts NULL. */
void hr__cache_destroy(struct hr__cache **cache);

/* The same in a forked child, to which the items were not passed on: takes no
 * lock, frees only what no thread can have been changing. */
void hr__cache_abandon(struct hr__cache **cache);

/* A hit: an item's bytes where they lie, valid until hr__cache_unpin. */
struct hr__cache_item {
    const uint8_t *bytes; /* 64-byte aligned */
    size_t length;
    enum hr_form form;
    uint64_t index; /* of the sample */
    int pinned;     /* private to the backing */
    void *copy;     /* likewise */
};

/* Looks a sample up and pins its item: 1, or 0 where it is not cached. Any
 * thread; takes no lock. Blocks for a look at the sample's file. */
int hr__cache_find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item);

/* Ends what find began; the bytes may go away. 0: they were not those of the item all the time,
 * because somebody truncated the segment's file: what was made of them is wrong. Else 1. Any
 * thread, no lock. */
int hr__cache_unpin(struct hr__cache *cache, const struct hr__cache_item *item);

/* Non-zero where find would find it, as far as is known. Any thread, no lock. */
int hr__cache_has(struct hr__cache *cache, uint64_t index);

/* Tells where this loader stands: `order` is a digest of all that its order follows from,
 * never 0; `position` goes on from epoch to epoch. Processes with the same order are kept
 * together. Any thread, no lock. */
void hr__cache_note_place(struct hr__cache *cache, uint64_t order, uint64_t position);

/* What a sample's reader has to do. */
enum hr__claim {
    HR__CLAIM_FOUND, /* nothing: it is cached */
    HR__CLAIM_YOURS, /* read it; then hr__cache_offer, or hr__cache_unclaim where it failed */
    HR__CLAIM_BUSY,  /* another process is reading it: ask again in a moment */
    HR__CLAIM_ALONE, /* read it; whoever else does so is not to be waited for */
};

/* What a sample was known as when its read began: the claimer's, from the claim to the
 * offer, so that a file which changes meanwhile is told. Zeroed: of nothing. */
struct hr__cache_ticket {
    uint64_t key[2]; /* private to the backing */
    int is_claimed;  /* others wait: it must end in hr__cache_offer or hr__cache_unclaim */
};

/*
 * Announces that this process reads a sample, so that all others need not. BUSY comes
 * only while the process that reads it lives and gets on with its reads, or one with the
 * same order catches up: asking again always comes to an end, in about two seconds at most. A
 * private backing says FOUND or ALONE. *ticket, which holds no claim before, holds one after YOURS
 * only. Any thread; blocks for a short lock, and for a look at the file where its size is not
 * known.
 */
enum hr__claim hr__cache_claim(struct hr__cache *cache, uint64_t index,
                               struct hr__cache_ticket *ticket);

/* Takes the announcement back; nothing where the ticket holds none. Any thread. */
void hr__cache_unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket);

/* A sample that was read. */
struct hr__cache_offer {
    uint64_t index;
    struct hr__cache_ticket *ticket; /* that claim gave; holds no claim afterwards. NULL: of a
                                        private backing */
    const void *bytes;               /* copied */
    size_t length;
    size_t source_bytes; /* that the sample has on storage; 0: length */
    enum hr_form form;   /* of the bytes */
    int convert;         /* non-zero: it waits in staging for a conversion; 0: this is its
                            final form */
    size_t reserve;      /* bytes to keep free in the budget for what it is converted to;
                            less than length: nothing more */
};

/* Admits an item: 1; 0 where it was there already, does not fit, memory was refused, or
 * its file has changed since the claim; who waits for it in another process gets it all
 * the same, but for the last. Ends a claim. Any thread; blocks for a short lock, a look
 * at the file, and the copy. */
int hr__cache_offer(struct hr__cache *cache, const struct hr__cache_offer *offer);

/* An item that waits for its conversion, and is the taker's until settled. */
struct hr__cache_staged;

/* The staged item that has waited longest, with its bytes in *item (not to be
 * unpinned); NULL where none waits. Any thread. */
struct hr__cache_staged *hr__cache_take(struct hr__cache *cache, struct hr__cache_item *item);

/* Bytes that a taken item may have after its conversion, as of now; `leave_free`
 * as below. Any thread. */
uint64_t hr__cache_room(struct hr__cache *cache, const struct hr__cache_staged *staged,
                        uint64_t leave_free);

/* What an item became. */
struct hr__cache_final {
    const void *bytes; /* copied; NULL: it stays as it is */
    size_t length;
    enum hr_form form;
    uint64_t leave_free; /* bytes of the budget that growth must not touch */
};

/*
 * Gives a taken item its final form, and takes `staged`. 1: as `final` says; 0:
 * it stays encoded, because that was asked, or the budget has no room for its
 * growth, or memory was refused. It is a hit at every moment. Any thread.
 */
int hr__cache_settle(struct hr__cache *cache, struct hr__cache_staged *staged,
                     const struct hr__cache_final *final);

/* Of now; each is read by itself. */
struct hr__cache_counts {
    uint64_t items[3];     /* by form; staged ones are encoded */
    uint64_t bytes;        /* of all items, rounded up to 64 each */
    uint64_t reserved;     /* of the budget: bytes, and room kept for conversions */
    uint64_t source_bytes; /* that the cached samples had when they were read: what an
                              epoch need not read any more */
    uint64_t staged;       /* items that wait for a conversion, or are in one */
    uint64_t staged_bytes; /* of them, in bytes */
    uint64_t refused;      /* offers that did not fit, ever */
};

void hr__cache_get_counts(struct hr__cache *cache, struct hr__cache_counts *counts);

/* Bytes of items at most. Constant. */
uint64_t hr__cache_budget(const struct hr__cache *cache);

/* Non-zero where items outlive the run. Constant. */
int hr__cache_is_kept(const struct hr__cache *cache);

/* Publishes what was measured and which form was chosen, for those who look at the
 * cache from outside. `asked`: HR_FORM_AUTO, or the form that was asked for. */
void hr__cache_publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                       int asked);

/* Tells the user, in a line of the log, what a kept cache leaves in memory and how it is
 * dropped, unless somebody else goes on using it. Nothing for a cache that is not kept. */
void hr__cache_tell_kept(struct hr__cache *cache);

/* Items that wait to be taken, without the lock: a hint. */
uint64_t hr__cache_waiting(const struct hr__cache *cache);

#endif
