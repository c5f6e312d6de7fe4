/*
 * The recorder: writes the events of all threads into a mapped file.
 *
 * Each thread has an extent of the file to itself and appends to it without a lock, since no other
 * thread accesses it. When the extent is full, the thread finishes it with a checksum, and claims
 * and maps the next one. File space is allocated before it is mapped, so a full disk gives an error
 * code, never a SIGBUS. If another program truncates the file, its mappings turn into zeros
 * (base/truncation.h): events written there are lost. The next thread that begins or finishes an
 * extent finds the magic missing, and recording stops.
 *
 * Names and stacks are rare: they share one extent and a lock. Accelerators' times, which come in
 * batches, share another extent and the same lock. Memory is allocated under that lock, and a
 * tapped malloc records this. So what recording an event needs, a thread's writer, has a separate
 * lock.
 *
 * The page `here` is wiped in a forked child, which so finds out with one load that the recording
 * is its parent's: both would write to the same pages.
 */
#include "memory/record/recorder.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/memory.h"
#include "base/truncation.h"
#include "base/versioned.h"
#include "memory/record/format.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define THREADS_MOST 1024
#define LOCK_TRIES   10000
#define FD_LEAST     100 /* lower numbers are used by name: `exec 3>file` in a shell */

/* A thread's writer. Another thread reuses it after this one has ended. */
struct record_writer {
    struct hr_memory_recorder *recorder;
    struct hr__extent_header *extent; /* NULL: none */
    uint64_t used;                    /* bytes in it after its header */
    _Atomic uint64_t recorded, lost;
    struct record_writer *next_free;
    uint32_t number;
};

struct hr_memory_recorder {
    struct hr_memory_recorder *next_living; /* guarded by `living` */
    int fd;
    dev_t file_device; /* device and inode identify the file that `fd` was opened for */
    ino_t file_inode;
    uint64_t limit_bytes;
    uint64_t start_ns;
    struct hr__record_header *header; /* mapped */
    atomic_int *here;                 /* on its own page; 1: in the recording process */
    pthread_key_t key;                /* a thread's writer; its destructor returns the writer */
    _Atomic uint64_t end;             /* of the claimed part of the file */
    atomic_int stopped;               /* nothing more can be written */
    _Atomic uint64_t lost;            /* events without a writer: from excess threads, and
                                         accelerators' times */

    /* Guards free_writers and writer_count. It is taken within allocators, so its holder must not
     * allocate or wait. Lock order: after all others. */
    pthread_mutex_t places;
    struct record_writer *free_writers;
    uint32_t writer_count;

    pthread_mutex_t lock; /* guards the members below */
    struct hr__extent_header *texts, *ran;
    struct hr__ids names;  /* of HR__TEXT_NAME */
    struct hr__ids stacks; /* of HR__TEXT_STACK */
    struct record_writer writers[THREADS_MOST];
};

static const struct hr_memory_recorder_options defaults = {.size = sizeof defaults};

void hr_memory_recorder_options_init(struct hr_memory_recorder_options *options, size_t size)
{
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

/* ---- extents ---- */

static void *body(struct hr__extent_header *extent)
{
    return extent + 1;
}

/* Stops recording; keeps the first reason in the file. */
static void stop(struct hr_memory_recorder *r, int reason)
{
    if (!atomic_exchange(&r->stopped, 1))
        r->header->problem = reason;
}

/* Returns MAP_FAILED and sets errno like mmap. */
static void *map_file(const struct hr_memory_recorder *r, uint64_t at, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, (off_t)at);
    if (memory != MAP_FAILED)
        hr__truncation_guard(memory, bytes);
    return memory;
}

static void unmap_file(void *memory, size_t bytes)
{
    hr__truncation_unguard(memory);
    munmap(memory, bytes);
}

static void end_extent(struct hr_memory_recorder *r, struct hr__extent_header **pointer)
{
    struct hr__extent_header *extent = *pointer;
    if (!extent)
        return;
    extent->checksum = XXH3_64bits(body(extent), extent->used);
    __atomic_store_n(&extent->is_ended, 1, __ATOMIC_RELEASE);
    if (__atomic_load_n(&extent->magic, __ATOMIC_ACQUIRE) != HR__EXTENT_MAGIC)
        stop(r, -ESTALE);
    unmap_file(extent, HR__EXTENT_BYTES);
    *pointer = NULL;
}

