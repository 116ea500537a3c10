// Mock of NVIDIA's driver for PyNvVideoCodec's own code: it uses host memory, and a Python function decodes.
// gpu/nvdec_driver.py builds it as one library under the names libcuda.so.1, libnvcuvid.so.1 and libnvidia-encode.so.1.
// Structs follow NVIDIA's Video Codec SDK, as far as their fields are read.

#include <stdlib.h>
#include <string.h>

typedef unsigned long long Address;

typedef struct {
    int codec;
    unsigned rate[2];
    unsigned char is_progressive, bits_of_luma, bits_of_chroma, surfaces;
    unsigned coded_width, coded_height;
    struct { int left, top, right, bottom; } shown;
    int chroma;
    unsigned bitrate;
    int aspect[2];
    unsigned char signal[4];
    unsigned length;
} Format;

typedef struct {
    int picture, is_progressive, is_top_first, repeated;
    long long time;
} Display;

typedef struct {
    int codec;
    unsigned surfaces, clock, threshold, delay, reserved[5];
    void *user;
    int (*on_sequence)(void *, Format *);
    int (*on_decode)(void *, void *);
    int (*on_display)(void *, Display *);
} Parameters;

typedef struct {
    unsigned long flags, size;
    const unsigned char *payload;
    long long time;
} Packet;

// Result of the Python function for a packet: the frames that are displayed next.
typedef struct {
    int width, height, count, error;
    long long times[64];
    const unsigned char *frames[64];  // in NV12, with rows of `width` bytes
} Played;

typedef struct {
    Parameters parameters;
    int width, height, pictures;
} Parser;

#define PITCH 4096  // pitch of a surface; PyNvVideoCodec copies the rows without it

static void (*play_packet)(const void *, int, const void *, unsigned long, long long, unsigned long, Played *);
static __thread const unsigned char *frame;  // per thread, because PyNvVideoCodec decodes on several threads
static __thread int frame_width, frame_height;

void play(void *function) { play_packet = function; }

int cuvidCreateVideoParser(void **parser, Parameters *parameters) {
    Parser *made = calloc(1, sizeof(Parser));
    made->parameters = *parameters;
    *parser = made;
    return 0;
}

int cuvidDestroyVideoParser(void *parser) {
    free(parser);
    return 0;
}

int cuvidParseVideoData(void *object, Packet *packet) {
    Parser *parser = object;
    Parameters *asked = &parser->parameters;
    Played played = {0};
    play_packet(parser, asked->codec, packet->payload, packet->size, packet->time, packet->flags, &played);
    if (played.error) return played.error;
    for (int i = 0; i < played.count; ++i) {
        if (played.width != parser->width || played.height != parser->height) {
            Format format = {asked->codec, {25, 1}, 1, 0, 0, 8, played.width, played.height};
            format.shown.right = parser->width = played.width;
            format.shown.bottom = parser->height = played.height;
            format.chroma = 1;
            if (!asked->on_sequence(asked->user, &format)) return 1;
        }
        static __thread long long picture[1 << 13];
        memset(picture, 0, sizeof picture);
        ((int *)picture)[2] = parser->pictures++ % 8;
        if (!asked->on_decode(asked->user, picture)) return 1;
        frame = played.frames[i], frame_width = played.width, frame_height = played.height;
        Display display = {((int *)picture)[2], 1, 0, 0, played.times[i]};
        if (!asked->on_display(asked->user, &display)) return 1;
    }
    return 0;
}

int cuvidGetDecoderCaps(unsigned *caps) {  // codec, chroma, bits, 3 reserved, supported, max width, height, blocks
    unsigned char *said = (unsigned char *)(caps + 6);
    said[0] = said[1] = 1, said[2] = 3;
    caps[7] = caps[8] = 4096, caps[9] = 65536;
    return 0;
}

int cuvidCreateDecoder(void **decoder, void *info) { (void)info; *decoder = malloc(1); return 0; }
int cuvidDestroyDecoder(void *decoder) { free(decoder); return 0; }
int cuvidDecodePicture(void *decoder, void *picture) { (void)decoder, (void)picture; return 0; }
int cuvidReconfigureDecoder(void *decoder, void *info) { (void)decoder, (void)info; return 0; }
int cuvidGetDecodeStatus(void *decoder, int picture, int *status) { (void)decoder, (void)picture; *status = 2; return 0; }

