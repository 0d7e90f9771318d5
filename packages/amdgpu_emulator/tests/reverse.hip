// SPDX-License-Identifier: MIT
// Reverses 256 numbers through the LDS. A barrier is missing between the store and the load, for the README of the emulator.
#include <hip/hip_runtime.h>

extern "C" __global__ void reverse(int* numbers)
{
    __shared__ int kept[256];
    kept[threadIdx.x]    = numbers[threadIdx.x];
    numbers[threadIdx.x] = kept[255 - threadIdx.x];
}
