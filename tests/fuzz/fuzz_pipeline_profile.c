/* A profile of a pipeline: any bytes are refused with a message, or give plans that keep to what
 * was asked, the fastest first. */
#include "replay/pipeline_plan.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr_plan_options options;
    struct hr_plan *plan;
    struct hr_error error = {0};
    hr_plan_options_default(&options);
    options.gpus = 4;
    options.batch = 12;
    options.memory_bytes = 1 << 30;
    options.link_bytes_per_s = 1e9;
    if (hr_plan_make(&plan, (const char *)data, size, "input", &options, &error)) {
        if (!error.message[0])
            abort();
        return 0;
    }
    for (int i = 0; i < plan->count; i++) {
        const struct hr__choice *c = &plan->choices[i];
        if (!(c->samples_per_s > 0) || *c->reason || c->devices * c->replicas > options.gpus ||
            c->batch > options.batch || c->memory_bytes > (double)options.memory_bytes ||
            c->bubble < 0 || c->bubble > 1)
            abort();
        if (i && c->samples_per_s > plan->choices[i - 1].samples_per_s)
            abort();
    }
    if (hr_plan_write_text(plan, "/dev/null", 80, &error) ||
        hr_plan_write_page(plan, "/dev/null", &error))
        abort();
    hr_plan_destroy(&plan);
    return 0;
}
