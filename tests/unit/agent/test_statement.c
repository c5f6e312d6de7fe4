/*
 * Statements: every kind of dataset and every operation is written and read again, and gives the
 * same samples, labels and pixels. Changes since the writing are detected. Invalid texts are
 * refused with the place of the error.
 */
#include "../dataset/tree.h"
#include "../recipe/recipe_cases.h"
#include "odd_operations.h"

#include "agent/statement.h"
#include "agent/statement_parse.h"

#include <headrace/headrace.h>

#include <errno.h>
#include <limits.h>

static char *write_text(const struct hr_dataset *dataset, const struct hr_recipe *recipe)
{
    struct hr_error error = {0};
    char *text;
    if (hr__statement_write(&text, dataset, recipe, &error))
        fail_msg("%s", error.message);
    return text;
}

/* A recipe for tests of datasets. */
static struct hr_recipe *plain(void)
{
    struct hr_operation o = sized(HR_CENTER_CROP, 8, 8);
    return recipe_of(&o, 1);
}

static struct hr_dataset *read_text(const char *text)
{
    struct hr_error error = {0};
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    if (hr__statement_read(&(struct hr__statement_sent){.text = text, .length = strlen(text)},
                           &dataset, &recipe, &error))
        fail_msg("%s", error.message);
    hr_recipe_unref(&recipe);
    return dataset;
}

/* The statement leads to the same samples, in any working directory, and gives the same text
 * again. */
static void check_same(struct hr_dataset *dataset)
{
    struct hr_recipe *recipe = plain();
    char here[PATH_MAX], path[PATH_MAX], other[PATH_MAX], *text = write_text(dataset, recipe);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir("/"), 0);
    char *elsewhere = write_text(dataset, recipe);
    assert_string_equal(elsewhere, text);
    struct hr_dataset *again = read_text(text);
    assert_int_equal(hr_dataset_count(again), hr_dataset_count(dataset));
    assert_int_equal(hr_dataset_class_count(again), hr_dataset_class_count(dataset));
    for (size_t i = 0; i < hr_dataset_count(dataset); i++) {
        void *bytes;
        size_t length;
        assert_int_equal(hr_dataset_label(again, i), hr_dataset_label(dataset, i));
        hr_dataset_path(again, i, path, sizeof path);
        assert_int_equal(path[0], '/');
        hr_dataset_path(dataset, i, other, sizeof other);
        /* as written, or below the directory where it was written */
        size_t tail = strlen(other), whole = strlen(path);
        assert_true(whole >= tail);
        assert_string_equal(path + whole - tail, other);
        assert_int_equal(hr_dataset_read(again, i, &bytes, &length, NULL), 0);
        hr_bytes_free(bytes);
    }
    hr__free(elsewhere);
    elsewhere = write_text(again, recipe);
    assert_string_equal(elsewhere, text);
    assert_int_equal(chdir(here), 0);
    hr__free(elsewhere);
    hr__free(text);
    hr_dataset_unref(&again);
    hr_recipe_unref(&recipe);
}

static void opened(int code)
{
    assert_int_equal(code, 0);
}

static int set_up(void **state)
{
    struct tree *t = calloc(1, sizeof *t);
    tree_make(t);
    tree_file(t, "photos/cat/1.jpg", 10);
    tree_file(t, "photos/cat/deep/2.jpg", 11);
    tree_file(t, "photos/dog/3.png", 12);
    tree_file(t, "photos/eel/", 0);
    *state = t;
    return chdir(t->root);
}

static int tear_down(void **state)
{
    int r = chdir("/");
    tree_remove(*state);
    free(*state);
    return r;
}

static struct hr_dataset *folder(const char *path)
{
    struct hr_dataset_options options;
    struct hr_dataset *dataset;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    options.allow_empty_classes = 1;
    opened(hr_dataset_open_folder(&dataset, path, &options, NULL));
    return dataset;
}

static void test_folders(void **state)
{
    const struct tree *t = *state;
    struct hr_dataset *dataset = folder(tree_path(t, "photos"));
    struct hr_recipe *recipe = plain();
    check_same(dataset);
    char *text = write_text(dataset, recipe);
    assert_non_null(strstr(text, "\"allow_empty_classes\":true"));
    assert_non_null(strstr(text, "\"index\":\"none\""));
    assert_non_null(strstr(text, "\"kind\":\"folder\""));
    assert_non_null(strstr(text, "\"count\":3"));
    hr__free(text);
    hr_dataset_unref(&dataset);
    dataset = folder("photos");
    assert_int_equal(hr_dataset_class_count(dataset), 3);
    check_same(dataset);
    text = write_text(dataset, recipe);
    char want[300];
    snprintf(want, sizeof want, "\"path\":\"%s/photos\"", t->root);
    assert_non_null(strstr(text, want));
    hr__free(text);
    hr_dataset_unref(&dataset);
    hr_recipe_unref(&recipe);
}

