/* SPDX-License-Identifier: Apache-2.0 */

/* assess: reads who holds GPUs and what they use, and plays the pods onto shared cards. */

#include "cli/assess.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/defrag.h"
#include "cli/show.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "kube/list_watch.h"
#include "placement/select.h"

#define HAMI_NODE "hami.io/node-nvidia-register"
#define HAMI_POD  "hami.io/vgpu-devices-allocated"

enum { MIB = 1 << 20, MIB_MAX = 1 << 24, ORDERS = 720, WORK = 4 << 20 };

/* The cards of a node count as of one model. */
struct assess_node {
    struct span name, model;
    const json_t *object;
    const struct ledger_node *ledger;
    int64_t n, mib; /* cards, and the size of each; 0: unknown */
    int64_t plain;  /* nvidia.com/gpu that pods hold */
    json_t *shared; /* the cards that sharing pods hold, as keys */
};

struct assess_pod {
    const json_t *object;
    struct span ns, name;
    struct assess_node *node;
    struct ledger_pod *ledger;
    const char *why,
        *tied; /* it cannot share; it stays on its node. NULL: it can, it need not */
    int64_t used, need, cards; /* MiB; used -1: unknown */
    const struct ledger_node *to;
};

struct assess_model {
    struct span name;
    int64_t cards, held, least, most, pods, sharing;
    int64_t unseen; /* held, of a size that is unknown */
    int64_t now;    /* cards of the order that is tried; -1: a pod has no place */
};

struct assess {
    struct arena arena;
    struct ledger *ledger;
    struct defrag_rules *rules;
    json_t *pods, *nodes, *scvs; /* objects by UID or name */
    json_t *used;                /* MiB by "NAMESPACE/NAME", card and container */
    json_t *sizes;               /* by node and card: [model, MiB] */
    json_t *warnings;
};

struct assess *assess_new(void)
{
    static const struct ledger_settings settings = {.unit_mib = 1};
    struct assess *a = xcalloc(1, sizeof *a);
    a->ledger = ledger_new(&settings, 1);
    a->rules = defrag_rules_new();
    json_t **const all[] = {&a->pods, &a->nodes, &a->scvs, &a->used, &a->sizes};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        *all[i] = json_object();
    a->warnings = json_array();
    return a;
}

void assess_free(struct assess *a)
{
    json_t *const all[] = {a->pods, a->nodes, a->scvs, a->used, a->sizes, a->warnings};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        json_decref(all[i]);
    defrag_rules_free(a->rules);
    ledger_free(a->ledger);
    arena_fini(&a->arena);
    free(a);
}

static const json_t *at(const json_t *o, const char *first, const char *second)
{
    return json_object_get(json_object_get(o, first), second);
}

/* The object that is the member `key`, which is made if it is missing. */
static json_t *child(json_t *o, const char *key)
{
    if (!json_is_object(json_object_get(o, key)))
        json_object_set_new(o, key, json_object());
    return json_object_get(o, key);
}

static int64_t bounded(int64_t n)
{
    return n < 0 ? 0 : n < MIB_MAX ? n : MIB_MAX;
}

/* Limits of the resource; a name that ends with '-': of all that begin so. As the kubelet counts:
 * init containers run before the others, sidecars beside them. */
static int64_t amount(const json_t *pod, const char *name)
{
    static const char *const lists[] = {"initContainers", "containers"};
    struct container_sum sum = {0};
    const json_t *c, *value;
    const char *key;
    size_t i, n = strlen(name);
    for (size_t k = 0; k < ARRAY_LEN(lists); k++)
        json_array_foreach(at(pod, "spec", lists[k]), i, c)
        {
            bool side = span_eq(session_text(c, "restartPolicy"), SPAN("Always"));
            json_object_foreach((json_t *)at(c, "resources", "limits"), key, value)
            {
                int64_t units = json_integer_value(value);
                if (name[n - 1] == '-' ? strncmp(key, name, n) : strcmp(key, name))
                    continue;
                if (json_is_string(value) &&
                    quantity_read(span_of(json_string_value(value)), &units, NULL))
                    continue;
                container_sum_add(&sum,
                                  k      ? CONTAINER_APP
                                  : side ? CONTAINER_SIDECAR
                                         : CONTAINER_INIT,
                                  bounded(units));
            }
        }
    return sum.running > sum.peak ? sum.running : sum.peak;
}

