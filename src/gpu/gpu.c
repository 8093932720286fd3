/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources share: names, plausibility and state of a card. */
#include "gpu/gpu_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

static const char *const metric_names[] = {
#define NAME(id, word) word,
    GPU_METRICS(NAME)
#undef NAME
};
_Static_assert(GPU_N_METRICS <= 32, "bits of struct gpu_card.known");

const char *gpu_metric_name(enum gpu_metric m)
{
    return metric_names[m];
}

const char *gpu_state_name(enum gpu_state s)
{
    static const char *const names[] = {"ok",    "warning",    "not-ready", "ecc",
                                        "reset", "unreadable", "mig",       "lost"};
    return names[s];
}

struct gpu *gpu_open(const char *source, int64_t unified_bytes, struct err *err)
{
    struct span s = span_of(source);
    if (span_eq(s, SPAN("nvml")))
        return gpu_nvml_new(NULL, unified_bytes);
    if (span_starts(s, SPAN("nvml:")) && s.n > 5)
        return gpu_nvml_new(source + 5, unified_bytes);
    if (span_starts(s, SPAN("file:")) && s.n > 5)
        return gpu_file_new(source + 5);
    err_set(err, ERR_INVALID,
            "--gpu-source: \"%s\" is not one of nvml, nvml:LIBRARY, nvml:DIR, file:PATH",
            source);
    return NULL;
}

void gpu_free(struct gpu *g)
{
    if (g)
        g->ops->free(g);
}

static void sample_clear(struct gpu_sample *s)
{
    arena_reset(&s->arena);
    *s = (struct gpu_sample){.arena = s->arena};
}

int gpu_sample(struct gpu *g, struct gpu_sample *s, struct err *err)
{
    sample_clear(s);
    int rc = g->ops->sample(g, s, err);
    if (rc)
        sample_clear(s);
    return rc;
}

int gpu_wait(struct gpu *g, int timeout_ms, struct gpu_event *event, struct err *err)
{
    *event = (struct gpu_event){.index = -1};
    return g->ops->wait(g, timeout_ms, event, err);
}

void gpu_reopen(struct gpu *g)
{
    if (g->ops->reopen)
        g->ops->reopen(g);
}

void gpu_sample_fini(struct gpu_sample *s)
{
    arena_fini(&s->arena);
    *s = (struct gpu_sample){0};
}

void gpu_set(struct gpu_card *c, enum gpu_metric m, uint64_t value)
{
    if (value > UINT64_C(1) << 60)
        return;
    c->value[m] = (int64_t)value;
    c->known |= UINT32_C(1) << m;
}

void gpu_set_text(char *field, size_t size, struct span text)
{
    cleanup_buf struct buf shown = {0};
    buf_add_printable(&shown, span_trim(text));
    struct span s = span_trim(span_clip(buf_span(&shown), size - 1));
    snprintf(field, size, "%.*s", SPAN_ARG(s));
}

void gpu_set_uuid(char *field, size_t size, struct span text)
{
    *field = '\0';
    if (text.n < size && span_has_only(text, "-"))
        gpu_set_text(field, size, text);
}

void gpu_set_state(struct gpu_card *c, enum gpu_state state, const char *fmt, ...)
{
    if (state <= c->state)
        return;
    va_list ap;
    va_start(ap, fmt);
    c->state = state;
    vsnprintf(c->why, sizeof c->why, fmt, ap);
    va_end(ap);
}

void gpu_set_memory(struct gpu_card *c, const struct gpu_memory *m)
{
    uint64_t most = UINT64_C(1) << 60, used = m->used;
    if (m->total == 0 || m->total > most || m->free > m->total || used > m->total ||
        (m->has_reserved && m->reserved > m->total)) {
        gpu_set_state(c, GPU_UNREADABLE,
                      "implausible memory values: %" PRIu64 " bytes total, %" PRIu64
                      " free, %" PRIu64 " used",
                      m->total, m->free, used);
        return;
    }
    gpu_set(c, GPU_MEM_TOTAL, m->total);
    gpu_set(c, GPU_MEM_FREE, m->free);
    if (!m->has_reserved)
        return;
    gpu_set(c, GPU_MEM_RESERVED, m->reserved);
    /* The sum exceeds the total only if `used` includes the reserve. */
    if (m->free + m->reserved + used > m->total && m->free + used <= m->total &&
        used >= m->reserved)
        used -= m->reserved;
    gpu_set(c, GPU_MEM_USED, used);
}

