/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

enum {
    /* The slow fields count as changed from so far on. */
    UTILIZATION_STEP = 5,
    TEMPERATURE_STEP = 3,
    OWNER_AGAIN_MS = 60 * 1000, /* where a reference to the Node does not stay */
    CONFLICTS = 3,              /* in a row, that are no trouble */
};

/* -- what was seen -- */

static uint64_t hash_of(const struct agent_object *o)
{
    uint64_t h = hash_bytes(1, o->status.p, o->status.n);
    return hash_bytes(h, o->message.p, o->message.n);
}

/* Resource versions are whole numbers that grow, wherever there is an etcd behind the API
 * server (and by rule since Kubernetes 1.35). Where they are not, nothing is older: that
 * costs a conflict at worst, and the list that follows it. */
static bool is_older(struct span a, const struct buf *b)
{
    int64_t va, vb;
    return span_i64(a, &va) && span_i64(buf_span(b), &vb) && va < vb;
}

static void set(struct buf *b, struct span text)
{
    buf_clear(b);
    buf_add_span(b, text);
}

static void take_interval(struct step *s, const struct agent_object *o)
{
    struct publisher *m = s->m;
    int64_t ms = o->has_interval && o->interval_ms > 0 ? o->interval_ms : 0;
    bool fits =
        ms == 0 || (ms >= PUBLISHER_MIN_INTERVAL_MS && ms <= PUBLISHER_MAX_INTERVAL_MS);
    if (!fits && m->clamped_ms != ms)
        publisher_log(
            s, ERR_INVALID,
            "spec.updateInterval: %lld is not within %d..%d; the nearest is used",
            (long long)ms, PUBLISHER_MIN_INTERVAL_MS, PUBLISHER_MAX_INTERVAL_MS);
    m->clamped_ms = fits ? 0 : ms;
    int64_t before = publisher_interval(m);
    m->seen.interval_ms = ms;
    if (publisher_interval(m) != before)
        publisher_log(s, ERR_NONE, "the cards are read every %lld ms",
                     (long long)publisher_interval(m));
}

static void see(struct step *s, const struct agent_object *o)
{
    struct seen *seen = &s->m->seen;
    take_interval(s, o);
    seen->exists = true;
    set(&seen->uid, o->meta.uid);
    set(&seen->version, o->meta.version);
    seen->shown = hash_of(o);
    seen->has_message = o->message.p != NULL;
    seen->owned = publisher_read_owners(s->m, o, &seen->owners);
}

static void see_none(struct step *s, int64_t since_ms)
{
    struct seen *seen = &s->m->seen;
    seen->exists = false;
    seen->interval_ms = 0;
    seen->missing_since_ms = since_ms;
}

void publisher_scv_on_object(struct step *s)
{
    struct publisher *m = s->m;
    const struct agent_object *o = s->in->object;
    if (!m->watching || s->in->run != m->run)
        return;
    m->open = true;
    m->alive_ms = s->now.mono_ms;
    m->broken_since_ms = -1;
    set(&m->watch_version, o->meta.version);
    if (is_older(o->meta.version, &m->seen.version))
        return; /* what an answer has said since is newer */
    if (!s->in->gone) {
        see(s, o);
        return;
    }
    if (m->seen.exists)
        publisher_log(s, ERR_NONE, "the Scv was deleted; it is made again");
    set(&m->seen.version, o->meta.version);
    see_none(s, s->now.mono_ms);
}

/* -- what should be there -- */

/* The status, with or without the slow fields and the time. */
static void render(struct publisher *m, struct buf *out, bool whole)
{
    struct scv scv = {.has_update_time = whole, .update_time = m->taken_wall_ms / 1000};
    card_inventory_report(m->cards, &m->scratch, &scv);
    for (size_t i = 0; i < scv.n_cards && !whole; i++)
        scv.cards[i].extra->has_utilization = scv.cards[i].extra->has_temperature = false;
    if (m->has_pods)
        container_devices_to_scv(&m->pods, &scv, &m->scratch);
    scv_write_status(out, &scv);
}

void publisher_scv_render(struct step *s)
{
    struct publisher *m = s->m;
    buf_clear(&m->want);
    buf_clear(&m->want_message);
    render(m, &m->want, false);
    card_inventory_message(m->cards, &m->want_message);
}

