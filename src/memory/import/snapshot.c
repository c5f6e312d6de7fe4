/*
 * Imports PyTorch's snapshots (torch.cuda.memory._dump_snapshot): a pickle of a dict.
 * `device_traces` lists each device's entries, from a ring buffer that may have lost its beginning;
 * `segments` is the state at the end; `external_annotations` are the profiler's ranges. Keys vary
 * between versions: unknown ones are ignored, missing ones tolerated.
 *
 * Sizes are the requested ones. A block counts as freed when its free completes: while another
 * stream may still use it, its memory is not available. Blocks from before the trace are those that
 * the trace frees but does not allocate, and those that exist at the end but were never allocated.
 * Finding them takes two passes, of which the first only surveys.
 */
#include "memory/import/import.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/import/pickle.h"
#include "memory/import/pieces.h"
#include "memory/import/places.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ACCELERATORS (HR__IMPORT_DEVICES_MOST - 1)

/* A list of frames stores the id of its stack and its phase in its note. */
#define PHASE_AT   30
#define STACK_MASK ((UINT32_C(1) << PHASE_AT) - 1)

enum action {
    UNKNOWN,
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SNAPSHOT,
    OOM,
};

static const struct {
    const char *name;
    enum action action;
} actions[] = {
    {"alloc", ALLOC},
    {"free_requested", FREE_REQUESTED},
    {"free_completed", FREE_COMPLETED},
    {"segment_alloc", SEGMENT_ALLOC},
    {"segment_map", SEGMENT_ALLOC},
    {"segment_free", SEGMENT_FREE},
    {"segment_unmap", SEGMENT_FREE},
    {"snapshot", SNAPSHOT},
    {"oom", OOM},
};

struct snapshot_entry {
    enum action action;
    uint64_t address, bytes;
    uint64_t time_us;
    const struct hr__pickle_value *frames;
};

/* A device's entries and the reading position. */
struct snapshot_trace {
    const struct hr__pickle_value *entries;
    uint32_t next, count;
    struct snapshot_entry entry; /* the next entry */
    uint64_t last_us;
    struct hr__pieces pieces; /* memory the allocator has taken from the device */
};

/* A block or segment from before the trace. */
struct before {
    struct hr_memory_event event;
    const struct hr__pickle_value *frames;
};

struct snapshot {
    struct hr__import *im;
    const struct hr__pickle_value *segments, *annotations;
    struct snapshot_trace traces[ACCELERATORS];
    uint32_t trace_count;
    struct hr__memory_places places; /* addresses found by the survey */
    struct hr__memory_places lives;  /* recorded blocks; bytes: stack and pass, mark: phase */
    struct before *before, *late;    /* late: allocated after the trace ended */
    size_t before_count, late_count;
    uint64_t first_us, last_us, entries;
    uint64_t unknown;                  /* entries with unknown actions */
    uint64_t left_out;                 /* entries of unsupported devices */
    uint64_t live_bytes, active_bytes; /* at the end: by the trace, by the segments */
    uint64_t gone_blocks;              /* live in the trace but not in the segments */
    uint32_t device;                   /* device whose segments are being recorded */
    uint32_t annotation, annotator;    /* next annotation; whose are used */
    uint32_t optimizing, iterations;   /* open ranges of the optimizer; iterations so far */
    unsigned annotated;                /* phase named by open annotations; 0: none */
    uint32_t annotated_depth;          /* number of these */
    uint32_t pass;                     /* backward passes so far */
    unsigned phase;                    /* of the last allocation or free with a known phase */
    int has_steps;                     /* the profiler's steps mark the iterations */
};

/* ---- values ---- */

static uint64_t number(const struct hr__pickle_value *dict, const char *key, uint64_t otherwise)
{
    uint64_t value;
    return hr__pickle_u64(hr__pickle_get(dict, key), &value) ? value : otherwise;
}

