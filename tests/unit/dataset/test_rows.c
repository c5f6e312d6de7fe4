/* Rows of datasets: what is taken, what is refused, subsets, and digests. */
#include "tree.h"

#include "base/memory.h"
#include "dataset/row_block.h"

#include <errno.h>
#include <math.h>

#define SAMPLES 3

static const char *const paths[SAMPLES] = {"a.jpg", "b.jpg", "c.jpg"};
static const int64_t labels[SAMPLES] = {4, 5, 6};
static const uint64_t offsets[SAMPLES + 1] = {0, 2, 2, 3};
static const float boxes[3][4] = {{0, 1, 2, 3}, {5, 5, 5, 9}, {7, 0, 8, 1.5f}};
static const int64_t classes[3] = {10, 11, 12};
static const int64_t ids[SAMPLES] = {100, 101, 102};
static const float points[3][2][3] = {{{1, 2, 0}, {3, 4, 1}}};

static struct hr_column columns[4] = {
    {.name = "boxes", .dtype = HR_FLOAT32, .role = HR_COLUMN_BOX, .dims = 1, .shape = {4}},
    {.name = "labels", .dtype = HR_INT64},
    {.name = "image_id", .dtype = HR_INT64, .role = HR_COLUMN_SAMPLE},
    {.name = "keypoints",
     .dtype = HR_FLOAT32,
     .role = HR_COLUMN_POINTS,
     .dims = 2,
     .shape = {2, 3}},
};
static const void *const data[4] = {boxes, classes, ids, points};

static struct hr_dataset *of_paths(void)
{
    struct hr_dataset *d;
    assert_int_equal(hr_dataset_from_paths(&d, paths, labels, SAMPLES, NULL), 0);
    return d;
}

