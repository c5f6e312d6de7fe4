/* Reads the footers of Parquet files; see parquet_footer.h. A file ends with the footer, its length
 * in 4 bytes, and "PAR1". */
#include "dataset/parquet_footer.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/thrift.h"
#include "storage/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC     "PAR1"
#define ENCRYPTED "PARE"
#define TAIL      8 /* bytes after the footer */

/* The most bytes of a footer. Those of tables of a terabyte have some ten millions; a length that
 * damage made must not be allocated, nor fetched over a network. */
#define FOOTER_MOST ((size_t)256 << 20)

#define DEPTH_MOST  32   /* of the schema */
#define NAME_MOST   1024 /* bytes of a column's name, with its groups */
#define COLUMN_MOST 100000

/* repetition_type */
enum parquet_repetition { OPTIONAL = 1, REPEATED = 2 };

/* converted_type */
#define UINT_8 11
#define INT_64 18

int hr__parquet_recognise(const void *bytes, size_t length)
{
    return length >= 4 && (!memcmp(bytes, MAGIC, 4) || !memcmp(bytes, ENCRYPTED, 4));
}

/* An element of the schema. The tree is stored depth first. */
struct parquet_element {
    struct hr__thrift_text name;
    int type, repetition;
    int64_t children; /* 0: a column */
    int converted;    /* -1: none */
    int logical;      /* field of LogicalType; 0: none */
};

static int read_logical(struct hr__thrift *t, const struct hr__thrift_field *f)
{
    struct hr__thrift_field g = {0, 0};
    int logical = 0;
    if (!hr__thrift_struct(t, f))
        return 0;
    while (hr__thrift_next(t, &g)) {
        logical = g.id;
        hr__thrift_skip(t, &g);
    }
    return logical;
}

static struct parquet_element read_element(struct hr__thrift *t, const struct hr__thrift_field *f)
{
    struct parquet_element e = {.type = -1, .converted = -1};
    struct hr__thrift_field g = {0, 0};
    if (!hr__thrift_struct(t, f))
        return e;
    while (hr__thrift_next(t, &g))
        switch (g.id) {
        case 1:
            e.type = (int)hr__thrift_integer(t, &g);
            break;
        case 3:
            e.repetition = (int)hr__thrift_integer(t, &g);
            break;
        case 4:
            e.name = hr__thrift_text(t, &g);
            break;
        case 5:
            e.children = hr__thrift_integer(t, &g);
            break;
        case 6:
            e.converted = (int)hr__thrift_integer(t, &g);
            break;
        case 10:
            e.logical = read_logical(t, &g);
            break;
        default:
            hr__thrift_skip(t, &g);
        }
    return e;
}

static enum hr__parquet_kind kind_of(const struct parquet_element *e)
{
    const int logical_integer = 10;
    if (e->converted >= UINT_8 && e->converted <= INT_64)
        return e->converted < UINT_8 + 4 ? HR__PARQUET_UNSIGNED : HR__PARQUET_PLAIN;
    if (e->converted >= 0 || (e->logical && e->logical != logical_integer))
        return HR__PARQUET_OTHER;
    return HR__PARQUET_PLAIN;
}

/* The groups around the next element. */
struct parquet_schema {
    struct hr__parquet_footer *footer;
    char name[NAME_MOST];
    struct {
        int64_t left;  /* children that follow */
        size_t length; /* of the name */
        int definitions, repeated;
    } groups[DEPTH_MOST];
    size_t depth;
};

/* Takes an element: opens a group or adds a column. Returns 0, -EBADMSG or -ENOMEM. */
static int take_element(struct parquet_schema *s, const struct parquet_element *e)
{
    while (s->depth && !s->groups[s->depth - 1].left)
        s->depth--;
    if (!s->depth)
        return -EBADMSG;
    __typeof__(s->groups[0]) *group = &s->groups[s->depth - 1], inner = *group;
    group->left--;
    size_t dot = group->length != 0, length = group->length + dot + e->name.length;
    if (!e->name.bytes || length >= sizeof s->name || memchr(e->name.bytes, 0, e->name.length))
        return -EBADMSG;
    if (dot)
        s->name[group->length] = '.';
    memcpy(s->name + group->length + dot, e->name.bytes, e->name.length);
    s->name[length] = 0;
    inner.left = e->children;
    inner.length = length;
    inner.definitions += e->repetition == OPTIONAL || e->repetition == REPEATED;
    inner.repeated |= e->repetition == REPEATED;
    if (e->children) {
        if (s->depth == DEPTH_MOST)
            return -EBADMSG;
        s->groups[s->depth++] = inner;
        return 0;
    }
    struct hr__parquet_footer *f = s->footer;
    char *name = hr__strdup(HR__TAG_DATASET, s->name);
    if (!name || hr__reserve(HR__TAG_DATASET, &f->columns, f->column_count + 1)) {
        hr__free(name);
        return -ENOMEM;
    }
    f->columns[f->column_count++] =
        (struct hr__parquet_column){name, kind_of(e), e->type, inner.definitions, inner.repeated};
    return 0;
}

