/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include "base/clock.h"
#include "base/mem.h"

static void add_spec(const struct publisher *p, struct buf *out, int64_t wall_ms,
                     bool acquire)
{
    cleanup_buf struct buf time = {0};
    clock_format_us(&time, wall_ms * 1000);
    buf_adds(out, "\"spec\":{\"holderIdentity\":");
    buf_add_json(out, span_of(p->node));
    buf_adds(out, ",\"leaseDurationSeconds\":");
    buf_add_i64(out, (p->settings.grace_ms + 999) / 1000);
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
    struct publisher *p = s->p;
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                    "\"metadata\":{\"name\":");
    buf_add_json(&body, span_of(p->node));
    buf_addc(&body, ',');
    publisher_add_owners(p, &body, &(struct buf){0});
    buf_adds(&body, "},");
    add_spec(p, &body, s->now.wall_ms, true);
    buf_addc(&body, '}');
    publisher_call(s, PUBLISHER_CREATE_LEASE, PUBLISHER_LANE_LEASE, &body);
}

static void renew(struct step *s)
{
    struct publisher *p = s->p;
    cleanup_buf struct buf body = {0};
    buf_addc(&body, '{');
    if (p->node_uid.n && !p->lease_owned) {
        buf_adds(&body, "\"metadata\":{");
        publisher_add_owners(p, &body, &p->lease_owners);
        buf_adds(&body, "},");
    }
    add_spec(p, &body, s->now.wall_ms, false);
    buf_addc(&body, '}');
    publisher_call(s, PUBLISHER_PATCH_LEASE, PUBLISHER_LANE_LEASE, &body);
}

/* Whether everything that the heartbeat vouches for works. */
static bool may_vouch(struct step *s)
{
    static const enum publisher_check checks[] = {
        PUBLISHER_CHECK_CARDS, PUBLISHER_CHECK_WATCH, PUBLISHER_CHECK_SCV};
    struct publisher *p = s->p;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        if (publisher_check(p, s->now, checks[i], &err) == 0)
            continue;
        if (!p->withheld)
            publisher_log(s, "lease", err.code, "heartbeat withheld: %s", err.msg);
        p->withheld = true;
        return false;
    }
    if (p->withheld)
        publisher_log(s, "lease", ERR_NONE, "heartbeat resumed");
    p->withheld = false;
    return p->published;
}

static void failed(struct step *s, enum publisher_output_type type)
{
    struct publisher *p = s->p;
    enum err_code code = publisher_error_code(s->in);
    if (type == PUBLISHER_PATCH_LEASE && code == ERR_NOT_FOUND) {
        p->lease_missing = true;
        p->lease_missing_ms = s->now.mono_ms;
    } else if (type == PUBLISHER_CREATE_LEASE && code == ERR_CONFLICT) {
        p->lease_missing = false; /* another client created it */
    } else if (type == PUBLISHER_CREATE_LEASE && code == ERR_NOT_FOUND) {
        publisher_call_failed(s, PUBLISHER_LANE_LEASE,
                              "cannot create the Lease: namespace %s is missing "
                              "(manifests/namespace.yaml): %s",
                              p->lease_namespace, s->in->err->msg);
    } else {
        publisher_call_failed(s, PUBLISHER_LANE_LEASE, "cannot %s Lease %s/%s: %s",
                              type == PUBLISHER_CREATE_LEASE ? "create" : "renew",
                              p->lease_namespace, p->node, s->in->err->msg);
    }
}

void publisher_lease_on_answer(struct step *s)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_LEASE];
    if (publisher_error_code(s->in) != ERR_NONE) {
        failed(s, lane->type);
        return;
    }
    publisher_call_succeeded(s, PUBLISHER_LANE_LEASE, "renewal");
    if (lane->type == PUBLISHER_CREATE_LEASE)
        publisher_log(s, "lease", ERR_NONE, "created Lease %s/%s", p->lease_namespace,
                      p->node);
    p->lease_missing = false;
    p->renewed_ms = lane->sent_ms;
    lane->due_ms = lane->sent_ms + p->settings.renew_ms;
    if (s->in->object)
        p->lease_owned = publisher_read_owners(p, s->in->object, &p->lease_owners);
}

void publisher_lease_tick(struct step *s)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_LEASE];
    if (lane->busy || lane->due_ms > s->now.mono_ms || !may_vouch(s))
        return;
    if (!p->lease_missing)
        renew(s);
    else if (publisher_node_seen_since(s, p->lease_missing_ms))
        create(s);
}
