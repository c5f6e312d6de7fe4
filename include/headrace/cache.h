/*
 * Caches in memory that outlive an epoch, a process or a run.
 *
 * For an order that uses each sample once per epoch nothing is evicted, which gives the
 * fewest reads (VLDB'21, "Analyzing and Mitigating Data Stalls in DNN Training"). Loaders
 * with different orders that share a full cache evict what all of them use last. A text
 * describes a cache; it is the same in C, in Python and on the command line:
 *
 *   64GiB                       private: shared by the ranks and worker processes of
 *                               the run, freed when the last of them ends
 *   shm:NAME?size=64GiB         kept: the next run finds it full. One segment of shared
 *                               memory for each dataset; `size` limits all segments of
 *                               the name together
 *       &share=0.9              this dataset may use at most this share of `size`; default 1
 *       &group=NAME             readable and writable by a Unix group; default: the owner
 *       &form=auto              auto, encoded, indexed, coefficients, planes: how JPEGs are
 *                               stored
 *       &key_file=PATH          a file of 16 bytes or more that only the owner may read:
 *                               the key that authenticates items
 *
 *   disk:/DIRECTORY?size=1TiB   kept on a disk: the next run, and other processes, find it.
 *                               `size` limits all datasets in the directory together
 *       &share=0.9, &key_file=PATH    as above
 *       &form=encoded           as above; auto: files, or files with an index
 *
 *   64GiB,disk:/DIRECTORY?size=1TiB
 *   shm:NAME?size=64GiB,disk:/DIRECTORY?size=1TiB
 *                               two tiers, for loaders: what has no room in memory goes to the
 *                               disk; with private memory everything does
 *
 *   disk:/DIRECTORY?size=1TiB,memcached:HOST,...?size=64GiB
 *                               for loaders: what the hosts' memory has no room for is kept
 *                               on the disk of one of them
 *
 *   memcached:HOST,HOST,...?size=64GiB
 *                               several hosts: in memcached servers that already run on
 *                               them; all ranks of a job give the same text
 *       HOST                    name:port, 10.0.0.1:port, [fd00::1]:port; the default port
 *                               is 11211. HOST=32GiB sets that host's own size. Also the
 *                               absolute path of a Unix socket, for servers on one machine
 *       size=64GiB              limit on items for each host without a size of its own: at
 *                               most 0.75 of its memcached's memory (-m)
 *       &self=N                 which of the list this machine is, by index or entry;
 *                               HEADRACE_HOST sets it, too; default: found by address
 *       &socket=/PATH           connect to this machine's own server through this socket
 *       &user=NAME&password-file=PATH
 *                               a user, for servers with an authfile (memcached -Y); the
 *                               first line of PATH is the password
 *       &form=encoded           encoded, indexed, coefficients, planes: how JPEGs are stored
 *       &mtime=no               copies of the dataset on the hosts differ in modification
 *                               times; default yes: a changed file is another item
 *       &timeout=1s             limit on one whole request to a server: 10ms to 60s
 *       &meet=300s              how long to wait for all ranks: 1s to 86400s
 *       &key_file=PATH          as above; the same contents on all hosts
 *
 * When a name is full, whole segments that no process uses are dropped, least recently
 * used first.
 *
 * A loader takes the text in hr_loader_options.cache. The functions in this
 * header inspect and manage caches; hr_cache_open and those below it let a program keep its own
 * values in a cache, on several hosts too. These values are kept as they are, so form and mtime are
 * refused there, and meet is not used.
 *
 * Whoever may write to a segment, or can reach a server, is trusted with its contents: checksums
 * detect damage, not malice. A key file detects both.
 */
#ifndef HEADRACE_CACHE_H
#define HEADRACE_CACHE_H

#include <headrace/base.h>
#include <headrace/dataset.h>
#include <headrace/form.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of cache, by the text that describes them. */
enum hr_cache_kind {
    HR_CACHE_PRIVATE, /* a size alone */
    HR_CACHE_KEPT,    /* shm:NAME */
    HR_CACHE_HOSTS,   /* memcached:HOST,..., also with a disk before it */
    HR_CACHE_DISK,    /* disk:/DIRECTORY, alone */
};

/* Returns the kind of cache that `text` describes; for an invalid text, the kind that it begins
 * like. */
HR_API enum hr_cache_kind hr_cache_kind(const char *text);

/*
 * Computes how many bytes of one dataset a cache described by `text` may hold: for a named cache
 * its share, for several hosts and their disks and for shared memory before a disk the sum of all.
 * Errors: -EINVAL: `text` is invalid; the message says what is wrong and what to write; -ENOTSUP;
 * -ENOMEM.
 */
