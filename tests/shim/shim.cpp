// Runs the real kernels of fused.cu on the CPU: each thread of a block is a fiber, and a barrier gives way to the next one.
// Blocks run one after the other, so that what is __shared__ can be static. Compiled by tests/shim/__init__.py.

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(...) ((void)0)
#define __sanitizer_finish_switch_fiber(...) ((void)0)
#endif
#include <stddef.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

using std::min;

#define __global__
#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct Dim { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

static Dim blockIdx, threadIdx;
static void yield_fiber(bool is_done);
#define __syncthreads() yield_fiber(false)

#include "fused.cu"

namespace {

constexpr size_t STACK = 256 << 10;

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(STACK);
    Dim index;
    bool is_done = false;
    void *fake = nullptr;
};

std::vector<Fiber> fibers(TILE_WIDTH * TILE_HEIGHT);
Fiber *current;
ucontext_t scheduler;
void *scheduler_fake;
const void *scheduler_stack;
size_t scheduler_size;
const Image *images_argument;
const Plan *plan_argument;

void run_fiber() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
    if (plan_argument) second_pass(images_argument, *plan_argument);
    else first_pass(images_argument);
    yield_fiber(true);
}

void run_block() {
    for (unsigned i = 0; i < fibers.size(); ++i) {
        Fiber &fiber = fibers[i];
        fiber.index = {i % TILE_WIDTH, i / TILE_WIDTH, 0};
        fiber.is_done = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
    }
    for (bool is_running = true; is_running;) {
        is_running = false;
        for (Fiber &fiber : fibers) {
            if (fiber.is_done) continue;
            current = &fiber;
            threadIdx = fiber.index;
            __sanitizer_start_switch_fiber(&scheduler_fake, fiber.stack.data(), STACK);
            swapcontext(&scheduler, &fiber.context);
            __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
            is_running |= !fiber.is_done;
        }
    }
}

void run_grid(const unsigned *grid) {
    for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) run_block();
}

}  // namespace

static void yield_fiber(bool is_done) {
    Fiber *self = current;
    self->is_done = is_done;
    __sanitizer_start_switch_fiber(is_done ? nullptr : &self->fake, scheduler_stack, scheduler_size);
    swapcontext(&self->context, &scheduler);
    __sanitizer_finish_switch_fiber(self->fake, nullptr, nullptr);
}

extern "C" void run_first_pass(const unsigned *grid, const Image *images) {
    images_argument = images;
    plan_argument = nullptr;
    run_grid(grid);
}

extern "C" void run_second_pass(const unsigned *grid, const Image *images, const Plan *plan) {
    images_argument = images;
    plan_argument = plan;
    run_grid(grid);
}

extern "C" void sizes(size_t *out) {
    out[0] = sizeof(Image);
    out[1] = sizeof(Plan);
    out[2] = TILE_WIDTH;
    out[3] = TILE_HEIGHT;
    out[4] = TILE_ROWS;
}
