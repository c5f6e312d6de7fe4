/*
 * Samples that are ranges of a pack: the loader gives the batches of the original files; damage is
 * detected before decoding and reported, in verification, too; behaviour without free descriptors.
 */
#include "../dataset/packs.h"
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#define SAMPLES 61

struct packed {
    struct fixture files;
    struct pack_image image;
    char path[100];
};

static int setup(void **state)
{
    struct packed *p = calloc(1, sizeof *p);
    uint8_t *items[SAMPLES];
    size_t lengths[SAMPLES];
    fixture_make(&p->files, SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++) {
        FILE *f = fopen(p->files.paths[i], "rbe");
        items[i] = malloc(1 << 16);
        assert_non_null(f);
        lengths[i] = fread(items[i], 1, 1 << 16, f);
        fclose(f);
    }
    pack_make(&p->image, p->files.dataset, (const uint8_t *const *)items, lengths, HR_FORM_ENCODED);
    for (size_t i = 0; i < SAMPLES; i++)
        free(items[i]);
    snprintf(p->path, sizeof p->path, "%s.hrpack", p->files.dir);
    pack_write(&p->image, p->image.length, p->path);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct packed *p = *state;
    unlink(p->path);
    free(p->image.bytes);
    fixture_remove(&p->files);
    free(p);
    return hr__allocated(HR__TAG_LOADER) || hr__allocated(HR__TAG_STORAGE) ||
           hr__allocated(HR__TAG_DATASET);
}

static struct hr_dataset *open_pack(const struct packed *p)
{
    struct hr_dataset *d;
    struct hr_error error;
    if (hr_dataset_open(&d, p->path, NULL, &error))
        fail_msg("%s", error.message);
    return d;
}

static struct hr_loader *make_loader(const struct packed *p, struct hr_dataset *d,
                                     const struct hr_loader_options *options)
{
    struct fixture of_pack = p->files;
    of_pack.dataset = d;
    return fixture_loader(&of_pack, options);
}

static void batches_are_those_of_the_files(void **state)
{
    struct packed *p = *state;
    struct hr_dataset *d = open_pack(p);
    struct hr_error error;
    assert_int_equal(hr_dataset_wait_sizes(d), 0);
    for (int kind = 0; kind < 12; kind++) {
        struct hr_loader_options options;
        struct hr_batch *batch;
        size_t samples = 0;
        fixture_options(&options);
        options.threads = 1 + kind % 3;
        options.direct_io = kind / 3 & 1;
        options.no_io_uring = kind / 6;
        struct hr_loader *loader = make_loader(p, d, &options);
        assert_int_equal(hr_loader_start_epoch(loader, 2, &error), 0);
        while (hr_loader_next(loader, &batch, &error) > 0) {
            struct hr_batch_view view;
            hr_batch_get(batch, &view);
            fixture_check(&p->files, batch, 0, 0);
            samples += view.count;
            hr_batch_release(&batch);
        }
        assert_int_equal(samples, SAMPLES);
        struct hr_loader_stats stats = {.size = sizeof stats};
        hr_loader_get_stats(loader, &stats);
        uint64_t bytes = 0;
        for (size_t i = 0; i < SAMPLES; i++)
            bytes += (uint64_t)hr_dataset_sample_bytes(d, i);
        assert_int_equal(stats.bytes_read, bytes);
        assert_int_equal(stats.samples, SAMPLES);
        assert_int_equal(stats.bad_samples, 0);
        hr_loader_destroy(&loader);
    }
    hr_dataset_unref(&d);
}