static int read_schema(struct hr__parquet_footer *footer, struct hr__thrift *t,
                       const struct hr__thrift_field *f)
{
    struct parquet_schema s = {.footer = footer};
    struct hr__thrift_field element;
    size_t count = hr__thrift_list(t, f, &element);
    int r = !count || count > COLUMN_MOST || footer->columns ? -EBADMSG : 0;
    for (size_t i = 0; !r && i < count; i++) {
        struct parquet_element e = read_element(t, &element);
        if (t->bad || e.children < 0)
            r = -EBADMSG;
        else if (i)
            r = take_element(&s, &e);
        else {
            s.groups[0].left = e.children;
            s.depth = 1;
        }
    }
    return r;
}

/* Reads the key-value pairs, and keeps the one of Hugging Face. */
static int read_pairs(struct hr__parquet_footer *footer, struct hr__thrift *t,
                      const struct hr__thrift_field *f)
{
    static const char wanted[] = "huggingface";
    struct hr__thrift_field element;
    size_t count = hr__thrift_list(t, f, &element);
    for (size_t i = 0; i < count && !t->bad; i++) {
        struct hr__thrift_text key = {"", 0}, value = {"", 0};
        struct hr__thrift_field g = {0, 0};
        hr__thrift_struct(t, &element);
        while (hr__thrift_next(t, &g))
            if (g.id == 1)
                key = hr__thrift_text(t, &g);
            else if (g.id == 2)
                value = hr__thrift_text(t, &g);
            else
                hr__thrift_skip(t, &g);
        if (key.length != sizeof wanted - 1 || memcmp(key.bytes, wanted, key.length) ||
            footer->features)
            continue;
        footer->features = hr__alloc(HR__TAG_DATASET, value.length + 1, 1);
        if (!footer->features)
            return -ENOMEM;
        memcpy(footer->features, value.bytes, value.length);
    }
    return 0;
}

static int parse(struct hr__parquet_footer *footer)
{
    struct hr__thrift t = {footer->bytes, footer->bytes + footer->length, 0};
    struct hr__thrift_field f = {0, 0}, element;
    int64_t rows = -1;
    int r = 0, encrypted = 0;
    while (!r && hr__thrift_next(&t, &f))
        if (f.id == 2) {
            r = read_schema(footer, &t, &f);
        } else if (f.id == 3) {
            rows = hr__thrift_integer(&t, &f);
        } else if (f.id == 4) {
            footer->group_count = hr__thrift_list(&t, &f, &element);
            for (size_t i = 0; i < footer->group_count; i++)
                hr__thrift_skip(&t, &element);
        } else if (f.id == 5) {
            r = read_pairs(footer, &t, &f);
        } else {
            encrypted |= f.id == 8;
            hr__thrift_skip(&t, &f);
        }
    if (!r && (t.bad || rows < 0 || !footer->columns))
        r = -EBADMSG;
    footer->rows = (uint64_t)rows;
    return r ? r : encrypted ? -ENOTSUP : 0;
}

int hr__parquet_footer_read(struct hr__parquet_footer *out, struct hr__byte_source *source,
                            struct hr_error *error)
{
    const char *path = source->path;
    uint64_t file_bytes = source->bytes;
    struct hr__parquet_footer f = {.bytes = NULL};
    uint8_t tail[TAIL] = {0};
    *out = f;
    int r = file_bytes < 4 + TAIL
                ? -ENODATA
                : hr__source_read(source, tail, sizeof tail, file_bytes - TAIL, error);
    if (r && r != -ENODATA)
        return r;
    int encrypted = !memcmp(tail + 4, ENCRYPTED, 4);
    f.length = tail[0] | (size_t)tail[1] << 8 | (size_t)tail[2] << 16 | (size_t)tail[3] << 24;
    if (r || (memcmp(tail + 4, MAGIC, 4) && !encrypted) || f.length > file_bytes - TAIL - 4)
        return hr__fail(error, -EBADMSG,
                        "%s does not end like a Parquet file: it is cut off; copy "
                        "it again",
                        path);
    if (f.length > FOOTER_MOST)
        return hr__fail(error, -EBADMSG,
                        "%s says that its footer has %zu bytes, and at most %zu are read: if it is "
                        "not damaged, write it again as several tables, or with larger row groups",
                        path, f.length, FOOTER_MOST);
    f.end = file_bytes - TAIL - f.length;
    if (!encrypted && !(f.bytes = hr__alloc(HR__TAG_DATASET, f.length + 1, 1)))
        return hr__fail(error, -ENOMEM, "out of memory for the footer of %s", path);
    int is_read = 0;
    r = encrypted ? -ENOTSUP : hr__source_read(source, f.bytes, f.length, f.end, error);
    if (!r) {
        is_read = 1;
        r = parse(&f);
    }
    if (!r) {
        *out = f;
        return 0;
    }
    hr__parquet_footer_clear(&f);
    if (r == -ENOTSUP)
        return hr__fail(error, r, "%s is encrypted: write it again without encryption", path);
    if (r == -EBADMSG || r == -ENODATA)
        return hr__fail(error, -EBADMSG, "%s: its footer is damaged; copy it again", path);
    return is_read ? hr__fail(error, r, "cannot read %s: %s", path, hr__errno_text(r)) : r;
}

