/* What the agent's other files need of its event loop: files in epoll, and waking it up. */
#include "agent/server/inside.h"

#include <errno.h>
#include <unistd.h>

int hr__agent_watch(struct hr_agent *agent, int file, struct hr__watched *watched, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watched};
    return epoll_ctl(agent->epoll, EPOLL_CTL_ADD, file, &event) ? -errno : 0;
}

int hr__agent_rewatch(struct hr_agent *agent, int file, struct hr__watched *watched,
                      uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watched};
    return epoll_ctl(agent->epoll, EPOLL_CTL_MOD, file, &event) ? -errno : 0;
}

void hr__agent_unwatch(struct hr_agent *agent, int file)
{
    epoll_ctl(agent->epoll, EPOLL_CTL_DEL, file, NULL);
}

void hr__agent_wake(struct hr_agent *agent)
{
    uint64_t one = 1;
    int kept = errno; /* we may be in a signal handler */
    /* A write to a full counter fails, but the loop is awake then anyway. */
    ssize_t n = write(agent->wake, &one, sizeof one);
    (void)n;
    errno = kept;
}

void hr_agent_stop(struct hr_agent *agent)
{
    atomic_store(&agent->is_stopping, true);
    hr__agent_wake(agent);
}
