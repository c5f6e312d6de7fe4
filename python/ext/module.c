/*
 * The extension module headrace._core: multi-phase initialisation, stable ABI.
 *
 * The module's state holds its types, exceptions and log function. Exceptions
 * and log function come from the Python package, which is imported first.
 */
#include "core.h"

static PyModuleDef core_module;

static PyObject *module_drain_log(PyObject *module, PyObject *none)
{
    core_log_drain(PyModule_GetState(module));
    Py_RETURN_NONE;
}

static PyObject *module_machine(PyObject *module, PyObject *none)
{
    struct hr_machine machine = {.size = sizeof machine};
    Py_BEGIN_ALLOW_THREADS
        hr_machine_get(&machine);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("{s:i,s:i,s:K,s:K,s:N,s:N}", "cores", machine.cores, "nodes",
                         machine.nodes, "memory_bytes", (unsigned long long)machine.memory_bytes,
                         "page_cache_bytes", (unsigned long long)machine.page_cache_bytes,
                         "processor", core_text(machine.processor), "page_generations",
                         PyBool_FromLong(machine.page_generations));
}

static PyObject *import_name(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *object = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return object;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddType(module, *out) : -1;
}

/* Adds the names of the forms, indexed by enum hr_form. */
static int add_forms(PyObject *module)
{
    PyObject *names = PyList_New(0);
    for (int i = 0; names && hr_form_name((enum hr_form)i); i++) {
        PyObject *name = PyUnicode_FromString(hr_form_name((enum hr_form)i));
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    PyObject *forms = names ? PyList_AsTuple(names) : NULL;
    Py_XDECREF(names);
    if (!forms)
        return -1;
    int r = PyModule_AddObjectRef(module, "forms", forms);
    Py_DECREF(forms);
    return r;
}

/* Adds the phases of a measuring run: their names, in the order of enum hr_stalls_phase, and titles
 * for people. */
static int add_phases(PyObject *module)
{
    PyObject *titles = PyDict_New();
    for (int i = 0; titles && i < HR_STALLS_PHASES; i++) {
        enum hr_stalls_phase phase = (enum hr_stalls_phase)i;
        if (core_put(titles, hr_stalls_phase_name(phase),
                     PyUnicode_FromString(hr_stalls_phase_title(phase))) < 0)
            Py_CLEAR(titles);
    }
    int r = titles ? PyModule_AddObjectRef(module, "stalls_phases", titles) : -1;
    Py_XDECREF(titles);
    return r;
}

static int module_exec(PyObject *module)
{
    struct core_state *state = PyModule_GetState(module);
    if (add_type(module, &core_array_spec, &state->array_type) < 0 ||
        add_type(module, &core_batch_spec, &state->batch_type) < 0 ||
        add_type(module, &core_dataset_spec, &state->dataset_type) < 0 ||
        add_type(module, &core_recipe_spec, &state->recipe_type) < 0 ||
        add_type(module, &core_preparer_spec, &state->preparer_type) < 0 ||
        add_type(module, &core_converter_spec, &state->converter_type) < 0 ||
        add_type(module, &core_loader_spec, &state->loader_type) < 0 ||
        add_type(module, &core_cache_spec, &state->cache_type) < 0 ||
        add_type(module, &core_cache_value_spec, &state->cache_value_type) < 0 ||
        add_type(module, &core_agent_spec, &state->agent_type) < 0 ||
        add_type(module, &core_producer_spec, &state->producer_type) < 0 ||
        add_type(module, &core_stalls_schedule_spec, &state->stalls_schedule_type) < 0 ||
        add_type(module, &core_storage_hold_spec, &state->storage_hold_type) < 0 ||
        add_type(module, &core_meter_spec, &state->meter_type) < 0 ||
        add_type(module, &core_memory_recorder_spec, &state->memory_recorder_type) < 0 ||
        add_type(module, &core_stalls_spec, &state->stalls_type) < 0 ||
        add_type(module, &core_replay_spec, &state->replay_type) < 0 ||
        add_type(module, &core_scenario_spec, &state->scenario_type) < 0 || add_forms(module) < 0 ||
        add_phases(module) < 0)
        return -1;
    state->sample_error = import_name("headrace._errors", "SampleError");
    state->too_many_bad_samples = import_name("headrace._errors", "TooManyBadSamples");
    state->emit_log = import_name("headrace._log", "emit");
    if (!state->sample_error || !state->too_many_bad_samples || !state->emit_log)
        return -1;
    if (core_log_install() != 0) {
        PyErr_SetString(PyExc_RuntimeError, "the log callback could not be installed");
        return -1;
    }
    return PyModule_AddStringConstant(module, "version", hr_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct core_state *state = PyModule_GetState(module);
    Py_VISIT(state->array_type);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->dataset_type);
    Py_VISIT(state->recipe_type);
    Py_VISIT(state->preparer_type);
    Py_VISIT(state->converter_type);
    Py_VISIT(state->loader_type);
    Py_VISIT(state->cache_type);
    Py_VISIT(state->cache_value_type);
    Py_VISIT(state->agent_type);
    Py_VISIT(state->producer_type);
    Py_VISIT(state->stalls_schedule_type);
    Py_VISIT(state->storage_hold_type);
    Py_VISIT(state->meter_type);
    Py_VISIT(state->memory_recorder_type);
    Py_VISIT(state->stalls_type);
    Py_VISIT(state->replay_type);
    Py_VISIT(state->scenario_type);
    Py_VISIT(state->sample_error);
    Py_VISIT(state->too_many_bad_samples);
    Py_VISIT(state->emit_log);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct core_state *state = PyModule_GetState(module);
    Py_CLEAR(state->array_type);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->dataset_type);
    Py_CLEAR(state->recipe_type);
    Py_CLEAR(state->preparer_type);
    Py_CLEAR(state->converter_type);
    Py_CLEAR(state->loader_type);
    Py_CLEAR(state->cache_type);
    Py_CLEAR(state->cache_value_type);
    Py_CLEAR(state->agent_type);
    Py_CLEAR(state->producer_type);
    Py_CLEAR(state->stalls_schedule_type);
    Py_CLEAR(state->storage_hold_type);
    Py_CLEAR(state->meter_type);
    Py_CLEAR(state->memory_recorder_type);
    Py_CLEAR(state->stalls_type);
    Py_CLEAR(state->replay_type);
    Py_CLEAR(state->scenario_type);
    Py_CLEAR(state->sample_error);
    Py_CLEAR(state->too_many_bad_samples);
    Py_CLEAR(state->emit_log);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyMethodDef module_methods[] = {
    {"drain_log", module_drain_log, METH_NOARGS,
     PyDoc_STR("drain_log()\n--\n\nPasses waiting messages of the library to logging.")},
    {"machine", module_machine, METH_NOARGS,
     PyDoc_STR("machine()\n--\n\nWhat this process may use of its machine, as hr_machine_get.")},
    {"order", core_order, METH_VARARGS,
     PyDoc_STR("order(samples, shuffle, seed, epoch)\n--\n\n"
               "The samples of an epoch in order: bytes of uint64.")},
    {"order_replacement", core_order_replacement, METH_VARARGS,
     PyDoc_STR("order_replacement(samples, seed, epoch, position, attempt)\n--\n\n"
               "The position whose sample replaces a bad one.")},
    {"cache_bytes", core_cache_bytes, METH_O,
     PyDoc_STR("cache_bytes(text)\n--\n\nThat a cache asked for with this text may hold.")},
    {"cache_kind", core_cache_kind, METH_O,
     PyDoc_STR("cache_kind(text)\n--\n\n'private', 'kept' or 'hosts', as this text says.")},
    {"pack_write", (PyCFunction)(void (*)(void))core_pack_write, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("pack_write(dataset, path, *, form=1, threads=0, trust=False, max_growth=0.0,\n"
               "           restart=False, overwrite=False, skip=False, progress=None)\n--\n\n"
               "Writes a pack; form: enum hr_form, or -1.")},
    {"pack_unpack", (PyCFunction)(void (*)(void))core_pack_unpack, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("pack_unpack(path, directory, *, threads=0, overwrite=False, skip=False,\n"
               "            progress=None)\n--\n\nWrites the image files of a pack.")},
    {"pack_inspect", core_pack_inspect, METH_O,
     PyDoc_STR("pack_inspect(path)\n--\n\nWhat a pack holds, from its index.")},
    {"is_sound", core_is_sound, METH_O,
     PyDoc_STR("is_sound(data)\n--\n\nWhether the first bytes are those of a sound.")},
    {"form_of", core_form_of, METH_O,
     PyDoc_STR("form_of(data)\n--\n\nThe form of these bytes: 'encoded' unless they are an item.")},
    {"cache_run", core_cache_run, METH_O,
     PyDoc_STR("cache_run(world_size)\n--\n\nThe run that this process belongs to.")},
    {"agent_socket", core_agent_socket, METH_NOARGS,
     PyDoc_STR("agent_socket()\n--\n\nThe socket of this user's agent where none is named.")},
    {"produced", (PyCFunction)(void (*)(void))core_produced, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("produced(count, sample_bytes, name, layout, digest)\n--\n\n"
               "A dataset whose samples producers make, and its recipe.")},
    {"agent_status", core_agent_status, METH_O,
     PyDoc_STR("agent_status(socket)\n--\n\nWhat an agent does just now, as JSON.")},
    {"metrics_text", core_metrics_text, METH_NOARGS,
     PyDoc_STR("metrics_text()\n--\n\nThe metrics of this process's loaders, for Prometheus.")},
    {"memory_analyse", core_memory_analyse, METH_VARARGS,
     PyDoc_STR("memory_analyse(path, h2d_bytes_per_s, d2h_bytes_per_s)\n--\n\n"
               "A record's analysis as JSON; bandwidths of 0: what the record says.")},
    {"memory_write_text", core_memory_write_text, METH_VARARGS,
     PyDoc_STR("memory_write_text(paths, out, columns, h2d_bytes_per_s, d2h_bytes_per_s)\n--\n\n"
               "Writes the report on records, as text.")},
    {"memory_write_page", core_memory_write_page, METH_VARARGS,
     PyDoc_STR("memory_write_page(paths, out, h2d_bytes_per_s, d2h_bytes_per_s)\n--\n\n"
               "Writes the report on records, as an HTML page.")},
    {"memory_compare", core_memory_compare, METH_O,
     PyDoc_STR("memory_compare([before, after])\n--\n\nWhat is different, as JSON.")},
    {"memory_import", core_memory_import, METH_VARARGS,
     PyDoc_STR("memory_import(from, to)\n--\n\nA record of what another tool wrote.")},
    {"plan", (PyCFunction)(void (*)(void))core_plan, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("plan(text, page, trace, *, gpus, batch, ...)\n--\n\n"
               "The plans for a profile, as JSON; page and trace: files to write, or None.")},
    {"storage_check", core_storage_check, METH_O,
     PyDoc_STR("storage_check(paths)\n--\n\nHow much of these files lies in memory.")},
    {"storage_drop", core_storage_drop, METH_O,
     PyDoc_STR("storage_drop(paths)\n--\n\nDrops them from the page cache, then checks.")},
    {"storage_preread", core_storage_preread, METH_O,
     PyDoc_STR("storage_preread(paths)\n--\n\nReads them into the page cache, then checks.")},
    {"storage_measure", (PyCFunction)(void (*)(void))core_storage_measure,
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("storage_measure(paths, depth, seconds)\n--\n\n"
               "How fast storage delivers these files.")},
    {"storage_measure_samples", (PyCFunction)(void (*)(void))core_storage_measure_samples,
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("storage_measure_samples(dataset, indices, depth, seconds)\n--\n\n"
               "How fast a store delivers these samples of a dataset at URLs.")},
    {"stalls_judge", core_stalls_judge, METH_O,
     PyDoc_STR("stalls_judge(evidence)\n--\n\nWhat a segment of a measuring run proves.")},
    {"stalls_notes", core_stalls_notes, METH_VARARGS,
     PyDoc_STR("stalls_notes(segments, unheld)\n--\n\nNotes about judged segments.")},
    {"stalls_pauses", core_stalls_pauses, METH_VARARGS,
     PyDoc_STR("stalls_pauses(wait_s, batch_s, step_s)\n--\n\n"
               "Seconds of each batch that are a pause.")},
    {"stalls_lengths", (PyCFunction)(void (*)(void))core_stalls_lengths,
     METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("stalls_lengths(phases, *, step_s, load_s, ahead, unit, epoch_batches, max_s,\n"
               "               max_batches)\n--\n\n"
               "The batches of a segment, and how many settle before them.")},
    {"stalls_load", core_stalls_load, METH_O,
     PyDoc_STR("stalls_load(root)\n--\n\n"
               "Time on cores: of all processes, and of a process and those below it.")},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = PyDoc_STR("The C side of the headrace package."),
    .m_size = sizeof(struct core_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&core_module);
}
