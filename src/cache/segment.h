/*
 * A segment: one file of shared memory that holds the cached items of one dataset.
 *
 *   header | users | index | ring | arena | mark
 *
 * The file is as long as all of that may become, and sparse: memory is taken piece by
 * piece, really allocated before it is used, so that a full file system is an error
 * and never a SIGBUS.
 *
 * Whoever truncates the file takes the mark, which is its last word and is written once. What
 * was cut off reads as zeros, in the mapping (base/truncation.h) and where the file is made longer
 * again. So a reader that finds the mark after it has used bytes had the bytes of the file.
 *
 * Who lives is told by locks that the kernel drops with a process (OFD locks, on bytes
 * far behind the file's end): each user holds one. One more byte is the lock under
 * which the books are changed. Nobody waits for it for longer than a moment, because
 * its holder may have been stopped: then nothing is admitted, and that is all.
 *
 * The books exist twice. A transaction changes the spare copy and then makes it the
 * current one with a single store; the one entry of the index that changes with it is
 * part of the copy, and is applied again by the next transaction where its owner died in
 * between. So a process may be killed at any instruction.
 *
 * Private to the cache room. Native byte order; a file of another machine, version or
 * layout is refused.
 */
#ifndef HR_CACHE_SEGMENT_H
#define HR_CACHE_SEGMENT_H

#include "base/own_fd.h"
#include "cache/capacity.h"
#include "cache/secret.h"

#include <headrace/base.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HR__SEGMENT_MAGIC   "HRCACHE"
#define HR__SEGMENT_VERSION 3u
#define HR__SEGMENT_USERS   256
#define HR__SEGMENT_ALIGN   64u

/* What an item is found by. Neither half is 0. */
struct hr__key {
    uint64_t high, low;
};

/* States of an entry; see store.h. */
enum hr__entry_state {
    HR__ENTRY_EMPTY = 0,    /* never used: a search ends here */
    HR__ENTRY_VACANT = 1,   /* has a key, and nothing else; may be given to another key */
    HR__ENTRY_CLAIMED = 2,  /* its owner reads the sample, or died doing so */
    HR__ENTRY_STAGED = 3,   /* in the ring, at position `offset`, while that is valid */
    HR__ENTRY_FINAL = 4,    /* in the arena at `offset`, for good */
    HR__ENTRY_CHANGING = 5, /* look again */
};

/* One slot of the index. Fields are read while others change them: atomically, and
 * whoever reads looks at the word before and after. */
struct hr__entry {
    _Atomic uint64_t word; /* struct hr__word */
    _Atomic uint64_t key_high, key_low;
    _Atomic uint64_t offset;
    _Atomic uint64_t lengths;  /* bytes; << 32: that the sample has on storage, where known */
    _Atomic uint64_t checksum; /* XXH3-64 of the bytes */
};

/* What an entry's word says. */
struct hr__word {
    enum hr__entry_state state;
    unsigned form;    /* enum hr_form */
    unsigned owner;   /* CLAIMED: user slot; STAGED: of who converts it, where `taken` */
    unsigned pending; /* STAGED: admitted, waits for its conversion; 0: passes through */
    unsigned taken;
    uint32_t reserve; /* STAGED, pending: units of HR__SEGMENT_ALIGN kept for it in the arena */
    unsigned version; /* changes with every change of the entry; of transactions */
};

/* The same, without atomics, on its way into the index. */
struct hr__entry_value {
    uint64_t word, key_high, key_low, offset, lengths, checksum;
};

/* What changes in transactions. The change of an entry is given without its word's
 * version. */
struct hr__books {
    uint64_t sequence;
    uint64_t arena_used;      /* bytes that items have */
    uint64_t arena_allocated; /* bytes that may be touched */
    uint64_t promised;        /* bytes of the arena that pending items will need */
    uint64_t ring_head;       /* where the next item goes; positions only grow */
    uint64_t ring_cursor;     /* items before it have been offered for conversion */
    uint64_t ring_allocated;  /* 0, or the ring's bytes */
    uint64_t source_bytes;    /* of admitted items */
    uint64_t items[3];        /* admitted, by form; pending ones are encoded */
    uint64_t staged;          /* of them, pending */
    uint64_t staged_bytes;
    uint64_t waiting; /* of the pending ones, those that nobody converts */
    uint64_t change;  /* index of the entry that changes, + 1; 0: none */
    struct hr__entry_value after;
};

