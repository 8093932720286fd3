/* SPDX-License-Identifier: Apache-2.0 */

/* --check: compares the ledger with annotations, objects and the extender, and names the pods
 * whose limit fails. */

#include "cli/check.h"

#include <inttypes.h>

#include "base/array.h"
#include "base/mem.h"
#include "base/opt.h"
#include "cli/show.h"
#include "domain/diagnosis.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "view/inspect.h"

struct check {
    struct buf *out;
    const struct cluster_state *cs;
    const struct ledger_node *node; /* NULL: the line names no node */
    size_t n;
    int64_t unit; /* of check_extender */
};

/* Appends a line; a note is not counted. */
__attribute__((format(printf, 3, 4))) static void add_line(struct check *c, bool is_note,
                                                           const char *fmt, ...)
{
    va_list ap;
    buf_adds(c->out, is_note ? "note: " : "");
    if (c->node)
        table_text(c->out, "node %.*s: ", SPAN_ARG(c->node->name));
    va_start(ap, fmt);
    table_vtext(c->out, fmt, ap);
    va_end(ap);
    buf_addc(c->out, '\n');
    c->n += !is_note;
}

#define differs(c, ...) add_line(c, false, __VA_ARGS__)
#define note(c, ...)    add_line(c, true, __VA_ARGS__)

static void differ(void *ctx, const struct disagreement *d)
{
    struct check *c = ctx;
    cleanup_buf struct buf text = {0};
    disagreement_write(&text, c->node, d);
    if (text.n)
        differs(c, "%s", text.p);
}

static bool names_card(const struct ledger_pod *pod, struct span uuid)
{
    ARRAY_EACH_ITEM(const struct ledger_share, s, pod->shares, pod->n_shares)
    {
        const struct card *card = ledger_share_card(pod->node, s);
        if (span_eq(card ? card->uuid : s->uuid, uuid))
            return true;
    }
    return false;
}

/* `held` is a container's allocation as the kubelet reports it. */
static void check_allocation(struct check *c, const struct scv_held *held)
{
    if (!held->units || scv_is_nvidia_resource(held->resource))
        return;
    const struct ledger_pod *pod = show_find_pod(c->node->pods, held->ns, held->pod);
    if (!pod)
        note(c,
             "container %.*s of pod %.*s/%.*s holds %" PRId64
             " %.*s, but no such pod is bound here (the pod may have just ended)",
             SPAN_ARG(held->container), SPAN_ARG(held->ns), SPAN_ARG(held->pod),
             held->units, SPAN_ARG(held->resource));
    for (size_t k = 0; pod && pod->n_shares && k < held->n_uuids; k++)
        if (held->uuids[k].n && !names_card(pod, held->uuids[k]))
            differs(c,
                    "container %.*s of pod %.*s/%.*s has card %.*s, which the pod's "
                    "annotations do not name",
                    SPAN_ARG(held->container), SHOW_POD(pod), SPAN_ARG(held->uuids[k]));
}

size_t check_cluster(struct buf *out, const struct cluster_state *cs, struct span node)
{
    const struct ledger *l = cluster_state_ledger(cs);
    struct check c = {.out = out, .cs = cs};
    cleanup_arena struct arena a = {0};
    const struct ledger_node **nodes;
    const struct cluster_state_pod **pods;
    size_t n = show_nodes(l, node, &a, &nodes),
           n_pods = cluster_state_pods(cs, &a, &pods);
    for (size_t i = 0; i < n; i++) {
        const struct ledger_node *on = c.node = nodes[i];
        const struct scv *scv = cluster_state_find(cs, CORE_SCVS, on->name);
        const struct cluster_state_node *object =
            cluster_state_find(cs, CORE_NODES, on->name);
        cleanup_buf struct buf why = {0}, heartbeat = {0};
        const struct ledger_pod **here;
        size_t n_here = view_sort_pods(on->pods, &a, &here);
        reason_add_unusable(&why, on);
        cluster_state_note_heartbeat(&heartbeat, cs, on);
        if (heartbeat.n)
            note(&c, "%s", heartbeat.p);
        if (why.n && on->state != NODE_NO_GPU && on->state != NODE_UNKNOWN)
            differs(&c, "%s", why.p);
        diagnosis_node(l, on, differ, &c);
        /* An autoscaler judges the next node of the group by the cards that it names. */
        if (object && object->named_invalid)
            differs(&c, KEY_CARDS " is not of the form 4x16384MiB, or label and "
                                  "annotation differ");
        if (object && object->named.n && on->source == SOURCE_SCV && on->n_cards &&
            !ledger_matches_template(&object->named, on))
            differs(&c,
                    KEY_CARDS " is %" PRIu32 "x%" PRId64 "MiB, but its Scv lists %" PRIu32
                              " cards, GPU%" PRId32 " with %" PRId64 " MiB",
                    object->named.n, object->named.mib, on->n_cards, on->cards[0].index,
                    on->cards[0].total_mib);
        for (size_t k = 0; k < n_here; k++)
            diagnosis_pod(l, here[k], differ, &c);
        for (size_t k = 0; scv && k < scv->n_held; k++)
            check_allocation(&c, &scv->held[k]);
    }
    c.node = NULL;
    for (size_t i = 0; i < n_pods; i++)
        if (pods[i]->reason.n && !pods[i]->finished &&
            (!node.n || span_eq(node, pods[i]->node)))
            differs(&c, "pod %.*s/%.*s: %.*s", SHOW_POD(pods[i]),
                    SPAN_ARG(pods[i]->reason));
    for (const char *const *error = cluster_state_errors(cs); !node.n && *error; error++)
        differs(&c, "%s", *error);
    return c.n;
}

