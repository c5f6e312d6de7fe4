/*
 * A process that uses a cache, for the tests of headrace cache: puts COUNT values of 1,000 bytes
 * that are not there yet, looks up each of them once, prints "ready", and keeps the cache open
 * until its standard input is closed.
 *
 * Usage: cache_user SPEC IDENTITY COUNT
 */
#include <headrace/cache.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int use(struct hr_cache *cache, int count)
{
    char bytes[1000];
    struct hr_cache_piece piece = {bytes, sizeof bytes};
    for (int i = 0; i < 2 * count; i++) {
        struct hr_cache_value value;
        int key = i % count;
        memset(bytes, key, sizeof bytes);
        int r = hr_cache_get(cache, &key, sizeof key, 1000, &value);
        if (r == 1 && memcmp(value.bytes, bytes, sizeof bytes))
            return 1;
        if (!r)
            hr_cache_put(cache, &key, sizeof key, &piece, 1);
        hr_cache_value_clear(&value);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct hr_cache_options options;
    struct hr_cache *cache = NULL;
    struct hr_error error = {0};
    char byte;
    if (argc != 4)
        return 2;
    hr_cache_options_default(&options);
    options.spec = argv[1];
    options.identity = argv[2];
    options.items = 1000;
    if (hr_cache_open(&cache, &options, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 3;
    }
    int r = use(cache, atoi(argv[3]));
    printf("ready\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    hr_cache_close(&cache);
    return r;
}