static struct hr_dataset *with_rows(void)
{
    struct hr_dataset *plain = of_paths(), *d;
    struct hr_error error = {0};
    int r = hr_dataset_with_rows(&d, plain, columns, 4, offsets, data, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(r, 0);
    hr_dataset_unref(&plain);
    return d;
}

static void expect_rows(const struct hr_dataset *d, size_t index, size_t rows, const int64_t *class,
                        int64_t id)
{
    size_t n;
    const int64_t *found = hr_dataset_rows(d, index, 1, &n);
    assert_int_equal(n, rows);
    assert_memory_equal(found, class, rows * sizeof *class);
    assert_int_equal(*(const int64_t *)hr_dataset_rows(d, index, 2, &n), id);
    assert_int_equal(n, 1);
}

static void rows_of_samples(void **state)
{
    struct hr_dataset *d = with_rows();
    struct hr_column column;
    size_t n;
    assert_int_equal(hr_dataset_count(d), SAMPLES);
    assert_int_equal(hr_dataset_column_count(d), 4);
    assert_int_equal(hr_dataset_most_rows(d), 2);
    hr_dataset_column(d, 3, &column);
    assert_string_equal(column.name, "keypoints");
    assert_int_equal(column.shape[0], 2);
    expect_rows(d, 0, 2, classes, 100);
    expect_rows(d, 1, 0, NULL, 101);
    expect_rows(d, 2, 1, classes + 2, 102);
    assert_memory_equal(hr_dataset_rows(d, 2, 0, &n), boxes[2], sizeof boxes[2]);
    assert_int_equal(hr_dataset_label(d, 2), 6); /* the files are the parent's */
    char key[10];
    hr_dataset_key(d, 1, key, sizeof key);
    assert_string_equal(key, "b.jpg");
    struct hr_dataset_info info = {.size = sizeof info}, plain = {.size = sizeof plain};
    hr_dataset_get_info(d, &info);
    hr_dataset_get_info(d->parent, &plain);
    size_t table = hr__row_table_bytes(d->rows);
    assert_true(table > sizeof boxes + sizeof classes + sizeof ids + sizeof points);
    assert_int_equal(info.memory_bytes, plain.memory_bytes + sizeof *d + table);
    hr_dataset_unref(&d);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

/* A subset has its samples' rows; so has a subset of it, and one that was given rows itself. */
static void subsets(void **state)
{
    struct hr_dataset *d = with_rows(), *part, *again;
    assert_int_equal(hr_dataset_subset(&part, d, (const int64_t[]){2, 0, 2, 1}, 4, NULL), 0);
    hr_dataset_unref(&d);
    expect_rows(part, 0, 1, classes + 2, 102);
    expect_rows(part, 1, 2, classes, 100);
    assert_int_equal(hr_dataset_subset(&again, part, (const int64_t[]){3, 1}, 2, NULL), 0);
    hr_dataset_unref(&part);
    expect_rows(again, 0, 0, NULL, 101);
    expect_rows(again, 1, 2, classes, 100);
    assert_int_equal(hr_dataset_label(again, 1), 4);
    hr_dataset_unref(&again);
    struct hr_dataset *plain = of_paths();
    assert_int_equal(hr_dataset_subset(&part, plain, (const int64_t[]){2, 1, 0}, 3, NULL), 0);
    assert_int_equal(hr_dataset_with_rows(&d, part, columns, 4, offsets, data, NULL), 0);
    expect_rows(d, 0, 2, classes, 100);
    assert_int_equal(hr_dataset_label(d, 0), 6);
    hr_dataset_unref(&plain);
    hr_dataset_unref(&part);
    hr_dataset_unref(&d);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

/* Rows are part of the names' digest; a subset of everything has the same one. */
static void digests(void **state)
{
    struct hr_dataset *plain = of_paths(), *d = with_rows(), *all, *other;
    uint8_t without[16], with[16], found[16];
    int64_t changed[3] = {10, 11, 13};
    const void *others[4] = {boxes, changed, ids, points};
    hr_dataset_names_digest(plain, without);
    hr_dataset_names_digest(d, with);
    assert_memory_not_equal(with, without, 16);
    assert_int_equal(hr_dataset_subset(&all, d, (const int64_t[]){0, 1, 2}, 3, NULL), 0);
    hr_dataset_names_digest(all, found);
    assert_memory_equal(found, with, 16);
    assert_int_equal(hr_dataset_with_rows(&other, plain, columns, 4, offsets, others, NULL), 0);
    hr_dataset_names_digest(other, found);
    assert_memory_not_equal(found, with, 16);
    hr_dataset_unref(&plain);
    hr_dataset_unref(&d);
    hr_dataset_unref(&all);
    hr_dataset_unref(&other);
}

static void refuse(const struct hr_column *what, size_t count, const uint64_t *at,
                   const void *const *values, int code, const char *words)
{
    struct hr_dataset *plain = of_paths(), *d;
    struct hr_error error = {0};
    assert_int_equal(hr_dataset_with_rows(&d, plain, what, count, at, values, &error), code);
    assert_null(d);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    hr_dataset_unref(&plain);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

static void refuse_column(struct hr_column column, const char *words)
{
    refuse(&column, 1, offsets, data, -EINVAL, words);
}

static void wrong_columns(void **state)
{
    refuse(columns, 0, offsets, data, -EINVAL, "no columns");
    refuse_column((struct hr_column){.name = ""}, "column 0 has no name");
    refuse_column((struct hr_column){.name = "images"}, "a batch's own field");
    refuse_column((struct hr_column){.name = "images_1"}, "a batch's own field");
    refuse_column((struct hr_column){.name = "images_31"}, "a batch's own field");
    char name[HR_COLUMN_NAME_MAX + 1];
    memset(name, 'x', HR_COLUMN_NAME_MAX);
    name[HR_COLUMN_NAME_MAX] = 0;
    refuse_column((struct hr_column){.name = name}, "more than 63 bytes");
    refuse_column((struct hr_column){.name = "x", .dtype = (enum hr_dtype)99}, "unknown type 99");
    refuse_column((struct hr_column){.name = "x", .role = (enum hr_column_role) - 1},
                  "unknown role");
    refuse_column((struct hr_column){.name = "x", .dims = 4}, "0 to 3 are possible");
    refuse_column((struct hr_column){.name = "x", .dims = 1}, "dimension 0 of column x is 0");
    refuse_column((struct hr_column){.name = "x", .dims = 3, .shape = {1 << 20, 1 << 20, 1 << 20}},
                  "dimension 1 of column x is 1048576");
    refuse_column((struct hr_column){.name = "x", .role = HR_COLUMN_BOX}, "float32");
    refuse_column(
        (struct hr_column){
            .name = "x", .dtype = HR_FLOAT32, .role = HR_COLUMN_POINTS, .dims = 2, .shape = {2, 2}},
        "{K, 3}");
    struct hr_column twice[2] = {columns[1], columns[1]};
    refuse(twice, 2, offsets, data, -EINVAL, "columns 0 and 1 have the same name");
    struct hr_column two[2] = {columns[0], columns[0]};
    two[1].name = "more";
    refuse(two, 2, offsets, data, -EINVAL, "columns 0 and 1 both have boxes");
    struct hr_column wide = {.name = "x", .dims = 1, .shape = {1 << 20}};
    refuse(&wide, 1, (const uint64_t[]){0, 257, 257, 257}, data, -EFBIG, "257 rows");
}

static void wrong_rows(void **state)
{
    float broken[3][4];
    const void *values[4] = {broken, classes, ids, points};
    const void *missing[4] = {boxes, NULL, ids, points};
    refuse(columns, 4, (const uint64_t[]){1, 2, 2, 3}, data, -EINVAL, "first offset");
    refuse(columns, 4, (const uint64_t[]){0, 2, 1, 3}, data, -EINVAL, "sample 1 end before");
    refuse(columns, 4, offsets, missing, -EINVAL, "column labels has no data");
    memcpy(broken, boxes, sizeof boxes);
    broken[1][2] = 4.5f;
    refuse(columns, 4, offsets, values, -EINVAL, "boxes of row 1 of sample 0");
    memcpy(broken, boxes, sizeof boxes);
    broken[2][3] = NAN;
    refuse(columns, 4, offsets, values, -EINVAL, "boxes of row 0 of sample 2");
}

/* Rows take the place of those that a dataset has. */
static void replaced(void **state)
{
    struct hr_dataset *d = with_rows(), *again;
    const void *values[1] = {ids};
    assert_int_equal(hr_dataset_with_rows(&again, d, columns + 2, 1, offsets, values, NULL), 0);
    assert_int_equal(hr_dataset_column_count(again), 1);
    hr_dataset_unref(&d);
    hr_dataset_unref(&again);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

static void expect_digest(const struct hr_dataset *d, const struct hr_dataset *like)
{
    uint8_t found[16], expected[16];
    hr__dataset_rows_digest(d, found);
    hr__dataset_rows_digest(like, expected);
    assert_memory_equal(found, expected, sizeof found);
}

/* A block has what its dataset has, also of a subset. */
static void blocks(void **state)
{
    struct hr_dataset *d = with_rows(), *part, *read;
    for (int i = 0; i < 2; i++) {
        static const int64_t some[4] = {2, 0, 2, 1};
        struct hr__row_table *table;
        struct hr_error error;
        uint64_t bytes;
        void *block;
        size_t count = i ? 4 : 2;
        assert_int_equal(hr_dataset_subset(&part, d, some, count, NULL), 0);
        assert_int_equal(hr__row_block_make(&block, &bytes, part, NULL), 0);
        if (hr__row_block_read(&table, block, bytes, count, &error))
            fail_msg("%s", error.message);
        assert_int_equal(hr__dataset_create_alike(&read, part, table, NULL), 0);
        expect_digest(read, part);
        assert_int_equal(hr_dataset_most_rows(read), 2);
        hr__row_table_unref(&table);
        hr__free(block);
        hr_dataset_unref(&read);
        hr_dataset_unref(&part);
    }
    hr_dataset_unref(&d);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

/* Every byte of a block is checked, and so is its length. */
static void damaged_blocks(void **state)
{
    struct hr_dataset *d = with_rows();
    struct hr__row_table *table;
    uint64_t bytes;
    void *block;
    assert_int_equal(hr__row_block_make(&block, &bytes, d, NULL), 0);
    for (uint64_t i = 0; i < bytes; i++) {
        struct hr_error error = {0};
        ((uint8_t *)block)[i] ^= 0x10;
        int r = hr__row_block_read(&table, block, bytes, SAMPLES, &error);
        if ((r != -EBADMSG && r != -ENOTSUP) || error.code != r || table || !*error.message)
            fail_msg("byte %llu: %d", (unsigned long long)i, r);
        ((uint8_t *)block)[i] ^= 0x10;
    }
    for (uint64_t length = 0; length < bytes; length++) {
        void *shorter = malloc(length + 1);
        memcpy(shorter, block, length);
        assert_int_equal(hr__row_block_read(&table, shorter, length, SAMPLES, NULL), -EBADMSG);
        free(shorter);
    }
    assert_int_equal(hr__row_block_read(&table, block, bytes, SAMPLES + 1, NULL), -EBADMSG);
    hr__free(block);
    hr_dataset_unref(&d);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

static void out_of_memory(void **state)
{
    struct hr_dataset *plain = of_paths(), *d;
    for (uint64_t n = 1; n < 100; n++) {
        hr__alloc_fail_at(n, 0);
        int r = hr_dataset_with_rows(&d, plain, columns, 4, offsets, data, NULL);
        hr__alloc_fail_at(0, 0);
        if (!r) {
            assert_true(n > 5);
            hr_dataset_unref(&d);
            break;
        }
        assert_int_equal(r, -ENOMEM);
    }
    hr_dataset_unref(&plain);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_samples), cmocka_unit_test(subsets),
        cmocka_unit_test(digests),         cmocka_unit_test(wrong_columns),
        cmocka_unit_test(wrong_rows),      cmocka_unit_test(out_of_memory),
        cmocka_unit_test(replaced),        cmocka_unit_test(blocks),
        cmocka_unit_test(damaged_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
