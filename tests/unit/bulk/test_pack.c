/*
 * Packs are written and read back: the batches are the same, the bytes do not depend on the number
 * of threads, every flipped byte is detected, and the contents are reported.
 */
#include "pack_bench.h"

#include "base/memory.h"
#include "bulk/pack_convert.h"
#include "dataset/dataset.h"
#include "dataset/pack.h"
#include "storage/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void batches_are_those_of_the_folder(void **state)
{
    struct pack_bench b;
    bench_make(&b);
    for (int form = HR_FORM_AUTO; form < IMAGE_FORMS; form++) {
        struct hr_dataset *packed;
        bench_pack(&b, "set.hrpack", form, 2);
        assert_int_equal(hr_dataset_open(&packed, bench_at(&b, "set.hrpack"), NULL, NULL), 0);
        assert_same_names(b.folder, packed);
        for (int threads = 1; threads <= 4; threads++)
            assert_same_batches(&b, packed, threads);
        hr_dataset_unref(&packed);
    }
    bench_remove(&b);
}

static void result_says_what_is_in_it(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_pack_result made = {.size = sizeof made}, seen = {.size = sizeof seen};
    struct stat st;
    uint64_t source = 0, items = 0;
    bench_make(&b);
    bench_options(&options, HR_FORM_COEFFICIENTS, 2);
    bench_write(b.folder, bench_at(&b, "p"), &options, &made);
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_int_equal(stat(b.f.paths[i], &st), 0);
        source += (uint64_t)st.st_size;
    }
    assert_int_equal(stat(bench_at(&b, "p"), &st), 0);
    assert_int_equal(made.samples, SAMPLES);
    assert_int_equal(made.samples_of_form[HR_FORM_COEFFICIENTS], SAMPLES);
    assert_int_equal(made.samples_kept[HR_PACK_CONVERTED], SAMPLES);
    assert_int_equal(made.source_bytes, source);
    assert_int_equal(made.pack_bytes, st.st_size);
    assert_int_equal(made.continued, 0);
    for (int i = 0; i < 3; i++)
        items += made.bytes_of_form[i];
    assert_true(items > source / 2 && items < made.pack_bytes);
    assert_int_equal(hr_pack_inspect(bench_at(&b, "p"), &seen, NULL), 0);
    assert_memory_equal(&made, &seen, sizeof made);
    /* A program compiled before there was the member `forms`. */
    memset(&seen, 0x55, sizeof seen);
    seen.size = offsetof(struct hr_pack_result, forms);
    assert_int_equal(hr_pack_inspect(bench_at(&b, "p"), &seen, NULL), 0);
    assert_memory_equal(&seen.samples, &made.samples, seen.size - sizeof seen.size);
    assert_int_equal(seen.samples_of_form[HR_FORM_COEFFICIENTS], SAMPLES);
    assert_int_equal(seen.forms[0].samples, 0x5555555555555555);
    seen.size = sizeof seen;
    assert_int_equal(hr_pack_inspect(bench_at(&b, "set/cat/000.jpg"), &seen, NULL), -EBADMSG);
    assert_int_equal(hr_pack_inspect(bench_at(&b, "none"), &seen, NULL), -ENOENT);
    bench_remove(&b);
}

static void threads_do_not_matter(void **state)
{
    struct pack_bench b;
    bench_make(&b);
    bench_pack(&b, "one", HR_FORM_COEFFICIENTS, 1);
    fixture_before_read = NULL;
    for (int threads = 2; threads <= 8; threads += 3) {
        bench_pack(&b, "other", HR_FORM_COEFFICIENTS, threads);
        assert_same_file(bench_at(&b, "one"), bench_at(&b, "other"));
    }
    bench_remove(&b);
}

/* More threads than samples, repeatedly: workers have finished before the caller has begun. */
static void few_samples_and_many_threads(void **state)
{
    struct pack_bench b;
    struct hr_dataset *few;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    int64_t indices[] = {30, 2};
    bench_make(&b);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 2, NULL), 0);
    bench_options(&options, HR_FORM_COEFFICIENTS, 8);
    options.overwrite = 1;
    for (int i = 0; i < 100; i++) {
        bench_write(few, bench_at(&b, "few"), &options, &result);
        assert_int_equal(result.samples_of_form[HR_FORM_COEFFICIENTS], 2);
    }
    hr_dataset_unref(&few);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 0, NULL), 0);
    bench_write(few, bench_at(&b, "none"), &options, &result);
    assert_int_equal(result.samples, 0);
    hr_dataset_unref(&few);
    bench_remove(&b);
}

struct pack_with_notices {
    size_t count;
    struct {
        uint64_t index;
        enum hr_pack_kept kept;
        char reason[200];
    } items[SAMPLES];
};

static void tell(void *arg, const struct hr_bad_sample *sample, enum hr_pack_kept kept)
{
    struct pack_with_notices *told = arg;
    assert_true(told->count < SAMPLES);
    assert_true(*sample->path && *sample->reason);
    told->items[told->count].index = sample->index;
    told->items[told->count].kept = kept;
    snprintf(told->items[told->count++].reason, sizeof told->items[0].reason, "%s", sample->reason);
}