static struct snapshot_entry decode(const struct hr__pickle_value *dict, uint64_t last_us)
{
    const char *name = hr__pickle_text(hr__pickle_get(dict, "action"));
    struct snapshot_entry e = {
        .address = number(dict, "addr", 0),
        .bytes = number(dict, "size", 0),
        .time_us = number(dict, "time_us", last_us),
        .frames = hr__pickle_get(dict, "frames"),
    };
    for (size_t i = 0; name && i < sizeof actions / sizeof *actions; i++)
        if (!strcmp(name, actions[i].name))
            e.action = actions[i].action;
    return e;
}

/* Reads a trace's next entry into its `entry`; 0: the end. */
static int step(struct snapshot_trace *t)
{
    if (t->next >= t->count)
        return 0;
    t->entry = decode(hr__pickle_at(t->entries, t->next), t->last_us);
    t->last_us = t->entry.time_us;
    return 1;
}

/* ---- stacks ---- */

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static int is_python(const struct hr__pickle_value *frame)
{
    const char *file = hr__pickle_text(hr__pickle_get(frame, "filename"));
    return file && (*file == '<' || ends_with(file, ".py"));
}

/* Returns the phase of a frame: functions of the optimizer and the backward pass are recognized by
 * name; other calls of modules are the forward pass. */
static enum hr_memory_phase phase_of(const struct hr__pickle_value *frame)
{
    const char *file = hr__pickle_text(hr__pickle_get(frame, "filename"));
    const char *name = hr__pickle_text(hr__pickle_get(frame, "name"));
    if (file && strstr(file, "torch/optim/"))
        return HR_MEMORY_OPTIMIZER;
    if (name && (strstr(name, "autograd::Engine") || strstr(name, "_engine_run_backward")))
        return HR_MEMORY_BACKWARD;
    return file && strstr(file, "torch/nn/modules/") ? HR_MEMORY_FORWARD : HR_MEMORY_OUTSIDE;
}

/* Returns a stack's note: its id and phase. If a stack has both Python and C++ frames, only the
 * Python ones are kept. Most entries share their stacks, so a list keeps its note. */
static uint32_t note_of(struct snapshot *s, const struct hr__pickle_value *frames)
{
    struct hr_memory_frame out[HR__IMPORT_FRAMES_MOST];
    uint32_t count = hr__pickle_count(frames), python = 0, phase = HR_MEMORY_OUTSIDE;
    size_t n = 0;
    if (!count)
        return 0;
    if (frames->as.many->note)
        return frames->as.many->note;
    for (uint32_t i = 0; i < count; i++) {
        const struct hr__pickle_value *frame = hr__pickle_at(frames, i);
        uint32_t one = phase_of(frame);
        python |= (uint32_t)is_python(frame);
        phase = one > phase ? one : phase;
    }
    for (uint32_t i = 0; i < count && n < HR__IMPORT_FRAMES_MOST; i++) {
        const struct hr__pickle_value *frame = hr__pickle_at(frames, i);
        if (python && !is_python(frame))
            continue;
        out[n++] = (struct hr_memory_frame){
            .file = hr__import_name(s->im, hr__pickle_text(hr__pickle_get(frame, "filename"))),
            .function = hr__import_name(s->im, hr__pickle_text(hr__pickle_get(frame, "name"))),
            .line = (uint32_t)number(frame, "line", 0),
        };
    }
    uint32_t id = hr_memory_stack(s->im->recorder, out, n) & STACK_MASK;
    return frames->as.many->note = id | phase << PHASE_AT;
}

static uint32_t stack_of(struct snapshot *s, const struct hr__pickle_value *frames)
{
    return note_of(s, frames) & STACK_MASK;
}

/* ---- blocks from before the trace ---- */

static int add_to(struct before **list, size_t *count, struct before one)
{
    if (hr__reserve(HR__TAG_MEMORY, list, *count + 1))
        return -ENOMEM;
    (*list)[(*count)++] = one;
    return 0;
}

