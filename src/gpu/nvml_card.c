/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/mem.h"
#include "gpu/nvml_priv.h"

/* The read of one card. After a call returned that the card or the driver is gone, no
 * further call is made. */
struct reader {
    const struct nvml_calls *call;
    void *device;
    struct gpu_card *card;
    int gone, lost; /* the code of that call, or NVML_OK */
};

/* Whether the function exists and succeeded. */
#define CALL(r, member, ...)                                                             \
    ((r)->call->member && may_call(r) &&                                                 \
     did(r, (r)->call->member((r)->device __VA_OPT__(, ) __VA_ARGS__)))

static bool may_call(const struct reader *r)
{
    return !r->gone && !r->lost;
}

static bool did(struct reader *r, int rc)
{
    if (nvml_is_gone(rc))
        r->gone = rc;
    else if (nvml_is_lost(rc))
        r->lost = rc;
    return rc == NVML_OK;
}

static struct span text_of(const char *buffer, size_t size)
{
    return (struct span){buffer, strnlen(buffer, size)};
}

static void read_identity(struct reader *r)
{
    struct gpu_card *c = r->card;
    char text[NVML_TEXT] = {0};
    struct nvml_pci pci = {0};
    if (CALL(r, uuid, text, sizeof text))
        gpu_set_uuid(c->uuid, sizeof c->uuid, text_of(text, sizeof text));
    memset(text, 0, sizeof text);
    if (CALL(r, name, text, sizeof text))
        gpu_set_text(c->model, sizeof c->model, text_of(text, sizeof text));
    if (CALL(r, pci, &pci))
        gpu_set_text(c->bus_id, sizeof c->bus_id, text_of(pci.bus_id, sizeof pci.bus_id));
    else if (CALL(r, pci_old, &pci))
        snprintf(c->bus_id, sizeof c->bus_id, "%08X:%02X:%02X.0", pci.domain, pci.bus,
                 pci.device);
}

/* The metrics that are the only result of a call. */
static void read_numbers(struct reader *r)
{
    const struct {
        int (*call)(void *, unsigned *);
        enum gpu_metric metric;
    } plain[] = {
        {r->call->minor, GPU_MINOR},
        {r->call->pcie_gen, GPU_PCIE_GEN_MAX},
        {r->call->pcie_width, GPU_PCIE_WIDTH_MAX},
        {r->call->power_limit, GPU_POWER_LIMIT},
        {r->call->power, GPU_POWER},
        {r->call->pages_pending, GPU_PAGES_PENDING},
    };
    const struct {
        int (*call)(void *, int, unsigned *);
        int which;
        enum gpu_metric metric;
    } chosen[] = {
        {r->call->max_clock, NVML_CLOCK_GRAPHICS, GPU_CLOCK_GRAPHICS_MAX},
        {r->call->max_clock, NVML_CLOCK_SM, GPU_CLOCK_SM_MAX},
        {r->call->max_clock, NVML_CLOCK_MEM, GPU_CLOCK_MEM_MAX},
        {r->call->clock, NVML_CLOCK_GRAPHICS, GPU_CLOCK_GRAPHICS},
        {r->call->clock, NVML_CLOCK_SM, GPU_CLOCK_SM},
        {r->call->clock, NVML_CLOCK_MEM, GPU_CLOCK_MEM},
        {r->call->temperature, NVML_TEMPERATURE_GPU, GPU_TEMPERATURE},
    };
    unsigned v = 0;
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (plain[i].call && may_call(r) && did(r, plain[i].call(r->device, &v)))
            gpu_set(r->card, plain[i].metric, v);
    for (size_t i = 0; i < ARRAY_LEN(chosen); i++)
        if (chosen[i].call && may_call(r) &&
            did(r, chosen[i].call(r->device, chosen[i].which, &v)))
            gpu_set(r->card, chosen[i].metric, v);
}

static void read_memory(struct reader *r)
{
    struct nvml_memory_v2 v2 = {.version = NVML_MEMORY_V2};
    struct nvml_memory v1 = {0};
    if (CALL(r, memory_v2, &v2)) {
        gpu_set_memory(
            r->card, &(struct gpu_memory){v2.total, v2.free, v2.used, v2.reserved, true});
        return;
    }
    if (!may_call(r))
        return;
    int rc = r->call->memory(r->device, &v1);
    if (did(r, rc))
        gpu_set_memory(r->card,
                       &(struct gpu_memory){v1.total, v1.free, v1.used, 0, false});
    else if (may_call(r))
        gpu_set_state(r->card, GPU_UNREADABLE, "cannot read its memory: %s (%d)",
                      nvml_strerror(rc), rc);
}

static void read_health(struct reader *r)
{
    struct gpu_card *c = r->card;
    struct nvml_utilization u = {0};
    struct nvml_field recovery = {.id = NVML_FI_RECOVERY_ACTION};
    unsigned long long errors = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0, mode = 0, next = 0;
    if (CALL(r, utilization, &u)) {
        gpu_set(c, GPU_UTILIZATION, u.gpu);
        gpu_set(c, GPU_UTILIZATION_MEM, u.memory);
    }
    if (CALL(r, ecc_errors, NVML_ERRORS_CORRECTED, NVML_VOLATILE_ECC, &errors))
        gpu_set(c, GPU_ECC_CORRECTED, errors);
    if (CALL(r, ecc_errors, NVML_ERRORS_UNCORRECTED, NVML_VOLATILE_ECC, &errors))
        gpu_set(c, GPU_ECC_UNCORRECTED, errors);
    if (CALL(r, remapped_rows, &corrected, &uncorrected, &pending, &failed)) {
        gpu_set(c, GPU_REMAP_PENDING, pending != 0);
        gpu_set(c, GPU_REMAP_FAILED, failed != 0);
    }
    if (CALL(r, fields, 1, &recovery) && did(r, recovery.rc) &&
        (recovery.type == NVML_VALUE_UNSIGNED_INT ||
         recovery.type == NVML_VALUE_SIGNED_INT))
        gpu_set(c, GPU_RECOVERY, recovery.value.u);
    if (CALL(r, mig_mode, &mode, &next)) {
        gpu_set(c, GPU_MIG_MODE, mode);
        gpu_set(c, GPU_MIG_PENDING, next);
    }
}

int nvml_read_card(const struct nvml_calls *call, void *device, struct arena *a,
                   struct gpu_card *card)
{
    struct reader r = {.call = call, .device = device, .card = card};
    read_identity(&r);
    read_memory(&r);
    read_health(&r);
    read_numbers(&r);
    if (may_call(&r))
        did(&r, nvml_read_processes(call, device, a, card));
    if (r.lost)
        gpu_set_state(card, GPU_LOST, "%s (%d)", nvml_strerror(r.lost), r.lost);
    gpu_derive_state(card);
    return r.gone;
}