/* Reads the object again as `read` does; what it points to is in the arena. */
#define READ_AGAIN(a, object, read, to)                                                  \
    do {                                                                                 \
        char *text_ = json_dumps(object, JSON_COMPACT);                                  \
        struct span own_ = arena_copy(a, span_of(text_));                                \
        struct jread j_;                                                                 \
        free(text_);                                                                     \
        jread_init(&j_, own_.p, own_.n);                                                 \
        read(&j_, a, to);                                                                \
    } while (0)

static bool holds_cards(const json_t *pod)
{
    return amount(pod, KEY_NVIDIA_GPU) || amount(pod, "nvidia.com/gpu.shared") ||
           amount(pod, "nvidia.com/mig-") || amount(pod, KEY_GPU_MEM) ||
           amount(pod, KEY_GPU_COUNT) ||
           json_object_get(at(pod, "metadata", "annotations"), KEY_MEM_IDX);
}

/* What a container used of a card. DCGM's "*" is what all pods of the card used. */
static void add_used(struct assess *a, const char *mark, struct span ns, struct span pod,
                     struct span card, struct span container, int64_t mib)
{
    cleanup_buf struct buf key = {0};
    if (mib < 0 || mib > MIB_MAX)
        return;
    buf_printf(&key, "%s%.*s/%.*s", mark, SPAN_ARG(ns), SPAN_ARG(pod));
    json_t *uses = child(child(a->used, key.p), card.n ? card.p : "?");
    const char *name = container.n ? container.p : "";
    if (mib > json_integer_value(json_object_get(uses, name)) ||
        !json_object_get(uses, name))
        json_object_set_new(uses, name, json_integer(mib));
}

static void add_object(struct assess *a, struct span kind, const json_t *o)
{
    const json_t *meta = json_object_get(o, "metadata"), *held, *use;
    struct span name = session_text(meta, "name"), uid = session_text(meta, "uid");
    cleanup_arena struct arena scratch = {0};
    struct pod pod = {0};
    size_t i, k;
    if (span_eq(kind, SPAN("Node")) && name.n)
        json_object_set(a->nodes, name.p, (json_t *)o);
    if (span_eq(kind, SPAN("Scv")) && name.n)
        json_object_set(a->scvs, name.p, (json_t *)o);
    json_array_foreach(at(o, "status", "podList"), i, held)
        json_array_foreach(json_object_get(held, "usage"), k,
                           use) if (json_is_integer(json_object_get(use, "usedMemory")))
            add_used(a, "", session_text(held, "namespace"), session_text(held, "name"),
                     session_text(use, "uuid"), session_text(held, "container"),
                     json_integer_value(json_object_get(use, "usedMemory")));
    struct span phase = session_text(json_object_get(o, "status"), "phase");
    if (!span_eq(kind, SPAN("Pod")) || !uid.n || span_eq(phase, SPAN("Succeeded")) ||
        span_eq(phase, SPAN("Failed")) || !at(o, "spec", "nodeName"))
        return;
    READ_AGAIN(&scratch, o, pod_read, &pod);
    if (holds_cards(o))
        json_object_set(a->pods, uid.p, (json_t *)o);
    else
        ledger_nongpu_seen(a->ledger, uid, pod.node, &pod.requests, 1);
}

/* A label of dcgm-exporter, which Prometheus renames if it has one of that name itself. */
static struct span label(const json_t *metric, const char *renamed, const char *name)
{
    struct span text = session_text(metric, renamed);
    return text.n ? text : session_text(metric, name);
}

static int add_sample(struct assess *a, const json_t *sample, struct err *err)
{
    const json_t *m = json_object_get(sample, "metric");
    const char *text =
        json_string_value(json_array_get(json_object_get(sample, "value"), 1));
    char *end = NULL;
    double bytes = text ? strtod(text, &end) : NAN;
    if (!text || end == text || *end)
        return err_set(err, ERR_INVALID, "a sample of Prometheus has no number");
    if (!(bytes >= 0 && bytes < (double)MIB_MAX * MIB))
        return 0; /* NaN and infinities are no measurement */
    int64_t mib = (int64_t)((bytes + MIB - 1) / MIB);
    struct span pod = label(m, "exported_pod", "pod"), node = session_text(m, "Hostname"),
                card = label(m, "uuid", "UUID");
    if (session_text(m, "podname").n)
        add_used(a, "", session_text(m, "podnamespace"), session_text(m, "podname"),
                 session_text(m, "deviceuuid"), session_text(m, "ctrname"), mib);
    else if (pod.n)
        add_used(a, session_text(m, "uuid").n ? "" : "*",
                 label(m, "exported_namespace", "namespace"), pod, card,
                 label(m, "exported_container", "container"), mib);
    else if (node.n && card.n)
        json_object_set_new(child(a->sizes, node.p), card.p,
                            json_pack("[o,I]",
                                      show_json_text(session_text(m, "modelName")),
                                      (json_int_t)mib));
    return 0;
}