static int add_before(struct snapshot *s, enum hr_memory_kind kind, uint64_t address,
                      uint64_t bytes, const struct hr__pickle_value *frames)
{
    struct before one = {
        .event = {.kind = (uint8_t)kind,
                  .address = address,
                  .bytes = bytes,
                  .device = (uint8_t)(s->device + 1)},
        .frames = frames,
    };
    return add_to(&s->before, &s->before_count, one);
}

/* An hr__piece_fn of the survey: a missing piece existed before. */
static int survey_freed(void *arg, enum hr__piece_change change, struct hr__memory_piece piece)
{
    return change == HR__PIECE_MISSING
               ? add_before(arg, HR_MEMORY_SEGMENT, piece.begin, piece.end - piece.begin, NULL)
               : 0;
}

/* Likewise for pieces that exist at the end and are not in the trace. */
static int survey_left(void *arg, enum hr__piece_change change, struct hr__memory_piece piece)
{
    return change == HR__PIECE_NEW
               ? add_before(arg, HR_MEMORY_SEGMENT, piece.begin, piece.end - piece.begin, NULL)
               : 0;
}

static struct hr__memory_piece piece_of(uint64_t address, uint64_t bytes)
{
    return (struct hr__memory_piece){address, address + (bytes > ~address ? ~address : bytes)};
}

static int survey_entry(struct snapshot *s, struct snapshot_trace *t)
{
    const struct snapshot_entry *e = &t->entry;
    struct hr__memory_piece piece = piece_of(e->address, e->bytes);
    struct hr__memory_place *place;
    int code = 0;
    switch (e->action) {
    case ALLOC:
    case FREE_COMPLETED:
        place = hr__places_find(&s->places, (uint8_t)(s->device + 1), e->address);
        if (!place)
            return -ENOMEM;
        if (e->action == FREE_COMPLETED && !place->is_known)
            code = add_before(s, HR_MEMORY_PRESENT, e->address, e->bytes, NULL);
        place->is_known = 1;
        place->lives = e->action == ALLOC;
        place->bytes = e->bytes;
        return code;
    case SEGMENT_ALLOC:
        return hr__pieces_add(&t->pieces, piece, NULL, NULL);
    case SEGMENT_FREE:
        return hr__pieces_remove(&t->pieces, piece, survey_freed, s);
    case UNKNOWN:
        s->unknown++;
        return 0;
    default:
        return 0;
    }
}

static int survey_trace(struct snapshot *s, struct snapshot_trace *t)
{
    int code = 0;
    for (; !code && step(t); t->next++) {
        code = survey_entry(s, t);
        if (!s->entries++ || t->entry.time_us < s->first_us)
            s->first_us = t->entry.time_us;
        if (t->entry.time_us > s->last_us)
            s->last_us = t->entry.time_us;
    }
    t->next = 0;
    t->last_us = s->first_us;
    return code;
}

/* Surveys a block of the final state. */
static int survey_block(struct snapshot *s, const struct hr__pickle_value *block, uint64_t address,
                        uint64_t size)
{
    const char *state = hr__pickle_text(hr__pickle_get(block, "state"));
    uint64_t bytes = number(block, "requested_size", size);
    const struct hr__pickle_value *frames = hr__pickle_get(block, "frames");
    if (!state || strncmp(state, "active", 6))
        return 0;
    s->active_bytes += bytes;
    struct hr__memory_place *place = hr__places_find(&s->places, (uint8_t)(s->device + 1), address);
    if (!place)
        return -ENOMEM;
    int was_known = place->is_known, lived = place->lives;
    place->is_known = place->mark = 1;
    if (lived)
        return 0;
    place->lives = 1;
    place->bytes = bytes;
    if (!was_known)
        return add_before(s, HR_MEMORY_PRESENT, address, bytes, frames);
    struct before one = {.event = {.kind = HR_MEMORY_ALLOC,
                                   .address = address,
                                   .bytes = bytes,
                                   .device = (uint8_t)(s->device + 1)},
                         .frames = frames};
    return add_to(&s->late, &s->late_count, one);
}

