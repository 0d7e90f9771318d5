// SPDX-License-Identifier: MIT
// A GPU whose kernels are executed on the CPU, instruction by instruction. Its memory is the host's, and so are operands,
// reference and comparison. There is no time: nothing is measured on it.
#pragma once

#include "emulated_device.hpp"
#include "host_runtime.hpp"

#include <vector>

namespace tileseer {

class EmulatedRuntime : public HostRuntime
{
    public:
    static constexpr const char* backend = "emulated";

    static void* stream() { return nullptr; }

    // A kernel sees of the memory what is shared with it, and nothing around that: a band costs no more than addresses.
    static constexpr std::size_t band_bytes = std::size_t{1} << 24;
    static constexpr bool checks_bands      = false;

    void share(void* memory, std::size_t bytes, const char* name, bool is_input)
    {
        if(emulated_device().shared != nullptr)
        {
            emulated_device().shared(memory, bytes, name, is_input);
            shared_.push_back(memory);
        }
    }

    void unshare()
    {
        for(void* memory : shared_)
        {
            emulated_device().released(memory);
        }
        shared_.clear();
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

    private:
    std::vector<void*> shared_;
};

} // namespace tileseer
