/*
 * The connection to an agent (see attached.h).
 *
 * A message is handled where it is received, but it only sets flags: the next turn reacts to a
 * lost connection or to EXPELLED. So receiving is safe at any moment, also while a batch is made.
 *
 * If PLACED comes after another SEEK was sent, its cursor is kept, because the agent may place us
 * there again. Cursors that are not needed are left once no answer is outstanding.
 */
#include "agent/client/attached.h"
#include "agent/launch.h"
#include "agent/statement.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "dataset/row_block.h"
#include "recipe/recipe.h"
#include "recipe/tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Waits this long to be attached: opening a dataset of millions of files may take minutes. */
#define ATTACH_PATIENCE_NS UINT64_C(600000000000)
/* Interval at which options.progress is asked whether to go on waiting. */
#define ATTACH_SLICE_NS UINT64_C(100000000)
/* A wait of this length is logged. */
#define EXPLAIN_NS UINT64_C(2000000000)

static int is_auto(const struct hr__attached *a)
{
    return !strcmp(a->loader->options.agent, "auto");
}

static void send_message(struct hr__attached *a, const struct hr__wire_message *message)
{
    /* Whatever the error was, the connection is unusable now. */
    if (hr__wire_send(a->socket, message))
        a->is_hung_up = 1;
}

static int add_file(struct hr__wire_message *m, const void *bytes, size_t length,
                    struct hr_error *error)
{
    int file = hr__wire_text_file(bytes, length);
    if (file < 0)
        return hr__fail(error, file, "no memory for a message to the agent: %s",
                        hr__errno_text(file));
    m->files[m->file_count++] = file;
    return 0;
}

/* The agent moves the rows with the pixels, so it gets them all. */
static int add_rows(struct hr__wire_message *m, const struct hr_dataset *dataset,
                    struct hr_error *error)
{
    void *block;
    int r = hr__row_block_make(&block, &m->attach.rows_bytes, dataset, error);
    if (r)
        return r;
    r = add_file(m, block, m->attach.rows_bytes, error);
    hr__free(block);
    return r;
}

static int send_attach(struct hr__attached *a, struct hr_error *error)
{
    char *text = NULL;
    struct hr__wire_message m = {.type = HR__WIRE_ATTACH};
    int r = hr__statement_write(&text, a->loader->dataset, a->loader->recipe, error);
    if (r)
        return r;
    m.attach = a->attach;
    m.attach.text_bytes = strlen(text);
    r = add_file(&m, text, strlen(text), error);
    hr__free(text);
    if (!r && a->loader->dataset->rows)
        r = add_rows(&m, a->loader->dataset, error);
    if (!r) {
        send_message(a, &m);
        a->state = HR__ATTACHING;
    }
    hr__wire_close_files(&m);
    return r;
}

void hr__session_seek(struct hr__attached *a)
{
    a->is_expelled = 0;
    if (hr__attached_is_pushed(a))
        hr__attached_drop_partial(a); /* a place is always between two batches */
    if (a->state < HR__ATTACHED)
        return; /* ATTACHED will call this again */
    if (a->is_known && a->delivered >= a->batches) {
        a->state = HR__ATTACHED;
        return;
    }
    struct hr__wire_message m = {.type = HR__WIRE_SEEK,
                                 .seek = {
                                     .epoch = a->is_known ? a->epoch : a->own_epoch,
                                     .position = a->is_known ? hr__attached_position(a) : 0,
                                     .is_first = !a->is_placed,
                                     .number = ++a->seek_number,
                                 }};
    a->state = HR__SEEKING;
    a->epoch_ns = 0;
    send_message(a, &m);
}

static int unexpected(struct hr_error *error, const char *what)
{
    return hr__fail(
        error, -EPROTO,
        "the agent sent an unexpected answer (%s): do it and this process have the same version?",
        what);
}

static int take_attached(struct hr__attached *a, const struct hr__wire_attached *m,
                         struct hr_error *error)
{
    const struct hr_loader *l = a->loader;
    const struct hr_tensor_spec *s = &l->spec;
    if (m->samples != hr_dataset_count(l->dataset))
        return hr__fail(error, -ESTALE,
                        "the agent finds %" PRIu64 " samples in the dataset and this process %zu: "
                        "files were added or removed; open it again",
                        m->samples, hr_dataset_count(l->dataset));
    if (!hr__tensor_equal(&m->spec, s))
        return unexpected(error, "samples of another shape");
    if (*m->notice)
        hr__log(HR_LOG_WARNING, "%s", m->notice);
    a->state = HR__ATTACHED;
    if (a->is_started && !a->over)
        hr__session_seek(a);
    return 0;
}

static struct hr__cursor *find_cursor(struct hr__attached *a, uint32_t number)
{
    struct hr__cursor *cursor = a->cursors;
    while (cursor && cursor->number != number)
        cursor = cursor->next_cursor;
    return cursor;
}

