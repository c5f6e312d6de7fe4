/*
 * Reads packs. Two reads load the superblock and the catalog, so the cost of opening depends on the
 * names and not on the items. Nothing is mapped, because others may truncate the file at any time.
 */
#include "dataset/pack.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/describe.h"
#include "dataset/row_block.h"
#include "storage/url.h"

#include <headrace/pack.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define BYTE_ORDER_MARK 0x01020304u
#define CHECKSUM_FROM   (offsetof(struct hr__pack_superblock, checksum) + sizeof(uint64_t))

_Static_assert(sizeof(struct hr__pack_superblock) == HR__PACK_SUPERBLOCK_BYTES,
               "the superblock is one page");

static uint64_t align_up(uint64_t n)
{
    return (n + HR__PACK_ITEM_ALIGNMENT - 1) / HR__PACK_ITEM_ALIGNMENT * HR__PACK_ITEM_ALIGNMENT;
}

static uint64_t checksum_of(const struct hr__pack_superblock *super)
{
    return XXH3_64bits((const char *)super + CHECKSUM_FROM, sizeof *super - CHECKSUM_FROM);
}

/* Returns non-zero if mono and rate are possible for the form. */
static int is_head(const struct hr__pack_superblock *s)
{
    int is_rate = s->rate >= HR_SOUND_MIN_RATE && s->rate <= HR_SOUND_MAX_RATE;
    if (s->form <= HR_FORM_INDEXED)
        return !s->mono && !s->rate;
    return s->mono <= 1 && (!s->rate || is_rate);
}

/* Returns the bytes of all texts in a pack's catalog, with their zeros. */
static uint64_t text_bytes(const struct hr_dataset *dataset)
{
    uint64_t bytes = 1;
    for (size_t i = 0; i < hr_dataset_class_count(dataset); i++)
        bytes += strlen(hr_dataset_class_name(dataset, i)) + 1;
    for (size_t i = 0; i < hr_dataset_count(dataset); i++)
        bytes += hr_dataset_key(dataset, i, NULL, 0) + 1;
    return bytes;
}

int hr__pack_catalog(struct hr__catalog **out, const struct hr_dataset *dataset,
                     struct hr_error *error)
{
    struct hr__catalog_shape shape = {
        .classes = hr_dataset_class_count(dataset),
        .directories = 1,
        .samples = hr_dataset_count(dataset),
        .arena_bytes = text_bytes(dataset),
        .labels = 1,
        .containers = 1,
    };
    int r = hr__catalog_create(out, &shape);
    if (r)
        return hr__fail(error, r, "out of memory for the names of %" PRIu64 " samples",
                        shape.samples);
    struct hr__catalog *c = *out;
    uint64_t none = hr__catalog_text(c, "", 0);
    c->header->root = c->directories[0].path = c->containers[0].path = none;
    c->directories[0].count = shape.samples;
    for (size_t i = 0; i < shape.classes; i++) {
        const char *name = hr_dataset_class_name(dataset, i);
        c->class_names[i] = hr__catalog_text(c, name, strlen(name));
    }
    size_t skip = dataset->is_paired ? hr__dataset_common(dataset) : 0;
    for (size_t i = 0; i < shape.samples; i++) {
        uint64_t at = c->arena_used, left = shape.arena_bytes - at;
        c->names[i] = at;
        size_t length = hr_dataset_key(dataset, i, c->arena + at, left) - skip;
        memmove(c->arena + at, c->arena + at + skip, length + 1);
        c->arena_used += length + 1;
        c->labels[i] = hr_dataset_label(dataset, i);
        c->mtimes_ns[i] = hr__dataset_mtime_ns(dataset, i);
    }
    return 0;
}

uint64_t hr__pack_rows_offset(const struct hr__pack_superblock *super)
{
    return align_up(super->catalog_offset + super->catalog_bytes);
}

