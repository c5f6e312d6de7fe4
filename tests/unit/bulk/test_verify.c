/* Verification lists bad samples by index, with a reason, and no others. */
#include "../dataset/tree.h"

#include "base/memory.h"

#include <headrace/dataset.h>

#include <errno.h>
#include <jpeglib.h>

/* Writes a JPEG of 64 x 48 pixels; returns its length. */
static size_t write_jpeg(const char *path)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char row[64 * 3], *rows[] = {row};
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = 64;
    c.image_height = 48;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    for (unsigned y = 0; y < 48; y++) {
        for (unsigned x = 0; x < sizeof row; x++)
            row[x] = (unsigned char)(x * 7 + y * y);
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    long length = ftell(f);
    assert_int_equal(fclose(f), 0);
    return (size_t)length;
}

static void make(struct tree *t)
{
    char name[40];
    tree_make(t);
    tree_file(t, "a/", 0);
    tree_file(t, "b/", 0);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "%c/%02d.jpg", i < 20 ? 'a' : 'b', i);
        write_jpeg(tree_path(t, name));
    }
}

static struct hr_dataset *open_tree(const struct tree *t)
{
    struct hr_dataset *d;
    struct hr_dataset_options options;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    assert_int_equal(hr_dataset_open(&d, t->root, &options, NULL), 0);
    return d;
}

static void bad_samples_are_listed(void **state)
{
    struct tree t;
    struct hr_bad_sample bad;
    make(&t);
    size_t length = write_jpeg(tree_path(&t, "a/03.jpg"));
    assert_int_equal(truncate(tree_path(&t, "a/03.jpg"), (off_t)length / 2), 0);
    assert_int_equal(truncate(tree_path(&t, "a/19.jpg"), 0), 0);
    tree_file(&t, "b/25.jpg", 100);
    struct hr_dataset *d = open_tree(&t);
    assert_int_equal(unlink(tree_path(&t, "b/30.jpg")), 0); /* after the scan */
    static const struct {
        uint64_t index;
        const char *key, *words;
    } expected[] = {
        {3, "a/03.jpg", ""},
        {19, "a/19.jpg", "empty"},
        {25, "b/25.jpg", ""},
        {30, "b/30.jpg", "No such file"},
    };
    for (int threads = 1; threads <= 4; threads++) {
        struct hr_verify_report *report;
        assert_int_equal(hr_dataset_verify(d, threads, NULL, NULL, &report, NULL), 0);
        assert_int_equal(hr_verify_report_count(report), 4);
        for (size_t i = 0; i < 4; i++) {
            hr_verify_report_get(report, i, &bad);
            assert_int_equal(bad.index, expected[i].index);
            assert_string_equal(bad.path, tree_path(&t, expected[i].key));
            assert_true(*bad.reason);
            assert_non_null(strstr(bad.reason, expected[i].words));
        }
        hr_verify_report_destroy(&report);
        assert_null(report);
        hr_verify_report_destroy(&report);
    }
    hr_dataset_unref(&d);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), 0);
    tree_remove(&t);
}

static int count_calls(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    ++*(int *)arg;
    assert_int_equal(total, 40);
    assert_true(done <= total);
    return 0;
}

static int refuse(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    return 1;
}

static void progress_and_cancelling(void **state)
{
    struct tree t;
    struct hr_verify_report *report;
    struct hr_error error;
    int calls = 0;
    make(&t);
    struct hr_dataset *d = open_tree(&t);
    assert_int_equal(hr_dataset_verify(d, 2, count_calls, &calls, &report, NULL), 0);
    assert_true(calls >= 1);
    assert_int_equal(hr_verify_report_count(report), 0);
    hr_verify_report_destroy(&report);
    assert_int_equal(hr_dataset_verify(d, 2, refuse, NULL, &report, &error), -ECANCELED);
    assert_null(report);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_samples_are_listed),
        cmocka_unit_test(progress_and_cancelling),
    };
    return cmocka_run_group_tests_name("bulk-verify", tests, NULL, NULL);
}