static void one_sample_is_read(void **state)
{
    struct packed *p = *state;
    struct hr_dataset *d = open_pack(p);
    struct hr_error error = {0};
    void *bytes, *other;
    size_t length, other_length;
    for (size_t i = 0; i < SAMPLES; i += 12) {
        assert_int_equal(hr_dataset_read(d, i, &bytes, &length, &error), 0);
        assert_int_equal(hr_dataset_read(p->files.dataset, i, &other, &other_length, &error), 0);
        assert_int_equal((uintptr_t)bytes % 64, 0);
        assert_int_equal(length, other_length);
        assert_memory_equal(bytes, other, length);
        hr_bytes_free(bytes);
        hr_bytes_free(other);
    }
    struct hr__range range;
    assert_int_equal(hr__dataset_range(d, 5, 0, &range, NULL), 1);
    assert_int_equal(truncate(p->path, (off_t)range.offset + 1), 0);
    assert_int_equal(hr_dataset_read(d, 5, &bytes, &length, &error), -ENODATA);
    assert_null(bytes);
    assert_int_equal(length, 0);
    assert_non_null(strstr(error.message, "sample 5 ("));
    fixture_spoil(&p->files, 7, NULL);
    assert_int_equal(hr_dataset_read(p->files.dataset, 7, &bytes, &length, &error), -ENOENT);
    assert_non_null(strstr(error.message, p->files.paths[7]));
    hr__alloc_fail_at(1, 1);
    assert_int_equal(hr_dataset_read(p->files.dataset, 8, &bytes, &length, &error), -ENOMEM);
    hr__alloc_fail_at(0, 0);
    hr_bytes_free(NULL);
    fclose(fopen(p->files.paths[7], "ab")); /* for fixture_remove */
    hr_dataset_unref(&d);
}

/* Returns the place of sample `index` in the pack. */
static struct hr__range range_of(struct hr_dataset *d, size_t index)
{
    struct hr__range range;
    assert_int_equal(hr__dataset_range(d, index, 0, &range, NULL), 1);
    return range;
}