int assess_add(struct assess *a, const json_t *document, struct err *err)
{
    const json_t *items = json_object_get(document, "items"), *o;
    const json_t *result = at(document, "data", "result");
    struct span kind = session_text(document, "kind");
    size_t i;
    if (json_object_get(document, "status") && !kind.n) {
        if (!span_eq(session_text(document, "status"), SPAN("success")))
            return err_set(err, ERR_INVALID, "Prometheus: %s",
                           session_text(document, "error").n
                               ? session_text(document, "error").p
                               : "the answer is not a success");
        if (!span_eq(session_text(json_object_get(document, "data"), "resultType"),
                     SPAN("vector")) ||
            !json_is_array(result))
            return err_set(err, ERR_INVALID, "the answer of Prometheus is no vector");
        json_array_foreach(json_object_get(document, "warnings"), i, o)
            json_array_append(a->warnings, (json_t *)o);
        json_array_foreach(result, i, o) if (add_sample(a, o, err)) return -1;
        return 0;
    }
    if (!kind.n)
        return err_set(err, ERR_INVALID,
                       "expected objects of Kubernetes or an answer of Prometheus");
    if (!items)
        add_object(a, kind, document);
    if (kind.n > 4) /* "PodList": its items need not name their kind */
        kind.n -= 4;
    json_array_foreach(items, i, o)
    {
        struct span own = session_text(o, "kind");
        add_object(a, own.n ? own : kind, o);
    }
    return 0;
}

void assess_query(struct buf *out, int64_t window_ms)
{
    static const char *const of_pods[][3] = {
        {"1048576*",
         "namespace,exported_namespace,pod,exported_pod,container,exported_container,"
         "UUID",
         "DCGM_FI_DEV_FB_USED"},
        {"",
         "namespace,exported_namespace,pod,exported_pod,container,exported_container,"
         "uuid",
         "gpushare_container_gpu_memory_used_bytes"},
        {"", "podnamespace,podname,ctrname,deviceuuid",
         "vGPU_device_memory_usage_in_bytes"}};
    for (size_t i = 0; i < ARRAY_LEN(of_pods); i++)
        buf_printf(out, "%smax by (%s) (max_over_time(%s[%llds])) or ", of_pods[i][0],
                   of_pods[i][1], of_pods[i][2], (long long)window_ms / 1000);
    buf_adds(out, "1048576*max by (Hostname,UUID,modelName) "
                  "(DCGM_FI_DEV_FB_USED+DCGM_FI_DEV_FB_FREE)");
}

/* -- cards of nodes -- */

/* "NVIDIA A10", "NVIDIA-A10" and "NVIDIA-A10-SHARED" are one model. */
static struct span model_name(struct arena *a, struct span text)
{
    struct span own = arena_copy(a, text), shared = SPAN("-SHARED");
    for (size_t i = 0; i < own.n; i++)
        if (own.p[i] == ' ' || own.p[i] == ',')
            ((char *)own.p)[i] = '-';
    if (span_starts(own, SPAN("NVIDIA-")))
        own.p += 7, own.n -= 7;
    if (own.n > shared.n &&
        span_eq((struct span){own.p + own.n - shared.n, shared.n}, shared))
        own.n -= shared.n;
    return own;
}

static int64_t number_of(const json_t *labels, const char *key)
{
    int64_t n = 0;
    return span_i64(session_text(labels, key), &n) && n > 0 && n <= MIB_MAX ? n : 0;
}

/* One more card of the node; the smallest one counts. */
static void add_card(struct assess *a, struct assess_node *n, struct span model,
                     int64_t mib)
{
    if (!n->n++)
        n->model = model_name(&a->arena, model);
    if (n->n == 1 || mib < n->mib)
        n->mib = mib > 0 && mib < MIB_MAX ? mib : 0;
}

