/* See segment_fixture.h. */
#include "segment_fixture.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];
static int folder_fd = -1;

int fixture_make(void **state)
{
    snprintf(folder, sizeof folder, "/dev/shm/headrace-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    setenv("HEADRACE_SHM", folder, 1);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder_fd < 0 ? -1 : 0;
}

int fixture_remove(void **state)
{
    close(folder_fd);
    int r = rmdir(folder);
    if (r)
        perror(folder);
    return r;
}

static char *file_of(int number)
{
    static char file[2][32];
    static int turn;
    turn = !turn;
    snprintf(file[turn], sizeof file[turn], "t+%d", number);
    return file[turn];
}

char *fixture_path(int number)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, file_of(number));
    return path;
}

struct hr__segment *fixture_attach(int number, int use, int *code)
{
    struct hr__segment *segment;
    struct hr_error error = {.code = 0};
    int r = hr__segment_attach(&segment, folder_fd, file_of(number), use, &error);
    if (code)
        *code = r;
    else if (r)
        fail_msg("%s", error.message);
    return segment;
}

struct hr__store *fixture_open(int number, uint64_t budget, uint64_t items)
{
    struct hr__segment_shape shape = {
        .name = "test",
        .dataset = "numbers",
        .size_bytes = budget,
        .budget_bytes = budget,
        .items = items,
        .is_kept = 1,
        .mode = 0600,
        .group = -1,
    };
    struct hr__segment *segment;
    struct hr_error error;
    int r = hr__segment_attach(&segment, folder_fd, file_of(number), 1, &error);
    if (r == -ENOENT)
        r = hr__segment_create(&segment, folder_fd, file_of(number), &shape, &error);
    struct hr__store *store = NULL;
    if (!r)
        r = hr__store_create(&store, segment, &error);
    if (r)
        fail_msg("%s", error.message);
    return store;
}

void fixture_close(struct hr__store **store)
{
    hr__store_destroy(store);
}

void fixture_drop(int number)
{
    unlinkat(folder_fd, file_of(number), 0);
}

struct hr__key fixture_key(uint64_t item)
{
    return hr__key_of(&item, sizeof item, 7);
}

size_t fixture_length(uint64_t item)
{
    return 1000 + item * 7919 % 9000;
}

void fixture_fill(uint64_t item, enum hr_form form, uint8_t *bytes, size_t length)
{
    uint64_t x = item * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)form + 1;
    for (size_t i = 0; i < length; i += sizeof x) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t mixed = x ^ x >> 32;
        memcpy(bytes + i, &mixed, length - i < sizeof mixed ? length - i : sizeof mixed);
    }
}

int fixture_offer(struct hr__store *store, uint64_t item, int convert)
{
    size_t length = fixture_length(item), half = length / 3;
    uint8_t *bytes = malloc(length);
    fixture_fill(item, HR_FORM_ENCODED, bytes, length);
    struct hr__store_piece pieces[2] = {{bytes, half}, {bytes + half, length - half}};
    struct hr__store_offer offer = {
        .key = fixture_key(item),
        .pieces = pieces,
        .piece_count = 2,
        .length = length,
        .source_bytes = length,
        .form = HR_FORM_ENCODED,
        .convert = convert,
        .reserve = convert ? 2 * length : 0,
        .sample = (uint32_t)item + 1,
    };
    int r = hr__store_offer(store, &offer);
    free(bytes);
    return r;
}

int fixture_find(struct hr__store *store, uint64_t item)
{
    struct hr__key key = fixture_key(item);
    struct hr__cache_item found;
    if (!hr__store_find(store, &key, &found))
        return 0;
    size_t length = fixture_length(item) * (found.form == HR_FORM_ENCODED ? 1 : 2);
    assert_int_equal(found.length, length);
    assert_int_equal((uintptr_t)found.bytes % 64, 0);
    uint8_t *bytes = malloc(length);
    fixture_fill(item, found.form, bytes, length);
    int is_same = !memcmp(bytes, found.bytes, length);
    /* If it was used in place when evicting began, its user has to drop it. */
    int is_whole = hr__store_is_whole(store, &found);
    assert_true(is_same || !is_whole);
    free(bytes);
    hr__store_clear(&found);
    return is_whole;
}

/* Items are recognised by their bytes. */
static uint64_t item_of(const struct hr__cache_item *staged)
{
    uint8_t bytes[32];
    for (uint64_t item = 0; item < 100000; item++) {
        if (fixture_length(item) != staged->length)
            continue;
        fixture_fill(item, HR_FORM_ENCODED, bytes, sizeof bytes);
        if (!memcmp(bytes, staged->bytes, sizeof bytes))
            return item;
    }
    fail_msg("a staged item that is none");
    return 0;
}