static void flip(const struct packed *p, uint64_t offset)
{
    int fd = open(p->path, O_WRONLY | O_CLOEXEC);
    uint8_t byte = p->image.bytes[offset] ^ 4;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* Reads epoch 0; returns the error at its end. */
static int run_epoch(struct hr_loader *loader, size_t *batches, struct hr_error *error)
{
    struct hr_batch *batch;
    int r = hr_loader_start_epoch(loader, 0, error);
    for (*batches = 0; !r; (*batches)++) {
        r = hr_loader_next(loader, &batch, error);
        if (r <= 0)
            return r;
        hr_batch_release(&batch);
        r = 0;
    }
    return r;
}

static void expect_failure(struct packed *p, struct hr_dataset *d, size_t index, int code,
                           const char *words)
{
    for (int direct = 0; direct < 2; direct++) {
        struct hr_loader_options options;
        struct hr_skipped_sample failed;
        struct hr_error error;
        char path[200], key[100];
        size_t batches;
        fixture_options(&options);
        options.direct_io = direct;
        struct hr_loader *loader = make_loader(p, d, &options);
        assert_int_equal(run_epoch(loader, &batches, &error), code);
        if (!strstr(error.message, words))
            fail_msg("no \"%s\" in \"%s\"", words, error.message);
        assert_int_equal(hr_loader_failed_get(loader, &failed), 0);
        assert_int_equal(failed.index, index);
        hr_dataset_key(d, index, key, sizeof key);
        snprintf(path, sizeof path, "%s:%s", p->path, key);
        assert_string_equal(failed.path, path);
        hr_loader_destroy(&loader);
    }
}

static void damaged_items_are_bad_samples(void **state)
{
    struct packed *p = *state;
    struct hr_dataset *d = open_pack(p);
    struct hr__range range = range_of(d, 17);
    flip(p, range.offset + range.bytes - 30); /* in the image's data: the image would still
                                                 decode */
    expect_failure(p, d, 17, -EBADMSG, "its checksum differs");
    struct hr_loader_options options;
    struct hr_error error;
    size_t batches;
    fixture_options(&options);
    options.on_error = HR_ON_ERROR_SKIP;
    options.max_bad_share = 0.5;
    struct hr_loader *loader = make_loader(p, d, &options);
    assert_int_equal(run_epoch(loader, &batches, &error), 0);
    assert_int_equal(batches, (SAMPLES + 7) / 8);
    assert_int_equal(hr_loader_skipped_count(loader), 1);
    hr_loader_destroy(&loader);
    struct hr_verify_report *report;
    struct hr_bad_sample bad;
    assert_int_equal(hr_dataset_verify(d, 2, NULL, NULL, &report, &error), 0);
    assert_int_equal(hr_verify_report_count(report), 1);
    hr_verify_report_get(report, 0, &bad);
    assert_int_equal(bad.index, 17);
    assert_non_null(strstr(bad.reason, "headrace pack --verify"));
    assert_memory_equal(bad.path, p->path, strlen(p->path));
    hr_verify_report_destroy(&report);
    hr_dataset_unref(&d);
}

static void a_pack_that_is_cut_while_open(void **state)
{
    struct packed *p = *state;
    struct hr_dataset *d = open_pack(p);
    struct hr__range range = range_of(d, SAMPLES - 1);
    assert_int_equal(truncate(p->path, (off_t)(range.offset + range.bytes - 1)), 0);
    expect_failure(p, d, SAMPLES - 1, -ENODATA, "ends before the");
    hr_dataset_unref(&d);
}

static void no_descriptors(const struct packed *p, struct hr_dataset *d)
{
    struct hr_loader_options options;
    struct hr_skipped_sample failed;
    struct hr_error error = {0};
    struct hr_batch *batch;
    struct rlimit was, now;
    size_t batches;
    fixture_options(&options);
    options.threads = 2;
    options.on_error = HR_ON_ERROR_SKIP; /* `skip` applies to bad samples, not to this error */
    struct hr_loader *loader = make_loader(p, d, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = (struct rlimit){0, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(hr_loader_start_epoch(loader, 1, &error), 0);
    int r;
    while ((r = hr_loader_next(loader, &batch, &error)) > 0)
        hr_batch_release(&batch);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(r, -EMFILE);
    assert_non_null(strstr(error.message, "ulimit -n"));
    assert_int_equal(hr_loader_failed_get(loader, &failed), -ENOENT);
    assert_int_equal(hr_loader_skipped_count(loader), 0);
    assert_int_equal(run_epoch(loader, &batches, &error), 0);
    hr_loader_destroy(&loader);
}

static void lack_of_descriptors_is_no_bad_sample(void **state)
{
    struct packed *p = *state;
    no_descriptors(p, p->files.dataset);
    struct rlimit was, now;
    struct hr_verify_report *report;
    struct hr_error error;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = (struct rlimit){0, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    int r = hr_dataset_verify(p->files.dataset, 2, NULL, NULL, &report, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(r, -EMFILE);
    assert_null(report);
    assert_non_null(strstr(error.message, "ulimit -n"));
}

static void packs_are_identified_by_content(void **state)
{
    struct packed *p = *state;
    struct hr_dataset *d;
    struct hr_error error = {0};
    struct hr_dataset_options options;
    hr_dataset_options_default(&options);
    options.threads = -1;
    assert_int_equal(hr_dataset_open_pack(&d, p->path, &options, &error), -EINVAL);
    assert_null(d);
    assert_int_equal(hr_dataset_open_pack(&d, p->files.paths[0], NULL, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "is not a pack"));
    pack_super(&p->image)->state = HR__PACK_WRITING;
    pack_seal(&p->image);
    pack_write(&p->image, p->image.length, p->path);
    assert_int_equal(hr_dataset_open(&d, p->path, NULL, &error), -EINPROGRESS);
    assert_non_null(strstr(error.message, "has not been finished"));
    char partial[120];
    snprintf(partial, sizeof partial, "%s.partial", p->path);
    assert_int_equal(rename(p->path, partial), 0);
    assert_int_equal(hr_dataset_open(&d, p->path, NULL, &error), -ENOENT);
    assert_non_null(strstr(error.message, "only the unfinished"));
    assert_int_equal(unlink(partial), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(batches_are_those_of_the_files),       TEST(one_sample_is_read),
        TEST(damaged_items_are_bad_samples),        TEST(a_pack_that_is_cut_while_open),
        TEST(lack_of_descriptors_is_no_bad_sample), TEST(packs_are_identified_by_content),
    };
    return cmocka_run_group_tests_name("loader-ranges", tests, NULL, NULL);
}
