/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "limit/cuda.h"

/*
 * The functions of libcuda.so.1 and libnvidia-ml.so.1 that the library knows.
 *
 *     HOOK(symbol, since)
 *         the library exports the symbol in place of the driver's. cuGetProcAddress gives it
 *         for its name without version from the CUDA version `since` on; with the suffix
 *         _ptsz only with the flag CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM. An answer of
 *         cuGetProcAddress is recognized by its address first, and by name and `since` only
 *         if libcuda.so.1 does not export that address. 0: by its address only, because a
 *         name stands for functions with different parameters
 *     NVML(symbol)
 *         the same for NVML
 *     REAL(symbol)
 *         is only called
 */
#define LIMIT_CALLS                                                                      \
    HOOK(cuMemAlloc, 2000)                                                               \
    HOOK(cuMemAlloc_v2, 3020)                                                            \
    HOOK(cuMemAllocPitch, 2000)                                                          \
    HOOK(cuMemAllocPitch_v2, 3020)                                                       \
    HOOK(cuMemAllocManaged, 6000)                                                        \
    HOOK(cuMemFree, 2000)                                                                \
    HOOK(cuMemFree_v2, 3020)                                                             \
    HOOK(cuMemGetInfo, 2000)                                                             \
    HOOK(cuMemGetInfo_v2, 3020)                                                          \
    HOOK(cuDeviceTotalMem, 2000)                                                         \
    HOOK(cuDeviceTotalMem_v2, 3020)                                                      \
    HOOK(cuArrayCreate, 2000)                                                            \
    HOOK(cuArrayCreate_v2, 3020)                                                         \
    HOOK(cuArray3DCreate, 2000)                                                          \
    HOOK(cuArray3DCreate_v2, 3020)                                                       \
    HOOK(cuArrayDestroy, 2000)                                                           \
    HOOK(cuMipmappedArrayCreate, 5000)                                                   \
    HOOK(cuMipmappedArrayDestroy, 5000)                                                  \
    HOOK(cuMemCreate, 10020)                                                             \
    HOOK(cuMemRelease, 10020)                                                            \
    HOOK(cuMemMap, 10020)                                                                \
    HOOK(cuMemUnmap, 10020)                                                              \
    HOOK(cuMemRetainAllocationHandle, 11000)                                             \
    HOOK(cuMemExportToShareableHandle, 10020)                                            \
    HOOK(cuMemImportFromShareableHandle, 10020)                                          \
    HOOK(cuMemMapArrayAsync, 11010)                                                      \
    HOOK(cuMemMapArrayAsync_ptsz, 11010)                                                 \
    HOOK(cuMulticastCreate, 12010)                                                       \
    HOOK(cuMulticastBindMem, 12010)                                                      \
    HOOK(cuMulticastBindMem_v2, 13010)                                                   \
    HOOK(cuMulticastBindAddr, 12010)                                                     \
    HOOK(cuMulticastBindAddr_v2, 13010)                                                  \
    HOOK(cuMulticastUnbind, 12010)                                                       \
    HOOK(cuIpcGetMemHandle, 4010)                                                        \
    HOOK(cuIpcOpenMemHandle, 4010)                                                       \
    HOOK(cuIpcOpenMemHandle_v2, 11000)                                                   \
    HOOK(cuIpcCloseMemHandle, 4010)                                                      \
    HOOK(cuMemGetDefaultMemPool, 13000)                                                  \
    HOOK(cuMemGetMemPool, 13000)                                                         \
    HOOK(cuMemAllocAsync, 11020)                                                         \
    HOOK(cuMemAllocAsync_ptsz, 11020)                                                    \
    HOOK(cuMemAllocFromPoolAsync, 11020)                                                 \
    HOOK(cuMemAllocFromPoolAsync_ptsz, 11020)                                            \
    HOOK(cuMemFreeAsync, 11020)                                                          \
    HOOK(cuMemFreeAsync_ptsz, 11020)                                                     \
    HOOK(cuMemPoolCreate, 11020)                                                         \
    HOOK(cuMemPoolDestroy, 11020)                                                        \
    HOOK(cuMemPoolTrimTo, 11020)                                                         \
    HOOK(cuStreamSynchronize, 2000)                                                      \
    HOOK(cuStreamSynchronize_ptsz, 7000)                                                 \
    HOOK(cuEventSynchronize, 2000)                                                       \
    HOOK(cuCtxSynchronize, 2000)                                                         \
    HOOK(cuCtxSynchronize_v2, 13000)                                                     \
    HOOK(cuGraphAddMemAllocNode, 11040)                                                  \
    HOOK(cuGraphAddMemFreeNode, 11040)                                                   \
    HOOK(cuGraphAddNode, 0)                                                              \
    HOOK(cuGraphAddNode_v2, 0)                                                           \
    HOOK(cuGraphDestroy, 10000)                                                          \
    HOOK(cuGraphInstantiate, 10000)                                                      \
    HOOK(cuGraphInstantiate_v2, 11000)                                                   \
    HOOK(cuGraphInstantiateWithFlags, 11040)                                             \
    HOOK(cuGraphInstantiateWithParams, 12000)                                            \
    HOOK(cuGraphInstantiateWithParams_ptsz, 12000)                                       \
    HOOK(cuGraphExecDestroy, 10000)                                                      \
    HOOK(cuDeviceGraphMemTrim, 11040)                                                    \
    HOOK(cuCtxCreate, 0)                                                                 \
    HOOK(cuCtxCreate_v2, 0)                                                              \
    HOOK(cuCtxCreate_v3, 0)                                                              \
    HOOK(cuCtxCreate_v4, 0)                                                              \
    HOOK(cuCtxDestroy, 2000)                                                             \
    HOOK(cuCtxDestroy_v2, 4000)                                                          \
    HOOK(cuDevicePrimaryCtxRetain, 7000)                                                 \
    HOOK(cuDevicePrimaryCtxRelease, 7000)                                                \
    HOOK(cuDevicePrimaryCtxRelease_v2, 11000)                                            \
    HOOK(cuDevicePrimaryCtxReset, 7000)                                                  \
    HOOK(cuDevicePrimaryCtxReset_v2, 11000)                                              \
    HOOK(cuGreenCtxCreate, 12040)                                                        \
    HOOK(cuGreenCtxDestroy, 12040)                                                       \
    HOOK(cuCtxSetLimit, 3010)                                                            \
    HOOK(cuModuleLoad, 2000)                                                             \
    HOOK(cuModuleLoadData, 2000)                                                         \
    HOOK(cuModuleLoadDataEx, 2010)                                                       \
    HOOK(cuModuleLoadFatBinary, 2000)                                                    \
    HOOK(cuModuleUnload, 2000)                                                           \
    HOOK(cuLibraryLoadData, 12000)                                                       \
    HOOK(cuLibraryLoadFromFile, 12000)                                                   \
    HOOK(cuLibraryUnload, 12000)                                                         \
    HOOK(cuGetProcAddress, 11030)                                                        \
    HOOK(cuGetProcAddress_v2, 12000)                                                     \
    NVML(nvmlDeviceGetMemoryInfo)                                                        \
    NVML(nvmlDeviceGetMemoryInfo_v2)                                                     \
    NVML(nvmlDeviceGetComputeRunningProcesses)                                           \
    NVML(nvmlDeviceGetComputeRunningProcesses_v2)                                        \
    NVML(nvmlDeviceGetComputeRunningProcesses_v3)                                        \
    NVML(nvmlDeviceGetGraphicsRunningProcesses)                                          \
    NVML(nvmlDeviceGetGraphicsRunningProcesses_v2)                                       \
    NVML(nvmlDeviceGetGraphicsRunningProcesses_v3)                                       \
    NVML(nvmlDeviceGetMPSComputeRunningProcesses)                                        \
    NVML(nvmlDeviceGetMPSComputeRunningProcesses_v2)                                     \
    NVML(nvmlDeviceGetMPSComputeRunningProcesses_v3)                                     \
    REAL(nvmlDeviceGetUUID)                                                              \
    REAL(nvmlInit_v2)                                                                    \
    REAL(nvmlShutdown)                                                                   \
    REAL(nvmlDeviceGetHandleByUUID)                                                      \
    REAL(cuDevicePrimaryCtxGetState)                                                     \
    REAL(cuCtxGetLimit)                                                                  \
    REAL(cuDeviceGetAttribute)                                                           \
    REAL(cuMemGetAddressRange_v2)                                                        \
    REAL(cuDeviceGetDefaultMemPool)                                                      \
    REAL(cuDeviceGetCount)                                                               \
    REAL(cuStreamGetCtx)                                                                 \
    REAL(cuCtxPushCurrent_v2)                                                            \
    REAL(cuCtxPopCurrent_v2)                                                             \
    REAL(cuCtxFromGreenCtx)                                                              \
    REAL(cuMemPoolGetAttribute)                                                          \
    REAL(cuDeviceGetMemPool)                                                             \
    REAL(cuStreamGetCaptureInfo_v2)                                                      \
    REAL(cuStreamGetCaptureInfo_v2_ptsz)                                                 \
    REAL(cuGraphNodeGetDependencies)                                                     \
    REAL(cuDeviceGetGraphMemAttribute)                                                   \
    REAL(cuCtxGetCurrent)                                                                \
    REAL(cuCtxGetDevice)                                                                 \
    REAL(cuDeviceGetUuid)                                                                \
    REAL(cuDeviceGetUuid_v2)