static void read_slow(const struct publisher *m, int32_t slow[GPU_MAX_CARDS][2])
{
    const char *why;
    bool healthy;
    memset(slow, -1, sizeof(int32_t[GPU_MAX_CARDS][2]));
    for (size_t i = 0; i < card_inventory_count(m->cards); i++) {
        const struct gpu_card *g = card_inventory_card(m->cards, i, &healthy, &why);
        slow[i][0] = (int32_t)gpu_value(g, GPU_UTILIZATION, -1);
        slow[i][1] = (int32_t)gpu_value(g, GPU_TEMPERATURE, -1);
    }
}

static bool slow_differs(const struct publisher *m)
{
    int32_t now[GPU_MAX_CARDS][2];
    read_slow(m, now);
    for (size_t i = 0; i < GPU_MAX_CARDS; i++)
        if (abs(now[i][0] - m->written.slow[i][0]) >= UTILIZATION_STEP ||
            abs(now[i][1] - m->written.slow[i][1]) >= TEMPERATURE_STEP)
            return true;
    return false;
}

static bool must_write(const struct publisher *m, int64_t now_ms)
{
    const struct written *w = &m->written;
    if (!m->sampled || !m->seen.listed)
        return false;
    if (!m->seen.exists || !w->any)
        return true;
    if (!span_eq(buf_span(&w->status), buf_span(&m->want)) ||
        !span_eq(buf_span(&w->message), buf_span(&m->want_message)))
        return true;
    int64_t age = now_ms - w->at_ms;
    if (m->node_uid.n && !m->seen.owned && now_ms - m->owner_tried_ms >= OWNER_AGAIN_MS)
        return true;
    if (w->shown_known && w->shown != m->seen.shown)
        return age >= publisher_interval(m); /* somebody else may be writing all the time */
    return age >= m->settings.refresh_ms && m->settings.refresh_ms > 0 && slow_differs(m);
}

static void remember(struct publisher *m, int64_t now_ms)
{
    struct written *w = &m->written;
    set(&w->status, buf_span(&m->want));
    set(&w->message, buf_span(&m->want_message));
    read_slow(m, w->slow);
    w->at_ms = now_ms;
    w->any = true;
    w->shown_known = false;
}

static void add_status(struct publisher *m, struct buf *out, bool patch)
{
    cleanup_buf struct buf status = {0};
    render(m, &status, true);
    buf_adds(out, "\"status\":");
    if (patch)
        agent_object_status_patch(out, buf_span(&status));
    else
        buf_add_span(out, buf_span(&status));
}

static void create(struct step *s)
{
    struct publisher *m = s->m;
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
                    "\"metadata\":{\"name\":");
    buf_add_json(&body, span_of(m->node));
    if (m->want_message.n) {
        buf_adds(&body, ",\"annotations\":{\"" KEY_MESSAGE "\":");
        buf_add_json(&body, buf_span(&m->want_message));
        buf_addc(&body, '}');
    }
    buf_addc(&body, ',');
    publisher_add_owners(m, &body, &(struct buf){0});
    buf_adds(&body, "},\"spec\":{\"updateInterval\":");
    buf_add_i64(&body, m->settings.interval_ms);
    buf_adds(&body, "},");
    add_status(m, &body, false);
    buf_addc(&body, '}');
    remember(m, s->now.mono_ms);
    publisher_call(s, PUBLISHER_CREATE, PUBLISHER_LANE_SCV, &body);
}

static void patch(struct step *s)
{
    struct publisher *m = s->m;
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"metadata\":{\"resourceVersion\":");
    buf_add_json(&body, buf_span(&m->seen.version));
    if (m->want_message.n || m->seen.has_message) {
        buf_adds(&body, ",\"annotations\":{\"" KEY_MESSAGE "\":");
        if (m->want_message.n)
            buf_add_json(&body, buf_span(&m->want_message));
        else
            buf_adds(&body, "null");
        buf_addc(&body, '}');
    }
    if (m->node_uid.n && !m->seen.owned) {
        buf_addc(&body, ',');
        publisher_add_owners(m, &body, &m->seen.owners);
        m->owner_tried_ms = s->now.mono_ms;
    }
    buf_adds(&body, "},");
    add_status(m, &body, true);
    buf_addc(&body, '}');
    remember(m, s->now.mono_ms);
    publisher_call(s, PUBLISHER_PATCH, PUBLISHER_LANE_SCV, &body);
}

