/*
 * Imports PyTorch's raw memory timeline (export_memory_timeline, .raw.json.gz): rows of time in ns
 * (-1: before the trace), action (1 existed before, 2 created, 3 a new version, 4 destroyed),
 * signed bytes, and category. Blocks have no names, so each gets an address of its own; a destroyed
 * block is assumed to be the one of its size and category that was created or changed last. A new
 * version takes two rows: the old state ends, the new one begins.
 */
#include "memory/import/import.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/trace_values.h"
#include "memory/import/places.h"
#include "memory/record/recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define CATEGORIES 8
#define FIRST_AT   UINT64_C(0x1000) /* first address of a block, and the step between addresses */
#define CUDA_ROUND 512              /* CUDA's allocator rounds sizes up to a multiple of this */
#define NONE       UINT32_MAX

static const uint8_t category_of[CATEGORIES] = {
    HR_MEMORY_PARAMETER,  HR_MEMORY_OPTIMIZER_STATE, HR_MEMORY_INPUT,     HR_MEMORY_TEMPORARY,
    HR_MEMORY_ACTIVATION, HR_MEMORY_GRADIENT,        HR_MEMORY_TEMPORARY, HR_MEMORY_UNKNOWN,
};

enum timeline_action { BEFORE = 1, CREATE = 2, CHANGE = 3, DESTROY = 4 };

struct row {
    int64_t time_ns, action, bytes, category;
};

/* Blocks of one size and category form a stack, linked by `below`. */
struct timeline {
    struct hr__import *im;
    struct hr__memory_places tops; /* address: size, device: category; bytes: topmost block */
    uint32_t *below;               /* by block */
    uint32_t count;
    int64_t first_ns, last_ns;
    uint32_t changing; /* block whose new version comes next; NONE: not found */
    int is_changing;   /* the next row is that version */
    uint64_t unmatched, backwards;
    struct row *rows;
    size_t row_count;
    uint8_t device; /* as in events */
};

static uint64_t address_of(uint32_t block)
{
    return FIRST_AT * (block + UINT64_C(1));
}

static int push(struct timeline *t, uint32_t block, uint64_t bytes, int64_t category)
{
    struct hr__memory_place *top = hr__places_find(&t->tops, (uint8_t)category, bytes);
    if (!top)
        return -ENOMEM;
    t->below[block] = top->lives ? (uint32_t)top->bytes : NONE;
    top->bytes = block;
    top->lives = 1;
    return 0;
}

/* Takes the topmost block of its kind; NONE: there is none. */
static int pop(struct timeline *t, uint64_t bytes, int64_t category, uint32_t *block)
{
    struct hr__memory_place *top = hr__places_find(&t->tops, (uint8_t)category, bytes);
    *block = NONE;
    if (!top)
        return -ENOMEM;
    if (!top->lives)
        return 0;
    *block = (uint32_t)top->bytes;
    top->lives = t->below[*block] != NONE;
    top->bytes = t->below[*block];
    return 0;
}

static void record_block(struct timeline *t, const struct row *row, enum hr_memory_kind kind,
                         uint32_t block)
{
    uint64_t bytes = row->bytes < 0 ? 0 - (uint64_t)row->bytes : (uint64_t)row->bytes;
    hr__import_record(t->im, (struct hr_memory_event){
                                 .time_ns = row->time_ns > t->first_ns && t->first_ns >= 0
                                                ? (uint64_t)(row->time_ns - t->first_ns) + 1
                                                : 0,
                                 .address = address_of(block),
                                 .bytes = kind == HR_MEMORY_DESCRIBE
                                              ? hr_memory_about(category_of[row->category], 0)
                                              : bytes,
                                 .kind = (uint8_t)kind,
                                 .device = t->device,
                             });
}

static int begin_block(struct timeline *t, const struct row *row)
{
    if (t->count == NONE || hr__reserve(HR__TAG_MEMORY, &t->below, (size_t)t->count + 1))
        return -ENOMEM;
    uint32_t block = t->count++;
    record_block(t, row, row->action == BEFORE ? HR_MEMORY_PRESENT : HR_MEMORY_ALLOC, block);
    if (category_of[row->category])
        record_block(t, row, HR_MEMORY_DESCRIBE, block);
    return push(t, block, (uint64_t)row->bytes, row->category);
}

/* Removes a block, or the old version of one. */
static int take_out(struct timeline *t, const struct row *row)
{
    uint32_t block;
    int code = pop(t, 0 - (uint64_t)row->bytes, row->category, &block);
    t->unmatched += block == NONE;
    if (row->action == CHANGE)
        t->changing = block;
    else if (block != NONE)
        record_block(t, row, HR_MEMORY_FREE, block);
    return code;
}

static int take(struct timeline *t, const struct row *row)
{
    int was_changing = t->is_changing;
    int is_old = row->bytes < 0 || (!row->bytes && !was_changing);
    t->is_changing = row->action == CHANGE && is_old;
    if (row->action == DESTROY || t->is_changing)
        return take_out(t, row);
    if (row->action != CHANGE)
        return begin_block(t, row);
    if (!was_changing || t->changing == NONE)
        return 0;
    if (category_of[row->category])
        record_block(t, row, HR_MEMORY_DESCRIBE, t->changing);
    return push(t, t->changing, (uint64_t)row->bytes, row->category);
}

