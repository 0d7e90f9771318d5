// SPDX-License-Identifier: MIT
// How an emitted CUTLASS convolution plugs into the driver. One line for each kernel of a library:
//
//   #include "NAME.cuh"
//   #include "cutlass_kernel.hpp"
//   TILESEER_CUTLASS_KERNEL(NAME)
//
// The header has the type NAME::Kernel, a convolution of the CUTLASS 2.x templates; direction, dimensionality and data
// type are read from it.
#pragma once

#include "gpu_api.hpp"

#include <cutlass/conv/device/implicit_gemm_convolution.h>
#include <cutlass/cutlass.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace tileseer {

// The problem as CUTLASS counts it, and the extents of its tensors.
template <int NDim>
struct CutlassProblem;

template <>
struct CutlassProblem<2>
{
    using Size = cutlass::conv::Conv2dProblemSize;

    static Size size(const ConvProblemC& p)
    {
        return Size(p.N, p.input_h, p.input_w, p.C, p.K, p.filter_y, p.filter_x, output_h(p), output_w(p), p.pad_h,
                    p.pad_w, p.stride_h, p.stride_w, p.dilation_h, p.dilation_w,
                    cutlass::conv::Mode::kCrossCorrelation, p.split_k, p.G);
    }

    static auto input(const Size& s) { return cutlass::make_Coord(s.N, s.H, s.W, s.C); }
    static auto weight(const Size& s) { return cutlass::make_Coord(s.K, s.R, s.S, s.C / s.groups); }
    static auto output(const Size& s) { return cutlass::make_Coord(s.N, s.P, s.Q, s.K); }
};

template <>
struct CutlassProblem<3>
{
    using Size = cutlass::conv::Conv3dProblemSize;

    static Size size(const ConvProblemC& p)
    {
        return Size(p.N, p.input_d, p.input_h, p.input_w, p.C, p.K, p.filter_z, p.filter_y, p.filter_x, output_d(p),
                    output_h(p), output_w(p), p.pad_d, p.pad_h, p.pad_w, p.stride_d, p.stride_h, p.stride_w,
                    p.dilation_d, p.dilation_h, p.dilation_w, cutlass::conv::Mode::kCrossCorrelation, p.split_k, p.G);
    }

    static auto input(const Size& s) { return cutlass::make_Coord(s.N, s.D, s.H, s.W, s.C); }
    static auto weight(const Size& s) { return cutlass::make_Coord(s.K, s.T, s.R, s.S, s.C / s.groups); }
    static auto output(const Size& s) { return cutlass::make_Coord(s.N, s.Z, s.P, s.Q, s.K); }
};

template <typename Element>
constexpr int cutlass_dtype()
{
    if constexpr(std::is_same_v<Element, cutlass::half_t>)
    {
        return CONV_FP16;
    }
    else if constexpr(std::is_same_v<Element, cutlass::bfloat16_t>)
    {
        return CONV_BF16;
    }
    else
    {
        static_assert(std::is_same_v<Element, float>, "the driver has no operands of this type");
        return CONV_FP32;
    }
}

constexpr int cutlass_direction(cutlass::conv::Operator what)
{
    switch(what)
    {
    case cutlass::conv::Operator::kFprop: return CONV_FORWARD;
    case cutlass::conv::Operator::kDgrad: return CONV_BWD_DATA;
    default: return CONV_BWD_WEIGHT;
    }
}

// `Traits` has the kernel and its name.
template <typename Traits>
struct CutlassKernel
{
    using Kernel    = typename Traits::Kernel;
    using Conv      = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;
    using Arguments = typename Conv::Arguments;
    using Layout    = typename Conv::LayoutA;

    static constexpr const char* name = Traits::name;
    static constexpr int direction    = cutlass_direction(Conv::kConvolutionalOperator);
    static constexpr int ndim         = Conv::kConvDim;
    static constexpr int dtype        = cutlass_dtype<typename Conv::ElementA>();
    using Problem                     = CutlassProblem<ndim>;

