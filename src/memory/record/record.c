/*
 * Reads a record file; see record.h.
 *
 * Opening reads the header of every extent, and all texts. Extents of events are then started in
 * the order of their first event. Extents that overlap in time, usually one per thread, are merged.
 * Accelerators' times are kept in memory, 24 bytes per call, sorted by call. Every number from the
 * file is checked against its bounds before it is used.
 */
#include "memory/record/record.h"

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "memory/record/format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define EVENT_BYTES sizeof(struct hr_memory_event)
#define RAN_BYTES   sizeof(struct hr_memory_ran)
#define TEXTS_MOST  (UINT32_C(1) << 24)
#define LATEST_NS   (UINT64_C(1) << 62)

/* An extent of events, according to its header. */
struct extent {
    uint64_t at; /* offset in the file */
    uint64_t first_ns, used, checksum;
    uint32_t thread;
    int is_ended;
    int is_noted; /* damage was noted: an extent may be read again */
};

/* An extent being read. */
struct stream {
    struct hr_memory_event *events;
    size_t count, next;
};

/* Texts of one kind, indexed by id - 1. */
struct texts {
    char **texts; /* each preceded by its length, see text_of */
    uint32_t count;
};

struct hr__record {
    int fd;
    char *path;
    struct hr__record_about about;
    struct hr__record_damage damage;
    struct extent *extents; /* sorted by first_ns */
    size_t extent_count, extent_next;
    struct stream *streams; /* extents being read */
    size_t stream_count;
    struct hr_memory_event *spare; /* buffer not used by a stream */
    struct texts names, stacks, facts;
    struct hr_memory_ran *ran; /* sorted by call and device, without duplicates */
    size_t ran_count;
};

static void note_damage(struct hr__record *r, uint64_t at, uint64_t bytes, const char *what)
{
    if (!r->damage.extents++) {
        r->damage.first_at = at;
        snprintf(r->damage.what, sizeof r->damage.what, "%s", what);
    }
    r->damage.lost_bytes += bytes;
}

/* ---- texts ---- */

struct text {
    uint32_t length;
    char bytes[];
};

static struct text *text_of(const struct texts *texts, uint32_t id)
{
    return id && id <= texts->count ? (struct text *)(void *)texts->texts[id - 1] : NULL;
}

static int grow_texts(struct texts *texts, uint32_t id)
{
    if (hr__reserve(HR__TAG_MEMORY, &texts->texts, id))
        return -ENOMEM;
    for (; texts->count < id; texts->count++)
        texts->texts[texts->count] = NULL;
    return 0;
}

static int add_text(struct texts *texts, uint32_t id, const char *bytes, uint32_t length)
{
    int code = grow_texts(texts, id);
    if (code)
        return code;
    struct text *text = hr__alloc(HR__TAG_MEMORY, 1, sizeof *text + length + 1);
    if (!text)
        return -ENOMEM;
    text->length = length;
    memcpy(text->bytes, bytes, length);
    hr__free(texts->texts[id - 1]);
    texts->texts[id - 1] = (char *)text;
    return 0;
}

static void clear_texts(struct texts *texts)
{
    for (uint32_t i = 0; i < texts->count; i++)
        hr__free(texts->texts[i]);
    hr__free(texts->texts);
}

/* Adds one text: returns 0, -ENOMEM, or 1 if it is damaged. Each fact is a new entry. */
static int take_text(struct hr__record *r, const struct hr__text_header *head, const char *bytes)
{
    /* The longest stack is shorter than the longest name. */
    int is_right =
        head->length <= HR__TEXT_MOST && (uint32_t)XXH3_64bits(bytes, head->length) == head->check;
    switch (head->kind) {
    case HR__TEXT_NAME:
    case HR__TEXT_STACK:
        if (!is_right || !head->id || head->id > TEXTS_MOST ||
            (head->kind == HR__TEXT_STACK &&
             (head->length % sizeof(struct hr_memory_frame) ||
              head->length > HR__STACK_FRAMES_MOST * sizeof(struct hr_memory_frame))))
            return 1;
        return add_text(head->kind == HR__TEXT_NAME ? &r->names : &r->stacks, head->id, bytes,
                        head->length);
    case HR__TEXT_FACT:
        return is_right && r->facts.count < TEXTS_MOST
                   ? add_text(&r->facts, r->facts.count + 1, bytes, head->length)
                   : 1;
    default:
        return is_right ? 0 : 1; /* unknown kind, from a later version */
    }
}

