// What a harness knows of a kernel: what it can run, what it takes, and how it is launched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewright {

// The problem of the reference's C ABI: 21 consecutive int32. C and K are totals over the G groups.
struct ConvProblem {
    int32_t N, G, C, K;
    int32_t input_d, input_h, input_w;
    int32_t filter_z, filter_y, filter_x;
    int32_t stride_d, stride_h, stride_w;
    int32_t pad_d, pad_h, pad_w;
    int32_t dilation_d, dilation_h, dilation_w;
    int32_t direction;  // 0 forward, 1 bwd_data, 2 bwd_weight
    int32_t split_k;
};

struct Resources {
    int32_t registers;     // a thread
    int32_t local_bytes;   // a thread: spilled registers and stack
    int32_t shared_bytes;  // a block
    int32_t blocks;        // resident on one multiprocessor
};

// Device pointers a, b, c: forward X, W, Y; bwd_data dY, W, dX; bwd_weight X, dY, dW. Channels are contiguous.
// Functions return 0, or the number of a cutlass::Status.
struct Launcher {
    char const *name;
    int32_t direction;
    int32_t ndim;
    int (*supports)(ConvProblem const *problem);
    size_t (*workspace)(ConvProblem const *problem);
    int (*launch)(ConvProblem const *problem, void const *a, void const *b, void *c, void *workspace, void *stream);
    int (*resources)(Resources *resources);
};

}  // namespace tilewright
