// Measures pairs of a plan with the kernels of a library: worker LIBRARY PLAN JOURNAL IN_FLIGHT SECONDS MODE DTYPE
//
// The plan (prepare.py): "P index 21 numbers", "Q index name split_k", "M problem candidate...". A row for every pair
// is appended to the journal at once. Every pair is verified against a reference that shares no code with the
// kernels, on an output that was filled with NaN before. Times are of single launches between two device events,
// queued behind a kernel that holds the stream until all are queued, so that no launch waits for the host. Cold: each
// launch reads and writes memory that was not touched for gigabytes. What a launch needs (a cleared semaphore of
// split-K) is timed with it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tilewright/launcher.h"

using tilewright::ConvProblem;
using tilewright::Launcher;

namespace {

constexpr int64_t kGiB = int64_t(1) << 30;
constexpr int64_t kInputPool = 8 * kGiB, kOutputPool = 4 * kGiB;
constexpr int64_t kFullReference = 1000000000;  // multiply-adds up to which every output element is checked
constexpr int64_t kMostReferences = int64_t(1) << 26;
constexpr int kSamples = 1024;
constexpr int kMostLaunches = 32;
constexpr double kReject = 3.0;      // times the best so far: such a kernel gets the first three launches only
constexpr double kTargetUs = 400.0;  // timed at least this long, where kMostLaunches allow
constexpr double kNoisy = 0.05;      // relative spread from which a second batch is timed
constexpr int kCrash = 3;            // exit status: the context is lost

void fail(char const *what, cudaError_t status) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

#define CHECK(call)                                              \
    do {                                                         \
        cudaError_t status_ = (call);                            \
        if (status_ != cudaSuccess) fail(#call, status_);        \
    } while (0)

__host__ __device__ uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ float load(__half const *p, int64_t i) { return __half2float(p[i]); }
__device__ float load(__nv_bfloat16 const *p, int64_t i) { return __bfloat162float(p[i]); }
__device__ void store(__half *p, int64_t i, float v) { p[i] = __float2half(v); }
__device__ void store(__nv_bfloat16 *p, int64_t i, float v) { p[i] = __float2bfloat16(v); }

// Uniform in [-1, 1): every bit of the operands is busy, as with real data.
template <typename T>
__global__ void fill(T *data, int64_t n, uint64_t seed) {
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
        store(data, i, float(mix(seed + uint64_t(i)) >> 40) * (2.0f / 16777216.0f) - 1.0f);
    }
}

// Holds the stream until the host has queued a batch; gives up after 200 ms.
__global__ void hold(int volatile *released, int *timed_out) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - start > 200000000ull) {
            *timed_out = 1;
            return;
        }
    } while (*released == 0);
}

struct Sizes {
    ConvProblem p;
    int Do, Ho, Wo, c, k;
    int64_t a, b, out, reduction;  // elements
};

Sizes sizes_of(ConvProblem const &p) {
    Sizes s{p};
    auto const extent = [](int i, int f, int st, int pad, int d) { return (i + 2 * pad - d * (f - 1) - 1) / st + 1; };
    s.Do = extent(p.input_d, p.filter_z, p.stride_d, p.pad_d, p.dilation_d);
    s.Ho = extent(p.input_h, p.filter_y, p.stride_h, p.pad_h, p.dilation_h);
    s.Wo = extent(p.input_w, p.filter_x, p.stride_w, p.pad_w, p.dilation_w);
    s.c = p.C / p.G;
    s.k = p.K / p.G;
    int64_t const x = int64_t(p.N) * p.input_d * p.input_h * p.input_w * p.C;
    int64_t const y = int64_t(p.N) * s.Do * s.Ho * s.Wo * p.K;
    int64_t const taps = int64_t(p.filter_z) * p.filter_y * p.filter_x, w = taps * p.K * s.c;
    s.a = p.direction == 1 ? y : x;
    s.b = p.direction == 2 ? y : w;
    s.out = p.direction == 0 ? y : p.direction == 1 ? x : w;
    s.reduction = p.direction == 0 ? taps * s.c : p.direction == 1 ? taps * s.k : int64_t(p.N) * s.Do * s.Ho * s.Wo;
    return s;
}

