/* The index file: written, used only while the folder is unchanged, safe against any bytes. */
#include "tree.h"

#include "base/memory.h"
#include "dataset/index.h"
#include "dataset/sizes.h"
#include "dataset/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A small folder with its catalog and the path of its index. */
struct index_fixture {
    struct tree tree;
    struct hr__catalog *catalog;
    char *path;
};

static void fixture_scan(struct index_fixture *f)
{
    struct hr__progress progress;
    hr__progress_init(&progress, NULL, NULL);
    hr__catalog_destroy(&f->catalog);
    assert_int_equal(hr__walk(&f->catalog, f->tree.root, &hr__executor_serial, &progress, NULL), 0);
    assert_int_equal(hr__sizes_fill(f->catalog, f->tree.root, &hr__executor_serial, &progress), 0);
}

static int setup(void **state)
{
    struct index_fixture *f = calloc(1, sizeof *f);
    tree_make(&f->tree);
    tree_file(&f->tree, "cat/1.jpg", 10);
    tree_file(&f->tree, "cat/2.jpg", 20);
    tree_file(&f->tree, "cat/deep/3.jpg", 30);
    tree_file(&f->tree, "dog/4.jpg", 40);
    fixture_scan(f);
    /* the folder is younger than the clock step; the tests must not depend on that */
    f->catalog->untrusted = 0;
    assert_int_equal(hr__index_locate(&f->path, f->tree.root, HR_INDEX_BESIDE_DATA), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct index_fixture *f = *state;
    hr__catalog_destroy(&f->catalog);
    hr__free(f->path);
    tree_remove(&f->tree);
    free(f);
    return hr__allocated(HR__TAG_DATASET) != 0;
}

static int load(struct index_fixture *f)
{
    struct hr__catalog *c;
    int r = hr__index_load(&c, f->path, f->tree.root, HR_INDEX_BESIDE_DATA, &hr__executor_serial);
    assert_true(r ? !c : c != NULL);
    hr__catalog_destroy(&c);
    return r;
}

static void save(struct index_fixture *f)
{
    assert_int_equal(hr__index_save(f->catalog, f->path, HR_INDEX_BESIDE_DATA), 0);
}

static void comes_back_as_it_was(void **state)
{
    struct index_fixture *f = *state;
    struct hr__catalog *c;
    struct stat st;
    assert_int_equal(load(f), -ENOENT);
    save(f);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(
        hr__index_load(&c, f->path, f->tree.root, HR_INDEX_BESIDE_DATA, &hr__executor_serial), 0);
    assert_int_equal(c->header->bytes, f->catalog->header->bytes);
    assert_memory_equal(c->header, f->catalog->header, c->header->bytes);
    assert_int_equal(c->header->samples, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(c->sizes[i], (i + 1) * 10);
        assert_true(c->mtimes_ns[i] > 0);
    }
    hr__catalog_destroy(&c);
}

static void stale_after(struct index_fixture *f)
{
    assert_int_equal(load(f), -ESTALE);
    fixture_scan(f);
    f->catalog->untrusted = 0;
    save(f);
    assert_int_equal(load(f), 0);
}

static void every_change_is_seen(void **state)
{
    struct index_fixture *f = *state;
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    save(f);
    assert_int_equal(load(f), 0);
    usleep(20000); /* beyond the kernel's clock tick */
    tree_file(&f->tree, "cat/deep/5.jpg", 1);
    stale_after(f);
    usleep(20000);
    assert_int_equal(unlink(tree_path(&f->tree, "dog/4.jpg")), 0);
    stale_after(f);
    tree_file(&f->tree, "eel/", 0); /* only the root changes */
    stale_after(f);
    usleep(20000);
    /* a change whose modification time was set back, as by rsync -t: ctime shows it */
    assert_int_equal(utimensat(AT_FDCWD, tree_path(&f->tree, "cat"), old, 0), 0);
    stale_after(f);
    usleep(20000);
    tree_file(&f->tree, "cat/6.jpg", 1);
    assert_int_equal(utimensat(AT_FDCWD, tree_path(&f->tree, "cat"), old, 0), 0);
    stale_after(f);
    /* a file rewritten in place changes no directory's time */
    tree_file(&f->tree, "cat/1.jpg", 11);
    stale_after(f);
    /* the same with the file's old size and time */
    struct stat was;
    assert_int_equal(stat(tree_path(&f->tree, "cat/1.jpg"), &was), 0);
    tree_file(&f->tree, "cat/1.jpg", 11);
    const struct timespec again[2] = {was.st_atim, was.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, tree_path(&f->tree, "cat/1.jpg"), again, 0), 0);
    stale_after(f);
    /* a file directly under the root does not matter */
    tree_file(&f->tree, "notes.txt", 1);
    assert_int_equal(load(f), 0);
}

