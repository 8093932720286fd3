/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The part of the CUDA driver's and NVML's binary interface that the library uses, written
 * after "CUDA Driver API" (12.x and 13.x) and "NVML API Reference": numbers and layouts. Handles
 * and addresses of the card are words of 64 bits. The name of a symbol carries its version:
 * cuMemAlloc_v2 is what a program calls that was compiled with cuMemAlloc.
 */

typedef int CUresult;
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

typedef int CUdevice;
typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} CUarrayDesc;
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
    uint64_t array;    /* or a mipmapped one */
    uint64_t place[5]; /* CU_MIPTAIL or a level; see place_of in vmm.c */
    int operation, handle_type;
    uint64_t handle;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
} CUarrayMapInfo;
enum { CU_OPERATION_MAP = 1, CU_MIPTAIL = 1 };
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
    uint64_t pointer; /* out */
} CUallocNode;
typedef struct {
    int type, reserved[3];
    union {
        long long room[29];
        CUallocNode alloc;
        uint64_t freed;
        struct {
            uint64_t graph;
            int ownership; /* CUDA 12.9; before, bytes of 0 */
        } child;
    };
    long long reserved2;
} CUnodeParams;
enum { CU_NODE_GRAPH = 4, CU_NODE_MEM_ALLOC = 10, CU_NODE_MEM_FREE = 11 };
enum { CU_OWNERSHIP_MOVE = 1 };
_Static_assert(sizeof(CUpoolProps) == 88 && sizeof(CUnodeParams) == 256, "layout");

enum { CU_PROC_PER_THREAD_STREAM = 2 };

enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_INSUFFICIENT_SIZE = 7
};
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