static void test_lists(void **state)
{
    struct hr_dataset *dataset;
    test_write_text("list.txt", "photos/dog/3.png\t-9223372036854775808\n"
                                "photos/cat/1.jpg 9223372036854775807\nphotos/cat/1.jpg 0\n");
    opened(hr_dataset_open(&dataset, "list.txt", NULL, NULL));
    check_same(dataset);
    struct hr_recipe *recipe = plain();
    char *text = write_text(dataset, recipe);
    assert_non_null(strstr(text, "\"kind\":\"list\""));
    hr__free(text);
    hr_dataset_unref(&dataset);
    /* data from a pipe is identified by its lines only */
    int pipes[2];
    char path[64];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(write(pipes[1], "photos/cat/1.jpg 5\n", 19), 19);
    close(pipes[1]);
    snprintf(path, sizeof path, "/proc/self/fd/%d", pipes[0]);
    opened(hr_dataset_open_list(&dataset, path, NULL, NULL));
    text = write_text(dataset, recipe);
    assert_non_null(strstr(text, "\"kind\":\"paths\""));
    assert_non_null(strstr(text, "\"labels\":[5]"));
    hr__free(text);
    hr_dataset_unref(&dataset);
    close(pipes[0]);
    hr_recipe_unref(&recipe);
}

static void test_paths(void **state)
{
    const struct tree *t = *state;
    char absolute[300];
    struct hr_dataset *dataset;
    snprintf(absolute, sizeof absolute, "%s/photos/dog/3.png", t->root);
    const char *paths[3] = {"photos/cat/1.jpg", absolute, "./photos/cat/deep/2.jpg"};
    const int64_t labels[3] = {INT64_MIN, -1, INT64_MAX};
    opened(hr_dataset_from_paths(&dataset, paths, labels, 3, NULL));
    check_same(dataset);
    hr_dataset_unref(&dataset);
    opened(hr_dataset_from_paths(&dataset, paths, NULL, 2, NULL));
    check_same(dataset);
    hr_dataset_unref(&dataset);
    opened(hr_dataset_from_paths(&dataset, NULL, NULL, 0, NULL));
    check_same(dataset);
    hr_dataset_unref(&dataset);
}

/* Names are bytes: names that are not UTF-8, quotes and newlines are preserved. */
static void test_odd_names(void **state)
{
    const char *names[] = {"a\"b\\c\n\x01.jpg", "\xc3\xa4\xf0\x9f\x90\x88.jpg",
                           "\xff\xc3(\x80\xe9.jpg", "\xc3\xa4 and \xa4.jpg"};
    struct hr_recipe *recipe = plain();
    for (size_t i = 0; i < 4; i++) {
        struct hr_dataset *dataset;
        test_write_text(names[i], "bytes");
        opened(hr_dataset_from_paths(&dataset, &names[i], NULL, 1, NULL));
        check_same(dataset);
        char *text = write_text(dataset, recipe);
        assert_int_equal(strstr(text, "\"paths_are\":\"bytes\"") != NULL, i >= 2);
        hr__free(text);
        hr_dataset_unref(&dataset);
    }
    assert_int_equal(mkdir("\xfe\xfd", 0700), 0);
    tree_file(*state, "\xfe\xfd/c\xe9/1.jpg", 3);
    struct hr_dataset *dataset = folder("\xfe\xfd");
    check_same(dataset);
    hr_dataset_unref(&dataset);
    hr_recipe_unref(&recipe);
}

/* Braces in the name of a directory are part of the name, even if the path is a pattern. */
static void test_tars(void **state)
{
    assert_int_equal(mkdir("{a,b}", 0700), 0);
    assert_int_equal(system("tar cf '{a,b}/x-0.tar' -C photos cat && "
                            "tar cf '{a,b}/x-1.tar' -C photos dog"),
                     0);
    assert_int_equal(chdir("{a,b}"), 0);
    struct hr_dataset *dataset;
    opened(hr_dataset_open(&dataset, "x-{0..1}.tar", NULL, NULL));
    assert_int_equal(hr_dataset_count(dataset), 3);
    check_same(dataset);
    struct hr_recipe *recipe = plain();
    char *text = write_text(dataset, recipe);
    assert_non_null(strstr(text, "/{a,b}/x-0.tar\",\""));
    hr__free(text);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&dataset);
}

