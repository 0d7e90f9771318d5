// SPDX-License-Identifier: MIT
// The driver's exported functions. Compile with one of TILESEER_CUDA, TILESEER_HIP, TILESEER_HOST and TILESEER_EMULATED.
#ifndef TILESEER_SOURCES
#define TILESEER_SOURCES "unknown"
#endif

#if defined(TILESEER_HOST)
#include "host_runtime.hpp"
namespace tileseer {
using Runtime = HostRuntime;
}
#elif defined(TILESEER_EMULATED)
#include "emulated_runtime.hpp"
namespace tileseer {
using Runtime = EmulatedRuntime;
}
#else
#include "gpu_runtime.hpp"
#endif

#include "driver.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tileseer;

std::string last_error;

std::vector<const ConvKernelC*>& kernels()
{
    static std::vector<const ConvKernelC*> registered;
    return registered;
}

// Made by the first call that needs the device, never before.
std::unique_ptr<Driver<Runtime>>& driver_slot()
{
    static std::unique_ptr<Driver<Runtime>> slot;
    return slot;
}

Driver<Runtime>& driver()
{
    auto& slot = driver_slot();
    if(!slot)
    {
        auto made = std::make_unique<Driver<Runtime>>();
        // A device that does not compute must not give times.
        made->probe();
        slot = std::move(made);
    }
    return *slot;
}

// Runs `body`; an exception becomes a code, its text is kept.
template <typename F>
int guarded(F body)
{
    last_error.clear();
    try
    {
        return body();
    }
    catch(const BadArgument& error)
    {
        last_error = error.what();
        return CONV_BAD_ARGUMENT;
    }
    catch(const DeviceFault& error)
    {
        last_error = error.what();
        return CONV_DEVICE_FAULT;
    }
    catch(const OutOfMemory& error)
    {
        last_error = error.what();
        return CONV_OUT_OF_MEMORY;
    }
    catch(const std::bad_alloc&)
    {
        last_error = "no host memory";
        return CONV_OUT_OF_MEMORY;
    }
    catch(const std::exception& error)
    {
        last_error = error.what();
        return CONV_UNSUPPORTED;
    }
}

const ConvKernelC& kernel_at(int index)
{
    if(index < 0 || static_cast<std::size_t>(index) >= kernels().size())
    {
        throw BadArgument("there is no kernel " + std::to_string(index));
    }
    return *kernels()[static_cast<std::size_t>(index)];
}

const ConvProblemC& convolution(const ConvProblemC* problem)
{
    if(problem == nullptr)
    {
        throw BadArgument("the problem is a null pointer");
    }
    require_convolution(*problem);
    return *problem;
}

template <typename T>
T& given(T* pointer, const char* what)
{
    if(pointer == nullptr)
    {
        throw BadArgument(std::string(what) + " is a null pointer");
    }
    return *pointer;
}

// 1, or 0 with the reason in `why`.
bool supports(const ConvKernelC& kernel, const ConvProblemC& problem, std::string& why)
{
    if(kernel.direction != problem.direction)
    {
        why = "the kernel is for another direction";
        return false;
    }
    if(kernel.ndim < 2)
    {
        why = "this interface has no problems of one dimension";
        return false;
    }
    if(kernel.ndim < 3 && has_depth(problem))
    {
        why = "the kernel has two dimensions, the problem three";
        return false;
    }
    char text[512] = "";
    const bool fits = kernel.supports(&problem, text, sizeof text) == 1;
    why             = text;
    return fits;
}

void require_supported(const ConvKernelC& kernel, const ConvProblemC& problem)
{
    std::string why;
    if(!supports(kernel, problem, why))
    {
        throw Refused(why.empty() ? "the kernel does not support the problem" : why);
    }
}

int has_direction(int direction)
{
    for(const auto* kernel : kernels())
    {
        if(kernel->direction == direction)
        {
            return 1;
        }
    }
    return 0;
}

const ConvOptionsC& valid(const ConvOptionsC* options)
{
    const ConvOptionsC& o = given(options, "options");
    if(o.min_samples < 1 || o.max_samples < o.min_samples || !(o.budget_ms > 0) || !(o.max_noise >= 0) ||
       (o.cache != CONV_COLD && o.cache != CONV_WARM))
    {
        throw BadArgument("the options are out of range");
    }
    return o;
}

} // namespace

