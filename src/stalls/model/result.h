/*
 * A result of a measuring run, as the rooms of the library see it: what was measured
 * (records, joined), and what follows from it (rates, shares, intervals). Built by
 * result.c from records, or by result_json.c from stalls.json, which holds both; then
 * never changed.
 *
 * Seconds and bytes are of one batch of one rank unless a name says otherwise; arrays are
 * owned by the result.
 */
#ifndef HR_STALLS_MODEL_RESULT_H
#define HR_STALLS_MODEL_RESULT_H

#include <headrace/stalls.h>

#include <stdbool.h>

#define HR__STALLS_MAX_RANKS  4096
#define HR__STALLS_MAX_POINTS 64
#define HR__STALLS_MAX_PARTS  16

#define HR__STALL       0.02 /* less waiting than this share of the time is none */
#define HR__SUGGESTIONS 6    /* that a result keeps */

enum hr__loader_kind {
    HR__LOADER_TORCH,    /* worker processes, each prepares whole batches; 0 workers: none */
    HR__LOADER_HEADRACE, /* threads of the process, each prepares samples */
    HR__LOADER_OTHER,    /* something that yields batches */
};

/* One segment as one rank saw it. */
struct hr__segment_record {
    enum hr_stalls_phase phase;
    int round, set, alone_rank;
    uint64_t batches, samples;
    double begin_s;   /* since the first segment of the run, by this rank's clock */
    double elapsed_s; /* its timed part */
    double process_cpu_s, worker_cpu_s; /* of that part, by the training process and by the
                                           loader's worker processes; NaN: not known */
    double next_cpu_s;       /* of process_cpu_s, in next(): receiving batches; NaN: not known */
    double read_bytes;       /* from storage; NaN: not known */
    double expected_bytes;   /* of the files that were to be read; NaN: not known */
    double expected_samples; /* that these two belong to: with those that settle or are read ahead,
                                more than `samples`; NaN: not known */
    double network_bytes;    /* that the machine received meanwhile; NaN: not known */
    int verified;            /* 1 cold was cold or warm was warm, 0 not, -1 does not apply */
    char reason[200];        /* of 0 */
    double others;           /* share of the cores' time that other processes and the hypervisor
                                took; NaN: not known */
    double run_delay_s;      /* that threads of the run were ready and waited for a core; NaN */
    double throttled_s;      /* that a CPU quota held the run back; NaN */
    bool disturbed;          /* by others, too much, however often it was tried */
    int tries;               /* the record is of the least disturbed one */
    int pauses;              /* of the script: set apart, in no other figure but these two */
    double paused_s;
    double queue_begin, queue_end; /* batches that the loader had ready; NaN: not known */
    double *wait_s;                /* `batches` values: blocked in next() */
    double *batch_s;               /* `batches` values: from one next() to the following */
};

/* The loader alone, without training. */
struct hr__drain_record {
    bool cold;
    int cores; /* that the whole process and its workers were confined to */
    uint64_t samples;
    double elapsed_s, cpu_s; /* cpu: training process and workers; NaN: not known */
    double read_bytes;
};

/* What a worker did for one batch. In a loader of threads: per batch of the loader. */
struct hr__prepare_record {
    bool cold;
    uint32_t samples;
    double cpu_s; /* NaN: not known */
    double wall_s;
    double read_bytes;
};

struct hr__depth_record {
    int depth; /* reads in flight */
    double bytes_per_s, reads_per_s;
    int part_count;
    double parts[HR__STALLS_MAX_PARTS]; /* bytes/s of equal parts of the time */
};

struct hr__form_record {
    enum hr_form form;
    double cpu_s; /* Headrace's preparation of one sample */
    double bytes; /* of one item */
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
    double first_batch_s; /* from iter() to the first batch, by the script's loader; NaN */
};

struct hr__host_record { /* by the host's first rank */
    char name[64];
    int cores;
    char cpu[96];
    uint64_t memory_bytes, available_bytes; /* free for the page cache, the run's own use out */
    char device[96];                        /* "" on a CPU */
    struct hr__depth_record *depths;
    size_t depth_count;
    double memory_bytes_per_s; /* reading cached files; NaN: not known */
    double paused_bytes_per_s; /* of one read after another, each after a pause as long as itself:
                                  over the time of reading; NaN: not known */
    struct hr__form_record *forms;
    size_t form_count;
    char recipe[256];
    char no_forms[256]; /* why Headrace's loader cannot take the place of the script's; "" */
};