/* From the Scv, HAMi's annotation, the labels of GPU feature discovery, or dcgm-exporter. */
static void find_cards(struct assess *a, struct assess_node *n)
{
    const json_t *labels = at(n->object, "metadata", "labels"), *o;
    struct span hami = session_text(at(n->object, "metadata", "annotations"), HAMI_NODE);
    const json_t *scv = json_object_get(a->scvs, n->name.p);
    const char *key;
    size_t i;
    json_array_foreach(at(scv, "status", "cardList"), i,
                       o) if (!session_text(o, "migProfile").n)
        add_card(a, n, session_text(o, "model"),
                 bounded(json_integer_value(json_object_get(o, "totalMemory"))) -
                     bounded(json_integer_value(json_object_get(o, "reservedMemory"))));
    json_t *list = n->n ? NULL : json_loadb(hami.n ? hami.p : "", hami.n, 0, NULL);
    json_array_foreach(list, i, o) add_card(
        a, n, session_text(o, "type"), json_integer_value(json_object_get(o, "devmem")));
    json_decref(list);
    bool old = !n->n && hami.n && *hami.p != '['; /* UUID,count,MiB,cores,model,...: */
    while (old && hami.n) {
        struct span card = span_cut(&hami, ':'), mib, model;
        int64_t value = 0;
        span_cut(&card, ',');
        span_cut(&card, ',');
        mib = span_cut(&card, ',');
        span_cut(&card, ',');
        model = span_cut(&card, ',');
        if (model.n && span_i64(mib, &value))
            add_card(a, n, model, value);
    }
    for (int64_t c = n->n ? 0 : number_of(labels, "nvidia.com/gpu.count"); c > 0; c--)
        add_card(a, n, session_text(labels, "nvidia.com/gpu.product"),
                 number_of(labels, "nvidia.com/gpu.memory"));
    if (!n->n)
        json_object_foreach(json_object_get(a->sizes, n->name.p), key, o)
            add_card(a, n, span_of(json_string_value(json_array_get(o, 0))),
                     json_integer_value(json_array_get(o, 1)));
    if (!n->n && json_is_string(json_object_get(at(n->object, "status", "capacity"),
                                                KEY_NVIDIA_GPU)))
        n->n = number_of(at(n->object, "status", "capacity"), KEY_NVIDIA_GPU);
    if (n->n > SCV_MAX_CARDS)
        n->n = SCV_MAX_CARDS;
    if (!n->model.n)
        n->model = SPAN("unknown");
    struct scv_card cards[SCV_MAX_CARDS];
    struct scv own = {
        .meta.name = n->name, .cards = cards, .n_cards = n->mib ? (size_t)n->n : 0};
    for (size_t c = 0; c < own.n_cards; c++)
        cards[c] = (struct scv_card){.id = (int32_t)c,
                                     .healthy = true,
                                     .total_mib = n->mib,
                                     .free_mib = n->mib,
                                     .model = n->model};
    struct node node = {0};
    READ_AGAIN(&a->arena, n->object, node_read, &node);
    node.mode = NODE_ANY;
    ledger_node_seen(a->ledger, &node, 1);
    ledger_scv_seen(a->ledger, &own, 1);
    n->ledger = ledger_node_find(a->ledger, n->name);
}

/* -- pods -- */

/* The cards that a pod has of others' sharing, as keys of the node. */
static void add_shared(struct assess_node *n, const json_t *annotations)
{
    struct span hami = session_text(annotations, HAMI_POD), part;
    struct span ours = session_text(annotations, KEY_MEM_IDX);
    char key[128];
    size_t before = json_object_size(n->shared);
    while (hami.n) {
        part = span_cut(&hami, ',');
        while (part.n && (*part.p == ':' || *part.p == ';'))
            part.p++, part.n--;
        if (span_starts(part, SPAN("GPU-")) && part.n < sizeof key)
            json_object_setn_new(n->shared, part.p, part.n, json_true());
    }
    while (ours.n && (part = span_cut(&ours, ',')).n)
        json_object_setn_new(n->shared, part.p, part.n, json_true());
    if (json_object_size(n->shared) == before && !before)
        json_object_set_new(n->shared, "?", json_true());
}

/* Of the card of which it used most. */
static int64_t used_of(const struct assess *a, const struct assess_pod *p,
                       const char *mark)
{
    cleanup_buf struct buf key = {0};
    const json_t *card, *mib;
    const char *name;
    int64_t most = -1;
    buf_printf(&key, "%s%.*s/%.*s", mark, SPAN_ARG(p->ns), SPAN_ARG(p->name));
    json_object_foreach(json_object_get(a->used, key.p), name, card)
    {
        int64_t sum = 0;
        const char *container;
        json_object_foreach((json_t *)card, container, mib) sum +=
            json_integer_value(mib);
        most = sum > most ? sum : most;
    }
    return most;
}

