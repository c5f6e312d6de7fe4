/* See fake_lane.h. */
#include "fake_lane.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned char fake_byte(uint64_t sequence, uint64_t byte)
{
    uint64_t x = sequence * UINT64_C(0x9E3779B97F4A7C15) + byte / 8 * UINT64_C(0xD1B54A32D192ED03);
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return (unsigned char)(x >> (8 * (byte % 8)));
}

void fake_fill(struct fake_lane *lane, uint64_t sequence, unsigned char *image,
               struct hr__board_sample *sample)
{
    for (uint64_t i = 0; i < lane->sample_bytes; i++)
        image[i] = fake_byte(sequence, i);
    *sample = (struct hr__board_sample){
        .label = (int64_t)sequence * 3 + 1, .index = (int64_t)sequence * 5, .instead = -1};
}

static int make_file(uint64_t bytes, unsigned seals)
{
    int file = memfd_create("headrace-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)bytes), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
}

static void *map_file(int file, uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static void choose_chunk(struct fake_lane *lane, uint64_t batch, uint64_t page)
{
    for (uint64_t c = 8; !lane->chunk_samples && c <= 64 && c <= batch; c++)
        if (c * lane->sample_bytes % page == 0)
            lane->chunk_samples = c;
    if (!lane->chunk_samples)
        lane->chunk_samples = batch;
    uint64_t used = lane->chunk_samples * lane->sample_bytes;
    lane->chunk_bytes = (used + page - 1) / page * page;
    lane->is_gapless = used == lane->chunk_bytes;
}

void fake_lane_make(struct fake_lane *lane, uint64_t sample_bytes, uint64_t chunk_samples,
                    uint64_t batch, uint64_t ring_samples)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    memset(lane, 0, sizeof *lane);
    lane->sample_bytes = sample_bytes;
    lane->chunk_samples = chunk_samples;
    choose_chunk(lane, batch, page);
    lane->places = (ring_samples + lane->chunk_samples - 1) / lane->chunk_samples;
    if (lane->places < 2)
        lane->places = 2;
    lane->file_bytes = lane->places * lane->chunk_bytes;
    lane->data_bytes = 16 * lane->file_bytes;
    lane->fill = fake_fill;
    uint64_t samples = lane->places * lane->chunk_samples;
    uint64_t places_offset = (sizeof *lane->board + 63) / 64 * 64;
    uint64_t samples_offset = places_offset + lane->places * sizeof *lane->at;
    uint64_t bytes = samples_offset + samples * sizeof *lane->samples;
    lane->board_file = make_file(bytes, F_SEAL_SHRINK | F_SEAL_GROW);
    lane->data_file = make_file(lane->file_bytes, F_SEAL_SHRINK);
    lane->desk_file = make_file(sizeof *lane->desk, F_SEAL_SHRINK | F_SEAL_GROW);
    lane->bell_file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    lane->board = map_file(lane->board_file, bytes);
    lane->data = map_file(lane->data_file, lane->data_bytes);
    lane->desk = map_file(lane->desk_file, sizeof *lane->desk);
    struct hr__board *b = lane->board;
    b->magic = HR__BOARD_MAGIC;
    b->version = HR__SHARE_VERSION;
    b->page_bytes = (uint32_t)page;
    b->sample_bytes = sample_bytes;
    b->chunk_samples = lane->chunk_samples;
    b->chunk_bytes = lane->chunk_bytes;
    b->places = lane->places;
    b->data_bytes = lane->data_bytes;
    b->is_gapless = (uint32_t)lane->is_gapless;
    b->places_offset = places_offset;
    b->samples_offset = samples_offset;
    b->board_bytes = bytes;
    atomic_store(&b->halt, HR__SEQUENCE_NONE);
    lane->desk->magic = HR__DESK_MAGIC;
    lane->desk->version = HR__SHARE_VERSION;
    lane->at = (struct hr__board_place *)(void *)((char *)b + places_offset);
    lane->samples = (struct hr__board_sample *)(void *)((char *)b + samples_offset);
    for (uint64_t p = 0; p < lane->places; p++) {
        atomic_store(&lane->at[p].number, HR__SEQUENCE_NONE);
        atomic_store(&lane->at[p].offset, p * lane->chunk_bytes);
    }
}

void fake_lane_remove(struct fake_lane *lane)
{
    munmap(lane->board, lane->board->board_bytes);
    munmap(lane->data, lane->data_bytes);
    munmap(lane->desk, sizeof *lane->desk);
    close(lane->board_file);
    close(lane->data_file);
    close(lane->desk_file);
    close(lane->bell_file);
}

void fake_lane_files(const struct fake_lane *lane, int files[4])
{
    const int own[4] = {lane->board_file, lane->data_file, lane->desk_file, lane->bell_file};
    for (int i = 0; i < 4; i++) {
        files[i] = fcntl(own[i], F_DUPFD_CLOEXEC, 0);
        assert_true(files[i] >= 0);
    }
}

static uint64_t spare(struct fake_lane *lane)
{
    uint64_t mark = atomic_load(&lane->desk->mark);
    for (size_t i = 0; i < lane->lent_count;) {
        if (lane->lent[i].end > mark) {
            i++;
            continue;
        }
        lane->spares[lane->spare_count++] = lane->lent[i].offset;
        lane->lent[i] = lane->lent[--lane->lent_count];
    }
    if (lane->spare_count)
        return lane->spares[--lane->spare_count];
    uint64_t offset = lane->file_bytes;
    lane->file_bytes += lane->chunk_bytes;
    assert_true(lane->file_bytes <= lane->data_bytes);
    assert_int_equal(ftruncate(lane->data_file, (off_t)lane->file_bytes), 0);
    return offset;
}

/* Makes the place of a chunk free: 1, or 0. */
static int make_room(struct fake_lane *lane, struct hr__board_place *place, int expel)
{
    uint64_t before = atomic_load(&place->number);
    if (before == HR__SEQUENCE_NONE)
        return 1;
    uint64_t begin = before * lane->chunk_samples, end = begin + lane->chunk_samples;
    if (atomic_load(&lane->desk->next) < end) {
        if (!expel)
            return 0;
        lane->expelled++;
        atomic_store(&lane->desk->floor, end);
    }
    uint64_t mark = atomic_load(&lane->desk->mark), next = atomic_load(&lane->desk->next);
    if (mark < end && next > begin) {
        assert_true(lane->lent_count < 4096);
        lane->lent[lane->lent_count++] =
            (struct fake_lent){atomic_load(&place->offset), next < end ? next : end};
        uint64_t offset = spare(lane);
        atomic_store(&place->offset, offset);
        lane->lends++;
    }
    return 1;
}

int fake_lane_publish(struct fake_lane *lane, uint64_t count, int expel)
{
    uint64_t chunk = lane->next_chunk, ring = lane->places * lane->chunk_samples;
    struct hr__board_place *place = &lane->at[chunk % lane->places];
    if (!make_room(lane, place, expel))
        return 0;
    uint64_t offset = atomic_load(&place->offset), first = chunk * lane->chunk_samples;
    for (uint64_t i = 0; i < count; i++)
        lane->fill(lane, first + i, lane->data + offset + i * lane->sample_bytes,
                   &lane->samples[(first + i) % ring]);
    atomic_store(&place->number, chunk);
    atomic_store(&lane->board->tail,
                 first + lane->chunk_samples > ring ? first + lane->chunk_samples - ring : 0);
    atomic_store(&lane->board->head, first + count);
    lane->next_chunk++;
    atomic_fetch_add(&lane->board->bell, 1);
    syscall(SYS_futex, &lane->board->bell, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    return 1;
}

void fake_lane_skip_to(struct fake_lane *lane, uint64_t chunk)
{
    lane->next_chunk = chunk;
}
