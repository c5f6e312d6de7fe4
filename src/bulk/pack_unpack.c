/*
 * Unpacking: writes every sample to an image file at its key.
 *
 * Packs may come from other people, so keys are untrusted: a key must be a path of plain
 * components, and is followed from the directory one component at a time, without following links.
 * A file is written under a temporary name and renamed when it is complete, so that a kill leaves
 * no partial image with a final name.
 *
 * Threads take samples one by one and stop at the first failure. The message is about the failed
 * sample with the lowest index among those begun.
 */
#include "base/draft.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "bulk/pack_convert.h"
#include "bulk/pool.h"
#include "codec/waveform.h"
#include "dataset/dataset.h"
#include "dataset/names.h"
#include "dataset/progress.h"
#include "dataset/row_table.h"
#include "loader/sample.h"

#include <headrace/pack.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_NAME "list.txt"

/* Size of the longest key, with ".png" appended and the terminator. */
#define KEY_BYTES PATH_MAX

struct damaged {
    uint64_t index;
    char reason[200];
};

struct unpacking {
    struct hr_dataset *dataset;
    const char *root; /* the directory, for messages */
    int root_fd;
    const struct hr_pack_options *options;
    struct hr__progress progress;
    _Atomic uint64_t next;   /* next sample to take */
    pthread_mutex_t lock;    /* guards what follows */
    struct hr_error failure; /* error of the run; code 0: none */
    struct damaged failed;   /* the sample that caused it */
    struct damaged *damaged; /* samples left out (on_error skip) */
    size_t damaged_count;
    struct hr_pack_result result;
};

/* Tools of one thread. */
struct hand {
    struct hr_converter *converter;
    struct hr__sample sample;
    char parent[KEY_BYTES]; /* path of the open directory, below the root */
    int parent_fd;          /* -1: none; if it is root_fd it is not closed */
};

/* Checks that a key is a relative path of plain components. Returns 0 or -EINVAL. */
static int check_key(const char *key)
{
    for (;;) {
        size_t length = strcspn(key, "/");
        if (!length || (length == 1 && key[0] == '.') ||
            (length == 2 && key[0] == '.' && key[1] == '.'))
            return -EINVAL;
        if (!key[length])
            return 0;
        key += length + 1;
    }
}

/* Opens one directory below `fd`; makes it if needed. */
static int step_down(int fd, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int below = openat(fd, name, flags);
    if (below < 0 && errno == ENOENT) {
        if (mkdirat(fd, name, 0777) && errno != EEXIST)
            return -errno;
        below = openat(fd, name, flags);
    }
    return below < 0 ? -errno : below;
}

static void leave(struct unpacking *u, struct hand *h)
{
    if (h->parent_fd >= 0 && h->parent_fd != u->root_fd)
        close(h->parent_fd);
    h->parent_fd = -1;
}

/* Opens the directory of a key, and splits `key` in place. The directory stays open for the next
 * key, which is often in the same one. */
static int enter(struct unpacking *u, struct hand *h, char *key, const char **name)
{
    char *slash = strrchr(key, '/');
    const char *directory = slash ? key : "";
    *name = slash ? slash + 1 : key;
    if (slash)
        *slash = 0;
    if (h->parent_fd >= 0 && !strcmp(h->parent, directory))
        return h->parent_fd;
    leave(u, h);
    snprintf(h->parent, sizeof h->parent, "%s", directory);
    int fd = u->root_fd;
    for (char *from = slash ? key : NULL; from;) {
        char *end = strchr(from, '/');
        if (end)
            *end = 0;
        int below = step_down(fd, from);
        if (fd != u->root_fd)
            close(fd);
        if (below < 0)
            return below;
        fd = below;
        from = end ? end + 1 : NULL;
    }
    h->parent_fd = fd;
    return fd;
}

/* Renames the complete file to its final name. */
static int settle(int directory, const char *temporary, const char *name, int overwrite)
{
    struct stat st;
    if (overwrite)
        return renameat(directory, temporary, directory, name) ? -errno : 0;
    if (!renameat2(directory, temporary, directory, name, RENAME_NOREPLACE))
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* the file system cannot do that atomically */
    if (!fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW))
        return -EEXIST;
    return renameat(directory, temporary, directory, name) ? -errno : 0;
}

