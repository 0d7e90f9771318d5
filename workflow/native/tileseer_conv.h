/* SPDX-License-Identifier: MIT */
/* The C interface between a process that measures convolution kernels and the libraries that hold them.

   A driver library exports all functions but the last one, which a module exports, a library of kernels (see
   launcher.hpp): it registers them with the driver whose function it is given. The first ten functions carry the names of Composable Kernel's
   dispatcher bindings. Nothing touches the GPU before the first verify, measure, run, resources, device or probe.

   Tensors: input N [Di] Hi Wi G C/G, weight G K/G [Z] Y X C/G, output N [Do] Ho Wo G K/G, all contiguous.
   (a, b, c) is forward (input, weight, output), bwd_data (output gradient, weight, input gradient),
   bwd_weight (input, output gradient, weight gradient). Not for use from several threads at once. */
#ifndef TILESEER_CONV_H
#define TILESEER_CONV_H

#include <stdint.h>

#define CONV_ABI_VERSION 3

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returned, where it returns a code. conv_dispatcher_last_error() has the text. */
enum ConvCode
{
    CONV_OK            = 0,
    CONV_BAD_ARGUMENT  = -1, /* null pointer, index out of range, problem that is no convolution */
    CONV_NO_KERNEL     = -2, /* no kernel for this direction and dimensionality */
    CONV_UNSUPPORTED   = -3, /* the kernel refuses the problem, or its launch threw */
    CONV_DEVICE_FAULT  = -4, /* the device reported an error: leave the process, its context is lost */
    CONV_OUT_OF_MEMORY = -5
};

enum ConvDirection
{
    CONV_FORWARD    = 0,
    CONV_BWD_DATA   = 1,
    CONV_BWD_WEIGHT = 2
};

enum ConvDtype
{
    CONV_FP16 = 0,
    CONV_BF16 = 1,
    CONV_FP32 = 2
};

enum ConvCache
{
    CONV_COLD = 0, /* operands rotate through more memory than the last-level cache holds */
    CONV_WARM = 1  /* every launch has the same operands */
};

/* Why timing ended. */
enum ConvStop
{
    CONV_STOP_CONVERGED = 0, /* minimum time, minimum samples and maximum noise are all met */
    CONV_STOP_SAMPLES   = 1,
    CONV_STOP_BUDGET    = 2,
    CONV_STOP_HOPELESS  = 3 /* the first sample was above hopeless_ms */
};

/* C and K are totals over the G groups. 21 times int32. */
typedef struct ConvProblemC
{
    int32_t N, G, C, K;
    int32_t input_d, input_h, input_w;
    int32_t filter_z, filter_y, filter_x;
    int32_t stride_d, stride_h, stride_w;
    int32_t pad_d, pad_h, pad_w;
    int32_t dilation_d, dilation_h, dilation_w;
    int32_t direction; /* ConvDirection */
    int32_t split_k;   /* slices of the reduction, at least 1 */
} ConvProblemC;

typedef struct ConvOptionsC
{
    uint64_t seed;        /* of the operands */
    int64_t rotate_bytes; /* memory to rotate through when cold; 0: twice the last-level cache */
    double min_time_ms;   /* device time of all samples together, at least */
    double max_noise;     /* relative standard error of the median, at most */
    double budget_ms;     /* wall time of warm-up and samples together, at most */
    double sample_ms;     /* a sample repeats launches until it is about this long */
    double warmup_change; /* warm-up ends when two windows of samples differ by less than this */
    double hopeless_ms;   /* give up after one sample above this; 0: never */
    double settle_ms;     /* wait at most this long for the clock to recover from what ran before */
    int32_t min_samples;
    int32_t max_samples;
    int32_t cache; /* ConvCache */
    int32_t verify_millions; /* multiply-adds of a reference, at most: larger problems are sampled; 0: no limit */
} ConvOptionsC;

typedef struct ConvResultC
{
    double median_ms;
    double noise;          /* relative standard error of the median; negative with one sample */
    double device_ms;      /* device time of all samples */
    double wall_ms;        /* wall time of warm-up and samples */
    double settle_ms;      /* wall time of waiting for the clock before them */
    double clock_mhz;      /* of the compute units, right after the samples; -1: not known */
    int64_t workspace_bytes;
    int64_t rotated_bytes; /* memory that the operands rotated through; 0 when warm */
    int32_t samples;
    int32_t launches_per_sample;
    int32_t warmup_samples;
    int32_t copies;     /* of the operands */
    int32_t stop;       /* ConvStop */
    int32_t host_bound; /* samples in which the host was too slow to queue all launches ahead of the device */
} ConvResultC;

