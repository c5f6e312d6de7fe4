/* Reads and writes the meeting's records and texts of inputs (meeting_record.h). */
#include "cluster/meeting_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* Change it with the layout of the texts: ranks of other versions then count as missing. */
#define MAGIC "hr1"

#define NAME_MAX_BYTES  64
#define VALUE_MAX_BYTES 600
#define RUN_MAX         (UINT32_C(1) << 31)

uint32_t hr__meeting_record_check(const char *rest)
{
    return (uint32_t)XXH3_64bits(rest, strlen(rest));
}

int hr__meeting_record_write(char out[HR__MEETING_RECORD], const struct hr__meeting_record *r)
{
    char rest[HR__MEETING_RECORD];
    int n = snprintf(rest, sizeof rest,
                     "%d %d %" PRIu32 " %" PRIu32 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64
                     " %" PRIx64 " %" PRIx64 " %s",
                     r->world_size, r->host, r->run, r->writing, r->number, r->inputs, r->agreed,
                     r->before_number, r->before_inputs, r->before_agreed, r->place);
    if (n >= (int)sizeof rest)
        return -E2BIG;
    n = snprintf(out, HR__MEETING_RECORD, MAGIC " %08" PRIx32 " %s", hr__meeting_record_check(rest),
                 rest);
    return n < HR__MEETING_RECORD ? 0 : -E2BIG;
}

/* Reads a number and the blank after it. Returns where to go on; NULL: no number, or it is larger
 * than `most`. */
static const char *read_number(const char *at, unsigned base, uint64_t most, uint64_t *out)
{
    static const char digits[] = "0123456789abcdef";
    const char *begin = at, *digit;
    uint64_t value = 0;
    for (; *at && (digit = strchr(digits, *at)) && digit < digits + base; at++) {
        uint64_t d = (uint64_t)(digit - digits);
        if (value > (most - d) / base || d > most)
            return NULL;
        value = value * base + d;
    }
    *out = value;
    return at > begin && *at == ' ' ? at + 1 : NULL;
}

int hr__meeting_record_read(struct hr__meeting_record *out, const char *text)
{
    uint64_t world = 0, host = 0, run = 0, writing = 0, check = 0;
    struct hr__meeting_record r = {.world_size = 0};
    const struct {
        uint64_t *to, most;
        unsigned base;
    } fields[] = {{&world, HR__MEETING_RANKS_MAX, 10},
                  {&host, HR__HOST_LIST_MAX, 10},
                  {&run, RUN_MAX - 1, 10},
                  {&writing, RUN_MAX - 1, 10},
                  {&r.number, UINT64_MAX, 16},
                  {&r.inputs, UINT64_MAX, 16},
                  {&r.agreed, UINT64_MAX, 16},
                  {&r.before_number, UINT64_MAX, 16},
                  {&r.before_inputs, UINT64_MAX, 16},
                  {&r.before_agreed, UINT64_MAX, 16}};
    int in_none = 0;
    if (strncmp(text, MAGIC " ", sizeof MAGIC))
        return -EBADMSG;
    text = read_number(text + sizeof MAGIC, 16, UINT32_MAX, &check);
    if (!text || check != hr__meeting_record_check(text))
        return -EBADMSG;
    for (size_t i = 0; text && i < sizeof fields / sizeof *fields; i++) {
        in_none |= i == 1 && !strncmp(text, "-1 ", 3);
        text += i == 1 && in_none; /* skip the sign: the host is -1, and the 1 is read and
                                      ignored */
        text = read_number(text, fields[i].base, fields[i].most, fields[i].to);
    }
    if (!text || !world || !r.number || strlen(text) >= sizeof r.place || !*text)
        return -EBADMSG;
    r.world_size = (int)world;
    r.host = in_none ? -1 : (int)host;
    r.run = (uint32_t)run;
    r.writing = (uint32_t)writing;
    strcpy(r.place, text);
    *out = r;
    return 0;
}

static uint64_t job_digest(const char *job)
{
    return XXH3_64bits(job, strlen(job));
}

void hr__meeting_rank_key(char out[HR__MEETING_KEY], const char *job, int rank)
{
    snprintf(out, HR__MEETING_KEY, MAGIC "%016" PRIx64 ".%d", job_digest(job), rank);
}

void hr__meeting_inputs_key(char out[HR__MEETING_KEY], const char *job, uint64_t digest)
{
    snprintf(out, HR__MEETING_KEY, MAGIC "%016" PRIx64 ":%016" PRIx64, job_digest(job), digest);
}

/* ---- inputs ---- */

/* Copies `text` with control characters replaced by blanks; returns the number of bytes. */
static size_t put(char *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        out[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? ' ' : text[i];
    return length;
}

/* The same with at most `room` bytes, which must be 40 or more. A value that is cut ends with a
 * digest that tells it from others. */
static size_t put_bounded(char *out, const char *text, size_t room)
{
    char mark[32];
    size_t length = strlen(text);
    if (length <= room)
        return put(out, text, length);
    size_t n = (size_t)snprintf(mark, sizeof mark, "... (%08" PRIx32 ")",
                                (uint32_t)XXH3_64bits(text, length));
    length = put(out, text, room - n);
    memcpy(out + length, mark, n);
    return length + n;
}

uint64_t hr__meeting_inputs_write(char out[HR__MEETING_TEXT],
                                  const struct hr__meeting_input *inputs, int count)
{
    size_t length = 0;
    size_t room = count ? (HR__MEETING_TEXT - 1) / (size_t)count - NAME_MAX_BYTES - 2 : 0;
    room = room < VALUE_MAX_BYTES ? room : VALUE_MAX_BYTES;
    for (int i = 0; i < count; i++) {
        length += put_bounded(out + length, inputs[i].name, NAME_MAX_BYTES);
        out[length++] = '\t';
        length += put_bounded(out + length, inputs[i].value, room);
        out[length++] = '\n';
    }
    out[length] = 0;
    return hr__meeting_inputs_digest(out);
}

uint64_t hr__meeting_inputs_digest(const char *text)
{
    return XXH3_64bits(text, strlen(text));
}

int hr__meeting_inputs_next(const char **at, struct hr__meeting_value *out)
{
    while (**at) {
        const char *line = *at, *end = strchrnul(line, '\n');
        const char *tab = memchr(line, '\t', (size_t)(end - line));
        *at = *end ? end + 1 : end;
        if (!tab)
            continue;
        *out = (struct hr__meeting_value){line, tab + 1, (size_t)(tab - line),
                                          (size_t)(end - tab - 1)};
        return 1;
    }
    return 0;
}

int hr__meeting_inputs_find(const char *text, const char *name, size_t name_length,
                            struct hr__meeting_value *out)
{
    struct hr__meeting_value value;
    while (hr__meeting_inputs_next(&text, &value))
        if (value.name_length == name_length && !memcmp(value.name, name, name_length)) {
            *out = value;
            return 1;
        }
    return 0;
}
