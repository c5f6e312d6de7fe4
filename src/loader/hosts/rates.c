/*
 * Measures the speed of each tier while it is used: bytes over the time during which any request
 * was in progress. Older measurements count less and less.
 */
#include "loader/hosts/inside.h"

/* Half-life of measured bytes and times, and the bounds on the number of requests. */
#define HALF_NS      4e9
#define REQUESTS_MAX 512
#define REQUESTS_MIN 16

void hr__tier_meter_begin_locked(struct hr__tier_meter *meter, uint64_t now_ns)
{
    if (!meter->busy++)
        meter->since_ns = now_ns;
}

void hr__tier_meter_end_locked(struct hr__tier_meter *meter, uint64_t now_ns, uint64_t bytes)
{
    meter->bytes += (double)bytes;
    /* Another thread may have read the clock after this one. */
    if (now_ns > meter->since_ns) {
        meter->ns += (double)(now_ns - meter->since_ns);
        meter->since_ns = now_ns;
    }
    meter->busy--;
    if (meter->ns > HALF_NS) {
        meter->ns /= 2;
        meter->bytes /= 2;
    }
}

void hr__tier_meter_note_locked(struct hr__tier_meter *meter, uint64_t bytes, uint64_t ns)
{
    double x = (double)bytes, y = (double)ns;
    meter->n++;
    meter->x += x;
    meter->y += y;
    meter->xx += x * x;
    meter->xy += x * y;
    if (meter->n < REQUESTS_MAX)
        return;
    meter->n /= 2;
    meter->x /= 2;
    meter->y /= 2;
    meter->xx /= 2;
    meter->xy /= 2;
}

/* Bytes per nanosecond, from a least-squares line through the requests; 0: cannot be determined. */
static double slope_rate(const struct hr__tier_meter *m)
{
    double spread = m->n * m->xx - m->x * m->x, rise = m->n * m->xy - m->x * m->y;
    /* If sizes differ by less than a tenth of their mean, they do not show what a byte costs. */
    if (m->n < REQUESTS_MIN || spread < m->x * m->x / 100 || rise <= 0)
        return 0;
    return spread / rise;
}

static double rate_of(const struct hr__tier_meter *meter)
{
    double mean = meter->ns > 0 ? meter->bytes / meter->ns : 0, slope = slope_rate(meter);
    return 1e9 * (slope > mean ? slope : mean);
}

void hr__hosting_prepared(struct hr_loader *l, uint64_t index, uint64_t ns)
{
    int64_t bytes = hr__dataset_kept_bytes(l->dataset, index);
    hr__count(&l->hosting->prepared_bytes, bytes < 0 ? 0 : (uint64_t)bytes);
    hr__count(&l->hosting->prepared_ns, ns);
}

void hr__hosting_get_rates_locked(const struct hr_loader *l, struct hr_loader_rates *rates)
{
    const struct hr__hosting *h = l->hosting;
    double prepared = (double)atomic_load_explicit(&h->prepared_bytes, memory_order_relaxed);
    double ns = (double)atomic_load_explicit(&h->prepared_ns, memory_order_relaxed);
    uint64_t waited_ns = HR__COUNTED(l, wait_ns);
    *rates = (struct hr_loader_rates){
        .host = h->cluster->hosts.self,
        .own_bytes_per_s = rate_of(&h->meters[HR__TIER_OWN]),
        .peer_bytes_per_s = rate_of(&h->meters[HR__TIER_PEER]),
        .storage_bytes_per_s = rate_of(&h->meters[HR__TIER_STORAGE]),
        .prepare_bytes_per_s = ns > 0 ? prepared * 1e9 / ns * l->workers_wanted : 0,
        /* Between epochs, report the epoch that has just ended. */
        .wait_s =
            h->wait_s >= 0 && !l->over ? h->wait_s : (double)(waited_ns - h->wait_before_ns) * 1e-9,
        .ready_s = h->ready_s,
    };
}

/* Sum of the speeds of a host's ranks. Ranks that have not measured theirs count as the mean of the
 * others. */
struct sum {
    double rate;
    int known, ranks;
};

static void sum_add(struct sum *sum, double rate)
{
    sum->ranks++;
    if (!(rate > 0))
        return;
    sum->rate += rate;
    sum->known++;
}

/* Nanoseconds per KiB; 0: not known. */
static uint32_t sum_ns(const struct sum *sum)
{
    if (!sum->known)
        return 0;
    double ns = 1024e9 / (sum->rate / sum->known * sum->ranks);
    return ns < 1 ? 1 : ns > 4e9 ? 4000000000u : (uint32_t)ns;
}

int hr__hosting_rates_locked(const struct hr_loader *l, const struct hr__cluster *cluster,
                             uint64_t epoch, struct hr__plan_rates *rates)
{
    const struct hr__rates_set *set = &l->hosting->rates[0];
    if (set->ranks && set->epoch > epoch)
        set++;
    if (!set->ranks || set->epoch > epoch)
        return 0;
    for (int host = 0; host < cluster->hosts.count; host++) {
        struct sum own = {0}, peer = {0}, storage = {0}, prepare = {0};
        for (int rank = 0; rank < l->options.world_size; rank++) {
            const struct hr_loader_rates *r = &set->ranks[rank];
            if (cluster->host_of_rank[rank] != host)
                continue;
            sum_add(&own, r->own_bytes_per_s);
            sum_add(&peer, r->peer_bytes_per_s);
            sum_add(&storage, r->storage_bytes_per_s);
            sum_add(&prepare, r->prepare_bytes_per_s);
        }
        rates[host] = (struct hr__plan_rates){
            .own_ns = sum_ns(&own),
            .peer_ns = sum_ns(&peer),
            .storage_ns = sum_ns(&storage),
            .prepare_ns = sum_ns(&prepare),
        };
    }
    return 1;
}
