/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/unit.h"

/*
 * What libgpushare-limit.so needs and exports: nothing that a C library of any version or kind
 * lacks, and every function of CUDA that makes or frees device memory, or says how much there is.
 */

static char *said_by(const char *const *argv)
{
    struct program p;
    program_start(&p, "/nonexistent", argv);
    ck_assert_msg(program_wait(&p) == 0, "%s: %s", argv[0], program_output(&p));
    char *text = strdup(program_output(&p));
    program_fini(&p);
    return text;
}

START_TEST(the_library_needs_nothing)
{
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *dynamic = said_by(ARGV("readelf", "-dW", library));
    ck_assert_ptr_nonnull(strstr(dynamic, "GNU_HASH"));
    ck_assert_msg(!strstr(dynamic, "NEEDED"), "%s", dynamic);
    ck_assert_msg(!strstr(dynamic, "TEXTREL"), "%s", dynamic);
    /* One constructor, which records the root; each runs in every program. */
    ck_assert_contains(dynamic, "(INIT_ARRAYSZ)       8 (bytes)");
    ck_assert_msg(!strstr(dynamic, "(INIT)"), "%s", dynamic);
    cleanup_free char *versions = said_by(ARGV("readelf", "-VW", library));
    ck_assert_msg(!strstr(versions, "GLIBC"), "%s", versions);
    cleanup_free char *headers = said_by(ARGV("readelf", "-lW", library));
    ck_assert_ptr_nonnull(strstr(headers, "GNU_RELRO"));
    ck_assert_msg(!strstr(headers, "RWE"), "%s", headers);
}
END_TEST

/* Every undefined symbol is weak: the library also loads where there is none of it. */
START_TEST(the_library_has_one_weak_import)
{
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *symbols = said_by(ARGV("nm", "-D", "--undefined-only", library));
    const char *w = strchr(symbols, 'w');
    ck_assert_msg(w && strcmp(w, "w dl_iterate_phdr\n") == 0, "%s", symbols);
}
END_TEST

/* The functions of the "CUDA Driver API" 12.0 to 13.0 that concern device memory, and NVML's.
 * NULL: the library exports the function. Else the reason why it need not. */