/* -- answers -- */

static void listed(struct step *s)
{
    struct publisher *m = s->m;
    const struct agent_object *o = s->in->object;
    bool first = !m->seen.listed;
    if (m->lanes[PUBLISHER_LANE_SCV].failed == PUBLISHER_LIST)
        publisher_call_succeeded(s, PUBLISHER_LANE_SCV, "the list of Scvs");
    m->want_list = false;
    if (o && !is_older(o->meta.version, &m->seen.version))
        see(s, o);
    else if (!o)
        see_none(s, m->lanes[PUBLISHER_LANE_SCV].sent_ms);
    m->seen.listed = true;
    if (first && o)
        publisher_cards_adopt(s, &o->scv);
    if (!m->watching) {
        set(&m->watch_version, s->in->version);
        publisher_watch_restart(s);
    }
}

static void list_failed(struct step *s)
{
    if (publisher_error_code(s->in) == ERR_NOT_FOUND)
        publisher_call_failed(s, PUBLISHER_LANE_SCV,
                       "the kind scvs.core.run-linux.com is not installed in the "
                       "cluster (manifests/crd.yaml): %s",
                       s->in->err->msg);
    else
        publisher_call_failed(s, PUBLISHER_LANE_SCV, "the Scvs cannot be listed: %s",
                       s->in->err->msg);
}

static void wrote(struct step *s, enum publisher_output_type type)
{
    struct publisher *m = s->m;
    const struct agent_object *o = s->in->object;
    publisher_call_succeeded(s, PUBLISHER_LANE_SCV, "writing the Scv");
    m->waiting_since_ms = -1;
    m->published = true;
    if (type == PUBLISHER_CREATE)
        publisher_log(s, ERR_NONE, "the Scv %s is there", m->node);
    if (!o)
        return;
    m->written.shown = hash_of(o);
    m->written.shown_known = true;
    if (!is_older(o->meta.version, &m->seen.version))
        see(s, o);
}

static void write_failed(struct step *s, enum publisher_output_type type)
{
    struct publisher *m = s->m;
    struct lane *lane = &m->lanes[PUBLISHER_LANE_SCV];
    enum err_code code = publisher_error_code(s->in);
    bool moved = code == ERR_CONFLICT || (code == ERR_NOT_FOUND && type == PUBLISHER_PATCH);
    m->written.any = false; /* whatever became of it: once more */
    /* It is newer than we knew, or there already, or gone: read it and write again. */
    m->want_list |= moved || code == ERR_NOT_FOUND;
    if (moved && lane->failures < CONFLICTS) {
        lane->failed = type;
        lane->failures++;
        return;
    }
    publisher_call_failed(s, PUBLISHER_LANE_SCV, "the Scv cannot be %s: %s",
                   type == PUBLISHER_CREATE ? "created" : "written", s->in->err->msg);
}

void publisher_scv_on_answer(struct step *s)
{
    enum publisher_output_type type = s->m->lanes[PUBLISHER_LANE_SCV].type;
    bool well = publisher_error_code(s->in) == ERR_NONE;
    if (type == PUBLISHER_LIST && well)
        listed(s);
    else if (type == PUBLISHER_LIST)
        list_failed(s);
    else if (well)
        wrote(s, type);
    else
        write_failed(s, type);
}

/* -- time -- */

void publisher_scv_tick(struct step *s)
{
    struct publisher *m = s->m;
    struct lane *lane = &m->lanes[PUBLISHER_LANE_SCV];
    bool waits =
        !m->seen.listed || !m->sampled || lane->busy || must_write(m, s->now.mono_ms);
    if (!waits)
        m->waiting_since_ms = -1;
    else if (m->waiting_since_ms < 0)
        m->waiting_since_ms = s->now.mono_ms;
    if (lane->busy || lane->due_ms > s->now.mono_ms)
        return;
    if (m->want_list) {
        publisher_call(s, PUBLISHER_LIST, PUBLISHER_LANE_SCV, NULL);
        return;
    }
    if (!must_write(m, s->now.mono_ms))
        return;
    if (m->seen.exists)
        patch(s);
    else if (publisher_node_seen_since(s, m->seen.missing_since_ms))
        create(s);
}
