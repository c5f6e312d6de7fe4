/*
 * Lists and drops caches from outside; see include/headrace/cache.h.
 *
 * Segments are opened for inspection under the directory's lock. Slower work follows after its
 * release.
 */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "cache/directory.h"
#include "cache/info.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hr_cache_list {
    struct hr_cache_info *infos;
    size_t count;
};

/* ---- directories that this process may read ---- */

struct segment_places {
    struct hr__directory_where *at; /* in memory, the first is HR__DIRECTORY_OWN */
    size_t count;
    char disk[HR__CACHE_PATH];
};

static int add_place(struct segment_places *places, int64_t group)
{
    if (hr__reserve(HR__TAG_CACHE, &places->at, places->count + 1))
        return -ENOMEM;
    places->at[places->count++] = (struct hr__directory_where){.group = group, .disk = ""};
    return 0;
}

/* Parses "headrace-gNUMBER". Returns the number, or -1 for other names. */
static int64_t number_of(const char *name)
{
    static const char prefix[] = "headrace-g";
    const char *digits = name + sizeof prefix - 1;
    if (strncmp(name, prefix, sizeof prefix - 1) || !*digits || strlen(digits) > 10 ||
        digits[strspn(digits, "0123456789")])
        return -1;
    return strtoll(digits, NULL, 10);
}

/* Finds the directories of a cache: that of a text "disk:...", else all in memory. On success the
 * caller frees places->at. Errors: -ENOMEM, -EINVAL. */
static int find_places(struct segment_places *places, const char *name, struct hr_error *error)
{
    *places = (struct segment_places){.count = 0};
    int is_disk = name && hr__cache_spec_is_disk(name);
    int r = is_disk ? hr__cache_spec_directory(places->disk, name, error) : 0;
    if (r)
        return r;
    r = add_place(places, HR__DIRECTORY_OWN);
    if (!r && is_disk)
        places->at[0].disk = places->disk;
    DIR *place = is_disk ? NULL : opendir(hr__directory_place());
    for (struct dirent *e; !r && place && (e = readdir(place));) {
        int64_t number = number_of(e->d_name);
        if (number >= 0 && hr__directory_is_member(number))
            r = add_place(places, number);
    }
    if (place)
        closedir(place);
    return r ? hr__fail(error, r, "out of memory for a list of caches") : 0;
}

/* Locks a directory. Returns 1; 0 if it does not exist, or if it is a group's and refused (logged);
 * or an error. */
static int enter(struct hr__directory *d, const struct hr__directory_where *where,
                 struct hr_error *error)
{
    struct hr_error why = {.code = 0};
    int r = hr__directory_lock(d, where, 0, &why);
    if (!r)
        return 1;
    if (r == -ENOENT)
        return 0;
    if (where->group == HR__DIRECTORY_OWN)
        return hr__fail(error, r, "%s", why.message);
    hr__log(HR_LOG_WARNING, "%s", why.message);
    return 0;
}

/* ---- listing ---- */

static int add_info(struct hr_cache_list *list, const struct hr_cache_info *info)
{
    if (hr__reserve(HR__TAG_CACHE, &list->infos, list->count + 1))
        return -ENOMEM;
    list->infos[list->count++] = *info;
    return 0;
}

/* Describes a segment that cannot be attached. */
static void list_damaged(struct hr_cache_info *info, const struct hr__directory *d,
                         const struct hr__directory_file *f)
{
    *info = (struct hr_cache_info){.size = sizeof *info, .damaged = 1, .on_disk = d->on_disk};
    size_t name = (size_t)(strrchr(f->file, '.') - f->file);
    if (!f->is_private && name < sizeof info->name)
        memcpy(info->name, f->file, name);
    /* Truncation cannot happen: both parts are shorter than their limits. */
    if (snprintf(info->path, sizeof info->path, "%s/%s", d->path, f->file) < 0)
        info->path[0] = 0;
    memcpy(info->problem, f->problem, sizeof info->problem);
    info->allocated_bytes = f->memory;
    info->users = f->users;
}

/* Opens a directory's segments. Adds the damaged ones to the list; leaves the others open for
 * inspection after the lock is released. */
static int open_all(struct hr_cache_list *list, struct hr__directory *d,
                    const struct hr__directory_file *files, size_t count, struct hr__segment **open)
{
    int r = 0;
    for (size_t i = 0; !r && i < count; i++) {
        struct hr_cache_info info;
        if (!files[i].code) {
            r = hr__segment_attach(&open[i], d->own.fd, files[i].file, 0, NULL);
            /* It was damaged just now; the next call lists it. */
            r = r == -EBADMSG || r == -EPROTO ? 0 : r;
            continue;
        }
        list_damaged(&info, d, &files[i]);
        r = add_info(list, &info);
    }
    return r;
}

