/* COCO's annotation files: what is read, any order of members, and what is refused. */
#include "tree.h"

#include "base/memory.h"
#include "dataset/coco.h"

#include <headrace/rows.h>

#include <errno.h>
#include <math.h>

#define IMAGES                                                                                     \
    "\"images\": [{\"id\": 9, \"file_name\": \"b.jpg\", \"width\": 6, \"height\": 4},"             \
    "{\"file_name\": \"sub/\\u00e4\\ud83d\\ude00.jpg\", \"id\": 7, \"license\": [{}, null]},"      \
    "{\"id\": 12, \"file_name\": \"/c.jpg\"}]"
#define CATEGORIES                                                                                 \
    "\"categories\": [{\"id\": 5, \"name\": \"cat\", \"supercategory\": \"animal\"},"              \
    "{\"id\": 2, \"name\": \"dog\", \"keypoints\": [\"nose\", \"tail\"]}]"
#define ANNOTATIONS                                                                                \
    "\"annotations\": [{\"id\": 1, \"image_id\": 12, \"category_id\": 5,"                          \
    "\"segmentation\": [[1.5, 2, 3, 4]], \"bbox\": [1.5, 2.25, 3, 4], \"area\": 7.5,"              \
    "\"iscrowd\": 0},"                                                                             \
    "{\"bbox\": [0, 0, 1e1, 0.5], \"keypoints\": [1, 2, 2, 3, 4, 1], \"num_keypoints\": 2,"        \
    "\"image_id\": 7, \"category_id\": 2, \"id\": 30, \"iscrowd\": 1, \"area\": null,"             \
    "\"segmentation\": {\"counts\": \"a]}\\\"[\", \"size\": [4, 6]}},"                             \
    "{\"id\": 2, \"image_id\": 12, \"category_id\": 2, \"bbox\": [3, 3, 0, 0]}]"
#define INFO "\"info\": {\"year\": 2017, \"odd\": [true, false, null, NaN, -Infinity, -1e-3]}"

static int opened(const char *json, const struct hr_coco_options *options, struct hr_dataset **out,
                  struct hr_error *error)
{
    struct hr__json_reader *stream;
    struct hr_coco_options defaults;
    hr_coco_options_default(&defaults);
    /* an exact copy, so that a sanitizer notices what reads past the end */
    char *copy = malloc(strlen(json) + 1);
    assert_non_null(copy);
    memcpy(copy, json, strlen(json));
    assert_int_equal(hr__json_reader_of(&stream, copy, strlen(json), "x.json", error), 0);
    int r = hr__dataset_of_coco(out, "root", stream, options ? options : &defaults, error);
    hr__json_reader_close(&stream);
    free(copy);
    return r;
}

static struct hr_dataset *dataset_of(const char *json, const struct hr_coco_options *options)
{
    struct hr_dataset *d;
    struct hr_error error = {0};
    if (opened(json, options, &d, &error))
        fail_msg("%s", error.message);
    return d;
}

static void refused(const char *json, int code, const char *words)
{
    struct hr_dataset *d;
    struct hr_error error = {0};
    int r = opened(json, NULL, &d, &error);
    if (r != code || !strstr(error.message, words) || d)
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, words, r, error.message);
}

static const float *rows_of(const struct hr_dataset *d, size_t sample, size_t column, size_t rows)
{
    size_t n;
    const float *found = hr_dataset_rows(d, sample, column, &n);
    assert_int_equal(n, rows);
    return found;
}

static int64_t whole(const struct hr_dataset *d, size_t sample, size_t column, size_t row)
{
    size_t n;
    const int64_t *found = hr_dataset_rows(d, sample, column, &n);
    assert_true(row < n);
    return found[row];
}