static void read_pod(struct assess *a, struct assess_pod *p, int64_t headroom)
{
    const json_t *o = p->object, *meta = json_object_get(o, "metadata");
    const json_t *annotations = json_object_get(meta, "annotations");
    struct assess_node *n = p->node;
    int64_t devices = amount(o, KEY_NVIDIA_GPU) + amount(o, "nvidia.com/gpu.shared");
    int64_t mib = amount(o, "nvidia.com/gpumem"),
            percent = amount(o, "nvidia.com/gpumem-percentage"),
            units = amount(o, KEY_GPU_MEM), whole = amount(o, KEY_GPU_COUNT);
    int64_t replicas =
        number_of(at(n->object, "metadata", "labels"), "nvidia.com/gpu.replicas");
    bool hami = mib || percent || session_text(annotations, HAMI_POD).n;
    bool ours = !devices && !whole;
    struct pod pod = {0};
    p->ns = session_text(meta, "namespace");
    p->name = session_text(meta, "name");
    p->cards = devices ? devices : whole ? whole : 1;
    p->used = used_of(a, p, "");
    if (p->used < 0 && !hami && !ours && replicas < 2) /* it has the card for itself */
        p->used = used_of(a, p, "*");
    if (hami || ours)
        add_shared(n, annotations);
    else
        n->plain += replicas > 1 ? devices : p->cards * (replicas ? replicas : 1);
    if (percent)
        mib = n->mib * percent / 100;
    if (ours && units) /* GiB, unless no card has as many */
        mib = n->mib && units > n->mib / 1024 ? units : units * 1024;
    p->need = p->used >= 0 ? p->used + (p->used * headroom + 99) / 100 : mib;
    p->need = p->need > 0 ? p->need : p->used == 0;
    if (amount(o, "nvidia.com/mig-") || (n->model.n && strstr(n->model.p, "MIG-")))
        p->why = "holds MIG instances";
    else if (!n->mib)
        p->why = "the memory of its node's cards is unknown";
    else if (p->cards > 1)
        p->why = "uses several cards";
    else if (!p->need)
        p->why = "its memory was not measured";
    else if (p->need > n->mib)
        p->why = "needs more than a card with the head room";
    p->tied = defrag_rules_ties(json_object_get(o, "spec"));
    READ_AGAIN(&a->arena, o, pod_read, &pod);
    pod.node = (struct span){0};
    struct request r = {
        .kind = p->why ? REQUEST_CARDS : REQUEST_MEMORY,
        .cards = (uint32_t)(p->cards < SCV_MAX_CARDS ? p->cards : SCV_MAX_CARDS),
        .units = p->why ? 0 : p->need,
        .mib_per_card = p->why ? 0 : p->need,
        .ignores_links = true};
    p->ledger = ledger_pod_add(a->ledger, &pod, &r, NULL);
}

/* -- the cards that they need -- */

static void place(struct assess *a, struct assess_pod *p, const struct ledger_node *node,
                  uint64_t chosen)
{
    struct ledger_share shares[REQUEST_MAX_CARDS] = {0};
    uint32_t n = 0;
    for (; chosen; chosen &= chosen - 1) {
        const struct card *c = &node->cards[__builtin_ctzll(chosen)];
        shares[n].card = c->index;
        shares[n++].mib = p->why ? c->total_mib : p->need;
    }
    p->to = node;
    ledger_pod_place(a->ledger, p->ledger, node->name, shares, n);
}

/* The node with the fullest card in use that takes the pod, else one with an empty card. False:
 * there is none. */
static bool place_best(struct assess *a, struct assess_pod *p,
                       const struct assess_node *nodes, size_t n)
{
    const struct ledger_node *best = NULL;
    int64_t least = INT64_MAX;
    uint64_t cards = 0, chosen;
    struct resources wants = ledger_pod_requests(p->ledger);
    struct select_view view;
    for (size_t i = 0; i < n; i++) {
        const struct ledger_node *to = nodes[i].ledger;
        bool own = &nodes[i] == p->node;
        if (!to ||
            (!own && (p->tied || p->why || !span_eq(nodes[i].model, p->node->model))) ||
            select_fit(to, p->ledger->request) != FIT_YES)
            continue;
        struct resources taken = ledger_node_requested(to);
        select_view(&view, to, NULL, SELECT_AS_IS);
        if (!ledger_requests_fit(to, &taken, &wants) ||
            select_cards(&view, p->ledger->request, SELECT_ALL_CARDS, &chosen) != FIT_YES)
            continue;
        const struct card *c = &to->cards[__builtin_ctzll(chosen)];
        int64_t key = c->free_mib + (c->pods ? 0 : MIB_MAX) - (own && !c->pods);
        if (key >= least ||
            (!own && !defrag_rules_allow(a->rules, p->ledger->uid, to->name, true)))
            continue;
        least = key;
        best = to;
        cards = chosen;
    }
    if (best)
        place(a, p, best, cards);
    return best != NULL;
}

