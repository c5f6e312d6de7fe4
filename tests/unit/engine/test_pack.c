/*
 * Packs, written and read back: the same batches, the same bytes for any number of
 * threads and any number of kills, every flipped byte found, image files again.
 */
#include "fixture.h"

#include "base/memory.h"
#include "dataset/pack.h"
#include "engine/pack_convert.h"
#include "storage/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 48

/* An image folder of two classes over the fixture's files, and a place for packs. */
struct bench {
    struct fixture f;
    char root[64];
    struct hr_dataset *folder;
};

static const char *at(const struct bench *b, const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", b->root, name);
    return path;
}

static void open_folder(struct bench *b)
{
    struct hr_dataset_options options;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    options.wait_sizes = 1; /* no thread behind it: tests fork */
    hr_dataset_unref(&b->folder);
    assert_int_equal(hr_dataset_open_folder(&b->folder, at(b, "set"), &options, NULL), 0);
}

static void make(struct bench *b)
{
    memset(b, 0, sizeof *b);
    fixture_make(&b->f, SAMPLES);
    strcpy(b->root, "/tmp/headrace-pack-XXXXXX");
    assert_non_null(mkdtemp(b->root));
    assert_int_equal(mkdir(at(b, "set"), 0777), 0);
    assert_int_equal(mkdir(at(b, "set/cat"), 0777), 0);
    assert_int_equal(mkdir(at(b, "set/dog"), 0777), 0);
    for (size_t i = 0; i < SAMPLES; i++) {
        char name[64];
        snprintf(name, sizeof name, "set/%s/%03zu.jpg", i < 20 ? "cat" : "dog", i);
        assert_int_equal(link(b->f.paths[i], at(b, name)), 0);
    }
    open_folder(b);
}

static void clean_up(struct bench *b)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", b->root);
    hr_dataset_unref(&b->folder);
    fixture_remove(&b->f);
    assert_int_equal(system(command), 0);
    assert_int_equal(hr__allocated(HR__TAG_ENGINE), 0);
}

static void set_options(struct hr_pack_options *options, int form, int threads)
{
    hr_pack_options_default(options);
    options->form = form;
    options->threads = threads;
    options->commit_bytes = 4096;
}

static void write_it(struct hr_dataset *dataset, const char *path,
                     const struct hr_pack_options *options, struct hr_pack_result *result)
{
    struct hr_error error = {0};
    if (hr_pack_write(dataset, path, options, result, &error))
        fail_msg("%s", error.message);
}

static void pack(const struct bench *b, const char *name, int form, int threads)
{
    struct hr_pack_options options;
    set_options(&options, form, threads);
    options.overwrite = 1;
    write_it(b->folder, at(b, name), &options, NULL);
}

/* The bytes of a whole file, malloc'ed. */
static char *slurp(const char *path, size_t *length)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    char *bytes = malloc((size_t)st.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    *length = (size_t)st.st_size;
    return bytes;
}