static int take_texts(struct hr__record *r, uint64_t at, const struct hr__extent_header *extent)
{
    uint64_t used = extent->used;
    char *bytes = hr__alloc(HR__TAG_MEMORY, 1, (size_t)used + 1);
    if (!bytes)
        return -ENOMEM;
    int64_t got = hr__read_at(r->fd, bytes, (size_t)used, at + sizeof(struct hr__extent_header));
    size_t end = got < 0 ? 0 : (size_t)got, next = 0;
    int code = got < 0 ? (int)got : 0;
    /* Each text has a checksum of its bytes, but only this one covers their ids. */
    if (!code && extent->is_ended == 1 &&
        (end < used || XXH3_64bits(bytes, end) != extent->checksum))
        code = 1;
    while (!code && next + sizeof(struct hr__text_header) <= end) {
        struct hr__text_header head;
        memcpy(&head, bytes + next, sizeof head);
        next += sizeof head;
        if (head.length > end - next) {
            code = 1;
            break;
        }
        code = take_text(r, &head, bytes + next);
        next += ((size_t)head.length + 7) / 8 * 8;
    }
    if (code == 1) {
        note_damage(r, at, next < used ? used - next : 0, "names are damaged");
        code = 0;
    }
    hr__free(bytes);
    return code;
}

/* ---- times of accelerators ---- */

static int is_ran(const struct hr_memory_ran *ran)
{
    return ran->device && ran->device < HR_MEMORY_LIBRARIES && ran->begin_ns <= ran->end_ns &&
           ran->end_ns <= LATEST_NS;
}

/* Reads an extent of accelerators' times; notes damage. */
static int take_ran(struct hr__record *r, uint64_t at, const struct hr__extent_header *extent)
{
    int code = hr__reserve(HR__TAG_MEMORY, &r->ran, r->ran_count + HR__EXTENT_RAN_MOST);
    if (code)
        return code;
    struct hr_memory_ran *ran = r->ran + r->ran_count;
    int64_t got =
        hr__read_at(r->fd, ran, (size_t)extent->used, at + sizeof(struct hr__extent_header));
    if (got < 0)
        return (int)got;
    size_t count = (size_t)got / RAN_BYTES, sound = 0;
    if (extent->is_ended == 1 &&
        ((size_t)got < extent->used || XXH3_64bits(ran, (size_t)got) != extent->checksum)) {
        note_damage(r, at, extent->used, "the checksum of a piece of accelerators' times is wrong");
        return 0;
    }
    while (sound < count && is_ran(&ran[sound]))
        sound++;
    if (sound < count)
        note_damage(r, at, (count - sound) * RAN_BYTES, "an accelerator's time is none");
    r->ran_count += sound;
    return 0;
}

/* Compares like strcmp. */
static int compare_ran(const struct hr_memory_ran *ran, uint32_t call, uint32_t device)
{
    if (ran->call != call)
        return ran->call < call ? -1 : 1;
    return ran->device < device ? -1 : ran->device > device;
}

static int by_call(const void *a, const void *b)
{
    const struct hr_memory_ran *y = b;
    return compare_ran(a, y->call, y->device);
}

/* Sorts them and merges the parts of the same call. */
static void order_ran(struct hr__record *r)
{
    size_t kept = 0, i = 1;
    /* Usually they are in order, and a sort would need as much memory again. */
    while (i < r->ran_count && by_call(&r->ran[i - 1], &r->ran[i]) <= 0)
        i++;
    if (i < r->ran_count)
        qsort(r->ran, r->ran_count, RAN_BYTES, by_call);
    for (i = 0; i < r->ran_count; i++) {
        struct hr_memory_ran *last = kept ? &r->ran[kept - 1] : NULL, *one = &r->ran[i];
        if (!last || by_call(last, one)) {
            r->ran[kept++] = *one;
            continue;
        }
        last->begin_ns = one->begin_ns < last->begin_ns ? one->begin_ns : last->begin_ns;
        last->end_ns = one->end_ns > last->end_ns ? one->end_ns : last->end_ns;
    }
    r->ran_count = r->about.ran = kept;
}

