// SPDX-License-Identifier: MIT
#include "dispatcher.hpp"

#include "gpu_api.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

namespace tileseer {
namespace {

// Of timing a problem's candidates, on the host's clock.
constexpr double budget_ms = 30;
// Launches are repeated until a sample is about this long: the events themselves take microseconds.
constexpr double sample_ms = 0.5;
// A candidate that is less ahead of the model's pick is not surely faster.
constexpr double least_gain = 0.01;

std::mutex options_mutex;
Options options;

Options options_now()
{
    const std::lock_guard<std::mutex> lock(options_mutex);
    return options;
}

void check(TILESEER_GPU(Error_t) status, const char* what)
{
    if(status != TILESEER_GPU(Success))
    {
        throw Error(Fault::launch, std::string("cannot ") + what + ": " + TILESEER_GPU(GetErrorString)(status));
    }
}

std::string device_name()
{
    int number = 0;
#if defined(TILESEER_CUDA)
    cudaDeviceProp properties{};
#else
    hipDeviceProp_t properties{};
#endif
    check(TILESEER_GPU(GetDevice)(&number), "find a device");
    check(TILESEER_GPU(GetDeviceProperties)(&properties, number), "read the device's properties");
    return properties.name;
}

// Events around launches on a stream.
class Watch
{
    public:
    explicit Watch(Stream stream) : stream_(stream)
    {
        check(TILESEER_GPU(EventCreate)(&begin_), "create an event");
        check(TILESEER_GPU(EventCreate)(&end_), "create an event");
    }

    Watch(const Watch&)            = delete;
    Watch& operator=(const Watch&) = delete;

    ~Watch()
    {
        (void)TILESEER_GPU(EventDestroy)(begin_);
        (void)TILESEER_GPU(EventDestroy)(end_);
    }

    // Milliseconds of one of `count` launches.
    template <typename Launch>
    double time(int count, const Launch& launch)
    {
        float milliseconds = 0;
        check(TILESEER_GPU(EventRecord)(begin_, stream_), "record an event");
        for(int i = 0; i < count; ++i)
        {
            launch();
        }
        check(TILESEER_GPU(EventRecord)(end_, stream_), "record an event");
        check(TILESEER_GPU(EventSynchronize)(end_), "run the kernel");
        check(TILESEER_GPU(EventElapsedTime)(&milliseconds, begin_, end_), "read the events");
        return static_cast<double>(milliseconds) / count;
    }

    private:
    Stream stream_;
    TILESEER_GPU(Event_t) begin_{};
    TILESEER_GPU(Event_t) end_{};
};

TunedDims dims_of(const Problem& problem)
{
    TunedDims values{};
    std::transform(std::begin(all_dims), std::end(all_dims), values.begin(), [&](const Dim& dim) { return problem.*dim.value; });
    return values;
}

std::string label(const std::string& kernel, std::int32_t split_k)
{
    return split_k == 1 ? kernel : kernel + "@splitk" + std::to_string(split_k);
}

double median(std::vector<double> values)
{
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

} // namespace

void set_options(const Options& chosen)
{
    const std::lock_guard<std::mutex> lock(options_mutex);
    options = chosen;
}

ConvProblemC with_direction(const Problem& p, int direction, std::int32_t split_k)
{
    return {p.N, p.G, p.C, p.K, p.Di, p.Hi, p.Wi, p.Z, p.Y, p.X, p.stride_d, p.stride_h, p.stride_w,
            p.pad_d, p.pad_h, p.pad_w, p.dilation_d, p.dilation_h, p.dilation_w, direction, split_k};
}

std::string text_of(const Problem& problem)
{
    std::string text;
    for(const Dim& dim : all_dims)
    {
        if(problem.*dim.value != Problem{}.*dim.value)
        {
            text += (text.empty() ? "" : ",") + std::string(dim.name) + "=" + std::to_string(problem.*dim.value);
        }
    }
    return text.empty() ? "N=1" : text;
}

Dispatcher::Dispatcher(const char* operation, int direction, Ranked ranked, const std::vector<const Kernel*>& kernels)
    : operation_(operation), direction_(direction), ranked_(ranked)
{
    for(const Kernel* kernel : kernels)
    {
        kernels_[kernel->name] = kernel;
    }
}

std::string Dispatcher::about(const Problem& problem) const { return std::string(operation_) + ", " + text_of(problem); }

// The candidate that was the fastest when the problem was timed on this device; null if it was not.
const Dispatcher::Candidate* Dispatcher::remembered(const std::vector<Candidate>& candidates, const Problem& problem)
{
    const auto named = [&](const std::string& name) {
        const auto is_it = [&](const Candidate& candidate) { return label(candidate.kernel->name, candidate.split_k) == name; };
        const auto entry = std::find_if(candidates.begin(), candidates.end(), is_it);
        return entry != candidates.end() ? &*entry : nullptr;
    };
    const auto has    = [&](const std::string& name) { return named(name) != nullptr; };
    const auto choice = tuned_->find(dims_of(problem), device_name(), "measured", has);
    return choice ? named(choice->candidate) : nullptr;
}

Dispatcher::Plan Dispatcher::made(const Problem& problem)
{
    Plan plan;
    std::string why = "it is no convolution, or no kernel of this folder runs it";
    for(const Choice& choice : ranked_(problem))
    {
        // The kernel's own conditions: the model's rules may be wider.
        const Kernel* kernel = kernels_.at(choice.kernel);
        if(kernel->supports(with_direction(problem, direction_, choice.split_k), why))
        {
            plan.candidates.push_back({kernel, choice.split_k});
        }
    }
    if(plan.candidates.empty())
    {
        throw Error(Fault::unsupported, about(problem) + ": " + why);
    }
    const Options now = options_now();
    if(!now.choices.empty())
    {
        const std::string path = now.choices + "/" + operation_ + ".tsv";
        tuned_                 = &files_.try_emplace(path, path).first->second;
        if(const Candidate* best = remembered(plan.candidates, problem))
        {
            plan.candidates = {*best};
        }
    }
    plan.candidates.resize(std::min(plan.candidates.size(), static_cast<std::size_t>(std::max(1, now.verify))));
    for(const Candidate& candidate : plan.candidates)
    {
        const auto own       = with_direction(problem, direction_, candidate.split_k);
        plan.workspace_bytes = std::max(plan.workspace_bytes, static_cast<std::size_t>(candidate.kernel->workspace_bytes(own)));
    }
    return plan;
}

// The caller holds the mutex.
Dispatcher::Plan& Dispatcher::plan(const Problem& problem)
{
    const TunedDims key = dims_of(problem);
    const auto entry    = plans_.find(key);
    return entry != plans_.end() ? entry->second : plans_.emplace(key, made(problem)).first->second;
}

Choice Dispatcher::choice(const Problem& problem)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    const Candidate& first = plan(problem).candidates.front();
    return {first.kernel->name, first.split_k};
}

std::size_t Dispatcher::workspace_bytes(const Problem& problem)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return plan(problem).workspace_bytes;
}

