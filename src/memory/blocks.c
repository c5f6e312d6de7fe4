/*
 * Events to blocks; see blocks.h.
 *
 * What lives is in a hash table from (address, device) to the block's index: open
 * addressing, at most half full; what ends is taken out by moving what was pushed aside
 * back, so that the table never fills with the dead.
 */
#include "memory/blocks.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

#define NONE HR__NO_BLOCK

/* A live block; block == NONE: empty. `at_ns`, `call` and `kind`: of its last
 * access. */
struct live {
    uint64_t address;
    uint64_t at_ns;
    uint32_t block, call;
    uint8_t device, kind;
};

struct finder {
    struct hr__blocks_found *out;
    struct hr__record *record;
    struct live *table;
    size_t capacity, used;
    uint32_t block_room, freed_room;
    uint32_t iteration_name; /* id of "iteration"; 0: not met yet */
    hr__block_fn fn;
    void *arg;
};

/* ---- what lives ---- */

static size_t slot_of(const struct finder *f, uint64_t address, uint8_t device)
{
    /* Addresses are multiples of 64 or so: multiply, and take the high bits. */
    uint64_t mixed = (address ^ (uint64_t)device << 56) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (f->capacity - 1);
}

/* Where it lives, or would. */
static struct live *look(const struct finder *f, uint64_t address, uint8_t device)
{
    size_t at = slot_of(f, address, device);
    while (f->table[at].block != NONE &&
           (f->table[at].address != address || f->table[at].device != device))
        at = (at + 1) & (f->capacity - 1);
    return &f->table[at];
}

static int grow_table(struct finder *f)
{
    struct live *old = f->table;
    size_t capacity = f->capacity;
    f->capacity = capacity ? 2 * capacity : 4096;
    f->table = hr__alloc(HR__TAG_MEMORY, f->capacity, sizeof *f->table);
    if (!f->table) {
        f->table = old;
        f->capacity = capacity;
        return -ENOMEM;
    }
    for (size_t i = 0; i < f->capacity; i++)
        f->table[i].block = NONE;
    for (size_t i = 0; i < capacity; i++)
        if (old[i].block != NONE)
            *look(f, old[i].address, old[i].device) = old[i];
    hr__free(old);
    return 0;
}

static void take_out(struct finder *f, struct live *live)
{
    size_t hole = (size_t)(live - f->table), at = hole;
    for (;;) {
        at = (at + 1) & (f->capacity - 1);
        if (f->table[at].block == NONE)
            break;
        size_t home = slot_of(f, f->table[at].address, f->table[at].device);
        /* It may move into the hole unless its home lies behind that. */
        if (((at - home) & (f->capacity - 1)) >= ((at - hole) & (f->capacity - 1))) {
            f->table[hole] = f->table[at];
            hole = at;
        }
    }
    f->table[hole].block = NONE;
    f->used--;
}

/* ---- beginning and end ---- */

static int grow(void **array, uint32_t *room, uint32_t count, size_t each)
{
    if (count < *room)
        return 0;
    if (*room > UINT32_MAX / 4)
        return -EOVERFLOW;
    /* By half: the last step may not double a gigabyte. */
    uint32_t more = *room ? *room + *room / 2 : 4096;
    void *grown = hr__realloc(HR__TAG_MEMORY, *array, more, each);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    *room = more;
    return 0;
}

static int end_block(struct finder *f, struct live *live, uint64_t time_ns)
{
    struct hr__blocks_found *out = f->out;
    int code = grow((void **)&out->freed, &f->freed_room, out->freed_count, sizeof *out->freed);
    if (code)
        return code;
    out->blocks[live->block].free_ns = time_ns;
    out->freed[out->freed_count++] = live->block;
    take_out(f, live);
    return 0;
}

