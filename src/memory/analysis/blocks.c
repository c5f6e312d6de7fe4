/*
 * Joins events into blocks; see blocks.h.
 *
 * A hash table maps (address, device) of each live block to its index: open addressing, at most
 * half full. Removing a block moves displaced entries back, so the table needs no tombstones.
 */
#include "memory/analysis/blocks.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/analysis/categories.h"

#include <errno.h>
#include <string.h>

#define NONE HR__NO_BLOCK

/* A live block; block == NONE: empty slot. `end_ns` to `clock` describe its last access. */
struct live {
    uint64_t address;
    uint64_t end_ns, event_ns;
    uint32_t block, call;
    uint8_t device, kind, clock;
};

struct finder {
    struct hr__blocks_found *out;
    struct hr__record *record;
    struct live *table;
    size_t capacity, used;
    uint32_t iteration_name; /* id of "iteration"; 0: not seen yet */
    uint64_t ran_of;         /* call looked up last: device << 32 | call; 0: none */
    const struct hr_memory_ran *ran;
    hr__block_fn fn;
    void *arg;
};

/* ---- live blocks ---- */

static size_t slot_of(const struct finder *f, uint64_t address, uint8_t device)
{
    /* Addresses are multiples of 64 or so: multiply, and take the high bits. */
    uint64_t mixed = (address ^ (uint64_t)device << 56) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 20) & (f->capacity - 1);
}

/* Finds a block's slot, or the free slot for it. */
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
        /* An entry may move into the hole unless its home slot is after it. */
        if (((at - home) & (f->capacity - 1)) >= ((at - hole) & (f->capacity - 1))) {
            f->table[hole] = f->table[at];
            hole = at;
        }
    }
    f->table[hole].block = NONE;
    f->used--;
}

/* ---- begin and end of blocks ---- */

static int end_block(struct finder *f, struct live *live, uint64_t time_ns)
{
    struct hr__blocks_found *out = f->out;
    int code = hr__reserve(HR__TAG_MEMORY, &out->freed, (size_t)out->freed_count + 1);
    if (code)
        return code;
    struct hr__block *block = &out->blocks[live->block];
    block->free_ns = time_ns;
    block->is_passed_on = block->iteration != out->iterations;
    out->freed[out->freed_count++] = live->block;
    take_out(f, live);
    return 0;
}

/* Returns the live block at the event's address; NULL: none. */
static struct live *find_live(const struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = f->capacity ? look(f, event->address, event->device) : NULL;
    return live && live->block != NONE ? live : NULL;
}

/* Limits a size to the address space, so that a damaged one cannot overflow sums. */
static uint64_t size_in(const struct hr_memory_event *event)
{
    const uint64_t most = UINT64_C(1) << 47;
    return event->bytes < most ? event->bytes : most;
}

