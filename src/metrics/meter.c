/*
 * The list of a process's loaders; see meter.h. It is one for the process because an address is:
 * hence the variables of this file, and the fork handlers.
 */
#include "metrics/meter.h"

#include "base/draft.h"
#include "base/error.h"
#include "base/memory.h"
#include "metrics/endpoint.h"
#include "metrics/status_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hr_meter {
    struct hr_meter *next;
    int number;
    bool is_served; /* counts in `served` */
    char *text;     /* NULL: nothing published yet */
    struct hr__status_file file;
};

/* Guards everything below and the texts. Held while the address is opened and across fork. The
 * endpoint's thread takes it for an answer, so nobody waits for that thread under it. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t handlers = PTHREAD_ONCE_INIT;
static struct hr_meter *list;
static struct hr__endpoint *endpoint; /* NULL: the process serves nothing */
static int served;                    /* meters that asked for it */
static char served_at[128];           /* the address they gave */

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&list_lock);
}

static void in_child(void)
{
    list = NULL;
    if (endpoint)
        hr__endpoint_abandon(endpoint);
    endpoint = NULL;
    served = 0;
    pthread_mutex_unlock(&list_lock);
}

static void set_handlers(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

int hr_metrics_text(char **text, struct hr_error *error)
{
    struct hr__draft status = {.text = NULL};
    char *json = NULL;
    hr__draft_put(&status, "{\"loaders\":[");
    pthread_mutex_lock(&list_lock);
    const char *before = "";
    for (const struct hr_meter *m = list; m; m = m->next) {
        if (!m->text)
            continue;
        hr__draft_put(&status, before);
        hr__draft_put(&status, m->text);
        before = ",";
    }
    pthread_mutex_unlock(&list_lock);
    hr__draft_put(&status, "]}");
    int r = hr__draft_finish(&status, &json, error);
    if (!r)
        r = hr__loaders_text(text, json, error);
    hr__free(json);
    return r;
}

/* On the endpoint's thread. */
static int text_of_all(void *arg, char **text, struct hr_error *error)
{
    return hr_metrics_text(text, error);
}

static int serve_locked(const char *address, int local_rank, struct hr_error *error)
{
    const struct hr__endpoint_options options = {
        .address = address, .port_offset = local_rank, .text = text_of_all};
    if (endpoint && strcmp(address, served_at) != 0)
        return hr__fail(error, -EINVAL,
                        "metrics \"%s\": this process serves its loaders at \"%s\" already, and it "
                        "has one address for all of them: give that one",
                        address, served_at);
    int r = endpoint ? 0 : hr__endpoint_start(&endpoint, &options, error);
    if (r)
        return r;
    if (!served++)
        snprintf(served_at, sizeof served_at, "%s", address);
    return 0;
}

static void enlist_locked(struct hr_meter *m)
{
    struct hr_meter **at = &list;
    for (; *at && (*at)->number == m->number; at = &(*at)->next) /* sorted by number */
        m->number++;
    m->next = *at;
    *at = m;
}

/* HEADRACE_METRICS may be set for all programs of a machine, so it never fails one. */
static void say_without(const struct hr_error *error)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_said))
        hr__log(HR_LOG_WARNING, "HEADRACE_METRICS is without effect here: %s", error->message);
}

int hr__local_rank(int rank, int local_world_size)
{
    const char *local = getenv("LOCAL_RANK");
    long number = local && *local ? strtol(local, NULL, 10) : rank % local_world_size;
    return number >= 0 && number <= UINT16_MAX ? (int)number : 0;
}

int hr_meter_check(const char *metrics, struct hr_error *error)
{
    return metrics && *metrics ? hr__endpoint_check(metrics, error) : 0;
}

int hr_meter_begin(struct hr_meter **out, const char *metrics, int rank, int local_world_size,
                   struct hr_error *error)
{
    const char *address = metrics ? metrics : getenv("HEADRACE_METRICS");
    struct hr_error failure = {0};
    struct hr_meter *m = hr__alloc(HR__TAG_METRICS, 1, sizeof *m);
    if (!m)
        return hr__fail(error, -ENOMEM, "out of memory for a loader's status");
    m->file.own = HR__OWN_FD_NONE;
    int is_asked = address && *address, r = 0;
    pthread_once(&handlers, set_handlers);
    pthread_mutex_lock(&list_lock);
    if (is_asked)
        r = serve_locked(address, hr__local_rank(rank, local_world_size), &failure);
    m->is_served = is_asked && !r;
    if (!r || !metrics)
        enlist_locked(m);
    pthread_mutex_unlock(&list_lock);
    if (r && metrics) {
        hr__free(m);
        return hr__fail(error, r, "%s", failure.message);
    }
    if (r)
        say_without(&failure);
    hr__status_file_open(&m->file, m->number);
    *out = m;
    return 0;
}

int hr_meter_number(const struct hr_meter *meter)
{
    return meter->number;
}

void hr_meter_publish(struct hr_meter *meter, const char *status)
{
    char *text = hr__strdup(HR__TAG_METRICS, status);
    if (!text)
        return;
    hr__status_file_write(&meter->file, text, strlen(text));
    pthread_mutex_lock(&list_lock);
    char *before = meter->text;
    meter->text = text;
    pthread_mutex_unlock(&list_lock);
    hr__free(before);
}

void hr_meter_end(struct hr_meter **meter)
{
    struct hr_meter *m = *meter;
    struct hr__endpoint *ending = NULL;
    *meter = NULL;
    if (!m)
        return;
    pthread_mutex_lock(&list_lock);
    struct hr_meter **at = &list;
    while (*at && *at != m)
        at = &(*at)->next;
    /* In a forked child it is not in the list, and does not count. */
    if (*at) {
        *at = m->next;
        if (m->is_served && !--served) {
            ending = endpoint;
            endpoint = NULL;
            hr__endpoint_close(ending);
        }
    }
    pthread_mutex_unlock(&list_lock);
    hr__endpoint_stop(&ending);
    hr__status_file_close(&m->file);
    hr__free(m->text);
    hr__free(m);
}
