/*
 * Reads pages of Parquet files; see parquet_pages.h. A chunk of a column is a series of pages, each
 * after its header: at most one with a dictionary, then those with values. A page with values holds
 * the definition levels, which tell nulls, and then the values that are not null, or their numbers
 * in the dictionary.
 */
#include "dataset/parquet_pages.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/snappy.h"
#include "dataset/thrift.h"
#include "storage/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WINDOW_BYTES 65536 /* also the most that the header of a page may have */
#define SMALL_BYTES  4096  /* read at once if values are larger than this */
#define CODEC_SNAPPY 1
#define CODECS       8
#define ENCODINGS    10
#define LENGTH_BYTES 4 /* before each value of a BYTE_ARRAY */

enum parquet_page_type { DATA_PAGE = 0, DICTIONARY_PAGE = 2, DATA_PAGE_V2 = 3 };
enum parquet_encoding { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, RLE_DICTIONARY = 8 };

/* The header of a page. */
struct parquet_page {
    int64_t type, size, stored; /* bytes of the body: as such, and in the file */
    int64_t values, encoding, level_encoding;
    int64_t level_bytes, repetition_bytes; /* DATA_PAGE_V2 */
    int is_compressed;                     /* DATA_PAGE_V2 */
    uint64_t body;                         /* offset in the file */
};

/* A sequence of small numbers: runs of equal ones, and groups of eight packed into bits. */
struct parquet_runs {
    struct hr__thrift in;
    unsigned width; /* bits of a number, up to 32 */
    uint64_t left;  /* of the current run */
    int packed;     /* the run has numbers of its own, from bit `bit` of `in` */
    unsigned bit;
    uint32_t value; /* otherwise: all of this one */
};

/* A page whose values are read next. */
struct parquet_body {
    uint8_t *memory; /* owned */
    struct parquet_runs levels, indices;
    const uint8_t *at, *end; /* plain numbers */
    uint64_t from, to;       /* plain ranges: in the file */
};

/* A column of one row group. */
struct parquet_values {
    struct hr__parquet_reader *reader;
    const struct hr__parquet_column *column;
    const struct hr__parquet_chunk *chunk;
    uint64_t at;                      /* of the next page */
    struct hr__parquet_range *ranges; /* where results go: one of both */
    int64_t *numbers;
    struct hr__parquet_range *range_words; /* the dictionary; owned */
    int64_t *number_words;
    uint64_t words;
};

int hr__parquet_reader_begin(struct hr__parquet_reader *reader, struct hr__byte_source *source)
{
    *reader = (struct hr__parquet_reader){.source = source};
    reader->window = hr__alloc(HR__TAG_DATASET, WINDOW_BYTES, 1);
    return reader->window ? 0 : -ENOMEM;
}

void hr__parquet_reader_clear(struct hr__parquet_reader *reader)
{
    hr__free(reader->window);
    reader->window = NULL;
}

/* Points *out at `bytes` bytes of the file (up to WINDOW_BYTES), and reads `ahead` at once if they
 * are not there yet. Returns 0; -EBADMSG: the file ends before; or another negative errno. */
static int look(struct hr__parquet_reader *r, uint64_t offset, size_t bytes, size_t ahead,
                const uint8_t **out)
{
    *out = r->window;
    if (offset < r->start || offset - r->start > r->length ||
        r->length - (offset - r->start) < bytes) {
        int64_t got = hr__source_read_at(r->source, r->window, ahead > bytes ? ahead : bytes,
                                         offset, &r->why);
        if (got < 0)
            return (int)got;
        r->start = offset;
        r->length = (uint64_t)got;
        if (r->length < bytes)
            return -EBADMSG;
    }
    *out = r->window + (offset - r->start);
    return 0;
}