static void test_packs(void **state)
{
    struct hr_dataset *from = folder("photos"), *dataset;
    struct hr_pack_options options;
    hr_pack_options_default(&options);
    options.form = HR_FORM_ENCODED;
    options.on_error = HR_ON_ERROR_SKIP;
    opened(hr_pack_write(from, "photos.pack", &options, NULL, NULL));
    opened(hr_dataset_open(&dataset, "photos.pack", NULL, NULL));
    check_same(dataset);
    hr_dataset_unref(&dataset);
    hr_dataset_unref(&from);
}

static void test_subsets(void **state)
{
    struct hr_dataset *whole = folder("photos"), *some, *fewer;
    const int64_t indices[4] = {2, 0, 0, 1}, of_those[2] = {3, 0};
    opened(hr_dataset_subset(&some, whole, indices, 4, NULL));
    opened(hr_dataset_subset(&fewer, some, of_those, 2, NULL));
    check_same(some);
    check_same(fewer);
    struct hr_recipe *recipe = plain();
    char *text = write_text(fewer, recipe);
    assert_non_null(strstr(text, "\"indices\":[1,2],\"kind\":\"subset\""));
    hr__free(text);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&fewer);
    opened(hr_dataset_subset(&fewer, whole, NULL, 0, NULL));
    check_same(fewer);
    hr_dataset_unref(&fewer);
    hr_dataset_unref(&some);
    hr_dataset_unref(&whole);
}

static void read_refused(const char *text, int code, const char *words)
{
    struct hr_error error = {0};
    struct hr_dataset *dataset = (struct hr_dataset *)1;
    struct hr_recipe *recipe = (struct hr_recipe *)1;
    int r = hr__statement_read(&(struct hr__statement_sent){.text = text, .length = strlen(text)},
                               &dataset, &recipe, &error);
    if (r != code || error.code != code || !strstr(error.message, words))
        fail_msg("%d, %d \"%s\", not %d \"%s\"", r, error.code, error.message, code, words);
    assert_null(dataset);
    assert_null(recipe);
}

static void check_masks(struct hr_dataset *dataset, const struct hr_recipe *recipe)
{
    char *text = write_text(dataset, recipe), one[PATH_MAX], other[PATH_MAX];
    struct hr_dataset *again = read_text(text);
    check_same(dataset);
    assert_int_equal(hr_dataset_count(hr_dataset_masks(again)), hr_dataset_count(dataset));
    hr_dataset_key(hr_dataset_masks(dataset), 1, one, sizeof one);
    hr_dataset_key(hr_dataset_masks(again), 1, other, sizeof other);
    assert_string_equal(one, other);
    hr_dataset_unref(&again);
    hr__free(text);
}

/* Masks of a dataset, of a subset and of a pack; and fewer masks than images. */
static void test_masks(void **state)
{
    struct hr_dataset *images = folder("photos"), *both, *some, *packed;
    struct hr_recipe *recipe = plain();
    const int64_t indices[2] = {2, 0};
    struct hr_pack_options options;
    opened(hr_dataset_with_masks(&both, images, images, NULL));
    opened(hr_dataset_subset(&some, both, indices, 2, NULL));
    hr_pack_options_default(&options);
    options.form = HR_FORM_ENCODED;
    options.trust = 1;
    opened(hr_pack_write(both, "masks.pack", &options, NULL, NULL));
    opened(hr_dataset_open(&packed, "masks.pack", NULL, NULL));
    check_masks(both, recipe);
    check_masks(some, recipe);
    check_masks(packed, recipe);
    char *written = write_text(both, recipe), text[4096], fewer[4096 + 100];
    snprintf(text, sizeof text, "%s", written);
    const char *masks = strstr(text, "\"masks\":") + 8, *end = strstr(text, ",\"recipe\"");
    snprintf(fewer, sizeof fewer, "%.*s{\"indices\":[0],\"kind\":\"subset\",\"of\":%.*s}%s",
             (int)(masks - text), text, (int)(end - masks), masks, end);
    read_refused(fewer, -EPROTO, "there are 3 images and 1 masks");
    snprintf(fewer, sizeof fewer, "%.*s7%s", (int)(masks - text), text, end);
    read_refused(fewer, -EPROTO, "masks");
    hr__free(written);
    hr_recipe_unref(&recipe);
    hr_dataset_unref(&packed);
    hr_dataset_unref(&some);
    hr_dataset_unref(&both);
    hr_dataset_unref(&images);
}

