/* Makes and destroys loaders: checks their options and chooses their parts. */
#include "loader/create.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/versioned.h"
#include "dataset/names.h"
#include "dataset/row_block.h"
#include "dataset/row_table.h"
#include "loader/caching.h"
#include "loader/hosts/hosts.h"
#include "loader/inside.h"
#include "loader/mix.h"
#include "loader/remote.h"
#include "loader/schedule.h"
#include "metrics/endpoint.h"
#include "metrics/meter.h"
#include "recipe/mask.h"
#include "recipe/recipe.h"
#include "recipe/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

#define MAX_THREADS 4096
#define MAX_AHEAD   65536

/* What is prepared and read ahead unless told. What is on the way from a store (bandwidth x
 * latency: 5 MB at 1 Gbit/s and 40 ms) has to be in batches that are open. */
#define AHEAD           2
#define STAGING         (UINT64_C(16) << 20)
#define AHEAD_FAR       512 /* samples */
#define AHEAD_FAR_BYTES (UINT64_C(256) << 20)
#define STAGING_FAR     (UINT64_C(64) << 20)

void hr_loader_options_init(struct hr_loader_options *options, size_t size)
{
    static const struct hr_loader_options defaults = {
        .batch_size = 1,
        .world_size = 1,
        .local_world_size = 1,
        .on_error = HR_ON_ERROR_RAISE,
        .max_bad_share = 0.01,
        .cache_form = HR_FORM_AUTO,
        .window = 8,
        .mix_share = 1,
        .cutmix_share = 0.5,
        .metrics_rank = -1,
    };
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int check_range(const char *name, int64_t value, int64_t low, int64_t high,
                       struct hr_error *error)
{
    if (value >= low && value <= high)
        return 0;
    return hr__fail(error, -EINVAL, "%s = %" PRId64 ": must be from %" PRId64 " to %" PRId64, name,
                    value, low, high);
}

static int check_options(const struct hr_loader_options *o, struct hr_error *error)
{
    int r = check_range("batch_size", o->batch_size, 1, INT32_MAX, error);
    if (!r)
        r = check_range("world_size", o->world_size, 1, INT32_MAX, error);
    if (!r)
        r = check_range("rank", o->rank, 0, o->world_size - 1, error);
    if (!r)
        r = check_range("threads", o->threads, 0, MAX_THREADS, error);
    if (!r)
        r = check_range("local_world_size", o->local_world_size, 1, INT32_MAX, error);
    if (!r && o->batches_ahead)
        r = check_range("batches_ahead", o->batches_ahead, 1, MAX_AHEAD, error);
    if (!r)
        r = check_range("on_error", o->on_error, HR_ON_ERROR_RAISE, HR_ON_ERROR_SKIP, error);
    if (!r)
        r = check_range("wait_ms", o->wait_ms, 0, INT32_MAX, error);
    if (!r)
        r = check_range("cache_form", o->cache_form, HR_FORM_AUTO, HR_FORMS - 1, error);
    if (!r)
        r = check_range("assignment", o->assignment, HR_ASSIGNMENT_AUTO, HR_ASSIGNMENT_EXACT,
                        error);
    if (!r && !(o->max_bad_share >= 0 && o->max_bad_share <= 1))
        r = hr__fail(error, -EINVAL, "max_bad_share = %g: must be from 0 to 1", o->max_bad_share);
    if (!r)
        r = check_range("metrics_rank", o->metrics_rank, -1, INT32_MAX, error);
    if (!r && o->metrics && *o->metrics)
        r = hr__endpoint_check(o->metrics, error);
    if (!r && (o->cache_evicts || o->cache_of) &&
        (hr__hosting_is_wanted(o) || hr__remote_is_wanted(o)))
        r = hr__fail(error, -EINVAL,
                     "a cache that evicts (cache_evicts, cache_of) is private to one process: use "
                     "it without an agent and without memcached:");
    if (!r)
        r = hr__hosting_check(o, error);
    return r ? r : hr__remote_check(o, error);
}

int hr__options_take(struct hr_loader_options *out, const struct hr_loader_options *options,
                     struct hr_error *error)
{
    hr_loader_options_default(out);
    if (!options)
        return 0;
    int r = hr__versioned_take(out, sizeof *out, options, "hr_loader_options", error);
    return r ? r : check_options(out, error);
}

static int check_data(const struct hr_loader *l, struct hr_error *error)
{
    struct hr__cut cut = hr__loader_cut(l);
    if (!cut.samples)
        return hr__fail(error, -ENODATA, "the dataset has no samples");
    if (!l->options.external_order && !hr__cut_batches(&cut))
        return hr__fail(error, -ENODATA,
                        "no batch would come: %" PRIu64 " samples are less than one batch of %d "
                        "for each of %d ranks, and drop_last drops it; lower batch_size or turn "
                        "drop_last off",
                        cut.samples, l->options.batch_size, l->options.world_size);
    return 0;
}

/* Refuses a recipe of images for sounds, and the other way round where names were chosen by what
 * the samples are. Lists have any names. */
static int check_media(const struct hr_loader *l, struct hr_error *error)
{
    const struct hr_dataset *origin = hr__dataset_origin(l->dataset);
    struct hr_sound_head head;
    char name[512], shown[512];
    if (origin->produced)
        return 0;
    int is_sound = !hr_recipe_sound_head(l->recipe, &head);
    size_t length = hr_dataset_key(l->dataset, 0, name, sizeof name);
    length = length < sizeof name ? length : 0;
    hr__printable(shown, sizeof shown, length ? name : "");
    if (origin->waveforms && !is_sound && !hr__name_is_image(name, length))
        return hr__fail(error, -EINVAL,
                        "the pack %s holds waveforms, and the recipe is of images: use one of "
                        "sounds, such as RandomWindow, Mono and Resample",
                        origin->source.path);
    if (!is_sound && hr__name_is_sound(name, length))
        return hr__fail(error, -EINVAL,
                        "the samples are sounds (the first is %s), and the recipe is of images: "
                        "use one of sounds, such as RandomWindow, Mono and Resample",
                        shown);
    if (is_sound && origin->source.kind != HR__SOURCE_PATHS &&
        origin->source.kind != HR__SOURCE_LIST && hr__name_is_image(name, length))
        return hr__fail(error, -EINVAL,
                        "the samples are images (the first is %s), and the recipe is of sounds: "
                        "use one of images, or open the sounds (AudioFolder; in C "
                        "media = HR_MEDIA_SOUNDS)",
                        shown);
    return 0;
}

/* Refuses a pack of waveforms that were made for another beginning of recipes. */
static int check_waveforms(const struct hr_loader *l, struct hr_error *error)
{
    const struct hr_dataset *origin = hr__dataset_origin(l->dataset);
    struct hr_sound_head head;
    char made[HR__HEAD_TEXT], asked[HR__HEAD_TEXT];
    if (!origin->waveforms || hr_recipe_sound_head(l->recipe, &head) ||
        hr__sound_head_suits(&origin->head, &head))
        return 0;
    return hr__fail(error, -EINVAL,
                    "the pack %s holds waveforms after %s, and the recipe begins with %s: begin it "
                    "as the pack, or write the pack again for it",
                    origin->source.path, hr__sound_head_text(made, &origin->head),
                    hr__sound_head_text(asked, &head));
}

/* Refuses options, recipes and datasets that do not go together. */
static int check(const struct hr_loader *l, struct hr_error *error)
{
    int r = check_data(l, error);
    if (!r)
        r = hr__mix_check(l, error);
    if (!r)
        r = hr__remote_check_samples(l, error);
    if (!r && l->dataset->masks)
        r = hr__recipe_check_masks(l->recipe, error);
    if (!r)
        r = hr__recipe_check_rows(l->recipe, hr__dataset_layout(l->dataset), error);
    if (!r)
        r = check_media(l, error);
    if (!r)
        r = hr__recipe_check_rate(l->recipe, error);
    return r ? r : check_waveforms(l, error);
}

static int make_ring(struct hr_loader *l, struct hr_error *error)
{
    /* Two more slots, because a device may still be copying from two batches. */
    size_t copying = l->options.pinned ? 2 : 0;
    struct hr__ring_options options = {
        .recipe = l->recipe,
        .rows = l->dataset->rows,
        .masks = l->dataset->masks != NULL,
        .batch_size = (size_t)l->options.batch_size,
        .planned = (size_t)l->options.batches_ahead + 2 + copying,
        .pinned = l->options.pinned,
        .processes = l->options.local_world_size,
    };
    int r = hr__ring_create(&l->ring, &options, error);
    if (!r)
        l->home = hr__ring_home(l->ring);
    return r;
}

static void init_locks(struct hr_loader *l)
{
    pthread_mutex_init(&l->lock, NULL);
    hr__cond_init(&l->work);
    hr__cond_init(&l->fetch);
    hr__cond_init(&l->room);
    hr__cond_init(&l->helped);
}

/* Sets what the caller leaves open. */
static void choose_ahead(struct hr_loader *l)
{
    struct hr_loader_options *o = &l->options;
    uint64_t bytes = 0, batch = (uint64_t)o->batch_size, samples = AHEAD_FAR;
    for (size_t i = 0; i < hr_recipe_views(l->recipe); i++) {
        struct hr_tensor_spec view;
        hr_recipe_view_output(l->recipe, i, &view);
        bytes += view.bytes;
    }
    if (bytes > AHEAD_FAR_BYTES / AHEAD_FAR)
        samples = AHEAD_FAR_BYTES / bytes;
    if (!o->staging_bytes)
        o->staging_bytes = l->always_fetched ? STAGING_FAR : STAGING;
    if (o->batches_ahead)
        return;
    o->batches_ahead = l->always_fetched ? (int)((samples + batch - 1) / batch) : AHEAD;
    if (hr__remote_is_wanted(o) && o->batches_ahead > o->window - 2)
        o->batches_ahead = o->window - 2;
    if (o->batches_ahead < AHEAD)
        o->batches_ahead = AHEAD;
}

int hr__loader_make(struct hr_loader **out, struct hr_dataset *dataset, struct hr_recipe *recipe,
                    const struct hr_loader_options *options, struct hr_error *error)
{
    struct hr_loader *l = hr__alloc(HR__TAG_LOADER, 1, sizeof *l);
    if (!l)
        return hr__fail(error, -ENOMEM, "out of memory for a loader");
    static const struct hr__part no_part;
    static const struct hr__keeper no_keeper;
    init_locks(l);
    l->part = &no_part;
    l->keeper = &no_keeper;
    l->attachment = &hr__attachment_none;
    l->home = HR__NO_HOME;
    l->always_fetched = hr__dataset_origin(dataset)->http != NULL;
    l->options = *options;
    l->dataset = hr_dataset_ref(dataset);
    l->recipe = hr_recipe_ref(recipe);
    choose_ahead(l);
    l->seed = options->seed;
    l->shuffle = options->shuffle && !options->external_order;
    hr_recipe_output(recipe, &l->spec);
    l->workers_wanted = options->threads;
    if (!l->workers_wanted)
        l->workers_wanted = hr_cores() / options->local_world_size - 1;
    if (l->workers_wanted < 1)
        l->workers_wanted = 1;
    int r = check(l, error);
    if (r) {
        hr_loader_destroy(&l);
        return r;
    }
    *out = l;
    return 0;
}

/* Logs once per process, on the first rank of a machine whose ranks prepare for themselves, that an
 * agent would share the cores among them. */
static void suggest_agent(const struct hr_loader *l)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    const struct hr_loader_options *options = &l->options;
    if (hr_recipe_views(l->recipe) > 1)
        return; /* an agent prepares one view */
    int here = options->local_world_size < options->world_size ? options->local_world_size
                                                               : options->world_size;
    if (here > 1 && !hr__local_rank(options->rank, here) && !atomic_flag_test_and_set(&is_said))
        hr__log(HR_LOG_WARNING,
                "%d ranks of this machine prepare for themselves, each with its part of the cores: "
                "agent=\"auto\" shares the cores among them",
                here);
}

