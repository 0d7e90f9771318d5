// Plans of cuDNN by its backend: lists, builds and launches them. Tests put another file of this name in its place.

#pragma once

#include "convolution.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

// Its header needs CUDA's compiler headers, which PyTorch's packages lack.
namespace at::native {
cudnnHandle_t getCudnnHandle();
}

namespace tileseer::plans {

constexpr auto kDispatchKey = c10::DispatchKey::CUDA;
constexpr int64_t kX = 1, kW = 2, kY = 3; // cuDNN's identifiers of the tensors

inline int64_t version() { return static_cast<int64_t>(cudnnGetVersion()); }

inline int64_t current_device() { return c10::cuda::current_device(); }

inline bool capturing()
{
    // No graph is captured on the default stream, and to know that takes no time.
    const auto stream = c10::cuda::getCurrentCUDAStream();
    return stream != c10::cuda::getDefaultCUDAStream(stream.device_index()) &&
        c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// Seconds of a clock, and the end of what is queued on the current stream; an error there is the program's.
inline double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline void finish() { (void)cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream()); }

inline void check(cudnnStatus_t status, const char* what)
{
    if(status == CUDNN_STATUS_SUCCESS)
        return;
    (void)cudaGetLastError(); // or PyTorch's next kernel would find what cuDNN left
    throw PlanError(std::string(what) + ": " + cudnnGetErrorString(status));
}

// A descriptor of cuDNN's backend.
class Descriptor
{
    public:
    explicit Descriptor(cudnnBackendDescriptorType_t type)
    {
        check(cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
    }
    Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Descriptor(const Descriptor&) = delete;
    ~Descriptor()
    {
        if(raw_)
            cudnnBackendDestroyDescriptor(raw_);
    }
    template <typename Value>
    Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value* values, int64_t count)
    {
        check(cudnnBackendSetAttribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
        return *this;
    }
    template <typename Value>
    Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value)
    {
        return set(name, type, &value, 1);
    }
    Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value)
    {
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value.raw_, 1);
    }
    Descriptor& finalize()
    {
        check(cudnnBackendFinalize(raw_), "cudnnBackendFinalize");
        return *this;
    }
    // Number of values that the attribute has; at most `room` of them are written.
    int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room, void* values) const
    {
        int64_t count = 0;
        check(cudnnBackendGetAttribute(raw_, name, type, room, &count, values), "cudnnBackendGetAttribute");
        return count;
    }
    cudnnBackendDescriptor_t raw() const { return raw_; }

    private:
    cudnnBackendDescriptor_t raw_ = nullptr;
};

using Descriptors = std::vector<std::unique_ptr<Descriptor>>;

inline std::vector<cudnnBackendDescriptor_t> raw(const Descriptors& descriptors)
{
    std::vector<cudnnBackendDescriptor_t> pointers;
    for(const auto& descriptor : descriptors)
        pointers.push_back(descriptor->raw());
    return pointers;
}

inline Descriptors make(cudnnBackendDescriptorType_t type, int64_t count)
{
    Descriptors made;
    for(int64_t number = 0; number < count; ++number)
        made.push_back(std::make_unique<Descriptor>(type));
    return made;
}

// A plan that was built.
class Plan
{
    public:
    explicit Plan(const Descriptor& config) : plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    {
        cudnnHandle_t handle = at::native::getCudnnHandle();
        plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle)
            .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
            .finalize();
        plan_.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_bytes);
    }

    // Queue it on the current stream of the current device; one of the operands x, w and y is its result.
    void launch(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y)
    {
        // The caching allocator hands the block to the next kernel of this stream, as it does for PyTorch's own.
        c10::DataPtr workspace;
        if(workspace_bytes > 0)
            workspace = c10::cuda::CUDACachingAllocator::get()->allocate(workspace_bytes);
        void* pointers[] = {x.data_ptr(), w.data_ptr(), y.data_ptr()};
        void* scratch = workspace.get();
        const int64_t identifiers[] = {kX, kW, kY};
        Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, identifiers, 3)
            .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers, 3)
            .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, scratch)
            .finalize();
        // cuDNN does not promise that threads can run one plan at a time of each other.
        std::lock_guard<std::mutex> one_at_a_time(mutex_);
        check(cudnnBackendExecute(at::native::getCudnnHandle(), plan_.raw(), pack.raw()), "cudnnBackendExecute");
    }

    int64_t workspace_bytes = 0;

    private:
    Descriptor plan_;
    std::mutex mutex_;
};

struct Names
{
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};

inline const Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

