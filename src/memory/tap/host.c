/*
 * Replaces malloc and its relatives if this library is preloaded (or linked before the C library).
 *
 * Each function calls the next one of its name (RTLD_NEXT), so that another allocator preloaded
 * after this library still works. An unreported block costs a comparison in malloc and one load in
 * free. Reported are blocks of `least` bytes and more, and blocks of PyTorch's CPU allocator of any
 * size: posix_memalign called from libc10 (only c10::alloc_cpu calls it; libc10's malloc and
 * realloc calls are for containers).
 *
 * Looking up the next functions may allocate; an arena serves these allocations. Functions that a C
 * library implements with the others are implemented with ours here, so that each block is seen
 * exactly once.
 */
#include "memory/tap/host.h"
#include "memory/tap/tap.h"

#include <headrace/memory.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT      __attribute__((visibility("default")))
#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define ARENA_BYTES 16384

/* ---- the next functions ---- */

struct next {
    void *(*_Atomic malloc)(size_t);
    void (*_Atomic free)(void *);
    void *(*_Atomic calloc)(size_t, size_t);
    void *(*_Atomic realloc)(void *, size_t);
    int (*_Atomic posix_memalign)(void **, size_t, size_t);
    void *(*_Atomic aligned_alloc)(size_t, size_t);
    void *(*_Atomic memalign)(size_t, size_t);
    void *(*_Atomic valloc)(size_t);
    void *(*_Atomic pvalloc)(size_t);
};

static struct next next;
static __thread int is_resolving __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t least = 65536;

void hr__tap_set_least(uint64_t bytes)
{
    atomic_store_explicit(&least, bytes ? bytes : 1, memory_order_relaxed);
}

#define NEXT(name) atomic_load_explicit(&next.name, memory_order_relaxed)

/* The arena: zeroed, never reused. A block's size is stored before it. */
static alignas(16) char arena[ARENA_BYTES];
static atomic_size_t arena_used;

static void *arena_alloc(size_t bytes)
{
    if (bytes > ARENA_BYTES)
        return NULL;
    size_t whole = 16 + (bytes + 15) / 16 * 16;
    size_t at = atomic_fetch_add(&arena_used, whole);
    if (at > ARENA_BYTES || whole > ARENA_BYTES - at)
        return NULL;
    memcpy(arena + at, &bytes, sizeof bytes);
    return arena + at + 16;
}

static int is_arena(const void *block)
{
    /* An empty block may be at its very end. */
    return (uintptr_t)block - (uintptr_t)arena <= ARENA_BYTES;
}

static void *arena_move(void *block, size_t bytes, void *to)
{
    size_t had;
    memcpy(&had, (char *)block - 16, sizeof had);
    return to ? memcpy(to, block, had < bytes ? had : bytes) : NULL;
}

/* Returns non-zero once the next functions are known, 0 while this thread is looking them up.
 * Several threads may do so: all find the same functions. */
static int resolve(void)
{
    static const char *const names[] = {"free",           "calloc",        "realloc",
                                        "posix_memalign", "aligned_alloc", "memalign",
                                        "valloc",         "pvalloc",       "malloc"};
    void *found[sizeof names / sizeof names[0]];
    if (is_resolving)
        return 0;
    is_resolving = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        found[i] = dlsym(RTLD_NEXT, names[i]);
    is_resolving = 0;
    atomic_store(&next.free, (void (*)(void *))found[0]);
    atomic_store(&next.calloc, (void *(*)(size_t, size_t))found[1]);
    atomic_store(&next.realloc, (void *(*)(void *, size_t))found[2]);
    atomic_store(&next.posix_memalign, (int (*)(void **, size_t, size_t))found[3]);
    atomic_store(&next.aligned_alloc, (void *(*)(size_t, size_t))found[4]);
    atomic_store(&next.memalign, (void *(*)(size_t, size_t))found[5]);
    atomic_store(&next.valloc, (void *(*)(size_t))found[6]);
    atomic_store(&next.pvalloc, (void *(*)(size_t))found[7]);
    atomic_store(&next.malloc, (void *(*)(size_t))found[8]);
    return NEXT(malloc) && NEXT(free) && NEXT(calloc) && NEXT(realloc);
}

#define KNOWN(name) (LIKELY(NEXT(name) != NULL) || resolve())

/* ---- PyTorch's calls ---- */

/* Address range of libc10's code: [low, high); 0: not loaded yet. It is never unloaded. */
static _Atomic uintptr_t torch_low, torch_high;
static _Atomic unsigned long long objects_seen; /* number of loaded objects at the last search */

static int look_at_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    unsigned long long *added = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!*added) {
        *added = info->dlpi_adds;
        if (*added == atomic_load_explicit(&objects_seen, memory_order_relaxed))
            return 1;
    }
    if (strcmp(slash ? slash + 1 : info->dlpi_name, "libc10.so"))
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
            continue;
        uintptr_t low = info->dlpi_addr + segment->p_vaddr;
        atomic_store(&torch_low, low);
        atomic_store(&torch_high, low + segment->p_memsz);
    }
    return 1;
}

