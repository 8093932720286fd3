/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/heartbeat.h"
#include "cli/show.h"
#include "domain/quantity.h"

static json_t *to_json_string(struct span text)
{
    json_t *s = json_stringn(text.n ? text.p : "", text.n);
    return s ? s : json_string("?"); /* invalid UTF-8 */
}

static void put_text(json_t *o, const char *key, struct span text)
{
    if (text.n)
        json_object_set_new(o, key, to_json_string(text));
}

static void put(json_t *o, const char *key, int64_t number)
{
    json_object_set_new(o, key, json_integer(number));
}

/* False is left out. */
static void put_flag(json_t *o, const char *key, bool value)
{
    if (value)
        json_object_set_new(o, key, json_true());
}

static void put_use(json_t *o, int64_t used_mib, int64_t sm_percent)
{
    if (used_mib >= 0)
        put(o, "usedMiB", used_mib);
    if (sm_percent >= 0)
        put(o, "utilizationPercent", sm_percent);
}

/* `mib`: the promise; below 0: none that is known. */
static json_t *pod_json(const struct cluster_state *cs, const struct ledger_pod *pod,
                        int64_t mib)
{
    const struct cluster_state_pod *object = cluster_state_pod(cs, pod->uid);
    json_t *o = json_object();
    put_text(o, "namespace", pod->ns);
    put_text(o, "name", pod->name);
    put_text(o, "uid", pod->uid);
    if (mib >= 0)
        put(o, "mib", mib);
    put_flag(o, "wholeCard", pod->request->kind == REQUEST_CARDS);
    put_flag(o, "running", pod->running);
    if (object)
        put_flag(o, "assigned", span_eq(object->assigned, SPAN("true")));
    return o;
}

static const struct scv_card *scv_card_of(const struct cluster_state *cs,
                                          struct span node, int32_t index)
{
    const struct cluster_state_scv *s = cluster_state_scv(cs, node);
    for (size_t i = 0; s && i < s->scv.n_cards; i++)
        if (s->scv.cards[i].id == index)
            return &s->scv.cards[i];
    return NULL;
}

/* What uses the card without a promise. */
static void put_processes(const struct cluster_state *cs, const struct ledger_node *node,
                          const struct card *card, json_t *o)
{
    const struct cluster_state_scv *s = cluster_state_scv(cs, node->name);
    json_t *list = json_array();
    for (size_t i = 0; s && i < s->scv.n_processes; i++) {
        const struct scv_process *p = &s->scv.processes[i];
        if (!card->uuid.n || !span_eq(p->uuid, card->uuid) || !show_is_other_use(node, p))
            continue;
        json_t *one = json_object();
        put_text(one, "namespace", p->ns);
        put_text(one, "pod", p->pod);
        put_text(one, "container", p->container);
        put_text(one, "name", p->name);
        if (p->pid)
            put(one, "pid", p->pid);
        put_flag(one, "unmapped", p->unmapped);
        put_use(one, p->used_mib, p->sm_percent);
        json_array_append_new(list, one);
    }
    if (json_array_size(list))
        json_object_set(o, "processes", list);
    json_decref(list);
}

