// A stand-in for PyTorch's libc10: its way of failing, which throws.
#include <cstdint>
#include <stdexcept>

namespace c10
{
namespace detail
{
__attribute__((visibility("default"))) void torchCheckFail(const char *function, const char *file,
                                                           uint32_t line, const char *message);

void torchCheckFail(const char *, const char *, uint32_t, const char *message)
{
    throw std::runtime_error(message);
}
} // namespace detail
} // namespace c10
