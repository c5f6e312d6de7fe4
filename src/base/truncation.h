/*
 * Shared mappings of files that somebody may truncate. To touch a page behind the new end
 * raises SIGBUS, which ends the process. The first mapping that a process guards, a forked child
 * anew, installs a handler of SIGBUS (sigaction with SA_SIGINFO and SA_ONSTACK), which looks the
 * address up among the guarded mappings:
 *
 * - It is in one: the handler maps zeros over all of that mapping and returns. This process does
 * not see the file any more. Whoever reads a guarded mapping must therefore take zeros at any
 *   moment, and must be able to find out afterwards that there were some.
 * - It is in none: what was installed before gets the signal. Where that was the default, it is
 *   restored, so the process ends as it would have ended without the handler.
 *
 * A program that installs a handler of its own later, and does not pass the signal on, ends at
 * such an access, as without a guard.
 */
#ifndef HR_BASE_TRUNCATION_H
#define HR_BASE_TRUNCATION_H

#include <stddef.h>

/* Guards a shared mapping. Any thread; a forked child has its parent's guards. There is room for
 * 1,024 mappings; another one is left without a guard. */
void hr__truncation_guard(void *memory, size_t bytes);

/* Ends that, before the mapping ends. Nothing where it has no guard. */
void hr__truncation_unguard(const void *memory);

#endif
