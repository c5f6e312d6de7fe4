/* The part of segments on a disk that segments in memory lack; see segment_disk.h. */
#include "cache/segment_disk.h"

#include "base/error.h"
#include "base/memory.h"
#include "cache/segment_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80
#endif

int hr__segment_disk_allocate(struct hr__segment *s, struct hr_error *error)
{
    /* So that a full disk is an error here, and no signal when the index is written to. */
    int r = -posix_fallocate(s->own.fd, 0, (off_t)s->layout.file_bytes);
    return r ? hr__fail(error, r, "no room for the index of the cache %s, %" PRIu64 " bytes: %s",
                        s->path, s->layout.file_bytes, hr__errno_text(r))
             : 0;
}

/* ---- freeing space ---- */

static void punch(struct hr__segment *s, uint64_t offset, uint64_t bytes)
{
    /* What cannot be freed is only not used again. */
    if (bytes && fallocate(s->own.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           (off_t)(s->layout.arena_offset + offset), (off_t)bytes))
        hr__log(HR_LOG_DEBUG, "%s: space could not be freed: %s", s->path, hr__errno_text(errno));
}

void hr__segment_punch(struct hr__segment *s, uint64_t offset, uint64_t length)
{
    punch(s, offset, hr__disk_padded(length));
}

void hr__segment_give_back(struct hr__segment *s, struct hr__books *books,
                           const struct hr__entry_value *value)
{
    struct hr__word word = hr__word_unpack(value->word);
    uint64_t length = (uint32_t)value->lengths;
    if (!s->on_disk || word.state != HR__ENTRY_CLAIMED || !word.pending ||
        !hr__disk_is_place(value->offset, length))
        return;
    /* Before the entry changes: who is killed in between leaves it to the next user. */
    hr__segment_punch(s, value->offset, length);
    uint64_t bytes = hr__disk_padded(length);
    books->arena_used -= bytes < books->arena_used ? bytes : books->arena_used;
}

/* ---- repairing ---- */

struct disk_extent {
    uint64_t from, to;
};

/* What the entries say. */
struct disk_survey {
    struct hr__books books;
    uint64_t room; /* bytes of the file behind the mark */
};

static struct hr__entry_value value_of(const struct hr__entry *e)
{
    return (struct hr__entry_value){
        .word = atomic_load(&e->word),
        .offset = atomic_load(&e->offset),
        .lengths = atomic_load(&e->lengths),
    };
}

/* Returns non-zero if the entry is of an item that the file may hold. */
static int is_item(const struct hr__entry_value *value, uint64_t room)
{
    struct hr__word word = hr__word_unpack(value->word);
    uint64_t length = (uint32_t)value->lengths;
    return word.state == HR__ENTRY_FINAL && word.form < HR_FORMS &&
           hr__disk_is_place(value->offset, length) && value->offset <= room &&
           length <= room - value->offset;
}

static void count_item(struct hr__books *books, const struct hr__entry_value *value)
{
    uint64_t length = (uint32_t)value->lengths, end = value->offset + hr__disk_padded(length);
    books->arena_used += hr__disk_padded(length);
    books->items[hr__word_unpack(value->word).form]++;
    books->source_bytes += value->lengths >> 32;
    if (books->end < end)
        books->end = end;
}

/* Counts the items, and empties the entries of everything else. */
static void survey(struct hr__segment *s, struct disk_survey *found)
{
    struct hr__word vacant = {.state = HR__ENTRY_VACANT};
    for (uint64_t i = 0; i < s->layout.index_slots; i++) {
        struct hr__entry *e = &s->entries[i];
        struct hr__entry_value value = value_of(e);
        struct hr__word word = hr__word_unpack(value.word);
        if (!value.word || word.state == HR__ENTRY_VACANT)
            continue;
        if (is_item(&value, found->room))
            count_item(&found->books, &value);
        else
            atomic_store(&e->word, hr__word_pack(&vacant));
    }
}