static void bad_samples_raise_or_are_kept(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct hr_verify_report *report;
    struct hr_error error;
    struct pack_with_notices told = {0};
    struct stat st;
    bench_make(&b);
    assert_int_equal(unlink(bench_at(&b, "set/cat/007.jpg")), 0);
    assert_int_equal(stat(bench_at(&b, "set/dog/030.jpg"), &st), 0);
    assert_int_equal(truncate(bench_at(&b, "set/dog/030.jpg"), st.st_size / 2), 0);
    for (int form = HR_FORM_ENCODED; form < IMAGE_FORMS; form++) {
        bench_options(&options, form, 2);
        options.overwrite = 1;
        options.notice = tell;
        options.notice_arg = &told;
        told.count = 0;
        assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "p"), &options, NULL, &error),
                         -ENOENT);
        assert_non_null(strstr(error.message, "set/cat/007.jpg"));
        assert_int_equal(told.count, 1);
        assert_int_equal(told.items[0].index, 7);
        /* another policy continues the finished part */
        options.on_error = HR_ON_ERROR_SKIP;
        told.count = 0;
        bench_write(b.folder, bench_at(&b, "p"), &options, &result);
        assert_int_equal(result.continued, 7);
        assert_int_equal(result.bad, 2);
        assert_int_equal(result.samples_kept[HR_PACK_KEPT_BAD], 2);
        assert_int_equal(told.count, 2);
        assert_int_equal(told.items[0].index, 7);
        assert_int_equal(told.items[1].index, 30);
        assert_int_equal(told.items[1].kept, HR_PACK_KEPT_BAD);
        assert_int_equal(hr_pack_verify(bench_at(&b, "p"), 2, NULL, NULL, &report, NULL), 0);
        assert_int_equal(hr_verify_report_count(report), 2);
        hr_verify_report_destroy(&report);
    }
    bench_remove(&b);
}

static void other_images_stay_encoded(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct pack_with_notices told = {0};
    /* 1 x 1 pixel */
    static const unsigned char png[] = {
        0x89, 'P',  'N',  'G',  0x0D, 0x0A, 0x1A, 0x0A, 0,   0,    0,    13,   'I',  'H',
        'D',  'R',  0,    0,    0,    1,    0,    0,    0,   1,    8,    2,    0,    0,
        0,    0x90, 0x77, 0x53, 0xDE, 0,    0,    0,    12,  'I',  'D',  'A',  'T',  0x08,
        0xD7, 0x63, 0xF8, 0xCF, 0xC0, 0,    0,    3,    1,   1,    0,    0x18, 0xDD, 0x8D,
        0xB0, 0,    0,    0,    0,    'I',  'E',  'N',  'D', 0xAE, 0x42, 0x60, 0x82};
    bench_make(&b);
    test_write(bench_at(&b, "set/cat/000a.png"), png, sizeof png);
    bench_open(&b);
    bench_options(&options, HR_FORM_COEFFICIENTS, 2);
    options.notice = tell;
    options.notice_arg = &told;
    bench_write(b.folder, bench_at(&b, "p"), &options, &result);
    assert_int_equal(result.samples_kept[HR_PACK_KEPT_FORMAT], 1);
    assert_int_equal(result.samples_of_form[HR_FORM_ENCODED], 1);
    assert_int_equal(result.samples_of_form[HR_FORM_COEFFICIENTS], SAMPLES);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.items[0].index, 1);
    assert_int_equal(told.items[0].kept, HR_PACK_KEPT_FORMAT);
    bench_remove(&b);
}

static void every_flipped_byte_is_found(void **state)
{
    struct pack_bench b;
    struct hr_dataset *packed, *few;
    struct hr_pack_options options;
    struct hr__range range;
    struct hr_error error;
    int64_t indices[] = {0, 25, 47};
    bench_make(&b);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 3, NULL), 0);
    bench_options(&options, HR_FORM_COEFFICIENTS, 2);
    bench_write(few, bench_at(&b, "p"), &options, NULL);
    hr_dataset_unref(&few);
    assert_int_equal(hr_dataset_open_pack(&packed, bench_at(&b, "p"), NULL, &error), 0);
    assert_int_equal(hr__dataset_range(packed, 1, 0, &range, NULL), 1);
    int fd = open(bench_at(&b, "p"), O_RDWR);
    assert_true(fd >= 0);
    for (uint64_t i = 0; i < range.bytes; i++) {
        struct hr_verify_report *report;
        struct hr_bad_sample bad;
        unsigned char was, now;
        assert_int_equal(pread(fd, &was, 1, (off_t)(range.offset + i)), 1);
        now = (unsigned char)(was ^ (1u << i % 8));
        assert_int_equal(pwrite(fd, &now, 1, (off_t)(range.offset + i)), 1);
        assert_int_equal(hr_pack_verify(bench_at(&b, "p"), 1, NULL, NULL, &report, NULL), 0);
        assert_int_equal(hr_verify_report_count(report), 1);
        hr_verify_report_get(report, 0, &bad);
        assert_int_equal(bad.index, 1);
        hr_verify_report_destroy(&report);
        assert_int_equal(pwrite(fd, &was, 1, (off_t)(range.offset + i)), 1);
    }
    close(fd);
    hr_dataset_unref(&packed);
    bench_remove(&b);
}

