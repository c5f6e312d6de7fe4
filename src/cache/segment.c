/*
 * Creates, opens and leaves segments, and tracks live users; see segment.h. Locks, transactions and
 * checks are in segment_books.c.
 *
 * A forked child must not inherit the locks that show that its parent is alive (base/own_fd.h). In
 * the child the segment counts as broken.
 */
#include "cache/segment_disk.h"
#include "cache/segment_inside.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/numa.h"
#include "base/round.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE       UINT64_C(4096)
#define HUGE_BYTES (UINT64_C(2) << 20)

/* Staging gets a sixteenth of the budget, within these limits. */
#define RING_MIN (UINT64_C(4) << 20)
#define RING_MAX (UINT64_C(64) << 20)

#define BYTE_ORDER_MARK 0x01020304u
#define CHECKSUM_FROM                                                                              \
    (offsetof(struct hr__segment_header, checksum) +                                               \
     sizeof((struct hr__segment_header *)0)->checksum)
#define CHECKSUM_TO offsetof(struct hr__segment_header, constant_end)

/* Computes a segment's layout from its budget and the number of index slots. */
static int make_layout(struct hr__segment_layout *out, uint64_t budget, uint64_t slots, int on_disk)
{
    if (!budget || budget >= UINT64_C(1) << 50 || !slots || slots >= UINT64_C(1) << 40)
        return -EINVAL;
    /* Round first, so that the resulting arena size gives the same layout again. */
    budget = hr__round_up(budget, HR__SEGMENT_ALIGN);
    uint64_t ring = hr__round_up(budget / 16, HUGE_BYTES);
    ring = ring < RING_MIN ? RING_MIN : ring > RING_MAX ? RING_MAX : ring;
    out->index_offset = hr__round_up(sizeof(struct hr__segment_header), PAGE);
    out->index_slots = slots;
    uint64_t index_end = out->index_offset + out->index_slots * sizeof(struct hr__entry);
    out->arena_bytes = budget;
    if (on_disk) {
        out->ring_offset = hr__round_up(index_end, PAGE);
        out->ring_bytes = 0;
        out->arena_offset = out->file_bytes = out->ring_offset + PAGE;
        out->blocks_offset = out->uses_offset = out->uses_bytes = 0;
        return 0;
    }
    out->ring_offset = hr__round_up(index_end, HUGE_BYTES);
    out->ring_bytes = ring;
    out->arena_offset = out->ring_offset + ring;
    out->blocks_offset = out->arena_offset + hr__round_up(out->arena_bytes, PAGE);
    out->uses_offset = hr__round_up(
        out->blocks_offset + out->arena_bytes / HR__BLOCK_MIN * sizeof(uint32_t), PAGE);
    out->uses_bytes = hr__round_up(slots * sizeof(uint32_t), PAGE);
    out->file_bytes = out->uses_offset + HR__SEGMENT_TELLERS * out->uses_bytes + PAGE;
    return 0;
}

int hr__segment_plan(struct hr__segment_layout *out, uint64_t budget, uint64_t items, int on_disk)
{
    /* A quarter more slots keep searches short and leave room for changed files. */
    return items >= UINT64_C(1) << 39 ? -EINVAL
                                      : make_layout(out, budget, items + items / 4 + 64, on_disk);
}

static void set_parts(struct hr__segment *s, void *memory)
{
    s->header = memory;
    s->entries = (struct hr__entry *)((char *)memory + s->layout.index_offset);
    s->ring = (uint8_t *)memory + s->layout.ring_offset;
    s->arena = s->on_disk ? NULL : (uint8_t *)memory + s->layout.arena_offset;
    s->blocks = (_Atomic uint32_t *)(void *)((char *)memory + s->layout.blocks_offset);
    s->uses = (_Atomic uint32_t *)(void *)((char *)memory + s->layout.uses_offset);
    s->mark = (const _Atomic uint64_t *)((char *)memory + s->layout.file_bytes - sizeof *s->mark);
}

