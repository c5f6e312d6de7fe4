/*
 * The agent: a loader in a process of its own, shared by several ranks and jobs of a host.
 *
 * Jobs attach through the options of their loader (headrace/loader.h: agent, stream, join, lag,
 * window). Jobs that name the same stream get the same batches: the agent reads and prepares each
 * sample of an epoch once for all of them, in shared memory that they map copy-on-write. The
 * ranks of one job, and jobs with orders of their own, have separate streams on one thread pool
 * and one cache; the agent prepares the batch that is due first.
 *
 * An agent serves the user who started it, over a Unix socket that only this user can open.
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
    int listener;        /* a bound and listening Unix socket to serve instead, owned by the
                            agent from then on; -1 (default): it makes its own */
    int threads;         /* workers; 0 (default): the cores this process may use, minus one, but
                            at least one */
    const char *cache;   /* for all datasets: a text as described in headrace/cache.h; NULL
                            (default): what the first loader of a stream asks for. A private
                            cache ends with the agent */
    int idle_ms;         /* end after this time without a job; < 0 (default): serve until
                            stopped */
    const char *metrics; /* "ADDRESS:PORT", e.g. "127.0.0.1:9400": serve metrics in Prometheus's
                            text format over HTTP; NULL (default): none. -ENOTSUP if the library
                            was built without it */
};

/* Sets the defaults of a struct of `size` bytes, of any version. C programs call
 * the next function. */
HR_API void hr_agent_options_init(struct hr_agent_options *options, size_t size);

static inline void hr_agent_options_default(struct hr_agent_options *options)
{
    hr_agent_options_init(options, sizeof *options);
}

struct hr_agent;

/*
 * Makes an agent and starts to listen; hr_agent_run serves. On success the caller owns *out.
 * Errors: -EADDRINUSE: another agent serves that socket; -EACCES: the socket's directory
 * belongs to another user or is open to others; -EINVAL names the option; -ENAMETOOLONG;
 * -ENOTSUP; -ENOMEM; those of bind.
 */
HR_API HR_NODISCARD int hr_agent_create(struct hr_agent **out,
                                        const struct hr_agent_options *options,
                                        struct hr_error *error);

/* Serves until hr_agent_stop is called or the agent was idle for options.idle_ms. Returns 0, or
 * an error, after it has notified the jobs. Blocks. Call it once. */
HR_API HR_NODISCARD int hr_agent_run(struct hr_agent *agent, struct hr_error *error);

/* Makes hr_agent_run return soon; it notifies the jobs and frees shared memory. May be called
 * from any thread and in a signal handler. */
HR_API void hr_agent_stop(struct hr_agent *agent);

/* Frees the agent and removes its socket. Accepts NULL. */
HR_API void hr_agent_destroy(struct hr_agent **agent);

/*
 * Writes the path of the default socket of this user's agent: HEADRACE_AGENT, else
 * $XDG_RUNTIME_DIR/headrace/agent.sock, else /tmp/headrace-UID/agent.sock. Writes at most
 * `capacity` bytes with the terminating zero; returns the length without it.
 */
HR_API size_t hr_agent_default_socket(char *buffer, size_t capacity);

/*
 * Gets the current state of an agent as JSON (docs/agent.md lists the keys): its threads and CPU
 * time, streams, their ranks, subscribers, queues, rates since they began, cache, reads.
 * `socket` may be NULL: the default one. On success the caller owns *json and frees it with
 * hr_text_free. Errors: -ENOENT, -ECONNREFUSED: no agent serves it; -EPROTO: another
 * version; -ETIMEDOUT: it does not answer; -ENOMEM. Blocks for at most two seconds.
 */
HR_API HR_NODISCARD int hr_agent_status(const char *socket, char **json, struct hr_error *error);

/*
 * Records the activity of an agent's threads and jobs for `seconds` (up to 600) and returns it as
 * a Chrome trace (JSON), for chrome://tracing and ui.perfetto.dev. Blocks for that time.
 * Ownership and errors as above; -EBUSY: another recording is running.
 */
HR_API HR_NODISCARD int hr_agent_trace(const char *socket, double seconds, char **json,
                                       struct hr_error *error);

/* Asks an agent to end and waits until it has ended. Errors as for hr_agent_status. */
HR_API HR_NODISCARD int hr_agent_end(const char *socket, struct hr_error *error);

/* Frees a text that one of these functions returned. Accepts NULL. */
HR_API void hr_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
