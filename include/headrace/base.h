/*
 * What every Headrace header needs: export marks, the version, errors, the
 * log callback.
 *
 * Errors: a function that can fail returns 0 or a negative errno and must be
 * checked. Detail goes to a caller-owned struct hr_error, which may be NULL.
 * There is no global error state, so threads never see each other's messages.
 *
 * Structs whose first member is `size` may grow in later versions. Of options a
 * program sets what it knows after hr_..._options_default, which fills in the
 * rest and the size; of results it sets `size` to its sizeof and gets that much.
 * Programs and libraries of different ages work together: members that only
 * the library knows keep their defaults, and one that only the program knows is
 * refused (-EINVAL) unless it was left as it was.
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

/* Longest message of an error, with its terminating zero. */
#define HR_ERROR_MESSAGE_BYTES 1024

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Detail of a failure: what failed, where, and what to do about it.
 * Owned by the caller; a function that succeeds leaves it untouched.
 */
struct hr_error {
    int code;                             /* negative errno, as returned */
    char message[HR_ERROR_MESSAGE_BYTES]; /* UTF-8, one line, zero-terminated */
};

enum hr_log_level {
    HR_LOG_WARNING = 1, /* something the person should know; the run goes on */
    HR_LOG_INFO = 2,
    HR_LOG_DEBUG = 3,
};

/* Receives one line without a newline. Called from any thread, never while a
 * Headrace lock is held; must not call back into the object that logged. */
typedef void (*hr_log_fn)(void *arg, enum hr_log_level level, const char *message);

/*
 * Sets where the library's messages go; NULL (the default) drops them: the
 * library itself never prints. Process-wide, thread safe.
 */
HR_API void hr_log_set(hr_log_fn fn, void *arg);

/* "0.1.0"; static storage. */
HR_API const char *hr_version(void);

/* Cores that this process may use: by its affinity, and by the CPU quota of its control groups
 * (of either version, rounded up). At least 1. */
HR_API int hr_cores(void);

#ifdef __cplusplus
}
#endif

#endif