void hr__pack_begin(struct hr__pack_superblock *super, uint64_t catalog_bytes, uint64_t rows_bytes,
                    int form, uint64_t digest)
{
    int has_index = form == HR_FORM_INDEXED || form == HR_FORM_AUTO;
    memset(super, 0, sizeof *super);
    memcpy(super->magic, HR__PACK_MAGIC, sizeof super->magic);
    super->version = rows_bytes || form > HR_FORM_INDEXED ? 3 : has_index ? 2 : 1;
    super->byte_order = BYTE_ORDER_MARK;
    super->state = HR__PACK_WRITING;
    super->form = form;
    super->catalog_offset = HR__PACK_SUPERBLOCK_BYTES;
    super->catalog_bytes = catalog_bytes;
    super->rows_bytes = rows_bytes;
    super->items_offset = align_up(hr__pack_rows_offset(super) + rows_bytes);
    super->digest = digest;
    hr__pack_seal(super);
}

void hr__pack_pair(struct hr__pack_superblock *super)
{
    super->masks = 1;
    super->version = 4;
    hr__pack_seal(super);
}

void hr__pack_seal(struct hr__pack_superblock *super)
{
    super->checksum = checksum_of(super);
}

int hr__pack_recognise(const void *bytes, size_t length)
{
    return length >= sizeof HR__PACK_MAGIC - 1 &&
           !memcmp(bytes, HR__PACK_MAGIC, sizeof HR__PACK_MAGIC - 1);
}

static int damaged(const char *path, const char *what, struct hr_error *error)
{
    return hr__fail(error, -EBADMSG, "%s: %s; copy the pack again, or write it again", path, what);
}

int hr__pack_check(const struct hr__pack_superblock *s, const char *path, struct hr_error *error)
{
    if (!hr__pack_recognise(s, sizeof *s))
        return hr__fail(error, -EBADMSG, "%s is not a pack", path);
    if (s->byte_order != BYTE_ORDER_MARK)
        return hr__fail(error, -ENOTSUP,
                        "%s was written on a machine of another byte order, or its superblock is "
                        "damaged; write it again on one like this",
                        path);
    if (!s->version || s->version > HR__PACK_VERSION)
        return hr__fail(error, -ENOTSUP,
                        "%s is a pack of version %" PRIu32
                        ", this library knows versions up to %u; use a "
                        "newer library, or write the pack again",
                        path, s->version, HR__PACK_VERSION);
    if (s->checksum != checksum_of(s))
        return damaged(path, "its superblock is damaged", error);
    if ((s->state != HR__PACK_WRITING && s->state != HR__PACK_COMPLETE) || s->form < -1 ||
        s->form >= HR_FORMS || !is_head(s) || s->catalog_offset != HR__PACK_SUPERBLOCK_BYTES ||
        s->catalog_bytes > INT64_MAX / 2 || s->rows_bytes > HR__ROW_BLOCK_BYTES_MAX ||
        (s->rows_bytes && s->version < 3) || s->masks > 1 ||
        (s->masks && (s->version < 4 || s->rows_bytes)) ||
        s->items_offset != align_up(hr__pack_rows_offset(s) + s->rows_bytes) ||
        s->bytes > INT64_MAX ||
        (s->state == HR__PACK_COMPLETE &&
         s->bytes < (s->rows_bytes ? hr__pack_rows_offset(s) + s->rows_bytes
                                   : s->catalog_offset + s->catalog_bytes)))
        return damaged(path, "its superblock says what cannot be", error);
    return 0;
}

/* Reads a part of a pack, which must be there. */
static int read_part(struct hr__byte_source *source, void *out, size_t length, uint64_t offset,
                     struct hr_error *error)
{
    struct hr_error why = {.code = 0};
    int r = hr__source_read(source, out, length, offset, &why);
    if (r == -ENODATA)
        return damaged(source->path, "it ends before it should", error);
    if (r && source->http)
        return hr__fail(error, r, "%s", why.message);
    return r ? hr__fail(error, r, "cannot read the pack %s: %s", source->path, hr__errno_text(r))
             : 0;
}

