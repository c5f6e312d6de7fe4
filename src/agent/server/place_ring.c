/* Acquires places of the ring for chunks and publishes them; see place.h. */
#include "agent/server/place_inside.h"

#include "base/error.h"
#include "base/futex.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

void hr__places_ring(struct hr__places *places)
{
    atomic_fetch_add(&places->header->bell, 1);
    hr__futex_wake(&places->header->bell, INT32_MAX, 1);
}

uint64_t hr__cursor_next(const struct hr__places *p, const struct hr__place_cursor *cursor)
{
    uint64_t next = atomic_load(&cursor->control->next), most = p->published;
    uint64_t end = cursor->end;
    if (next > most)
        next = most;
    if (next < cursor->base)
        next = cursor->base;
    return next > end ? end : next;
}

/* A cursor may hold one ring's length at most: a job copies batches that it keeps longer. */
static uint64_t clamp_mark(const struct hr__places *p, uint64_t mark, uint64_t least, uint64_t next)
{
    if (mark < least)
        mark = least;
    if (next > p->ring_samples && mark < next - p->ring_samples)
        mark = next - p->ring_samples;
    return mark > next ? next : mark;
}

void hr__cursor_holds_locked(const struct hr__places *p, const struct hr__place_cursor *cursor,
                             uint64_t past[2], uint64_t present[2])
{
    uint64_t mark = atomic_load(&cursor->control->mark);
    past[0] = past[1] = present[0] = present[1] = 0;
    if (cursor->base == HR__SEQUENCE_NONE)
        return;
    past[1] = cursor->past[1];
    past[0] = clamp_mark(p, mark, cursor->past[0], past[1]);
    present[1] = hr__cursor_next(p, cursor);
    present[0] = clamp_mark(p, mark, cursor->base, present[1]);
}

bool hr__places_furthest(const struct hr__places *p, uint64_t *next,
                         const struct hr__place_cursor **cursor)
{
    bool found = false;
    for (const struct hr__place_cursor *s = p->cursors; s; s = s->next) {
        if (!s->is_taking)
            continue;
        uint64_t n = hr__cursor_next(p, s);
        if (n >= s->end || (found && n <= *next))
            continue;
        *next = n;
        if (cursor)
            *cursor = s;
        found = true;
    }
    return found;
}

/* Returns whether the cursor holds samples of [begin, end). */
static bool holds_locked(const struct hr__places *p, const struct hr__place_cursor *cursor,
                         uint64_t begin, uint64_t end)
{
    uint64_t past[2], present[2];
    hr__cursor_holds_locked(p, cursor, past, present);
    return (past[0] < past[1] && past[0] < end && begin < past[1]) ||
           (present[0] < present[1] && present[0] < end && begin < present[1]);
}

static bool is_held_locked(const struct hr__places *p, uint64_t number)
{
    uint64_t begin = number * p->chunk_samples, end = begin + p->chunk_samples;
    for (const struct hr__place_cursor *s = p->cursors; s; s = s->next)
        if (holds_locked(p, s, begin, end))
            return true;
    return false;
}

void hr__places_reclaim_locked(struct hr__places *p)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p->leased_count; i++) {
        if (is_held_locked(p, p->leased[i].number))
            p->leased[kept++] = p->leased[i];
        else
            p->spare[p->spares++] = p->leased[i].piece;
    }
    p->leased_count = kept;
}

/* Allocates a spare piece. That takes milliseconds, so it runs without the lock: only the one
 * thread that acquires changes the number of pieces. Returns false if there is no memory. */
static bool add_piece(struct hr__places *p)
{
    uint64_t begin = p->pieces * p->chunk_bytes;
    if (begin + p->chunk_bytes > p->header->data_bytes ||
        fallocate(p->data_file, 0, (off_t)begin, (off_t)p->chunk_bytes))
        return false;
    pthread_mutex_lock(&p->lock);
    p->spare[p->spares++] = p->pieces++;
    pthread_mutex_unlock(&p->lock);
    return true;
}

/* Returns whether the cursor still needs samples before `end`. */
static bool needs_locked(const struct hr__places *p, const struct hr__place_cursor *cursor,
                         uint64_t end)
{
    if (!cursor->is_taking)
        return false;
    uint64_t next = hr__cursor_next(p, cursor);
    if (next < cursor->end)
        return next < end;
    /* Between two epochs: if all jobs wait for all, the next epoch is kept for it. */
    return p->wish.is_waiting && !cursor->is_last && end > cursor->end;
}

/* Returns whether the furthest cursor runs short of samples unless chunk `number` is prepared now.
 * Chunks in preparation count as ready, because they need no more room. */
