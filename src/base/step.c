/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs, log lines and retries of the step machines: core, publisher, allocation. */
#include "base/step.h"
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { LOG_AGAIN_MS = 60 * 1000 };

struct step_time step_now(void)
{
    return (struct step_time){clock_mono_ms(), clock_wall_ns()};
}

void step_outputs_reset(struct step_outputs *out)
{
    out->n = out->n_lines = 0;
    arena_reset(&out->arena);
}

void step_outputs_fini(struct step_outputs *out)
{
    free(out->items);
    free(out->lines);
    arena_fini(&out->arena);
    *out = (struct step_outputs){0};
}

void *step_add(struct step_outputs *out, size_t size)
{
    out->size = size;
    if (out->n == out->cap)
        mem_grow(&out->items, &out->cap, out->n + 1, size);
    return memset((char *)out->items + out->n++ * size, 0, size);
}

const char *step_text(struct step_outputs *out, struct span text)
{
    return arena_copy(&out->arena, text).p;
}

const char *step_printf(struct step_outputs *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(&out->arena, fmt, ap);
    va_end(ap);
    return text;
}

void step_log(struct step_outputs *out, enum log_level level, const char *subject,
              enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(&out->arena, fmt, ap);
    va_end(ap);
    MEM_GROW(out->lines, out->cap_lines, out->n_lines + 1);
    out->lines[out->n_lines++] = (struct step_line){level, subject, text, code};
}

void step_write_logs(const struct step_outputs *out)
{
    ARRAY_EACH_ITEM(const struct step_line, l, out->lines, out->n_lines)
    {
        if (l->code == ERR_NONE)
            LOG_AT(l->level, l->subject, l->text);
        else
            LOG_AT(l->level, l->subject, l->text, LOG_S("code", err_code_name(l->code)));
    }
}

int64_t step_backoff(struct rng *rng, unsigned failures, int64_t first_ms, int64_t max_ms,
                     int64_t retry_after_ms)
{
    int64_t most = first_ms;
    for (unsigned i = 1; i < failures && most < max_ms; i++)
        most *= 2;
    if (most > max_ms)
        most = max_ms;
    int64_t backoff = most / 2 + (int64_t)rng_below(rng, (uint64_t)most / 2 + 1);
    return retry_after_ms > backoff ? retry_after_ms : backoff;
}

bool step_failed(struct step_failure *f, int64_t now_ms, const struct err *err)
{
    bool log =
        !f->failures || f->err.code != err->code || now_ms - f->logged_ms >= LOG_AGAIN_MS;
    if (!f->failures++)
        f->since_ms = now_ms;
    if (log)
        f->logged_ms = now_ms;
    f->err = *err;
    return log;
}

bool step_succeeded(struct step_failure *f)
{
    bool had = f->failures > 0;
    *f = (struct step_failure){0};
    return had;
}