// The graph of one convolution, channels last: it lists plans by cuDNN's names and builds them.
class Graph
{
    public:
    explicit Graph(const Convolution& convolution) : operation_(kNames[convolution.direction].operation)
    {
        const bool bf16 = convolution.dtype == static_cast<int64_t>(c10::ScalarType::BFloat16);
        const cudnnDataType_t type = bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
        describe(x_, kX, type, convolution.x());
        describe(w_, kW, type, convolution.w());
        describe(y_, kY, type, convolution.y());
        const cudnnDataType_t accumulator = CUDNN_DATA_FLOAT;
        const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
        const int64_t axes = convolution.axes();
        const auto pad = convolution.of_axes(kPad), dilation = convolution.of_axes(kDilation),
                   stride = convolution.of_axes(kStride);
        convolution_.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, accumulator)
            .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, mode)
            .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, axes)
            .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, pad.data(), axes)
            .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, pad.data(), axes)
            .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilation.data(), axes)
            .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, stride.data(), axes)
            .finalize();
        const Names& names = kNames[convolution.direction];
        const float one = 1.0f, zero = 0.0f;
        operation_.set(names.x, x_)
            .set(names.w, w_)
            .set(names.y, y_)
            .set(names.convolution, convolution_)
            .set(names.alpha, CUDNN_TYPE_FLOAT, one)
            .set(names.beta, CUDNN_TYPE_FLOAT, zero)
            .finalize();
        const cudnnHandle_t handle = at::native::getCudnnHandle();
        graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation_)
            .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle)
            .finalize();
    }

    // Names of the plans that cuDNN offers, in its own order.
    std::vector<std::string> offered() const
    {
        std::vector<std::string> names;
        for(cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK})
            try
            {
                append(mode, names);
            }
            catch(const PlanError&)
            {
                // This kind of heuristic has nothing for the shape.
            }
        return names;
    }

    // A plan by its name, such as eng62_k2=7_k13=1; no heuristic takes part. An exception where cuDNN cannot build it.
    std::shared_ptr<Plan> build(const std::string& name) const
    {
        // No streams of the standard library: a compiler that links it statically brings a second copy of it, whose
        // locales clash with PyTorch's.
        const int64_t number = std::strtoll(name.c_str() + 3, nullptr, 10);
        Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_)
            .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, number)
            .finalize();
        Descriptors knobs;
        for(size_t at = name.find("_k"); at != std::string::npos; at = name.find("_k", at + 1))
        {
            char* end = nullptr;
            const auto type = static_cast<cudnnBackendKnobType_t>(std::strtol(name.c_str() + at + 2, &end, 10));
            const int64_t value = std::strtoll(end + 1, nullptr, 10); // behind the equals sign
            knobs.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
            knobs.back()
                ->set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, type)
                .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value)
                .finalize();
        }
        const auto pointers = raw(knobs);
        Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
        if(!pointers.empty())
            config.set(
                CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, pointers.data(), pointers.size());
        config.finalize();
        return std::make_shared<Plan>(config);
    }

    private:
    static void describe(
        Descriptor& tensor, int64_t identifier, cudnnDataType_t type, const std::vector<int64_t>& sizes)
    {
        const int64_t dimensions = sizes.size();
        std::vector<int64_t> strides(dimensions, 1);
        int64_t step = sizes[1];
        for(int64_t axis = dimensions - 1; axis >= 2; --axis)
        {
            strides[axis] = step;
            step *= sizes[axis];
        }
        strides[0] = step;
        tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
            .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes.data(), dimensions)
            .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), dimensions)
            .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, identifier)
            .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
            .finalize();
    }

    void append(cudnnBackendHeurMode_t mode, std::vector<std::string>& names) const
    {
        // One thread at a time, as a precaution for mode B.
        static std::mutex mutex;
        Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
            .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
        {
            std::lock_guard<std::mutex> one_at_a_time(mutex);
            heuristic.finalize();
        }
        const auto result = CUDNN_ATTR_ENGINEHEUR_RESULTS;
        const int64_t most = heuristic.get(result, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
        const Descriptors configs = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, most);
        auto pointers = raw(configs);
        const int64_t count = heuristic.get(result, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, pointers.data());
        const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        const Descriptors knobs = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS);
        for(int64_t number = 0; number < count; ++number)
            names.push_back(name(*configs[number], engine, knobs));
    }

    // An engine and its knobs by number, such as eng62_k2=7_k13=1; the last two descriptors are room to read them.
    static std::string name(const Descriptor& config, const Descriptor& engine, const Descriptors& knobs)
    {
        cudnnBackendDescriptor_t pointer = engine.raw();
        config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pointer);
        int64_t number = 0;
        engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
        auto pointers = raw(knobs);
        const int64_t count =
            config.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, pointers.size(), pointers.data());
        std::vector<std::pair<int64_t, int64_t>> choices;
        for(int64_t at = 0; at < count; ++at)
        {
            cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
            int64_t value = 0;
            knobs[at]->get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
            knobs[at]->get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
            choices.emplace_back(type, value);
        }
        std::sort(choices.begin(), choices.end());
        std::string text = "eng" + std::to_string(number);
        for(const auto& [type, value] : choices)
            text += "_k" + std::to_string(type) + "=" + std::to_string(value);
        return text;
    }

    // The graph refers to all others.
    Descriptor x_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, w_{CUDNN_BACKEND_TENSOR_DESCRIPTOR},
        y_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, convolution_{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR}, operation_,
        graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

} // namespace tileseer::plans
