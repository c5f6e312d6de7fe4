/*
 * Helpers for all files of headrace._core.MemoryRecorder: record an event, clear an exception.
 * They call none of the other files.
 */
#include "memory_inside.h"

void memory_record(struct memory *m, struct hr_memory_event event)
{
    /* Another thread may have ended the recording while Python code ran. */
    if (!m->recorder)
        return;
    event.phase = atomic_load_explicit(&m->phase, memory_order_relaxed);
    if (event.device && event.device != HR_MEMORY_LIBRARIES)
        event.flags |= HR_MEMORY_HOST_TIME;
    hr_memory_record(m->recorder, &event);
}

void memory_forget(void)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
}