static int map(struct hr__segment *s, struct hr_error *error)
{
    void *memory =
        hr__own_fd_map(&s->own, s->layout.file_bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    if (memory == MAP_FAILED)
        return hr__fail(error, -ENOMEM,
                        "no address space for a cache of %" PRIu64
                        " bytes: make it smaller, or raise the limit (ulimit -v)",
                        s->layout.arena_bytes);
    madvise(memory, s->layout.file_bytes, MADV_HUGEPAGE);
    set_parts(s, memory);
    return 0;
}

static int new_handle(struct hr__segment **out, int directory, const char *file, int flags,
                      int mode, struct hr_error *error)
{
    struct hr__segment *s = hr__alloc(HR__TAG_CACHE, 1, sizeof *s);
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    s->own = s->directory = s->items = HR__OWN_FD_NONE;
    s->slot = -1;
    s->pid = getpid();
    pthread_mutex_init(&s->lock, NULL);
    snprintf(s->file, sizeof s->file, "%s", file);
    int r = hr__own_fd_copy(&s->directory, directory);
    if (!r)
        r = hr__own_fd_open(&s->own, directory, file, flags | O_NOFOLLOW | O_NONBLOCK,
                            (mode_t)mode);
    if (r) {
        hr__fail(error, r, "cannot open the cache's segment %s: %s", file, hr__errno_text(r));
        hr__segment_detach(&s);
        return r;
    }
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", s->own.fd);
    ssize_t n = readlink(link, s->path, sizeof s->path - 1);
    s->path[n < 0 ? 0 : n] = 0;
    *out = s;
    return 0;
}

static uint64_t constant_checksum(const struct hr__segment_header *h)
{
    return XXH3_64bits((const char *)h + CHECKSUM_FROM, CHECKSUM_TO - CHECKSUM_FROM);
}

/* Frees the pages of [from, from + bytes). */
static void depopulate(struct hr__segment *s, uint64_t from, uint64_t bytes)
{
    if (fallocate(s->own.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)bytes))
        hr__log(HR_LOG_DEBUG, "%s: memory could not be given back: %s", s->path,
                hr__errno_text(errno));
}

int hr__segment_populate(struct hr__segment *s, uint64_t from, uint64_t bytes,
                         char why[HR__CAPACITY_WHY])
{
    uint64_t begin = from / PAGE * PAGE, end = hr__round_up(from + bytes, PAGE);
    int r;
    if (!hr__capacity_allows(s->directory.fd, end - begin, why))
        return -ENOSPC;
    do {
        r = madvise((char *)s->header + begin, end - begin, MADV_POPULATE_WRITE) ? errno : 0;
    } while (r == EINTR || r == EAGAIN);
    if (r == EINVAL) /* before Linux 5.14: the same without huge pages */
        r = posix_fallocate(s->own.fd, (off_t)begin, (off_t)(end - begin));
    if (!r)
        return 0;
    /* Free what was allocated. The page that `from` lies in may be in use, so keep it. */
    uint64_t whole = hr__round_up(from, PAGE);
    if (end > whole)
        depopulate(s, whole, end - whole);
    snprintf(why, HR__CAPACITY_WHY, "%s",
             r == ENOMEM ? "the system refuses more memory" : "shared memory is used up");
    return r == ENOMEM ? -ENOMEM : -ENOSPC;
}

static void become_user(struct hr__segment *s, int slot)
{
    s->slot = slot;
    s->user = &s->header->users[slot];
    memset((void *)s->user, 0, sizeof *s->user);
    atomic_store(&s->user->pid, getpid());
}

static void fill_header(struct hr__segment_header *h, const struct hr__segment_shape *shape,
                        const struct hr__segment_layout *layout)
{
    memcpy(h->magic, HR__SEGMENT_MAGIC, sizeof HR__SEGMENT_MAGIC);
    h->version = HR__SEGMENT_VERSION;
    h->byte_order = BYTE_ORDER_MARK;
    h->layout = *layout;
    memcpy(h->identity, shape->identity, sizeof h->identity);
    h->size_bytes = shape->size_bytes;
    h->is_kept = (uint32_t)shape->is_kept;
    h->flags = shape->flags;
    snprintf(h->name, sizeof h->name, "%s", shape->name);
    snprintf(h->dataset, sizeof h->dataset, "%s", shape->dataset);
    h->costs.form_asked = -1;
    h->checksum = constant_checksum(h);
}

static int check_limit(uint64_t bytes, struct hr_error *error)
{
    struct rlimit limit;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes)
        return hr__fail(error, -EFBIG,
                        "a cache needs a file of %" PRIu64
                        " bytes, more than this process may make: raise the limit (ulimit -f)",
                        bytes);
    return 0;
}

