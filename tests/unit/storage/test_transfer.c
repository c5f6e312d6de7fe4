/*
 * The transfer's state machine with results that kernels rarely return: short reads, interruptions,
 * would-block, files that change between open and read, O_DIRECT refused at each step.
 */
#include "../test.h"

#include "base/memory.h"
#include "files.h"
#include "storage/transfer.h"

#include <sys/syscall.h>

/* Acts as a driver whose reads return at most `most` bytes. */
struct transfer_driver {
    struct hr__read read;
    struct hr__transfer t;
    struct hr__transfer_rules rules;
    enum hr__transfer_step step;
};

static void begin(struct transfer_driver *d, const char *path, int direct)
{
    *d = (struct transfer_driver){.read = {.path = path, .expected = -1},
                                  .rules = {.max_bytes = 1 << 20, .direct = direct}};
    hr__transfer_begin(&d->t, &d->read, &d->rules);
    d->step = HR__STEP_OPEN;
}

static void do_open(struct transfer_driver *d)
{
    assert_int_equal(d->step, HR__STEP_OPEN);
    if (d->t.stale_fd >= 0)
        close(d->t.stale_fd);
    d->t.stale_fd = -1;
    int fd = open(d->read.path, hr__transfer_open_flags(&d->t));
    d->step = hr__transfer_opened(&d->t, fd < 0 ? -errno : fd);
}

static void do_read(struct transfer_driver *d, size_t most)
{
    assert_int_equal(d->step, HR__STEP_READ);
    size_t n = hr__transfer_request(&d->t);
    assert_true(n > 0);
    ssize_t got = pread(d->t.fd, d->t.bytes + d->t.length, n < most ? n : most, (off_t)d->t.length);
    d->step = hr__transfer_got(&d->t, got < 0 ? -errno : got);
}