/* Allocates file space; returns a positive errno. tmpfs stops early if a signal is pending. */
static int allocate(int fd, off_t at, off_t bytes)
{
    struct rlimit limit;
    int failed;
    /* Beyond the limit the kernel would send SIGXFSZ, which kills the program. */
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
        (uint64_t)at + (uint64_t)bytes > limit.rlim_cur)
        return EFBIG;
    do {
        failed = posix_fallocate(fd, at, bytes);
    } while (failed == EINTR);
    return failed;
}

/* Returns 0 if the program has closed our descriptor (daemons close all). The number may now belong
 * to a file of the program, which we must not write to. */
static int has_file(const struct hr_memory_recorder *r)
{
    struct stat status;
    return r->fd >= 0 && !fstat(r->fd, &status) && status.st_dev == r->file_device &&
           status.st_ino == r->file_inode;
}

/* Claims the next extent of the file; NULL: none left, and recording has stopped. */
static struct hr__extent_header *claim_extent(struct hr_memory_recorder *r,
                                              enum hr__extent_kind kind, uint32_t thread)
{
    if (atomic_load_explicit(&r->stopped, memory_order_relaxed))
        return NULL;
    uint64_t at = atomic_fetch_add(&r->end, HR__EXTENT_BYTES);
    if (r->limit_bytes && at + HR__EXTENT_BYTES > r->limit_bytes) {
        stop(r, -EFBIG);
        return NULL;
    }
    if (memcmp(r->header->magic, HR__RECORD_MAGIC, sizeof r->header->magic) != 0) {
        stop(r, -ESTALE);
        return NULL;
    }
    int failed = has_file(r) ? allocate(r->fd, (off_t)at, HR__EXTENT_BYTES) : EBADF;
    void *memory = MAP_FAILED;
    if (!failed) {
        memory = map_file(r, at, HR__EXTENT_BYTES);
        failed = memory == MAP_FAILED ? errno : 0;
    }
    if (failed) {
        stop(r, -failed);
        return NULL;
    }
    struct hr__extent_header *extent = memory;
    extent->kind = (uint32_t)kind;
    extent->thread = thread;
    __atomic_store_n(&extent->magic, HR__EXTENT_MAGIC, __ATOMIC_RELEASE);
    return extent;
}

/* ---- events ---- */

/* All live recorders. A thread that ends while its recorder is being destroyed must not access it,
 * and deleting a key does not wait for its destructors. Lock order: before a recorder's own. */
static struct {
    pthread_mutex_t lock; /* guards the list */
    struct hr_memory_recorder *first;
} living = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns 0 if the lock is unavailable: this is a forked child, and another thread of the parent
 * held the lock. Then no thread of the child can take it, so nothing needs it. */
static int lock_living(void)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (!pthread_mutex_trylock(&living.lock))
            return 1;
        sched_yield();
    }
    return 0;
}

static void begin_living(struct hr_memory_recorder *r)
{
    pthread_mutex_lock(&living.lock);
    r->next_living = living.first;
    living.first = r;
    pthread_mutex_unlock(&living.lock);
}

static void end_living(struct hr_memory_recorder *r, int is_mine)
{
    if (is_mine)
        pthread_mutex_lock(&living.lock);
    else if (!lock_living())
        return;
    struct hr_memory_recorder **place = &living.first;
    while (*place && *place != r)
        place = &(*place)->next_living;
    if (*place)
        *place = r->next_living;
    pthread_mutex_unlock(&living.lock);
}

static int is_of(const struct hr_memory_recorder *r, const struct record_writer *w)
{
    return (uintptr_t)w >= (uintptr_t)r->writers &&
           (uintptr_t)w < (uintptr_t)(r->writers + THREADS_MOST);
}

/* Returns the writer of a thread that has ended. */
static void give_back(void *arg)
{
    struct record_writer *w = arg;
    if (!lock_living())
        return;
    struct hr_memory_recorder *r = living.first;
    while (r && !is_of(r, w))
        r = r->next_living;
    if (r && atomic_load_explicit(r->here, memory_order_relaxed)) {
        pthread_mutex_lock(&r->places);
        w->next_free = r->free_writers;
        r->free_writers = w;
        pthread_mutex_unlock(&r->places);
    }
    pthread_mutex_unlock(&living.lock);
}

static struct record_writer *become_writer(struct hr_memory_recorder *r)
{
    pthread_mutex_lock(&r->places);
    struct record_writer *w = r->free_writers;
    if (w) {
        r->free_writers = w->next_free;
    } else if (r->writer_count < THREADS_MOST) {
        w = &r->writers[r->writer_count];
        w->number = r->writer_count++;
        w->recorder = r;
    }
    pthread_mutex_unlock(&r->places);
    if (w && !pthread_setspecific(r->key, w))
        return w;
    if (w)
        give_back(w);
    return NULL;
}

