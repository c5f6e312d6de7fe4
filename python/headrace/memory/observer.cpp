/*
 * Observes PyTorch's operators for memory recordings, without running Python (observer.h).
 *
 * The observer is a dispatcher fallback on a key below autograd and below Python's dispatch modes.
 * So it sees the same calls as a TorchDispatchMode that was entered first. The key is `Fake`: no
 * operator has a kernel for it, and only the recording thread (and the backward passes that it
 * starts) includes it in its dispatch keys. If PyTorch has a fallback of its own on this key,
 * registering ours fails, and the mode in Python records instead.
 *
 * Operators that a kernel calls are not observed, as with modes in Python: this key and those above
 * it are excluded while the kernel runs.
 */
#include "observer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>

/* Declared in torch/csrc/Storage.h, which needs Python's headers. */
struct _object *THPStorage_Wrap(c10::Storage storage);

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr DispatchKey KEY = DispatchKey::Fake;
static_assert(KEY < DispatchKey::Python, "the key must stand below Python's dispatch modes");
constexpr DispatchKeySet BELOW = DispatchKeySet(DispatchKeySet::FULL_AFTER, KEY);
/* Excluded while a kernel runs. The keys that materialise lazy tensors (conjugated, negated, zero)
 * stay enabled. */
const DispatchKeySet NOT_BELOW = (DispatchKeySet(DispatchKeySet::FULL) ^ BELOW)
                                     .remove(DispatchKey::ZeroTensor)
                                     .remove(DispatchKey::Conjugate)
                                     .remove(DispatchKey::Negative);

const struct observer_core *core;
std::atomic<struct memory *> recording{nullptr}; /* written with the GIL held */
torch::Library *library; /* never destroyed: other threads may be about to call into it */

/* Descriptions of operators, by the address of their schema. Guarded by the GIL. */
struct Known {
    c10::OperatorName name; /* to detect that another operator reuses the address */
    const void *op;
};
std::unordered_map<const void *, Known> operators;

struct Locked {
    int state = core->lock();
    ~Locked() { core->unlock(state); }
};

/* ---- tensors ---- */

using Tensors = c10::SmallVector<observed_tensor, 16>;

void add_tensor(Tensors &out, const c10::IValue &value, uint32_t argument)
{
    const c10::TensorImpl *impl = value.unsafeToTensorImpl();
    /* Skip tensor subclasses with a dispatch of their own: the operators that they call on their
     * inner tensors are observed. Skip numbers that were wrapped as tensors for this call. */
    if (impl == c10::UndefinedTensorImpl::singleton() || impl->is_python_dispatch() ||
        impl->is_wrapped_number())
        return;
    uint64_t storage = 0;
    if (impl->has_storage())
        storage = (uint64_t)(uintptr_t)impl->unsafe_storage().unsafeGetStorageImpl();
    out.push_back({storage, impl, argument});
}

void add(Tensors &out, const c10::IValue &value, uint32_t argument)
{
    if (value.isTensor()) {
        add_tensor(out, value, argument);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
        for (const c10::IValue &item : value.toListRef())
            if (item.isTensor())
                add_tensor(out, item, argument);
    } else if (value.isTuple()) {
        for (const c10::IValue &item : value.toTupleRef().elements())
            add(out, item, argument);
    }
}

/* Adds the tensors of the last `count` values of a stack. Returns a bit mask of those values that
 * are True. */
uint64_t add_last(Tensors &out, const torch::jit::Stack &stack, size_t count)
{
    uint64_t truths = 0;
    const size_t first = stack.size() - count;
    for (size_t i = 0; i < count; i++) {
        const c10::IValue &value = stack[first + i];
        if (i < 64 && value.isBool() && value.toBool())
            truths |= UINT64_C(1) << i;
        add(out, value, (uint32_t)i);
    }
    return truths;
}

const c10::TensorImpl *impl_of(const void *tensor)
{
    return static_cast<const c10::TensorImpl *>(tensor);
}

/* Returns the device as struct hr_memory_event numbers it. */
int32_t device_of(const c10::TensorImpl *impl)
{
    const c10::Device device = impl->device();
    if (device.is_cpu())
        return 0;
    if (device.is_meta() || device.index() > 15)
        return -1;
    return device.has_index() ? device.index() + 1 : 1;
}

void look(const void *tensor, struct observed_storage *out)
{
    const c10::TensorImpl *impl = impl_of(tensor);
    *out = {0, 0, -1};
    try {
        const c10::Storage &storage = impl->unsafe_storage();
        out->bytes = storage.nbytes();
        out->data = (uint64_t)(uintptr_t)storage.data();
        out->device = device_of(impl);
    } catch (const std::exception &) { /* a storage that refuses to give its address */
        *out = {0, 0, -1};
    }
}

struct _object *storage_of(const void *tensor)
{
    return THPStorage_Wrap(impl_of(tensor)->unsafe_storage());
}

