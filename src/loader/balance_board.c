/*
 * Making, joining and leaving a board, and who lives; see balance_board.h.
 *
 * A forked child must not inherit the lock that says that its parent lives: base/own_fd.h.
 */
#include "loader/balance_board.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/own_fd.h"
#include "cache/directory_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX  "board+"
#define MAGIC   "HRBOARD"
#define VERSION 1u

/* The words of an entry. */
enum { UPDATED, TAKEN, WAITS, PERIOD, STOCK, CORES, WORKERS, WORK, WORDS };

struct entry {
    _Atomic uint64_t words[WORDS]; /* WORKERS: base << 32 | active */
};

/* What the file is. Native byte order. */
struct page {
    char magic[8];
    uint32_t version, ranks;
    uint64_t reserved[6];
    struct entry entries[HR__BALANCE_RANKS];
};

struct hr__board {
    struct hr__own_fd own; /* none in a child that was forked */
    int slot;
    char file[96];
    struct page *page;
};

/* fcntl with an OFD lock on bytes of the file; of F_OFD_GETLK 1 where others hold one. */
static int lock_bytes(int fd, int command, int type, size_t from, size_t bytes)
{
    struct flock lock = {
        .l_type = (short)type,
        .l_whence = SEEK_SET,
        .l_start = (off_t)from,
        .l_len = (off_t)bytes,
    };
    if (fcntl(fd, command, &lock))
        return -errno;
    return command == F_OFD_GETLK && lock.l_type != F_UNLCK;
}

/* Non-zero where anybody else uses the file, or that cannot be told. */
static int is_used(int fd)
{
    return lock_bytes(fd, F_OFD_GETLK, F_WRLCK, 0, sizeof(struct page)) != 0;
}

static int lock_entry(int fd, int type, int slot)
{
    size_t from = offsetof(struct page, entries) + (size_t)slot * sizeof(struct entry);
    return lock_bytes(fd, F_OFD_SETLK, type, from, sizeof(struct entry));
}

static void clear(struct hr__board *b, int slot)
{
    for (int word = 0; word < WORDS; word++)
        atomic_store_explicit(&b->page->entries[slot].words[word], 0, memory_order_relaxed);
}

/* The file becomes an empty board: nobody else uses it. */
static int make(struct hr__board *b, struct hr_error *error)
{
    struct page head = {.version = VERSION, .ranks = HR__BALANCE_RANKS};
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    int r = ftruncate(b->own.fd, 0) ? errno : posix_fallocate(b->own.fd, 0, sizeof head);
    if (!r && pwrite(b->own.fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
        r = ENOSPC;
    return r ? hr__fail(error, -r, "no shared memory for %s: %s", b->file, hr__errno_text(r)) : 0;
}

static int check(const struct hr__board *b, struct hr_error *error)
{
    struct stat st;
    if (fstat(b->own.fd, &st))
        return hr__fail(error, -errno, "cannot look at %s: %s", b->file, hr__errno_text(errno));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 0077))
        return hr__fail(error, -EACCES, "%s belongs to somebody else, or is open to others",
                        b->file);
    return 0;
}

/* The same of one that others use. */
static int check_head(const struct hr__board *b, struct hr_error *error)
{
    struct page head;
    struct stat st;
    int is_ours = !fstat(b->own.fd, &st) && st.st_size == (off_t)sizeof head &&
                  pread(b->own.fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
                  !memcmp(head.magic, MAGIC, sizeof MAGIC) && head.version == VERSION &&
                  head.ranks == HR__BALANCE_RANKS;
    return is_ours ? 0 : hr__fail(error, -EPROTO, "%s is of another version", b->file);
}

/* Takes a free entry of the mapped page. */
static int take_slot(struct hr__board *b, struct hr_error *error)
{
    for (int i = 0; i < HR__BALANCE_RANKS; i++)
        if (!lock_entry(b->own.fd, F_WRLCK, i)) {
            b->slot = i;
            clear(b, i);
            return 0;
        }
    return hr__fail(error, -EUSERS, "%s has %d users already", b->file, HR__BALANCE_RANKS);
}

/* Removes the boards of runs that were killed. Under the directory's lock. */
static void sweep(int directory, const char *except)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(entries));) {
        if (strncmp(e->d_name, PREFIX, sizeof PREFIX - 1) || !strcmp(e->d_name, except))
            continue;
        int other = openat(directory, e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (other < 0)
            continue;
        if (!is_used(other))
            unlinkat(directory, e->d_name, 0);
        close(other);
    }
    closedir(entries);
}

