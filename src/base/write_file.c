/* Writing to files; see write_file.h. */
#include "base/write_file.h"

#include <errno.h>
#include <unistd.h>

int hr__write_all(int fd, const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length) {
        ssize_t n = write(fd, from, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -EIO;
        from += n;
        length -= (size_t)n;
    }
    return 0;
}
