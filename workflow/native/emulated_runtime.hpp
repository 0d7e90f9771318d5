// SPDX-License-Identifier: MIT
// A GPU whose kernels are executed on the CPU, instruction by instruction. Its memory is the host's, and so are operands,
// reference and comparison. There is no time: nothing is measured on it.
#pragma once

#include "emulated_device.hpp"
#include "host_runtime.hpp"

namespace tileseer {

class EmulatedRuntime : public HostRuntime
{
    public:
    static constexpr const char* backend = "emulated";

    static void* stream() { return nullptr; }

    static void* allocate(std::size_t bytes)
    {
        void* memory = HostRuntime::allocate(bytes);
        if(emulated_device().allocated != nullptr)
        {
            emulated_device().allocated(memory, bytes);
        }
        return memory;
    }

    static void release(void* memory)
    {
        if(emulated_device().released != nullptr)
        {
            emulated_device().released(memory);
        }
        HostRuntime::release(memory);
    }

    static void synchronize()
    {
        const std::string fault = run_emulated_launches();
        if(!fault.empty())
        {
            throw DeviceFault(fault);
        }
    }

    void begin() { throw Refused("an emulated GPU has no time to measure"); }

    static ConvDeviceC device()
    {
        ConvDeviceC found = HostRuntime::device();
        std::strcpy(found.name, "emulated GPU");
        std::strcpy(found.arch, "emulated");
        return found;
    }
};

} // namespace tileseer