/* Uses a system call, which allocates one small page; a store might allocate a huge one. */
static int write_mark(struct hr__segment *s, struct hr_error *error)
{
    const uint64_t mark = HR__SEGMENT_MARK;
    ssize_t n = pwrite(s->own.fd, &mark, sizeof mark, (off_t)(s->layout.file_bytes - sizeof mark));
    int r = n == (ssize_t)sizeof mark ? 0 : n < 0 ? -errno : -ENOSPC;
    return r ? hr__fail(error, r, "cannot write to the cache's segment %s: %s", s->path,
                        hr__errno_text(r))
             : 0;
}

/* Allocates the header and the index. */
static int allocate_index(struct hr__segment *s, struct hr_error *error)
{
    char why[HR__CAPACITY_WHY];
    if (s->on_disk)
        return hr__segment_disk_allocate(s, error);
    hr__numa_interleave(s->header, s->layout.file_bytes);
    int r = hr__segment_populate(s, 0, s->layout.ring_offset, why);
    if (r)
        return hr__fail(error, r,
                        "no shared memory for the index of the cache %s, %" PRIu64 " bytes: %.300s",
                        s->path, s->layout.ring_offset, why);
    return 0;
}

static int set_up(struct hr__segment *s, const struct hr__segment_shape *shape,
                  struct hr_error *error)
{
    s->on_disk = (shape->flags & HR__SEGMENT_ON_DISK) != 0;
    int r = hr__segment_plan(&s->layout, shape->budget_bytes, shape->items, s->on_disk);
    if (r)
        return hr__fail(error, r, "a cache of %" PRIu64 " bytes for %" PRIu64 " items",
                        shape->budget_bytes, shape->items);
    r = check_limit(s->layout.file_bytes, error);
    if (r)
        return r;
    if (fchmod(s->own.fd, (mode_t)shape->mode) ||
        (shape->group >= 0 && fchown(s->own.fd, (uid_t)-1, (gid_t)shape->group)) ||
        ftruncate(s->own.fd, (off_t)s->layout.file_bytes)) {
        r = -errno;
        return hr__fail(error, r, "cannot set up the cache's segment %s: %s", s->path,
                        hr__errno_text(r));
    }
    hr__segment_step(HR__STEP_CREATED);
    r = map(s, error);
    if (!r)
        r = allocate_index(s, error);
    if (!r)
        r = write_mark(s, error);
    if (r)
        return r;
    fill_header(s->header, shape, &s->layout);
    hr__segment_step(HR__STEP_FILLED);
    r = hr__segment_lock_byte(s->own.fd, F_OFD_SETLK, F_WRLCK, HR__SEGMENT_USER_LOCK, 1, NULL);
    if (r)
        return hr__fail(error, r, "%s: cannot lock it: %s", s->path, hr__errno_text(r));
    become_user(s, 0);
    atomic_store(&s->header->ready, 1);
    return 0;
}

int hr__segment_create(struct hr__segment **out, int directory, const char *file,
                       const struct hr__segment_shape *shape, struct hr_error *error)
{
    *out = NULL;
    struct hr__segment *s;
    int r = new_handle(&s, directory, file, O_RDWR | O_CREAT | O_EXCL, shape->mode, error);
    if (r)
        return r;
    r = set_up(s, shape, error);
    if (!r && s->on_disk)
        r = hr__segment_disk_open(s, 0, error);
    if (r) {
        unlinkat(directory, file, 0);
        hr__segment_detach(&s);
        return r;
    }
    *out = s;
    return 0;
}

static int bad(struct hr__segment *s, int code, const char *why, struct hr_error *error)
{
    return hr__fail(error, code, "the cache's segment %s %s", s->path, why);
}

static int check_file(struct hr__segment *s, uint64_t *bytes, struct hr_error *error)
{
    struct stat st;
    if (fstat(s->own.fd, &st))
        return bad(s, -errno, "cannot be looked at", error);
    int ours = st.st_uid == geteuid() || (st.st_mode & 0060) == 0060;
    if (!S_ISREG(st.st_mode) || !ours || (st.st_mode & 0007))
        return bad(
            s, -EACCES,
            "belongs to another user, or is open to everybody: remove it, or name another cache",
            error);
    if (st.st_size < (off_t)sizeof(struct hr__segment_header))
        return bad(s, -EBADMSG, "is cut off", error);
    *bytes = (uint64_t)st.st_size;
    return 0;
}