// One product of output element `o`, number `r` of its reduction. The definition of the convolution, nothing else.
template <typename T>
__device__ float term(Sizes const &s, T const *a, T const *b, int64_t o, int64_t r) {
    ConvProblem const &p = s.p;
    auto const input = [&](int64_t n, int d, int h, int w, int c) {
        return (((n * p.input_d + d) * p.input_h + h) * p.input_w + w) * p.C + c;
    };
    auto const output = [&](int64_t n, int d, int h, int w, int k) {
        return (((n * s.Do + d) * s.Ho + h) * s.Wo + w) * p.K + k;
    };
    auto const filter = [&](int64_t k, int z, int y, int x, int c) {
        return (((k * p.filter_z + z) * p.filter_y + y) * p.filter_x + x) * s.c + c;
    };
    auto const digit = [](int64_t &rest, int base) {
        int const value = int(rest % base);
        rest /= base;
        return value;
    };
    if (p.direction == 0) {
        int const k = digit(o, p.K), wo = digit(o, s.Wo), ho = digit(o, s.Ho), d0 = digit(o, s.Do);
        int const c = digit(r, s.c), x = digit(r, p.filter_x), y = digit(r, p.filter_y), z = int(r);
        int const d = d0 * p.stride_d - p.pad_d + z * p.dilation_d, h = ho * p.stride_h - p.pad_h + y * p.dilation_h;
        int const w = wo * p.stride_w - p.pad_w + x * p.dilation_w;
        if (d < 0 || h < 0 || w < 0 || d >= p.input_d || h >= p.input_h || w >= p.input_w) return 0.0f;
        return load(a, input(o, d, h, w, k / s.k * s.c + c)) * load(b, filter(k, z, y, x, c));
    }
    if (p.direction == 1) {
        int const channel = digit(o, p.C), wi = digit(o, p.input_w), hi = digit(o, p.input_h), di = digit(o, p.input_d);
        int const k = digit(r, s.k), x = digit(r, p.filter_x), y = digit(r, p.filter_y), z = int(r);
        int const d = di + p.pad_d - z * p.dilation_d, h = hi + p.pad_h - y * p.dilation_h;
        int const w = wi + p.pad_w - x * p.dilation_w;
        if (d < 0 || h < 0 || w < 0 || d % p.stride_d || h % p.stride_h || w % p.stride_w) return 0.0f;
        int const dd = d / p.stride_d, hh = h / p.stride_h, ww = w / p.stride_w;
        if (dd >= s.Do || hh >= s.Ho || ww >= s.Wo) return 0.0f;
        int64_t const filters = int64_t(channel / s.c) * s.k + k;
        return load(a, output(o, dd, hh, ww, int(filters))) * load(b, filter(filters, z, y, x, channel % s.c));
    }
    int const c = digit(o, s.c), x = digit(o, p.filter_x), y = digit(o, p.filter_y), z = digit(o, p.filter_z);
    int const wo = digit(r, s.Wo), ho = digit(r, s.Ho), d0 = digit(r, s.Do);
    int const d = d0 * p.stride_d - p.pad_d + z * p.dilation_d, h = ho * p.stride_h - p.pad_h + y * p.dilation_h;
    int const w = wo * p.stride_w - p.pad_w + x * p.dilation_w;
    if (d < 0 || h < 0 || w < 0 || d >= p.input_d || h >= p.input_h || w >= p.input_w) return 0.0f;
    return load(a, input(r, d, h, w, int(o) / s.k * s.c + c)) * load(b, output(r, d0, ho, wo, int(o)));
}

__host__ __device__ int64_t sample(int64_t i, int64_t out) { return int64_t(mix(uint64_t(i)) % uint64_t(out)); }

// Sum and sum of squares of the products: a thread an output element, or a block where elements are sampled.
template <typename T>
__global__ void reference_full(Sizes s, T const *a, T const *b, float *value, float *rms) {
    int64_t const o = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (o >= s.out) return;
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < s.reduction; ++r) {
        double const product = term(s, a, b, o, r);
        sum += product;
        squares += product * product;
    }
    value[o] = float(sum);
    rms[o] = float(sqrt(squares));
}