/* Logs that pairs of images and masks of lists of URLs are not kept on hosts, which do not know
 * each other's ETags. */
static void warn_if_uncached(const struct hr_loader *l)
{
    struct hr_dataset *masks = l->dataset->masks;
    if (hr__hosting_is_wanted(&l->options) && masks && hr_dataset_count(l->dataset) &&
        (hr__dataset_is_unlisted(l->dataset, 0) || hr__dataset_is_unlisted(masks, 0)))
        hr__log(HR_LOG_WARNING,
                "images and masks of a list of URLs are not kept on memcached servers, and each "
                "epoch asks for them again, because a list has no sizes and ETags: use a pack");
}

int hr_loader_create(struct hr_loader **out, struct hr_dataset *dataset, struct hr_recipe *recipe,
                     const struct hr_loader_options *options, struct hr_error *error)
{
    *out = NULL;
    struct hr_loader_options taken;
    struct hr_loader *l = NULL;
    int r = hr__options_take(&taken, options, error);
    if (!r)
        r = hr__loader_make(&l, dataset, recipe, &taken, error);
    if (r)
        return r;
    if (taken.metrics && !(l->metrics = hr__strdup(HR__TAG_LOADER, taken.metrics)))
        r = hr__fail(error, -ENOMEM, "out of memory for a loader's options");
    l->options.metrics = NULL;
    if (!r && l->dataset->produced && !hr__remote_is_wanted(&l->options))
        r = hr__fail(error, -EINVAL,
                     "the samples of %s come from producers, which an agent asks for them: set "
                     "agent, for example to \"auto\"",
                     l->dataset->produced->name);
    if (!r && hr__remote_is_wanted(&l->options))
        r = hr__dataset_cut_rows(&l->dataset, error);
    if (!r)
        r = make_ring(l, error);
    if (!r && !hr__remote_is_wanted(&l->options) && !hr__hosting_is_wanted(&l->options))
        suggest_agent(l);
    if (!r)
        r = hr__remote_is_wanted(&l->options)    ? hr__remote_create(l, error)
            : hr__hosting_is_wanted(&l->options) ? hr__hosting_create(l, error)
                                                 : hr__caching_create(l, 0, error);
    if (!r)
        warn_if_uncached(l);
    if (l->attachment == &hr__attachment_none) /* the texts are the caller's */
        l->options.cache = l->options.agent = l->options.stream = l->options.agent_command = NULL;
    if (r) {
        hr_loader_destroy(&l);
        return r;
    }
    *out = l;
    return 0;
}

