/*
 * Reports a segment's contents and where its memory is.
 *
 * The kernel reports huge pages and NUMA nodes only for pages that this process has mapped. So one
 * page of every 2 MiB is mapped first, without reading it, since another process may be writing to
 * it. Only allocated memory is mapped, because touching a hole would allocate it.
 */
#include "cache/info.h"

#include "base/machine.h"
#include "base/memory.h"
#include "cache/store_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; with older kernels some values stay unknown */
#endif

#define STEP       (UINT64_C(2) << 20)
#define SAMPLE_MAX 4096u

/* The parts of the file that have memory: index, ring, arena. */
struct info_piece {
    uint64_t from, bytes;
};

static void find_pieces(const struct hr__segment *s, const struct hr__books *books,
                        struct info_piece out[3])
{
    const struct hr__segment_layout *l = &s->layout;
    uint64_t arena = books->arena_allocated;
    out[0] = (struct info_piece){0, l->ring_offset};
    out[1] = (struct info_piece){l->ring_offset, books->ring_allocated ? l->ring_bytes : 0};
    out[2] = (struct info_piece){l->arena_offset, arena < l->arena_bytes ? arena : l->arena_bytes};
}

/* Maps one page of each step of each part, and stores some of the addresses. Returns how many. */
static unsigned map_some(const struct hr__segment *s, const struct info_piece pieces[3],
                         void *sample[SAMPLE_MAX])
{
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < 3; i++)
        total += (pieces[i].bytes + STEP - 1) / STEP;
    uint64_t every = total / SAMPLE_MAX + 1;
    unsigned count = 0;
    for (int i = 0; i < 3; i++)
        for (uint64_t at = 0; at < pieces[i].bytes; at += STEP, seen++) {
            char *page = (char *)s->header + pieces[i].from + at;
            (void)madvise(page, 1, MADV_POPULATE_READ);
            if (seen % every == 0 && count < SAMPLE_MAX)
                sample[count++] = page;
        }
    return count;
}

