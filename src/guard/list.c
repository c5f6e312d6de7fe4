/*
 * Lists folders. If the run changed a folder, opendir and readdir show the entries of the original
 * that still exist and those in the scratch folder. See guard.h.
 *
 * The merged listing is kept beside the C library's, found by its address; without any, readdir
 * costs one load. A lock guards the list of listings; a forked child gets it unlocked.
 */
#include "guard/calls.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The scratch folder's entries in one folder. */
struct merged {
    DIR *key;
    struct merged *next;
    struct hr__guard_path folder;
    struct dirent *entries; /* sorted by name */
    size_t count, at;
    int base_is_new; /* the C library lists the scratch folder itself: add nothing */
    struct dirent given;
};

static struct merged *merged_all;
static atomic_uint merged_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards merged_all */

static void unlock_child(void)
{
    pthread_mutex_init(&lock, NULL);
}

static struct merged *merged_of(DIR *key, int take)
{
    struct merged *found = NULL;
    if (!atomic_load_explicit(&merged_count, memory_order_acquire))
        return NULL;
    pthread_mutex_lock(&lock);
    for (struct merged **at = &merged_all; *at; at = &(*at)->next)
        if ((*at)->key == key) {
            found = *at;
            if (take) {
                *at = found->next;
                atomic_fetch_sub(&merged_count, 1);
            }
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static void add_merged(struct merged *one, DIR *key)
{
    static atomic_int is_registered;
    if (!atomic_exchange(&is_registered, 1))
        pthread_atfork(NULL, NULL, unlock_child);
    one->key = key;
    pthread_mutex_lock(&lock);
    one->next = merged_all;
    merged_all = one;
    atomic_fetch_add(&merged_count, 1);
    pthread_mutex_unlock(&lock);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct dirent *)a)->d_name, ((const struct dirent *)b)->d_name);
}

static int is_dots(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Sets the type that the script would see. */
static void show_type(struct merged *one, struct dirent *entry)
{
    struct hr__guard_place place;
    size_t before = one->folder.length;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return;
    if (hr__guard_append(&one->folder, entry->d_name, strlen(entry->d_name)))
        return;
    hr__guard_locate(&one->folder, &place);
    if (place.kind != HR__GUARD_ABSENT)
        entry->d_type = IFTODT(place.stat.st_mode);
    one->folder.length = before;
    one->folder.text[before] = '\0';
}

/* Reads the folder's entries in new/. Returns 0, also if there are none, or -ENOMEM. */
static int read_new(struct merged *one)
{
    char path[HR__GUARD_PATH];
    const struct dirent *entry;
    if (hr__guard_scratch_path(path, "/new", one->folder.text))
        return 0;
    DIR *dir = NEXT(opendir)(path);
    if (!dir)
        return 0;
    while ((entry = NEXT(readdir)(dir))) {
        if (is_dots(entry->d_name))
            continue;
        void *more = realloc(one->entries, (one->count + 1) * sizeof *one->entries);
        if (!more) {
            NEXT(closedir)(dir);
            return -ENOMEM;
        }
        one->entries = more;
        memcpy(&one->entries[one->count], entry, entry->d_reclen);
        show_type(one, &one->entries[one->count++]);
    }
    NEXT(closedir)(dir);
    if (one->count)
        qsort(one->entries, one->count, sizeof *one->entries, by_name);
    return 0;
}

/* Returns whether to show an entry of the original. */
static int is_shown(struct merged *one, const struct dirent *entry)
{
    size_t before = one->folder.length;
    if (is_dots(entry->d_name))
        return 1;
    if (one->count && bsearch(entry, one->entries, one->count, sizeof *one->entries, by_name))
        return 0; /* shown as an entry of new/ */
    if (hr__guard_append(&one->folder, entry->d_name, strlen(entry->d_name)))
        return 1;
    int is_gone = hr__guard_is_gone(&one->folder);
    one->folder.length = before;
    one->folder.text[before] = '\0';
    return !is_gone;
}

/* Returns the data to merge into a folder's listing; NULL: nothing was changed, or out of
 * memory. */
static struct merged *merge(const struct hr__guard_path *folder, int base_is_new)
{
    struct merged *one;
    if (!hr__guard_is_changed())
        return NULL;
    one = calloc(1, sizeof *one);
    if (!one)
        return NULL;
    one->folder = *folder;
    one->base_is_new = base_is_new;
    if (!base_is_new && read_new(one)) {
        free(one->entries);
        free(one);
        return NULL;
    }
    return one;
}

/* ---- functions the script calls ---- */

static DIR *with_merged(DIR *dir, const struct hr__guard_path *folder, int base_is_new)
{
    int saved = errno;
    struct merged *one = dir ? merge(folder, base_is_new) : NULL;
    if (one)
        add_merged(one, dir);
    errno = saved;
    return dir;
}

EXPORT DIR *opendir(const char *path)
{
    struct hr__guard_path meant;
    struct hr__guard_place place;
    if (!path || !*path || hr__guard_is_system(path) || !hr__guard_is_changed())
        return NEXT(opendir)(path);
    int code = hr__guard_resolve(AT_FDCWD, path, 1, &meant);
    if (code)
        return errno = -code, NULL;
    hr__guard_locate(&meant, &place);
    return with_merged(NEXT(opendir)(place.path), &meant, place.kind == HR__GUARD_SCRATCH);
}

EXPORT DIR *fdopendir(int folder)
{
    struct hr__guard_path meant;
    if (!hr__guard_is_changed() || hr__guard_path_of(folder, &meant))
        return NEXT(fdopendir)(folder);
    int is_new = hr__guard_is_scratch(meant.text);
    hr__guard_forget_scratch(&meant);
    return with_merged(NEXT(fdopendir)(folder), &meant, is_new);
}

static struct dirent *read_merged(struct merged *one, DIR *dir)
{
    struct dirent *entry;
    while ((entry = NEXT(readdir)(dir))) {
        if (one->base_is_new) {
            show_type(one, entry);
            return entry;
        }
        if (is_shown(one, entry))
            return entry;
    }
    if (one->at >= one->count)
        return NULL;
    one->given = one->entries[one->at++];
    return &one->given;
}

EXPORT struct dirent *readdir(DIR *dir)
{
    struct merged *one = merged_of(dir, 0);
    return one ? read_merged(one, dir) : NEXT(readdir)(dir);
}

EXPORT struct dirent64 *readdir64(DIR *dir)
{
    _Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "one for both");
    struct merged *one = merged_of(dir, 0);
    return one ? (struct dirent64 *)(void *)read_merged(one, dir) : NEXT(readdir64)(dir);
}

EXPORT void rewinddir(DIR *dir)
{
    struct merged *one = merged_of(dir, 0);
    if (one)
        one->at = 0;
    NEXT(rewinddir)(dir);
}

EXPORT int closedir(DIR *dir)
{
    struct merged *one = merged_of(dir, 1);
    if (one) {
        free(one->entries);
        free(one);
    }
    return NEXT(closedir)(dir);
}

int hr__guard_is_empty(const struct hr__guard_path *path)
{
    struct hr__guard_place place;
    const struct dirent *entry;
    hr__guard_locate(path, &place);
    struct merged *one = merge(path, place.kind == HR__GUARD_SCRATCH);
    DIR *dir = NEXT(opendir)(place.path);
    int is_empty = 1;
    while (is_empty && dir && (entry = one ? read_merged(one, dir) : NEXT(readdir)(dir)))
        is_empty = is_dots(entry->d_name);
    if (dir)
        NEXT(closedir)(dir);
    if (one)
        free(one->entries);
    free(one);
    return is_empty;
}
