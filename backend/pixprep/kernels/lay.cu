// Images on larger canvases that are resized with their margins: of training alone, so that the kernels of other plans do
// not have it. Comes after canvas.cu. launch.py fills the structs.

#define LAYS

struct Laid {
    const unsigned char *pixels;  // the first decoded pixel that is shown
    unsigned char *box;           // (height, width, CHANNELS), one row after the other
    long long pitch;              // bytes from a row of decoded pixels to the next
    int height;                   // of the box
    int width;
    int top;                      // where the box shows the image, in rows and columns of the box
    int left;
    int bottom;
    int right;
    int fill[3];                  // for each decoded channel the level outside
    int unused;
};

// One pixel a thread, one image a block in z.
extern "C" __global__ void lay(const struct Laid *images) {
    const struct Laid &image = images[blockIdx.z];
    int x = blockIdx.x * TILE_WIDTH + threadIdx.x, y = blockIdx.y * TILE_HEIGHT + threadIdx.y;
    if (x >= image.width || y >= image.height) return;
    bool is_inside = y >= image.top && y < image.bottom && x >= image.left && x < image.right;
    const unsigned char *from = image.pixels + (y - image.top) * image.pitch + (long long)(x - image.left) * CHANNELS;
    unsigned char *to = image.box + ((long long)y * image.width + x) * CHANNELS;
    for (int c = 0; c < CHANNELS; ++c) to[c] = is_inside ? from[c] : image.fill[c];
}