static int compare_pods(const void *x, const void *y)
{
    const struct assess_pod *p = *(struct assess_pod *const *)x,
                            *q = *(struct assess_pod *const *)y;
    return ((q->why != NULL) - (p->why != NULL))
               ?: ((q->tied != NULL) - (p->tied != NULL))
               ?: quantity_compare(q->need, p->need)
               ?: span_cmp(p->ledger->uid, q->ledger->uid);
}

static struct assess_model *model_of(struct assess_model *models, size_t *n,
                                     struct span name)
{
    size_t i = 0;
    while (i < *n && !span_eq(models[i].name, name))
        i++;
    if (i == *n)
        models[(*n)++] = (struct assess_model){.name = name, .least = INT64_MAX};
    return &models[i];
}

/* Places the pods in this order, and notes for each model how many cards have pods. */
static void try_order(struct assess *a, struct assess_pod *const *pods, size_t n_pods,
                      const struct assess_node *nodes, size_t n_nodes,
                      struct assess_model *models, size_t n_models)
{
    for (size_t i = 0; i < n_models; i++)
        models[i].now = 0;
    for (size_t i = 0; i < n_pods; i++) {
        pods[i]->to = NULL;
        if (!place_best(a, pods[i], nodes, n_nodes) && !pods[i]->why)
            model_of(models, &n_models, pods[i]->node->model)->now = -1;
    }
    for (size_t i = 0; i < n_nodes; i++) {
        struct assess_model *m = model_of(models, &n_models, nodes[i].model);
        for (uint32_t c = 0; m->now >= 0 && c < nodes[i].ledger->n_cards; c++)
            m->now += nodes[i].ledger->cards[c].pods > 0;
    }
    for (size_t i = 0; i < n_models; i++) {
        struct assess_model *m = &models[i];
        if (m->now >= 0 && m->now < m->least)
            m->least = m->now;
        if (m->now > m->most)
            m->most = m->now;
    }
    for (size_t i = 0; i < n_pods; i++)
        if (pods[i]->to)
            ledger_pod_unplace(a->ledger, pods[i]->ledger);
}

static void write_table(struct buf *out, const struct assess *a,
                        const struct assess_model *models, size_t n_models,
                        struct assess_pod *const *pods, size_t n_pods, bool details,
                        bool colors)
{
    cleanup_table struct table t = {.colors = colors}, of_pods = {.colors = colors};
    const json_t *warning;
    size_t i;
    table_header(&t, "MODEL\tCARDS\tHELD\tNEEDED\tPODS\tCOULD SHARE");
    for (i = 0; i < n_models; i++) {
        const struct assess_model *m = &models[i];
        table_span(&t, PLAIN, m->name);
        table_cell(&t, PLAIN, "%lld", (long long)m->cards);
        table_cell(&t, PLAIN, "%lld", (long long)m->held);
        if (m->least == m->most)
            table_cell(&t, PLAIN, "%lld", (long long)m->least);
        else
            table_cell(&t, PLAIN, "%lld-%lld", (long long)m->least, (long long)m->most);
        table_cell(&t, PLAIN, "%lld", (long long)m->pods);
        table_cell(&t, PLAIN, "%lld", (long long)m->sharing);
        table_end(&t);
    }
    table_write(&t, out);
    table_header(&of_pods, "POD\tNODE\tUSED(MiB)\tNEEDS(MiB)\tCOULD SHARE");
    for (i = 0; i < n_pods; i++) {
        const struct assess_pod *p = pods[i];
        if (!details && !p->why)
            continue;
        table_cell(&of_pods, PLAIN, "%.*s/%.*s", SPAN_ARG(p->ns), SPAN_ARG(p->name));
        table_span(&of_pods, PLAIN, p->node->name);
        table_cell(&of_pods, PLAIN, "%s", show_amount(p->used, 1).s);
        table_cell(&of_pods, PLAIN, "%s", show_amount(p->need ? p->need : -1, 1).s);
        if (p->tied && !p->why)
            table_cell(&of_pods, PLAIN, "yes, on its node: %s", p->tied);
        else
            table_cell(&of_pods, PLAIN, "%s%s", p->why ? "no: " : "yes",
                       p->why ? p->why : "");
        table_end(&of_pods);
    }
    if (of_pods.n > 5)
        table_write(&of_pods, out);
    json_array_foreach(a->warnings, i, warning)
        table_line(out, "! Prometheus: %s",
                   json_string_value(warning) ? json_string_value(warning) : "warning");
}

