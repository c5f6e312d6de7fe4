/* List files, datasets of given paths, subsets, keys and paths. */
#include "tree.h"

#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/list.h"

#include <errno.h>

static void expect(const char *text, const char *samples)
{
    struct hr__catalog *c;
    struct hr_error error = {0};
    char out[1000] = "";
    size_t at = 0;
    int r = hr__list_parse(&c, text, strlen(text), "LIST", &error);
    assert_string_equal(error.message, "");
    assert_int_equal(r, 0);
    for (uint64_t i = 0; i < c->header->samples; i++)
        at += (size_t)snprintf(out + at, sizeof out - at, "[%s]=%lld\n",
                               hr__catalog_at(c, c->names[i]), (long long)c->labels[i]);
    assert_string_equal(out, samples);
    hr__catalog_destroy(&c);
}

static void lines(void **state)
{
    expect("a.jpg\t1\n", "[a.jpg]=1\n");
    expect("a.jpg 1", "[a.jpg]=1\n");
    expect("a b.jpg   -7  \r\n\r\n# note\n\nc\t+2\n", "[a b.jpg]=-7\n[c]=2\n");
    expect("two\tfields\t3\n", "[two\tfields]=3\n");
    expect("blank \t3\n", "[blank ]=3\n");
    expect("\xEF\xBB\xBF"
           "a 1\n",
           "[a]=1\n");
    expect("/abs/\xFF.jpg 9223372036854775807\nx -9223372036854775808\n",
           "[/abs/\xFF.jpg]=9223372036854775807\n[x]=-9223372036854775808\n");
}

static void refuse(const char *text, size_t length, int code, const char *words)
{
    struct hr__catalog *c;
    struct hr_error error = {0};
    assert_int_equal(hr__list_parse(&c, text, length, "LIST", &error), code);
    assert_null(c);
    assert_non_null(strstr(error.message, words));
}