static void end(struct transfer_driver *d, int result, size_t length, unsigned seed)
{
    assert_int_equal(d->step, HR__STEP_DONE);
    assert_int_equal(d->read.result, result);
    assert_null(d->t.bytes);
    if (!result) {
        assert_int_equal(d->read.length, length);
        assert_int_equal((uintptr_t)d->read.bytes % 64, 0);
        assert_int_equal(files_differ(d->read.bytes, length, seed), length);
        for (int i = 0; i < 64; i++)
            assert_int_equal(d->read.bytes[length + (size_t)i], 0);
        hr__free(d->read.bytes);
    } else {
        assert_null(d->read.bytes);
    }
    assert_true(d->read.completed_ns >= d->read.submitted_ns);
    if (d->t.stale_fd >= 0)
        close(d->t.stale_fd);
    if (d->t.fd >= 0)
        close(d->t.fd);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static void short_reads_add_up(void **state)
{
    static const size_t most[] = {1, 7, 511, 4096, 10000};
    char *path = files_make("short", 1, 10000);
    for (size_t m = 0; m < sizeof most / sizeof *most; m++) {
        struct transfer_driver d;
        begin(&d, path, 0);
        do_open(&d);
        unsigned reads = 0;
        for (; d.step == HR__STEP_READ; reads++)
            do_read(&d, most[m]);
        assert_int_equal(reads, (10000 + most[m] - 1) / most[m]);
        end(&d, 0, 10000, 1);
    }
    free(path);
}

static void one_read_for_a_steady_file(void **state)
{
    static const size_t sizes[] = {1, 63, 64, 65, 4095, 4096, 4097, 100000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        char *path = files_make("steady", 2, sizes[s]);
        struct transfer_driver d;
        begin(&d, path, 0);
        do_open(&d);
        do_read(&d, SIZE_MAX);
        end(&d, 0, sizes[s], 2);
        free(path);
    }
}

static void interruptions_pass(void **state)
{
    char *path = files_make("eintr", 3, 5000);
    struct transfer_driver d;
    begin(&d, path, 0);
    d.step = hr__transfer_opened(&d.t, -EINTR);
    assert_int_equal(d.step, HR__STEP_OPEN);
    d.step = hr__transfer_opened(&d.t, -EAGAIN);
    do_open(&d);
    do_read(&d, 1000);
    d.step = hr__transfer_got(&d.t, -EINTR);
    assert_int_equal(d.t.length, 1000);
    do_read(&d, 1000);
    assert_true(fcntl(d.t.fd, F_GETFL) & O_NONBLOCK);
    d.step = hr__transfer_got(&d.t, -EAGAIN);
    assert_int_equal(d.t.length, 2000);
    /* On a file system that must wait, it would fail for ever with O_NONBLOCK. */
    assert_true(d.t.blocking);
    assert_false(fcntl(d.t.fd, F_GETFL) & O_NONBLOCK);
    do_read(&d, SIZE_MAX);
    end(&d, 0, 5000, 3);
    free(path);
}

static void endless_interruption_is_an_error(void **state)
{
    static const int codes[] = {-EINTR, -EAGAIN};
    char *path = files_make("endless", 3, 5000);
    for (int c = 0; c < 2; c++) {
        struct transfer_driver d;
        int rounds = 0;
        begin(&d, path, 0);
        do_open(&d);
        for (; d.step == HR__STEP_READ; rounds++)
            d.step = hr__transfer_got(&d.t, codes[c]);
        assert_in_range(rounds, 10, 1000);
        end(&d, codes[c], 0, 0);
        begin(&d, path, 0);
        for (rounds = 0; d.step == HR__STEP_OPEN; rounds++)
            d.step = hr__transfer_opened(&d.t, codes[c]);
        assert_in_range(rounds, 10, 1000);
        end(&d, codes[c], 0, 0);
    }
    free(path);
}

static void shrunk_after_open(void **state)
{
    for (size_t left = 0; left <= 3000; left += 1000) {
        char *path = files_make("shrunk", 4, 5000);
        struct transfer_driver d;
        begin(&d, path, 0);
        do_open(&d);
        do_read(&d, left / 2 ? left / 2 : 1);
        assert_int_equal(truncate(path, (off_t)left), 0);
        while (d.step == HR__STEP_READ)
            do_read(&d, SIZE_MAX);
        end(&d, 0, left ? left : 1, 4);
        free(path);
    }
}

static void grown_after_open(void **state)
{
    static const size_t more[] = {1, 63, 64, 65, 5000, 500000};
    for (int direct = 0; direct < 2; direct++)
        for (size_t m = 0; m < sizeof more / sizeof *more; m++) {
            char *path = files_make("grown", 5, 3000);
            struct transfer_driver d;
            begin(&d, path, direct);
            while (d.step == HR__STEP_OPEN)
                do_open(&d);
            free(files_make("grown", 5, 3000 + more[m]));
            while (d.step != HR__STEP_DONE)
                if (d.step == HR__STEP_OPEN)
                    do_open(&d);
                else
                    do_read(&d, SIZE_MAX);
            end(&d, 0, 3000 + more[m], 5);
            free(path);
        }
}

static void too_large(void **state)
{
    char *path = files_make("large", 6, (1 << 20) + 1);
    struct transfer_driver d;
    begin(&d, path, 0);
    do_open(&d);
    end(&d, -EFBIG, 0, 0);
    assert_int_equal(truncate(path, 1 << 20), 0);
    begin(&d, path, 0);
    do_open(&d);
    while (d.step == HR__STEP_READ)
        do_read(&d, SIZE_MAX);
    end(&d, 0, 1 << 20, 6);
    assert_int_equal(truncate(path, 1000), 0);
    /* The read's own limit. */
    begin(&d, path, 0);
    d.read.max_bytes = 999;
    do_open(&d);
    end(&d, -EFBIG, 0, 0);
    /* The file grew beyond the limit after it was opened. */
    begin(&d, path, 0);
    do_open(&d);
    assert_int_equal(truncate(path, 3 << 20), 0);
    while (d.step == HR__STEP_READ)
        do_read(&d, SIZE_MAX);
    end(&d, -EFBIG, 0, 0);
    free(path);
}

static void direct_is_given_up(void **state)
{
    char *path = files_make("direct", 7, 10000);
    struct transfer_driver d;
    begin(&d, path, 1); /* refused at open */
    assert_true(hr__transfer_open_flags(&d.t) & O_DIRECT);
    d.step = hr__transfer_opened(&d.t, -EINVAL);
    assert_false(hr__transfer_open_flags(&d.t) & O_DIRECT);
    do_open(&d);
    do_read(&d, SIZE_MAX);
    end(&d, 0, 10000, 7);

    begin(&d, path, 1); /* refused at the first read */
    do_open(&d);
    if (d.step == HR__STEP_READ) {
        int direct_fd = d.t.fd;
        d.step = hr__transfer_got(&d.t, -EINVAL);
        assert_int_equal(d.t.stale_fd, direct_fd);
    }
    do_open(&d);
    do_read(&d, SIZE_MAX);
    end(&d, 0, 10000, 7);

    begin(&d, path, 1); /* a short read that ends between blocks */
    do_open(&d);
    if (d.step == HR__STEP_READ) {
        assert_int_equal(hr__transfer_request(&d.t) % 4096, 0);
        memset(d.t.bytes, 0xEE, 1000);
        d.step = hr__transfer_got(&d.t, 1000);
        do_open(&d);
    }
    do_read(&d, SIZE_MAX);
    end(&d, 0, 10000, 7);
    free(path);
}

/* An error unrelated to O_DIRECT is not tried again. */
static void invalid_without_direct_is_an_error(void **state)
{
    char *path = files_make("einval", 8, 100);
    struct transfer_driver d;
    begin(&d, path, 0);
    d.step = hr__transfer_opened(&d.t, -EINVAL);
    end(&d, -EINVAL, 0, 0);
    begin(&d, path, 0);
    do_open(&d);
    d.step = hr__transfer_got(&d.t, -EIO);
    end(&d, -EIO, 0, 0);
    free(path);
}

/* On kernels that cannot keep a read out of the page cache, resident data is read from there, and
 * the rest directly. */
static void uncached_in_other_ways(void **state)
{
    char *path = files_make("uncached", 6, 10000);
    static const int refusals[] = {-EOPNOTSUPP, -EINVAL};
    for (int i = 0; i < 6; i++) {
        struct transfer_driver d;
        begin(&d, path, 0);
        d.read.uncached = 1;
        hr__transfer_begin(&d.t, &d.read, &d.rules);
        do_open(&d);
        assert_true(d.t.rw_flags != 0);
        int first = d.t.rw_flags;
        d.step = hr__transfer_got(&d.t, refusals[i % 2]);
        assert_int_equal(d.step, HR__STEP_READ);
        assert_true(d.t.rw_flags != 0 && d.t.rw_flags != first);
        if (i / 2 == 0) {
            do_read(&d, SIZE_MAX); /* everything is resident */
        } else {
            if (i / 2 == 1)
                d.step = hr__transfer_got(&d.t, -EAGAIN); /* nothing is */
            else
                do_read(&d, 4096); /* a part is */
            assert_int_equal(d.step, HR__STEP_OPEN);
            assert_true(hr__transfer_open_flags(&d.t) & O_DIRECT);
            d.step = hr__transfer_opened(&d.t, -EINVAL); /* that fails, too */
            assert_false(hr__transfer_open_flags(&d.t) & O_DIRECT);
            do_open(&d);
            do_read(&d, SIZE_MAX);
        }
        end(&d, 0, 10000, 6);
    }
    free(path);
}

/* Evicts the file. Returns non-zero if the kernel reports that none of it is resident any more; 0
 * if the file system is in memory. */
static int make_cold(const char *path)
{
    uint64_t all[2] = {0}, pages[5] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    long r = syscall(451 /* cachestat */, fd, all, pages, 0);
    close(fd);
    return !r && !pages[0];
}

/* Begins a read of a non-resident file, of `length` bytes of it if that is not 0; such a read
 * chooses O_DIRECT by itself. */
static void begin_cold(struct transfer_driver *d, const char *path, int64_t length)
{
    assert_true(make_cold(path));
    begin(d, path, 0);
    d->read.uncached = 1;
    if (length) {
        d->read.is_range = 1;
        d->read.fd = -1;
        d->read.expected = length;
    }
    d->step = hr__transfer_begin(&d->t, &d->read, &d->rules);
    assert_false(hr__transfer_open_flags(&d->t) & O_DIRECT);
    do_open(d);
    assert_true(d->t.direct && fcntl(d->t.fd, F_GETFL) & O_DIRECT);
    assert_int_equal(d->t.rw_flags, 0);
    assert_int_equal(hr__transfer_request(&d->t) % 4096, 0);
}

static void uncached_and_cold(void **state)
{
    char *path = files_make("cold", 4, 10000);
    struct transfer_driver d;
    if (!make_cold(path)) {
        free(path);
        skip();
    }
    begin_cold(&d, path, 0);
    do_read(&d, SIZE_MAX);
    end(&d, 0, 10000, 4);
    begin_cold(&d, path, 5000);
    do_read(&d, SIZE_MAX);
    end(&d, 0, 5000, 4);

    /* Refused: reads again, uncached in the usual way, and does not try it again. */
    begin_cold(&d, path, 0);
    d.step = hr__transfer_got(&d.t, -EINVAL);
    do_open(&d);
    assert_false(d.t.direct);
    assert_int_not_equal(d.t.rw_flags, 0);
    do_read(&d, SIZE_MAX);
    end(&d, 0, 10000, 4);

    /* If nothing else works either, it ends with a plain read. */
    begin_cold(&d, path, 0);
    d.step = hr__transfer_got(&d.t, -EINVAL);
    do_open(&d);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d.step, HR__STEP_READ);
        d.step = hr__transfer_got(&d.t, i ? -EAGAIN : -EOPNOTSUPP);
    }
    assert_int_equal(d.step, HR__STEP_OPEN);
    d.step = hr__transfer_opened(&d.t, -EINVAL);
    do_open(&d);
    assert_int_equal(d.t.rw_flags, 0);
    do_read(&d, SIZE_MAX);
    end(&d, 0, 10000, 4);

    /* Grew, or shrank, after it was opened. */
    begin_cold(&d, path, 0);
    free(files_make("cold", 4, 30000));
    while (d.step != HR__STEP_DONE)
        d.step == HR__STEP_OPEN ? do_open(&d) : do_read(&d, SIZE_MAX);
    end(&d, 0, 30000, 4);
    begin_cold(&d, path, 0);
    free(files_make("cold", 4, 5000));
    while (d.step != HR__STEP_DONE)
        d.step == HR__STEP_OPEN ? do_open(&d) : do_read(&d, SIZE_MAX);
    end(&d, 0, 5000, 4);
    free(path);
}

