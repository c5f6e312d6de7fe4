/*
 * The io_uring backend. Each request is a transfer whose opens and reads go through the ring, at
 * most one of them in the kernel at a time. Closes go through the ring too, because they wait on
 * network file systems. All operations of a call enter the kernel together.
 *
 * The kernel writes into a transfer's buffer until the operation's completion has been seen, so no
 * buffer is freed before. A forked child shares the ring with its parent; there destroy only frees
 * the memory.
 */
#include "storage/backend.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <unistd.h>

/* user_data of operations that belong to no slot. */
#define NO_SLOT UINT64_C(0xFFFFFFFF)

struct slot {
    struct hr__transfer transfer; /* transfer.read == NULL: the slot is free */
    enum hr__transfer_step step;  /* the operation in the ring: open or read */
    unsigned next_free;           /* index of the next free slot; depth: none */
};

struct uring {
    struct io_uring ring;
    const struct hr__transfer_rules *rules;
    struct hr__read_list *done;
    struct slot *slots;
    unsigned depth;       /* number of slots */
    unsigned first_free;  /* index of a free slot; depth: none */
    unsigned outstanding; /* operations whose completion has not been seen */
    pid_t owner;          /* the process that created the ring */
    int made;             /* the ring exists */
    int cancelling;       /* destroy has begun: start no new operations */
};

/*
 * Returns a free submission entry. The queue has room for an open or read of each slot and as many
 * closes. If it is full all the same, this submits its entries first.
 */
static struct io_uring_sqe *next_sqe(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (!sqe && io_uring_submit(&u->ring) >= 0)
        sqe = io_uring_get_sqe(&u->ring);
    if (sqe)
        u->outstanding++;
    return sqe;
}

static void queue_close(struct uring *u, int fd)
{
    if (fd < 0)
        return;
    struct io_uring_sqe *sqe = next_sqe(u);
    if (!sqe) {
        close(fd);
        return;
    }
    io_uring_prep_close(sqe, fd);
    io_uring_sqe_set_data64(sqe, NO_SLOT);
}

static int queue_step(struct uring *u, struct slot *slot)
{
    struct hr__transfer *t = &slot->transfer;
    struct io_uring_sqe *sqe = next_sqe(u);
    if (!sqe)
        return -EBUSY;
    if (slot->step == HR__STEP_OPEN) {
        io_uring_prep_openat(sqe, AT_FDCWD, t->read->path, hr__transfer_open_flags(t), 0);
    } else {
        io_uring_prep_read(sqe, t->fd, t->bytes + t->length, (unsigned)hr__transfer_request(t),
                           hr__transfer_offset(t));
        sqe->rw_flags = t->rw_flags;
    }
    /* A non-blocking attempt has failed, so let a kernel thread do the read at once. */
    if (t->blocking)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data64(sqe, (uint64_t)(slot - u->slots));
    return 0;
}

static int uring_submit(void *self, struct hr__read *read)
{
    struct uring *u = self;
    assert(u->first_free < u->depth);
    struct slot *slot = &u->slots[u->first_free];
    slot->step = hr__transfer_begin(&slot->transfer, read, u->rules);
    if (slot->step == HR__STEP_DONE) {
        slot->transfer.read = NULL;
        hr__read_list_append(u->done, read);
        return 0;
    }
    int rc = queue_step(u, slot);
    if (rc) {
        hr__transfer_fail(&slot->transfer, rc);
        slot->transfer.read = NULL;
        return rc;
    }
    u->first_free = slot->next_free;
    return 0;
}

static void release_slot(struct uring *u, struct slot *slot)
{
    hr__read_list_append(u->done, slot->transfer.read);
    slot->transfer.read = NULL;
    slot->next_free = u->first_free;
    u->first_free = (unsigned)(slot - u->slots);
}

/* Handles the completion of one operation of a slot. */
static void advance(struct uring *u, struct slot *slot, int result)
{
    struct hr__transfer *t = &slot->transfer;
    if (u->cancelling && slot->step == HR__STEP_OPEN && result >= 0)
        t->fd = result;
    if (u->cancelling)
        slot->step = hr__transfer_fail(t, -ECANCELED);
    else if (slot->step == HR__STEP_OPEN)
        slot->step = hr__transfer_opened(t, result);
    else
        slot->step = hr__transfer_got(t, result);
    queue_close(u, t->stale_fd);
    t->stale_fd = -1;
    if (slot->step != HR__STEP_DONE && queue_step(u, slot))
        slot->step = hr__transfer_fail(t, -EBUSY);
    if (slot->step == HR__STEP_DONE) {
        queue_close(u, t->fd);
        release_slot(u, slot);
    }
}

/* Handles all available completions. Returns how many. */
static unsigned reap(struct uring *u)
{
    struct io_uring_cqe *cqe;
    unsigned head, count = 0;
    io_uring_for_each_cqe(&u->ring, head, cqe)
    {
        uint64_t data = io_uring_cqe_get_data64(cqe);
        int result = cqe->res;
        count++;
        /* liburing's own timeout, on kernels without timed waits. */
        if (data == LIBURING_UDATA_TIMEOUT)
            continue;
        u->outstanding--;
        if (data < u->depth)
            advance(u, &u->slots[data], result);
    }
    io_uring_cq_advance(&u->ring, count);
    return count;
}

