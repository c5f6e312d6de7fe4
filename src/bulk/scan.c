/*
 * Opening datasets: combines the parts of the dataset room with threads.
 *
 * A folder's names come from its index or from a walk. Sizes are filled in before the open returns,
 * or by a background thread, which then writes the index. Dropping the last reference to the
 * dataset stops that thread. A dataset with neither (a list of paths) gets its sizes when a caller
 * waits for them.
 */
#include "bulk/scan.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/versioned.h"
#include "bulk/pool.h"
#include "dataset/dataset.h"
#include "dataset/describe.h"
#include "dataset/index.h"
#include "dataset/list.h"
#include "dataset/objects.h"
#include "dataset/pack.h"
#include "dataset/parquet.h"
#include "dataset/parquet_footer.h"
#include "dataset/progress.h"
#include "dataset/sizes.h"
#include "dataset/tar.h"
#include "dataset/walk.h"
#include "storage/url.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* On a cold disk the threads of an open mostly wait for inodes: a scan of 100,000 files took 0.8 s
 * with 16 threads and 1.5 s with 2 on two cores. */
#define OPENING_THREADS 16

/* The background thread's pool is small, to leave the cores to training; more threads would only
 * help with remote storage. */
#define BACKGROUND_THREADS 4

/* The background thread of one dataset. */
struct scan {
    struct hr_dataset *dataset; /* not a reference: the dataset stops the thread before it ends */
    pthread_t thread;
    pid_t process; /* where the thread runs; in a forked child there is none */
    int threads;   /* how many to use */
    enum hr_index_policy policy;
    struct hr__progress progress; /* has no callback; used to stop the thread */
    pthread_mutex_t lock;         /* guards done and result */
    pthread_cond_t changed;       /* signalled when done becomes non-zero */
    int done;
    int result;
};

static void save_index(struct hr_dataset *d, enum hr_index_policy policy)
{
    if (!d->index_path)
        return;
    int r = hr__index_save(d->catalog, d->index_path, policy);
    if (r == -ESTALE)
        hr__log(HR_LOG_INFO,
                "no index of %s is written yet: it changed a moment ago, or holds links that "
                "lead nowhere",
                d->root);
    else if (r)
        hr__log(HR_LOG_INFO, "the index %s was not written: %s", d->index_path, hr__errno_text(r));
}

/* Fills in all sizes on `threads` threads, or on this one if there can be no pool. */
static int fill(struct hr_dataset *d, int threads, struct hr__progress *progress)
{
    struct hr__pool *pool = NULL;
    const struct hr__executor *executor = &hr__executor_serial;
    if (threads != 1 && !hr__pool_create(&pool, threads, NULL))
        executor = hr__pool_executor(pool);
    int r = hr__sizes_fill(d->catalog, d->base, executor, progress);
    hr__pool_destroy(&pool);
    if (!r)
        atomic_store_explicit(&d->sizes_known, 1, memory_order_release);
    return r;
}

static void *scan_main(void *arg)
{
    struct scan *s = arg;
    pthread_setname_np(pthread_self(), "hr-scan");
    s->progress.owner = pthread_self();
    int r = fill(s->dataset, s->threads, &s->progress);
    pthread_mutex_lock(&s->lock);
    s->done = 1;
    s->result = r;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    /* after `done`, because those who wait for sizes need not wait for the index's fsync */
    if (!r)
        save_index(s->dataset, s->policy);
    return NULL;
}

static void scan_free(struct scan *s)
{
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    hr__free(s);
}

static void scan_stop(void *self)
{
    struct scan *s = self;
    /* In a forked child the thread does not exist and may have held the lock: leak the few
     * bytes. */
    if (s->process != getpid())
        return;
    hr__progress_cancel(&s->progress);
    pthread_join(s->thread, NULL);
    scan_free(s);
}

