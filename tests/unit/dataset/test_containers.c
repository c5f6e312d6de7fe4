/* Containers: opened once, limited in number, checked for changes, used by many threads at once. */
#include "tree.h"

#include "base/memory.h"
#include "dataset/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

static int open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* Makes `count` shards of 100 bytes with two samples each, and their dataset. */
static struct hr_dataset *make(struct tree *t, size_t count)
{
    struct hr__catalog_shape shape = {.directories = 1,
                                      .samples = 2 * count,
                                      .arena_bytes = 40 * count + 40,
                                      .labels = 1,
                                      .containers = count};
    struct hr__catalog *c;
    struct hr_dataset *d;
    char name[48];
    struct stat st;
    tree_make(t);
    assert_int_equal(hr__catalog_create(&c, &shape), 0);
    c->directories[0].path = c->header->root = hr__catalog_text(c, "", 0);
    c->directories[0].count = shape.samples;
    c->header->flags |= HR__CATALOG_SIZES;
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%04zu.tar", i);
        tree_file(t, name, 100);
        assert_int_equal(stat(tree_path(t, name), &st), 0);
        c->containers[i].path = hr__catalog_text(c, name, strlen(name));
        c->containers[i].bytes = 100;
        c->containers[i].mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        for (size_t k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%zu/%zu", i, k);
            c->names[2 * i + k] = hr__catalog_text(c, name, strlen(name));
            c->sizes[2 * i + k] = 30;
            c->ranges[2 * i + k].container = (uint32_t)i;
            c->ranges[2 * i + k].offset = 10 + 40 * k;
        }
    }
    assert_int_equal(hr__dataset_create(&d, c, t->root, "", NULL), 0);
    return d;
}