static void free_jobs(struct hr_loader *l)
{
    while (l->all_jobs) {
        struct hr__job *job = l->all_jobs;
        l->all_jobs = job->all_next;
        hr__read_drop(&job->sample.read);
        hr__sample_clear(&job->sample);
        hr__sample_clear(&job->mask);
        hr__free(job);
    }
    l->free_jobs = NULL;
}

static void free_shared(struct hr_loader *l)
{
    hr_meter_end(&l->publication.meter);
    hr__remote_free_texts(l);
    hr__free(l->metrics);
    hr_dataset_unref(&l->dataset);
    hr_recipe_unref(&l->recipe);
    hr__free(l);
}

/* In a forked child the threads do not exist, and locks and the data under them are in any state:
 * frees only what no thread was changing. */
static void abandon(struct hr_loader *l)
{
    if (l->attachment->abandon)
        l->attachment->abandon(l);
    hr__ring_abandon(&l->ring);
    if (l->keeper->abandon)
        l->keeper->abandon(l);
    if (l->part->abandon)
        l->part->abandon(l);
    free_shared(l);
}

void hr_loader_destroy(struct hr_loader **loader)
{
    struct hr_loader *l = *loader;
    if (!l)
        return;
    *loader = NULL;
    if (hr__in_child(l)) {
        abandon(l);
        return;
    }
    l->attachment->destroy(l);
    pthread_mutex_lock(&l->lock);
    struct hr_batch *slots = hr__cancel_locked(l);
    pthread_mutex_unlock(&l->lock);
    hr__return_slots(slots);
    free_jobs(l);
    hr__bad_destroy(l);
    hr__epoch_unref(&l->plan);
    if (l->part->destroy)
        l->part->destroy(l);
    hr__ring_close(&l->ring);
    if (l->keeper->destroy)
        l->keeper->destroy(l);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->fetch);
    pthread_cond_destroy(&l->room);
    pthread_cond_destroy(&l->helped);
    pthread_mutex_destroy(&l->lock);
    free_shared(l);
}
