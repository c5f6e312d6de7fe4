/*
 * Makes a stalls.json from records, as headrace stalls does at the end of a run.
 * Usage: stalls_make OUT RECORD...
 */
#include <headrace/headrace.h>
#include <headrace/stalls.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t room = 0;
    if (file && getdelim(&text, &room, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    struct hr_error error = {0, ""};
    struct hr_stalls *stalls = NULL;
    int count = argc - 2, r = -1;
    char **records = calloc((size_t)argc, sizeof *records);
    size_t *lengths = calloc((size_t)argc, sizeof *lengths);
    if (count < 1 || !records || !lengths)
        return 2;
    for (int i = 0; i < count; i++) {
        records[i] = read_all(argv[i + 2]);
        if (!records[i])
            return 2;
        lengths[i] = strlen(records[i]);
    }
    r = hr_stalls_analyse(&stalls, (const char *const *)records, lengths, count, &error);
    if (!r)
        r = hr_stalls_write(stalls, argv[1], &error);
    if (r)
        fprintf(stderr, "%s\n", error.message);
    hr_stalls_destroy(&stalls);
    for (int i = 0; i < count; i++)
        free(records[i]);
    free(records);
    free(lengths);
    return r ? 3 : 0;
}
