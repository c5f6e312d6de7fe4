/* Background tasks on threads of their own; see task.h. */
#include "agent/server/task.h"

#include "base/thread.h"

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

void hr__tasks_init(struct hr__tasks *tasks, int wake)
{
    pthread_mutex_init(&tasks->lock, NULL);
    tasks->back = NULL;
    tasks->wake = wake;
    tasks->out = 0;
}

void hr__tasks_end(struct hr__tasks *tasks)
{
    pthread_mutex_destroy(&tasks->lock);
}

static void *task_main(void *arg)
{
    struct hr__task *task = arg;
    struct hr__tasks *tasks = task->tasks;
    task->run(task);
    pthread_mutex_lock(&tasks->lock);
    task->next = tasks->back;
    tasks->back = task;
    pthread_mutex_unlock(&tasks->lock);
    uint64_t one = 1;
    /* A write to a full counter fails, but the loop is awake then anyway. */
    ssize_t n = write(tasks->wake, &one, sizeof one);
    (void)n;
    return NULL;
}

void hr__task_start(struct hr__tasks *tasks, struct hr__task *task)
{
    task->tasks = tasks;
    tasks->out++;
    if (hr__thread_create(&task->thread, task_main, task)) {
        task->thread = pthread_self();
        task_main(task);
    }
}

void hr__tasks_collect(struct hr__tasks *tasks)
{
    pthread_mutex_lock(&tasks->lock);
    struct hr__task *back = tasks->back;
    tasks->back = NULL;
    pthread_mutex_unlock(&tasks->lock);
    while (back) {
        struct hr__task *task = back;
        back = task->next;
        if (!pthread_equal(task->thread, pthread_self()))
            pthread_join(task->thread, NULL);
        tasks->out--;
        task->done(task);
    }
}
