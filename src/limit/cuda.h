/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The part of the CUDA driver's and NVML's binary interface that the library uses, written
 * after "CUDA Driver API" (12.x and 13.x) and "NVML API Reference": numbers, layouts and
 * parameters. The name of a symbol carries its version: cuMemAlloc_v2 is what a program calls
 * that was compiled with cuMemAlloc.
 */

typedef int CUresult;
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_CONTEXT = 201,
};

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUallocation; /* CUmemGenericAllocationHandle */
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray; /* and CUmipmappedArray */
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    unsigned width, height;
    int format;
    unsigned channels;
} CUarrayDesc_v1;
typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} CUarrayDesc;
typedef struct {
    unsigned width, height, depth;
    int format;
    unsigned channels, flags;
} CUarray3dDesc_v1;
typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} CUarray3dDesc;
enum {
    CU_ARRAY3D_CUBEMAP = 4,
    CU_ARRAY3D_SPARSE = 0x40,
    CU_ARRAY3D_DEFERRED_MAPPING = 0x80
};

typedef struct {
    int type, id;
} CUmemLocation;
enum { CU_LOCATION_DEVICE = 1, CU_MANAGED = 2, CU_STREAM_PER_THREAD = 2 };
typedef struct {
    int type, handle_types;
    CUmemLocation location;
    void *win32;
    unsigned char flags[8];
} CUmemProp;
typedef struct {
    char bytes[64];
} CUipcHandle;
typedef struct {
    int type;
    CUarray array;     /* or a mipmapped one */
    uint64_t place[5]; /* level or mip tail, layer, offsets and extents */
    int operation, handle_type;
    CUallocation handle;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
} CUarrayMapInfo;
enum { CU_OPERATION_MAP = 1 };
_Static_assert(sizeof(CUarrayMapInfo) == 96, "layout");
typedef struct {
    int type, handle_types;
    CUmemLocation location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} CUpoolProps;
enum { CU_POOL_RESERVED_CURRENT = 5, CU_POOL_USED_CURRENT = 7 };
enum { CU_GRAPH_MEM_RESERVED_CURRENT = 2 };

typedef struct {
    CUpoolProps pool;
    const void *access;
    size_t n_access, bytes;
    CUdeviceptr pointer; /* out */
} CUallocNode;
typedef struct {
    int type, reserved[3];
    union {
        long long room[29];
        CUallocNode alloc;
        CUdeviceptr freed;
    };
    long long reserved2;
} CUnodeParams;
enum { CU_NODE_MEM_ALLOC = 10, CU_NODE_MEM_FREE = 11 };
_Static_assert(sizeof(CUpoolProps) == 88 && sizeof(CUnodeParams) == 256, "layout");

enum { CU_PROC_PER_THREAD_STREAM = 2 };

typedef int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_INSUFFICIENT_SIZE = 7
};
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
    unsigned pid;
    unsigned long long used;
} nvmlProcess_v1_t;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nvmlProcess_v2_t;

#define API(name, ...) CUresult name(__VA_ARGS__)

/* Memory management */
API(cuMemAlloc, uint32_t *, unsigned);
API(cuMemAlloc_v2, CUdeviceptr *, size_t);
API(cuMemAllocPitch, uint32_t *, unsigned *, unsigned, unsigned, unsigned);
API(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned);
API(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned);
API(cuMemFree, uint32_t);
API(cuMemFree_v2, CUdeviceptr);
API(cuMemGetInfo, unsigned *, unsigned *);
API(cuMemGetInfo_v2, size_t *, size_t *);
API(cuDeviceTotalMem, unsigned *, CUdevice);
API(cuDeviceTotalMem_v2, size_t *, CUdevice);
API(cuArrayCreate, CUarray *, const CUarrayDesc_v1 *);
API(cuArrayCreate_v2, CUarray *, const CUarrayDesc *);
API(cuArray3DCreate, CUarray *, const CUarray3dDesc_v1 *);
API(cuArray3DCreate_v2, CUarray *, const CUarray3dDesc *);
API(cuArrayDestroy, CUarray);
API(cuMipmappedArrayCreate, CUarray *, const CUarray3dDesc *, unsigned);
API(cuMipmappedArrayDestroy, CUarray);
/* Virtual memory management */
API(cuMemCreate, CUallocation *, size_t, const CUmemProp *, unsigned long long);
API(cuMemRelease, CUallocation);
API(cuMemMap, CUdeviceptr, size_t, size_t, CUallocation, unsigned long long);
API(cuMemUnmap, CUdeviceptr, size_t);
API(cuMemRetainAllocationHandle, CUallocation *, void *);
API(cuMemExportToShareableHandle, void *, CUallocation, int, unsigned long long);
API(cuMemImportFromShareableHandle, CUallocation *, void *, int);
API(cuMemMapArrayAsync, CUarrayMapInfo *, unsigned, CUstream);
API(cuMemMapArrayAsync_ptsz, CUarrayMapInfo *, unsigned, CUstream);
API(cuMulticastCreate, CUallocation *, const void *);
API(cuMulticastBindMem, CUallocation, size_t, CUallocation, size_t, size_t,
    unsigned long long);