HR_API HR_NODISCARD int hr_cache_bytes(const char *text, uint64_t *bytes, struct hr_error *error);

/* ---- inspecting caches ---- */

#define HR_CACHE_PIDS  16
#define HR_CACHE_NODES 8

/* The items of one form in a segment, and what they cost. */
struct hr_cache_form {
    uint64_t items;
    double prepare_us; /* one sample; 0: not measured yet */
    double convert_us; /* one item to this form; 0: not measured yet */
    double growth;     /* bytes after over bytes before; 0: not measured yet */
};

/* One segment at this moment. Each number is read separately. */
struct hr_cache_info {
    size_t size;       /* sizeof, set by the caller */
    char name[64];     /* "" if the cache is private to a run; "disk" if it is on a disk */
    char dataset[512]; /* what it was made for, for people to read: a path, or an identity */
    char path[256];    /* path of the segment's file */
    int damaged;       /* non-zero: it cannot be used; `problem` says why, and all other
                          numbers except allocated_bytes and users are 0 */
    char problem[256];
    uint64_t size_bytes;                 /* of the name, as set by its first user */
    uint64_t budget_bytes;               /* limit on the items in this segment */
    uint64_t allocated_bytes;            /* memory, index and staging included */
    uint64_t used_bytes;                 /* size of the items */
    uint64_t items[3];                   /* as in `forms`, of the first three */
    uint64_t staged;                     /* items that wait for their conversion */
    uint64_t source_bytes;               /* size of the items' samples on storage */
    uint64_t hits, misses;               /* since the segment was made */
    uint64_t saved_bytes;                /* bytes that hits did not read from storage */
    uint64_t refused;                    /* items that did not fit */
    int users;                           /* live processes, or loaders in them */
    int64_t pids[HR_CACHE_PIDS];         /* process ids of the first users */
    uint64_t huge_bytes;                 /* of allocated_bytes, in huge pages */
    uint64_t node_bytes[HR_CACHE_NODES]; /* by NUMA node, estimated from a sample of pages */
    int form;                            /* form that it converts to now: enum hr_form */
    int form_asked;                      /* HR_FORM_AUTO: chosen by the costs of the forms */
    double prepare_us[3], convert_us[3], growth[3]; /* as in `forms`, of the first three */
    double read_us;   /* one sample from storage; 0: not measured yet */
    uint64_t foreign; /* number of times an item had a tag not made with the key file */
    struct hr_cache_form forms[HR_FORMS]; /* by enum hr_form */
    int on_disk; /* non-zero: it is on a disk: allocated_bytes are the disk's, and foreign is the
                    number of items that were not as they had been written, and were dropped */
    unsigned orders;  /* by how many orders' next uses it evicts now; 0: it evicts nothing */
    uint64_t evicted; /* items so far */
};

struct hr_cache_list;

/* Lists all segments of this user and of the groups the user belongs to, sorted by name, then
 * dataset. Removes segments of runs that were killed. On success the caller owns *out.
 * Errors: -EACCES, -ENOMEM. Blocks briefly. */
HR_API HR_NODISCARD int hr_cache_list_create(struct hr_cache_list **out, struct hr_error *error);

/* The same of one cache: its name, or for one on disk "disk:/DIRECTORY" (options may follow). NULL:
 * all in memory. Further errors: -EINVAL. */
HR_API HR_NODISCARD int hr_cache_list_create_of(struct hr_cache_list **out, const char *name,
                                                struct hr_error *error);
HR_API size_t hr_cache_list_count(const struct hr_cache_list *list);
HR_API void hr_cache_list_get(const struct hr_cache_list *list, size_t i,
                              struct hr_cache_info *info);
HR_API void hr_cache_list_destroy(struct hr_cache_list **list);

/*
 * Drops the segments of a name, or of "disk:/DIRECTORY", or only the one of `dataset` (as in
 * hr_cache_info.dataset; NULL: all). Keeps segments in use unless `force` is set: then their users
 * continue with the memory they have mapped, which is freed when the last of them ends. Returns in
 * *freed_bytes the bytes freed, and in *left the number of segments kept; either may be NULL.
 * Errors: -ENOENT: no such name or dataset.
 */
HR_API HR_NODISCARD int hr_cache_drop(const char *name, const char *dataset, int force,
                                      uint64_t *freed_bytes, uint64_t *left,
                                      struct hr_error *error);