uint64_t hr__info_huge_bytes(const char *smaps, uint64_t from, uint64_t to)
{
    static const char *const keys[] = {"ShmemPmdMapped:", "FilePmdMapped:"};
    uint64_t bytes = 0;
    int is_ours = 0;
    for (const char *line = smaps; *line;) {
        char *end;
        uint64_t begin = strtoull(line, &end, 16);
        if (end > line && *end == '-')
            is_ours = begin >= from && begin < to;
        for (int i = 0; is_ours && i < 2; i++)
            if (!strncmp(line, keys[i], strlen(keys[i])))
                bytes += strtoull(line + strlen(keys[i]), NULL, 10) * 1024;
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return bytes;
}

/* Reads a file of /proc completely; the caller frees it. NULL: it cannot be read. */
static char *read_all(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t capacity = 1 << 16, length = 0;
    char *text = fd < 0 ? NULL : hr__alloc(HR__TAG_CACHE, capacity, 1);
    ssize_t n = 0;
    while (text && (n = read(fd, text + length, capacity - 1 - length)) > 0) {
        length += (size_t)n;
        if (capacity - length < 1 << 13) {
            char *more = hr__realloc(HR__TAG_CACHE, text, capacity * 2, 1);
            if (!more)
                hr__free(text);
            text = more;
            capacity *= 2;
        }
    }
    if (fd >= 0)
        close(fd);
    if (text)
        text[n < 0 ? 0 : length] = 0;
    return text;
}

static void fill_nodes(struct hr_cache_info *out, void **sample, unsigned count)
{
    int status[SAMPLE_MAX];
    uint64_t of_node[HR_CACHE_NODES] = {0}, known = 0;
    uint64_t nodes = hr__nodes_usable("");
    if (!(nodes & (nodes - 1))) {
        out->node_bytes[0] = out->allocated_bytes;
        return;
    }
    /* Containers may forbid this call; then the nodes stay unknown. */
    if (!count || syscall(SYS_move_pages, 0, (unsigned long)count, sample, NULL, status, 0))
        return;
    for (unsigned i = 0; i < count; i++)
        if (status[i] >= 0 && status[i] < HR_CACHE_NODES) {
            of_node[status[i]]++;
            known++;
        }
    for (int node = 0; known && node < HR_CACHE_NODES; node++)
        out->node_bytes[node] =
            (uint64_t)((double)out->allocated_bytes * (double)of_node[node] / (double)known);
}

static void fill_memory(struct hr_cache_info *out, struct hr__segment *s,
                        const struct hr__books *books)
{
    struct stat st;
    struct info_piece pieces[3];
    void *sample[SAMPLE_MAX];
    if (!fstat(s->own.fd, &st))
        out->allocated_bytes = (uint64_t)st.st_blocks * 512;
    if (s->on_disk)
        return;
    find_pieces(s, books, pieces);
    unsigned count = map_some(s, pieces, sample);
    char *smaps = read_all("/proc/self/smaps");
    uint64_t from = (uint64_t)(uintptr_t)s->header;
    if (smaps)
        out->huge_bytes = hr__info_huge_bytes(smaps, from, from + s->layout.file_bytes);
    hr__free(smaps);
    fill_nodes(out, sample, count);
}

static void fill_users(struct hr_cache_info *out, struct hr__segment *s)
{
    if (s->user) /* its own lock does not count as another's */
        out->pids[out->users++] = atomic_load(&s->user->pid);
    out->users += hr__segment_users(s, out->pids + out->users, HR_CACHE_PIDS - out->users);
}

static void fill_counters(struct hr_cache_info *out, struct hr__segment *s)
{
    struct hr__segment_header *h = s->header;
    out->hits = atomic_load(&h->hits);
    out->misses = atomic_load(&h->misses);
    out->saved_bytes = atomic_load(&h->saved_bytes);
    out->refused = atomic_load(&h->refused);
    out->foreign = atomic_load(&h->foreign);
    for (int i = 0; i < HR__SEGMENT_USERS; i++) {
        struct hr__segment_user *user = &h->users[i];
        out->hits += atomic_load_explicit(&user->hits, memory_order_relaxed);
        out->misses += atomic_load_explicit(&user->misses, memory_order_relaxed);
        out->saved_bytes += atomic_load_explicit(&user->saved_bytes, memory_order_relaxed);
        out->refused += atomic_load_explicit(&user->refused, memory_order_relaxed);
    }
}

static void fill_costs(struct hr_cache_info *out, const struct hr__segment_costs *costs)
{
    out->form = (int)atomic_load(&costs->form);
    out->form_asked = (int)atomic_load(&costs->form_asked);
    for (int form = 0; form < HR_FORMS; form++) {
        out->forms[form].prepare_us = (double)atomic_load(&costs->prepare_ns[form]) / 1e3;
        out->forms[form].convert_us = (double)atomic_load(&costs->convert_ns[form]) / 1e3;
        out->forms[form].growth = (double)atomic_load(&costs->growth_ppm[form]) / 1e6;
    }
    out->read_us = (double)atomic_load(&costs->read_ns) / 1e3;
}

/* Fills in the members that programs of version 0.1 know. */
static void copy_first_forms(struct hr_cache_info *out)
{
    for (size_t form = 0; form < sizeof out->items / sizeof *out->items; form++) {
        out->items[form] = out->forms[form].items;
        out->prepare_us[form] = out->forms[form].prepare_us;
        out->convert_us[form] = out->forms[form].convert_us;
        out->growth[form] = out->forms[form].growth;
    }
}

void hr__info_fill(struct hr_cache_info *out, struct hr__segment *s)
{
    *out = (struct hr_cache_info){.size = sizeof *out};
    snprintf(out->path, sizeof out->path, "%.*s", (int)sizeof out->path - 1, s->path);
    if (!hr__segment_is_sound(s)) {
        struct stat st;
        out->damaged = 1;
        if (!fstat(s->own.fd, &st))
            out->allocated_bytes = (uint64_t)st.st_blocks * 512;
        snprintf(out->problem, sizeof out->problem, "it was found damaged or truncated");
        return;
    }
    out->on_disk = s->on_disk;
    const struct hr__segment_header *h = s->header;
    struct hr__books books = hr__segment_books(s);
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof h->name - 1, h->name);
    snprintf(out->dataset, sizeof out->dataset, "%.*s", (int)sizeof h->dataset - 1, h->dataset);
    out->size_bytes = h->size_bytes;
    out->budget_bytes = s->layout.arena_bytes;
    out->used_bytes = hr__store_used(&books) + books.staged_bytes;
    for (int form = 0; form < HR_FORMS; form++)
        out->forms[form].items = books.items[form];
    out->staged = books.staged;
    out->evicted = books.evicted;
    out->orders = s->on_disk ? 0 : hr__segment_orders(s);
    out->source_bytes = books.source_bytes;
    fill_memory(out, s, &books);
    fill_users(out, s);
    fill_counters(out, s);
    fill_costs(out, &h->costs);
    copy_first_forms(out);
}
