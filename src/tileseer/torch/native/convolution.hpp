// A convolution as plans are chosen for it: its direction, its data type and the 19 dimensions of a problem.

#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

namespace tileseer {

enum Direction : int64_t { kForward = 0, kData = 1, kWeight = 2 };
constexpr int64_t kAlignment = 16; // bytes; the plans were recorded with operands of this alignment
constexpr int64_t kMostElements = int64_t{1} << 31;

// The order of tileseer.problems.problem.DIMS; axes are depth, height and width.
enum Dim { kN, kC, kK, kG, kImage, kFilter = kImage + 3, kStride = kFilter + 3, kPad = kStride + 3, kDilation = kPad + 3, kDims = kDilation + 3 };

// What a plan is chosen for; no member leaves padding bytes, since the bytes are compared.
struct Convolution
{
    int64_t device = 0, direction = 0, dtype = 0, benchmark = 0;
    std::array<int64_t, kDims> dims{};

    bool operator==(const Convolution& other) const { return std::memcmp(this, &other, sizeof(Convolution)) == 0; }

    // Number of axes of the image: a volume without depth is none that plans are chosen for.
    int64_t axes() const { return dims[kImage] == 1 && dims[kFilter] == 1 ? 2 : 3; }
    int64_t output(int64_t axis) const
    {
        const int64_t reach = dims[kDilation + axis] * (dims[kFilter + axis] - 1) + 1;
        return (dims[kImage + axis] + 2 * dims[kPad + axis] - reach) / dims[kStride + axis] + 1;
    }
    std::vector<int64_t> x() const { return sizes(dims[kN], dims[kC], [this](int64_t axis) { return dims[kImage + axis]; }); }
    std::vector<int64_t> w() const
    {
        return sizes(dims[kK], dims[kC] / dims[kG], [this](int64_t axis) { return dims[kFilter + axis]; });
    }
    std::vector<int64_t> y() const { return sizes(dims[kN], dims[kK], [this](int64_t axis) { return output(axis); }); }
    std::vector<int64_t> of_axes(Dim first) const
    {
        return {dims.begin() + first + 3 - axes(), dims.begin() + first + 3};
    }

    private:
    template <typename Extent>
    std::vector<int64_t> sizes(int64_t outer, int64_t channels, Extent extent) const
    {
        std::vector<int64_t> values{outer, channels};
        for(int64_t axis = 3 - axes(); axis < 3; ++axis)
            values.push_back(extent(axis));
        return values;
    }
};

struct Hash
{
    size_t operator()(const Convolution& convolution) const
    {
        std::array<uint64_t, sizeof(Convolution) / sizeof(uint64_t)> words;
        std::memcpy(words.data(), &convolution, sizeof(Convolution));
        uint64_t hash = 1469598103934665603ULL;
        for(uint64_t word : words)
            hash = (hash ^ word ^ (word >> 29)) * 1099511628211ULL;
        return hash;
    }
};

// What a library of plans says of its own: that it cannot list, build or launch one.
struct PlanError : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

// About the seconds that a GPU takes at least: 500 TFLOPS, and 3 TB a second of 16-bit elements.
inline double seconds_of(const Convolution& convolution)
{
    const auto product = [](const std::vector<int64_t>& sizes) {
        double all = 1.0;
        for(int64_t size : sizes)
            all *= static_cast<double>(size);
        return all;
    };
    const double x = product(convolution.x()), w = product(convolution.w()), y = product(convolution.y());
    return std::max(2.0 * y * w / convolution.dims[kK] / 500e12, 2.0 * (x + w + y) / 3e12);
}

// The value of an axis, where there may be one for all; -1, which no argument may be, where there is none.
inline int64_t of_axis(c10::IntArrayRef values, int64_t axis)
{
    if(values.size() == 1)
        return values[0];
    return axis < static_cast<int64_t>(values.size()) ? values[axis] : -1;
}

// The convolution of these sizes of input and filter; nothing where it is none, or none that plans are chosen for.
inline std::optional<Convolution> convolution_of(
    Direction direction, c10::ScalarType dtype, c10::IntArrayRef x, c10::IntArrayRef w, c10::IntArrayRef y,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, int64_t groups)
{
    Convolution made;
    made.direction = direction;
    made.dtype = static_cast<int64_t>(dtype);
    made.dims.fill(1);
    const int64_t axes = static_cast<int64_t>(x.size()) - 2;
    if((axes != 2 && axes != 3) || w.size() != x.size() || y.size() != x.size() || groups < 1 ||
       x[1] != w[1] * groups || w[0] % groups)
        return std::nullopt;
    made.dims[kPad] = 0;
    made.dims[kN] = x[0];
    made.dims[kC] = x[1];
    made.dims[kK] = w[0];
    made.dims[kG] = groups;
    int64_t elements[] = {x[0] * x[1], w[0] * w[1], x[0] * w[0]};
    for(int64_t axis = 0; axis < axes; ++axis)
    {
        const int64_t at = axis + 3 - axes, filter = w[axis + 2];
        const int64_t values[] = {x[axis + 2], filter, of_axis(stride, axis), of_axis(padding, axis), of_axis(dilation, axis)};
        if(values[0] < 1 || filter < 1 || values[2] < 1 || values[3] < 0 || values[4] < 1)
            return std::nullopt;
        made.dims[kImage + at] = values[0];
        made.dims[kFilter + at] = filter;
        made.dims[kStride + at] = values[2];
        made.dims[kPad + at] = values[3];
        // A filter extent of 1 reads the same pixels whatever its dilation.
        made.dims[kDilation + at] = filter > 1 ? values[4] : 1;
        if(values[0] + 2 * values[3] < made.dims[kDilation + at] * (filter - 1) + 1 || made.output(at) != y[axis + 2])
            return std::nullopt;
        elements[0] *= values[0];
        elements[1] *= filter;
        elements[2] *= y[axis + 2];
    }
    for(int64_t count : elements)
        if(count < 1 || count >= kMostElements)
            return std::nullopt;
    if(y[0] != x[0] || y[1] != w[0] || made.axes() != axes)
        return std::nullopt;
    return made;
}

} // namespace tileseer
