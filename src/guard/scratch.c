/*
 * The scratch folder: its filters and markers, and the exempt folders. See guard.h.
 *
 * The launcher writes the files exempt and temp, which then never change: they are mapped. A
 * filter's bit is set before the entry it stands for exists, so that no later lookup misses it.
 */
#include "guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct hr__guard_state *hr__guard_state;

/* Set once, before hr__guard_state. */
static struct {
    char scratch[PATH_MAX];
    size_t length;
    const char *exempt, *temp; /* contents of the files; may be empty */
    size_t exempt_bytes, temp_bytes;
} here;

static int sys_open(const char *path, int flags, mode_t mode)
{
    return (int)KERNEL(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

int hr__guard_scratch_path(char out[HR__GUARD_PATH], const char *folder, const char *path)
{
    size_t middle = strlen(folder), rest = strlen(path);
    if (here.length + middle + rest + 1 > HR__GUARD_PATH)
        return -ENAMETOOLONG;
    memcpy(out, here.scratch, here.length);
    memcpy(out + here.length, folder, middle);
    memcpy(out + here.length + middle, path, rest + 1);
    return 0;
}

int hr__guard_work_path(char out[HR__GUARD_PATH])
{
    char name[64];
    unsigned number = atomic_fetch_add(&hr__guard_state->copies, 1);
    snprintf(name, sizeof name, "/%ld-%u", (long)KERNEL(SYS_getpid), number);
    return hr__guard_scratch_path(out, "/work", name);
}

/* ---- start ---- */

static const char *map_text(const char *name, size_t *bytes)
{
    char path[HR__GUARD_PATH];
    struct stat st;
    void *text = MAP_FAILED;
    int fd = hr__guard_scratch_path(path, name, "") ? -1 : sys_open(path, O_RDONLY, 0);
    if (fd < 0)
        return "";
    if (!KERNEL(SYS_fstat, fd, &st) && st.st_size > 0)
        text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    KERNEL(SYS_close, fd);
    if (text == MAP_FAILED)
        return "";
    *bytes = (size_t)st.st_size;
    return text;
}

static struct hr__guard_state *map_state(void)
{
    char path[HR__GUARD_PATH];
    void *memory = MAP_FAILED;
    int fd =
        hr__guard_scratch_path(path, "/state", "") ? -1 : sys_open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return NULL;
    /* Allocate the disk blocks: writing to a hole in the file would kill the process on a full
     * disk. */
    off_t size = (off_t)sizeof(struct hr__guard_state);
    int is_made = !KERNEL(SYS_fallocate, fd, 0, 0, size) ||
                  ((errno == EOPNOTSUPP || errno == ENOSYS) && !KERNEL(SYS_ftruncate, fd, size));
    if (is_made)
        memory =
            mmap(NULL, sizeof(struct hr__guard_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    KERNEL(SYS_close, fd);
    return memory == MAP_FAILED ? NULL : memory;
}

int hr__guard_begin(const char *scratch)
{
    if (hr__guard_state)
        return 1;
    if (!scratch || scratch[0] != '/' || strlen(scratch) >= sizeof here.scratch)
        return 0;
    here.length = strlen(scratch);
    memcpy(here.scratch, scratch, here.length + 1);
    here.exempt = map_text("/exempt", &here.exempt_bytes);
    here.temp = map_text("/temp", &here.temp_bytes);
    hr__guard_state = map_state();
    return hr__guard_state != NULL;
}

/* ---- paths ---- */

int hr__guard_is_scratch(const char *path)
{
    return !strncmp(path, here.scratch, here.length) &&
           (!path[here.length] || path[here.length] == '/');
}

void hr__guard_forget_scratch(struct hr__guard_path *path)
{
    size_t prefix = here.length + 4;
    if (!hr__guard_is_scratch(path->text) || strncmp(path->text + here.length, "/new", 4) ||
        (path->text[prefix] && path->text[prefix] != '/'))
        return;
    path->length -= prefix;
    memmove(path->text, path->text + prefix, path->length + 1);
    if (!path->length)
        path->length = (size_t)snprintf(path->text, sizeof path->text, "/");
}

/* Returns whether `folder`, of `length` characters, is the path or a parent of it. */
static int is_below(const struct hr__guard_path *path, const char *folder, size_t length)
{
    return length && path->length >= length && !memcmp(path->text, folder, length) &&
           (!path->text[length] || path->text[length] == '/');
}

/* Returns the name directly in the temporary folder that contains a path, or is it; NULL: the path
 * is elsewhere. */
static const char *name_in_temp(const struct hr__guard_path *path, size_t *length)
{
    size_t folder = here.temp_bytes ? strlen(here.temp) : 0;
    if (!is_below(path, here.temp, folder) || !path->text[folder])
        return NULL;
    const char *name = path->text + folder + 1;
    *length = strcspn(name, "/");
    return name;
}

/* Returns whether a name was there before the run, and so is guarded; the run may change
 * its own. */
static int was_in_temp(const char *name, size_t length)
{
    const char *at = here.temp + strlen(here.temp), *end = here.temp + here.temp_bytes;
    while (at && ++at < end) {
        if (strlen(at) == length && !memcmp(at, name, length))
            return 1;
        at = memchr(at, '\0', (size_t)(end - at));
    }
    return 0;
}

int hr__guard_is_exempt(const struct hr__guard_path *path)
{
    size_t length;
    if (hr__guard_is_scratch(path->text) || strstr(path->text, "/__pycache__/"))
        return 1;
    for (size_t at = 0; at < here.exempt_bytes;) {
        const char *line = here.exempt + at, *end = memchr(line, '\n', here.exempt_bytes - at);
        size_t bytes = end ? (size_t)(end - line) : here.exempt_bytes - at;
        if (is_below(path, line, bytes))
            return 1;
        at += bytes + 1;
    }
    const char *name = name_in_temp(path, &length);
    return name && !was_in_temp(name, length);
}

/* ---- files for the launcher ---- */

static void add_line(const char *file, const char *text)
{
    char path[HR__GUARD_PATH], line[PATH_MAX + 1];
    int saved = errno, length = snprintf(line, sizeof line, "%s\n", text);
    int fd = hr__guard_scratch_path(path, file, "")
                 ? -1
                 : sys_open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0) {
        if (length > 0 && (size_t)length < sizeof line)
            (void)!KERNEL(SYS_write, fd, line, (size_t)length);
        KERNEL(SYS_close, fd);
    }
    errno = saved;
}

void hr__guard_note_made(const struct hr__guard_path *path)
{
    size_t length;
    const char *name = name_in_temp(path, &length);
    if (name && !name[length])
        add_line("/made", path->text);
}

void hr__guard_note_beyond(const char *program)
{
    add_line("/beyond", program);
}

/* ---- filters (Bloom, with one hash function) ---- */

#define HASH_FIRST UINT64_C(0xcbf29ce484222325)

static uint64_t hash_more(uint64_t hash, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static size_t bit_of(uint64_t hash, size_t bits)
{
    return (size_t)((hash ^ hash >> 32) & (bits - 1));
}

static int has_bit(const _Atomic uint64_t *filter, size_t bit)
{
    return atomic_load_explicit(&filter[bit / 64], memory_order_acquire) >> (bit % 64) & 1;
}

static int has_name(const char *name, size_t length)
{
    uint64_t hash = hash_more(HASH_FIRST, name, length);
    return has_bit(hr__guard_state->names, bit_of(hash, HR__GUARD_NAMES));
}

int hr__guard_is_changed(void)
{
    return hr__guard_state &&
           atomic_load_explicit(&hr__guard_state->is_changed, memory_order_acquire);
}

int hr__guard_may_differ(const char *path)
{
    if (!hr__guard_is_changed())
        return 0;
    for (const char *at = path; *at;) {
        size_t length = strcspn(at, "/");
        if ((length == 2 && at[0] == '.' && at[1] == '.') || (length && has_name(at, length)))
            return 1;
        at += length + (at[length] == '/');
    }
    return 0;
}

int hr__guard_may_have_name(const struct hr__guard_path *path)
{
    const char *name = strrchr(path->text, '/') + 1;
    return hr__guard_is_changed() && has_name(name, strlen(name));
}

void hr__guard_note_name(const struct hr__guard_path *path)
{
    const char *name = strrchr(path->text, '/') + 1;
    size_t bit = bit_of(hash_more(HASH_FIRST, name, strlen(name)), HR__GUARD_NAMES);
    atomic_fetch_or(&hr__guard_state->names[bit / 64], UINT64_C(1) << (bit % 64));
    atomic_store(&hr__guard_state->is_changed, 1);
}

/* ---- paths that are gone ---- */

/* Names the marker of a path's first `length` characters; uses two hashes so that no two paths
 * share one. */
static int marker_of(char out[HR__GUARD_PATH], const char *path, size_t length, uint64_t hash)
{
    char name[40];
    uint64_t second = hash_more(~HASH_FIRST, path, length);
    snprintf(name, sizeof name, "/%016llx%016llx", (unsigned long long)hash,
             (unsigned long long)second);
    return hr__guard_scratch_path(out, "/gone", name);
}

int hr__guard_mark_gone(const struct hr__guard_path *path)
{
    char marker[HR__GUARD_PATH];
    uint64_t hash = hash_more(HASH_FIRST, path->text, path->length);
    size_t bit = bit_of(hash, HR__GUARD_GONE);
    int code = marker_of(marker, path->text, path->length, hash);
    if (code)
        return code;
    int fd = sys_open(marker, O_WRONLY | O_CREAT, 0600);
    if (fd < 0)
        return -errno;
    if (KERNEL(SYS_write, fd, path->text, path->length) != (long)path->length) {
        code = -ENOSPC;
        KERNEL(SYS_unlinkat, AT_FDCWD, marker, 0);
    }
    KERNEL(SYS_close, fd);
    if (!code) {
        atomic_fetch_or(&hr__guard_state->gone[bit / 64], UINT64_C(1) << (bit % 64));
        hr__guard_note_name(path);
    }
    return code;
}

int hr__guard_is_gone(const struct hr__guard_path *path)
{
    char marker[HR__GUARD_PATH];
    uint64_t hash = HASH_FIRST;
    for (size_t at = 0; at < path->length;) {
        size_t length = 1 + strcspn(path->text + at + 1, "/");
        hash = hash_more(hash, path->text + at, length);
        at += length;
        if (has_bit(hr__guard_state->gone, bit_of(hash, HR__GUARD_GONE)) &&
            !marker_of(marker, path->text, at, hash) &&
            !KERNEL(SYS_faccessat, AT_FDCWD, marker, F_OK))
            return 1;
    }
    return 0;
}
