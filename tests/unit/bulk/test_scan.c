/* Opening datasets: sizes found in the background, use of the index, fork, early stops. */
#include "../dataset/tree.h"

#include "base/memory.h"

#include <headrace/dataset.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static struct tree cache; /* where indices of this program go */

static int make_cache(void **state)
{
    tree_make(&cache);
    setenv("XDG_CACHE_HOME", cache.root, 1);
    return 0;
}

static int remove_cache(void **state)
{
    tree_remove(&cache);
    return 0;
}

static void fill_tree(struct tree *t, int classes, int files)
{
    char name[100];
    tree_make(t);
    for (int c = 0; c < classes; c++)
        for (int i = 0; i < files; i++) {
            snprintf(name, sizeof name, "class%03d/%05d.jpg", c, i);
            tree_file(t, name, (size_t)(c + i) % 50);
        }
}

static void expect_sizes(struct hr_dataset *d, int classes, int files)
{
    assert_int_equal(hr_dataset_count(d), classes * files);
    for (int c = 0; c < classes; c++)
        for (int i = 0; i < files; i++)
            assert_int_equal(hr_dataset_sample_bytes(d, (size_t)(c * files + i)), (c + i) % 50);
}

static void names_first_sizes_behind(void **state)
{
    struct tree t;
    struct hr_dataset *d, *s;
    const int64_t indices[] = {599, 0};
    fill_tree(&t, 3, 200);
    assert_int_equal(hr_dataset_open_folder(&d, t.root, NULL, NULL), 0);
    assert_int_equal(hr_dataset_class_count(d), 3);
    assert_string_equal(hr_dataset_class_name(d, 2), "class002");
    assert_string_equal(hr_dataset_root(d), t.root);
    assert_int_equal(hr_dataset_subset(&s, d, indices, 2, NULL), 0);
    hr_dataset_unref(&d);
    assert_int_equal(hr_dataset_wait_sizes(s), 0);
    assert_int_equal(hr_dataset_sample_bytes(s, 0), (2 + 199) % 50);
    hr_dataset_unref(&s);
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), 0);
    tree_remove(&t);
}

static void stopped_at_any_time(void **state)
{
    struct tree t;
    struct hr_dataset_options options;
    fill_tree(&t, 4, 150);
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    for (int k = 0; k < 60; k++) {
        struct hr_dataset *d;
        options.threads = 1 + k % 4;
        assert_int_equal(hr_dataset_open(&d, t.root, &options, NULL), 0);
        usleep((useconds_t)(k * 20));
        hr_dataset_unref(&d);
    }
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
    assert_int_equal(hr__allocated(HR__TAG_LOADER), 0);
    tree_remove(&t);
}

static void same_for_any_threads(void **state)
{
    struct tree t;
    struct hr_dataset_options options;
    fill_tree(&t, 5, 100);
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    options.wait_sizes = 1;
    for (options.threads = 1; options.threads <= 8; options.threads *= 2) {
        struct hr_dataset *d;
        char key[64];
        assert_int_equal(hr_dataset_open(&d, t.root, &options, NULL), 0);
        expect_sizes(d, 5, 100);
        hr_dataset_key(d, 250, key, sizeof key);
        assert_string_equal(key, "class002/00050.jpg");
        hr_dataset_unref(&d);
    }
    tree_remove(&t);
}