struct hr_cache_verify_report {
    size_t size;      /* sizeof, set by the caller */
    uint64_t items;   /* items that were read */
    uint64_t bytes;   /* their bytes */
    uint64_t bad;     /* items that could not be read, or whose bytes are wrong */
    uint64_t skipped; /* items made with a key file, when `spec` names none */
};

/*
 * Reads all items of a cache on disk, "disk:/DIRECTORY", and compares them with their checksums, on
 * `threads` threads (0: the cores of this process). Drops bad items: their samples are read from
 * their source again. `&key_file=PATH` in the text serves for items that were made with it.
 * Progress counts entries of the index. Fills in *report, which may be NULL. Errors: -EINVAL: the
 * text; -ENOENT: no such cache; -ECANCELED; -EACCES, -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_cache_verify(const char *spec, int threads, hr_progress_fn progress,
                                        void *progress_arg, struct hr_cache_verify_report *report,
                                        struct hr_error *error);

/* One server of a list of hosts. */
struct hr_cache_server {
    size_t size;           /* sizeof, set by the caller */
    char name[256];        /* as in the list, with its port */
    int is_self;           /* non-zero: this machine's own */
    int is_up;             /* non-zero: it answered; otherwise all figures after the budget are 0 */
    char problem[256];     /* why it did not answer, and the remedy; "" if it did */
    uint64_t budget_bytes; /* limit on items, from the text */
    char version[32];      /* of memcached */
    uint64_t limit_bytes;  /* size of its memory (-m) */
    uint64_t used_bytes;   /* part of it used by items of any owner, keys and headers included */
    uint64_t items;
    uint64_t evictions;      /* items evicted since the server started */
    int evicts;              /* non-zero: it evicts when full: it was started without -M */
    uint64_t item_max_bytes; /* larger items are refused (-I) */
    uint64_t uptime_s;
};

struct hr_cache_servers;

/*
 * Asks each server of a "memcached:..." text for its state, one after the other, waiting for
 * the text's `timeout` at most for each. Succeeds even if no server answers; the caller then
 * owns *out. Errors: -EINVAL, -ENOTSUP: the text; -EACCES and others: the password file;
 * -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_cache_servers_create(struct hr_cache_servers **out, const char *text,
                                                struct hr_error *error);
HR_API size_t hr_cache_servers_count(const struct hr_cache_servers *servers);

/* Server `i` (< count), in the order of the list. */
HR_API void hr_cache_servers_get(const struct hr_cache_servers *servers, size_t i,
                                 struct hr_cache_server *server);

/* Returns why no server is marked as this machine's own although one may be (for example,
 * several match); "" if one is marked or none matches. Valid as long as `servers`. */
HR_API const char *hr_cache_servers_self_problem(const struct hr_cache_servers *servers);
HR_API void hr_cache_servers_destroy(struct hr_cache_servers **servers);

struct hr_cache_warm_report {
    size_t size;                      /* sizeof, set by the caller */
    uint64_t samples;                 /* in the dataset */
    uint64_t cached;                  /* samples now in the cache */
    uint64_t read_bytes;              /* by this call */
    uint64_t used_bytes;              /* of the segment */
    uint64_t items[3];                /* in the segment, of the first three forms */
    uint64_t bad;                     /* samples that could not be read */
    uint64_t items_of_form[HR_FORMS]; /* in the segment, by enum hr_form */
};

/*
 * Fills a named cache with a dataset before its first run, converting as `spec`
 * asks, on `threads` threads (0: the cores of this process). With form=auto it chooses forms as
 * a loader does, by typical costs. Progress counts samples.
 * Leaves out samples that do not fit or are damaged. Fills in *report, which may
 * be NULL, even if the call was cancelled: items already stored stay. Errors:
 * -EINVAL: the spec is invalid or has no name; -ECANCELED; -EMFILE; those of
 * hr_cache_open. Blocks.
 */
HR_API HR_NODISCARD int hr_cache_warm(struct hr_dataset *dataset, const char *spec, int threads,
                                      hr_progress_fn progress, void *progress_arg,
                                      struct hr_cache_warm_report *report, struct hr_error *error);

/* ---- keeping a program's own values ---- */

struct hr_cache;

struct hr_cache_options {
    size_t size;          /* sizeof(struct hr_cache_options) */
    const char *spec;     /* as above; copied */
    const char *identity; /* distinguishes this program's values from others under the same
                             name: each identity has its own segment. Copied; not empty */
    const char *run;      /* private caches: the run it belongs to, from hr_cache_run; NULL:
                             this process's run */
    uint64_t items;       /* limit on the number of items */
};