static int scan_wait(void *self)
{
    struct scan *s = self;
    if (s->process != getpid()) {
        struct hr__progress alone;
        hr__progress_init(&alone, NULL, NULL);
        return fill(s->dataset, 1, &alone);
    }
    pthread_mutex_lock(&s->lock);
    while (!s->done)
        pthread_cond_wait(&s->changed, &s->lock);
    int r = s->result;
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* Starts the thread. If that fails, the sizes stay unknown until a caller waits for them, which is
 * not an error. */
static void scan_start(struct hr_dataset *d, const struct hr_dataset_options *options)
{
    struct scan *s = hr__alloc(HR__TAG_LOADER, 1, sizeof *s);
    if (!s)
        return;
    s->dataset = d;
    s->process = getpid();
    s->policy = options->index;
    s->threads = options->threads > 0 ? options->threads : hr_cores();
    if (s->threads > BACKGROUND_THREADS)
        s->threads = BACKGROUND_THREADS;
    hr__progress_init(&s->progress, NULL, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    d->background = (struct hr__background){s, scan_stop, scan_wait};
    int r = hr__thread_create(&s->thread, scan_main, s);
    if (!r)
        return;
    d->background = (struct hr__background){0};
    scan_free(s);
    hr__log(HR_LOG_WARNING, "no thread to look at sizes behind the dataset: %s",
            hr__errno_text(-r));
}

int hr_dataset_wait_sizes(struct hr_dataset *dataset)
{
    struct hr_dataset *d = hr__dataset_origin(dataset);
    int of_masks = dataset->masks ? hr_dataset_wait_sizes(dataset->masks) : 0;
    if (of_masks)
        return of_masks;
    if (atomic_load_explicit(&d->sizes_known, memory_order_acquire))
        return 0;
    if (d->background.self)
        return d->background.wait(d->background.self);
    struct hr__progress progress;
    hr__progress_init(&progress, NULL, NULL);
    pthread_mutex_lock(&d->fill_lock);
    int r = 0;
    if (!atomic_load_explicit(&d->sizes_known, memory_order_relaxed))
        r = fill(d, 0, &progress);
    pthread_mutex_unlock(&d->fill_lock);
    return r;
}

/* Takes the caller's options; fields that the caller's version lacks get defaults. */
static int take_options(struct hr_dataset_options *out, const struct hr_dataset_options *options,
                        struct hr_error *error)
{
    hr_dataset_options_default(out);
    if (!options)
        return 0;
    int r = hr__versioned_take(out, sizeof *out, options, "hr_dataset_options", error);
    if (r)
        return r;
    if ((int)out->index < HR_INDEX_USER_CACHE || out->index > HR_INDEX_NONE)
        return hr__fail(error, -EINVAL, "hr_dataset_options.index is %d: not an index policy",
                        (int)out->index);
    if ((int)out->media < HR_MEDIA_IMAGES || out->media > HR_MEDIA_ANY)
        return hr__fail(error, -EINVAL, "hr_dataset_options.media is %d: not a kind of samples",
                        (int)out->media);
    if (out->threads < 0)
        return hr__fail(error, -EINVAL, "hr_dataset_options.threads is %d: it must be 0 or more",
                        out->threads);
    return 0;
}

/* State of one open. */
struct opening {
    struct hr_dataset_options options;
    struct hr__progress progress;
    struct hr__pool *pool;
    const struct hr__executor *executor;
};

static int opening_begin(struct opening *o, const struct hr_dataset_options *options,
                         struct hr_error *error)
{
    memset(o, 0, sizeof *o);
    int r = take_options(&o->options, options, error);
    if (r)
        return r;
    hr__progress_init(&o->progress, o->options.progress, o->options.progress_arg);
    int threads = o->options.threads;
    if (!threads)
        threads = hr_cores() > OPENING_THREADS ? hr_cores() : OPENING_THREADS;
    r = hr__pool_create(&o->pool, threads, error);
    if (!r)
        o->executor = hr__pool_executor(o->pool);
    return r;
}

/* Fills in the sizes now, or starts the background thread, which has a pool of its own. */
static int finish_sizes(struct hr_dataset *d, struct opening *o, struct hr_error *error)
{
    if (atomic_load(&d->sizes_known))
        return 0;
    if (!o->options.wait_sizes) {
        scan_start(d, &o->options);
        return 0;
    }
    if (hr__sizes_fill(d->catalog, d->base, o->executor, &o->progress))
        return hr__fail(error, -ECANCELED, "looking at the files was cancelled");
    atomic_store(&d->sizes_known, 1);
    save_index(d, o->options.index);
    return 0;
}

static int check_folder(const struct hr_dataset *d, const char *path,
                        const struct hr_dataset_options *options, struct hr_error *error)
{
    char names[600];
    size_t empty = hr__dataset_empty_classes(d, names, sizeof names);
    int is_sound = options->media == HR_MEDIA_SOUNDS;
    if (empty && d->count && !options->allow_empty_classes)
        return hr__fail(error, -ENODATA,
                        "%zu of the classes of %s hold no %s: %s; remove their directories or "
                        "allow empty classes",
                        empty, path, is_sound ? "sound" : "image", names);
    if (!d->count && is_sound)
        return hr__fail(error, -ENODATA,
                        "no sound below the class directories of %s (.wav, .flac, .mp3, .ogg, "
                        ".oga)",
                        path);
    if (!d->count)
        return hr__fail(
            error, -ENODATA,
            "no image below the class directories of %s (.jpg, .jpeg, .png, .ppm, "
            ".bmp, .pgm, .tif, .tiff, .webp); a folder of sounds is opened by AudioFolder in "
            "Python, in C with media = HR_MEDIA_SOUNDS",
            path);
    return 0;
}

/* The sounds of a folder have an index of their own beside that of its images. Returns -ENOMEM, and
 * no path. */
static int name_index_of_sounds(char **path)
{
    size_t length = strlen(*path) + sizeof ".sounds";
    char *name = hr__alloc(HR__TAG_DATASET, length, 1);
    if (name)
        snprintf(name, length, "%s.sounds", *path);
    hr__free(*path);
    *path = name;
    return name ? 0 : -ENOMEM;
}

/* The same as get_folder for one in a bucket. */
static int get_objects(struct hr_dataset **out, const char *path, struct opening *o,
                       struct hr_error *error)
{
    struct hr__objects_folder folder = {.url = path,
                                        .is_sound = o->options.media == HR_MEDIA_SOUNDS};
    struct hr__catalog *catalog = NULL;
    char *index_path = NULL, *root = NULL;
    int r = hr__http_create(&folder.http, error), from_index = 0;
    if (!r && !(root = hr__objects_root(path)))
        r = hr__fail(error, -ENOMEM, "out of memory for the URL %s", path);
    if (!r && !hr__index_locate(&index_path, path, o->options.index) &&
        (!folder.is_sound || !name_index_of_sounds(&index_path))) {
        int found = hr__index_load_objects(&catalog, index_path, &folder);
        from_index = !found;
        if (found && found != -ENOENT)
            hr__log(HR_LOG_DEBUG, "the index %s is not used: %s", index_path,
                    hr__errno_text(found));
    }
    if (!r && !catalog)
        r = hr__objects_list(&catalog, &folder, o->executor, &o->progress, error);
    if (!r)
        r = hr__dataset_create(out, catalog, root, path, error);
    if (r) {
        hr__catalog_destroy(&catalog);
        hr__free(index_path);
    } else {
        /* the client that listed knows the way; its counts belong to the dataset */
        hr__http_unref(&(*out)->http);
        (*out)->http = hr__http_ref(folder.http);
        (*out)->from_index = from_index;
        (*out)->index_path = index_path;
        if (!from_index)
            save_index(*out, o->options.index);
    }
    hr__http_unref(&folder.http);
    hr__free(root);
    return r;
}

/* Gets the folder's names, from its index if that is still valid. */
static int get_folder(struct hr_dataset **out, const char *path, struct opening *o,
                      struct hr_error *error)
{
    struct hr__catalog *catalog = NULL;
    char *index_path = NULL;
    int from_index = 0;
    int is_sound = o->options.media == HR_MEDIA_SOUNDS;
    if (hr__url_is(path))
        return get_objects(out, path, o, error);
    if (!hr__index_locate(&index_path, path, o->options.index) &&
        (!is_sound || !name_index_of_sounds(&index_path))) {
        int r = hr__index_load(&catalog, index_path, path, o->options.index, o->executor);
        from_index = !r;
        if (r && r != -ENOENT)
            hr__log(HR_LOG_DEBUG, "the index %s is not used: %s", index_path, hr__errno_text(r));
    }
    int r = 0;
    if (!catalog)
        r = (is_sound ? hr__walk_sounds : hr__walk)(&catalog, path, o->executor, &o->progress,
                                                    error);
    if (!r)
        r = hr__dataset_create(out, catalog, path, path, error);
    if (r) {
        hr__catalog_destroy(&catalog);
        hr__free(index_path);
        return r;
    }
    (*out)->from_index = from_index;
    (*out)->index_path = index_path;
    return 0;
}

static int open_folder(struct hr_dataset **out, const char *path,
                       const struct hr_dataset_options *options, struct hr_error *error)
{
    struct opening o;
    *out = NULL;
    int r = opening_begin(&o, options, error);
    if (!r)
        r = get_folder(out, path, &o, error);
    if (!r)
        r = check_folder(*out, path, &o.options, error);
    if (!r)
        r = hr__dataset_set_source(*out, HR__SOURCE_FOLDER, path, &o.options, error);
    if (!r)
        r = finish_sizes(*out, &o, error);
    if (r)
        hr_dataset_unref(out);
    hr__pool_destroy(&o.pool);
    return r;
}

int hr_dataset_open_folder(struct hr_dataset **out, const char *path,
                           const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr_dataset_options taken;
    struct hr_error why;
    *out = NULL;
    int r = take_options(&taken, options, error);
    if (r || taken.media != HR_MEDIA_ANY)
        return r ? r : open_folder(out, path, &taken, error);
    taken.media = HR_MEDIA_IMAGES;
    r = open_folder(out, path, &taken, error);
    taken.media = HR_MEDIA_SOUNDS;
    return r == -ENODATA && !open_folder(out, path, &taken, &why) ? 0 : r;
}

/* The directory that a list's paths are relative to; "": the working directory. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *copy = hr__strdup(HR__TAG_DATASET, path);
    if (copy)
        copy[slash ? (slash == path ? 1 : slash - path) : 0] = 0;
    return copy;
}

/* Returns non-zero if the path means the same file to other processes: it is no pipe, and not below
 * /dev or /proc. */
static int is_for_all(const char *path)
{
    struct stat st;
    return strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6) && !stat(path, &st) &&
           S_ISREG(st.st_mode);
}

int hr_dataset_open_list(struct hr_dataset **out, const char *path,
                         const struct hr_dataset_options *options, struct hr_error *error)
{
    struct opening o;
    struct hr__catalog *catalog = NULL;
    char *base = NULL;
    *out = NULL;
    int r = opening_begin(&o, options, error);
    if (!r)
        r = hr__list_read(&catalog, path, error);
    if (!r && !(base = directory_of(path)))
        r = hr__fail(error, -ENOMEM, "out of memory for the path %s", path);
    if (!r)
        r = hr__dataset_create(out, catalog, base, "", error);
    if (r)
        hr__catalog_destroy(&catalog);
    else if (is_for_all(path))
        r = hr__dataset_set_source(*out, HR__SOURCE_LIST, path, NULL, error);
    if (!r)
        r = finish_sizes(*out, &o, error);
    if (r)
        hr_dataset_unref(out);
    hr__free(base);
    hr__pool_destroy(&o.pool);
    return r;
}

int hr_dataset_open_pack(struct hr_dataset **out, const char *path,
                         const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr_dataset_options taken;
    *out = NULL;
    int r = take_options(&taken, options, error);
    return r ? r : hr__pack_dataset(out, path, error);
}

static int open_shards(struct hr_dataset **out, enum hr__source_kind kind,
                       const struct hr__shards *shards, const struct hr_dataset_options *options,
                       struct hr_error *error)
{
    struct opening o;
    struct hr__catalog *catalog = NULL;
    *out = NULL;
    int r = opening_begin(&o, options, error);
    if (!r) {
        const struct hr__shard_source source = {.paths = shards->paths,
                                                .count = shards->count,
                                                .label = o.options.label,
                                                .image = o.options.image,
                                                .is_sound = o.options.media == HR_MEDIA_SOUNDS,
                                                .executor = o.executor,
                                                .progress = &o.progress};
        r = kind == HR__SOURCE_TAR ? hr__tar_index(&catalog, &source, error)
                                   : hr__parquet_index(&catalog, &source, error);
    }
    if (!r)
        r = hr__dataset_create(out, catalog, "", "", error);
    if (r)
        hr__catalog_destroy(&catalog);
    else if ((r = hr__dataset_set_source(*out, kind, "", &o.options, error)))
        hr_dataset_unref(out);
    hr__pool_destroy(&o.pool);
    return r;
}

int hr__dataset_open_shards(struct hr_dataset **out, enum hr__source_kind kind,
                            const struct hr__shards *shards,
                            const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr_dataset_options taken;
    struct hr_error why;
    *out = NULL;
    int r = take_options(&taken, options, error);
    int is_any = taken.media == HR_MEDIA_ANY;
    if (r)
        return r;
    taken.media = is_any || kind != HR__SOURCE_TAR ? HR_MEDIA_IMAGES : taken.media;
    r = open_shards(out, kind, shards, &taken, error);
    taken.media = HR_MEDIA_SOUNDS;
    if (r != -ENODATA || !is_any || kind != HR__SOURCE_TAR)
        return r;
    return open_shards(out, kind, shards, &taken, &why) ? r : 0;
}

int hr_dataset_open_tar(struct hr_dataset **out, const char *path,
                        const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr__shards shards = {0};
    *out = NULL;
    int r = hr__shards_expand(&shards, path, error);
    if (!r)
        r = hr__dataset_open_shards(out, HR__SOURCE_TAR, &shards, options, error);
    hr__shards_clear(&shards);
    return r;
}

int hr_dataset_open_parquet(struct hr_dataset **out, const char *const *paths, size_t count,
                            const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr__shards shards = {0};
    *out = NULL;
    int r = count ? 0 : hr__fail(error, -EINVAL, "no Parquet file is named; name at least one");
    for (size_t i = 0; !r && i < count; i++)
        r = hr__shards_find(&shards, paths[i], ".parquet", error);
    if (!r)
        r = hr__dataset_open_shards(out, HR__SOURCE_PARQUET, &shards, options, error);
    hr__shards_clear(&shards);
    return r;
}

/* Reads the first bytes of the regular file at `path`, up to `capacity`. Returns how many; 0 if it
 * cannot be read: opening it then reports why. */
static size_t first_bytes(const char *path, char *bytes, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t got = fd < 0 ? 0 : pread(fd, bytes, capacity, 0);
    if (fd >= 0)
        close(fd);
    return got < 0 ? 0 : (size_t)got;
}

/* Opens the files of a pattern, which are of the kind of the first. */
static int open_pattern(struct hr_dataset **out, const char *path,
                        const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr__shards shards = {0};
    enum hr__source_kind kind = HR__SOURCE_TAR;
    char first[4];
    int r = hr__shards_find(&shards, path, NULL, error);
    if (!r && hr__parquet_recognise(first, first_bytes(shards.paths[0], first, sizeof first)))
        kind = HR__SOURCE_PARQUET;
    if (!r)
        r = hr__dataset_open_shards(out, kind, &shards, options, error);
    hr__shards_clear(&shards);
    return r;
}

/* Returns non-zero if a folder holds Parquet files and no folder: it is no image folder. */
static int is_of_tables(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    struct stat st;
    int tables = 0, folders = 0;
    while (directory && !folders && (entry = readdir(directory))) {
        const char *dot = strrchr(entry->d_name, '.');
        if (*entry->d_name == '.')
            continue;
        tables |= dot && !strcmp(dot, ".parquet");
        folders |= !fstatat(dirfd(directory), entry->d_name, &st, 0) && S_ISDIR(st.st_mode);
    }
    if (directory)
        closedir(directory);
    return tables && !folders;
}

/* Opens what is at a URL: an object by its content, or else a folder of a bucket. */
static int open_url(struct hr_dataset **out, const char *path,
                    const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr__url url;
    struct hr__http_client *http = NULL;
    char first[512];
    size_t got = 0;
    int r = hr__url_parse(&url, path, error);
    if (!r && strpbrk(path, "{*?["))
        return open_pattern(out, path, options, error);
    size_t length = strlen(path);
    if (!r && hr__url_has_bucket(&url) && (!*url.path || path[length - 1] == '/'))
        return hr_dataset_open_folder(out, path, options, error);
    if (!r)
        r = hr__http_create(&http, error);
    if (!r) {
        const struct hr__http_piece piece = {.http = http, .url = path};
        r = hr__http_piece(&piece, first, sizeof first, &got, NULL, error);
    }
    hr__http_unref(&http);
    if (r == -ENOENT && hr__url_has_bucket(&url))
        return hr_dataset_open_folder(out, path, options, error);
    if (r)
        return r;
    if (hr__pack_recognise(first, got))
        return hr_dataset_open_pack(out, path, options, error);
    if (hr__parquet_recognise(first, got))
        return hr_dataset_open_parquet(out, &path, 1, options, error);
    if (hr__tar_recognise(first, got))
        return hr_dataset_open_tar(out, path, options, error);
    return hr_dataset_open_list(out, path, options, error);
}

int hr_dataset_open(struct hr_dataset **out, const char *path,
                    const struct hr_dataset_options *options, struct hr_error *error)
{
    struct stat st;
    *out = NULL;
    if (hr__url_is(path))
        return open_url(out, path, options, error);
    if (stat(path, &st)) {
        int r = -errno;
        return r == -ENOENT && strpbrk(path, "{*?[") ? open_pattern(out, path, options, error)
                                                     : hr__pack_cannot_open(path, r, error);
    }
    if (S_ISDIR(st.st_mode) && is_of_tables(path))
        return hr_dataset_open_parquet(out, &path, 1, options, error);
    if (S_ISDIR(st.st_mode))
        return hr_dataset_open_folder(out, path, options, error);
    /* a list may come through a pipe, whose bytes must not be consumed here */
    char first[512];
    size_t got = S_ISREG(st.st_mode) ? first_bytes(path, first, sizeof first) : 0;
    if (hr__pack_recognise(first, got))
        return hr_dataset_open_pack(out, path, options, error);
    if (hr__parquet_recognise(first, got))
        return hr_dataset_open_parquet(out, &path, 1, options, error);
    if (hr__tar_recognise(first, got))
        return hr_dataset_open_tar(out, path, options, error);
    return hr_dataset_open_list(out, path, options, error);
}