template <typename T>
__global__ void reference_sampled(Sizes s, T const *a, T const *b, float *value, float *rms) {
    int64_t const o = sample(blockIdx.x, s.out);
    double sum = 0, squares = 0;
    for (int64_t r = threadIdx.x; r < s.reduction; r += blockDim.x) {
        double const product = term(s, a, b, o, r);
        sum += product;
        squares += product * product;
    }
    __shared__ double sums[2][256];
    sums[0][threadIdx.x] = sum;
    sums[1][threadIdx.x] = squares;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
            sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        value[blockIdx.x] = float(sums[0][0]);
        rms[blockIdx.x] = float(sqrt(sums[1][0]));
    }
}

struct Verdict {
    unsigned long long wrong;
    unsigned int worst;  // bits of the largest error over its tolerance
    unsigned int error;  // bits of the largest error over max(|reference|, rms)
};

// An element may be off by one rounding of the output; by the rounding of float sums, which tensor cores cut off, so
// that it grows with the number of sums (`sums`, one a matrix instruction); and, where slices of the reduction are
// added in the output's own type, by a rounding for each slice. NaN is always wrong.
template <typename T>
__global__ void compare(T const *out, float const *value, float const *rms, int64_t n, int64_t outputs, bool sampled,
                        float rounding, float slices, float sums, Verdict *verdict) {
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
        float const got = load(out, sampled ? sample(i, outputs) : i);
        float const scale = rms[i] + 1e-6f;
        float const tolerance = rounding * fabsf(value[i]) * 1.01f + scale * (1e-4f + sums / 16777216.0f) +
                                (slices > 1.0f ? 4.0f * rounding * sqrtf(slices) * scale : 0.0f);
        float const error = fabsf(got - value[i]);
        if (!(error <= tolerance)) atomicAdd(&verdict->wrong, 1ull);
        if (error == error) {
            atomicMax(&verdict->worst, __float_as_uint(error / tolerance));
            atomicMax(&verdict->error, __float_as_uint(error / fmaxf(fabsf(value[i]), scale)));
        }
    }
}

template <typename T>
__global__ void count_nan(T const *out, int64_t n, Verdict *verdict) {
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
        float const got = load(out, i);
        if (got != got) atomicAdd(&verdict->wrong, 1ull);
    }
}

struct Candidate {
    Launcher const *launcher;
    int split_k;
};

struct Plan {
    std::map<int, ConvProblem> problems;
    std::map<int, Candidate> candidates;
    std::vector<std::pair<int, std::vector<int>>> pairs;
};

Plan read_plan(char const *path, void *library) {
    using Get = Launcher const *(*)(int);
    using Count = int (*)();
    auto const get = Get(dlsym(library, "tilewright_launcher"));
    auto const count = Count(dlsym(library, "tilewright_launcher_count"));
    if (!get || !count) {
        std::fprintf(stderr, "the library has no launchers: %s\n", dlerror());
        std::exit(1);
    }
    std::map<std::string, Launcher const *> launchers;
    for (int i = 0; i < count(); ++i) launchers[get(i)->name] = get(i);
    Plan plan;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string kind;
        int index = 0;
        fields >> kind >> index;
        if (kind == "P") {
            ConvProblem p;
            for (size_t i = 0; i < sizeof(p) / 4; ++i) fields >> reinterpret_cast<int32_t *>(&p)[i];
            plan.problems[index] = p;
        } else if (kind == "Q") {
            std::string name;
            int split_k = 1;
            fields >> name >> split_k;
            // A kernel that did not compile is not in the library; its pairs have no row.
            if (launchers.count(name)) plan.candidates[index] = {launchers[name], split_k};
        } else if (kind == "M") {
            std::vector<int> wanted;
            for (int q; fields >> q;) wanted.push_back(q);
            plan.pairs.push_back({index, wanted});
        }
    }
    return plan;
}

std::set<std::pair<int, int>> rows_of(char const *path) {
    std::set<std::pair<int, int>> rows;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        int p, q;
        if (std::sscanf(line.c_str(), "%d,%d,", &p, &q) == 2) rows.insert({p, q});
    }
    return rows;
}

struct Row {
    char const *status = "ok";
    int code = 0;
    std::vector<double> us;
    bool brief = false;
    double error = 0, worst = 0;
};

double quantile(std::vector<double> const &sorted, double share) {
    double const at = share * double(sorted.size() - 1);
    size_t const low = size_t(at);
    size_t const high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (at - double(low)) * (sorted[high] - sorted[low]);
}

