/*
 * Reads pickles of plain values; see pickle.h.
 *
 * Opcodes are a table of small functions. All values are in an arena that is freed as a whole. A
 * growing list leaves its old space unused there, at most as much again.
 */
#include "memory/import/pickle.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BYTES_MOST  (UINT64_C(8) << 30) /* total size of the values */
#define TEXT_MOST   (16u << 20)         /* size of one text */
#define CHUNK_BYTES (128u << 10)

struct pickle_chunk {
    struct pickle_chunk *next;
    size_t used, room; /* bytes after this header */
};

struct hr__pickle {
    struct pickle_chunk *chunks; /* the first one is being filled */
    uint64_t bytes;
    struct hr__pickle_value root;
};

struct values {
    struct hr__pickle_value *items;
    size_t count;
};

struct reader {
    struct hr__input *in;
    struct hr_error *error;
    struct hr__pickle *out;
    struct values stack, memo;
    size_t *marks; /* heights of the stack at its marks */
    size_t mark_count;
    uint64_t at; /* offset of the current opcode */
    uint8_t opcode;
    int is_done;
};

struct opcode {
    const char *name;
    int (*run)(struct reader *r, unsigned arg);
    unsigned arg;
};

static const struct opcode opcodes[256];

/* ---- errors ---- */

static int bad(struct reader *r, const char *what)
{
    return hr__fail(r->error, -EBADMSG, "%s: byte %" PRIu64 ": opcode %s: %s", r->in->name, r->at,
                    opcodes[r->opcode].name, what);
}

static int no_memory(struct reader *r)
{
    return hr__fail(r->error, -ENOMEM, "%s: byte %" PRIu64 ": out of memory for what it holds",
                    r->in->name, r->at);
}

static int ended(struct reader *r)
{
    return hr__input_ended(r->in, "a pickle", r->error);
}

/* ---- memory ---- */

static void *take(struct reader *r, size_t bytes)
{
    struct hr__pickle *p = r->out;
    bytes = (bytes + 7) / 8 * 8;
    struct pickle_chunk *chunk = p->chunks;
    if (!chunk || chunk->room - chunk->used < bytes) {
        size_t room = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
        if (p->bytes + room > BYTES_MOST)
            return NULL;
        chunk = hr__alloc(HR__TAG_MEMORY, 1, sizeof *chunk + room);
        if (!chunk)
            return NULL;
        p->bytes += room;
        chunk->room = room;
        /* A large item gets a chunk of its own; keep the one being filled in front. */
        if (p->chunks && room != CHUNK_BYTES) {
            chunk->next = p->chunks->next;
            p->chunks->next = chunk;
        } else {
            chunk->next = p->chunks;
            p->chunks = chunk;
        }
    }
    void *memory = (char *)(chunk + 1) + chunk->used;
    chunk->used += bytes;
    return memory;
}

/* ---- the stack ---- */

static int push(struct reader *r, struct hr__pickle_value value)
{
    struct values *s = &r->stack;
    if (s->count * sizeof value > BYTES_MOST / 4 ||
        hr__reserve(HR__TAG_MEMORY, &s->items, s->count + 1))
        return no_memory(r);
    s->items[s->count++] = value;
    return 0;
}

/* Returns the height below which an opcode must not reach: that of the last mark. */
static size_t bottom(const struct reader *r)
{
    return r->mark_count ? r->marks[r->mark_count - 1] : 0;
}

/* Returns the topmost `count` values; NULL: there are fewer. */
static struct hr__pickle_value *top(struct reader *r, size_t count)
{
    return r->stack.count - bottom(r) >= count ? r->stack.items + r->stack.count - count : NULL;
}

static int op_mark(struct reader *r, unsigned arg)
{
    (void)arg;
    if (hr__reserve(HR__TAG_MEMORY, &r->marks, r->mark_count + 1))
        return no_memory(r);
    r->marks[r->mark_count++] = r->stack.count;
    return 0;
}

static int op_pop(struct reader *r, unsigned arg)
{
    (void)arg;
    if (top(r, 1))
        r->stack.count--;
    else if (r->mark_count)
        r->mark_count--;
    else
        return bad(r, "nothing is there");
    return 0;
}

static int op_pop_mark(struct reader *r, unsigned arg)
{
    (void)arg;
    if (!r->mark_count)
        return bad(r, "no mark is there");
    r->stack.count = r->marks[--r->mark_count];
    return 0;
}

static int op_stop(struct reader *r, unsigned arg)
{
    (void)arg;
    struct hr__pickle_value *value = top(r, 1);
    if (!value)
        return bad(r, "nothing is there");
    r->out->root = *value;
    r->is_done = 1;
    return 0;
}

