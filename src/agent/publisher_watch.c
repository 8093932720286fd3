/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include "base/mem.h"

/* The watch begins where a list ended, and again where the watch before ended. */
void publisher_watch_restart(struct step *s)
{
    struct publisher *m = s->m;
    m->watching = true;
    m->open = false;
    m->alive_ms = s->now.mono_ms;
    const char *version = arena_copy(&s->out->arena, buf_span(&m->watch_version)).p;
    MEM_GROW(s->out->items, s->out->cap, s->out->n + 1);
    s->out->items[s->out->n++] = (struct publisher_output){
        .type = PUBLISHER_WATCH, .run = ++m->run, .version = version};
}

void publisher_watch_on_alive(struct step *s)
{
    struct publisher *m = s->m;
    if (!m->watching || s->in->run != m->run)
        return;
    m->open = true;
    m->alive_ms = s->now.mono_ms;
    m->broken_since_ms = -1;
    m->watch_failures = 0;
    if (s->in->version.n) {
        buf_clear(&m->watch_version);
        buf_add_span(&m->watch_version, s->in->version);
    }
}

void publisher_watch_on_end(struct step *s)
{
    struct publisher *m = s->m;
    if (!m->watching || s->in->run != m->run)
        return;
    m->watching = m->open = false;
    if (publisher_error_code(s->in) == ERR_NONE) {
        m->watch_due_ms = s->now.mono_ms; /* its time was over */
        return;
    }
    if (m->broken_since_ms < 0)
        m->broken_since_ms = s->now.mono_ms;
    if (m->watch_failures == 1)
        publisher_log(s, publisher_error_code(s->in), "the watch of the Scv broke: %s",
                     s->in->err->msg);
    m->watch_due_ms =
        s->now.mono_ms + (m->watch_failures
                              ? publisher_backoff(m, m->watch_failures, s->in->retry_after_ms)
                              : 0);
    m->watch_failures++;
    /* What happened meanwhile is seen by a list; and where it broke is too old perhaps.
     */
    m->want_list = true;
    if (m->lanes[PUBLISHER_LANE_SCV].due_ms < m->watch_due_ms)
        m->lanes[PUBLISHER_LANE_SCV].due_ms = m->watch_due_ms;
}

void publisher_watch_tick(struct step *s)
{
    struct publisher *m = s->m;
    if (!m->watching && !m->want_list && m->seen.listed &&
        m->watch_due_ms <= s->now.mono_ms)
        publisher_watch_restart(s);
}
