/*
 * Binary heaps of elements of any type, the first one on top. The functions are inline, so that the
 * compiler knows the size and the order of the elements.
 */
#ifndef HR_BASE_HEAP_H
#define HR_BASE_HEAP_H

#include <stddef.h>
#include <string.h>

#define HR__HEAP_INLINE static inline __attribute__((always_inline))

/* Returns whether element `a` comes before `b`. */
typedef int hr__heap_order(const void *a, const void *b);

/* Adds *item, of `size` bytes, to `count` elements; there must be room for one more. */
HR__HEAP_INLINE void hr__heap_push(void *heap, size_t *count, const void *item, size_t size,
                                   hr__heap_order *is_before)
{
    char *all = heap;
    size_t at = (*count)++;
    for (size_t parent; at; at = parent) {
        parent = (at - 1) / 2;
        if (!is_before(item, all + parent * size))
            break;
        memcpy(all + at * size, all + parent * size, size);
    }
    memcpy(all + at * size, item, size);
}

/* Takes the first one of `count` elements, at least one, into *item. */
HR__HEAP_INLINE void hr__heap_pop(void *heap, size_t *count, void *item, size_t size,
                                  hr__heap_order *is_before)
{
    char *all = heap;
    const char *last = all + --*count * size;
    size_t at = 0;
    memcpy(item, all, size);
    for (size_t child; (child = 2 * at + 1) < *count; at = child) {
        child += child + 1 < *count && is_before(all + (child + 1) * size, all + child * size);
        if (!is_before(all + child * size, last))
            break;
        memcpy(all + at * size, all + child * size, size);
    }
    memmove(all + at * size, last, size);
}

#endif
