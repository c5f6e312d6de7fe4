/*
 * A cluster is a list of hosts with all that is derived from it. The loader has one, and each
 * epoch's deal holds its own reference. So another list can replace it at the beginning of an epoch
 * while requests to the old one are still in progress.
 */
#include "base/error.h"
#include "base/memory.h"
#include "loader/caching.h"
#include "loader/hosts/inside.h"

#include <errno.h>

/* How much memory an item is charged, in percent of its sample's bytes: its mean growth, plus some
 * room. Items that grow beyond it are kept encoded. */
static const uint64_t charge_percents[HR_FORMS] = {
    [HR_FORM_ENCODED] = 100, [HR_FORM_INDEXED] = 120,  [HR_FORM_COEFFICIENTS] = 160,
    [HR_FORM_PLANES] = 500,  [HR_FORM_WAVEFORM] = 400, [HR_FORM_WAVEFORM16] = 200};

struct hr__cluster *hr__cluster_ref(struct hr__cluster *cluster)
{
    atomic_fetch_add_explicit(&cluster->refs, 1, memory_order_relaxed);
    return cluster;
}

void hr__cluster_unref(struct hr__cluster **pointer)
{
    struct hr__cluster *c = *pointer;
    *pointer = NULL;
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    hr__placement_destroy(&c->placement);
    hr__placement_destroy(&c->disks);
    hr__peers_destroy(&c->peers);
    hr__hosts_clear(&c->hosts);
    hr__free(c->sizes);
    hr__free(c->host_of_rank);
    hr__free(c->queues);
    hr__free(c->abouts);
    hr__free(c->known);
    hr__free(c->contents);
    hr__free(c);
}

/* Only the text of the hosts may choose the form of items, because all ranks compare the text. */
static int check_form(const struct hr_loader *l, const struct hr__hosts *hosts,
                      struct hr_error *error)
{
    int form = l->options.cache_form, kept = hosts->form;
    int r = hr__caching_form(l, &kept, error);
    if (r)
        return r;
    if (form == HR_FORM_AUTO || form == hosts->form)
        return 0;
    return hr__fail(error, -EINVAL,
                    "cache_form = %s, and the hosts keep %s: say form=%s in the text of the hosts",
                    hr_form_name((enum hr_form)form), hr_form_name((enum hr_form)hosts->form),
                    hr_form_name((enum hr_form)form));
}

/* Logs once in a process. */
static void warn_without_mtime(const struct hr__hosts *hosts)
{
    static atomic_flag is_warned = ATOMIC_FLAG_INIT;
    if (hosts->with_mtime || atomic_flag_test_and_set(&is_warned))
        return;
    hr__log(HR_LOG_WARNING,
            "mtime=no: if hosts have their own copies, a rewritten file is detected by its size "
            "and by samples of its content (all of it up to 64 KiB, else 4 KiB at its "
            "beginning, middle and end); differences elsewhere are not detected");
}

int hr__cluster_create(struct hr__cluster **out, const struct hr_loader *l, const char *text,
                       struct hr_error *error)
{
    struct hr__cluster *c = hr__alloc(HR__TAG_LOADER, 1, sizeof *c);
    *out = NULL;
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a list of hosts");
    atomic_init(&c->refs, 1);
    c->samples = hr_dataset_count(l->dataset);
    int r = hr__hosts_parse(&c->hosts, text, error);
    if (!r)
        r = hr__hosts_find_self(&c->hosts, error);
    if (!r)
        r = check_form(l, &c->hosts, error);
    if (!r && c->hosts.count > HR__HOSTS_MAX)
        r = hr__fail(error, -EINVAL, "%d hosts: there may be %d", c->hosts.count, HR__HOSTS_MAX);
    if (!r)
        r = hr__peers_create(&c->peers, &c->hosts, &hr__peer_ops, error);
    if (r)
        goto fail;
    warn_without_mtime(&c->hosts);
    c->charge_percent = charge_percents[c->hosts.form];
    size_t count = (size_t)c->hosts.count;
    c->queues = hr__alloc(HR__TAG_LOADER, count, sizeof *c->queues);
    c->abouts = hr__alloc(HR__TAG_LOADER, count, sizeof *c->abouts);
    c->known = hr__alloc(HR__TAG_LOADER, c->samples, 1);
    c->contents = hr__alloc(HR__TAG_LOADER, c->samples, sizeof *c->contents);
    if (!c->queues || !c->abouts || !c->known || !c->contents) {
        r = hr__fail(error, -ENOMEM, "out of memory for the items of %d hosts", c->hosts.count);
        goto fail;
    }
    *out = c;
    return 0;
fail:
    hr__cluster_unref(&c);
    return r;
}
