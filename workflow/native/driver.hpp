// SPDX-License-Identifier: MIT
// Measures registered kernels: operands, warm-up, samples, comparison with the reference. `Runtime` is a backend.
#pragma once

#include "reference.hpp"
#include "runtime_errors.hpp"
#include "statistics.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tileseer {

// Throws BadArgument unless the problem is a convolution.
inline void require_convolution(const ConvProblemC& p)
{
    const std::int32_t positive[] = {p.N,        p.G,        p.C,        p.K,          p.input_d,    p.input_h,   p.input_w,
                                     p.filter_z, p.filter_y, p.filter_x, p.stride_d,   p.stride_h,   p.stride_w,
                                     p.split_k,  p.dilation_d, p.dilation_h, p.dilation_w};
    const bool all_positive = std::all_of(std::begin(positive), std::end(positive), [](auto v) { return v >= 1; });
    if(!all_positive || p.pad_d < 0 || p.pad_h < 0 || p.pad_w < 0)
    {
        throw BadArgument("a dimension is less than 1, or a padding less than 0");
    }
    if(p.C % p.G != 0 || p.K % p.G != 0)
    {
        throw BadArgument("C or K is no multiple of G");
    }
    if(p.direction < CONV_FORWARD || p.direction > CONV_BWD_WEIGHT)
    {
        throw BadArgument("the direction is " + std::to_string(p.direction));
    }
    if(output_d(p) < 1 || output_h(p) < 1 || output_w(p) < 1)
    {
        throw BadArgument("the dilated filter is larger than the padded input");
    }
}

inline std::size_t element_bytes(std::int32_t dtype) { return dtype == CONV_FP32 ? 4 : 2; }

// Elements of the operands a, b and of the result c.
struct Sizes
{
    std::int64_t a, b, c;

    explicit Sizes(const ConvProblemC& p)
    {
        const Shape s(p);
        switch(p.direction)
        {
        case CONV_FORWARD: a = s.inputs(), b = s.weights(), c = s.outputs(); break;
        case CONV_BWD_DATA: a = s.outputs(), b = s.weights(), c = s.inputs(); break;
        default: a = s.inputs(), b = s.outputs(), c = s.weights(); break;
        }
    }
};

// Device memory that only grows.
template <typename Runtime>
class Buffer
{
    public:
    Buffer()                         = default;
    Buffer(const Buffer&)            = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { clear(); }

    // At least `bytes` bytes; the content is lost when it has to grow.
    char* reserve(std::size_t bytes)
    {
        if(bytes > size_)
        {
            clear();
            memory_ = static_cast<char*>(Runtime::allocate(bytes));
            size_   = bytes;
        }
        return memory_;
    }

    void clear()
    {
        if(memory_ != nullptr)
        {
            Runtime::release(memory_);
        }
        memory_ = nullptr;
        size_   = 0;
    }

    private:
    char* memory_     = nullptr;
    std::size_t size_ = 0;
};

template <typename Runtime>
class Driver
{
    public:
    ConvDeviceC device() { return runtime_.device(); }

    // Throws DeviceFault unless the device computes a known sum.
    void probe()
    {
        constexpr std::int64_t count = 4096;
        Buffer<Runtime> memory;
        auto* numbers = reinterpret_cast<std::int64_t*>(memory.reserve(count * sizeof(std::int64_t)));
        runtime_.for_each(count, ProbeSum{numbers});
        std::vector<std::int64_t> found(count);
        runtime_.copy_out(found.data(), numbers, count * sizeof(std::int64_t));
        for(std::int64_t i = 0; i < count; ++i)
        {
            if(found[static_cast<std::size_t>(i)] != 3 * i + 1)
            {
                throw DeviceFault("the device computes wrong numbers");
            }
        }
    }

