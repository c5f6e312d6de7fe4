/*
 * The ranks of a job meet on the servers (meeting.h).
 *
 * Records of a rank are ordered by (run, writing), whichever server they come from, so a server
 * that missed a write does no harm. Each look reads one server, the rank's own if it answers, and
 * if that brings nothing new also a second one, in turn. Looks become less frequent, down to one
 * every half second, so that a thousand ranks cost a server little.
 */
#include "cluster/meeting.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "cluster/meeting_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

#define EXPIRES_S     86400
#define LOOK_FIRST_NS (10 * MS)
#define LOOK_LAST_NS  (500 * MS)
#define STEP_NS       (20 * MS) /* how soon `stop` is noticed */
#define BEAT_NS       (2 * S)   /* longest time between writes, for servers that come up */
#define ADVANCES      2         /* one newer record may be a dead rank's last; two mean it lives */
#define LOG_FIRST_NS  (5 * S)
#define LOG_NEXT_NS   (30 * S)
#define ALONE_NS      (3 * S) /* how long a world of one looks for servers, at most */

static int is_stopped(const struct hr__meeting_wish *wish)
{
    return wish->stop && atomic_load_explicit(wish->stop, memory_order_acquire);
}

/* Returns non-zero if the meeting was stopped or its time is over. */
static int is_over(const struct hr__meeting *m)
{
    return is_stopped(m->wish) || hr__now_ns() >= m->until_ns;
}

static void pause_for(const struct hr__meeting *m, uint64_t ns)
{
    uint64_t until = hr__now_ns() + ns;
    for (uint64_t now = hr__now_ns(); now < until && !is_over(m); now = hr__now_ns()) {
        const struct timespec step = hr__timespec(until - now < STEP_NS ? until - now : STEP_NS);
        nanosleep(&step, NULL);
    }
}

/* ---- beginning and end ---- */

static uint64_t random_number(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        number = hr__now_ns() ^ (uint64_t)getpid() << 40;
    return number ? number : 1;
}

static void name_place(struct hr__meeting *m)
{
    int host = m->wish->host;
    size_t room = sizeof m->mine.place;
    if (host >= 0 && host < m->hosts->count)
        snprintf(m->mine.place, room, "%s", m->hosts->hosts[host].name);
    else if (gethostname(m->mine.place, room) || !m->mine.place[0])
        snprintf(m->mine.place, room, "a host without a name");
    m->mine.place[room - 1] = 0;
}

static int begin(struct hr__meeting *m)
{
    const struct hr__meeting_wish *wish = m->wish;
    size_t world = (size_t)wish->world_size;
    m->seen = hr__alloc(HR__TAG_CACHE, world, sizeof *m->seen);
    m->numbers = hr__alloc(HR__TAG_CACHE, world, sizeof *m->numbers);
    m->answers = hr__alloc(HR__TAG_CACHE, (size_t)m->hosts->count, sizeof *m->answers);
    m->was_read = hr__alloc(HR__TAG_CACHE, (size_t)m->hosts->count, sizeof *m->was_read);
    m->wanted = hr__alloc(HR__TAG_CACHE, world, sizeof *m->wanted);
    m->wanted_rank = hr__alloc(HR__TAG_CACHE, world, sizeof *m->wanted_rank);
    m->keys = hr__alloc(HR__TAG_CACHE, world, sizeof *m->keys);
    if (!m->seen || !m->numbers || !m->answers || !m->was_read || !m->wanted || !m->wanted_rank ||
        !m->keys)
        return -ENOMEM;
    for (int r = 0; r < wish->world_size; r++)
        hr__meeting_rank_key(m->keys[r], wish->job, r);
    m->mine = (struct hr__meeting_record){
        .world_size = wish->world_size, .host = wish->host, .number = random_number()};
    m->mine.inputs = hr__meeting_inputs_write(m->inputs, wish->inputs, wish->input_count);
    hr__meeting_inputs_key(m->inputs_key, wish->job, m->mine.inputs);
    name_place(m);
    m->began_ns = m->logged_ns = hr__now_ns();
    m->until_ns = m->began_ns + wish->limit_s * S;
    return 0;
}

static void end(struct hr__meeting *m)
{
    hr__free(m->seen);
    hr__free(m->numbers);
    hr__free(m->answers);
    hr__free(m->was_read);
    hr__free(m->wanted);
    hr__free(m->wanted_rank);
    hr__free(m->keys);
}

static int is_newer(const struct hr__meeting_record *a, const struct hr__meeting_record *b)
{
    return a->run != b->run ? a->run > b->run : a->writing > b->writing;
}