/* A dataset without files: what its producers must have in common. */
static void test_produced(void **state)
{
    struct hr_produced_options o;
    struct hr_dataset *dataset, *again, *some;
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
    char path[64];
    const int64_t first = 0;
    hr_produced_options_default(&o);
    o.count = 12;
    o.sample_bytes = 70000;
    o.name = "train.\xc3\x9c";
    memset(o.layout, 0xab, sizeof o.layout);
    memset(o.digest, 7, sizeof o.digest);
    opened(hr_produced_create(&dataset, &recipe, &o, NULL));
    hr_recipe_output(recipe, &spec);
    assert_int_equal(spec.bytes, 70000);
    char *text = write_text(dataset, NULL);
    again = read_text(text);
    assert_int_equal(hr_dataset_count(again), 12);
    assert_int_equal(hr_dataset_sample_bytes(again, 11), 70000);
    assert_int_equal(hr_dataset_class_count(again), 0);
    assert_int_equal(hr_dataset_label(again, 3), 0);
    hr_dataset_path(again, 11, path, sizeof path);
    assert_string_equal(path, "train.\xc3\x9c[11]");
    char *twice = write_text(again, recipe);
    assert_string_equal(twice, text);
    assert_int_equal(hr_dataset_subset(&some, again, &first, 1, NULL), -ENOTSUP);
    const char *recipe_of_none = "\"recipe\":{}";
    assert_non_null(strstr(text, recipe_of_none));
    for (char *c = text; *c; c++)
        if (!strncmp(c, recipe_of_none, strlen(recipe_of_none)))
            memcpy(c, "\"recipe\":[]", 11);
    read_refused(text, -EPROTO, "recipe");
    hr__free(text);
    hr__free(twice);
    hr_dataset_unref(&again);
    hr_dataset_unref(&dataset);
    hr_recipe_unref(&recipe);
    o.sample_bytes = 0;
    assert_int_equal(hr_produced_create(&dataset, &recipe, &o, NULL), -EINVAL);
    o.sample_bytes = HR_PRODUCED_BYTES_MAX + 1;
    assert_int_equal(hr_produced_create(&dataset, &recipe, &o, NULL), -EINVAL);
}

/* The files have changed since the dataset was opened. */
static void test_stale(void **state)
{
    const struct tree *t = *state;
    struct hr_recipe *recipe = plain();
    struct hr_dataset *dataset = folder("photos");
    char *text = write_text(dataset, recipe);
    hr_dataset_unref(&dataset);
    tree_file(t, "photos/dog/4.jpg", 5);
    read_refused(text, -ESTALE, "(3 samples then, 4 for the agent)");
    /* the same number, with another name */
    assert_int_equal(remove("photos/dog/3.png"), 0);
    read_refused(text, -ESTALE, "is not what it was");
    hr__free(text);
    test_write_text("list.txt", "photos/cat/1.jpg 1\n");
    opened(hr_dataset_open(&dataset, "list.txt", NULL, NULL));
    text = write_text(dataset, recipe);
    hr_dataset_unref(&dataset);
    test_write_text("list.txt", "photos/cat/1.jpg 2\n");
    read_refused(text, -ESTALE, "list.txt is not what it was");
    assert_int_equal(remove("list.txt"), 0);
    read_refused(text, -ENOENT, "list.txt");
    assert_int_equal(mkfifo("list.txt", 0600), 0);
    read_refused(text, -ESTALE, "no longer a regular file");
    hr__free(text);
    hr_recipe_unref(&recipe);
}

/* Relative paths whose directory does not exist any more. */
static void test_deleted_directory(void **state)
{
    const struct tree *t = *state;
    struct hr_error error = {0};
    struct hr_dataset *dataset;
    struct hr_recipe *recipe = plain();
    const char *path = "a.jpg";
    char *text;
    assert_int_equal(mkdir("gone", 0700), 0);
    assert_int_equal(chdir("gone"), 0);
    assert_int_equal(rmdir("../gone"), 0);
    opened(hr_dataset_from_paths(&dataset, &path, NULL, 1, NULL));
    assert_int_equal(hr__statement_write(&text, dataset, recipe, &error), -ENOTSUP);
    assert_non_null(strstr(error.message, "absolute path"));
    assert_null(text);
    hr_dataset_unref(&dataset);
    assert_int_equal(chdir(t->root), 0);
    hr_recipe_unref(&recipe);
}

/* Compares every byte of every operation and of the options. */
static void check_operations(const struct hr_recipe *recipe, const struct hr_recipe *again)
{
    assert_int_equal(hr__recipe_count(again), hr__recipe_count(recipe));
    for (size_t i = 0; i < hr__recipe_count(recipe); i++)
        assert_memory_equal(hr__recipe_operation(again, i), hr__recipe_operation(recipe, i),
                            sizeof(struct hr_operation));
    assert_memory_equal(hr__recipe_options(again), hr__recipe_options(recipe),
                        sizeof(struct hr_recipe_options));
}

