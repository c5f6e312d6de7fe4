/*
 * A segment: one file of shared memory with the cached items of one dataset.
 *
 *   header | users | index | ring | arena | blocks | uses | mark
 *
 * The file has its final length from the start and is sparse. Memory is allocated piece by piece
 * before it is used, so that a full file system gives an error and never a SIGBUS.
 *
 * The mark is the file's last word, written once; truncating the file removes it. The part cut off
 * reads as zeros, in the mapping (base/truncation.h) and in the file if it is extended again. So if
 * a reader finds the mark after using some bytes, those bytes were the file's.
 *
 * Live users are recognised by locks that the kernel drops with a process (OFD locks, on bytes far
 * beyond the file's end): each user holds one. One more byte is the lock for changing the books. No
 * process waits long for it, because its holder may be stopped; then nothing is admitted until it
 * continues.
 *
 * The books exist twice. A transaction changes the spare copy and then makes it current with a
 * single store. The one index entry that changes with it is part of the copy; if the process dies
 * before writing the entry, the next transaction writes it. So a process may be killed at any
 * instruction.
 *
 * If users with different orders share a segment, items are evicted (store_orders.h). `blocks` and
 * `uses` are for that, and have no memory before.
 *
 * A segment may be on a disk instead (segment_disk.h): then the index is mapped, and the items are
 * behind the mark, outside the mapping.
 *
 * Private to the cache room. Native byte order; a file of another machine, version or layout is
 * refused.
 */
#ifndef HR_CACHE_SEGMENT_H
#define HR_CACHE_SEGMENT_H

#include "base/own_fd.h"
#include "cache/capacity.h"
#include "cache/secret.h"

#include <headrace/base.h>
#include <headrace/form.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HR__SEGMENT_MAGIC   "HRCACHE"
#define HR__SEGMENT_VERSION 7u
#define HR__SEGMENT_USERS   256
#define HR__SEGMENT_ALIGN   64u

/* How many users can say when they use each sample next: those in the first slots. */
#define HR__SEGMENT_TELLERS 32

/* Most blocks of an arena: no block is smaller than this. */
#define HR__BLOCK_MIN HR__SEGMENT_ALIGN
#define HR__BLOCK_MAX 4096u

/* How many there may be: numbers have 32 bits, and the highest is none of a block. */
#define HR__BLOCKS_MOST UINT32_MAX

/* Flags: it is on a disk; its items have tags of a key file instead of checksums. */
#define HR__SEGMENT_ON_DISK 1u
#define HR__SEGMENT_TAGGED  2u

/* The key of an item. Neither half is 0. */
struct hr__key {
    uint64_t high, low;
};

/* States of an index entry; see store.h. */
enum hr__entry_state {
    HR__ENTRY_EMPTY = 0,    /* never used: searches end here */
    HR__ENTRY_VACANT = 1,   /* has a key but no item; may be reused for another key */
    HR__ENTRY_CLAIMED = 2,  /* its owner is reading the sample, or died while reading it */
    HR__ENTRY_STAGED = 3,   /* in the ring, at position `offset`, while that is valid */
    HR__ENTRY_FINAL = 4,    /* in the arena at `offset`, until it is evicted */
    HR__ENTRY_CHANGING = 5, /* being written: look again */
};

/* One slot of the index. Other processes may change it during a read: use atomic accesses, and
 * compare the word before and after reading the fields. */
struct hr__entry {
    _Atomic uint64_t word; /* struct hr__word */
    _Atomic uint64_t key_high, key_low;
    _Atomic uint64_t offset;
    _Atomic uint64_t lengths;  /* low 32 bits: bytes; high 32 bits: bytes on storage, if known */
    _Atomic uint64_t checksum; /* XXH3-64 of the bytes */
};