int cuvidMapVideoFrame64(void *decoder, int picture, Address *address, unsigned *pitch, void *options) {
    (void)decoder, (void)picture, (void)options;
    int rows = frame_height * 3 / 2;
    unsigned char *surface = malloc((size_t)PITCH * rows);
    for (int y = 0; y < rows; ++y) memcpy(surface + (size_t)y * PITCH, frame + (size_t)y * frame_width, frame_width);
    *address = (Address)surface;
    *pitch = PITCH;
    return 0;
}

int cuvidUnmapVideoFrame64(void *decoder, Address address) { (void)decoder; free((void *)address); return 0; }
int cuvidCtxLockCreate(void **lock, void *context) { (void)context; *lock = malloc(1); return 0; }
int cuvidCtxLockDestroy(void *lock) { free(lock); return 0; }
int cuvidCtxLock(void *lock, unsigned flags) { (void)lock, (void)flags; return 0; }
int cuvidCtxUnlock(void *lock, unsigned flags) { (void)lock, (void)flags; return 0; }
int cuvidCreateVideoSource(void) { return 1; }
int cuvidCreateVideoSourceW(void) { return 1; }
int cuvidDestroyVideoSource(void) { return 1; }
int cuvidSetVideoSourceState(void) { return 1; }
int cuvidGetVideoSourceState(void) { return 1; }
int cuvidGetSourceVideoFormat(void) { return 1; }
int cuvidGetSourceAudioFormat(void) { return 1; }

int NvEncodeAPIGetMaxSupportedVersion(unsigned *version) { *version = 13 << 4; return 0; }
int NvEncodeAPICreateInstance(void *functions) { (void)functions; return 0; }

static char context;
static volatile Address streams;  // bit set of the streams on which copies were queued

Address seen_streams(void) { return streams; }
static int copied(void *stream) { streams |= (Address)stream; return 0; }

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuCtxCreate_v2(void **made, unsigned flags, int device) { (void)flags, (void)device; *made = &context; return 0; }
int cuCtxDestroy_v2(void *made) { (void)made; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxPopCurrent_v2(void **popped) { if (popped) *popped = &context; return 0; }
int cuCtxPushCurrent_v2(void *pushed) { (void)pushed; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuDevicePrimaryCtxRetain(void **primary, int device) { (void)device; *primary = &context; return 0; }
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = malloc(1); return 0; }
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuEventRecord(void *event, void *stream) { (void)event, (void)stream; return 0; }
int cuEventSynchronize(void *event) { (void)event; return 0; }
int cuGetErrorName(int error, const char **name) { (void)error; *name = "ERROR"; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "an error"; return 0; }
int cuMemAlloc_v2(Address *address, size_t size) { *address = (Address)malloc(size); return 0; }
int cuMemAllocAsync(Address *address, size_t size, void *stream) { (void)stream; return cuMemAlloc_v2(address, size); }
int cuMemAllocPitch_v2(Address *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(address, *pitch * height);
}
int cuMemFree_v2(Address address) { free((void *)address); return 0; }
int cuMemFreeAsync(Address address, void *stream) { (void)stream; return cuMemFree_v2(address); }

typedef struct {
    size_t x, y;
    int kind;
    void *host;
    Address device;
    void *array;
    size_t pitch;
} Side;

typedef struct {
    Side from, to;
    size_t width, height;
} Copy;

static unsigned char *begin(const Side *side) {
    unsigned char *base = side->kind == 1 ? side->host : (unsigned char *)side->device;
    return base + side->y * side->pitch + side->x;
}

int cuMemcpy2D_v2(const Copy *copy) {
    for (size_t y = 0; y < copy->height; ++y)
        memcpy(begin(&copy->to) + y * copy->to.pitch, begin(&copy->from) + y * copy->from.pitch, copy->width);
    return 0;
}
int cuMemcpy2DAsync_v2(const Copy *copy, void *stream) { copied(stream); return cuMemcpy2D_v2(copy); }
int cuMemcpyDtoH_v2(void *to, Address from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuMemcpyDtoHAsync_v2(void *to, Address from, size_t size, void *stream) { copied(stream); return cuMemcpyDtoH_v2(to, from, size); }
int cuMemcpyHtoD_v2(Address to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuPointerGetAttribute(void *value, int attribute, Address address) { (void)attribute, (void)address; *(int *)value = 2; return 0; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = malloc(1); return 0; }
int cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
int cuStreamGetCtx(void *stream, void **its) { (void)stream; *its = &context; return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { (void)stream, (void)event, (void)flags; return 0; }