static bool is_short_locked(const struct hr__places *p, uint64_t number,
                            const struct hr__place_cursor **furthest)
{
    uint64_t next = 0, supply = number * p->chunk_samples;
    *furthest = NULL;
    bool is_taken = hr__places_furthest(p, &next, furthest);
    if (p->is_awaited) {
        *furthest = NULL; /* the job that waits has not been placed yet */
        return true;
    }
    if (!is_taken)
        return false;
    /* Two batches; one batch in a short ring, or the jobs could hardly be apart. */
    uint64_t batch = (*furthest)->batch_samples, enough = 2 * batch;
    if (enough > p->ring_samples / 4)
        enough = batch > p->ring_samples / 4 ? batch : p->ring_samples / 4;
    if (enough < 2 * p->chunk_samples && batch < p->chunk_samples)
        enough = 2 * p->chunk_samples;
    if (enough > p->ring_samples / 2)
        enough = p->ring_samples / 2;
    uint64_t wants = atomic_load(&(*furthest)->control->wants);
    return supply < next + enough || (wants > supply && wants <= next + p->ring_samples);
}

/* Expels all cursors that need samples before `end`, except the furthest. Returns false if that is
 * not allowed. */
static bool expel_locked(struct hr__places *p, const struct hr__place_cursor *furthest,
                         uint64_t end)
{
    for (struct hr__place_cursor *s = p->cursors; s; s = s->next)
        if (needs_locked(p, s, end) && (s == furthest || p->wish.is_waiting))
            return false;
    for (struct hr__place_cursor *s = p->cursors; s; s = s->next) {
        if (!needs_locked(p, s, end))
            continue;
        /* Store floor, then load mark and next again; a job that takes stores next, then loads
         * floor. So one of the two sees the other. */
        s->floor = end;
        atomic_store(&s->control->floor, end);
        if (needs_locked(p, s, end)) {
            s->is_expelled = true;
            s->is_taking = false;
        }
        p->wish.notify(p->wish.arg);
    }
    return true;
}

/* Frees the place of chunk `number` from its old samples. Returns 0; -EAGAIN: the samples are in
 * use; -ENOBUFS: that needs a spare piece, and there is none. */
static int clear_locked(struct hr__places *p, struct hr__place *place, uint64_t number)
{
    uint64_t old = place->number;
    if (old == HR__SEQUENCE_NONE)
        return 0;
    uint64_t end = (old + 1) * p->chunk_samples;
    bool is_needed = false;
    for (const struct hr__place_cursor *s = p->cursors; s; s = s->next)
        is_needed |= needs_locked(p, s, end);
    /* In this order, need before hold: a sample taken between the two checks counts as held. */
    if (!is_held_locked(p, old) && !is_needed)
        return 0;
    const struct hr__place_cursor *furthest;
    if (!is_short_locked(p, number, &furthest))
        return -EAGAIN;
    /* Before any job is expelled, check that there is memory for what the jobs hold. */
    hr__places_reclaim_locked(p);
    if (!p->spares)
        return -ENOBUFS;
    if (is_needed && !expel_locked(p, furthest, end))
        return -EAGAIN;
    if (is_held_locked(p, old)) {
        p->leased[p->leased_count++] = (struct hr__leased){.number = old, .piece = place->piece};
        place->piece = p->spare[--p->spares];
    }
    return 0;
}

/* Returns 0; -EAGAIN: the place is in use; -ENOBUFS: that needs a spare piece. */
static int try_locked(struct hr__places *p, uint64_t number)
{
    struct hr__place *place = &p->ring[number % p->places];
    return p->is_stopped || place->is_open ? -EAGAIN : clear_locked(p, place, number);
}

static void open_locked(struct hr__places *p, struct hr__place *place, uint64_t number)
{
    p->is_short = false;
    atomic_store(&p->header->wants_room, 0);
    if (number >= p->places && (number - p->places + 1) * p->chunk_samples > p->tail) {
        p->tail = (number - p->places + 1) * p->chunk_samples;
        atomic_store(&p->header->tail, p->tail);
        hr__places_forget_records_locked(p);
    }
    atomic_store(&hr__header_places(p)[number % p->places].number, HR__SEQUENCE_NONE);
    place->number = HR__SEQUENCE_NONE;
    place->is_open = true;
    if (p->acquired < number + 1)
        p->acquired = number + 1;
}

