/* Writes the pages of the fixtures into a folder, for test_browser.py to open. */
#include "../test.h"

#include "fixture.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*make)(struct hr_stalls *);
    } pages[] = {{"gpu", fixture_gpu},
                 {"cpu", fixture_cpu},
                 {"warm", fixture_warm},
                 {"hostile", fixture_hostile}};
    for (size_t i = 0; argc == 2 && i < sizeof pages / sizeof *pages; i++) {
        char path[4096];
        struct hr_stalls s;
        struct hr_error error = {0};
        pages[i].make(&s);
        snprintf(path, sizeof path, "%s/%s.html", argv[1], pages[i].name);
        if (hr_stalls_write_page(&s, path, &error)) {
            fprintf(stderr, "%s\n", error.message);
            return 1;
        }
    }
    return argc != 2;
}