static struct hr_recipe *there_and_back(struct hr_recipe *recipe)
{
    const char *path = "/a.jpg";
    struct hr_error error = {0};
    struct hr_dataset *dataset, *same;
    struct hr_recipe *again;
    opened(hr_dataset_from_paths(&dataset, &path, NULL, 1, NULL));
    char *text = write_text(dataset, recipe);
    if (hr__statement_read(&(struct hr__statement_sent){.text = text, .length = strlen(text)},
                           &same, &again, &error))
        fail_msg("%s: %s", error.message, text);
    char *second = write_text(same, again);
    assert_string_equal(second, text);
    hr__free(second);
    hr__free(text);
    hr_dataset_unref(&same);
    hr_dataset_unref(&dataset);
    return again;
}

/* Recipes of several lengths; each comparison runs 12 samples and compares all bits. */
static void check_recipe(const struct hr_operation *operations, size_t count,
                         const struct hr_recipe_options *options)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
    if (hr_recipe_create(&recipe, operations, count, options, &error))
        fail_msg("%s", error.message);
    struct hr_recipe *again = there_and_back(recipe);
    check_operations(recipe, again);
    hr_recipe_output(recipe, &spec);
    char *one = malloc(spec.bytes), *other = malloc(spec.bytes);
    assert_true(one && other);
    for (uint64_t i = 0; i < 12; i++) {
        struct hr__planar image = image_of(70 + (int)i * 3, 90 - (int)i * 4, i);
        const struct hr_draw_key key = {.seed = 5, .epoch = i % 3, .index = i};
        run_how(recipe, &image, 1, &key, AS_PLANNED, one, NULL);
        run_how(again, &image, 1, &key, AS_PLANNED, other, NULL);
        assert_memory_equal(one, other, spec.bytes);
        image_free(&image);
    }
    free(one);
    free(other);
    hr_recipe_unref(&again);
    hr_recipe_unref(&recipe);
}

static void test_every_operation(void **state)
{
    struct hr_recipe_options options;
    hr_recipe_options_default(&options);
    options.layout = HR_NHWC;
    options.apply_exif_orientation = 1;
    options.max_pixels = 12345678901;
    check_odd_parameters();
    const struct hr_operation first[] = {odd(HR_RANDOM_RESIZED_CROP),
                                         odd(HR_RANDOM_HORIZONTAL_FLIP),
                                         odd(HR_COLOR_JITTER),
                                         odd(HR_RANDOM_GRAYSCALE),
                                         odd(HR_TO_DTYPE),
                                         odd(HR_NORMALIZE)};
    check_recipe(first, 6, NULL);
    check_recipe(first, 6, &options);
    const struct hr_operation second[] = {odd(HR_RESIZE), odd(HR_RANDOM_CROP),
                                          odd(HR_RANDOM_VERTICAL_FLIP), to_dtype(HR_FLOAT32, 1),
                                          odd(HR_NORMALIZE)};
    check_recipe(second, 5, &options);
    const struct hr_operation bytes[] = {odd(HR_RANDOM_INVERT),
                                         odd(HR_RANDOM_POSTERIZE),
                                         odd(HR_RANDOM_SOLARIZE),
                                         odd(HR_RANDOM_ADJUST_SHARPNESS),
                                         odd(HR_RANDOM_AUTOCONTRAST),
                                         odd(HR_RANDOM_EQUALIZE),
                                         odd(HR_RANDOM_CHANNEL_PERMUTATION),
                                         odd(HR_RANDOM_PHOTOMETRIC_DISTORT),
                                         odd(HR_GAUSSIAN_BLUR),
                                         odd(HR_GAUSSIAN_NOISE),
                                         odd(HR_RAND_AUGMENT),
                                         odd(HR_TRIVIAL_AUGMENT_WIDE),
                                         odd(HR_AUTO_AUGMENT),
                                         odd(HR_AUG_MIX),
                                         odd(HR_TIMM_RAND_AUGMENT),
                                         odd(HR_TIMM_AUTO_AUGMENT),
                                         odd(HR_TIMM_AUG_MIX),
                                         odd(HR_CENTER_CROP),
                                         odd(HR_TO_DTYPE),
                                         odd(HR_RANDOM_ERASING)};
    check_recipe(bytes, sizeof bytes / sizeof bytes[0], &options);
    struct hr_operation third[] = {sized(HR_RESIZE, 33, 37), odd(HR_CENTER_CROP),
                                   odd(HR_RANDOM_CROP)};
    check_recipe(third, 3, &options);
    for (int mode = HR_PAD_CONSTANT; mode <= HR_PAD_SYMMETRIC; mode++) {
        third[2].u.random_crop.padding_mode = (enum hr_padding_mode)mode;
        check_recipe(third, 3, NULL);
    }
    const struct hr_operation moved[] = {odd(HR_PAD),
                                         odd(HR_RANDOM_AFFINE),
                                         odd(HR_RANDOM_ROTATION),
                                         odd(HR_RANDOM_PERSPECTIVE),
                                         odd(HR_ELASTIC_TRANSFORM),
                                         odd(HR_RANDOM_RESIZED_CROP)};
    check_recipe(moved, 6, NULL);
    const struct hr_operation grouped[] = {odd(HR_RANDOM_APPLY),
                                           odd(HR_RANDOM_HORIZONTAL_FLIP),
                                           odd(HR_PAD),
                                           odd(HR_RANDOM_CHOICE),
                                           odd(HR_SEQUENCE),
                                           odd(HR_PAD),
                                           odd(HR_RANDOM_GRAYSCALE),
                                           odd(HR_RANDOM_ORDER),
                                           odd(HR_RANDOM_AFFINE),
                                           odd(HR_RANDOM_PERSPECTIVE),
                                           odd(HR_RANDOM_RESIZED_CROP)};
    check_recipe(grouped, 11, NULL);
    const struct hr_operation fitted[] = {odd(HR_RANDOM_ZOOM_OUT), odd(HR_RANDOM_SHORTEST_SIZE),
                                          odd(HR_LETTER_BOX)};
    check_recipe(fitted, 3, NULL);
    for (int dtype = HR_UINT8; dtype <= HR_FLOAT32; dtype++) {
        const struct hr_operation fourth[] = {odd(HR_CENTER_CROP),
                                              to_dtype((enum hr_dtype)dtype, dtype == HR_BFLOAT16)};
        check_recipe(fourth, 2, NULL);
    }
}

