// The operators tileseer::convolution, convolution_data and convolution_weight: convolutions by chosen plans of cuDNN.
//
// A plan is chosen and built at the first call of a shape by a function in Python (set_chooser). Whatever has no plan
// runs by PyTorch's own operator. Plans are never freed: a captured CUDA graph may still launch their kernels.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cudnn.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

// Its header needs CUDA's compiler headers, which PyTorch's packages lack.
namespace at::native {
cudnnHandle_t getCudnnHandle();
}

namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

enum Direction : int64_t { kForward = 0, kData = 1, kWeight = 2 };
constexpr int64_t kX = 1, kW = 2, kY = 3; // cuDNN's identifiers of the tensors
constexpr int64_t kAlignment = 16;        // bytes; the plans were recorded with operands of this alignment

void check(cudnnStatus_t status, const char* what)
{
    if(status != CUDNN_STATUS_SUCCESS)
        throw std::runtime_error(std::string(what) + ": " + cudnnGetErrorString(status));
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

std::vector<cudnnBackendDescriptor_t> raw(const Descriptors& descriptors)
{
    std::vector<cudnnBackendDescriptor_t> pointers;
    for(const auto& descriptor : descriptors)
        pointers.push_back(descriptor->raw());
    return pointers;
}

Descriptors make(cudnnBackendDescriptorType_t type, int64_t count)
{
    Descriptors made;
    for(int64_t number = 0; number < count; ++number)
        made.push_back(std::make_unique<Descriptor>(type));
    return made;
}

// What a plan is chosen for; no member leaves padding bytes, since the bytes are compared.
struct Key
{
    int64_t plans = 0, device = 0, direction = 0, dtype = 0, ndim = 0, groups = 0;
    std::array<int64_t, 5> x{}, w{}, y{};
    std::array<int64_t, 3> stride{}, padding{}, dilation{};

    bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof(Key)) == 0; }
};

struct KeyHash
{
    size_t operator()(const Key& key) const
    {
        std::array<uint64_t, sizeof(Key) / sizeof(uint64_t)> words;
        std::memcpy(words.data(), &key, sizeof(Key));
        uint64_t hash = 1469598103934665603ULL;
        for(uint64_t word : words)
            hash = (hash ^ word ^ (word >> 29)) * 1099511628211ULL;
        return hash;
    }
};

// A plan that was built.
class Plan
{
    public:
    Plan(const Descriptor& config) : plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    {
        cudnnHandle_t handle = at::native::getCudnnHandle();
        plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle)
            .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
            .finalize();
        plan_.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace_bytes);
    }

    // Queue it on the current stream; the operands are x, w and y.
    void launch(void* x, void* w, void* y)
    {
        // The caching allocator hands the block to the next kernel of this stream, as it does for PyTorch's own.
        c10::DataPtr workspace;
        if(workspace_bytes > 0)
            workspace = c10::cuda::CUDACachingAllocator::get()->allocate(workspace_bytes);
        void* pointers[] = {x, w, y};
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

std::vector<int64_t> channels_last_strides(const int64_t* sizes, int64_t dimensions)
{
    std::vector<int64_t> strides(dimensions);
    strides[1] = 1;
    int64_t step = sizes[1];
    for(int64_t axis = dimensions - 1; axis >= 2; --axis)
    {
        strides[axis] = step;
        step *= sizes[axis];
    }
    strides[0] = step;
    return strides;
}

void describe(
    Descriptor& tensor, int64_t identifier, cudnnDataType_t type, const int64_t* sizes, int64_t dimensions)
{
    const std::vector<int64_t> strides = channels_last_strides(sizes, dimensions);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes, dimensions)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), dimensions)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, identifier)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
        .finalize();
}

struct Names
{
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};