/* Metadata larger than this is not read if the file does not have a hundredth of it on the disk. */
#define SPARSE_FROM  (UINT64_C(64) << 20)
#define SPARSE_RATIO 100

/* Returns non-zero if a file is nearly all holes where its catalog and rows should be: memory for
 * them would be as large as a stranger likes. Some file systems do not tell the blocks of files. An
 * object has no holes: its bytes have to come, and memory is used as they do. */
static int is_hollow(const struct hr__pack_superblock *s, const struct hr__byte_source *source)
{
    struct stat st;
    if (source->fd < 0 || fstat(source->fd, &st))
        return 0;
    uint64_t wanted = s->catalog_bytes + s->rows_bytes, kept = (uint64_t)st.st_blocks * 512;
    return kept && wanted > SPARSE_FROM && wanted / SPARSE_RATIO > kept;
}

static int check_super(const struct hr__pack_superblock *s, const struct hr__byte_source *source,
                       struct hr_error *error)
{
    const char *path = source->path;
    uint64_t file_bytes = source->bytes;
    int r = hr__pack_check(s, path, error);
    if (r)
        return r;
    if (s->state != HR__PACK_COMPLETE)
        return hr__fail(error, -EINPROGRESS,
                        "%s is a pack whose writing has not been finished: run the same "
                        "`headrace pack` again, which continues it",
                        path);
    if (s->bytes > file_bytes)
        return hr__fail(error, -EBADMSG,
                        "%s has %" PRIu64 " of the %" PRIu64 " bytes of the pack: it was cut; copy "
                        "it again",
                        path, file_bytes, s->bytes);
    if (is_hollow(s, source))
        return damaged(path, "it is a file with holes instead of a catalog or rows", error);
    return 0;
}

/* Checks the requirements of packs beyond those of every catalog. */
static int check_items(const struct hr__catalog *c, const struct hr__pack_superblock *s)
{
    if (!c->ranges || !c->labels || c->header->containers != 1 ||
        (s->masks && c->header->samples % 2) || *hr__catalog_at(c, c->containers[0].path) ||
        c->containers[0].bytes || c->containers[0].mtime_ns)
        return 0;
    for (uint64_t i = 0; i < c->header->samples; i++) {
        uint64_t offset = c->ranges[i].offset;
        if (offset < s->items_offset || offset % HR__PACK_ITEM_ALIGNMENT || offset > s->bytes ||
            (uint64_t)c->sizes[i] > s->bytes - offset ||
            c->ranges[i].flags >> HR__RANGE_KEPT_SHIFT >= HR_PACK_KEPT_COUNT)
            return 0;
    }
    return 1;
}

int hr__pack_read(struct hr__catalog **out, struct hr__pack_superblock *super,
                  struct hr__byte_source *source, struct hr_error *error)
{
    struct hr__pack_superblock s = {.version = 0};
    const char *path = source->path;
    char *block = NULL;
    *out = NULL;
    int r = read_part(source, &s, sizeof s, 0, error);
    /* a file that is too short to be a pack is said to be none, by its beginning */
    if (r && (r != -EBADMSG || hr__pack_recognise(&s, sizeof s)))
        return r;
    r = check_super(&s, source, error);
    if (r)
        return r;
    block = hr__alloc_aligned(HR__TAG_DATASET, s.catalog_bytes ? s.catalog_bytes : 1, 0);
    if (!block)
        return hr__fail(error, -ENOMEM, "out of memory for the catalog of %s, %" PRIu64 " bytes",
                        path, s.catalog_bytes);
    r = read_part(source, block, s.catalog_bytes, s.catalog_offset, error);
    if (r)
        goto fail;
    r = hr__catalog_adopt(out, block, s.catalog_bytes);
    if (!r && !check_items(*out, &s))
        r = -EBADMSG;
    if (r == -EBADMSG)
        damaged(path, "its catalog is damaged", error);
    else if (r)
        hr__fail(error, r, "out of memory for the catalog of %s", path);
    if (r)
        goto fail;
    if (super)
        *super = s;
    return 0;

fail:
    if (*out)
        hr__catalog_destroy(out);
    else
        hr__free(block);
    return r;
}

