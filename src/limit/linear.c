/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and its like, and arrays. */
#include "limit/calls.h"
#include "limit/limit.h"

/* cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree. */

/* An allocation that counts `bytes` if `counted`; the driver makes it with the rest of the
 * arguments. `key`: what the driver answered. */
#define ALLOCATE(symbol, kind, key, counted, bytes, ...)                                 \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct account a;                                                                \
        if (!(counted) || !account_begin(&a))                                            \
            return real(__VA_ARGS__);                                                    \
        LIMIT_RESERVE(&a, bytes);                                                        \
        CUresult rc = LIMIT_CALL(real(__VA_ARGS__));                                     \
        return account_end(&a, rc, kind, rc == CUDA_SUCCESS ? (key) : 0);                \
    } while (0)

LIMIT_EXPORT CUresult cuMemAlloc(uint32_t *p, unsigned bytes)
{
    ALLOCATE(cuMemAlloc, KIND_LINEAR, *p, true, bytes, p, bytes);
}

LIMIT_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    ALLOCATE(cuMemAlloc_v2, KIND_LINEAR, *p, true, bytes, p, bytes);
}

LIMIT_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags)
{
    ALLOCATE(cuMemAllocManaged, KIND_LINEAR, *p, true, bytes, p, bytes, flags);
}

/* The driver makes rows longer by its alignment, which is 512 bytes on today's cards. What it
 * takes beyond that is added afterwards. */
enum { PITCH = 512 };

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t pitch_bytes(uint64_t width, uint64_t height)
{
    uint64_t row =
        width > UINT64_MAX - PITCH ? UINT64_MAX : (width + PITCH - 1) / PITCH * PITCH;
    return multiply(row, height);
}

/* The driver answered with this pitch. False: the rest does not fit. */
static bool reserve_rest(struct account *a, uint64_t pitch, uint64_t height)
{
    uint64_t bytes = multiply(pitch, height);
    return bytes <= a->bytes || account_reserve(a, bytes - a->bytes) == CUDA_SUCCESS;
}

LIMIT_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width,
                                         size_t height, unsigned element)
{
    __typeof__(&cuMemAllocPitch_v2) real = DRIVER(cuMemAllocPitch_v2);
    __typeof__(&cuMemFree_v2) release = DRIVER(cuMemFree_v2);
    struct account a;
    if (!real || !release)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!account_begin(&a))
        return real(p, pitch, width, height, element);
    LIMIT_RESERVE(&a, pitch_bytes(width, height));
    resolve_enter();
    CUresult rc = real(p, pitch, width, height, element);
    if (rc == CUDA_SUCCESS && !reserve_rest(&a, *pitch, height)) {
        release(*p);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    resolve_leave();
    return account_end(&a, rc, KIND_LINEAR, rc == CUDA_SUCCESS ? *p : 0);
}

LIMIT_EXPORT CUresult cuMemAllocPitch(uint32_t *p, unsigned *pitch, unsigned width,
                                      unsigned height, unsigned element)
{
    ALLOCATE(cuMemAllocPitch, KIND_LINEAR, *p, true, pitch_bytes(width, height), p, pitch,
             width, height, element);
}

LIMIT_EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
    LIMIT_REAL(cuMemFree_v2);
    struct entry taken;
    if (account_free_begin(&taken, KIND_LINEAR, p) ||
        account_free_begin(&taken, KIND_POOLED, p))
        return account_free_end(&taken, real(p));
    return real(p);
}

LIMIT_EXPORT CUresult cuMemFree(uint32_t p)
{
    LIMIT_FREE(cuMemFree, KIND_LINEAR, p, p);
}

/* -- arrays -- */

/* Arrays and mipmapped arrays. Their size is that of their elements: the driver pads them, and
 * does not say by how much. */

/* CUarray_format of the CUDA Driver API: bits of an element, of each of its channels, or of one
 * that is part of a block of 4 x 4. */
static const struct {
    uint8_t first, last, bits;
    enum { OF_ELEMENT, OF_CHANNEL, IN_BLOCK } what;
} formats[] = {
    {0x01, 0x01, 8, OF_CHANNEL},  {0x02, 0x02, 16, OF_CHANNEL}, /* integers, floats */
    {0x08, 0x08, 8, OF_CHANNEL},  {0x09, 0x09, 16, OF_CHANNEL},
    {0x10, 0x10, 16, OF_CHANNEL}, {0x91, 0x92, 4, IN_BLOCK},
    {0x93, 0x96, 8, IN_BLOCK}, /* BC1 to BC7 */
    {0x97, 0x98, 4, IN_BLOCK},    {0x99, 0x9e, 8, IN_BLOCK},
    {0x9f, 0xa1, 24, OF_ELEMENT}, {0xb0, 0xb0, 12, OF_ELEMENT}, /* planes, 4:2:0 */
    {0xa2, 0xa2, 16, OF_ELEMENT}, {0xa3, 0xa4, 32, OF_ELEMENT}, /* 4:2:2 */
    {0xa5, 0xa5, 16, OF_ELEMENT}, {0xa6, 0xa9, 32, OF_ELEMENT}, /* and 4:4:4 */
    {0xb1, 0xb1, 64, OF_ELEMENT}, {0xb2, 0xb2, 24, OF_ELEMENT},
    {0xb3, 0xb3, 48, OF_ELEMENT}, {0xb4, 0xb4, 24, OF_ELEMENT},
    {0xb5, 0xb5, 48, OF_ELEMENT}, {0x50, 0x50, 32, OF_ELEMENT},
};

