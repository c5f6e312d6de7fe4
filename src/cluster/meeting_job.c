/*
 * Makes a run's name from what launchers put into the environment of all its ranks (meeting.h).
 * torchrun's restart count is not used: each torchrun agent counts for itself, and does not count
 * restarts because of another agent's workers.
 *
 * Open MPI and PMIx come before Slurm: inside a Slurm job, mpirun gives the ranks of its own
 * machine another step than the others.
 */
#include "cluster/meeting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PARTS 5

/* A launcher is recognized by the first of its variables. */
static const struct {
    const char *name;
    const char *variables[PARTS];
} launchers[] = {
    {"HEADRACE_JOB", {"HEADRACE_JOB"}},
    {"torchrun", {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
    {"pmix", {"PMIX_NAMESPACE", "MASTER_ADDR", "MASTER_PORT"}},
    {"openmpi", {"OMPI_MCA_ess_base_jobid", "MASTER_ADDR", "MASTER_PORT"}},
    {"slurm",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"}},
    {"master", {"MASTER_ADDR", "MASTER_PORT"}},
};

static const char *value_of(const char *variable)
{
    const char *value = variable ? getenv(variable) : NULL;
    return value ? value : "";
}

void hr__meeting_job(char *out, size_t room)
{
    char text[4096];
    const char *name = "default", *const *variables = NULL;
    for (size_t i = 0; !variables && i < sizeof launchers / sizeof *launchers; i++)
        if (*value_of(launchers[i].variables[0])) {
            variables = launchers[i].variables;
            name = launchers[i].name;
        }
    size_t length = (size_t)snprintf(text, sizeof text, "%s", name);
    for (int i = 0; variables && i < PARTS && variables[i]; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, " %.512s",
                                   value_of(variables[i]));
    snprintf(out, room, "%s", text);
    /* A digest keeps a name that was cut unique. */
    if (length >= room && room > 20)
        snprintf(out + room - 20, 20, "...%016" PRIx64, XXH3_64bits(text, length));
}