static json_t *card_json(const struct cluster_state *cs, const struct ledger_node *node,
                         const struct card *card, const struct ledger_pod **pods,
                         size_t n)
{
    const struct scv_card *scv = scv_card_of(cs, node->name, card->index);
    json_t *o = json_object(), *list = json_array();
    put(o, "index", card->index);
    put_text(o, "uuid", card->uuid);
    put_text(o, "model", card->model);
    put_text(o, "health", span_of(show_health(card->state)));
    put(o, "totalMiB", card->total_mib);
    put(o, "promisedMiB", card->promised_mib);
    if (card->core_promised)
        put(o, "promisedComputePercent", card->core_promised);
    if (card->used_mib >= 0)
        put(o, "usedMiB", card->used_mib);
    if (card->withheld_mib)
        put(o, "withheldMiB", card->withheld_mib);
    if (card->overuse_mib)
        put(o, "overuseMiB", card->overuse_mib);
    put_flag(o, "usageComplete", card->use_known);
    put(o, "freeMiB", node->state == NODE_USABLE ? card->free_mib : 0);
    put_flag(o, "overcommitted", card->overcommitted);
    if (scv && scv->has_utilization)
        put(o, "utilizationPercent", scv->utilization);
    if (scv && scv->has_temperature)
        put(o, "temperatureCelsius", scv->temperature);
    for (size_t i = 0; i < n; i++) {
        int64_t mib = ledger_pod_mib(pods[i], card);
        struct ledger_use use;
        bool used = ledger_pod_use(node, pods[i], card, &use);
        if (mib < 0 && !used)
            continue;
        json_t *pod = pod_json(cs, pods[i], mib);
        uint32_t core = ledger_pod_core(pods[i], card);
        if (core)
            put(pod, "computePercent", core);
        if (used)
            put_use(pod, use.used_mib, use.sm_percent);
        json_array_append_new(list, pod);
    }
    json_object_set_new(o, "pods", list);
    put_processes(cs, node, card, o);
    return o;
}

/* Does the pod have a card in the ledger? */
static bool is_placed(const struct ledger_pod *pod)
{
    for (uint32_t k = 0; k < pod->node->n_cards; k++)
        if (ledger_pod_mib(pod, &pod->node->cards[k]) >= 0)
            return true;
    return pod->request->kind == REQUEST_DEVICES || pod->request->kind == REQUEST_NONE;
}

static void put_unplaced(const struct cluster_state *cs, json_t *o,
                         const struct ledger_pod **pods, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        int64_t mib = pods[i]->request->cards * pods[i]->request->mib_per_card;
        if (!is_placed(pods[i]))
            json_array_append_new(list, pod_json(cs, pods[i], mib));
    }
    if (json_array_size(list))
        json_object_set(o, "unplaced", list);
    json_decref(list);
}

static json_t *node_json(const struct cluster_state *cs, const struct ledger_node *node,
                         struct arena *a)
{
    static const char *const sources[] = {
        [SOURCE_NONE] = "none", [SOURCE_SCV] = "scv", [SOURCE_CAPACITY] = "capacity"};
    const struct cluster_state_node *object = cluster_state_node(cs, node->name);
    const struct cluster_state_scv *scv = cluster_state_scv(cs, node->name);
    const struct cluster_state_heartbeat *heartbeat =
        cluster_state_heartbeat(cs, node->name);
    struct ledger_node_info info = ledger_node_info(node);
    cleanup_buf struct buf why = {0}, time = {0}, note = {0};
    const struct ledger_pod **pods;
    size_t n = show_pods_on(node, a, &pods);
    json_t *o = json_object(), *cards = json_array();
    put_text(o, "name", node->name);
    put_text(o, "address", object ? object->address : (struct span){0});
    put_text(o, "source", span_of(sources[node->source]));
    if (node->mode == NODE_MEMORY || node->mode == NODE_CARDS)
        put_text(o, "mode", node->mode == NODE_CARDS ? SPAN("card") : SPAN("memory"));
    put_flag(o, "schedulingDisabled", node->cordoned);
    show_state(&why, node);
    put_text(o, "reason", buf_span(&why));
    if (heartbeat)
        put_text(o, "heartbeat", heartbeat->renewed);
    heartbeat_note(&note, cs, node);
    put_text(o, "heartbeatNote", buf_span(&note));
    if (info.has_sample)
        clock_format_s(&time, info.sample_s);
    put_text(o, "measured", buf_span(&time));
    if (scv) {
        put_text(o, "driverVersion", scv->scv.driver_version);
        put_text(o, "cudaVersion", scv->scv.cuda_version);
    }
    if (node->unknown_listed_card >= 0)
        put(o, "unknownCard", node->unknown_listed_card);
    if (node->claimed)
        put(o, "claimedCards", node->claimed);
    for (uint32_t i = 0; i < node->n_cards; i++)
        json_array_append_new(cards, card_json(cs, node, &node->cards[i], pods, n));
    json_object_set_new(o, "cards", cards);
    put_unplaced(cs, o, pods, n);
    return o;
}

