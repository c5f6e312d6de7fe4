/* Scans Parquet tables; see parquet.h. */
#include "dataset/parquet.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/parquet_columns.h"
#include "dataset/parquet_pages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SUFFIX ".parquet"

/* What must be the same in all tables. */
struct parquet_table {
    char *image, *label; /* names of the columns; "": no labels; owned */
    struct hr__names classes;
    int has_other_labels; /* some label is no number of a class */
};

struct parquet_pass {
    const struct hr__shard_source *source;
    struct parquet_table *tables;
};

/* A table that is being scanned. */
struct parquet_scan {
    struct hr__shard *file;
    struct parquet_table *table;
    struct hr__parquet_footer footer;
    struct hr__parquet_choice choice;
    struct hr__parquet_reader reader;
    uint64_t row, nulls;
};

/* Returns the extension of the format that these bytes begin; "": unknown. */
static const char *extension_of(const uint8_t first[HR__PARQUET_FIRST])
{
    static const struct {
        const char *magic, *extension;
        size_t length, at;
    } formats[] = {
        {"\xFF\xD8\xFF", ".jpg", 3, 0}, {"\x89PNG", ".png", 4, 0},   {"WEBP", ".webp", 4, 8},
        {"GIF8", ".gif", 4, 0},         {"II*\0", ".tif", 4, 0},     {"MM\0*", ".tif", 4, 0},
        {"BM", ".bmp", 2, 0},           {"ftypavif", ".avif", 8, 4},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!memcmp(first + formats[i].at, formats[i].magic, formats[i].length))
            return formats[i].extension;
    return "";
}

/* Reports why a column cannot be read. */
static int cannot_read(struct parquet_scan *s, size_t column, int code)
{
    const char *path = s->file->path;
    struct hr_error *error = &s->file->error;
    char name[256];
    hr__printable(name, sizeof name, s->footer.columns[column].name);
    if (s->reader.why.code == code)
        return hr__fail(error, code, "%s: cannot read the column %s: %s", path, name,
                        s->reader.why.message);
    if (code == -EBADMSG)
        return hr__fail(error, code, "%s: the column %s is damaged; copy the file again", path,
                        name);
    if (code == -ENODATA)
        return hr__fail(error, -EINVAL, "%s: the column %s has a row without a label (null)", path,
                        name);
    if (code == -ENOTSUP && *s->reader.unsupported)
        return hr__fail(error, code,
                        "%s: the column %s %s, which cannot be read at random: give "
                        "headrace.ArrowDataset what datasets.load_dataset returns, or write the "
                        "table again with Dataset.to_parquet of `datasets` 5 or later",
                        path, name, s->reader.unsupported);
    if (code == -ENOENT)
        return hr__fail(error, -EINVAL,
                        "%s: the column %s holds no image (all are null); if the table names files "
                        "of images, write it again with Dataset.push_to_hub, which embeds them",
                        path, name);
    if (code == -ENOTSUP)
        return hr__fail(error, code, "%s: the column %s is encrypted or in another file", path,
                        name);
    return hr__fail(error, code, "%s: cannot read the column %s: %s", path, name,
                    hr__errno_text(code));
}

/* Adds the samples of a row group. `labels` may be NULL. */
static int add_rows(struct parquet_scan *s, const struct hr__parquet_range *ranges,
                    const int64_t *labels, uint64_t count)
{
    const char *slash = strrchr(s->file->path, '/'), *base = slash ? slash + 1 : s->file->path;
    size_t length = strlen(base), suffix = sizeof SUFFIX - 1;
    if (length > suffix && !strcmp(base + length - suffix, SUFFIX))
        length -= suffix;
    for (uint64_t i = 0; i < count; i++, s->row++) {
        char name[512];
        struct hr__shard_sample piece = {
            .offset = ranges[i].offset, .bytes = ranges[i].bytes, .label = labels ? labels[i] : 0};
        snprintf(name, sizeof name, "%.*s/%06" PRIu64 "%s", (int)(length < 400 ? length : 400),
                 base, s->row, extension_of(ranges[i].first));
        s->nulls += ranges[i].is_null != 0;
        s->table->has_other_labels |=
            piece.label < 0 || (uint64_t)piece.label >= s->choice.classes.count;
        if (hr__shard_add(s->file, name, &piece))
            return -ENOMEM;
    }
    return 0;
}

static int read_group(struct parquet_scan *s, const struct hr__parquet_chunk *image,
                      const struct hr__parquet_chunk *label)
{
    const struct hr__parquet_column *columns = s->footer.columns;
    uint64_t count = image->values;
    int64_t *labels = NULL;
    /* an image takes a byte at least: this limits the memory for nulls that take nothing */
    if (count > s->file->file_bytes || (label && label->values != count))
        return cannot_read(s, s->choice.image, -EBADMSG);
    struct hr__parquet_range *ranges = hr__alloc(HR__TAG_DATASET, count + 1, sizeof *ranges);
    if (label)
        labels = hr__alloc(HR__TAG_DATASET, count + 1, sizeof *labels);
    int r = -ENOMEM;
    if (!ranges || (label && !labels))
        hr__fail(&s->file->error, r, "out of memory for the rows of %s", s->file->path);
    else if ((r = hr__parquet_read_ranges(&s->reader, &columns[s->choice.image], image, ranges)))
        r = cannot_read(s, s->choice.image, r);
    else if (label &&
             (r = hr__parquet_read_numbers(&s->reader, &columns[s->choice.label], label, labels)))
        r = cannot_read(s, s->choice.label, r);
    else
        r = add_rows(s, ranges, labels, count);
    hr__free(ranges);
    hr__free(labels);
    return r;
}

