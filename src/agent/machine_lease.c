/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/machine_priv.h"

#include "base/clock.h"

static void add_spec(const struct machine *m, struct buf *out, int64_t wall_ms,
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
    struct machine *m = s->m;
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                    "\"metadata\":{\"name\":");
    buf_add_json(&body, span_of(m->node));
    buf_addc(&body, ',');
    machine_add_owners(m, &body, &(struct buf){0});
    buf_adds(&body, "},");
    add_spec(m, &body, s->now.wall_ms, true);
    buf_addc(&body, '}');
    machine_call(s, MACHINE_CREATE_LEASE, MACHINE_LANE_LEASE, &body);
}

static void renew(struct step *s)
{
    struct machine *m = s->m;
    cleanup_buf struct buf body = {0};
    buf_addc(&body, '{');
    if (m->node_uid.n && !m->lease_owned) {
        buf_adds(&body, "\"metadata\":{");
        machine_add_owners(m, &body, &m->lease_owners);
        buf_adds(&body, "},");
    }
    add_spec(m, &body, s->now.wall_ms, false);
    buf_addc(&body, '}');
    machine_call(s, MACHINE_PATCH_LEASE, MACHINE_LANE_LEASE, &body);
}

/* What the heartbeat vouches for. */
static bool may_vouch(struct step *s)
{
    static const enum machine_part parts[] = {MACHINE_PART_CARDS, MACHINE_PART_WATCH,
                                              MACHINE_PART_SCV};
    struct machine *m = s->m;
    struct err err;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (machine_check(m, s->now, parts[i], &err) == 0)
            continue;
        if (!m->withheld)
            machine_note(s, err.code, "the Lease is not renewed: %s", err.msg);
        m->withheld = true;
        return false;
    }
    if (m->withheld)
        machine_note(s, ERR_NONE, "the Lease is renewed again");
    m->withheld = false;
    return m->published;
}

static void failed(struct step *s, enum machine_output_type type)
{
    struct machine *m = s->m;
    enum err_code code = machine_code(s->in);
    if (type == MACHINE_PATCH_LEASE && code == ERR_NOT_FOUND) {
        m->lease_missing = true;
        m->lease_missing_ms = s->now.mono_ms;
    } else if (type == MACHINE_CREATE_LEASE && code == ERR_CONFLICT) {
        m->lease_missing = false; /* it is there */
    } else if (type == MACHINE_CREATE_LEASE && code == ERR_NOT_FOUND) {
        machine_failed(s, MACHINE_LANE_LEASE,
                       "there is no namespace %s for the Lease "
                       "(manifests/namespace.yaml): %s",
                       m->lease_namespace, s->in->err->msg);
    } else {
        machine_failed(s, MACHINE_LANE_LEASE, "the Lease %s/%s cannot be %s: %s",
                       m->lease_namespace, m->node,
                       type == MACHINE_CREATE_LEASE ? "created" : "renewed",
                       s->in->err->msg);
    }
}

void lease_answered(struct step *s)
{
    struct machine *m = s->m;
    struct lane *lane = &m->lanes[MACHINE_LANE_LEASE];
    if (machine_code(s->in) != ERR_NONE) {
        failed(s, lane->type);
        return;
    }
    machine_worked(s, MACHINE_LANE_LEASE, "the Lease");
    if (lane->type == MACHINE_CREATE_LEASE)
        machine_note(s, ERR_NONE, "the Lease %s/%s is there", m->lease_namespace,
                     m->node);
    m->lease_missing = false;
    m->renewed_ms = lane->sent_ms;
    lane->due_ms = lane->sent_ms + m->settings.renew_ms;
    if (s->in->object)
        m->lease_owned = machine_read_owners(m, s->in->object, &m->lease_owners);
}

void lease_time(struct step *s)
{
    struct machine *m = s->m;
    struct lane *lane = &m->lanes[MACHINE_LANE_LEASE];
    if (lane->busy || lane->due_ms > s->now.mono_ms || !may_vouch(s))
        return;
    if (!m->lease_missing)
        renew(s);
    else if (node_seen_since(s, m->lease_missing_ms))
        create(s);
}
