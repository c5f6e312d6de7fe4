/* A job: one sample on its way through the loader, and its outcome. */
#ifndef HR_LOADER_JOB_H
#define HR_LOADER_JOB_H

#include "cache/cache.h"
#include "loader/sample.h"

#include <headrace/base.h>
#include <headrace/form.h>

#include <stdint.h>

struct hr__bad;
struct hr_batch;

/* Where a sample's bytes came from. */
enum hr__tier {
    HR__TIER_STORAGE = 0,
    HR__TIER_OWN = 1,  /* this host's server */
    HR__TIER_PEER = 2, /* another host's */
    HR__TIER_DISK = 3, /* a disk of this host's cache */
    HR__TIERS = 4,
};

/* Where a job's mask is. */
enum hr__mask_read {
    HR__MASK_UNREAD = 0, /* there is none, or the worker is to read it */
    HR__MASK_FLYING,     /* a fetcher's reader has it */
    HR__MASK_READ,       /* job->mask has the result */
    HR__MASK_WITHIN,     /* with its image in job->sample: a pair (dataset/pair.h) */
};

/* One sample on its way. Owned by the thread or list that has it. */
struct hr__job {
    struct hr__sample sample; /* the bytes, and where they come from */
    struct hr__sample mask;   /* likewise of the sample's mask, if the dataset has masks */
    enum hr__mask_read mask_read;
    struct hr_batch *batch;
    size_t place;                   /* in the batch */
    uint64_t charged_bytes;         /* bytes of the staging budget */
    int unread;                     /* non-zero: the worker is to read it */
    struct hr__cache_ticket ticket; /* the cache's ticket for the sample being read */
    uint64_t ask_ns;                /* another process is reading it: when to ask again */
    uint64_t pause_ns;              /* how long the last pause before asking was; 0: none yet */
    unsigned flight;                /* the fetcher's index of it while a reader has it */
    enum hr__tier tier;             /* where the bytes came from */
    struct hr__cache_place located; /* HR__TIER_DISK: where they are there */
    int from_source;                /* do not read them from a disk of the cache */
    int is_noted;                   /* the cache knows that it is used now */
    int is_item;                    /* the charge is for an item of a host, not for a read */
    uint64_t seen;                  /* with hosts: digest of the file's stamp before the read; 0:
                                       not looked at */
    uint64_t turn;                  /* with hosts: number of this claim among all claims */
    uint64_t ahead, ahead_bytes;    /* a job without a batch: the sample being read ahead */
    uint64_t generation;            /* likewise: generation of the list of hosts it is read for */
    struct hr__job *next;
    struct hr__job *all_next; /* links all jobs of the loader, for freeing */
};

/* The cost of one sample. Times are CPU time of the worker, which other programs on the machine
 * hardly affect; only reads that had to wait for storage are measured by wall-clock time. All
 * fields are 0 in a loader without a cache. */
struct hr__cost {
    enum hr_form form;   /* of the bytes */
    uint64_t prepare_ns; /* 0: preparing failed */
    uint64_t read_ns;    /* 0: it was cached, or a fetcher read it */
    uint64_t working_ns; /* the worker's time from beginning to end */
    size_t read_bytes;   /* 0: it was cached */
    int had_index;       /* prepare_ns includes making an index, or trying to */
    size_t made_bytes;   /* of the indexed item, with the mask; 0: none was made */
    struct hr_item_part made[HR_ITEM_PARTS]; /* the indexed item, in the preparer's memory and the
                                                sample's */
};

/* The outcome of a job. The worker fills it in and passes it to hr__finish_locked. */
struct hr__outcome {
    struct hr__bad *skipped; /* the bad sample that was replaced, or the damaged one that was
                                used */
    struct hr__bad *failed;  /* the bad sample that could not be replaced */
    struct hr_error error;   /* code 0: no error */
    int was_read;            /* non-zero: the worker read it */
    int blocked;             /* non-zero: the read had to wait for storage */
    int busy;                /* non-zero: not done, another process is reading the sample */
    uint64_t fetch_ns;       /* wall-clock time of the worker's read */
    struct hr__cost cost;    /* of the last sample tried */
};

/* A batch of indices that the caller pushed (external order). */
struct hr__push {
    struct hr__push *next;
    uint64_t position; /* of its first sample, in the epoch */
    size_t count;
    int64_t indices[];
};

#endif
