/*
 * The cost of reading objects: requests, checks of answers, and bytes in memory; no decoding.
 *
 *   bench_objects LIST DEPTH
 *
 * LIST: a file of URLs, one a line, and their sizes after a tabulator. Waits for a line on standard
 * input before each pass over all of them, with DEPTH reads in flight on one thread. Prints one
 * line of JSON for each: objects, bytes, seconds, CPU seconds of the process.
 */
#include "base/clock.h"
#include "storage/http.h"
#include "storage/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define DEPTH_MOST 256

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_objects: %s: %s\n", what, why);
    exit(3);
}

struct object_line {
    char *url;
    int64_t bytes;
};

static size_t read_list(const char *path, struct object_line **out)
{
    size_t count = 0, room = 0, line_bytes = 0;
    char *line = NULL;
    FILE *file = fopen(path, "r");
    if (!file)
        die(path, "cannot be opened");
    while (getline(&line, &line_bytes, file) > 0) {
        char *tab = strchr(line, '\t');
        if (!tab)
            die(path, "has a line without a size");
        *tab = 0;
        if (count == room) {
            room = room ? 2 * room : 1024;
            *out = realloc(*out, room * sizeof **out);
            if (!*out)
                die(path, "is too long");
        }
        (*out)[count++] = (struct object_line){strdup(line), atoll(tab + 1)};
    }
    free(line);
    fclose(file);
    return count;
}

static double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* Reads all objects. Returns their bytes. */
static uint64_t pass(struct hr__reader *reader, struct hr__http_client *http,
                     const struct object_line *lines, size_t count, unsigned depth)
{
    static struct hr__read reads[DEPTH_MOST];
    struct hr__read *free_reads[DEPTH_MOST], *done[DEPTH_MOST];
    unsigned free_count = depth;
    uint64_t bytes = 0;
    size_t next = 0, ended = 0;
    for (unsigned i = 0; i < depth; i++)
        free_reads[i] = &reads[i];
    while (ended < count) {
        while (free_count && next < count) {
            struct hr__read *r = free_reads[--free_count];
            *r = (struct hr__read){
                .path = lines[next].url, .expected = lines[next].bytes, .fd = -1, .http = http};
            next++;
            if (hr__reader_submit(reader, r))
                die(r->path, "is refused");
        }
        int n = hr__reader_wait(reader, done, DEPTH_MOST, -1);
        for (int i = 0; i < n; i++) {
            if (done[i]->result)
                die(done[i]->path, done[i]->reason ? done[i]->reason : "failed");
            bytes += done[i]->length;
            hr__read_drop(done[i]);
            free_reads[free_count++] = done[i];
            ended++;
        }
    }
    return bytes;
}

int main(int argc, char **argv)
{
    struct object_line *lines = NULL;
    struct hr__http_client *http;
    struct hr__reader *reader;
    struct hr_error error;
    char text[16];
    if (argc != 3)
        die("usage", "bench_objects LIST DEPTH");
    unsigned depth = (unsigned)atoi(argv[2]);
    if (depth < 1 || depth > DEPTH_MOST)
        die("DEPTH", "must be from 1 to 256");
    struct hr__reader_options options = {.depth = depth};
    if (hr__http_create(&http, &error) || hr__reader_create(&reader, &options, &error))
        die("a client", error.message);
    size_t count = read_list(argv[1], &lines);
    while (fgets(text, sizeof text, stdin)) {
        uint64_t start_ns = hr__now_ns();
        double cpu = cpu_seconds();
        uint64_t bytes = pass(reader, http, lines, count, depth);
        printf("{\"objects\": %zu, \"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
               count, (unsigned long long)bytes, (double)(hr__now_ns() - start_ns) / 1e9,
               cpu_seconds() - cpu);
        fflush(stdout);
    }
    hr__reader_destroy(&reader);
    hr__http_unref(&http);
    for (size_t i = 0; i < count; i++)
        free(lines[i].url);
    free(lines);
    return 0;
}
