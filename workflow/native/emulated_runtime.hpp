// SPDX-License-Identifier: MIT
// A GPU whose kernels are executed on the CPU, instruction by instruction. Its memory is the host's, and so are operands,
// reference and comparison. There is no time: nothing is measured on it.
#pragma once

#include "emulated_device.hpp"
#include "host_runtime.hpp"

#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace tileseer {

class EmulatedRuntime : public HostRuntime
{
    public:
    static constexpr const char* backend = "emulated";

    static void* stream() { return nullptr; }

    // A kernel sees of the memory what is shared with it, and nothing around that: a band costs no more than addresses.
    static constexpr std::size_t far_bytes  = std::size_t{1} << 32;
    static constexpr std::size_t band_bytes = far_bytes + (std::size_t{1} << 24);
    static constexpr bool checks_bands      = false;

    // With bands it is only addresses, until `placed` takes some of them.
    static void* allocate(std::size_t bytes)
    {
        if(bytes < band_bytes)
        {
            return HostRuntime::allocate(bytes);
        }
        void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if(memory == MAP_FAILED)
        {
            throw OutOfMemory("no addresses for " + std::to_string(bytes) + " bytes");
        }
        reserved()[memory] = bytes;
        return memory;
    }

    static void release(void* memory)
    {
        const auto found = reserved().find(memory);
        if(found == reserved().end())
        {
            HostRuntime::release(memory);
            return;
        }
        munmap(memory, found->second);
        reserved().erase(found);
    }

    // Where the tensor behind a band begins: a multiple of 4 GiB is so many bytes behind that.
    static char* placed(char* band, std::size_t bytes, std::size_t below)
    {
        const std::size_t behind = reinterpret_cast<std::size_t>(band) + (std::size_t{1} << 24);
        const std::size_t at     = (behind + below + far_bytes - 1) / far_bytes * far_bytes - below;
        const std::size_t page   = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t begin  = at / page * page;
        if(mprotect(reinterpret_cast<void*>(begin), at + bytes - begin, PROT_READ | PROT_WRITE) != 0)
        {
            throw OutOfMemory("no memory for " + std::to_string(bytes) + " bytes");
        }
        return reinterpret_cast<char*>(at);
    }

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
    // Bytes of what `allocate` took of addresses. The driver gives them back at the very end: it outlives all.
    static std::map<void*, std::size_t>& reserved()
    {
        static auto* const sizes = new std::map<void*, std::size_t>;
        return *sizes;
    }

    std::vector<void*> shared_;
};

} // namespace tileseer