/*
 * The way from a symbol to a function, in both directions: the driver's functions, which the
 * library calls, and the library's, which a program gets whichever way it asks:
 *
 *     direct link        the library is preloaded, so its symbols come first
 *     dlsym, dlvsym      the library exports both. They call those of the C library, and
 *                        replace an address of the driver by the library's function. What the
 *                        program asks for with RTLD_NEXT depends on the caller; the C library
 *                        sees the program as the caller, because these functions jump to it.
 *     dlopen, dlmopen    without RTLD_DEEPBIND, and the driver in the program's namespace:
 *                        otherwise a library finds the C library's dlsym first
 *     cuGetProcAddress   the answer of the driver is replaced
 *
 * Only functions of libcuda.so.1 and libnvidia-ml.so.1 are replaced: a program's own function
 * named cuMemAlloc stays.
 */

#define LIMIT_EXPORT __attribute__((visibility("default")))

#define HOOK(symbol, since) CALL_##symbol,
#define NVML(symbol)        CALL_##symbol,
#define REAL(symbol)        CALL_##symbol,
enum call { LIMIT_CALLS CALLS };
#undef HOOK
#undef NVML
#undef REAL

/* The driver's function, or NULL if the driver is not loaded or lacks it. */
void *resolve_real(enum call call);
/* The same with the type of the function. */
#define DRIVER(symbol) ((__typeof__(&symbol))resolve_real(CALL_##symbol))

/* Declares `real`, the driver's function; without it the caller returns. */
#define LIMIT_REAL(symbol)                                                               \
    __typeof__(&symbol) real = DRIVER(symbol);                                           \
    if (!real)                                                                           \
    return CUDA_ERROR_NOT_INITIALIZED

/* The result of a call of the driver. What the driver calls itself is not counted again. */
#define LIMIT_CALL(call)                                                                 \
    __extension__({                                                                      \
        resolve_enter();                                                                 \
        CUresult call_rc_ = (call);                                                      \
        resolve_leave();                                                                 \
        call_rc_;                                                                        \
    })

/* Is this thread inside a function of the driver that the library called? Then what the driver
 * calls itself is not counted again. */
bool resolve_nested(void);
void resolve_enter(void);
void resolve_leave(void);
