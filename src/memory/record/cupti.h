/*
 * CUPTI, NVIDIA's library that tells what CUDA devices run, as far as it is used here: its
 * functions, loaded at run time, and the members of its activity records that are read, by
 * their offsets.
 *
 * Source: NVIDIA's CUPTI reference, chapter "Activity API"; the offsets are those of the
 * structures of CUDA 11.8, 12.1, 12.9 and 13.5, in which they are the same: later versions add
 * members at the end. tests/unit/memory/record/test_cupti_layout.c compares them with the header of
 * a machine that has one.
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
    HR__CUPTI_CORRELATION = 5,          /* CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2: others use */
    HR__CUPTI_FLUSH_FORCED = 1,         /* CUPTI_ACTIVITY_FLAG_FLUSH_FORCED */
};

/* CUpti_ActivityKind. */
enum hr__cupti_kind {
    HR__CUPTI_MEMCPY = 1,
    HR__CUPTI_MEMSET = 2,
    HR__CUPTI_DRIVER = 4, /* calls of the API: without them there are no correlations */
    HR__CUPTI_RUNTIME = 5,
    HR__CUPTI_KERNEL = 10,   /* CONCURRENT_KERNEL: kernels still run beside each other */
    HR__CUPTI_MEMCPY2 = 22,  /* between devices */
    HR__CUPTI_EXTERNAL = 39, /* EXTERNAL_CORRELATION */
    HR__CUPTI_GRAPH = 51,    /* GRAPH_TRACE: a launched graph as one */
};

/* Where the members of a record of work are; 4 bytes each but begin and end, which are 8. */
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

/* Of a record of EXTERNAL_CORRELATION: u32 whose ids, u64 the id, u32 the API call's number. */
enum {
    HR__CUPTI_EXTERNAL_KIND = 4,
    HR__CUPTI_EXTERNAL_ID = 8,
    HR__CUPTI_EXTERNAL_CORRELATION = 16,
};

/* Results are CUptiResult: 0 is success. */
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
    /* NULL where the library has none. */
    int (*flush_period)(uint32_t ms);
    int (*register_clock)(uint64_t (*clock)(void));
};

/*
 * Loads it: what the process has already, else what the system or a package beside PyTorch's
 * libraries has; HEADRACE_CUPTI_LIBRARY names another. Never unloaded: it has threads of its
 * own. Errors: -ENOTSUP: there is none, or an old one.
 */
int hr__cupti_load(struct hr__cupti *cupti, struct hr_error *error);

/* What a result means; static. */
const char *hr__cupti_text(const struct hr__cupti *cupti, int result);

/* Waits until all CUDA devices that this process uses have done what they were asked for. */
void hr__cupti_wait_for_devices(void);

#endif