static int unsupported(struct hr__parquet_reader *r, const char *what, int64_t code)
{
    static const char *const codecs[CODECS] = {NULL,     "SNAPPY", "GZIP", "LZO",
                                               "BROTLI", "LZ4",    "ZSTD", "LZ4_RAW"};
    static const char *const encodings[ENCODINGS] = {[4] = "BIT_PACKED",
                                                     [5] = "DELTA_BINARY_PACKED",
                                                     [6] = "DELTA_LENGTH_BYTE_ARRAY",
                                                     [7] = "DELTA_BYTE_ARRAY",
                                                     [9] = "BYTE_STREAM_SPLIT"};
    int is_codec = what[0] == 'c';
    const char *const *names = is_codec ? codecs : encodings;
    const char *name = code >= 0 && code < (is_codec ? CODECS : ENCODINGS) && names[code]
                           ? names[code]
                           : "another";
    snprintf(r->unsupported, sizeof r->unsupported, "is %s %s", what, name);
    return -ENOTSUP;
}

static uint32_t number_32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Reads DataPageHeader, DictionaryPageHeader or DataPageHeaderV2. */
static void read_details(struct parquet_page *p, struct hr__thrift *t,
                         const struct hr__thrift_field *f)
{
    struct hr__thrift_field g = {0, 0};
    if (!hr__thrift_struct(t, f))
        return;
    while (hr__thrift_next(t, &g))
        if (g.id == 1)
            p->values = hr__thrift_integer(t, &g);
        else if (g.id == (f->id == 8 ? 4 : 2))
            p->encoding = hr__thrift_integer(t, &g);
        else if (f->id == 5 && g.id == 3)
            p->level_encoding = hr__thrift_integer(t, &g);
        else if (f->id == 8 && g.id == 5)
            p->level_bytes = hr__thrift_integer(t, &g);
        else if (f->id == 8 && g.id == 6)
            p->repetition_bytes = hr__thrift_integer(t, &g);
        else if (f->id == 8 && g.id == 7)
            p->is_compressed = hr__thrift_bool(t, &g);
        else
            hr__thrift_skip(t, &g);
}

/* Parses a header. Returns its bytes, or 0. */
static size_t parse_header(struct parquet_page *p, const uint8_t *bytes, size_t length)
{
    struct hr__thrift t = {bytes, bytes + length, 0};
    struct hr__thrift_field f = {0, 0};
    *p = (struct parquet_page){.type = -1,
                               .size = -1,
                               .stored = -1,
                               .values = -1,
                               .level_encoding = RLE,
                               .is_compressed = 1};
    while (hr__thrift_next(&t, &f)) {
        /* the details of the page's own type: its data, dictionary or data of version 2 */
        int own = f.id == (p->type == DATA_PAGE ? 5 : p->type == DICTIONARY_PAGE ? 7 : 8);
        if (f.id == 1)
            p->type = hr__thrift_integer(&t, &f);
        else if (f.id == 2)
            p->size = hr__thrift_integer(&t, &f);
        else if (f.id == 3)
            p->stored = hr__thrift_integer(&t, &f);
        else if (own)
            read_details(p, &t, &f);
        else
            hr__thrift_skip(&t, &f);
    }
    return t.bad ? 0 : (size_t)(t.at - bytes);
}

/* Reads the header of the next page, and moves past the page. */
static int next_page(struct parquet_values *v, struct parquet_page *p)
{
    uint64_t left = v->chunk->end - v->at;
    const uint8_t *bytes;
    size_t used = 0;
    for (size_t length = SMALL_BYTES; !used && length <= WINDOW_BYTES; length *= 16) {
        size_t most = length < left ? length : (size_t)left;
        int r = most ? look(v->reader, v->at, most, most, &bytes) : -EBADMSG;
        if (r)
            return r;
        used = parse_header(p, bytes, most);
    }
    if (!used || p->size < 0 || p->stored < 0 || (uint64_t)p->stored > left - used)
        return -EBADMSG;
    p->body = v->at + used;
    v->at = p->body + (uint64_t)p->stored;
    int compressed = v->chunk->codec && (p->type != DATA_PAGE_V2 || p->is_compressed);
    p->is_compressed = compressed;
    if (p->type != DATA_PAGE && p->type != DICTIONARY_PAGE && p->type != DATA_PAGE_V2)
        return 0; /* has no values */
    if (compressed && (v->ranges || v->chunk->codec != CODEC_SNAPPY))
        return unsupported(v->reader, "compressed with", v->chunk->codec);
    if (p->values < 0 || p->level_bytes < 0 || p->level_bytes > p->size ||
        p->level_bytes > p->stored || p->repetition_bytes || (!compressed && p->size != p->stored))
        return -EBADMSG;
    return 0;
}

