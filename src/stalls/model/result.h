/*
 * The result of a measuring run: what was measured (records of the ranks, joined) and what follows
 * from it (rates, shares, intervals). result.c builds it from records, result_json.c from
 * stalls.json, which holds both; after that it never changes.
 *
 * Seconds and bytes are per batch of one rank unless a name says otherwise. The result owns its
 * arrays.
 */
#ifndef HR_STALLS_MODEL_RESULT_H
#define HR_STALLS_MODEL_RESULT_H

#include <headrace/stalls.h>

#include <stdbool.h>

#define HR__STALLS_MAX_RANKS  4096
#define HR__STALLS_MAX_POINTS 64
#define HR__STALLS_MAX_PARTS  16

#define HR__STALL       0.02 /* a smaller share of waiting counts as no stall */
#define HR__SUGGESTIONS 8    /* most suggestions that a result keeps */

enum hr__loader_kind {
    HR__LOADER_TORCH,    /* worker processes that prepare whole batches; 0 workers: none */
    HR__LOADER_HEADRACE, /* threads of the process that prepare samples */
    HR__LOADER_OTHER,    /* anything else that yields batches */
};

/* One segment as recorded by one rank. */
struct hr__segment_record {
    enum hr_stalls_phase phase;
    int round, set, alone_rank;
    uint64_t batches, samples;
    double begin_s;                     /* since the run's first segment, by this rank's clock */
    double elapsed_s;                   /* of the timed part */
    double process_cpu_s, worker_cpu_s; /* in the timed part: training process; the loader's worker
                                           processes; NaN: unknown */
    double next_cpu_s;       /* part of process_cpu_s in next(), receiving batches; NaN: unknown */
    double read_bytes;       /* from storage; NaN: unknown */
    double expected_bytes;   /* of the files that had to be read; NaN: unknown */
    double expected_samples; /* samples of read_bytes and expected_bytes: more than `samples`, by
                                those that settle or are read ahead; NaN: unknown */
    double network_bytes;    /* received by the machine meanwhile; NaN: unknown */
    int verified;            /* 1: cold was cold, or warm was warm; 0: not; -1: does not apply */
    char reason[200];        /* if verified is 0 */
    double others;           /* share of the cores' time used by other processes and the hypervisor;
                                NaN: unknown */
    double run_delay_s;      /* time that ready threads of the run waited for a core; NaN */
    double throttled_s;      /* time that a CPU quota held the run back; NaN: unknown */
    bool disturbed;          /* too much, by others, in every try */
    int tries;               /* the record is of the least disturbed try */
    int pauses;              /* the script's pauses: counted only here and in paused_s */
    double paused_s;
    double queue_begin, queue_end; /* batches that the loader had ready; NaN: unknown */
    double *wait_s;                /* `batches` values: time blocked in next() */
    double *batch_s;               /* `batches` values: from one next() to the following one */
};

/* A measurement of the loader without training. */
struct hr__drain_record {
    bool cold;
    int cores; /* that the process and its workers were confined to */
    uint64_t samples;
    double elapsed_s, cpu_s; /* cpu: training process and workers; NaN: unknown */
    double read_bytes;
};

/* A worker's cost of one batch; for a loader of threads, of one batch of the loader. */
struct hr__prepare_record {
    bool cold;
    uint32_t samples;
    double cpu_s; /* NaN: unknown */
    double wall_s;
    double read_bytes;
};

struct hr__depth_record {
    int depth; /* number of reads in flight */
    double bytes_per_s, reads_per_s;
    int part_count;
    double parts[HR__STALLS_MAX_PARTS]; /* bytes/s in equal parts of the measuring time */
};

struct hr__form_record {
    enum hr_form form;
    double cpu_s; /* to prepare one sample with Headrace */
    double bytes; /* size of one item */
};

struct hr__rank_record {
    int rank, local_rank;
    char host[64];
    struct hr__segment_record *segments;
    size_t segment_count;
    struct hr__drain_record *drains;
    size_t drain_count;
    struct hr__prepare_record *prepares;
    size_t prepare_count;
    double first_batch_s; /* from iter() to the first batch, script's loader; NaN: unknown */
};

struct hr__host_record { /* reported by the host's first rank */
    char name[64];
    int cores;
    char cpu[96];
    uint64_t memory_bytes, available_bytes; /* free for the page cache, without the run's own use */
    bool page_generations;                  /* the kernel evicts pages by generations (MGLRU) */
    char device[96];                        /* "": CPU */
    struct hr__depth_record *depths;
    size_t depth_count;
    double memory_bytes_per_s; /* of reading cached files; NaN: unknown */
    double paused_bytes_per_s; /* of single reads, each after a pause as long as itself; counts
                                  reading time only; NaN: unknown */
    double saved_bytes; /* that storage delivers beyond its rate after it idled; NaN: unknown */
    struct hr__form_record *forms;
    size_t form_count;
    char recipe[256];
    char no_forms[256]; /* why Headrace's loader cannot replace the script's; "" */
};

