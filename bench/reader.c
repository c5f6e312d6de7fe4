/*
 * Time and bandwidth of the file reader, compared with a plain loop of open, fstat, read into a new
 * buffer and close on one thread; with "ranges", of pieces of one open file, compared with a loop
 * of pread.
 *
 *   reader FILES BYTES DEPTH REPEATS [cold] [direct|uncached] [ranges] [in DIRECTORY]
 *   reader --list FILE DEPTH cached|direct|uncached
 *
 * Makes FILES files of BYTES, reads them all with each method, interleaved REPEATS times, and
 * prints the median of each. "cold" evicts each file from the page cache before every pass
 * (fadvise), so it needs a real disk. With --list it reads the files whose paths are in FILE, one a
 * line, once, cold, and prints one line of JSON. DEPTH 0: the depth that storage/depth.h finds
 * meanwhile.
 */
#include "storage/reader.h"
#include "base/clock.h"
#include "base/memory.h"
#include "storage/depth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum method { PLAIN, PREAD, URING, METHODS };
static const char *const method_names[] = {"plain loop", "pread reader", "io_uring reader"};

struct setup {
    int files, bytes, depth, repeats, cold, direct;
    int ranges; /* one file holds all ranges; all paths are its path */
    int uncached, any_length;
    size_t read_bytes; /* by read_with */
    double depth_ns;   /* of read_with: the integral of the depth over time */
    unsigned found;    /* depth in use at the end of read_with */
    int fd, plain_fd;  /* ranges: of the readers (O_DIRECT if direct), of the plain loop */
    char directory[512];
    char (*paths)[640];
};

static void die(const char *what)
{
    perror(what);
    exit(3);
}