static int read_groups(struct parquet_scan *s)
{
    size_t count = s->footer.group_count;
    int has_label = s->choice.label != HR__PARQUET_NONE;
    struct hr__parquet_chunk *chunks = hr__alloc(HR__TAG_DATASET, 2 * count + 1, sizeof *chunks);
    struct hr__parquet_chunk *labels = chunks ? chunks + count : NULL;
    if (!chunks)
        return hr__fail(&s->file->error, -ENOMEM, "out of memory for the row groups of %s",
                        s->file->path);
    int r = hr__parquet_chunks(&s->footer, s->choice.image, chunks);
    if (r)
        cannot_read(s, s->choice.image, r);
    if (!r && has_label && (r = hr__parquet_chunks(&s->footer, s->choice.label, labels)))
        cannot_read(s, s->choice.label, r);
    for (size_t i = 0; !r && i < count; i++)
        r = hr__progress_cancelled(s->file->progress)
                ? -ECANCELED
                : read_group(s, &chunks[i], has_label ? &labels[i] : NULL);
    hr__free(chunks);
    if (!r && s->row != s->footer.rows)
        r = cannot_read(s, s->choice.image, -EBADMSG);
    return !r && s->row && s->nulls == s->row ? cannot_read(s, s->choice.image, -ENOENT) : r;
}

static int note_columns(struct parquet_scan *s)
{
    size_t label = s->choice.label;
    s->table->image = hr__strdup(HR__TAG_DATASET, s->footer.columns[s->choice.image].name);
    s->table->label =
        hr__strdup(HR__TAG_DATASET, label == HR__PARQUET_NONE ? "" : s->footer.columns[label].name);
    if (s->table->image && s->table->label)
        return 0;
    return hr__fail(&s->file->error, -ENOMEM, "out of memory for the columns of %s", s->file->path);
}

static int read_table(void *self, struct hr__shard *file, struct hr__byte_source *source)
{
    struct parquet_pass *pass = self;
    struct parquet_scan s = {.file = file, .table = &pass->tables[file->index]};
    uint8_t first[4];
    int r = hr__source_read(source, first, sizeof first, 0, &file->error);
    if (r && r != -ENODATA)
        return r;
    if (r || !hr__parquet_recognise(first, sizeof first))
        return hr__fail(&file->error, -ENOTSUP, "%s is not a Parquet file", file->path);
    if ((r = hr__parquet_footer_read(&s.footer, source, &file->error)))
        return r;
    if (source->http)
        source->ahead = HR__SHARD_AHEAD;
    r = hr__parquet_choose(&s.choice, &s.footer, pass->source, file->path, &file->error);
    if (!r)
        r = note_columns(&s);
    if (!r && (r = hr__parquet_reader_begin(&s.reader, source)))
        hr__fail(&file->error, r, "out of memory to read %s", file->path);
    if (!r)
        r = read_groups(&s);
    hr__parquet_reader_clear(&s.reader);
    s.table->classes = s.choice.classes;
    hr__parquet_footer_clear(&s.footer);
    return r;
}

static int same_names(const struct hr__names *a, const struct hr__names *b)
{
    return a->bytes == b->bytes && (!a->bytes || !memcmp(a->text, b->text, a->bytes));
}

/* Checks that all tables mean the same by a label. */
static int compare_tables(const struct parquet_table *tables, const struct hr__shard *files,
                          size_t count, struct hr_error *error)
{
    for (size_t i = 1; i < count; i++) {
        const struct parquet_table *a = &tables[0], *b = &tables[i];
        if (strcmp(a->image, b->image) || strcmp(a->label, b->label) ||
            !same_names(&a->classes, &b->classes))
            return hr__fail(error, -EINVAL,
                            "%s has other columns or classes than %s: they belong to different "
                            "datasets",
                            files[i].path, files[0].path);
    }
    return 0;
}

int hr__parquet_index(struct hr__catalog **out, const struct hr__shard_source *source,
                      struct hr_error *error)
{
    size_t count = source->count;
    struct parquet_pass pass = {.source = source};
    struct hr__shard *files = NULL;
    int has_other_labels = 0;
    *out = NULL;
    pass.tables = hr__alloc(HR__TAG_DATASET, count, sizeof *pass.tables);
    if (!pass.tables)
        return hr__fail(error, -ENOMEM, "out of memory for %zu tables", count);
    int r = hr__shard_collect(&files, source, read_table, &pass, error);
    if (!r)
        r = compare_tables(pass.tables, files, count, error);
    for (size_t i = 0; i < count; i++)
        has_other_labels |= pass.tables[i].has_other_labels;
    /* -1 is usual where labels are secret: the names would not cover it */
    if (!r)
        r = hr__shard_catalog(out, files, count, has_other_labels ? NULL : &pass.tables[0].classes,
                              error);
    for (size_t i = 0; i < count; i++) {
        hr__free(pass.tables[i].image);
        hr__free(pass.tables[i].label);
        hr__names_clear(&pass.tables[i].classes);
    }
    hr__free(pass.tables);
    hr__shard_free(files, count);
    return r;
}