/* A block begins at the event's address, where nothing lives. */
static int begin_block(struct finder *f, const struct hr_memory_event *event, struct live **live)
{
    struct hr__blocks_found *out = f->out;
    int code = grow((void **)&out->blocks, &f->block_room, out->count, sizeof *out->blocks);
    if (!code && 2 * (f->used + 1) > f->capacity)
        code = grow_table(f);
    if (code)
        return code;
    int is_alloc = event->kind == HR_MEMORY_ALLOC, is_present = event->kind == HR_MEMORY_PRESENT;
    out->blocks[out->count] = (struct hr__block){
        .address = event->address,
        .bytes = is_alloc || is_present ? event->bytes : 0,
        .alloc_ns = is_alloc ? event->time_ns : 0,
        .free_ns = HR__STILL_LIVE,
        .stack = is_alloc ? event->what : 0,
        .iteration = out->iterations,
        .device = event->device,
        .phase = event->phase,
        .is_ghost = !is_alloc && !is_present,
        .was_present = is_present,
    };
    *live = look(f, event->address, event->device);
    **live = (struct live){.address = event->address, .device = event->device, .block = out->count};
    out->count++;
    f->used++;
    return 0;
}

/* ---- events ---- */

static void tell(const struct finder *f, const struct hr_memory_event *event, uint32_t block)
{
    struct hr__block_event one = {.event = event, .block = block};
    if (f->fn)
        f->fn(f->arg, f->out, &one);
}

static int on_alloc(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = f->capacity ? look(f, event->address, event->device) : NULL;
    int code = 0;
    if (live && live->block != NONE) {
        struct hr__block *block = &f->out->blocks[live->block];
        /* Told twice: by who saw it first and by a survey. */
        if (event->kind == HR_MEMORY_PRESENT) {
            block->bytes = block->bytes ? block->bytes : event->bytes;
            block->is_ghost = 0;
            block->was_present |= !block->alloc_ns;
            return 0;
        }
        f->out->odd_allocs++;
        code = end_block(f, live, event->time_ns);
    }
    if (!code)
        code = begin_block(f, event, &live);
    if (!code)
        tell(f, event, live->block);
    return code;
}

static int on_free(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = f->capacity ? look(f, event->address, event->device) : NULL;
    if (!live || live->block == NONE) {
        f->out->odd_frees++;
        return 0;
    }
    struct hr__block *block = &f->out->blocks[live->block];
    if (!block->bytes)
        block->bytes = event->bytes;
    tell(f, event, live->block);
    return end_block(f, live, event->time_ns);
}

static int on_access(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = f->capacity ? look(f, event->address, event->device) : NULL;
    if (!live || live->block == NONE) {
        int code = begin_block(f, event, &live);
        if (code)
            return code;
    }
    struct hr__block *block = &f->out->blocks[live->block];
    struct hr__block_event one = {
        .event = event,
        .block = live->block,
        .before = live->kind,
        .at_ns = event->time_ns,
        .before_ns = live->at_ns,
        .before_call = live->call,
    };
    if (!block->reads && !block->writes) {
        block->first_ns = event->time_ns;
        block->first_op = event->what;
    }
    block->last_ns = event->time_ns;
    block->phases |= (uint8_t)(1 << (event->phase & 3));
    if (event->kind == HR_MEMORY_READ)
        block->reads++;
    else
        block->writes++;
    live->at_ns = event->time_ns;
    live->call = (uint32_t)(event->bytes >> 32);
    live->kind = event->kind;
    f->out->accesses++;
    f->out->host_times |= event->device && event->flags & HR_MEMORY_HOST_TIME;
    if (f->fn)
        f->fn(f->arg, f->out, &one);
    return 0;
}

static void on_describe(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = f->capacity ? look(f, event->address, event->device) : NULL;
    if (!live || live->block == NONE)
        return;
    struct hr__block *block = &f->out->blocks[live->block];
    uint32_t category = (uint32_t)event->bytes, part = (uint32_t)(event->bytes >> 32);
    if (category && category <= HR_MEMORY_WORKSPACE)
        block->category = (uint8_t)category;
    if (part)
        block->part = part;
    if (event->what)
        block->name = event->what;
}