API(cuMulticastBindMem_v2, CUallocation, CUdevice, size_t, CUallocation, size_t, size_t,
    unsigned long long);
API(cuMulticastBindAddr, CUallocation, size_t, CUdeviceptr, size_t, unsigned long long);
API(cuMulticastBindAddr_v2, CUallocation, CUdevice, size_t, CUdeviceptr, size_t,
    unsigned long long);
API(cuMulticastUnbind, CUallocation, CUdevice, size_t, size_t);
API(cuMemGetAddressRange_v2, CUdeviceptr *, size_t *, CUdeviceptr);
/* Memory of other processes */
API(cuIpcGetMemHandle, void *, CUdeviceptr);
API(cuIpcOpenMemHandle, CUdeviceptr *, CUipcHandle, unsigned);
API(cuIpcOpenMemHandle_v2, CUdeviceptr *, CUipcHandle, unsigned);
API(cuIpcCloseMemHandle, CUdeviceptr);
/* Stream ordered memory allocator */
API(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream);
API(cuMemAllocAsync_ptsz, CUdeviceptr *, size_t, CUstream);
API(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream);
API(cuMemAllocFromPoolAsync_ptsz, CUdeviceptr *, size_t, CUmemoryPool, CUstream);
API(cuMemFreeAsync, CUdeviceptr, CUstream);
API(cuMemFreeAsync_ptsz, CUdeviceptr, CUstream);
API(cuMemPoolCreate, CUmemoryPool *, const CUpoolProps *);
API(cuMemPoolDestroy, CUmemoryPool);
API(cuMemPoolTrimTo, CUmemoryPool, size_t);
API(cuMemPoolGetAttribute, CUmemoryPool, int, void *);
API(cuDeviceGetMemPool, CUmemoryPool *, CUdevice);
API(cuDeviceGetDefaultMemPool, CUmemoryPool *, CUdevice);
API(cuDeviceGetCount, int *);
API(cuMemGetDefaultMemPool, CUmemoryPool *, CUmemLocation *, int);
API(cuMemGetMemPool, CUmemoryPool *, CUmemLocation *, int);
API(cuStreamGetCtx, CUstream, CUcontext *);
API(cuCtxPushCurrent_v2, CUcontext);
API(cuCtxPopCurrent_v2, CUcontext *);
API(cuStreamSynchronize, CUstream);
API(cuStreamSynchronize_ptsz, CUstream);
API(cuEventSynchronize, CUevent);
API(cuCtxSynchronize, void);
API(cuCtxSynchronize_v2, CUcontext);
API(cuStreamGetCaptureInfo_v2, CUstream, int *, uint64_t *, CUgraph *,
    const CUgraphNode **, size_t *);
API(cuStreamGetCaptureInfo_v2_ptsz, CUstream, int *, uint64_t *, CUgraph *,
    const CUgraphNode **, size_t *);
/* Graphs */
API(cuGraphAddMemAllocNode, CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
    CUallocNode *);
API(cuGraphAddNode, CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUnodeParams *);
API(cuGraphAddNode_v2, CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t,
    CUnodeParams *);
API(cuGraphAddMemFreeNode, CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
    CUdeviceptr);
