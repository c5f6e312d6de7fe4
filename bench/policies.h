/*
 * The parts of the cache simulator: policies.c has main, policies_stream.c makes the stream of uses
 * from the real orders, policies_rules.c has the policies.
 *
 * A slot is a sample as one host sees it: a host that uses a sample has one slot for it. Slots of a
 * host are adjacent, so a host's caches are arrays. Uses are numbered in the order in which they
 * happen, one of each job on each host in turn.
 */
#ifndef BENCH_POLICIES_H
#define BENCH_POLICIES_H

#include <stdint.h>

enum sampler_kind { SAMPLER_SHUFFLE, SAMPLER_UNIFORM, SAMPLER_BALANCED, SAMPLER_REPEATED };

struct policies_wish {
    uint64_t samples, validation; /* numbers of samples */
    uint32_t jobs, hosts, epochs;
    uint32_t every; /* a validation follows each so many epochs */
    enum sampler_kind sampler;
    double share;      /* of the bytes of all samples that all hosts together may cache */
    uint32_t known;    /* epochs of a job whose uses are known, with the one that runs */
    uint32_t drawn;    /* random items that an eviction compares */
    const char *sizes; /* a file with the samples' sizes, one a line; NULL: drawn */
    const char *draws; /* a file with what the sampler gives, one a line; NULL: as `sampler` says */
};

/* A part of the stream: an epoch of all jobs side by side, or a validation. */
struct phase {
    uint64_t begins, ends; /* uses */
    int is_validation;
    uint32_t jobs; /* that alternate in it */
};

struct policies_stream {
    struct policies_wish wish;
    uint64_t all;   /* samples, with those of the validation */
    uint32_t *size; /* by sample, in bytes */
    uint64_t bytes; /* of all samples */
    uint64_t uses;
    uint32_t *slot; /* by use */
    uint32_t *next; /* by use: the next one of its slot, or NO_NEXT */
    uint64_t slots;
    uint32_t *sample; /* by slot */
    uint64_t *first;  /* by host: its first slot; first[hosts] == slots */
    struct phase *phases;
    uint32_t phase_count;
};

#define NO_NEXT UINT32_MAX

/* Stops the program if memory is short. */
void *policies_array(uint64_t count, uint64_t size);
_Noreturn void policies_die(const char *what);

void stream_make(struct policies_stream *stream, const struct policies_wish *wish);
void stream_free(struct policies_stream *stream);

static inline uint32_t stream_host(const struct policies_stream *s, const struct phase *phase,
                                   uint64_t use)
{
    return (uint32_t)((use - phase->begins) % s->wish.hosts);
}

static inline uint32_t stream_job(const struct policies_stream *s, const struct phase *phase,
                                  uint64_t use)
{
    return (uint32_t)((use - phase->begins) / s->wish.hosts % phase->jobs);
}

/* The caches of all hosts under one policy. */
struct caches {
    const struct policies_stream *stream;
    const struct phase *phase; /* that runs */
    uint8_t *cached;           /* by slot */
    uint64_t *free;            /* by host, in bytes */
    uint16_t *copies;          /* by sample, on all hosts */
    void *own;                 /* the policy's */
};

struct policy_rule {
    const char *name;
    void (*start)(struct caches *c);
    void (*begin)(struct caches *c); /* of a phase; or NULL */
    void (*use)(struct caches *c, uint64_t use, uint32_t host);
    void (*stop)(struct caches *c);
};

extern const struct policy_rule policy_rules[];

#endif