static void assert_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x = slurp(a, &n), *y = slurp(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static struct hr_loader *loader_of(const struct bench *b, struct hr_dataset *dataset, int threads)
{
    struct hr_loader_options options;
    struct hr_loader *loader = NULL;
    fixture_options(&options);
    options.threads = threads;
    assert_int_equal(hr_loader_create(&loader, dataset, b->f.recipe, &options, NULL), 0);
    assert_int_equal(hr_loader_start_epoch(loader, 3, NULL), 0);
    return loader;
}

static void assert_same_batches(const struct bench *b, struct hr_dataset *other, int threads)
{
    struct hr_loader *one = loader_of(b, b->folder, 1), *two = loader_of(b, other, threads);
    struct hr_batch_view x, y;
    for (size_t i = 0; i < SAMPLES / 8; i++) {
        struct hr_batch *first = fixture_next(one), *second = fixture_next(two);
        hr_batch_get(first, &x);
        hr_batch_get(second, &y);
        assert_int_equal(x.count, y.count);
        assert_memory_equal(x.images, y.images, x.count * x.spec.bytes);
        assert_memory_equal(x.labels, y.labels, x.count * sizeof *x.labels);
        assert_memory_equal(x.indices, y.indices, x.count * sizeof *x.indices);
        hr_batch_release(&first);
        hr_batch_release(&second);
    }
    hr_loader_destroy(&one);
    hr_loader_destroy(&two);
}

static void assert_same_names(struct hr_dataset *x, struct hr_dataset *y)
{
    char a[256], b[256];
    assert_int_equal(hr_dataset_count(x), hr_dataset_count(y));
    assert_int_equal(hr_dataset_class_count(x), hr_dataset_class_count(y));
    for (size_t i = 0; i < hr_dataset_class_count(x); i++)
        assert_string_equal(hr_dataset_class_name(x, i), hr_dataset_class_name(y, i));
    for (size_t i = 0; i < hr_dataset_count(x); i++) {
        hr_dataset_key(x, i, a, sizeof a);
        hr_dataset_key(y, i, b, sizeof b);
        assert_string_equal(a, b);
        assert_int_equal(hr_dataset_label(x, i), hr_dataset_label(y, i));
    }
}

static void batches_are_those_of_the_folder(void **state)
{
    static const int forms[] = {HR_FORM_ENCODED, HR_FORM_COEFFICIENTS, HR_FORM_PLANES,
                                HR_FORM_AUTO};
    struct bench b;
    make(&b);
    for (int i = 0; i < 4; i++) {
        struct hr_dataset *packed;
        pack(&b, "set.hrpack", forms[i], 2);
        assert_int_equal(hr_dataset_open(&packed, at(&b, "set.hrpack"), NULL, NULL), 0);
        assert_same_names(b.folder, packed);
        for (int threads = 1; threads <= 4; threads++)
            assert_same_batches(&b, packed, threads);
        hr_dataset_unref(&packed);
    }
    clean_up(&b);
}

static void result_says_what_is_in_it(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_pack_result made = {.size = sizeof made}, seen = {.size = sizeof seen};
    struct stat st;
    uint64_t source = 0, items = 0;
    make(&b);
    set_options(&options, HR_FORM_COEFFICIENTS, 2);
    write_it(b.folder, at(&b, "p"), &options, &made);
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_int_equal(stat(b.f.paths[i], &st), 0);
        source += (uint64_t)st.st_size;
    }
    assert_int_equal(stat(at(&b, "p"), &st), 0);
    assert_int_equal(made.samples, SAMPLES);
    assert_int_equal(made.samples_of_form[HR_FORM_COEFFICIENTS], SAMPLES);
    assert_int_equal(made.samples_kept[HR_PACK_CONVERTED], SAMPLES);
    assert_int_equal(made.source_bytes, source);
    assert_int_equal(made.pack_bytes, st.st_size);
    assert_int_equal(made.continued, 0);
    for (int i = 0; i < 3; i++)
        items += made.bytes_of_form[i];
    assert_true(items > source / 2 && items < made.pack_bytes);
    assert_int_equal(hr_pack_inspect(at(&b, "p"), &seen, NULL), 0);
    assert_memory_equal(&made, &seen, sizeof made);
    assert_int_equal(hr_pack_inspect(at(&b, "set/cat/000.jpg"), &seen, NULL), -EBADMSG);
    assert_int_equal(hr_pack_inspect(at(&b, "none"), &seen, NULL), -ENOENT);
    clean_up(&b);
}

static void threads_do_not_matter(void **state)
{
    struct bench b;
    make(&b);
    pack(&b, "one", HR_FORM_COEFFICIENTS, 1);
    fixture_before_read = NULL;
    for (int threads = 2; threads <= 8; threads += 3) {
        pack(&b, "other", HR_FORM_COEFFICIENTS, threads);
        assert_same_file(at(&b, "one"), at(&b, "other"));
    }
    clean_up(&b);
}

/* More threads than samples, again and again: workers are through before the caller
 * has begun. */
static void few_samples_and_many_threads(void **state)
{
    struct bench b;
    struct hr_dataset *few;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    int64_t indices[] = {30, 2};
    make(&b);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 2, NULL), 0);
    set_options(&options, HR_FORM_COEFFICIENTS, 8);
    options.overwrite = 1;
    for (int i = 0; i < 100; i++) {
        write_it(few, at(&b, "few"), &options, &result);
        assert_int_equal(result.samples_of_form[HR_FORM_COEFFICIENTS], 2);
    }
    hr_dataset_unref(&few);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 0, NULL), 0);
    write_it(few, at(&b, "none"), &options, &result);
    assert_int_equal(result.samples, 0);
    hr_dataset_unref(&few);
    clean_up(&b);
}

static void slow_read(const char *path)
{
    nanosleep(&(struct timespec){.tv_nsec = 700000}, NULL);
}

/* Packs in a process of its own; kills it after `us` microseconds, or lets it run
 * (0). Returns whether it ended by itself. */
