/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "limit/cuda.h"

/*
 * The functions of libcuda.so.1 and libnvidia-ml.so.1 that the library knows.
 *
 *     HOOK(symbol, since, handler, ...)
 *         the library exports the symbol in place of the driver's, and calls the handler with the
 *         parameters as words, and with what follows it here. cuGetProcAddress gives the symbol
 *         for its name without version from the CUDA version `since` on; with the suffix
 *         _ptsz only with the flag CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM. An answer of
 *         cuGetProcAddress is recognized by its address first, and by name and `since` only
 *         if libcuda.so.1 does not export that address. 0: by its address only, because a
 *         name stands for functions with different parameters, or because it is NVML's
 *     OPEN(symbol, since)
 *         the same with the parameters of cuIpcOpenMemHandle, of which one is a struct
 *     REAL(symbol)
 *         is only called
 */
#define LIMIT_CALLS                                                                      \
    HOOK(cuMemAlloc, 2000, account_refuse)                                               \
    HOOK(cuMemAlloc_v2, 3020, linear_alloc)                                              \
    HOOK(cuMemAllocPitch, 2000, account_refuse)                                          \
    HOOK(cuMemAllocPitch_v2, 3020, linear_pitch)                                         \
    HOOK(cuMemAllocManaged, 6000, linear_alloc)                                          \
    HOOK(cuMemFree, 2000, account_refuse)                                                \
    HOOK(cuMemFree_v2, 3020, account_free, KIND_LINEAR)                                  \
    HOOK(cuMemGetInfo, 2000, account_refuse)                                             \
    HOOK(cuMemGetInfo_v2, 3020, info_memory)                                             \
    HOOK(cuDeviceTotalMem, 2000, account_refuse)                                         \
    HOOK(cuDeviceTotalMem_v2, 3020, info_total)                                          \
    HOOK(cuArrayCreate, 2000, account_refuse)                                            \
    HOOK(cuArrayCreate_v2, 3020, linear_array, ARRAY_2D)                                 \
    HOOK(cuArray3DCreate, 2000, account_refuse)                                          \
    HOOK(cuArray3DCreate_v2, 3020, linear_array, ARRAY_3D)                               \
    HOOK(cuArrayDestroy, 2000, account_free, KIND_ARRAY)                                 \
    HOOK(cuMipmappedArrayCreate, 5000, linear_array, ARRAY_MIPMAPPED)                    \
    HOOK(cuMipmappedArrayDestroy, 5000, account_free, KIND_ARRAY)                        \
    HOOK(cuMemCreate, 10020, vmm_create)                                                 \
    HOOK(cuMemRelease, 10020, account_change, vmm_released)                              \
    HOOK(cuMemMap, 10020, vmm_map)                                                       \
    HOOK(cuMemUnmap, 10020, account_change, vmm_unmapped)                                \
    HOOK(cuMemRetainAllocationHandle, 11000, account_change, vmm_retained)               \
    HOOK(cuMemExportToShareableHandle, 10020, account_change, vmm_exported)              \
    HOOK(cuMemImportFromShareableHandle, 10020, account_change, vmm_imported)            \
    HOOK(cuMemMapArrayAsync, 11010, account_change, vmm_tiled)                           \
    HOOK(cuMemMapArrayAsync_ptsz, 11010, account_change, vmm_tiled)                      \
    HOOK(cuMulticastCreate, 12010, account_change, vmm_multicast)                        \
    HOOK(cuMulticastBindMem, 12010, vmm_bind_handle, 1)                                  \
    HOOK(cuMulticastBindMem_v2, 13010, vmm_bind_handle, 2)                               \
    HOOK(cuMulticastBindAddr, 12010, vmm_bind_address, 1)                                \
    HOOK(cuMulticastBindAddr_v2, 13010, vmm_bind_address, 2)                             \
    HOOK(cuMulticastUnbind, 12010, account_change, vmm_unbound)                          \
    HOOK(cuIpcGetMemHandle, 4010, account_change, vmm_shared)                            \
    OPEN(cuIpcOpenMemHandle, 4010)                                                       \
    OPEN(cuIpcOpenMemHandle_v2, 11000)                                                   \
    HOOK(cuIpcCloseMemHandle, 4010, account_change, vmm_closed)                          \
    HOOK(cuMemGetDefaultMemPool, 13000, account_record, pool_got)                        \
    HOOK(cuMemGetMemPool, 13000, account_record, pool_got)                               \
    HOOK(cuMemAllocAsync, 11020, pool_alloc, 0)                                          \
    HOOK(cuMemAllocAsync_ptsz, 11020, pool_alloc, POOL_PER_THREAD)                       \
    HOOK(cuMemAllocFromPoolAsync, 11020, pool_alloc, POOL_NAMED)                         \
    HOOK(cuMemAllocFromPoolAsync_ptsz, 11020, pool_alloc, POOL_NAMED | POOL_PER_THREAD)  \
    HOOK(cuMemFreeAsync, 11020, pool_free, 0)                                            \
    HOOK(cuMemFreeAsync_ptsz, 11020, pool_free, POOL_PER_THREAD)                         \
    HOOK(cuMemPoolCreate, 11020, account_record, pool_created)                           \
    HOOK(cuMemPoolDestroy, 11020, account_record, pool_destroyed)                        \
    HOOK(cuMemPoolTrimTo, 11020, pool_synchronize)                                       \
    HOOK(cuStreamSynchronize, 2000, pool_synchronize)                                    \
    HOOK(cuStreamSynchronize_ptsz, 7000, pool_synchronize)                               \
    HOOK(cuEventSynchronize, 2000, pool_synchronize)                                     \
    HOOK(cuCtxSynchronize, 2000, pool_synchronize)                                       \
    HOOK(cuCtxSynchronize_v2, 13000, pool_synchronize)                                   \
    HOOK(cuGraphAddMemAllocNode, 11040, graph_add_alloc)                                 \
    HOOK(cuGraphAddMemFreeNode, 11040, account_record, graph_added_free)                 \
    HOOK(cuGraphAddNode, 0, graph_add_node, 3)                                           \
    HOOK(cuGraphAddNode_v2, 0, graph_add_node, 4)                                        \
    HOOK(cuGraphDestroy, 10000, graph_destroy, KIND_GRAPH)                               \
    HOOK(cuGraphInstantiate, 10000, account_record, graph_instantiated)                  \
    HOOK(cuGraphInstantiate_v2, 11000, account_record, graph_instantiated)               \
    HOOK(cuGraphInstantiateWithFlags, 11040, account_record, graph_instantiated)         \
    HOOK(cuGraphInstantiateWithParams, 12000, account_record, graph_instantiated)        \
    HOOK(cuGraphInstantiateWithParams_ptsz, 12000, account_record, graph_instantiated)   \
    HOOK(cuGraphExecDestroy, 10000, graph_destroy, KIND_EXEC)                            \
    HOOK(cuDeviceGraphMemTrim, 11040, graph_trim_device)                                 \
    HOOK(cuCtxCreate, 0, context_create, 2)                                              \
    HOOK(cuCtxCreate_v2, 0, context_create, 2)                                           \
    HOOK(cuCtxCreate_v3, 0, context_create, 4)                                           \
    HOOK(cuCtxCreate_v4, 0, context_create, 3)                                           \
    HOOK(cuCtxDestroy, 2000, context_destroy)                                            \
    HOOK(cuCtxDestroy_v2, 4000, context_destroy)                                         \
    HOOK(cuCtxDetach, 2000, context_destroy)                                             \
    HOOK(cuGLCtxCreate, 2000, context_create, 2)                                         \
    HOOK(cuGLCtxCreate_v2, 3020, context_create, 2)                                      \
    HOOK(cuVDPAUCtxCreate, 3010, context_create, 2)                                      \
    HOOK(cuVDPAUCtxCreate_v2, 3020, context_create, 2)                                   \
    HOOK(cuDevicePrimaryCtxRetain, 7000, context_retain, 1)                              \
    HOOK(cuDevicePrimaryCtxRelease, 7000, context_release)                               \
    HOOK(cuDevicePrimaryCtxRelease_v2, 11000, context_release)                           \
    HOOK(cuDevicePrimaryCtxReset, 7000, context_release)                                 \
    HOOK(cuDevicePrimaryCtxReset_v2, 11000, context_release)                             \
    HOOK(cuGreenCtxCreate, 12040, context_retain, 2)                                     \
    HOOK(cuGreenCtxDestroy, 12040, context_destroy_green)                                \
    HOOK(cuCtxSetLimit, 3010, context_set_limit)                                         \
    HOOK(cuModuleLoad, 2000, context_load, CALL_cuModuleUnload)                          \
    HOOK(cuModuleLoadData, 2000, context_load, CALL_cuModuleUnload)                      \
    HOOK(cuModuleLoadDataEx, 2010, context_load, CALL_cuModuleUnload)                    \
    HOOK(cuModuleLoadFatBinary, 2000, context_load, CALL_cuModuleUnload)                 \
    HOOK(cuModuleUnload, 2000, account_free, KIND_MODULE)                                \
    HOOK(cuLibraryLoadData, 12000, context_load, CALL_cuLibraryUnload)                   \
    HOOK(cuLibraryLoadFromFile, 12000, context_load, CALL_cuLibraryUnload)               \
    HOOK(cuLibraryUnload, 12000, account_free, KIND_MODULE)                              \
    HOOK(cuGetProcAddress, 11030, resolve_proc_address)                                  \
    HOOK(cuGetProcAddress_v2, 12000, resolve_proc_address)                               \
    HOOK(nvmlDeviceGetMemoryInfo, 0, info_card, 1)                                       \
    HOOK(nvmlDeviceGetMemoryInfo_v2, 0, info_card, 2)                                    \
    HOOK(nvmlDeviceGetComputeRunningProcesses, 0, info_processes, 1)                     \
    HOOK(nvmlDeviceGetComputeRunningProcesses_v2, 0, info_processes, 2)                  \
    HOOK(nvmlDeviceGetComputeRunningProcesses_v3, 0, info_processes, 2)                  \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses, 0, info_processes, 0)                    \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, 0, info_processes, 0)                 \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, 0, info_processes, 0)                 \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses, 0, info_processes, 0)                  \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, 0, info_processes, 0)               \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, 0, info_processes, 0)               \
    REAL(nvmlDeviceGetUUID)                                                              \
    REAL(nvmlInit_v2)                                                                    \
    REAL(nvmlShutdown)                                                                   \
    REAL(nvmlDeviceGetHandleByUUID)                                                      \
    REAL(cuDevicePrimaryCtxGetState)                                                     \
    REAL(cuCtxGetLimit)                                                                  \
    REAL(cuDeviceGetAttribute)                                                           \
    REAL(cuMemGetAddressRange_v2)                                                        \
    REAL(cuMemGetAllocationPropertiesFromHandle)                                         \
    REAL(cuDeviceGetDefaultMemPool)                                                      \
    REAL(cuDeviceGetCount)                                                               \
    REAL(cuStreamGetCtx)                                                                 \
    REAL(cuStreamGetCtx_v2)                                                              \
    REAL(cuStreamGetDevice)                                                              \
    REAL(cuCtxGetApiVersion)                                                             \
    REAL(cuCtxPushCurrent_v2)                                                            \
    REAL(cuCtxPopCurrent_v2)                                                             \
    REAL(cuCtxFromGreenCtx)                                                              \
    REAL(cuMemPoolGetAttribute)                                                          \
    REAL(cuDeviceGetMemPool)                                                             \
    REAL(cuStreamGetCaptureInfo_v2)                                                      \
    REAL(cuStreamGetCaptureInfo_v3)                                                      \
    REAL(cuGraphNodeGetDependencies)                                                     \
    REAL(cuGraphNodeGetDependencies_v2)                                                  \
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