/* The unpacked word of an entry. */
struct hr__word {
    enum hr__entry_state state;
    unsigned form;    /* enum hr_form */
    unsigned owner;   /* CLAIMED: slot of the user; STAGED with `taken`: of the converting user */
    unsigned pending; /* STAGED: admitted and waiting for conversion; 0: passing through. CLAIMED:
                       * on disk, the item is being written at `offset` */
    unsigned taken;   /* FINAL: it is in blocks, of which the first is at `offset` */
    uint32_t reserve; /* STAGED, pending: space kept for it in the arena, in HR__SEGMENT_ALIGN.
                       * CLAIMED, pending: when the write began (hr__store_moment). FINAL: the
                       * number of its sample + 1; 0: it has none */
    unsigned version; /* set by transactions; differs after every change of the entry */
};

/* A snapshot of an entry. */
struct hr__found {
    uint64_t index;
    struct hr__key key;
    struct hr__word word;
    uint64_t offset, checksum;
    uint32_t length, source_bytes;
};

/* A new value for an entry, without atomics. */
struct hr__entry_value {
    uint64_t word, key_high, key_low, offset, lengths, checksum;
};

/* The data that transactions change. A changed entry is stored without its word's version. */
struct hr__books {
    uint64_t sequence;
    uint64_t arena_used;      /* bytes that items occupy */
    uint64_t arena_allocated; /* bytes with memory behind them */
    uint64_t promised;        /* bytes of the arena that pending items will need */
    uint64_t ring_head;       /* position of the next item; positions only grow */
    uint64_t ring_cursor;     /* items before it have been offered for conversion */
    uint64_t ring_allocated;  /* 0, or the size of the ring */
    uint64_t source_bytes;    /* of admitted items */
    uint64_t items[HR_FORMS]; /* admitted items; pending ones in the form that they have */
    uint64_t staged;          /* pending items, and their bytes */
    uint64_t staged_bytes;
    uint64_t waiting;     /* pending items that nobody is converting */
    uint64_t end;         /* on disk: offset behind the last item that was begun; it only grows */
    uint64_t block_bytes; /* size of the blocks that the space of evicted items is used again in; 0:
                           * nothing was evicted yet */
    uint64_t free_block;  /* the first free block, which is the beginning of a list */
    uint64_t free_blocks; /* how many there are */
    uint64_t evicted;     /* items, so far */
    uint64_t change;      /* index + 1 of the entry that changes; 0: none */
    struct hr__entry_value after;
};

/* A user's counters. The slot is free if pid is 0. */
struct hr__segment_user {
    _Atomic int64_t pid;
    _Atomic uint64_t progress; /* incremented with each claim that it ended */
    _Atomic uint64_t open;     /* its unfinished claims and conversions */
    _Atomic uint64_t hits, misses, saved_bytes, refused;
    _Atomic uint64_t order;    /* digest of its sample order; 0: shared with nobody */
    _Atomic uint64_t position; /* in that order, counted across epochs */
    _Atomic uint64_t stream;   /* digest of the order of all its ranks; 0: unknown */
    _Atomic uint64_t samples;  /* of an epoch of all its ranks */
    _Atomic uint64_t tells;    /* non-zero: it tells its uses; see store_orders.h */
    _Atomic uint64_t used;     /* number of its next use */
    _Atomic uint64_t known;    /* number behind its last known use */
    _Atomic uint64_t repeats;  /* non-zero: its order does not use each sample once an epoch */
    uint64_t reserved;
};

/* Measured means, for programs that inspect the segment; relaxed. */
struct hr__segment_costs {
    _Atomic int64_t form, form_asked;
    _Atomic uint64_t prepare_ns[HR_FORMS], convert_ns[HR_FORMS], growth_ppm[HR_FORMS];
    _Atomic uint64_t read_ns;
};

struct hr__segment_layout {
    uint64_t index_offset, index_slots;
    uint64_t ring_offset, ring_bytes;
    uint64_t arena_offset, arena_bytes; /* arena_bytes is the budget */
    uint64_t blocks_offset;             /* for each block of the arena: the number of the next */
    uint64_t uses_offset, uses_bytes; /* for each user and sample: its next use; bytes of a user */
    uint64_t file_bytes; /* bytes that are mapped: in memory, all; the mark is the last word */
};

