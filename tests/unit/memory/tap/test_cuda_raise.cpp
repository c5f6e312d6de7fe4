// Out of memory in PyTorch: its exception passes through the allocator's C, and the tap is as
// before.
#include <headrace/tap.h>

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

extern "C" {
#include "standin_cudart.h"
}

static int fail(const char *what)
{
    std::fprintf(stderr, "%s\n", what);
    return 1;
}

int main()
{
    void *library = dlopen("libcudart.so.12", RTLD_NOW);
    void *block = hr_tap_cuda_malloc(100, 0, nullptr);
    if (!block || !library || !dlopen("libc10.so", RTLD_NOW | RTLD_LOCAL))
        return fail("the stand-ins are not there");
    standin *cuda = reinterpret_cast<standin_fn *>(dlsym(library, "standin_cudart"))();
    cuda->refuse = 2;
    try {
        hr_tap_cuda_malloc(3 << 20, 1, nullptr);
        return fail("nothing was thrown");
    } catch (const std::runtime_error &error) {
        if (std::strncmp(error.what(), "CUDA out of memory. Tried to allocate 3.00 MiB on device 1",
                         58) != 0)
            return fail(error.what());
    }
    if (cuda->device != 0 || cuda->last_error != 0)
        return fail("the thread's device or the error stayed");
    cuda->refuse = 0;
    hr_tap_cuda_free(block, 100, 0, nullptr);
    return cuda->live == 0 ? 0 : fail("a block stayed");
}
