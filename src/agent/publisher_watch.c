/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include "base/mem.h"

enum {
    /* A watch that lasted this long resets the back-off, and so does an event. */
    HEALTHY_MS = 30 * 1000,
    WATCH_APART_MS = 1000, /* a server may end each watch at once */
};

/* A watch starts at the resourceVersion of a list, or where the previous watch ended. */
void publisher_watch_restart(struct step *s)
{
    struct publisher *p = s->p;
    p->watching = true;
    p->open = false;
    p->alive_ms = p->watch_ms = s->now.mono_ms;
    const char *version = arena_copy(&s->out->arena, buf_span(&p->watch_version)).p;
    MEM_GROW(s->out->items, s->out->cap, s->out->n + 1);
    s->out->items[s->out->n++] = (struct publisher_output){
        .type = PUBLISHER_WATCH, .run = ++p->run, .version = version};
}

void publisher_watch_on_alive(struct step *s)
{
    struct publisher *p = s->p;
    if (!p->watching || s->in->run != p->run)
        return;
    p->open = true;
    p->alive_ms = s->now.mono_ms;
    p->broken_since_ms = -1;
    if (s->in->version.n) {
        buf_clear(&p->watch_version);
        buf_add_span(&p->watch_version, s->in->version);
    }
}

void publisher_watch_on_end(struct step *s)
{
    struct publisher *p = s->p;
    if (!p->watching || s->in->run != p->run)
        return;
    p->watching = p->open = false;
    if (s->now.mono_ms - p->watch_ms >= HEALTHY_MS)
        p->watch_failures = 0;
    if (publisher_error_code(s->in) == ERR_NONE) {
        p->watch_due_ms = p->watch_ms + WATCH_APART_MS; /* the requested timeout */
        return;
    }
    if (p->broken_since_ms < 0)
        p->broken_since_ms = s->now.mono_ms;
    if (p->watch_failures == 1)
        publisher_log(s, "scv", publisher_error_code(s->in),
                      "watch failed: %s; listing again", s->in->err->msg);
    p->watch_due_ms =
        s->now.mono_ms + (p->watch_failures ? publisher_backoff(p, p->watch_failures,
                                                                s->in->retry_after_ms)
                                            : 0);
    p->watch_failures++;
    /* A list shows the events missed since. The watch's version may be compacted. Writes
     * do not wait for the list: the health of the cards is in them. */
    p->want_list = true;
    p->list_due_ms = p->watch_due_ms;
}

void publisher_watch_tick(struct step *s)
{
    struct publisher *p = s->p;
    if (!p->watching && !p->want_list && p->observed.listed &&
        p->watch_due_ms <= s->now.mono_ms)
        publisher_watch_restart(s);
}