void Dispatcher::convolve(const Problem& problem, const void* a, const void* b, void* c, Workspace workspace, Stream stream)
{
    const Tensors tensors{a, b, c, workspace.data, stream};
    Candidate first{};
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        Plan& own = plan(problem);
        if(a == nullptr || b == nullptr || c == nullptr)
        {
            throw Error(Fault::bad_argument, about(problem) + ": a tensor is a null pointer");
        }
        if(own.workspace_bytes > (workspace.data != nullptr ? workspace.bytes : 0))
        {
            throw Error(Fault::workspace, about(problem) + ": the workspace has " + std::to_string(workspace.bytes) +
                                              " bytes, and workspace_bytes(problem) is " + std::to_string(own.workspace_bytes));
        }
        if(own.candidates.size() > 1)
        {
            time(own, problem, tensors);
        }
        first = own.candidates.front();
    }
    launch(first, problem, tensors);
}

void Dispatcher::launch(const Candidate& candidate, const Problem& problem, const Tensors& tensors) const
{
    try
    {
        candidate.kernel->launch(with_direction(problem, direction_, candidate.split_k), tensors);
    }
    catch(const std::exception& error)
    {
        throw Error(Fault::launch, about(problem) + ": " + candidate.kernel->name + ": " + error.what());
    }
}

// Times the candidates of a plan in turns and leaves one of them.
void Dispatcher::time(Plan& plan, const Problem& problem, const Tensors& tensors)
{
    using Clock              = std::chrono::steady_clock;
    auto& candidates         = plan.candidates;
    const std::string device = device_name();
    if(device == "stand-in")
    {
        static const int printed = std::fprintf(stderr, "tileseer: an emulated GPU has no times: the model's picks are kept\n");
        static_cast<void>(printed);
        candidates.resize(1);
        return;
    }
    const auto launching = [&](const Candidate& candidate) { return [&] { launch(candidate, problem, tensors); }; };
    Watch watch(static_cast<Stream>(tensors.stream));
    // The first launch loads the code. What cannot be launched leaves, unless it is the last.
    for(std::size_t i = 0; i < candidates.size();)
    {
        try
        {
            watch.time(1, launching(candidates[i]));
            ++i;
        }
        catch(const Error&)
        {
            if(candidates.size() == 1)
            {
                throw;
            }
            candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    std::vector<std::vector<double>> times(candidates.size());
    std::vector<int> launches(candidates.size(), 1);
    const auto begin = Clock::now();
    double passed = 0, turn = 0;
    do
    {
        for(std::size_t i = 0; i < candidates.size(); ++i)
        {
            times[i].push_back(watch.time(launches[i], launching(candidates[i])));
            launches[i] = std::max(1, static_cast<int>(sample_ms / std::max(times[i].back(), 1e-4)));
        }
        const double now = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        turn             = std::max(turn, now - passed);
        passed           = now;
    } while(passed + turn < budget_ms);
    std::size_t best = 0;
    std::vector<double> medians;
    for(auto& own : times)
    {
        // Until then the GPU raises its clock.
        own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(own.size() / 3));
        medians.push_back(median(own));
        const double limit = best == 0 ? medians[0] * (1 - least_gain) : medians[best];
        best               = medians.back() < limit ? medians.size() - 1 : best;
    }
    Candidate chosen = candidates[best];
    if(tuned_ != nullptr)
    {
        TunedChoice choice;
        choice.dims      = dims_of(problem);
        choice.candidate = label(chosen.kernel->name, chosen.split_k);
        choice.time_ms   = medians[best];
        choice.timed     = static_cast<int>(candidates.size());
        choice.device    = device;
        tuned_->remember(choice);
        // Another process may have been the first.
        const Candidate* first = remembered(candidates, problem);
        chosen                 = first != nullptr ? *first : chosen;
    }
    candidates = {chosen};
}

} // namespace tileseer
