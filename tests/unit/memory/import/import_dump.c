/*
 * The program that test_import.py runs: prints the values of a pickle, or the events of an imported
 * file, as text.
 *
 *   import_dump pickle FILE        one line, as Python's repr without blanks; dicts in their order
 *   import_dump import FILE TO     facts, then events
 */
#include "memory/import/pickle.h"
#include "memory/record/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 200

static void print_many(const struct hr__pickle_value *value, const char *brackets, int depth);

static void print_bytes(const struct hr__pickle_value *value)
{
    putchar(value->kind == HR__PICKLE_BYTES ? 'b' : 's');
    for (uint32_t i = 0; i < value->length; i++)
        printf("%02x", (unsigned char)value->as.text[i]);
}

static void print_value(const struct hr__pickle_value *value, int depth)
{
    switch (value->kind) {
    case HR__PICKLE_NONE:
        printf("None");
        return;
    case HR__PICKLE_BOOL:
        printf(value->as.integer ? "True" : "False");
        return;
    case HR__PICKLE_INTEGER:
        printf("%" PRId64, value->as.integer);
        return;
    case HR__PICKLE_NATURAL:
        printf("%" PRIu64, value->as.natural);
        return;
    case HR__PICKLE_REAL:
        printf("%a", value->as.real);
        return;
    case HR__PICKLE_TEXT:
    case HR__PICKLE_BYTES:
        print_bytes(value);
        return;
    case HR__PICKLE_LIST:
        print_many(value, "[]", depth);
        return;
    case HR__PICKLE_TUPLE:
        print_many(value, "()", depth);
        return;
    case HR__PICKLE_DICT:
        print_many(value, "{}", depth);
        return;
    default:
        abort();
    }
}

static void print_many(const struct hr__pickle_value *value, const char *brackets, int depth)
{
    putchar(brackets[0]);
    if (depth == DEPTH_MOST)
        printf("...");
    for (uint32_t i = 0; i < value->as.many->count && depth < DEPTH_MOST; i++) {
        print_value(&value->as.many->items[i], depth + 1);
        putchar(',');
    }
    putchar(brackets[1]);
}

static int fail(int code, const struct hr_error *error)
{
    fprintf(stderr, "%s: %s\n", strerrorname_np(-code), error->message);
    return 3;
}

static int print_pickle(const char *path)
{
    struct hr__input in;
    struct hr__pickle *pickle = NULL;
    struct hr_error error = {0};
    int code = hr__input_open(&in, path, &error);
    if (!code)
        code = hr__pickle_read(&pickle, &in, &error);
    if (!code) {
        print_value(hr__pickle_root(pickle), 0);
        putchar('\n');
    }
    hr__pickle_destroy(&pickle);
    hr__input_close(&in);
    return code ? fail(code, &error) : 0;
}

static void print_event(const struct hr__record *record, const struct hr_memory_event *e)
{
    static const char *const kinds[] = {"?",      "alloc",   "free",        "read",
                                        "write",  "present", "describe",    "mark",
                                        "failed", "segment", "segment_free"};
    const struct hr_memory_frame *frames;
    printf("%" PRIu64 " %s %" PRIx64 " %" PRIu64 " %u %u", e->time_ns,
           kinds[e->kind <= HR_MEMORY_SEGMENT_FREE ? e->kind : 0], e->address, e->bytes, e->device,
           e->phase);
    if (e->kind == HR_MEMORY_DESCRIBE)
        printf(" %s", hr__record_name(record, (uint32_t)(e->bytes >> 32)));
    if (e->kind == HR_MEMORY_MARK || e->kind == HR_MEMORY_DESCRIBE) {
        printf(" %s\n", e->what ? hr__record_name(record, e->what) : "-");
        return;
    }
    size_t count = hr__record_stack(record, e->what, &frames);
    for (size_t i = 0; i < count; i++)
        printf("%c%s:%u:%s", i ? ';' : ' ',
               frames[i].file ? hr__record_name(record, frames[i].file) : "", frames[i].line,
               hr__record_name(record, frames[i].function));
    putchar('\n');
}

static int print_record(const char *path)
{
    static const char *const facts[] = {"allocations",           "imported from", "rank",
                                        "capacity bytes cuda:2", "note import 0", "note import 1",
                                        "note import 2",         "note import 3", "note import 4"};
    struct hr__record *record;
    struct hr__record_about about;
    struct hr_error error = {0};
    const struct hr_memory_event *events;
    int code = hr__record_open(&record, path, &error);
    if (code)
        return fail(code, &error);
    hr__record_about(record, &about);
    printf("# start=%" PRIu64 " pid=%" PRId64 " ended=%d events=%" PRIu64 "\n", about.start_unix_ns,
           about.pid, about.is_ended, about.events);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (hr__record_fact(record, facts[i]))
            printf("# %s=%s\n", facts[i], hr__record_fact(record, facts[i]));
    for (int n; (n = hr__record_next(record, &events, &error)) > 0;)
        for (int i = 0; i < n; i++)
            print_event(record, &events[i]);
    hr__record_close(&record);
    return 0;
}

int main(int argc, char **argv)
{
    struct hr_error error = {0};
    if (argc == 3 && !strcmp(argv[1], "pickle"))
        return print_pickle(argv[2]);
    if (argc != 4 || strcmp(argv[1], "import") != 0)
        return 2;
    int code = hr_memory_import(argv[2], argv[3], &error);
    return code ? fail(code, &error) : print_record(argv[3]);
}