/* Returns whether PyTorch's CPU allocator called an aligned allocation. */
static int is_torch(const void *caller)
{
    uintptr_t high = atomic_load_explicit(&torch_high, memory_order_acquire);
    if (!high) {
        unsigned long long added = 0;
        dl_iterate_phdr(look_at_object, &added);
        atomic_store_explicit(&objects_seen, added, memory_order_relaxed);
        high = atomic_load(&torch_high);
    }
    uintptr_t low = atomic_load_explicit(&torch_low, memory_order_relaxed);
    return (uintptr_t)caller - low < high - low;
}

/* ---- notifications ---- */

/* Reports a block, or a failed allocation; keeps the allocator's errno. */
static void report_alloc(const void *block, uint64_t bytes, uint8_t device)
{
    int saved = errno;
    if (block)
        hr__tap_allocated(block, bytes, device);
    else
        hr__tap_refused(bytes, device);
    errno = saved;
}

/* Reports a block not requested by PyTorch, if it is large enough. */
static void *seen(void *block, size_t bytes)
{
    if (!LIKELY(bytes < atomic_load_explicit(&least, memory_order_relaxed)))
        report_alloc(block, bytes, HR_MEMORY_LIBRARIES);
    return block;
}

/* Reports an aligned block. An invalid alignment is no failed allocation and does not get here. */
static void seen_aligned(void *block, size_t bytes, const void *caller)
{
    if (is_torch(caller))
        report_alloc(block, bytes, 0);
    else
        seen(block, bytes);
}

static void seen_free(void *block)
{
    int saved = errno;
    hr__tap_freed(block, NULL);
    errno = saved;
}

/* ---- functions that the program calls ---- */

EXPORT void *malloc(size_t bytes)
{
    if (!KNOWN(malloc))
        return arena_alloc(bytes);
    return seen(NEXT(malloc)(bytes), bytes);
}

EXPORT void free(void *block)
{
    if (is_arena(block) || !KNOWN(free))
        return;
    if (hr__tap_may_know(block))
        seen_free(block);
    NEXT(free)(block);
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX; /* fails, and is reported as a failure */
    if (!KNOWN(calloc))
        return arena_alloc(bytes);
    return seen(NEXT(calloc)(count, size), bytes);
}

/* Reallocates a block that is or will be reported. */
static void *realloc_seen(void *old, size_t bytes)
{
    struct hr__tap_entry was = {.device = HR_MEMORY_LIBRARIES};
    /* Report the free first: another thread may get the old address as soon as the block
     * has moved. */
    int saved = errno, was_known = hr__tap_freed(old, &was);
    errno = saved;
    void *block = NEXT(realloc)(old, bytes);
    if (block && was.device != HR_MEMORY_LIBRARIES && bytes)
        report_alloc(block, bytes, was.device);
    else if (block)
        seen(block, bytes);
    else if (bytes) {
        report_alloc(NULL, bytes, was.device);
        if (was_known)
            report_alloc(old, was.bytes, was.device);
    }
    return block;
}

EXPORT void *realloc(void *old, size_t bytes)
{
    if (!KNOWN(realloc))
        return old ? arena_move(old, bytes, arena_alloc(bytes)) : arena_alloc(bytes);
    if (is_arena(old))
        return arena_move(old, bytes, malloc(bytes));
    if (LIKELY(bytes < atomic_load_explicit(&least, memory_order_relaxed) &&
               !hr__tap_may_know(old)))
        return NEXT(realloc)(old, bytes);
    return realloc_seen(old, bytes);
}

EXPORT void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        report_alloc(NULL, SIZE_MAX, HR_MEMORY_LIBRARIES);
        return NULL;
    }
    return realloc(old, bytes);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (!KNOWN(posix_memalign))
        return ENOMEM;
    int failed = NEXT(posix_memalign)(out, alignment, bytes);
    if (failed != EINVAL)
        seen_aligned(failed ? NULL : *out, bytes, __builtin_return_address(0));
    return failed;
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    if (!KNOWN(aligned_alloc))
        return NULL;
    void *block = NEXT(aligned_alloc)(alignment, bytes);
    if (block || errno != EINVAL)
        seen_aligned(block, bytes, __builtin_return_address(0));
    return block;
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    if (!KNOWN(memalign))
        return NULL;
    void *block = NEXT(memalign)(alignment, bytes);
    if (block || errno != EINVAL)
        seen_aligned(block, bytes, __builtin_return_address(0));
    return block;
}

EXPORT void *valloc(size_t bytes)
{
    if (!KNOWN(valloc))
        return NULL;
    return seen(NEXT(valloc)(bytes), bytes);
}

EXPORT void *pvalloc(size_t bytes)
{
    if (!KNOWN(pvalloc))
        return NULL;
    return seen(NEXT(pvalloc)(bytes), bytes);
}

EXPORT int hr_tap_sees_host(void)
{
    /* Find out by a call: only if it reaches our malloc has that looked up the next one. */
    void *(*volatile programs_malloc)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
    void (*volatile programs_free)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
    if (!programs_malloc || !programs_free)
        return 0;
    programs_free(programs_malloc(1));
    return NEXT(malloc) != NULL;
}