const struct hr_memory_ran *hr__record_ran(const struct hr__record *record, uint32_t device,
                                           uint32_t call)
{
    size_t low = 0, high = record->ran_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_ran(&record->ran[middle], call, device);
        if (!order)
            return &record->ran[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- opening ---- */

static int add_extent(struct hr__record *r, uint64_t at, const struct hr__extent_header *head)
{
    if (hr__reserve(HR__TAG_MEMORY, &r->extents, r->extent_count + 1))
        return -ENOMEM;
    r->extents[r->extent_count++] = (struct extent){
        .at = at,
        .first_ns = head->first_ns,
        .used = head->used,
        .checksum = head->checksum,
        .thread = head->thread,
        .is_ended = head->is_ended == 1,
    };
    r->about.events += head->used / EVENT_BYTES;
    if (head->thread + 1 > r->about.threads && head->thread < UINT32_MAX)
        r->about.threads = head->thread + 1;
    return 0;
}

/* Describes what is wrong with an extent's header, or returns NULL. */
static const char *wrong_with(const struct hr__extent_header *head)
{
    if (head->magic != HR__EXTENT_MAGIC)
        return "a piece of the file is no piece of a record";
    if (head->used > HR__EXTENT_ROOM || head->first_ns > LATEST_NS)
        return "the head of a piece says what cannot be";
    if (head->kind == HR__EXTENT_EVENTS && head->used % EVENT_BYTES)
        return "a piece of events ends within one";
    if (head->kind == HR__EXTENT_RAN && head->used % RAN_BYTES)
        return "a piece of accelerators' times ends within one";
    return NULL;
}

static int look_at(struct hr__record *r, uint64_t at)
{
    struct hr__extent_header head;
    uint64_t there = r->about.bytes - at;
    int64_t got = hr__read_at(r->fd, &head, sizeof head, at);
    if (got < 0)
        return (int)got;
    if ((size_t)got < sizeof head) {
        note_damage(r, at, there, "the file ends within a piece");
        return 0;
    }
    /* The extent was claimed, and its writer was killed before using it. */
    if (!head.magic && !head.used)
        return 0;
    const char *wrong = wrong_with(&head);
    if (wrong) {
        note_damage(r, at, there < HR__EXTENT_BYTES ? there : HR__EXTENT_BYTES, wrong);
        return 0;
    }
    uint64_t behind = there - sizeof head;
    if (head.used > behind) {
        note_damage(r, at, head.used - behind, "the file ends within a piece");
        size_t unit = head.kind == HR__EXTENT_RAN ? RAN_BYTES : EVENT_BYTES;
        head.used = behind / unit * unit;
        head.is_ended = 0;
    }
    if (head.kind == HR__EXTENT_RAN)
        return take_ran(r, at, &head);
    if (head.kind == HR__EXTENT_TEXTS)
        return take_texts(r, at, &head);
    return head.kind == HR__EXTENT_EVENTS && head.used ? add_extent(r, at, &head) : 0;
}

static int by_time(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->first_ns != y->first_ns)
        return x->first_ns < y->first_ns ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int read_header(struct hr__record *r, struct hr_error *error)
{
    struct hr__record_header h;
    struct stat status;
    if (fstat(r->fd, &status))
        return hr__fail(error, -errno, "%s: %s", r->path, hr__errno_text(errno));
    if (!S_ISREG(status.st_mode))
        return hr__fail(error, -EINVAL, "%s is not a regular file", r->path);
    int64_t got = hr__read_at(r->fd, &h, sizeof h, 0);
    if (got < 0)
        return hr__fail(error, (int)got, "%s: %s", r->path, hr__errno_text((int)got));
    if ((size_t)got < sizeof h || memcmp(h.magic, HR__RECORD_MAGIC, sizeof h.magic))
        return hr__fail(error, -EBADMSG, "%s is no memory record: headrace memory record makes one",
                        r->path);
    if (h.endian_mark != HR__ENDIAN_MARK)
        return hr__fail(error, -ENOTSUP, "%s was recorded on a machine of the other byte order",
                        r->path);
    if (h.version != HR__RECORD_VERSION)
        return hr__fail(error, -ENOTSUP,
                        "%s is a record of version %u; this library reads version %u: use the "
                        "one that recorded it",
                        r->path, h.version, HR__RECORD_VERSION);
    if (h.checksum != XXH3_64bits(&h, offsetof(struct hr__record_header, checksum)) ||
        h.header_bytes != HR__RECORD_HEADER || h.extent_bytes != HR__EXTENT_BYTES)
        return hr__fail(error, -EBADMSG, "%s: its header is damaged: nothing of it can be read",
                        r->path);
    r->about = (struct hr__record_about){
        .start_unix_ns = h.start_unix_ns,
        .pid = h.pid,
        .lost = h.lost,
        .is_ended = h.is_ended == 1,
        .problem = h.problem < 0 && h.problem > -4096 ? (int)h.problem : 0,
        .bytes = (uint64_t)status.st_size,
    };
    return 0;
}

static int open_file(struct hr__record *r, const char *path, struct hr_error *error)
{
    r->path = strdup(path);
    if (!r->path)
        return hr__fail(error, -ENOMEM, "out of memory for a record");
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (r->fd < 0)
        return hr__fail(error, -errno, "%s: %s", path, hr__errno_text(errno));
    int code = read_header(r, error);
    if (code)
        return code;
    for (uint64_t at = HR__RECORD_HEADER; at < r->about.bytes && !code; at += HR__EXTENT_BYTES)
        code = look_at(r, at);
    if (code)
        return hr__fail(error, code, "%s: %s", path, hr__errno_text(code));
    if (r->extent_count)
        qsort(r->extents, r->extent_count, sizeof *r->extents, by_time);
    order_ran(r);
    return 0;
}

int hr__record_open(struct hr__record **out, const char *path, struct hr_error *error)
{
    *out = NULL;
    struct hr__record *r = hr__alloc(HR__TAG_MEMORY, 1, sizeof *r);
    if (!r)
        return hr__fail(error, -ENOMEM, "out of memory for a record");
    r->fd = -1;
    int code = open_file(r, path, error);
    if (code) {
        hr__record_close(&r);
        return code;
    }
    *out = r;
    return 0;
}

void hr__record_rewind(struct hr__record *r)
{
    for (size_t i = 0; i < r->stream_count; i++)
        hr__free(r->streams[i].events);
    r->stream_count = 0;
    r->extent_next = 0;
}

void hr__record_close(struct hr__record **record)
{
    struct hr__record *r = *record;
    if (!r)
        return;
    *record = NULL;
    hr__record_rewind(r);
    clear_texts(&r->names);
    clear_texts(&r->stacks);
    clear_texts(&r->facts);
    hr__free(r->spare);
    hr__free(r->streams);
    hr__free(r->extents);
    hr__free(r->ran);
    if (r->fd >= 0)
        close(r->fd);
    free(r->path);
    hr__free(r);
}

void hr__record_about(const struct hr__record *record, struct hr__record_about *about)
{
    *about = record->about;
}

const struct hr__record_damage *hr__record_damage(const struct hr__record *record)
{
    return &record->damage;
}

/* ---- events ---- */

struct placed {
    struct hr_memory_event event;
    size_t place;
};

static int by_event_time(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->event.time_ns != y->event.time_ns)
        return x->event.time_ns < y->event.time_ns ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place; /* in the order written */
}

static int sort_placed(struct hr_memory_event *events, size_t count)
{
    struct placed *placed = hr__alloc(HR__TAG_MEMORY, count, sizeof *placed);
    if (!placed)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        placed[i] = (struct placed){events[i], i};
    qsort(placed, count, sizeof *placed, by_event_time);
    for (size_t i = 0; i < count; i++)
        events[i] = placed[i].event;
    hr__free(placed);
    return 0;
}

/* Sorts events, since accelerators' times arrive late. Uses insertion, because they are nearly in
 * order. */
static int sort_events(struct hr_memory_event *events, size_t count)
{
    size_t moves = 0;
    for (size_t i = 1; i < count; i++) {
        struct hr_memory_event one = events[i];
        size_t k = i;
        for (; k && events[k - 1].time_ns > one.time_ns; k--, moves++)
            events[k] = events[k - 1];
        events[k] = one;
        if (moves > 64 * count)
            return sort_placed(events, count);
    }
    return 0;
}

/* Returns the number of valid events from the front. */
static size_t sound_events(const struct hr_memory_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!events[i].kind || events[i].time_ns > LATEST_NS)
            return i;
    return count;
}