int fixture_convert(struct hr__store *store)
{
    struct hr__cache_item staged;
    struct hr__store_staged *handle = hr__store_take(store, &staged);
    if (!handle)
        return -1;
    uint64_t item = item_of(&staged);
    size_t length = 2 * staged.length;
    uint8_t *bytes = malloc(length);
    fixture_fill(item, HR_FORM_INDEXED, bytes, length);
    struct hr__cache_final final = {.bytes = bytes, .length = length, .form = HR_FORM_INDEXED};
    int r = hr__store_settle(store, handle, &final);
    free(bytes);
    return r;
}

struct segment_extent {
    uint64_t from, to;
};

static int compare_extents(const void *a, const void *b)
{
    const struct segment_extent *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Marks a list of blocks; fails the test if one belongs to something else, too. */
static void mark_blocks(const struct hr__segment *s, uint8_t *owned, uint64_t block, uint64_t count)
{
    uint64_t blocks = s->layout.arena_bytes / hr__segment_books(s).block_bytes;
    for (uint64_t i = 0; i < count; i++) {
        assert_true(block < blocks);
        assert_int_equal(owned[block], 0);
        owned[block] = 1;
        block = atomic_load(&s->blocks[block]);
    }
}

/* Once items were evicted: every block belongs to one item at most, or is free. What no item has is
 * less than a block at each end of an item that was evicted from where it lay first. */
static void audit_blocks(struct hr__segment *s, const struct hr__books *books,
                         const struct segment_extent *whole, size_t count)
{
    uint64_t bytes = books->block_bytes, blocks = s->layout.arena_bytes / bytes;
    uint8_t *owned = calloc(blocks + 1, 1);
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = whole[i].from / bytes; at * bytes < whole[i].to && at < blocks; at++)
            owned[at] |= 2; /* items of the first kind share blocks */
    for (uint64_t i = 0; i < blocks; i++)
        owned[i] = owned[i] ? 1 : 0;
    mark_blocks(s, owned, books->free_block, books->free_blocks);
    for (uint64_t i = 0; i < s->layout.index_slots; i++) {
        const struct hr__entry *e = &s->entries[i];
        struct hr__word word = hr__word_unpack(atomic_load(&e->word));
        uint64_t length = (uint32_t)atomic_load(&e->lengths);
        if (word.state == HR__ENTRY_FINAL && word.taken)
            mark_blocks(s, owned, atomic_load(&e->offset) / bytes, (length + bytes - 1) / bytes);
    }
    uint64_t lost = 0;
    for (uint64_t i = 0; i < books->arena_used / bytes; i++)
        lost += !owned[i];
    free(owned);
    assert_true(lost <= 2 * books->evicted);
}

void fixture_audit(struct hr__segment *s)
{
    /* The next transaction completes what a killed process began. */
    struct hr__books *spare = hr__segment_begin(s);
    assert_non_null(spare);
    struct hr__books books = *spare;
    hr__segment_abort(s);
    uint64_t tail = atomic_load(&s->header->ring_tail);
    uint64_t items[HR_FORMS] = {0}, promised = 0, staged = 0, staged_bytes = 0, waiting = 0,
             sources = 0;
    struct segment_extent *extents = calloc(s->layout.index_slots, sizeof *extents);
    size_t count = 0;
    for (uint64_t i = 0; i < s->layout.index_slots; i++) {
        const struct hr__entry *e = &s->entries[i];
        struct hr__word word = hr__word_unpack(atomic_load(&e->word));
        uint64_t lengths = atomic_load(&e->lengths), offset = atomic_load(&e->offset);
        uint64_t padded = ((uint32_t)lengths + 63) / 64 * 64;
        assert_int_not_equal(word.state, HR__ENTRY_CHANGING);
        if (word.state == HR__ENTRY_FINAL && word.taken) {
            assert_int_not_equal(books.block_bytes, 0);
        } else if (word.state == HR__ENTRY_FINAL) {
            extents[count++] = (struct segment_extent){offset, offset + padded};
        } else if (word.state == HR__ENTRY_STAGED && word.pending) {
            assert_true(offset >= tail);
            promised += (uint64_t)word.reserve * 64;
            staged++;
            staged_bytes += padded;
            waiting += !word.taken;
        } else {
            continue;
        }
        items[word.form]++;
        sources += lengths >> 32;
    }
    if (count)
        qsort(extents, count, sizeof *extents, compare_extents);
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(extents[i].from >= at);
        assert_true(books.evicted || extents[i].from == at);
        at = extents[i].to;
    }
    assert_true(at == books.arena_used || (books.evicted && at < books.arena_used));
    if (books.evicted)
        audit_blocks(s, &books, extents, count);
    free(extents);
    assert_int_equal(promised, books.promised);
    assert_int_equal(staged, books.staged);
    assert_int_equal(staged_bytes, books.staged_bytes);
    assert_int_equal(waiting, books.waiting);
    assert_int_equal(sources, books.source_bytes);
    for (int form = 0; form < HR_FORMS; form++)
        assert_int_equal(items[form], books.items[form]);
    assert_true(books.arena_used + books.promised <= books.arena_allocated);
    assert_true(books.arena_allocated <= s->layout.arena_bytes);
}