template <typename T>
class Bench {
public:
    Bench(bool cold) : cold_(cold) {
        CHECK(cudaStreamCreate(&stream_));
        CHECK(cudaMalloc(&inputs_, kInputPool));
        CHECK(cudaMalloc(&outputs_, kOutputPool));
        CHECK(cudaMalloc(&workspace_, kWorkspace));
        CHECK(cudaMalloc(&value_, kMostReferences * sizeof(float)));
        CHECK(cudaMalloc(&rms_, kMostReferences * sizeof(float)));
        CHECK(cudaMalloc(&verdict_, sizeof(Verdict)));
        CHECK(cudaHostAlloc(&flags_, 2 * sizeof(int), cudaHostAllocMapped));
        CHECK(cudaHostGetDevicePointer(reinterpret_cast<void **>(&device_flags_), flags_, 0));
        for (auto &event : events_) CHECK(cudaEventCreate(&event));
        fill<<<1024, 256, 0, stream_>>>(inputs_, kInputPool / int64_t(sizeof(T)), 1);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream_));
    }

    void set_problem(ConvProblem const &p, uint64_t seed) {
        size_ = sizes_of(p);
        a_bytes_ = aligned(size_.a);
        b_bytes_ = aligned(size_.b);
        c_bytes_ = aligned(size_.out);
        fits_ = a_bytes_ + b_bytes_ <= kInputPool && c_bytes_ <= kOutputPool;
        if (!fits_) return;
        int64_t const room = (kInputPool - a_bytes_ - b_bytes_) / 256;
        base_ = room ? int64_t(mix(seed) % uint64_t(room)) * 256 : 0;
        sampled_ = double(size_.out) * double(size_.reduction) > double(kFullReference) || size_.out > kMostReferences;
        references_ = sampled_ ? kSamples : size_.out;
        T const *a = input(base_), *b = input(base_ + a_bytes_);
        if (sampled_) {
            reference_sampled<<<kSamples, 256, 0, stream_>>>(size_, a, b, value_, rms_);
        } else {
            reference_full<<<unsigned((size_.out + 127) / 128), 128, 0, stream_>>>(size_, a, b, value_, rms_);
        }
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream_));
        best_us_ = INFINITY;
    }

    Row measure(Candidate const &candidate) {
        Row row;
        ConvProblem p = size_.p;
        p.split_k = candidate.split_k;
        row.code = fits_ ? candidate.launcher->supports(&p) : -1;
        if (row.code == 0 && candidate.launcher->workspace(&p) > kWorkspace) row.code = -2;
        if (row.code != 0) {
            row.status = "unsupported";
            return row;
        }
        if (!verify(candidate, p, row)) return row;
        time(candidate, p, 3, row);
        double const first = *std::min_element(row.us.begin(), row.us.end());
        row.brief = first > kReject * best_us_;
        if (!row.brief) {
            int const least = first > 2000.0 ? 3 : 5;
            int const more = std::clamp(int(std::ceil(kTargetUs / first)), least, kMostLaunches);
            time(candidate, p, more, row);
            if (spread(row.us) > kNoisy) time(candidate, p, more, row);
        }
        std::sort(row.us.begin(), row.us.end());
        best_us_ = std::min(best_us_, quantile(row.us, 0.5));
        return row;
    }

