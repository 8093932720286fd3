/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "limit/cuda.h"

/*
 * The functions of libcuda.so.1 and libnvidia-ml.so.1 that the library knows.
 *
 *     HOOK(symbol, name, since, per_thread)
 *         the library exports the symbol in place of the driver's. cuGetProcAddress gives it
 *         for `name` from the CUDA version `since` on; per_thread: only with the flag
 *         CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM. An answer of cuGetProcAddress is
 *         recognized by its address first, and by these columns only if libcuda.so.1 does not
 *         export that address. "": by its address only, because a name stands for functions
 *         with different parameters
 *     NVML(symbol)
 *         the same for NVML
 *     REAL(symbol)
 *         is only called
 */
#define LIMIT_CALLS                                                                      \
    HOOK(cuMemAlloc, "cuMemAlloc", 2000, 0)                                              \
    HOOK(cuMemAlloc_v2, "cuMemAlloc", 3020, 0)                                           \
    HOOK(cuMemAllocPitch, "cuMemAllocPitch", 2000, 0)                                    \
    HOOK(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0)                                 \
    HOOK(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0)                                \
    HOOK(cuMemFree, "cuMemFree", 2000, 0)                                                \
    HOOK(cuMemFree_v2, "cuMemFree", 3020, 0)                                             \
    HOOK(cuMemGetInfo, "cuMemGetInfo", 2000, 0)                                          \
    HOOK(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0)                                       \
    HOOK(cuDeviceTotalMem, "cuDeviceTotalMem", 2000, 0)                                  \
    HOOK(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, 0)                               \
    HOOK(cuArrayCreate, "cuArrayCreate", 2000, 0)                                        \
    HOOK(cuArrayCreate_v2, "cuArrayCreate", 3020, 0)                                     \
    HOOK(cuArray3DCreate, "cuArray3DCreate", 2000, 0)                                    \
    HOOK(cuArray3DCreate_v2, "cuArray3DCreate", 3020, 0)                                 \
    HOOK(cuArrayDestroy, "cuArrayDestroy", 2000, 0)                                      \
    HOOK(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, 0)                      \
    HOOK(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, 0)                    \
    HOOK(cuMemCreate, "cuMemCreate", 10020, 0)                                           \
    HOOK(cuMemRelease, "cuMemRelease", 10020, 0)                                         \
    HOOK(cuMemMap, "cuMemMap", 10020, 0)                                                 \
    HOOK(cuMemUnmap, "cuMemUnmap", 10020, 0)                                             \
    HOOK(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0)           \
    HOOK(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, 0)         \
    HOOK(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0)     \
    HOOK(cuMemMapArrayAsync, "cuMemMapArrayAsync", 11010, 0)                             \
    HOOK(cuMemMapArrayAsync_ptsz, "cuMemMapArrayAsync", 11010, 1)                        \
    HOOK(cuMulticastCreate, "cuMulticastCreate", 12010, 0)                               \
    HOOK(cuMulticastBindMem, "cuMulticastBindMem", 12010, 0)                             \
    HOOK(cuMulticastBindMem_v2, "cuMulticastBindMem", 13010, 0)                          \
    HOOK(cuMulticastBindAddr, "cuMulticastBindAddr", 12010, 0)                           \
    HOOK(cuMulticastBindAddr_v2, "cuMulticastBindAddr", 13010, 0)                        \
    HOOK(cuMulticastUnbind, "cuMulticastUnbind", 12010, 0)                               \
    HOOK(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, 0)                                \
    HOOK(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, 0)                              \
    HOOK(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, 0)                          \
    HOOK(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, 0)                            \
    HOOK(cuMemGetDefaultMemPool, "cuMemGetDefaultMemPool", 13000, 0)                     \
    HOOK(cuMemGetMemPool, "cuMemGetMemPool", 13000, 0)                                   \
    HOOK(cuMemAllocAsync, "cuMemAllocAsync", 11020, 0)                                   \
    HOOK(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, 1)                              \
    HOOK(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, 0)                   \
    HOOK(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, 1)              \
    HOOK(cuMemFreeAsync, "cuMemFreeAsync", 11020, 0)                                     \
    HOOK(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, 1)                                \
    HOOK(cuMemPoolCreate, "cuMemPoolCreate", 11020, 0)                                   \
    HOOK(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, 0)                                 \
    HOOK(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, 0)                                   \
    HOOK(cuStreamSynchronize, "cuStreamSynchronize", 2000, 0)                            \
    HOOK(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, 1)                       \
    HOOK(cuEventSynchronize, "cuEventSynchronize", 2000, 0)                              \
    HOOK(cuCtxSynchronize, "cuCtxSynchronize", 2000, 0)                                  \
    HOOK(cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, 0)                              \
    HOOK(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, 0)                     \
    HOOK(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 11040, 0)                       \
    HOOK(cuGraphAddNode, "", 12020, 0)                                                   \
    HOOK(cuGraphAddNode_v2, "", 12030, 0)                                                \
    HOOK(cuGraphDestroy, "cuGraphDestroy", 10000, 0)                                     \
    HOOK(cuGraphInstantiate, "cuGraphInstantiate", 10000, 0)                             \
    HOOK(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, 0)                          \
    HOOK(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0)           \
    HOOK(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, 0)         \
    HOOK(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, 1)    \
    HOOK(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, 0)                             \
    HOOK(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, 0)                         \
    HOOK(cuCtxCreate, "", 2000, 0)                                                       \
    HOOK(cuCtxCreate_v2, "", 3020, 0)                                                    \
    HOOK(cuCtxCreate_v3, "", 11040, 0)                                                   \
    HOOK(cuCtxCreate_v4, "", 12050, 0)                                                   \
    HOOK(cuCtxDestroy, "cuCtxDestroy", 2000, 0)                                          \
    HOOK(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0)                                       \
    HOOK(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0)                  \
    HOOK(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 0)                \
    HOOK(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0)            \
    HOOK(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0)                    \
    HOOK(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0)                \
    HOOK(cuGreenCtxCreate, "cuGreenCtxCreate", 12040, 0)                                 \
    HOOK(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, 0)                               \
    HOOK(cuCtxSetLimit, "cuCtxSetLimit", 3010, 0)                                        \
    HOOK(cuModuleLoad, "cuModuleLoad", 2000, 0)                                          \
    HOOK(cuModuleLoadData, "cuModuleLoadData", 2000, 0)                                  \
    HOOK(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, 0)                              \
    HOOK(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, 0)                        \
    HOOK(cuModuleUnload, "cuModuleUnload", 2000, 0)                                      \
    HOOK(cuLibraryLoadData, "cuLibraryLoadData", 12000, 0)                               \
    HOOK(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, 0)                       \
    HOOK(cuLibraryUnload, "cuLibraryUnload", 12000, 0)                                   \
    HOOK(cuGetProcAddress, "cuGetProcAddress", 11030, 0)                                 \
    HOOK(cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0)                              \
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

#define HOOK(symbol, name, since, per_thread) CALL_##symbol,
#define NVML(symbol)                          CALL_##symbol,
#define REAL(symbol)                          CALL_##symbol,
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