typedef struct ConvCheckC
{
    int64_t elements;   /* compared with the reference; of the others it is known whether they are finite */
    int64_t not_finite; /* among them the poison of elements that were not written */
    int64_t wrong;      /* elements outside the tolerance, not_finite included */
    int64_t non_zero;
    double relative_error; /* |result - reference| / |reference|, Euclidean, over the finite elements */
    double worst;          /* largest error in units of its tolerance, over the finite elements */
    double tolerance;      /* absolute, of an element as large as the root mean square */
} ConvCheckC;

/* -1: not known. */
typedef struct ConvResourcesC
{
    int32_t registers; /* a lane */
    int32_t shared_bytes;
    int32_t local_bytes; /* a lane: spilled registers and arrays */
    int32_t threads;     /* a block */
    int32_t blocks;      /* resident on one compute unit */
} ConvResourcesC;

typedef struct ConvDeviceC
{
    char name[128];
    char uuid[64];
    char pci[32];
    char arch[32];
    int64_t llc_bytes;
    int64_t memory_bytes;
    int32_t compute_units;
    int32_t clock_khz;
    int32_t driver_version;
    int32_t runtime_version;
} ConvDeviceC;

/* A kernel as its module offers it. `why` takes the text of a refusal or an exception, cut to `size` bytes. */
typedef struct ConvKernelC
{
    const char* name;
    int32_t direction;
    int32_t ndim;
    int32_t dtype;
    int (*supports)(const ConvProblemC* problem, char* why, int size); /* 1 or 0 */
    int64_t (*workspace_bytes)(const ConvProblemC* problem);
    /* Queues one whole convolution on the stream, with all that it needs (zeroing, second stage). Returns a ConvCode;
       allocates nothing and waits for nothing. */
    int (*launch)(const ConvProblemC* problem, const void* a, const void* b, void* c, void* workspace, void* stream,
                  char* why, int size);
    int (*resources)(ConvResourcesC* resources);
} ConvKernelC;

/* As in Composable Kernel's dispatcher bindings. */
int conv_dispatcher_init(void);
int conv_dispatcher_cleanup(void); /* frees all device memory */
const char* conv_dispatcher_version(void);
int conv_dispatcher_has_kernels(void); /* forward */
int conv_dispatcher_has_bwd_data(void);
int conv_dispatcher_has_bwd_weight(void);
int conv_dispatcher_get_kernel_count(void);
int conv_dispatcher_get_kernel_name(int index, char* buffer, int size); /* 0, or -1; never cuts a name */
int conv_dispatcher_is_supported(const ConvProblemC* problem);          /* 1 if a kernel supports it, 0, or a code */
/* Times the first kernel that supports the problem, with the caller's tensors, warm; milliseconds or a code. */
float conv_dispatcher_run(const void* a, const void* b, void* c, const ConvProblemC* problem, void* stream);

/* Beyond them. */
int conv_dispatcher_abi(void); /* CONV_ABI_VERSION */
const char* conv_dispatcher_backend(void); /* cuda, hip or host */
const char* conv_dispatcher_last_error(void);
void conv_dispatcher_register(const ConvKernelC* kernel); /* kept by address, once */
int conv_dispatcher_find_kernel(const char* name); /* index or CONV_NO_KERNEL */
int conv_dispatcher_supports(int index, const ConvProblemC* problem); /* 1, 0 with the reason, or a code */
int64_t conv_dispatcher_workspace_bytes(int index, const ConvProblemC* problem);
int conv_dispatcher_resources(int index, ConvResourcesC* resources);
int conv_dispatcher_device(ConvDeviceC* device);
int conv_dispatcher_probe(void); /* a small computation with a known result */
int conv_dispatcher_verify(int index, const ConvProblemC* problem, const ConvOptionsC* options, ConvCheckC* check);
int conv_dispatcher_measure(int index, const ConvProblemC* problem, const ConvOptionsC* options, double* samples_ms,
                            int capacity, ConvResultC* result);

/* Exported by a module: calls `add`, a driver's conv_dispatcher_register, for each of its kernels. */
void tileseer_register_kernels(void (*add)(const ConvKernelC* kernel));

#ifdef __cplusplus
}
#endif
#endif