/* Sets every directory's time to `seconds` from now; this changes its ctime to now. */
static void touch_tree(const struct tree *t, time_t seconds)
{
    static const char *const names[] = {"class000", "class001", "class002", "."};
    struct timespec times[2] = {{.tv_sec = time(NULL) + seconds}, {.tv_sec = time(NULL) + seconds}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(utimensat(AT_FDCWD, tree_path(t, names[i]), times, 0), 0);
}

static int opened_from_index(const struct tree *t, enum hr_index_policy policy, int wait_sizes)
{
    struct hr_dataset *d;
    struct hr_dataset_options options;
    struct hr_dataset_info info = {.size = sizeof info};
    hr_dataset_options_default(&options);
    options.index = policy;
    options.wait_sizes = wait_sizes;
    assert_int_equal(hr_dataset_open(&d, t->root, &options, NULL), 0);
    assert_int_equal(hr_dataset_wait_sizes(d), 0);
    expect_sizes(d, 3, 20);
    hr_dataset_get_info(d, &info);
    assert_true((policy == HR_INDEX_NONE) == !*info.index_path);
    hr_dataset_unref(&d); /* joins the thread: its index is written by then */
    return info.from_index;
}

static void the_second_open_uses_the_index(void **state)
{
    struct tree t;
    fill_tree(&t, 3, 20);
    /* too young to be trusted, even on a slow machine */
    touch_tree(&t, 3600);
    assert_int_equal(opened_from_index(&t, HR_INDEX_USER_CACHE, 1), 0);
    assert_int_equal(opened_from_index(&t, HR_INDEX_USER_CACHE, 1), 0);
    touch_tree(&t, 0);
    usleep(2100000); /* beyond HR__RACY_NS */
    for (int wait = 0; wait < 2; wait++) {
        enum hr_index_policy policy = wait ? HR_INDEX_USER_CACHE : HR_INDEX_BESIDE_DATA;
        assert_int_equal(opened_from_index(&t, policy, wait), 0);
        assert_int_equal(opened_from_index(&t, policy, 1), 1);
        assert_int_equal(opened_from_index(&t, policy, 0), 1);
    }
    assert_int_equal(opened_from_index(&t, HR_INDEX_NONE, 1), 0);
    tree_file(&t, "class001/00020.jpg", 1);
    struct hr_dataset *d;
    assert_int_equal(hr_dataset_open(&d, t.root, NULL, NULL), 0);
    assert_int_equal(hr_dataset_count(d), 61);
    hr_dataset_unref(&d);
    /* damage is not an error */
    FILE *f = fopen(tree_path(&t, ".headrace-index"), "r+b");
    fputs("nonsense", f);
    fclose(f);
    assert_int_equal(unlink(tree_path(&t, "class001/00020.jpg")), 0);
    assert_int_equal(opened_from_index(&t, HR_INDEX_BESIDE_DATA, 1), 0);
    tree_remove(&t);
}

static void lists_and_given_paths(void **state)
{
    struct tree t;
    struct hr_dataset *d;
    struct hr_dataset_options options;
    char absolute[400], path[500];
    const char *paths[2] = {absolute, "/nonexistent/x.jpg"};
    tree_make(&t);
    tree_file(&t, "images/a.jpg", 5);
    tree_file(&t, "images/b.jpg", 6);
    snprintf(absolute, sizeof absolute, "%s/images/b.jpg", t.root);
    FILE *f = fopen(tree_path(&t, "list.txt"), "w");
    fprintf(f, "images/a.jpg 3\n%s 4\nimages/none.jpg 5\n", absolute);
    fclose(f);
    hr_dataset_options_default(&options);
    for (options.wait_sizes = 0; options.wait_sizes < 2; options.wait_sizes++) {
        assert_int_equal(hr_dataset_open(&d, tree_path(&t, "list.txt"), &options, NULL), 0);
        assert_int_equal(hr_dataset_wait_sizes(d), 0);
        assert_int_equal(hr_dataset_count(d), 3);
        assert_int_equal(hr_dataset_sample_bytes(d, 0), 5);
        assert_int_equal(hr_dataset_sample_bytes(d, 1), 6);
        assert_int_equal(hr_dataset_sample_bytes(d, 2), HR_SIZE_UNKNOWN);
        assert_int_equal(hr_dataset_label(d, 2), 5);
        hr_dataset_path(d, 0, path, sizeof path);
        assert_int_equal(access(path, R_OK), 0);
        assert_string_equal(hr_dataset_root(d), "");
        hr_dataset_unref(&d);
    }
    assert_int_equal(hr_dataset_from_paths(&d, paths, NULL, 2, NULL), 0);
    assert_int_equal(hr_dataset_sample_bytes(d, 0), HR_SIZE_UNKNOWN);
    assert_int_equal(hr_dataset_wait_sizes(d), 0);
    assert_int_equal(hr_dataset_sample_bytes(d, 0), 6);
    assert_int_equal(hr_dataset_sample_bytes(d, 1), HR_SIZE_UNKNOWN);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

static void fail_with(const char *path, const struct hr_dataset_options *options, int code,
                      const char *words)
{
    struct hr_dataset *d;
    struct hr_error error = {0};
    assert_int_equal(hr_dataset_open(&d, path, options, &error), code);
    assert_null(d);
    assert_non_null(strstr(error.message, words));
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

static int cancel(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    return !strcmp(stage, arg);
}

static void errors(void **state)
{
    struct tree t;
    struct hr_dataset *d;
    struct hr_dataset_options options;
    tree_make(&t);
    tree_file(&t, "cat/1.jpg", 1);
    tree_file(&t, "dog/", 0);
    fail_with(tree_path(&t, "none"), NULL, -ENOENT, "/none");
    fail_with(t.root, NULL, -ENODATA, "hold no image: dog;");
    hr_dataset_options_default(&options);
    options.allow_empty_classes = 1;
    assert_int_equal(hr_dataset_open(&d, t.root, &options, NULL), 0);
    assert_int_equal(hr_dataset_class_count(d), 2);
    hr_dataset_unref(&d);
    options.progress = cancel;
    for (options.wait_sizes = 0; options.wait_sizes < 2; options.wait_sizes++) {
        options.progress_arg = options.wait_sizes ? "sizes" : "listing";
        fail_with(t.root, &options, -ECANCELED, "cancelled");
    }
    options.progress = NULL;
    assert_int_equal(unlink(tree_path(&t, "cat/1.jpg")), 0);
    fail_with(t.root, &options, -ENODATA, "no image below");
    options.threads = -1;
    fail_with(t.root, &options, -EINVAL, "threads is -1");
    options.size = 0;
    fail_with(t.root, &options, -EINVAL, "hr_dataset_options_default");
    tree_remove(&t);
}

/* A forked child has no background thread: waiting and closing still work. */
static void after_fork(void **state)
{
    struct tree t;
    struct hr_dataset *d;
    fill_tree(&t, 2, 300);
    assert_int_equal(hr_dataset_open(&d, t.root, NULL, NULL), 0);
    pid_t child = fork();
    if (!child) {
        alarm(300);
        int r = hr_dataset_wait_sizes(d);
        int64_t bytes = hr_dataset_sample_bytes(d, 599);
        /* ThreadSanitizer takes the thread, which only the parent has, for one of the child. */
#ifndef __SANITIZE_THREAD__
        hr_dataset_unref(&d);
#endif
        _exit(r || bytes != (1 + 299) % 50);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_first_sizes_behind),
        cmocka_unit_test(stopped_at_any_time),
        cmocka_unit_test(same_for_any_threads),
        cmocka_unit_test(the_second_open_uses_the_index),
        cmocka_unit_test(lists_and_given_paths),
        cmocka_unit_test(errors),
        cmocka_unit_test(after_fork),
    };
    return cmocka_run_group_tests_name("bulk-scan", tests, make_cache, remove_cache);
}