API(cuGraphNodeGetDependencies, CUgraphNode, CUgraphNode *, size_t *);
API(cuGraphDestroy, CUgraph);
API(cuGraphInstantiate, CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
API(cuGraphInstantiate_v2, CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
API(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long);
API(cuGraphInstantiateWithParams, CUgraphExec *, CUgraph, void *);
API(cuGraphInstantiateWithParams_ptsz, CUgraphExec *, CUgraph, void *);
API(cuGraphExecDestroy, CUgraphExec);
API(cuDeviceGraphMemTrim, CUdevice);
API(cuDeviceGetGraphMemAttribute, CUdevice, int, void *);
/* Contexts and devices */
API(cuCtxCreate, CUcontext *, unsigned, CUdevice);
API(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice);
API(cuCtxCreate_v3, CUcontext *, void *, int, unsigned, CUdevice);
API(cuCtxCreate_v4, CUcontext *, void *, unsigned, CUdevice);
API(cuCtxDestroy, CUcontext);
API(cuCtxDestroy_v2, CUcontext);
API(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice);
API(cuDevicePrimaryCtxRelease, CUdevice);
API(cuDevicePrimaryCtxRelease_v2, CUdevice);
API(cuDevicePrimaryCtxReset, CUdevice);
API(cuDevicePrimaryCtxReset_v2, CUdevice);
API(cuDevicePrimaryCtxGetState, CUdevice, unsigned *, int *);
API(cuGreenCtxCreate, CUgreenCtx *, void *, CUdevice, unsigned);
API(cuGreenCtxDestroy, CUgreenCtx);
API(cuCtxFromGreenCtx, CUcontext *, CUgreenCtx);
API(cuCtxSetLimit, int, size_t);
API(cuCtxGetLimit, size_t *, int);
API(cuDeviceGetAttribute, int *, int, CUdevice);
API(cuCtxGetCurrent, CUcontext *);
API(cuCtxGetDevice, CUdevice *);
API(cuDeviceGetUuid, CUuuid *, CUdevice);
API(cuDeviceGetUuid_v2, CUuuid *, CUdevice);
/* Modules */
API(cuModuleLoad, CUmodule *, const char *);
API(cuModuleLoadData, CUmodule *, const void *);
API(cuModuleLoadDataEx, CUmodule *, const void *, unsigned, int *, void **);
API(cuModuleLoadFatBinary, CUmodule *, const void *);
API(cuModuleUnload, CUmodule);
API(cuLibraryLoadData, CUlibrary *, const void *, int *, void **, unsigned, int *,
    void **, unsigned);
API(cuLibraryLoadFromFile, CUlibrary *, const char *, int *, void **, unsigned, int *,
    void **, unsigned);
API(cuLibraryUnload, CUlibrary);
/* Entry points */
API(cuGetProcAddress, const char *, void **, int, uint64_t);
API(cuGetProcAddress_v2, const char *, void **, int, uint64_t, int *);
#undef API

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *, nvmlDevice_t *);
#define API(name, ...) nvmlReturn_t name(nvmlDevice_t, __VA_ARGS__)
API(nvmlDeviceGetUUID, char *, unsigned);
API(nvmlDeviceGetMemoryInfo, nvmlMemory_t *);
API(nvmlDeviceGetMemoryInfo_v2, nvmlMemory_v2_t *);
API(nvmlDeviceGetComputeRunningProcesses, unsigned *, nvmlProcess_v1_t *);
API(nvmlDeviceGetComputeRunningProcesses_v2, unsigned *, nvmlProcess_v2_t *);
API(nvmlDeviceGetComputeRunningProcesses_v3, unsigned *, nvmlProcess_v2_t *);
API(nvmlDeviceGetGraphicsRunningProcesses, unsigned *, nvmlProcess_v1_t *);
API(nvmlDeviceGetGraphicsRunningProcesses_v2, unsigned *, nvmlProcess_v2_t *);
API(nvmlDeviceGetGraphicsRunningProcesses_v3, unsigned *, nvmlProcess_v2_t *);
API(nvmlDeviceGetMPSComputeRunningProcesses, unsigned *, nvmlProcess_v1_t *);
API(nvmlDeviceGetMPSComputeRunningProcesses_v2, unsigned *, nvmlProcess_v2_t *);
API(nvmlDeviceGetMPSComputeRunningProcesses_v3, unsigned *, nvmlProcess_v2_t *);
#undef API