static void no_memory(void **state)
{
    char *path = files_make("enomem", 9, 3000);
    struct transfer_driver d;
    begin(&d, path, 0);
    hr__alloc_fail_at(1, 0);
    do_open(&d);
    end(&d, -ENOMEM, 0, 0);
    begin(&d, path, 0); /* while growing */
    do_open(&d);
    free(files_make("enomem", 9, 300000));
    hr__alloc_fail_at(1, 1);
    while (d.step == HR__STEP_READ)
        do_read(&d, SIZE_MAX);
    hr__alloc_fail_at(0, 0);
    end(&d, -ENOMEM, 0, 0);
    free(path);
}

/* An empty file for which the kernel returns would-block, as some do with O_NONBLOCK. */
static void would_block_on_an_empty_file(void **state)
{
    char *path = files_make("empty", 10, 0);
    struct transfer_driver d;
    begin(&d, path, 0);
    do_open(&d);
    d.step = hr__transfer_got(&d.t, -EAGAIN);
    end(&d, 0, 0, 10);
    free(path);
}

/* Begins to read `bytes` at `offset` of the file; by_path: the file is not open yet. */
static void begin_range(struct transfer_driver *d, const char *path, int by_path, int direct,
                        uint64_t offset, int64_t bytes)
{
    int fd = by_path ? -1 : open(path, O_RDONLY | (direct ? O_DIRECT : 0));
    *d = (struct transfer_driver){
        .read = {.path = path, .is_range = 1, .fd = fd, .offset = offset, .expected = bytes},
        .rules = {.max_bytes = 1 << 20, .direct = direct}};
    assert_true(by_path || fd >= 0);
    d->step = hr__transfer_begin(&d->t, &d->read, &d->rules);
    if (d->step != HR__STEP_DONE)
        assert_int_equal(d->step, by_path ? HR__STEP_OPEN : HR__STEP_READ);
}