const Names kNames[] = {
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

// The graph of one convolution: it lists plans by cuDNN's names, builds and runs them.
class Shape
{
    public:
    explicit Shape(const Key& key) : key(key)
    {
        const int64_t image = key.ndim, dimensions = image + 2;
        const auto dtype = static_cast<at::ScalarType>(key.dtype);
        const cudnnDataType_t type = dtype == at::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
        const cudnnDataType_t accumulator = CUDNN_DATA_FLOAT;
        const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
        describe(x_, kX, type, key.x.data(), dimensions);
        describe(w_, kW, type, key.w.data(), dimensions);
        describe(y_, kY, type, key.y.data(), dimensions);
        convolution_.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, accumulator)
            .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, mode)
            .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, image)
            .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, key.padding.data(), image)
            .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, key.padding.data(), image)
            .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, key.dilation.data(), image)
            .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, key.stride.data(), image)
            .finalize();
        const Names& names = kNames[key.direction];
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
            catch(const std::runtime_error&)
            {
                // This kind of heuristic has nothing for the shape.
            }
        return names;
    }

    // Bytes of workspace of a plan, which is built; an exception where cuDNN cannot.
    int64_t build(const std::string& name)
    {
        if(!plans_.count(name))
            plans_[name] = std::make_shared<Plan>(config(name));
        return plans_[name]->workspace_bytes;
    }

    void launch(const std::string& name, const Tensor& x, const Tensor& w, const Tensor& y)
    {
        c10::cuda::CUDAGuard guard(x.device());
        build(name);
        plans_[name]->launch(x.data_ptr(), w.data_ptr(), y.data_ptr());
    }

    std::shared_ptr<Plan> plan(const std::string& name) const { return plans_.at(name); }

    const Key key;

    private:
    void append(cudnnBackendHeurMode_t mode, std::vector<std::string>& names) const
    {
        static std::mutex mode_b;
        Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
            .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
        {
            std::lock_guard<std::mutex> one_at_a_time(mode_b);
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

    // The engine and its knobs from a name; no heuristic takes part.
    Descriptor config(const std::string& name) const
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
        return config;
    }

    // The graph refers to all others.
    Descriptor x_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, w_{CUDNN_BACKEND_TENSOR_DESCRIPTOR},
        y_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, convolution_{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
        operation_{kNames[key.direction].operation}, graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
    std::unordered_map<std::string, std::shared_ptr<Plan>> plans_;
};

// The plan of each shape; null where PyTorch's own operator runs it. The mutex guards both.
std::mutex table_mutex;
std::unordered_map<Key, std::shared_ptr<Plan>, KeyHash>& table()
{
    static auto* plans = new std::unordered_map<Key, std::shared_ptr<Plan>, KeyHash>();
    return *plans;
}
pybind11::object* chooser = nullptr;

// Ask Python for the plan of a new shape; it may time plans on these operands.
std::shared_ptr<Plan> choose(const Key& key, const Tensor& x, const Tensor& w, const Tensor& y)
{
    pybind11::gil_scoped_acquire gil;
    auto shape = std::make_shared<Shape>(key);
    const std::string name = (*chooser)(key.plans, shape, x, w, y).cast<std::string>();
    std::shared_ptr<Plan> plan = name.empty() ? nullptr : shape->plan(name);
    std::lock_guard<std::mutex> lock(table_mutex);
    return table().emplace(key, plan).first->second;
}

at::MemoryFormat channels_last(const Tensor& tensor)
{
    return tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
}

// The layout of all results: channels last if either operand is, as PyTorch has it.
at::MemoryFormat layout(const Tensor& one, const Tensor& other)
{
    const at::MemoryFormat last = channels_last(one);
    const bool is_last = one.suggest_memory_format() == last || other.suggest_memory_format() == last;
    return is_last ? last : at::MemoryFormat::Contiguous;
}

// Why a pair of operands runs by PyTorch's own operator, or null.
const char* unusable(const Tensor& one, const Tensor& other, at::MemoryFormat format)
{
    const auto& context = at::globalContext();
    if(!one.is_cuda() || one.device() != other.device())
        return "a tensor is not on the GPU";
    if(one.scalar_type() != other.scalar_type() ||
       (one.scalar_type() != at::kBFloat16 && one.scalar_type() != at::kHalf))
        return "the data type is neither bfloat16 nor float16";
    if(format == at::MemoryFormat::Contiguous)
        return "neither input nor weight is channels last";
    if(!context.userEnabledCuDNN())
        return "torch.backends.cudnn.enabled is false";
    if(context.deterministicCuDNN() || context.deterministicAlgorithms())
        return "deterministic algorithms are on";
    return nullptr;
}

bool usable(const Tensor& one, const Tensor& other, at::MemoryFormat format)
{
    const char* reason = unusable(one, other, format);
    if(reason)
    {
        static std::mutex mutex;
        static std::unordered_set<std::string> warned;
        std::lock_guard<std::mutex> lock(mutex);
        if(warned.insert(reason).second)
            TORCH_WARN("tileseer: ", reason, "; PyTorch's own choice runs instead");
    }
    return !reason && one.numel() && other.numel();
}

// One value for all axes, or one per axis.
int64_t of_axis(IntArrayRef values, int64_t axis) { return values.size() == 1 ? values[0] : values[axis]; }

Key key_of(
    Direction direction, const Tensor& one, IntArrayRef x, IntArrayRef w, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    Key key;
    key.plans = plans;
    key.device = one.device().index();
    key.direction = direction;
    key.dtype = static_cast<int64_t>(one.scalar_type());
    key.ndim = one.dim() - 2;
    key.groups = groups;
    std::copy(x.begin(), x.end(), key.x.begin());
    std::copy(w.begin(), w.end(), key.w.begin());
    key.y[0] = x[0];
    key.y[1] = w[0];
    for(int64_t axis = 0; axis < key.ndim; ++axis)
    {
        key.stride[axis] = of_axis(stride, axis);
        key.padding[axis] = of_axis(padding, axis);
        key.dilation[axis] = of_axis(dilation, axis);
        const int64_t reach = key.dilation[axis] * (w[axis + 2] - 1) + 1;
        key.y[axis + 2] = (x[axis + 2] + 2 * key.padding[axis] - reach) / key.stride[axis] + 1;
    }
    return key;
}

bool aligned(const Tensor& x, const Tensor& w, const Tensor& y)
{
    const auto address = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data_ptr()); };
    return (address(x) | address(w) | address(y)) % kAlignment == 0;
}