static void make_files(struct setup *s)
{
    char *data = malloc((size_t)s->bytes);
    s->paths = calloc((size_t)s->files, sizeof *s->paths);
    if (!data || !s->paths || !mkdtemp(s->directory))
        die(s->directory);
    for (int i = 0; i < s->bytes; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    for (int i = 0; i < s->files; i++) {
        snprintf(s->paths[i], sizeof s->paths[i], "%s/%06d", s->directory, s->ranges ? 0 : i);
        int fd = open(s->paths[i], O_WRONLY | O_CREAT | (s->ranges ? O_APPEND : O_EXCL), 0600);
        if (fd < 0 || write(fd, data, (size_t)s->bytes) != s->bytes || fsync(fd) || close(fd))
            die(s->paths[i]);
    }
    free(data);
    s->plain_fd = open(s->paths[0], O_RDONLY | O_CLOEXEC);
    s->fd = open(s->paths[0], O_RDONLY | O_CLOEXEC | (s->direct ? O_DIRECT : 0));
    if (s->plain_fd < 0 || s->fd < 0)
        die(s->paths[0]);
}

static void drop(const struct setup *s)
{
    for (int i = 0; i < s->files; i++) {
        int fd = open(s->paths[i], O_RDONLY);
        if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
            die(s->paths[i]);
        close(fd);
    }
}

static void read_plain_ranges(const struct setup *s)
{
    for (int i = 0; i < s->files; i++) {
        void *block = hr__alloc_aligned(HR__TAG_STORAGE, (size_t)s->bytes, 64);
        if (!block || pread(s->plain_fd, block, (size_t)s->bytes, (off_t)i * s->bytes) != s->bytes)
            die(s->paths[i]);
        hr__free(block);
    }
}

static void aim(const struct setup *s, struct hr__read *read, int i)
{
    read->path = s->paths[i];
    read->uncached = s->uncached;
    read->is_range = s->ranges;
    read->fd = s->fd;
    read->offset = (uint64_t)i * (uint64_t)s->bytes;
    read->expected = s->any_length ? -1 : s->bytes;
}

static void read_plain(const struct setup *s)
{
    for (int i = 0; i < s->files; i++) {
        struct stat status;
        int fd = open(s->paths[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status))
            die(s->paths[i]);
        void *block = hr__alloc_aligned(HR__TAG_STORAGE, (size_t)status.st_size, 64);
        if (!block || read(fd, block, (size_t)status.st_size) != status.st_size)
            die(s->paths[i]);
        hr__free(block);
        close(fd);
    }
}

/* Largest number of reads in flight if none is given. */
#define DEPTH_MOST 64

static void read_with(struct setup *s, struct hr__reader *reader)
{
    unsigned most = s->depth ? (unsigned)s->depth : DEPTH_MOST, idle = most;
    struct hr__read *reads = calloc(most, sizeof *reads), *done[DEPTH_MOST];
    struct hr__read **free_reads = calloc(most, sizeof *free_reads);
    struct hr__depth depth;
    int next = 0;
    if (!reads || !free_reads)
        die("calloc");
    for (unsigned i = 0; i < most; i++)
        free_reads[i] = &reads[i];
    hr__depth_init(&depth, most);
    uint64_t now_ns = hr__now_ns();
    for (int left = s->files; left;) {
        unsigned allowed = s->depth ? most : hr__depth_now(&depth);
        while (next < s->files && most - idle < allowed) {
            struct hr__read *read = free_reads[--idle];
            aim(s, read, next++);
            if (hr__reader_submit(reader, read))
                die("submit");
        }
        unsigned in_flight = most - idle;
        size_t before = s->read_bytes;
        int n = hr__reader_wait(reader, done, DEPTH_MOST, -1);
        if (n < 0)
            die("wait");
        for (int i = 0; i < n; i++, left--) {
            if (done[i]->result || (!s->any_length && done[i]->length != (size_t)s->bytes))
                die(done[i]->path);
            s->read_bytes += done[i]->length;
            hr__free(done[i]->bytes);
            free_reads[idle++] = done[i];
        }
        uint64_t then_ns = now_ns;
        now_ns = hr__now_ns();
        s->depth_ns += (double)allowed * (double)(now_ns - then_ns);
        s->found = allowed;
        hr__depth_note(&depth, in_flight, (unsigned)n, s->read_bytes - before, now_ns);
    }
    free(free_reads);
    free(reads);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void parse(struct setup *s, int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: reader FILES BYTES DEPTH REPEATS [cold] [direct|uncached] "
                        "[ranges] [in DIRECTORY]\n");
        exit(2);
    }
    s->files = atoi(argv[1]);
    s->bytes = atoi(argv[2]);
    s->depth = atoi(argv[3]);
    s->repeats = atoi(argv[4]);
    strcpy(s->directory, "/tmp/headrace-reader-XXXXXX");
    for (int i = 5; i < argc; i++) {
        s->cold |= !strcmp(argv[i], "cold");
        s->direct |= !strcmp(argv[i], "direct");
        s->uncached |= !strcmp(argv[i], "uncached");
        s->ranges |= !strcmp(argv[i], "ranges");
        if (!strcmp(argv[i], "in") && i + 1 < argc)
            snprintf(s->directory, sizeof s->directory, "%s/headrace-reader-XXXXXX", argv[++i]);
    }
}

/* Reads the paths in a file, one a line, into s->paths. */
static void read_list(struct setup *s, const char *path)
{
    FILE *f = fopen(path, "re");
    size_t capacity = 0;
    if (!f)
        die(path);
    for (;;) {
        if ((size_t)s->files == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            s->paths = realloc(s->paths, capacity * sizeof *s->paths);
            if (!s->paths)
                die("realloc");
        }
        char *line = s->paths[s->files];
        if (!fgets(line, sizeof *s->paths, f))
            break;
        line[strcspn(line, "\n")] = 0;
        s->files += *line != 0;
    }
    fclose(f);
}

