/*
 * Looks up the C library's own functions by name; see calls.h.
 */
#include "guard/calls.h"

#include <dlfcn.h>

static void *_Atomic next[HR__GUARD_CALL_COUNT];

void *hr__guard_next(enum hr__guard_call call)
{
#define NAME(name) #name,
    static const char *const names[] = {HR__GUARD_CALLS(NAME)};
    void *found = atomic_load_explicit(&next[call], memory_order_relaxed);
    if (!found) {
        found = dlsym(RTLD_NEXT, names[call]);
        atomic_store_explicit(&next[call], found, memory_order_relaxed);
    }
    return found;
}
