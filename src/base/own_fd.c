/* Descriptors that forked children must not inherit; see own_fd.h. */
#include "base/own_fd.h"

#include "base/truncation.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Guards the list. Also held while a descriptor is opened, so that no fork comes between. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hr__own_fd *list;
static pthread_once_t handlers = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&list_lock);
}

static void in_child(void)
{
    for (struct hr__own_fd *own = list; own; own = own->next) {
        close(own->fd);
        own->fd = -1; /* the number may soon refer to another file */
    }
    list = NULL;
    pthread_mutex_unlock(&list_lock);
}

static void set_handlers(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

static void begin(void)
{
    pthread_once(&handlers, set_handlers);
    pthread_mutex_lock(&list_lock);
}

/* Adds the descriptor to the list and releases the lock that begin() took. Returns 0 or a negative
 * errno. */
static int enlist(struct hr__own_fd *own, int fd)
{
    int r = fd < 0 ? -errno : 0;
    *own = (struct hr__own_fd){.fd = fd};
    if (!r) {
        own->next = list;
        list = own;
    }
    pthread_mutex_unlock(&list_lock);
    return r;
}

int hr__own_fd_open(struct hr__own_fd *own, int at, const char *path, int flags, mode_t mode)
{
    begin();
    return enlist(own, openat(at, path, flags | O_CLOEXEC, mode));
}

int hr__own_fd_copy(struct hr__own_fd *own, int fd)
{
    begin();
    return enlist(own, fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

void hr__own_fd_close(struct hr__own_fd *own)
{
    pthread_mutex_lock(&list_lock);
    struct hr__own_fd **at = &list;
    while (*at && *at != own)
        at = &(*at)->next;
    if (*at)
        *at = own->next;
    if (own->fd >= 0)
        close(own->fd);
    own->fd = -1;
    pthread_mutex_unlock(&list_lock);
}

void *hr__own_fd_map(const struct hr__own_fd *own, size_t bytes, int protection, int flags)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", own->fd);
    int fd = open(path, (protection & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    /* Without /proc, forked children keep the locks for as long as they live. */
    void *memory = mmap(NULL, bytes, protection, MAP_SHARED | flags, fd < 0 ? own->fd : fd, 0);
    int code = errno;
    if (fd >= 0)
        close(fd);
    if (memory != MAP_FAILED)
        hr__truncation_guard(memory, bytes);
    errno = code;
    return memory;
}

void hr__own_fd_unmap(void *memory, size_t bytes)
{
    hr__truncation_unguard(memory);
    munmap(memory, bytes);
}
