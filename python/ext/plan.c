/* Module function plan: plans a pipeline and returns the result as JSON; see headrace/plan.h. */
#include "core.h"

#include <headrace/plan.h>

/* Writes what is asked for. */
static int write_all(const struct hr_plan *plan, PyObject *page, PyObject *trace,
                     struct hr_error *error)
{
    int r = 0;
    if (page)
        r = hr_plan_write_page(plan, PyBytes_AsString(page), error);
    if (trace && !r)
        r = hr_plan_write_trace(plan, PyBytes_AsString(trace), error);
    return r;
}

/* Takes the options, which are keywords of the same names, and two paths or None. */
static int take(PyObject *args, PyObject *kwargs, PyObject **text, struct hr_plan_options *o,
                PyObject **paths)
{
    static char *names[] = {"text",
                            "page",
                            "trace",
                            "gpus",
                            "gpus_per_server",
                            "batch",
                            "memory_bytes",
                            "link_bytes_per_s",
                            "network_bytes_per_s",
                            "state_ratio",
                            "gradient_ratio",
                            "rows",
                            "schedule",
                            "stages",
                            "replicas",
                            "microbatch",
                            "recompute",
                            "chunks",
                            NULL};
    unsigned long long memory = 0;
    hr_plan_options_default(o);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SOO|$iiiKddddiiiiiii", names, text, &paths[0],
                                     &paths[1], &o->gpus, &o->gpus_per_server, &o->batch, &memory,
                                     &o->link_bytes_per_s, &o->network_bytes_per_s, &o->state_ratio,
                                     &o->gradient_ratio, &o->rows, &o->schedule, &o->stages,
                                     &o->replicas, &o->microbatch, &o->recompute, &o->chunks))
        return -1;
    o->memory_bytes = memory;
    return 0;
}

PyObject *core_plan(PyObject *module, PyObject *args, PyObject *kwargs)
{
    PyObject *text, *given[2], *paths[2] = {NULL, NULL}, *result = NULL;
    struct hr_plan_options options;
    struct hr_plan *plan = NULL;
    struct hr_error error = {0};
    char *bytes;
    Py_ssize_t length;
    int r;
    if (take(args, kwargs, &text, &options, given) < 0 ||
        PyBytes_AsStringAndSize(text, &bytes, &length) < 0)
        return NULL;
    for (int i = 0; i < 2; i++)
        if (given[i] != Py_None && !PyUnicode_FSConverter(given[i], &paths[i]))
            goto done;
    Py_BEGIN_ALLOW_THREADS
        r = hr_plan_make(&plan, bytes, (size_t)length, "the profile", &options, &error);
        r = r ? r : write_all(plan, paths[0], paths[1], &error);
    Py_END_ALLOW_THREADS
    if (r)
        core_raise(PyModule_GetState(module), r, &error, NULL);
    else
        result = PyUnicode_FromString(hr_plan_json(plan));
    hr_plan_destroy(&plan);
done:
    Py_XDECREF(paths[0]);
    Py_XDECREF(paths[1]);
    return result;
}