static int survey_segment(struct snapshot *s, const struct hr__pickle_value *segment)
{
    const struct hr__pickle_value *blocks = hr__pickle_get(segment, "blocks");
    uint64_t device = number(segment, "device", 0), at = number(segment, "address", 0);
    if (device >= ACCELERATORS) {
        s->left_out++;
        return 0;
    }
    s->device = (uint32_t)device;
    int code = hr__pieces_add(&s->traces[device].pieces,
                              piece_of(at, number(segment, "total_size", 0)), survey_left, s);
    for (uint32_t i = 0; i < hr__pickle_count(blocks) && !code; i++) {
        const struct hr__pickle_value *block = hr__pickle_at(blocks, i);
        uint64_t size = number(block, "size", 0), address = number(block, "address", at);
        code = survey_block(s, block, address, size);
        at = address + size;
    }
    return code;
}

static int survey(struct snapshot *s)
{
    int code = 0;
    for (s->device = 0; s->device < s->trace_count && !code; s->device++)
        code = survey_trace(s, &s->traces[s->device]);
    for (uint32_t i = 0; i < hr__pickle_count(s->segments) && !code; i++)
        code = survey_segment(s, hr__pickle_at(s->segments, i));
    for (size_t i = 0; i < s->places.capacity; i++) {
        const struct hr__memory_place *place = &s->places.table[i];
        s->live_bytes += place->lives ? place->bytes : 0;
        s->gone_blocks += place->lives && !place->mark;
    }
    for (size_t i = 0; i < ACCELERATORS; i++)
        hr__pieces_clear(&s->traces[i].pieces);
    return code ? hr__import_no_memory(s->im) : 0;
}

/* ---- recording ---- */

static uint64_t ns_of(const struct snapshot *s, uint64_t time_us)
{
    uint64_t us = time_us > s->first_us ? time_us - s->first_us : 0;
    return us < UINT64_MAX / 4000 ? us * 1000 + 1 : s->im->last_ns + 1;
}

/* An hr__piece_fn: records what the allocator takes from and returns to the device. */
static int record_piece(void *arg, enum hr__piece_change change, struct hr__memory_piece piece)
{
    struct snapshot *s = arg;
    if (change != HR__PIECE_MISSING)
        hr__import_record(
            s->im, (struct hr_memory_event){
                       .time_ns = ns_of(s, s->traces[s->device].last_us),
                       .address = piece.begin,
                       .bytes = piece.end - piece.begin,
                       .kind = change == HR__PIECE_NEW ? HR_MEMORY_SEGMENT : HR_MEMORY_SEGMENT_FREE,
                       .device = (uint8_t)(s->device + 1),
                   });
    return 0;
}

static void describe(struct snapshot *s, const struct hr__memory_place *life, uint64_t time_ns,
                     int freed)
{
    enum hr_memory_category category =
        hr__import_category(life->mark, freed, (uint32_t)life->bytes == s->pass);
    if (category)
        hr__import_record(s->im, (struct hr_memory_event){
                                     .time_ns = time_ns,
                                     .address = life->address,
                                     .bytes = hr_memory_about(category, 0),
                                     .kind = HR_MEMORY_DESCRIBE,
                                     .device = life->device,
                                 });
}

/* Follows a block's life; its category is known when it ends. A free without a stack uses that of
 * the allocation; its phase is that of the allocations around it. */
static int follow(struct snapshot *s, const struct hr_memory_event *event)
{
    struct hr__memory_place *life = hr__places_find(&s->lives, event->device, event->address);
    if (!life)
        return -ENOMEM;
    int is_alloc = event->kind == HR_MEMORY_ALLOC;
    uint32_t stack = (uint32_t)(life->bytes >> 32);
    if (event->phase && (is_alloc || event->what != stack)) {
        s->pass += event->phase == HR_MEMORY_BACKWARD && s->phase != HR_MEMORY_BACKWARD;
        s->phase = event->phase;
    }
    if (!is_alloc && life->lives)
        describe(s, life, event->time_ns, s->phase);
    life->lives = (uint8_t)is_alloc;
    life->mark = event->phase;
    life->bytes = (uint64_t)event->what << 32 | s->pass;
    return 0;
}