private:
    static constexpr int64_t kWorkspace = int64_t(64) << 20;

    static int64_t aligned(int64_t elements) { return (elements * int64_t(sizeof(T)) + 255) / 256 * 256; }
    T *input(int64_t offset) { return reinterpret_cast<T *>(reinterpret_cast<char *>(inputs_) + offset); }
    T *output(int64_t offset) { return reinterpret_cast<T *>(reinterpret_cast<char *>(outputs_) + offset); }

    static int64_t advance(int64_t &cursor, int64_t bytes, int64_t pool) {
        if (cursor + bytes > pool) cursor = 0;
        int64_t const at = cursor;
        cursor += bytes;
        return at;
    }

    static double spread(std::vector<double> values) {
        std::sort(values.begin(), values.end());
        return (quantile(values, 0.75) - quantile(values, 0.25)) / quantile(values, 0.5);
    }

    // A failed launch leaves the context usable or not; a lost one ends the process, and the parent starts another.
    bool failed(Row &row, char const *status, int code) {
        row.status = status;
        row.code = code;
        return false;
    }

    bool verify(Candidate const &candidate, ConvProblem const &p, Row &row) {
        T *out = output(0);
        CHECK(cudaMemsetAsync(out, 0xff, size_t(size_.out) * sizeof(T), stream_));
        CHECK(cudaMemsetAsync(verdict_, 0, sizeof(Verdict), stream_));
        int const code = candidate.launcher->launch(&p, input(base_), input(base_ + a_bytes_), out, workspace_, stream_);
        if (code != 0) {
            cudaGetLastError();
            return failed(row, "crash", code);
        }
        float const rounding = sizeof(T) == 2 && std::is_same<T, __half>::value ? 1.0f / 2048 : 1.0f / 256;
        compare<<<512, 256, 0, stream_>>>(out, value_, rms_, references_, size_.out, sampled_, rounding,
                                          float(p.split_k), float(size_.reduction) / 16.0f / float(p.split_k),
                                          verdict_);
        if (sampled_) count_nan<<<1024, 256, 0, stream_>>>(out, size_.out, verdict_);
        Verdict verdict;
        CHECK(cudaMemcpyAsync(&verdict, verdict_, sizeof(verdict), cudaMemcpyDeviceToHost, stream_));
        cudaError_t const status = cudaStreamSynchronize(stream_);
        if (status != cudaSuccess) return failed(row, "crash", int(status));
        float worst, error;
        std::memcpy(&worst, &verdict.worst, 4);
        std::memcpy(&error, &verdict.error, 4);
        row.worst = worst;
        row.error = error;
        return verdict.wrong == 0 || failed(row, "wrong_result", int(std::min(verdict.wrong, 1000000ull)));
    }

    void time(Candidate const &candidate, ConvProblem const &p, int launches, Row &row) {
        flags_[0] = flags_[1] = 0;
        hold<<<1, 1, 0, stream_>>>(device_flags_, device_flags_ + 1);
        for (int i = 0; i < launches; ++i) {
            int64_t a = base_, c = 0;
            if (cold_) {
                a = advance(input_cursor_, a_bytes_ + b_bytes_, kInputPool);
                c = advance(output_cursor_, c_bytes_, kOutputPool);
            }
            CHECK(cudaEventRecord(events_[2 * i], stream_));
            candidate.launcher->launch(&p, input(a), input(a + a_bytes_), output(c), workspace_, stream_);
            CHECK(cudaEventRecord(events_[2 * i + 1], stream_));
        }
        *reinterpret_cast<int volatile *>(flags_) = 1;
        CHECK(cudaStreamSynchronize(stream_));
        if (flags_[1]) std::fprintf(stderr, "a batch was not held: its launches may have waited for the host\n");
        for (int i = 0; i < launches; ++i) {
            float ms = 0;
            CHECK(cudaEventElapsedTime(&ms, events_[2 * i], events_[2 * i + 1]));
            row.us.push_back(ms * 1000.0);
        }
    }

    bool cold_;
    cudaStream_t stream_;
    T *inputs_, *outputs_;
    void *workspace_;
    float *value_, *rms_;
    Verdict *verdict_;
    int *flags_, *device_flags_;
    cudaEvent_t events_[2 * kMostLaunches];
    Sizes size_{};
    int64_t a_bytes_ = 0, b_bytes_ = 0, c_bytes_ = 0, base_ = 0, references_ = 0;
    int64_t input_cursor_ = 0, output_cursor_ = 0;
    bool fits_ = false, sampled_ = false;
    double best_us_ = INFINITY;
};

void write_row(int journal, int p, int q, Row const &row) {
    char line[512];
    int n;
    if (row.us.empty()) {
        n = std::snprintf(line, sizeof(line), "%d,%d,%s,%d,0,,,,,,,%.3g,%.3g,0\n", p, q, row.status, row.code, row.error,
                          row.worst);
    } else {
        double sum = 0, squares = 0;
        for (double us : row.us) sum += us;
        double const mean = sum / double(row.us.size());
        for (double us : row.us) squares += (us - mean) * (us - mean);
        double const cv = row.us.size() > 1 ? std::sqrt(squares / double(row.us.size() - 1)) / mean : 0.0;
        n = std::snprintf(line, sizeof(line), "%d,%d,%s,%d,%zu,%.3f,%.3f,%.3f,%.3f,%.3f,%.4f,%.3g,%.3g,%d\n", p, q,
                          row.status, row.code, row.us.size(), row.us.front(), quantile(row.us, 0.1),
                          quantile(row.us, 0.5), quantile(row.us, 0.9), mean, cv, row.error, row.worst, int(row.brief));
    }
    if (write(journal, line, size_t(n)) != n) {
        std::perror("journal");
        std::exit(1);
    }
}