/* A file to write. */
struct file {
    const void *bytes;
    size_t length;
    int64_t mtime_ns; /* or HR_SIZE_UNKNOWN */
    uint64_t index;   /* of the sample; makes the temporary name unique */
};

static int write_file(const struct unpacking *u, int directory, const char *name,
                      const struct file *file)
{
    char temporary[64];
    snprintf(temporary, sizeof temporary, ".headrace-unpack-%" PRIu64, file->index);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(directory, temporary, flags, 0666);
    /* left by a killed run */
    if (fd < 0 && errno == EEXIST && !unlinkat(directory, temporary, 0))
        fd = openat(directory, temporary, flags, 0666);
    if (fd < 0)
        return -errno;
    int r = hr__write_all(fd, file->bytes, file->length);
    if (!r && file->mtime_ns != HR_SIZE_UNKNOWN) {
        int64_t seconds = file->mtime_ns / 1000000000, ns = file->mtime_ns % 1000000000;
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                    {.tv_sec = (time_t)(ns < 0 ? seconds - 1 : seconds),
                                     .tv_nsec = (long)(ns < 0 ? ns + 1000000000 : ns)}};
        /* a time that the file system cannot store must not lose the image */
        (void)futimens(fd, times);
    }
    if (close(fd) && !r)
        r = -errno;
    if (!r)
        r = settle(directory, temporary, name, u->options->overwrite);
    if (r)
        unlinkat(directory, temporary, 0);
    return r;
}

/* Returns non-zero for errors of the sample itself, not of the disk or the machine. */
static int is_damage(int code)
{
    return code == -EBADMSG || code == -ENODATA || code == -ENOTSUP;
}

/* What is appended to the name of an item that becomes another file than it was made of. */
static const char *ending_of(enum hr_form form)
{
    return form == HR_FORM_PLANES ? ".png" : hr__form_is_waveform(form) ? ".wav" : "";
}

static int write_item(struct unpacking *u, struct hand *h, uint64_t index,
                      const struct hr_item *item, struct hr_error *why)
{
    char key[KEY_BYTES];
    const char *name;
    size_t length = hr_dataset_key(u->dataset, index, key, sizeof key - 4);
    if (length >= sizeof key - 4 || check_key(key))
        return hr__fail(why, -EINVAL,
                        "its key is not a path below a directory (%.200s): the pack was made of a "
                        "list with such paths, and cannot be unpacked",
                        key);
    strcpy(key + length, ending_of(item->form));
    int directory = enter(u, h, key, &name);
    if (directory < 0)
        return hr__fail(why, directory, "cannot make its directory %s in %s: %s", h->parent,
                        u->root, hr__errno_text(directory));
    struct file file = {item->bytes, item->length, hr__dataset_mtime_ns(u->dataset, index), index};
    int r = write_file(u, directory, name, &file);
    if (r == -EEXIST)
        return hr__fail(why, r,
                        "%s/%s%s%s is there already; unpack to another directory, or ask "
                        "to overwrite",
                        u->root, h->parent, *h->parent ? "/" : "", name);
    return r ? hr__fail(why, r, "cannot write %s/%s%s%s: %s", u->root, h->parent,
                        *h->parent ? "/" : "", name, hr__errno_text(r))
             : 0;
}

static void count_locked(struct unpacking *u, enum hr_form form, uint64_t item_bytes,
                         uint64_t file_bytes)
{
    hr__pack_count_item(&u->result, form, item_bytes);
    u->result.pack_bytes += file_bytes;
}

static int unpack_sample(struct unpacking *u, struct hand *h, uint64_t index, struct hr_error *why)
{
    struct hr_item item;
    int r = hr__sample_read(&h->sample, u->dataset, index, why);
    if (r)
        return r;
    struct hr__read read = h->sample.read;
    enum hr_form form = hr_form_of(read.bytes, read.length);
    if (form == HR_FORM_ENCODED)
        item = (struct hr_item){.bytes = read.bytes, .length = read.length, .form = form};
    else
        r = hr_converter_restore(h->converter, read.bytes, read.length, &item, why);
    item.form = form;
    if (!r)
        r = write_item(u, h, index, &item, why);
    if (!r) {
        pthread_mutex_lock(&u->lock);
        count_locked(u, form, read.length, item.length);
        pthread_mutex_unlock(&u->lock);
    }
    hr__free(read.bytes);
    return r;
}