static int add_cursor(struct hr__attached *a, struct hr__wire_message *m, struct hr_error *error)
{
    struct hr__cursor *cursor;
    const struct hr_tensor_spec *spec = &a->loader->spec;
    int r = hr__cursor_create(&cursor, spec, hr__record_bytes(a->loader->dataset, spec), m->files,
                              error);
    m->file_count = 0; /* the cursor's, or closed */
    if (r)
        return r;
    cursor->is_padded = hr__recipe_options(a->loader->recipe)->padded;
    cursor->number = m->placed.cursor;
    cursor->next_cursor = a->cursors;
    a->cursors = cursor;
    return 0;
}

/* Checks that PLACED matches our request. Returns what is wrong, or NULL. */
static const char *check_place(const struct hr__attached *a, const struct hr__wire_placed *m)
{
    if (m->epoch != a->epoch)
        return "another epoch";
    if (m->position != hr__attached_position(a))
        return "another position";
    if (hr__attached_is_pushed(a))
        return m->sequence % a->cut.batch_size ? "a place within a batch" : NULL;
    return m->samples == a->samples - hr__attached_index(a) ? NULL : "another number of samples";
}

static int sit_down(struct hr__attached *a, struct hr__cursor *cursor,
                    const struct hr__wire_placed *m, struct hr_error *error)
{
    if (!a->is_known) {
        if (m->position > hr_dataset_count(a->loader->dataset))
            return unexpected(error, "a position beyond the epoch");
        hr__attached_begin(a, m->epoch, m->position);
        a->ahead = m->epoch - a->own_epoch;
        a->is_placed = 1;
        hr__count(&a->missed, m->missed);
    }
    const char *wrong = check_place(a, m);
    int r = wrong ? unexpected(error, wrong) : 0;
    if (!r && hr__attached_is_pushed(a))
        r = hr__cursor_check_pushing(cursor, a->cut.batch_size, error);
    if (!r)
        r = hr__cursor_go_to(cursor, m->sequence, error);
    if (r)
        return r;
    if (!m->is_alone) {
        a->main = NULL;
    } else if (a->cursor && !a->cursor->is_alone) {
        a->main = a->cursor;
        a->main_base = a->base;
    }
    cursor->is_alone = m->is_alone != 0;
    a->base = m->sequence - hr__attached_index(a);
    pthread_mutex_lock(&a->lock);
    a->cursor = cursor;
    pthread_mutex_unlock(&a->lock);
    a->state = HR__PLACED;
    a->is_expelled = 0;
    hr__pushed_send_again(a);
    return 0;
}

static int take_placed(struct hr__attached *a, struct hr__wire_message *m, struct hr_error *error)
{
    struct hr__cursor *cursor = find_cursor(a, m->placed.cursor);
    if (!m->placed.is_new != (cursor != NULL))
        return unexpected(error, "a place that is known, or is not");
    int r = m->placed.is_new ? add_cursor(a, m, error) : 0;
    if (r || a->state != HR__SEEKING || m->placed.number != a->seek_number)
        return r;
    return sit_down(a, cursor ? cursor : a->cursors, &m->placed, error);
}

static void take_bad(struct hr__attached *a, const struct hr__wire_bad *m)
{
    struct hr__cursor *cursor = find_cursor(a, m->cursor);
    size_t length = strlen(m->reason);
    /* Without memory only the reason is lost. */
    struct hr__notice *notice =
        cursor ? hr__alloc(HR__TAG_AGENT, 1, sizeof *notice + length + 1) : NULL;
    if (!notice)
        return;
    memcpy(notice->reason, m->reason, length + 1);
    notice->sequence = m->sequence;
    struct hr__notice **link = &cursor->notices;
    while (*link && (*link)->sequence < notice->sequence)
        link = &(*link)->next;
    notice->next = *link;
    *link = notice;
}

static int take_halt(struct hr__attached *a, const struct hr__wire_halt *m, struct hr_error *error)
{
    struct hr__cursor *cursor = find_cursor(a, m->cursor);
    if (cursor && !cursor->halt)
        cursor->halt = hr__alloc(HR__TAG_AGENT, 1, sizeof *cursor->halt);
    if (cursor && cursor->halt)
        *cursor->halt = *m;
    /* HALT is not sent again, and without it we would wait for ever. */
    return !cursor || cursor->halt
               ? 0
               : hr__fail(error, -ENOMEM,
                          "out of memory for what the agent says of its end: %.300s",
                          m->error.message);
}

