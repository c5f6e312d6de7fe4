/*
 * Compares inputs with the other ranks before the first batch, and computes which host owns which
 * item.
 *
 * Owners depend on the list of hosts, their budgets and the dataset, but not on the seed: so the
 * next run finds the items of this one.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "cluster/peer_item.h"
#include "loader/caching.h"
#include "loader/hosts/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* Increment it if the same inputs give another plan or placement, or if there are other inputs. */
#define PLAN_VERSION 4

/* Cost of a sample of unknown size. */
#define TYPICAL_BYTES (128u << 10)

/* What items on a disk are rounded up to. */
#define DISK_UNIT 4096

/* The most servers whose memory use is queried in every epoch. */
#define ASKED_MAX 64

/* Pause between two tries to find a server that answers. */
#define ASK_NS 50000000

#define INPUTS_MAX 21
#define VALUE_MAX  512

struct inputs {
    struct hr__meeting_input inputs[INPUTS_MAX];
    char values[INPUTS_MAX][VALUE_MAX];
    int count;
};

static void add(struct inputs *in, const char *name, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void add(struct inputs *in, const char *name, const char *remedy, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(in->values[in->count], VALUE_MAX, format, arguments);
    va_end(arguments);
    in->inputs[in->count] =
        (struct hr__meeting_input){.name = name, .value = in->values[in->count], .remedy = remedy};
    in->count++;
}

static void add_dataset(struct inputs *in, const struct hr__cluster *cluster)
{
    const struct hr__host_digest *d = &cluster->digest;
    add(in, "the number of samples", "give all ranks the same dataset", "%" PRIu64,
        cluster->samples);
    add(in, "the names or labels of the samples",
        "give all ranks the same dataset, in the same order", "digest %016" PRIx64 "%016" PRIx64,
        d->names[0], d->names[1]);
    add(in, "the rows of the samples", "give all ranks the same boxes, classes and other rows",
        "digest %016" PRIx64 "%016" PRIx64, d->rows[0], d->rows[1]);
    add(in, "the sizes of the samples",
        "copy the dataset again where it is not whole, or open it with index=none",
        "digest %016" PRIx64 "%016" PRIx64, d->sizes[0], d->sizes[1]);
    if (cluster->hosts.with_mtime)
        add(in, "the modification times of the samples",
            "copy the dataset with its times (cp -a, rsync -t), or say mtime=no",
            "digest %016" PRIx64 "%016" PRIx64, d->times[0], d->times[1]);
}

static void fill_inputs(struct inputs *in, const struct hr_loader *l,
                        const struct hr__cluster *cluster, const struct hr__epoch *plan)
{
    static const char *const assignments[] = {"auto", "local", "exact"};
    const struct hr_loader_options *o = &l->options;
    char hosts[VALUE_MAX];
    hr__hosts_text(&cluster->hosts, hosts, sizeof hosts);
    in->count = 0;
    add(in, "the library's plan", "install the same version of headrace everywhere", "version %d",
        PLAN_VERSION);
    add(in, "the list of hosts, or a budget", "give all ranks the same text", "%s", hosts);
    add(in, "the size of the disk before the hosts", "give all ranks disk:...?size= with one size",
        "%" PRIu64 " bytes", hr__caching_disk_bytes(l));
    add(in, "the form of items", NULL, "%s", hr_form_name((enum hr_form)cluster->hosts.form));
    add(in, "the waveforms",
        "begin all recipes with the same Mono and Resample, and install the same decoders",
        "digest %016" PRIx64, hr__caching_variant(l->recipe, cluster->hosts.form));
    add(in, "the use of modification times", NULL, "mtime=%s",
        cluster->hosts.with_mtime ? "yes" : "no");
    add_dataset(in, cluster);
    add(in, "the key file", "give all ranks a copy of the same file, or none", "digest %016" PRIx64,
        hr__secret_mark(hr__peers_secret(cluster->peers)));
    add(in, "the world size", NULL, "%d", o->world_size);
    add(in, "the batch size", NULL, "%d", o->batch_size);
    add(in, "the seed", NULL, "%" PRIu64, plan->seed);
    add(in, "shuffle", NULL, "%s", plan->shuffle ? "yes" : "no");
    add(in, "drop_last", NULL, "%s", o->drop_last ? "yes" : "no");
    add(in, "the assignment", NULL, "%s", assignments[o->assignment]);
    add(in, "the largest item that servers take", "start all servers with the same -I",
        "%" PRIu64 " bytes", cluster->item_max_bytes);
    add(in, "the place to start from", "start or restore the same state on all ranks",
        "epoch %" PRIu64 ", position %" PRIu64, plan->epoch, plan->cut.start);
}

/* Asks all servers for their limits. Returns how many answered. */
static int ask_servers(struct hr_loader *l, struct hr__cluster *cluster)
{
    int answered = 0;
    cluster->item_max_bytes = 0;
    for (int i = 0; i < cluster->hosts.count && !atomic_load(&l->hosting->halt); i++) {
        struct hr__peer_about about = {.limit_bytes = 0};
        if (hr__peers_about(cluster->peers, i, &about, NULL))
            continue;
        if (about.item_max_bytes &&
            (!cluster->item_max_bytes || about.item_max_bytes < cluster->item_max_bytes))
            cluster->item_max_bytes = about.item_max_bytes;
        pthread_mutex_lock(&l->lock);
        cluster->abouts[i] = about;
        pthread_mutex_unlock(&l->lock);
        answered++;
    }
    return answered;
}

/* Asks until a server answers. A rank that is cut off for a moment would otherwise come to the
 * meeting without the limit that the others know. */
static void wait_for_servers(struct hr_loader *l, struct hr__cluster *cluster, uint64_t until_ns)
{
    const struct timespec pause = {.tv_nsec = ASK_NS};
    while (!ask_servers(l, cluster) && l->options.world_size > 1 &&
           !atomic_load(&l->hosting->halt) && hr__now_ns() < until_ns)
        nanosleep(&pause, NULL);
}

/* Seconds until that time, rounded up; at least one. */
static uint32_t seconds_until(uint64_t until_ns)
{
    uint64_t now_ns = hr__now_ns();
    return until_ns > now_ns ? (uint32_t)((until_ns - now_ns + 999999999) / 1000000000) : 1;
}

void hr__cluster_ask(struct hr_loader *l, struct hr__cluster *cluster)
{
    for (int i = 0; i < cluster->hosts.count && i < ASKED_MAX; i++) {
        struct hr__peer_about about;
        if (atomic_load(&l->hosting->halt) || !hr__peers_is_up(cluster->peers, i) ||
            hr__peers_about(cluster->peers, i, &about, NULL))
            continue;
        pthread_mutex_lock(&l->lock);
        cluster->abouts[i] = about;
        pthread_mutex_unlock(&l->lock);
    }
}

/* Gets the sizes of all samples and the dataset's digest, once. Waits for the sizes. */
static int learn_sizes(const struct hr_loader *l, struct hr__cluster *cluster,
                       struct hr_error *error)
{
    if (cluster->sizes)
        return 0;
    int r = hr_dataset_wait_sizes(l->dataset);
    if (r)
        return hr__fail(error, r, "the sizes of the dataset's files are not known: %s",
                        hr__errno_text(r));
    r = hr__host_digest(&cluster->digest, l->dataset, error);
    cluster->digest.with_mtime = cluster->hosts.with_mtime;
    /* The keys of runs with another secret, or with none, must differ. */
    cluster->digest.dataset[0] ^= hr__secret_mark(hr__peers_secret(cluster->peers));
    /* So must those of waveforms that were made otherwise. */
    cluster->digest.dataset[0] ^= hr__caching_variant(l->recipe, cluster->hosts.form);
    if (r)
        return r;
    uint32_t *sizes = hr__alloc(HR__TAG_LOADER, cluster->samples, sizeof *sizes);
    if (!sizes)
        return hr__fail(error, -ENOMEM, "out of memory for the sizes of %" PRIu64 " samples",
                        cluster->samples);
    for (uint64_t i = 0; i < cluster->samples; i++) {
        int64_t bytes = hr__host_bytes(l->dataset, i);
        sizes[i] = bytes < 0 ? TYPICAL_BYTES : bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
    }
    cluster->sizes = sizes;
    return 0;
}

/* Memory charged for an item of `bytes` bytes; 0: its owner would not take it. */
static uint32_t charge_of(const struct hr__cluster *cluster, int64_t bytes)
{
    if (bytes <= 0)
        return 0;
    uint64_t limit = cluster->item_max_bytes;
    if (limit && (uint64_t)bytes + HR__PEER_ITEM_ROOM > limit)
        return 0;
    uint64_t charge = ((uint64_t)bytes * cluster->charge_percent + 99) / 100;
    return charge > UINT32_MAX ? 0 : (uint32_t)charge;
}

/* Room on a disk for an item of `bytes` bytes that nobody's memory keeps. */
static uint32_t disk_charge_of(int64_t bytes)
{
    return bytes <= 0 || bytes > UINT32_MAX - DISK_UNIT
               ? 0
               : (uint32_t)(bytes + DISK_UNIT - 1) / DISK_UNIT * DISK_UNIT;
}

/* Bytes that a sample is expected to need. */
static int64_t kept_bytes(const struct hr_loader *l, uint64_t index)
{
    int64_t bytes = hr__host_bytes(l->dataset, index);
    /* hosts do not keep masks of lists (believe.c) */
    int may_come = !l->dataset->masks && hr__dataset_is_unlisted(l->dataset, index);
    return bytes < 0 && may_come ? (int64_t)TYPICAL_BYTES : bytes;
}

/* What a placement is made of. */
struct placing {
    struct hr__placement_host *hosts;
    uint32_t *charges; /* per sample */
    struct hr__placement_wish wish;
};

/* Assigns what memory does not hold to the hosts' disks, which all have one size. Writes over the
 * budgets and charges of the memory. */
static int place_on_disks(const struct hr_loader *l, struct placing *p,
                          const struct hr__placement *memory, struct hr__placement **out,
                          struct hr_error *error)
{
    uint64_t budget_bytes = hr__caching_disk_bytes(l);
    const uint16_t *owners = hr__placement_owners(memory);
    if (!budget_bytes)
        return 0;
    for (int i = 0; i < p->wish.host_count; i++)
        p->hosts[i].budget_bytes = budget_bytes;
    for (uint64_t i = 0; i < p->wish.samples; i++)
        p->charges[i] = owners[i] == HR__NOBODY ? disk_charge_of(kept_bytes(l, i)) : 0;
    return hr__placement_create(out, &p->wish, error);
}

/* Assigns samples to the hosts' memory, then to their disks. */
static int assign(struct hr_loader *l, struct hr__cluster *cluster, struct placing *p,
                  struct hr_error *error)
{
    struct hr__placement *memory = NULL, *disks = NULL;
    for (int i = 0; i < cluster->hosts.count; i++)
        p->hosts[i] = (struct hr__placement_host){
            .id = hr__host_id(&cluster->hosts.hosts[i]),
            .budget_bytes = cluster->hosts.hosts[i].budget_bytes,
        };
    for (uint64_t i = 0; i < cluster->samples; i++)
        p->charges[i] = charge_of(cluster, kept_bytes(l, i));
    int r = hr__placement_create(&memory, &p->wish, error);
    if (!r)
        r = place_on_disks(l, p, memory, &disks, error);
    if (r) {
        hr__placement_destroy(&memory);
        return r;
    }
    pthread_mutex_lock(&l->lock);
    cluster->placement = memory;
    cluster->disks = disks;
    pthread_mutex_unlock(&l->lock);
    return 0;
}

static int place(struct hr_loader *l, struct hr__cluster *cluster, struct hr_error *error)
{
    const struct hr__host_digest *d = &cluster->digest;
    struct placing p = {
        .hosts = hr__alloc(HR__TAG_LOADER, (size_t)cluster->hosts.count, sizeof *p.hosts),
        .charges = hr__alloc(HR__TAG_LOADER, cluster->samples, sizeof *p.charges),
    };
    p.wish = (struct hr__placement_wish){
        .hosts = p.hosts,
        .host_count = cluster->hosts.count,
        .samples = cluster->samples,
        .bytes = p.charges,
        .digest = d->names[0] ^ (d->sizes[0] << 1 | d->sizes[0] >> 63),
    };
    int r = p.hosts && p.charges
                ? assign(l, cluster, &p, error)
                : hr__fail(error, -ENOMEM, "out of memory for the owners of %" PRIu64 " samples",
                           cluster->samples);
    hr__free(p.hosts);
    hr__free(p.charges);
    return r;
}

/* Meets the other ranks, and sets which host each rank is on. */
static int meet(struct hr_loader *l, struct hr__cluster *cluster, const struct hr__epoch *plan,
                uint32_t limit_s, struct hr_error *error)
{
    struct hr__hosting *h = l->hosting;
    char job[HR__MEETING_JOB], run[HR__MEETING_JOB - 32];
    struct hr__meeting_found found = {NULL};
    struct inputs *inputs = hr__alloc(HR__TAG_LOADER, 1, sizeof *inputs);
    if (!inputs)
        return hr__fail(error, -ENOMEM, "out of memory for comparing with other ranks");
    fill_inputs(inputs, l, cluster, plan);
    hr__meeting_job(run, sizeof run);
    snprintf(job, sizeof job, "%s/%u/%u", run, h->number, h->meetings);
    struct hr__meeting_wish wish = {
        .job = job,
        .rank = l->options.rank,
        .world_size = l->options.world_size,
        .host = cluster->hosts.self,
        .inputs = inputs->inputs,
        .input_count = inputs->count,
        .limit_s = limit_s,
        .stop = &h->halt,
    };
    int r = hr__meeting_run(cluster->peers, &cluster->hosts, &wish, &found, error);
    hr__free(inputs);
    if (r)
        return r;
    h->meetings++;
    if (!cluster->placement) /* no key was made yet */
        cluster->digest.run = found.number;
    pthread_mutex_lock(&l->lock);
    int *before = cluster->host_of_rank;
    cluster->host_of_rank = found.host_of_rank;
    pthread_mutex_unlock(&l->lock);
    hr__free(before);
    return 0;
}

/* What all hosts keep together; NULL: nothing. */
static struct hr__placement_share share_of_all(const struct hr__placement *placement, int hosts)
{
    struct hr__placement_share all = {0};
    for (int i = 0; placement && i < hosts; i++) {
        struct hr__placement_share share = hr__placement_share(placement, i);
        all.items += share.items;
        all.bytes += share.bytes;
    }
    return all;
}

static void log_placement(const struct hr__cluster *cluster)
{
    int hosts = cluster->hosts.count;
    struct hr__placement_share memory = share_of_all(cluster->placement, hosts);
    struct hr__placement_share disks = share_of_all(cluster->disks, hosts);
    hr__log(HR_LOG_INFO,
            "%d hosts keep %" PRIu64 " of %" PRIu64 " samples in memory, %" PRIu64
            " bytes, and %" PRIu64 " on their disks; this is host %d of them (-1: none)",
            hosts, memory.items, cluster->samples, memory.bytes, disks.items, cluster->hosts.self);
}

int hr__cluster_meet(struct hr_loader *l, struct hr__cluster *cluster, const struct hr__epoch *plan,
                     struct hr_error *error)
{
    if (cluster->is_met && cluster->seed == plan->seed && cluster->shuffle == plan->shuffle)
        return 0;
    int r = learn_sizes(l, cluster, error);
    uint64_t until_ns = hr__now_ns() + cluster->hosts.meet_s * UINT64_C(1000000000);
    if (!r && !cluster->is_met)
        wait_for_servers(l, cluster, until_ns);
    if (!r)
        r = meet(l, cluster, plan, seconds_until(until_ns), error);
    if (r)
        return r;
    if (!cluster->placement) {
        r = place(l, cluster, error);
        if (r)
            return r;
        log_placement(cluster);
    }
    cluster->is_met = 1;
    cluster->seed = plan->seed;
    cluster->shuffle = plan->shuffle;
    return 0;
}