static int join(struct hr__board *b, int directory, struct hr_error *error)
{
    int r = hr__own_fd_open(&b->own, directory, b->file, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK,
                            0600);
    if (r)
        return hr__fail(error, r, "cannot open %s: %s", b->file, hr__errno_text(r));
    r = check(b, error);
    if (!r)
        r = is_used(b->own.fd) ? check_head(b, error) : make(b, error);
    if (r)
        return r;
    void *page = hr__own_fd_map(&b->own, sizeof *b->page, PROT_READ | PROT_WRITE, 0);
    if (page == MAP_FAILED)
        return hr__fail(error, -ENOMEM, "out of memory for %s", b->file);
    b->page = page;
    return take_slot(b, error);
}

/* Unmaps and closes; the file goes with its last user. Under the directory's lock where
 * `directory` is not -1. */
static void leave(struct hr__board *b, int directory)
{
    struct stat ours, there;
    if (directory >= 0 && b->own.fd >= 0 && !is_used(b->own.fd) && !fstat(b->own.fd, &ours) &&
        !fstatat(directory, b->file, &there, AT_SYMLINK_NOFOLLOW) && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev && ours.st_uid == geteuid())
        unlinkat(directory, b->file, 0);
    if (b->page)
        hr__own_fd_unmap(b->page, sizeof *b->page);
    b->page = NULL;
    hr__own_fd_close(&b->own);
}

int hr__board_open(struct hr__board **out, const char *run, struct hr_error *error)
{
    *out = NULL;
    struct hr__directory d;
    struct hr__board *b = hr__alloc(HR__TAG_LOADER, 1, sizeof *b);
    if (!b)
        return hr__fail(error, -ENOMEM, "out of memory for a board");
    b->own = HR__OWN_FD_NONE;
    b->slot = -1;
    snprintf(b->file, sizeof b->file, PREFIX "%s", run);
    int r = hr__directory_lock(&d, HR__DIRECTORY_OWN, 1, error);
    if (r) {
        hr__free(b);
        return r;
    }
    sweep(d.own.fd, b->file);
    r = join(b, d.own.fd, error);
    if (r)
        leave(b, d.own.fd);
    hr__directory_unlock(&d);
    if (r) {
        hr__free(b);
        return r;
    }
    *out = b;
    return 0;
}

void hr__board_close(struct hr__board **board)
{
    struct hr__board *b = *board;
    if (!b)
        return;
    *board = NULL;
    struct hr__directory d = {.own = HR__OWN_FD_NONE};
    int is_child = b->own.fd < 0;
    if (!is_child)
        clear(b, b->slot);
    int is_locked = !is_child && !hr__directory_lock(&d, HR__DIRECTORY_OWN, 0, NULL);
    leave(b, is_locked ? d.own.fd : -1);
    if (is_locked)
        hr__directory_unlock(&d);
    hr__free(b);
}

int hr__board_self(const struct hr__board *board)
{
    return board->slot;
}

void hr__board_say(struct hr__board *b, const struct hr__balance_rank *rank)
{
    const uint64_t words[WORDS] = {
        [UPDATED] = rank->updated_ns, [TAKEN] = rank->taken_ns,
        [WAITS] = rank->waits_ns,     [PERIOD] = rank->period_ns,
        [STOCK] = rank->stock,        [CORES] = rank->cores,
        [WORK] = rank->work_ns,       [WORKERS] = (uint64_t)rank->base << 32 | rank->active,
    };
    for (int word = 0; word < WORDS; word++)
        atomic_store_explicit(&b->page->entries[b->slot].words[word], words[word],
                              memory_order_relaxed);
}

void hr__board_hear(const struct hr__board *b, struct hr__balance_rank *ranks)
{
    for (int i = 0; i < HR__BALANCE_RANKS; i++) {
        uint64_t words[WORDS];
        for (int word = 0; word < WORDS; word++)
            words[word] =
                atomic_load_explicit(&b->page->entries[i].words[word], memory_order_relaxed);
        ranks[i] = (struct hr__balance_rank){
            .updated_ns = words[UPDATED],
            .taken_ns = words[TAKEN],
            .waits_ns = words[WAITS],
            .period_ns = words[PERIOD],
            .stock = words[STOCK],
            .work_ns = words[WORK],
            .cores = words[CORES],
            .base = (uint32_t)(words[WORKERS] >> 32),
            .active = (uint32_t)words[WORKERS],
        };
    }
}

void hr__board_bury(struct hr__board *b, uint64_t before_ns)
{
    for (int i = 0; i < HR__BALANCE_RANKS; i++) {
        uint64_t updated_ns =
            atomic_load_explicit(&b->page->entries[i].words[UPDATED], memory_order_relaxed);
        if (i == b->slot || !updated_ns || updated_ns >= before_ns)
            continue;
        /* Its lock is had only where its owner is dead, and nobody has taken its place. */
        if (lock_entry(b->own.fd, F_WRLCK, i))
            continue;
        clear(b, i);
        lock_entry(b->own.fd, F_UNLCK, i);
    }
}