/* -- the extender's view -- */

/* The item with that name, and with that namespace unless it is empty. */
static const json_t *find_by_name(const json_t *list, struct span ns, struct span name)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        if (span_eq(jpath_text(item, "name"), name) &&
            (!ns.n || span_eq(jpath_text(item, "namespace"), ns)))
            return item;
    }
    return NULL;
}

/* Compares an amount in MiB, or, with the Go extender, in units rounded down; *theirs is
 * the extender's amount in MiB. */
static bool same_amount(const struct check *c, const json_t *card, const char *mib_key,
                        const char *unit_key, int64_t mib, int64_t *theirs)
{
    const json_t *exact = json_object_get(card, mib_key);
    if (json_is_integer(exact)) {
        *theirs = json_integer_value(exact);
        return *theirs == mib;
    }
    *theirs = jpath_number(card, unit_key) * c->unit;
    return *theirs / c->unit == mib / c->unit;
}

static void compare_node(struct check *c, const json_t *theirs, struct arena *a)
{
    const struct ledger_pod **pods;
    size_t n = view_sort_pods(c->node->pods, a, &pods), k;
    const json_t *devs = json_object_get(theirs, "devs");
    const char *reason = json_string_value(json_object_get(theirs, "reason"));
    int64_t mib;
    cleanup_buf struct buf why = {0};
    reason_add_unusable(&why, c->node);
    if (reason && !why.n) /* the extender has watched heartbeats for longer */
        differs(c, "the extender rejects all pods here: %s", reason);
    ARRAY_EACH_ITEM(const struct card, card, c->node->cards, c->node->n_cards)
    {
        const json_t *dev = NULL, *item;
        json_array_foreach(devs, k, item)
        {
            if (jpath_number(item, "id") == card->index)
                dev = item;
        }
        if (!dev) {
            differs(c, "the extender does not list GPU%" PRId32, card->index);
            continue;
        }
        const char *health = json_string_value(json_object_get(dev, "health"));
        if (!same_amount(c, dev, "totalMiB", "totalGPU", card->total_mib, &mib))
            differs(
                c, "GPU%" PRId32 " has %" PRId64 " MiB, but %" PRId64 " for the extender",
                card->index, card->total_mib, mib);
        if (!same_amount(c, dev, "promisedMiB", "usedGPU", card->promised_mib, &mib))
            differs(c,
                    "GPU%" PRId32 ": %" PRId64 " MiB are promised, but %" PRId64
                    " for the extender",
                    card->index, card->promised_mib, mib);
        if (health && strcmp(health, view_health(card->state)) != 0)
            differs(c, "GPU%" PRId32 " is %s, but %s for the extender", card->index,
                    view_health(card->state), health);
        const json_t *theirs_here = json_object_get(dev, "pods");
        for (k = 0; k < n; k++)
            if (ledger_pod_mib(pods[k], card) >= 0 &&
                !find_by_name(theirs_here, pods[k]->ns, pods[k]->name))
                differs(c, "GPU%" PRId32 ": the extender does not count pod %.*s/%.*s",
                        card->index, SHOW_POD(pods[k]));
        json_array_foreach(theirs_here, k, item)
        {
            struct span ns = jpath_text(item, "namespace"),
                        name = jpath_text(item, "name");
            const struct ledger_pod *pod = show_find_pod(c->node->pods, ns, name);
            if (!pod || ledger_pod_mib(pod, card) < 0)
                differs(c,
                        "GPU%" PRId32
                        ": the extender counts pod %.*s/%.*s, which is not on this card",
                        card->index, SPAN_ARG(ns), SPAN_ARG(name));
        }
    }
    if (json_array_size(devs) > c->node->n_cards)
        differs(c, "the extender lists %zu cards instead of %" PRIu32,
                json_array_size(devs), c->node->n_cards);
}

