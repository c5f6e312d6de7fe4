/*
 * The readers on real files: all backends and depths give the same bytes and errors; special files
 * do not hang; files change while they are read; nothing leaks, whenever a reader is destroyed.
 */
#include "../test.h"

#include "base/clock.h"
#include "base/memory.h"
#include "files.h"
#include "storage/reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

struct shape {
    unsigned depth;
    int direct, no_io_uring;
};

static const struct shape shapes[] = {{1, 0, 0},  {1, 0, 1},  {5, 0, 0},    {5, 1, 0},
                                      {32, 0, 0}, {32, 0, 1}, {1024, 0, 0}, {3, 1, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct hr__reader *make(struct shape shape, uint64_t max_bytes)
{
    struct hr__reader *reader = NULL;
    struct hr_error error;
    struct hr__reader_options options = {.depth = shape.depth,
                                         .direct = shape.direct,
                                         .no_io_uring = shape.no_io_uring,
                                         .max_bytes = max_bytes};
    assert_int_equal(hr__reader_create(&reader, &options, &error), 0);
    if (shape.no_io_uring)
        assert_false(hr__reader_is_io_uring(reader));
    return reader;
}

/* Reads all files, with as many reads in flight as the depth allows. */
static void read_all(struct hr__reader *reader, struct hr__read *reads, int count, int capacity)
{
    struct hr__read *done[16];
    int next = 0, left = count;
    while (left) {
        while (next < count && !hr__reader_submit(reader, &reads[next]))
            next++;
        int n = hr__reader_wait(reader, done, capacity, -1);
        assert_in_range(n, 1, capacity);
        for (int i = 0; i < n; i++) {
            assert_int_not_equal(done[i]->result, -EINPROGRESS);
            assert_true(done[i]->completed_ns >= done[i]->submitted_ns);
            left--;
        }
    }
    assert_int_equal(hr__reader_wait(reader, done, capacity, -1), 0);
}

static void check_bytes(struct hr__read *read, size_t size, unsigned seed)
{
    assert_int_equal(read->result, 0);
    assert_int_equal(read->length, size);
    assert_int_equal((uintptr_t)read->bytes % 64, 0);
    assert_int_equal(files_differ(read->bytes, size, seed), size);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(read->bytes[size + i], 0);
    hr__free(read->bytes);
    read->bytes = NULL;
}

static void all_backends_agree(void **state)
{
    enum { FILES = 60 };
    char *paths[FILES];
    size_t sizes[FILES];
    for (int i = 0; i < FILES; i++) {
        static const size_t edges[] = {0, 1, 63, 64, 4095, 4096, 4097, 8192, 131072, 5000000};
        char name[16];
        snprintf(name, sizeof name, "agree%d", i);
        sizes[i] = i < 10 ? edges[i] : (size_t)i * 7919 % 200000;
        paths[i] = files_make(name, (unsigned)i, sizes[i]);
    }
    int open_before = files_open_count();
    for (int s = 0; s < SHAPES; s++) {
        struct hr__reader *reader = make(shapes[s], 0);
        for (int capacity = 1; capacity <= 16; capacity += 15) {
            struct hr__read reads[FILES];
            for (int i = 0; i < FILES; i++) /* `expected` is a hint that may be wrong */
                reads[i] = (struct hr__read){
                    .path = paths[i], .expected = i % 3 ? i : -1, .uncached = i % 2};
            read_all(reader, reads, FILES, capacity);
            for (int i = 0; i < FILES; i++)
                check_bytes(&reads[i], sizes[i], (unsigned)i);
        }
        hr__reader_destroy(&reader);
        assert_null(reader);
        assert_int_equal(files_open_count(), open_before);
        assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
    }
    for (int i = 0; i < FILES; i++) {
        struct hr__read read = {.path = paths[i], .expected = -1, .uncached = i % 2};
        assert_int_equal(hr__read_file(&read, 0), 0);
        check_bytes(&read, sizes[i], (unsigned)i);
        free(paths[i]);
    }
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static int resident_pages(const char *path)
{
    static unsigned char pages[1000];
    int fd = open(path, O_RDONLY | O_CLOEXEC), count = 0;
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    size_t n = ((size_t)status.st_size + 4095) / 4096;
    void *map = mmap(NULL, n * 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(n <= sizeof pages && map != MAP_FAILED && !mincore(map, n * 4096, pages));
    for (size_t i = 0; i < n; i++)
        count += pages[i] & 1;
    munmap(map, n * 4096);
    close(fd);
    return count;
}

/* Files that were not in the page cache are not there afterwards; those that were stay. */
static void uncached_reads_leave_nothing(void **state)
{
    enum { BYTES = 500000 };
    char *path = files_make("uncached", 8, BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    if (resident_pages(path)) {
        close(fd);
        free(path);
        skip(); /* the file exists only in the page cache */
    }
    for (int s = 0; s < SHAPES; s++) {
        struct hr__reader *reader = make(shapes[s], 0);
        struct hr__read read = {.path = path, .expected = -1, .uncached = 1};
        struct hr__read range = {.path = path,
                                 .expected = 100000,
                                 .is_range = 1,
                                 .fd = shapes[s].direct ? -1 : fd,
                                 .offset = 12345,
                                 .uncached = 1};
        read_all(reader, &read, 1, 1);
        check_bytes(&read, BYTES, 8);
        read_all(reader, &range, 1, 1);
        assert_int_equal(range.result, 0);
        assert_int_equal(range.bytes[0], files_byte(8, 12345));
        hr__free(range.bytes);
        assert_int_equal(resident_pages(path), 0);
        hr__reader_destroy(&reader);
    }
    struct hr__read read = {.path = path, .expected = -1};
    for (int uncached = 0; uncached < 2; uncached++) {
        read.uncached = uncached;
        assert_int_equal(hr__read_file(&read, 0), 0);
        check_bytes(&read, BYTES, 8);
        assert_int_equal(resident_pages(path), (BYTES + 4095) / 4096);
    }
    close(fd);
    free(path);
}

/* Ranges of one file, through a given descriptor and by path, among whole files. */
static void ranges_of_a_container(void **state)
{
    enum { COUNT = 40, BYTES = 300000 };
    char *path = files_make("ranges", 3, BYTES);
    int open_before = files_open_count();
    for (int s = 0; s < SHAPES; s++) {
        struct hr__reader *reader = make(shapes[s], 0);
        struct hr__read reads[COUNT];
        int fd = open(path, O_RDONLY | O_CLOEXEC | (shapes[s].direct ? O_DIRECT : 0));
        assert_true(fd >= 0);
        for (int i = 0; i < COUNT; i++) {
            reads[i] = (struct hr__read){.path = path, .expected = -1};
            if (i % 4 == 3)
                continue;
            reads[i].is_range = 1;
            reads[i].fd = i % 4 == 2 ? -1 : fd;
            reads[i].offset = (uint64_t)i * 6007;
            reads[i].expected = i * 1013 % 50000;
        }
        reads[4].offset = BYTES - 10;
        reads[4].expected = 11;
        read_all(reader, reads, COUNT, 16);
        for (int i = 0; i < COUNT; i++) {
            if (i == 4) {
                assert_int_equal(reads[i].result, -ENODATA);
                continue;
            }
            size_t length = i % 4 == 3 ? BYTES : (size_t)reads[i].expected;
            assert_int_equal(reads[i].result, 0);
            assert_int_equal(reads[i].length, length);
            for (size_t k = 0; k < length; k++)
                if (reads[i].bytes[k] != files_byte(3, (size_t)reads[i].offset + k))
                    fail_msg("read %d differs at %zu", i, k);
            hr__free(reads[i].bytes);
        }
        hr__reader_destroy(&reader);
        assert_int_equal(close(fd), 0);
        assert_int_equal(files_open_count(), open_before);
        assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
    }
    struct hr__read read = {.path = path, .is_range = 1, .fd = -1, .offset = 7, .expected = 9};
    assert_int_equal(hr__read_file(&read, 0), 0);
    assert_int_equal(read.bytes[8], files_byte(3, 15));
    hr__free(read.bytes);
    free(path);
}

/* Destroying a reader with ranges in flight does not close the given descriptor. */
static void ranges_destroyed_in_flight(void **state)
{
    char *path = files_make("inflight", 4, 100000);
    for (int s = 0; s < SHAPES; s++) {
        struct hr__reader *reader = make(shapes[s], 0);
        struct hr__read reads[8];
        int fd = open(path, O_RDONLY | O_CLOEXEC | (shapes[s].direct ? O_DIRECT : 0));
        for (int i = 0; i < 8 && i < (int)shapes[s].depth; i++) {
            reads[i] = (struct hr__read){
                .path = path, .is_range = 1, .fd = fd, .offset = 4096, .expected = 5000};
            assert_int_equal(hr__reader_submit(reader, &reads[i]), 0);
        }
        hr__reader_destroy(&reader);
        assert_int_equal(reads[0].result, -ECANCELED);
        assert_int_equal(close(fd), 0);
        assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
    }
    free(path);
}

/* Everything that is not a readable regular file, with its errno. */
static void odd_paths_fail_and_do_not_hang(void **state)
{
    char *fifo = files_path("fifo"), *socket_path = files_path("socket");
    char *directory = files_path("directory"), *loop = files_path("loop");
    char *missing = files_path("missing"), *large = files_make("large", 1, 100001);
    char *good = files_make("good", 2, 1234), *below = files_path("good/below");
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(symlink("loop", loop), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(chdir(files_root), 0);
    strcpy(address.sun_path, "socket");
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    const struct {
        const char *path;
        int result;
    } cases[] = {{fifo, -ENXIO},           {directory, -EISDIR},  {"/dev/zero", -ENXIO},
                 {missing, -ENOENT},       {loop, -ELOOP},        {large, -EFBIG},
                 {socket_path, -ENXIO},    {"", -ENOENT},         {below, -ENOTDIR},
                 {longest, -ENAMETOOLONG}, {"/dev/null", -ENXIO}, {good, 0}};
    enum { CASES = sizeof cases / sizeof *cases };
    int open_before = files_open_count();
    for (int s = 0; s < SHAPES; s++) {
        struct hr__reader *reader = make(shapes[s], 100000);
        struct hr__read reads[CASES];
        for (int i = 0; i < CASES; i++)
            reads[i] = (struct hr__read){.path = cases[i].path, .expected = 50};
        read_all(reader, reads, CASES, 16);
        for (int i = 0; i < CASES; i++) {
            assert_int_equal(reads[i].result, cases[i].result);
            if (reads[i].result) {
                assert_null(reads[i].bytes);
                assert_int_equal(reads[i].length, 0);
            }
        }
        check_bytes(&reads[CASES - 1], 1234, 2);
        hr__reader_destroy(&reader);
        assert_int_equal(files_open_count(), open_before);
        assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
    }
    close(fd);
    char *all[] = {fifo, socket_path, directory, loop, missing, large, good, below};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* As a user without rights: root, who may read everything, becomes that user first. */
static void unreadable_file(void **state)
{
    char *path = files_make("secret", 1, 100);
    assert_int_equal(chmod(path, 0), 0);
    pid_t child = fork();
    if (!child) {
        int bad = 0;
        if (!geteuid() && (setgid(65534) || setuid(65534)))
            _exit(9);
        if (access(files_root, X_OK))
            _exit(0); /* the folder itself is inaccessible: EACCES as well, below */
        for (int s = 0; s < 2; s++) {
            struct hr__reader_options options = {.depth = 4, .no_io_uring = s};
            struct hr__reader *reader;
            struct hr__read read = {.path = path, .expected = -1}, *done;
            if (hr__reader_create(&reader, &options, NULL) || hr__reader_submit(reader, &read))
                _exit(8);
            bad |= hr__reader_wait(reader, &done, 1, -1) != 1 || done->result != -EACCES;
            hr__reader_destroy(&reader);
        }
        _exit(bad);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    free(path);
}

/* Files in /proc have size 0, and contents. */
static void files_without_a_size(void **state)
{
    for (int s = 0; s < SHAPES; s++) {
        struct hr__reader *reader = make(shapes[s], 0);
        struct hr__read read = {.path = "/proc/cpuinfo", .expected = -1};
        read_all(reader, &read, 1, 1);
        assert_int_equal(read.result, 0);
        assert_true(read.length > 100);
        assert_non_null(strstr((char *)read.bytes, "processor"));
        assert_int_equal(strlen((char *)read.bytes), read.length);
        hr__free(read.bytes);
        hr__reader_destroy(&reader);
    }
}

/* A sparse file of more than 32 bits: refused because of its size, before memory is allocated. */
static void enormous_file(void **state)
{
    char *path = files_make("enormous", 1, 1);
    if (truncate(path, (off_t)5 << 30)) {
        free(path);
        skip(); /* the file system's limit is lower */
    }
    for (int s = 0; s < 2; s++) {
        struct hr__reader *reader = make(shapes[s], 0);
        struct hr__read read = {.path = path, .expected = 1};
        uint64_t before = hr__allocated(HR__TAG_STORAGE);
        read_all(reader, &read, 1, 1);
        assert_int_equal(read.result, -EFBIG);
        assert_int_equal(hr__allocated(HR__TAG_STORAGE), before);
        hr__reader_destroy(&reader);
    }
    free(path);
}

struct changer {
    char *path;
    atomic_int stop;
};

/* Truncates and rewrites a file as fast as possible. A byte of it has one value or, after the file
 * was truncated and extended again, is zero. */
static void *change(void *arg)
{
    struct changer *c = arg;
    uint8_t data[60000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = files_byte(11, i);
    int fd = open(c->path, O_WRONLY | O_CLOEXEC);
    for (unsigned round = 0; fd >= 0 && !atomic_load(&c->stop); round++) {
        size_t size = round * 7919u % sizeof data;
        if (ftruncate(fd, (off_t)(size / 2)) || pwrite(fd, data, size, 0) != (ssize_t)size)
            break;
        if (round % 16 == 0) { /* disappears for a moment */
            close(fd);
            unlink(c->path);
            fd = open(c->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        }
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void files_that_change(void **state)
{
    struct changer c = {.path = files_make("changing", 11, 30000)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
    for (int s = 0; s < SHAPES; s++) {
        struct hr__reader *reader = make(shapes[s], 0);
        uint64_t until = hr__now_ns() + 100000000;
        while (hr__now_ns() < until) {
            struct hr__read reads[8];
            for (int i = 0; i < 8; i++)
                reads[i] = (struct hr__read){.path = c.path, .expected = 30000};
            read_all(reader, reads, 8, 8);
            for (int i = 0; i < 8; i++) {
                assert_true(!reads[i].result || reads[i].result == -ENOENT);
                if (!reads[i].result) {
                    assert_true(reads[i].length <= 60000);
                    for (size_t b = 0; b < reads[i].length + 64; b++)
                        assert_true(!reads[i].bytes[b] || (b < reads[i].length &&
                                                           reads[i].bytes[b] == files_byte(11, b)));
                    hr__free(reads[i].bytes);
                }
            }
        }
        hr__reader_destroy(&reader);
    }
    atomic_store(&c.stop, 1);
    pthread_join(thread, NULL);
    free(c.path);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static void depth_is_a_limit(void **state)
{
    char *path = files_make("depth", 3, 100);
    static const unsigned wrong[] = {0, 1025, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        struct hr__reader *reader;
        struct hr_error error = {0};
        struct hr__reader_options options = {.depth = wrong[i]};
        assert_int_equal(hr__reader_create(&reader, &options, &error), -EINVAL);
        assert_non_null(strstr(error.message, "depth"));
    }
    for (int s = 0; s < 2; s++) {
        struct hr__reader *reader = make((struct shape){3, 0, s}, 0);
        struct hr__read reads[4], *done[4];
        for (int i = 0; i < 4; i++) {
            reads[i] = (struct hr__read){.path = path, .expected = -1};
            assert_int_equal(hr__reader_submit(reader, &reads[i]), i < 3 ? 0 : -EAGAIN);
        }
        int collected = 0;
        while (collected < 3) {
            int n = hr__reader_wait(reader, done, 1, -1);
            assert_int_equal(n, 1);
            check_bytes(done[0], 100, 3);
            collected++;
        }
        assert_int_equal(hr__reader_submit(reader, &reads[3]), 0);
        assert_int_equal(hr__reader_wait(reader, done, 4, -1), 1);
        check_bytes(done[0], 100, 3);
        hr__reader_destroy(&reader);
    }
    free(path);
}

/* Polls and timed waits return, and get the completion in the end. With no request under way they
 * return at once, however long the limit: otherwise the wait would outlast this program's. */
static void timeouts(void **state)
{
    char *path = files_make("timeouts", 4, 50000);
    static const int64_t waits[] = {0, 1, 1000000, INT64_C(3600000000000)};
    for (int s = 0; s < SHAPES; s++)
        for (int w = 0; w < 4; w++) {
            struct hr__reader *reader = make(shapes[s], 0);
            struct hr__read read = {.path = path, .expected = -1}, *done = NULL;
            assert_int_equal(hr__reader_wait(reader, &done, 1, waits[w]), 0);
            assert_int_equal(hr__reader_submit(reader, &read), 0);
            int n = 0;
            while (!n)
                n = hr__reader_wait(reader, &done, 1, waits[w]);
            assert_int_equal(n, 1);
            assert_ptr_equal(done, &read);
            check_bytes(&read, 50000, 4);
            hr__reader_destroy(&reader);
        }
    free(path);
}

/* Destroys readers with requests at every stage: not yet submitted to the kernel, submitted, and
 * complete but not collected. */
static void destroy_in_flight(void **state)
{
    enum { COUNT = 24 };
    char *path = files_make("in-flight", 5, 300000);
    int open_before = files_open_count();
    for (int s = 0; s < SHAPES; s++)
        for (int polls = 0; polls < 4; polls++)
            for (int cold = 0; cold < 2; cold++) {
                struct hr__reader *reader = make(shapes[s], 0);
                struct hr__read reads[COUNT], *done;
                int submitted = 0, collected = 0;
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                if (cold)
                    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
                close(fd);
                for (; submitted < COUNT; submitted++) {
                    reads[submitted] = (struct hr__read){.path = path, .expected = -1};
                    if (hr__reader_submit(reader, &reads[submitted]))
                        break;
                }
                for (int p = 0; p < polls; p++) {
                    int n = hr__reader_wait(reader, &done, 1, 0);
                    assert_in_range(n, 0, 1);
                    if (n) {
                        collected++;
                        check_bytes(done, 300000, 5);
                    }
                }
                hr__reader_destroy(&reader);
                int cancelled = 0;
                for (int i = 0; i < submitted; i++)
                    if (reads[i].result == -ECANCELED) {
                        assert_null(reads[i].bytes);
                        cancelled++;
                    }
                assert_int_equal(cancelled, submitted - collected);
                assert_int_equal(files_open_count(), open_before);
                assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
            }
    struct hr__reader *none = NULL;
    hr__reader_destroy(&none);
    free(path);
}

/* A child that destroys the reader it inherited must not disturb the parent's requests, nor wait
 * for them. */
static void destroy_in_a_forked_child(void **state)
{
    char *path = files_make("forked", 6, 200000);
    for (int s = 0; s < 2; s++) {
        struct hr__reader *reader = make((struct shape){8, 0, s}, 0);
        struct hr__read reads[8], *done[8];
        for (int i = 0; i < 8; i++) {
            reads[i] = (struct hr__read){.path = path, .expected = -1};
            assert_int_equal(hr__reader_submit(reader, &reads[i]), 0);
        }
        int n = hr__reader_wait(reader, done, 1, 0);
        if (n == 1)
            check_bytes(done[0], 200000, 6);
        pid_t child = fork();
        if (!child) {
            alarm(300);
            hr__reader_destroy(&reader);
            _exit(reader != NULL || hr__allocated(HR__TAG_STORAGE) != 0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        for (int left = 8 - n; left;) {
            int got = hr__reader_wait(reader, done, 8, -1);
            assert_true(got > 0);
            for (int i = 0; i < got; i++, left--)
                check_bytes(done[i], 200000, 6);
        }
        hr__reader_destroy(&reader);
    }
    free(path);
}

/* Buffers belong to the thread that collected them, even after the reader is gone. */
static void bytes_outlive_the_reader(void **state)
{
    char *path = files_make("outlive", 7, 100000);
    for (int s = 0; s < 2; s++) {
        struct hr__reader *reader = make((struct shape){2, 0, s}, 0);
        struct hr__read read = {.path = path, .expected = -1};
        read_all(reader, &read, 1, 1);
        hr__reader_destroy(&reader);
        check_bytes(&read, 100000, 7);
        assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
    }
    free(path);
}

static void no_memory(void **state)
{
    char *path = files_make("no-memory", 8, 1000);
    for (int s = 0; s < 2; s++)
        for (uint64_t n = 1; n <= 8; n++) {
            struct hr__reader *reader = NULL;
            struct hr__reader_options options = {.depth = 2, .no_io_uring = s};
            struct hr__read read = {.path = path, .expected = -1};
            struct hr_error error;
            hr__alloc_fail_at(n, 0);
            int rc = hr__reader_create(&reader, &options, &error);
            assert_true(rc == 0 || rc == -ENOMEM);
            if (!rc) {
                read_all(reader, &read, 1, 1);
                assert_true(!read.result || read.result == -ENOMEM);
                hr__free(read.bytes);
            } else {
                assert_null(reader);
            }
            hr__alloc_fail_at(0, 0);
            hr__reader_destroy(&reader);
            assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
        }
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends_agree),
        cmocka_unit_test(uncached_reads_leave_nothing),
        cmocka_unit_test(ranges_of_a_container),
        cmocka_unit_test(ranges_destroyed_in_flight),
        cmocka_unit_test(odd_paths_fail_and_do_not_hang),
        cmocka_unit_test(unreadable_file),
        cmocka_unit_test(files_without_a_size),
        cmocka_unit_test(enormous_file),
        cmocka_unit_test(files_that_change),
        cmocka_unit_test(depth_is_a_limit),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(destroy_in_flight),
        cmocka_unit_test(destroy_in_a_forked_child),
        cmocka_unit_test(bytes_outlive_the_reader),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests_name("storage-reader", tests, files_setup, files_teardown);
}