static json_t *to_json(const struct assess *a, const struct assess_model *models,
                       size_t n_models, struct assess_pod *const *pods, size_t n_pods)
{
    json_t *of_models = json_array(), *of_pods = json_array();
    for (size_t i = 0; i < n_models; i++) {
        const struct assess_model *m = &models[i];
        json_array_append_new(
            of_models,
            json_pack("{s:o,s:I,s:I,s:I,s:I,s:I,s:I}", "model", show_json_text(m->name),
                      "cards", (json_int_t)m->cards, "cardsHeld", (json_int_t)m->held,
                      "cardsNeeded", (json_int_t)m->least, "cardsNeededAtMost",
                      (json_int_t)m->most, "pods", (json_int_t)m->pods,
                      "podsThatCouldShare", (json_int_t)m->sharing));
    }
    for (size_t i = 0; i < n_pods; i++) {
        const struct assess_pod *p = pods[i];
        json_t *o = json_pack("{s:o,s:o,s:o,s:o,s:b,s:s*,s:s*}", "namespace",
                              show_json_text(p->ns), "name", show_json_text(p->name),
                              "node", show_json_text(p->node->name), "model",
                              show_json_text(p->node->model), "couldShare", !p->why,
                              "reason", p->why, "staysOnNode", p->tied);
        if (p->used >= 0)
            json_object_set_new(o, "usedMiB", json_integer(p->used));
        if (p->need)
            json_object_set_new(o, "neededMiB", json_integer(p->need));
        json_array_append_new(of_pods, o);
    }
    return json_pack("{s:o,s:o,s:O}", "models", of_models, "pods", of_pods, "warnings",
                     a->warnings);
}

static int compare_models(const void *x, const void *y)
{
    return span_cmp(((const struct assess_model *)x)->name,
                    ((const struct assess_model *)y)->name);
}

