/*
 * Records a program without its cooperation: set HEADRACE_TAP_RECORD=FILE in its environment. From
 * the library's constructor to its destructor, all of the program's blocks of HEADRACE_TAP_LEAST
 * bytes and more are recorded, as device 0.
 *
 * "%p" in FILE stands for the process id: then the program's child programs record too, each into
 * its own file. Otherwise they do not, because they would replace the existing one.
 */
#include "memory/tap/host.h"
#include "memory/tap/tap.h"

#include <headrace/memory.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* This process's recording; NULL: none. */
static struct hr_memory_recorder *recorder;

static void record(void *arg, uint8_t kind, uint64_t address, uint64_t bytes, uint8_t device)
{
    struct hr_memory_event event = {
        .address = address,
        .bytes = bytes,
        .kind = kind,
        .device = device == HR_MEMORY_LIBRARIES ? 0 : device,
    };
    hr_memory_record(arg, &event);
}

static void allocated(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    record(arg, HR_MEMORY_ALLOC, address, bytes, device);
}

static void freed(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    record(arg, HR_MEMORY_FREE, address, bytes, device);
}

static void failed(void *arg, uint64_t bytes, uint8_t device)
{
    record(arg, HR_MEMORY_FAILED, 0, bytes, device);
}

static void present(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    record(arg, HR_MEMORY_PRESENT, address, bytes, device);
}

static void complain(const char *text, const char *detail)
{
    fprintf(stderr, "libheadrace-tap: %s%s\n", text, detail);
}

/* Writes FILE with each %p replaced; 0: too long. */
static int name_file(char *out, size_t room, const char *pattern)
{
    size_t used = 0;
    for (const char *p = pattern; *p; p++) {
        int is_process = p[0] == '%' && p[1] == 'p';
        int n = is_process ? snprintf(out + used, room - used, "%ld", (long)getpid())
                           : snprintf(out + used, room - used, "%c", *p);
        if (n < 0 || (size_t)n >= room - used)
            return 0;
        used += (size_t)n;
        p += is_process;
    }
    return used > 0;
}

/* Records the fact "command": the program's arguments from /proc. */
static void record_command(void)
{
    char text[2048];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return;
    for (ssize_t i = 0; i < n - 1; i++)
        if (!text[i])
            text[i] = ' ';
    text[n] = '\0';
    hr_memory_fact(recorder, "command", text);
}

static void begin(const char *pattern)
{
    char path[PATH_MAX];
    struct hr_error error = {0};
    if (!name_file(path, sizeof path, pattern)) {
        complain("HEADRACE_TAP_RECORD is too long a name: ", pattern);
        return;
    }
    /* The recorder's own memory is not the program's. */
    hr__tap_inside++;
    int code = hr_memory_recorder_create(&recorder, path, NULL, &error);
    hr__tap_inside--;
    if (code) {
        complain("nothing is recorded: ", error.message);
        return;
    }
    record_command();
    hr_memory_fact(recorder, "allocations", "allocator");
    struct hr_tap tap = {.version = HR_TAP_VERSION,
                         .arg = recorder,
                         .allocated = allocated,
                         .freed = freed,
                         .failed = failed,
                         .present = present};
    code = hr_tap_begin(&tap);
    if (code) {
        complain("nothing is recorded: ", strerror(-code));
        hr_memory_recorder_destroy(&recorder);
    }
}

__attribute__((constructor)) static void begin_alone(void)
{
    const char *least = getenv("HEADRACE_TAP_LEAST"), *pattern = getenv("HEADRACE_TAP_RECORD");
    if (least && *least) {
        char *end;
        errno = 0;
        unsigned long long bytes = strtoull(least, &end, 10);
        if (*end || errno || least[0] == '-')
            complain("HEADRACE_TAP_LEAST is no number of bytes: ", least);
        else
            hr__tap_set_least(bytes);
    }
    if (!pattern || !*pattern)
        return;
    if (!hr_tap_sees_host()) {
        complain("nothing is recorded: the library was not preloaded (LD_PRELOAD)", "");
        return;
    }
    begin(pattern);
    if (!strstr(pattern, "%p"))
        unsetenv("HEADRACE_TAP_RECORD");
}

__attribute__((destructor)) static void end_alone(void)
{
    /* A signal handler called exit() during a notification: waiting for that would never end. What
     * was reported is in the file. */
    if (!recorder || hr__tap_inside)
        return;
    hr_tap_end();
    hr_memory_recorder_destroy(&recorder);
}