/* Makes space for one more event; 0: none left. */
static int make_room(struct hr_memory_recorder *r, struct record_writer *w)
{
    end_extent(r, &w->extent);
    w->used = 0;
    w->extent = claim_extent(r, HR__EXTENT_EVENTS, w->number);
    return w->extent != NULL;
}

uint64_t hr__recorder_start_ns(const struct hr_memory_recorder *recorder)
{
    return recorder->start_ns;
}

int hr__recorder_is_here(const struct hr_memory_recorder *recorder)
{
    return atomic_load_explicit(recorder->here, memory_order_relaxed);
}

uint64_t hr_memory_now_ns(const struct hr_memory_recorder *recorder)
{
    return hr__now_ns() - recorder->start_ns;
}

void hr_memory_record(struct hr_memory_recorder *r, const struct hr_memory_event *event)
{
    if (!atomic_load_explicit(r->here, memory_order_relaxed))
        return;
    struct record_writer *w = pthread_getspecific(r->key);
    if (!w && !(w = become_writer(r))) {
        atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
        return;
    }
    /* When one thread runs out of space, all threads stop: otherwise they would record blocks whose
     * allocations and frees are lost. */
    if (atomic_load_explicit(&r->stopped, memory_order_relaxed) ||
        ((!w->extent || w->used + sizeof *event > HR__EXTENT_ROOM) && !make_room(r, w))) {
        atomic_fetch_add_explicit(&w->lost, 1, memory_order_relaxed);
        return;
    }
    struct hr_memory_event *place = (void *)((char *)body(w->extent) + w->used);
    *place = *event;
    if (!place->time_ns)
        place->time_ns = hr_memory_now_ns(r);
    if (!w->used || place->time_ns < w->extent->first_ns)
        w->extent->first_ns = place->time_ns;
    w->used += sizeof *event;
    /* Counted events are complete, however the process ends. */
    __atomic_store_n(&w->extent->used, w->used, __ATOMIC_RELEASE);
    atomic_store_explicit(&w->recorded,
                          atomic_load_explicit(&w->recorded, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

void hr_memory_counts(const struct hr_memory_recorder *recorder, uint64_t *recorded, uint64_t *lost)
{
    struct hr_memory_recorder *r = (struct hr_memory_recorder *)recorder;
    *recorded = 0;
    *lost = atomic_load(&r->lost);
    for (size_t i = 0; i < THREADS_MOST; i++) {
        *recorded += atomic_load_explicit(&r->writers[i].recorded, memory_order_relaxed);
        *lost += atomic_load_explicit(&r->writers[i].lost, memory_order_relaxed);
    }
}

/* ---- names, stacks, facts ---- */

/* Appends a text; 0: no space. */
static int write_text_locked(struct hr_memory_recorder *r, enum hr__text_kind kind, uint32_t id,
                             const void *bytes, size_t length)
{
    size_t whole = sizeof(struct hr__text_header) + (length + 7) / 8 * 8;
    if (!r->texts || r->texts->used + whole > HR__EXTENT_ROOM) {
        end_extent(r, &r->texts);
        r->texts = claim_extent(r, HR__EXTENT_TEXTS, 0);
    }
    if (!r->texts)
        return 0;
    struct hr__text_header *head = (void *)((char *)body(r->texts) + r->texts->used);
    *head = (struct hr__text_header){
        .id = id,
        .kind = (uint16_t)kind,
        .length = (uint32_t)length,
        .check = (uint32_t)XXH3_64bits(bytes, length),
    };
    memcpy(head + 1, bytes, length);
    __atomic_store_n(&r->texts->used, r->texts->used + whole, __ATOMIC_RELEASE);
    return 1;
}

/* Returns the id of a text, writing it if it is new; 0: not possible. */
static uint32_t intern(struct hr_memory_recorder *r, enum hr__text_kind kind, const void *bytes,
                       size_t length)
{
    struct hr__ids *names = kind == HR__TEXT_NAME ? &r->names : &r->stacks;
    if (!atomic_load_explicit(r->here, memory_order_relaxed))
        return 0;
    /* Allocations under this lock may be recorded (a tapped malloc), which does not need it. */
    pthread_mutex_lock(&r->lock);
    uint32_t id = hr__ids_find(names, bytes, length);
    if (!id && write_text_locked(r, kind, names->count + 1, bytes, length))
        id = hr__ids_add(names, bytes, length);
    pthread_mutex_unlock(&r->lock);
    return id;
}

uint32_t hr_memory_name(struct hr_memory_recorder *recorder, const char *text)
{
    size_t length = strnlen(text, HR__TEXT_MOST);
    return intern(recorder, HR__TEXT_NAME, text, length);
}

uint32_t hr_memory_stack(struct hr_memory_recorder *recorder, const struct hr_memory_frame *frames,
                         size_t count)
{
    if (!count)
        return 0;
    count = count < HR__STACK_FRAMES_MOST ? count : HR__STACK_FRAMES_MOST;
    return intern(recorder, HR__TEXT_STACK, frames, count * sizeof *frames);
}

void hr_memory_fact(struct hr_memory_recorder *recorder, const char *name, const char *value)
{
    char text[HR__TEXT_MOST];
    int length = snprintf(text, sizeof text, "%s=%s", name, value);
    if (length < 0 || !atomic_load_explicit(recorder->here, memory_order_relaxed))
        return;
    length = length < (int)HR__TEXT_MOST ? length : (int)HR__TEXT_MOST - 1;
    pthread_mutex_lock(&recorder->lock);
    write_text_locked(recorder, HR__TEXT_FACT, 1, text, (size_t)length);
    pthread_mutex_unlock(&recorder->lock);
}

/* ---- times of accelerators ---- */

/* Appends one; 0: no space. */
static int write_ran_locked(struct hr_memory_recorder *r, const struct hr_memory_ran *ran)
{
    if (!r->ran || r->ran->used + sizeof *ran > HR__EXTENT_ROOM) {
        end_extent(r, &r->ran);
        r->ran = claim_extent(r, HR__EXTENT_RAN, 0);
    }
    if (!r->ran)
        return 0;
    struct hr_memory_ran *place = (void *)((char *)body(r->ran) + r->ran->used);
    *place = *ran;
    if (!r->ran->used || ran->begin_ns < r->ran->first_ns)
        r->ran->first_ns = ran->begin_ns;
    __atomic_store_n(&r->ran->used, r->ran->used + sizeof *ran, __ATOMIC_RELEASE);
    return 1;
}

void hr_memory_record_ran(struct hr_memory_recorder *recorder, const struct hr_memory_ran *ran,
                          size_t count)
{
    size_t written = 0;
    if (!atomic_load_explicit(recorder->here, memory_order_relaxed))
        return;
    pthread_mutex_lock(&recorder->lock);
    while (written < count && write_ran_locked(recorder, &ran[written]))
        written++;
    pthread_mutex_unlock(&recorder->lock);
    atomic_fetch_add_explicit(&recorder->lost, count - written, memory_order_relaxed);
}

/* ---- creation and destruction ---- */

int hr__recorder_may_replace(const char *path, struct hr_error *error)
{
    char magic[8] = {0};
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0
                               : hr__fail(error, -errno, "%s: cannot be replaced: %s", path,
                                          hr__errno_text(errno));
    int is_record = !fstat(fd, &status) && S_ISREG(status.st_mode) &&
                    (!status.st_size || (pread(fd, magic, sizeof magic, 0) == sizeof magic &&
                                         !memcmp(magic, HR__RECORD_MAGIC, sizeof magic)));
    close(fd);
    return is_record ? 0
                     : hr__fail(error, -EEXIST,
                                "%s exists and is not a memory record, so it is not replaced; name "
                                "another file",
                                path);
}

/* Allocates and maps the file's header. */
static int begin_file(struct hr_memory_recorder *r, const char *path, struct hr_error *error)
{
    int higher = fcntl(r->fd, F_DUPFD_CLOEXEC, FD_LEAST);
    if (higher >= 0) {
        close(r->fd);
        r->fd = higher;
    }
    struct stat status;
    if (fstat(r->fd, &status))
        return hr__fail(error, -errno, "%s: %s", path, hr__errno_text(errno));
    r->file_device = status.st_dev;
    r->file_inode = status.st_ino;
    int failed = allocate(r->fd, 0, HR__RECORD_HEADER);
    if (failed)
        return hr__fail(error, -failed, "%s: %s", path, hr__errno_text(failed));
    void *memory = map_file(r, 0, HR__RECORD_HEADER);
    if (memory == MAP_FAILED)
        return hr__fail(error, -errno, "%s: cannot be mapped: %s", path, hr__errno_text(errno));
    r->header = memory;
    return 0;
}

/* On failure no file is left. */
static int make_file(struct hr_memory_recorder *r, const char *path, struct hr_error *error)
{
    int code = hr__recorder_may_replace(path, error);
    if (code)
        return code;
    /* A process still recording into an old file continues with that one. */
    if (unlink(path) && errno != ENOENT)
        return hr__fail(error, -errno, "%s: cannot be replaced: %s", path, hr__errno_text(errno));
    r->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (r->fd < 0)
        return hr__fail(error, -errno, "%s: cannot be made: %s", path, hr__errno_text(errno));
    code = begin_file(r, path, error);
    if (code)
        unlink(path);
    return code;
}

static void write_header(struct hr_memory_recorder *r)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    r->start_ns = hr__now_ns();
    *r->header = (struct hr__record_header){
        .magic = HR__RECORD_MAGIC,
        .version = HR__RECORD_VERSION,
        .endian_mark = HR__ENDIAN_MARK,
        .header_bytes = HR__RECORD_HEADER,
        .extent_bytes = HR__EXTENT_BYTES,
        .start_ns = r->start_ns,
        .start_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
        .pid = getpid(),
    };
    r->header->checksum = XXH3_64bits(r->header, offsetof(struct hr__record_header, checksum));
}

void hr__recorder_set_origin(struct hr_memory_recorder *recorder, int64_t pid,
                             uint64_t start_unix_ns)
{
    struct hr__record_header *header = recorder->header;
    header->pid = pid;
    header->start_unix_ns = start_unix_ns;
    header->checksum = XXH3_64bits(header, offsetof(struct hr__record_header, checksum));
}

int hr__recorder_problem(const struct hr_memory_recorder *recorder)
{
    return (int)recorder->header->problem;
}

static int make_here(struct hr_memory_recorder *r, struct hr_error *error)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return hr__fail(error, -ENOMEM, "out of memory for a recorder");
    r->here = memory;
    if (madvise(memory, page, MADV_WIPEONFORK))
        return hr__fail(error, -errno,
                        "this kernel cannot wipe a page at fork (MADV_WIPEONFORK): "
                        "Linux 4.14 or later is needed");
    atomic_store(r->here, 1);
    return 0;
}

int hr_memory_recorder_create(struct hr_memory_recorder **out, const char *path,
                              const struct hr_memory_recorder_options *options,
                              struct hr_error *error)
{
    struct hr_memory_recorder_options o = defaults;
    *out = NULL;
    int code = options ? hr__versioned_take(&o, sizeof o, options,
                                            "struct hr_memory_recorder_options", error)
                       : 0;
    if (code)
        return code;
    struct hr_memory_recorder *r = hr__alloc(HR__TAG_MEMORY, 1, sizeof *r);
    if (!r)
        return hr__fail(error, -ENOMEM, "out of memory for a recorder");
    r->fd = -1;
    r->limit_bytes = o.limit_bytes;
    atomic_store(&r->end, HR__RECORD_HEADER);
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->places, NULL);
    code = pthread_key_create(&r->key, give_back);
    if (code) {
        pthread_mutex_destroy(&r->lock);
        pthread_mutex_destroy(&r->places);
        hr__free(r);
        return hr__fail(error, -code, "no thread-specific key is left for a recorder");
    }
    code = make_here(r, error);
    if (!code)
        code = make_file(r, path, error);
    if (code) {
        hr_memory_recorder_destroy(&r);
        return code;
    }
    write_header(r);
    begin_living(r);
    *out = r;
    return 0;
}