// Run the plan of a shape; false where PyTorch has to.
bool run(const Key& key, const Tensor& x, const Tensor& w, const Tensor& y)
{
    if(!aligned(x, w, y))
        return false;
    std::shared_ptr<Plan> plan;
    {
        std::lock_guard<std::mutex> lock(table_mutex);
        const auto entry = table().find(key);
        if(entry != table().end() && !entry->second)
            return false;
        if(entry != table().end())
            plan = entry->second;
    }
    if(!plan)
    {
        const bool capturing =
            c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
        if(capturing)
            TORCH_WARN_ONCE(
                "tileseer: a convolution of a new shape while a CUDA graph is captured runs by PyTorch's own choice, "
                "because plans are not built during a capture; run the step once before it");
        if(!capturing)
            plan = choose(key, x, w, y);
    }
    if(!plan)
        return false;
    try
    {
        plan->launch(x.data_ptr(), w.data_ptr(), y.data_ptr());
    }
    catch(const c10::OutOfMemoryError&)
    {
        return false; // PyTorch tries plans with a smaller workspace.
    }
    return true;
}

bool shapes_fit(const Tensor& x, const Tensor& w, IntArrayRef dilation, IntArrayRef padding, int64_t groups)
{
    if(groups < 1 || x.size(1) != w.size(1) * groups || w.size(0) % groups)
        return false;
    for(int64_t axis = 2; axis < x.dim(); ++axis)
        if(x.size(axis) + 2 * of_axis(padding, axis - 2) < of_axis(dilation, axis - 2) * (w.size(axis) - 1) + 1)
            return false;
    return true;
}

Tensor torch_convolution(
    const Tensor& x, const Tensor& w, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups)
{
    const std::vector<int64_t> none(x.dim() - 2, 0);
    const Tensor y = at::convolution(x, w, bias, stride, padding, dilation, false, none, groups);
    return x.dim() == w.dim() && x.dim() > 3 ? y.contiguous(layout(x, w)) : y;
}

Tensor torch_backward(
    bool of_data, const Tensor& grad, const Tensor& x, const Tensor& w, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups)
{
    const std::vector<int64_t> none(x.dim() - 2, 0);
    const std::array<bool, 3> mask = {of_data, !of_data, false};
    const auto grads =
        at::convolution_backward(grad, x, w, std::nullopt, stride, padding, dilation, false, none, groups, mask);
    return (of_data ? std::get<0>(grads) : std::get<1>(grads)).contiguous(layout(x, w));
}

Tensor convolution(
    const Tensor& x, const Tensor& w, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    const bool has_bias = bias && bias->defined();
    const bool two_or_three_axes = (x.dim() == 4 || x.dim() == 5) && x.dim() == w.dim();
    if(two_or_three_axes && usable(x, w, layout(x, w)) && shapes_fit(x, w, dilation, padding, groups) &&
       (!has_bias || bias->scalar_type() == x.scalar_type()))
    {
        c10::cuda::CUDAGuard guard(x.device());
        const Key key = key_of(kForward, x, x.sizes(), w.sizes(), stride, padding, dilation, groups, plans);
        const at::MemoryFormat last = channels_last(x);
        Tensor y = at::empty(IntArrayRef(key.y.data(), x.dim()), x.options().memory_format(last));
        if(run(key, x.contiguous(last), w.contiguous(last), y))
        {
            if(has_bias)
            {
                std::vector<int64_t> sizes(x.dim(), 1);
                sizes[1] = w.size(0);
                y.add_(bias->reshape(sizes));
            }
            return y;
        }
    }
    return torch_convolution(x, w, bias, stride, padding, dilation, groups);
}

