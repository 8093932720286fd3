/* SPDX-License-Identifier: Apache-2.0 */
/* What the program sees of a card: its size is the limit, in CUDA and NVML. */
#include <stdbool.h>

#include "limit/calls.h"
#include "limit/limit.h"
#include "limit/sys.h"

/* -- the driver -- */

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
        LIMIT_REAL(symbol);                                                              \
        struct account a;                                                                \
        CUresult rc = real(available, total);                                            \
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
        LIMIT_REAL(symbol);                                                              \
        struct account a;                                                                \
        CUresult rc = real(total, device);                                               \
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

/* -- NVML -- */

/*
 * What NVML says of a card: its size is the limit, its use that of the pod, and its processes
 * are those of this pid namespace, with the memory that the library counts. NVML itself would
 * show the processes of all pods, with numbers of the host's pid namespace.
 */

enum { UUID_MAX = 96 /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */ };

static bool find_card(nvmlDevice_t device, struct process **p, int *card)
{
    char uuid[UUID_MAX];
    __typeof__(&nvmlDeviceGetUUID) get = DRIVER(nvmlDeviceGetUUID);
    *p = process_get();
    if (!*p || !get || get(device, uuid, sizeof uuid) != NVML_SUCCESS)
        return false;
    *card = (*p)->closed ? CARD_NONE : process_card(*p, uuid);
    return true;
}

#define MEMORY(symbol)                                                                   \
    __typeof__(&symbol) real = DRIVER(symbol);                                           \
    struct process *p;                                                                   \
    int card;                                                                            \
    nvmlReturn_t rc = real ? real(device, memory) : NVML_UNINITIALIZED;                  \
    if (rc != NVML_SUCCESS || !memory || !find_card(device, &p, &card))                  \
        return rc;                                                                       \
    uint64_t limit = process_limit(p, card), used = process_used(p, card);               \
    memory->total = memory->total < limit ? memory->total : limit;                       \
    memory->used = used < memory->total ? used : memory->total;                          \
    memory->free = memory->total - memory->used

LIMIT_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device,
                                                  nvmlMemory_t *memory)
{
    MEMORY(nvmlDeviceGetMemoryInfo);
    return rc;
}

LIMIT_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device,
                                                     nvmlMemory_v2_t *memory)
{
    MEMORY(nvmlDeviceGetMemoryInfo_v2);
    memory->reserved = 0;
    return rc;
}

/* The processes of this namespace that hold memory. The count is capped: `count` is the room on
 * entry, and the number of processes on return. */
static nvmlReturn_t list_processes(struct process *p, int card, unsigned *count,
                                   void *into, size_t size)
{
    const struct limit_state *s = process_state(p, card);
    struct sys_file ns = {0};
    sys_stat("/proc/self/ns/pid", &ns);
    unsigned n = 0, room = into ? *count : 0;
    process_used(p, card); /* leaves living processes only */
    for (uint32_t i = 0, high = s ? reserve_high(s) : 0; i < high; i++) {
        const struct limit_slot *slot = &s->slots[i];
        uint64_t used = __atomic_load_n(&slot->used, __ATOMIC_SEQ_CST);
        if (!used || __atomic_load_n(&slot->namespace, __ATOMIC_SEQ_CST) != ns.inode)
            continue;
        if (n++ >= room)
            continue;
        nvmlProcess_v2_t *entry = (void *)((char *)into + size * (n - 1));
        entry->pid = __atomic_load_n(&slot->pid, __ATOMIC_SEQ_CST);
        entry->used = used;
        if (size == sizeof *entry)
            entry->gpu_instance = entry->compute_instance = UINT32_MAX;
    }
    *count = n;
    return n > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* Only compute processes: the library does not know of others. */
#define PROCESSES(symbol, type, compute)                                                 \
    LIMIT_EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned *count, type *into)   \
    {                                                                                    \
        __typeof__(&symbol) real = DRIVER(symbol);                                       \
        struct process *p;                                                               \
        int card;                                                                        \
        if (!real)                                                                       \
            return NVML_UNINITIALIZED;                                                   \
        if (!count || !find_card(device, &p, &card))                                     \
            return real(device, count, into);                                            \
        if (compute)                                                                     \
            return list_processes(p, card, count, into, sizeof *into);                   \
        *count = 0;                                                                      \
        return NVML_SUCCESS;                                                             \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcess_v1_t, true)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcess_v2_t, true)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcess_v2_t, true)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcess_v1_t, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcess_v2_t, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcess_v2_t, false)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcess_v1_t, false)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcess_v2_t, false)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcess_v2_t, false)