struct hr__segment_header {
    /* Constant once `ready`. */
    char magic[8];
    uint32_t version, byte_order; /* 0x01020304 as the machine stores it */
    uint64_t checksum;            /* XXH3-64 of the constant part after this field */
    struct hr__segment_layout layout;
    uint8_t identity[16];
    uint64_t size_bytes; /* limit for the name */
    uint32_t is_kept;    /* 0: private to a run */
    uint32_t flags;      /* HR__SEGMENT_ON_DISK, HR__SEGMENT_TAGGED */
    char name[64];
    char dataset[512];
    uint64_t constant_end; /* 0; marks the end of the constant part */

    _Atomic uint32_t ready;
    _Atomic uint32_t damaged;   /* a process found wrong bytes: no process uses it any more */
    _Atomic uint64_t last_use;  /* a sequence number among the segments of a directory */
    _Atomic uint64_t ring_tail; /* items before this position are gone */
    _Atomic uint64_t applied;   /* sequence of the books whose entry is in the index */
    _Atomic uint32_t current;   /* index in `books` of the current copy */
    _Atomic uint32_t foreign;   /* items with a wrong tag that users found */
    _Atomic uint32_t evicts;    /* items may be evicted while they are read */
    uint32_t reserved;
    /* The books as last committed, for readers without the lock: word by word. */
    _Atomic uint64_t shown[sizeof(struct hr__books) / sizeof(uint64_t)];
    _Atomic uint64_t hits, misses, saved_bytes, refused; /* totals of users that have left */
    struct hr__segment_costs costs;
    struct hr__books books[2];
    struct hr__segment_user users[HR__SEGMENT_USERS];
};

/* A segment opened by this process. */
struct hr__segment {
    /* Constant after attaching. */
    struct hr__own_fd own;       /* the file; closed in a forked child */
    struct hr__own_fd directory; /* its directory */
    struct hr__own_fd items;     /* on disk: the file again, to read items; with O_DIRECT if the
                                  * file system supports that */
    int is_direct;               /* it does */
    int on_disk;
    int slot;       /* this user's slot; -1: only inspecting */
    int pid;        /* of the process that attached it */
    char file[128]; /* name in the directory */
    char path[256]; /* for messages */
    struct hr__segment_header *header;
    struct hr__entry *entries;
    uint8_t *ring, *arena;
    _Atomic uint32_t *blocks, *uses;
    const _Atomic uint64_t *mark;
    struct hr__segment_layout layout; /* a checked copy, which changes of the file cannot affect */
    struct hr__segment_user *user;    /* our own */
    struct hr__secret secret;         /* for tags of items; set after opening */

    _Atomic int broken;       /* this process found it damaged: finds nothing any more */
    _Atomic int stuck;        /* the lock was unavailable for long: do not wait again */
    _Atomic int waited;       /* likewise, for the lock of the directory */
    _Atomic int full;         /* more memory was refused; this has been logged */
    _Atomic int no_ring;      /* memory for the ring was refused; nothing is staged */
    _Atomic int no_dontcache; /* on disk: the kernel cannot write past the page cache */
    _Atomic int has_foreign;  /* an item had a wrong tag; this has been logged */
    pthread_mutex_t lock;     /* for threads of this process; taken before the file's lock */
    struct hr__books books;   /* of the current transaction; under both locks */
};

/* Returns non-zero if nothing can be found in the segment any more: it is damaged, or this process
 * is a forked child that inherited it. */
static inline int hr__segment_is_broken(const struct hr__segment *s)
{
    return s->own.fd < 0 || atomic_load_explicit(&s->broken, memory_order_relaxed);
}

/* Properties of a new segment. */
struct hr__segment_shape {
    const char *name; /* "": private */
    const char *dataset;
    uint8_t identity[16];
    uint64_t size_bytes, budget_bytes;
    uint64_t items; /* estimate; the index has a quarter more slots */
    int is_kept;
    uint32_t flags;
    int mode;  /* mode of the file: 0600 or 0660 */
    int group; /* -1: none */
};

