/*
 * Writes the file of a pack so that it survives a kill, a full disk and a power cut. The order of
 * writes is in pack_file.h.
 *
 * The lock belongs to the open file description (OFD lock), so the kernel drops it with the
 * process. The catalog's entries are written with pwrite and not through a mapping, so that a full
 * disk is an error and not a signal.
 */
#include "bulk/pack_file.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "dataset/row_block.h"
#include "storage/url.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

/* A commit is due after so many bytes or so much time, whichever is first. So a kill loses little
 * work, and waiting for storage takes little time. */
#define COMMIT_BYTES (UINT64_C(64) << 20)
#define COMMIT_NS    UINT64_C(2000000000)

/* Before an unfinished pack is continued, the checksums of its last RECHECK_BYTES are verified. A
 * commit's entries reach storage by the next commit at the latest, so a power cut can damage only
 * those of the last commit, and this covers them. */
#define RECHECK_BYTES (2 * COMMIT_BYTES)

#define PARTIAL_SUFFIX ".partial"

/* Bytes of a sample, to guess the size of a pack of files that nobody has looked at yet. */
#define USUAL_BYTES (UINT64_C(128) << 10)

static uint64_t align(uint64_t offset)
{
    const uint64_t mask = HR__PACK_ITEM_ALIGNMENT - 1;
    return (offset + mask) & ~mask;
}

/* `kept`: how many samples the next run will find. */
static int fail_write(const struct hr__pack_file *f, uint64_t kept, int code,
                      struct hr_error *error)
{
    const char *remedy = "call it again to continue";
    if (code == -ENOSPC || code == -EDQUOT || code == -EFBIG)
        remedy = "make room and call it again to continue";
    return hr__fail(error, code, "cannot write %s: %s; the first %" PRIu64 " samples are kept: %s",
                    f->partial, hr__errno_text(code), kept, remedy);
}