void assess_write(struct buf *out, struct assess *a, int64_t headroom,
                  enum show_format format, bool details, bool colors)
{
    size_t most_nodes = json_object_size(a->nodes), most_pods = json_object_size(a->pods);
    size_t n_nodes = 0, n_pods = 0, n_models = 0;
    cleanup_free struct assess_node *nodes = xcalloc(most_nodes + 1, sizeof *nodes);
    cleanup_free struct assess_pod *all = xcalloc(most_pods + 1, sizeof *all);
    cleanup_free struct assess_pod **pods = xcalloc(most_pods + 1, sizeof *pods);
    cleanup_free struct assess_model *models = xcalloc(most_nodes + 1, sizeof *models);
    json_t *o, *items = json_array(), *objects = json_array();
    const char *key;
    json_object_foreach(a->nodes, key, o)
    {
        struct assess_node *n = &nodes[n_nodes++];
        *n = (struct assess_node){
            .name = span_of(key), .object = o, .shared = json_object()};
        find_cards(a, n);
        model_of(models, &n_models, n->model)->cards += n->n;
        json_array_append(objects, o);
    }
    defrag_rules_add_nodes(a->rules, objects);
    json_object_foreach(a->pods, key, o)
    {
        struct assess_pod *p = &all[n_pods];
        struct span node = session_text(json_object_get(o, "spec"), "nodeName");
        size_t i = 0;
        while (i < n_nodes && !span_eq(nodes[i].name, node))
            i++;
        if (i == n_nodes)
            continue; /* of a node that was not given */
        *p = (struct assess_pod){.object = o, .node = &nodes[i]};
        read_pod(a, p, headroom);
        pods[n_pods++] = p;
        struct assess_model *m = model_of(models, &n_models, p->node->model);
        m->pods++;
        m->sharing += !p->why;
        json_array_append(items, o);
    }
    defrag_rules_add_pods(a->rules, a->ledger, items);
    for (size_t i = 0; i < n_nodes; i++) {
        struct assess_node *n = &nodes[i];
        int64_t of_one =
            number_of(at(n->object, "metadata", "labels"), "nvidia.com/gpu.replicas");
        of_one = of_one ? of_one : 1;
        int64_t held =
            (n->plain + of_one - 1) / of_one + (int64_t)json_object_size(n->shared);
        struct assess_model *m = model_of(models, &n_models, n->model);
        held = held < n->n ? held : n->n;
        m->held += held;
        m->unseen += n->mib ? 0 : held;
        json_decref(n->shared);
    }
    struct rng rng;
    rng_init(&rng, 1);
    qsort(pods, n_pods, sizeof *pods, compare_pods);
    size_t first = 0; /* those that cannot share have their cards first */
    while (first < n_pods && (pods[first]->why || pods[first]->tied))
        first++;
    cleanup_free struct assess_pod **order = xcalloc(n_pods + 1, sizeof *order);
    if (n_pods)
        memcpy(order, pods, n_pods * sizeof *order);
    for (size_t k = 0, work = 0; k < ORDERS && (!k || work < WORK); k++) {
        try_order(a, order, n_pods, nodes, n_nodes, models, n_models);
        work += (n_pods + 1) * (n_nodes + 1);
        for (size_t i = n_pods; i > first + 1; i--) {
            size_t with = first + rng_below(&rng, i - first);
            struct assess_pod *p = order[with];
            order[with] = order[i - 1];
            order[i - 1] = p;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < n_models; i++) { /* what they hold today is possible, too */
        struct assess_model m = models[i];
        m.least = m.least < m.held - m.unseen ? m.least + m.unseen : m.held;
        m.most = m.most < m.held - m.unseen ? m.most + m.unseen : m.held;
        if (m.most < m.least)
            m.most = m.least;
        if (m.cards || m.pods)
            models[kept++] = m;
    }
    n_models = kept;
    qsort(models, n_models, sizeof *models, compare_models);
    if (format == SHOW_JSON)
        show_dump(out, to_json(a, models, n_models, pods, n_pods));
    else
        write_table(out, a, models, n_models, pods, n_pods, details, colors);
    json_decref(items);
    json_decref(objects);
}

/* -- the command -- */

static int read_file(struct assess *a, const char *path, struct err *err)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
    json_error_t why;
    json_t *j = NULL;
    int c, rc = 0;
    if (!f)
        return err_set(err, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    do { /* one value after the other */
        while ((c = fgetc(f)) == ' ' || c == '\n' || c == '\r' || c == '\t')
            ;
        if (c == EOF)
            break;
        ungetc(c, f);
        j = json_loadf(f, JSON_DISABLE_EOF_CHECK, &why);
        rc = j ? assess_add(a, j, err) : err_set(err, ERR_INVALID, "%s", why.text);
        json_decref(j);
    } while (!rc);
    if (f != stdin)
        fclose(f);
    return rc ? err_wrap(err, "%s", path) : 0;
}

static int ask_prometheus(struct assess *a, const struct cli_config *c, struct err *err)
{
    cleanup_buf struct buf query = {0}, path = {0};
    const char *host = strstr(c->prometheus, "://"),
               *slash = host ? strchr(host + 3, '/') : NULL;
    size_t n = slash ? (size_t)(slash - c->prometheus) : strlen(c->prometheus);
    cleanup_free char *origin = xmemdup0(c->prometheus, n);
    struct span prefix = span_of(slash);
    while (prefix.n && prefix.p[prefix.n - 1] == '/')
        prefix.n--;
    buf_printf(&path, "%.*s/api/v1/query?query=", SPAN_ARG(prefix));
    assess_query(&query, c->window_ms);
    list_watch_escape(&path, buf_span(&query));
    struct kube_client *client =
        kube_client_at(origin, c->prometheus_ca, c->prometheus_token, err);
    struct session s = {.config = c, .client = client};
    unsigned status;
    json_t *answer = client ? session_get(&s, path.p, &status, err) : NULL;
    int rc = answer ? assess_add(a, answer, err) : -1;
    json_decref(answer);
    kube_client_free(client);
    return rc ? err_wrap(err, "--prometheus") : 0;
}

static int add_page(void *ctx, const json_t *list, struct err *err)
{
    return assess_add(ctx, list, err);
}

int assess_run(struct buf *out, struct session *s, bool colors, struct err *err)
{
    static const char *const lists[] = {"/api/v1/nodes", "/api/v1/pods",
                                        "/apis/core.run-linux.com/v1/scvs"};
    const struct cli_config *c = s->config;
    struct assess *a = assess_new();
    int rc = 0;
    if (!c->from.n &&
        !(s->client = kube_connect_in(c->kubeconfig, c->context, &s->ns, err)))
        rc = -1;
    for (size_t i = 0; i < c->from.n && !rc; i++)
        rc = read_file(a, c->from.items[i], err);
    for (size_t i = 0; i < ARRAY_LEN(lists) && !c->from.n && !rc; i++) {
        rc = session_list(s, lists[i], add_page, a, err);
        if (rc && i == 2 && err->code == ERR_NOT_FOUND)
            rc = 0; /* scv-agent was never installed */
    }
    if (c->prometheus && !rc)
        rc = ask_prometheus(a, c, err);
    if (!rc)
        assess_write(out, a, c->headroom, c->format, c->details, colors);
    assess_free(a);
    return rc;
}