static int compare_extents(const void *a, const void *b)
{
    const struct disk_extent *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Frees everything between the items. */
static void punch_gaps(struct hr__segment *s, uint64_t items, uint64_t room)
{
    struct disk_extent *extents = hr__alloc(HR__TAG_CACHE, items ? items : 1, sizeof *extents);
    uint64_t count = 0, at = 0;
    if (!extents)
        return;
    for (uint64_t i = 0; i < s->layout.index_slots && count < items; i++) {
        struct hr__entry_value value = value_of(&s->entries[i]);
        if (!is_item(&value, room))
            continue;
        extents[count].from = value.offset;
        extents[count++].to = value.offset + hr__disk_padded((uint32_t)value.lengths);
    }
    qsort(extents, count, sizeof *extents, compare_extents);
    for (uint64_t i = 0; i < count; i++) {
        if (extents[i].from > at)
            punch(s, at, extents[i].from - at);
        at = extents[i].to > at ? extents[i].to : at;
    }
    hr__free(extents);
}

/* Repairs a segment that nobody uses. May be killed and repeated at any time. */
static int repair(struct hr__segment *s, struct hr_error *error)
{
    struct stat st;
    if (fstat(s->own.fd, &st))
        return hr__fail(error, -errno, "cannot look at the cache %s: %s", s->path,
                        hr__errno_text(errno));
    struct hr__books before = hr__segment_books(s);
    struct disk_survey found = {.room = (uint64_t)st.st_size - s->layout.arena_offset};
    survey(s, &found);
    struct hr__books *books = &found.books;
    books->sequence = before.sequence + 2;
    /* A wrong length in an entry may make it more. The item is dropped when it is read. */
    if (books->arena_used > s->layout.arena_bytes)
        books->arena_used = s->layout.arena_bytes;
    books->arena_allocated = books->arena_used;
    uint64_t items = 0;
    for (int form = 0; form < HR_FORMS; form++)
        items += books->items[form];
    if (books->arena_used != before.arena_used)
        punch_gaps(s, items, found.room);
    if (books->end < found.room &&
        ftruncate(s->own.fd, (off_t)(s->layout.arena_offset + books->end)))
        hr__log(HR_LOG_DEBUG, "%s: its end could not be freed: %s", s->path, hr__errno_text(errno));
    hr__segment_restart_books(s, books);
    return 0;
}

/* ---- opening, reading and writing ---- */

int hr__segment_disk_open(struct hr__segment *s, int is_first, struct hr_error *error)
{
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
    int r = hr__own_fd_open(&s->items, s->directory.fd, s->file, flags | O_DIRECT, 0);
    s->is_direct = !r;
    if (r == -EINVAL)
        r = hr__own_fd_open(&s->items, s->directory.fd, s->file, flags, 0);
    if (r)
        return hr__fail(error, r, "cannot open the cache %s: %s", s->path, hr__errno_text(r));
    return is_first ? repair(s, error) : 0;
}

/* Drops the first `done` bytes of the pieces. */
static void advance(struct iovec **pieces, int *count, size_t done)
{
    while (*count && done >= (*pieces)->iov_len) {
        done -= (*pieces)->iov_len;
        ++*pieces;
        --*count;
    }
    if (*count) {
        (*pieces)->iov_base = (char *)(*pieces)->iov_base + done;
        (*pieces)->iov_len -= done;
    }
}

/* Writes the pieces one behind the other, from `at` in the file on. */
static int write_pieces(int fd, uint64_t at, struct iovec *pieces, int count, int flags)
{
    advance(&pieces, &count, 0);
    while (count) {
        ssize_t n = pwritev2(fd, pieces, count < 64 ? count : 64, (off_t)at, flags);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -ENOSPC;
        at += (uint64_t)n;
        advance(&pieces, &count, (size_t)n);
    }
    return 0;
}

/* The same with O_DIRECT, through a buffer. */
static int write_direct(const struct hr__segment *s, uint64_t at, const struct iovec *pieces,
                        int count)
{
    size_t length = 0;
    for (int i = 0; i < count; i++)
        length += pieces[i].iov_len;
    uint8_t *bytes = hr__alloc_aligned_to(HR__TAG_CACHE, length, 0, HR__DISK_ALIGN);
    if (!bytes)
        return -ENOMEM;
    size_t done = 0;
    for (int i = 0; i < count; done += pieces[i++].iov_len)
        if (pieces[i].iov_len)
            memcpy(bytes + done, pieces[i].iov_base, pieces[i].iov_len);
    int r = write_pieces(s->items.fd, at, &(struct iovec){bytes, length}, 1, 0);
    hr__free(bytes);
    return r;
}

/* Refuses a write beyond the limit of file sizes, which would end the process with a signal. */
static int check_limit(uint64_t at, const struct iovec *pieces, int count)
{
    struct rlimit limit;
    for (int i = 0; i < count; i++)
        at += pieces[i].iov_len;
    return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
                   at > limit.rlim_cur
               ? -EFBIG
               : 0;
}

int hr__segment_disk_write(struct hr__segment *s, uint64_t offset, struct iovec *pieces, int count)
{
    uint64_t at = s->layout.arena_offset + offset;
    if (check_limit(at, pieces, count))
        return -EFBIG;
    if (!atomic_load_explicit(&s->no_dontcache, memory_order_relaxed)) {
        int r = write_pieces(s->own.fd, at, pieces, count, RWF_DONTCACHE);
        if (r != -EOPNOTSUPP && r != -EINVAL)
            return r;
        atomic_store_explicit(&s->no_dontcache, 1, memory_order_relaxed);
    }
    return s->is_direct ? write_direct(s, at, pieces, count)
                        : write_pieces(s->own.fd, at, pieces, count, 0);
}

int hr__segment_disk_read(const struct hr__segment *s, uint64_t offset, void *out, size_t length)
{
    uint64_t at = s->layout.arena_offset + offset;
    size_t wanted = s->is_direct ? hr__disk_padded(length) : length, got = 0;
    /* The last item ends with the file, so a direct read may be shorter than asked for. */
    while (got < length) {
        ssize_t n = pread(s->items.fd, (char *)out + got, wanted - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -ENODATA;
        got += (size_t)n;
    }
    return 0;
}