/* Normalized ones: 1, 2 or 4 channels of 8 or 16 bits, signed behind unsigned. */
static uint64_t normalized_bits(int format)
{
    int i = format - 0xc0;
    return i >= 0 && i < 12 ? (i / 3 % 2 ? 16u : 8u) << i % 3 : 0;
}

static uint64_t at_least_1(uint64_t n)
{
    return n ? n : 1;
}

static uint64_t size_of(const CUarray3dDesc *d)
{
    uint64_t width = at_least_1(d->width), height = at_least_1(d->height);
    uint64_t bits = normalized_bits(d->format);
    if (!bits) /* also the most that an unknown format takes */
        bits = multiply(32, at_least_1(d->channels));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (d->format >= formats[i].first && d->format <= formats[i].last) {
            bits = formats[i].bits;
            if (formats[i].what == OF_CHANNEL)
                bits = multiply(bits, at_least_1(d->channels));
            if (formats[i].what == IN_BLOCK) {
                width += -width & 3;
                height += -height & 3;
            }
        }
    uint64_t elements = multiply(multiply(width, height), at_least_1(d->depth));
    uint64_t all = multiply(elements, bits);
    return all == UINT64_MAX ? all : all / 8 + (all % 8 != 0);
}

/* Memory comes later, from cuMemCreate, where it is counted. */
static bool has_memory(const CUarray3dDesc *d)
{
    return !(d->flags & (CU_ARRAY3D_SPARSE | CU_ARRAY3D_DEFERRED_MAPPING));
}

#define HANDLE(array) ((uint64_t)(uintptr_t) * (array))

#define DESC_2D(d)                                                                       \
    (&(CUarray3dDesc){.width = (d)->width,                                               \
                      .height = (d)->height,                                             \
                      .format = (d)->format,                                             \
                      .channels = (d)->channels})

LIMIT_EXPORT CUresult cuArrayCreate(CUarray *array, const CUarrayDesc_v1 *d)
{
    ALLOCATE(cuArrayCreate, KIND_ARRAY, HANDLE(array), d, size_of(DESC_2D(d)), array, d);
}

LIMIT_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUarrayDesc *d)
{
    ALLOCATE(cuArrayCreate_v2, KIND_ARRAY, HANDLE(array), d, size_of(DESC_2D(d)), array,
             d);
}

LIMIT_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUarray3dDesc_v1 *d)
{
    CUarray3dDesc wide = {0};
    if (d)
        wide = (CUarray3dDesc){d->width,  d->height,   d->depth,
                               d->format, d->channels, d->flags};
    ALLOCATE(cuArray3DCreate, KIND_ARRAY, HANDLE(array), d && has_memory(&wide),
             size_of(&wide), array, d);
}

LIMIT_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUarray3dDesc *d)
{
    ALLOCATE(cuArray3DCreate_v2, KIND_ARRAY, HANDLE(array), d && has_memory(d),
             size_of(d), array, d);
}

/* Each level has half the width, height and depth of the one before. The depth of layers and
 * cube maps stays. */
static uint64_t mipmap_bytes(const CUarray3dDesc *d, unsigned levels)
{
    enum { LAYERED = 1 };
    CUarray3dDesc level = *d;
    uint64_t sum = 0;
    for (unsigned i = 0; i < levels; i++) {
        uint64_t bytes = size_of(&level);
        sum = sum + bytes < sum ? UINT64_MAX : sum + bytes;
        if (level.width <= 1 && level.height <= 1 && level.depth <= 1)
            break;
        level.width /= 2;
        level.height /= 2;
        if (!(d->flags & (LAYERED | CU_ARRAY3D_CUBEMAP)))
            level.depth /= 2;
        else if (level.width <= 1 && level.height <= 1)
            break;
    }
    return sum;
}

LIMIT_EXPORT CUresult cuMipmappedArrayCreate(CUarray *array, const CUarray3dDesc *d,
                                             unsigned levels)
{
    ALLOCATE(cuMipmappedArrayCreate, KIND_ARRAY, HANDLE(array), d && has_memory(d),
             mipmap_bytes(d, levels), array, d, levels);
}

#define DESTROY(symbol, array)                                                           \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct entry taken;                                                              \
        uint64_t key = (uint64_t)(uintptr_t)(array);                                     \
        bool counted = account_free_begin(&taken, KIND_ARRAY, key);                      \
        CUresult rc = real(array);                                                       \
        if (!counted && rc == CUDA_SUCCESS)                                              \
            vmm_array_ended(key);                                                        \
        return counted ? account_free_end(&taken, rc) : rc;                              \
    } while (0)

LIMIT_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    DESTROY(cuArrayDestroy, array);
}

LIMIT_EXPORT CUresult cuMipmappedArrayDestroy(CUarray array)
{
    DESTROY(cuMipmappedArrayDestroy, array);
}