static int record_block(struct snapshot *s, enum hr_memory_kind kind,
                        const struct snapshot_entry *e)
{
    uint32_t note = note_of(s, e->frames);
    struct hr_memory_event event = {
        .time_ns = ns_of(s, e->time_us),
        .address = e->address,
        .bytes = e->bytes,
        .what = note & STACK_MASK,
        .kind = (uint8_t)kind,
        .phase = (uint8_t)(s->optimizing      ? HR_MEMORY_OPTIMIZER
                           : note >> PHASE_AT ? note >> PHASE_AT
                                              : s->annotated),
        .device = (uint8_t)(s->device + 1),
    };
    int code = kind == HR_MEMORY_FAILED ? 0 : follow(s, &event);
    if (kind == HR_MEMORY_FREE) {
        event.what = 0;
        event.phase = (uint8_t)s->phase;
    }
    hr__import_record(s->im, event);
    return code;
}

static int record_entry(struct snapshot *s, struct snapshot_trace *t)
{
    const struct snapshot_entry *e = &t->entry;
    struct hr__memory_piece piece = piece_of(e->address, e->bytes);
    switch (e->action) {
    case ALLOC:
        return record_block(s, HR_MEMORY_ALLOC, e);
    case FREE_COMPLETED:
        return record_block(s, HR_MEMORY_FREE, e);
    case OOM:
        return record_block(s, HR_MEMORY_FAILED, e);
    case SEGMENT_ALLOC:
        return hr__pieces_add(&t->pieces, piece, record_piece, s);
    case SEGMENT_FREE:
        return hr__pieces_remove(&t->pieces, piece, record_piece, s);
    default:
        return 0;
    }
}

static void mark(struct snapshot *s, uint64_t time_us, const char *name, uint64_t value)
{
    hr__import_record(s->im, (struct hr_memory_event){.time_ns = ns_of(s, time_us),
                                                      .what = hr__import_name(s->im, name),
                                                      .bytes = value,
                                                      .kind = HR_MEMORY_MARK});
}

/* Returns the rest of an annotation's name after a prefix; NULL: no such prefix. */
static const char *after(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return name && !strncmp(name, prefix, length) ? name + length : NULL;
}

/* Returns the phase that a user's annotation names ("## forward ##"); 0: none or several. */
static unsigned phase_named(const char *name)
{
    static const struct {
        const char *word;
        enum hr_memory_phase phase;
    } words[] = {{"forward", HR_MEMORY_FORWARD},
                 {"backward", HR_MEMORY_BACKWARD},
                 {"optimizer", HR_MEMORY_OPTIMIZER}};
    unsigned phase = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strcasestr(name, words[i].word))
            continue;
        if (phase)
            return 0;
        phase = words[i].phase;
    }
    return phase;
}

/* Begins or ends a phase by an annotation. Among several open ones the outermost counts. */
static void annotate(struct snapshot *s, unsigned phase, int begins)
{
    if (!s->annotated && begins) {
        s->pass += phase == HR_MEMORY_BACKWARD && s->phase != HR_MEMORY_BACKWARD;
        s->phase = s->annotated = phase;
    }
    if (s->annotated != phase)
        return;
    s->annotated_depth += begins ? 1 : UINT32_MAX;
    if (!s->annotated_depth)
        s->phase = s->annotated = HR_MEMORY_OUTSIDE;
}

