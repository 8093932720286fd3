/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/account.h"
#include "limit/resolve.h"

/* cuMemGetInfo and cuDeviceTotalMem: the program sees a card of the size of its limit. */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void shrink(const struct account *a, uint64_t *available, uint64_t *total)
{
    uint64_t limit = process_limit(a->process, a->card),
             used = process_used(a->process, a->card);
    *total = smaller(*total, limit);
    *available = smaller(*available, used < limit ? limit - used : 0);
}

#define GET_INFO(symbol, type)                                                           \
    do {                                                                                 \
        __typeof__(&symbol) real = DRIVER(symbol);                                       \
        struct account a;                                                                \
        CUresult rc = real ? real(available, total) : CUDA_ERROR_NOT_INITIALIZED;        \
        if (rc != CUDA_SUCCESS || !available || !total || !account_begin(&a))            \
            return rc;                                                                   \
        uint64_t f = *available, t = *total;                                             \
        shrink(&a, &f, &t);                                                              \
        *available = (type)f;                                                            \
        *total = (type)t;                                                                \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuMemGetInfo(unsigned *available, unsigned *total)
{
    GET_INFO(cuMemGetInfo, unsigned);
}

LIMIT_EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    GET_INFO(cuMemGetInfo_v2, size_t);
}

#define TOTAL(symbol, type)                                                              \
    do {                                                                                 \
        __typeof__(&symbol) real = DRIVER(symbol);                                       \
        struct account a;                                                                \
        CUresult rc = real ? real(total, device) : CUDA_ERROR_NOT_INITIALIZED;           \
        if (rc == CUDA_SUCCESS && total && account_begin_device(&a, device))             \
            *total = (type)smaller(*total, process_limit(a.process, a.card));            \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuDeviceTotalMem(unsigned *total, CUdevice device)
{
    TOTAL(cuDeviceTotalMem, unsigned);
}

LIMIT_EXPORT CUresult cuDeviceTotalMem_v2(size_t *total, CUdevice device)
{
    TOTAL(cuDeviceTotalMem_v2, size_t);
}
