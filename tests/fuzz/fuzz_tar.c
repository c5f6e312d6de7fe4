/*
 * Tar files of any bytes: the index pass ends with a catalog whose ranges are inside the file, or
 * with an error and a message.
 */
#include "dataset/tar.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__catalog *catalog;
    struct hr__progress progress;
    struct hr_error error = {0};
    char path[] = "/proc/self/fd/000";
    char *paths[] = {path};
    int fd = memfd_create("tar", MFD_CLOEXEC);
    if (fd < 0 || fd > 999 || write(fd, data, size) != (ssize_t)size)
        abort();
    for (int i = 0, n = fd; i < 3; i++, n /= 10)
        path[sizeof path - 2 - (size_t)i] = (char)('0' + n % 10);
    char *digits = path + strlen("/proc/self/fd/");
    while (digits[0] == '0' && digits[1])
        memmove(digits, digits + 1, strlen(digits));
    hr__progress_init(&progress, NULL, NULL);
    if (hr__tar_index(&catalog, paths, 1, &hr__executor_serial, &progress, &error)) {
        if (!error.message[0])
            abort();
    } else {
        for (uint64_t i = 0; i < catalog->header->samples; i++) {
            uint64_t bytes = (uint64_t)catalog->sizes[i];
            if (!bytes || bytes > size || catalog->ranges[i].offset > size - bytes)
                abort();
        }
        hr__catalog_destroy(&catalog);
    }
    close(fd);
    return 0;
}