static void record_annotation(struct snapshot *s, const struct hr__pickle_value *annotation)
{
    const char *name = hr__pickle_text(hr__pickle_get(annotation, "name"));
    const char *stage = hr__pickle_text(hr__pickle_get(annotation, "stage"));
    uint64_t time_us = number(annotation, "time_us", s->first_us);
    const char *rest;
    if (!name || !stage || number(annotation, "device", s->annotator) != s->annotator)
        return;
    int begins = !strcmp(stage, "START");
    if (!after(name, "Optimizer.") && phase_named(name))
        annotate(s, phase_named(name), begins);
    if (after(name, "Optimizer.")) {
        if (begins)
            s->optimizing++;
        else if (s->optimizing)
            s->optimizing--;
        if (!begins && !s->has_steps && after(name, "Optimizer.step"))
            mark(s, time_us, "iteration", s->iterations++);
    } else if (begins && (rest = after(name, "ProfilerStep#"))) {
        mark(s, time_us, "iteration", strtoull(rest, NULL, 10));
    } else if (begins) {
        mark(s, time_us, name, s->annotation);
    }
}

/* Applies the annotations up to a moment. */
static void record_annotations(struct snapshot *s, uint64_t until_us)
{
    for (; s->annotation < hr__pickle_count(s->annotations); s->annotation++) {
        const struct hr__pickle_value *one = hr__pickle_at(s->annotations, s->annotation);
        if (number(one, "time_us", s->first_us) > until_us)
            return;
        record_annotation(s, one);
    }
}

static int record_before(struct snapshot *s)
{
    int code = 0;
    for (size_t i = 0; i < s->before_count && !code; i++) {
        struct hr_memory_event event = s->before[i].event;
        s->device = event.device - 1u;
        /* As a piece, so that it can be removed in parts. */
        if (event.kind == HR_MEMORY_SEGMENT) {
            s->traces[s->device].last_us = s->first_us;
            code = hr__pieces_add(&s->traces[s->device].pieces,
                                  piece_of(event.address, event.bytes), record_piece, s);
        } else {
            event.what = stack_of(s, s->before[i].frames);
            hr__import_record(s->im, event);
        }
    }
    return code;
}

/* Records the entries of all devices in order of time. */
static int record_traces(struct snapshot *s)
{
    int code = 0;
    for (uint32_t i = 0; i < s->trace_count; i++)
        step(&s->traces[i]);
    while (!code) {
        struct snapshot_trace *first = NULL;
        for (uint32_t i = 0; i < s->trace_count; i++) {
            struct snapshot_trace *t = &s->traces[i];
            if (t->next < t->count && (!first || t->entry.time_us < first->entry.time_us))
                first = t;
        }
        if (!first)
            break;
        record_annotations(s, first->entry.time_us);
        s->device = (uint32_t)(first - s->traces);
        code = record_entry(s, first);
        first->next++;
        step(first);
    }
    record_annotations(s, UINT64_MAX);
    for (size_t i = 0; i < s->lives.capacity && !code; i++)
        if (s->lives.table[i].lives)
            describe(s, &s->lives.table[i], ns_of(s, s->last_us), HR__IMPORT_NEVER);
    for (size_t i = 0; i < s->late_count; i++) {
        struct hr_memory_event event = s->late[i].event;
        event.time_ns = ns_of(s, s->last_us);
        event.what = stack_of(s, s->late[i].frames);
        hr__import_record(s->im, event);
    }
    return code;
}