static void wrong_lines_are_named(void **state)
{
    refuse("a 1\nb\n", 6, -EINVAL, "LIST, line 2: it has one field");
    refuse("a 1\n\n\nb x\n", 10, -EINVAL, "LIST, line 4: its last field is not an integer");
    refuse("a 1.5\n", 6, -EINVAL, "line 1: its last field");
    refuse("a -\n", 4, -EINVAL, "line 1: its last field");
    refuse("a 9223372036854775808\n", 22, -EINVAL, "line 1: its last field");
    refuse("  5\n", 4, -EINVAL, "line 1: its path is empty");
    refuse("\t5\n", 3, -EINVAL, "line 1: its path is empty");
    refuse("a\0b 5\n", 6, -EINVAL, "line 1: it has a zero byte");
    refuse("", 0, -ENODATA, "names no sample");
    refuse("#only\n\n", 7, -ENODATA, "names no sample");
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

/* Any bytes give a list or an error, and no read beyond the text (checked by ASan). */
static void mutations(void **state)
{
    static const char good[] = "a/b.jpg\t1\n# c\nd e.jpg 22\r\n\nf\t-3\n";
    static const char values[] = "\0\n\r\t #-+9a\xFF";
    uint64_t x = 2463534242u;
    int taken = 0;
    for (int round = 0; round < 20000; round++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t length = x % sizeof good;
        char *text = malloc(length ? length : 1);
        memcpy(text, good, length);
        for (int k = 0; length && k <= round % 4; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            text[x % length] = values[(x >> 32) % (sizeof values - 1)];
        }
        struct hr__catalog *c;
        if (!hr__list_parse(&c, text, length, "LIST", NULL)) {
            for (uint64_t i = 0; i < c->header->samples; i++)
                assert_true(*hr__catalog_at(c, c->names[i]));
            hr__catalog_destroy(&c);
            taken++;
        }
        free(text);
    }
    assert_true(taken > 100);
}

static void long_files_and_missing_ones(void **state)
{
    struct tree t;
    struct hr__catalog *c;
    struct hr_error error;
    tree_make(&t);
    FILE *f = fopen(tree_path(&t, "list.txt"), "w");
    for (int i = 0; i < 50000; i++)
        fprintf(f, "images/%d.jpg\t%d\n", i, i % 7);
    fclose(f);
    assert_int_equal(hr__list_read(&c, tree_path(&t, "list.txt"), NULL), 0);
    assert_int_equal(c->header->samples, 50000);
    assert_string_equal(hr__catalog_at(c, c->names[49999]), "images/49999.jpg");
    assert_int_equal(c->labels[49999], 49999 % 7);
    /* documented: at most about 48 bytes per sample plus its name */
    assert_true(c->header->bytes / 50000 < 48 + 17);
    hr__catalog_destroy(&c);
    assert_int_equal(hr__list_read(&c, tree_path(&t, "none.txt"), &error), -ENOENT);
    assert_non_null(strstr(error.message, "none.txt"));
    tree_remove(&t);
}

static void keys_and_paths(void **state)
{
    static const struct {
        const char *base, *key, *path;
    } cases[] = {
        {"", "a.jpg", "a.jpg"},   {"set", "a.jpg", "set/a.jpg"},   {"set/", "a.jpg", "set/a.jpg"},
        {"/", "a.jpg", "/a.jpg"}, {"set", "/abs.jpg", "/abs.jpg"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__catalog *c;
        struct hr_dataset *d;
        char text[64];
        assert_int_equal(hr__list_from_paths(&c, &cases[i].key, NULL, 1, NULL), 0);
        assert_int_equal(hr__dataset_create(&d, c, cases[i].base, "", NULL), 0);
        assert_int_equal(hr_dataset_path(d, 0, text, sizeof text), strlen(cases[i].path));
        assert_string_equal(text, cases[i].path);
        assert_int_equal(hr_dataset_key(d, 0, text, sizeof text), strlen(cases[i].key));
        assert_string_equal(text, cases[i].key);
        /* truncated; only the length is returned */
        memset(text, 'x', sizeof text);
        assert_int_equal(hr_dataset_path(d, 0, text, 3), strlen(cases[i].path));
        assert_int_equal(strlen(text), 2);
        assert_memory_equal(text, cases[i].path, 2);
        assert_int_equal(text[3], 'x');
        assert_int_equal(hr_dataset_path(d, 0, NULL, 0), strlen(cases[i].path));
        hr_dataset_unref(&d);
        assert_null(d);
    }
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

static void subsets(void **state)
{
    const char *paths[] = {"a", "b", "c", "d"};
    const int64_t labels[] = {10, 11, 12, 13};
    const int64_t first[] = {3, 1, 1}, second[] = {2, 0}, wrong[] = {0, 4}, negative[] = {-1};
    struct hr_dataset *d, *s, *ss, *none;
    struct hr_error error;
    char text[8];
    assert_int_equal(hr_dataset_from_paths(&d, paths, labels, 4, NULL), 0);
    assert_int_equal(hr_dataset_class_count(d), 0);
    assert_null(hr_dataset_class_name(d, 0));
    assert_int_equal(hr_dataset_sample_bytes(d, 0), HR_SIZE_UNKNOWN);
    assert_int_equal(hr_dataset_subset(&s, d, first, 3, NULL), 0);
    assert_int_equal(hr_dataset_subset(&ss, s, second, 2, NULL), 0);
    assert_int_equal(hr_dataset_subset(&none, ss, NULL, 0, NULL), 0);
    assert_int_equal(hr_dataset_count(none), 0);
    hr_dataset_unref(&none);
    assert_int_equal(hr_dataset_subset(&none, d, wrong, 2, &error), -ERANGE);
    assert_null(none);
    assert_non_null(strstr(error.message, "index 4 at position 1"));
    assert_int_equal(hr_dataset_subset(&none, d, negative, 1, &error), -ERANGE);
    hr_dataset_unref(&d);
    assert_int_equal(hr_dataset_count(ss), 2);
    assert_int_equal(hr_dataset_label(ss, 0), 11);
    assert_int_equal(hr_dataset_label(ss, 1), 13);
    hr_dataset_unref(&s);
    hr_dataset_path(ss, 1, text, sizeof text);
    assert_string_equal(text, "d");
    hr_dataset_key(ss, 0, text, sizeof text);
    assert_string_equal(text, "b");
    struct hr_dataset_info info = {.size = sizeof info};
    hr_dataset_get_info(ss, &info);
    assert_int_equal(info.size, sizeof info);
    assert_true(info.memory_bytes > 0 && !info.from_index);
    hr_dataset_unref(&ss);
}

static void paths_are_checked(void **state)
{
    const char *paths[] = {"a", ""};
    struct hr_dataset *d;
    struct hr_error error;
    assert_int_equal(hr_dataset_from_paths(&d, paths, NULL, 2, &error), -EINVAL);
    assert_null(d);
    assert_string_equal(error.message, "path 1 is empty");
    assert_int_equal(hr_dataset_from_paths(&d, NULL, NULL, 0, &error), 0);
    assert_int_equal(hr_dataset_count(d), 0);
    hr_dataset_unref(&d);
    hr_dataset_unref(&d);
}

static void every_allocation_may_fail(void **state)
{
    const char *paths[] = {"a", "b"};
    const int64_t one[] = {1};
    struct hr_dataset *d = NULL, *s = NULL;
    int r = -ENOMEM, tries = 0;
    for (; r; tries++) {
        hr__alloc_fail_at((uint64_t)tries + 1, 0);
        r = hr_dataset_from_paths(&d, paths, NULL, 2, NULL);
        if (!r)
            r = hr_dataset_subset(&s, d, one, 1, NULL);
        hr__alloc_fail_at(0, 0);
        hr_dataset_unref(&s);
        hr_dataset_unref(&d);
        assert_true(!r || r == -ENOMEM);
        assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
        assert_true(tries < 50);
    }
    assert_true(tries > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(mutations),
        cmocka_unit_test(long_files_and_missing_ones),
        cmocka_unit_test(keys_and_paths),
        cmocka_unit_test(subsets),
        cmocka_unit_test(paths_are_checked),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("dataset-list", tests, NULL, NULL);
}
