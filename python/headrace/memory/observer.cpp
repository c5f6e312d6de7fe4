/*
 * Observes PyTorch's operators from below Python, for recordings of memory (observer.h).
 *
 * A fallback of the dispatcher on a key that stands below autograd and below Python's dispatch
 * modes: it sees what a TorchDispatchMode sees that was entered first, without running Python.
 * The key is `Fake`: no operator has a kernel for it, and it is in nobody's set of keys but that
 * of a thread which records (and of the backward passes that the thread starts). Where PyTorch has
 * a fallback of its own there, to register this one fails, and Python's mode records.
 *
 * What a kernel calls inside is not observed, as in Python's modes: keys from here on upwards are
 * excluded while it runs.
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

/* Of torch/csrc/Storage.h, which needs Python's headers. */
struct _object *THPStorage_Wrap(c10::Storage storage);

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr DispatchKey KEY = DispatchKey::Fake;
static_assert(KEY < DispatchKey::Python, "the key must stand below Python's dispatch modes");
constexpr DispatchKeySet BELOW = DispatchKeySet(DispatchKeySet::FULL_AFTER, KEY);
/* What brings lazy tensors (conjugated, negated, zero) into being goes on within kernels. */
const DispatchKeySet NOT_BELOW = (DispatchKeySet(DispatchKeySet::FULL) ^ BELOW)
                                     .remove(DispatchKey::ZeroTensor)
                                     .remove(DispatchKey::Conjugate)
                                     .remove(DispatchKey::Negative);

const struct observer_core *core;
std::atomic<struct memory *> recording{nullptr}; /* changes with the GIL */
torch::Library *library; /* never destroyed: other threads may be on their way to it */

/* What is known of operators, by their schemas; with the GIL. */
struct Known {
    c10::OperatorName name; /* another operator's may have the address later */
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
    /* Tensors of a dispatch of their own are made of others, which come here themselves; a number
     * that was wrapped for this call alone is none. */
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

/* The last `count` of a stack. */
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

/* As in events. */
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
    } catch (const std::exception &) { /* one whose memory must not be asked for */
        *out = {0, 0, -1};
    }
}

struct _object *storage_of(const void *tensor)
{
    return THPStorage_Wrap(impl_of(tensor)->unsafe_storage());
}

/* torch's names of types, which differ from C++'s. */
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
        /* It has ended: this thread comes here no more. */
        c10::impl::tls_set_dispatch_key_included(KEY, false);
        op.redispatchBoxed(keys & BELOW, stack);
        return;
    }
    Tensors arguments, results;
    struct observed_call its;
    const void *what = nullptr;
    struct observed_tensors given = {};
    /* They live until all is recorded: an operator may let go of what it was given. */
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