static void check_all(const struct hr_dataset *d)
{
    static const float first[4] = {0, 0, 10, 0.5f};
    static const float others[2][4] = {{1.5f, 2.25f, 4.5f, 6.25f}, {3, 3, 3, 3}};
    char path[100];
    assert_int_equal(hr_dataset_count(d), 3);
    hr_dataset_path(d, 0, path, sizeof path);
    assert_string_equal(path, "root/sub/\xc3\xa4\xf0\x9f\x98\x80.jpg");
    hr_dataset_path(d, 1, path, sizeof path);
    assert_string_equal(path, "root/b.jpg");
    hr_dataset_path(d, 2, path, sizeof path);
    assert_string_equal(path, "/c.jpg");
    assert_memory_equal(rows_of(d, 0, 0, 1), first, sizeof first);
    rows_of(d, 1, 0, 0);
    assert_memory_equal(rows_of(d, 2, 0, 2), others, sizeof others);
    assert_int_equal(whole(d, 0, 1, 0), 2);
    assert_int_equal(whole(d, 2, 1, 0), 5);
    assert_int_equal(whole(d, 2, 1, 1), 2);
    assert_true(rows_of(d, 0, 2, 1)[0] == 5);
    assert_true(rows_of(d, 2, 2, 2)[0] == 7.5f && rows_of(d, 2, 2, 2)[1] == 0);
    assert_int_equal(whole(d, 0, 3, 0), 1);
    assert_int_equal(whole(d, 2, 3, 0), 0);
    assert_int_equal(whole(d, 0, 4, 0), 7);
    assert_int_equal(whole(d, 1, 4, 0), 9);
    assert_int_equal(whole(d, 2, 4, 0), 12);
    assert_int_equal(hr_dataset_column_count(d), 5);
    assert_int_equal(hr_dataset_class_count(d), 6);
    assert_string_equal(hr_dataset_class_name(d, 5), "cat");
    assert_string_equal(hr_dataset_class_name(d, 2), "dog");
    assert_string_equal(hr_dataset_class_name(d, 3), "");
}

static void any_order_of_members(void **state)
{
    static const char *const texts[] = {
        "{" INFO ", " IMAGES ", " ANNOTATIONS ", " CATEGORIES "}",
        " {\t" CATEGORIES " ,\n" ANNOTATIONS "," IMAGES " , " INFO "\n}\r\n ",
        "{\"licenses\": [], " ANNOTATIONS ", " INFO ", " CATEGORIES ", " IMAGES "}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct hr_dataset *d = dataset_of(texts[i], NULL);
        check_all(d);
        hr_dataset_unref(&d);
    }
}

static void options_choose(void **state)
{
    static const char text[] = "{" IMAGES "," ANNOTATIONS "," CATEGORIES "}";
    static const float points[6] = {1, 2, 2, 3, 4, 1};
    struct hr_coco_options options;
    hr_coco_options_default(&options);
    options.contiguous_labels = 1;
    options.keypoints = 1;
    struct hr_dataset *d = dataset_of(text, &options);
    assert_int_equal(whole(d, 0, 1, 0), 0);
    assert_int_equal(whole(d, 2, 1, 0), 1);
    assert_int_equal(hr_dataset_class_count(d), 2);
    assert_string_equal(hr_dataset_class_name(d, 0), "dog");
    assert_memory_equal(rows_of(d, 0, 5, 1), points, sizeof points);
    for (int i = 0; i < 12; i++)
        assert_true(rows_of(d, 2, 5, 2)[i] == 0);
    hr_dataset_unref(&d);
    hr_coco_options_default(&options);
    options.skip_crowds = 1;
    d = dataset_of(text, &options);
    assert_int_equal(hr_dataset_count(d), 3);
    rows_of(d, 0, 0, 0);
    hr_dataset_unref(&d);
    options.skip_empty = 1;
    d = dataset_of(text, &options);
    assert_int_equal(hr_dataset_count(d), 1);
    assert_int_equal(whole(d, 0, 4, 0), 12);
    rows_of(d, 0, 0, 2);
    hr_dataset_unref(&d);
}

#define WITH(annotation) "{" IMAGES "," CATEGORIES ", \"annotations\": [" annotation "]}"
#define BOXED(box)       WITH("{\"id\": 3, \"image_id\": 9, \"category_id\": 5, \"bbox\": " box "}")

