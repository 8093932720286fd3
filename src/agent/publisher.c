/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
    RETRY_MS = 500,
    RETRY_MAX_MS = 15 * 1000,
    NOTE_AGAIN_MS = 60 * 1000,
    IDLE_MS = 60 * 1000,
};

struct publisher *publisher_new(const struct publisher_settings *settings,
                            struct publisher_time now)
{
    struct publisher *m = xcalloc(1, sizeof *m);
    m->settings = *settings;
    m->node = xstrdup(settings->node);
    m->lease_namespace = xstrdup(settings->lease_namespace);
    m->cards = card_inventory_new(&settings->cards);
    rng_init(&m->rng, settings->seed);
    m->started_ms = m->sampled_ms = m->pods_ms = m->broken_since_ms = now.mono_ms;
    m->node_unknown_ms = m->waiting_since_ms = m->renewed_ms = now.mono_ms;
    m->node_seen_ms = -1;
    m->lease_owned = true;
    m->want_list = true;
    m->owner_tried_ms = INT64_MIN / 2;
    return m;
}

void publisher_free(struct publisher *m)
{
    if (!m)
        return;
    struct buf *const bufs[] = {&m->seen.uid,       &m->seen.version,    &m->seen.owners,
                                &m->written.status, &m->written.message, &m->want,
                                &m->want_message,   &m->watch_version,   &m->node_uid,
                                &m->lease_owners};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        buf_fini(bufs[i]);
    card_inventory_free(m->cards);
    arena_fini(&m->pods_arena);
    arena_fini(&m->scratch);
    free(m->told);
    free(m->node);
    free(m->lease_namespace);
    free(m);
}

/* -- outputs -- */

void publisher_outputs_fini(struct publisher_outputs *outputs)
{
    free(outputs->items);
    arena_fini(&outputs->arena);
    *outputs = (struct publisher_outputs){0};
}

static struct publisher_output *add(struct step *s, enum publisher_output_type type)
{
    struct publisher_outputs *out = s->out;
    MEM_GROW(out->items, out->cap, out->n + 1);
    struct publisher_output *o = &out->items[out->n++];
    *o = (struct publisher_output){.type = type};
    return o;
}

void publisher_log(struct step *s, enum err_code code, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    const char *copy = arena_copy(&s->out->arena, buf_span(&text)).p;
    struct publisher_output *o = add(s, PUBLISHER_LOG);
    o->code = code;
    o->text = copy;
}

struct publisher_output *publisher_call(struct step *s, enum publisher_output_type type,
                                    enum publisher_lane number, const struct buf *body)
{
    struct lane *lane = &s->m->lanes[number];
    lane->busy = true;
    lane->call = ++s->m->last_id;
    lane->type = type;
    lane->sent_ms = s->now.mono_ms;
    const char *copy = body ? arena_copy(&s->out->arena, buf_span(body)).p : NULL;
    struct publisher_output *o = add(s, type);
    o->lane = number;
    o->call = lane->call;
    o->body = copy;
    return o;
}

/* -- calls that fail -- */

enum err_code publisher_error_code(const struct publisher_input *in)
{
    return in->err ? in->err->code : ERR_NONE;
}

int64_t publisher_backoff(struct publisher *m, unsigned failures, int64_t retry_after_ms)
{
    int64_t most = RETRY_MS << (failures < 8 ? failures : 8);
    if (most > RETRY_MAX_MS)
        most = RETRY_MAX_MS;
    int64_t pause = most / 2 + (int64_t)rng_below(&m->rng, (uint64_t)most / 2 + 1);
    return retry_after_ms > pause ? retry_after_ms : pause;
}

void publisher_call_failed(struct step *s, enum publisher_lane number, const char *fmt, ...)
{
    struct lane *lane = &s->m->lanes[number];
    enum err_code code = publisher_error_code(s->in);
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    lane->failed = lane->type;
    lane->due_ms =
        s->now.mono_ms + publisher_backoff(s->m, lane->failures++, s->in->retry_after_ms);
    if (lane->trouble.code != code || s->now.mono_ms - lane->noted_ms >= NOTE_AGAIN_MS) {
        lane->noted_ms = s->now.mono_ms;
        publisher_log(s, code, "%s", text.p);
    }
    err_set(&lane->trouble, code, "%s", text.p);
}

void publisher_call_succeeded(struct step *s, enum publisher_lane number, const char *what)
{
    struct lane *lane = &s->m->lanes[number];
    if (lane->trouble.code != ERR_NONE)
        publisher_log(s, ERR_NONE, "%s works again", what);
    lane->trouble = (struct err){0};
    lane->failures = 0;
    lane->due_ms = s->now.mono_ms;
}