/* Returns how many bytes of the files are still in the page cache. */
static size_t bytes_in_memory(const struct setup *s)
{
    size_t bytes = 0;
    for (int i = 0; i < s->files; i++) {
        struct stat status;
        unsigned char pages[4096];
        int fd = open(s->paths[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status))
            die(s->paths[i]);
        size_t n = ((size_t)status.st_size + 4095) / 4096;
        void *map = n && n <= sizeof pages ? mmap(NULL, n * 4096, PROT_READ, MAP_SHARED, fd, 0)
                                           : MAP_FAILED;
        if (map != MAP_FAILED && !mincore(map, n * 4096, pages))
            for (size_t p = 0; p < n; p++)
                bytes += pages[p] & 1 ? 4096 : 0;
        if (map != MAP_FAILED)
            munmap(map, n * 4096);
        close(fd);
    }
    return bytes;
}

static int run_list(int argc, char **argv)
{
    struct setup s = {.uncached = !strcmp(argv[4], "uncached"), .any_length = 1};
    struct hr__reader *reader;
    struct hr_error error;
    s.direct = !strcmp(argv[4], "direct");
    s.depth = atoi(argv[3]);
    read_list(&s, argv[2]);
    struct hr__reader_options options = {.depth = s.depth ? (unsigned)s.depth : DEPTH_MOST,
                                         .direct = s.direct};
    if (hr__reader_create(&reader, &options, &error))
        die(error.message);
    drop(&s);
    size_t before = bytes_in_memory(&s);
    uint64_t start = hr__now_ns();
    read_with(&s, reader);
    double seconds = (double)(hr__now_ns() - start) * 1e-9;
    printf("{\"reader_mb_s\": %.1f, \"files\": %d, \"bytes\": %zu, \"depth\": %d, "
           "\"mean_depth\": %.1f, \"mode\": \"%s\", \"io_uring\": %s, \"in_memory_before\": %zu, "
           "\"in_memory_after\": %zu}\n",
           (double)s.read_bytes / seconds / 1e6, s.files, s.read_bytes, (int)s.found,
           s.depth_ns / (seconds * 1e9), argv[4], hr__reader_is_io_uring(reader) ? "true" : "false",
           before, bytes_in_memory(&s));
    hr__reader_destroy(&reader);
    free(s.paths);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "--list"))
        return run_list(argc, argv);
    struct setup s = {0};
    struct hr__reader *readers[METHODS] = {0};
    parse(&s, argc, argv);
    make_files(&s);
    double *times = calloc((size_t)s.repeats * METHODS, sizeof *times);
    if (!times)
        die("calloc");
    for (int m = PREAD; m < METHODS; m++) {
        struct hr__reader_options options = {
            .depth = (unsigned)s.depth, .direct = s.direct, .no_io_uring = m == PREAD};
        struct hr_error error;
        if (hr__reader_create(&readers[m], &options, &error))
            die(error.message);
    }
    for (int r = -1; r < s.repeats; r++)
        for (int m = 0; m < METHODS; m++) {
            if (s.cold)
                drop(&s);
            uint64_t start = hr__now_ns();
            if (m == PLAIN && s.ranges)
                read_plain_ranges(&s);
            else if (m == PLAIN)
                read_plain(&s);
            else
                read_with(&s, readers[m]);
            if (r >= 0)
                times[m * s.repeats + r] = (double)(hr__now_ns() - start);
        }
    double plain = 0;
    for (int m = 0; m < METHODS; m++) {
        qsort(times + m * s.repeats, (size_t)s.repeats, sizeof *times, compare);
        double ns = times[m * s.repeats + s.repeats / 2];
        plain = m ? plain : ns;
        int uring = m == URING && hr__reader_is_io_uring(readers[m]);
        printf("%-16s %8.2f us a file  %8.1f MB/s  %5.2f x plain%s\n", method_names[m],
               ns / 1e3 / s.files, (double)s.files * s.bytes / ns * 1e3, ns / plain,
               m == URING && !uring ? " (io_uring refused)" : "");
        hr__reader_destroy(&readers[m]);
    }
    for (int i = 0; i < s.files; i++)
        unlink(s.paths[i]);
    rmdir(s.directory);
    free(s.paths);
    free(times);
    return 0;
}
