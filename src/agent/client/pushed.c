/*
 * External order, on the job's side (see attached.h): batches that were pushed and not delivered
 * yet. Through the cursor's control block (agent/share.h) the agent gets as many of them as its
 * ring has room for. A new agent, or the same one after another SEEK, gets them again, beginning
 * with the first undelivered one. So each batch is delivered exactly once.
 */
#include "agent/client/attached.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>

/* If we have a place, sends the agent as many pushed batches as its ring has room for. */
static void send_pushed(struct hr__attached *a)
{
    if (a->state != HR__PLACED || !a->unsent)
        return;
    uint64_t batch = a->cut.batch_size, most = a->delivered + a->cursor->shape.places;
    uint64_t before = a->sent;
    for (; a->unsent && a->sent < most; a->sent++, a->unsent = a->unsent->next) {
        uint64_t number = (a->base + a->sent * batch) / batch; /* base may be negative (wraps) */
        hr__cursor_push(a->cursor, number, a->unsent->indices, a->unsent->count);
    }
    if (a->sent != before)
        hr__cursor_ring(a->cursor);
}

void hr__pushed_send_again(struct hr__attached *a)
{
    a->unsent = a->pushed;
    a->sent = a->delivered;
    send_pushed(a);
}

int hr__pushed_add(struct hr_loader *l, struct hr__push *push, struct hr_error *error)
{
    struct hr__attached *a = l->attached;
    if (!a->is_started)
        return hr__fail(error, -EINVAL, "no epoch was started: call hr_loader_start_epoch first");
    if (a->push_ended)
        return hr__fail(error, -EINVAL, "a batch was pushed after push_end");
    push->next = NULL;
    if (a->pushed_last)
        a->pushed_last->next = push;
    else
        a->pushed = push;
    a->pushed_last = push;
    a->pushed_count++;
    if (!a->unsent)
        a->unsent = push;
    send_pushed(a);
    return 0;
}

int hr__pushed_end(struct hr_loader *l, struct hr_error *error)
{
    struct hr__attached *a = l->attached;
    if (!a->is_started)
        return hr__fail(error, -EINVAL, "push_end needs external_order and a started epoch");
    a->push_ended = 1;
    a->batches = a->delivered + a->pushed_count;
    return 0;
}

static void forget_first(struct hr__attached *a)
{
    struct hr__push *push = a->pushed;
    a->pushed = push->next;
    if (!a->pushed)
        a->pushed_last = NULL;
    if (a->unsent == push)
        a->unsent = a->pushed;
    a->pushed_count--;
    hr__free(push);
}

void hr__pushed_took(struct hr__attached *a)
{
    a->taken += a->pushed->count;
    forget_first(a);
    send_pushed(a);
}

int hr__pushed_line_up(struct hr__attached *a, struct hr_error *error)
{
    uint64_t from = a->base + hr__attached_index(a);
    /* The batch before may have been shorter than its chunk. Only this thread changes `next`. */
    return a->cursor->next == from ? 0 : hr__cursor_go_to(a->cursor, from, error);
}

void hr__pushed_clear(struct hr__attached *a)
{
    while (a->pushed)
        forget_first(a);
    a->push_ended = 0;
    a->taken = 0;
}
