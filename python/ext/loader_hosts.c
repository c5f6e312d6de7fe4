/*
 * Converts a loader's list of hosts and the rates of ranks between the library's structs and
 * Python's types.
 *
 * These functions only read a loader. loader.c has the calls that advance one and enforces that
 * one thread makes them at a time.
 */
#include "core.h"

#include <string.h>

static PyObject *host_dict(const struct hr_loader_host *host)
{
    const struct core_number counters[] = {
        {"ranks", (uint64_t)host->ranks},
        {"budget_bytes", host->budget_bytes},
        {"planned_items", host->planned_items},
        {"planned_bytes", host->planned_bytes},
        {"limit_bytes", host->limit_bytes},
        {"used_bytes", host->used_bytes},
        {"fetched", host->fetched},
        {"fetched_bytes", host->fetched_bytes},
        {"missed", host->missed},
        {"stored", host->stored},
        {"stored_bytes", host->stored_bytes},
        {"refused", host->refused},
        {"failures", host->failures},
    };
    PyObject *dict =
        Py_BuildValue("{s:N,s:O,s:O,s:N}", "name", core_text(host->name), "is_self",
                      host->is_self ? Py_True : Py_False, "is_up", host->is_up ? Py_True : Py_False,
                      "problem", core_text(host->problem));
    if (dict && core_put_numbers(dict, counters, sizeof counters / sizeof *counters) < 0)
        Py_CLEAR(dict);
    return dict;
}

PyObject *core_hosts_of(const struct hr_loader *loader)
{
    PyObject *list = PyList_New(0);
    struct hr_loader_host host = {.size = sizeof host};
    for (int i = 0; list && hr_loader_host_get(loader, i, &host) == 0; i++) {
        PyObject *dict = host_dict(&host);
        if (!dict || PyList_Append(list, dict) < 0)
            Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

PyObject *core_rates_of(struct core_state *state, const struct hr_loader *loader)
{
    struct hr_loader_rates rates = {.size = sizeof rates};
    struct hr_error error = {0};
    int r = hr_loader_get_rates(loader, &rates, &error);
    if (r)
        return core_raise(state, r, &error, NULL);
    return Py_BuildValue("{s:i,s:d,s:d,s:d,s:d,s:d,s:d}", "host", rates.host, "own_bytes_per_s",
                         rates.own_bytes_per_s, "peer_bytes_per_s", rates.peer_bytes_per_s,
                         "storage_bytes_per_s", rates.storage_bytes_per_s, "prepare_bytes_per_s",
                         rates.prepare_bytes_per_s, "wait_s", rates.wait_s, "ready_s",
                         rates.ready_s);
}

static int take_rank(struct hr_loader_rates *out, PyObject *rank)
{
    *out = (struct hr_loader_rates){.size = sizeof *out};
    if (!PyTuple_Check(rank)) {
        PyErr_SetString(PyExc_TypeError, "the rates of a rank must be a tuple");
        return -1;
    }
    return PyArg_ParseTuple(rank, "idddddd", &out->host, &out->own_bytes_per_s,
                            &out->peer_bytes_per_s, &out->storage_bytes_per_s,
                            &out->prepare_bytes_per_s, &out->wait_s, &out->ready_s)
               ? 0
               : -1;
}

struct hr_loader_rates *core_rates_take(PyObject *ranks, int *count)
{
    Py_ssize_t n = PySequence_Size(ranks);
    if (n < 0)
        return NULL;
    struct hr_loader_rates *all = n <= INT_MAX ? PyMem_Calloc((size_t)n + 1, sizeof *all) : NULL;
    if (!all) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *rank = PySequence_GetItem(ranks, i);
        int r = rank ? take_rank(&all[i], rank) : -1;
        Py_XDECREF(rank);
        if (r < 0) {
            PyMem_Free(all);
            return NULL;
        }
    }
    *count = (int)n;
    return all;
}