/* A user's counters; the slot is free where pid is 0. */
struct hr__segment_user {
    _Atomic int64_t pid;
    _Atomic uint64_t progress; /* grows with each claim that it ended */
    _Atomic uint64_t open;     /* claims, and items in conversion, that it has not ended */
    _Atomic uint64_t hits, misses, saved_bytes, refused;
    _Atomic uint64_t order;    /* in which it uses samples; 0: of its own */
    _Atomic uint64_t position; /* in that order, all epochs one behind the other */
    uint64_t reserved[7];
};

/* Measured means, for who looks from outside; relaxed. */
struct hr__segment_costs {
    _Atomic int64_t form, form_asked;
    _Atomic uint64_t prepare_ns[3], convert_ns[3], read_ns;
    _Atomic uint64_t growth_ppm[3];
};

struct hr__segment_layout {
    uint64_t index_offset, index_slots;
    uint64_t ring_offset, ring_bytes;
    uint64_t arena_offset, arena_bytes; /* the budget */
    uint64_t file_bytes;                /* the mark is the last word */
};

struct hr__segment_header {
    /* Constant once `ready`. */
    char magic[8];
    uint32_t version, byte_order; /* 0x01020304 as the machine stores it */
    uint64_t checksum;            /* XXH3-64 of the constant part behind this field */
    struct hr__segment_layout layout;
    uint8_t identity[16];
    uint64_t size_bytes; /* of the name */
    uint32_t is_kept;    /* 0: private to a run */
    uint32_t reserved;
    char name[64];
    char dataset[512];
    uint64_t constant_end; /* 0; marks where the constant part ends */

    _Atomic uint32_t ready;
    _Atomic uint32_t damaged;   /* somebody found wrong bytes: nobody uses it any more */
    _Atomic uint64_t last_use;  /* numbered among the segments of a directory */
    _Atomic uint64_t ring_tail; /* items before it are gone */
    _Atomic uint64_t applied;   /* sequence of the books whose entry is in the index */
    _Atomic uint32_t current;   /* of books */
    _Atomic uint32_t foreign;   /* items with a wrong tag that users met */
    /* The books as last committed, for who does not hold the lock: word by word. */
    _Atomic uint64_t shown[sizeof(struct hr__books) / sizeof(uint64_t)];
    _Atomic uint64_t hits, misses, saved_bytes, refused; /* of users that left */
    struct hr__segment_costs costs;
    struct hr__books books[2];
    struct hr__segment_user users[HR__SEGMENT_USERS];
};

/* An open segment, of one process. */
struct hr__segment {
    /* Constant from attach on. */
    struct hr__own_fd own;       /* the file; none in a forked child */
    struct hr__own_fd directory; /* its directory */
    int slot;                    /* this user's; -1: looking only */
    int pid;                     /* that attached it */
    char file[128];              /* name in the directory */
    char path[256];              /* for people */
    struct hr__segment_header *header;
    struct hr__entry *entries;
    uint8_t *ring, *arena;
    const _Atomic uint64_t *mark;
    struct hr__segment_layout layout; /* checked, so the file cannot change it any more */
    struct hr__segment_user *user;    /* ours */
    struct hr__secret secret;         /* of items; set by who opens it */

    _Atomic int broken;      /* this process found it damaged: nothing is found any more */
    _Atomic int stuck;       /* the lock could not be had for long: do not wait again */
    _Atomic int waited;      /* the same of its directory's lock */
    _Atomic int full;        /* no more memory was granted; it has been logged */
    _Atomic int no_ring;     /* the same of the ring; nothing is staged here */
    _Atomic int has_foreign; /* an item had a wrong tag; it has been logged */
    pthread_mutex_t lock;    /* this process's threads, before the file's lock */
    struct hr__books books;  /* of the transaction under way; under both locks */
};

/* Non-zero where nothing is found in it any more: it is damaged, or this is a child that
 * inherited it. */