/* Computes the layout of a segment. Errors: -EINVAL: too large. Pure. */
int hr__segment_plan(struct hr__segment_layout *out, uint64_t budget, uint64_t items, int on_disk);

/*
 * Creates `file` in `directory` and becomes its first user. Call under the directory's lock. The
 * descriptor `directory` is duplicated. On success the caller owns *out; release it with
 * hr__segment_detach. On failure no file is left. Errors: -EEXIST, -ENOSPC, -ENOMEM.
 */
int hr__segment_create(struct hr__segment **out, int directory, const char *file,
                       const struct hr__segment_shape *shape, struct hr_error *error);

/*
 * Opens a segment as a user if `use`, else only to inspect it. Call under the directory's lock.
 * Cleans up what killed users left unfinished. Errors: -ENOENT; -EACCES: another owner, or open to
 * others; -EBADMSG: damaged, truncated or never finished; -EPROTO: another version or machine;
 * -EUSERS: it has HR__SEGMENT_USERS users; -ENOMEM.
 */
int hr__segment_attach(struct hr__segment **out, int directory, const char *file, int use,
                       struct hr_error *error);

/* Ends the use and unmaps the segment; the file stays. In a forked child, only unmaps it. Accepts
 * NULL. */
void hr__segment_detach(struct hr__segment **segment);

/* Returns how many live users it has besides this one, and stores the pids of the first `capacity`
 * of them in `pids` (0: in another pid namespace). */
int hr__segment_users(const struct hr__segment *segment, int64_t *pids, int capacity);

/* Returns non-zero if the user of a slot is alive. Not for one's own slot. */
int hr__segment_is_alive(const struct hr__segment *segment, unsigned slot);

/* Returns non-zero if the segment is usable: no process found it damaged, and it has not been
 * truncated. Costs a system call. */
int hr__segment_is_sound(struct hr__segment *segment);

/* Reports an item with wrong bytes. With a secret, somebody may have forged it: it is counted, and
 * logged once. Without one, the segment is condemned. Not for segments on disk. */
void hr__segment_reject(struct hr__segment *segment);

/* Marks it as damaged, for all users, and logs `what` once. */
void hr__segment_condemn(struct hr__segment *segment, const char *what);

/*
 * Begins a transaction. Returns a copy of the current books in this process's memory, for the
 * caller to change; NULL if the lock is unavailable or the segment damaged. Keep it short: other
 * threads and processes wait meanwhile.
 */
struct hr__books *hr__segment_begin(struct hr__segment *segment);

/* Reads entry `index`. Returns 1, or 0 if it is empty or changed too often. `locked`: within a
 * transaction. Otherwise this may run a transaction to finish what a killed writer began. */
int hr__segment_look(struct hr__segment *segment, uint64_t index, int locked,
                     struct hr__found *out);

/* Selects entry `index` as the one to change, and loads its present value into books->after. */
void hr__segment_change(struct hr__segment *segment, struct hr__books *books, uint64_t index);

/* End the transaction: all its changes take effect, or none. */
void hr__segment_commit(struct hr__segment *segment);
void hr__segment_abort(struct hr__segment *segment);

/* Returns the current books without a lock. Each number is read separately and may already be
 * outdated. */
struct hr__books hr__segment_books(const struct hr__segment *segment);

/* Allocates memory for [from, from + bytes) of the file, if there is enough of it
 * (hr__capacity_allows). Errors: -ENOSPC, -ENOMEM, with the reason in `why`. */
int hr__segment_populate(struct hr__segment *segment, uint64_t from, uint64_t bytes,
                         char why[HR__CAPACITY_WHY]);

uint64_t hr__word_pack(const struct hr__word *word);
struct hr__word hr__word_unpack(uint64_t word);

/* For tests: called at numbered steps of a transaction and of creation, to kill the process
 * there. */
extern void (*hr__segment_test_step)(int step);

static inline void hr__segment_step(int step)
{
    if (__builtin_expect(hr__segment_test_step != NULL, 0))
        hr__segment_test_step(step);
}

#endif