    // Runs the kernel once over a poisoned result and compares it with the reference.
    ConvCheckC verify(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options)
    {
        prepare_blocks(kernel, problem, options);
        const std::int64_t step = sampling(problem, options.verify_millions);
        const float* right      = reference(kernel.dtype, problem, step);
        for(const Block& block : blocks_)
        {
            if(!block.is_input && block.bytes > 0)
            {
                runtime_.fill(block.at, poison, block.bytes);
            }
            runtime_.share(block.at, block.bytes, block.name, block.is_input);
        }
        try
        {
            launch(kernel, problem, Tensors{blocks_[0].at, blocks_[1].at, blocks_[2].at, blocks_[3].at, runtime_.stream()});
            runtime_.synchronize();
        }
        catch(...)
        {
            runtime_.unshare();
            throw;
        }
        runtime_.unshare();
        if(Runtime::checks_bands)
        {
            // What a kernel has spoilt is not kept.
            const std::optional<Prepared> intact = std::exchange(checked_, std::nullopt);
            require_untouched(kernel.dtype, options.seed);
            checked_ = intact;
        }
        const Sizes sizes = Sizes(problem);
        switch(kernel.dtype)
        {
        case CONV_FP16: return compare<Fp16>(problem, sizes, blocks_[2].at, right, step);
        case CONV_BF16: return compare<Bf16>(problem, sizes, blocks_[2].at, right, step);
        default: return compare<Fp32>(problem, sizes, blocks_[2].at, right, step);
        }
    }

    // Appends the samples (milliseconds a launch) to `samples`.
    ConvResultC measure(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options,
                        std::vector<double>& samples)
    {
        prepare(kernel, problem, options);
        ConvResultC result     = time(kernel, problem, options, samples);
        result.workspace_bytes = static_cast<std::int64_t>(workspace_bytes_);
        result.copies          = copies_in_use_;
        result.rotated_bytes =
            options.cache == CONV_WARM ? 0 : static_cast<std::int64_t>(copies_in_use_) * static_cast<std::int64_t>(set_bytes_);
        return result;
    }

    // The same with the caller's operands.
    ConvResultC measure_given(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options,
                              const void* a, const void* b, void* c, std::vector<double>& samples)
    {
        prepared_.reset();
        prepare_workspace(kernel, problem);
        copies_in_use_ = 1;
        set_bytes_     = 0;
        given_         = Tensors{a, b, c, workspace_.reserve(workspace_bytes_), runtime_.stream()};
        ConvResultC result = time(kernel, problem, options, samples);
        given_.reset();
        return result;
    }

    private:
    // What the operands in memory depend on.
    struct Prepared
    {
        ConvProblemC problem;
        std::int32_t dtype;
        std::uint64_t seed;
        std::int32_t copies;
    };

    // A tensor of a kernel under test; before and behind it is a band that nothing may touch.
    struct Block
    {
        const char* name;
        std::size_t bytes;
        bool is_input;
        char* at;
    };

    static constexpr std::size_t alignment = 256;
    // All ones is "not a number" in every type.
    static constexpr int poison = 0xff;

    static std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

    void prepare(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options)
    {
        const Sizes sizes      = Sizes(problem);
        const std::size_t size = element_bytes(kernel.dtype);
        a_bytes_               = aligned(static_cast<std::size_t>(sizes.a) * size);
        b_bytes_               = aligned(static_cast<std::size_t>(sizes.b) * size);
        set_bytes_             = a_bytes_ + b_bytes_ + aligned(static_cast<std::size_t>(sizes.c) * size);
        copies_in_use_         = copies(options);
        prepare_workspace(kernel, problem);

        // Operands do not depend on split-K. Copies that are there already may stay.
        ConvProblemC key = problem;
        key.split_k      = 1;
        if(prepared_ && std::memcmp(&prepared_->problem, &key, sizeof key) == 0 && prepared_->dtype == kernel.dtype &&
           prepared_->seed == options.seed && prepared_->copies >= copies_in_use_)
        {
            return;
        }
        prepared_.reset();
        // All copies at once: small problems have thousands of them.
        const std::size_t bytes = set_bytes_ * static_cast<std::size_t>(copies_in_use_);
        const auto count        = static_cast<std::int64_t>(bytes / size);
        void* pool              = pool_.reserve(bytes);
        switch(kernel.dtype)
        {
        case CONV_FP16: generate<Fp16>(pool, count, options.seed); break;
        case CONV_BF16: generate<Bf16>(pool, count, options.seed); break;
        default: generate<Fp32>(pool, count, options.seed); break;
        }
        runtime_.synchronize();
        prepared_ = Prepared{key, kernel.dtype, options.seed, copies_in_use_};
    }