static int pack_in_child(const struct bench *b, const char *name, unsigned us)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct hr_pack_options options;
        set_options(&options, HR_FORM_COEFFICIENTS, 2);
        fixture_before_read = slow_read;
        int r = hr_pack_write(b->folder, at(b, name), &options, NULL, NULL);
        _exit(r ? 1 : 0);
    }
    if (us) {
        nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
        kill(child, SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return 0;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return 1;
}

/* Killed at any moment and continued, the pack is the one of an undisturbed run. Each
 * attempt of a round may take longer than the one before, so that a slow machine gets
 * through too; there are rounds until enough was killed and continued. */
static void kills_change_nothing(void **state)
{
    struct bench b;
    unsigned kills = 0, continued = 0, seed = 1;
    make(&b);
    pack(&b, "whole", HR_FORM_COEFFICIENTS, 2);
    for (int round = 0; round < 12 || kills < 30 || !continued; round++) {
        uint64_t last = 0;
        for (unsigned limit_us = 40000;; limit_us += limit_us / 8) {
            struct stat st;
            seed = seed * 1664525u + 1013904223u;
            if (pack_in_child(&b, "killed", 1000 + (seed >> 8) % limit_us))
                break;
            kills++;
            if (!stat(at(&b, "killed.partial"), &st) && (uint64_t)st.st_size > last) {
                continued += last != 0;
                last = (uint64_t)st.st_size;
            }
            /* or it was killed after the file got its name */
            if (!access(at(&b, "killed"), F_OK))
                break;
        }
        assert_same_file(at(&b, "whole"), at(&b, "killed"));
        assert_int_not_equal(access(at(&b, "killed.partial"), F_OK), 0);
        assert_int_equal(unlink(at(&b, "killed")), 0);
    }
    clean_up(&b);
}

/* What lies behind the last safe item, and entries that a power cut has torn, are
 * written again. */
static void torn_tail_is_written_again(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct hr__pack_superblock super;
    make(&b);
    pack(&b, "whole", HR_FORM_COEFFICIENTS, 2);
    for (int what = 0; what < 4; what++) {
        struct hr__catalog map;
        size_t length;
        char *bytes = slurp(at(&b, "whole"), &length);
        memcpy(&super, bytes, sizeof super);
        super.state = HR__PACK_WRITING;
        super.bytes = 0;
        hr__pack_seal(&super);
        memcpy(bytes, &super, sizeof super);
        assert_int_equal(hr__catalog_map(&map, bytes + super.catalog_offset, super.catalog_bytes),
                         0);
        const uint64_t torn = 30;
        if (what == 0)
            bytes[map.ranges[torn].offset + 5] ^= 1;
        else if (what == 1)
            map.ranges[torn].checksum = 0;
        else if (what == 2)
            map.sizes[torn] = HR_SIZE_UNKNOWN;
        else
            map.ranges[torn].offset += 64;
        FILE *out = fopen(at(&b, "torn.partial"), "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(bytes, 1, length, out), length);
        assert_int_equal(fclose(out), 0);
        free(bytes);
        set_options(&options, HR_FORM_COEFFICIENTS, 2);
        write_it(b.folder, at(&b, "torn"), &options, &result);
        assert_int_equal(result.continued, torn);
        assert_same_file(at(&b, "whole"), at(&b, "torn"));
        assert_int_equal(unlink(at(&b, "torn")), 0);
    }
    clean_up(&b);
}

/* A run may be killed before it has written the front, or a file may be damaged. */
static void a_file_without_a_front_is_begun(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_error error;
    make(&b);
    pack(&b, "whole", HR_FORM_ENCODED, 2);
    set_options(&options, HR_FORM_ENCODED, 2);
    static const off_t lengths[] = {0, 4096, 5000, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int fd = open(at(&b, "p.partial"), O_RDWR | O_CREAT, 0666);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, lengths[i]), 0);
        close(fd);
        write_it(b.folder, at(&b, "p"), &options, NULL);
        assert_same_file(at(&b, "whole"), at(&b, "p"));
        assert_int_equal(unlink(at(&b, "p")), 0);
    }
    int fd = open(at(&b, "p.partial"), O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "not ours", 8, 0), 8);
    close(fd);
    assert_int_equal(hr_pack_write(b.folder, at(&b, "p"), &options, NULL, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "restart it"));
    options.restart = 1;
    write_it(b.folder, at(&b, "p"), &options, NULL);
    assert_same_file(at(&b, "whole"), at(&b, "p"));
    clean_up(&b);
}

