// Converts an NV12 frame of NVDEC to RGB, with one thread per pixel. launch.py defines the size of a thread block,
// TILE_WIDTH x TILE_HEIGHT.
//
// The integer arithmetic is that of libswscale's yuv2rgb on x86-64 without scaling: values are multiplied by 8 and by a
// coefficient, and the product is shifted right by 16. Chroma is not interpolated, so that 2 x 2 pixels share one
// chroma value. surfaces.py contains the coefficients, and the same arithmetic in NumPy.

#define QUARTER_TURNS 4

struct Surface {
    const unsigned char *luma;    // plane of Y values, (height, width)
    const unsigned char *chroma;  // plane of U and V values, (height / 2, width / 2, 2)
    unsigned char *pixels;        // output: contiguous RGB pixels of the rotated frame
    int pitch;                    // row stride of luma and chroma in bytes
    int height;                   // size of the decoded frame; height and width are even
    int width;
    int turn;                     // number of counterclockwise rotations by 90 degrees
    int scale;                    // coefficient of luma; the coefficients of chroma are the last four fields
    int offset;                   // luma value of black, multiplied by 8
    int v_red;
    int u_green;
    int v_green;
    int u_blue;
};

__device__ static inline int upper(int level, int coefficient) { return level * coefficient >> 16; }
__device__ static inline unsigned char clipped(int level) { return (unsigned char)min(max(level, 0), 255); }

extern "C" __global__ void __launch_bounds__(TILE_WIDTH * TILE_HEIGHT) show_surface(const struct Surface surface) {
    int x = blockIdx.x * TILE_WIDTH + threadIdx.x, y = blockIdx.y * TILE_HEIGHT + threadIdx.y;
    if (x >= surface.width || y >= surface.height) return;
    const unsigned char *chroma = surface.chroma + (long long)(y / 2) * surface.pitch + x / 2 * 2;
    int luma = upper(8 * surface.luma[(long long)y * surface.pitch + x] - surface.offset, surface.scale);
    int u = 8 * chroma[0] - 1024, v = 8 * chroma[1] - 1024;
    int row = y, column = x, width = surface.width;
    if (surface.turn == 1) row = surface.width - 1 - x, column = y, width = surface.height;
    if (surface.turn == 2) row = surface.height - 1 - y, column = surface.width - 1 - x;
    if (surface.turn == 3) row = x, column = surface.height - 1 - y, width = surface.height;
    unsigned char *pixel = surface.pixels + 3 * ((long long)row * width + column);
    pixel[0] = clipped(luma + upper(v, surface.v_red));
    pixel[1] = clipped(luma + upper(u, surface.u_green) + upper(v, surface.v_green));
    pixel[2] = clipped(luma + upper(u, surface.u_blue));
}
