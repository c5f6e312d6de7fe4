/*
 * Bounds the requests in flight to a store, so that they fill the link and not the queues on it.
 *
 * Up to rate x latency, more requests in flight bring more answers a second; beyond that they only
 * wait longer, and at last overfill a queue, which loses packets (Cardwell et al., "BBR:
 * Congestion-Based Congestion Control", 2016). So the bound is twice the best rate of answers times
 * the least time that they took. While the link is not full, that is twice what is in flight, and
 * the bound doubles from window to window.
 *
 * The times contain the bound's own queue. So every ten seconds fewer requests than the link holds
 * are allowed for one window, until the queue is gone, and for a second one, which measures the
 * least time anew. The best rate is that of the last two such periods.
 *
 * The result depends only on the calls of hr__pace_note: no clock, no allocation, no threads.
 */
#ifndef HR_STORAGE_PACE_H
#define HR_STORAGE_PACE_H

#include <stdint.h>

/* What ended within a time. */
struct hr__pace_sum {
    uint64_t answers;
    uint64_t took_ns; /* by all of them, from sending the request to the last byte */
};

/* What a probe for the least time is doing. */
enum hr__pace_probe { HR__PACE_CRUISE, HR__PACE_DRAIN, HR__PACE_MEASURE };

struct hr__pace {
    unsigned least, most; /* limits of the bound */
    unsigned now;         /* the bound */
    enum hr__pace_probe probe;
    struct hr__pace_sum window;
    uint64_t window_ns; /* when the window began; 0: none yet */
    uint64_t probed_ns; /* when the last probe ended */
    double rate[2];     /* best answers per ns: of this period, of the one before */
    double took_ns;     /* least mean time of a window; 0: not known */
    double last_ns;     /* mean time of the last window */
};

/* Initialises the bound: `most`, until a window has ended. */
void hr__pace_init(struct hr__pace *pace, unsigned least, unsigned most);

/* Notes what ended since the last call. now_ns: the time by any clock that does not go back. */
void hr__pace_note(struct hr__pace *pace, const struct hr__pace_sum *ended, uint64_t now_ns);

/* Returns the most requests in flight, `least` to `most`. */
static inline unsigned hr__pace_now(const struct hr__pace *pace)
{
    return pace->now;
}

#endif