static atomic_int reads_left; /* before the run is held up */
static atomic_int cancelled;

/* Cancels a run that has come to something. */
static int cancel_on_its_way(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    *(uint64_t *)arg = done;
    atomic_store(&cancelled, done > 0);
    return done > 0;
}

/* The last samples are not read before the run was cancelled, whenever that is. */
static void held_up_read(const char *path)
{
    if (atomic_fetch_sub(&reads_left, 1) > 0)
        return;
    while (!atomic_load(&cancelled))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Leaves an unfinished pack of some samples; returns how many were counted. */
static uint64_t cancel(const struct bench *b, const char *name, const struct hr_pack_options *given)
{
    struct hr_pack_options options = *given;
    struct hr_error error;
    uint64_t done = 0;
    options.progress = cancel_on_its_way;
    options.progress_arg = &done;
    atomic_store(&reads_left, SAMPLES / 2);
    atomic_store(&cancelled, 0);
    fixture_before_read = held_up_read;
    assert_int_equal(hr_pack_write(b->folder, at(b, name), &options, NULL, &error), -ECANCELED);
    fixture_before_read = NULL;
    assert_non_null(strstr(error.message, "continue"));
    assert_in_range(done, 1, SAMPLES - 1);
    return done;
}

static void cancelled_is_kept(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    make(&b);
    pack(&b, "whole", HR_FORM_ENCODED, 2);
    set_options(&options, HR_FORM_ENCODED, 1);
    uint64_t done = cancel(&b, "p", &options);
    assert_int_not_equal(access(at(&b, "p"), F_OK), 0);
    write_it(b.folder, at(&b, "p"), &options, &result);
    assert_in_range(result.continued, done, SAMPLES - 1);
    assert_same_file(at(&b, "whole"), at(&b, "p"));
    clean_up(&b);
}

static void changed_inputs_are_noticed(void **state)
{
    struct bench b;
    struct hr_pack_options options, other;
    struct hr_error error;
    make(&b);
    set_options(&options, HR_FORM_ENCODED, 1);
    assert_true(cancel(&b, "p", &options) > 0);
    /* other options */
    other = options;
    other.form = HR_FORM_COEFFICIENTS;
    assert_int_equal(hr_pack_write(b.folder, at(&b, "p"), &other, NULL, &error), -ESTALE);
    assert_non_null(strstr(error.message, "encoded"));
    other = options;
    other.trust = 1;
    assert_int_equal(hr_pack_write(b.folder, at(&b, "p"), &other, NULL, &error), -ESTALE);
    /* another dataset */
    int64_t indices[] = {1, 0};
    struct hr_dataset *subset;
    assert_int_equal(hr_dataset_subset(&subset, b.folder, indices, 2, NULL), 0);
    assert_int_equal(hr_pack_write(subset, at(&b, "p"), &options, NULL, &error), -ESTALE);
    hr_dataset_unref(&subset);
    /* a file that is packed already */
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, at(&b, "set/cat/000.jpg"), times, 0), 0);
    assert_int_equal(hr_pack_write(b.folder, at(&b, "p"), &options, NULL, &error), -ESTALE);
    assert_non_null(strstr(error.message, "set/cat/000.jpg"));
    options.restart = 1;
    write_it(b.folder, at(&b, "p"), &options, NULL);
    clean_up(&b);
}

static int write_again(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    const struct bench *b = arg;
    struct hr_pack_options options;
    struct hr_error error;
    set_options(&options, HR_FORM_ENCODED, 1);
    assert_int_equal(hr_pack_write(b->folder, at(b, "p"), &options, NULL, &error), -EBUSY);
    return 0;
}

static void names_are_respected(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_error error;
    make(&b);
    set_options(&options, HR_FORM_ENCODED, 1);
    options.progress = write_again;
    options.progress_arg = &b;
    write_it(b.folder, at(&b, "p"), &options, NULL);
    options.progress = NULL;
    assert_int_equal(hr_pack_write(b.folder, at(&b, "p"), &options, NULL, &error), -EEXIST);
    assert_int_equal(hr_pack_write(b.folder, at(&b, "set"), &options, NULL, &error), -EEXIST);
    assert_int_equal(hr_pack_write(b.folder, at(&b, "none/p"), &options, NULL, &error), -ENOENT);
    assert_int_equal(hr_pack_write(b.folder, at(&b, ""), &options, NULL, &error), -EINVAL);
    options.overwrite = 1;
    write_it(b.folder, at(&b, "p"), &options, NULL);
    options.form = 7;
    assert_int_equal(hr_pack_write(b.folder, at(&b, "q"), &options, NULL, &error), -EINVAL);
    clean_up(&b);
}

