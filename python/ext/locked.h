/*
 * Methods that hold their object's lock where Python has no GIL.
 *
 * With the GIL one thread at a time runs a method, until the method releases the GIL. Without it
 * (free-threaded Python) the same is true of each object: the wrapped method runs in a critical
 * section, which Py_BEGIN_ALLOW_THREADS leaves and Py_END_ALLOW_THREADS enters again. What comments
 * here say of the GIL therefore holds for the object's lock. Types whose objects never change need
 * none of this.
 */
#ifndef HEADRACE_PYTHON_LOCKED_H
#define HEADRACE_PYTHON_LOCKED_H

#include <Python.h>

#ifdef Py_GIL_DISABLED

/* Begins and ends a block. */
#define CORE_LOCK(object) Py_BEGIN_CRITICAL_SECTION(object)
#define CORE_UNLOCK       Py_END_CRITICAL_SECTION()

/* The wrapper of a method, getter or setter, for tables. */
#define CORE_LOCKED(method) method##_locked

#define CORE_WRAPPER(result_type, method, parameters, arguments)                                   \
    static result_type method##_locked parameters                                                  \
    {                                                                                              \
        result_type result;                                                                        \
        CORE_LOCK(self);                                                                           \
        result = method arguments;                                                                 \
        CORE_UNLOCK;                                                                               \
        return result;                                                                             \
    }                                                                                              \
    _Static_assert(1, "")

#else

#define CORE_LOCK(object)                                                                          \
    do {                                                                                           \
    } while (0)
#define CORE_UNLOCK                                                                                \
    do {                                                                                           \
    } while (0)
#define CORE_LOCKED(method)                                      method
#define CORE_WRAPPER(result_type, method, parameters, arguments) _Static_assert(1, "")

#endif

/* Define the wrapper: of a method without keywords, of one with keywords, of a getter, a setter. */
#define CORE_METHOD(method)                                                                        \
    CORE_WRAPPER(PyObject *, method, (PyObject * self, PyObject * argument), (self, argument))
#define CORE_KEYWORDS(method)                                                                      \
    CORE_WRAPPER(PyObject *, method, (PyObject * self, PyObject * arguments, PyObject * keywords), \
                 (self, arguments, keywords))
#define CORE_GETTER(method)                                                                        \
    CORE_WRAPPER(PyObject *, method, (PyObject * self, void *closure), (self, closure))
#define CORE_SETTER(method)                                                                        \
    CORE_WRAPPER(int, method, (PyObject * self, PyObject * value, void *closure),                  \
                 (self, value, closure))

#endif