/* Checks the header. Its pages were allocated before it was marked ready. */
static int check_header(struct hr__segment *s, const struct hr__segment_header *h,
                        uint64_t file_bytes, struct hr_error *error)
{
    if (memcmp(h->magic, HR__SEGMENT_MAGIC, sizeof HR__SEGMENT_MAGIC) && h->magic[0])
        return bad(s, -EBADMSG, "is none", error);
    if (!atomic_load(&h->ready))
        return bad(s, -EBADMSG, "was never finished", error);
    if (h->byte_order != BYTE_ORDER_MARK || h->version != HR__SEGMENT_VERSION)
        return bad(s, -EPROTO, "is of another version of Headrace", error);
    if (h->checksum != constant_checksum(h) || h->constant_end)
        return bad(s, -EBADMSG, "is damaged in its header", error);
    if (atomic_load(&h->damaged))
        return bad(s, -EBADMSG, "was found damaged", error);
    struct hr__segment_layout expected;
    s->on_disk = (h->flags & HR__SEGMENT_ON_DISK) != 0;
    if (make_layout(&expected, h->layout.arena_bytes, h->layout.index_slots, s->on_disk))
        return bad(s, -EBADMSG, "is damaged in its header", error);
    int is_cut = s->on_disk ? file_bytes < expected.file_bytes : file_bytes != expected.file_bytes;
    if (memcmp(&expected, &h->layout, sizeof expected) || is_cut)
        return bad(s, -EBADMSG, "is cut off, or damaged in its header", error);
    if (strnlen(h->name, sizeof h->name) == sizeof h->name ||
        strnlen(h->dataset, sizeof h->dataset) == sizeof h->dataset)
        return bad(s, -EBADMSG, "is damaged in its header", error);
    s->layout = expected;
    return 0;
}

static int look_at_header(struct hr__segment *s, struct hr_error *error)
{
    uint64_t file_bytes = 0;
    int r = check_file(s, &file_bytes, error);
    if (r)
        return r;
    size_t bytes = sizeof(struct hr__segment_header);
    struct hr__segment_header *h = hr__own_fd_map(&s->own, bytes, PROT_READ, 0);
    if (h == MAP_FAILED)
        return hr__fail(error, -ENOMEM, "out of memory for a cache's header");
    r = check_header(s, h, file_bytes, error);
    hr__own_fd_unmap(h, bytes);
    return r;
}

/* Cleans up after a killed user: its claims and unfinished conversions. */
static int clear_up(struct hr__segment *s, unsigned slot)
{
    /* Its last transaction may not be in the index yet. */
    if (!hr__segment_begin(s))
        return -EAGAIN;
    hr__segment_abort(s);
    for (uint64_t i = 0; i < s->layout.index_slots; i++) {
        struct hr__word word = hr__word_unpack(atomic_load(&s->entries[i].word));
        int claimed = word.state == HR__ENTRY_CLAIMED;
        int taken = word.state == HR__ENTRY_STAGED && word.taken;
        if ((!claimed && !taken) || word.owner != slot)
            continue;
        struct hr__books *books = hr__segment_begin(s);
        if (!books)
            return -EAGAIN;
        hr__segment_change(s, books, i);
        word = hr__word_unpack(books->after.word);
        if (claimed) {
            hr__segment_give_back(s, books, &books->after);
            word.state = HR__ENTRY_VACANT;
            word.pending = word.reserve = 0;
        } else {
            word.taken = 0;
            books->waiting++;
            books->ring_cursor = atomic_load(&s->header->ring_tail);
        }
        books->after.word = hr__word_pack(&word);
        hr__segment_commit(s);
    }
    return 0;
}

static void add_counters(struct hr__segment_header *h, struct hr__segment_user *user)
{
    atomic_fetch_add(&h->hits, atomic_exchange(&user->hits, 0));
    atomic_fetch_add(&h->misses, atomic_exchange(&user->misses, 0));
    atomic_fetch_add(&h->saved_bytes, atomic_exchange(&user->saved_bytes, 0));
    atomic_fetch_add(&h->refused, atomic_exchange(&user->refused, 0));
}