static void note_once(struct hr__record *r, struct extent *extent, uint64_t bytes, const char *what)
{
    if (!extent->is_noted)
        note_damage(r, extent->at, bytes, what);
    extent->is_noted = 1;
}

/* Reads an extent into *stream; returns 0 with no events if it is damaged. */
static int begin_stream(struct hr__record *r, struct extent *extent, struct stream *stream)
{
    if (!r->spare)
        r->spare = hr__alloc(HR__TAG_MEMORY, 1, HR__EXTENT_ROOM);
    if (!r->spare)
        return -ENOMEM;
    int64_t got = hr__read_at(r->fd, r->spare, (size_t)extent->used,
                              extent->at + sizeof(struct hr__extent_header));
    if (got < 0)
        return (int)got;
    size_t count = (size_t)got / EVENT_BYTES;
    *stream = (struct stream){.events = NULL};
    if (extent->is_ended &&
        ((size_t)got < extent->used || XXH3_64bits(r->spare, (size_t)got) != extent->checksum)) {
        note_once(r, extent, extent->used, "the checksum of a piece is wrong");
        return 0;
    }
    size_t sound = sound_events(r->spare, count);
    if (sound < count)
        note_once(r, extent, (count - sound) * EVENT_BYTES, "an event is none");
    if (!sound)
        return 0;
    int code = sort_events(r->spare, sound);
    if (code)
        return code;
    /* An extent starting too late would break the overall order. */
    if (r->spare[0].time_ns < extent->first_ns) {
        note_once(r, extent, extent->used, "the head of a piece says what cannot be");
        return 0;
    }
    *stream = (struct stream){.events = r->spare, .count = sound};
    r->spare = NULL;
    return 0;
}