static int handle(struct hr__attached *a, struct hr__wire_message *m, struct hr_error *error)
{
    switch (m->type) {
    case HR__WIRE_WELCOME:
        if (a->state != HR__GREETING)
            return unexpected(error, "WELCOME");
        atomic_store_explicit(&a->threads, (int)m->welcome.threads, memory_order_relaxed);
        return send_attach(a, error);
    case HR__WIRE_ATTACHED:
        return a->state == HR__ATTACHING ? take_attached(a, &m->attached, error)
                                         : unexpected(error, "ATTACHED");
    case HR__WIRE_REFUSED:
        return hr__fail(error, m->refused.code, "%s", m->refused.message);
    case HR__WIRE_WAITING:
        a->epoch_ns = hr__now_ns();
        a->others = m->waiting;
        return 0;
    case HR__WIRE_PLACED:
        return take_placed(a, m, error);
    case HR__WIRE_EXPELLED:
        if (a->state == HR__PLACED && a->cursor->number == m->expelled.cursor)
            a->is_expelled = 1;
        return 0;
    case HR__WIRE_BAD:
        take_bad(a, &m->bad);
        return 0;
    case HR__WIRE_HALT:
        return take_halt(a, &m->halt, error);
    default:
        return unexpected(error, "a message that is a job's");
    }
}

int hr__session_receive(struct hr__attached *a, struct hr_error *error)
{
    while (!a->is_hung_up && a->state != HR__CLOSED) {
        struct hr__wire_message m;
        struct hr_error why = {0};
        int r = hr__wire_receive(a->socket, MSG_DONTWAIT, &m, &why);
        if (r == -EAGAIN)
            return 0;
        if (r == -EINTR)
            continue;
        if (!r || r == -ECONNRESET || r == -EPIPE) {
            a->is_hung_up = 1;
            return 0;
        }
        if (r == 1) {
            r = handle(a, &m, &why);
            hr__wire_close_files(&m);
        } else if (!why.code) {
            hr__fail(&why, r, "nothing can be received from the agent: %s", hr__errno_text(r));
        }
        if ((r == -EPROTO || r == -EPROTONOSUPPORT) && is_auto(a)) {
            hr__log(HR_LOG_WARNING, "%s; connecting to the agent again", why.message);
            a->garbled = why;
            a->is_garbled = a->is_hung_up = 1;
            return 0;
        }
        if (r) {
            hr__session_close(a);
            if (error)
                *error = why;
            return r;
        }
    }
    return 0;
}

static int connect_agent(struct hr__attached *a, struct hr_error *error)
{
    const struct hr_loader_options *o = &a->loader->options;
    int r = is_auto(a) ? hr__launch_auto(&a->socket, o->agent_command, error)
                       : hr__launch_connect(&a->socket, o->agent, error);
    if (r) {
        a->socket = -1;
        return r;
    }
    a->connection++;
    a->is_hung_up = 0;
    a->state = HR__GREETING;
    struct hr__wire_message m = {.type = HR__WIRE_HELLO, .hello = {.pid = getpid()}};
    hr__program_text(m.hello.program, sizeof m.hello.program);
    /* If sending fails, the error of receiving says why. */
    (void)hr__wire_send(a->socket, &m);
    return 0;
}

int hr__session_recover(struct hr__attached *a, struct hr_error *error)
{
    hr__session_close(a);
    if (!is_auto(a))
        return hr__fail(error, -ECONNRESET,
                        "the agent at %s ended (killed?): start it again and resume from the last "
                        "state, or use agent = \"auto\"",
                        a->loader->options.agent);
    if (a->futile++ >= HR__FUTILE_MAX) {
        char log[256];
        if (a->garbled.code)
            return hr__fail(error, a->garbled.code, "%s", a->garbled.message);
        hr__launch_log(log, sizeof log);
        return hr__fail(error, -ECONNRESET,
                        "%d agents ended one after the other before a batch came: %s may say why",
                        a->futile, log);
    }
    int r = connect_agent(a, error);
    if (!r)
        hr__count(&a->reattached, 1);
    return r;
}

void hr__session_explain(struct hr__attached *a)
{
    const struct hr__wire_waiting *others = &a->others;
    if (a->state != HR__SEEKING || !a->epoch_ns || hr__now_ns() - a->epoch_ns < EXPLAIN_NS)
        return;
    a->epoch_ns = 0;
    uint64_t samples = hr_dataset_count(a->loader->dataset);
    char where[96];
    if (others->position < samples)
        snprintf(where, sizeof where, "are in epoch %" PRIu64 ", at sample %" PRIu64, others->epoch,
                 others->position);
    else
        snprintf(where, sizeof where, "have ended epoch %" PRIu64, others->epoch);
    hr__log(HR_LOG_WARNING,
            "waiting to join stream \"%s\" at its next epoch: the other jobs %s. Where they stop, "
            "it begins after a minute at most, but not with lag=\"wait\". join=\"now\" begins at "
            "once; headrace top shows which job is waited for",
            a->attach.stream, where);
}

