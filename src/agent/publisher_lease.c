/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include "base/clock.h"

static void add_spec(const struct publisher *m, struct buf *out, int64_t wall_ms,
                     bool acquire)
{
    cleanup_buf struct buf time = {0};
    clock_format_us(&time, wall_ms * 1000);
    buf_adds(out, "\"spec\":{\"holderIdentity\":");
    buf_add_json(out, span_of(m->node));
    buf_adds(out, ",\"leaseDurationSeconds\":");
    buf_add_i64(out, (m->settings.grace_ms + 999) / 1000);
    if (acquire) {
        buf_adds(out, ",\"acquireTime\":");
        buf_add_json(out, buf_span(&time));
    }
    buf_adds(out, ",\"renewTime\":");
    buf_add_json(out, buf_span(&time));
    buf_addc(out, '}');
}

static void create(struct step *s)
{
    struct publisher *m = s->m;
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                    "\"metadata\":{\"name\":");
    buf_add_json(&body, span_of(m->node));
    buf_addc(&body, ',');
    publisher_add_owners(m, &body, &(struct buf){0});
    buf_adds(&body, "},");
    add_spec(m, &body, s->now.wall_ms, true);
    buf_addc(&body, '}');
    publisher_call(s, PUBLISHER_CREATE_LEASE, PUBLISHER_LANE_LEASE, &body);
}

static void renew(struct step *s)
{
    struct publisher *m = s->m;
    cleanup_buf struct buf body = {0};
    buf_addc(&body, '{');
    if (m->node_uid.n && !m->lease_owned) {
        buf_adds(&body, "\"metadata\":{");
        publisher_add_owners(m, &body, &m->lease_owners);
        buf_adds(&body, "},");
    }
    add_spec(m, &body, s->now.wall_ms, false);
    buf_addc(&body, '}');
    publisher_call(s, PUBLISHER_PATCH_LEASE, PUBLISHER_LANE_LEASE, &body);
}

/* What the heartbeat vouches for. */
static bool may_vouch(struct step *s)
{
    static const enum publisher_check parts[] = {PUBLISHER_CHECK_CARDS, PUBLISHER_CHECK_WATCH,
                                              PUBLISHER_CHECK_SCV};
    struct publisher *m = s->m;
    struct err err;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (publisher_check(m, s->now, parts[i], &err) == 0)
            continue;
        if (!m->withheld)
            publisher_log(s, err.code, "the Lease is not renewed: %s", err.msg);
        m->withheld = true;
        return false;
    }
    if (m->withheld)
        publisher_log(s, ERR_NONE, "the Lease is renewed again");
    m->withheld = false;
    return m->published;
}

static void failed(struct step *s, enum publisher_output_type type)
{
    struct publisher *m = s->m;
    enum err_code code = publisher_error_code(s->in);
    if (type == PUBLISHER_PATCH_LEASE && code == ERR_NOT_FOUND) {
        m->lease_missing = true;
        m->lease_missing_ms = s->now.mono_ms;
    } else if (type == PUBLISHER_CREATE_LEASE && code == ERR_CONFLICT) {
        m->lease_missing = false; /* it is there */
    } else if (type == PUBLISHER_CREATE_LEASE && code == ERR_NOT_FOUND) {
        publisher_call_failed(s, PUBLISHER_LANE_LEASE,
                       "there is no namespace %s for the Lease "
                       "(manifests/namespace.yaml): %s",
                       m->lease_namespace, s->in->err->msg);
    } else {
        publisher_call_failed(s, PUBLISHER_LANE_LEASE, "the Lease %s/%s cannot be %s: %s",
                       m->lease_namespace, m->node,
                       type == PUBLISHER_CREATE_LEASE ? "created" : "renewed",
                       s->in->err->msg);
    }
}

void publisher_lease_on_answer(struct step *s)
{
    struct publisher *m = s->m;
    struct lane *lane = &m->lanes[PUBLISHER_LANE_LEASE];
    if (publisher_error_code(s->in) != ERR_NONE) {
        failed(s, lane->type);
        return;
    }
    publisher_call_succeeded(s, PUBLISHER_LANE_LEASE, "the Lease");
    if (lane->type == PUBLISHER_CREATE_LEASE)
        publisher_log(s, ERR_NONE, "the Lease %s/%s is there", m->lease_namespace,
                     m->node);
    m->lease_missing = false;
    m->renewed_ms = lane->sent_ms;
    lane->due_ms = lane->sent_ms + m->settings.renew_ms;
    if (s->in->object)
        m->lease_owned = publisher_read_owners(m, s->in->object, &m->lease_owners);
}

void publisher_lease_tick(struct step *s)
{
    struct publisher *m = s->m;
    struct lane *lane = &m->lanes[PUBLISHER_LANE_LEASE];
    if (lane->busy || lane->due_ms > s->now.mono_ms || !may_vouch(s))
        return;
    if (!m->lease_missing)
        renew(s);
    else if (publisher_node_seen_since(s, m->lease_missing_ms))
        create(s);
}