static int add_stream(struct hr__record *r, const struct stream *stream)
{
    if (hr__reserve(HR__TAG_MEMORY, &r->streams, r->stream_count + 1))
        return -ENOMEM;
    r->streams[r->stream_count++] = *stream;
    return 0;
}

static uint64_t time_of(const struct stream *stream)
{
    return stream->events[stream->next].time_ns;
}

/* Returns the stream whose next event is earliest, NULL: none; *until: the next event of the other
 * streams. */
static struct stream *first_stream(struct hr__record *r, uint64_t *until)
{
    struct stream *first = NULL;
    *until = UINT64_MAX;
    for (size_t i = 0; i < r->stream_count; i++) {
        struct stream *s = &r->streams[i];
        if (!first || time_of(s) < time_of(first)) {
            if (first && time_of(first) < *until)
                *until = time_of(first);
            first = s;
        } else if (time_of(s) < *until) {
            *until = time_of(s);
        }
    }
    return first;
}

/* Starts all extents that begin no later than the earliest next event. */
static int begin_due(struct hr__record *r, struct hr_error *error)
{
    uint64_t until;
    for (;;) {
        struct stream *first = first_stream(r, &until), begun;
        if (r->extent_next == r->extent_count ||
            (first && r->extents[r->extent_next].first_ns > time_of(first)))
            return 0;
        int code = begin_stream(r, &r->extents[r->extent_next++], &begun);
        if (!code && begun.count && (code = add_stream(r, &begun)))
            hr__free(begun.events);
        if (code)
            return hr__fail(error, code, "%s: %s", r->path, hr__errno_text(code));
    }
}

static void end_streams(struct hr__record *r)
{
    for (size_t i = r->stream_count; i--;) {
        struct stream *s = &r->streams[i];
        if (s->next < s->count)
            continue;
        if (r->spare)
            hr__free(s->events);
        else
            r->spare = s->events;
        *s = r->streams[--r->stream_count];
    }
}

int hr__record_next(struct hr__record *r, const struct hr_memory_event **events,
                    struct hr_error *error)
{
    end_streams(r);
    int code = begin_due(r, error);
    if (code)
        return code;
    uint64_t until;
    struct stream *s = first_stream(r, &until);
    if (!s)
        return 0;
    if (r->extent_next < r->extent_count && r->extents[r->extent_next].first_ns < until)
        until = r->extents[r->extent_next].first_ns;
    size_t begin = s->next++;
    while (s->next < s->count && s->events[s->next].time_ns <= until)
        s->next++;
    *events = s->events + begin;
    return (int)(s->next - begin);
}

/* ---- names ---- */

const char *hr__record_name(const struct hr__record *record, uint32_t id)
{
    const struct text *text = text_of(&record->names, id);
    return text ? text->bytes : "?";
}

size_t hr__record_stack(const struct hr__record *record, uint32_t id,
                        const struct hr_memory_frame **frames)
{
    const struct text *text = text_of(&record->stacks, id);
    *frames = text ? (const void *)text->bytes : NULL;
    return text ? text->length / sizeof **frames : 0;
}

const char *hr__record_fact(const struct hr__record *record, const char *name)
{
    size_t length = strlen(name);
    for (uint32_t id = record->facts.count; id; id--) {
        const struct text *text = text_of(&record->facts, id);
        if (text && text->length > length && !memcmp(text->bytes, name, length) &&
            text->bytes[length] == '=')
            return text->bytes + length + 1;
    }
    return NULL;
}

const char *hr__record_fact_at(const struct hr__record *record, uint32_t at)
{
    const struct text *text = text_of(&record->facts, at + 1);
    return at < record->facts.count ? text ? text->bytes : "" : NULL;
}
