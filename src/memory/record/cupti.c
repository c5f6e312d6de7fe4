/* Loads CUPTI, and waits for CUDA devices through NVIDIA's driver; see cupti.h. Prototypes follow
 * NVIDIA's CUPTI and CUDA Driver API references. */
#include "memory/record/cupti.h"

#include "base/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct symbol {
    const char *name;
    size_t offset;
};

static const struct symbol needed[] = {
    {"cuptiGetVersion", offsetof(struct hr__cupti, version)},
    {"cuptiGetResultString", offsetof(struct hr__cupti, result_text)},
    {"cuptiSubscribe", offsetof(struct hr__cupti, subscribe)},
    {"cuptiUnsubscribe", offsetof(struct hr__cupti, unsubscribe)},
    {"cuptiActivityRegisterCallbacks", offsetof(struct hr__cupti, register_buffers)},
    {"cuptiActivityEnable", offsetof(struct hr__cupti, enable)},
    {"cuptiActivityDisable", offsetof(struct hr__cupti, disable)},
    {"cuptiActivityFlushAll", offsetof(struct hr__cupti, flush)},
    {"cuptiActivityGetNextRecord", offsetof(struct hr__cupti, next_record)},
    {"cuptiActivityGetNumDroppedRecords", offsetof(struct hr__cupti, dropped)},
    {"cuptiActivityPushExternalCorrelationId", offsetof(struct hr__cupti, push)},
    {"cuptiActivityPopExternalCorrelationId", offsetof(struct hr__cupti, pop)},
    {"cuptiGetTimestamp", offsetof(struct hr__cupti, timestamp)},
    {NULL, 0},
};

static const struct symbol wanted[] = {
    {"cuptiActivityFlushPeriod", offsetof(struct hr__cupti, flush_period)},
    {"cuptiActivityRegisterTimestampCallback", offsetof(struct hr__cupti, register_clock)},
    {NULL, 0},
};

/* Library names, and the folders where NVIDIA's PyPI packages install them, relative to
 * torch/lib. */
static const char *const names[][2] = {
    {"libcupti.so.13", "../../nvidia/cu13/lib"},
    {"libcupti.so.12", "../../nvidia/cuda_cupti/lib"},
    {"libcupti.so.11.8", "../../nvidia/cuda_cupti/lib"},
};

#define NAMES (sizeof names / sizeof *names)

/* Fills a table of functions; returns the name of the first missing one, or NULL. */
static const char *fill(void *table, void *library, const struct symbol *symbols)
{
    const char *missing = NULL;
    for (const struct symbol *s = symbols; s->name; s++) {
        void *address = dlsym(library, s->name);
        memcpy((char *)table + s->offset, &address, sizeof address);
        if (!address && !missing)
            missing = s->name;
    }
    return missing;
}

/* Copies the folder of a PyTorch library loaded in this process to path[]; 1: found. */
static int look_for_torch(struct dl_phdr_info *info, size_t size, void *arg)
{
    char *path = arg;
    const char *name = strrchr(info->dlpi_name, '/');
    if (!name || strncmp(name, "/libtorch", 9) || (size_t)(name - info->dlpi_name) >= PATH_MAX)
        return 0;
    memcpy(path, info->dlpi_name, (size_t)(name - info->dlpi_name));
    path[name - info->dlpi_name] = 0;
    return 1;
}

static void *find_library(void)
{
    char folder[PATH_MAX], path[PATH_MAX + 64];
    const char *named = secure_getenv("HEADRACE_CUPTI_LIBRARY");
    void *library = NULL;
    if (named && *named)
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    /* A library already loaded belongs to the CUDA version that the process uses. */
    for (size_t i = 0; i < NAMES && !library; i++)
        library = dlopen(names[i][0], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library && dl_iterate_phdr(look_for_torch, folder))
        for (size_t i = 0; i < NAMES && !library; i++) {
            snprintf(path, sizeof path, "%s/%s/%s", folder, names[i][1], names[i][0]);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
    for (size_t i = 0; i < NAMES && !library; i++)
        library = dlopen(names[i][0], RTLD_NOW | RTLD_LOCAL);
    return library;
}

int hr__cupti_load(struct hr__cupti *cupti, struct hr_error *error)
{
    void *library = find_library();
    uint32_t version = 0;
    if (!library)
        return hr__fail(error, -ENOTSUP,
                        "no CUPTI (libcupti.so) here: accelerators' times are not known; it comes "
                        "with the CUDA toolkit and with the package nvidia-cuda-cupti");
    const char *missing = fill(cupti, library, needed);
    fill(cupti, library, wanted);
    /* Without a driver the version is unknown; subscribing then fails. */
    if (!missing && !cupti->version(&version) && version < HR__CUPTI_OLDEST)
        missing = "what CUDA 11.8 has";
    if (missing)
        return hr__fail(error, -ENOTSUP,
                        "the CUPTI of this process (version %u) lacks %s: accelerators' times are "
                        "not known; CUDA 11.8 or later is needed",
                        version, missing);
    return 0;
}

const char *hr__cupti_text(const struct hr__cupti *cupti, int result)
{
    const char *text = NULL;
    return cupti->result_text(result, &text) || !text ? "unknown result" : text;
}

/* ---- the driver ---- */

#define DEVICES_MOST 64

struct cupti_driver {
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*state)(int device, unsigned *flags, int *is_active);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*synchronize)(void);
};

static const struct symbol of_driver[] = {
    {"cuDeviceGetCount", offsetof(struct cupti_driver, count)},
    {"cuDeviceGet", offsetof(struct cupti_driver, get)},
    {"cuDevicePrimaryCtxGetState", offsetof(struct cupti_driver, state)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct cupti_driver, retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct cupti_driver, release)},
    {"cuCtxPushCurrent_v2", offsetof(struct cupti_driver, push)},
    {"cuCtxPopCurrent_v2", offsetof(struct cupti_driver, pop)},
    {"cuCtxSynchronize", offsetof(struct cupti_driver, synchronize)},
    {NULL, 0},
};

static void wait_for_device(const struct cupti_driver *driver, int ordinal)
{
    void *context;
    unsigned flags;
    int device, is_active = 0;
    if (driver->get(&device, ordinal) || driver->state(device, &flags, &is_active) || !is_active ||
        driver->retain(&context, device))
        return;
    if (!driver->push(context)) {
        driver->synchronize();
        driver->pop(&context);
    }
    driver->release(device);
}

void hr__cupti_wait_for_devices(void)
{
    const char *named = secure_getenv("HEADRACE_CUDA_LIBRARY");
    struct cupti_driver driver;
    int count = 0;
    /* If the driver is not loaded, no device is working. */
    void *library = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return;
    if (!fill(&driver, library, of_driver) && !driver.count(&count))
        for (int i = 0; i < count && i < DEVICES_MOST; i++)
            wait_for_device(&driver, i);
    dlclose(library);
}