/* Loads the first `bytes` of the body, decompressed; all of them if it is compressed. The caller
 * frees *out. */
static int load(const struct parquet_values *v, const struct parquet_page *p, uint64_t bytes,
                uint8_t **out)
{
    uint64_t plain = (uint64_t)p->level_bytes; /* never compressed */
    uint64_t packed = (uint64_t)p->stored - plain, size = (uint64_t)p->size - plain;
    *out = NULL;
    if (p->is_compressed && size > hr__snappy_most(packed))
        return -EBADMSG;
    uint8_t *body = hr__alloc(HR__TAG_DATASET, bytes + 1, 1), *block = NULL;
    int r = body ? 0 : -ENOMEM;
    if (!r)
        r = hr__source_read(v->reader->source, body, p->is_compressed ? plain : bytes, p->body,
                            &v->reader->why);
    if (!r && p->is_compressed) {
        block = hr__alloc(HR__TAG_DATASET, packed + 1, 1);
        r = block ? hr__source_read(v->reader->source, block, packed, p->body + plain,
                                    &v->reader->why)
                  : -ENOMEM;
        /* a body without values may be stored as nothing */
        if (!r && (packed || size))
            r = hr__snappy_decompress(body + plain, size, block, packed);
        hr__free(block);
    }
    if (r)
        hr__free(body);
    else
        *out = body;
    return r == -ENODATA ? -EBADMSG : r;
}

static unsigned bits_of(unsigned most)
{
    return most ? 32u - (unsigned)__builtin_clz(most) : 0;
}

static struct parquet_runs runs_of(const uint8_t *from, const uint8_t *end, unsigned width)
{
    return (struct parquet_runs){.in = {from, end, 0}, .width = width};
}

/* Begins the next run. */
static int next_run(struct parquet_runs *s)
{
    if (s->packed) /* groups of eight end with a whole byte */
        s->in.at += s->bit / 8;
    uint64_t head = s->in.at < s->in.end ? hr__thrift_varint(&s->in) : 0;
    s->packed = head & 1;
    s->left = head >> 1;
    s->bit = 0;
    s->value = 0;
    if (s->in.bad || !s->left)
        return -EBADMSG;
    if (s->packed) {
        if (s->left > UINT32_MAX / 8 / 32 || s->left * s->width > (uint64_t)(s->in.end - s->in.at))
            return -EBADMSG;
        s->left *= 8;
        return 0;
    }
    unsigned bytes = (s->width + 7) / 8;
    if ((size_t)(s->in.end - s->in.at) < bytes)
        return -EBADMSG;
    for (unsigned i = 0; i < bytes; i++)
        s->value |= (uint32_t)*s->in.at++ << 8 * i;
    return 0;
}

/* Reads the next number. Returns 0 or -EBADMSG. */
static int next_of(struct parquet_runs *s, uint32_t *value)
{
    int r = s->left ? 0 : next_run(s);
    if (r)
        return r;
    s->left--;
    *value = s->value;
    if (s->packed) {
        uint64_t word = 0;
        const uint8_t *at = s->in.at + s->bit / 8;
        for (unsigned i = 0; i < 5 && at + i < s->in.end; i++)
            word |= (uint64_t)at[i] << 8 * i;
        *value = (uint32_t)(word >> s->bit % 8 & ((UINT64_C(1) << s->width) - 1));
        s->bit += s->width;
    }
    return 0;
}

static int is_dictionary(int64_t encoding)
{
    return encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY;
}