static int note_damage_locked(struct unpacking *u, uint64_t index, const struct hr_error *why)
{
    if (hr__reserve(HR__TAG_LOADER, &u->damaged, u->damaged_count + 1))
        return -ENOMEM;
    struct damaged *d = &u->damaged[u->damaged_count++];
    d->index = index;
    snprintf(d->reason, sizeof d->reason, "%.*s", (int)sizeof d->reason - 1, why->message);
    u->result.bad++;
    return 0;
}

/* Records the error of a sample. */
static void fail_sample(struct unpacking *u, uint64_t index, int code, const struct hr_error *why)
{
    char key[300], printable[300];
    pthread_mutex_lock(&u->lock);
    if (is_damage(code) && u->options->on_error == HR_ON_ERROR_SKIP)
        code = note_damage_locked(u, index, why);
    if (code && (!u->failure.code || index < u->failed.index)) {
        hr_dataset_key(u->dataset, index, key, sizeof key);
        hr__printable(printable, sizeof printable, key);
        hr__fail(&u->failure, code, "sample %" PRIu64 " (%s): %.600s",
                 hr__dataset_image_of(u->dataset, index), printable,
                 why->message[0] ? why->message : hr__errno_text(code));
        u->failed.index = index;
        snprintf(u->failed.reason, sizeof u->failed.reason, "%.199s", why->message);
    }
    pthread_mutex_unlock(&u->lock);
    if (code)
        hr__progress_cancel(&u->progress);
}

static void unpack_many(void *arg, size_t i)
{
    struct unpacking *u = arg;
    struct hand h = {.parent_fd = -1};
    struct hr_error why = {0};
    uint64_t count = hr_dataset_count(u->dataset);
    int r = hr_converter_create(&h.converter, NULL, &why);
    if (r)
        fail_sample(u, 0, r, &why);
    while (!r && !hr__progress_cancelled(&u->progress)) {
        uint64_t index = atomic_fetch_add_explicit(&u->next, 1, memory_order_relaxed);
        if (index >= count)
            break;
        why.message[0] = 0;
        int bad = unpack_sample(u, &h, index, &why);
        if (bad)
            fail_sample(u, index, bad, &why);
        hr__progress_add(&u->progress, 1);
    }
    leave(u, &h);
    hr__sample_clear(&h.sample);
    hr_converter_destroy(&h.converter);
}

