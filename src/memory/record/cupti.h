/*
 * The part of CUPTI used here (NVIDIA's library that reports the work of CUDA devices): its
 * functions, loaded at run time, and the offsets of the members read from its activity records.
 *
 * Source: NVIDIA's CUPTI reference, chapter "Activity API". The offsets are those of the structures
 * of CUDA 11.8, 12.1, 12.9 and 13.5, which agree: later versions add members at the end.
 * tests/unit/memory/record/test_cupti_layout.c compares them with the header where one is
 * installed.
 */
#ifndef HR_MEMORY_RECORD_CUPTI_H
#define HR_MEMORY_RECORD_CUPTI_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

enum {
    HR__CUPTI_OLDEST = 18,              /* cuptiGetVersion of CUDA 11.8 */
    HR__CUPTI_OTHER_SUBSCRIBER = 39,    /* CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED */
    HR__CUPTI_INSUFFICIENT_RIGHTS = 35, /* CUPTI_ERROR_INSUFFICIENT_PRIVILEGES */
    HR__CUPTI_CORRELATION = 5,          /* CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2; Kineto: 0, 1 */
    HR__CUPTI_FLUSH_FORCED = 1,         /* CUPTI_ACTIVITY_FLAG_FLUSH_FORCED */
};

/* CUpti_ActivityKind. */
enum hr__cupti_kind {
    HR__CUPTI_MEMCPY = 1,
    HR__CUPTI_MEMSET = 2,
    HR__CUPTI_DRIVER = 4, /* API calls: required for correlations */
    HR__CUPTI_RUNTIME = 5,
    HR__CUPTI_KERNEL = 10,   /* CONCURRENT_KERNEL: kernels may still overlap */
    HR__CUPTI_MEMCPY2 = 22,  /* between devices */
    HR__CUPTI_EXTERNAL = 39, /* EXTERNAL_CORRELATION */
    HR__CUPTI_GRAPH = 51,    /* GRAPH_TRACE: one record per launched graph */
};

/* Member offsets in a record of work; members are 4 bytes, but begin and end are 8. */
struct hr__cupti_layout {
    uint8_t kind; /* enum hr__cupti_kind */
    uint8_t begin, end, device, correlation;
};

#define HR__CUPTI_LAYOUTS                                                                          \
    {                                                                                              \
        {HR__CUPTI_KERNEL, 16, 24, 40, 92}, {HR__CUPTI_MEMCPY, 16, 24, 32, 44},                    \
            {HR__CUPTI_MEMSET, 16, 24, 32, 44}, {HR__CUPTI_MEMCPY2, 16, 24, 32, 60},               \
            {HR__CUPTI_GRAPH, 8, 16, 24, 4},                                                       \
    }

/* Member offsets in an EXTERNAL_CORRELATION record: u32 kind of the ids, u64 id, u32 number of the
 * API call. */
enum {
    HR__CUPTI_EXTERNAL_KIND = 4,
    HR__CUPTI_EXTERNAL_ID = 8,
    HR__CUPTI_EXTERNAL_CORRELATION = 16,
};

/* Functions return a CUptiResult: 0 is success. */
struct hr__cupti {
    int (*version)(uint32_t *version);
    int (*result_text)(int result, const char **text);
    int (*subscribe)(void **subscriber, void (*callback)(void *, int, uint32_t, const void *),
                     void *userdata);
    int (*unsubscribe)(void *subscriber);
    int (*register_buffers)(void (*requested)(uint8_t **, size_t *, size_t *),
                            void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t));
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*flush)(uint32_t flags);
    int (*next_record)(uint8_t *buffer, size_t bytes, void **record);
    int (*dropped)(void *context, uint32_t stream, size_t *count);
    int (*push)(int kind, uint64_t id);
    int (*pop)(int kind, uint64_t *last);
    int (*timestamp)(uint64_t *ns);
    /* NULL if the library lacks them. */
    int (*flush_period)(uint32_t ms);
    int (*register_clock)(uint64_t (*clock)(void));
};

/*
 * Loads CUPTI: the library the process has already loaded, else the system's or that of a package
 * beside PyTorch's libraries; HEADRACE_CUPTI_LIBRARY overrides this. Never unloads it, because it
 * has threads of its own. Errors: -ENOTSUP: no library, or too old a version.
 */
int hr__cupti_load(struct hr__cupti *cupti, struct hr_error *error);

/* Returns the message of a result; static. */
const char *hr__cupti_text(const struct hr__cupti *cupti, int result);

/* Waits until all CUDA devices that this process uses have finished their work. */
void hr__cupti_wait_for_devices(void);

#endif