/* Reads the record that this rank's previous meeting left, from the server with the newest. */
static void read_before(struct hr__meeting *m)
{
    struct hr__meeting_record before, newest = {.world_size = 0};
    for (int h = 0; h < m->hosts->count && !is_over(m); h++) {
        char *text = NULL;
        int r = hr__peers_read(m->peers, h, m->keys[m->wish->rank], &text);
        m->answers[h] = r >= 0;
        if (r > 0 && !hr__meeting_record_read(&before, text) &&
            (!newest.world_size || is_newer(&before, &newest)))
            newest = before;
        hr__free(text);
    }
    if (!newest.world_size)
        return;
    m->mine.run = newest.run + 1;
    m->mine.before_number = newest.number;
    m->mine.before_inputs = newest.inputs;
    m->mine.before_agreed = newest.agreed;
}

/* ---- writing ---- */

static void write_to(struct hr__meeting *m, int host, const char *record)
{
    int r = hr__peers_write(m->peers, host, m->inputs_key, m->inputs, EXPIRES_S);
    /* The text of inputs is only needed for messages: a server without room for it can still hold
     * records. */
    if (!r || r == -ENOSPC || r == -E2BIG)
        r = hr__peers_write(m->peers, host, m->keys[m->wish->rank], record, EXPIRES_S);
    m->answers[host] = !r;
    m->is_written |= !r;
}

/* Writes the record to all servers that answered before, and tries one of the others. Only one,
 * because trying may take a whole request's time. */
static void publish(struct hr__meeting *m)
{
    char record[HR__MEETING_RECORD];
    int count = m->hosts->count, is_tried = 0;
    m->mine.writing++;
    m->is_written = 0;
    m->wrote_ns = hr__now_ns();
    /* Cannot fail: the place is no longer than a host's name. */
    if (hr__meeting_record_write(record, &m->mine))
        return;
    for (int h = 0; h < count && !is_over(m); h++)
        if (m->answers[h])
            write_to(m, h, record);
    for (int i = 0; i < count && !is_tried && !is_over(m); i++) {
        int h = (m->retry + i) % count;
        if (m->answers[h])
            continue;
        write_to(m, h, record);
        m->retry = (h + 1) % count;
        is_tried = 1;
    }
}

/* ---- reading ---- */

/* Checks this rank's own record on a server. If another process wrote it with the same rank, this
 * rank overwrites it and names it as its previous meeting. A stale record is gone then; a living
 * process finds its own number there and reports the conflict. */
static int look_at_own(struct hr__meeting *m, const struct hr__meeting_record *other,
                       struct hr_error *error)
{
    if (other->number == m->mine.number || other->run < m->mine.run)
        return 0;
    if (other->before_number == m->mine.number)
        return hr__meeting_fail_twice(m, other, error);
    m->mine.run = other->run + 1;
    m->mine.before_number = other->number;
    m->mine.before_inputs = other->inputs;
    m->mine.before_agreed = other->agreed;
    m->wrote_ns = 0;
    return 0;
}

/* Ends the meeting because ranks have different world sizes. Writes this rank's record twice more,
 * so that the others see that it lives, and stop as well. */
static int end_in_other_world(struct hr__meeting *m, int rank, struct hr_error *error)
{
    for (int i = 0; i < 2; i++) {
        publish(m);
        pause_for(m, LOOK_LAST_NS + STEP_NS);
    }
    return hr__meeting_fail_world(m, rank, error);
}

/* Takes a rank's record. Returns 1 if it is newer than the one known, else 0, or an error. `again`:
 * the server was read before, so a newer record was written since. */
static int take(struct hr__meeting *m, int rank, const char *text, int again,
                struct hr_error *error)
{
    struct hr__meeting_record record;
    struct hr__meeting_seen *seen = &m->seen[rank];
    if (!text || hr__meeting_record_read(&record, text))
        return 0;
    if (rank == m->wish->rank)
        return look_at_own(m, &record, error);
    if (seen->has_record && !is_newer(&record, &seen->record))
        return 0;
    int is_other = !seen->has_record || record.number != seen->record.number;
    int is_news = is_other || record.agreed != seen->record.agreed;
    seen->is_live |= again;
    seen->advances = is_other ? 0 : seen->advances + (again != 0);
    seen->record = record;
    seen->has_record = 1;
    if (seen->advances >= ADVANCES && record.world_size != m->wish->world_size)
        return end_in_other_world(m, rank, error);
    return is_news;
}

/* Reads the records of the ranks that do not agree yet from a server. Returns non-zero if there was
 * anything new, or an error. A server that does not answer counts as nothing new. */