static void opened_once(void **state)
{
    struct tree t;
    struct hr__range a, b;
    char path[5000], expected[5000];
    struct hr_dataset *d = make(&t, 3);
    int before = open_files();
    assert_int_equal(hr__dataset_range(d, 2, 0, &a, NULL), 1);
    assert_int_equal(hr__dataset_range(d, 3, 0, &b, NULL), 1);
    assert_int_equal(open_files(), before + 1);
    assert_int_equal(a.fd, b.fd);
    assert_int_equal(a.offset, 10);
    assert_int_equal(b.offset, 50);
    assert_int_equal(b.bytes, 30);
    assert_false(b.has_checksum);
    assert_true(hr__range_check(&b, "anything", 8));
    assert_true(fcntl(a.fd, F_GETFD) & FD_CLOEXEC);
    assert_false(fcntl(a.fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(hr__dataset_range(d, 2, 1, &b, NULL), 1); /* for direct reads */
    assert_int_not_equal(a.fd, b.fd);
    assert_string_equal(a.path, tree_path(&t, "0001.tar"));
    hr_dataset_path(d, 3, path, sizeof path);
    snprintf(expected, sizeof expected, "%s:1/1", tree_path(&t, "0001.tar"));
    assert_string_equal(path, expected);
    hr_dataset_key(d, 3, path, sizeof path);
    assert_string_equal(path, "1/1");
    hr_dataset_unref(&d);
    assert_int_equal(open_files(), before);
    tree_remove(&t);
}

static void refuse(struct hr_dataset *d, size_t index, int code, const char *words)
{
    struct hr__range range;
    struct hr_error error = {0};
    assert_int_equal(hr__dataset_range(d, index, 0, &range, &error), code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" has no \"%s\"", error.message, words);
}

static void changed_containers_are_refused(void **state)
{
    struct tree t;
    struct hr_dataset *d = make(&t, 5);
    int before = open_files();
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    tree_file(&t, "0000.tar", 101);
    refuse(d, 0, -ESTALE, "0000.tar was changed or replaced");
    assert_int_equal(utimensat(AT_FDCWD, tree_path(&t, "0001.tar"), old, 0), 0);
    refuse(d, 2, -ESTALE, "0001.tar was changed or replaced");
    assert_int_equal(unlink(tree_path(&t, "0002.tar")), 0);
    refuse(d, 4, -ENOENT, "cannot open");
    assert_int_equal(mkfifo(tree_path(&t, "0002.tar"), 0600), 0);
    refuse(d, 4, -ENXIO, "not a regular file");
    assert_int_equal(open_files(), before);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

static void many_shards_leave_descriptors_to_others(void **state)
{
    enum { SHARDS = 150, LIMIT = 200 };
    struct tree t;
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = (struct rlimit){LIMIT, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    struct hr_dataset *d = make(&t, SHARDS);
    int before = open_files(), by_path = 0;
    for (size_t i = 0; i < 2 * SHARDS; i++) {
        struct hr__range range;
        assert_int_equal(hr__dataset_range(d, i, i % 3 == 0, &range, NULL), 1);
        by_path += range.fd < 0;
    }
    assert_int_equal(open_files() - before, LIMIT / 4);
    assert_true(by_path > SHARDS);
    hr_dataset_unref(&d);
    assert_int_equal(open_files(), before);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    tree_remove(&t);
}

static void no_descriptor_left(void **state)
{
    struct tree t;
    struct rlimit was, now;
    struct hr_dataset *d = make(&t, 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = (struct rlimit){0, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    refuse(d, 0, -EMFILE, "raise the limit (ulimit -n)");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    struct hr__range range; /* the next attempt may succeed */
    assert_int_equal(hr__dataset_range(d, 0, 0, &range, NULL), 1);
    hr_dataset_unref(&d);
    tree_remove(&t);
}

struct containers_crowd {
    struct hr_dataset *dataset;
    pthread_barrier_t barrier;
};

static void *ask(void *arg)
{
    struct containers_crowd *crowd = arg;
    size_t count = hr_dataset_count(crowd->dataset);
    intptr_t wrong = 0;
    pthread_barrier_wait(&crowd->barrier);
    for (size_t round = 0; round < 5; round++)
        for (size_t i = 0; i < count; i++) {
            struct hr__range range;
            char bytes[30];
            int r = hr__dataset_range(crowd->dataset, i, 0, &range, NULL);
            wrong += r != 1 || (range.fd >= 0 && pread(range.fd, bytes, 30, 10) != 30);
        }
    return (void *)wrong;
}

static void many_threads(void **state)
{
    enum { THREADS = 6 };
    struct tree t;
    struct containers_crowd crowd = {.dataset = make(&t, 40)};
    pthread_t threads[THREADS];
    int before = open_files();
    pthread_barrier_init(&crowd.barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &crowd), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    pthread_barrier_destroy(&crowd.barrier);
    assert_int_equal(open_files(), before + 40);
    hr_dataset_unref(&crowd.dataset);
    assert_int_equal(open_files(), before);
    tree_remove(&t);
}

/* Catalogs from files: ranges must name a container and be inside it. */
static void catalogs_with_ranges_are_checked(void **state)
{
    struct hr__catalog_shape shape = {
        .directories = 1, .samples = 2, .arena_bytes = 32, .labels = 1, .containers = 2};
    static const struct {
        uint64_t offset;
        int64_t bytes;
        uint32_t container;
        uint16_t form, flags;
        int code;
    } cases[] = {{0, 100, 0, 0, 0, 0},
                 {90, 10, 0, HR_FORMS - 1, 1, 0},
                 {91, 10, 0, 0, 0, -EBADMSG},
                 {100, 0, 0, 0, 0, 0},
                 {101, 0, 0, 0, 0, -EBADMSG},
                 {UINT64_MAX, 1, 0, 0, 0, -EBADMSG},
                 {0, -1, 0, 0, 0, -EBADMSG},
                 {1 << 30, 1 << 30, 1, 0, 0, 0},
                 {INT64_MAX, 1, 1, 0, 0, -EBADMSG},
                 {0, 1, 2, 0, 0, -EBADMSG},
                 {0, 1, 0, HR_FORMS, 0, -EBADMSG},
                 {0, 1, 0, 0, 2, -EBADMSG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__catalog *made, *c = NULL;
        assert_int_equal(hr__catalog_create(&made, &shape), 0);
        made->directories[0].path = made->header->root = hr__catalog_text(made, "", 0);
        made->directories[0].count = 2;
        made->header->flags |= HR__CATALOG_SIZES;
        made->names[0] = made->names[1] = hr__catalog_text(made, "a/../b", 6);
        made->containers[0].path = made->containers[1].path = hr__catalog_text(made, "c", 1);
        made->containers[0].bytes = 100;
        made->sizes[0] = 5;
        made->sizes[1] = cases[i].bytes;
        made->ranges[1] = (struct hr__catalog_range){.offset = cases[i].offset,
                                                     .container = cases[i].container,
                                                     .form = cases[i].form,
                                                     .flags = cases[i].flags};
        made->header->checksum = hr__catalog_checksum(made->header);
        int r = hr__catalog_adopt(&c, made->header, made->header->bytes);
        if (r != cases[i].code)
            fail_msg("case %zu: %d", i, r);
        if (!r)
            made->header = NULL; /* now owned by c */
        hr__catalog_destroy(&c);
        hr__catalog_destroy(&made);
    }
}

static int nothing_left(void **state)
{
    return hr__allocated(HR__TAG_DATASET) != 0;
}

#define TEST(name) cmocka_unit_test_teardown(name, nothing_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opened_once),        TEST(changed_containers_are_refused),
        TEST(many_threads),       TEST(many_shards_leave_descriptors_to_others),
        TEST(no_descriptor_left), TEST(catalogs_with_ranges_are_checked),
    };
    return cmocka_run_group_tests_name("dataset-containers", tests, NULL, NULL);
}