size_t check_extender(struct buf *out, const struct cluster_state *cs, const json_t *view,
                      struct span node)
{
    const struct ledger *l = cluster_state_ledger(cs);
    struct check c = {.out = out, .cs = cs, .unit = ledger_settings(l)->unit_mib};
    cleanup_arena struct arena a = {0};
    const struct ledger_node **nodes;
    const json_t *list = json_object_get(view, "nodes"), *item;
    const char *error = json_string_value(json_object_get(view, "error"))
                            ?: json_string_value(json_object_get(view, "staleReason"));
    size_t n = show_nodes(l, node, &a, &nodes), i;
    int64_t unit;
    if (!json_is_array(list) || error) {
        differs(&c, "the extender: %s", error ? error : "the response lists no nodes");
        return c.n;
    }
    if (quantity_read_unit(jpath_text(view, "unit"), &unit, NULL) == 0 && unit != c.unit)
        differs(&c,
                "one unit of " KEY_GPU_MEM " is %" PRId64 " MiB, but %" PRId64
                " MiB for the extender",
                c.unit, unit);
    for (i = 0; i < n; i++) {
        const json_t *theirs = find_by_name(list, (struct span){0}, nodes[i]->name);
        c.node = nodes[i];
        if (theirs)
            compare_node(&c, theirs, &a);
        else if (nodes[i]->n_cards)
            differs(&c, "the extender does not list this node");
    }
    c.node = NULL;
    json_array_foreach(list, i, item)
    {
        struct span name = jpath_text(item, "name");
        if (!node.n && !ledger_node_find(l, name) &&
            json_array_size(json_object_get(item, "devs")))
            differs(&c, "the extender lists node %.*s, which does not exist",
                    SPAN_ARG(name));
    }
    return c.n;
}

/* -- the device plugin's Events -- */

size_t check_isolation(struct buf *out, const struct cluster_state *cs,
                       const json_t *events, struct span node)
{
    struct check c = {.out = out, .cs = cs};
    const json_t *list = json_object_get(events, "items"), *event;
    size_t i;
    if (!list)
        note(&c, "Events cannot be read: it is not known whether limits fail");
    json_array_foreach(list, i, event)
    {
        struct span uid = jpath_text(event, "regarding.uid");
        const struct ledger_pod *pod = ledger_pod_find(cluster_state_ledger(cs), uid);
        c.node = pod ? pod->node : NULL;
        if (c.node && (!node.n || span_eq(node, c.node->name)))
            differs(&c, "pod %.*s/%.*s: %.*s", SHOW_POD(pod),
                    SPAN_ARG(jpath_text(event, "note")));
    }
    return c.n;
}

/* -- the programs of the nodes -- */

enum writer { WRITER_NONE, WRITER_AGENT, WRITER_NODE, WRITER_MAYBE };

/* Whether the pod runs a program that writes the Scv of its node, and which. MAYBE: gpushare-node,
 * if the command of the image or of a shell, or a file of options, says so. */
