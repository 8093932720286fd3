/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

uint64_t core_next_id(struct core *core)
{
    return ++core->last_id;
}

struct core_output *output_add(struct step *s, enum core_output_type type)
{
    struct core_outputs *out = s->out;
    MEM_GROW(out->items, out->cap, out->n + 1);
    out->items[out->n] = (struct core_output){.type = type};
    return &out->items[out->n++];
}

const char *output_str(struct step *s, struct span text)
{
    return arena_copy(&s->out->arena, text).p;
}

static const char *output_text(struct step *s, const char *fmt, va_list ap)
{
    struct err err = {0};
    vsnprintf(err.msg, sizeof err.msg, fmt, ap);
    return output_str(s, span_of(err.msg));
}

const char *output_text_of(struct step *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = output_text(s, fmt, ap);
    va_end(ap);
    return text;
}

void core_set_last_error(struct buf *last_error, const struct err *err)
{
    buf_clear(last_error);
    if (err)
        buf_adds(last_error, err->msg);
}

void output_reply(struct step *s, uint64_t token, enum err_code code, const char *fmt,
                  ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = output_text(s, fmt, ap);
    va_end(ap);
    struct core_output *o = output_add(s, CORE_REPLY);
    o->token = token;
    o->bind = code == ERR_NONE ? CORE_BOUND
              : code == ERR_UNAVAILABLE && core_may_bind(s->core, s->now, NULL)
                  ? CORE_BIND_NOT_LEADER
                  : CORE_BIND_REJECTED;
    o->code = code;
    o->text = text;
}

void output_log(struct step *s, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = output_text(s, fmt, ap);
    va_end(ap);
    struct core_output *o = output_add(s, CORE_LOG);
    o->code = code;
    o->text = text;
}

int core_unavailable(struct err *err, const struct buf *last_error, const char *fmt, ...)
{
    char what[sizeof err->msg];
    va_list ap;
    if (!err)
        return -1;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(err, ERR_UNAVAILABLE, "%s%s%.*s", what, last_error->n ? ": " : "",
                   (int)last_error->n, last_error->n ? last_error->p : "");
}

void core_outputs_reset(struct core_outputs *outputs)
{
    outputs->n = 0;
    arena_reset(&outputs->arena);
}

void core_outputs_fini(struct core_outputs *outputs)
{
    free(outputs->items);
    arena_fini(&outputs->arena);
    *outputs = (struct core_outputs){0};
}

struct core_output *core_output_dup(const struct core_output *from)
{
    const size_t strings[] = {
        offsetof(struct core_output, version), offsetof(struct core_output, ns),
        offsetof(struct core_output, name),    offsetof(struct core_output, uid),
        offsetof(struct core_output, node),    offsetof(struct core_output, annotations),
        offsetof(struct core_output, body),    offsetof(struct core_output, value),
        offsetof(struct core_output, text),    offsetof(struct core_output, preemptor),
    };
    size_t bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
        const char *s = *(const char *const *)((const char *)from + strings[i]);
        bytes += s ? strlen(s) + 1 : 0;
    }
    struct core_output *copy = xmalloc(sizeof *copy + bytes);
    char *at = (char *)(copy + 1);
    *copy = *from;
    for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
        const char **s = (const char **)((char *)copy + strings[i]);
        if (!*s)
            continue;
        size_t n = strlen(*s) + 1;
        memcpy(at, *s, n);
        *s = at;
        at += n;
    }
    return copy;
}
