/* The walk of a folder: torchvision's classes, samples and order; links; errors. */
#include "tree.h"

#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/walk.h"

#include <errno.h>
#include <sys/resource.h>

/* Runs items from last to first: the result must be the same. */
static void run_backwards(void *self, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
    while (n--)
        fn(arg, n);
}

static const struct hr__executor backwards = {.threads = 1, .run = run_backwards};

static int walk(struct hr__catalog **out, const struct tree *t, const struct hr__executor *executor,
                struct hr_error *error)
{
    struct hr__progress progress;
    hr__progress_init(&progress, NULL, NULL);
    return hr__walk(out, t->root, executor, &progress, error);
}

/* Writes the samples as lines "path=label". */
static void describe(const struct hr__catalog *c, char *out, size_t capacity)
{
    size_t at = 0;
    out[0] = 0;
    for (uint64_t i = 0; i < c->header->samples; i++) {
        const struct hr__catalog_directory *d = &c->directories[c->sample_directory[i]];
        at += (size_t)snprintf(out + at, capacity - at, "%s/%s=%u\n", hr__catalog_at(c, d->path),
                               hr__catalog_at(c, c->names[i]), d->label);
    }
}

static void expect(const struct tree *t, const char *samples, uint64_t classes, int untrusted)
{
    static char text[8192];
    struct hr_error error = {0};
    for (int pass = 0; pass < 2; pass++) {
        struct hr__catalog *c;
        int r = walk(&c, t, pass ? &backwards : &hr__executor_serial, &error);
        assert_string_equal(error.message, "");
        assert_int_equal(r, 0);
        describe(c, text, sizeof text);
        assert_string_equal(text, samples);
        assert_int_equal(c->header->classes, classes);
        if (untrusted >= 0)
            assert_int_equal(c->untrusted, untrusted);
        hr__catalog_destroy(&c);
    }
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

static void order_of_nested_folders(void **state)
{
    struct tree t;
    tree_make(&t);
    /* whole paths are compared: '-' < '/' < 'a', so cat/a-b comes before cat/a/x */
    tree_file(&t, "cat/z.jpg", 1);
    tree_file(&t, "cat/a.PNG", 1);
    tree_file(&t, "cat/a/2.jpg", 1);
    tree_file(&t, "cat/a/x/1.jpg", 1);
    tree_file(&t, "cat/a-b/3.jpg", 1);
    tree_file(&t, "cat/.hidden/4.jpg", 1);
    tree_file(&t, "cat/readme.txt", 1);
    tree_file(&t, "Bird/only.webp", 1);
    tree_file(&t, ".dot/5.jpeg", 1);
    tree_file(&t, "loose.jpg", 1);
    tree_file(&t, "dir.jpg/6.tiff", 1); /* a class despite its name */
    tree_file(&t, "cat/sub.jpg/7.jpg", 1);
    expect(&t,
           ".dot/5.jpeg=0\nBird/only.webp=1\ncat/a.PNG=2\ncat/z.jpg=2\ncat/.hidden/4.jpg=2\n"
           "cat/a/2.jpg=2\ncat/a-b/3.jpg=2\ncat/a/x/1.jpg=2\ncat/sub.jpg/7.jpg=2\n"
           "dir.jpg/6.tiff=3\n",
           4, 1);
    tree_remove(&t);
}

static void links_are_followed_and_loops_left_out(void **state)
{
    struct tree t;
    tree_make(&t);
    tree_file(&t, "cat/1.jpg", 1);
    tree_file(&t, "elsewhere/data/9.png", 1);
    tree_link(&t, "1.jpg", "cat/2.jpg");
    tree_link(&t, "../elsewhere/data", "cat/more");
    tree_link(&t, "cat", "copy");    /* a class that is a link */
    tree_link(&t, ".", "cat/self");  /* a link to its own directory */
    tree_link(&t, "..", "cat/up");   /* a link to the root */
    tree_link(&t, ".", "rootagain"); /* a class that is the root itself */
    tree_link(&t, "ring.jpg", "cat/ring.jpg");
    expect(&t,
           "cat/1.jpg=0\ncat/2.jpg=0\ncat/more/9.png=0\ncopy/1.jpg=1\ncopy/2.jpg=1\n"
           "copy/more/9.png=1\nelsewhere/data/9.png=2\n",
           3, 1);
    tree_remove(&t);
}

/* A link above the root that leads back to it through plain directories. */
static void loop_through_the_parent(void **state)
{
    struct tree t;
    char sub[300];
    tree_make(&t);
    tree_file(&t, "set/cat/1.jpg", 1);
    tree_link(&t, "../..", "set/cat/above");
    snprintf(sub, sizeof sub, "%s/set", t.root);
    struct tree set;
    snprintf(set.root, sizeof set.root, "%.250s", sub);
    expect(&set, "cat/1.jpg=0\n", 1, 1);
    tree_remove(&t);
}

/* As in torchvision, everything with the extension that is not a directory is a sample. */
static void dangling_links_are_samples(void **state)
{
    struct tree t;
    tree_make(&t);
    tree_file(&t, "cat/1.jpg", 1);
    tree_link(&t, "nowhere", "cat/0.jpg");
    assert_int_equal(mkfifo(tree_path(&t, "cat/fifo.jpg"), 0600), 0);
    expect(&t, "cat/0.jpg=0\ncat/1.jpg=0\ncat/fifo.jpg=0\n", 1, 1);
    tree_remove(&t);
}

static void any_bytes_in_names(void **state)
{
    struct tree t;
    tree_make(&t);
    tree_file(&t, "caf\xC3\xA9/\xFF.jpg", 1);
    tree_file(&t, "caf\xC3\xA9/\xEF\xBC\x81.jpg", 1);
    tree_file(&t, "caf\xE9/new\nline\t.jpg", 1);
    expect(&t,
           "caf\xC3\xA9/\xFF.jpg=0\ncaf\xC3\xA9/\xEF\xBC\x81.jpg=0\n"
           "caf\xE9/new\nline\t.jpg=1\n",
           2, 1);
    tree_remove(&t);
}

static void fail_with(const char *path, int code, const char *words)
{
    struct hr__progress progress;
    struct hr__catalog *c;
    struct hr_error error = {0};
    hr__progress_init(&progress, NULL, NULL);
    assert_int_equal(hr__walk(&c, path, &hr__executor_serial, &progress, &error), code);
    assert_null(c);
    assert_int_equal(error.code, code);
    assert_non_null(strstr(error.message, words));
    assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
}

static void errors_say_what_and_where(void **state)
{
    struct tree t;
    tree_make(&t);
    fail_with(t.root, -ENODATA, "no class directory");
    tree_file(&t, "file", 1);
    fail_with(tree_path(&t, "file"), -ENOTDIR, "/file");
    fail_with(tree_path(&t, "absent"), -ENOENT, "/absent");
    tree_file(&t, "cat/closed/1.jpg", 1);
    if (geteuid()) { /* root can read everything */
        assert_int_equal(chmod(tree_path(&t, "cat/closed"), 0), 0);
        fail_with(t.root, -EACCES, "cat/closed");
        assert_int_equal(chmod(tree_path(&t, "cat/closed"), 0755), 0);
    }
    tree_remove(&t);
}

static int cancel(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    ++*(int *)arg;
    return 1;
}

static void cancelled_by_the_callback(void **state)
{
    struct tree t;
    struct hr__progress progress;
    struct hr__catalog *c;
    int calls = 0;
    tree_make(&t);
    tree_file(&t, "cat/1.jpg", 1);
    hr__progress_init(&progress, cancel, &calls);
    progress.last_ns = 0; /* due at once */
    assert_int_equal(hr__walk(&c, t.root, &hr__executor_serial, &progress, NULL), -ECANCELED);
    assert_int_equal(calls, 1);
    assert_null(c);
    tree_remove(&t);
}

static void every_allocation_may_fail(void **state)
{
    struct tree t;
    struct hr__catalog *c = NULL;
    tree_make(&t);
    tree_file(&t, "cat/1.jpg", 1);
    tree_file(&t, "cat/sub/2.jpg", 1);
    tree_file(&t, "dog/\xC3\xA9.jpg", 1);
    int r = -ENOMEM, tries = 0;
    for (; r; tries++) {
        hr__alloc_fail_at((uint64_t)tries + 1, 0);
        r = walk(&c, &t, &hr__executor_serial, NULL);
        hr__alloc_fail_at(0, 0);
        if (!r)
            break;
        assert_int_equal(r, -ENOMEM);
        assert_null(c);
        assert_int_equal(hr__allocated(HR__TAG_DATASET), 0);
        assert_true(tries < 200);
    }
    assert_true(tries > 10);
    hr__catalog_destroy(&c);
    tree_remove(&t);
}

static void empty_classes_are_reported(void **state)
{
    struct tree t;
    struct hr__catalog *c;
    struct hr_dataset *d;
    char names[100];
    tree_make(&t);
    tree_file(&t, "a/none.txt", 1);
    tree_file(&t, "b/1.jpg", 1);
    tree_file(&t, "c\xFF/sub/", 0);
    assert_int_equal(walk(&c, &t, &hr__executor_serial, NULL), 0);
    assert_int_equal(hr__dataset_create(&d, c, t.root, t.root, NULL), 0);
    assert_int_equal(hr__dataset_empty_classes(d, names, sizeof names), 2);
    assert_string_equal(names, "a, c\\xFF");
    hr_dataset_unref(&d);
    tree_remove(&t);
}

/* If descriptors run out anywhere, the message does not suggest chmod. */
static void lack_of_descriptors_is_reported(void **state)
{
    struct tree t;
    struct hr__catalog *c;
    struct hr_error error;
    struct rlimit was, few;
    tree_make(&t);
    tree_file(&t, "a/1.jpg", 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    int next = dup(0);
    assert_true(next >= 0);
    close(next);
    for (int more = 0; more < 2; more++) {
        few = (struct rlimit){(rlim_t)(next + more), was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        int r = walk(&c, &t, &hr__executor_serial, &error);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        assert_int_equal(r, -EMFILE);
        assert_non_null(strstr(error.message, more ? "cannot list" : "cannot open"));
        assert_non_null(strstr(error.message, "ulimit -n"));
        assert_null(strstr(error.message, "make it readable"));
    }
    tree_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_nested_folders),
        cmocka_unit_test(links_are_followed_and_loops_left_out),
        cmocka_unit_test(loop_through_the_parent),
        cmocka_unit_test(dangling_links_are_samples),
        cmocka_unit_test(any_bytes_in_names),
        cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(cancelled_by_the_callback),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(empty_classes_are_reported),
        cmocka_unit_test(lack_of_descriptors_is_reported),
    };
    return cmocka_run_group_tests_name("dataset-walk", tests, NULL, NULL);
}
