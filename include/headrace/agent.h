/*
 * The agent: a loader as a process of its own, for several ranks and jobs of a host.
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

struct hr_agent_options {
    size_t size;         /* sizeof(struct hr_agent_options) */
    const char *socket;  /* path; NULL (default): hr_agent_default_socket */
    int listener;        /* a bound and listening Unix socket to serve instead, which becomes
                            the agent's; -1 (default): it makes its own */
    int threads;         /* workers; 0 (default): the cores this process may use, less one, at
                            least one */
    const char *cache;   /* of all datasets: a text as headrace/cache.h says; NULL (default): what
                            the first loader of a stream asks for. An unnamed one ends with the
                            agent */
    int idle_ms;         /* ends after so long without a job; < 0 (default): serves until it is
                            stopped */
    const char *metrics; /* "ADDRESS:PORT", e.g. "127.0.0.1:9400": figures in Prometheus's text
                            format over HTTP; NULL (default): none. -ENOTSUP where the library
                            was built without it */
};

/* Fills in the defaults of a struct of `size` bytes, of whatever version. C programs call
 * the next one. */
HR_API void hr_agent_options_init(struct hr_agent_options *options, size_t size);

static inline void hr_agent_options_default(struct hr_agent_options *options)
{
    hr_agent_options_init(options, sizeof *options);
}

struct hr_agent;

/*
 * Makes an agent that listens; it serves in hr_agent_run. On success *out is the caller's.
 * Errors: -EADDRINUSE: another agent serves that socket; -EACCES: the socket's directory is
 * somebody else's or open to others; -EINVAL names the option; -ENAMETOOLONG; -ENOTSUP;
 * -ENOMEM; those of bind.
 */
HR_API HR_NODISCARD int hr_agent_create(struct hr_agent **out,
                                        const struct hr_agent_options *options,
                                        struct hr_error *error);

/* Serves until hr_agent_stop, or until it has been idle for options.idle_ms. Returns 0, or an
 * error after which jobs have been told. Blocks. Once. */
HR_API HR_NODISCARD int hr_agent_run(struct hr_agent *agent, struct hr_error *error);

/* Ends hr_agent_run soon: jobs are told and shared memory is given back. Any thread, and in a
 * signal handler. */
HR_API void hr_agent_stop(struct hr_agent *agent);

/* Frees it; the socket is gone. Accepts NULL. */
HR_API void hr_agent_destroy(struct hr_agent **agent);

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
