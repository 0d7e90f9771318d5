// Stand-in for tests, see README.md.
#pragma once
#include <cstdint>
#include <tuple>

namespace ck_tile {

using index_t      = int32_t;
using long_index_t = int64_t;
struct half_t { uint16_t bits; };
struct bf16_t { uint16_t bits; };

template <index_t I>
struct number {};

template <index_t... Is>
struct sequence
{
    template <index_t I>
    static constexpr index_t at(number<I>)
    {
        return std::get<I>(std::make_tuple(Is...));
    }
};

template <typename... Ts>
struct tuple
{
    std::tuple<Ts...> held;
    template <index_t I>
    const auto& at(number<I>) const
    {
        return std::get<I>(held);
    }
    static constexpr index_t size() { return sizeof...(Ts); }
};

template <typename... Ts>
tuple<Ts...> make_tuple(Ts... values)
{
    return {{values...}};
}

namespace tensor_layout {
namespace gemm {
struct RowMajor {};
struct ColumnMajor {};
} // namespace gemm
namespace convolution {
struct NWGC {};
struct GKXC {};
struct NWGK {};
struct NHWGC {};
struct GKYXC {};
struct NHWGK {};
struct NDHWGC {};
struct GKZYXC {};
struct NDHWGK {};
} // namespace convolution
} // namespace tensor_layout

} // namespace ck_tile