static int take_slot(struct hr__segment *s, struct hr_error *error)
{
    for (unsigned slot = 0; slot < HR__SEGMENT_USERS; slot++) {
        int r = hr__segment_lock_byte(s->own.fd, F_OFD_SETLK, F_WRLCK, HR__SEGMENT_USER_LOCK + slot,
                                      1, NULL);
        if (r == -EAGAIN || r == -EACCES)
            continue;
        if (r)
            return bad(s, r, "cannot be locked", error);
        struct hr__segment_user *user = &s->header->users[slot];
        if (atomic_load(&user->pid)) {
            if (clear_up(s, slot)) {
                /* A process was stopped inside a transaction: leave the clean-up to the next
                 * user. */
                hr__segment_lock_byte(s->own.fd, F_OFD_SETLK, F_UNLCK, HR__SEGMENT_USER_LOCK + slot,
                                      1, NULL);
                continue;
            }
            add_counters(s->header, user);
        }
        become_user(s, (int)slot);
        return 0;
    }
    return bad(s, -EUSERS, "has as many users as it can have: end some of them", error);
}

/* When nobody uses the segment: its items can be read in place again. */
static void end_evicting(struct hr__segment *s)
{
    atomic_store(&s->header->evicts, 0);
    /* Also of those who told their uses before anything was evicted. */
    depopulate(s, s->layout.uses_offset, HR__SEGMENT_TELLERS * s->layout.uses_bytes);
}

int hr__segment_attach(struct hr__segment **out, int directory, const char *file, int use,
                       struct hr_error *error)
{
    *out = NULL;
    struct hr__segment *s;
    int r = new_handle(&s, directory, file, O_RDWR, 0, error);
    if (r)
        return r;
    r = look_at_header(s, error);
    if (!r)
        r = map(s, error);
    if (!r && atomic_load(s->mark) != HR__SEGMENT_MARK)
        r = bad(s, -EBADMSG, "was cut off, or is damaged at its end", error);
    int is_first = !r && use && !hr__segment_users(s, NULL, 0);
    if (!r && s->on_disk)
        r = hr__segment_disk_open(s, is_first, error);
    else if (is_first)
        end_evicting(s);
    if (!r && use)
        r = take_slot(s, error);
    if (r) {
        hr__segment_detach(&s);
        return r;
    }
    *out = s;
    return 0;
}

void hr__segment_detach(struct hr__segment **segment)
{
    struct hr__segment *s = *segment;
    if (!s)
        return;
    *segment = NULL;
    int mine = s->pid == getpid();
    if (mine && s->user && hr__segment_is_sound(s)) {
        add_counters(s->header, s->user);
        /* A user with unfinished claims is left like a killed one, for the next user to clean
         * up. */
        if (!atomic_load(&s->user->open))
            atomic_store(&s->user->pid, 0);
    }
    if (s->header)
        hr__own_fd_unmap(s->header, s->layout.file_bytes);
    explicit_bzero(&s->secret, sizeof s->secret);
    if (mine) {
        hr__own_fd_close(&s->own);
        hr__own_fd_close(&s->items);
        hr__own_fd_close(&s->directory);
        pthread_mutex_destroy(&s->lock);
    }
    hr__free(s);
}

int hr__segment_users(const struct hr__segment *s, int64_t *pids, int capacity)
{
    int count = 0;
    uint64_t from = HR__SEGMENT_USER_LOCK, end = from + HR__SEGMENT_USERS, found = 0;
    while (from < end &&
           hr__segment_lock_byte(s->own.fd, F_OFD_GETLK, F_WRLCK, from, end - from, &found) == 1) {
        if (count < capacity)
            pids[count] = atomic_load(&s->header->users[found - HR__SEGMENT_USER_LOCK].pid);
        count++;
        from = found + 1;
    }
    return count;
}

int hr__segment_is_alive(const struct hr__segment *s, unsigned slot)
{
    uint64_t found;
    return hr__segment_lock_byte(s->own.fd, F_OFD_GETLK, F_WRLCK, HR__SEGMENT_USER_LOCK + slot, 1,
                                 &found) != 0;
}