Tensor convolution_data(
    const Tensor& grad, const Tensor& x, const Tensor& w, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    if(usable(grad, w, layout(x, w)))
    {
        c10::cuda::CUDAGuard guard(w.device());
        const Key key = key_of(kData, w, x.sizes(), w.sizes(), stride, padding, dilation, groups, plans);
        const at::MemoryFormat last = channels_last(w);
        const Tensor result = at::empty(x.sizes(), grad.options().memory_format(last));
        if(run(key, result, w.contiguous(last), grad.contiguous(last)))
            return result;
    }
    return torch_backward(true, grad, x, w, stride, padding, dilation, groups);
}

Tensor convolution_weight(
    const Tensor& grad, const Tensor& x, const Tensor& w, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    if(usable(grad, x, layout(x, w)))
    {
        c10::cuda::CUDAGuard guard(x.device());
        const Key key = key_of(kWeight, x, x.sizes(), w.sizes(), stride, padding, dilation, groups, plans);
        const at::MemoryFormat last = channels_last(x);
        const Tensor result = at::empty(w.sizes(), x.options().memory_format(last));
        if(run(key, x.contiguous(last), result, grad.contiguous(last)))
            return result;
    }
    return torch_backward(false, grad, x, w, stride, padding, dilation, groups);
}

Tensor call_convolution(
    const Tensor& x, const Tensor& w, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    static const auto operation = c10::Dispatcher::singleton()
                                      .findSchemaOrThrow("tileseer::convolution", "")
                                      .typed<decltype(convolution)>();
    return operation.call(x, w, bias, stride, padding, dilation, groups, plans);
}

Tensor call_backward(
    bool of_data, const Tensor& grad, const Tensor& x, const Tensor& w, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    static const auto find = [](const char* name) {
        return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<decltype(convolution_data)>();
    };
    static const auto data = find("tileseer::convolution_data"), weight = find("tileseer::convolution_weight");
    return (of_data ? data : weight).call(grad, x, w, stride, padding, dilation, groups, plans);
}

class Convolution : public torch::autograd::Function<Convolution>
{
    public:
    static Tensor forward(
        torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& w, const OptionalTensor& bias,
        IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups, int64_t plans)
    {
        at::AutoDispatchBelowADInplaceOrView below;
        context->save_for_backward({x, w});
        std::vector<int64_t> numbers{groups, plans, bias && bias->defined()};
        for(IntArrayRef values : {stride, padding, dilation})
        {
            numbers.push_back(values.size());
            numbers.insert(numbers.end(), values.begin(), values.end());
        }
        context->saved_data["numbers"] = std::move(numbers);
        return call_convolution(x, w, bias, stride, padding, dilation, groups, plans);
    }

    static torch::autograd::variable_list
    backward(torch::autograd::AutogradContext* context, const torch::autograd::variable_list& grads)
    {
        const auto saved = context->get_saved_variables();
        const Tensor &x = saved[0], &w = saved[1], &grad = grads[0];
        const auto numbers = context->saved_data["numbers"].toIntVector();
        size_t at = 3;
        std::array<IntArrayRef, 3> lists;
        for(IntArrayRef& list : lists)
        {
            list = IntArrayRef(numbers).slice(at + 1, numbers[at]);
            at += 1 + numbers[at];
        }
        const auto& [stride, padding, dilation] = lists;
        torch::autograd::variable_list results(8);
        if(!grad.defined())
            return results;
        if(context->needs_input_grad(0))
            results[0] = call_backward(true, grad, x, w, stride, padding, dilation, numbers[0], numbers[1]);
        if(context->needs_input_grad(1))
            results[1] = call_backward(false, grad, x, w, stride, padding, dilation, numbers[0], numbers[1]);
        if(numbers[2] && context->needs_input_grad(2))
        {
            std::vector<int64_t> all{0};
            for(int64_t axis = 2; axis < grad.dim(); ++axis)
                all.push_back(axis);
            results[2] = grad.sum(all);
        }
        return results;
    }
};

Tensor autograd_convolution(
    const Tensor& x, const Tensor& w, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    const bool needed = x.requires_grad() || w.requires_grad() || (bias && bias->defined() && bias->requires_grad());
    if(needed && at::GradMode::is_enabled())
        return Convolution::apply(x, w, bias, stride, padding, dilation, groups, plans);
    at::AutoDispatchBelowADInplaceOrView below;
    return call_convolution(x, w, bias, stride, padding, dilation, groups, plans);
}

