/*
 * Transactions: the books and one entry change together or not at all, no matter when the process
 * is killed; see segment.h. Also the locks, and the checks whether a segment is still sound.
 *
 * Data from the file is checked before use, because another process or a stray write may change it
 * at any moment. So the books are copied first and the copy is checked.
 */
#include "cache/segment_disk.h"
#include "cache/segment_inside.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* How long to wait for the lock, once. Transactions take microseconds, or tens of milliseconds
 * on a machine with many more runnable threads than cores. Only a stopped process holds the lock
 * longer. */
#define PATIENCE_NS UINT64_C(250000000)

/* How often to look at a changing entry before its writer counts as dead. */
#define MAX_LOOKS 10000

#define FORM_SHIFT    3
#define FORM_MASK     7u
#define OWNER_SHIFT   6
#define PENDING_SHIFT 14
#define TAKEN_SHIFT   15
#define VERSION_SHIFT 16
#define VERSION_MASK  0xffffu
#define RESERVE_SHIFT 32

_Static_assert(HR_FORMS <= FORM_MASK + 1, "a word has room for every form");

#define SHOWN (sizeof(struct hr__books) / sizeof(uint64_t))

void (*hr__segment_test_step)(int step);

uint64_t hr__word_pack(const struct hr__word *w)
{
    return (uint64_t)w->state | (uint64_t)w->form << FORM_SHIFT |
           (uint64_t)w->owner << OWNER_SHIFT | (uint64_t)w->pending << PENDING_SHIFT |
           (uint64_t)w->taken << TAKEN_SHIFT |
           (uint64_t)(w->version & VERSION_MASK) << VERSION_SHIFT |
           (uint64_t)w->reserve << RESERVE_SHIFT;
}

struct hr__word hr__word_unpack(uint64_t word)
{
    return (struct hr__word){
        .state = (enum hr__entry_state)(word & 7),
        .form = word >> FORM_SHIFT & FORM_MASK,
        .owner = word >> OWNER_SHIFT & 0xff,
        .pending = word >> PENDING_SHIFT & 1,
        .taken = word >> TAKEN_SHIFT & 1,
        .version = word >> VERSION_SHIFT & VERSION_MASK,
        .reserve = (uint32_t)(word >> RESERVE_SHIFT),
    };
}

int hr__segment_lock_byte(int fd, int command, int type, uint64_t from, uint64_t count,
                          uint64_t *found)
{
    struct flock lock = {
        .l_type = (short)type,
        .l_whence = SEEK_SET,
        .l_start = (off_t)(HR__SEGMENT_LOCKS + from),
        .l_len = (off_t)count,
    };
    if (fcntl(fd, command, &lock))
        return -errno;
    if (command != F_OFD_GETLK)
        return 0;
    if (lock.l_type == F_UNLCK)
        return 0;
    /* The kernel joins adjacent bytes that one handle has locked, so the lock that it reports may
     * begin before `from`. */
    uint64_t start = (uint64_t)lock.l_start - HR__SEGMENT_LOCKS;
    *found = start > from ? start : from;
    return 1;
}

/* Returns zero if the file was truncated, even if it has its length again; logs it once. */
static int is_whole(struct hr__segment *s)
{
    struct stat st;
    /* All earlier reads of the segment's bytes precede the read of the mark. */
    atomic_thread_fence(memory_order_acquire);
    /* Check the length first: the program may have replaced the SIGBUS handler. */
    if (!fstat(s->own.fd, &st) && st.st_size >= (off_t)s->layout.file_bytes &&
        atomic_load(s->mark) == HR__SEGMENT_MARK)
        return 1;
    if (!atomic_exchange(&s->broken, 1))
        hr__log(HR_LOG_WARNING,
                "the cache's segment %s was cut short: it is no longer used, samples are read from "
                "storage; the next start makes a new one",
                s->path);
    return 0;
}

int hr__segment_is_sound(struct hr__segment *s)
{
    if (hr__segment_is_broken(s) || !is_whole(s))
        return 0;
    if (atomic_load_explicit(&s->header->damaged, memory_order_relaxed)) {
        atomic_store(&s->broken, 1);
        return 0;
    }
    return 1;
}

void hr__segment_condemn(struct hr__segment *s, const char *what)
{
    if (!is_whole(s))
        return;
    if (!atomic_exchange(&s->broken, 1))
        hr__log(HR_LOG_WARNING,
                "the cache's segment %s is damaged (%s): it is no longer used, samples are read "
                "from storage; the next start makes a new one",
                s->path, what);
    atomic_store(&s->header->damaged, 1);
}