static void end_file(struct hr_memory_recorder *r)
{
    uint64_t recorded, lost;
    for (uint32_t i = 0; i < r->writer_count; i++)
        end_extent(r, &r->writers[i].extent);
    end_extent(r, &r->texts);
    end_extent(r, &r->ran);
    hr_memory_counts(r, &recorded, &lost);
    r->header->lost = lost;
    __atomic_store_n(&r->header->is_ended, 1, __ATOMIC_RELEASE);
}

void hr_memory_recorder_destroy(struct hr_memory_recorder **recorder)
{
    struct hr_memory_recorder *r = *recorder;
    if (!r)
        return;
    *recorder = NULL;
    /* A child leaves the mapping alone: its pages are the parent's. */
    int is_mine = r->here && atomic_load(r->here);
    pthread_key_delete(r->key);
    end_living(r, is_mine);
    if (r->header && is_mine)
        end_file(r);
    if (r->header)
        unmap_file(r->header, HR__RECORD_HEADER);
    if (has_file(r))
        close(r->fd);
    if (r->here)
        munmap(r->here, (size_t)sysconf(_SC_PAGESIZE));
    /* In a child another thread of the parent may have left these half updated. */
    if (is_mine) {
        hr__ids_clear(&r->names);
        hr__ids_clear(&r->stacks);
        pthread_mutex_destroy(&r->lock);
        pthread_mutex_destroy(&r->places);
    }
    hr__free(r);
}
