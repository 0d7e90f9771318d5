// SPDX-License-Identifier: MIT
// What the driver needs of a GPU, for CUDA and HIP.
#pragma once

#include "gpu_api.hpp"
#include "runtime_errors.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#define TILESEER_DEVICE __host__ __device__

namespace tileseer {

template <typename F>
__global__ void for_each_kernel(F body, std::int64_t count)
{
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for(std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    {
        body(i);
    }
}

// Holds the stream until the host has queued a whole sample, so that the host's speed is no part of it. It opens by
// itself after `limit` clocks: a host that cannot queue while the device waits must not hang for ever.
static __global__ void gate_kernel(volatile int* open, volatile int* timed_out, long long limit)
{
    const long long start = clock64();
    while(*open == 0)
    {
        if(clock64() - start > limit)
        {
            *timed_out = 1;
            break;
        }
    }
}

#if defined(TILESEER_CUDA)
__device__ inline long long nanoseconds()
{
    long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Counts the clocks of a span of time; both ends are ticks of the timer, which may be a microsecond apart.
static __global__ void clock_kernel(volatile long long* clocks, volatile long long* span, long long at_least)
{
    const auto tick = [](long long after) {
        long long now = nanoseconds();
        while(now <= after)
        {
            now = nanoseconds();
        }
        return now;
    };
    const long long begin = tick(nanoseconds());
    const long long first = clock64();
    const long long end   = tick(begin + at_least);
    *clocks               = clock64() - first;
    *span                 = end - begin;
}
#else
// Counts the clocks of a span of time, in ticks of the timer with a constant rate.
static __global__ void clock_kernel(volatile long long* clocks, volatile long long* span, long long at_least)
{
    const long long begin = wall_clock64();
    const long long first = clock64();
    long long now         = begin;
    while(now - begin < at_least)
    {
        now = wall_clock64();
    }
    *clocks = clock64() - first;
    *span   = now - begin;
}
#endif

class Runtime
{
    public:
    static constexpr const char* backend = TILESEER_BACKEND;
    using Event                          = TILESEER_GPU(Event_t);

    static constexpr std::size_t band_bytes = std::size_t{1} << 18;
    static constexpr bool checks_bands      = true;

    // Where the tensor behind a band begins.
    static char* placed(char* band, std::size_t, std::size_t) { return band + band_bytes; }

    static void share(void*, std::size_t, const char*, bool) {}
    static void unshare() {}

    Runtime()
    {
        check(TILESEER_GPU(StreamCreate)(&stream_), "create a stream");
        check(TILESEER_GPU(EventCreate)(&begin_), "create an event");
        check(TILESEER_GPU(EventCreate)(&end_), "create an event");
        void* flags = nullptr;
#if defined(TILESEER_CUDA)
        check(cudaHostAlloc(&flags, shared_bytes, cudaHostAllocMapped), "allocate the gate");
#else
        check(hipHostMalloc(&flags, shared_bytes, hipHostMallocMapped | hipHostMallocCoherent), "allocate the gate");
#endif
        gate_ = static_cast<volatile int*>(flags);
    }

    Runtime(const Runtime&)            = delete;
    Runtime& operator=(const Runtime&) = delete;

    ~Runtime()
    {
        // The process may be ending, with the context gone: nothing to do about a failure.
        (void)TILESEER_GPU(EventDestroy)(begin_);
        (void)TILESEER_GPU(EventDestroy)(end_);
        (void)TILESEER_GPU(StreamDestroy)(stream_);
    }

    void* stream() const { return static_cast<void*>(stream_); }

    static void* allocate(std::size_t bytes)
    {
        void* memory      = nullptr;
        const auto status = TILESEER_GPU(Malloc)(&memory, bytes);
        if(status == TILESEER_GPU(ErrorMemoryAllocation))
        {
            (void)TILESEER_GPU(GetLastError)();
            throw OutOfMemory("no device memory for " + std::to_string(bytes) + " bytes");
        }
        check(status, "allocate memory");
        return memory;
    }

    static void release(void* memory) { (void)TILESEER_GPU(Free)(memory); }

    void fill(void* memory, int byte, std::size_t bytes)
    {
        check(TILESEER_GPU(MemsetAsync)(memory, byte, bytes, stream_), "fill memory");
    }

    void copy_out(void* to, const void* from, std::size_t bytes)
    {
        constexpr auto direction = TILESEER_GPU(MemcpyDeviceToHost);
        check(TILESEER_GPU(MemcpyAsync)(to, from, bytes, direction, stream_), "copy from the device");
        synchronize();
    }

    template <typename F>
    void for_each(std::int64_t count, F body)
    {
        if(count <= 0)
        {
            return;
        }
        const std::int64_t blocks = (count + 255) / 256;
        for_each_kernel<<<dim3(static_cast<unsigned int>(blocks < 65536 ? blocks : 65536)), dim3(256), 0, stream_>>>(
            body, count);
        check(TILESEER_GPU(GetLastError)(), "launch a computation");
    }

    void synchronize() { check(TILESEER_GPU(StreamSynchronize)(stream_), "run on the device"); }

    // Throws if a launch was refused (wrong grid, too much shared memory): the context lives on.
    static void check_launch()
    {
        const auto status = TILESEER_GPU(GetLastError)();
        if(status != TILESEER_GPU(Success))
        {
            throw Refused(std::string("the launch failed: ") + TILESEER_GPU(GetErrorString)(status));
        }
    }

    static void forget_errors() { (void)TILESEER_GPU(GetLastError)(); }

    void close_gate()
    {
        gate_[0] = 0;
        gate_[1] = 0;
        gate_kernel<<<1, 1, 0, stream_>>>(gate_, gate_ + 1, gate_clocks);
        check(TILESEER_GPU(GetLastError)(), "launch the gate");
    }

    void open_gate() { gate_[0] = 1; }

    // Whether the gate opened before the host opened it. Valid after synchronizing.
    bool gate_timed_out() const { return gate_[1] != 0; }

    void begin() { check(TILESEER_GPU(EventRecord)(begin_, stream_), "record an event"); }

    void end() { check(TILESEER_GPU(EventRecord)(end_, stream_), "record an event"); }

    double elapsed_ms()
    {
        check(TILESEER_GPU(EventSynchronize)(end_), "run on the device");
        float milliseconds = 0;
        check(TILESEER_GPU(EventElapsedTime)(&milliseconds, begin_, end_), "read the events");
        return static_cast<double>(milliseconds);
    }

    // Clock of the compute units now, or -1 where the device cannot tell.
    double clock_mhz()
    {
        const double ticks_of_ms = timer_khz();
        if(ticks_of_ms <= 0)
        {
            return -1;
        }
        auto* count = reinterpret_cast<volatile long long*>(gate_ + 2);
        clock_kernel<<<1, 1, 0, stream_>>>(count, count + 1, static_cast<long long>(0.05 * ticks_of_ms));
        check(TILESEER_GPU(GetLastError)(), "launch the clock");
        synchronize();
        const double clocks_of_tick = static_cast<double>(count[0]) / static_cast<double>(count[1]);
#if defined(TILESEER_HIP)
        // On some GPUs both counters run at the constant rate.
        if(std::abs(clocks_of_tick - 1) < 0.01)
        {
            return -1;
        }
#endif
        return clocks_of_tick * ticks_of_ms / 1000;
    }

    static void rest(double milliseconds)
    {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
    }

    static double wall_ms()
    {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }

    static ConvDeviceC device();

    private:
    static constexpr long long gate_clocks = 200'000'000;
    // The gate's two flags and the clock's two numbers.
    static constexpr std::size_t shared_bytes = 2 * sizeof(int) + 2 * sizeof(long long);

    // Rate of the timer, or 0 where the device does not say.
    static double timer_khz()
    {
#if defined(TILESEER_CUDA)
        return 1e6;
#else
        int number = 0, khz = 0;
        check(hipGetDevice(&number), "find a device");
        return hipDeviceGetAttribute(&khz, hipDeviceAttributeWallClockRate, number) == hipSuccess ? khz : 0;
#endif
    }

    static void check(TILESEER_GPU(Error_t) status, const char* what)
    {
        if(status != TILESEER_GPU(Success))
        {
            throw DeviceFault(std::string("cannot ") + what + ": " + TILESEER_GPU(GetErrorString)(status));
        }
    }

    TILESEER_GPU(Stream_t) stream_{};
    Event begin_{};
    Event end_{};
    volatile int* gate_{};
};

inline ConvDeviceC Runtime::device()
{
    ConvDeviceC found{};
    int number = 0;
    check(TILESEER_GPU(GetDevice)(&number), "find a device");
#if defined(TILESEER_CUDA)
    cudaDeviceProp properties{};
    const std::size_t llc_of_l2 = 1;
#else
    hipDeviceProp_t properties{};
    // The runtime does not report the size of the memory-side cache (256 MiB on MI300 and MI350) behind the L2s.
    const std::size_t llc_of_l2 = 64;
#endif
    check(TILESEER_GPU(GetDeviceProperties)(&properties, number), "read the device's properties");
    std::snprintf(found.name, sizeof found.name, "%.127s", properties.name);
    const auto* bytes = reinterpret_cast<const unsigned char*>(properties.uuid.bytes);
    std::snprintf(found.uuid, sizeof found.uuid,
                  "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2],
                  bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], bytes[10], bytes[11], bytes[12],
                  bytes[13], bytes[14], bytes[15]);
    (void)TILESEER_GPU(DeviceGetPCIBusId)(found.pci, sizeof found.pci, number);
#if defined(TILESEER_CUDA)
    std::snprintf(found.arch, sizeof found.arch, "sm_%d%d", properties.major, properties.minor);
    (void)cudaDeviceGetAttribute(&found.clock_khz, cudaDevAttrClockRate, number);
#else
    std::snprintf(found.arch, sizeof found.arch, "%.31s", properties.gcnArchName);
    (void)hipDeviceGetAttribute(&found.clock_khz, hipDeviceAttributeClockRate, number);
#endif
    found.llc_bytes     = static_cast<std::int64_t>(properties.l2CacheSize) * llc_of_l2;
    found.memory_bytes  = static_cast<std::int64_t>(properties.totalGlobalMem);
    found.compute_units = properties.multiProcessorCount;
    (void)TILESEER_GPU(DriverGetVersion)(&found.driver_version);
    (void)TILESEER_GPU(RuntimeGetVersion)(&found.runtime_version);
    return found;
}

} // namespace tileseer