/* A flag may be any number other than 0, a limit any number. */
static void test_flags_and_limits(void **state)
{
    struct hr_recipe_options options;
    struct hr_operation o = sized(HR_RANDOM_RESIZED_CROP, 5, 5);
    struct hr_recipe *recipe;
    hr_recipe_options_default(&options);
    o.u.random_resized_crop.antialias = 17;
    options.apply_exif_orientation = -1;
    options.max_pixels = UINT64_MAX;
    options.damaged = HR_DAMAGED_ACCEPT;
    options.inexact = 3;
    assert_int_equal(hr_recipe_create(&recipe, &o, 1, &options, NULL), 0);
    struct hr_recipe *again = there_and_back(recipe);
    assert_int_equal(hr__recipe_operation(again, 0)->u.random_resized_crop.antialias, 1);
    assert_int_equal(hr__recipe_options(again)->apply_exif_orientation, 1);
    assert_int_equal(hr__recipe_options(again)->max_pixels, INT64_MAX);
    assert_int_equal(hr__recipe_options(again)->damaged, HR_DAMAGED_ACCEPT);
    assert_int_equal(hr__recipe_options(again)->inexact, 1);
    hr_recipe_unref(&again);
    hr_recipe_unref(&recipe);
}

#define RECIPE                                                                                     \
    "\"recipe\":{\"apply_exif_orientation\":false,\"layout\":\"NCHW\",\"max_pixels\":9,"           \
    "\"operations\":[{\"name\":\"CenterCrop\",\"height\":4,\"width\":4}]}"
#define WITH_DATASET(text) "{\"dataset\":" text "," RECIPE ",\"version\":1}"
#define WITH_RECIPE(text)                                                                          \
    "{\"dataset\":{\"kind\":\"paths\",\"paths\":[\"/a\"],\"labels\":[1]},\"recipe\":" text         \
    ",\"version\":1}"
#define WITH_OPERATION(text)                                                                       \
    WITH_RECIPE("{\"apply_exif_orientation\":false,\"layout\":\"NCHW\",\"max_pixels\":9,"          \
                "\"operations\":[" text "]}")
#define DIGEST "\"digest\":\"0123456789abcdef0123456789abcdef\""
#define PATHS  "{\"kind\":\"paths\",\"paths\":[\"/a\"],\"labels\":[1]}"
#define NEST   "{\"kind\":\"subset\",\"indices\":[0],\"of\":"

