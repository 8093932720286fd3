/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources share: names, plausibility and state of a card. */
#include "gpu/gpu_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "base/utf8.h"

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
    static const char *const names[] = {"ok",         "ecc", "reset",
                                        "unreadable", "mig", "lost"};
    return names[s];
}

bool gpu_xid_is_application_error(int64_t xid)
{
    static const int64_t list[] = {13, 31, 43, 45, 68, 109};
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (list[i] == xid)
            return true;
    return false;
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
    size_t n = 0, len;
    text = span_trim(text);
    for (size_t i = 0; i < text.n; i += len) {
        const unsigned char *p = (const unsigned char *)text.p + i;
        len = utf8_len(p, text.n - i);
        bool bad = !len || *p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0);
        if (!len)
            len = 1;
        if (n + (bad ? 1 : len) >= size)
            break;
        if (bad)
            field[n++] = '?';
        else
            for (size_t k = 0; k < len; k++)
                field[n++] = (char)p[k];
    }
    while (n && field[n - 1] == ' ') /* the text was truncated there */
        n--;
    field[n] = '\0';
}

static bool is_uuid_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '-';
}

void gpu_set_uuid(char *field, size_t size, struct span text)
{
    *field = '\0';
    if (text.n >= size)
        return;
    for (size_t i = 0; i < text.n; i++)
        if (!is_uuid_char(text.p[i]))
            return;
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