static json_t *pending_json(const struct ledger *l, const struct ledger_pod *pod)
{
    cleanup_buf struct buf request = {0};
    json_t *o = json_object();
    put_text(o, "namespace", pod->ns);
    put_text(o, "name", pod->name);
    put_text(o, "uid", pod->uid);
    put(o, "priority", pod->priority);
    if (pod->nomination)
        put_text(o, "nominatedNode", pod->nomination->node->name);
    request_write(&request, pod->request, ledger_settings(l)->unit_mib);
    if (pod->invalid_reason)
        put_text(o, "error", span_of(pod->invalid_reason));
    else
        put_text(o, "request", buf_span(&request));
    return o;
}

json_t *show_json(const struct cluster_state *cs, const struct show *show)
{
    const struct ledger *l = cluster_state_ledger(cs);
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf unit = {0};
    const struct ledger_node **nodes;
    const struct ledger_pod **pods;
    size_t n = show_nodes(l, show->node, &a, &nodes);
    if (show->node.n && !n)
        return NULL;
    json_t *o = json_object(), *list = json_array(), *pending = json_array();
    quantity_write_unit(&unit, ledger_settings(l)->unit_mib);
    put_text(o, "unit", buf_span(&unit));
    put(o, "unitMiB", ledger_settings(l)->unit_mib);
    put_flag(o, "unitAssumed", show->unit_assumed);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, node_json(cs, nodes[i], &a));
    json_object_set_new(o, "nodes", list);
    n = show->node.n ? 0 : show_pending(l, &a, &pods);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(pending, pending_json(l, pods[i]));
    if (show->node.n)
        json_decref(pending);
    else
        json_object_set_new(o, "pendingPods", pending);
    return o;
}

static int add_bytes(const char *p, size_t n, void *out)
{
    buf_add(out, p, n);
    return 0;
}

static void indent(struct buf *out, int depth)
{
    for (int i = 0; i < depth; i++)
        buf_adds(out, "  ");
}

/* A JSON string is valid YAML; but YAML also requires C1 control characters to be
 * escaped, which could control a terminal. */
static void yaml_string(struct buf *out, const json_t *j)
{
    const char *p = json_string_value(j);
    size_t n = json_string_length(j);
    buf_addc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0)
            buf_printf(out, "\\u%04x", (unsigned char)p[++i]);
        else if (c < ' ' || c == 0x7f)
            buf_printf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else
            buf_addc(out, (char)c);
    }
    buf_addc(out, '"');
}

static void yaml_scalar(struct buf *out, const json_t *j)
{
    if (json_is_string(j))
        yaml_string(out, j);
    else
        json_dump_callback(j, add_bytes, out, JSON_ENCODE_ANY | JSON_COMPACT);
    buf_addc(out, '\n');
}

static void yaml_value(struct buf *out, const json_t *j, int depth);

/* `first`: "- " has been written before the first key. */
static void yaml_object(struct buf *out, const json_t *j, int depth, bool first)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)j, key, value)
    {
        if (!first)
            indent(out, depth);
        first = false;
        buf_adds(out, key); /* our own keys: plain words */
        buf_addc(out, ':');
        yaml_value(out, value, depth);
    }
}

/* The value after a "key:" of that depth. */
static void yaml_value(struct buf *out, const json_t *j, int depth)
{
    size_t i;
    json_t *item;
    if (json_is_array(j) && json_array_size(j)) {
        buf_addc(out, '\n');
        json_array_foreach(j, i, item)
        {
            indent(out, depth);
            buf_adds(out, "- ");
            if (json_is_object(item)) {
                yaml_object(out, item, depth + 1, true);
                continue;
            }
            yaml_scalar(out, item);
        }
    } else if (json_is_object(j) && json_object_size(j)) {
        buf_addc(out, '\n');
        yaml_object(out, j, depth + 1, false);
    } else {
        buf_addc(out, ' ');
        yaml_scalar(out, j);
    }
}

void show_dump(struct buf *out, const json_t *j, bool yaml)
{
    if (yaml) {
        yaml_object(out, j, 0, false);
        return;
    }
    json_dump_callback(j, add_bytes, out, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    buf_addc(out, '\n');
}