    // Operands a and b, the result c and the workspace, with bands of poison around them.
    void prepare_blocks(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options)
    {
        prepare_workspace(kernel, problem);
        blocks_[3] = Block{"the workspace", workspace_bytes_, false, nullptr};
        lay_out(guarded_workspace_, &blocks_[3], &blocks_[4], problem.G > 1);
        ConvProblemC key = problem;
        key.split_k      = 1;
        if(checked_ && std::memcmp(&checked_->problem, &key, sizeof key) == 0 && checked_->dtype == kernel.dtype &&
           checked_->seed == options.seed)
        {
            return;
        }
        checked_.reset();
        reference_step_ = 0;
        const Sizes sizes(problem);
        const std::size_t size = element_bytes(kernel.dtype);
        blocks_[0]             = Block{"the operand a", static_cast<std::size_t>(sizes.a) * size, true, nullptr};
        blocks_[1]             = Block{"the operand b", static_cast<std::size_t>(sizes.b) * size, true, nullptr};
        blocks_[2]             = Block{"the output c", static_cast<std::size_t>(sizes.c) * size, false, nullptr};
        lay_out(guarded_, &blocks_[0], &blocks_[3], problem.G > 1);
        for(std::size_t i = 0; i < 2; ++i)
        {
            const auto count = static_cast<std::int64_t>(blocks_[i].bytes / size);
            switch(kernel.dtype)
            {
            case CONV_FP16: generate<Fp16>(blocks_[i].at, count, options.seed + i); break;
            case CONV_BF16: generate<Bf16>(blocks_[i].at, count, options.seed + i); break;
            default: generate<Fp32>(blocks_[i].at, count, options.seed + i); break;
            }
        }
        runtime_.synchronize();
        checked_ = Prepared{key, kernel.dtype, options.seed, 1};
    }

    // Blocks one after the other, each with a band before and a band behind it; everything is poison. Where addresses are
    // free, a multiple of 4 GiB is behind the first 16 bytes of a block with groups, else in its middle: the distances of
    // groups are added to the address, and may be as small as that.
    void lay_out(Buffer<Runtime>& buffer, Block* first, Block* last, bool has_groups)
    {
        std::size_t total = 0;
        for(const Block* block = first; block != last; ++block)
        {
            total += aligned(block->bytes) + 2 * Runtime::band_bytes;
        }
        char* at = buffer.reserve(total);
        if(Runtime::checks_bands)
        {
            runtime_.fill(at, poison, total);
        }
        for(Block* block = first; block != last; ++block)
        {
            const std::size_t middle = block->bytes / 2 / alignment * alignment;
            block->at = Runtime::placed(at, block->bytes, has_groups || middle == 0 ? 16 : middle);
            at += Runtime::band_bytes + aligned(block->bytes) + Runtime::band_bytes;
        }
    }

    // Throws DeviceFault if a kernel has stored to its operands, or to a band around its tensors.
    void require_untouched(std::int32_t dtype, std::uint64_t seed)
    {
        for(const Block& block : blocks_)
        {
            require_poison(block, block.at - Runtime::band_bytes, block.at);
            // What is behind a block up to its alignment belongs to the band.
            require_poison(block, block.at + block.bytes, block.at + aligned(block.bytes) + Runtime::band_bytes);
        }
        for(std::size_t i = 0; i < 2; ++i)
        {
            std::int64_t changed = 0;
            switch(dtype)
            {
            case CONV_FP16: changed = first_changed<Fp16>(blocks_[i], seed + i); break;
            case CONV_BF16: changed = first_changed<Bf16>(blocks_[i], seed + i); break;
            default: changed = first_changed<Fp32>(blocks_[i], seed + i); break;
            }
            if(static_cast<std::size_t>(changed) < blocks_[i].bytes)
            {
                throw stored(blocks_[i], blocks_[i].at + changed);
            }
        }
    }

    void require_poison(const Block& block, const char* begin, const char* end)
    {
        std::vector<char> band(static_cast<std::size_t>(end - begin));
        runtime_.copy_out(band.data(), begin, band.size());
        const auto is_touched = [](char byte) { return byte != static_cast<char>(poison); };
        const auto touched    = std::find_if(band.begin(), band.end(), is_touched);
        if(touched != band.end())
        {
            throw stored(block, begin + (touched - band.begin()));
        }
    }

    static DeviceFault stored(const Block& block, const char* at)
    {
        return DeviceFault("the kernel has stored at offset " + std::to_string(at - block.at) + " of " + block.name +
                           ", which has " + std::to_string(block.bytes) + " bytes" +
                           (block.is_input ? " and is read-only" : ""));
    }