/* Begins a block at the event's address, where nothing lives. */
static int begin_block(struct finder *f, const struct hr_memory_event *event, struct live **live)
{
    struct hr__blocks_found *out = f->out;
    if (out->count == NONE)
        return -EOVERFLOW;
    int code = hr__reserve(HR__TAG_MEMORY, &out->blocks, (size_t)out->count + 1);
    if (!code && 2 * (f->used + 1) > f->capacity)
        code = grow_table(f);
    if (code)
        return code;
    int is_alloc = event->kind == HR_MEMORY_ALLOC, is_present = event->kind == HR_MEMORY_PRESENT;
    out->blocks[out->count] = (struct hr__block){
        .address = event->address,
        .bytes = is_alloc || is_present ? size_in(event) : 0,
        .alloc_ns = is_alloc ? event->time_ns : 0,
        .free_ns = HR__STILL_LIVE,
        .stack = is_alloc || is_present ? event->what : 0,
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

static void report(const struct finder *f, const struct hr_memory_event *event, uint32_t block)
{
    struct hr__block_event one = {.event = event, .block = block};
    if (f->fn)
        f->fn(f->arg, f->out, &one);
}

static int on_alloc(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = find_live(f, event);
    int code = 0;
    if (live) {
        struct hr__block *block = &f->out->blocks[live->block];
        /* The block was reported twice: when first seen and by a survey. */
        if (event->kind == HR_MEMORY_PRESENT) {
            block->bytes = block->bytes ? block->bytes : size_in(event);
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
        report(f, event, live->block);
    return code;
}

static int on_free(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = find_live(f, event);
    if (!live) {
        f->out->odd_frees++;
        return 0;
    }
    struct hr__block *block = &f->out->blocks[live->block];
    if (!block->bytes)
        block->bytes = size_in(event);
    report(f, event, live->block);
    return end_block(f, live, event->time_ns);
}

/* Returns when the device did the work of an access's call; NULL: unknown. The accesses of a call
 * are adjacent, so the last answer is kept. */
static const struct hr_memory_ran *ran_of(struct finder *f, const struct hr_memory_event *event)
{
    uint32_t call = (uint32_t)(event->bytes >> 32);
    uint64_t wanted = (uint64_t)event->device << 32 | call;
    if (!call || !event->device || event->device == HR_MEMORY_LIBRARIES)
        return NULL;
    if (wanted != f->ran_of) {
        f->ran_of = wanted;
        f->ran = hr__record_ran(f->record, event->device, call);
    }
    return f->ran;
}

static struct hr__block_event access_of(struct finder *f, const struct hr_memory_event *event,
                                        const struct live *live)
{
    const struct hr_memory_ran *ran = ran_of(f, event);
    struct hr__block_event one = {
        .event = event,
        .block = live->block,
        .before = live->kind,
        .before_clock = live->clock,
        .before_call = live->call,
        .before_ns = live->end_ns,
        .before_event_ns = live->event_ns,
        .at_ns = ran ? ran->begin_ns : event->time_ns,
        .end_ns = ran ? ran->end_ns : event->time_ns,
        .clock = ran                                                   ? HR__CLOCK_DEVICE
                 : event->device && event->flags & HR_MEMORY_HOST_TIME ? HR__CLOCK_CALL
                                                                       : HR__CLOCK_EVENT,
    };
    return one;
}

static int on_access(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = find_live(f, event);
    if (!live) {
        int code = begin_block(f, event, &live);
        if (code)
            return code;
    }
    struct hr__block *block = &f->out->blocks[live->block];
    struct hr__block_event one = access_of(f, event, live);
    if (!block->reads && !block->writes) {
        block->first_ns = event->time_ns;
        block->first_op = event->what;
    }
    block->last_ns = event->time_ns;
    block->last_call = (uint32_t)(event->bytes >> 32);
    block->phases |= (uint8_t)(1 << (event->phase & 3));
    if (event->kind == HR_MEMORY_READ)
        block->reads++;
    else
        block->writes++;
    live->end_ns = one.end_ns;
    live->event_ns = event->time_ns;
    live->call = block->last_call;
    live->kind = event->kind;
    live->clock = one.clock;
    f->out->accesses++;
    f->out->of_device[event->device].accesses++;
    f->out->of_device[event->device].host_timed += one.clock == HR__CLOCK_CALL;
    if (f->fn)
        f->fn(f->arg, f->out, &one);
    return 0;
}

static void on_describe(struct finder *f, const struct hr_memory_event *event)
{
    struct live *live = find_live(f, event);
    if (!live)
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
    report(f, event, NONE);
}

static void on_failed(struct hr__blocks_found *out, const struct hr_memory_event *event)
{
    if (!out->failed++) {
        out->failed_ns = event->time_ns;
        out->failed_phase = event->phase;
    }
    if (event->bytes > out->failed_bytes)
        out->failed_bytes = event->bytes;
}

static int on_event(struct finder *f, const struct hr_memory_event *event)
{
    if (event->phase)
        f->out->last_phase = event->phase;
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
        on_failed(f->out, event);
        return 0;
    case HR_MEMORY_SEGMENT:
    case HR_MEMORY_SEGMENT_FREE:
        report(f, event, NONE);
        return 0;
    default: /* from a later version */
        return 0;
    }
}

int hr__blocks_host_timed(const struct hr__blocks_found *found, int device)
{
    return found->of_device[device].host_timed * 100 > found->of_device[device].accesses;
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
    if (!code && !n)
        code = hr__blocks_classify(out);
    if (code)
        hr__fail(error, code, "while reading the record's blocks: %s", hr__errno_text(code));
    else
        code = n;
    if (code) {
        hr__blocks_found_clear(out);
        return code;
    }
    return 0;
}

void hr__blocks_found_clear(struct hr__blocks_found *found)
{
    hr__free(found->blocks);
    hr__free(found->freed);
    *found = (struct hr__blocks_found){.blocks = NULL};
}
