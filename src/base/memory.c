/*
 * Allocation with a small header before each block: its size, tag and the
 * pointer that malloc gave. The header keeps 64-byte alignment possible without
 * a second table.
 */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct header {
    void *base;    /* what free() takes */
    size_t size;   /* bytes the caller asked for */
    uint32_t tag;
    uint32_t pad;
    uint64_t pad2; /* keeps malloc's 16-byte alignment for the block */
};

_Static_assert(sizeof(struct header) % 16 == 0, "blocks keep malloc's alignment");

static _Atomic uint64_t allocated[HR__TAG_COUNT];
static _Atomic uint64_t fail_countdown;
static _Atomic int fail_onwards;

void hr__alloc_fail_at(uint64_t n, int onwards)
{
    atomic_store(&fail_onwards, onwards);
    atomic_store(&fail_countdown, n);
}

static int must_fail(void)
{
    uint64_t n = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (n) {
        uint64_t next = n == 1 && atomic_load(&fail_onwards) ? 1 : n - 1;
        if (atomic_compare_exchange_weak(&fail_countdown, &n, next))
            return n == 1;
    }
    return 0;
}

static struct header *header_of(void *block)
{
    return (struct header *)block - 1;
}

static void *place(void *base, void *block, size_t size, enum hr__tag tag)
{
    struct header *h = header_of(block);
    h->base = base;
    h->size = size;
    h->tag = tag;
    atomic_fetch_add_explicit(&allocated[tag], size, memory_order_relaxed);
    return block;
}

void *hr__alloc(enum hr__tag tag, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX || must_fail())
        return NULL;
    char *base = calloc(1, sizeof(struct header) + bytes);
    return base ? place(base, base + sizeof(struct header), bytes, tag) : NULL;
}

void *hr__realloc(enum hr__tag tag, void *block, size_t count, size_t size)
{
    size_t bytes;
    if (!block)
        return hr__alloc(tag, count, size);
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX || must_fail())
        return NULL;
    struct header *h = header_of(block);
    size_t old = h->size;
    char *base = realloc(h->base, sizeof *h + bytes);
    if (!base)
        return NULL;
    atomic_fetch_sub_explicit(&allocated[tag], old, memory_order_relaxed);
    return place(base, base + sizeof(struct header), bytes, tag);
}

void *hr__alloc_aligned(enum hr__tag tag, size_t size, size_t slack)
{
    return hr__alloc_aligned_to(tag, size, slack, 64);
}

void *hr__alloc_aligned_to(enum hr__tag tag, size_t size, size_t slack, size_t alignment)
{
    size_t total;
    if (__builtin_add_overflow(size, slack, &total) ||
        __builtin_add_overflow(total, alignment + sizeof(struct header), &total) ||
        total > PTRDIFF_MAX || must_fail())
        return NULL;
    char *base = malloc(total);
    if (!base)
        return NULL;
    uintptr_t block =
        ((uintptr_t)base + sizeof(struct header) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    return place(base, (void *)block, size, tag);
}

void hr__free(void *block)
{
    if (!block)
        return;
    struct header *h = header_of(block);
    atomic_fetch_sub_explicit(&allocated[h->tag], h->size, memory_order_relaxed);
    free(h->base);
}

char *hr__strdup(enum hr__tag tag, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = hr__alloc(tag, n, 1);
    return copy ? memcpy(copy, text, n) : NULL;
}

uint64_t hr__allocated(enum hr__tag tag)
{
    return atomic_load_explicit(&allocated[tag], memory_order_relaxed);
}