/* A disk that fills up, as a limit on the size of files. */
static void full_disk_keeps_what_is_done(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct stat st;
    make(&b);
    pack(&b, "whole", HR_FORM_ENCODED, 2);
    assert_int_equal(stat(at(&b, "whole"), &st), 0);
    set_options(&options, HR_FORM_ENCODED, 2);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct rlimit limit = {(rlim_t)st.st_size / 2, (rlim_t)st.st_size / 2};
        struct hr_error error;
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &limit);
        int r = hr_pack_write(b.folder, at(&b, "p"), &options, NULL, &error);
        const char *kept = strstr(error.message, "the first ");
        _exit(!bad && r == -EFBIG && strstr(error.message, "make room") && kept
                  ? atoi(kept + strlen("the first "))
                  : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    write_it(b.folder, at(&b, "p"), &options, &result);
    assert_in_range(result.continued, SAMPLES / 4, SAMPLES - 1);
    assert_int_equal(result.continued, WEXITSTATUS(status));
    assert_same_file(at(&b, "whole"), at(&b, "p"));
    clean_up(&b);
}

struct told {
    size_t count;
    struct {
        uint64_t index;
        enum hr_pack_kept kept;
        char reason[200];
    } items[SAMPLES];
};

static void tell(void *arg, const struct hr_bad_sample *sample, enum hr_pack_kept kept)
{
    struct told *told = arg;
    assert_true(told->count < SAMPLES);
    assert_true(*sample->path && *sample->reason);
    told->items[told->count].index = sample->index;
    told->items[told->count].kept = kept;
    snprintf(told->items[told->count++].reason, sizeof told->items[0].reason, "%s", sample->reason);
}

static void bad_samples_raise_or_are_kept(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct hr_verify_report *report;
    struct hr_error error;
    struct told told = {0};
    struct stat st;
    make(&b);
    assert_int_equal(unlink(at(&b, "set/cat/007.jpg")), 0);
    assert_int_equal(stat(at(&b, "set/dog/030.jpg"), &st), 0);
    assert_int_equal(truncate(at(&b, "set/dog/030.jpg"), st.st_size / 2), 0);
    for (int form = HR_FORM_ENCODED; form <= HR_FORM_PLANES; form++) {
        set_options(&options, form, 2);
        options.overwrite = 1;
        options.notice = tell;
        options.notice_arg = &told;
        told.count = 0;
        assert_int_equal(hr_pack_write(b.folder, at(&b, "p"), &options, NULL, &error), -ENOENT);
        assert_non_null(strstr(error.message, "set/cat/007.jpg"));
        assert_int_equal(told.count, 1);
        assert_int_equal(told.items[0].index, 7);
        /* the other policy continues what is done */
        options.on_error = HR_ON_ERROR_SKIP;
        told.count = 0;
        write_it(b.folder, at(&b, "p"), &options, &result);
        assert_int_equal(result.continued, 7);
        assert_int_equal(result.bad, 2);
        assert_int_equal(result.samples_kept[HR_PACK_KEPT_BAD], 2);
        assert_int_equal(told.count, 2);
        assert_int_equal(told.items[0].index, 7);
        assert_int_equal(told.items[1].index, 30);
        assert_int_equal(told.items[1].kept, HR_PACK_KEPT_BAD);
        assert_int_equal(hr_pack_verify(at(&b, "p"), 2, NULL, NULL, &report, NULL), 0);
        assert_int_equal(hr_verify_report_count(report), 2);
        hr_verify_report_destroy(&report);
    }
    clean_up(&b);
}

