/*
 * Caches in memory that outlive an epoch, a process or a run.
 *
 * A cache never evicts: what was admitted stays until the cache is dropped, which
 * for an order that uses each sample once per epoch gives the fewest reads
 * (VLDB'21, "Analyzing and Mitigating Data Stalls in DNN Training"). It is asked
 * for by a text, the same in C, Python and the command:
 *
 *   64GiB                       private: shared by the ranks and worker processes of
 *                               the run, gone with the last of them
 *   shm:NAME?size=64GiB         kept: the next run starts warm. One segment of shared
 *                               memory for each dataset; `size` bounds all segments of
 *                               the name together
 *       &share=0.9              at most this share of `size` for this dataset; default 1
 *       &group=NAME             readable and writable by a Unix group; default: the owner
 *       &form=auto              auto, encoded, coefficients, planes: how JPEGs are kept
 *       &key_file=PATH          16 bytes or more that only the owner may read: items are
 *                               authenticated by them
 *
 *   memcached:HOST,HOST,...?size=64GiB
 *                               several hosts: in memcached servers that run on them
 *                               already, the same text for all ranks of a job
 *       HOST                    name:port, 10.0.0.1:port, [fd00::1]:port; port 11211 where
 *                               it is left out; HOST=32GiB has a size of its own. Or the
 *                               absolute path of a Unix socket, of servers of one machine
 *       size=64GiB              of items at each host that has none of its own: at most
 *                               0.75 of its memcached's memory (-m)
 *       &self=N                 which of the list this machine is, by index or entry;
 *                               HEADRACE_HOST says it, too; default: by its addresses
 *       &socket=/PATH           how this machine's own server is reached instead
 *       &user=NAME&password-file=PATH
 *                               a user of servers with an authfile (memcached -Y); the first
 *                               line of PATH is the password
 *       &form=encoded           encoded, coefficients, planes: how JPEGs are kept
 *       &mtime=no               copies of the dataset on the hosts have other modification
 *                               times; default yes: a file that changed is another item
 *       &timeout=1s             of one request to a server, in all: 10ms to 60s
 *       &meet=300s              until all ranks are there: 1s to 86400s
 *       &key_file=PATH          as above, the same contents on all hosts
 *
 * When a name is full, segments of it that no process uses are dropped whole, the one
 * whose last use lies furthest back first; that is the only eviction.
 *
 * A loader takes the text in hr_loader_options.cache; several hosts are for loaders alone. The
 * functions here are for those who look at caches from outside, and, hr_cache_open and below, for
 * those who keep something of their own in one.
 *
 * Who may write to a segment, or reaches a server, is trusted with what is in it: a checksum
 * finds damage, not malice. With a key file it finds both.
 */
#ifndef HEADRACE_CACHE_H
#define HEADRACE_CACHE_H

#include <headrace/base.h>
#include <headrace/dataset.h>
#include <headrace/form.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hr_cache_kind {
    HR_CACHE_PRIVATE, /* a size alone */
    HR_CACHE_KEPT,    /* shm:NAME */
    HR_CACHE_HOSTS,   /* memcached:HOST,... */
};

/* Which kind of cache `text` asks for; of a text that is none, the kind that it begins as. */
HR_API enum hr_cache_kind hr_cache_kind(const char *text);

/*
 * Bytes of one dataset that a cache asked for with `text` may hold: of a name its share, of
 * several hosts all of them together. Errors: -EINVAL says what is wrong with `text`, and what
 * to write; -ENOTSUP; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_cache_bytes(const char *text, uint64_t *bytes, struct hr_error *error);

/* ---- looking at caches from outside ---- */

#define HR_CACHE_PIDS  16
#define HR_CACHE_NODES 8

/* One segment, as of now; each number is read by itself. */
struct hr_cache_info {
    size_t size;       /* sizeof, set by the caller */
    char name[64];     /* "" where the cache is private to a run */
    char dataset[512]; /* what it was made for, for people to read: a path, or an identity */
    char path[256];    /* of the file that is the segment */
    int damaged;       /* non-zero: it cannot be used; `problem` says why, and the rest is 0
                          but for allocated_bytes and users */
    char problem[256];
    uint64_t size_bytes;                 /* of the name, as its first user said */
    uint64_t budget_bytes;               /* of items in this segment, at most */
    uint64_t allocated_bytes;            /* of memory, index and staging included */
    uint64_t used_bytes;                 /* of items */
    uint64_t items[3];                   /* by form */
    uint64_t staged;                     /* of the encoded ones, those that wait for a conversion */
    uint64_t source_bytes;               /* that the items' samples have on storage */
    uint64_t hits, misses;               /* since it was made */
    uint64_t saved_bytes;                /* that hits need not read from storage */
    uint64_t refused;                    /* items that did not fit */
    int users;                           /* live processes, or loaders in them */
    int64_t pids[HR_CACHE_PIDS];         /* of the first ones */
    uint64_t huge_bytes;                 /* of allocated_bytes, in huge pages */
    uint64_t node_bytes[HR_CACHE_NODES]; /* by NUMA node, estimated from a sample of pages */
    int form;                            /* what it converts to now: enum hr_form */
    int form_asked;                      /* HR_FORM_AUTO: it was chosen by what follows */
    double prepare_us[3];                /* one sample, by form; 0: not measured yet */
    double convert_us[3];                /* one item to that form; 0: not measured yet */
    double growth[3];                    /* bytes after over bytes before; 0: not yet */
    double read_us;                      /* one sample from storage; 0: not measured yet */
    uint64_t foreign; /* times an item had a tag that nobody with the key file made */
};