struct hr_stalls {
    /* recorded */
    char run[64];  /* the same for all ranks of a run, and for no other */
    char *command; /* of the script, for people */
    char *started; /* ISO 8601 */
    char *ended;   /* precise, limit, script, interrupted */
    int world_size;
    enum hr__loader_kind loader;
    char loader_class[128];
    int workers;               /* of each rank: processes, or threads; 0: it loads in next() */
    int prefetch_batches;      /* prepared ahead of the one in use, of each rank */
    int batch_size;            /* of each rank */
    double loader_cache_bytes; /* of Headrace's cache, of a host; 0: none; NaN: unknown */
    bool on_cpu;               /* training on the CPU */
    char training_device[64];  /* "cpu", "cuda:0" */
    int training_threads;
    uint64_t warm_up_batches; /* before the first segment */
    char dataset[256];
    uint64_t samples; /* 0: not known */
    double bytes;     /* of all files; NaN: not known */
    double *sizes;    /* of some samples' files, for the distribution */
    size_t size_count;
    char filesystem[32];
    bool reads_no_files;    /* the samples are in memory: nothing is ever fetched */
    bool network;           /* they come over the network: no files are read */
    uint64_t epoch_batches; /* 0: not known */
    double epoch_start_s;   /* from iter() to the first batch; NaN: not known */
    bool epoch_start_each;  /* it comes with each epoch, not with the first alone */
    char cannot_tell[256];  /* why the shares mean nothing; "" where they do */
    char phase_reason[HR_STALLS_PHASES][256]; /* why a phase was not measured, or not
                                                 verified; "" else */
    char **notes;                             /* for the person: what was noticed */
    size_t note_count;
    char **files_written;
    size_t file_count;
    char remedy[320]; /* what the model said would remove the stall: "12 cores per GPU or
                         Headrace's loader"; "" nothing, or it could not tell */
    double now_cached, now_waits;  /* what it said of epochs with as many files in memory as there
                                      is room for: their share, and the share of the time that is
                                      waiting; NaN: not partly cached, or it could not tell */
    struct hr__rank_record *ranks; /* by rank */
    int rank_count;                /* present; fewer than world_size where a host is missing */
    struct hr__host_record *hosts;
    int host_count;

    /* derived by hr__stalls_derive */
    struct hr_stalls_summary summary;
    struct hr_interval step_s[HR_STALLS_PHASES]; /* of one global batch: the mean of rounds */
    double middle_s[HR_STALLS_PHASES];           /* the same of the middle one; 0: not known */
    /* of each of ranks[], in its order */
    struct hr_interval *alone_s; /* what its loading costs everybody, per batch; all NaN: not
                                    known */
    struct hr_interval *waiting; /* share of time blocked in next(), cold or else warm */
    bool *straggles;             /* it waits longer than the middle one, beyond doubt */
    double prepare_cpu_s;        /* of one sample, by the loader; NaN: not known */
    double training_cpu_s;       /* of one batch of one rank, by the training process (phase DEVICE
                                    or HOST); NaN: not known */
    char *sentence;

    /* filled by hr__stalls_advise, which searches for seconds; not in stalls.json */
    struct hr_stalls_suggestion *suggestions; /* what leaves less than HR__STALL; NULL: not asked,
                                                 or it could not tell */
    int suggestion_count;
};

/* Computes what is derived from what is recorded; the sentence too. Errors: -ENODATA,
 * -ENOMEM. */
HR_NODISCARD int hr__stalls_derive(struct hr_stalls *stalls, struct hr_error *error);

/* The text of stalls.json, malloc'd by the library (hr__free), *length without its end;
 * and from text. `where` names it in messages. */
HR_NODISCARD int hr__stalls_to_json(const struct hr_stalls *stalls, char **text, size_t *length,
                                    struct hr_error *error);
HR_NODISCARD int hr__stalls_from_json(struct hr_stalls **out, const char *text, size_t length,
                                      const char *where, struct hr_error *error);

#endif