static void other_images_stay_encoded(void **state)
{
    struct bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct told told = {0};
    /* 1 x 1 pixel */
    static const unsigned char png[] = {
        0x89, 'P',  'N',  'G',  0x0D, 0x0A, 0x1A, 0x0A, 0,   0,    0,    13,   'I',  'H',
        'D',  'R',  0,    0,    0,    1,    0,    0,    0,   1,    8,    2,    0,    0,
        0,    0x90, 0x77, 0x53, 0xDE, 0,    0,    0,    12,  'I',  'D',  'A',  'T',  0x08,
        0xD7, 0x63, 0xF8, 0xCF, 0xC0, 0,    0,    3,    1,   1,    0,    0x18, 0xDD, 0x8D,
        0xB0, 0,    0,    0,    0,    'I',  'E',  'N',  'D', 0xAE, 0x42, 0x60, 0x82};
    make(&b);
    FILE *out = fopen(at(&b, "set/cat/000a.png"), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(png, 1, sizeof png, out), sizeof png);
    assert_int_equal(fclose(out), 0);
    open_folder(&b);
    set_options(&options, HR_FORM_COEFFICIENTS, 2);
    options.notice = tell;
    options.notice_arg = &told;
    write_it(b.folder, at(&b, "p"), &options, &result);
    assert_int_equal(result.samples_kept[HR_PACK_KEPT_FORMAT], 1);
    assert_int_equal(result.samples_of_form[HR_FORM_ENCODED], 1);
    assert_int_equal(result.samples_of_form[HR_FORM_COEFFICIENTS], SAMPLES);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.items[0].index, 1);
    assert_int_equal(told.items[0].kept, HR_PACK_KEPT_FORMAT);
    clean_up(&b);
}

static void every_flipped_byte_is_found(void **state)
{
    struct bench b;
    struct hr_dataset *packed, *few;
    struct hr_pack_options options;
    struct hr__range range;
    struct hr_error error;
    int64_t indices[] = {0, 25, 47};
    make(&b);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 3, NULL), 0);
    set_options(&options, HR_FORM_COEFFICIENTS, 2);
    write_it(few, at(&b, "p"), &options, NULL);
    hr_dataset_unref(&few);
    assert_int_equal(hr_dataset_open_pack(&packed, at(&b, "p"), NULL, &error), 0);
    assert_int_equal(hr__dataset_range(packed, 1, 0, &range, NULL), 1);
    int fd = open(at(&b, "p"), O_RDWR);
    assert_true(fd >= 0);
    for (uint64_t i = 0; i < range.bytes; i++) {
        struct hr_verify_report *report;
        struct hr_bad_sample bad;
        unsigned char was, now;
        assert_int_equal(pread(fd, &was, 1, (off_t)(range.offset + i)), 1);
        now = (unsigned char)(was ^ (1u << i % 8));
        assert_int_equal(pwrite(fd, &now, 1, (off_t)(range.offset + i)), 1);
        assert_int_equal(hr_pack_verify(at(&b, "p"), 1, NULL, NULL, &report, NULL), 0);
        assert_int_equal(hr_verify_report_count(report), 1);
        hr_verify_report_get(report, 0, &bad);
        assert_int_equal(bad.index, 1);
        hr_verify_report_destroy(&report);
        assert_int_equal(pwrite(fd, &was, 1, (off_t)(range.offset + i)), 1);
    }
    close(fd);
    hr_dataset_unref(&packed);
    clean_up(&b);
}

/* Whole images of two datasets, decoded. */
static void assert_same_pixels(const struct bench *b, struct hr_dataset *x, struct hr_dataset *y)
{
    struct hr_dataset *both[] = {x, y};
    assert_int_equal(hr_dataset_count(x), hr_dataset_count(y));
    for (size_t i = 0; i < hr_dataset_count(x); i++) {
        unsigned char *pixels[2];
        struct hr_image_info info[2];
        for (int k = 0; k < 2; k++) {
            char path[512];
            hr_dataset_path(both[k], i, path, sizeof path);
            struct hr__read read = {.path = path, .expected = -1, .fd = -1};
            assert_int_equal(hr__read_file(&read, 0), 0);
            assert_int_equal(
                hr_preparer_info(b->f.preparer, read.bytes, read.length, &info[k], NULL), 0);
            size_t bytes = (size_t)info[k].width * (size_t)info[k].height * 3;
            pixels[k] = malloc(bytes);
            assert_int_equal(hr_preparer_decode(b->f.preparer, read.bytes, read.length, NULL,
                                                pixels[k], bytes, NULL),
                             0);
            hr__free(read.bytes);
        }
        assert_int_equal(info[0].width, info[1].width);
        assert_int_equal(info[0].height, info[1].height);
        assert_memory_equal(pixels[0], pixels[1],
                            (size_t)info[0].width * (size_t)info[0].height * 3);
        free(pixels[0]);
        free(pixels[1]);
    }
}

