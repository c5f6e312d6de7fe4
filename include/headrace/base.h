/*
 * Declarations that every Headrace header needs: export macros, the version, errors and logging.
 *
 * Errors: a function that can fail returns 0 on success or a negative errno, and
 * the caller must check it. Details go to a struct hr_error that the caller owns;
 * the pointer may be NULL. There is no global error state, so threads never see
 * each other's messages.
 *
 * Structs whose first member is `size` may grow in later versions. To pass
 * options, a program calls hr_..._options_default, which sets all defaults and
 * `size`, and then changes the members it needs. To receive results, it sets
 * `size` to the sizeof of its struct; the library fills in at most that many bytes.
 * A program and a library of different versions therefore work together: members
 * that only the library knows keep their defaults. If the program changes a
 * member that only it knows, the call fails with -EINVAL.
 */
#ifndef HEADRACE_BASE_H
#define HEADRACE_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "Headrace runs on Linux"
#endif

#define HR_API       __attribute__((visibility("default")))
#define HR_NODISCARD __attribute__((warn_unused_result))

#define HR_VERSION_MAJOR 0
#define HR_VERSION_MINOR 1
#define HR_VERSION_PATCH 0

/* Size of the longest error message, with its terminating zero. */
#define HR_ERROR_MESSAGE_BYTES 1024

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Details of a failure: what failed, where, and what to do about it.
 * Owned by the caller. A function that succeeds does not change it.
 */
struct hr_error {
    int code;                             /* negative errno, as returned */
    char message[HR_ERROR_MESSAGE_BYTES]; /* UTF-8, one line, zero-terminated */
};

enum hr_log_level {
    HR_LOG_WARNING = 1, /* something the user should know; the run continues */
    HR_LOG_INFO = 2,
    HR_LOG_DEBUG = 3,
};

/* Receives one log line, without a newline. Called from any thread, never while a
 * Headrace lock is held. It must not call back into the object that logged. */
typedef void (*hr_log_fn)(void *arg, enum hr_log_level level, const char *message);

/*
 * Sets the callback for the library's log messages. NULL (the default) drops
 * them: the library itself never prints. Process-wide, thread safe.
 */
HR_API void hr_log_set(hr_log_fn fn, void *arg);

/* "MAJOR.MINOR.PATCH"; static storage. */
HR_API const char *hr_version(void);

/* Returns the number of cores that this process may use, at least 1: its CPU affinity, limited by
 * the CPU quota (rounded up) of its control groups, version 1 or 2. */
HR_API int hr_cores(void);

/* What this process may use of its machine. */
struct hr_machine {
    size_t size;               /* sizeof(struct hr_machine), set by the caller */
    int cores;                 /* as hr_cores() */
    int nodes;                 /* NUMA nodes with memory; 0: unknown */
    uint64_t memory_bytes;     /* of the machine, or of its tightest control group; 0: unknown */
    uint64_t page_cache_bytes; /* how much of it the page cache can fill now: what is not in use
                                  for anything else, by others or by the control group */
    char processor[128];       /* the name of the processor */
    int page_generations;      /* non-zero: the kernel evicts pages by generations (MGLRU) */
};

/* Reads small files of /proc and /sys. Any thread. */
HR_API void hr_machine_get(struct hr_machine *out);

#ifdef __cplusplus
}
#endif

#endif
