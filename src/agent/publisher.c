/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
    RETRY_MS = 500,
    RETRY_MAX_MS = 15 * 1000,
    LOG_AGAIN_MS = 60 * 1000,
    IDLE_MS = 60 * 1000,
};

struct publisher *publisher_new(const struct publisher_settings *settings,
                                struct publisher_time now)
{
    struct publisher *p = xcalloc(1, sizeof *p);
    p->settings = *settings;
    p->node = xstrdup(settings->node);
    p->lease_namespace = xstrdup(settings->lease_namespace);
    p->cards = card_inventory_new(&settings->cards);
    rng_init(&p->rng, settings->seed);
    p->started_ms = p->sampled_ms = p->pods_ms = p->broken_since_ms = now.mono_ms;
    p->node_unknown_ms = p->pending_since_ms = p->renewed_ms = now.mono_ms;
    p->node_seen_ms = -1;
    p->lease_owned = true;
    p->want_list = true;
    p->owner_tried_ms = INT64_MIN / 2;
    return p;
}

void publisher_free(struct publisher *p)
{
    if (!p)
        return;
    struct buf *const bufs[] = {
        &p->observed.uid,   &p->observed.version, &p->observed.owners,
        &p->written.status, &p->written.message,  &p->want,
        &p->want_message,   &p->watch_version,    &p->node_uid,
        &p->lease_owners,   &p->usage_failure};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        buf_fini(bufs[i]);
    card_inventory_free(p->cards);
    usage_fini(&p->usage);
    usage_scv_written_fini(&p->written.usage);
    arena_fini(&p->pods_arena);
    arena_fini(&p->scratch);
    free(p->logged);
    free(p->node);
    free(p->lease_namespace);
    free(p);
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

void publisher_log(struct step *s, const char *subject, enum err_code code,
                   const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    const char *copy = arena_copy(&s->out->arena, buf_span(&text)).p;
    struct publisher_output *o = add(s, PUBLISHER_LOG);
    o->code = code;
    o->subject = subject;
    o->text = copy;
}

struct publisher_output *publisher_call(struct step *s, enum publisher_output_type type,
                                        enum publisher_lane i, const struct buf *body)
{
    struct lane *lane = &s->p->lanes[i];
    lane->busy = true;
    lane->call = ++s->p->last_id;
    lane->type = type;
    lane->sent_ms = s->now.mono_ms;
    const char *copy = body ? arena_copy(&s->out->arena, buf_span(body)).p : NULL;
    struct publisher_output *o = add(s, type);
    o->lane = i;
    o->call = lane->call;
    o->body = copy;
    return o;
}

const char *publisher_lane_name(enum publisher_lane lane)
{
    static const char *const names[PUBLISHER_LANES] = {"scv", "lease", "node"};
    return names[lane];
}

/* -- failed calls -- */

enum err_code publisher_error_code(const struct publisher_input *in)
{
    return in->err ? in->err->code : ERR_NONE;
}

int64_t publisher_backoff(struct publisher *p, unsigned failures, int64_t retry_after_ms)
{
    int64_t most = RETRY_MS << (failures < 8 ? failures : 8);
    if (most > RETRY_MAX_MS)
        most = RETRY_MAX_MS;
    int64_t backoff = most / 2 + (int64_t)rng_below(&p->rng, (uint64_t)most / 2 + 1);
    return retry_after_ms > backoff ? retry_after_ms : backoff;
}

void publisher_call_failed(struct step *s, enum publisher_lane i, const char *fmt, ...)
{
    struct lane *lane = &s->p->lanes[i];
    enum err_code code = publisher_error_code(s->in);
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    int64_t backoff = publisher_backoff(s->p, lane->failures++, s->in->retry_after_ms);
    lane->failed = lane->type;
    lane->due_ms = s->now.mono_ms + backoff;
    if (lane->last_error.code != code ||
        s->now.mono_ms - lane->logged_ms >= LOG_AGAIN_MS) {
        lane->logged_ms = s->now.mono_ms;
        publisher_log(s, publisher_lane_name(i), code, "%s; retrying in %lld ms", text.p,
                      (long long)backoff);
    }
    err_set(&lane->last_error, code, "%s", text.p);
}

void publisher_call_succeeded(struct step *s, enum publisher_lane i, const char *call)
{
    struct lane *lane = &s->p->lanes[i];
    if (lane->last_error.code != ERR_NONE)
        publisher_log(s, publisher_lane_name(i), ERR_NONE, "%s succeeded again", call);
    lane->last_error = (struct err){0};
    lane->failures = 0;
    lane->due_ms = s->now.mono_ms;
}

/* -- owners -- */

void publisher_add_owners(const struct publisher *p, struct buf *out,
                          const struct buf *others)
{
    buf_adds(out, "\"ownerReferences\":[");
    buf_add_span(out, buf_span(others));
    if (others->n)
        buf_addc(out, ',');
    buf_adds(out, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":");
    buf_add_json(out, span_of(p->node));
    buf_adds(out, ",\"uid\":");
    buf_add_json(out, buf_span(&p->node_uid));
    buf_adds(out, "}]");
}

bool publisher_read_owners(const struct publisher *p, const struct api_object *o,
                           struct buf *others)
{
    bool ours = false;
    buf_clear(others);
    for (size_t i = 0; i < o->n_owners; i++) {
        const struct owner *owner = &o->owners[i];
        /* A Node with our name and another UID no longer exists. */
        if (span_eq(owner->kind, SPAN("Node")) &&
            span_eq(owner->name, span_of(p->node))) {
            ours |= span_eq(owner->uid, buf_span(&p->node_uid));
            continue;
        }
        if (others->n)
            buf_addc(others, ',');
        buf_add_span(others, owner->raw);
    }
    return ours;
}

/* -- the step -- */

static void on_answer(struct step *s)
{
    for (int i = 0; i < PUBLISHER_LANES; i++) {
        struct lane *lane = &s->p->lanes[i];
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
    case PUBLISHER_USAGE:
        publisher_cards_on_usage(s);
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
        on_answer(s);
        break;
    }
}

void publisher_step(struct publisher *p, struct publisher_time now,
                    const struct publisher_input *in, struct publisher_outputs *outputs)
{
    struct step s = {p, now, in, outputs};
    arena_reset(&p->scratch);
    p->stepped_ms = now.mono_ms;
    take(&s);
    publisher_cards_tick(&s);
    publisher_watch_tick(&s);
    publisher_scv_tick(&s);
    publisher_lease_tick(&s);
    publisher_node_tick(&s);
}

/* A call that was due in the last step and was not made waits for another input. */
int64_t publisher_due(const struct publisher *p)
{
    int64_t due[PUBLISHER_LANES + 1], first = INT64_MAX;
    for (int i = 0; i < PUBLISHER_LANES; i++)
        due[i] = p->lanes[i].busy ? INT64_MAX : p->lanes[i].due_ms;
    due[PUBLISHER_LANES] = p->watching ? INT64_MAX : p->watch_due_ms;
    for (size_t i = 0; i < ARRAY_LEN(due); i++)
        if (due[i] > p->stepped_ms && due[i] < first)
            first = due[i];
    return first;
}

int64_t publisher_interval(const struct publisher *p)
{
    int64_t ms =
        p->observed.interval_ms > 0 ? p->observed.interval_ms : p->settings.interval_ms;
    if (ms < PUBLISHER_MIN_INTERVAL_MS)
        ms = PUBLISHER_MIN_INTERVAL_MS;
    if (ms > PUBLISHER_MAX_INTERVAL_MS)
        ms = PUBLISHER_MAX_INTERVAL_MS;
    if (p->sampled && !p->sampling_works && ms < PUBLISHER_MISSING_MS &&
        card_inventory_count(p->cards) == 0)
        ms = PUBLISHER_MISSING_MS;
    return ms;
}

const struct card_inventory *publisher_cards(const struct publisher *p)
{
    return p->cards;
}


const struct usage *publisher_usage(const struct publisher *p)
{
    return &p->usage;
}

bool publisher_any_lost(const struct publisher *p)
{
    return card_inventory_any_lost(p->cards) ||
           (p->sampled && card_inventory_count(p->cards) == 0);
}
