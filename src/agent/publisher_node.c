/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

/*
 * The Node is read before an object is created, because an object of a deleted Node would
 * stay forever. Otherwise the UID of the last GET is enough: when a Node is recreated,
 * the garbage collector deletes the Scv and the Lease of the old one, and they are found
 * missing.
 */

static bool wanted(const struct publisher *p)
{
    return !p->node_uid.n ||
           (p->observed.listed && !p->observed.exists &&
            p->node_seen_ms < p->observed.missing_since_ms) ||
           (p->lease_missing && p->node_seen_ms < p->lease_missing_ms);
}

bool publisher_node_seen_since(struct step *s, int64_t since_ms)
{
    return s->p->node_uid.n && s->p->node_seen_ms >= since_ms;
}

void publisher_node_on_answer(struct step *s)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_NODE];
    enum err_code code = publisher_error_code(s->in);
    if (code == ERR_NONE && s->in->object && s->in->object->meta.uid.n) {
        struct span uid = s->in->object->meta.uid;
        bool recreated = p->node_uid.n && !span_eq(uid, buf_span(&p->node_uid));
        publisher_call_succeeded(s, PUBLISHER_LANE_NODE, "GET of the Node");
        if (recreated)
            publisher_log(s, "node", ERR_NONE, "Node %s was recreated", p->node);
        buf_clear(&p->node_uid);
        buf_add_span(&p->node_uid, uid);
        if (recreated)
            p->observed.owned = p->lease_owned = false;
        p->node_seen_ms = lane->sent_ms;
        p->node_unknown_ms = -1;
        return;
    }
    if (p->node_unknown_ms < 0)
        p->node_unknown_ms = s->now.mono_ms;
    if (code == ERR_NOT_FOUND) {
        buf_clear(&p->node_uid);
        publisher_call_failed(s, PUBLISHER_LANE_NODE,
                              "Node %s not found; its Scv and Lease are created after it",
                              p->node);
    } else {
        publisher_call_failed(s, PUBLISHER_LANE_NODE, "cannot get Node %s: %s", p->node,
                              s->in->err ? s->in->err->msg : "it has no UID");
    }
}

void publisher_node_tick(struct step *s)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_NODE];
    if (!lane->busy && lane->due_ms <= s->now.mono_ms && wanted(p))
        publisher_call(s, PUBLISHER_GET_NODE, PUBLISHER_LANE_NODE, NULL);
}