/* Sets the defaults of a struct of `size` bytes, of any version. C programs call the next
 * function. */
HR_API void hr_cache_options_init(struct hr_cache_options *options, size_t size);

static inline void hr_cache_options_default(struct hr_cache_options *options)
{
    hr_cache_options_init(options, sizeof *options);
}

/* Size of the longest text of hr_cache_run, with its terminating zero. */
#define HR_CACHE_RUN 64

/*
 * Writes an identifier of the run that this process belongs to. A rank (world_size > 1)
 * uses the process that started it (torchrun, mpirun, srun), so that all ranks of a host
 * agree; otherwise it is this process. A parent passes the text to its worker processes.
 */
HR_API void hr_cache_run(char out[HR_CACHE_RUN], int world_size);

/*
 * Opens a cache; makes it if it does not exist. On success the caller owns *out. After a
 * fork, the child must open its own. Errors: -EINVAL names what is wrong in the spec;
 * -ENOSPC: the budget exceeds the memory, the memory limit of the process's control group
 * or the file system of shared memory; the message says which, and what to raise; -EACCES:
 * it belongs to another user; -EBUSY: in use by an incompatible version; -ENOMEM. Blocks
 * briefly.
 */
HR_API HR_NODISCARD int hr_cache_open(struct hr_cache **out, const struct hr_cache_options *options,
                                      struct hr_error *error);

/* Closes the cache; a private cache is freed with its last user. Values from hr_cache_get
 * become invalid. Accepts NULL. */
HR_API void hr_cache_close(struct hr_cache **cache);

/*
 * On several hosts: a value is on the server that its key, the list and the budgets choose, for all
 * programs with the same list and identity. Opening connects to no server. hr_cache_get waits for
 * no other process. A server that does not answer has no values and takes none, for a while; one
 * that holds its budget, whoever filled it, takes none. hr_cache_get_info asks the servers; its
 * counters are of this handle.
 */

/* A read-only value: `bytes` points into shared memory or to `copy`. */
struct hr_cache_value {
    const void *bytes; /* 64-byte aligned */
    size_t length;
    void *copy; /* private to the library */
};

/*
 * Looks up a key. Returns 1 if found: *value is valid until hr_cache_value_clear, and its
 * checksum was correct. Returns 0 if not found: the caller must now make the value and call
 * hr_cache_put or hr_cache_give_up. If another process or thread is making the value, waits for
 * it for at most `wait_ms`, then also returns 0. Returns -EINTR if a signal handler ran
 * during the wait. Any thread.
 */
HR_API HR_NODISCARD int hr_cache_get(struct hr_cache *cache, const void *key, size_t key_length,
                                     int wait_ms, struct hr_cache_value *value);

/*
 * Returns non-zero if the bytes were intact until now. Call it after the last use of the bytes and
 * before hr_cache_value_clear. Returns 0 if somebody truncated the segment's file meanwhile: the
 * part cut off was read as zeros, and results computed from it must be discarded. Any thread.
 *
 * Reading truncated memory raises SIGBUS. hr_cache_open, and loaders with a shared cache, therefore
 * install a SIGBUS handler (sigaction, SA_SIGINFO and SA_ONSTACK), once per process, that maps
 * zeros over the segment. It passes every other SIGBUS to the previous handler, or lets it end the
 * process as before. A handler installed later must pass the signal on, or this protection
 * is lost.
 */
HR_API HR_NODISCARD int hr_cache_value_is_whole(struct hr_cache *cache,
                                                const struct hr_cache_value *value);

HR_API void hr_cache_value_clear(struct hr_cache_value *value);

/* One of several pieces that together make up a value. */
struct hr_cache_piece {
    const void *bytes;
    size_t length;
};

/* Stores a value. Returns 1, or 0 if there is no room (processes that wait for it may
 * still get it), if it is already there, or if it is empty. Any thread. Errors: -EFBIG: 4 GiB
 * or more, or more than the server's items may have. */
HR_API int hr_cache_put(struct hr_cache *cache, const void *key, size_t key_length,
                        const struct hr_cache_piece *pieces, size_t piece_count);

/* Announces that the caller will not make the value. Any thread. */
HR_API void hr_cache_give_up(struct hr_cache *cache, const void *key, size_t key_length);

/* Describes the segment that holds this cache. */
HR_API void hr_cache_get_info(struct hr_cache *cache, struct hr_cache_info *info);

#ifdef __cplusplus
}
#endif

#endif
