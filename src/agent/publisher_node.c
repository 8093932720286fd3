/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

/*
 * The Node is looked at when something has to be created, because what is made for a Node
 * that is gone stays behind for ever. Otherwise its UID is known from the look before: a
 * Node that was made anew takes the Scv and the Lease with it, by the garbage collector,
 * and they are missed then.
 */

static bool wanted(const struct publisher *m)
{
    return !m->node_uid.n ||
           (m->seen.listed && !m->seen.exists &&
            m->node_seen_ms < m->seen.missing_since_ms) ||
           (m->lease_missing && m->node_seen_ms < m->lease_missing_ms);
}

bool publisher_node_seen_since(struct step *s, int64_t since_ms)
{
    return s->m->node_uid.n && s->m->node_seen_ms >= since_ms;
}

void publisher_node_on_answer(struct step *s)
{
    struct publisher *m = s->m;
    struct lane *lane = &m->lanes[PUBLISHER_LANE_NODE];
    enum err_code code = publisher_error_code(s->in);
    if (code == ERR_NONE && s->in->object && s->in->object->meta.uid.n) {
        struct span uid = s->in->object->meta.uid;
        bool other = m->node_uid.n && !span_eq(uid, buf_span(&m->node_uid));
        publisher_call_succeeded(s, PUBLISHER_LANE_NODE, "the look at the Node");
        if (other)
            publisher_log(s, ERR_NONE, "the Node was made anew");
        buf_clear(&m->node_uid);
        buf_add_span(&m->node_uid, uid);
        if (other)
            m->seen.owned = m->lease_owned = false;
        m->node_seen_ms = lane->sent_ms;
        m->node_unknown_ms = -1;
        return;
    }
    if (m->node_unknown_ms < 0)
        m->node_unknown_ms = s->now.mono_ms;
    if (code == ERR_NOT_FOUND) {
        buf_clear(&m->node_uid);
        publisher_call_failed(s, PUBLISHER_LANE_NODE,
                       "there is no Node %s; its Scv and Lease are not made before "
                       "there is",
                       m->node);
    } else {
        publisher_call_failed(s, PUBLISHER_LANE_NODE, "the Node cannot be looked at: %s",
                       s->in->err ? s->in->err->msg : "it has no UID");
    }
}

void publisher_node_tick(struct step *s)
{
    struct publisher *m = s->m;
    struct lane *lane = &m->lanes[PUBLISHER_LANE_NODE];
    if (!lane->busy && lane->due_ms <= s->now.mono_ms && wanted(m))
        publisher_call(s, PUBLISHER_GET_NODE, PUBLISHER_LANE_NODE, NULL);
}
