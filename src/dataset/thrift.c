/* Thrift's compact protocol; see thrift.h. */
#include "dataset/thrift.h"

#define DEPTH_MOST 16 /* of nested structs and lists that are skipped; Parquet has fewer */

/* Types that only skipping has to know. */
enum thrift_rest { I8 = 3, DOUBLE = 7, SET = 10, MAP = 11 };

static int wrong(struct hr__thrift *t)
{
    t->bad = 1;
    t->at = t->end;
    return 0;
}

static size_t left(const struct hr__thrift *t)
{
    return (size_t)(t->end - t->at);
}

static uint8_t byte(struct hr__thrift *t)
{
    return left(t) ? *t->at++ : (uint8_t)wrong(t);
}

static void pass(struct hr__thrift *t, uint64_t bytes)
{
    if (bytes > left(t))
        wrong(t);
    else
        t->at += bytes;
}

uint64_t hr__thrift_varint(struct hr__thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t b = byte(t);
        value |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80))
            return value;
    }
    return (uint64_t)wrong(t);
}

static int64_t zigzag(struct hr__thrift *t)
{
    uint64_t n = hr__thrift_varint(t);
    return (int64_t)(n >> 1) ^ -(int64_t)(n & 1);
}

int hr__thrift_next(struct hr__thrift *t, struct hr__thrift_field *f)
{
    uint8_t head = byte(t);
    if (t->bad || !head)
        return 0;
    int64_t id = head >> 4 ? f->id + (head >> 4) : zigzag(t);
    if (id < 0 || id > INT16_MAX)
        return wrong(t);
    *f = (struct hr__thrift_field){(int)id, head & 15};
    return !t->bad;
}

int64_t hr__thrift_integer(struct hr__thrift *t, const struct hr__thrift_field *f)
{
    if (f->type != HR__THRIFT_I16 && f->type != HR__THRIFT_I32 && f->type != HR__THRIFT_I64)
        return wrong(t);
    return zigzag(t);
}

int hr__thrift_bool(struct hr__thrift *t, const struct hr__thrift_field *f)
{
    if (f->type != HR__THRIFT_TRUE && f->type != HR__THRIFT_FALSE)
        return wrong(t);
    return f->type == HR__THRIFT_TRUE;
}

struct hr__thrift_text hr__thrift_text(struct hr__thrift *t, const struct hr__thrift_field *f)
{
    uint64_t length = f->type == HR__THRIFT_BINARY ? hr__thrift_varint(t) : UINT64_MAX;
    const uint8_t *from = t->at;
    pass(t, length);
    if (t->bad)
        return (struct hr__thrift_text){"", 0};
    return (struct hr__thrift_text){(const char *)from, (size_t)length};
}

int hr__thrift_struct(struct hr__thrift *t, const struct hr__thrift_field *f)
{
    return f->type == HR__THRIFT_STRUCT ? 1 : wrong(t);
}

size_t hr__thrift_list(struct hr__thrift *t, const struct hr__thrift_field *f,
                       struct hr__thrift_field *element)
{
    *element = (struct hr__thrift_field){0, 0};
    uint8_t head = f->type == HR__THRIFT_LIST ? byte(t) : (uint8_t)wrong(t);
    uint64_t count = head >> 4 == 15 ? hr__thrift_varint(t) : head >> 4;
    /* every element takes a byte at least */
    if (count > left(t))
        wrong(t);
    element->type = head & 15;
    return t->bad ? 0 : (size_t)count;
}

static void skip(struct hr__thrift *t, int type, int in_list, int depth);

static void skip_struct(struct hr__thrift *t, int depth)
{
    struct hr__thrift_field f = {0, 0};
    while (hr__thrift_next(t, &f))
        skip(t, f.type, 0, depth + 1);
}

static void skip_list(struct hr__thrift *t, int depth)
{
    struct hr__thrift_field element;
    size_t count = hr__thrift_list(t, &(struct hr__thrift_field){0, HR__THRIFT_LIST}, &element);
    for (size_t i = 0; i < count && !t->bad; i++)
        skip(t, element.type, 1, depth + 1);
}

static void skip_map(struct hr__thrift *t, int depth)
{
    uint64_t count = hr__thrift_varint(t);
    uint8_t types = count ? byte(t) : 0;
    if (count > left(t))
        wrong(t);
    for (uint64_t i = 0; i < count && !t->bad; i++) {
        skip(t, types >> 4, 1, depth + 1);
        skip(t, types & 15, 1, depth + 1);
    }
}

static void skip(struct hr__thrift *t, int type, int in_list, int depth)
{
    if (depth > DEPTH_MOST)
        wrong(t);
    else if (type == HR__THRIFT_TRUE || type == HR__THRIFT_FALSE)
        pass(t, in_list != 0); /* a field's type is its value */
    else if (type == I8)
        pass(t, 1);
    else if (type == DOUBLE)
        pass(t, 8);
    else if (type == HR__THRIFT_I16 || type == HR__THRIFT_I32 || type == HR__THRIFT_I64)
        hr__thrift_varint(t);
    else if (type == HR__THRIFT_BINARY)
        pass(t, hr__thrift_varint(t));
    else if (type == HR__THRIFT_LIST || type == SET)
        skip_list(t, depth);
    else if (type == MAP)
        skip_map(t, depth);
    else if (type == HR__THRIFT_STRUCT)
        skip_struct(t, depth);
    else
        wrong(t);
}

void hr__thrift_skip(struct hr__thrift *t, const struct hr__thrift_field *f)
{
    skip(t, f->type, 0, 0);
}