    static bool supports(const ConvProblemC& problem, std::string& why)
    {
        // The templates know no better; a kernel for groups runs one group wrongly or slowly.
        if((problem.G > 1) != (Conv::kGroupMode != cutlass::conv::GroupMode::kNone))
        {
            why = problem.G > 1 ? "the kernel knows no groups" : "the kernel is for groups";
            return false;
        }
        if(direction != CONV_BWD_WEIGHT && problem.split_k != 1)
        {
            why = "the kernel does not split the reduction";
            return false;
        }
        const Arguments args = arguments(problem, Tensors{});
        // A slice without a step would still be launched.
        constexpr std::int64_t step = Kernel::ThreadblockShape::kK;
        const auto reduction        = cutlass::conv::implicit_gemm_problem_size(Conv::kConvolutionalOperator, args.problem_size).k();
        if(problem.split_k > (reduction + step - 1) / step)
        {
            why = "split_k is larger than the number of steps of the reduction";
            return false;
        }
        const cutlass::Status status = Conv::can_implement(args);
        why                          = cutlassGetStatusString(status);
        return status == cutlass::Status::kSuccess;
    }

    static std::int64_t workspace_bytes(const ConvProblemC& problem)
    {
        return static_cast<std::int64_t>(Conv::get_workspace_size(arguments(problem, Tensors{})));
    }

    // With split-K the slices take turns by a semaphore in the workspace; clearing it is part of the launch.
    static void launch(const ConvProblemC& problem, const Tensors& t)
    {
        Conv convolution;
        const cutlass::Status status =
            convolution(arguments(problem, t), t.workspace, static_cast<cudaStream_t>(t.stream));
        if(status != cutlass::Status::kSuccess)
        {
            throw std::runtime_error(std::string("CUTLASS: ") + cutlassGetStatusString(status));
        }
    }

    static ConvResourcesC resources()
    {
        const auto function  = cutlass::Kernel<Kernel>;
        const int shared     = static_cast<int>(sizeof(typename Kernel::SharedStorage));
        const auto permitted = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
        if(permitted != cudaSuccess)
        {
            (void)cudaGetLastError();
            return unknown_resources();
        }
        return function_resources(reinterpret_cast<const void*>(function), Kernel::kThreadCount, shared);
    }

    private:
    template <typename Element, typename Extent>
    static auto tensor(const void* data, const Extent& extent)
    {
        const auto layout = Layout::packed(typename Layout::TensorCoord(extent));
        return cutlass::TensorRef<Element, Layout>(static_cast<Element*>(const_cast<void*>(data)), layout);
    }

    static Arguments arguments(const ConvProblemC& p, const Tensors& t)
    {
        using A           = typename Conv::ElementA;
        using B           = typename Conv::ElementB;
        using C           = typename Conv::ElementC;
        const auto size   = Problem::size(p);
        const auto input  = Problem::input(size);
        const auto weight = Problem::weight(size);
        const auto output = Problem::output(size);
        // Our c, in the place of CUTLASS's source and of its destination: alpha 1, beta 0.
        if constexpr(direction == CONV_FORWARD)
        {
            const auto c = tensor<C>(t.c, output);
            return Arguments(size, tensor<A>(t.a, input), tensor<B>(t.b, weight), c, c, {1.0f, 0.0f});
        }
        else if constexpr(direction == CONV_BWD_DATA)
        {
            const auto c = tensor<C>(t.c, input);
            return Arguments(size, tensor<A>(t.a, output), tensor<B>(t.b, weight), c, c, {1.0f, 0.0f});
        }
        else
        {
            // CUTLASS takes the output gradient first.
            const auto c = tensor<C>(t.c, weight);
            return Arguments(size, tensor<A>(t.b, output), tensor<B>(t.a, input), c, c, {1.0f, 0.0f});
        }
    }
};

} // namespace tileseer

// Threads and shared memory of a block are in the object file too, where the compile stage reads them.
#define TILESEER_CUTLASS_KERNEL(NAME)                                                         \
    namespace {                                                                               \
    struct NAME##_Traits                                                                      \
    {                                                                                         \
        using Kernel                      = NAME::Kernel;                                     \
        static constexpr const char* name = #NAME;                                            \
    };                                                                                        \
    const tileseer::Registration<tileseer::CutlassKernel<NAME##_Traits>> NAME##_registration; \
    }                                                                                         \
    extern "C" const int NAME##_block[] = {NAME::Kernel::kThreadCount,                        \
                                           static_cast<int>(sizeof(NAME::Kernel::SharedStorage))};