void hr__segment_reject(struct hr__segment *s)
{
    if (!is_whole(s))
        return;
    if (!s->secret.is_set) {
        hr__segment_condemn(s, "an item is not what was put there");
        return;
    }
    atomic_fetch_add_explicit(&s->header->foreign, 1, memory_order_relaxed);
    if (!atomic_exchange(&s->has_foreign, 1))
        hr__log(HR_LOG_WARNING,
                "the cache's segment %s has an item that was not made with this key file: its "
                "sample is read from storage. Does somebody else write to the segment? `headrace "
                "cache drop` removes it",
                s->path);
}

static int lock_file(struct hr__segment *s)
{
    uint64_t since = 0;
    for (unsigned tries = 0;; tries++) {
        int r =
            hr__segment_lock_byte(s->own.fd, F_OFD_SETLK, F_WRLCK, HR__SEGMENT_BOOK_LOCK, 1, NULL);
        if (!r) {
            atomic_store_explicit(&s->stuck, 0, memory_order_relaxed);
            return 0;
        }
        if ((r != -EAGAIN && r != -EACCES) || atomic_load_explicit(&s->stuck, memory_order_relaxed))
            return -EAGAIN;
        if (tries < 20) {
            sched_yield();
            continue;
        }
        uint64_t now = hr__now_ns();
        if (!since)
            since = now;
        if (now - since > PATIENCE_NS) {
            atomic_store_explicit(&s->stuck, 1, memory_order_relaxed);
            return -EAGAIN;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static void unlock_file(struct hr__segment *s)
{
    hr__segment_lock_byte(s->own.fd, F_OFD_SETLK, F_UNLCK, HR__SEGMENT_BOOK_LOCK, 1, NULL);
}

/* Checks what the books say about blocks. */
static int are_blocks_sane(const struct hr__segment *s, const struct hr__books *b)
{
    uint64_t bytes = b->block_bytes, count = bytes ? s->layout.arena_bytes / bytes : 0;
    if (!bytes)
        return !b->free_blocks;
    return !s->on_disk && bytes >= HR__BLOCK_MIN && bytes <= HR__BLOCK_MAX &&
           !(bytes & (bytes - 1)) && count <= HR__BLOCKS_MOST && b->free_blocks <= count &&
           (!b->free_blocks || b->free_block < count) && b->free_blocks * bytes <= b->arena_used;
}

static int are_sane(const struct hr__segment *s, const struct hr__books *b)
{
    const struct hr__segment_layout *l = &s->layout;
    uint64_t tail = atomic_load(&s->header->ring_tail);
    return b->arena_used <= b->arena_allocated && b->arena_allocated <= l->arena_bytes &&
           b->arena_used % HR__SEGMENT_ALIGN == 0 && b->promised <= l->arena_bytes &&
           (!b->ring_allocated || b->ring_allocated == l->ring_bytes) &&
           b->ring_head % HR__SEGMENT_ALIGN == 0 && tail % HR__SEGMENT_ALIGN == 0 &&
           tail <= b->ring_head && b->ring_head - tail <= l->ring_bytes &&
           b->ring_cursor <= b->ring_head && b->change <= l->index_slots &&
           b->end <= HR__DISK_END && are_blocks_sane(s, b);
}

/* Writes the changed entry of `books` into the index. May be repeated. */
static void apply(struct hr__segment *s, const struct hr__books *books)
{
    if (books->change) {
        struct hr__entry *e = &s->entries[books->change - 1];
        struct hr__word word = hr__word_unpack(books->after.word);
        word.version = (unsigned)books->sequence;
        /* Readers compare the word before and after reading the fields, so it must change before
         * the first field does. */
        struct hr__word between = {.state = HR__ENTRY_CHANGING, .version = word.version};
        atomic_store_explicit(&e->word, hr__word_pack(&between), memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        atomic_store_explicit(&e->key_high, books->after.key_high, memory_order_relaxed);
        atomic_store_explicit(&e->key_low, books->after.key_low, memory_order_relaxed);
        atomic_store_explicit(&e->offset, books->after.offset, memory_order_relaxed);
        atomic_store_explicit(&e->lengths, books->after.lengths, memory_order_relaxed);
        atomic_store_explicit(&e->checksum, books->after.checksum, memory_order_relaxed);
        hr__segment_step(HR__STEP_ENTRY);
        atomic_store_explicit(&e->word, hr__word_pack(&word), memory_order_release);
    }
    hr__segment_step(HR__STEP_WORD);
    atomic_store(&s->header->applied, books->sequence);
}

/* Publishes the books. Precedes apply, which records completion: if this process is killed between,
 * the next one publishes again. */
static void show(struct hr__segment *s, const struct hr__books *books)
{
    uint64_t words[SHOWN];
    memcpy(words, books, sizeof words);
    for (size_t i = 0; i < SHOWN; i++)
        atomic_store_explicit(&s->header->shown[i], words[i], memory_order_relaxed);
}

void hr__segment_restart_books(struct hr__segment *s, const struct hr__books *books)
{
    struct hr__segment_header *h = s->header;
    h->books[0] = h->books[1] = *books;
    atomic_store(&h->current, 0);
    show(s, books);
    atomic_store(&h->applied, books->sequence);
}

/* Returns a copy of the current books, with their entry in the index; NULL if they are wrong. */
static struct hr__books *current_locked(struct hr__segment *s)
{
    struct hr__segment_header *h = s->header;
    struct hr__books *books = &s->books;
    memcpy(books, &h->books[atomic_load(&h->current) & 1], sizeof *books);
    if (!are_sane(s, books)) {
        hr__segment_condemn(s, "its books are wrong");
        return NULL;
    }
    if (atomic_load(&h->applied) != books->sequence) {
        show(s, books);
        apply(s, books);
    }
    return books;
}

struct hr__books *hr__segment_begin(struct hr__segment *s)
{
    pthread_mutex_lock(&s->lock);
    if (hr__segment_is_sound(s) && !lock_file(s)) {
        hr__segment_step(HR__STEP_LOCKED);
        struct hr__books *books = current_locked(s);
        if (books) {
            books->sequence++;
            books->change = 0;
            hr__segment_step(HR__STEP_COPIED);
            return books;
        }
        unlock_file(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int hr__segment_look(struct hr__segment *s, uint64_t index, int locked, struct hr__found *out)
{
    struct hr__entry *e = &s->entries[index];
    for (int looks = 0; looks < 3 * MAX_LOOKS; looks++) {
        uint64_t word = atomic_load_explicit(&e->word, memory_order_acquire);
        if (!word)
            return 0;
        out->word = hr__word_unpack(word);
        if (out->word.state == HR__ENTRY_CHANGING) {
            /* Its writer died: the next transaction finishes the change. */
            if (locked)
                return 0;
            if (looks % MAX_LOOKS == MAX_LOOKS - 1 && hr__segment_begin(s))
                hr__segment_abort(s);
            continue;
        }
        out->key.high = atomic_load_explicit(&e->key_high, memory_order_relaxed);
        out->key.low = atomic_load_explicit(&e->key_low, memory_order_relaxed);
        out->offset = atomic_load_explicit(&e->offset, memory_order_relaxed);
        uint64_t lengths = atomic_load_explicit(&e->lengths, memory_order_relaxed);
        out->checksum = atomic_load_explicit(&e->checksum, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&e->word, memory_order_relaxed) != word)
            continue;
        out->index = index;
        out->length = (uint32_t)lengths;
        out->source_bytes = (uint32_t)(lengths >> 32);
        return 1;
    }
    return 0;
}

void hr__segment_change(struct hr__segment *s, struct hr__books *books, uint64_t index)
{
    const struct hr__entry *e = &s->entries[index];
    books->change = index + 1;
    books->after = (struct hr__entry_value){
        .word = atomic_load(&e->word),
        .key_high = atomic_load(&e->key_high),
        .key_low = atomic_load(&e->key_low),
        .offset = atomic_load(&e->offset),
        .lengths = atomic_load(&e->lengths),
        .checksum = atomic_load(&e->checksum),
    };
}

void hr__segment_commit(struct hr__segment *s)
{
    struct hr__segment_header *h = s->header;
    unsigned spare = !(atomic_load(&h->current) & 1);
    memcpy(&h->books[spare], &s->books, sizeof s->books);
    hr__segment_step(HR__STEP_WRITTEN);
    atomic_store(&h->current, spare);
    hr__segment_step(HR__STEP_CURRENT);
    show(s, &s->books);
    apply(s, &s->books);
    hr__segment_step(HR__STEP_APPLIED);
    hr__segment_abort(s);
}

void hr__segment_abort(struct hr__segment *s)
{
    unlock_file(s);
    pthread_mutex_unlock(&s->lock);
}

struct hr__books hr__segment_books(const struct hr__segment *s)
{
    uint64_t words[SHOWN];
    struct hr__books out;
    for (size_t i = 0; i < SHOWN; i++)
        words[i] = atomic_load_explicit(&s->header->shown[i], memory_order_relaxed);
    memcpy(&out, words, sizeof out);
    return out;
}
