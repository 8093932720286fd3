/* SPDX-License-Identifier: Apache-2.0 */
/* What the program sees of a card: its size is the limit, in CUDA and NVML. */
#include <stdbool.h>

#include "limit/limit.h"
#include "limit/sys.h"

/* -- the driver -- */

/* cuMemGetInfo and cuDeviceTotalMem: the program sees a card of the size of its limit. */

/* Parameters: where to write what is available, and the size. */
CUresult info_memory(enum call call, const uint64_t *words)
{
    struct account a;
    uint64_t *available = (uint64_t *)words[0], *total = (uint64_t *)words[1];
    CUresult rc = resolve_pass(call, words);
    if (rc == CUDA_SUCCESS && available && total && account_begin(&a)) {
        uint64_t limit = process_limit(a.process, a.card);
        uint64_t used = process_used(a.process, a.card);
        *total = smaller(*total, limit);
        *available = smaller(*available, minus(limit, used));
    }
    return rc;
}

/* Parameters: where to write the size, device. */
CUresult info_total(enum call call, const uint64_t *words)
{
    struct account a;
    uint64_t *total = (uint64_t *)words[0];
    CUresult rc = resolve_pass(call, words);
    if (rc == CUDA_SUCCESS && total && account_begin_device(&a, (CUdevice)words[1]))
        *total = smaller(*total, process_limit(a.process, a.card));
    return rc;
}

/* -- NVML -- */

/*
 * What NVML says of a card: its size is the limit, its use that of the pod, and its processes
 * are those of this pid namespace, with the memory that the library counts. NVML itself would
 * show the processes of all pods, with numbers of the host's pid namespace.
 */

enum { UUID_MAX = 96 /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */ };

static bool find_card(uint64_t device, struct process **p, int *card)
{
    char uuid[UUID_MAX];
    *p = process_get();
    if (!*p || DRIVER(nvmlDeviceGetUUID, device, WORD(uuid), sizeof uuid) != NVML_SUCCESS)
        return false;
    *card = (*p)->closed ? CARD_NONE : process_card(*p, uuid);
    return true;
}

/* Parameters: device, and where to write its memory. */
CUresult info_card(enum call call, const uint64_t *words, int version)
{
    nvmlMemory_t *first = (void *)words[1];
    nvmlMemory_v2_t *second = (void *)words[1];
    struct process *p;
    int card;
    CUresult rc = resolve_pass(call, words);
    if (rc != NVML_SUCCESS || !words[1] || resolve_nested() ||
        !find_card(words[0], &p, &card))
        return rc;
    nvmlMemory_t m = {.total = version == 1 ? first->total : second->total};
    m.total = smaller(m.total, process_limit(p, card));
    m.used = smaller(process_used(p, card), m.total);
    m.free = m.total - m.used;
    if (version == 1)
        *first = m;
    else
        *second = (nvmlMemory_v2_t){second->version, m.total, 0, m.free, m.used};
    return rc;
}

/* The processes of this namespace that hold memory. The count is capped: `count` is the room on
 * entry, and the number of processes on return. */
static CUresult list_processes(struct process *p, int card, unsigned *count, void *into,
                               size_t size)
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

/* Parameters: device, room and number, where to write them. Only compute processes: the library
 * does not know of others. */
CUresult info_processes(enum call call, const uint64_t *words, int version)
{
    struct process *p;
    int card;
    unsigned *count = (unsigned *)words[1];
    if (resolve_nested() || !resolve_real(call) || !count ||
        !find_card(words[0], &p, &card))
        return resolve_pass(call, words);
    if (version)
        return list_processes(p, card, count, (void *)words[2],
                              version == 1 ? sizeof(nvmlProcess_v1_t)
                                           : sizeof(nvmlProcess_v2_t));
    *count = 0;
    return NVML_SUCCESS;
}
