// Runs the real kernels on the CPU. tests/gpu/cuda_shim.py builds this file with -DSOURCE=FILE, where FILE is the
// source file that launch.py passes to NVRTC.
//
// One fiber runs the threads of a block in sequence until a thread waits at a barrier. The next thread then starts a
// fiber of its own. When all threads have reached the barrier, all fibers continue. Blocks also run in sequence, so
// __shared__ memory can be static. makecontext creates the fibers, and longjmp switches between them, because
// swapcontext requests the signal mask from the system on each switch, which made the run 5 times slower.

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(...) ((void)0)
#define __sanitizer_finish_switch_fiber(...) ((void)0)
#endif
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // use only C's own math.h and stdlib.h
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

// Replacements for functions of C++'s headers, without which compilation takes half of the time.
template <typename T>
static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T>
static inline T min(T a, T b) { return b < a ? b : a; }

#define __global__
#define __device__
#define __shared__ static __attribute__((section("shared_memory")))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

extern "C" unsigned __start_shared_memory[], __stop_shared_memory[];  // defined by the linker
__attribute__((section("shared_memory"))) unsigned shared_memory_is_there;  // because plain.cu has no shared memory

struct Dim { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

static Dim blockIdx, threadIdx;
namespace { void yield_fiber(bool is_waiting); }
#define __syncthreads() yield_fiber(true)

template <typename T>
static inline T __ldg(const T *value) { return *value; }
template <typename T>
static inline T atomicAdd(T *value, T more) {
    T before = *value;
    *value += more;
    return before;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return ((unsigned long long)high << 32 | low) >> (shift & 31);
}
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

// Replacements for GPU instructions that fast.cu uses.
static inline int dot(unsigned levels, int digits, int sum) {
    for (int i = 0; i < 4; ++i) sum += (int)(levels >> 8 * i & 255) * (signed char)(digits >> 8 * i);
    return sum;
}
static inline unsigned pack(int low, int high, unsigned above) {
    return min(max(low, 0), 255) | min(max(high, 0), 255) << 8 | above << 16;
}

// Each operation is rounded separately, because the compiler runs with -ffp-contract=off.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }

template <typename To, typename From>
static inline To bits_as(From from) {
    To to;
    static_assert(sizeof(to) == sizeof(from), "");
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline float __int_as_float(int bits) { return bits_as<float>(bits); }
static inline unsigned __float_as_uint(float value) { return bits_as<unsigned>(value); }
static inline long long __double_as_longlong(double value) { return bits_as<long long>(value); }
static inline double __longlong_as_double(long long bits) { return bits_as<double>(bits); }
static inline unsigned __double2uint_rn(double value) { return (unsigned)rint(value); }

#include SOURCE

struct Plan;  // surface.cu does not define it

namespace {

constexpr size_t STACK = 64 << 10;
#ifdef LEVEL_THREADS
constexpr unsigned BLOCK = LEVEL_THREADS, ROW = LEVEL_THREADS;
#else
constexpr unsigned BLOCK = TILE_WIDTH * TILE_HEIGHT, ROW = TILE_WIDTH;
#endif

struct Fiber {
    ucontext_t context;
    jmp_buf state;
    char *stack = nullptr;
    Dim index;
    bool is_made = false;
    bool is_waiting = false;
    void *fake = nullptr;
};

Fiber fibers[BLOCK];
unsigned order[BLOCK], next_thread;
unsigned long long state = 1;
Fiber *current;
jmp_buf scheduler;
void *scheduler_fake;
const void *scheduler_stack;
size_t scheduler_size;
void (*kernel)(const void *structs, const Plan *plan);
const void *structs_argument;
const Plan *plan_argument;

void yield_fiber(bool is_waiting) {
    Fiber *self = current;
    self->is_waiting = is_waiting;
    __sanitizer_start_switch_fiber(&self->fake, scheduler_stack, scheduler_size);
    if (!_setjmp(self->state)) _longjmp(scheduler, 1);
    __sanitizer_finish_switch_fiber(self->fake, nullptr, nullptr);
}

void run_fiber() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
    for (;;) {
        while (next_thread < BLOCK) {
            unsigned thread = order[next_thread++];
            current->index = threadIdx = {thread % ROW, thread / ROW, 0};
            kernel(structs_argument, plan_argument);
        }
        yield_fiber(false);
    }
}

void resume(Fiber &fiber) {
    current = &fiber;
    threadIdx = fiber.index;
    if (!fiber.stack) fiber.stack = new char[STACK];
    __sanitizer_start_switch_fiber(&scheduler_fake, fiber.stack, STACK);
    if (!_setjmp(scheduler)) {
        if (fiber.is_made) _longjmp(fiber.state, 1);
        fiber.is_made = true;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack;
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
        setcontext(&fiber.context);
    }
    __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
}

unsigned noise() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 32);
}