static enum writer writer_of(const json_t *pod)
{
    const json_t *run = jpath(pod, "spec.containers.0"), *word;
    struct span phase = jpath_text(pod, "status.phase");
    struct span component = jpath_text(pod, "metadata.labels.component");
    json_auto_t *words = json_array();
    json_array_extend(words, json_object_get(run, "command"));
    size_t i;
    struct span program = {0}, path = jpath_text(words, "0");
    while (path.p)
        program = span_cut(&path, '/');
    bool known = span_eq(program, SPAN("gpushare-node")), given = false;
    enum writer with = known ? WRITER_NODE : WRITER_MAYBE, writer = with;
    if (jpath(pod, "metadata.deletionTimestamp") || span_eq(phase, SPAN("Failed")) ||
        span_eq(phase, SPAN("Succeeded")))
        return WRITER_NONE;
    if (!known && span_eq(component, SPAN("scv-agent")))
        return WRITER_AGENT;
    if (!known && (!span_eq(component, SPAN("gpushare-device-plugin")) ||
                   span_eq(program, component)))
        return WRITER_NONE;
    json_array_extend(words, json_object_get(run, "args"));
    json_array_foreach(words, i, word)
    {
        struct span value = jpath_text(word, ""), name = span_cut(&value, '=');
        bool on = true;
        if (span_eq(name, SPAN("--publish"))) {
            bool unread = value.p && opt_parse_bool(value, &on, NULL);
            writer = unread ? WRITER_MAYBE : on ? with : WRITER_NONE;
            given = true;
        } else if (!given && span_eq(name, SPAN("--config"))) {
            writer = WRITER_MAYBE;
        }
    }
    return writer;
}

/* `kubectl apply` of a newer release removes no scv-agent. */
size_t check_publishers(struct buf *out, const struct cluster_state *cs,
                        const json_t *pods, struct span node)
{
    struct check c = {.out = out, .cs = cs};
    const json_t *list = json_object_get(pods, "items"), *agent, *other;
    size_t i, k;
    if (!list)
        note(&c,
             "pods cannot be read: it is not known whether two programs write an Scv");
    json_array_foreach(list, i, agent)
    {
        struct span on = jpath_text(agent, "spec.nodeName");
        c.node = ledger_node_find(cluster_state_ledger(cs), on);
        if (!c.node || (node.n && !span_eq(node, on)) || writer_of(agent) != WRITER_AGENT)
            continue;
        json_array_foreach(list, k, other)
        {
            bool here = span_eq(jpath_text(other, "spec.nodeName"), on);
            enum writer writer = here ? writer_of(other) : WRITER_NONE;
            bool maybe = writer == WRITER_MAYBE;
            if (writer >= WRITER_NODE)
                add_line(&c, maybe,
                         "pod %.*s/%.*s writes the Scv, as gpushare-node %s: delete "
                         "DaemonSet scv-agent of the older release (docs/install.md)",
                         SPAN_ARG(jpath_text(agent, "metadata.namespace")),
                         SPAN_ARG(jpath_text(agent, "metadata.name")),
                         maybe ? "may, whose command or --config cannot be read here"
                               : "does");
        }
    }
    return c.n;
}

/* -- all -- */

enum {
    RECHECK_MS = 300, /* between two comparisons with the extender */
    COMPARISONS = 10,
    VIEW_MS = 5000, /* timeout of the extender's view */
};

/* The cluster may change between reading the API server and the extender: a difference
 * counts only if it remains. */
int check_run(struct buf *out, struct session *s, struct span node, struct err *err)
{
    json_auto_t *view = NULL;
    struct err why = {0}, unread;
    size_t found = 0, in_view = 1;
    if (node.n && !ledger_node_find(cluster_state_ledger(s->state), node))
        return err_set(err, ERR_NOT_FOUND, "nodes \"%.*s\" not found", SPAN_ARG(node));
    json_auto_t *events = session_get(
        s, "/apis/events.k8s.io/v1/events?fieldSelector=reason=GPUIsolationFailed",
        &unread);
    json_auto_t *pods =
        session_get(s, "/api/v1/pods?labelSelector=app%3Dgpushare", &unread);
    for (int i = 0; i < COMPARISONS && in_view; i++) {
        buf_clear(out);
        json_decref(view);
        view = session_call_extender(s->client, s->config, VIEW_MS, &why);
        if (i == 0) /* the view is newer than the lists: catch up */
            session_wait(s, RECHECK_MS);
        in_view = 0;
        found = session_write_outage(out, s, view); /* first, and one difference */
        found += check_cluster(out, s->state, node);
        found += check_isolation(out, s->state, events, node);
        found += check_publishers(out, s->state, pods, node);
        if (view)
            in_view = check_extender(out, s->state, view, node);
        found += in_view;
        if (in_view)
            session_wait(s, RECHECK_MS);
    }
    if (!view && why.code != ERR_NONE) {
        *err = why;
        return err_wrap(err, "--extender %s", s->config->extender);
    }
    if (found)
        buf_printf(out, "%zu difference%s", found, show_plural(found));
    else
        buf_adds(out, "no differences");
    buf_adds(out, view ? "; compared with the extender\n"
                       : "; not compared with the extender (see --extender)\n");
    return found > 0;
}