void hr__parquet_footer_clear(struct hr__parquet_footer *footer)
{
    for (size_t i = 0; i < footer->column_count; i++)
        hr__free(footer->columns[i].name);
    hr__free(footer->columns);
    hr__free(footer->features);
    hr__free(footer->bytes);
    *footer = (struct hr__parquet_footer){.bytes = NULL};
}

/* Reads ColumnMetaData. */
static int read_metadata(struct hr__parquet_chunk *chunk, struct hr__thrift *t,
                         const struct hr__thrift_field *f)
{
    struct hr__thrift_field g = {0, 0};
    int64_t values = -1, bytes = -1, data = -1, dictionary = 0;
    if (!hr__thrift_struct(t, f))
        return -EBADMSG;
    while (hr__thrift_next(t, &g))
        if (g.id == 4)
            chunk->codec = (int)hr__thrift_integer(t, &g);
        else if (g.id == 5)
            values = hr__thrift_integer(t, &g);
        else if (g.id == 7)
            bytes = hr__thrift_integer(t, &g);
        else if (g.id == 9)
            data = hr__thrift_integer(t, &g);
        else if (g.id == 11)
            dictionary = hr__thrift_integer(t, &g);
        else
            hr__thrift_skip(t, &g);
    if (values < 0 || bytes < 0 || data < 0)
        return -EBADMSG;
    chunk->start = (uint64_t)(dictionary > 0 && dictionary < data ? dictionary : data);
    chunk->end = chunk->start + (uint64_t)bytes; /* both are below 2^63 */
    chunk->values = (uint64_t)values;
    return 0;
}

/* Reads ColumnChunk. */
static int read_chunk(struct hr__parquet_chunk *chunk, struct hr__thrift *t,
                      const struct hr__thrift_field *f)
{
    struct hr__thrift_field g = {0, 0};
    int r = -EBADMSG, elsewhere = 0;
    if (!hr__thrift_struct(t, f))
        return r;
    while (hr__thrift_next(t, &g))
        if (g.id == 3) {
            r = read_metadata(chunk, t, &g);
        } else {
            /* 1: in another file; 8, 9: encrypted */
            elsewhere |= g.id == 1 || g.id == 8 || g.id == 9;
            hr__thrift_skip(t, &g);
        }
    return elsewhere ? -ENOTSUP : r;
}

/* Reads RowGroup. */
static int read_group(struct hr__parquet_chunk *chunk, size_t column, struct hr__thrift *t,
                      const struct hr__thrift_field *f)
{
    struct hr__thrift_field g = {0, 0}, element;
    int r = -EBADMSG;
    if (!hr__thrift_struct(t, f))
        return r;
    while (hr__thrift_next(t, &g)) {
        size_t count = g.id == 1 ? hr__thrift_list(t, &g, &element) : 0;
        for (size_t i = 0; i < count; i++)
            if (i == column)
                r = read_chunk(chunk, t, &element);
            else
                hr__thrift_skip(t, &element);
        if (g.id != 1)
            hr__thrift_skip(t, &g);
    }
    return r;
}

int hr__parquet_chunks(const struct hr__parquet_footer *footer, size_t column,
                       struct hr__parquet_chunk *chunks)
{
    struct hr__thrift t = {footer->bytes, footer->bytes + footer->length, 0};
    struct hr__thrift_field f = {0, 0}, element;
    int r = 0;
    while (!r && hr__thrift_next(&t, &f)) {
        size_t count = f.id == 4 ? hr__thrift_list(&t, &f, &element) : 0;
        /* a second list would not fit */
        if (count > footer->group_count)
            return -EBADMSG;
        for (size_t i = 0; !r && i < count; i++) {
            chunks[i] = (struct hr__parquet_chunk){0};
            r = read_group(&chunks[i], column, &t, &element);
            if (!r && (chunks[i].start > footer->end || chunks[i].end > footer->end))
                r = -EBADMSG;
        }
        if (f.id != 4)
            hr__thrift_skip(&t, &f);
    }
    return r ? r : t.bad ? -EBADMSG : 0;
}
