/* Collectives on a network, as flows; see network.h. */
#include "replay/network.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>

#define WORKERS_MOST 1024
#define BYTES_MOST   1e15

void hr__network_default(struct hr__network *network)
{
    *network = (struct hr__network){.topology = HR__NETWORK_RING,
                                    .workers = 2,
                                    .packet = 1500,
                                    .queue = 256,
                                    .mark = 64,
                                    .timeout_s = 0.01,
                                    .seed = 1};
}

static int is_within(double value, double least, double most)
{
    return value >= least && value <= most;
}

int hr__network_check(const struct hr__network *n, double bytes, struct hr_error *error)
{
    const struct {
        const char *name;
        double value, least, most;
    } all[] = {
        {"workers", n->workers, 2, WORKERS_MOST},
        {"link (bytes/s)", n->bytes_per_s, 1, 1e13},
        {"latency (s)", n->latency_s, 0, 100},
        {"packet (bytes)", n->packet, 64, 1 << 24},
        {"queue (packets)", n->queue, 1, 1 << 24},
        {"mark (packets)", n->mark, 1, n->queue},
        {"paths", n->paths, 0, WORKERS_MOST},
        {"loss", n->loss, 0, 0.5},
        {"p", n->tolerance, 0, 0.99},
        {"small", n->small, 0, 1},
        {"timeout (s)", n->timeout_s, 1e-6, 100},
        {"bytes", bytes, 0, BYTES_MOST},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!is_within(all[i].value, all[i].least, all[i].most))
            return hr__fail(error, -EINVAL, "a network's %s is %g: it must be from %g to %g",
                            all[i].name, all[i].value, all[i].least, all[i].most);
    if (hr__network_packets(n, bytes) > (double)HR__NETWORK_PACKETS)
        return hr__fail(error, -E2BIG,
                        "a collective of %.0f bytes on %u workers has %.3g packets, and at most "
                        "%.3g are simulated: give larger packets (packet=9000) or fewer workers",
                        bytes, n->workers, hr__network_packets(n, bytes),
                        (double)HR__NETWORK_PACKETS);
    return 0;
}

double hr__network_packets(const struct hr__network *n, double bytes)
{
    double w = n->workers;
    if (n->topology == HR__NETWORK_SERVER)
        return 2 * w * fmax(1, ceil(bytes / n->packet));
    return 2 * (w - 1) * w * fmax(1, ceil(bytes / w / n->packet));
}

double hr__network_ideal_s(const struct hr__network *n, double bytes)
{
    double w = n->workers;
    if (n->topology == HR__NETWORK_SERVER)
        return 2 * w * bytes / n->bytes_per_s + 2 * n->latency_s;
    return 2 * (w - 1) * (bytes / w / n->bytes_per_s + n->latency_s);
}

double hr__network_ideal_bytes(const struct hr__network *n, double seconds)
{
    double rest = seconds - hr__network_ideal_s(n, 0);
    return rest > 0 ? rest / (hr__network_ideal_s(n, 1) - hr__network_ideal_s(n, 0)) : 0;
}

/* In a step each worker sends a part to the next one: what it received in the step before. */
static void make_ring(struct hr__network_flows *f, uint32_t workers, uint64_t bytes)
{
    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t step = i / workers, worker = i % workers, next = (worker + 1) % workers;
        uint64_t part = (worker + workers - step % workers) % workers;
        f->flows[i] = (struct hr__network_flow){
            .from = worker,
            .to = next,
            .bytes = bytes * (part + 1) / workers - bytes * part / workers,
            .then = (step + 1) * workers < f->count ? (step + 1) * workers + next : UINT32_MAX,
            .all = UINT32_MAX,
            .waits = step > 0};
    }
}

static void make_server(struct hr__network_flows *f, uint32_t workers, uint64_t bytes)
{
    for (uint32_t i = 0; i < f->count; i++) {
        int is_back = i >= workers;
        f->flows[i] = (struct hr__network_flow){.from = is_back ? workers : i,
                                                .to = is_back ? i - workers : workers,
                                                .bytes = bytes,
                                                .then = UINT32_MAX,
                                                .all = is_back ? UINT32_MAX : workers,
                                                .waits = is_back};
    }
}

int hr__network_all_reduce(struct hr__network_result *out, const struct hr__network *n,
                           double bytes, struct hr_error *error)
{
    int is_ring = n->topology == HR__NETWORK_RING;
    *out = (struct hr__network_result){.seconds = 0};
    int code = hr__network_check(n, bytes, error);
    if (code)
        return code;
    struct hr__network_flows f = {.count =
                                      is_ring ? 2 * (n->workers - 1) * n->workers : 2 * n->workers,
                                  .hosts = n->workers + !is_ring};
    f.flows = hr__alloc(HR__TAG_REPLAY, f.count, sizeof *f.flows);
    if (!f.flows)
        return hr__fail(error, -ENOMEM, "out of memory for a network of %u workers", n->workers);
    if (is_ring)
        make_ring(&f, n->workers, (uint64_t)bytes);
    else
        make_server(&f, n->workers, (uint64_t)bytes);
    code = hr__network_run(out, n, &f, NULL, error);
    hr__free(f.flows);
    return code;
}