static int read_from(struct hr__meeting *m, int host, struct hr_error *error)
{
    size_t count = 0;
    uint64_t inputs;
    int news = 0, again = m->was_read[host];
    for (int r = 0; r < m->wish->world_size; r++)
        if (r == m->wish->rank || !hr__meeting_agrees(m, r, &inputs)) {
            m->wanted_rank[count] = r;
            m->wanted[count++] = (struct hr__peer_record){.key = m->keys[r]};
        }
    if (hr__peers_read_all(m->peers, host, m->wanted, count) < 0) {
        m->answers[host] = 0;
        return 0;
    }
    m->was_read[host] = 1;
    for (size_t i = 0; i < count; i++) {
        int r = news < 0 ? 0 : take(m, m->wanted_rank[i], m->wanted[i].text, again, error);
        news = r < 0 ? r : news | r;
        hr__free(m->wanted[i].text);
    }
    return news;
}

/* Returns this rank's own server if it answers, else the first that does; -1: none. */
static int first_server(const struct hr__meeting *m)
{
    int own = m->wish->host;
    if (own >= 0 && own < m->hosts->count && m->answers[own])
        return own;
    for (int h = 0; h < m->hosts->count; h++)
        if (m->answers[h])
            return h;
    return -1;
}

/* ---- agreeing ---- */

/* The random number of a rank in this meeting; 0: the rank is not there yet. */
static uint64_t number_of(const struct hr__meeting *m, int rank)
{
    const struct hr__meeting_seen *seen = &m->seen[rank];
    uint64_t inputs;
    if (rank == m->wish->rank)
        return m->mine.number;
    if (!seen->has_record || seen->record.world_size != m->wish->world_size)
        return 0;
    /* A record that agrees with this rank's previous meeting belongs to that meeting. */
    if (seen->record.agreed && seen->record.agreed == m->mine.before_agreed)
        return 0;
    return hr__meeting_agrees(m, rank, &inputs) ? m->numbers[rank] : seen->record.number;
}

/* Computes `mine.agreed` again. Returns 1 if it changed. */
static int agree(struct hr__meeting *m)
{
    size_t world = (size_t)m->wish->world_size;
    uint64_t before = m->mine.agreed, agreed = 0;
    int all = 1, changed = 0;
    for (size_t r = 0; r < world; r++) {
        uint64_t number = number_of(m, (int)r);
        changed |= number != m->numbers[r];
        m->numbers[r] = number;
        /* Only from a record of this meeting: the rank's next meeting may use another list. */
        if (number && number == m->seen[r].record.number)
            m->host_of_rank[r] = m->seen[r].record.host;
        all &= number != 0;
    }
    if (!changed)
        return 0;
    if (all)
        agreed = XXH3_64bits(m->numbers, world * sizeof *m->numbers);
    m->mine.agreed = all && !agreed ? 1 : agreed;
    return m->mine.agreed != before;
}

/* Returns 1 if all ranks agree and have this rank's inputs; 0: not all agree yet; or an error. */
static int conclude(const struct hr__meeting *m, struct hr_error *error)
{
    int are_equal = 1;
    for (int r = 0; r < m->wish->world_size; r++) {
        uint64_t inputs;
        if (r == m->wish->rank)
            continue;
        if (!hr__meeting_agrees(m, r, &inputs))
            return 0;
        are_equal &= inputs == m->mine.inputs;
    }
    return are_equal ? 1 : hr__meeting_fail_different(m, error);
}

/* ---- the meeting ---- */

static void log_absent(struct hr__meeting *m)
{
    char text[512];
    uint64_t now = hr__now_ns();
    uint64_t wait = m->logged_ns == m->began_ns ? LOG_FIRST_NS : LOG_NEXT_NS;
    if (now < m->logged_ns + wait)
        return;
    m->logged_ns = now;
    hr__meeting_absent_text(m, text, sizeof text);
    hr__log(HR_LOG_WARNING, "before the first batch, rank %d waits since %.0f s for %s",
            m->wish->rank, (double)(now - m->began_ns) / 1e9, text);
}

/* Looks once at one or two servers. Returns as read_from. */
static int look(struct hr__meeting *m, struct hr_error *error)
{
    int first = first_server(m), count = m->hosts->count;
    int news = first < 0 ? 0 : read_from(m, first, error);
    if (news)
        return news;
    for (int i = 0; i < count && !is_over(m); i++) {
        int h = (m->turn + i) % count;
        if (h == first || !m->answers[h])
            continue;
        m->turn = (h + 1) % count;
        return read_from(m, h, error);
    }
    return 0;
}