static void test_refused(void **state)
{
    const struct {
        const char *text, *words;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "not an object"},
        {"{\"version\":1", "not JSON"},
        {"{}", "version is missing"},
        {"{\"version\":2,\"dataset\":{}," RECIPE "}", "version is 2"},
        {"{\"version\":1,\"version\":1}", "not JSON"},
        {"{\"version\":1," RECIPE ",\"extra\":1}", "dataset is missing"},
        {"{\"version\":1,\"dataset\":" PATHS "," RECIPE ",\"extra\":1}", "other members"},
        {WITH_DATASET("{}"), "dataset.kind is missing"},
        {WITH_DATASET("{\"kind\":\"cloud\"}"), "dataset.kind is \"cloud\""},
        {WITH_DATASET("{\"kind\":\"paths\",\"labels\":[]}"), "dataset.paths is missing"},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths\":[\"a\"],\"labels\":[1]}"),
         "dataset.paths[0] must be an absolute path"},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths\":[7],\"labels\":[1]}"), "dataset.paths[0]"},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths\":[\"/a\"],\"labels\":[]}"),
         "dataset.labels are 0 for 1 paths"},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths\":[\"/a\"],\"labels\":[1.5]}"),
         "dataset.labels[0]"},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths\":[\"/a\"],\"labels\":[1],\"path\":\"/a\"}"),
         "other members"},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths_are\":\"words\",\"paths\":[],\"labels\":[]}"),
         "paths_are must be \"bytes\""},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths_are\":\"bytes\",\"paths\":[\"/"
                      "\\u0100\"],\"labels\":[1]}"),
         "no byte"},
        {WITH_DATASET("{\"kind\":\"paths\",\"paths\":[\"/a\\u0000b\"],\"labels\":[1]}"),
         "not JSON"},
        {WITH_DATASET("{\"kind\":\"list\",\"count\":1," DIGEST "}"), "dataset.path must be"},
        {WITH_DATASET("{\"kind\":\"list\",\"path\":\"/a\",\"count\":-1," DIGEST "}"),
         "dataset.count is -1"},
        {WITH_DATASET("{\"kind\":\"list\",\"path\":\"/a\",\"count\":1}"), "dataset.digest"},
        {WITH_DATASET("{\"kind\":\"list\",\"path\":\"/a\",\"count\":1,\"digest\":\"00\"}"),
         "digest must be 32 digits"},
        {WITH_DATASET("{\"kind\":\"pack\",\"path\":\"/a\",\"count\":1,\"digest\":"
                      "\"0123456789ABCDEF0123456789abcdef\"}"),
         "digest must be 32 digits"},
        {WITH_DATASET("{\"kind\":\"folder\",\"path\":\"/a\",\"count\":1," DIGEST "}"),
         "allow_empty_classes is missing"},
        {WITH_DATASET("{\"kind\":\"folder\",\"path\":\"/a\",\"count\":1," DIGEST
                      ",\"allow_empty_classes\":false,\"index\":\"x\"}"),
         "dataset.index is \"x\""},
        {WITH_DATASET("{\"kind\":\"tar\",\"paths\":[],\"count\":1," DIGEST "}"),
         "dataset.paths are none"},
        {WITH_DATASET("{\"kind\":\"subset\",\"indices\":[0]}"), "dataset.of is missing"},
        {WITH_DATASET("{\"kind\":\"subset\",\"indices\":[-1],\"of\":" PATHS "}"),
         "dataset.indices[0] must be"},
        {WITH_DATASET(NEST NEST NEST NEST NEST NEST NEST NEST NEST PATHS "}}}}}}}}}"),
         "more than 8 times"},
        {WITH_RECIPE("7"), "recipe is a number"},
        {WITH_RECIPE("{}"), "recipe.layout is missing"},
        {WITH_RECIPE("{\"apply_exif_orientation\":false,\"layout\":\"NCHW\",\"max_pixels\":9,"
                     "\"exact\":0,\"operations\":[]}"),
         "recipe.exact is"},
        {WITH_OPERATION("7"), "recipe.operations[0] is a number"},
        {WITH_OPERATION("{}"), "operations[0].name is no operation's"},
        {WITH_OPERATION("{\"name\":\"Blur\"}"),
         "operations[0].name is no operation's in this version: Blur"},
        {WITH_OPERATION("{\"name\":\"CenterCrop\",\"height\":4}"),
         "recipe.operations[0].width must be a whole number"},
        {WITH_OPERATION("{\"name\":\"CenterCrop\",\"height\":4,\"width\":4294967296}"), "width"},
        {WITH_OPERATION("{\"name\":\"CenterCrop\",\"height\":4,\"width\":4,\"p\":1}"),
         "than a CenterCrop has"},
        {WITH_OPERATION("{\"name\":\"RandomGrayscale\",\"p\":\"0\"}"), "p must be a number"},
        {WITH_OPERATION("{\"name\":\"ToDtype\",\"dtype\":\"float16\",\"scale\":1}"),
         "scale must be true or false"},
        {WITH_OPERATION("{\"name\":\"ToDtype\",\"dtype\":\"float64\",\"scale\":true}"), "dtype"},
        {WITH_OPERATION("{\"name\":\"Normalize\",\"mean\":[0,0],\"std\":[1,1,1]}"),
         "mean must be an array of 3 numbers"},
        {WITH_OPERATION("{\"name\":\"Normalize\",\"mean\":[0,0,null],\"std\":[1,1,1]}"),
         "mean[2] must be a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        read_refused(cases[i].text, -EPROTO, cases[i].words);
    /* the deepest allowed nesting, then what the parts themselves refuse */
    struct hr_dataset *dataset =
        read_text(WITH_DATASET(NEST NEST NEST NEST NEST NEST NEST NEST PATHS "}}}}}}}}"));
    assert_int_equal(hr_dataset_count(dataset), 1);
    hr_dataset_unref(&dataset);
    read_refused(WITH_DATASET("{\"kind\":\"subset\",\"indices\":[1],\"of\":" PATHS "}"), -ERANGE,
                 "index 1");
    read_refused(WITH_OPERATION(""), -EINVAL, "no fixed size");
    read_refused(WITH_OPERATION("{\"name\":\"CenterCrop\",\"height\":-4,\"width\":4}"), -EINVAL,
                 "CenterCrop (operation 1");
    read_refused(
        WITH_DATASET("{\"kind\":\"pack\",\"path\":\"/nonexistent\",\"count\":1," DIGEST "}"),
        -ENOENT, "/nonexistent");
}