/* ---- numbers ---- */

/* Reads `count` bytes, at most 8, little-endian. */
static int read_count(struct reader *r, unsigned count, uint64_t *out)
{
    uint8_t bytes[8];
    *out = 0;
    if (!hr__input_read(r->in, bytes, count))
        return ended(r);
    for (unsigned i = 0; i < count; i++)
        *out |= (uint64_t)bytes[i] << 8 * i;
    return 0;
}

static int push_integer(struct reader *r, int64_t integer)
{
    return push(r, (struct hr__pickle_value){.kind = HR__PICKLE_INTEGER, .as.integer = integer});
}

static int push_natural(struct reader *r, uint64_t natural)
{
    return natural <= INT64_MAX ? push_integer(r, (int64_t)natural)
                                : push(r, (struct hr__pickle_value){.kind = HR__PICKLE_NATURAL,
                                                                    .as.natural = natural});
}

/* arg: number of bytes; 4 bytes are signed. */
static int op_binint(struct reader *r, unsigned arg)
{
    uint64_t number;
    int code = read_count(r, arg, &number);
    if (code)
        return code;
    return push_integer(r, arg == 4 ? (int32_t)(uint32_t)number : (int64_t)number);
}

/* An integer of any length, two's complement. arg: bytes of its length field. */
static int op_long(struct reader *r, unsigned arg)
{
    uint64_t length, number = 0;
    uint8_t bytes[16] = {0};
    int code = read_count(r, arg, &length);
    if (code)
        return code;
    if (length > sizeof bytes)
        return bad(r, "a number of more than 64 bits");
    if (!hr__input_read(r->in, bytes, (size_t)length))
        return ended(r);
    uint8_t sign = length && bytes[length - 1] & 0x80 ? 0xFF : 0;
    memset(bytes + length, sign, sizeof bytes - (size_t)length);
    for (unsigned i = 0; i < 8; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    for (unsigned i = 8; i < sizeof bytes; i++)
        if (bytes[i] != sign)
            return bad(r, "a number of more than 64 bits");
    if (sign && !(number >> 63))
        return bad(r, "a number of more than 64 bits");
    return sign ? push_integer(r, (int64_t)number) : push_natural(r, number);
}

/* Big-endian, unlike everything else. */
static int op_binfloat(struct reader *r, unsigned arg)
{
    (void)arg;
    uint64_t bits;
    double real;
    int code = read_count(r, 8, &bits);
    if (code)
        return code;
    bits = __builtin_bswap64(bits);
    memcpy(&real, &bits, sizeof real);
    return push(r, (struct hr__pickle_value){.kind = HR__PICKLE_REAL, .as.real = real});
}

/* arg: 0 None, 1 False, 2 True. */
static int op_constant(struct reader *r, unsigned arg)
{
    return push(r, (struct hr__pickle_value){.kind = arg ? HR__PICKLE_BOOL : HR__PICKLE_NONE,
                                             .as.integer = arg == 2});
}

/* ---- texts ---- */

/* arg: bytes of the length field; plus 16 for BYTES instead of a text. */
static int op_text(struct reader *r, unsigned arg)
{
    uint64_t length;
    int code = read_count(r, arg & 15, &length);
    if (code)
        return code;
    if (length > TEXT_MOST)
        return bad(r, "more than 16 MiB at once");
    char *text = take(r, (size_t)length + 1);
    if (!text)
        return no_memory(r);
    if (!hr__input_read(r->in, text, (size_t)length))
        return ended(r);
    text[length] = 0;
    return push(r, (struct hr__pickle_value){.kind = arg & 16 ? HR__PICKLE_BYTES : HR__PICKLE_TEXT,
                                             .length = (uint32_t)length,
                                             .as.text = text});
}

/* ---- lists, tuples, dicts ---- */

static struct hr__pickle_many *make_many(struct reader *r, size_t count)
{
    struct hr__pickle_many *many = take(r, sizeof *many);
    struct hr__pickle_value *items = count ? take(r, count * sizeof *items) : NULL;
    if (!many || (count && !items) || count > UINT32_MAX / 2)
        return NULL;
    *many = (struct hr__pickle_many){.items = items, .room = (uint32_t)count};
    return many;
}

static int add(struct reader *r, struct hr__pickle_many *many,
               const struct hr__pickle_value *values, size_t count)
{
    if (many->room - many->count < count) {
        size_t room = many->room + many->room / 2;
        room = room < many->count + count ? many->count + count : room;
        struct hr__pickle_value *items =
            room > UINT32_MAX / 2 ? NULL : take(r, room * sizeof *items);
        if (!items)
            return no_memory(r);
        if (many->count)
            memcpy(items, many->items, many->count * sizeof *items);
        many->items = items;
        many->room = (uint32_t)room;
    }
    if (count)
        memcpy(many->items + many->count, values, count * sizeof *values);
    many->count += (uint32_t)count;
    return 0;
}

/* Replaces the topmost `count` values by a container of them. */
static int gather(struct reader *r, enum hr__pickle_kind kind, size_t count)
{
    struct hr__pickle_many *many = make_many(r, count);
    if (!many)
        return no_memory(r);
    int code = count ? add(r, many, r->stack.items + r->stack.count - count, count) : 0;
    r->stack.count -= count;
    return code ? code : push(r, (struct hr__pickle_value){.kind = kind, .as.many = many});
}

/* Pushes an empty container. arg: its kind. */
static int op_empty(struct reader *r, unsigned arg)
{
    return gather(r, arg, 0);
}

/* A tuple of the values above the last mark. */
static int op_tuple_marked(struct reader *r, unsigned arg)
{
    (void)arg;
    if (!r->mark_count)
        return bad(r, "no mark is there");
    size_t count = r->stack.count - bottom(r);
    r->mark_count--;
    return gather(r, HR__PICKLE_TUPLE, count);
}

/* arg: number of values. */
static int op_tuple(struct reader *r, unsigned arg)
{
    return top(r, arg) ? gather(r, HR__PICKLE_TUPLE, arg) : bad(r, "nothing is there");
}

/* Adds the topmost values to the container below them. */
static int extend(struct reader *r, enum hr__pickle_kind kind, size_t count)
{
    struct hr__pickle_value *values = top(r, count + 1);
    if (!values || values->kind != kind)
        return bad(r, kind == HR__PICKLE_LIST ? "no list is there" : "no dict is there");
    if (kind == HR__PICKLE_DICT && count % 2)
        return bad(r, "a key without a value");
    int code = add(r, values->as.many, values + 1, count);
    r->stack.count -= count;
    return code;
}

/* arg: kind of the container. */
static int op_add_one(struct reader *r, unsigned arg)
{
    return extend(r, arg, arg == HR__PICKLE_DICT ? 2 : 1);
}

static int op_add_marked(struct reader *r, unsigned arg)
{
    if (!r->mark_count)
        return bad(r, "no mark is there");
    size_t count = r->stack.count - bottom(r);
    r->mark_count--;
    return extend(r, arg, count);
}

/* ---- the memo ---- */

static int put(struct reader *r, uint64_t index)
{
    struct values *memo = &r->memo;
    struct hr__pickle_value *value = top(r, 1);
    if (!value)
        return bad(r, "nothing is there");
    /* Writers count from 0 or 1, so an index never exceeds the offset. */
    if (index > r->at)
        return bad(r, "its index cannot be");
    if (index > BYTES_MOST / 4 / sizeof *value)
        return no_memory(r);
    if (hr__reserve(HR__TAG_MEMORY, &memo->items, index + 1))
        return no_memory(r);
    while (memo->count <= index)
        memo->items[memo->count++] = (struct hr__pickle_value){.kind = HR__PICKLE_UNSET};
    memo->items[index] = *value;
    return 0;
}

/* arg: bytes of the index, here and in op_get. */
static int op_put(struct reader *r, unsigned arg)
{
    uint64_t index;
    int code = read_count(r, arg, &index);
    return code ? code : put(r, index);
}

static int op_memoize(struct reader *r, unsigned arg)
{
    (void)arg;
    return put(r, r->memo.count);
}

static int op_get(struct reader *r, unsigned arg)
{
    uint64_t index;
    int code = read_count(r, arg, &index);
    if (code)
        return code;
    if (index >= r->memo.count || r->memo.items[index].kind == HR__PICKLE_UNSET)
        return bad(r, "nothing was put there");
    return push(r, r->memo.items[index]);
}

/* ---- the rest ---- */

/* Opcodes that exist only in protocols 0 and 1, or that need a PROTO. */
static int op_old(struct reader *r, unsigned arg)
{
    (void)arg;
    return bad(r, "pickle protocols 0 and 1 are not read: save it again with protocol 2 or later");
}

static int op_proto(struct reader *r, unsigned arg)
{
    (void)arg;
    int version = hr__input_get(r->in);
    if (version < 0)
        return ended(r);
    if (version < 2)
        return op_old(r, 0);
    return version <= 5 ? 0 : bad(r, "a protocol later than 5");
}

/* Frames are only a hint how much to read at once. */
static int op_frame(struct reader *r, unsigned arg)
{
    (void)arg;
    uint64_t length;
    return read_count(r, 8, &length);
}

/* Reads the rest of a line, truncated to the size of `line`. */
static void read_line(struct reader *r, char *line, size_t size)
{
    size_t length = 0;
    for (int byte; (byte = hr__input_get(r->in)) >= 0 && byte != '\n';)
        if (length + 1 < size)
            line[length++] = (char)byte;
    line[length] = 0;
}

/* arg 1: two lines follow, the names it would call. */
static int op_refuse(struct reader *r, unsigned arg)
{
    char words[192] = "", module[80], name[80];
    if (arg) {
        read_line(r, module, sizeof module);
        read_line(r, name, sizeof name);
        snprintf(words, sizeof words, " (%s %s)", module, name);
    }
    return hr__fail(r->error, -EBADMSG,
                    "%s: byte %" PRIu64 ": opcode %s%s: only plain values are read, of which a "
                    "snapshot consists; nothing was executed",
                    r->in->name, r->at, opcodes[r->opcode].name, words);
}

static const struct opcode opcodes[256] = {
    ['('] = {"MARK", op_mark, 0},
    ['.'] = {"STOP", op_stop, 0},
    ['0'] = {"POP", op_pop, 0},
    ['1'] = {"POP_MARK", op_pop_mark, 0},
    ['2'] = {"DUP", op_old, 0},
    ['F'] = {"FLOAT", op_old, 0},
    ['G'] = {"BINFLOAT", op_binfloat, 0},
    ['I'] = {"INT", op_old, 0},
    ['L'] = {"LONG", op_old, 0},
    ['J'] = {"BININT", op_binint, 4},
    ['K'] = {"BININT1", op_binint, 1},
    ['M'] = {"BININT2", op_binint, 2},
    [0x8A] = {"LONG1", op_long, 1},
    [0x8B] = {"LONG4", op_long, 4},
    ['N'] = {"NONE", op_constant, 0},
    [0x89] = {"NEWFALSE", op_constant, 1},
    [0x88] = {"NEWTRUE", op_constant, 2},
    ['V'] = {"UNICODE", op_old, 0},
    [0x8C] = {"SHORT_BINUNICODE", op_text, 1},
    ['X'] = {"BINUNICODE", op_text, 4},
    [0x8D] = {"BINUNICODE8", op_text, 8},
    ['C'] = {"SHORT_BINBYTES", op_text, 16 + 1},
    ['B'] = {"BINBYTES", op_text, 16 + 4},
    [0x8E] = {"BINBYTES8", op_text, 16 + 8},
    [']'] = {"EMPTY_LIST", op_empty, HR__PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", op_empty, HR__PICKLE_TUPLE},
    ['}'] = {"EMPTY_DICT", op_empty, HR__PICKLE_DICT},
    ['l'] = {"LIST", op_old, 0},
    ['t'] = {"TUPLE", op_tuple_marked, 0},
    ['d'] = {"DICT", op_old, 0},
    [0x85] = {"TUPLE1", op_tuple, 1},
    [0x86] = {"TUPLE2", op_tuple, 2},
    [0x87] = {"TUPLE3", op_tuple, 3},
    ['a'] = {"APPEND", op_add_one, HR__PICKLE_LIST},
    ['s'] = {"SETITEM", op_add_one, HR__PICKLE_DICT},
    ['e'] = {"APPENDS", op_add_marked, HR__PICKLE_LIST},
    ['u'] = {"SETITEMS", op_add_marked, HR__PICKLE_DICT},
    ['p'] = {"PUT", op_old, 0},
    ['q'] = {"BINPUT", op_put, 1},
    ['r'] = {"LONG_BINPUT", op_put, 4},
    [0x94] = {"MEMOIZE", op_memoize, 0},
    ['g'] = {"GET", op_old, 0},
    ['h'] = {"BINGET", op_get, 1},
    ['j'] = {"LONG_BINGET", op_get, 4},
    [0x80] = {"PROTO", op_proto, 0},
    [0x95] = {"FRAME", op_frame, 0},
    ['c'] = {"GLOBAL", op_refuse, 1},
    ['i'] = {"INST", op_refuse, 1},
    ['o'] = {"OBJ", op_refuse, 0},
    ['R'] = {"REDUCE", op_refuse, 0},
    ['b'] = {"BUILD", op_refuse, 0},
    ['P'] = {"PERSID", op_refuse, 0},
    ['Q'] = {"BINPERSID", op_refuse, 0},
    ['S'] = {"STRING", op_old, 0},
    ['T'] = {"BINSTRING", op_refuse, 0},
    ['U'] = {"SHORT_BINSTRING", op_refuse, 0},
    [0x81] = {"NEWOBJ", op_refuse, 0},
    [0x82] = {"EXT1", op_refuse, 0},
    [0x83] = {"EXT2", op_refuse, 0},
    [0x84] = {"EXT4", op_refuse, 0},
    [0x8F] = {"EMPTY_SET", op_refuse, 0},
    [0x90] = {"ADDITEMS", op_refuse, 0},
    [0x91] = {"FROZENSET", op_refuse, 0},
    [0x92] = {"NEWOBJ_EX", op_refuse, 0},
    [0x93] = {"STACK_GLOBAL", op_refuse, 0},
    [0x96] = {"BYTEARRAY8", op_refuse, 0},
    [0x97] = {"NEXT_BUFFER", op_refuse, 0},
    [0x98] = {"READONLY_BUFFER", op_refuse, 0},
};

static int read_all(struct reader *r)
{
    for (int has_begun = 0; !r->is_done; has_begun = 1) {
        r->at = hr__input_at(r->in);
        int byte = hr__input_get(r->in);
        if (byte < 0)
            return ended(r);
        r->opcode = (uint8_t)byte;
        if (!opcodes[byte].run)
            return hr__fail(r->error, -EBADMSG,
                            "%s: byte %" PRIu64 ": 0x%02X is no opcode of a pickle", r->in->name,
                            r->at, (unsigned)byte);
        if (!has_begun && opcodes[byte].run != op_proto)
            return op_old(r, 0);
        int code = opcodes[byte].run(r, opcodes[byte].arg);
        if (code)
            return code;
    }
    return 0;
}

int hr__pickle_read(struct hr__pickle **out, struct hr__input *in, struct hr_error *error)
{
    struct reader r = {.in = in, .error = error};
    r.out = hr__alloc(HR__TAG_MEMORY, 1, sizeof *r.out);
    int code = r.out ? read_all(&r) : no_memory(&r);
    hr__free(r.stack.items);
    hr__free(r.memo.items);
    hr__free(r.marks);
    if (code)
        hr__pickle_destroy(&r.out);
    *out = r.out;
    return code;
}

void hr__pickle_destroy(struct hr__pickle **pickle)
{
    struct hr__pickle *p = *pickle;
    if (!p)
        return;
    *pickle = NULL;
    for (struct pickle_chunk *next, *chunk = p->chunks; chunk; chunk = next) {
        next = chunk->next;
        hr__free(chunk);
    }
    hr__free(p);
}

/* ---- access ---- */

const struct hr__pickle_value *hr__pickle_root(const struct hr__pickle *pickle)
{
    return &pickle->root;
}

const struct hr__pickle_value *hr__pickle_get(const struct hr__pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != HR__PICKLE_DICT)
        return NULL;
    const struct hr__pickle_many *many = dict->as.many;
    size_t length = strlen(key);
    /* Search backwards: the last value set counts. */
    for (uint32_t i = many->count; i >= 2; i -= 2) {
        const struct hr__pickle_value *one = &many->items[i - 2];
        if (one->kind == HR__PICKLE_TEXT && one->length == length &&
            !memcmp(one->as.text, key, length))
            return one + 1;
    }
    return NULL;
}

uint32_t hr__pickle_count(const struct hr__pickle_value *list)
{
    return list && (list->kind == HR__PICKLE_LIST || list->kind == HR__PICKLE_TUPLE)
               ? list->as.many->count
               : 0;
}

const struct hr__pickle_value *hr__pickle_at(const struct hr__pickle_value *list, uint32_t index)
{
    return index < hr__pickle_count(list) ? &list->as.many->items[index] : NULL;
}

int hr__pickle_u64(const struct hr__pickle_value *value, uint64_t *out)
{
    if (!value)
        return 0;
    switch (value->kind) {
    case HR__PICKLE_INTEGER:
        *out = (uint64_t)value->as.integer;
        return value->as.integer >= 0;
    case HR__PICKLE_NATURAL:
        *out = value->as.natural;
        return 1;
    case HR__PICKLE_REAL:
        if (!(value->as.real >= 0 && value->as.real < 9007199254740992.0))
            return 0;
        *out = (uint64_t)value->as.real;
        return (double)*out == value->as.real;
    default:
        return 0;
    }
}

const char *hr__pickle_text(const struct hr__pickle_value *value)
{
    return value && value->kind == HR__PICKLE_TEXT ? value->as.text : NULL;
}
