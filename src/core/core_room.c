/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "placement/placement.h"

/*
 * kube-scheduler retries a pod that an extender refused only after certain events: of
 * Pods, Nodes and storage. When something else makes room (a card is healthy again, an
 * Scv came back, a promise came to nothing), or when a pod left but kube-scheduler had
 * retried before we knew, it would wait five minutes. So when a change makes a node fit
 * for a request that some waiting pod has, the node is marked: one of its annotations is
 * changed, at most once a second. Only the holder of the lease does that.
 *
 * A cordoned node is marked like others: a pod that tolerates it may be the one that
 * waits, which is not known here, and uncordoning it is an event by itself.
 */

enum {
    RETRY_MS = 2000,
};

struct room room_before(struct step *s, struct span node_name)
{
    struct core *core = s->core;
    struct room room = {0};
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    if (!core->lock.leader || !n || !node_name.n)
        return room;
    const struct ledger_node *node = ledger_node_find(core->ledger, node_name);
    room.node = arena_copy(&core->scratch, node_name);
    room.fits = arena_zalloc(&core->scratch, n * sizeof *room.fits);
    room.n = n;
    for (size_t i = 0; node && i < room.n; i++)
        room.fits[i] = placement_fit(node, &classes[i].request) == FIT_YES;
    return room;
}

static struct mark *mark_of(struct core *core, struct span node)
{
    for (size_t i = 0; i < core->n_marks; i++)
        if (span_eq(core->marks[i].node, node))
            return &core->marks[i];
    MEM_GROW(core->marks, core->marks_cap, core->n_marks + 1);
    core->marks[core->n_marks] =
        (struct mark){.node = {xmemdup0(node.p, node.n), node.n}};
    return &core->marks[core->n_marks++];
}

void room_after(struct step *s, const struct room *before)
{
    struct core *core = s->core;
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    const struct ledger_node *node =
        before->n ? ledger_node_find(core->ledger, before->node) : NULL;
    for (size_t i = 0; node && i < before->n && i < n; i++) {
        if (before->fits[i] || placement_fit(node, &classes[i].request) != FIT_YES)
            continue;
        mark_of(core, before->node)->due = true;
        return;
    }
}

static void send_mark(struct step *s, struct mark *mark)
{
    cleanup_buf struct buf value = {0};
    clock_format_us(&value, s->now.wall_ns / 1000);
    mark->due = false;
    mark->call = next_id(s->core);
    mark->not_before_ms = s->now.mono_ms + CORE_ROOM_MS;
    const char *node = out_str(s, mark->node), *text = out_str(s, buf_span(&value));
    struct core_output *o = out_add(s, CORE_CALL_MARK_ROOM);
    o->call = mark->call;
    o->node = node;
    o->value = text;
}

void room_tick(struct step *s)
{
    struct core *core = s->core;
    size_t kept = 0;
    for (size_t i = 0; i < core->n_marks; i++) {
        struct mark *mark = &core->marks[i];
        if (mark->due && !mark->call && mark->not_before_ms <= s->now.mono_ms)
            send_mark(s, mark);
        if (mark->due || mark->call || mark->not_before_ms > s->now.mono_ms)
            core->marks[kept++] = *mark;
        else
            free((char *)mark->node.p);
    }
    core->n_marks = kept;
}

bool room_answered(struct step *s)
{
    const struct core_input *in = s->in;
    for (size_t i = 0; i < s->core->n_marks; i++) {
        struct mark *mark = &s->core->marks[i];
        if (mark->call != in->call)
            continue;
        mark->call = 0;
        enum err_code code = in->err ? in->err->code : ERR_NONE;
        if (code != ERR_NONE && code != ERR_NOT_FOUND) {
            mark->due = true;
            mark->not_before_ms = s->now.mono_ms + RETRY_MS;
            out_note(s, code, "could not tell kube-scheduler of room on node %.*s: %s",
                     SPAN_ARG(mark->node), in->err->msg);
        }
        return true;
    }
    return false;
}

int64_t room_due(const struct core *core)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < core->n_marks; i++) {
        const struct mark *mark = &core->marks[i];
        if (mark->due && !mark->call && mark->not_before_ms < due)
            due = mark->not_before_ms;
    }
    return due;
}