    // Offset of the first byte of an operand that has changed, or its size.
    template <typename T>
    std::int64_t first_changed(const Block& block, std::uint64_t seed)
    {
        using Bits                 = typename T::Bits;
        const auto count           = static_cast<std::int64_t>(block.bytes / sizeof(Bits));
        const std::int64_t strands = std::min<std::int64_t>(count, 1 << 15);
        const std::size_t bytes    = static_cast<std::size_t>(strands) * sizeof(std::int64_t);
        auto* firsts               = reinterpret_cast<std::int64_t*>(partials_.reserve(bytes));
        runtime_.for_each(strands, FirstChanged<T>{{reinterpret_cast<Bits*>(block.at), mixed(seed)}, count, strands, firsts});
        std::vector<std::int64_t> found(static_cast<std::size_t>(strands));
        runtime_.copy_out(found.data(), firsts, bytes);
        return *std::min_element(found.begin(), found.end()) * static_cast<std::int64_t>(sizeof(Bits));
    }

    void prepare_workspace(const ConvKernelC& kernel, const ConvProblemC& problem)
    {
        const std::int64_t needed = kernel.workspace_bytes(&problem);
        if(needed < 0)
        {
            throw Refused("the kernel cannot tell its workspace for this problem");
        }
        workspace_bytes_ = static_cast<std::size_t>(needed);
        workspace_.reserve(workspace_bytes_);
    }

    std::int32_t copies(const ConvOptionsC& options)
    {
        if(options.cache == CONV_WARM)
        {
            return 1;
        }
        if(llc_bytes_ == 0)
        {
            llc_bytes_ = static_cast<std::size_t>(runtime_.device().llc_bytes);
        }
        const std::size_t rotate =
            options.rotate_bytes > 0 ? static_cast<std::size_t>(options.rotate_bytes) : 2 * llc_bytes_;
        const std::size_t wanted = (rotate + set_bytes_ - 1) / set_bytes_;
        return static_cast<std::int32_t>(std::max<std::size_t>(1, std::min<std::size_t>(wanted, 1 << 20)));
    }

    Tensors tensors_of(std::int32_t copy)
    {
        if(given_)
        {
            return *given_;
        }
        char* set = pool_.reserve(0) + set_bytes_ * static_cast<std::size_t>(copy);
        return Tensors{set, set + a_bytes_, set + a_bytes_ + b_bytes_, workspace_.reserve(0), runtime_.stream()};
    }

    template <typename T>
    void generate(void* to, std::int64_t count, std::uint64_t seed)
    {
        runtime_.for_each(count, Generate<T>{static_cast<typename T::Bits*>(to), mixed(seed)});
    }

    // Neighbouring seeds become distant ones: the generator itself counts on from its seed.
    static std::uint64_t mixed(std::uint64_t seed)
    {
        seed = (seed ^ (seed >> 33)) * 0xff51afd7ed558ccdull;
        seed = (seed ^ (seed >> 33)) * 0xc4ceb9fe1a85ec53ull;
        return seed ^ (seed >> 33);
    }

    static double multiply_adds(const ConvProblemC& problem)
    {
        const Shape s(problem);
        return static_cast<double>(s.outputs()) * static_cast<double>(s.C) *
               static_cast<double>(s.filter[0] * s.filter[1] * s.filter[2]);
    }

    // One element in how many is computed by the reference. It shares no factor with any extent of the result, so
    // that every channel, row and column has its turn.
    static std::int64_t sampling(const ConvProblemC& problem, std::int32_t millions)
    {
        const std::int64_t count = Sizes(problem).c;
        auto step = static_cast<std::int64_t>(millions > 0 ? std::ceil(multiply_adds(problem) / (1e6 * millions)) : 1);
        while(std::gcd(step, count) != 1)
        {
            ++step;
        }
        return step;
    }

    // The right result in fp32, one element in `step`; once for all kernels of a problem.
    const float* reference(std::int32_t dtype, const ConvProblemC& problem, std::int64_t step)
    {
        const std::int64_t count = (Sizes(problem).c + step - 1) / step;
        auto* to = reinterpret_cast<float*>(reference_.reserve(static_cast<std::size_t>(count) * sizeof(float)));
        if(reference_step_ != step)
        {
            switch(dtype)
            {
            case CONV_FP16: compute_reference<Fp16>(problem, count, to, step); break;
            case CONV_BF16: compute_reference<Bf16>(problem, count, to, step); break;
            default: compute_reference<Fp32>(problem, count, to, step); break;
            }
            runtime_.synchronize();
            reference_step_ = step;
        }
        return to;
    }