static void unpacking_gives_the_images_back(void **state)
{
    struct bench b;
    make(&b);
    for (int form = HR_FORM_ENCODED; form <= HR_FORM_PLANES; form++) {
        struct hr_pack_options options;
        struct hr_pack_result result = {.size = sizeof result};
        struct hr_dataset_options opening;
        struct hr_dataset *again;
        struct hr_error error;
        struct stat was, is;
        char command[256];
        pack(&b, "p", form, 2);
        hr_pack_options_default(&options);
        options.threads = 2;
        if (hr_pack_unpack(at(&b, "p"), at(&b, "out"), &options, &result, &error))
            fail_msg("%s", error.message);
        assert_int_equal(result.samples, SAMPLES);
        assert_int_equal(result.samples_of_form[form], SAMPLES);
        hr_dataset_options_default(&opening);
        opening.index = HR_INDEX_NONE;
        assert_int_equal(hr_dataset_open(&again, at(&b, "out"), &opening, NULL), 0);
        assert_same_pixels(&b, b.folder, again);
        if (form == HR_FORM_ENCODED)
            assert_same_file(at(&b, "set/dog/033.jpg"), at(&b, "out/dog/033.jpg"));
        if (form != HR_FORM_PLANES) {
            assert_same_names(b.folder, again);
            assert_int_equal(stat(at(&b, "set/dog/033.jpg"), &was), 0);
            assert_int_equal(stat(at(&b, "out/dog/033.jpg"), &is), 0);
            assert_memory_equal(&was.st_mtim, &is.st_mtim, sizeof was.st_mtim);
        }
        hr_dataset_unref(&again);
        assert_int_equal(hr_pack_unpack(at(&b, "p"), at(&b, "out"), &options, &result, &error),
                         -EEXIST);
        options.overwrite = 1;
        assert_int_equal(hr_pack_unpack(at(&b, "p"), at(&b, "out"), &options, &result, &error), 0);
        snprintf(command, sizeof command,
                 "test -z \"$(find %s/out -name '.headrace*')\" && "
                 "rm -r %s/out",
                 b.root, b.root);
        assert_int_equal(system(command), 0);
    }
    clean_up(&b);
}

static void unpacking_stays_in_its_directory(void **state)
{
    static const char *const evil[] = {"../x.jpg", "/tmp/x.jpg", "a/../../x.jpg", "./x.jpg",
                                       "a//x.jpg"};
    struct bench b;
    struct hr_pack_options options;
    struct hr_error error;
    make(&b);
    set_options(&options, HR_FORM_ENCODED, 1);
    options.trust = options.overwrite = 1;
    options.on_error = HR_ON_ERROR_SKIP; /* the files are not there: the items are empty */
    for (size_t i = 0; i < sizeof evil / sizeof *evil; i++) {
        struct hr_dataset *d;
        assert_int_equal(hr_dataset_from_paths(&d, &evil[i], NULL, 1, NULL), 0);
        write_it(d, at(&b, "evil"), &options, NULL);
        hr_dataset_unref(&d);
        assert_int_equal(hr_pack_unpack(at(&b, "evil"), at(&b, "out"), &options, NULL, &error),
                         -EINVAL);
        assert_non_null(strstr(error.message, "its key is not a path"));
    }
    /* a link in the place of a class leads nowhere */
    pack(&b, "p", HR_FORM_ENCODED, 1);
    assert_int_equal(mkdir(at(&b, "elsewhere"), 0777), 0);
    assert_int_equal(symlink("../elsewhere", at(&b, "out/dog")), 0);
    assert_int_equal(hr_pack_unpack(at(&b, "p"), at(&b, "out"), &options, NULL, &error), -ENOTDIR);
    assert_int_equal(rmdir(at(&b, "elsewhere")), 0);
    clean_up(&b);
}

