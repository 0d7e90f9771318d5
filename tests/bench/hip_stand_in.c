/* SPDX-License-Identifier: MIT */
/* The part of the HIP runtime that libraries of kernels call, without a GPU: memory is the host's, launches are
   counted and not executed, every elapsed time is one millisecond. For checks of host code only. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct
{
    unsigned x, y, z;
} Dim3;

static int launches;
static int fills;
static Dim3 last_grid, last_block;
static Dim3 pushed_grid, pushed_block;
static size_t pushed_shared;
static void* pushed_stream;

int stand_in_launches(void) { return launches; }
int stand_in_fills(void) { return fills; }
void stand_in_last(unsigned* numbers)
{
    memcpy(numbers, &last_grid, sizeof last_grid);
    memcpy(numbers + 3, &last_block, sizeof last_block);
}

void** __hipRegisterFatBinary(const void* data)
{
    static void* handle;
    (void)data;
    return &handle;
}
void __hipRegisterFunction(void) {}
void __hipRegisterVar(void) {}
void __hipUnregisterFatBinary(void** handle) { (void)handle; }

int __hipPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void* stream)
{
    pushed_grid   = grid;
    pushed_block  = block;
    pushed_shared = shared;
    pushed_stream = stream;
    return 0;
}

int __hipPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared, void** stream)
{
    *grid   = pushed_grid;
    *block  = pushed_block;
    *shared = pushed_shared;
    *stream = pushed_stream;
    return 0;
}

int hipLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments, size_t shared, void* stream)
{
    (void)function;
    (void)arguments;
    (void)shared;
    (void)stream;
    last_grid  = grid;
    last_block = block;
    ++launches;
    return 0;
}

int hipMalloc(void** memory, size_t bytes)
{
    *memory = malloc(bytes > 0 ? bytes : 1);
    return *memory == NULL ? 2 : 0;
}
int hipHostMalloc(void** memory, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory = calloc(1, bytes);
    return 0;
}
int hipFree(void* memory)
{
    free(memory);
    return 0;
}
int hipMemsetAsync(void* memory, int value, size_t bytes, void* stream)
{
    (void)stream;
    ++fills;
    memset(memory, value, bytes);
    return 0;
}
int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream)
{
    (void)kind;
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}
int hipStreamCreate(void** stream)
{
    *stream = &launches;
    return 0;
}
int hipStreamDestroy(void* stream)
{
    (void)stream;
    return 0;
}
int hipStreamSynchronize(void* stream)
{
    (void)stream;
    return 0;
}
int hipEventCreate(void** event)
{
    *event = &launches;
    return 0;
}
int hipEventDestroy(void* event)
{
    (void)event;
    return 0;
}
int hipEventRecord(void* event, void* stream)
{
    (void)event;
    (void)stream;
    return 0;
}
int hipEventSynchronize(void* event)
{
    (void)event;
    return 0;
}
int hipEventElapsedTime(float* milliseconds, void* begin, void* end)
{
    (void)begin;
    (void)end;
    *milliseconds = 1;
    return 0;
}
int hipGetDevice(int* number)
{
    *number = 0;
    return 0;
}
int hipGetDevicePropertiesR0600(char* properties, int number)
{
    (void)number;
    strcpy(properties, "stand-in");
    return 0;
}
int hipDeviceGetAttribute(int* value, int attribute, int number)
{
    (void)attribute;
    (void)number;
    *value = 0;
    return 0;
}
int hipDeviceGetPCIBusId(char* id, int size, int number)
{
    (void)number;
    if(size > 0)
    {
        id[0] = 0;
    }
    return 0;
}
int hipDriverGetVersion(int* version)
{
    *version = 0;
    return 0;
}
int hipRuntimeGetVersion(int* version)
{
    *version = 0;
    return 0;
}
int hipGetLastError(void) { return 0; }
const char* hipGetErrorString(int code)
{
    (void)code;
    return "an error of the stand-in";
}