    template <typename T>
    void compute_reference(const ConvProblemC& problem, std::int64_t count, float* to, std::int64_t step)
    {
        using Bits            = typename T::Bits;
        const auto* a = reinterpret_cast<const Bits*>(blocks_[0].at);
        const auto* b = reinterpret_cast<const Bits*>(blocks_[1].at);
        const Shape shape(problem);
        switch(problem.direction)
        {
        case CONV_FORWARD: runtime_.for_each(count, ForwardReference<T>{shape, a, b, to, step}); break;
        case CONV_BWD_DATA: runtime_.for_each(count, BackwardDataReference<T>{shape, a, b, to, step}); break;
        default: runtime_.for_each(count, BackwardWeightReference<T>{shape, a, b, to, step}); break;
        }
    }

    template <typename T>
    ConvCheckC compare(const ConvProblemC& problem, const Sizes& sizes, const void* result, const float* right,
                       std::int64_t step)
    {
        const double length    = std::max(1.0, multiply_adds(problem) / static_cast<double>(sizes.c));
        const double tolerance = relative_tolerance(T::half_ulp, length, problem.split_k);
        // Operands are uniform in (-1, 1): the product of two has variance 1/9.
        const double typical       = std::sqrt(length) / 3;
        const std::int64_t strands = std::min<std::int64_t>(sizes.c, 1 << 15);
        auto* partials             = reinterpret_cast<Partial*>(
            partials_.reserve(static_cast<std::size_t>(strands) * sizeof(Partial)));
        runtime_.for_each(strands, Compare<T>{static_cast<const typename T::Bits*>(result), right, sizes.c, strands,
                                              step, tolerance, typical, partials});
        std::vector<Partial> found(static_cast<std::size_t>(strands));
        runtime_.copy_out(found.data(), partials, found.size() * sizeof(Partial));

        ConvCheckC check{};
        check.elements   = (sizes.c + step - 1) / step;
        check.tolerance  = tolerance * typical;
        double error     = 0;
        double reference = 0;
        for(const Partial& p : found)
        {
            check.not_finite += p.not_finite;
            check.wrong += p.wrong;
            check.non_zero += p.non_zero;
            check.worst = std::max(check.worst, p.worst);
            error += p.error;
            reference += p.reference;
        }
        check.relative_error = reference > 0 ? std::sqrt(error / reference) : (error > 0 ? 1 : 0);
        return check;
    }

    void launch(const ConvKernelC& kernel, const ConvProblemC& problem, const Tensors& t)
    {
        char why[512] = "";
        const int code = kernel.launch(&problem, t.a, t.b, t.c, t.workspace, t.stream, why, sizeof why);
        if(code != CONV_OK)
        {
            runtime_.forget_errors();
            throw Refused(why[0] != 0 ? why : "the launch failed without saying why");
        }
        runtime_.check_launch();
    }

    // One sample: milliseconds a launch of `launches` in a row.
    double sample(const ConvKernelC& kernel, const ConvProblemC& problem, std::int32_t launches, std::int32_t* late)
    {
        runtime_.close_gate();
        runtime_.begin();
        try
        {
            for(std::int32_t i = 0; i < launches; ++i)
            {
                next_copy_ = (next_copy_ + 1) % copies_in_use_;
                launch(kernel, problem, tensors_of(next_copy_));
            }
        }
        catch(...)
        {
            runtime_.open_gate();
            throw;
        }
        runtime_.end();
        runtime_.open_gate();
        const double milliseconds = runtime_.elapsed_ms() / launches;
        *late += runtime_.gate_timed_out();
        return milliseconds;
    }

