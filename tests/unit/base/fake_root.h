/* A folder that stands in for the root of /proc and /sys (base/machine.h). */
#ifndef HR_TESTS_FAKE_ROOT_H
#define HR_TESTS_FAKE_ROOT_H

#include "../test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Makes the folder, and its path the test's state. */
static inline int fake_setup(void **state)
{
    char *root = strdup("/tmp/headrace-root-XXXXXX");
    *state = root && mkdtemp(root) ? root : NULL;
    return !*state;
}

static inline int fake_teardown(void **state)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    int r = system(command);
    free(*state);
    return r;
}

/* Writes a file below the folder, with the folders that it is in. */
static inline void fake_file(const char *root, const char *path, const char *text)
{
    char whole[300];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        assert_true(!mkdir(whole, 0700) || errno == EEXIST);
        *at = '/';
    }
    FILE *file = fopen(whole, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static inline void fake_device(const char *root, const char *bus_id, int node, const char *class)
{
    char path[120], text[16];
    snprintf(path, sizeof path, "sys/bus/pci/devices/%s/class", bus_id);
    fake_file(root, path, class);
    snprintf(path, sizeof path, "sys/bus/pci/devices/%s/vendor", bus_id);
    fake_file(root, path, "0x10de\n");
    snprintf(path, sizeof path, "sys/bus/pci/devices/%s/numa_node", bus_id);
    snprintf(text, sizeof text, "%d\n", node);
    fake_file(root, path, text);
}

#endif