static void refused_annotations(void **state)
{
    const char *of = "x.json: annotation 3 of image 9: its bbox ";
    char text[200];
    static const struct {
        const char *json, *words;
    } boxes[] = {{BOXED("[1, NaN, 2, 3]"), "(1, nan, 2, 3) is not finite"},
                 {BOXED("[1, 2, Infinity, 3]"), "(1, 2, inf, 3) is not finite"},
                 {BOXED("[3e38, 2, 3e38, 3]"), "(3e+38, 2, 3e+38, 3) is not finite in float32"},
                 {BOXED("[1, 2, -3, 4]"), "(1, 2, -3, 4) is inverted"},
                 {BOXED("[1, 2, 3]"), "must have 4 numbers"},
                 {BOXED("[1, 2, 3, 4, 5]"), "must have 4 numbers"}};
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        snprintf(text, sizeof text, "%s%s", of, boxes[i].words);
        refused(boxes[i].json, -EINVAL, text);
    }
    refused(BOXED("null"), -EINVAL, "annotation 3 of image 9 has no bbox");
    refused(BOXED("[1, 2, [3], 4]"), -EBADMSG, "a number is expected");
    refused(WITH("{\"image_id\": 9, \"category_id\": 5, \"bbox\": [1, 2, 3, 4]}"), -EINVAL,
            "annotation 1 of the file: its id is missing");
    refused(WITH("{\"id\": \"3\", \"image_id\": 9}"), -EINVAL,
            "annotation 1 of the file: its id is a text");
    refused(WITH("{\"id\": 3, \"image_id\": 9007199254740993}"), -EINVAL,
            "annotation 3: its image_id is no whole number below 2^53");
    refused(WITH("{\"id\": 3, \"image_id\": 9.5}"), -EINVAL, "annotation 3: its image_id is no");
    refused(WITH("{\"id\": 3, \"image_id\": 9, \"bbox\": [1, 2, 3, 4]}"), -EINVAL,
            "annotation 3 of image 9: its category_id is missing");
    refused(WITH("{\"id\": 3, \"image_id\": 8, \"category_id\": 5, \"bbox\": [1, 2, 3, 4]}"),
            -EINVAL, "annotation 3 is of image 8, which the file does not describe");
    refused(WITH("{\"id\": 3, \"image_id\": 9, \"category_id\": 1, \"bbox\": [1, 2, 3, 4]}"),
            -EINVAL, "annotation 3 of image 9 has the category 1, which");
    refused(WITH("{\"id\": 3, \"image_id\": 9, \"category_id\": 5, \"bbox\": [1, 2, 3, 4]},"
                 "{\"id\": 3, \"image_id\": 7, \"category_id\": 5, \"bbox\": [1, 2, 3, 4]}"),
            -EINVAL, "two annotations have the id 3");
    refused(WITH("{\"id\": 3, \"image_id\": 9, \"category_id\": 5, \"bbox\": [1, 2, 3, 4],"
                 "\"area\": NaN}"),
            -EINVAL, "annotation 3 of image 9: its area is not finite");
    refused(WITH("{\"id\": 3, \"image_id\": 9, \"caption\": \"a cat\"}"), -EINVAL,
            "not of captions");
    refused(WITH("{\"id\": 3, \"image_id\": 9, \"iscrowd\": 2}"), -EBADMSG, "0 or 1 is expected");
}

static void refused_points(void **state)
{
    struct hr_coco_options options;
    struct hr_error error = {0};
    struct hr_dataset *d;
    static const struct {
        const char *json, *words;
    } cases[] = {{WITH("{\"id\": 3, \"image_id\": 9, \"category_id\": 5, \"bbox\": [1, 2, 3, 4],"
                       "\"keypoints\": [1, 2, 2, 3]}"),
                  "annotation 3 of image 9: its keypoints must be x, y and visibility"},
                 {WITH("{\"id\": 3, \"image_id\": 9, \"category_id\": 5, \"bbox\": [1, 2, 3, 4],"
                       "\"keypoints\": [1, NaN, 2]}"),
                  "a keypoint is not finite"},
                 {WITH("{\"id\": 3, \"image_id\": 9, \"category_id\": 5, \"bbox\": [1, 2, 3, 4],"
                       "\"keypoints\": [1, 2, 2]},"
                       "{\"id\": 4, \"image_id\": 9, \"category_id\": 5, \"bbox\": [1, 2, 3, 4],"
                       "\"keypoints\": [1, 2, 2, 1, 2, 2]}"),
                  "annotation 4 of image 9 has 2 keypoints, and those before it 1"}};
    hr_coco_options_default(&options);
    options.keypoints = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(opened(cases[i].json, &options, &d, &error), -EINVAL);
        assert_non_null(strstr(error.message, cases[i].words));
        d = dataset_of(cases[i].json, NULL);
        hr_dataset_unref(&d);
    }
}