/* Finds the levels and values of a page. On success the caller frees b->memory. */
static int open_body(const struct parquet_values *v, const struct parquet_page *p,
                     struct parquet_body *b)
{
    unsigned definitions = (unsigned)v->column->definitions;
    uint64_t size = (uint64_t)p->size, levels = (uint64_t)p->level_bytes;
    int has_length = p->type == DATA_PAGE && definitions;
    int in_file = v->ranges && p->encoding == PLAIN;
    *b = (struct parquet_body){.memory = NULL};
    if (p->encoding != PLAIN && !is_dictionary(p->encoding))
        return unsupported(v->reader, "encoded as", p->encoding);
    if (has_length && p->level_encoding != RLE)
        return unsupported(v->reader, "encoded with levels as", p->level_encoding);
    if (has_length && size < LENGTH_BYTES)
        return -EBADMSG;
    if (has_length && in_file) {
        const uint8_t *at;
        int r = look(v->reader, p->body, LENGTH_BYTES, SMALL_BYTES, &at);
        if (r)
            return r;
        levels = number_32(at);
    }
    uint64_t most = size - (has_length ? LENGTH_BYTES : 0);
    if (levels > most)
        return -EBADMSG;
    int r = load(v, p, in_file ? levels + (size - most) : size, &b->memory);
    if (r)
        return r;
    if (has_length && !in_file) /* otherwise it is known, and the file may have changed since */
        levels = number_32(b->memory);
    if (levels > most) {
        hr__free(b->memory);
        return -EBADMSG;
    }
    uint64_t begin = has_length ? LENGTH_BYTES : 0;
    b->levels = runs_of(b->memory + begin, b->memory + begin + levels, bits_of(definitions));
    b->from = p->body + begin + levels;
    b->to = p->body + size;
    if (!in_file) {
        b->at = b->memory + begin + levels;
        b->end = b->memory + size;
        if (is_dictionary(p->encoding)) {
            unsigned width = b->at < b->end ? *b->at++ : 0;
            b->indices = runs_of(b->at, b->end, width <= 32 ? width : 32);
        }
    }
    return 0;
}

/* Reads the length of the range at *from, before `to`, and its first bytes. */
static int take_range(struct hr__parquet_reader *reader, uint64_t *from, uint64_t to, size_t ahead,
                      struct hr__parquet_range *out)
{
    const uint8_t *at;
    if (to - *from < LENGTH_BYTES)
        return -EBADMSG;
    size_t most = LENGTH_BYTES + HR__PARQUET_FIRST;
    if (to - *from < most)
        most = (size_t)(to - *from);
    int r = look(reader, *from, most, ahead, &at);
    if (r)
        return r;
    uint64_t bytes = number_32(at);
    *from += LENGTH_BYTES;
    if (bytes > to - *from)
        return -EBADMSG;
    *out = (struct hr__parquet_range){.offset = *from, .bytes = bytes};
    most -= LENGTH_BYTES;
    memcpy(out->first, at + LENGTH_BYTES, bytes < most ? bytes : most);
    *from += bytes;
    return 0;
}

static int take_number(const struct hr__parquet_column *c, struct parquet_body *b, int64_t *out)
{
    size_t bytes = c->type == HR__PARQUET_INT32 ? 4 : 8;
    if ((size_t)(b->end - b->at) < bytes)
        return -EBADMSG;
    uint64_t low = number_32(b->at);
    if (bytes == 8)
        low |= (uint64_t)number_32(b->at + 4) << 32;
    else if (c->kind != HR__PARQUET_UNSIGNED)
        low = (uint64_t)(int64_t)(int32_t)low;
    b->at += bytes;
    *out = (int64_t)low;
    return c->kind == HR__PARQUET_UNSIGNED && *out < 0 ? -ERANGE : 0;
}

/* Returns how much to read at once: the lengths of large values are far apart. */
static size_t ahead_of(uint64_t bytes)
{
    return bytes > SMALL_BYTES ? SMALL_BYTES : WINDOW_BYTES;
}