/* Returns torch's Python name of a type; NULL if it is the C++ name in lower case. */
const char *type_name(c10::ScalarType type)
{
    switch (type) {
    case c10::ScalarType::Byte: return "uint8";
    case c10::ScalarType::Char: return "int8";
    case c10::ScalarType::Short: return "int16";
    case c10::ScalarType::Int: return "int32";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::ComplexHalf: return "complex32";
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    case c10::ScalarType::Bool: return "bool";
    case c10::ScalarType::BFloat16: return "bfloat16";
    default: return nullptr;
    }
}

void text_of(const void *tensor, char *out, size_t size)
{
    std::string text = "[";
    const c10::TensorImpl *impl = impl_of(tensor);
    try {
        for (int64_t length : impl->sizes()) {
            text += text.size() > 1 ? ", " : "";
            text += std::to_string(length);
        }
        text += "] ";
        const c10::ScalarType type = c10::typeMetaToScalarType(impl->dtype());
        const char *name = type_name(type);
        if (name) {
            text += name;
        } else { /* Float8_e4m3fn, UInt16, ... */
            for (const char *c = c10::toString(type); *c; c++)
                text += (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
        }
    } catch (const std::exception &) {
        text = "";
    }
    std::snprintf(out, size, "%s", text.c_str());
}

/* ---- operators ---- */

const void *known(struct memory *m, const c10::OperatorHandle &op)
{
    const c10::OperatorName &name = op.operator_name();
    auto found = operators.find(&op.schema());
    if (found != operators.end() && found->second.name == name)
        return found->second.op;
    const void *its = core->describe(m, name.name.c_str(), name.overload_name.c_str());
    operators.insert_or_assign(&op.schema(), Known{name, its});
    return its;
}

void call(const c10::OperatorHandle &op, DispatchKeySet keys, torch::jit::Stack *stack)
{
    c10::impl::ExcludeDispatchKeyGuard guard(NOT_BELOW);
    op.redispatchBoxed(keys & BELOW, stack);
}

void report_failure(struct observed_call *its, const char *text, bool is_out_of_memory)
{
    Locked locked;
    core->failed(its, text, is_out_of_memory);
}

void observe(const c10::OperatorHandle &op, DispatchKeySet keys, torch::jit::Stack *stack)
{
    if (!recording.load(std::memory_order_relaxed)) {
        /* The recording has ended: stop observing in this thread. */
        c10::impl::tls_set_dispatch_key_included(KEY, false);
        op.redispatchBoxed(keys & BELOW, stack);
        return;
    }
    Tensors arguments, results;
    struct observed_call its;
    const void *what = nullptr;
    struct observed_tensors given = {};
    /* Keep the arguments alive until the call is recorded: the operator may release them. */
    c10::SmallVector<c10::IValue, 8> held;
    const size_t count = op.schema().arguments().size();
    {
        Locked locked;
        struct memory *m = recording.load(std::memory_order_relaxed);
        what = m ? known(m, op) : nullptr;
        if (what) {
            held.append(stack->end() - (ptrdiff_t)count, stack->end());
            given.truths = add_last(arguments, *stack, count);
            given.all = arguments.data();
            given.count = arguments.size();
            core->before(m, &its, what, &given);
        }
    }
    if (!what) {
        call(op, keys, stack);
        return;
    }
    try {
        call(op, keys, stack);
    } catch (const c10::OutOfMemoryError &error) {
        report_failure(&its, error.what(), true);
        throw;
    } catch (const std::exception &error) {
        report_failure(&its, error.what(), false);
        throw;
    }
    add_last(results, *stack, op.schema().returns().size());
    const struct observed_tensors gave = {results.data(), results.size(), 0};
    Locked locked;
    core->after(&its, &given, &gave);
}

const struct observer_torch functions = {OBSERVER_VERSION, look, storage_of, text_of};

} // namespace

extern "C" const struct observer_torch *
headrace_observer_begin(const struct observer_core *its_core, struct memory *m, char *problem,
                        size_t size)
{
    if (its_core->version != OBSERVER_VERSION) {
        std::snprintf(problem, size, "it was compiled for another version of headrace");
        return nullptr;
    }
    try {
        core = its_core;
        if (!library) {
            auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "_", KEY, __FILE__,
                                                         __LINE__);
            made->fallback(torch::CppFunction::makeFromBoxedFunction<&observe>());
            library = made.release();
        }
        operators.clear();
        recording = m;
        c10::impl::tls_set_dispatch_key_included(KEY, true);
    } catch (const std::exception &error) {
        std::snprintf(problem, size, "%s", error.what());
        return nullptr;
    }
    return &functions;
}

extern "C" void headrace_observer_end(void)
{
    recording = nullptr;
    c10::impl::tls_set_dispatch_key_included(KEY, false);
}
