/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* The books of test/gpu/fake_cuda.c, in a file that the test makes. */

enum { FAKE_PROCESSES = 512 };
#define FAKE_CONTEXT (4ull << 20)

struct fake_entry {
    pid_t pid;
    unsigned long long used;
};
struct fake_books {
    unsigned long long capacity; /* of device 0 */
    unsigned long long
        watch; /* above it, ended processes are looked for before counting */
    unsigned long long peak;     /* the most that living processes held at one time */
    unsigned long long neighbor; /* what entries[0] takes whenever a context is made or a
                                    module loaded; can be negative */
    unsigned long long neighbor_once; /* only the first time */
    unsigned long long neighbor_skip; /* so often not */
    unsigned long long neighbor_at;   /* which entry, if each time is another one's */
    unsigned long long neighbors;     /* how many others; 0: only entries[0] */
    struct fake_entry entries[FAKE_PROCESSES];
};

/* What cuGetProcAddress answers: ROW(symbol, name, since, per_thread). */
#define FAKE_CUDA_SYMBOLS                                                                \
    ROW(cuInit, "cuInit", 2000, 0)                                                       \
    ROW(cuDeviceTotalMem, "cuDeviceTotalMem", 2000, 0)                                   \
    ROW(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, 0)                                \
    ROW(cuCtxCreate, "cuCtxCreate", 2000, 0)                                             \
    ROW(cuCtxCreate_v2, "cuCtxCreate", 3020, 0)                                          \
    ROW(cuCtxCreate_v3, "cuCtxCreate", 11040, 0)                                         \
    ROW(cuCtxCreate_v4, "cuCtxCreate", 12050, 0)                                         \
    ROW(cuCtxDestroy, "cuCtxDestroy", 2000, 0)                                           \
    ROW(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0)                                        \
    ROW(cuCtxAttach, "cuCtxAttach", 2000, 0)                                             \
    ROW(cuCtxDetach, "cuCtxDetach", 2000, 0)                                             \
    ROW(cuGLCtxCreate, "cuGLCtxCreate", 2000, 0)                                         \
    ROW(cuGLCtxCreate_v2, "cuGLCtxCreate", 3020, 0)                                      \
    ROW(cuVDPAUCtxCreate, "cuVDPAUCtxCreate", 3010, 0)                                   \
    ROW(cuVDPAUCtxCreate_v2, "cuVDPAUCtxCreate", 3020, 0)                                \
    ROW(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050, 0)                      \
    ROW(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, 0)                                     \
    ROW(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, 0)                                     \
    ROW(cuCtxSynchronize, "cuCtxSynchronize", 2000, 0)                                   \
    ROW(cuEventSynchronize, "cuEventSynchronize", 2000, 0)                               \
    ROW(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0)                   \
    ROW(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 0)                 \
    ROW(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0)             \
    ROW(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0)                     \
    ROW(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0)                 \
    ROW(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000, 0)               \
    ROW(cuGreenCtxCreate, "cuGreenCtxCreate", 12040, 0)                                  \
    ROW(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, 0)                                \
    ROW(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040, 0)                                \
    ROW(cuCtxGetLimit, "cuCtxGetLimit", 3010, 0)                                         \
    ROW(cuCtxSetLimit, "cuCtxSetLimit", 3010, 0)                                         \
    ROW(cuModuleLoad, "cuModuleLoad", 2000, 0)                                           \
    ROW(cuModuleLoadData, "cuModuleLoadData", 2000, 0)                                   \
    ROW(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, 0)                               \
    ROW(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, 0)                         \
    ROW(cuModuleUnload, "cuModuleUnload", 2000, 0)                                       \
    ROW(cuLibraryLoadData, "cuLibraryLoadData", 12000, 0)                                \
    ROW(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, 0)                        \
    ROW(cuLibraryUnload, "cuLibraryUnload", 12000, 0)                                    \
    ROW(cuStreamCreate, "cuStreamCreate", 2000, 0)                                       \
    ROW(cuMemGetDefaultMemPool, "cuMemGetDefaultMemPool", 13000, 0)                      \
    ROW(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, 0)                \
    ROW(cuMulticastCreate, "cuMulticastCreate", 12010, 0)                                \
    ROW(cuMulticastAddDevice, "cuMulticastAddDevice", 12010, 0)                          \
    ROW(cuMulticastBindMem, "cuMulticastBindMem", 12010, 0)                              \
    ROW(cuMulticastBindAddr, "cuMulticastBindAddr", 12010, 0)                            \
    ROW(cuMulticastUnbind, "cuMulticastUnbind", 12010, 0)                                \
    ROW(cuMemMapArrayAsync, "cuMemMapArrayAsync", 11010, 0)                              \
    ROW(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, 0)          \
    ROW(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, 0)                                 \
    ROW(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, 0)                               \
    ROW(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, 0)                             \
    ROW(cuMemGetInfo, "cuMemGetInfo", 2000, 0)                                           \
    ROW(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0)                                        \
    ROW(cuMemAlloc, "cuMemAlloc", 2000, 0)                                               \
    ROW(cuMemAlloc_v2, "cuMemAlloc", 3020, 0)                                            \
    ROW(cuMemAllocPitch, "cuMemAllocPitch", 2000, 0)                                     \
    ROW(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0)                                  \
    ROW(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0)                                 \
    ROW(cuMemFree, "cuMemFree", 2000, 0)                                                 \
    ROW(cuMemFree_v2, "cuMemFree", 3020, 0)                                              \
    ROW(cuMemHostAlloc, "cuMemHostAlloc", 2020, 0)                                       \
    ROW(cuArrayCreate, "cuArrayCreate", 2000, 0)                                         \
    ROW(cuArrayCreate_v2, "cuArrayCreate", 3020, 0)                                      \
    ROW(cuArray3DCreate, "cuArray3DCreate", 2000, 0)                                     \
    ROW(cuArray3DCreate_v2, "cuArray3DCreate", 3020, 0)                                  \
    ROW(cuArrayDestroy, "cuArrayDestroy", 2000, 0)                                       \
    ROW(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, 0)                       \
    ROW(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, 0)                     \
    ROW(cuMemPoolCreate, "cuMemPoolCreate", 11020, 0)                                    \
    ROW(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, 0)                                  \
    ROW(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, 0)                                    \
    ROW(cuMemAllocAsync, "cuMemAllocAsync", 11020, 0)                                    \
    ROW(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, 1)                               \
    ROW(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, 0)                    \
    ROW(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, 1)               \
    ROW(cuMemFreeAsync, "cuMemFreeAsync", 11020, 0)                                      \
    ROW(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, 1)                                 \
    ROW(cuStreamSynchronize, "cuStreamSynchronize", 2000, 0)                             \
    ROW(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, 1)                        \
    ROW(cuMemCreate, "cuMemCreate", 10020, 0)                                            \
    ROW(cuMemCreate_v2, "cuMemCreate", 14000, 0)                                         \
    ROW(cuMemRelease, "cuMemRelease", 10020, 0)                                          \
    ROW(cuMemMap, "cuMemMap", 10020, 0)                                                  \
    ROW(cuMemUnmap, "cuMemUnmap", 10020, 0)                                              \
    ROW(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0)            \
    ROW(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0)      \
    ROW(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, 0)                           \
    ROW(cuGraphCreate, "cuGraphCreate", 10000, 0)                                        \
    ROW(cuGraphDestroy, "cuGraphDestroy", 10000, 0)                                      \
    ROW(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, 0)                      \
    ROW(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 11040, 0)                        \
    ROW(cuGraphNodeGetDependencies, "cuGraphNodeGetDependencies", 10000, 0)              \
    ROW(cuGraphAddNode, "cuGraphAddNode", 12020, 0)                                      \
    ROW(cuGraphAddNode_v2, "cuGraphAddNode", 12030, 0)                                   \
    ROW(cuGraphInstantiate, "cuGraphInstantiate", 10000, 0)                              \
    ROW(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, 0)                           \
    ROW(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0)            \
    ROW(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, 0)          \
    ROW(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, 1)     \
    ROW(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, 0)                              \
    ROW(cuGraphLaunch, "cuGraphLaunch", 10000, 0)                                        \
    ROW(cuLaunchKernel, "cuLaunchKernel", 4000, 0)                                       \
    ROW(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, 0)                                  \
    ROW(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, 0)                          \
    ROW(cuStreamBeginCapture, "cuStreamBeginCapture", 10000, 0)                          \
    ROW(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, 0)                       \
    ROW(cuStreamEndCapture, "cuStreamEndCapture", 10000, 0)                              \
    ROW(cuGetProcAddress, "cuGetProcAddress", 11030, 0)                                  \
    ROW(cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0)