static int write_at(const struct hr__pack_file *f, const void *bytes, uint64_t length,
                    uint64_t offset)
{
    const char *from = bytes;
    while (length) {
        ssize_t n = pwrite(f->fd, from, length < (1 << 30) ? length : 1 << 30, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -EIO;
        from += n;
        length -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Locks the whole file. Returns 0, -EBUSY, or the system's error. */
static int lock_file(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!fcntl(fd, F_OFD_SETLK, &whole))
        return 0;
    return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

/* Returns non-zero if `fd` is still the file at `path`: it was not renamed or replaced between
 * opening and locking. */
static int is_at(int fd, const char *path)
{
    struct stat open_one, named;
    return !fstat(fd, &open_one) && !lstat(path, &named) && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

static int open_partial(struct hr__pack_file *f, struct hr_error *error)
{
    struct stat st;
    for (;;) {
        /* O_NONBLOCK: do not hang if a FIFO has that name */
        f->fd = open(f->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (f->fd < 0) {
            int r = -errno;
            return hr__fail(error, r, "cannot open %s: %s", f->partial, hr__errno_text(r));
        }
        if (!fstat(f->fd, &st) && !S_ISREG(st.st_mode))
            return hr__fail(error, -ENXIO, "%s is not a regular file", f->partial);
        int r = lock_file(f->fd);
        if (r == -EBUSY)
            return hr__fail(error, r, "%s is being written by another process; wait for it",
                            f->partial);
        if (r)
            return hr__fail(error, r, "cannot lock %s: %s", f->partial, hr__errno_text(r));
        if (is_at(f->fd, f->partial))
            return 0;
        close(f->fd);
    }
}

/* Writes the front of the file: first catalog and rows from memory, then the superblock. Without a
 * superblock the file counts as empty, whatever else is in it. */
static int write_front(struct hr__pack_file *f, struct hr_error *error)
{
    int r = write_at(f, f->catalog->header, f->super.catalog_bytes, f->super.catalog_offset);
    if (!r)
        r = write_at(f, f->rows, f->super.rows_bytes, hr__pack_rows_offset(&f->super));
    if (!r)
        r = write_at(f, &f->super, sizeof f->super, 0);
    return r ? fail_write(f, f->safe, r, error) : 0;
}

static int begin(struct hr__pack_file *f, struct hr_error *error)
{
    f->end = f->super.items_offset;
    if (ftruncate(f->fd, 0) || ftruncate(f->fd, (off_t)f->end))
        return fail_write(f, f->safe, -errno, error);
    return write_front(f, error);
}

static int is_entry_in_order(const struct hr__pack_file *f, uint64_t i, uint64_t file_bytes)
{
    const struct hr__catalog_range *r = &f->catalog->ranges[i];
    int64_t size = f->catalog->sizes[i];
    return size >= 0 && r->offset == f->end && r->offset <= file_bytes &&
           (uint64_t)size <= file_bytes - r->offset && r->container == 0 && r->form < HR_FORMS &&
           (r->flags & HR__RANGE_HAS_CHECKSUM) && hr__range_kept(r) < HR_PACK_KEPT_COUNT;
}

static void clear_entry(struct hr__catalog *c, uint64_t i)
{
    c->sizes[i] = c->mtimes_ns[i] = HR_SIZE_UNKNOWN;
    c->ranges[i] = (struct hr__catalog_range){0};
}

/* Sets done and end: the longest prefix of consistent entries. */
static void find_done(struct hr__pack_file *f, uint64_t file_bytes)
{
    f->done = 0;
    f->end = f->super.items_offset;
    while (f->done < f->catalog->header->samples && is_entry_in_order(f, f->done, file_bytes)) {
        f->end = align(f->end + (uint64_t)f->catalog->sizes[f->done]);
        f->done++;
    }
}

/* Verifies the last items, and drops those from the first one whose bytes do not match its
 * entry. */
static int recheck(struct hr__pack_file *f, struct hr_error *error)
{
    struct hr__catalog *c = f->catalog;
    uint64_t from = f->done, longest = 0;
    while (from && f->end - c->ranges[from - 1].offset <= RECHECK_BYTES)
        from--;
    /* an item longer than that was a commit of its own */
    if (from && from == f->done)
        from--;
    /* what was sent is on storage elsewhere */
    for (uint64_t i = f->done; f->upload && i > from; i--)
        if (hr__pack_upload_has(f->upload, c->ranges[i - 1].offset,
                                c->ranges[i - 1].offset + (uint64_t)c->sizes[i - 1]))
            from = i;
    for (uint64_t i = from; i < f->done; i++)
        longest = (uint64_t)c->sizes[i] > longest ? (uint64_t)c->sizes[i] : longest;
    void *bytes = hr__alloc_aligned(HR__TAG_LOADER, longest ? longest : 1, 0);
    if (!bytes)
        return hr__fail(error, -ENOMEM, "out of memory to look at %s", f->partial);
    int r = 0;
    for (uint64_t i = from; !r && i < f->done; i++) {
        uint64_t length = (uint64_t)c->sizes[i];
        r = hr__read_exactly(f->fd, bytes, length, c->ranges[i].offset);
        if (r == -ENODATA || (!r && XXH3_64bits(bytes, length) != c->ranges[i].checksum)) {
            f->end = c->ranges[i].offset;
            f->done = i;
            r = 0;
        }
    }
    hr__free(bytes);
    return r ? hr__fail(error, r, "cannot read %s: %s", f->partial, hr__errno_text(r)) : 0;
}

/* Reads the entries of the unfinished file into our catalog, and nothing else of its catalog. */
static int read_entries(struct hr__pack_file *f, uint64_t file_bytes, struct hr_error *error)
{
    struct hr__catalog *c = f->catalog, theirs;
    uint64_t bytes = f->super.catalog_bytes, samples = c->header->samples;
    int r = 0;
    void *block = hr__alloc_aligned(HR__TAG_LOADER, bytes, 0);
    if (!block)
        return hr__fail(error, -ENOMEM, "out of memory for the catalog of %s", f->partial);
    if (hr__read_exactly(f->fd, block, bytes, f->super.catalog_offset) ||
        hr__catalog_map(&theirs, block, bytes) || theirs.header->samples != samples ||
        !theirs.ranges) {
        r = hr__fail(error, -EBADMSG, "the index of %s is damaged; restart it", f->partial);
    } else {
        memcpy(c->sizes, theirs.sizes, samples * sizeof *c->sizes);
        memcpy(c->mtimes_ns, theirs.mtimes_ns, samples * sizeof *c->mtimes_ns);
        memcpy(c->ranges, theirs.ranges, samples * sizeof *c->ranges);
        find_done(f, file_bytes);
    }
    hr__free(block);
    return r;
}

static int check_same(const struct hr__pack_file *f, const struct hr__pack_superblock *theirs,
                      struct hr_error *error)
{
    if (theirs->form != f->super.form)
        return hr__fail(
            error, -ESTALE, "%s was begun for the form %s; ask for that one again, or restart it",
            f->partial, theirs->form < 0 ? "auto" : hr_form_name((enum hr_form)theirs->form));
    if (theirs->digest != f->super.digest || theirs->catalog_bytes != f->super.catalog_bytes ||
        theirs->rows_bytes != f->super.rows_bytes || theirs->masks != f->super.masks)
        return hr__fail(error, -ESTALE,
                        "%s was begun for another dataset, or with other options; restart it, or "
                        "ask for the same again",
                        f->partial);
    return 0;
}

/* Returns non-zero if a run was killed before it wrote the superblock. */
static int has_no_front(const struct hr__pack_superblock *super)
{
    static const struct hr__pack_superblock zeros;
    return !memcmp(super, &zeros, sizeof zeros);
}

/* Continues the unfinished file. */
static int resume(struct hr__pack_file *f, uint64_t file_bytes, struct hr_error *error)
{
    struct hr__pack_superblock theirs;
    struct hr_error why = {0};
    int r = hr__read_exactly(f->fd, &theirs, sizeof theirs, 0);
    if (!r && has_no_front(&theirs))
        return begin(f, error);
    if (!r)
        r = hr__pack_check(&theirs, f->partial, &why);
    if (r)
        return hr__fail(error, -EBADMSG, "%s cannot be continued (%s); restart it", f->partial,
                        why.message[0] ? why.message : hr__errno_text(r));
    r = check_same(f, &theirs, error);
    if (!r)
        r = read_entries(f, file_bytes, error);
    if (!r && f->upload)
        r = hr__pack_upload_resume(f->upload, f, error);
    if (!r)
        r = recheck(f, error);
    if (r)
        return r;
    for (uint64_t i = f->done; i < f->catalog->header->samples; i++)
        clear_entry(f->catalog, i);
    f->safe = f->continued = f->done;
    /* the rest may be part of an item */
    if (ftruncate(f->fd, (off_t)f->end))
        return fail_write(f, f->safe, -errno, error);
    r = write_front(f, error);
    if (!r && f->upload)
        hr__pack_upload_offer(f->upload, f->end);
    return r;
}

static char *join_texts(const char *a, size_t length, const char *b)
{
    size_t bytes = length + strlen(b) + 1;
    char *text = hr__alloc(HR__TAG_LOADER, bytes, 1);
    if (text)
        snprintf(text, bytes, "%.*s%s", (int)length, a, b);
    return text;
}

static int set_paths(struct hr__pack_file *f, const char *path, const char *staging,
                     struct hr_error *error)
{
    size_t length = strlen(path);
    if (!length || path[length - 1] == '/')
        return hr__fail(error, -EINVAL, "\"%s\" is no name for a pack's file", path);
    if (length > PATH_MAX)
        return hr__fail(error, -ENAMETOOLONG, "the path of the pack is too long");
    if (hr__url_is(path)) {
        int r = hr__pack_upload_create(&f->upload, path, staging, &f->partial, error);
        if (r)
            return r;
    } else {
        f->partial = join_texts(path, length, PARTIAL_SUFFIX);
    }
    f->path = join_texts(path, length, "");
    const char *slash = f->partial ? strrchr(f->partial, '/') : NULL;
    f->directory =
        slash ? join_texts(f->partial, slash == f->partial ? 1 : (size_t)(slash - f->partial), "")
              : join_texts(".", 1, "");
    if (!f->path || !f->partial || !f->directory)
        return hr__fail(error, -ENOMEM, "out of memory for the path %s", path);
    return 0;
}

static int refuse_existing(const struct hr__pack_file *f, struct hr_error *error)
{
    return hr__fail(error, -EEXIST,
                    "there is something at %s; give another path, or ask to overwrite it", f->path);
}

/* Makes the catalog and rows that the file will have, and its first superblock. */
static int describe(struct hr__pack_file *f, struct hr_dataset *dataset,
                    const struct hr_pack_options *options, uint64_t digest, struct hr_error *error)
{
    int r = hr__pack_catalog(&f->catalog, dataset, error);
    if (r)
        return r;
    /* a sample's time is set when its bytes are */
    for (uint64_t i = 0; i < f->catalog->header->samples; i++)
        f->catalog->mtimes_ns[i] = HR_SIZE_UNKNOWN;
    uint64_t parts[3] = {digest, hr__catalog_checksum(f->catalog->header)}, rows_bytes = 0;
    size_t count = 2;
    if (dataset->rows) {
        r = hr__row_block_make(&f->rows, &rows_bytes, dataset, error);
        if (r)
            return r;
        parts[count++] = XXH3_64bits(f->rows, rows_bytes);
    }
    hr__pack_begin(&f->super, f->catalog->header->bytes, rows_bytes, options->form,
                   XXH3_64bits(parts, count * sizeof *parts));
    f->super.mono = options->head.mono != 0;
    f->super.rate = (uint32_t)options->head.rate;
    hr__pack_seal(&f->super);
    if (dataset->is_paired)
        hr__pack_pair(&f->super);
    return 0;
}

/* Returns about how many bytes the pack will have. */
static uint64_t guess_bytes(const struct hr__pack_file *f, const struct hr_dataset *dataset,
                            int form)
{
    int64_t known = hr__dataset_total_bytes(dataset);
    uint64_t bytes = known >= 0 ? (uint64_t)known : f->catalog->header->samples * USUAL_BYTES;
    return f->super.items_offset + bytes * (form == HR_FORM_ENCODED ? 1 : 2);
}

static int begin_upload(struct hr__pack_file *f, struct hr_dataset *dataset,
                        const struct hr_pack_options *options, struct hr_error *error)
{
    int r = begin(f, error);
    if (r || !f->upload)
        return r;
    return hr__pack_upload_begin(f->upload, f, guess_bytes(f, dataset, options->form),
                                 options->part_bytes, error);
}

int hr__pack_file_open(struct hr__pack_file **out, struct hr_dataset *dataset, const char *path,
                       const struct hr_pack_options *options, uint64_t digest,
                       struct hr_error *error)
{
    struct stat st;
    struct hr__pack_file *f = hr__alloc(HR__TAG_LOADER, 1, sizeof *f);
    *out = NULL;
    if (!f)
        return hr__fail(error, -ENOMEM, "out of memory for a pack");
    f->fd = -1;
    int r = set_paths(f, path, options->staging, error);
    if (!r && !f->upload && !options->overwrite && !lstat(path, &st))
        r = refuse_existing(f, error);
    if (!r)
        r = describe(f, dataset, options, digest, error);
    if (!r)
        r = open_partial(f, error);
    if (!r && f->upload)
        r = hr__pack_upload_look(f->upload, f, options->overwrite, error);
    if (!r && fstat(f->fd, &st))
        r = hr__fail(error, -errno, "cannot look at %s: %s", f->partial, hr__errno_text(errno));
    if (!r &&
        (options->restart || !st.st_size || (f->upload && !hr__pack_upload_is_begun(f->upload))))
        r = begin_upload(f, dataset, options, error);
    else if (!r)
        r = resume(f, (uint64_t)st.st_size, error);
    if (r) {
        hr__pack_file_close(&f);
        return r;
    }
    f->committed_ns = hr__now_ns();
    f->commit_bytes = options->commit_bytes;
    if (!f->commit_bytes || f->commit_bytes > COMMIT_BYTES)
        f->commit_bytes = COMMIT_BYTES;
    *out = f;
    return 0;
}

/* Writes the bytes and the zeros that pad them. */
static int write_item(const struct hr__pack_file *f, const void *bytes, size_t length)
{
    static const char zeros[HR__PACK_ITEM_ALIGNMENT];
    size_t padding = (size_t)(align(length) - length);
    struct iovec parts[2] = {{(void *)(uintptr_t)bytes, length},
                             {(void *)(uintptr_t)zeros, padding}};
    ssize_t n;
    do
        n = pwritev(f->fd, parts, 2, (off_t)f->end);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if ((size_t)n == length + padding)
        return 0;
    /* a short write: write the rest, or get the error */
    uint64_t written = (uint64_t)n < length ? (uint64_t)n : length;
    int r = write_at(f, (const char *)bytes + written, length - written, f->end + written);
    return r ? r : write_at(f, zeros, padding, f->end + length);
}

int hr__pack_file_append(struct hr__pack_file *file, const struct hr__pack_entry *entry,
                         struct hr_error *error)
{
    struct hr__pack_file *f = file;
    int r = write_item(f, entry->bytes, entry->length);
    if (r)
        return fail_write(f, f->done, r, error);
    f->catalog->sizes[f->done] = (int64_t)entry->length;
    f->catalog->mtimes_ns[f->done] = entry->mtime_ns;
    f->catalog->ranges[f->done] = (struct hr__catalog_range){
        .offset = f->end,
        .checksum = entry->checksum,
        .source_bytes = entry->source_bytes,
        .form = (uint16_t)entry->form,
        .flags = (uint16_t)(HR__RANGE_HAS_CHECKSUM | entry->kept << HR__RANGE_KEPT_SHIFT),
    };
    f->uncommitted_bytes += align(entry->length);
    f->end += align(entry->length);
    f->done++;
    return 0;
}

int hr__pack_file_is_due(const struct hr__pack_file *file)
{
    return file->done != file->safe && (file->uncommitted_bytes >= file->commit_bytes ||
                                        hr__now_ns() - file->committed_ns >= COMMIT_NS);
}

/* Writes the entries [safe, done) of one section of the catalog. */
static int write_section(const struct hr__pack_file *f, const void *section, size_t size)
{
    const char *from = (const char *)section + f->safe * size;
    uint64_t offset = f->super.catalog_offset + (uint64_t)(from - (const char *)f->catalog->header);
    return write_at(f, from, (f->done - f->safe) * size, offset);
}

int hr__pack_file_commit(struct hr__pack_file *file, struct hr_error *error)
{
    struct hr__pack_file *f = file;
    int r = 0;
    if (f->done == f->safe)
        return 0;
    if (fdatasync(f->fd))
        r = -errno;
    if (!r)
        r = write_section(f, f->catalog->ranges, sizeof *f->catalog->ranges);
    if (!r)
        r = write_section(f, f->catalog->mtimes_ns, sizeof *f->catalog->mtimes_ns);
    /* last, because a size marks the entry as present */
    if (!r)
        r = write_section(f, f->catalog->sizes, sizeof *f->catalog->sizes);
    /* items are sent, and then gone from the file, only if it surely has their entries */
    if (!r && f->upload && fdatasync(f->fd))
        r = -errno;
    if (r)
        return fail_write(f, f->safe, r, error);
    if (f->upload)
        hr__pack_upload_offer(f->upload, f->end);
    f->safe = f->done;
    f->uncommitted_bytes = 0;
    f->committed_ns = hr__now_ns();
    return 0;
}

static int sync_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    /* some file systems do not support this, and do not need it */
    return r == -EINVAL ? 0 : r;
}

/* Renames the file to its final name. Never replaces another file, unless asked to. */
static int give_name(const struct hr__pack_file *f, int overwrite)
{
    struct stat st;
    if (!overwrite) {
        if (!renameat2(AT_FDCWD, f->partial, AT_FDCWD, f->path, RENAME_NOREPLACE))
            return 0;
        /* the file system cannot do that atomically */
        if (errno != EINVAL && errno != ENOSYS)
            return -errno;
        if (!lstat(f->path, &st))
            return -EEXIST;
    }
    return rename(f->partial, f->path) ? -errno : 0;
}

/* Writes the index and the superblock of the complete file, and syncs them. */
static int seal(struct hr__pack_file *f)
{
    f->catalog->header->flags |= HR__CATALOG_SIZES;
    f->catalog->header->checksum = hr__catalog_checksum(f->catalog->header);
    int r = write_at(f, f->catalog->header, f->super.catalog_bytes, f->super.catalog_offset);
    /* all else must be on storage before the superblock says `complete` */
    if (!r && fdatasync(f->fd))
        r = -errno;
    f->super.state = HR__PACK_COMPLETE;
    f->super.bytes = f->end;
    hr__pack_seal(&f->super);
    if (!r)
        r = write_at(f, &f->super, sizeof f->super, 0);
    return !r && fsync(f->fd) ? -errno : r;
}

int hr__pack_file_finish(struct hr__pack_file *file, int overwrite, struct hr__progress *progress,
                         struct hr_error *error)
{
    struct hr__pack_file *f = file;
    assert(f->done == f->catalog->header->samples);
    int r = hr__pack_file_commit(f, error);
    if (r)
        return r;
    r = seal(f);
    if (r)
        return fail_write(f, f->safe, r, error);
    if (f->upload) {
        r = hr__pack_upload_finish(f->upload, f->end, progress, error);
        if (!r && !unlink(f->partial))
            hr__pack_upload_forget(f->upload);
        return r;
    }
    r = give_name(f, overwrite);
    if (r == -EEXIST)
        return refuse_existing(f, error);
    if (!r)
        r = sync_directory(f->directory);
    if (r)
        return hr__fail(error, r, "cannot rename %s to %s: %s", f->partial, f->path,
                        hr__errno_text(r));
    return 0;
}

void hr__pack_file_close(struct hr__pack_file **file)
{
    struct hr__pack_file *f = *file;
    *file = NULL;
    if (!f)
        return;
    hr__pack_upload_close(&f->upload);
    if (f->fd >= 0)
        close(f->fd);
    hr__catalog_destroy(&f->catalog);
    hr__free(f->rows);
    hr__free(f->path);
    hr__free(f->partial);
    hr__free(f->directory);
    hr__free(f);
}

void hr__pack_count_item(struct hr_pack_result *result, enum hr_form form, uint64_t bytes)
{
    result->samples++;
    result->forms[form].samples++;
    result->forms[form].bytes += bytes;
    if ((size_t)form >= sizeof result->samples_of_form / sizeof *result->samples_of_form)
        return;
    result->samples_of_form[form]++;
    result->bytes_of_form[form] += bytes;
}

void hr__pack_count(const struct hr__catalog *catalog, uint64_t count,
                    struct hr_pack_result *result)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct hr__catalog_range *r = &catalog->ranges[i];
        enum hr_pack_kept kept = hr__range_kept(r);
        hr__pack_count_item(result, (enum hr_form)r->form, (uint64_t)catalog->sizes[i]);
        result->samples_kept[kept]++;
        result->source_bytes += r->source_bytes;
        result->bad += kept == HR_PACK_KEPT_BAD;
    }
}