static void refused_files(void **state)
{
    refused("", -EBADMSG, "x.json: at byte 0: the file ends in the middle");
    refused("[]", -EBADMSG, "an object");
    refused("{}", -EINVAL, "it has no member \"images\"");
    refused("{\"images\": [], \"annotations\": []}", -ENODATA, "describes no image");
    refused("{" IMAGES "}", -EINVAL, "it has no member \"annotations\"");
    refused("{" IMAGES ", " IMAGES "}", -EINVAL, "two members \"images\"");
    refused("{" IMAGES ", \"annotations\": [], }", -EBADMSG, "a text is expected");
    refused("{" IMAGES ", \"annotations\": []} x", -EBADMSG, "something follows");
    refused("{" IMAGES " \"annotations\": []}", -EBADMSG, "a comma is expected");
    refused("{" IMAGES ", \"annotations\" []}", -EBADMSG, "a colon is expected");
    refused("{" IMAGES ", \"annotations\": [", -EBADMSG, "the file ends in the middle");
    refused("{\"x\": [1, {\"y\": ]}, 2]}", -EBADMSG, "a bracket does not match");
    refused("{\"x\": \"a\nb\"}", -EBADMSG, "a control character");
    refused("{\"x\\ud800\": 1}", -EBADMSG, "no such escape sequence");
    refused("{\"x\\u0000\": 1}", -EBADMSG, "a zero in a text");
    refused("{\"images\": [{\"id\": 01}]}", -EBADMSG, "a number is expected");
    refused("{\"images\": [{\"id\": 1}]}", -EINVAL, "image 1 has no file_name");
    refused("{\"images\": [{\"file_name\": \"a\"}]}", -EINVAL,
            "image 1 of the file: its id is missing");
    refused("{\"images\": [{\"id\": 1, \"file_name\": \"a\"}, {\"id\": 1, \"file_name\": \"b\"}],"
            "\"annotations\": []}",
            -EINVAL, "two images have the id 1: a and b");
    refused("{" IMAGES ", \"annotations\": [], \"categories\": ["
            "{\"id\": 1, \"name\": \"a\"}, {\"id\": 1, \"name\": \"b\"}]}",
            -EINVAL, "two categories have the id 1");
}

static void limits(void **state)
{
    enum { n = 10000 };
    static char text[n + 100];
    memcpy(text, "{\"x\": ", 7);
    memset(text + 6, '[', n);
    text[6 + n] = 0;
    refused(text, -EFBIG, "nested too deeply");
    int used = sprintf(text, "{\"images\": [{\"id\": 1, \"file_name\": \"");
    memset(text + used, 'a', n);
    memcpy(text + n, "\"}]}", 5);
    refused(text, -EFBIG, "too long");
    used = sprintf(text, "{\"images\": [{\"id\": ");
    memset(text + used, '1', n);
    memcpy(text + n, "}]}", 4);
    refused(text, -EFBIG, "a number is too long");
}

static int cancel(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    return ++*(int *)arg > 0;
}

static void files_are_opened(void **state)
{
    struct hr_dataset *d;
    struct hr_error error = {0};
    struct hr_coco_options options;
    int calls = 0;
    char path[] = "/tmp/headrace-coco-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    /* longer than the reader's buffer, so that members lie across its ends */
    fprintf(f, "{\"odd\": [");
    for (int i = 0; i < 40000; i++)
        fprintf(f, "[%d.5, \"\\\\%d\\\"\"], ", i, i);
    fprintf(f, "0], " IMAGES ", " CATEGORIES ", " ANNOTATIONS "}");
    fclose(f);
    if (hr_dataset_open_coco(&d, "root", path, NULL, &error))
        fail_msg("%s", error.message);
    check_all(d);
    hr_dataset_unref(&d);
    hr_coco_options_default(&options);
    options.progress = cancel;
    options.progress_arg = &calls;
    assert_int_equal(hr_dataset_open_coco(&d, "root", path, &options, &error), -ECANCELED);
    unlink(path);
    assert_int_equal(hr_dataset_open_coco(&d, "root", path, NULL, &error), -ENOENT);
    assert_int_equal(hr_dataset_open_coco(&d, "root", "/", NULL, &error), -EISDIR);
}

static void out_of_memory(void **state)
{
    static const char text[] = "{" IMAGES "," ANNOTATIONS "," CATEGORIES "}";
    uint64_t before = hr__allocated(HR__TAG_DATASET);
    struct hr_coco_options options;
    hr_coco_options_default(&options);
    options.keypoints = 1;
    for (uint64_t n = 1;; n++) {
        struct hr__json_reader *stream = NULL;
        struct hr_dataset *d = NULL;
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 1);
        int r = hr__json_reader_of(&stream, text, strlen(text), "x.json", &error);
        if (!r)
            r = hr__dataset_of_coco(&d, "root", stream, &options, &error);
        hr__alloc_fail_at(0, 0);
        hr__json_reader_close(&stream);
        hr_dataset_unref(&d);
        assert_int_equal(hr__allocated(HR__TAG_DATASET), before);
        if (!r)
            break;
        assert_int_equal(r, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_members), cmocka_unit_test(options_choose),
        cmocka_unit_test(refused_annotations),  cmocka_unit_test(refused_points),
        cmocka_unit_test(refused_files),        cmocka_unit_test(limits),
        cmocka_unit_test(files_are_opened),     cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("coco", tests, NULL, NULL);
}