static void give_locked(struct hr__places *p, uint64_t number, struct hr__chunk *out)
{
    uint64_t at = number % p->places;
    struct hr__place *place = &p->ring[at];
    open_locked(p, place, number);
    *out = (struct hr__chunk){
        .images = p->data + place->piece * p->chunk_bytes,
        .labels = p->labels + at * p->chunk_samples,
        .indices = p->indices + at * p->chunk_samples,
        .extents = p->extents + at * p->chunk_samples * p->wish.dims,
        /* Jobs take no more from these: the place was free, or their floor was moved. */
        .records = (uint8_t *)p->header + p->header->records_offset +
                   at * p->chunk_samples * p->header->record_bytes,
    };
}

/* Returns 0 or -EAGAIN. `wants_room`: asks the jobs to notify us once they release samples. */
static int acquire(struct hr__places *p, uint64_t number, bool wants_room, struct hr__chunk *out)
{
    int r;
    do {
        pthread_mutex_lock(&p->lock);
        if (wants_room && !p->is_stopped) {
            p->is_short = true;
            atomic_store(&p->header->wants_room, 1);
        }
        r = try_locked(p, number);
        if (!r)
            give_locked(p, number, out);
        pthread_mutex_unlock(&p->lock);
    } while (r == -ENOBUFS && add_piece(p));
    return r ? -EAGAIN : 0;
}

int hr__places_acquire(struct hr__places *p, uint64_t number, struct hr__chunk *out)
{
    /* Set wants_room, then try once more: a job stores its mark, then loads wants_room. */
    return acquire(p, number, false, out) ? acquire(p, number, true, out) : 0;
}

void hr__places_drop(struct hr__places *p, uint64_t number)
{
    pthread_mutex_lock(&p->lock);
    p->ring[number % p->places].is_open = false;
    if (p->is_short)
        p->wish.notify(p->wish.arg);
    pthread_mutex_unlock(&p->lock);
}

/* Returns NULL without memory: the sample's path and reason are lost then, but the header still
 * marks it as bad. */
static struct hr__place_record *make_record(const struct hr__chunk_bad *bad)
{
    const char *path = bad && bad->path ? bad->path : "";
    const char *reason = bad && bad->reason ? bad->reason : "";
    size_t path_bytes = strlen(path) + 1, reason_bytes = strlen(reason) + 1;
    struct hr__place_record *record =
        hr__alloc(HR__TAG_AGENT, 1, sizeof *record + path_bytes + reason_bytes);
    if (!record)
        return NULL;
    char *text = (char *)(record + 1);
    memcpy(text, path, path_bytes);
    memcpy(text + path_bytes, reason, reason_bytes);
    record->path = text;
    record->reason = text + path_bytes;
    record->has_sample = bad && bad->path;
    record->index = bad ? bad->index : 0;
    return record;
}

void hr__place_record_free(struct hr__places *p, struct hr__place_record *record)
{
    if (record != &p->last_halt)
        hr__free(record);
}

/* Returns the preallocated record. If it is still in a list, it is about a time before the queue's
 * last start, and the jobs that it was for were notified or placed anew. */
static struct hr__place_record *take_last_halt_locked(struct hr__places *p)
{
    struct hr__place_record *halt = &p->last_halt, *before = NULL, **link = &p->records;
    while (*link && *link != halt) {
        before = *link;
        link = &before->next;
    }
    if (*link) {
        *link = halt->next;
        if (p->unsent == halt)
            p->unsent = halt->next;
        if (p->records_last == halt)
            p->records_last = before;
    }
    *halt = (struct hr__place_record){.path = "", .reason = ""};
    return halt;
}

/* Never fails: a job that is not notified of the queue's end would wait for ever. */
static struct hr__place_record *make_halt_locked(struct hr__places *p,
                                                 const struct hr__chunk_done *done)
{
    struct hr__place_record *record = make_record(&done->failed);
    if (!record)
        record = take_last_halt_locked(p);
    record->is_halt = true;
    record->error = done->error;
    return record;
}

static void add_record_locked(struct hr__places *p, struct hr__place_record *record,
                              uint64_t sequence)
{
    if (!record)
        return;
    record->sequence = sequence;
    if (p->records_last)
        p->records_last->next = record;
    else
        p->records = record;
    p->records_last = record;
    if (!p->unsent)
        p->unsent = record;
}

void hr__places_forget_records_locked(struct hr__places *p)
{
    while (p->records && p->records != p->unsent && p->records->sequence < p->tail) {
        struct hr__place_record *record = p->records;
        p->records = record->next;
        if (!p->records)
            p->records_last = NULL;
        hr__place_record_free(p, record);
    }
}