/* -- owners -- */

void publisher_add_owners(const struct publisher *m, struct buf *out,
                        const struct buf *others)
{
    buf_adds(out, "\"ownerReferences\":[");
    buf_add_span(out, buf_span(others));
    if (others->n)
        buf_addc(out, ',');
    buf_adds(out, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":");
    buf_add_json(out, span_of(m->node));
    buf_adds(out, ",\"uid\":");
    buf_add_json(out, buf_span(&m->node_uid));
    buf_adds(out, "}]");
}

bool publisher_read_owners(const struct publisher *m, const struct agent_object *o,
                         struct buf *others)
{
    bool ours = false;
    buf_clear(others);
    for (size_t i = 0; i < o->n_owners; i++) {
        const struct owner *owner = &o->owners[i];
        /* A Node of our name with another UID is one that is no more. */
        if (span_eq(owner->kind, SPAN("Node")) &&
            span_eq(owner->name, span_of(m->node))) {
            ours |= span_eq(owner->uid, buf_span(&m->node_uid));
            continue;
        }
        if (others->n)
            buf_addc(others, ',');
        buf_add_span(others, owner->raw);
    }
    return ours;
}

/* -- the step -- */

static void answered(struct step *s)
{
    for (int i = 0; i < PUBLISHER_LANES; i++) {
        struct lane *lane = &s->m->lanes[i];
        if (!lane->busy || lane->call != s->in->call)
            continue;
        lane->busy = false;
        if (i == PUBLISHER_LANE_SCV)
            publisher_scv_on_answer(s);
        else if (i == PUBLISHER_LANE_LEASE)
            publisher_lease_on_answer(s);
        else
            publisher_node_on_answer(s);
        return;
    }
}

static void take(struct step *s)
{
    switch (s->in->type) {
    case PUBLISHER_TICK:
        break;
    case PUBLISHER_SAMPLED:
        publisher_cards_on_sample(s);
        break;
    case PUBLISHER_EVENT:
        publisher_cards_on_event(s);
        break;
    case PUBLISHER_PODS:
        publisher_cards_on_pods(s);
        break;
    case PUBLISHER_OBJECT:
        publisher_scv_on_object(s);
        break;
    case PUBLISHER_WATCH_ALIVE:
        publisher_watch_on_alive(s);
        break;
    case PUBLISHER_WATCH_ENDED:
        publisher_watch_on_end(s);
        break;
    case PUBLISHER_ANSWER:
        answered(s);
        break;
    }
}

void publisher_step(struct publisher *m, struct publisher_time now,
                  const struct publisher_input *in, struct publisher_outputs *outputs)
{
    struct step s = {m, now, in, outputs};
    arena_reset(&m->scratch);
    m->stepped_ms = now.mono_ms;
    take(&s);
    publisher_cards_tick(&s);
    publisher_watch_tick(&s);
    publisher_scv_tick(&s);
    publisher_lease_tick(&s);
    publisher_node_tick(&s);
}

/* What was due in the last step and was not done waits for something else. */
int64_t publisher_due(const struct publisher *m)
{
    int64_t due[PUBLISHER_LANES + 1], first = INT64_MAX;
    for (int i = 0; i < PUBLISHER_LANES; i++)
        due[i] = m->lanes[i].busy ? INT64_MAX : m->lanes[i].due_ms;
    due[PUBLISHER_LANES] = m->watching ? INT64_MAX : m->watch_due_ms;
    for (size_t i = 0; i < ARRAY_LEN(due); i++)
        if (due[i] > m->stepped_ms && due[i] < first)
            first = due[i];
    return first;
}

int64_t publisher_interval(const struct publisher *m)
{
    int64_t ms = m->seen.interval_ms > 0 ? m->seen.interval_ms : m->settings.interval_ms;
    if (ms < PUBLISHER_MIN_INTERVAL_MS)
        ms = PUBLISHER_MIN_INTERVAL_MS;
    if (ms > PUBLISHER_MAX_INTERVAL_MS)
        ms = PUBLISHER_MAX_INTERVAL_MS;
    if (m->sampled && !m->sampling_works && ms < PUBLISHER_MISSING_MS &&
        card_inventory_count(m->cards) == 0)
        ms = PUBLISHER_MISSING_MS;
    return ms;
}

const struct card_inventory *publisher_cards(const struct publisher *m)
{
    return m->cards;
}

bool publisher_any_lost(const struct publisher *m)
{
    return card_inventory_any_lost(m->cards) || (m->sampled && card_inventory_count(m->cards) == 0);
}
