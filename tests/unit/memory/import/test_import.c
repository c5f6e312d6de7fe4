/*
 * Parts of the importers: pieces of address space against a map of bytes, failed allocations at any
 * moment; and an opened import frees everything. test_import.py tests the formats themselves.
 */
#include "../../test.h"

#include "base/memory.h"
#include "memory/import/import.h"
#include "memory/import/pieces.h"
#include "memory/import/places.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], file[128], to[128];

static int set_up(void **state)
{
    strcpy(folder, "/tmp/headrace-import-test-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(to, sizeof to, "%s/to", folder);
    return setenv("TMPDIR", folder, 1);
}

/* Counts the files in the folder. */
static int count_files(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

static int tear_down(void **state)
{
    unlink(file);
    unlink(to);
    return rmdir(folder);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ---- pieces ---- */

#define BYTES 200

struct map {
    uint8_t is_in[BYTES];     /* the expected state */
    uint8_t reported[BYTES];  /* bytes of pieces reported as new and not yet as gone */
    uint16_t ends[BYTES + 1]; /* end of a reported piece, by its beginning; 0: none */
    int missing;              /* bytes to be removed that were not there */
};

static int note_change(void *arg, enum hr__piece_change change, struct hr__memory_piece piece)
{
    struct map *map = arg;
    assert_true(piece.begin < piece.end && piece.end <= BYTES);
    if (change == HR__PIECE_MISSING) {
        map->missing += (int)(piece.end - piece.begin);
        return 0;
    }
    /* Only whole pieces are removed. */
    if (change == HR__PIECE_GONE)
        assert_int_equal(map->ends[piece.begin], piece.end);
    map->ends[piece.begin] = change == HR__PIECE_NEW ? (uint16_t)piece.end : 0;
    for (uint64_t i = piece.begin; i < piece.end; i++) {
        assert_int_equal(map->reported[i], change == HR__PIECE_GONE);
        map->reported[i] = change == HR__PIECE_NEW;
    }
    return 0;
}

static void test_pieces(void **state)
{
    struct hr__pieces pieces = {0};
    struct map map = {.missing = 0};
    uint32_t random = 3;
    for (int round = 0; round < 20000; round++) {
        uint64_t begin = next_random(&random) % BYTES;
        uint64_t length =
            next_random(&random) % (BYTES - begin + 1) / (1 + next_random(&random) % 9);
        struct hr__memory_piece range = {begin, begin + length};
        int is_added = next_random(&random) % 2, missing = 0;
        for (uint64_t i = range.begin; i < range.end; i++) {
            missing += !is_added && !map.is_in[i];
            map.is_in[i] = (uint8_t)is_added;
        }
        map.missing = 0;
        assert_int_equal(
            (is_added ? hr__pieces_add : hr__pieces_remove)(&pieces, range, note_change, &map), 0);
        assert_int_equal(map.missing, missing);
        assert_memory_equal(map.reported, map.is_in, BYTES);
        for (size_t i = 0; i < pieces.count; i++) {
            assert_true(pieces.pieces[i].begin < pieces.pieces[i].end);
            assert_true(!i || pieces.pieces[i - 1].end <= pieces.pieces[i].begin);
            assert_int_equal(map.ends[pieces.pieces[i].begin], pieces.pieces[i].end);
        }
    }
    hr__pieces_clear(&pieces);
}

static void test_places(void **state)
{
    struct hr__memory_places places = {0};
    for (uint64_t i = 0; i < 20000; i++)
        for (uint8_t device = 0; device < 2; device++) {
            struct hr__memory_place *place = hr__places_find(&places, device, i * 512);
            assert_non_null(place);
            assert_false(place->is_known);
            place->is_known = 1;
            place->bytes = i * 2 + device;
        }
    for (uint64_t i = 0; i < 20000; i++)
        for (uint8_t device = 0; device < 2; device++)
            assert_int_equal(hr__places_find(&places, device, i * 512)->bytes, i * 2 + device);
    assert_int_equal(places.count, 40000);
    assert_false(hr__places_find(&places, 2, 512)->is_known);
    assert_int_equal(places.count, 40001);
    hr__places_clear(&places);
}

/* ---- whole files ---- */

/* A snapshot, as pickle writes it: a block from before it that is freed, one that is allocated, a
 * segment that is partly freed. \214 and a length begin a text, M and K a number of two bytes and
 * of one; ]( .. e is a list, }( .. u a dict. */
static const char snapshot[] =
    "\200\004}(\214\010segments]("
    "}(\214\007addressM\000\020\214\012total_sizeM\000\040"
    "\214\006blocks](}(\214\004sizeM\000\002\214\005state\214\020active_allocatedueue"
    "\214\015device_traces](]("
    "}(\214\006action\214\005alloc\214\004addrM\050\043\214\004sizeK\007\214\007time_usK\005"
    "\214\006frames](}(\214\010filename\214\004a.py\214\004lineK\003\214\004name\214\001fueu"
    "}(\214\006action\214\016free_completed\214\004addrM\050\045\214\004sizeK\010"
    "\214\007time_usK\006u"
    "}(\214\006action\214\015segment_unmap\214\004addrM\000\040\214\004sizeM\000\020"
    "\214\007time_usK\007ueeu.";

static const char kineto[] =
    "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add\", \"pid\": 1, "
    "\"tid\": 2, \"ts\": 5, \"dur\": 9.25}, {\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 1, "
    "\"tid\": 2, \"ts\": 6.5, \"args\": {\"Addr\": 64, \"Bytes\": 100, \"Total Allocated\": 900, "
    "\"Device Type\": 0, \"Device Id\": -1}}]}";

static const char timeline[] =
    "[[-1, 1, 5, 0], [100, 2, 64, 4], [200, 3, -64, 4], [200, 3, 64, 5]]";

static const struct {
    const char *bytes;
    size_t length;
    uint64_t blocks_bytes; /* live at the end */
} files[] = {
    {snapshot, sizeof snapshot - 1, 512 + 7},
    {kineto, sizeof kineto - 1, 900},
    {timeline, sizeof timeline - 1, 69},
};

#define FILES (sizeof files / sizeof *files)

static uint64_t live_bytes(struct hr__record *record)
{
    const struct hr_memory_event *events;
    uint64_t live = 0;
    for (int n; (n = hr__record_next(record, &events, NULL)) > 0;)
        for (int i = 0; i < n; i++) {
            int kind = events[i].kind;
            live += kind == HR_MEMORY_ALLOC || kind == HR_MEMORY_PRESENT ? events[i].bytes : 0;
            live -= kind == HR_MEMORY_FREE ? events[i].bytes : 0;
        }
    return live;
}

/* Opened directly; no file stays in TMPDIR. */
static void test_open(void **state)
{
    struct hr_error error = {0};
    for (size_t i = 0; i < FILES; i++) {
        struct hr__record *record;
        struct hr_memory *memory;
        test_write(file, files[i].bytes, files[i].length);
        if (hr__import_open(&record, file, &error))
            fail_msg("%s", error.message);
        assert_int_equal(count_files(), 1);
        assert_string_equal(hr__record_fact(record, "allocations"), "imported");
        assert_int_equal(live_bytes(record), files[i].blocks_bytes);
        hr__record_close(&record);
        if (hr_memory_open(&memory, file, NULL, &error))
            fail_msg("%s", error.message);
        assert_non_null(strstr(hr_memory_json(memory), "\"imported\""));
        hr_memory_destroy(&memory);
        /* Truncated anywhere, the file is refused, and leaves nothing either. */
        for (size_t cut = 0; cut < files[i].length; cut += 5) {
            test_write(file, files[i].bytes, cut);
            assert_int_equal(hr_memory_open(&memory, file, NULL, &error), -EBADMSG);
            assert_null(memory);
            assert_int_equal(count_files(), 1);
        }
    }
    assert_int_equal(setenv("TMPDIR", "/nowhere/at/all", 1), 0);
    struct hr__record *record;
    test_write(file, timeline, sizeof timeline - 1);
    assert_int_equal(hr__import_open(&record, file, &error), -ENOENT);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
}

/* Wherever an allocation fails: the result is an error and no file, or, if it was for a name, a
 * record without that name; nothing leaks. */
static void test_no_memory(void **state)
{
    const uint64_t before = hr__allocated(HR__TAG_MEMORY);
    for (size_t i = 0; i < FILES; i++) {
        int code = 0, failures = 0;
        test_write(file, files[i].bytes, files[i].length);
        for (uint64_t n = 1; n < 200; n++) {
            struct hr_error error = {0};
            hr__alloc_fail_at(n, 0);
            code = hr_memory_import(file, to, &error);
            hr__alloc_fail_at(0, 0);
            assert_int_equal(hr__allocated(HR__TAG_MEMORY), before);
            assert_int_equal(access(to, F_OK) == 0, code == 0);
            assert_true(code == 0 || (code == -ENOMEM && error.message[0]));
            failures += code != 0;
            unlink(to);
        }
        assert_int_equal(code, 0);
        assert_true(failures > 2);
    }
}

static void test_where_it_cannot_be_written(void **state)
{
    struct hr_error error = {0};
    test_write(file, kineto, sizeof kineto - 1);
    assert_int_equal(hr_memory_import(file, "/nowhere/at/all", &error), -ENOENT);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
    /* Onto itself: the file is unchanged. */
    assert_int_equal(hr_memory_import(file, file, &error), -EEXIST);
    struct stat status, after;
    assert_int_equal(stat(file, &status), 0);
    assert_int_equal(status.st_size, sizeof kineto - 1);
    /* An existing record stays until the import is complete. */
    assert_int_equal(hr_memory_import(file, to, &error), 0);
    assert_int_equal(stat(to, &status), 0);
    test_write(file, kineto, sizeof kineto / 2);
    assert_int_equal(hr_memory_import(file, to, &error), -EBADMSG);
    assert_int_equal(stat(to, &after), 0);
    assert_int_equal(after.st_ino, status.st_ino);
    assert_int_equal(count_files(), 2);
    assert_int_equal(unlink(to), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_where_it_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