static void write_samples_locked(struct hr__places *p, const struct hr__chunk_done *done)
{
    uint64_t at = done->number % p->places * p->chunk_samples;
    struct hr__header_sample *samples =
        (struct hr__header_sample *)(void *)((uint8_t *)p->header + p->header->samples_offset) + at;
    for (size_t i = 0; i < done->count; i++) {
        samples[i] = (struct hr__header_sample){
            .label = p->labels[at + i], .index = p->indices[at + i], .instead = -1};
        for (size_t d = 0; d < p->wish.dims; d++)
            samples[i].extents[d] = p->extents[(at + i) * p->wish.dims + d];
    }
    for (size_t i = 0; i < done->bad_count; i++)
        if (done->bad[i].place < done->count)
            samples[done->bad[i].place].instead = (int64_t)done->bad[i].index;
}

static void show_locked(struct hr__places *p)
{
    struct hr__span *span = &p->spans[0];
    atomic_store(&p->header->head, span->published);
    if (span->is_halted)
        atomic_store(&p->header->halt, span->published);
    hr__places_ring(p);
}

/* Publishes a chunk of the present span. Samples are held back while records are unsent. */
static void publish_present_locked(struct hr__places *p, const struct hr__chunk_done *done)
{
    struct hr__span *span = &p->spans[0];
    uint64_t sequence = done->number * p->chunk_samples;
    span->published = sequence + done->count;
    p->published = span->published;
    for (size_t i = 0; i < done->bad_count; i++)
        if (done->bad[i].place < done->count)
            add_record_locked(p, make_record(&done->bad[i]), sequence + done->bad[i].place);
    if (done->error.code) {
        add_record_locked(p, make_halt_locked(p, done), span->published);
        span->is_halted = true;
    }
    if (!p->unsent)
        show_locked(p);
    if (p->unsent || span->is_halted || span->published == span->end)
        p->wish.notify(p->wish.arg);
}

void hr__places_publish(struct hr__places *p, const struct hr__chunk_done *done)
{
    uint64_t at = done->number % p->places;
    pthread_mutex_lock(&p->lock);
    struct hr__place *place = &p->ring[at];
    place->is_open = false;
    /* Ignore a chunk of a span that a newer start has replaced. */
    if (p->span_count && done->number * p->chunk_samples >= p->spans[0].first) {
        write_samples_locked(p, done);
        struct hr__header_place *header = &hr__header_places(p)[at];
        atomic_store(&header->offset, place->piece * p->chunk_bytes);
        atomic_store(&header->number, done->number);
        place->number = done->number;
        publish_present_locked(p, done);
    } else if (p->is_short) {
        p->wish.notify(p->wish.arg);
    }
    pthread_mutex_unlock(&p->lock);
}

double hr__places_ahead(struct hr__places *p)
{
    const struct hr__place_cursor *furthest = NULL;
    uint64_t next = 0;
    double ahead = 1e9;
    /* Before reading the list: a thread that removes a cursor checks `readers` afterwards. */
    atomic_fetch_add(&p->readers, 1);
    if (p->is_awaited)
        ahead = 0;
    else if (!p->is_stopped && hr__places_furthest(p, &next, &furthest))
        ahead = ((double)p->published - (double)next) / (double)furthest->batch_samples;
    atomic_fetch_sub(&p->readers, 1);
    return ahead;
}

void hr__places_recall(struct hr__places *p, uint64_t sequence, uint64_t end,
                       hr__place_record_fn fn, void *arg)
{
    pthread_mutex_lock(&p->lock);
    for (const struct hr__place_record *r = p->records; r && r != p->unsent; r = r->next)
        if (r->sequence >= sequence && r->sequence <= end)
            fn(arg, r);
    pthread_mutex_unlock(&p->lock);
}

void hr__places_publish_records(struct hr__places *p, hr__place_record_fn fn, void *arg)
{
    pthread_mutex_lock(&p->lock);
    bool was_held_back = p->unsent;
    for (const struct hr__place_record *r = p->unsent; r; r = r->next)
        fn(arg, r);
    p->unsent = NULL;
    if (was_held_back)
        show_locked(p);
    hr__places_forget_records_locked(p);
    pthread_mutex_unlock(&p->lock);
}

bool hr__places_take_room(struct hr__places *p)
{
    pthread_mutex_lock(&p->lock);
    bool is_short = p->is_short;
    p->is_short = false;
    atomic_store(&p->header->wants_room, 0);
    pthread_mutex_unlock(&p->lock);
    return is_short;
}

bool hr__places_wants_room(struct hr__places *p)
{
    pthread_mutex_lock(&p->lock);
    bool is_short = p->is_short;
    pthread_mutex_unlock(&p->lock);
    return is_short;
}