static void on_mark(struct finder *f, const struct hr_memory_event *event)
{
    if (!f->iteration_name && !strcmp(hr__record_name(f->record, event->what), "iteration"))
        f->iteration_name = event->what;
    if (event->what && event->what == f->iteration_name)
        f->out->iterations++;
    tell(f, event, NONE);
}

static int on_event(struct finder *f, const struct hr_memory_event *event)
{
    switch (event->kind) {
    case HR_MEMORY_ALLOC:
    case HR_MEMORY_PRESENT:
        return on_alloc(f, event);
    case HR_MEMORY_FREE:
        return on_free(f, event);
    case HR_MEMORY_READ:
    case HR_MEMORY_WRITE:
        return on_access(f, event);
    case HR_MEMORY_DESCRIBE:
        on_describe(f, event);
        return 0;
    case HR_MEMORY_MARK:
        on_mark(f, event);
        return 0;
    case HR_MEMORY_FAILED:
        f->out->failed++;
        if (event->bytes > f->out->failed_bytes)
            f->out->failed_bytes = event->bytes;
        return 0;
    default: /* of a later version */
        return 0;
    }
}

/* What nobody described: by when it was made and when it is used. What the forward pass
 * makes and the backward pass uses is an activation; what the backward pass makes and the
 * optimizer uses a gradient; what the optimizer makes and keeps its state; what comes from
 * outside and is used in the forward pass an input. */
static uint8_t category_of(const struct hr__block *block, uint64_t end_ns)
{
    const unsigned used = block->phases;
    if (!block->reads && !block->writes)
        return HR_MEMORY_WORKSPACE;
    if (block->is_ghost || block->was_present)
        return used & 1u << HR_MEMORY_OPTIMIZER ? HR_MEMORY_OPTIMIZER_STATE : HR_MEMORY_UNKNOWN;
    switch (block->phase) {
    case HR_MEMORY_FORWARD:
        return used & 1u << HR_MEMORY_BACKWARD ? HR_MEMORY_ACTIVATION : HR_MEMORY_TEMPORARY;
    case HR_MEMORY_BACKWARD:
        return used & 1u << HR_MEMORY_OPTIMIZER ? HR_MEMORY_GRADIENT : HR_MEMORY_TEMPORARY;
    case HR_MEMORY_OPTIMIZER:
        return block->free_ns == HR__STILL_LIVE || block->free_ns >= end_ns
                   ? HR_MEMORY_OPTIMIZER_STATE
                   : HR_MEMORY_TEMPORARY;
    default:
        return used & 1u << HR_MEMORY_FORWARD ? HR_MEMORY_INPUT : HR_MEMORY_TEMPORARY;
    }
}

static void classify(struct hr__blocks_found *out)
{
    for (uint32_t i = 0; i < out->count; i++)
        if (!out->blocks[i].category)
            out->blocks[i].category = category_of(&out->blocks[i], out->end_ns);
}

int hr__blocks_find(struct hr__blocks_found *out, struct hr__record *record, hr__block_fn fn,
                    void *arg, struct hr_error *error)
{
    struct finder f = {.out = out, .record = record, .fn = fn, .arg = arg};
    const struct hr_memory_event *events;
    *out = (struct hr__blocks_found){.blocks = NULL};
    hr__record_rewind(record);
    int n, code = 0;
    while (!code && (n = hr__record_next(record, &events, error)) > 0) {
        if (!out->events)
            out->begin_ns = events[0].time_ns;
        for (int i = 0; i < n && !code; i++)
            code = on_event(&f, &events[i]);
        out->events += (uint64_t)n;
        out->end_ns = events[n - 1].time_ns;
    }
    hr__free(f.table);
    if (code)
        hr__fail(error, code, "while reading the record's blocks: %s", hr__errno_text(code));
    else
        code = n;
    if (code) {
        hr__blocks_found_clear(out);
        return code;
    }
    classify(out);
    return 0;
}

void hr__blocks_found_clear(struct hr__blocks_found *found)
{
    hr__free(found->blocks);
    hr__free(found->freed);
    *found = (struct hr__blocks_found){.blocks = NULL};
}