static int compare_damaged(const void *a, const void *b)
{
    const struct damaged *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void report_damaged(const struct unpacking *u, const struct damaged *damaged)
{
    char path[KEY_BYTES];
    if (!u->options->notice)
        return;
    hr_dataset_path(u->dataset, damaged->index, path, sizeof path);
    struct hr_bad_sample sample = {hr__dataset_image_of(u->dataset, damaged->index), path,
                                   damaged->reason};
    u->options->notice(u->options->notice_arg, &sample, HR_PACK_KEPT_BAD);
}

static void report_all_damaged(struct unpacking *u)
{
    if (u->damaged_count)
        qsort(u->damaged, u->damaged_count, sizeof *u->damaged, compare_damaged);
    for (size_t i = 0; i < u->damaged_count; i++)
        report_damaged(u, &u->damaged[i]);
}

/* Returns non-zero if the files, opened as an image folder, have the labels of the pack: each is
 * below the directory of its class, and classes are sorted by name. */
static int folder_has_labels(const struct hr_dataset *dataset)
{
    char key[KEY_BYTES];
    size_t classes = hr_dataset_class_count(dataset);
    for (size_t i = 1; i < classes; i++)
        if (hr__name_compare(hr_dataset_class_name(dataset, i - 1),
                             hr_dataset_class_name(dataset, i)) >= 0)
            return 0;
    for (size_t i = 0; classes && i < hr_dataset_count(dataset); i++) {
        const char *name = hr_dataset_class_name(dataset, (size_t)hr_dataset_label(dataset, i));
        size_t length = strlen(name);
        hr_dataset_key(dataset, i, key, sizeof key);
        if (strncmp(key, name, length) || key[length] != '/')
            return 0;
    }
    return classes != 0;
}

/* Writes keys and labels as a list that can be opened as a dataset, unless the folder is one.
 * Damaged samples have no file and no line. */
static int write_list(struct unpacking *u, struct hr_error *error)
{
    struct hr__draft text = {.text = NULL};
    char key[KEY_BYTES];
    size_t damaged = 0, count = hr_dataset_count(u->dataset);
    if (folder_has_labels(u->dataset))
        return 0;
    for (size_t i = 0; i < count; i += u->dataset->is_paired ? 2 : 1) { /* without masks */
        while (damaged < u->damaged_count && u->damaged[damaged].index < i)
            damaged++;
        if (damaged < u->damaged_count && u->damaged[damaged].index == i) {
            damaged++;
            continue;
        }
        struct hr__range range;
        int r = hr__dataset_range(u->dataset, i, 0, &range, NULL);
        hr_dataset_key(u->dataset, i, key, sizeof key);
        hr__draft_print(&text, "%s%s\t%" PRId64 "\n", key, r == 1 ? ending_of(range.form) : "",
                        hr_dataset_label(u->dataset, i));
    }
    hr__draft_put(&text, "");
    int r = text.failed ? -ENOMEM : 0;
    struct file file = {text.text, text.length, HR_SIZE_UNKNOWN, count};
    if (!r)
        r = write_file(u, u->root_fd, LIST_NAME, &file);
    hr__draft_clear(&text);
    return r ? hr__fail(error, r, "cannot write %s/%s: %s", u->root, LIST_NAME, hr__errno_text(r))
             : 0;
}

static int run(struct unpacking *u, struct hr_error *error)
{
    struct hr__pool *pool = NULL;
    int r = hr__pool_create(&pool, u->options->threads, error);
    if (r)
        return r;
    const struct hr__executor *executor = hr__pool_executor(pool);
    hr__progress_init(&u->progress, u->options->progress, u->options->progress_arg);
    hr__progress_stage(&u->progress, "unpacking", hr_dataset_count(u->dataset));
    executor->run(executor->self, (size_t)executor->threads, unpack_many, u);
    hr__pool_destroy(&pool);
    if (u->failure.code && is_damage(u->failure.code))
        report_damaged(u, &u->failed);
    if (u->failure.code)
        return hr__fail(error, u->failure.code, "%s", u->failure.message);
    if (hr__progress_end(&u->progress))
        return hr__fail(error, -ECANCELED,
                        "unpacking was cancelled; %" PRIu64 " files were written",
                        u->result.samples);
    report_all_damaged(u);
    return write_list(u, error);
}

static int open_root(const char *directory, struct hr_error *error)
{
    if (mkdir(directory, 0777) && errno != EEXIST)
        return hr__fail(error, -errno, "cannot make %s: %s", directory, hr__errno_text(errno));
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? hr__fail(error, -errno, "cannot open %s: %s", directory, hr__errno_text(errno))
                  : fd;
}

int hr_pack_unpack(const char *path, const char *directory, const struct hr_pack_options *options,
                   struct hr_pack_result *result, struct hr_error *error)
{
    struct hr_pack_options taken;
    struct hr_dataset *opened = NULL;
    struct unpacking u = {
        .root = directory,
        .root_fd = -1,
        .options = &taken,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    int r = hr__pack_take_options(&taken, options, error);
    if (!r)
        r = hr_dataset_open_pack(&opened, path, NULL, error);
    if (!r) {
        u.dataset = hr__dataset_origin(opened); /* masks are samples there */
        u.root_fd = open_root(directory, error);
        r = u.root_fd < 0 ? u.root_fd : run(&u, error);
    }
    u.result.rows_bytes = !r && u.dataset->rows ? hr__row_table_bytes(u.dataset->rows) : 0;
    u.result.masks = !r && u.dataset->is_paired ? hr_dataset_count(opened) : 0;
    if (!r && result)
        hr__versioned_give(result, &u.result, sizeof u.result);
    if (u.root_fd >= 0)
        close(u.root_fd);
    hr_dataset_unref(&opened);
    hr__free(u.damaged);
    pthread_mutex_destroy(&u.lock);
    return r;
}
