/*
 * Descriptions of datasets: digests distinguish names, labels and orders, whichever block of the
 * hash they end in; relative paths keep referring to the directory in which the dataset was opened.
 */
#include "tree.h"

#include "base/memory.h"
#include "dataset/describe.h"

#include <errno.h>

#define SAMPLES 1000

/* Makes a dataset of `count` paths "/i"; sample `odd` has another name or label. */
static struct hr_dataset *make(size_t count, size_t odd, int renamed, int64_t relabelled)
{
    static char names[SAMPLES][16];
    const char *paths[SAMPLES];
    int64_t labels[SAMPLES];
    struct hr_dataset *dataset;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "/%zu%s", i, renamed && i == odd ? "x" : "");
        paths[i] = names[i];
        labels[i] = i == odd ? relabelled : 7;
    }
    assert_int_equal(hr_dataset_from_paths(&dataset, paths, labels, count, NULL), 0);
    return dataset;
}

static int is_other(struct hr_dataset *one, struct hr_dataset *other)
{
    uint8_t a[HR__DIGEST_BYTES], b[HR__DIGEST_BYTES];
    hr__dataset_digest(one, a);
    hr__dataset_digest(other, b);
    hr_dataset_unref(&other);
    return memcmp(a, b, sizeof a) != 0;
}

static void test_digests(void **state)
{
    struct hr_dataset *whole = make(SAMPLES, 0, 0, 7), *some;
    const int64_t index = 5;
    assert_false(is_other(whole, make(SAMPLES, 0, 0, 7)));
    for (size_t i = 0; i < SAMPLES; i += 37) {
        assert_true(is_other(whole, make(SAMPLES, i, 1, 7)));
        assert_true(is_other(whole, make(SAMPLES, i, 0, 6)));
    }
    for (size_t count = SAMPLES - 200; count < SAMPLES; count++)
        assert_true(is_other(whole, make(count, 0, 0, 7)));
    /* a subset has its parent's digest */
    assert_int_equal(hr_dataset_subset(&some, whole, &index, 1, NULL), 0);
    assert_false(is_other(whole, some));
    hr_dataset_unref(&whole);
}

static int is_named_otherwise(const struct hr_dataset *one, struct hr_dataset *other)
{
    uint8_t a[16], b[16];
    hr_dataset_names_digest(one, a);
    hr_dataset_names_digest(other, b);
    hr_dataset_unref(&other);
    return memcmp(a, b, sizeof a) != 0;
}

static struct hr_dataset *list_of(const char *a, const char *b, const char *c, int64_t label)
{
    const char *const paths[] = {a, b, c};
    const int64_t labels[] = {0, label, 1};
    struct hr_dataset *dataset;
    assert_int_equal(hr_dataset_from_paths(&dataset, paths, labels, 3, NULL), 0);
    return dataset;
}

static struct hr_dataset *subset_of(struct hr_dataset *dataset, int64_t first, int64_t second)
{
    const int64_t indices[] = {first, second};
    struct hr_dataset *subset;
    assert_int_equal(hr_dataset_subset(&subset, dataset, indices, 2, NULL), 0);
    return subset;
}

static void test_digests_of_names(void **state)
{
    struct hr_dataset *list =
        list_of("/data/one/a/1.jpg", "/data/one/a/2.jpg", "/data/one/b/1.jpg", 0);
    assert_false(is_named_otherwise(
        list, list_of("/data/one/a/1.jpg", "/data/one/a/2.jpg", "/data/one/b/1.jpg", 0)));
    /* in another directory they are the same samples */
    assert_false(
        is_named_otherwise(list, list_of("/data/two/more/a/1.jpg", "/data/two/more/a/2.jpg",
                                         "/data/two/more/b/1.jpg", 0)));
    assert_false(is_named_otherwise(list, list_of("a/1.jpg", "a/2.jpg", "b/1.jpg", 0)));
    assert_true(is_named_otherwise(
        list, list_of("/data/one/a/1.jpg", "/data/one/a/2.jpg", "/data/one/b/1.jpg", 1)));
    assert_true(is_named_otherwise(
        list, list_of("/data/one/a/2.jpg", "/data/one/a/1.jpg", "/data/one/b/1.jpg", 0)));
    assert_true(is_named_otherwise(
        list, list_of("/data/one/a/1.jpg", "/data/one/a/2.jpg", "/data/one/b/2.jpg", 0)));
    /* a subset has a digest of names of its own */
    assert_true(is_named_otherwise(list, subset_of(list, 0, 1)));
    struct hr_dataset *some = subset_of(list, 2, 0);
    assert_false(is_named_otherwise(some, subset_of(list, 2, 0)));
    assert_true(is_named_otherwise(some, subset_of(list, 0, 2)));
    struct hr_dataset *copy =
        list_of("/data/two/a/1.jpg", "/data/two/a/2.jpg", "/data/two/b/1.jpg", 0);
    assert_false(is_named_otherwise(some, subset_of(copy, 2, 0)));
    hr_dataset_unref(&copy);
    hr_dataset_unref(&some);
    hr_dataset_unref(&list);
}

static void test_sources(void **state)
{
    struct tree t;
    struct hr_dataset_options options;
    char *path;
    tree_make(&t);
    assert_int_equal(chdir(t.root), 0);
    struct hr_dataset *dataset = make(3, 0, 0, 0);
    assert_int_equal(chdir("/"), 0);
    const struct hr__dataset_source *source = &dataset->source;
    assert_int_equal(source->kind, HR__SOURCE_PATHS);
    assert_null(source->path);
    assert_int_equal(hr__source_absolute(&path, source, "a/b"), 0);
    assert_string_equal(path, tree_path(&t, "a/b"));
    hr__free(path);
    assert_int_equal(hr__source_absolute(&path, source, "/data/b"), 0);
    assert_string_equal(path, "/data/b");
    hr__free(path);
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_BESIDE_DATA;
    options.allow_empty_classes = 3;
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            hr__dataset_set_source(dataset, HR__SOURCE_FOLDER, i ? "b" : "a", &options, NULL), 0);
    assert_string_equal(source->path, "b");
    assert_int_equal(source->index, HR_INDEX_BESIDE_DATA);
    assert_int_equal(source->allow_empty_classes, 1);
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__dataset_set_source(dataset, HR__SOURCE_LIST, "c", NULL, NULL), -ENOMEM);
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__source_absolute(&path, source, "a"), -ENOMEM);
    hr__alloc_fail_at(0, 0);
    assert_int_equal(source->kind, HR__SOURCE_FOLDER);
    hr_dataset_unref(&dataset);
    /* at the root the slash is not doubled */
    dataset = make(1, 0, 0, 0);
    assert_int_equal(hr__source_absolute(&path, &dataset->source, "a"), 0);
    assert_string_equal(path, "/a");
    hr__free(path);
    hr_dataset_unref(&dataset);
    tree_remove(&t);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests),
        cmocka_unit_test(test_digests_of_names),
        cmocka_unit_test(test_sources),
    };
    return cmocka_run_group_tests_name("dataset describe", tests, NULL, NULL);
}