static void record_notes(struct snapshot *s)
{
    uint64_t ghosts = 0;
    for (size_t i = 0; i < s->before_count; i++)
        ghosts += s->before[i].event.kind == HR_MEMORY_PRESENT;
    if (!s->entries)
        hr__import_note(s->im,
                        "The snapshot has no trace, only what there was at its end: recording was "
                        "never enabled (torch.cuda.memory._record_memory_history()).");
    else if (ghosts)
        hr__import_note(s->im,
                        "%" PRIu64 " blocks were allocated before the trace begins: it was enabled "
                        "later, or its ring of entries (max_entries) was full.",
                        ghosts);
    if (s->late_count)
        hr__import_note(s->im, "%zu blocks were allocated after the trace had ended.",
                        s->late_count);
    if (s->segments && (s->gone_blocks || s->live_bytes != s->active_bytes))
        hr__import_note(s->im,
                        "The trace and what there was at the end do not agree: %" PRIu64
                        " bytes live at the end of the trace, %" PRIu64
                        " were active in the snapshot; %" PRIu64
                        " blocks of the trace are not there.",
                        s->live_bytes, s->active_bytes, s->gone_blocks);
    if (s->pass)
        hr__import_note(s->im,
                        "What blocks are follows from when they were allocated and freed: by "
                        "the forward pass, the backward pass, the optimizer, as far as "
                        "stacks and annotations tell.");
    if (s->unknown)
        hr__import_note(s->im,
                        "%" PRIu64 " entries say what this version does not know: they "
                        "were left out.",
                        s->unknown);
    if (s->left_out)
        hr__import_note(s->im, "More than %d devices: those beyond were left out.", ACCELERATORS);
}

/* ---- the whole ---- */

/* Finds the members of the pickle; 0: not a snapshot. An old one is only the list of segments. */
static int take_root(struct snapshot *s, const struct hr__pickle_value *root)
{
    const struct hr__pickle_value *traces = hr__pickle_get(root, "device_traces"), *one;
    s->segments = hr__pickle_get(root, "segments");
    s->annotations = hr__pickle_get(root, "external_annotations");
    if (hr__pickle_get(hr__pickle_at(root, 0), "total_size"))
        s->segments = root;
    uint32_t count = hr__pickle_count(traces);
    s->left_out = count > ACCELERATORS ? count - ACCELERATORS : 0;
    s->trace_count = count > ACCELERATORS ? ACCELERATORS : count;
    for (uint32_t i = 0; i < s->trace_count; i++) {
        s->traces[i].entries = hr__pickle_at(traces, i);
        s->traces[i].count = hr__pickle_count(s->traces[i].entries);
    }
    for (uint32_t i = hr__pickle_count(s->annotations); i-- > 0;) {
        one = hr__pickle_at(s->annotations, i);
        s->annotator = (uint32_t)number(one, "device", 0);
        if (after(hr__pickle_text(hr__pickle_get(one, "name")), "ProfilerStep#"))
            s->has_steps = 1;
    }
    return s->segments || traces;
}

static int record_all(struct snapshot *s)
{
    int code = survey(s);
    if (code)
        return code;
    if (!s->entries && !s->before_count)
        return hr__fail(s->im->error, -ENODATA,
                        "%s: the snapshot has no allocations: recording was never enabled; call "
                        "torch.cuda.memory._record_memory_history() before training",
                        s->im->in->name);
    code = hr__import_begin(s->im, "snapshot of PyTorch's allocator",
                            s->first_us < UINT64_MAX / 1000 ? s->first_us * 1000 : 0, 0);
    if (code)
        return code;
    if (record_before(s) || record_traces(s))
        return hr__import_no_memory(s->im);
    record_notes(s);
    return 0;
}

int hr__import_snapshot(struct hr__import *im)
{
    struct snapshot *s = hr__alloc(HR__TAG_MEMORY, 1, sizeof *s);
    struct hr__pickle *pickle = NULL;
    if (!s)
        return hr__import_no_memory(im);
    s->im = im;
    int code = hr__pickle_read(&pickle, im->in, im->error);
    if (!code && !take_root(s, hr__pickle_root(pickle)))
        code = hr__fail(im->error, -EBADMSG,
                        "%s is a pickle, but no snapshot of PyTorch's allocator: it has neither "
                        "segments nor device_traces",
                        im->in->name);
    if (!code)
        code = record_all(s);
    for (size_t i = 0; i < ACCELERATORS; i++)
        hr__pieces_clear(&s->traces[i].pieces);
    hr__places_clear(&s->places);
    hr__places_clear(&s->lives);
    hr__free(s->before);
    hr__free(s->late);
    hr__free(s);
    hr__pickle_destroy(&pickle);
    return code;
}
