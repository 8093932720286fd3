/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gpu/nvml_priv.h"

enum {
    FIRST = 32,   /* processes in the first buffer; also its step */
    ATTEMPTS = 5, /* with a larger buffer each: processes start in between */
    WINDOW_US = 2 * 1000 * 1000, /* utilization is that of the last two seconds */
};

struct process_list {
    struct gpu_process *p;
    size_t n, cap;
};

static struct gpu_process *find(const struct process_list *l, unsigned pid)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->p[i].pid == pid)
            return &l->p[i];
    return NULL;
}

/* A process with compute and graphics contexts is in both lists, with the same bytes; so
 * is a client of MPS. */
static void add_process(struct process_list *l, unsigned pid, unsigned long long used)
{
    int64_t bytes = used < 1ULL << 60 ? (int64_t)used : -1;
    struct gpu_process *known = find(l, pid);
    if (known) {
        known->bytes = known->bytes > bytes ? known->bytes : bytes;
        return;
    }
    MEM_GROW(l->p, l->cap, l->n + 1);
    l->p[l->n++] = (struct gpu_process){pid, bytes, -1};
}

/* A list of processes: one of the calls, and the size of its items. */
struct list_call {
    int (*call)(void *, unsigned *, void *);
    size_t size;
};

static int list_processes(void *device, const struct list_call *list,
                          struct process_list *out)
{
    unsigned cap = FIRST;
    int rc = NVML_INSUFFICIENT_SIZE;
    for (int i = 0; i < ATTEMPTS && rc == NVML_INSUFFICIENT_SIZE; i++) {
        cleanup_free char *infos = xcalloc(cap, list->size);
        unsigned n = cap;
        rc = list->call(device, &n, infos);
        if (rc == NVML_INSUFFICIENT_SIZE && n <= GPU_MAX_PROCESSES)
            cap = (n > cap ? n : cap) + FIRST;
        else if (rc == NVML_INSUFFICIENT_SIZE || (rc == NVML_OK && n > cap))
            return NVML_UNKNOWN;
        for (unsigned k = 0; rc == NVML_OK && k < n; k++) {
            struct nvml_process_v1 v1; /* also the prefix of v2 */
            memcpy(&v1, infos + k * list->size, sizeof v1);
            add_process(out, v1.pid, v1.used);
        }
    }
    return rc;
}

/* Cards without graphics or MPS do not support these two lists; compute is required. */
static int list_all(const struct nvml_calls *c, void *device, struct process_list *out,
                    bool *known)
{
    static const size_t v1 = sizeof(struct nvml_process_v1);
    static const size_t v2 = sizeof(struct nvml_process_v2);
    const struct list_call lists[] = {
        {c->compute ? c->compute : c->compute_v1, c->compute ? v2 : v1},
        {c->graphics ? c->graphics : c->graphics_v1, c->graphics ? v2 : v1},
        {c->mps ? c->mps : c->mps_v1, c->mps ? v2 : v1},
    };
    *known = false;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        int rc = lists[i].call ? list_processes(device, &lists[i], out)
                               : NVML_FUNCTION_NOT_FOUND;
        bool none = rc == NVML_NOT_SUPPORTED || rc == NVML_FUNCTION_NOT_FOUND;
        if (rc != NVML_OK && (i == 0 || !none))
            return rc;
    }
    *known = true;
    return NVML_OK;
}

/* Some drivers leave items of the buffer unset: these have pid 0, an old time, or
 * percentages beyond 100. */
static void take_utilization(const struct nvml_process_utilization *u, unsigned n,
                             unsigned long long since, const struct process_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        unsigned long long newest = 0;
        list->p[i].sm_percent = 0;
        for (unsigned k = 0; k < n; k++)
            if (u[k].pid == list->p[i].pid && u[k].sm <= 100 && u[k].at > since &&
                u[k].at >= newest) {
                newest = u[k].at;
                list->p[i].sm_percent = (int32_t)u[k].sm;
            }
    }
}

/* A process that NVML does not list here used no SM. NVML_NOT_FOUND: no process did. */
static int read_utilization(const struct nvml_calls *c, void *device,
                            const struct process_list *list)
{
    unsigned long long since = (unsigned long long)(clock_wall_ns() / 1000 - WINDOW_US);
    unsigned n = 0;
    int rc = c->process_utilization(device, NULL, &n, since);
    for (int i = 0; i < ATTEMPTS && rc == NVML_INSUFFICIENT_SIZE; i++) {
        unsigned cap = n + FIRST;
        if (n > GPU_MAX_PROCESSES)
            return NVML_UNKNOWN;
        cleanup_free struct nvml_process_utilization *u = xcalloc(cap, sizeof *u);
        n = cap;
        rc = c->process_utilization(device, u, &n, since);
        if (rc == NVML_OK)
            take_utilization(u, n < cap ? n : cap, since, list);
    }
    if (rc == NVML_NOT_FOUND || (rc == NVML_OK && n == 0))
        take_utilization(NULL, 0, since, list);
    return rc;
}

static int by_pid(const void *a, const void *b)
{
    int64_t x = ((const struct gpu_process *)a)->pid;
    int64_t y = ((const struct gpu_process *)b)->pid;
    return (x > y) - (x < y);
}

int nvml_read_processes(const struct nvml_calls *call, void *device, struct arena *a,
                        struct gpu_card *card)
{
    struct process_list list = {0};
    int rc = list_all(call, device, &list, &card->processes_known);
    if (list.n && card->processes_known && call->process_utilization)
        rc = read_utilization(call, device, &list);
    if (list.n) {
        qsort(list.p, list.n, sizeof *list.p, by_pid);
        struct gpu_process *kept = arena_alloc(a, list.n * sizeof *kept);
        memcpy(kept, list.p, list.n * sizeof *kept);
        card->processes = kept;
        card->n_processes = list.n;
    }
    free(list.p);
    return nvml_is_gone(rc) || nvml_is_lost(rc) ? rc : NVML_OK;
}