template <typename T>
int run(Plan const &plan, char const *journal_path, char const *in_flight_path, double seconds, bool cold) {
    auto const begin = std::chrono::steady_clock::now();
    auto const elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    auto const done = rows_of(journal_path);
    int const journal = open(journal_path, O_WRONLY | O_APPEND | O_CREAT, 0644);
    int const in_flight = open(in_flight_path, O_WRONLY | O_CREAT, 0644);
    Bench<T> bench(cold);
    std::fprintf(stderr, "ready after %.1f s, %zu rows in the journal\n", elapsed(), done.size());
    ConvProblem sentinel{32, 1, 128, 128, 1, 28, 28, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1};
    if (!plan.problems.empty()) sentinel.direction = plan.problems.begin()->second.direction;
    int measured = 0, problems = 0;
    auto const check_drift = [&] {
        bench.set_problem(sentinel, 0);
        for (auto const &[q, candidate] : plan.candidates) {
            ConvProblem p = sentinel;
            p.split_k = candidate.split_k;
            if (candidate.launcher->ndim != 2 || candidate.launcher->supports(&p) != 0) continue;
            Row const row = bench.measure(candidate);
            std::fprintf(stderr, "sentinel %.1f s: candidate %d %s median %.3f us of %zu; %d pairs, %d problems\n",
                         elapsed(), q, row.status, row.us.empty() ? NAN : quantile(row.us, 0.5), row.us.size(), measured,
                         problems);
            return;
        }
    };
    check_drift();
    bool in_time = true;
    for (auto const &[index, wanted] : plan.pairs) {
        bool started = false;
        for (int q : wanted) {
            if (done.count({index, q}) || !plan.candidates.count(q)) continue;
            if (!(in_time = elapsed() < seconds)) break;
            if (!started) bench.set_problem(plan.problems.at(index), uint64_t(index) + 1);
            started = true;
            char note[32];
            int const n = std::snprintf(note, sizeof(note), "%-10d %-10d\n", index, q);
            if (pwrite(in_flight, note, size_t(n), 0) != n) std::perror("in flight");
            Row const row = bench.measure(plan.candidates.at(q));
            write_row(journal, index, q, row);
            ++measured;
            if (std::strcmp(row.status, "crash") == 0 && cudaDeviceSynchronize() != cudaSuccess) return kCrash;
        }
        if (started && ++problems % 50 == 0) check_drift();
        if (!in_time) break;
    }
    check_drift();
    std::fprintf(stderr, "%s after %.1f s: %d pairs of %d problems\n", in_time ? "finished" : "out of time", elapsed(),
                 measured, problems);
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc == 3 && std::string(argv[1]) == "--resources") {
        void *library = dlopen(argv[2], RTLD_NOW);
        if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
        auto const get = reinterpret_cast<Launcher const *(*)(int)>(dlsym(library, "tilewright_launcher"));
        auto const count = reinterpret_cast<int (*)()>(dlsym(library, "tilewright_launcher_count"));
        for (int i = 0; i < count(); ++i) {
            tilewright::Resources r{};
            int const code = get(i)->resources(&r);
            std::printf("%s,%d,%d,%d,%d,%d\n", get(i)->name, code, r.registers, r.local_bytes, r.shared_bytes, r.blocks);
        }
        return 0;
    }
    if (argc != 8) {
        std::fprintf(stderr, "usage: worker LIBRARY PLAN JOURNAL IN_FLIGHT SECONDS cold|warm bf16|fp16\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    Plan const plan = read_plan(argv[2], library);
    bool const cold = std::string(argv[6]) == "cold";
    double const seconds = std::atof(argv[5]);
    if (std::string(argv[7]) == "fp16") return run<__half>(plan, argv[3], argv[4], seconds, cold);
    return run<__nv_bfloat16>(plan, argv[3], argv[4], seconds, cold);
}