static int list_directory(struct hr_cache_list *list, const struct hr__directory_where *where,
                          struct hr_error *error)
{
    struct hr__directory d;
    struct hr__directory_file *files = NULL;
    struct hr__segment **open = NULL;
    size_t count = 0;
    int r = enter(&d, where, error);
    if (r <= 0)
        return r;
    hr__directory_sweep_locked(&d);
    r = hr__directory_files(&d, NULL, &files, &count);
    if (!r && count) {
        open = hr__alloc(HR__TAG_CACHE, count, sizeof(struct hr__segment *));
        r = open ? open_all(list, &d, files, count, open) : -ENOMEM;
    }
    hr__directory_unlock(&d);
    for (size_t i = 0; open && i < count; i++) {
        struct hr_cache_info info;
        if (!open[i])
            continue;
        hr__info_fill(&info, open[i]);
        if (!r)
            r = add_info(list, &info);
        hr__segment_detach(&open[i]);
    }
    hr__free(open);
    hr__free(files);
    return r ? hr__fail(error, r, "cannot look at the caches in %s: %s", d.path, hr__errno_text(r))
             : 0;
}

static int by_name(const void *a, const void *b)
{
    const struct hr_cache_info *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = strcmp(x->dataset, y->dataset);
    return order ? order : strcmp(x->path, y->path);
}

int hr_cache_list_create(struct hr_cache_list **out, struct hr_error *error)
{
    return hr_cache_list_create_of(out, NULL, error);
}

int hr_cache_list_create_of(struct hr_cache_list **out, const char *name, struct hr_error *error)
{
    *out = NULL;
    struct segment_places places;
    int r = find_places(&places, name, error);
    if (r)
        return r;
    struct hr_cache_list *list = hr__alloc(HR__TAG_CACHE, 1, sizeof *list);
    if (!list)
        r = hr__fail(error, -ENOMEM, "out of memory for a list of caches");
    for (size_t i = 0; !r && i < places.count; i++)
        r = list_directory(list, &places.at[i], error);
    hr__free(places.at);
    if (r) {
        hr_cache_list_destroy(&list);
        return r;
    }
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!name || hr__cache_spec_is_disk(name) || !strcmp(list->infos[i].name, name))
            list->infos[kept++] = list->infos[i];
    list->count = kept;
    if (list->count)
        qsort(list->infos, list->count, sizeof *list->infos, by_name);
    *out = list;
    return 0;
}

size_t hr_cache_list_count(const struct hr_cache_list *list)
{
    return list->count;
}

void hr_cache_list_get(const struct hr_cache_list *list, size_t i, struct hr_cache_info *info)
{
    static const struct hr_cache_info none;
    hr__versioned_give(info, i < list->count ? &list->infos[i] : &none, sizeof *info);
}

void hr_cache_list_destroy(struct hr_cache_list **list)
{
    if (!*list)
        return;
    hr__free((*list)->infos);
    hr__free(*list);
    *list = NULL;
}

/* ---- dropping ---- */

/* What to drop, and the result. */
struct dropping {
    const char *name, *dataset;
    int force;
    uint64_t found, freed_bytes, left;
};

static int drop_in(struct dropping *what, const struct hr__directory_where *where,
                   struct hr_error *error)
{
    struct hr__directory d;
    struct hr__directory_file *files;
    size_t count;
    int r = enter(&d, where, error);
    if (r <= 0)
        return r;
    r = hr__directory_files(&d, what->name, &files, &count);
    for (size_t i = 0; !r && i < count; i++) {
        if (what->dataset && (files[i].code || strcmp(what->dataset, files[i].dataset)))
            continue;
        what->found++;
        if (files[i].users && !what->force) {
            what->left++;
            continue;
        }
        r = hr__directory_remove(&d, &files[i], NULL);
        /* Memory in use is freed later, when its last user ends. */
        if (!r && !files[i].users)
            what->freed_bytes += files[i].memory;
    }
    hr__directory_unlock(&d);
    hr__free(files);
    return r ? hr__fail(error, r, "cannot drop cache %s in %s: %s", what->name, d.path,
                        hr__errno_text(r))
             : 0;
}

int hr_cache_drop(const char *name, const char *dataset, int force, uint64_t *freed_bytes,
                  uint64_t *left, struct hr_error *error)
{
    struct dropping what = {.name = name, .dataset = dataset, .force = force};
    struct segment_places places;
    int r = find_places(&places, name, error);
    if (hr__cache_spec_is_disk(name))
        what.name = HR__DISK_NAME;
    for (size_t i = 0; !r && i < places.count; i++)
        r = drop_in(&what, &places.at[i], error);
    hr__free(places.at);
    if (freed_bytes)
        *freed_bytes = what.freed_bytes;
    if (left)
        *left = what.left;
    if (!r && !what.found && dataset)
        r = hr__fail(error, -ENOENT,
                     "cache %s holds no samples of %s; headrace cache list shows all "
                     "datasets",
                     name, dataset);
    else if (!r && !what.found)
        r = hr__fail(error, -ENOENT,
                     "there is no cache %s; headrace cache list shows all "
                     "caches",
                     name);
    return r;
}
