/* Parses reports and checks their contents; see shown.h. */
#include "shown.h"

#include "../test.h"
#include "base/draft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void shown_make_path(char path[64])
{
    strcpy(path, "/tmp/headrace-report-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

const char *shown_read(const char *path)
{
    static char written[8 << 20];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(written, 1, sizeof written - 1, f);
    assert_true(feof(f));
    written[n] = 0;
    assert_int_equal(strlen(written), n);
    fclose(f);
    unlink(path);
    return written;
}

void shown_is_file(const char *text, const char *name)
{
    static char path[4096], expected[65536];
    const char *root = getenv("HEADRACE_SOURCE_ROOT");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/tests/unit/%s", root, name);
    if (getenv("HEADRACE_REWRITE")) {
        test_write_text(path, text);
    }
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    expected[fread(expected, 1, sizeof expected - 1, f)] = 0;
    fclose(f);
    assert_string_equal(text, expected);
}

size_t shown_widest(const char *text)
{
    size_t most = 0;
    while (*text) {
        size_t n = strcspn(text, "\n"), width = hr__text_columns(text, n);
        most = width > most ? width : most;
        assert_true(!n || text[n - 1] != ' ');
        for (size_t i = 0; i < n; i++)
            assert_true((unsigned char)text[i] >= 0x20 && text[i] != 0x7F);
        text += n + (text[n] == '\n');
    }
    return most;
}
