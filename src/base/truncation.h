/*
 * Protection against truncation of memory-mapped files. Touching a page past a mapped file's new
 * end raises SIGBUS, which by default kills the process. The first mapping that a process guards
 * installs a SIGBUS handler (sigaction with SA_SIGINFO and SA_ONSTACK); a forked child installs it
 * again. The handler looks up the fault address among the guarded mappings:
 *
 * - In a guarded mapping: the handler maps zeros over the whole mapping and returns. This process
 *   no longer sees the file. Code that reads a guarded mapping must therefore accept zeros at any
 *   moment, and must be able to detect them afterwards.
 * - In no guarded mapping: the handler passes the signal to the previous handler. If that was the
 *   default action, it is restored, so the process dies as it would have without this handler.
 *
 * If the program later installs a handler that does not pass the signal on, such an access kills
 * the process, as without a guard.
 */
#ifndef HR_BASE_TRUNCATION_H
#define HR_BASE_TRUNCATION_H

#include <stddef.h>

/* Guards a shared mapping. Any thread may call this. A forked child inherits its parent's guards.
 * At most 1,024 mappings can be guarded; further ones stay unguarded. */
void hr__truncation_guard(void *memory, size_t bytes);

/* Removes the guard; call it before unmapping. Does nothing if the mapping has no guard. */
void hr__truncation_unguard(const void *memory);

#endif