int hr__session_wait(struct hr__attached *a, uint64_t until_ns)
{
    uint64_t now = hr__now_ns();
    if (now >= until_ns)
        return -ETIMEDOUT;
    struct timespec left = hr__timespec(until_ns - now);
    struct pollfd wanted = {.fd = a->socket, .events = POLLIN};
    int n = ppoll(&wanted, 1, &left, NULL);
    return n > 0 ? 0 : n ? -errno : -ETIMEDOUT;
}

/* Waits a moment for an answer. Fails if the time is over or the caller cancels. */
static int await_answer(struct hr__attached *a, uint64_t until_ns, struct hr_error *error)
{
    const struct hr_loader_options *o = &a->loader->options;
    uint64_t slice_ns = hr__now_ns() + ATTACH_SLICE_NS;
    if (slice_ns >= until_ns)
        return hr__fail(error, -ETIMEDOUT,
                        "the agent has not answered for ten minutes: is it "
                        "stopped? End it, or use another");
    if (!hr__session_wait(a, slice_ns) || !o->progress ||
        !o->progress(o->progress_arg, 0, 0, "attaching"))
        return 0;
    return hr__fail(error, -ECANCELED, "canceled while the agent was waited for");
}

int hr__session_open(struct hr__attached *a, struct hr_error *error)
{
    uint64_t until_ns = hr__now_ns() + ATTACH_PATIENCE_NS;
    int r = connect_agent(a, error);
    while (!r && a->state < HR__ATTACHED) {
        r = hr__session_receive(a, error);
        if (!r && a->is_hung_up)
            r = hr__session_recover(a, error);
        else if (!r && a->state < HR__ATTACHED)
            r = await_answer(a, until_ns, error);
    }
    if (r)
        hr__session_close(a);
    return r;
}

/* Drops our reference and the cursor's notices. */
static void drop_cursor(struct hr__cursor *cursor)
{
    while (cursor->notices) {
        struct hr__notice *notice = cursor->notices;
        cursor->notices = notice->next;
        hr__free(notice);
    }
    hr__free(cursor->halt);
    cursor->halt = NULL;
    hr__cursor_unref(&cursor);
}

static void drop_cursors(struct hr__attached *a)
{
    while (a->cursors) {
        struct hr__cursor *cursor = a->cursors;
        a->cursors = cursor->next_cursor;
        drop_cursor(cursor);
    }
    a->main = NULL;
}

/* Gives all leases private copies: once the connection has ended, the agent may reuse their memory.
 * Returns non-zero if some batch could not be copied. */
static int own_leases(struct hr__attached *a)
{
    struct hr_error error;
    int r = 0;
    if (!a->is_hung_up || a->is_garbled)
        for (struct hr__cursor *cursor = a->cursors; cursor && !r; cursor = cursor->next_cursor)
            r = hr__lease_own_all(cursor, &error);
    if (r)
        hr__log(HR_LOG_WARNING, "%s; the connection to the agent stays open instead",
                error.message);
    return r;
}

void hr__session_close(struct hr__attached *a)
{
    int is_needed = a->state != HR__CLOSED && own_leases(a);
    pthread_mutex_lock(&a->lock);
    a->cursor = NULL;
    pthread_mutex_unlock(&a->lock);
    drop_cursors(a);
    if (a->socket >= 0 && !is_needed) {
        /* A forked child may share the socket: closing alone would not end the connection. */
        shutdown(a->socket, SHUT_RDWR);
        close(a->socket);
    }
    a->socket = -1;
    a->state = HR__CLOSED;
    a->is_hung_up = a->is_garbled = 0;
    a->is_expelled = 0;
}

void hr__session_abandon(struct hr__attached *a)
{
    drop_cursors(a);
    if (a->socket >= 0)
        close(a->socket);
}

void hr__session_sweep(struct hr__attached *a)
{
    for (struct hr__cursor **link = &a->cursors; *link;) {
        struct hr__cursor *cursor = *link;
        pthread_mutex_lock(&cursor->lock);
        int is_needed = cursor == a->cursor || cursor == a->main || cursor->held;
        pthread_mutex_unlock(&cursor->lock);
        if (is_needed) {
            link = &cursor->next_cursor;
            continue;
        }
        struct hr__wire_message m = {.type = HR__WIRE_LEAVE, .leave = {.cursor = cursor->number}};
        send_message(a, &m);
        *link = cursor->next_cursor;
        drop_cursor(cursor);
    }
}

const char *hr__session_bad_reason(struct hr__attached *a, uint64_t sequence)
{
    struct hr__notice **notice = &a->cursor->notices;
    while (*notice && (*notice)->sequence < sequence) {
        struct hr__notice *old = *notice;
        *notice = old->next;
        hr__free(old);
    }
    return *notice && (*notice)->sequence == sequence ? (*notice)->reason
                                                      : "bad (the agent did not say why)";
}
