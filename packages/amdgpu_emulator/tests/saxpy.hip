#include <hip/hip_runtime.h>

// y = a x + y
extern "C" __global__ void saxpy(float* y, const float* x, float a, unsigned int n)
{
    const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < n)
    {
        y[i] = a * x[i] + y[i];
    }
}