struct hr_cache_list;

/* All segments of this user, and those of groups it belongs to; by name, then dataset.
 * Segments of runs that were killed are removed on the way. On success *out is the
 * caller's. Errors: -EACCES, -ENOMEM. Blocks for moments. */
HR_API HR_NODISCARD int hr_cache_list_create(struct hr_cache_list **out, struct hr_error *error);
HR_API size_t hr_cache_list_count(const struct hr_cache_list *list);
HR_API void hr_cache_list_get(const struct hr_cache_list *list, size_t i,
                              struct hr_cache_info *info);
HR_API void hr_cache_list_destroy(struct hr_cache_list **list);

/*
 * Drops the segments of a name, or of it the one of `dataset` (as hr_cache_info tells
 * it; NULL: all). Segments in use are left, unless `force`: then their users go on
 * with what they have mapped, and the memory is given back when the last one ends.
 * *freed_bytes and *left, which may be NULL: what was given back, and segments that
 * were left. Errors: -ENOENT: no such name or dataset.
 */
HR_API HR_NODISCARD int hr_cache_drop(const char *name, const char *dataset, int force,
                                      uint64_t *freed_bytes, uint64_t *left,
                                      struct hr_error *error);

/* One server of a list of hosts. */
struct hr_cache_server {
    size_t size;           /* sizeof, set by the caller */
    char name[256];        /* as in the list, with its port */
    int is_self;           /* non-zero: this machine's own */
    int is_up;             /* non-zero: it answered; else what follows the budget is 0 */
    char problem[256];     /* why it did not, with the remedy; "" where it did */
    uint64_t budget_bytes; /* of items, as the text says */
    char version[32];      /* of memcached */
    uint64_t limit_bytes;  /* of its memory (-m) */
    uint64_t used_bytes;   /* of it, by items with their keys and headers, whosever they are */
    uint64_t items;
    uint64_t evictions;      /* items that it gave up for others since it was started */
    int evicts;              /* non-zero: it does so when it is full: it was started without -M */
    uint64_t item_max_bytes; /* larger items are refused (-I) */
    uint64_t uptime_s;
};

struct hr_cache_servers;

/*
 * Asks the servers of a list of hosts, "memcached:...", what they are, one after the other,
 * each for the list's `timeout` at most. On success, also where none answers, *out is the
 * caller's. Errors: -EINVAL, -ENOTSUP: the text; -EACCES and others: the password's file;
 * -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_cache_servers_create(struct hr_cache_servers **out, const char *text,
                                                struct hr_error *error);
HR_API size_t hr_cache_servers_count(const struct hr_cache_servers *servers);

/* Server `i` (< count), in the order of the list. */
HR_API void hr_cache_servers_get(const struct hr_cache_servers *servers, size_t i,
                                 struct hr_cache_server *server);

/* Why none of them is marked as this machine's own although it may be one, such as that
 * several are; "": it is one of them, or none. Lives as long as `servers`. */
HR_API const char *hr_cache_servers_self_problem(const struct hr_cache_servers *servers);
HR_API void hr_cache_servers_destroy(struct hr_cache_servers **servers);

struct hr_cache_warm_report {
    size_t size;         /* sizeof, set by the caller */
    uint64_t samples;    /* of the dataset */
    uint64_t cached;     /* of them, now in the cache */
    uint64_t read_bytes; /* by this call */
    uint64_t used_bytes; /* of the segment */
    uint64_t items[3];   /* by form, in the segment */
    uint64_t bad;        /* samples that could not be read */
};

/*
 * Fills a named cache with a dataset ahead of its first run, converting as `spec`
 * asks, on `threads` threads (0: the cores of this process). Progress counts samples.
 * Samples that do not fit are left out, and those that are damaged; *report, which may
 * be NULL, tells how many, also where the call was cancelled: what is in stays. Errors:
 * -EINVAL: the spec, or one without a name; -ECANCELED; -EMFILE; those of hr_cache_open.
 * Blocks.
 */