int hr__pack_cannot_open(const char *path, int code, struct hr_error *error)
{
    char partial[4096];
    int n = snprintf(partial, sizeof partial, "%s.partial", path);
    if (code == -ENOENT && n > 0 && (size_t)n < sizeof partial && !access(partial, F_OK))
        return hr__fail(error, code,
                        "there is no %s yet, only the unfinished %s: run the same `headrace pack` "
                        "again, which continues it",
                        path, partial);
    return hr__fail(error, code, "cannot open %s: %s", path, hr__errno_text(code));
}

/* Reads the rows of a pack whose superblock was checked. */
static int read_rows(struct hr_dataset *dataset, const struct hr__pack_superblock *s,
                     struct hr__byte_source *source, struct hr_error *error)
{
    const char *path = source->path;
    struct hr_error why;
    void *block = hr__alloc(HR__TAG_DATASET, s->rows_bytes, 1);
    if (!block)
        return hr__fail(error, -ENOMEM, "out of memory for the rows of %s, %" PRIu64 " MiB", path,
                        s->rows_bytes >> 20);
    int r = read_part(source, block, s->rows_bytes, hr__pack_rows_offset(s), error);
    if (!r && (r = hr__row_block_read(&dataset->rows, block, s->rows_bytes, dataset->count, &why)))
        r = r == -EBADMSG ? damaged(path, why.message, error)
                          : hr__fail(error, r, "%s: %s", path, why.message);
    hr__free(block);
    return r;
}

int hr__pack_open(struct hr__byte_source *out, const char *path, struct hr_error *error)
{
    if (hr__url_is(path))
        return hr__source_open(out, path, NULL, error);
    /* O_NONBLOCK: do not wait if a FIFO has replaced the file */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int r = fd < 0 ? -errno : hr__source_of_file(out, path, fd);
    if (r && fd >= 0)
        close(fd);
    return r ? hr__pack_cannot_open(path, r, error) : 0;
}

/* Gives the dataset the open file, or what is known of the object, that it reads from. */
static int give_source(struct hr_dataset *dataset, struct hr__byte_source *source,
                       struct hr_error *error)
{
    int fd = source->fd;
    if (source->http) {
        hr__containers_know(dataset->containers, 0, source->change);
        return 0;
    }
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK))
        return hr__pack_cannot_open(source->path, -errno, error);
    hr__containers_give(dataset->containers, 0, fd);
    source->fd = -1;
    return 0;
}

int hr__pack_dataset(struct hr_dataset **out, const char *path, struct hr_error *error)
{
    struct hr__catalog *catalog = NULL;
    struct hr__pack_superblock super;
    struct hr__byte_source source;
    *out = NULL;
    int r = hr__pack_open(&source, path, error);
    if (r)
        return r;
    r = hr__pack_read(&catalog, &super, &source, error);
    if (!r)
        r = hr__dataset_create(out, catalog, path, "", error);
    if (!r) {
        catalog = NULL; /* the dataset's */
        r = hr__dataset_set_source(*out, HR__SOURCE_PACK, path, NULL, error);
        if (!r && super.rows_bytes)
            r = read_rows(*out, &super, &source, error);
        if (!r)
            r = give_source(*out, &source, error);
    }
    hr__source_close(&source);
    if (r) {
        hr__catalog_destroy(&catalog);
        if (*out)
            hr_dataset_unref(out);
        return r;
    }
    (*out)->waveforms = super.form > HR_FORM_INDEXED ? super.form : 0;
    (*out)->head = (struct hr_sound_head){super.mono != 0, (int)super.rate};
    (*out)->is_paired = super.masks != 0;
    r = super.masks ? hr__dataset_unpair(out, error) : 0;
    if (r)
        hr_dataset_unref(out);
    return r;
}
