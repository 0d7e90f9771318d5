// Stand-in for tests, see README.md.
#pragma once

namespace ck_tile::element_wise {

struct PassThrough {};
struct UnaryConvert {};

} // namespace ck_tile::element_wise
