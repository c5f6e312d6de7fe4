/* A job: one sample on its way through the loader, and what became of it. */
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
    HR__TIERS = 3,
};

/* One sample on its way: owned by the thread or list that has it. */
struct hr__job {
    struct hr__sample sample; /* its bytes, and where they come from */
    struct hr_batch *batch;
    size_t place;                   /* in the batch */
    uint64_t charged_bytes;         /* of the staging budget */
    int unread;                     /* the worker reads it */
    struct hr__cache_ticket ticket; /* of the sample that is being read */
    uint64_t ask_ns;                /* while another process reads it: when to ask again */
    uint64_t pause_ns;              /* how long was waited before that; 0: not yet */
    unsigned flight;                /* where a fetcher keeps it while a reader has it */
    enum hr__tier tier;             /* with hosts: where its bytes came from */
    int is_item;                    /* charged as an item of a host, not as a read */
    uint64_t seen;                  /* with hosts: digest of its file's stamp before it was read;
                                       0: not looked at */
    uint64_t turn;                  /* with hosts: which of all claims it was */
    uint64_t ahead, ahead_bytes;    /* without a batch: the sample that is read ahead */
    uint64_t generation;            /* likewise, the list of hosts it is read for */
    struct hr__job *next;
    struct hr__job *all_next; /* every job of the loader, for freeing */
};

/* What one sample took. Times are CPU time of the worker, which other programs on
 * the machine hardly change; only reads that had to wait for storage are told by the
 * clock. All 0 in a loader without a cache. */
struct hr__cost {
    enum hr_form form;   /* of its bytes */
    uint64_t prepare_ns; /* 0: it failed */
    uint64_t read_ns;    /* 0: it was cached, or a fetcher read it */
    uint64_t working_ns; /* of the worker, from beginning to end */
    size_t read_bytes;   /* 0: it was cached */
};

/* What became of a job: the worker's, handed to hr__finish_locked. */
struct hr__outcome {
    struct hr__bad *skipped; /* the bad sample that was replaced, or the damaged one */
    struct hr__bad *failed;  /* the bad sample that was not */
    struct hr_error error;   /* with code 0 where all is well */
    int was_read;            /* the worker read it */
    int blocked;             /* its read had to wait for storage */
    int busy;                /* nothing became of it: another process reads it */
    uint64_t fetch_ns;       /* how long the worker's read took, by the clock */
    struct hr__cost cost;    /* of the last sample tried */
};

/* A batch that an external order pushed. */
struct hr__push {
    struct hr__push *next;
    uint64_t position; /* of its first sample */
    size_t count;
    int64_t indices[];
};

#endif