/* Like `end`, for bytes that begin at the range's offset; a given descriptor must still be open. */
static void end_range(struct transfer_driver *d, int result, unsigned seed)
{
    assert_int_equal(d->step, HR__STEP_DONE);
    assert_int_equal(d->read.result, result);
    if (!result) {
        assert_int_equal(d->read.length, d->read.expected);
        assert_int_equal((uintptr_t)d->read.bytes % 64, 0);
        for (size_t i = 0; i < d->read.length; i++)
            assert_int_equal(d->read.bytes[i], files_byte(seed, (size_t)d->read.offset + i));
        for (int i = 0; i < 64; i++)
            assert_int_equal(d->read.bytes[d->read.length + (size_t)i], 0);
        hr__free(d->read.bytes);
    } else {
        assert_null(d->read.bytes);
    }
    if (d->read.fd >= 0) {
        assert_int_not_equal(d->t.fd, d->read.fd);
        assert_int_not_equal(d->t.stale_fd, d->read.fd);
        assert_int_equal(close(d->read.fd), 0);
    }
    if (d->t.stale_fd >= 0)
        close(d->t.stale_fd);
    if (d->t.fd >= 0)
        close(d->t.fd);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static void run_range(struct transfer_driver *d, size_t most)
{
    while (d->step != HR__STEP_DONE)
        if (d->step == HR__STEP_OPEN)
            do_open(d);
        else {
            size_t n = hr__transfer_request(&d->t);
            assert_true(n > 0);
            ssize_t got = pread(d->t.fd, d->t.bytes + d->t.length, n < most ? n : most,
                                (off_t)hr__transfer_offset(&d->t));
            d->step = hr__transfer_got(&d->t, got < 0 ? -errno : got);
        }
}

static void ranges_are_exact(void **state)
{
    static const uint64_t offsets[] = {0, 1, 64, 4095, 4096, 4097, 12345};
    static const int64_t lengths[] = {0, 1, 63, 4095, 4096, 4097, 7655};
    static const size_t most[] = {SIZE_MAX, 4096, 1000};
    char *path = files_make("container", 11, 20000);
    for (int kind = 0; kind < 4; kind++)
        for (size_t o = 0; o < 7; o++)
            for (size_t l = 0; l < 7; l++)
                for (size_t m = 0; m < 3; m++) {
                    struct transfer_driver d;
                    begin_range(&d, path, kind & 1, kind >> 1, offsets[o], lengths[l]);
                    run_range(&d, most[m]);
                    end_range(&d, 0, 11);
                }
    free(path);
}

static void ranges_beyond_the_end(void **state)
{
    char *path = files_make("cut", 12, 10000);
    for (int kind = 0; kind < 4; kind++) {
        struct transfer_driver d;
        begin_range(&d, path, kind & 1, kind >> 1, 8000, 2001);
        run_range(&d, SIZE_MAX);
        end_range(&d, -ENODATA, 0);
        begin_range(&d, path, kind & 1, kind >> 1, 50000, 10);
        run_range(&d, SIZE_MAX);
        end_range(&d, -ENODATA, 0);
        begin_range(&d, path, kind & 1, kind >> 1, 8000, 2000);
        run_range(&d, SIZE_MAX);
        end_range(&d, 0, 12);
        begin_range(&d, path, kind & 1, kind >> 1, INT64_MAX, 1);
        end_range(&d, -EINVAL, 0);
        begin_range(&d, path, kind & 1, kind >> 1, 0, -1);
        end_range(&d, -EINVAL, 0);
        begin_range(&d, path, kind & 1, kind >> 1, 0, (1 << 20) + 1);
        end_range(&d, -EFBIG, 0);
    }
    free(path);
}

/* The first direct read from a given descriptor is refused: the file is opened again for reading
 * through the page cache, and the given descriptor stays unchanged. */
static void ranges_give_up_direct(void **state)
{
    char *path = files_make("rdirect", 13, 10000);
    struct transfer_driver d;
    begin_range(&d, path, 0, 1, 5000, 3000);
    d.step = hr__transfer_got(&d.t, -EINVAL);
    assert_int_equal(d.step, HR__STEP_OPEN);
    assert_false(hr__transfer_open_flags(&d.t) & O_DIRECT);
    run_range(&d, SIZE_MAX);
    end_range(&d, 0, 13);
    begin_range(&d, path, 0, 0, 5000, 3000);
    d.step = hr__transfer_got(&d.t, -EINVAL);
    end_range(&d, -EINVAL, 0);
    begin_range(&d, path, 0, 0, 5000, 3000);
    d.step = hr__transfer_got(&d.t, -EINTR);
    assert_int_equal(d.step, HR__STEP_READ);
    d.step = hr__transfer_got(&d.t, -EAGAIN);
    assert_true(d.t.blocking);
    run_range(&d, SIZE_MAX);
    end_range(&d, 0, 13);
    int fd = open(path, O_RDONLY);
    d.read = (struct hr__read){.path = path, .is_range = 1, .fd = fd, .expected = 100};
    hr__alloc_fail_at(1, 0);
    d.step = hr__transfer_begin(&d.t, &d.read, &d.rules);
    hr__alloc_fail_at(0, 0);
    end_range(&d, -ENOMEM, 0);
    free(path);
}

/* A round of reads of 1 MiB reuses the buffers of the round before. */
static void buffers_are_kept(void **state)
{
    enum { DEPTH = 16 };
    struct hr__blocks *pool = hr__transfer_pool(DEPTH);
    void *first[DEPTH], *again;
    uint64_t before = hr__allocated(HR__TAG_STORAGE);
    for (int i = 0; i < DEPTH; i++)
        assert_non_null(first[i] = hr__blocks_alloc(pool, (1 << 20) + HR__READ_SLACK));
    uint64_t all = hr__allocated(HR__TAG_STORAGE) - before;
    assert_true(all >= DEPTH << 20);
    for (int i = 0; i < DEPTH; i++)
        hr__free(first[i]);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE) - before, all);
    assert_non_null(again = hr__blocks_alloc(pool, (1 << 20) + HR__READ_SLACK));
    assert_int_equal(hr__allocated(HR__TAG_STORAGE) - before, all);
    hr__free(again);
    hr__blocks_destroy(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_reads_add_up),
        cmocka_unit_test(one_read_for_a_steady_file),
        cmocka_unit_test(interruptions_pass),
        cmocka_unit_test(endless_interruption_is_an_error),
        cmocka_unit_test(shrunk_after_open),
        cmocka_unit_test(grown_after_open),
        cmocka_unit_test(too_large),
        cmocka_unit_test(direct_is_given_up),
        cmocka_unit_test(invalid_without_direct_is_an_error),
        cmocka_unit_test(uncached_in_other_ways),
        cmocka_unit_test(uncached_and_cold),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(would_block_on_an_empty_file),
        cmocka_unit_test(ranges_are_exact),
        cmocka_unit_test(ranges_beyond_the_end),
        cmocka_unit_test(ranges_give_up_direct),
        cmocka_unit_test(buffers_are_kept),
    };
    return cmocka_run_group_tests_name("storage-transfer", tests, files_setup, files_teardown);
}
