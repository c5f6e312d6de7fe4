/* Work on each sample of a dataset; see each.h. */
#include "bulk/each.h"

#include "base/error.h"

#include <errno.h>

void hr__each_take(struct hr__each *each, void *tools, int r, struct hr_error *why)
{
    while (!r && !hr__progress_cancelled(&each->progress)) {
        size_t index = atomic_fetch_add_explicit(&each->next, 1, memory_order_relaxed);
        if (index >= each->count)
            break;
        r = each->work(each->arg, tools, index, why);
        hr__progress_add(&each->progress, 1);
    }
    if (!r)
        return;
    pthread_mutex_lock(&each->lock);
    each->stop = *why;
    each->stop.code = r;
    pthread_mutex_unlock(&each->lock);
    hr__progress_cancel(&each->progress);
}

int hr__each_run(struct hr__each *each, struct hr__pool **pool, hr_progress_fn progress,
                 void *progress_arg, struct hr_error *error)
{
    pthread_mutex_init(&each->lock, NULL);
    hr__progress_init(&each->progress, progress, progress_arg);
    hr__progress_stage(&each->progress, each->stage, each->count);
    const struct hr__executor *executor = hr__pool_executor(*pool);
    executor->run(executor->self, (size_t)executor->threads, each->thread, each->arg);
    hr__pool_destroy(pool);
    pthread_mutex_destroy(&each->lock);
    int r = each->stop.code;
    if (r)
        return hr__fail(error, r, "%s stopped: %s", each->what,
                        each->stop.message[0] ? each->stop.message : hr__errno_text(r));
    if (hr__progress_end(&each->progress))
        return hr__fail(error, -ECANCELED, "%s was cancelled%s", each->what, each->left);
    return 0;
}
