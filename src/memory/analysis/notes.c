/* Notes on what a record cannot show: the record's own, and those that follow from how it was made;
 * see analysis.h. */
#include "memory/analysis/analysis.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FACTS_MOST 1000 /* most facts to examine */
#define NOTE_MOST  1000 /* bytes of one note */

__attribute__((format(printf, 2, 3))) static int say(struct hr__memory *m, const char *format, ...)
{
    char text[NOTE_MOST];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (m->note_count == HR__NOTES_MOST)
        return 0;
    m->notes[m->note_count] = hr__strdup(HR__TAG_MEMORY, text);
    return m->notes[m->note_count] ? (m->note_count++, 0) : -ENOMEM;
}

/* Adds the facts "note ...", the last of each name. */
static int say_facts(struct hr__memory *m, const struct hr__record *record)
{
    const char *fact;
    int code = 0;
    for (uint32_t at = 0; at < FACTS_MOST && !code && (fact = hr__record_fact_at(record, at));
         at++) {
        const char *value = strchr(fact, '=');
        char name[128];
        if (strncmp(fact, "note ", 5) || !value || (size_t)(value - fact) >= sizeof name)
            continue;
        memcpy(name, fact, (size_t)(value - fact));
        name[value - fact] = '\0';
        if (hr__record_fact(record, name) == value + 1 && value[1])
            code = say(m, "%s", value + 1);
    }
    return code;
}

static int say_recording(struct hr__memory *m)
{
    int code = 0;
    if (m->about.lost)
        code = say(m,
                   "%" PRIu64 " events could not be recorded: blocks may be missing, or seem "
                   "to live longer than they do.",
                   m->about.lost);
    if (!code && m->about.problem)
        code = say(m, "The recording stopped early: %s. What came later is not in it.",
                   hr__errno_text(m->about.problem));
    else if (!code && !m->about.is_ended)
        code = say(m, "The recording was not ended: the process was killed, or still runs. What "
                      "lived then has no end.");
    if (!code && m->damage.extents)
        code = say(m, "The file is damaged: %s, %" PRIu64 " bytes of it are left out.",
                   m->damage.what, m->damage.lost_bytes);
    return code;
}

static int say_sources(struct hr__memory *m, const struct hr__record *record)
{
    const char *allocations = hr__record_fact(record, "allocations");
    int code = 0;
    if (!m->found.accesses)
        code = say(m, "Reads and writes were not recorded: intervals are unknown, and so is the "
                      "use of blocks, except where the record states it.");
    if (!code && allocations && !strcmp(allocations, "storages"))
        code = say(m, "Allocations are known from tensors only: memory that libraries and "
                      "operators allocate for themselves is missing.");
    if (!code && m->no_swap_advice)
        code = say(m, "The accelerator's times are unknown, only those of the host's calls: "
                      "intervals are the host's, and no swapping is advised there.");
    if (!code && m->intervals.left_out)
        code = say(m,
                   "%" PRIu64 " intervals are left out: the accelerator reported only one "
                   "end of them.",
                   m->intervals.left_out);
    for (size_t i = 0; i < m->device_count && !code; i++)
        if (m->devices[i].segments.is_partial)
            code = say(m, "More bytes are live than the recorded segments contain: "
                          "fragmentation is unknown.");
    return code;
}

int hr__memory_note(struct hr__memory *memory, const struct hr__record *record)
{
    int code = say_facts(memory, record);
    if (!code)
        code = say_recording(memory);
    return code ? code : say_sources(memory, record);
}
