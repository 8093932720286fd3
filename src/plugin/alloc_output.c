/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdlib.h>

#include "base/mem.h"

const char *alloc_rejection_name(enum alloc_rejection r)
{
    static const char *const names[REJECTIONS] = {
        [REJECTED_NOT_SYNCED] = "not-synced",
        [REJECTED_NO_PENDING_POD] = "no-pending-pod",
        [REJECTED_AMBIGUOUS] = "ambiguous",
        [REJECTED_UNKNOWN_POD] = "unknown-pod",
        [REJECTED_NO_PROMISE] = "no-promise",
        [REJECTED_INVALID_REQUEST] = "invalid-request",
        [REJECTED_WRONG_CARD] = "wrong-card",
        [REJECTED_IN_USE] = "in-use",
        [REJECTED_UNHEALTHY_CARD] = "unhealthy-card",
        [REJECTED_NO_CDI_NAME] = "no-cdi-name",
        [REJECTED_INSUFFICIENT_IDS] = "insufficient-ids",
        [REJECTED_UNKNOWN_ID] = "unknown-id",
        [REJECTED_NOT_PREFERRED] = "not-preferred",
        [REJECTED_ENV_OVERRIDE] = "env-override",
        [REJECTED_PODRESOURCES] = "podresources",
        [REJECTED_CANCELED] = "canceled",
    };
    return r < REJECTIONS ? names[r] : "unknown";
}

void alloc_outputs_reset(struct alloc_outputs *out)
{
    out->n = 0;
    arena_reset(&out->arena);
}

void alloc_outputs_fini(struct alloc_outputs *out)
{
    free(out->items);
    arena_fini(&out->arena);
    *out = (struct alloc_outputs){0};
}

struct alloc_output *alloc_output_add(struct alloc_outputs *out,
                                      enum alloc_output_type type)
{
    MEM_GROW(out->items, out->cap, out->n + 1);
    struct alloc_output *o = &out->items[out->n++];
    *o = (struct alloc_output){.type = type};
    return o;
}

const char *alloc_output_text(struct alloc_outputs *out, struct span s)
{
    return arena_copy(&out->arena, s).p;
}

static const char *vprint(struct alloc_outputs *out, const char *fmt, va_list ap)
{
    cleanup_buf struct buf b = {0};
    buf_vprintf(&b, fmt, ap);
    return arena_copy(&out->arena, buf_span(&b)).p;
}

const char *alloc_output_printf(struct alloc_outputs *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = vprint(out, fmt, ap);
    va_end(ap);
    return text;
}

void alloc_output_log(struct alloc_outputs *out, enum log_level level, const char *fmt,
                      ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = vprint(out, fmt, ap);
    va_end(ap);
    struct alloc_output *o = alloc_output_add(out, ALLOC_LOG);
    o->level = level;
    o->text = text;
}

struct alloc_output *alloc_output_of_pod(struct alloc_outputs *out,
                                         enum alloc_output_type type,
                                         const struct pod_allocation *pod)
{
    const char *ns = alloc_output_text(out, pod->ns),
               *name = alloc_output_text(out, pod->name);
    const char *uid = alloc_output_text(out, pod->uid);
    struct alloc_output *o = alloc_output_add(out, type);
    o->ns = ns;
    o->name = name;
    o->uid = uid;
    return o;
}

void alloc_output_event(struct alloc_outputs *out, const struct pod_allocation *pod,
                        const char *reason, const char *text)
{
    struct alloc_output *o = alloc_output_of_pod(out, ALLOC_EVENT, pod);
    o->reason = reason;
    o->text = text;
}

void alloc_output_patch(struct alloc_outputs *out, const struct pod_allocation *pod,
                        const char *annotations)
{
    const char *text = alloc_output_text(out, span_of(annotations));
    alloc_output_of_pod(out, ALLOC_PATCH, pod)->annotations = text;
}

void alloc_output_save(struct alloc *a, struct alloc_outputs *out)
{
    if (a->dirty)
        alloc_output_add(out, ALLOC_SAVE);
    a->dirty = false;
}

void alloc_output_id(struct buf *out, const struct device_id *unit)
{
    struct ids_id id = {unit->card->tag, unit->number};
    ids_write(out, &id);
}

const char *alloc_output_card(struct alloc_outputs *out, const struct plugin_card *card)
{
    return alloc_output_printf(out, "%s (index %d)", card->uuid, card->index);
}
