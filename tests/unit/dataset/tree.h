/* Temporary folders for tests: made below TMPDIR, removed with their contents. */
#ifndef HR_TEST_TREE_H
#define HR_TEST_TREE_H

#include "../test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
    char root[256];
};

static inline void tree_make(struct tree *t)
{
    const char *base = getenv("TMPDIR");
    snprintf(t->root, sizeof t->root, "%s/headrace-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(t->root));
}

static inline int tree_remove_entry(const char *path, const struct stat *st, int type,
                                    struct FTW *ftw)
{
    return remove(path);
}

static inline void tree_remove(struct tree *t)
{
    assert_int_equal(nftw(t->root, tree_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static inline const char *tree_path(const struct tree *t, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", t->root, name);
    return path;
}

/* Makes the directories above `name`, and `name` as a file of `bytes` bytes. A name that ends with
 * '/' is a directory. */
static inline void tree_file(const struct tree *t, const char *name, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", t->root, name);
    for (char *slash = path + strlen(t->root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    if (path[strlen(path) - 1] == '/')
        return;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++)
        assert_int_not_equal(fputc('x', f), EOF);
    assert_int_equal(fclose(f), 0);
}

static inline void tree_link(const struct tree *t, const char *target, const char *name)
{
    assert_int_equal(symlink(target, tree_path(t, name)), 0);
}

#endif
