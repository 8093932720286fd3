/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/account.h"
#include "limit/pool.h"
#include "limit/resolve.h"

/* cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree. */

/* An allocation of `bytes` that the driver makes with CALL. */
#define ALLOCATE(symbol, pointer, bytes, ...)                                            \
    do {                                                                                 \
        __typeof__(&symbol) real = DRIVER(symbol);                                       \
        struct account a;                                                                \
        if (!real)                                                                       \
            return CUDA_ERROR_NOT_INITIALIZED;                                           \
        if (!account_begin(&a))                                                          \
            return real(__VA_ARGS__);                                                    \
        if (account_reserve(&a, bytes) != CUDA_SUCCESS)                                  \
            return CUDA_ERROR_OUT_OF_MEMORY;                                             \
        resolve_enter();                                                                 \
        CUresult rc = real(__VA_ARGS__);                                                 \
        resolve_leave();                                                                 \
        return account_end(&a, rc, KIND_LINEAR, rc == CUDA_SUCCESS ? *(pointer) : 0);    \
    } while (0)

LIMIT_EXPORT CUresult cuMemAlloc(uint32_t *p, unsigned bytes)
{
    ALLOCATE(cuMemAlloc, p, bytes, p, bytes);
}

LIMIT_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    ALLOCATE(cuMemAlloc_v2, p, bytes, p, bytes);
}

LIMIT_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags)
{
    ALLOCATE(cuMemAllocManaged, p, bytes, p, bytes, flags);
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
    if (account_reserve(&a, pitch_bytes(width, height)) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
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
    ALLOCATE(cuMemAllocPitch, p, pitch_bytes(width, height), p, pitch, width, height,
             element);
}

LIMIT_EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
    __typeof__(&cuMemFree_v2) real = DRIVER(cuMemFree_v2);
    struct entry taken;
    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
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
    __typeof__(&cuMemFree) real = DRIVER(cuMemFree);
    struct entry taken;
    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (account_free_begin(&taken, KIND_LINEAR, p))
        return account_free_end(&taken, real(p));
    return real(p);
}