static void packs_of_subsets_lists_and_packs(void **state)
{
    struct bench b;
    struct hr_dataset *subset, *packed, *again, *listed;
    struct hr_pack_options options;
    int64_t indices[] = {40, 3, 3, 25, 0};
    make(&b);
    set_options(&options, HR_FORM_COEFFICIENTS, 2);
    assert_int_equal(hr_dataset_subset(&subset, b.folder, indices, 5, NULL), 0);
    write_it(subset, at(&b, "subset"), &options, NULL);
    assert_int_equal(hr_dataset_open(&packed, at(&b, "subset"), NULL, NULL), 0);
    assert_same_names(subset, packed);
    /* a pack of a pack in the same form is the same pack, but for times */
    write_it(packed, at(&b, "again"), &options, NULL);
    assert_same_file(at(&b, "subset"), at(&b, "again"));
    options.form = HR_FORM_ENCODED;
    write_it(packed, at(&b, "encoded"), &options, NULL);
    assert_int_equal(hr_dataset_open(&again, at(&b, "encoded"), NULL, NULL), 0);
    assert_same_names(subset, again);
    hr_dataset_unref(&again);
    hr_dataset_unref(&packed);
    hr_dataset_unref(&subset);
    /* a list becomes a list again */
    static const char *const relative[] = {"cat/001.jpg", "dog/041.jpg"};
    FILE *list = fopen(at(&b, "set/list"), "w");
    assert_non_null(list);
    fprintf(list, "%s\t-4\n%s\t9\n", relative[0], relative[1]);
    assert_int_equal(fclose(list), 0);
    assert_int_equal(hr_dataset_open(&listed, at(&b, "set/list"), NULL, NULL), 0);
    write_it(listed, at(&b, "listed"), &options, NULL);
    assert_int_equal(hr_pack_unpack(at(&b, "listed"), at(&b, "out"), NULL, NULL, NULL), 0);
    assert_same_file(at(&b, "set/list"), at(&b, "out/list.txt"));
    assert_int_equal(hr_dataset_open(&again, at(&b, "out/list.txt"), NULL, NULL), 0);
    assert_same_names(listed, again);
    assert_same_pixels(&b, listed, again);
    hr_dataset_unref(&again);
    hr_dataset_unref(&listed);
    clean_up(&b);
}

static void out_of_memory_is_survived(void **state)
{
    struct bench b;
    struct hr_dataset *few;
    struct hr_pack_options options;
    int64_t indices[] = {0, 1, 30};
    int r = -ENOMEM, refused = 0;
    make(&b);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 3, NULL), 0);
    set_options(&options, HR_FORM_COEFFICIENTS, 1);
    for (uint64_t n = 1; r; n++) {
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 1);
        r = hr_pack_write(few, at(&b, "p"), &options, NULL, &error);
        hr__alloc_fail_at(0, 0);
        if (r) {
            assert_int_equal(r, -ENOMEM);
            assert_true(*error.message);
            refused++;
        }
        assert_true(n < 2000);
    }
    assert_true(refused > 10);
    pack(&b, "all", HR_FORM_COEFFICIENTS, 1);
    hr_dataset_unref(&few);
    clean_up(&b);
}

static void worth_is_a_pure_function(void **state)
{
    static const struct {
        uint64_t pixels, bytes[3];
        enum hr_form form;
    } cases[] = {
        /* a photograph; large ones that take little and much more */
        {500 * 375, {91400, 123000, 345000}, HR_FORM_COEFFICIENTS},
        {1600 * 1200, {307000, 480000, 2900000}, HR_FORM_COEFFICIENTS},
        {1600 * 1200, {200000, 500000, 2900000}, HR_FORM_ENCODED},
        /* nothing else is possible */
        {500 * 375, {91400, 0, 0}, HR_FORM_ENCODED},
        {500 * 375, {91400, 0, 345000}, HR_FORM_ENCODED},
        /* noise: planes take hardly more than its coefficients, or less */
        {500 * 375, {250000, 275000, 282000}, HR_FORM_PLANES},
        {500 * 375, {300000, 330000, 282000}, HR_FORM_PLANES},
        {500 * 375, {91400, 91400 * 9, 91400 * 20}, HR_FORM_ENCODED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(hr__pack_worth(cases[i].pixels, cases[i].bytes), cases[i].form);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_those_of_the_folder),
        cmocka_unit_test(result_says_what_is_in_it),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(few_samples_and_many_threads),
        cmocka_unit_test(kills_change_nothing),
        cmocka_unit_test(torn_tail_is_written_again),
        cmocka_unit_test(a_file_without_a_front_is_begun),
        cmocka_unit_test(cancelled_is_kept),
        cmocka_unit_test(changed_inputs_are_noticed),
        cmocka_unit_test(names_are_respected),
        cmocka_unit_test(full_disk_keeps_what_is_done),
        cmocka_unit_test(bad_samples_raise_or_are_kept),
        cmocka_unit_test(other_images_stay_encoded),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(unpacking_gives_the_images_back),
        cmocka_unit_test(unpacking_stays_in_its_directory),
        cmocka_unit_test(packs_of_subsets_lists_and_packs),
        cmocka_unit_test(out_of_memory_is_survived),
        cmocka_unit_test(worth_is_a_pure_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