    ConvResultC time(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options,
                     std::vector<double>& samples)
    {
        ConvResultC result{};
        result.settle_ms   = settle(options.settle_ms);
        const double start = runtime_.wall_ms();
        std::int32_t late  = 0;
        // The first launch loads the code.
        launch(kernel, problem, tensors_of(0));
        runtime_.synchronize();
        const double first         = sample(kernel, problem, 1, &late);
        result.launches_per_sample = 1;
        if(options.hopeless_ms > 0 && first > options.hopeless_ms)
        {
            samples.push_back(first);
            result.stop = CONV_STOP_HOPELESS;
        }
        else
        {
            result.launches_per_sample =
                static_cast<std::int32_t>(std::clamp(std::ceil(options.sample_ms / std::max(first, 1e-6)), 1.0, 256.0));
            warm_up(kernel, problem, options, start, first, result);
            late        = 0;
            result.stop = repeat(kernel, problem, options, start, result.launches_per_sample, samples, &late);
        }
        for(const double value : samples)
        {
            result.device_ms += value * result.launches_per_sample;
        }
        result.median_ms  = median(samples);
        result.noise      = noise(samples);
        result.samples    = static_cast<std::int32_t>(samples.size());
        result.wall_ms    = runtime_.wall_ms() - start;
        result.clock_mhz  = runtime_.clock_mhz();
        result.host_bound = late;
        return result;
    }

    // A heavy kernel makes the device lower its clock for the next tenth of a second, far longer than warm-up lasts.
    // Waits until the clock is back at the highest that was seen; returns the time waited.
    double settle(double limit_ms)
    {
        constexpr double slack = 0.98;
        const double start     = runtime_.wall_ms();
        for(;;)
        {
            const double clock  = runtime_.clock_mhz();
            const double waited = runtime_.wall_ms() - start;
            fastest_mhz_        = std::max(fastest_mhz_, clock);
            if(clock < 0 || clock >= slack * fastest_mhz_)
            {
                return waited;
            }
            if(waited >= limit_ms)
            {
                // It does not come back: this is its clock now.
                fastest_mhz_ = clock;
                return waited;
            }
            runtime_.rest(1);
        }
    }

    // Until two windows of samples agree, or half of the budget is spent.
    void warm_up(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options, double start,
                 double first, ConvResultC& result)
    {
        // Three samples, or one where a single launch is as long as three samples are meant to be.
        const int window = first >= 3 * options.sample_ms ? 1 : 3;
        std::int32_t late    = 0;
        double before        = -1;
        while(runtime_.wall_ms() - start < options.budget_ms / 2)
        {
            std::vector<double> values;
            for(int i = 0; i < window; ++i)
            {
                values.push_back(sample(kernel, problem, result.launches_per_sample, &late));
            }
            result.warmup_samples += window;
            const double now = median(std::move(values));
            if(before > 0 && std::abs(now - before) <= options.warmup_change * before)
            {
                return;
            }
            before = now;
        }
    }

    std::int32_t repeat(const ConvKernelC& kernel, const ConvProblemC& problem, const ConvOptionsC& options,
                        double start, std::int32_t launches, std::vector<double>& samples, std::int32_t* late)
    {
        double device_ms = 0;
        for(;;)
        {
            samples.push_back(sample(kernel, problem, launches, late));
            device_ms += samples.back() * launches;
            const auto count = static_cast<std::int32_t>(samples.size());
            if(count >= options.min_samples && device_ms >= options.min_time_ms)
            {
                const double error = noise(samples);
                if(error >= 0 && error <= options.max_noise)
                {
                    return CONV_STOP_CONVERGED;
                }
            }
            if(count >= options.max_samples)
            {
                return CONV_STOP_SAMPLES;
            }
            if(runtime_.wall_ms() - start >= options.budget_ms)
            {
                return CONV_STOP_BUDGET;
            }
        }
    }

    Runtime runtime_;
    Buffer<Runtime> pool_;
    Buffer<Runtime> workspace_;
    Buffer<Runtime> reference_;
    Buffer<Runtime> partials_;
    Buffer<Runtime> guarded_;
    Buffer<Runtime> guarded_workspace_;
    Block blocks_[4]{}; // a, b, c in `guarded_`, and the workspace
    std::optional<Prepared> prepared_;
    std::optional<Prepared> checked_; // the same of `guarded_`
    std::optional<Tensors> given_;
    std::size_t a_bytes_         = 0;
    std::size_t b_bytes_         = 0;
    std::size_t set_bytes_       = 0;
    std::size_t workspace_bytes_ = 0;
    std::size_t llc_bytes_       = 0;
    double fastest_mhz_          = 0;
    std::int32_t copies_in_use_  = 1;
    std::int32_t next_copy_      = 0;
    std::int64_t reference_step_ = 0; // 0: there is no reference yet
};

} // namespace tileseer