#define HOOK(symbol, ...) CALL_##symbol,
#define OPEN(symbol, ...) CALL_##symbol,
#define REAL(symbol)      CALL_##symbol,
enum call { LIMIT_CALLS CALLS };
#undef HOOK
#undef OPEN
#undef REAL

/*
 * The parameters of a function. All are integers and pointers, which both ABIs pass in the same
 * way, so that one handler serves functions with different parameters. A handler takes `int` and
 * `unsigned` by a conversion, because the upper half of such a word is undefined, and does not
 * look at words behind the last parameter. Those are copied all the same: they are registers, and
 * on x86-64 the last two are the words behind the return address, which every caller has.
 */
enum { LIMIT_WORDS = 8 };
#define WORD(pointer) ((uint64_t)(uintptr_t)(pointer))

/* The word, a handle or an address, that the driver wrote to a parameter. */
static inline uint64_t word_at(uint64_t parameter)
{
    return *(const uint64_t *)parameter;
}

/* The driver's function, or NULL if the driver is not loaded or lacks it. */
void *resolve_real(enum call call);
/* Calls it. Without the function: CUDA_ERROR_NOT_INITIALIZED or NVML_UNINITIALIZED. */
CUresult resolve_pass(enum call call, const uint64_t *words);
/* The same for a function that takes memory: what the driver calls itself meanwhile is not counted
 * again. Not for calls that wait for the card: nothing would count any more in a thread whose
 * signal handler leaves them with siglongjmp. */
CUresult resolve_call(enum call call, const uint64_t *words);
#define DRIVER(symbol, ...)                                                              \
    resolve_call(CALL_##symbol, (const uint64_t[LIMIT_WORDS]){__VA_ARGS__})

/* Is this thread inside a function of the driver that the library called? Then what the driver
 * calls itself is not counted again. */
bool resolve_nested(void);
