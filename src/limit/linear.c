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
    if (account_free_begin(&taken, KIND_LINEAR, p))
        return account_free_end(&taken, real(p));
    bool pooled = pool_free_begin(&taken, p);
    CUresult rc = real(p);
    if (pooled)
        pool_free_end(&taken, rc);
    return rc;
}

LIMIT_EXPORT CUresult cuMemFree(uint32_t p)
{
    LIMIT_REAL(cuMemFree);
    struct entry taken;
    if (account_free_begin(&taken, KIND_LINEAR, p))
        return account_free_end(&taken, real(p));
    return real(p);
}

/* -- arrays -- */

/* Arrays and mipmapped arrays. Their size is that of their elements: the driver pads them, and
 * does not say by how much. */

/* Bytes of one channel: CUarray_format of the CUDA Driver API. The formats from NV12 on have
 * planes or blocks; 4 bytes is the most that a channel of one takes. */
static uint64_t channel_bytes(int format)
{
    switch (format) {
    case 0x01: /* unsigned and signed 8 bit */
    case 0x08:
        return 1;
    case 0x02: /* 16 bit, half float */
    case 0x09:
    case 0x10:
        return 2;
    default:
        return 4;
    }
}

static uint64_t at_least_1(uint64_t n)
{
    return n ? n : 1;
}

static uint64_t size_of(const CUarray3dDesc *d)
{
    uint64_t area = multiply(at_least_1(d->width), at_least_1(d->height));
    uint64_t elements = multiply(area, at_least_1(d->depth));
    return multiply(elements,
                    multiply(channel_bytes(d->format), at_least_1(d->channels)));
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
