/*
 * The file of a cache on a disk, after any bytes of it were changed and it was cut anywhere: it is
 * refused, or every item that is found has the bytes that were stored under its key, and new items
 * can be stored.
 *
 * The input is a length to cut the file to (0: none), then changes: an offset and a byte, eight
 * bytes in all, little-endian.
 */
#include "cache/segment_inside.h"
#include "cache/store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ITEMS     12
#define FILE_NAME "disk.0"

static char place[] = "/dev/shm/headrace-fuzz-XXXXXX";
static int place_fd = -1;
static uint8_t *image;
static size_t image_bytes;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t length_of(uint64_t item)
{
    return 100 + item * 977;
}

static void fill(uint64_t item, uint8_t *out)
{
    for (size_t i = 0; i < length_of(item); i++)
        out[i] = (uint8_t)(item * 31 + i * 7 + i / 256);
}

static struct hr__key key_of(uint64_t item)
{
    return hr__key_of(&item, sizeof item, 1);
}

static void offer(struct hr__store *store, uint64_t item)
{
    uint8_t bytes[16384];
    fill(item, bytes);
    struct hr__store_piece piece = {bytes, length_of(item)};
    struct hr__store_offer wish = {.key = key_of(item),
                                   .pieces = &piece,
                                   .piece_count = 1,
                                   .length = piece.length,
                                   .source_bytes = piece.length};
    (void)hr__store_offer(store, &wish);
}

static void find(struct hr__store *store, uint64_t item)
{
    uint8_t bytes[16384];
    struct hr__key key = key_of(item);
    struct hr__cache_item found;
    if (!hr__store_find(store, &key, &found))
        return;
    fill(item, bytes);
    if (found.length != length_of(item) || memcmp(found.bytes, bytes, found.length))
        abort();
    hr__store_clear(&found);
}

static void ignore(void *arg, enum hr_log_level level, const char *message)
{
}

static void remove_place(void)
{
    unlinkat(place_fd, FILE_NAME, 0);
    rmdir(place);
}

/* Makes the file that inputs change. */
static void make_image(void)
{
    struct hr__segment *segment;
    struct hr__store *store;
    struct hr__segment_shape shape = {.name = "disk",
                                      .dataset = "numbers",
                                      .size_bytes = 1 << 20,
                                      .budget_bytes = 1 << 20,
                                      .items = 16,
                                      .is_kept = 1,
                                      .flags = HR__SEGMENT_ON_DISK,
                                      .mode = 0600,
                                      .group = -1};
    hr_log_set(ignore, NULL);
    if (!mkdtemp(place) || (place_fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        hr__segment_create(&segment, place_fd, FILE_NAME, &shape, NULL) ||
        hr__store_create(&store, segment, NULL))
        abort();
    /* Growing needs the directory's lock; the file has room enough from the start. */
    struct hr__books *books = hr__segment_begin(segment);
    books->arena_allocated = 1 << 20;
    hr__segment_commit(segment);
    for (uint64_t item = 0; item < ITEMS; item++)
        offer(store, item);
    struct stat st;
    if (fstat(segment->own.fd, &st) || !(image = malloc((size_t)st.st_size)) ||
        pread(segment->own.fd, image, (size_t)st.st_size, 0) != st.st_size)
        abort();
    image_bytes = (size_t)st.st_size;
    hr__store_destroy(&store);
    atexit(remove_place);
}

static void write_changed(const uint8_t *data, size_t size)
{
    uint32_t cut = 0, at;
    uint8_t *bytes = malloc(image_bytes);
    int fd = openat(place_fd, FILE_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!bytes || fd < 0)
        abort();
    memcpy(bytes, image, image_bytes);
    if (size >= 4)
        memcpy(&cut, data, 4);
    for (size_t i = 4; i + 8 <= size; i += 8) {
        memcpy(&at, data + i, 4);
        bytes[at % image_bytes] = data[i + 4];
    }
    size_t length = cut && cut < image_bytes ? cut : image_bytes;
    if (write(fd, bytes, length) != (ssize_t)length)
        abort();
    close(fd);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__segment *segment;
    struct hr__store *store;
    if (!image)
        make_image();
    write_changed(data, size);
    if (!hr__segment_attach(&segment, place_fd, FILE_NAME, 1, NULL)) {
        if (hr__store_create(&store, segment, NULL))
            abort();
        for (uint64_t item = 0; item < ITEMS; item++)
            find(store, item);
        for (uint64_t i = 0; i < segment->layout.index_slots; i++)
            (void)hr__store_check(store, i);
        for (uint64_t item = 0; item < ITEMS + 2; item++)
            offer(store, item);
        for (uint64_t item = 0; item < ITEMS + 2; item++)
            find(store, item);
        hr__store_destroy(&store);
    }
    unlinkat(place_fd, FILE_NAME, 0);
    return 0;
}