HR_API HR_NODISCARD int hr_cache_warm(struct hr_dataset *dataset, const char *spec, int threads,
                                      hr_progress_fn progress, void *progress_arg,
                                      struct hr_cache_warm_report *report, struct hr_error *error);

/* ---- keeping something of one's own ---- */

struct hr_cache;

struct hr_cache_options {
    size_t size;          /* sizeof(struct hr_cache_options) */
    const char *spec;     /* as above; copied */
    const char *identity; /* tells what is kept from all else under the name: another
                             identity is another segment. Copied; not empty */
    const char *run;      /* private caches: whose it is, as hr_cache_run tells; NULL:
                             this process's run */
    uint64_t items;       /* that there may be at most */
};

HR_API void hr_cache_options_init(struct hr_cache_options *options, size_t size);

static inline void hr_cache_options_default(struct hr_cache_options *options)
{
    hr_cache_options_init(options, sizeof *options);
}

/* Longest text of hr_cache_run, its end included. */
#define HR_CACHE_RUN 64

/*
 * The run that this process belongs to: of a rank (world_size > 1) that of the
 * process which started it (torchrun, mpirun, srun), so that the ranks of a host agree;
 * else this process. A parent gives the text to the worker processes that it starts.
 */
HR_API void hr_cache_run(char out[HR_CACHE_RUN], int world_size);

/*
 * Opens a cache, or makes it. On success *out is the caller's. After a fork the child
 * opens its own. Errors: -EINVAL names what is wrong in the spec; -ENOSPC: the budget
 * is larger than memory, the memory limit of the process's group or the file system of
 * shared memory, and the message says which and what to raise; -EACCES: another user's;
 * -EBUSY: in use by an incompatible version; -ENOMEM. Blocks for moments.
 */
HR_API HR_NODISCARD int hr_cache_open(struct hr_cache **out, const struct hr_cache_options *options,
                                      struct hr_error *error);

/* Ends the use; a private cache goes with its last user. Values got before end here.
 * Accepts NULL. */
HR_API void hr_cache_close(struct hr_cache **cache);

/* A value, read-only, where it lies in shared memory or in `copy`. */
struct hr_cache_value {
    const void *bytes; /* 64-byte aligned */
    size_t length;
    void *copy; /* private to the library */
};

/*
 * Looks a key up. 1: *value is there, valid until hr_cache_value_clear, and its
 * checksum was right. 0: it is not there, and the caller has announced that it makes
 * it: it ends with hr_cache_put or hr_cache_give_up. Where somebody else is making it
 * that is waited for, `wait_ms` at most; then it is 0 as well. -EINTR: a signal handler
 * ran while it slept. Any thread.
 */
HR_API HR_NODISCARD int hr_cache_get(struct hr_cache *cache, const void *key, size_t key_length,
                                     int wait_ms, struct hr_cache_value *value);

/*
 * Non-zero where the bytes have been those of the value until now; to be asked after their last
 * use, and before hr_cache_value_clear. 0: somebody truncated the segment's file meanwhile, and
 * what was cut off has read as zeros: what was made of the bytes is to be thrown away. Any thread.
 *
 * To touch such bytes is SIGBUS, so hr_cache_open and loaders with a shared cache install a
 * handler of that signal (sigaction, SA_SIGINFO and SA_ONSTACK), once in a process. It maps zeros
 * where a segment was; each other SIGBUS gets to the handler that was there before, or ends
 * the process as it did. A handler that is installed later, and does not pass the signal on,
 * takes this away.
 */
HR_API HR_NODISCARD int hr_cache_value_is_whole(struct hr_cache *cache,
                                                const struct hr_cache_value *value);

HR_API void hr_cache_value_clear(struct hr_cache_value *value);

/* A piece of a value that is put together of several. */
struct hr_cache_piece {
    const void *bytes;
    size_t length;
};

/* Keeps a value: 1, or 0 where there is no room for it (processes that wait for it may
 * still get it), it is there already, or it is empty. Any thread. Errors: -EFBIG: 4 GiB or more. */
HR_API int hr_cache_put(struct hr_cache *cache, const void *key, size_t key_length,
                        const struct hr_cache_piece *pieces, size_t piece_count);

/* Announces that the value will not come. Any thread. */
HR_API void hr_cache_give_up(struct hr_cache *cache, const void *key, size_t key_length);

/* The segment that the cache lives in. */
HR_API void hr_cache_get_info(struct hr_cache *cache, struct hr_cache_info *info);

#ifdef __cplusplus
}
#endif

#endif
