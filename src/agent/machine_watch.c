/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/machine_priv.h"

#include "base/mem.h"

enum {
    HEALTHY_MS = 30 * 1000, /* a watch that lasted this long resets the back-off */
    WATCH_APART_MS = 1000,  /* a server may end each watch at once */
};

/* The watch begins where a list ended, and again where the watch before ended. */
void watch_again(struct step *s)
{
    struct machine *m = s->m;
    m->watching = true;
    m->open = false;
    m->alive_ms = m->watch_ms = s->now.mono_ms;
    const char *version = arena_copy(&s->out->arena, buf_span(&m->watch_version)).p;
    MEM_GROW(s->out->items, s->out->cap, s->out->n + 1);
    s->out->items[s->out->n++] = (struct machine_output){
        .type = MACHINE_WATCH, .run = ++m->run, .version = version};
}

void watch_alive(struct step *s)
{
    struct machine *m = s->m;
    if (!m->watching || s->in->run != m->run)
        return;
    m->open = true;
    m->alive_ms = s->now.mono_ms;
    m->broken_since_ms = -1;
    if (s->in->version.n) {
        buf_clear(&m->watch_version);
        buf_add_span(&m->watch_version, s->in->version);
    }
}

void watch_ended(struct step *s)
{
    struct machine *m = s->m;
    if (!m->watching || s->in->run != m->run)
        return;
    m->watching = m->open = false;
    if (s->now.mono_ms - m->watch_ms >= HEALTHY_MS)
        m->watch_failures = 0;
    if (machine_code(s->in) == ERR_NONE) {
        m->watch_due_ms = m->watch_ms + WATCH_APART_MS;
        return;
    }
    if (m->broken_since_ms < 0)
        m->broken_since_ms = s->now.mono_ms;
    if (m->watch_failures == 1)
        machine_note(s, machine_code(s->in), "the watch of the Scv broke: %s",
                     s->in->err->msg);
    m->watch_due_ms =
        s->now.mono_ms + (m->watch_failures
                              ? machine_pause(m, m->watch_failures, s->in->retry_after_ms)
                              : 0);
    m->watch_failures++;
    /* What happened meanwhile is seen by a list; and where it broke is too old perhaps.
     */
    m->want_list = true;
    if (m->lanes[MACHINE_LANE_SCV].due_ms < m->watch_due_ms)
        m->lanes[MACHINE_LANE_SCV].due_ms = m->watch_due_ms;
}

void watch_time(struct step *s)
{
    struct machine *m = s->m;
    if (!m->watching && !m->want_list && m->seen.listed &&
        m->watch_due_ms <= s->now.mono_ms)
        watch_again(s);
}