#define HANDLE  "opens memory of another process, where it counts"
#define HOST    "memory of the host"
#define CONTENT "copies, moves or asks for memory that counts already"
#define ADDRESS "addresses only, without memory"
#define PER_CTX "part of the memory of the context, which counts as a whole"
static const struct {
    const char *symbol, *reason;
} table[] = {
    {"cuMemAlloc", NULL},
    {"cuMemAlloc_v2", NULL},
    {"cuMemAllocPitch", NULL},
    {"cuMemAllocPitch_v2", NULL},
    {"cuMemAllocManaged", NULL},
    {"cuMemFree", NULL},
    {"cuMemFree_v2", NULL},
    {"cuMemGetInfo", NULL},
    {"cuMemGetInfo_v2", NULL},
    {"cuDeviceTotalMem", NULL},
    {"cuDeviceTotalMem_v2", NULL},
    {"cuMemAllocHost", HOST},
    {"cuMemAllocHost_v2", HOST},
    {"cuMemHostAlloc", HOST},
    {"cuMemHostRegister", HOST},
    {"cuMemHostRegister_v2", HOST},
    {"cuMemHostGetDevicePointer_v2", HOST},
    {"cuMemFreeHost", HOST},
    {"cuArrayCreate", NULL},
    {"cuArrayCreate_v2", NULL},
    {"cuArray3DCreate", NULL},
    {"cuArray3DCreate_v2", NULL},
    {"cuArrayDestroy", NULL},
    {"cuMipmappedArrayCreate", NULL},
    {"cuMipmappedArrayDestroy", NULL},
    {"cuArrayGetPlane", CONTENT},
    {"cuMipmappedArrayGetLevel", CONTENT},
    {"cuMemMapArrayAsync", NULL},
    {"cuMemMapArrayAsync_ptsz", NULL},
    {"cuMemAddressReserve", ADDRESS},
    {"cuMemAddressFree", ADDRESS},
    {"cuMemCreate", NULL},
    {"cuMemRelease", NULL},
    {"cuMemMap", NULL},
    {"cuMemUnmap", NULL},
    {"cuMemRetainAllocationHandle", NULL},
    {"cuMemSetAccess", CONTENT},
    {"cuMemExportToShareableHandle", NULL},
    {"cuMemImportFromShareableHandle", NULL},
    {"cuMulticastCreate", NULL},
    {"cuMulticastBindMem", NULL},
    {"cuMulticastBindMem_v2", NULL},
    {"cuMulticastBindAddr", NULL},
    {"cuMulticastBindAddr_v2", NULL},
    {"cuMulticastUnbind", NULL},
    {"cuMemAllocAsync", NULL},
    {"cuMemAllocAsync_ptsz", NULL},
    {"cuMemAllocFromPoolAsync", NULL},
    {"cuMemAllocFromPoolAsync_ptsz", NULL},
    {"cuMemFreeAsync", NULL},
    {"cuMemFreeAsync_ptsz", NULL},
    {"cuMemPoolCreate", NULL},
    {"cuMemPoolDestroy", NULL},
    {"cuMemPoolTrimTo", NULL},
    {"cuMemPoolSetAttribute", "how much a pool keeps; what it holds counts"},
    {"cuMemPoolImportFromShareableHandle", HANDLE},
    {"cuMemPoolImportPointer", HANDLE},
    {"cuMemGetDefaultMemPool", NULL},
    {"cuMemGetMemPool", NULL},
    {"cuMemSetMemPool", "the pool of cuMemAllocAsync is asked for at each call"},
    {"cuDeviceSetMemPool", "as cuMemSetMemPool"},
    {"cuStreamSynchronize", NULL},
    {"cuStreamSynchronize_ptsz", NULL},
    {"cuEventSynchronize", NULL},
    {"cuCtxSynchronize", NULL},
    {"cuCtxSynchronize_v2", NULL},
    {"cuIpcGetMemHandle", NULL},
    {"cuIpcOpenMemHandle", NULL},
    {"cuIpcOpenMemHandle_v2", NULL},
    {"cuIpcCloseMemHandle", NULL},
    {"cuImportExternalMemory", HANDLE},
    {"cuExternalMemoryGetMappedBuffer", HANDLE},
    {"cuExternalMemoryGetMappedMipmappedArray", HANDLE},
    {"cuDestroyExternalMemory", HANDLE},
    {"cuGraphicsGLRegisterBuffer", "memory of OpenGL, which this library does not see"},
    {"cuGraphicsGLRegisterImage", "as cuGraphicsGLRegisterBuffer"},
    {"cuGraphicsEGLRegisterImage", "as cuGraphicsGLRegisterBuffer"},
    {"cuGraphAddMemAllocNode", NULL},
    {"cuGraphAddNode", NULL},
    {"cuGraphAddNode_v2", NULL},
    {"cuGraphAddMemFreeNode", NULL},
    {"cuGraphAddChildGraphNode",
     "a graph with allocation nodes cannot be a child, or moves with its nodes"},
    {"cuGraphClone", "a graph with allocation nodes cannot be cloned"},
    {"cuGraphDestroy", NULL},
    {"cuGraphInstantiate", NULL},
    {"cuGraphInstantiate_v2", NULL},
    {"cuGraphInstantiateWithFlags", NULL},
    {"cuGraphInstantiateWithParams", NULL},
    {"cuGraphInstantiateWithParams_ptsz", NULL},
    {"cuGraphExecDestroy", NULL},
    {"cuGraphLaunch", "takes the memory of nodes, which counts already"},
    {"cuGraphUpload", "as cuGraphLaunch"},
    {"cuDeviceGraphMemTrim", NULL},
    {"cuCtxCreate", NULL},
    {"cuCtxCreate_v2", NULL},
    {"cuCtxCreate_v3", NULL},
    {"cuCtxCreate_v4", NULL},
    {"cuCtxDestroy", NULL},
    {"cuCtxDestroy_v2", NULL},
    {"cuDevicePrimaryCtxRetain", NULL},
    {"cuDevicePrimaryCtxRelease", NULL},
    {"cuDevicePrimaryCtxRelease_v2", NULL},
    {"cuDevicePrimaryCtxReset", NULL},
    {"cuDevicePrimaryCtxReset_v2", NULL},
    {"cuGreenCtxCreate", NULL},
    {"cuGreenCtxDestroy", NULL},
    {"cuCtxSetLimit", NULL},
    {"cuModuleLoad", NULL},
    {"cuModuleLoadData", NULL},
    {"cuModuleLoadDataEx", NULL},
    {"cuModuleLoadFatBinary", NULL},
    {"cuLibraryLoadData", NULL},
    {"cuLibraryLoadFromFile", NULL},
    {"cuModuleUnload", NULL},
    {"cuLibraryUnload", NULL},
    {"cuLibraryGetModule", PER_CTX},
    {"cuLinkComplete", "an image in the memory of the host"},
    {"cuStreamCreate", PER_CTX},
    {"cuEventCreate", PER_CTX},
    {"cuLaunchKernel", "memory of a kernel's stack: " PER_CTX},
    {"cuCheckpointProcessRestore", "restores what the process had, which counts already"},
    {"cuMemPrefetchAsync", CONTENT},
    {"cuMemPrefetchAsync_v2", CONTENT},
    {"cuMemPrefetchBatchAsync", CONTENT},
    {"cuMemDiscardBatchAsync", CONTENT},
    {"cuMemAdvise", CONTENT},
    {"cuMemGetAddressRange_v2", CONTENT},
    {"cuGetProcAddress", NULL},
    {"cuGetProcAddress_v2", NULL},
    {"cuGetExportTable", "undocumented tables of functions; see docs/isolation.md"},
    {"dlsym", NULL},
    {"dlvsym", NULL},
    {"dlopen", NULL},
    {"dlmopen", NULL},
    {"nvmlDeviceGetMemoryInfo", NULL},
    {"nvmlDeviceGetMemoryInfo_v2", NULL},
    {"nvmlDeviceGetComputeRunningProcesses", NULL},
    {"nvmlDeviceGetComputeRunningProcesses_v2", NULL},
    {"nvmlDeviceGetComputeRunningProcesses_v3", NULL},
    {"nvmlDeviceGetGraphicsRunningProcesses", NULL},
    {"nvmlDeviceGetGraphicsRunningProcesses_v2", NULL},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", NULL},
    {"nvmlDeviceGetMPSComputeRunningProcesses", NULL},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v2", NULL},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", NULL},
    {"nvmlDeviceGetBAR1MemoryInfo", "the window of the card's bus, not its memory"},
};

/* The line of nm for an exported function. */
static bool exports(const char *symbols, const char *name)
{
    struct buf line = {0};
    buf_printf(&line, " T %s\n", name);
    bool found = strstr(symbols, line.p) != NULL;
    free(line.p);
    return found;
}

START_TEST(each_function_of_device_memory_is_intercepted_or_has_a_reason)
{
    cleanup_free char *library = program_path("libgpushare-limit.so");
    cleanup_free char *symbols = said_by(ARGV("nm", "-D", "--defined-only", library));
    size_t exported = 0, lines = 0;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        bool is = exports(symbols, table[i].symbol);
        ck_assert_msg(is == !table[i].reason, "%s: %s, but %s", table[i].symbol,
                      table[i].reason ? table[i].reason : "to be intercepted",
                      is ? "exported" : "not exported");
        exported += is;
    }
    for (const char *p = symbols; (p = strchr(p, '\n')); p++)
        lines++;
    ck_assert_uint_eq(exported, lines); /* nothing else is exported */
}
END_TEST

UNIT_MAIN("limit symbols", the_library_needs_nothing, the_library_has_one_weak_import,
          each_function_of_device_memory_is_intercepted_or_has_a_reason)
