// Makes a Launcher of a CUTLASS 2.x convolution kernel.
#pragma once

#include "cutlass/conv/device/implicit_gemm_convolution.h"
#include "cutlass/cutlass.h"

#include "tilewright/launcher.h"

namespace tilewright {

inline int output_extent(int in, int filter, int stride, int pad, int dilation) {
    return (in + 2 * pad - dilation * (filter - 1) - 1) / stride + 1;
}

template <int Ndim>
struct Shape;

template <>
struct Shape<2> {
    using Size = cutlass::conv::Conv2dProblemSize;

    static Size size(ConvProblem const &p) {
        int const h = output_extent(p.input_h, p.filter_y, p.stride_h, p.pad_h, p.dilation_h);
        int const w = output_extent(p.input_w, p.filter_x, p.stride_w, p.pad_w, p.dilation_w);
        return Size(p.N, p.input_h, p.input_w, p.C, p.K, p.filter_y, p.filter_x, h, w, p.pad_h, p.pad_w, p.stride_h,
                    p.stride_w, p.dilation_h, p.dilation_w, cutlass::conv::Mode::kCrossCorrelation, p.split_k, p.G);
    }
    static auto input(Size const &s) { return cutlass::make_Coord(s.N, s.H, s.W, s.C); }
    static auto filter(Size const &s) { return cutlass::make_Coord(s.K, s.R, s.S, s.C / s.groups); }
    static auto output(Size const &s) { return cutlass::make_Coord(s.N, s.P, s.Q, s.K); }
};

template <>
struct Shape<3> {
    using Size = cutlass::conv::Conv3dProblemSize;

    static Size size(ConvProblem const &p) {
        int const d = output_extent(p.input_d, p.filter_z, p.stride_d, p.pad_d, p.dilation_d);
        int const h = output_extent(p.input_h, p.filter_y, p.stride_h, p.pad_h, p.dilation_h);
        int const w = output_extent(p.input_w, p.filter_x, p.stride_w, p.pad_w, p.dilation_w);
        return Size(p.N, p.input_d, p.input_h, p.input_w, p.C, p.K, p.filter_z, p.filter_y, p.filter_x, d, h, w,
                    p.pad_d, p.pad_h, p.pad_w, p.stride_d, p.stride_h, p.stride_w, p.dilation_d, p.dilation_h,
                    p.dilation_w, cutlass::conv::Mode::kCrossCorrelation, p.split_k, p.G);
    }
    static auto input(Size const &s) { return cutlass::make_Coord(s.N, s.D, s.H, s.W, s.C); }
    static auto filter(Size const &s) { return cutlass::make_Coord(s.K, s.T, s.R, s.S, s.C); }
    static auto output(Size const &s) { return cutlass::make_Coord(s.N, s.Z, s.P, s.Q, s.K); }
};

template <typename Kernel, int Ndim>
struct CutlassLauncher {
    using Conv = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;
    using Arguments = typename Conv::Arguments;
    using Layout = typename Conv::LayoutA;
    using Size = typename Shape<Ndim>::Size;

    template <typename Element, typename Extent>
    static auto tensor(void const *data, Extent const &extent) {
        auto const layout = Layout::packed(typename Layout::TensorCoord(extent));
        return cutlass::TensorRef<Element, Layout>(static_cast<Element *>(const_cast<void *>(data)), layout);
    }

    static Arguments arguments(ConvProblem const &p, void const *a, void const *b, void *c) {
        using ElementA = typename Conv::ElementA;
        using ElementB = typename Conv::ElementB;
        using ElementC = typename Conv::ElementC;
        Size const size = Shape<Ndim>::size(p);
        auto const x = Shape<Ndim>::input(size), w = Shape<Ndim>::filter(size), y = Shape<Ndim>::output(size);
        auto const fprop = Conv::kConvolutionalOperator == cutlass::conv::Operator::kFprop;
        auto const dgrad = Conv::kConvolutionalOperator == cutlass::conv::Operator::kDgrad;
        auto const out = tensor<ElementC>(c, fprop ? y : dgrad ? x : w);
        // CUTLASS wants the weight gradient's operands the other way round.
        bool const swapped = !fprop && !dgrad;
        auto const first = tensor<ElementA>(swapped ? b : a, fprop ? x : y);
        auto const second = tensor<ElementB>(swapped ? a : b, swapped ? x : w);
        return Arguments(size, first, second, out, out, {1.0f, 0.0f});
    }

    static int supports(ConvProblem const *p) {
        return static_cast<int>(Conv::can_implement(arguments(*p, nullptr, nullptr, nullptr)));
    }

    static size_t workspace(ConvProblem const *p) {
        return Conv::get_workspace_size(arguments(*p, nullptr, nullptr, nullptr));
    }

    static int launch(ConvProblem const *p, void const *a, void const *b, void *c, void *workspace, void *stream) {
        Conv conv;
        return static_cast<int>(conv(arguments(*p, a, b, c), workspace, static_cast<cudaStream_t>(stream)));
    }

    static int resources(Resources *resources) {
        cudaFuncAttributes attributes;
        auto const function = cutlass::Kernel<Kernel>;
        int const bytes = int(sizeof(typename Kernel::SharedStorage));
        cudaError_t status = cudaFuncGetAttributes(&attributes, function);
        if (status == cudaSuccess) {
            status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        }
        int blocks = 0;
        if (status == cudaSuccess) {
            status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32 * Conv::kWarpCount, bytes);
        }
        if (status != cudaSuccess) {
            return static_cast<int>(cutlass::Status::kErrorInternal);
        }
        *resources = {attributes.numRegs, int32_t(attributes.localSizeBytes), bytes, blocks};
        return 0;
    }

    static constexpr Launcher launcher(char const *name, int direction) {
        return {name, direction, Ndim, supports, workspace, launch, resources};
    }
};

}  // namespace tilewright
