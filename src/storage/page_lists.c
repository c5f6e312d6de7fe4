/* The kernel's page cache, simulated by whole files (page_lists.h). */
#include "storage/page_lists.h"

#include "base/memory.h"
#include "base/recency.h"

#include <errno.h>
#include <math.h>

enum { ABSENT, INACTIVE, ACTIVE, LISTS };

struct page_file {
    uint64_t left; /* age of the cache when it was evicted, + 1; 0: never */
    uint32_t bytes;
    uint8_t list;
    uint8_t is_referenced;
};

struct hr__page_lists {
    struct page_file *files;
    struct hr__recency_links *links;
    struct hr__recency list[LISTS];
    uint64_t bytes[LISTS]; /* of the files of each list; ABSENT: what is free */
    uint64_t age;          /* bytes that were evicted or activated so far */
    int has_returned;      /* evicted files were activated since the last reclaim */
    double owed;           /* bytes of the active list that were scanned and not moved yet */
};

int hr__page_lists_create(struct hr__page_lists **out, uint32_t files, uint64_t bytes)
{
    struct hr__page_lists *l = hr__alloc(HR__TAG_STORAGE, 1, sizeof *l);
    if (l) {
        l->files = hr__alloc(HR__TAG_STORAGE, (size_t)files + !files, sizeof *l->files);
        l->links = hr__alloc(HR__TAG_STORAGE, (size_t)files + !files, sizeof *l->links);
    }
    *out = l;
    if (!l || !l->files || !l->links) {
        hr__page_lists_destroy(out);
        return -ENOMEM;
    }
    l->bytes[ABSENT] = bytes;
    hr__recency_init(&l->list[INACTIVE]);
    hr__recency_init(&l->list[ACTIVE]);
    return 0;
}

void hr__page_lists_destroy(struct hr__page_lists **lists)
{
    if (!*lists)
        return;
    hr__free((*lists)->files);
    hr__free((*lists)->links);
    hr__free(*lists);
    *lists = NULL;
}

static void add(struct hr__page_lists *l, uint32_t file, uint8_t list)
{
    hr__recency_push(&l->list[list], l->links, file);
    l->bytes[list] += l->files[file].bytes;
    l->files[file].list = list;
}

static void take(struct hr__page_lists *l, uint32_t file)
{
    uint8_t list = l->files[file].list;
    hr__recency_pull(&l->list[list], l->links, file);
    l->bytes[list] -= l->files[file].bytes;
    l->files[file].list = ABSENT;
}

/* Below a GiB the inactive list must be as long as the active one, above it may be shorter. */
static int inactive_is_short(const struct hr__page_lists *l)
{
    uint64_t gib = (l->bytes[INACTIVE] + l->bytes[ACTIVE]) >> 30;
    double ratio = gib ? floor(sqrt(10.0 * (double)gib)) : 1;
    return (double)l->bytes[INACTIVE] * ratio < (double)l->bytes[ACTIVE];
}

static void deactivate(struct hr__page_lists *l)
{
    uint32_t old = l->list[ACTIVE].oldest;
    take(l, old);
    add(l, old, INACTIVE);
}

static void evict(struct hr__page_lists *l, uint32_t file)
{
    struct page_file *of = &l->files[file];
    take(l, file);
    l->bytes[ABSENT] += of->bytes;
    of->left = l->age + 1;
    l->age += of->bytes;
    of->is_referenced = 0;
}

/* Evicts files until `bytes` are free. The kernel scans both lists in proportion to their lengths,
 * so that for each byte that is evicted some of the active list move to the inactive one. */
static void reclaim(struct hr__page_lists *l, uint32_t bytes,
                    void (*evicted)(void *context, uint32_t file), void *context)
{
    int is_scanned = l->has_returned || inactive_is_short(l);
    l->has_returned = 0;
    l->owed = is_scanned ? l->owed : 0;
    while (l->bytes[ABSENT] < bytes && l->bytes[INACTIVE] + l->bytes[ACTIVE]) {
        if (l->list[INACTIVE].oldest == HR__NO_ENTRY)
            deactivate(l);
        uint32_t old = l->list[INACTIVE].oldest;
        double each = (double)l->bytes[ACTIVE] / (double)(l->bytes[INACTIVE] + 1);
        l->owed += is_scanned ? each * l->files[old].bytes : 0;
        while (l->list[ACTIVE].oldest != HR__NO_ENTRY &&
               l->owed >= l->files[l->list[ACTIVE].oldest].bytes) {
            l->owed -= l->files[l->list[ACTIVE].oldest].bytes;
            deactivate(l);
        }
        evict(l, old);
        if (evicted)
            evicted(context, old);
    }
}

static void hit(struct hr__page_lists *l, uint32_t file)
{
    struct page_file *of = &l->files[file];
    if (!of->is_referenced) {
        of->is_referenced = 1;
    } else if (of->list == INACTIVE) {
        take(l, file);
        add(l, file, ACTIVE);
        of->is_referenced = 0;
        l->age += of->bytes;
    }
}

int hr__page_lists_read(struct hr__page_lists *l, uint32_t file, uint32_t bytes,
                        void (*evicted)(void *context, uint32_t file), void *context)
{
    struct page_file *of = &l->files[file];
    if (of->list) {
        hit(l, file);
        return 1;
    }
    if (l->bytes[ABSENT] < bytes)
        reclaim(l, bytes, evicted, context);
    if (l->bytes[ABSENT] < bytes)
        return 0;
    of->bytes = bytes;
    l->bytes[ABSENT] -= bytes;
    int is_back = of->left && l->age + 1 - of->left <= l->bytes[ACTIVE];
    add(l, file, is_back ? ACTIVE : INACTIVE);
    l->age += is_back ? bytes : 0;
    l->has_returned |= is_back;
    of->is_referenced = 1;
    return 0;
}

int hr__page_lists_has(const struct hr__page_lists *lists, uint32_t file)
{
    return lists->files[file].list != ABSENT;
}