/* Repeats until all agree. Returns 0, or an error. */
static int meet(struct hr__meeting *m, struct hr_error *error)
{
    /* With many ranks there is something new at every look. */
    uint64_t first_ns = LOOK_FIRST_NS + (uint64_t)m->wish->world_size * MS / 10;
    uint64_t wait_ns = first_ns, beat_ns = m->wish->limit_s * S / 4;
    beat_ns = beat_ns < BEAT_NS ? beat_ns : BEAT_NS;
    read_before(m);
    publish(m);
    for (;;) {
        int news = look(m, error);
        if (news < 0)
            return news;
        int changed = agree(m);
        if (changed || !m->is_written || hr__now_ns() >= m->wrote_ns + beat_ns ||
            first_server(m) < 0)
            publish(m);
        /* A rank that leaves the meeting writes no more, so a server must have its last record
         * first: the others need it. */
        int done = m->is_written ? conclude(m, error) : 0;
        if (done)
            return done < 0 ? done : 0;
        if (is_stopped(m->wish))
            return hr__fail(error, -ECANCELED, "the meeting with the other ranks was cancelled");
        if (hr__now_ns() >= m->until_ns)
            return hr__meeting_fail_late(m, error);
        log_absent(m);
        wait_ns = news || changed ? first_ns : wait_ns + wait_ns / 2;
        wait_ns = wait_ns < LOOK_LAST_NS ? wait_ns : LOOK_LAST_NS;
        pause_for(m, wait_ns);
    }
}

/* A world of one has no other rank to agree with, and its servers may come up later: only checks
 * them. */
static int meet_nobody(struct hr__peers *peers, const struct hr__hosts *hosts,
                       const struct hr__meeting_wish *wish, struct hr_error *error)
{
    char key[HR__MEETING_KEY], *text;
    uint64_t until = hr__now_ns() + ALONE_NS;
    hr__meeting_rank_key(key, wish->job, wish->rank);
    for (int h = 0; h < hosts->count && hr__now_ns() < until; h++) {
        if (is_stopped(wish))
            return hr__fail(error, -ECANCELED, "looking for servers was cancelled");
        /* The peers log servers that do not answer. */
        if (hr__peers_read(peers, h, key, &text) > 0)
            hr__free(text);
    }
    return 0;
}

static int check(const struct hr__meeting_wish *wish, struct hr_error *error)
{
    if (wish->world_size < 1 || wish->world_size > HR__MEETING_RANKS_MAX)
        return hr__fail(error, -EINVAL, "a world of %d ranks cannot meet: there may be 1 to %d",
                        wish->world_size, HR__MEETING_RANKS_MAX);
    if (wish->rank < 0 || wish->rank >= wish->world_size)
        return hr__fail(error, -EINVAL, "rank %d is not in a world of %d ranks", wish->rank,
                        wish->world_size);
    if (wish->input_count < 0 || wish->input_count > HR__MEETING_INPUTS)
        return hr__fail(error, -EINVAL, "%d inputs cannot be compared: there may be 0 to %d",
                        wish->input_count, HR__MEETING_INPUTS);
    return 0;
}

int hr__meeting_run(struct hr__peers *peers, const struct hr__hosts *hosts,
                    const struct hr__meeting_wish *wish, struct hr__meeting_found *found,
                    struct hr_error *error)
{
    struct hr__meeting *m = NULL;
    found->host_of_rank = NULL;
    int r = check(wish, error);
    if (r)
        return r;
    r = -ENOMEM;
    m = hr__alloc(HR__TAG_CACHE, 1, sizeof *m);
    found->host_of_rank = hr__alloc(HR__TAG_CACHE, (size_t)wish->world_size, sizeof(int));
    if (!m || !found->host_of_rank)
        goto fail;
    *m = (struct hr__meeting){
        .peers = peers, .hosts = hosts, .wish = wish, .host_of_rank = found->host_of_rank};
    if (begin(m))
        goto fail;
    r = wish->world_size == 1 ? meet_nobody(peers, hosts, wish, error) : meet(m, error);
    if (r)
        goto fail;
    found->number = wish->world_size == 1 ? m->mine.number : m->mine.agreed;
    for (int i = 0; i < wish->world_size; i++) {
        int host = i == wish->rank ? wish->host : m->host_of_rank[i];
        found->host_of_rank[i] = host < hosts->count ? host : -1;
    }
    end(m);
    hr__free(m);
    return 0;
fail:
    if (m)
        end(m);
    hr__free(m);
    hr__free(found->host_of_rank);
    found->host_of_rank = NULL;
    return r == -ENOMEM
               ? hr__fail(error, r, "out of memory for a meeting of %d ranks", wish->world_size)
               : r;
}