/* ---- rows ---- */

static int bad_row(const struct timeline *t, uint64_t place, const char *what)
{
    return hr__fail(t->im->error, -EBADMSG, "%s: byte %" PRIu64 ": %s", t->im->in->name, place,
                    what);
}

/* Returns whether the next value is a row, and reads it. */
static int read_row(struct hr__json_reader *json, struct row *row)
{
    int64_t *numbers[] = {&row->time_ns, &row->action, &row->bytes, &row->category};
    size_t count = 0;
    if (!hr__value_array(json))
        return 0;
    for (; hr__json_reader_more(json); count++) {
        int c = hr__json_reader_peek(json);
        if (count >= 4 || (c != '-' && (c < '0' || c > '9')))
            return 0;
        hr__json_reader_fixed(json, 0, numbers[count]);
    }
    return count == 4;
}

static int parse(const struct timeline *t, struct hr__json_reader *json, struct row *row)
{
    uint64_t length, place = hr__json_reader_place(json, &length);
    int is_row = read_row(json, row);
    int code = hr__json_reader_error(json, t->im->error);
    if (code)
        return code;
    if (!is_row)
        return bad_row(t, place,
                       "no row of a raw timeline, which has time, action, bytes and category; let "
                       "export_memory_timeline write a file whose name ends in .raw.json.gz");
    if (row->action < BEFORE || row->action > DESTROY || row->category < 0 ||
        row->category >= CATEGORIES || (row->action < CHANGE && row->bytes < 0) ||
        (row->action == DESTROY && row->bytes > 0))
        return bad_row(t, place, "a row of a timeline says what cannot be");
    return 0;
}

static int read_rows(struct timeline *t, struct hr__json_reader *json)
{
    int code = 0;
    hr__json_reader_array(json);
    while (!code && hr__json_reader_more(json)) {
        if (hr__reserve(HR__TAG_MEMORY, &t->rows, t->row_count + 1))
            return hr__import_no_memory(t->im);
        code = parse(t, json, &t->rows[t->row_count]);
        t->row_count += !code;
    }
    hr__json_reader_end(json);
    return code ? code : hr__json_reader_error(json, t->im->error);
}

/* ---- recording ---- */

/* Infers the device, which a timeline does not state: CUDA's allocator rounds up the sizes that it
 * allocates, unlike the sizes of tensors from before. */
static uint8_t device_of(const struct timeline *t)
{
    uint64_t created = 0;
    for (size_t i = 0; i < t->row_count; i++) {
        if (t->rows[i].action == CREATE && t->rows[i].bytes % CUDA_ROUND)
            return 0;
        created += t->rows[i].action == CREATE;
    }
    return created != 0;
}

static int begin(struct timeline *t)
{
    int code = hr__import_begin(t->im, "raw memory timeline of PyTorch", 0, 0);
    if (code)
        return code;
    t->device = device_of(t);
    hr__import_note(t->im,
                    "A raw timeline does not say of which device it is: it is shown as %s, since "
                    "%s. Nor does it say which block is freed: of those of the same size and "
                    "category it is taken to be the one that was made or changed last.",
                    t->device ? "cuda:0" : "cpu",
                    t->device
                        ? "all sizes are multiples of 512 bytes, as CUDA's allocator's are"
                        : "not all sizes are multiples of 512 bytes, as CUDA's allocator's are");
    return 0;
}

static int record_rows(struct timeline *t)
{
    int code = begin(t);
    for (size_t i = 0; i < t->row_count && !code; i++) {
        const struct row *row = &t->rows[i];
        if (t->first_ns < 0 && row->time_ns >= 0) {
            t->first_ns = row->time_ns;
            hr__recorder_set_origin(t->im->recorder, 0, (uint64_t)row->time_ns);
        }
        t->backwards += row->time_ns >= 0 && row->time_ns < t->last_ns;
        t->last_ns = row->time_ns;
        if (take(t, row))
            code = hr__import_no_memory(t->im);
    }
    return code;
}

int hr__import_timeline(struct hr__import *im)
{
    struct timeline t = {.im = im, .first_ns = -1, .changing = NONE};
    struct hr__json_reader *json;
    int code = hr__json_reader_on(&json, im->in, im->error);
    if (!code)
        code = read_rows(&t, json);
    if (!code && !t.row_count)
        code = hr__fail(im->error, -ENODATA, "%s: the timeline has no rows", im->in->name);
    if (!code)
        code = record_rows(&t);
    if (!code && t.unmatched)
        hr__import_note(im, "%" PRIu64 " rows free or change what was never there.", t.unmatched);
    if (!code && t.backwards)
        hr__import_note(im,
                        "%" PRIu64 " rows are older than those before them: taken as of the "
                        "same time.",
                        t.backwards);
    hr__json_reader_close(&json);
    hr__places_clear(&t.tops);
    hr__free(t.below);
    hr__free(t.rows);
    return code;
}
