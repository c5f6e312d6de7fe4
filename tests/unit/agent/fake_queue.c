/* See fake_queue.h. */
#include "fake_queue.h"

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

void fake_fill(struct fake_queue *queue, uint64_t sequence, unsigned char *image,
               struct hr__header_sample *sample)
{
    for (uint64_t i = 0; i < queue->sample_bytes; i++)
        image[i] = fake_byte(sequence, i);
    *sample = (struct hr__header_sample){
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

static void choose_chunk(struct fake_queue *queue, uint64_t batch, uint64_t page)
{
    for (uint64_t c = 8; !queue->chunk_samples && c <= 64 && c <= batch; c++)
        if (c * queue->sample_bytes % page == 0)
            queue->chunk_samples = c;
    if (!queue->chunk_samples)
        queue->chunk_samples = batch;
    uint64_t used = queue->chunk_samples * queue->sample_bytes;
    queue->chunk_bytes = (used + page - 1) / page * page;
    queue->is_gapless = used == queue->chunk_bytes;
}

void fake_queue_make(struct fake_queue *queue, uint64_t sample_bytes, uint64_t chunk_samples,
                     uint64_t batch, uint64_t ring_samples)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    memset(queue, 0, sizeof *queue);
    queue->sample_bytes = sample_bytes;
    queue->chunk_samples = chunk_samples;
    choose_chunk(queue, batch, page);
    queue->places = (ring_samples + queue->chunk_samples - 1) / queue->chunk_samples;
    if (queue->places < 2)
        queue->places = 2;
    queue->file_bytes = queue->places * queue->chunk_bytes;
    queue->data_bytes = 16 * queue->file_bytes;
    queue->fill = fake_fill;
    uint64_t samples = queue->places * queue->chunk_samples;
    uint64_t places_offset = (sizeof *queue->header + 63) / 64 * 64;
    uint64_t samples_offset = places_offset + queue->places * sizeof *queue->at;
    uint64_t bytes = samples_offset + samples * sizeof *queue->samples;
    queue->header_file = make_file(bytes, F_SEAL_SHRINK | F_SEAL_GROW);
    queue->data_file = make_file(queue->file_bytes, F_SEAL_SHRINK);
    queue->control_file = make_file(sizeof *queue->control, F_SEAL_SHRINK | F_SEAL_GROW);
    queue->bell_file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    queue->header = map_file(queue->header_file, bytes);
    queue->data = map_file(queue->data_file, queue->data_bytes);
    queue->control = map_file(queue->control_file, sizeof *queue->control);
    struct hr__header *b = queue->header;
    b->magic = HR__HEADER_MAGIC;
    b->version = HR__SHARE_VERSION;
    b->page_bytes = (uint32_t)page;
    b->sample_bytes = sample_bytes;
    b->chunk_samples = queue->chunk_samples;
    b->chunk_bytes = queue->chunk_bytes;
    b->places = queue->places;
    b->data_bytes = queue->data_bytes;
    b->is_gapless = (uint32_t)queue->is_gapless;
    b->places_offset = places_offset;
    b->samples_offset = samples_offset;
    b->header_bytes = bytes;
    atomic_store(&b->halt, HR__SEQUENCE_NONE);
    queue->control->magic = HR__CONTROL_MAGIC;
    queue->control->version = HR__SHARE_VERSION;
    queue->at = (struct hr__header_place *)(void *)((char *)b + places_offset);
    queue->samples = (struct hr__header_sample *)(void *)((char *)b + samples_offset);
    for (uint64_t p = 0; p < queue->places; p++) {
        atomic_store(&queue->at[p].number, HR__SEQUENCE_NONE);
        atomic_store(&queue->at[p].offset, p * queue->chunk_bytes);
    }
}

void fake_queue_remove(struct fake_queue *queue)
{
    munmap(queue->header, queue->header->header_bytes);
    munmap(queue->data, queue->data_bytes);
    munmap(queue->control, sizeof *queue->control);
    close(queue->header_file);
    close(queue->data_file);
    close(queue->control_file);
    close(queue->bell_file);
}

void fake_queue_files(const struct fake_queue *queue, int files[4])
{
    const int own[4] = {queue->header_file, queue->data_file, queue->control_file,
                        queue->bell_file};
    for (int i = 0; i < 4; i++) {
        files[i] = fcntl(own[i], F_DUPFD_CLOEXEC, 0);
        assert_true(files[i] >= 0);
    }
}

static uint64_t spare(struct fake_queue *queue)
{
    uint64_t mark = atomic_load(&queue->control->mark);
    for (size_t i = 0; i < queue->lent_count;) {
        if (queue->leased[i].end > mark) {
            i++;
            continue;
        }
        queue->spares[queue->spare_count++] = queue->leased[i].offset;
        queue->leased[i] = queue->leased[--queue->lent_count];
    }
    if (queue->spare_count)
        return queue->spares[--queue->spare_count];
    uint64_t offset = queue->file_bytes;
    queue->file_bytes += queue->chunk_bytes;
    assert_true(queue->file_bytes <= queue->data_bytes);
    assert_int_equal(ftruncate(queue->data_file, (off_t)queue->file_bytes), 0);
    return offset;
}

/* Frees the place of a chunk. Returns 1, or 0 if that is impossible. */
static int make_room(struct fake_queue *queue, struct hr__header_place *place, int expel)
{
    uint64_t before = atomic_load(&place->number);
    if (before == HR__SEQUENCE_NONE)
        return 1;
    uint64_t begin = before * queue->chunk_samples, end = begin + queue->chunk_samples;
    if (atomic_load(&queue->control->next) < end) {
        if (!expel)
            return 0;
        queue->expelled++;
        atomic_store(&queue->control->floor, end);
    }
    uint64_t mark = atomic_load(&queue->control->mark), next = atomic_load(&queue->control->next);
    if (mark < end && next > begin) {
        assert_true(queue->lent_count < 4096);
        queue->leased[queue->lent_count++] =
            (struct fake_lent){atomic_load(&place->offset), next < end ? next : end};
        uint64_t offset = spare(queue);
        atomic_store(&place->offset, offset);
        queue->lends++;
    }
    return 1;
}

int fake_queue_publish(struct fake_queue *queue, uint64_t count, int expel)
{
    uint64_t chunk = queue->next_chunk, ring = queue->places * queue->chunk_samples;
    struct hr__header_place *place = &queue->at[chunk % queue->places];
    if (!make_room(queue, place, expel))
        return 0;
    uint64_t offset = atomic_load(&place->offset), first = chunk * queue->chunk_samples;
    for (uint64_t i = 0; i < count; i++)
        queue->fill(queue, first + i, queue->data + offset + i * queue->sample_bytes,
                    &queue->samples[(first + i) % ring]);
    atomic_store(&place->number, chunk);
    atomic_store(&queue->header->tail,
                 first + queue->chunk_samples > ring ? first + queue->chunk_samples - ring : 0);
    atomic_store(&queue->header->head, first + count);
    queue->next_chunk++;
    atomic_fetch_add(&queue->header->bell, 1);
    syscall(SYS_futex, &queue->header->bell, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    return 1;
}

void fake_queue_skip_to(struct fake_queue *queue, uint64_t chunk)
{
    queue->next_chunk = chunk;
}
