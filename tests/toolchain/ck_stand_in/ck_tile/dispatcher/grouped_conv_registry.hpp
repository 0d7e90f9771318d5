// Stand-in for tests, see README.md.
#pragma once
#include <functional>
#include <memory>
#include <string>

namespace ck_tile::dispatcher {

enum class GroupedConvOp { Forward, BackwardData, BackwardWeight };
enum class Priority { Low, Normal, High };
struct GroupedConvProblem {};

struct GroupedConvKernelKey
{
    std::string dtype_in, dtype_wei, dtype_out, layout;
    int ndim_spatial;
    GroupedConvOp op;
    int tile_m, tile_n, tile_k, wave_m, wave_n, wave_k, warp_m, warp_n, warp_k;
    std::string pipeline, scheduler, epilogue;
    int vector_size_a, vector_size_b, vector_size_c, block_per_cu, num_wave_groups, num_groups_to_merge;
    std::string specialization;
    bool large_tensor, streamk_enabled;
    std::string streamk_reduction;
    bool streamk_persistent;
    std::string arch;
};

class GroupedConvKernelInstance
{
    public:
    using RunFn         = std::function<float(const GroupedConvProblem&, void*)>;
    using IsSupportedFn = std::function<bool(const GroupedConvProblem&)>;
    GroupedConvKernelInstance(const GroupedConvKernelKey& key,
                              const std::string& name,
                              RunFn run,
                              IsSupportedFn is_supported         = nullptr,
                              const std::string& instance_string = "");
    const GroupedConvKernelKey& key() const;
};
using GroupedConvKernelInstancePtr = std::shared_ptr<GroupedConvKernelInstance>;

class GroupedConvRegistry
{
    public:
    static GroupedConvRegistry& instance();
    bool register_kernel(const GroupedConvKernelKey& key,
                         GroupedConvKernelInstancePtr instance,
                         Priority priority = Priority::Normal);
};

} // namespace ck_tile::dispatcher