static inline int hr__segment_is_broken(const struct hr__segment *s)
{
    return s->own.fd < 0 || atomic_load_explicit(&s->broken, memory_order_relaxed);
}

/* What a new segment is to be. */
struct hr__segment_shape {
    const char *name; /* "": private */
    const char *dataset;
    uint8_t identity[16];
    uint64_t size_bytes, budget_bytes;
    uint64_t items; /* about; the index has a quarter more slots */
    int is_kept;
    int mode;  /* of the file: 0600 or 0660 */
    int group; /* -1: none */
};

/* How a segment with this shape is laid out. Errors: -EINVAL: beyond what one can be. Pure. */
int hr__segment_plan(struct hr__segment_layout *out, uint64_t budget, uint64_t items);

/*
 * Makes the file `file` in `directory` and becomes its first user. Under the directory's
 * lock. On success *out is the caller's, for hr__segment_detach; the descriptor
 * `directory` is duplicated. Errors: -EEXIST, -ENOSPC, -ENOMEM; on failure no file is left.
 */
int hr__segment_create(struct hr__segment **out, int directory, const char *file,
                       const struct hr__segment_shape *shape, struct hr_error *error);

/*
 * Opens one; `use`: as a user, else only to look. Under the directory's lock. What a
 * killed user left unfinished is cleared up. Errors: -ENOENT; -EACCES: of another
 * owner, or open to others; -EBADMSG: damaged, cut, never finished; -EPROTO: of another
 * version or machine; -EUSERS: HR__SEGMENT_USERS of them; -ENOMEM.
 */
int hr__segment_attach(struct hr__segment **out, int directory, const char *file, int use,
                       struct hr_error *error);

/* Ends the use and unmaps. Accepts NULL. The file stays. In a forked child it only
 * unmaps what is there. */
void hr__segment_detach(struct hr__segment **segment);

/* How many live users it has besides this one, and the processes of the first of them in
 * pids (0: in another pid namespace), at most `capacity`. */
int hr__segment_users(const struct hr__segment *segment, int64_t *pids, int capacity);

/* Non-zero where the user of a slot lives. Not for one's own slot. */
int hr__segment_is_alive(const struct hr__segment *segment, unsigned slot);

/* Non-zero unless the segment cannot be used any more: found damaged, by whomever, or
 * cut short. A system call. */
int hr__segment_is_sound(struct hr__segment *segment);

/* An item is not what was put there. With a secret somebody else may have put it there: it is
 * counted, and logged once; else the segment is condemned. */
void hr__segment_reject(struct hr__segment *segment);

/* Marks it as damaged, for all users, and logs `what` once. */
void hr__segment_condemn(struct hr__segment *segment, const char *what);

/*
 * Begins a transaction: the books, a copy of the current ones in memory of this process, for the
 * caller to change; NULL: not now (the lock was not to be had, or the segment is damaged). Other
 * threads and processes wait meanwhile, so it is short.
 */
struct hr__books *hr__segment_begin(struct hr__segment *segment);

/* Makes entry `index` the one that changes, and books->after what it is now. */
void hr__segment_change(struct hr__segment *segment, struct hr__books *books, uint64_t index);

/* Ends it: all of it has happened, or nothing. */
void hr__segment_commit(struct hr__segment *segment);
void hr__segment_abort(struct hr__segment *segment);

/* The books as they are, each number by itself; a moment later they are others. */
struct hr__books hr__segment_books(const struct hr__segment *segment);

/* Makes [from, from + bytes) of the file real memory, if there is enough of it
 * (hr__capacity_allows). Errors: -ENOSPC, -ENOMEM, with the reason in `why`. */
int hr__segment_populate(struct hr__segment *segment, uint64_t from, uint64_t bytes,
                         char why[HR__CAPACITY_WHY]);

uint64_t hr__word_pack(const struct hr__word *word);
struct hr__word hr__word_unpack(uint64_t word);

/* Tests: called at numbered steps of a transaction and of creation, to kill there. */
extern void (*hr__segment_test_step)(int step);

static inline void hr__segment_step(int step)
{
    if (__builtin_expect(hr__segment_test_step != NULL, 0))
        hr__segment_test_step(step);
}

#endif