void shuffle(unsigned *numbers, unsigned count) {
    for (unsigned i = 0; i < count; ++i) numbers[i] = i;
    for (unsigned i = count; i > 1; --i) {
        unsigned other = noise() % i, number = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = number;
    }
}

// AddressSanitizer would report the writes between two variables as errors.
__attribute__((no_sanitize("address"))) void spoil_shared_memory() {
    unsigned word = noise();
    for (volatile unsigned *each = __start_shared_memory; each < __stop_shared_memory; ++each) *each = word;
}

void run_block() {
    unsigned count = 0, turns[BLOCK];
    spoil_shared_memory();
    shuffle(order, BLOCK);
    for (next_thread = 0; next_thread < BLOCK; ++count) resume(fibers[count]);
    for (bool is_running = true; is_running;) {  // each iteration runs from one barrier to the next
        is_running = false;
        shuffle(turns, count);
        for (unsigned i = 0; i < count; ++i) {
            Fiber &fiber = fibers[turns[i]];
            if (!fiber.is_waiting) continue;
            resume(fiber);
            is_running |= fiber.is_waiting;
        }
    }
}

void run_grid(const unsigned *grid, const void *structs, const Plan *plan) {
    structs_argument = structs;
    plan_argument = plan;
    for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) run_block();
}

}  // namespace

#ifdef LEVEL_THREADS
extern "C" void run_change_levels(const unsigned *grid, const Canvas *canvases, const Plan *plan) {
    kernel = [](const void *canvases, const Plan *plan) { change_levels((const Canvas *)canvases, *plan); };
    run_grid(grid, canvases, plan);
}

extern "C" void sizes(size_t *out) {
    out[0] = sizeof(Canvas);
    out[1] = sizeof(Plan);
    out[2] = sizeof(LevelStep);
    out[3] = sizeof(Erasure);
    out[4] = LEVEL_THREADS;
}
#elif defined(QUARTER_TURNS)
extern "C" void run_show_surface(const unsigned *grid, const Surface *surface) {
    kernel = [](const void *surface, const Plan *) { show_surface(*(const Surface *)surface); };
    run_grid(grid, surface, nullptr);
}

extern "C" void sizes(size_t *out) {
    out[0] = sizeof(Surface);
    out[1] = TILE_WIDTH;
    out[2] = TILE_HEIGHT;
}
#else
extern "C" void run_first_pass(const unsigned *grid, const Image *images) {
    kernel = [](const void *images, const Plan *) { first_pass((const Image *)images); };
    run_grid(grid, images, nullptr);
}

extern "C" void run_second_pass(const unsigned *grid, const Image *images, const Plan *plan) {
    kernel = [](const void *images, const Plan *plan) { second_pass((const Image *)images, *plan); };
    run_grid(grid, images, plan);
}

extern "C" void sizes(size_t *out) {
    out[0] = sizeof(Image);
    out[1] = sizeof(Plan);
    out[2] = sizeof(Step);
    out[3] = TILE_WIDTH;
    out[4] = TILE_HEIGHT;
    out[5] = TILE_ROWS;
}
#endif

#if REAL_VALUES
extern "C" void halves(const double *values, unsigned short *out, size_t count) {
    for (size_t i = 0; i < count; ++i) out[i] = half_bits(values[i]);
}
#endif
