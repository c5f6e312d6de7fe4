/* Takes and digests stamps of files; see stamp.h. */
#include "dataset/stamp.h"

#include "base/files.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

/* From linux/magic.h, which lacks some. Clients of these file systems invent inode numbers, and
 * invent new ones after forgetting a file. */
#define FUSE_MAGIC UINT64_C(0x65735546)
#define CIFS_MAGIC UINT64_C(0xff534d42)
#define SMB2_MAGIC UINT64_C(0xfe534d42)

#define WHOLE_BYTES (UINT64_C(64) << 10)
#define BLOCK_BYTES UINT64_C(4096)
#define BLOCKS      3

/* Returns non-zero if files keep their inode number while they exist. Asks the file system only
 * when the device differs from the last one; most datasets are on one device. */
static int has_lasting_inode(struct hr__catalog *c, const struct statx *st, int fd,
                             const char *name)
{
    uint64_t device = ((uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor) + 1;
    uint64_t known = __atomic_load_n(&c->device, __ATOMIC_RELAXED);
    if (known >> 1 == device)
        return known & 1;
    struct statfs fs;
    int file = *name ? openat(fd, name, O_PATH | O_CLOEXEC) : fd, lasting = 0;
    if (file >= 0 && !fstatfs(file, &fs)) {
        uint64_t type = (uint32_t)fs.f_type;
        lasting = type != FUSE_MAGIC && type != CIFS_MAGIC && type != SMB2_MAGIC;
    }
    if (file >= 0 && file != fd)
        close(file);
    __atomic_store_n(&c->device, device << 1 | (uint64_t)lasting, __ATOMIC_RELAXED);
    return lasting;
}

static uint64_t never_0(uint64_t digest)
{
    return digest ? digest : 1;
}

static int64_t ns_of(const struct statx_timestamp *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

int hr__stamp_look(struct hr__stamp *out, struct hr__catalog *catalog, int fd, const char *name)
{
    const unsigned mask = STATX_TYPE | STATX_SIZE | STATX_MTIME | STATX_CTIME | STATX_INO;
    struct statx st;
    memset(out, 0, sizeof *out);
    if (statx(fd, name, *name ? 0 : AT_EMPTY_PATH, mask, &st))
        return -errno;
    if (S_ISDIR(st.stx_mode))
        return -EISDIR;
    out->bytes = (int64_t)st.stx_size;
    out->mtime_ns = ns_of(&st.stx_mtime);
    out->ctime_ns = ns_of(&st.stx_ctime);
    if (!st.stx_ctime.tv_nsec)
        return 0;
    const uint64_t what[2] = {(uint64_t)out->ctime_ns,
                              has_lasting_inode(catalog, &st, fd, name) ? st.stx_ino : 0};
    out->change = never_0(XXH3_64bits(what, sizeof what));
    return 0;
}

/* The stamp of an object, as listed. */
static int look_at_object(struct hr__stamp *out, uint64_t change, int64_t bytes, int64_t mtime_ns)
{
    *out = (struct hr__stamp){.bytes = bytes, .mtime_ns = mtime_ns, .change = change};
    return change && bytes >= 0 ? 0 : -ENODATA;
}

/* Takes the stamp of a sample without its mask. */
static int look_at_one(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index)
{
    char path[PATH_MAX];
    struct hr__range range;
    struct hr__catalog *c = dataset->parent ? dataset->parent->catalog : dataset->catalog;
    int r = hr__dataset_range(dataset, index, 0, &range, NULL);
    if (r < 0)
        return r;
    if (r && range.http)
        return look_at_object(out, range.change, 0, 0);
    if (r)
        return range.fd >= 0 ? hr__stamp_look(out, c, range.fd, "")
                             : hr__stamp_look(out, c, AT_FDCWD, range.path);
    if (hr_dataset_path(dataset, index, path, sizeof path) >= sizeof path)
        return -ENAMETOOLONG;
    if (hr__dataset_http(dataset, path))
        return look_at_object(out, hr__dataset_change(dataset, index),
                              hr_dataset_sample_bytes(dataset, index),
                              hr__dataset_mtime_ns(dataset, index));
    return hr__stamp_look(out, c, AT_FDCWD, path);
}

/* Returns the size of a sample that has the stamp: a piece of a container has its own. */
static int64_t bytes_of(const struct hr_dataset *dataset, uint64_t index,
                        const struct hr__stamp *stamp)
{
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    return origin->catalog->ranges ? hr_dataset_sample_bytes(dataset, index) : stamp->bytes;
}

/* Makes the stamp of a sample's image the one of the sample. */
static void add_mask(struct hr__stamp *image, const struct hr_dataset *dataset, uint64_t index,
                     const struct hr__stamp *mask)
{
    const uint64_t changes[2] = {image->change, mask->change};
    image->bytes =
        bytes_of(dataset, index, image) + bytes_of(dataset->masks, index, mask) + HR__PAIR_TAIL;
    image->mask = hr__stamp_digest(mask);
    image->change = changes[0] && changes[1] ? never_0(XXH3_64bits(changes, sizeof changes)) : 0;
    if (image->mtime_ns < mask->mtime_ns)
        image->mtime_ns = mask->mtime_ns;
    if (image->ctime_ns < mask->ctime_ns)
        image->ctime_ns = mask->ctime_ns;
}

int hr__stamp_now(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index)
{
    struct hr__stamp mask;
    int r = look_at_one(out, dataset, index);
    if (r || !dataset->masks)
        return r;
    r = look_at_one(&mask, dataset->masks, index);
    if (!r)
        add_mask(out, dataset, index, &mask);
    return r;
}

/* Gets the stamp of a sample without its mask from the scan. */
static int believe_one(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index)
{
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    const struct hr__catalog *c = origin->catalog;
    uint64_t at = hr__dataset_at(dataset, index);
    memset(out, 0, sizeof *out);
    if (!c->changes)
        return 0;
    out->bytes = hr__catalog_load(&c->sizes[at]);
    out->mtime_ns = hr__catalog_load(&c->mtimes_ns[at]);
    out->change = __atomic_load_n(&c->changes[at], __ATOMIC_RELAXED);
    return out->bytes >= 0 && out->mtime_ns != HR_SIZE_UNKNOWN;
}

int hr__stamp_believed(struct hr__stamp *out, const struct hr_dataset *dataset, uint64_t index)
{
    struct hr__stamp mask;
    if (!believe_one(out, dataset, index))
        return 0;
    if (!dataset->masks)
        return 1;
    if (!believe_one(&mask, dataset->masks, index))
        return 0;
    add_mask(out, dataset, index, &mask);
    return 1;
}

int hr__stamp_is_fresh(const struct hr__stamp *stamp)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    /* A modification time can be set to anything. A time in the future says nothing, and would
     * count as fresh for ever. */
    int64_t since = stamp->change ? stamp->ctime_ns : stamp->mtime_ns;
    return now_ns >= since && now_ns - since < HR__STAMP_FRESH_NS;
}

uint64_t hr__stamp_digest(const struct hr__stamp *stamp)
{
    const uint64_t what[4] = {(uint64_t)stamp->bytes, (uint64_t)stamp->mtime_ns, stamp->change,
                              stamp->mask};
    return never_0(XXH3_64bits(what, sizeof what));
}

/* Finds where the blocks begin in content of `length` bytes, and their size. Returns their
 * number. */
static int find_blocks(uint64_t length, uint64_t at[BLOCKS], uint64_t *bytes)
{
    at[0] = 0;
    *bytes = length;
    if (length <= WHOLE_BYTES)
        return 1;
    *bytes = BLOCK_BYTES;
    at[1] = length / 2 / BLOCK_BYTES * BLOCK_BYTES;
    at[2] = length - BLOCK_BYTES;
    return BLOCKS;
}

static uint64_t add_block(uint64_t digest, const void *bytes, size_t length)
{
    return XXH3_64bits_withSeed(bytes, length, digest);
}

uint64_t hr__content_digest(const void *bytes, size_t length)
{
    uint64_t at[BLOCKS], size, digest = length;
    int count = find_blocks(length, at, &size);
    for (int i = 0; i < count; i++)
        digest = add_block(digest, (const char *)bytes + at[i], size);
    return never_0(digest);
}

static int digest_file(uint64_t *out, int fd, uint64_t from, uint64_t length)
{
    uint64_t at[BLOCKS], size, digest = length;
    int count = find_blocks(length, at, &size), r = 0;
    uint8_t *block = hr__alloc(HR__TAG_DATASET, size ? size : 1, 1);
    if (!block)
        return -ENOMEM;
    for (int i = 0; !r && i < count; i++) {
        r = hr__read_exactly(fd, block, size, from + at[i]);
        digest = add_block(digest, block, size);
    }
    hr__free(block);
    *out = never_0(digest);
    return r;
}

/* Digests the content of a sample without its mask. */
static int look_into(uint64_t *out, const struct hr_dataset *dataset, uint64_t index)
{
    char path[PATH_MAX];
    struct hr__range range;
    struct stat st;
    *out = 0;
    int r = hr__dataset_range(dataset, index, 0, &range, NULL);
    if (r < 0)
        return r;
    if (r && range.http)
        return -ENOTSUP;
    if (r && range.fd >= 0)
        return digest_file(out, range.fd, range.offset, range.bytes);
    if (!r && hr_dataset_path(dataset, index, path, sizeof path) >= sizeof path)
        return -ENAMETOOLONG;
    if (!r && hr__dataset_http(dataset, path))
        return -ENOTSUP;
    /* O_NONBLOCK: do not wait if a FIFO has replaced the file */
    int fd = open(r ? range.path : path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (r)
        r = digest_file(out, fd, range.offset, range.bytes);
    else
        r = fstat(fd, &st) ? -errno : digest_file(out, fd, 0, (uint64_t)st.st_size);
    close(fd);
    return r;
}

uint64_t hr__content_of_pair(uint64_t image, uint64_t mask)
{
    const uint64_t what[2] = {image, mask};
    return mask ? never_0(XXH3_64bits(what, sizeof what)) : image;
}

int hr__content_look(uint64_t *out, const struct hr_dataset *dataset, uint64_t index)
{
    uint64_t mask = 0;
    int r = look_into(out, dataset, index);
    if (!r && dataset->masks)
        r = look_into(&mask, dataset->masks, index);
    *out = r ? 0 : hr__content_of_pair(*out, mask);
    return r;
}