struct hr_stalls {
    /* Recorded. */
    char run[64];  /* the same for all ranks of a run, unique to it */
    char *command; /* of the script, for display */
    char *started; /* ISO 8601 */
    char *ended;   /* precise, limit, script, interrupted */
    int world_size;
    enum hr__loader_kind loader;
    char loader_class[128];
    int workers;               /* per rank: processes or threads; 0: the loader works in next() */
    int prefetch_batches;      /* per rank, prepared ahead of the one in use */
    int batch_size;            /* per rank */
    double loader_cache_bytes; /* of Headrace's cache, per host; 0: none; NaN: unknown */
    bool on_cpu;               /* training runs on the CPU */
    char training_device[64];  /* "cpu", "cuda:0" */
    int training_threads;
    uint64_t warm_up_batches; /* before the first segment */
    char dataset[256];
    uint64_t samples; /* 0: unknown */
    double bytes;     /* of all files; NaN: unknown */
    double *sizes;    /* file sizes of some samples, for the distribution */
    size_t size_count;
    char filesystem[32];
    bool reads_no_files;    /* the samples are in memory: no fetching */
    bool network;           /* the samples come over the network: no files are read */
    uint64_t epoch_batches; /* 0: unknown */
    double epoch_start_s;   /* from iter() to the first batch; NaN: unknown */
    bool epoch_start_each;  /* every epoch has it, not only the first */
    char cannot_tell[256];  /* why the shares are meaningless; "" if they are not */
    char phase_reason[HR_STALLS_PHASES][256]; /* why a phase was not measured or not verified; else
                                                 "" */
    char **notes;                             /* remarks for the reader */
    size_t note_count;
    char **files_written;
    size_t file_count;
    char remedy[320]; /* what the model says would remove the stall: "12 cores per GPU or Headrace's
                         loader"; "": nothing, or unknown */
    char relief[160]; /* a change that costs nothing and removes most of the stall; "": the remedy
                        does, or none is known */
    double relief_waits;           /* share of time that is waiting with it; NaN without it */
    double now_cached, now_waits;  /* predicted for epochs with as many files in memory as fit:
                                      their share, and the share of time that is waiting; NaN: not
                                      partly cached, or unknown */
    struct hr__rank_record *ranks; /* sorted by rank */
    int rank_count;                /* ranks present; fewer than world_size if a host is missing */
    struct hr__host_record *hosts;
    int host_count;

    /* Derived by hr__stalls_derive. */
    struct hr_stalls_summary summary;
    struct hr_interval step_s[HR_STALLS_PHASES]; /* per global batch: mean over rounds */
    double middle_s[HR_STALLS_PHASES];           /* median over rounds; 0: unknown */
    /* Of each of ranks[], in its order. */
    struct hr_interval *alone_s; /* cost of its loading to all ranks, per batch; all NaN: unknown */
    struct hr_interval *waiting; /* share of time blocked in next(); cold, else warm */
    bool *straggles;             /* waits significantly longer than the median rank */
    double prepare_cpu_s;        /* per sample, by the loader; NaN: unknown */
    double training_cpu_s;       /* per batch of one rank, by the training process (phase DEVICE or
                                    HOST); NaN: unknown */
    char *sentence;

    /* Found by hr__stalls_advise, whose search takes seconds. stalls.json has texts and changes;
     * hr_stalls_suggest predicts what they bring. */
    struct hr_stalls_suggestion *suggestions; /* changes that leave less than HR__STALL;
                                                 prediction.size is 0 before it is predicted */
    size_t suggestion_count;
    bool has_suggestions; /* false: not searched, or figures are missing */
};

/* Computes the derived members from the recorded ones, the sentence included. Errors: -ENODATA,
 * -ENOMEM. */
HR_NODISCARD int hr__stalls_derive(struct hr_stalls *stalls, struct hr_error *error);

/* Write and read the text of stalls.json. The caller frees *text with hr__free; *length excludes
 * the final zero. `where` names the text in messages. */
HR_NODISCARD int hr__stalls_to_json(const struct hr_stalls *stalls, char **text, size_t *length,
                                    struct hr_error *error);
HR_NODISCARD int hr__stalls_from_json(struct hr_stalls **out, const char *text, size_t length,
                                      const char *where, struct hr_error *error);

#endif