static void young_folders_are_not_trusted(void **state)
{
    struct index_fixture *f = *state;
    struct timespec later[2] = {{.tv_sec = time(NULL) + 3600}, {.tv_sec = time(NULL) + 3600}};
    /* young, however long this takes */
    assert_int_equal(utimensat(AT_FDCWD, tree_path(&f->tree, "cat"), later, 0), 0);
    fixture_scan(f);
    assert_int_equal(f->catalog->untrusted, 1);
    assert_int_equal(hr__index_save(f->catalog, f->path, HR_INDEX_BESIDE_DATA), -ESTALE);
    assert_int_equal(load(f), -ENOENT);
}

static void names_without_sizes_are_not_kept(void **state)
{
    struct index_fixture *f = *state;
    f->catalog->header->flags = 0;
    assert_int_equal(hr__index_save(f->catalog, f->path, HR_INDEX_BESIDE_DATA), -ESTALE);
}

/* Sizes that are unknown because the process had no free descriptors. */
static void lack_of_descriptors_is_not_kept(void **state)
{
    struct index_fixture *f = *state;
    struct hr__progress progress;
    struct rlimit before, few;
    int last = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hr__progress_init(&progress, NULL, NULL);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (rlim_t more = 0; more < 2; more++) { /* not enough for the root; enough for the root
                                                 only */
        fixture_scan(f);
        f->catalog->untrusted = 0;
        few = (struct rlimit){(rlim_t)last + 1 + more, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        int r = hr__sizes_fill(f->catalog, f->tree.root, &hr__executor_serial, &progress);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(r, 0);
        assert_int_equal(hr__index_save(f->catalog, f->path, HR_INDEX_BESIDE_DATA), -ESTALE);
    }
    close(last);
}

static int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    int count = 0;
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* A process that dies while it writes leaves nothing. */
static void death_in_mid_write(void **state)
{
    struct index_fixture *f = *state;
    int probe = open(f->tree.root, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600), status;
    if (probe < 0)
        skip(); /* this file system has no unnamed files */
    close(probe);
    int before = count_entries(f->tree.root);
    pid_t child = fork();
    if (!child) {
        struct rlimit small = {16, 16}, no_core = {0, 0};
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_CORE, &no_core);
        setrlimit(RLIMIT_FSIZE, &small);
        int r = hr__index_save(f->catalog, f->path, HR_INDEX_BESIDE_DATA);
        _exit(r ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    assert_int_equal(count_entries(f->tree.root), before);
    save(f);
    assert_int_equal(count_entries(f->tree.root), before + 1);
    assert_int_equal(load(f), 0);
}

static void places_by_policy(void **state)
{
    struct index_fixture *f = *state;
    char *path, expected[600];
    char cache[300];
    snprintf(cache, sizeof cache, "%s/cache", f->tree.root);
    assert_int_equal(hr__index_locate(&path, f->tree.root, HR_INDEX_NONE), -ENOENT);
    assert_null(path);
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_int_equal(hr__index_locate(&path, f->tree.root, HR_INDEX_USER_CACHE), 0);
    snprintf(expected, sizeof expected, "%s/headrace/index/", cache);
    assert_int_equal(strncmp(path, expected, strlen(expected)), 0);
    assert_int_equal(strlen(path), strlen(expected) + 32 + 4);
    /* directories are made, for the owner only */
    struct stat st;
    assert_int_equal(hr__index_save(f->catalog, path, HR_INDEX_USER_CACHE), 0);
    assert_int_equal(stat(expected, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    hr__free(path);
    setenv("XDG_CACHE_HOME", "relative/is/ignored", 1);
    setenv("HOME", f->tree.root, 1);
    assert_int_equal(hr__index_locate(&path, f->tree.root, HR_INDEX_USER_CACHE), 0);
    snprintf(expected, sizeof expected, "%s/.cache/headrace/index/", f->tree.root);
    assert_int_equal(strncmp(path, expected, strlen(expected)), 0);
    hr__free(path);
    unsetenv("HOME");
    assert_int_equal(hr__index_locate(&path, f->tree.root, HR_INDEX_USER_CACHE), -ENOENT);
}

static void damaged_files_are_refused(void **state)
{
    struct index_fixture *f = *state;
    save(f);
    size_t bytes = f->catalog->header->bytes;
    char *copy = malloc(bytes);
    memcpy(copy, f->catalog->header, bytes);
    for (size_t cut = 0; cut < bytes; cut += 13) {
        test_write(f->path, copy, cut);
        assert_int_equal(load(f), -EBADMSG);
    }
    for (size_t at = 0; at < bytes; at++) {
        copy[at] ^= 0x40;
        test_write(f->path, copy, bytes);
        assert_int_equal(load(f), -EBADMSG);
        copy[at] ^= 0x40;
    }
    test_write(f->path, copy, bytes);
    assert_int_equal(load(f), 0);
    free(copy);
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(mkfifo(f->path, 0600), 0); /* opening it must not block */
    assert_int_equal(load(f), -EBADMSG);
}

/* Reads everything that a catalog refers to, as the library would. */
static size_t use(const struct hr__catalog *c)
{
    size_t sum = strlen(hr__catalog_at(c, c->header->root));
    for (uint64_t i = 0; i < c->header->classes; i++)
        sum += strlen(hr__catalog_at(c, c->class_names[i]));
    for (uint64_t i = 0; i < c->header->samples; i++) {
        const struct hr__catalog_directory *d = &c->directories[c->sample_directory[i]];
        const char *path = hr__catalog_at(c, d->path), *name = hr__catalog_at(c, c->names[i]);
        assert_null(strchr(name, '/'));
        assert_null(strstr(path, ".."));
        assert_true(*path != '/' && d->label < c->header->classes);
        assert_true(c->sizes[i] >= HR_SIZE_UNKNOWN);
        sum += strlen(path) + strlen(name);
    }
    return sum;
}

/* Random damage with a correct checksum: the checks after it must detect it. */
static void mutations_with_a_right_checksum(void **state)
{
    struct index_fixture *f = *state;
    size_t bytes = f->catalog->header->bytes;
    uint64_t x = 88172645463325252u;
    int taken = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        char *block = hr__alloc(HR__TAG_DATASET, bytes, 1);
        struct hr__catalog_header *h = (struct hr__catalog_header *)block;
        memcpy(block, f->catalog->header, bytes);
        for (int k = 0; k <= round % 3; k++) {
            static const unsigned char values[] = {0, 1, 0x7F, 0x80, 0xFF, '/', '.'};
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            block[x % bytes] = (char)values[(x >> 32) % sizeof values];
        }
        uint64_t claimed = h->bytes;
        h->bytes = bytes;
        h->checksum = hr__catalog_checksum(h);
        h->bytes = claimed;
        struct hr__catalog *c;
        if (!hr__catalog_adopt(&c, block, bytes)) {
            assert_true(use(c) > 0);
            hr__catalog_destroy(&c);
            taken++;
        } else {
            hr__free(block);
            refused++;
        }
    }
    assert_true(taken > 100);
    assert_true(refused > 100);
}

static void paths_out_of_the_root_are_refused(void **state)
{
    struct index_fixture *f = *state;
    struct hr__catalog_header *h = f->catalog->header;
    static const char *const bad[] = {"../", "/et", "a/b", "..", "."};
    uint64_t offset = f->catalog->names[3];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *block = hr__alloc(HR__TAG_DATASET, h->bytes, 1);
        struct hr__catalog *c;
        memcpy(block, h, h->bytes);
        strcpy(block + (f->catalog->arena + offset - (char *)h), bad[i]);
        ((struct hr__catalog_header *)block)->checksum = hr__catalog_checksum((void *)block);
        ((struct hr__catalog_header *)block)->flags = HR__CATALOG_SIZES | HR__CATALOG_CHANGES;
        assert_int_equal(hr__catalog_adopt(&c, block, h->bytes), -EBADMSG);
        hr__free(block);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(comes_back_as_it_was),
        TEST(every_change_is_seen),
        TEST(young_folders_are_not_trusted),
        TEST(names_without_sizes_are_not_kept),
        TEST(lack_of_descriptors_is_not_kept),
        TEST(death_in_mid_write),
        TEST(places_by_policy),
        TEST(damaged_files_are_refused),
        TEST(mutations_with_a_right_checksum),
        TEST(paths_out_of_the_root_are_refused),
    };
    return cmocka_run_group_tests_name("dataset-index", tests, NULL, NULL);
}