void gpu_derive_state(struct gpu_card *c)
{
    static const char *const actions[] = {
        "no action", "a reset of the card", "a reboot of the node",
        "draining of connected devices and a reset", "draining and a reset"};
    int64_t action = gpu_value(c, GPU_RECOVERY, 0);
    if (gpu_value(c, GPU_MIG_MODE, 0) == 1)
        gpu_set_state(c, GPU_MIG, "the card is in MIG mode");
    if (!gpu_knows(c, GPU_MEM_TOTAL))
        gpu_set_state(c, GPU_UNREADABLE, "memory size is unknown");
    if (action > 0 && action < (int64_t)ARRAY_LEN(actions))
        gpu_set_state(c, GPU_RESET, "the driver asks for %s", actions[action]);
    else if (action)
        gpu_set_state(c, GPU_RESET, "the driver asks for action %" PRId64, action);
    if (gpu_value(c, GPU_REMAP_FAILED, 0))
        gpu_set_state(c, GPU_ECC, "row remapping failed");
    if (gpu_value(c, GPU_PAGES_PENDING, 0))
        gpu_set_state(c, GPU_ECC,
                      "page retirement is pending until the driver is reloaded");
    /* NVML serves such cards, and CUDA does not: it answers errors 46 and 802. */
    const int64_t mode = gpu_value(c, GPU_COMPUTE_MODE, 0);
    const int64_t fabric = gpu_value(c, GPU_FABRIC_STATE, 0);
    if (mode == 2)
        gpu_set_state(c, GPU_NOT_READY,
                      "compute mode PROHIBITED: no program can use the card");
    if (fabric == 1 || fabric == 2)
        gpu_set_state(c, GPU_NOT_READY,
                      "its registration with the NVLink fabric %s: CUDA cannot start. "
                      "Does the fabric manager run?",
                      fabric == 1 ? "has not started" : "is in progress");
    if (fabric == 3 && gpu_value(c, GPU_FABRIC_STATUS, 0))
        gpu_set_state(c, GPU_NOT_READY,
                      "its registration with the NVLink fabric failed (%" PRId64 ")",
                      c->value[GPU_FABRIC_STATUS]);
    const bool pending = gpu_value(c, GPU_REMAP_PENDING, 0);
    const bool exclusive = mode == 1 || mode == 3;
    if (pending || exclusive)
        gpu_set_state(c, GPU_WARN, "%s%s%s",
                      pending ? "row remapping is pending until the card is reset" : "",
                      pending && exclusive ? "; " : "",
                      exclusive ? "compute mode EXCLUSIVE_PROCESS: one process at a time "
                                  "can use the card, unless MPS shares it"
                                : "");
}

static int by_pid(const void *a, const void *b)
{
    const struct gpu_process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

void gpu_set_processes(struct gpu_card *c, struct gpu_process *list, size_t n,
                       struct arena *a)
{
    c->n_processes = n;
    c->processes = NULL;
    if (!n)
        return;
    qsort(list, n, sizeof *list, by_pid);
    c->processes = memcpy(arena_alloc(a, n * sizeof *list), list, n * sizeof *list);
}

static int by_index(const void *a, const void *b)
{
    const struct gpu_card *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

void gpu_sample_settle(struct gpu_sample *s)
{
    if (s->n_cards)
        qsort(s->cards, s->n_cards, sizeof *s->cards, by_index);
    for (size_t i = 0; i < s->n_cards; i++)
        for (size_t k = 0; k < i && *s->cards[i].uuid; k++) {
            if (strcmp(s->cards[i].uuid, s->cards[k].uuid) != 0)
                continue;
            gpu_set_state(&s->cards[i], GPU_UNREADABLE, "has the UUID of card %d, %s",
                          s->cards[k].index, s->cards[i].uuid);
            s->cards[i].uuid[0] = '\0';
        }
    ARRAY_EACH_ITEM(struct gpu_card, c, s->cards, s->n_cards)
    {
        bool found = !*c->parent_uuid;
        for (size_t k = 0; k < s->n_cards && !found; k++)
            found =
                s->cards[k].state == GPU_MIG && !strcmp(s->cards[k].uuid, c->parent_uuid);
        if (!found)
            gpu_set_state(c, GPU_LOST, "no card in MIG mode has its parent's UUID, %s",
                          c->parent_uuid);
    }
}
