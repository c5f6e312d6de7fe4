/*
 * A collective on a network, packet by packet: how long an all-reduce takes with lost packets,
 * queues, several paths, and a transport that tolerates loss (DLCP, Wang et al.; its successor MLT,
 * NSDI'24). It predicts time only: what lost gradients do to the accuracy is not in it.
 *
 * Workers are connected by a switch. Each has a link in either direction. A packet takes its bytes
 * over the rate on the sender's link, `latency_s` on its way, and goes through at most two queues
 * of the switch: of a path through its core, and of the receiver's link. The switch forwards a
 * packet while it still arrives, so that an empty queue takes no time, and a flow alone takes
 * exactly bytes / rate + latency. A queue marks packets from `mark` waiting ones on, and drops them
 * beyond `queue`; packets of small magnitude are dropped where others are marked. Senders reduce
 * their windows by the share of marked packets (DCTCP, SIGCOMM'10), not because of loss on a link.
 *
 * A flow of n packets is complete when n (1 - tolerance) of them, rounded up, have arrived. Then
 * the sender stops: what it sent too much gives way to other packets, and is not counted. As long
 * as there are packets that were not sent yet, a lost one is replaced by one of these. Otherwise it
 * is sent again once the acknowledgement of the third packet after it is there, or else after
 * the timeout, which doubles each time. Without tolerance that is a lossless transport.
 *
 * Pure functions: the same arguments give the same result everywhere. Draws depend on the seed and
 * the packet alone, so that two networks lose the same packets.
 */
#ifndef HR_REPLAY_NETWORK_H
#define HR_REPLAY_NETWORK_H

#include <headrace/base.h>

#include <stdint.h>

enum hr__network_topology {
    HR__NETWORK_RING,   /* 2 (n - 1) steps; in each, every worker sends 1/n to the next one */
    HR__NETWORK_SERVER, /* all send all to a parameter server, then it sends all to each */
};

struct hr__network {
    int topology;         /* enum hr__network_topology */
    uint32_t workers;     /* at least 2; the server comes in addition */
    double bytes_per_s;   /* of a link, and of a path */
    double latency_s;     /* from a sender to a receiver */
    uint32_t packet;      /* bytes */
    uint32_t queue, mark; /* packets */
    uint32_t paths;       /* through the switch's core; 0: the core never blocks */
    int is_sprayed;       /* paths: packet by packet; else each pair of workers has one of them */
    double loss;          /* share of packets that are lost on links, from 0 to 0.5 */
    double tolerance;     /* share of packets that need not arrive, from 0 to 0.99 */
    double small;         /* share of packets of small magnitude */
    double timeout_s;
    uint64_t seed;
};

void hr__network_default(struct hr__network *network);

struct hr__network_result {
    double seconds;
    uint64_t sent; /* packets: delivered + lost + dropped */
    uint64_t delivered;
    uint64_t lost;     /* on links */
    uint64_t dropped;  /* by queues */
    uint64_t resent;   /* of those sent, again */
    uint64_t timeouts; /* packets that were found lost by it */
    uint64_t marked;
};

/* Simulates an all-reduce of `bytes`. Errors: -EINVAL: a parameter; -E2BIG: more than
 * HR__NETWORK_PACKETS packets; -ENOMEM. */
#define HR__NETWORK_PACKETS UINT64_C(100000000)
HR_NODISCARD int hr__network_all_reduce(struct hr__network_result *out,
                                        const struct hr__network *network, double bytes,
                                        struct hr_error *error);

/* The first two of these errors alone. */
HR_NODISCARD int hr__network_check(const struct hr__network *network, double bytes,
                                   struct hr_error *error);

/* Returns how many packets an all-reduce needs without loss and tolerance. */
double hr__network_packets(const struct hr__network *network, double bytes);

/* The closed formula without loss, tolerance and paths. Ring: 2 (n - 1) / n bytes / rate + 2 (n -
 * 1) latency; server: 2 n bytes / rate + 2 latency. */
double hr__network_ideal_s(const struct hr__network *network, double bytes);
/* Returns the bytes for which the formula gives this time; 0 if latency alone takes as long. */
double hr__network_ideal_bytes(const struct hr__network *network, double seconds);

/* ---- network_flows.c ---- */

/* One message from a host to another. */
struct hr__network_flow {
    uint32_t from, to; /* hosts */
    uint64_t bytes;
    uint32_t then; /* flow that begins when this one is complete; UINT32_MAX: none */
    uint32_t all;  /* when all flows that have an `all` are complete, those from this one on
                      begin; UINT32_MAX: none */
    int waits;     /* for another flow; else it begins at once */
};

struct hr__network_flows {
    struct hr__network_flow *flows;
    uint32_t count, hosts;
};

/* Simulates flows. `finish`: NULL, or by flow when it is complete, in seconds. Errors: those of
 * hr__network_all_reduce. */
HR_NODISCARD int hr__network_run(struct hr__network_result *out, const struct hr__network *network,
                                 const struct hr__network_flows *flows, double *finish,
                                 struct hr_error *error);

#endif