static int read_dictionary(struct parquet_values *v, const struct parquet_page *p)
{
    uint64_t least = v->ranges ? LENGTH_BYTES : v->column->type == HR__PARQUET_INT32 ? 4 : 8;
    uint64_t from = p->body, to = p->body + (uint64_t)p->size, last = 0;
    uint64_t words = (uint64_t)p->values;
    if (v->words || v->range_words || v->number_words || words > (uint64_t)p->size / least)
        return -EBADMSG;
    if (p->encoding != PLAIN && p->encoding != PLAIN_DICTIONARY)
        return unsupported(v->reader, "encoded as", p->encoding);
    int r = 0;
    if (v->ranges) {
        v->range_words = hr__alloc(HR__TAG_DATASET, words + 1, sizeof *v->range_words);
        r = v->range_words ? 0 : -ENOMEM;
        for (uint64_t i = 0; !r && i < words; i++) {
            r = take_range(v->reader, &from, to, ahead_of(last), &v->range_words[i]);
            last = v->range_words[i].bytes;
        }
    } else {
        struct parquet_body b = {.memory = NULL};
        v->number_words = hr__alloc(HR__TAG_DATASET, words + 1, sizeof *v->number_words);
        r = v->number_words ? load(v, p, (uint64_t)p->size, &b.memory) : -ENOMEM;
        b.at = b.memory;
        b.end = r ? b.at : b.at + p->size;
        for (uint64_t i = 0; !r && i < words; i++)
            r = take_number(v->column, &b, &v->number_words[i]);
        hr__free(b.memory);
    }
    v->words = words;
    return r;
}

/* Reads value `i` of the chunk, which is not null. */
static int take(struct parquet_values *v, struct parquet_body *b, int64_t encoding, uint64_t i)
{
    if (is_dictionary(encoding)) {
        uint32_t word;
        int r = next_of(&b->indices, &word);
        if (r || word >= v->words)
            return -EBADMSG;
        if (v->ranges)
            v->ranges[i] = v->range_words[word];
        else
            v->numbers[i] = v->number_words[word];
        return 0;
    }
    return v->ranges ? take_range(v->reader, &b->from, b->to,
                                  ahead_of(i ? v->ranges[i - 1].bytes : 0), &v->ranges[i])
                     : take_number(v->column, b, &v->numbers[i]);
}

static int read_values(struct parquet_values *v, const struct parquet_page *p, uint64_t done)
{
    struct parquet_body b;
    uint32_t definitions = (uint32_t)v->column->definitions, level = 0;
    int r = open_body(v, p, &b);
    if (r)
        return r;
    for (uint64_t i = done; !r && i < done + (uint64_t)p->values; i++) {
        if (definitions)
            r = next_of(&b.levels, &level);
        if (r)
            break;
        if (level == definitions)
            r = take(v, &b, p->encoding, i);
        else if (level > definitions)
            r = -EBADMSG;
        else if (v->numbers)
            r = -ENODATA;
        else
            v->ranges[i] = (struct hr__parquet_range){.offset = b.from, .is_null = 1};
    }
    hr__free(b.memory);
    return r;
}

static int read_all(struct parquet_values *v)
{
    uint64_t done = 0;
    int r = 0;
    v->at = v->chunk->start;
    while (!r && done < v->chunk->values) {
        struct parquet_page p;
        r = next_page(v, &p);
        if (r)
            break;
        if (p.type == DICTIONARY_PAGE)
            r = read_dictionary(v, &p);
        else if (p.type == DATA_PAGE || p.type == DATA_PAGE_V2) {
            if ((uint64_t)p.values > v->chunk->values - done)
                r = -EBADMSG;
            else
                r = read_values(v, &p, done);
            done += (uint64_t)p.values;
        }
    }
    hr__free(v->range_words);
    hr__free(v->number_words);
    return r;
}

int hr__parquet_read_ranges(struct hr__parquet_reader *reader,
                            const struct hr__parquet_column *column,
                            const struct hr__parquet_chunk *chunk, struct hr__parquet_range *out)
{
    struct parquet_values v = {.reader = reader, .column = column, .chunk = chunk, .ranges = out};
    return read_all(&v);
}

int hr__parquet_read_numbers(struct hr__parquet_reader *reader,
                             const struct hr__parquet_column *column,
                             const struct hr__parquet_chunk *chunk, int64_t *out)
{
    struct parquet_values v = {.reader = reader, .column = column, .chunk = chunk, .numbers = out};
    return read_all(&v);
}