extern "C" {

int conv_dispatcher_init(void) { return CONV_OK; }

int conv_dispatcher_cleanup(void)
{
    return guarded([] {
        driver_slot().reset();
        return CONV_OK;
    });
}

const char* conv_dispatcher_version(void) { return "2.0.0+" TILESEER_SOURCES; }

int conv_dispatcher_has_kernels(void) { return has_direction(CONV_FORWARD); }

int conv_dispatcher_has_bwd_data(void) { return has_direction(CONV_BWD_DATA); }

int conv_dispatcher_has_bwd_weight(void) { return has_direction(CONV_BWD_WEIGHT); }

int conv_dispatcher_get_kernel_count(void) { return static_cast<int>(kernels().size()); }

int conv_dispatcher_get_kernel_name(int index, char* buffer, int size)
{
    return guarded([&] {
        const std::string name = kernel_at(index).name;
        if(buffer == nullptr || size <= static_cast<int>(name.size()))
        {
            throw BadArgument("the buffer is too small for the name");
        }
        std::memcpy(buffer, name.c_str(), name.size() + 1);
        return CONV_OK;
    });
}

int conv_dispatcher_is_supported(const ConvProblemC* problem)
{
    return guarded([&] {
        std::string why;
        for(const auto* kernel : kernels())
        {
            if(supports(*kernel, convolution(problem), why))
            {
                return 1;
            }
        }
        last_error = why;
        return 0;
    });
}

float conv_dispatcher_run(const void* a, const void* b, void* c, const ConvProblemC* problem, void* stream)
{
    float milliseconds = 0;
    const int code     = guarded([&] {
        const ConvProblemC& p = convolution(problem);
        given(static_cast<const char*>(a), "a");
        given(static_cast<const char*>(b), "b");
        given(static_cast<char*>(c), "c");
        if(stream != nullptr)
        {
            throw BadArgument("the driver times on a stream of its own; the stream must be null");
        }
        std::string why;
        bool fitting = false;
        for(const auto* kernel : kernels())
        {
            fitting = fitting || (kernel->direction == p.direction && (kernel->ndim == 3 || !has_depth(p)));
            if(supports(*kernel, p, why))
            {
                const ConvOptionsC options{0, 0, 10, 0.005, 1000, 0.2, 0.01, 0, 0, 10, 200, CONV_WARM, 0};
                std::vector<double> samples;
                milliseconds = static_cast<float>(driver().measure_given(*kernel, p, options, a, b, c, samples).median_ms);
                return static_cast<int>(CONV_OK);
            }
        }
        if(fitting)
        {
            throw Refused(why);
        }
        last_error = "no kernel for this direction and dimensionality";
        return static_cast<int>(CONV_NO_KERNEL);
    });
    return code == CONV_OK ? milliseconds : static_cast<float>(code);
}

int conv_dispatcher_abi(void) { return CONV_ABI_VERSION; }

const char* conv_dispatcher_backend(void) { return Runtime::backend; }

const char* conv_dispatcher_last_error(void) { return last_error.c_str(); }

void conv_dispatcher_register(const ConvKernelC* kernel)
{
    if(std::find(kernels().begin(), kernels().end(), kernel) == kernels().end())
    {
        kernels().push_back(kernel);
    }
}

int conv_dispatcher_find_kernel(const char* name)
{
    return guarded([&] {
        const std::string wanted = &given(name, "name");
        for(std::size_t i = 0; i < kernels().size(); ++i)
        {
            if(wanted == kernels()[i]->name)
            {
                return static_cast<int>(i);
            }
        }
        last_error = "no kernel has the name " + wanted;
        return static_cast<int>(CONV_NO_KERNEL);
    });
}

int conv_dispatcher_supports(int index, const ConvProblemC* problem)
{
    return guarded([&] {
        std::string why;
        const bool fits = supports(kernel_at(index), convolution(problem), why);
        last_error      = why;
        return fits ? 1 : 0;
    });
}

int64_t conv_dispatcher_workspace_bytes(int index, const ConvProblemC* problem)
{
    int64_t bytes  = 0;
    const int code = guarded([&] {
        bytes = kernel_at(index).workspace_bytes(&convolution(problem));
        return CONV_OK;
    });
    return code == CONV_OK ? bytes : code;
}

int conv_dispatcher_resources(int index, ConvResourcesC* resources)
{
    return guarded([&] { return kernel_at(index).resources(&given(resources, "resources")); });
}

int conv_dispatcher_device(ConvDeviceC* device)
{
    return guarded([&] {
        given(device, "device") = driver().device();
        return CONV_OK;
    });
}

int conv_dispatcher_probe(void)
{
    return guarded([] {
        driver().probe();
        return CONV_OK;
    });
}

int conv_dispatcher_verify(int index, const ConvProblemC* problem, const ConvOptionsC* options, ConvCheckC* check)
{
    return guarded([&] {
        const ConvKernelC& kernel = kernel_at(index);
        require_supported(kernel, convolution(problem));
        given(check, "check") = driver().verify(kernel, *problem, valid(options));
        return CONV_OK;
    });
}

int conv_dispatcher_measure(int index, const ConvProblemC* problem, const ConvOptionsC* options, double* samples_ms,
                            int capacity, ConvResultC* result)
{
    return guarded([&] {
        const ConvKernelC& kernel = kernel_at(index);
        require_supported(kernel, convolution(problem));
        const ConvOptionsC& o = valid(options);
        if(capacity < o.max_samples)
        {
            throw BadArgument("there is no room for max_samples samples");
        }
        given(samples_ms, "samples_ms");
        given(result, "result");
        std::vector<double> samples;
        *result = driver().measure(kernel, *problem, o, samples);
        std::copy(samples.begin(), samples.end(), samples_ms);
        return CONV_OK;
    });
}
}
