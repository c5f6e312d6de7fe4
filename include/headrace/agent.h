/*
 * The agent: the engine as a process of its own, for several ranks and jobs of a host.
 *
 * Jobs attach with options of their loader (headrace/loader.h: agent, stream, join, lag,
 * window). Those that name the same stream get the same batches: each sample of an epoch is
 * fetched and prepared once for all of them, in shared memory that they map copy-on-write.
 * Ranks of one job and jobs with orders of their own are streams beside each other, over one
 * pool of threads and one cache; the batch that is due first is prepared first.
 *
 * An agent serves the user who started it, over a Unix socket that only he can open.
 *
 * Source of the idea: CoorDL's coordinated prep (Mohan et al., Analyzing and Mitigating Data
 * Stalls in DNN Training, VLDB 2021, section 4.3).
 */
#ifndef HEADRACE_AGENT_H
#define HEADRACE_AGENT_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The socket of this user's agent where none is named: HEADRACE_AGENT, else
 * $XDG_RUNTIME_DIR/headrace/agent.sock, else /tmp/headrace-UID/agent.sock. Writes at most
 * `capacity` bytes with the terminating zero; returns the length without it.
 */
HR_API size_t hr_agent_default_socket(char *buffer, size_t capacity);

/*
 * What an agent does just now, as JSON (docs/agent.md lists the keys): its threads and CPU
 * time, streams, their ranks, subscribers, queues, rates since they began, cache, reads.
 * `socket` may be NULL: the default one. On success *json is the caller's, freed with
 * hr_text_free. Errors: -ENOENT, -ECONNREFUSED: no agent serves it; -EPROTO: another
 * version; -ETIMEDOUT: it does not answer; -ENOMEM. Blocks, two seconds at most.
 */
HR_API HR_NODISCARD int hr_agent_status(const char *socket, char **json, struct hr_error *error);

/*
 * Records what an agent's threads and jobs do for `seconds` (up to 600), and gives it as a
 * Chrome trace (JSON), which chrome://tracing and ui.perfetto.dev show. Blocks for that
 * time. Ownership and errors as above; -EBUSY: somebody else is recording.
 */
HR_API HR_NODISCARD int hr_agent_trace(const char *socket, double seconds, char **json,
                                       struct hr_error *error);

/* Asks an agent to end; returns when it has. Errors as for hr_agent_status. */
HR_API HR_NODISCARD int hr_agent_end(const char *socket, struct hr_error *error);

/* Frees a text. Accepts NULL. */
HR_API void hr_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
