// Stand-in for tests, see README.md.
#pragma once

namespace ck_tile {

struct GroupedConvUniversalPipelineAgBgCrPolicy {};

} // namespace ck_tile