// A gradient that is itself differentiated is PyTorch's own operator, which has the formulas for that.
template <bool of_data>
Tensor autograd_backward(
    const Tensor& grad, const Tensor& x, const Tensor& w, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    if(at::GradMode::is_enabled() && (grad.requires_grad() || x.requires_grad() || w.requires_grad()))
        return torch_backward(of_data, grad, x, w, stride, padding, dilation, groups);
    at::AutoDispatchBelowADInplaceOrView below;
    return call_backward(of_data, grad, x, w, stride, padding, dilation, groups, plans);
}

template <c10::DispatchKey key, c10::DeviceType device>
Tensor autocast_convolution(
    const Tensor& x, const Tensor& w, const OptionalTensor& bias, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, int64_t groups, int64_t plans)
{
    c10::impl::ExcludeDispatchKeyGuard no_autocast(key);
    const auto type = at::autocast::get_autocast_dtype(device);
    const auto cast = [type](const Tensor& tensor) { return at::autocast::cached_cast(type, tensor, device); };
    const OptionalTensor cast_bias = bias && bias->defined() ? OptionalTensor(cast(*bias)) : bias;
    return call_convolution(cast(x), cast(w), cast_bias, stride, padding, dilation, groups, plans);
}

} // namespace

#define TILESEER_GRADIENT "(Tensor grad, Tensor x, Tensor w, int[] stride, int[] padding, int[] dilation, int groups, int plans) -> Tensor"

TORCH_LIBRARY(tileseer, library)
{
    library.def(
        "convolution(Tensor x, Tensor w, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups, "
        "int plans) -> Tensor",
        {at::Tag::pt2_compliant_tag});
    library.def("convolution_data" TILESEER_GRADIENT, {at::Tag::pt2_compliant_tag});
    library.def("convolution_weight" TILESEER_GRADIENT, {at::Tag::pt2_compliant_tag});
}

#define TILESEER_KERNELS(key)                             \
    TORCH_LIBRARY_IMPL(tileseer, key, library)            \
    {                                                     \
        library.impl("convolution", convolution);         \
        library.impl("convolution_data", convolution_data); \
        library.impl("convolution_weight", convolution_weight); \
    }
TILESEER_KERNELS(CPU)
TILESEER_KERNELS(CUDA)

TORCH_LIBRARY_IMPL(tileseer, Autograd, library)
{
    library.impl("convolution", autograd_convolution);
    library.impl("convolution_data", autograd_backward<true>);
    library.impl("convolution_weight", autograd_backward<false>);
}

TORCH_LIBRARY_IMPL(tileseer, AutocastCUDA, library)
{
    library.impl("convolution", autocast_convolution<c10::DispatchKey::AutocastCUDA, c10::kCUDA>);
}

TORCH_LIBRARY_IMPL(tileseer, AutocastCPU, library)
{
    library.impl("convolution", autocast_convolution<c10::DispatchKey::AutocastCPU, c10::kCPU>);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    pybind11::class_<Shape, std::shared_ptr<Shape>>(module, "Shape")
        .def_property_readonly("direction", [](const Shape& shape) { return shape.key.direction; })
        .def_property_readonly("ndim", [](const Shape& shape) { return shape.key.ndim; })
        .def_property_readonly("groups", [](const Shape& shape) { return shape.key.groups; })
        .def_property_readonly("x", [](const Shape& shape) { return shape.key.x; })
        .def_property_readonly("w", [](const Shape& shape) { return shape.key.w; })
        .def_property_readonly("stride", [](const Shape& shape) { return shape.key.stride; })
        .def_property_readonly("padding", [](const Shape& shape) { return shape.key.padding; })
        .def_property_readonly("dilation", [](const Shape& shape) { return shape.key.dilation; })
        .def("offered", &Shape::offered, pybind11::call_guard<pybind11::gil_scoped_release>())
        .def("build", &Shape::build, pybind11::call_guard<pybind11::gil_scoped_release>())
        .def("launch", &Shape::launch);
    module.def("version", [] { return static_cast<int64_t>(cudnnGetVersion()); });
    module.def("convolution", torch::wrap_pybind_function_no_gil(call_convolution));
    module.def("set_chooser", [](pybind11::object function) {
        // Never freed: at the end of a process there may be no interpreter to free it with.
        chooser = new pybind11::object(std::move(function));
    });
}
