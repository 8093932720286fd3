/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/account.h"
#include "limit/resolve.h"

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

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
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

#define CREATE(symbol, array, desc, bytes, counted, ...)                                 \
    do {                                                                                 \
        __typeof__(&symbol) real = DRIVER(symbol);                                       \
        struct account a;                                                                \
        if (!real)                                                                       \
            return CUDA_ERROR_NOT_INITIALIZED;                                           \
        if (!(desc) || !(counted) || !account_begin(&a))                                 \
            return real(__VA_ARGS__);                                                    \
        if (account_reserve(&a, bytes) != CUDA_SUCCESS)                                  \
            return CUDA_ERROR_OUT_OF_MEMORY;                                             \
        resolve_enter();                                                                 \
        CUresult rc = real(__VA_ARGS__);                                                 \
        resolve_leave();                                                                 \
        return account_end(&a, rc, KIND_ARRAY,                                           \
                           rc == CUDA_SUCCESS ? (uint64_t)(uintptr_t) * (array) : 0);    \
    } while (0)

#define DESC_2D(d)                                                                       \
    (&(CUarray3dDesc){.width = (d)->width,                                               \
                      .height = (d)->height,                                             \
                      .format = (d)->format,                                             \
                      .channels = (d)->channels})

LIMIT_EXPORT CUresult cuArrayCreate(CUarray *array, const CUarrayDesc_v1 *d)
{
    CREATE(cuArrayCreate, array, d, size_of(DESC_2D(d)), true, array, d);
}

LIMIT_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUarrayDesc *d)
{
    CREATE(cuArrayCreate_v2, array, d, size_of(DESC_2D(d)), true, array, d);
}

LIMIT_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUarray3dDesc_v1 *d)
{
    CUarray3dDesc wide = {0};
    if (d)
        wide = (CUarray3dDesc){d->width,  d->height,   d->depth,
                               d->format, d->channels, d->flags};
    CREATE(cuArray3DCreate, array, d, size_of(&wide), has_memory(&wide), array, d);
}

LIMIT_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUarray3dDesc *d)
{
    CREATE(cuArray3DCreate_v2, array, d, size_of(d), has_memory(d), array, d);
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
    CREATE(cuMipmappedArrayCreate, array, d, mipmap_bytes(d, levels), has_memory(d),
           array, d, levels);
}

#define DESTROY(symbol, array)                                                           \
    do {                                                                                 \
        __typeof__(&symbol) real = DRIVER(symbol);                                       \
        struct entry taken;                                                              \
        if (!real)                                                                       \
            return CUDA_ERROR_NOT_INITIALIZED;                                           \
        if (!account_free_begin(&taken, KIND_ARRAY, (uint64_t)(uintptr_t)(array)))       \
            return real(array);                                                          \
        return account_free_end(&taken, real(array));                                    \
    } while (0)

LIMIT_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    DESTROY(cuArrayDestroy, array);
}

LIMIT_EXPORT CUresult cuMipmappedArrayDestroy(CUarray array)
{
    DESTROY(cuMipmappedArrayDestroy, array);
}
