/*
 * Unpacking packs to image files, packs of sources other than plain folders, and packs of those
 * packs.
 */
#include "pack_bench.h"

#include "base/memory.h"
#include "storage/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Decodes whole images of two datasets and compares them. */
static void assert_same_pixels(const struct pack_bench *b, struct hr_dataset *x,
                               struct hr_dataset *y)
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
    struct pack_bench b;
    bench_make(&b);
    for (int form = HR_FORM_ENCODED; form < IMAGE_FORMS; form++) {
        struct hr_pack_options options;
        struct hr_pack_result result = {.size = sizeof result};
        struct hr_dataset_options opening;
        struct hr_dataset *again;
        struct hr_error error;
        struct stat was, is;
        char command[256];
        bench_pack(&b, "p", form, 2);
        hr_pack_options_default(&options);
        options.threads = 2;
        if (hr_pack_unpack(bench_at(&b, "p"), bench_at(&b, "out"), &options, &result, &error))
            fail_msg("%s", error.message);
        assert_int_equal(result.samples, SAMPLES);
        assert_int_equal(result.forms[form].samples, SAMPLES);
        if (form < 3)
            assert_int_equal(result.samples_of_form[form], SAMPLES);
        hr_dataset_options_default(&opening);
        opening.index = HR_INDEX_NONE;
        assert_int_equal(hr_dataset_open(&again, bench_at(&b, "out"), &opening, NULL), 0);
        assert_same_pixels(&b, b.folder, again);
        if (form == HR_FORM_ENCODED || form == HR_FORM_INDEXED)
            assert_same_file(bench_at(&b, "set/dog/033.jpg"), bench_at(&b, "out/dog/033.jpg"));
        if (form != HR_FORM_PLANES) {
            assert_same_names(b.folder, again);
            assert_int_equal(stat(bench_at(&b, "set/dog/033.jpg"), &was), 0);
            assert_int_equal(stat(bench_at(&b, "out/dog/033.jpg"), &is), 0);
            assert_memory_equal(&was.st_mtim, &is.st_mtim, sizeof was.st_mtim);
        }
        hr_dataset_unref(&again);
        assert_int_equal(
            hr_pack_unpack(bench_at(&b, "p"), bench_at(&b, "out"), &options, &result, &error),
            -EEXIST);
        options.overwrite = 1;
        assert_int_equal(
            hr_pack_unpack(bench_at(&b, "p"), bench_at(&b, "out"), &options, &result, &error), 0);
        snprintf(command, sizeof command,
                 "test -z \"$(find %s/out -name '.headrace*')\" && "
                 "rm -r %s/out",
                 b.root, b.root);
        assert_int_equal(system(command), 0);
    }
    bench_remove(&b);
}

static void unpacking_stays_in_its_directory(void **state)
{
    static const char *const evil[] = {"../x.jpg", "/tmp/x.jpg", "a/../../x.jpg", "./x.jpg",
                                       "a//x.jpg"};
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_error error;
    bench_make(&b);
    bench_options(&options, HR_FORM_ENCODED, 1);
    options.trust = options.overwrite = 1;
    options.on_error = HR_ON_ERROR_SKIP; /* the files do not exist, so the items are empty */
    for (size_t i = 0; i < sizeof evil / sizeof *evil; i++) {
        struct hr_dataset *d;
        assert_int_equal(hr_dataset_from_paths(&d, &evil[i], NULL, 1, NULL), 0);
        bench_write(d, bench_at(&b, "evil"), &options, NULL);
        hr_dataset_unref(&d);
        assert_int_equal(
            hr_pack_unpack(bench_at(&b, "evil"), bench_at(&b, "out"), &options, NULL, &error),
            -EINVAL);
        assert_non_null(strstr(error.message, "its key is not a path"));
    }
    /* a link in the place of a class folder is not followed */
    bench_pack(&b, "p", HR_FORM_ENCODED, 1);
    assert_int_equal(mkdir(bench_at(&b, "elsewhere"), 0777), 0);
    assert_int_equal(symlink("../elsewhere", bench_at(&b, "out/dog")), 0);
    assert_int_equal(hr_pack_unpack(bench_at(&b, "p"), bench_at(&b, "out"), &options, NULL, &error),
                     -ENOTDIR);
    assert_int_equal(rmdir(bench_at(&b, "elsewhere")), 0);
    bench_remove(&b);
}

static void packs_of_subsets_lists_and_packs(void **state)
{
    struct pack_bench b;
    struct hr_dataset *subset, *packed, *again, *listed;
    struct hr_pack_options options;
    int64_t indices[] = {40, 3, 3, 25, 0};
    bench_make(&b);
    bench_options(&options, HR_FORM_COEFFICIENTS, 2);
    assert_int_equal(hr_dataset_subset(&subset, b.folder, indices, 5, NULL), 0);
    bench_write(subset, bench_at(&b, "subset"), &options, NULL);
    assert_int_equal(hr_dataset_open(&packed, bench_at(&b, "subset"), NULL, NULL), 0);
    assert_same_names(subset, packed);
    /* a pack of a pack in the same form is the same, except for times */
    bench_write(packed, bench_at(&b, "again"), &options, NULL);
    assert_same_file(bench_at(&b, "subset"), bench_at(&b, "again"));
    options.form = HR_FORM_ENCODED;
    bench_write(packed, bench_at(&b, "encoded"), &options, NULL);
    assert_int_equal(hr_dataset_open(&again, bench_at(&b, "encoded"), NULL, NULL), 0);
    assert_same_names(subset, again);
    hr_dataset_unref(&again);
    hr_dataset_unref(&packed);
    hr_dataset_unref(&subset);
    /* a list becomes the same list again */
    static const char *const relative[] = {"cat/001.jpg", "dog/041.jpg"};
    FILE *list = fopen(bench_at(&b, "set/list"), "w");
    assert_non_null(list);
    fprintf(list, "%s\t-4\n%s\t9\n", relative[0], relative[1]);
    assert_int_equal(fclose(list), 0);
    assert_int_equal(hr_dataset_open(&listed, bench_at(&b, "set/list"), NULL, NULL), 0);
    bench_write(listed, bench_at(&b, "listed"), &options, NULL);
    assert_int_equal(hr_pack_unpack(bench_at(&b, "listed"), bench_at(&b, "out"), NULL, NULL, NULL),
                     0);
    assert_same_file(bench_at(&b, "set/list"), bench_at(&b, "out/list.txt"));
    assert_int_equal(hr_dataset_open(&again, bench_at(&b, "out/list.txt"), NULL, NULL), 0);
    assert_same_names(listed, again);
    assert_same_pixels(&b, listed, again);
    hr_dataset_unref(&again);
    hr_dataset_unref(&listed);
    bench_remove(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacking_gives_the_images_back),
        cmocka_unit_test(unpacking_stays_in_its_directory),
        cmocka_unit_test(packs_of_subsets_lists_and_packs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
