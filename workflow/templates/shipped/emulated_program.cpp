// SPDX-License-Identifier: MIT
// Hands what a program launches to the emulated GPU in another process, `python -m amdgpu_emulator PROGRAM`, which names
// the socket between the two (packages/amdgpu_emulator/src/amdgpu_emulator/program.py). Both speak in messages: eight bytes of length, and so many
// bytes; numbers have eight bytes, texts and contents their length before them.
#include "emulated_device.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include <unistd.h>

extern "C" void tileseer_emulated_install(const tileseer::EmulatedDevice* installed);

namespace {

int channel = -1;
std::map<void*, std::size_t> allocations;
std::set<const void*> bundles;

class Message
{
    public:
    void number(long long value) { append(&value, sizeof value); }

    void text(const void* bytes, std::size_t count)
    {
        number(static_cast<long long>(count));
        append(bytes, count);
    }

    long long read_number()
    {
        long long value = 0;
        take(&value, sizeof value);
        return value;
    }

    void read_text(void* to, std::size_t most)
    {
        const auto count = static_cast<std::size_t>(read_number());
        take(to, count < most ? count : most);
    }

    // Sends it, and becomes the answer. False: the other process has ended.
    bool ask()
    {
        const long long count = static_cast<long long>(content_.size());
        long long answer      = 0;
        if(!all(::write, &count, sizeof count) || !all(::write, content_.data(), content_.size()) ||
           !all(::read, &answer, sizeof answer))
        {
            return false;
        }
        content_.resize(static_cast<std::size_t>(answer));
        at_ = 0;
        return all(::read, &content_[0], content_.size());
    }

    private:
    void append(const void* bytes, std::size_t count) { content_.append(static_cast<const char*>(bytes), count); }

    void take(void* to, std::size_t count)
    {
        std::memcpy(to, content_.data() + at_, count);
        at_ += count;
    }

    template <typename Call, typename Bytes>
    static bool all(Call call, Bytes* bytes, std::size_t count)
    {
        auto* next = reinterpret_cast<char*>(const_cast<void*>(static_cast<const void*>(bytes)));
        while(count > 0)
        {
            const ssize_t done = call(channel, next, count);
            if(done <= 0)
            {
                return false;
            }
            next += done;
            count -= static_cast<std::size_t>(done);
        }
        return true;
    }

    std::string content_;
    std::size_t at_ = 0;
};

int failed(char* why, const char* text)
{
    std::snprintf(why, tileseer::why_bytes, "%s", text);
    return -1;
}

// The number of an answer; a negative one is followed by the reason.
long long outcome(Message& message, bool answered, char* why)
{
    if(!answered)
    {
        return failed(why, channel < 0 ? "there is no GPU: run it with python -m amdgpu_emulator" : "the emulator has ended");
    }
    const long long number = message.read_number();
    if(number < 0)
    {
        message.read_text(why, tileseer::why_bytes - 1);
    }
    return number;
}

// Bytes of the bundle of code objects that the compiler puts into a program: all that its table names.
std::size_t bundle_bytes(const void* bundle)
{
    const char* at = static_cast<const char*>(bundle) + 24;
    const auto next = [&at] {
        unsigned long long value = 0;
        std::memcpy(&value, at, sizeof value);
        at += sizeof value;
        return value;
    };
    unsigned long long end = 0;
    for(unsigned long long left = next(); left > 0; --left)
    {
        const unsigned long long begin = next();
        const unsigned long long size  = next();
        const unsigned long long name  = next();
        at += name;
        end = begin + size > end ? begin + size : end;
    }
    return static_cast<std::size_t>(end);
}

int bind(const char* name, const void* bundle, const unsigned int* sizes, std::size_t shared, void** arguments, char* why)
{
    Message message;
    message.text("kernel", 6);
    message.text(name, std::strlen(name));
    message.number(reinterpret_cast<long long>(bundle));
    message.text(bundle, bundles.insert(bundle).second && channel >= 0 ? bundle_bytes(bundle) : 0);
    const bool answered   = message.ask();
    const long long count = outcome(message, answered, why);
    if(count < 0)
    {
        return -1;
    }
    Message launch;
    launch.text("launch", 6);
    for(int i = 0; i < 6; ++i)
    {
        launch.number(sizes[i]);
    }
    launch.number(static_cast<long long>(shared));
    for(long long i = 0; i < count; ++i)
    {
        launch.text(arguments[i], static_cast<std::size_t>(message.read_number()));
    }
    const bool launched = launch.ask();
    return static_cast<int>(outcome(launch, launched, why));
}

long run(int launch, char* why)
{
    Message message;
    message.text("run", 3);
    message.number(launch);
    message.number(static_cast<long long>(allocations.size()));
    for(const auto& [address, bytes] : allocations)
    {
        message.number(reinterpret_cast<long long>(address));
        message.text(address, bytes);
    }
    const bool answered          = message.ask();
    const long long instructions = outcome(message, answered, why);
    if(instructions >= 0)
    {
        for(const auto& [address, bytes] : allocations)
        {
            message.read_text(address, bytes);
        }
    }
    return static_cast<long>(instructions);
}

// Before main.
struct Installed
{
    Installed()
    {
        const char* number = std::getenv("AMDGPU_EMULATOR");
        channel            = number != nullptr ? std::atoi(number) : -1;
        static const tileseer::EmulatedDevice device{
            bind,
            run,
            [](void* address, std::size_t bytes) { allocations[address] = bytes; },
            [](void* address) { allocations.erase(address); },
        };
        tileseer_emulated_install(&device);
    }
} const installed;

} // namespace