/* Returns non-zero for transient errors of io_uring_enter. */
static int is_passing(int rc)
{
    return rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc == -ETIME;
}

/* Submits the queued operations and waits for one completion, until `deadline_ns` at most; without
 * limit if it is negative. */
static int enter_and_wait(struct uring *u, int64_t deadline_ns)
{
    struct io_uring_cqe *cqe;
    if (deadline_ns < 0)
        return io_uring_submit_and_wait(&u->ring, 1);
    int64_t left = deadline_ns - (int64_t)hr__now_ns();
    if (left <= 0)
        return io_uring_submit_and_get_events(&u->ring);
    struct __kernel_timespec ts = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    return io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
}

static int uring_progress(void *self, int64_t timeout_ns)
{
    struct uring *u = self;
    int64_t deadline = timeout_ns < 0 ? -1 : (int64_t)hr__now_ns() + timeout_ns;
    for (;;) {
        reap(u);
        if (u->done->first)
            break;
        int rc = enter_and_wait(u, deadline);
        if (rc < 0 && !is_passing(rc))
            return rc;
        if (!reap(u) && deadline >= 0 && (int64_t)hr__now_ns() >= deadline)
            break;
    }
    /* Submit first, so that the kernel works while the caller handles these. */
    if (io_uring_sq_ready(&u->ring)) {
        int rc = io_uring_submit(&u->ring);
        if (rc < 0 && !is_passing(rc))
            return rc;
    }
    return 0;
}

/*
 * Cancels all operations and waits until the kernel has released every buffer. If the kernel
 * refuses even that (a seccomp filter installed meanwhile), the buffers of the operations in flight
 * are leaked, because the kernel may still write to them.
 */
static void drain(struct uring *u)
{
    u->cancelling = 1;
    for (unsigned i = 0; i < u->depth; i++) {
        struct io_uring_sqe *sqe = u->slots[i].transfer.read ? next_sqe(u) : NULL;
        if (!sqe)
            continue;
        io_uring_prep_cancel64(sqe, i, 0);
        io_uring_sqe_set_data64(sqe, NO_SLOT);
    }
    while (u->outstanding) {
        int rc = io_uring_submit_and_wait(&u->ring, 1);
        if (rc < 0 && !is_passing(rc))
            break;
        reap(u);
    }
}

static void uring_destroy(void *self)
{
    struct uring *u = self;
    int ours = u->owner == getpid();
    if (u->made && ours)
        drain(u);
    for (unsigned i = 0; u->slots && i < u->depth; i++) {
        struct slot *slot = &u->slots[i];
        if (!slot->transfer.read)
            continue;
        if (ours)
            slot->transfer.bytes = NULL;
        hr__transfer_fail(&slot->transfer, -ECANCELED);
        if (!ours && slot->transfer.fd >= 0)
            close(slot->transfer.fd);
        release_slot(u, slot);
    }
    if (u->made)
        io_uring_queue_exit(&u->ring);
    hr__free(u->slots);
    hr__free(u);
}

static int make_ring(struct uring *u)
{
    unsigned entries = 2 * u->depth;
    /* Completions need not interrupt this thread, which polls for them. Kernels before 5.19 do not
     * know these flags. */
    int rc =
        io_uring_queue_init(entries, &u->ring, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL);
    if (rc == -EINVAL)
        rc = io_uring_queue_init(entries, &u->ring, 0);
    u->made = !rc;
    return rc;
}

/* Checks whether this kernel supports the operations and lets us enter the ring. */
static int try_ring(struct uring *u)
{
    static const int needed[] = {IORING_OP_OPENAT, IORING_OP_READ, IORING_OP_CLOSE,
                                 IORING_OP_ASYNC_CANCEL, IORING_OP_NOP};
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
    if (!probe)
        return -ENOSYS;
    int missing = 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        missing |= !io_uring_opcode_supported(probe, needed[i]);
    io_uring_free_probe(probe);
    if (missing)
        return -ENOSYS;
    struct io_uring_sqe *sqe = next_sqe(u);
    if (!sqe)
        return -EBUSY;
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, NO_SLOT);
    while (u->outstanding) {
        int rc = io_uring_submit_and_wait(&u->ring, 1);
        if (rc < 0 && !is_passing(rc)) {
            u->outstanding = 0; /* only the NOP is outstanding */
            return rc;
        }
        reap(u);
    }
    return 0;
}

int hr__uring_create(void **self, unsigned depth, const struct hr__transfer_rules *rules,
                     struct hr__read_list *done)
{
    int rc = -ENOMEM;
    struct uring *u = hr__alloc(HR__TAG_STORAGE, 1, sizeof *u);
    if (!u)
        return rc;
    u->rules = rules;
    u->depth = depth;
    u->done = done;
    u->owner = getpid();
    u->slots = hr__alloc(HR__TAG_STORAGE, depth, sizeof *u->slots);
    if (!u->slots)
        goto fail;
    for (unsigned i = 0; i < depth; i++)
        u->slots[i].next_free = i + 1;
    if ((rc = make_ring(u)) || (rc = try_ring(u)))
        goto fail;
    *self = u;
    return 0;

fail:
    uring_destroy(u);
    return rc;
}

const struct hr__reader_backend hr__uring_backend = {
    .submit = uring_submit, .progress = uring_progress, .destroy = uring_destroy};
