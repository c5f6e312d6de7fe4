/* Writes the events of a trace; see events.h. */
#include "report/events.h"

#include "report/format.h"

#include <inttypes.h>

void hr__event_begin(struct hr__events *e, const char *kind, int process, int64_t thread)
{
    hr__draft_print(&e->draft, "%s{\"ph\":\"%s\",\"pid\":%d", e->begun ? ",\n" : "", kind, process);
    if (thread >= 0)
        hr__draft_print(&e->draft, ",\"tid\":%" PRId64, thread);
    e->begun = true;
}

void hr__event_number(struct hr__events *e, const char *name, double value, int decimals)
{
    hr__draft_print(&e->draft, ",\"%s\":", name);
    hr__draft_number(&e->draft, value, decimals);
}

void hr__event_time_ns(struct hr__events *e, const char *name, uint64_t ns)
{
    hr__draft_print(&e->draft, ",\"%s\":%" PRIu64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

void hr__event_text(struct hr__events *e, const char *name, const char *text)
{
    hr__draft_print(&e->draft, ",\"%s\":", name);
    hr__draft_json(&e->draft, text);
}

void hr__event_name(struct hr__events *e, const char *what, int process, int64_t thread,
                    const char *name)
{
    hr__event_begin(e, "M", process, thread);
    hr__draft_print(&e->draft, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    hr__draft_json(&e->draft, name);
    hr__draft_put(&e->draft, "}}");
}