static void out_of_memory_is_survived(void **state)
{
    struct pack_bench b;
    struct hr_dataset *few;
    struct hr_pack_options options;
    int64_t indices[] = {0, 1, 30};
    int r = -ENOMEM, refused = 0;
    bench_make(&b);
    assert_int_equal(hr_dataset_subset(&few, b.folder, indices, 3, NULL), 0);
    bench_options(&options, HR_FORM_COEFFICIENTS, 1);
    for (uint64_t n = 1; r; n++) {
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 1);
        r = hr_pack_write(few, bench_at(&b, "p"), &options, NULL, &error);
        hr__alloc_fail_at(0, 0);
        if (r) {
            assert_int_equal(r, -ENOMEM);
            assert_true(*error.message);
            refused++;
        }
        assert_true(n < 2000);
    }
    assert_true(refused > 10);
    bench_pack(&b, "all", HR_FORM_COEFFICIENTS, 1);
    hr_dataset_unref(&few);
    bench_remove(&b);
}

static void worth_is_a_pure_function(void **state)
{
    static const struct {
        uint64_t pixels, bytes[HR_FORMS];
        enum hr_form form;
    } cases[] = {
        /* a photograph; a large one whose planes take little more; one whose planes take much
         * more */
        {500 * 375, {91400, 123000, 345000}, HR_FORM_COEFFICIENTS},
        {1600 * 1200, {307000, 480000, 2900000}, HR_FORM_COEFFICIENTS},
        {1600 * 1200, {200000, 500000, 2900000}, HR_FORM_ENCODED},
        /* nothing else is possible */
        {500 * 375, {91400, 0, 0}, HR_FORM_ENCODED},
        {500 * 375, {91400, 0, 345000}, HR_FORM_ENCODED},
        /* noise: planes take hardly more bytes than coefficients, or fewer */
        {500 * 375, {250000, 275000, 282000}, HR_FORM_PLANES},
        {500 * 375, {300000, 330000, 282000}, HR_FORM_PLANES},
        {500 * 375, {91400, 91400 * 9, 91400 * 20}, HR_FORM_ENCODED},
        /* An index pays; coefficients for less than 1.35 times the bytes pay more. */
        {500 * 375, {91400, 120000, 345000, 92700}, HR_FORM_COEFFICIENTS},
        {500 * 375, {91400, 130000, 345000, 92700}, HR_FORM_INDEXED},
        {500 * 375, {91400, 0, 0, 92700}, HR_FORM_INDEXED},
        {1600 * 1200, {200000, 500000, 2900000, 204000}, HR_FORM_INDEXED},
        {1600 * 1200, {200000, 500000, 2900000, 300000}, HR_FORM_ENCODED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(hr__pack_worth(HR_IMAGE_JPEG, cases[i].pixels, cases[i].bytes),
                         cases[i].form);
    /* PNG: photographs in colour and grey, a drawing, a palette */
    const uint64_t photo[HR_FORMS] = {268000, 0, 551000}, grey[HR_FORMS] = {95600, 0, 184000};
    const uint64_t drawing[HR_FORMS] = {7600, 0, 563000}, palette[HR_FORMS] = {116000, 0, 551000};
    assert_int_equal(hr__pack_worth(HR_IMAGE_PNG, 500 * 375, photo), HR_FORM_PLANES);
    assert_int_equal(hr__pack_worth(HR_IMAGE_PNG, 500 * 375, grey), HR_FORM_PLANES);
    assert_int_equal(hr__pack_worth(HR_IMAGE_PNG, 500 * 375, drawing), HR_FORM_ENCODED);
    assert_int_equal(hr__pack_worth(HR_IMAGE_PNG, 500 * 375, palette), HR_FORM_ENCODED);
}

/* Its path "made[0]" is no file's. */
static void produced_samples_are_refused(void **state)
{
    const struct hr__produced what = {.sample_bytes = 1, .name = "made"};
    struct hr_dataset *d;
    struct hr_error error = {0};
    assert_int_equal(hr__dataset_create_produced(&d, 3, &what, NULL), 0);
    assert_int_equal(hr_pack_write(d, "/nowhere/p", NULL, NULL, &error), -ENOTSUP);
    assert_non_null(strstr(error.message, "made"));
    hr_dataset_unref(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_those_of_the_folder),
        cmocka_unit_test(result_says_what_is_in_it),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(few_samples_and_many_threads),
        cmocka_unit_test(bad_samples_raise_or_are_kept),
        cmocka_unit_test(other_images_stay_encoded),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(out_of_memory_is_survived),
        cmocka_unit_test(worth_is_a_pure_function),
        cmocka_unit_test(produced_samples_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