/* Truncated texts and texts with one changed byte are refused, or open something else. */
static void test_damage(void **state)
{
    struct hr_dataset *dataset = folder("photos"), *some;
    const int64_t indices[2] = {2, 0};
    const struct hr_operation operations[] = {odd(HR_RESIZE), odd(HR_RANDOM_CROP),
                                              to_dtype(HR_FLOAT32, 1), odd(HR_NORMALIZE)};
    struct hr_recipe *recipe = recipe_of(operations, 4);
    struct hr__statement stated;
    opened(hr_dataset_subset(&some, dataset, indices, 2, NULL));
    char *text = write_text(some, recipe);
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        assert_int_equal(hr__statement_parse(&stated, text, i, NULL), -EPROTO);
        for (int bit = 0; bit < 8; bit++) {
            text[i] ^= (char)(1 << bit);
            struct hr_error error = {0};
            int r = hr__statement_parse(&stated, text, length, &error);
            assert_true(r == 0 || (r == -EPROTO && error.code == r && error.message[0]));
            if (!r)
                hr__statement_clear(&stated);
            text[i] ^= (char)(1 << bit);
        }
    }
    hr__free(text);
    hr_dataset_unref(&some);
    hr_dataset_unref(&dataset);
    hr_recipe_unref(&recipe);
}

/* Every allocation fails in turn, for writing and reading: the result is an error, and nothing
 * leaks. */
static void test_out_of_memory(void **state)
{
    const char *paths[2] = {"photos/cat/1.jpg", "\xff.jpg"};
    struct hr_dataset *whole, *some, *dataset;
    struct hr_recipe *recipe = plain(), *again;
    const int64_t indices[1] = {1};
    char *text = NULL, *kept;
    uint64_t agent = hr__allocated(HR__TAG_AGENT);
    opened(hr_dataset_from_paths(&whole, paths, NULL, 2, NULL));
    opened(hr_dataset_subset(&some, whole, indices, 1, NULL));
    uint64_t before = hr__allocated(HR__TAG_DATASET);
    for (uint64_t n = 1; !text; n++) {
        hr__alloc_fail_at(n, 0);
        int r = hr__statement_write(&text, some, recipe, NULL);
        hr__alloc_fail_at(0, 0);
        assert_int_equal(r, text ? 0 : -ENOMEM);
        assert_true(n < 1000);
    }
    kept = text;
    dataset = NULL;
    for (uint64_t n = 1; !dataset; n++) {
        hr__alloc_fail_at(n, 0);
        int r =
            hr__statement_read(&(struct hr__statement_sent){.text = text, .length = strlen(text)},
                               &dataset, &again, NULL);
        hr__alloc_fail_at(0, 0);
        assert_int_equal(r, dataset ? 0 : -ENOMEM);
        assert_int_equal(again != NULL, dataset != NULL);
        assert_true(n < 1000);
    }
    hr_dataset_unref(&dataset);
    hr_recipe_unref(&again);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), before);
    hr__free(kept);
    assert_int_equal(hr__allocated(HR__TAG_AGENT), agent);
    hr_dataset_unref(&some);
    hr_dataset_unref(&whole);
    hr_recipe_unref(&recipe);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_folders),
        TEST(test_lists),
        TEST(test_paths),
        TEST(test_odd_names),
        TEST(test_tars),
        TEST(test_packs),
        TEST(test_subsets),
        TEST(test_masks),
        TEST(test_produced),
        TEST(test_stale),
        TEST(test_deleted_directory),
        TEST(test_every_operation),
        TEST(test_flags_and_limits),
        TEST(test_refused),
        TEST(test_damage),
        TEST(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("agent statement", tests, NULL, NULL);
}
