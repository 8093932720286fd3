/* SPDX-License-Identifier: Apache-2.0 */

/* assess: reads who holds GPUs and what they use, and plays the pods onto shared cards. */

#include "cli/assess.h"

#include <stdlib.h>

#include "base/mem.h"
#include "cli/defrag.h"
#include "cli/show.h"
#include "cli/table.h"
#include "domain/dialect.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "kube/list_watch.h"
#include "placement/select.h"

enum { MIB = 1 << 20, MIB_MAX = NODE_CARD_MIB_MAX };

#define NODE_MODEL "nvidia.com/gpu.product"
#define NODE_CARDS "nvidia.com/gpu.count"
#define NODE_MIB   "nvidia.com/gpu.memory"

#define SEVERAL_CARDS "uses several cards"

/* All cards of a node have the model of its first, because labels name only one. */
struct host {
    const struct ledger_node *ledger;
    struct span model;
    int64_t cards, alone; /* all; those that pods hold alone */
    int64_t total_mib;    /* of its largest card, with what the driver keeps */
    json_t *shared;       /* those that sharing pods hold, as keys */
};

struct holder {
    struct host *host;
    struct ledger_pod *pod;
    int64_t used, need;     /* MiB; 0: unknown */
    const char *why, *tied; /* it cannot share; it stays on its node. NULL: it can */
    json_t *asks;           /* of a pod of HAMi, as ask; NULL */
};

struct assess {
    const json_t *documents;
    const struct cli_config *config;
    struct dialect hami;
    int64_t unit_mib;
    struct ledger *ledger;
    json_t *scvs; /* by name */
    /* MiB by "NAMESPACE/POD": its own, and of all pods of its card. */
    json_t *used, *used_cards;
    bool answered;         /* by Prometheus */
    json_t *models, *pods; /* the result, by name */
    struct host *hosts;
    struct holder *holders;
    size_t n_hosts, n_holders;
};

static int64_t bounded(int64_t n)
{
    return n < 0 ? 0 : n < MIB_MAX ? n : MIB_MAX;
}

/* -- what pods used -- */

/* Notes what was measured, unless more was, and returns the most; 0: nothing was. */
static int64_t used(json_t *by_pod, struct span ns, struct span pod, int64_t mib)
{
    cleanup_buf struct buf key = {0};
    buf_printf(&key, "%.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(pod));
    int64_t most = json_integer_value(json_object_get(by_pod, key.p));
    if (mib <= most)
        return most;
    json_object_set_new(by_pod, key.p, json_integer(mib));
    return mib;
}

/* Bytes that each pod used at most on one card in a week, with the label `of` if all pods of the
 * card did. Prometheus renames labels of an exporter if it has one of that name itself. */
#define MOST(metric)                                                                     \
    "label_replace(label_replace(max_over_time(" metric "[1w]),"                         \
    "\"pod\",\"$1\",\"exported_pod\",\"(.+)\"),"                                         \
    "\"namespace\",\"$1\",\"exported_namespace\",\"(.+)\")"
#define QUERY                                                                            \
    "label_replace(1048576*max by(namespace,pod)(" MOST(                                 \
        "DCGM_FI_DEV_FB_USED") "),\"of\",\"card\",\"pod\",\".*\") or "                   \
                               "max by(namespace,pod)(sum by(namespace,pod,uuid)("       \
                               "max by(namespace,pod,uuid,container,exported_container)" \
                               "(" MOST(                                                 \
                                   "gpushare_container_gpu_memory_used_bytes") ")))"

static int read_answer(struct assess *a, const json_t *answer, struct err *err)
{
    const json_t *sample;
    size_t i;
    a->answered = true;
    if (!span_eq(jpath_text(answer, "data.resultType"), SPAN("vector")))
        return err_set(
            err, ERR_INVALID,
            "neither objects of Kubernetes nor a vector of Prometheus \"%.*s\"",
            SPAN_ARG(jpath_text(answer, "error")));
    json_array_foreach(jpath(answer, "data.result"), i, sample)
    {
        const char *text = jpath_string(sample, "value.1");
        char *end;
        double mib = strtod(text, &end) / MIB;
        if (end == text || *end)
            return err_set(err, ERR_INVALID, "a sample of Prometheus has no number");
        if (mib >= 0 && mib < MIB_MAX) /* neither NaN nor infinite */
            used(jpath(sample, "metric.of") ? a->used_cards : a->used,
                 jpath_text(sample, "metric.namespace"), jpath_text(sample, "metric.pod"),
                 mib > 1 ? (int64_t)(mib + 0.999999) : 1);
    }
    return 0;
}

/* -- objects -- */

/* Calls `read` for each object of the kind. Items of a "PodList" need not name theirs. */
static void each(struct assess *a, const char *kind,
                 void (*read)(struct assess *a, json_t *o))
{
    const json_t *list;
    json_t *o;
    size_t i, k;
    json_array_foreach(a->documents, i, list)
    {
        struct span of = jpath_text(list, "kind");
        of.n -= of.n > 4 ? 4 : of.n;
        json_array_foreach(json_object_get(list, "items"), k, o)
        {
            struct span own = jpath_text(o, "kind");
            if (span_eq(own.n ? own : of, span_of(kind)))
                read(a, o);
        }
    }
}

/* The bytes of the object, in the arena. */
static void reread(struct jread *j, struct arena *a, const json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);
    struct span own = arena_copy(a, span_of(text));
    free(text);
    jread_init(j, own.p, own.n);
}

static void read_scv(struct assess *a, json_t *o)
{
    struct span name = jpath_text(o, "metadata.name");
    const json_t *held, *use;
    size_t i, k;
    if (!name.n || json_object_get(a->scvs, name.p))
        return;
    json_object_set(a->scvs, name.p, o);
    json_array_foreach(a->answered ? NULL : jpath(o, "status.podList"), i, held)
    {
        json_array_foreach(json_object_get(held, "usage"), k, use)
        {
            struct span ns = jpath_text(held, "namespace"),
                        pod = jpath_text(held, "name");
            const json_t *mib = json_object_get(use, "usedMemory");
            if (json_is_integer(mib)) /* at least 1 */
                used(a->used, ns, pod,
                     used(a->used, ns, pod, 0) + 1 +
                         bounded(json_integer_value(mib) - 1));
        }
    }
}

/* Adds to a number in the row of the node's model. */
static void count(struct assess *a, const struct host *h, const char *key, int64_t more)
{
    json_t *row = json_object_getn(a->models, h->model.p, h->model.n);
    if (!row) {
        row = json_pack("{s:i,s:i,s:i,s:i,s:i}", "cards", 0, "cardsHeld", 0,
                        "cardsNeeded", 0, "pods", 0, "podsThatCouldShare", 0);
        json_object_setn_new(a->models, h->model.p, h->model.n, row);
    }
    json_object_set_new(row, key, json_integer(jpath_number(row, key) + more));
}

static struct span label(const json_t *labels, const char *key)
{
    return jpath_text(json_object_get(labels, key), "");
}

static int64_t label_number(const json_t *labels, const char *key)
{
    int64_t n = 0;
    return span_i64(label(labels, key), &n) ? bounded(n) : 0;
}

/* Gives the ledger the node with empty cards: those of the Scv, else as the labels of GPU feature
 * discovery say. */
static void read_host(struct assess *a, json_t *o)
{
    cleanup_arena struct arena scratch = {0};
    const json_t *labels = jpath(o, "metadata.labels");
    struct host *h = &a->hosts[a->n_hosts];
    struct scv_card cards[SCV_MAX_CARDS];
    struct node node = {0};
    struct jread j;
    reread(&j, &scratch, o);
    node_read(&j, &scratch, &node);
    struct span name = node.meta.name;
    if (!name.n || ledger_node_has(a->ledger, name, LEDGER_NODE))
        return;
    const json_t *list =
        jpath(json_object_getn(a->scvs, name.p, name.n), "status.cardList");
    const json_t *card = json_array_get(list, 0);
    struct scv scv = {.meta.name = name, .cards = cards};
    const struct node_resources *c = &node.capacity;
    int64_t n = (int64_t)json_array_size(list)
                    ?: label_number(labels, NODE_CARDS)
                    ?: bounded(c->cards > 0 ? c->cards : c->devices);
    n = n < SCV_MAX_CARDS ? n : SCV_MAX_CARDS;
    if (!a->config->unit_mib && session_counts_mib(c))
        a->unit_mib = 1;
    for (int32_t i = 0; i < n; i++) {
        const json_t *own = json_array_get(list, (size_t)i);
        int64_t total = own ? bounded(jpath_number(own, "totalMemory"))
                            : label_number(labels, NODE_MIB)
                                  ?: c->cards > 0
                                      ? bounded(c->mem / c->cards) * a->unit_mib
                                      : 0;
        int64_t mib = bounded(total - jpath_number(own, "reservedMemory"));
        h->total_mib = total > h->total_mib ? total : h->total_mib;
        if (mib)
            cards[scv.n_cards++] = (struct scv_card){
                .id = i, .healthy = true, .total_mib = mib, .free_mib = mib};
    }
    node.mode = NODE_ANY;
    ledger_node_seen(a->ledger, &node, 1);
    ledger_scv_seen(a->ledger, &scv, 1);
    h->ledger = ledger_node_find(a->ledger, name);
    h->cards = n;
    h->model = card ? jpath_text(card, "model") : label(labels, NODE_MODEL);
    h->model = h->model.n ? h->model : SPAN("unknown");
    h->shared = json_object();
    a->n_hosts++;
    if (n)
        count(a, h, "cards", n);
}

/* Writes what a pod of HAMi asks of gpushare; *rejected: why gpushare rejects it. */
static json_t *ask(struct dialect_pod *hami, int64_t size_mib, int64_t total_mib,
                   bool *rejected)
{
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    *rejected = dialect_request(hami, &err) || dialect_join(hami, &err);
    if (*rejected)
        buf_adds(&text, err.msg);
    else
        dialect_write(&text, hami, size_mib, total_mib);
    return show_json_text(buf_span(&text));
}

/* Decides whether the pod could share, and gives it to the ledger with what it needs. `hami`: NULL
 * unless it asks in HAMi's words. */
static void add_holder(struct assess *a, struct host *h, json_t *o, struct pod *pod,
                       const struct request *today, struct dialect_pod *hami)
{
    struct holder *p = &a->holders[a->n_holders++];
    struct span ours = jpath_text(o, "metadata.annotations." KEY_MEM_IDX);
    int64_t size = h->ledger->largest_mib, limit = 0;
    bool alone = today->kind != REQUEST_MEMORY;
    struct dialect_promise promise = {0};
    uint32_t cards = today->cards;
    bool rejected = false;
    if (!alone)
        limit = request_mib(today, size, 0);
    if (hami) {
        p->asks = ask(hami, size, h->total_mib, &rejected);
        cards = rejected ? cards : hami->cards;
        alone = hami->alone;
        limit = dialect_mib(hami, size, h->total_mib);
        dialect_promise(hami, pod->node, &promise, NULL);
        for (size_t i = 0; i < promise.n; i++) {
            const struct dialect_share *s = &promise.shares[i];
            limit = i && limit > s->mib ? limit : s->mib;
            alone = s->cores == REQUEST_CORE;
            json_object_setn_new(h->shared, s->uuid.p, s->uuid.n, json_true());
        }
        limit = limit < size ? limit : 0; /* a whole card says nothing about the need */
    }
    for (struct span rest = ours; rest.n;) {
        struct span card = span_cut(&rest, ',');
        json_object_setn_new(h->shared, card.p, card.n, json_true());
    }
    if (!promise.n && !ours.n)
        h->alone += today->cards;
    p->host = h;
    p->used = used(a->used, pod->meta.ns, pod->meta.name, 0);
    if (!p->used && alone)
        p->used = used(a->used_cards, pod->meta.ns, pod->meta.name, 0);
    p->need = p->used ? p->used + (p->used * a->config->headroom + 99) / 100 : limit;
    p->tied = defrag_rules_ties(json_object_get(o, "spec"));
    p->why = !size            ? "the memory of its node's cards is unknown"
             : rejected       ? json_string_value(p->asks)
             : cards > 1      ? SEVERAL_CARDS
             : !p->need       ? "its memory was not measured"
             : p->need > size ? "needs more than a card with the head room"
                              : NULL;
    int64_t mib = p->why ? size : p->need;
    const struct request r = {.kind = REQUEST_MEMORY,
                              .cards = cards,
                              .units = mib * cards,
                              .mib_per_card = mib,
                              .ignores_links = true};
    pod->node = (struct span){0};
    p->pod = ledger_pod_add(a->ledger, pod, &r, NULL);
    count(a, h, "pods", 1);
    count(a, h, "podsThatCouldShare", !p->why);
}

static void read_pod(struct assess *a, json_t *o)
{
    const struct request_rules rules = {.unit_mib = a->unit_mib};
    cleanup_arena struct arena scratch = {0};
    struct request today = {0};
    struct dialect_pod hami;
    struct pod pod = {0};
    struct jread j, again;
    size_t i = 0;
    reread(&j, &scratch, o);
    again = j;
    pod_read(&j, &scratch, &pod);
    dialect_read(&again, &scratch, &a->hami, &hami);
    struct limits limits = limits_of(&pod);
    if (request_of(&pod, &rules, &scratch, &today, NULL))
        request_of_limits(&limits, &rules, &today);
    if (pod_is_terminal(&pod) || ledger_pod_find(a->ledger, pod.meta.uid))
        return;
    if (!pod.node.n && hami.certain) { /* a row for it */
        cleanup_buf struct buf key = {0};
        bool rejected;
        json_t *asks = ask(&hami, 0, 0, &rejected);
        bool several = !rejected && hami.cards > 1;
        bool no = rejected || hami.alone || several;
        buf_printf(&key, "%.*s/%.*s", SHOW_POD(&pod.meta));
        json_object_set_new(
            a->pods, key.p,
            json_pack("{s:s,s:o,s:o}", "couldShare", no ? "no" : "yes", "reason",
                      several ? json_string(SEVERAL_CARDS) : json_incref(asks), "asks",
                      asks));
    }
    if (!pod.node.n)
        return;
    if (today.kind == REQUEST_NONE)
        ledger_nongpu_seen(a->ledger, pod.meta.uid, pod.node, &pod.requests, 1);
    while (i < a->n_hosts && !span_eq(a->hosts[i].ledger->name, pod.node))
        i++;
    if (i < a->n_hosts && today.kind != REQUEST_NONE)
        add_holder(a, &a->hosts[i], o, &pod, &today,
                   hami.certain && today.kind == REQUEST_DEVICES ? &hami : NULL);
}

/* -- the cards that they need -- */

/* Those that cannot share or move come first, and then the largest. */
static int compare(const void *x, const void *y)
{
    const struct holder *p = x, *q = y;
    return ((q->why != NULL) - (p->why != NULL))
               ?: ((q->tied != NULL) - (p->tied != NULL))
               ?: quantity_compare(q->need, p->need);
}

/* Places each pod on the node with the fullest card in use that takes it, else on one
 * with an empty card. */
static void place_all(struct assess *a)
{
    qsort(a->holders, a->n_holders, sizeof *a->holders, compare);
    for (const struct holder *p = a->holders; p < a->holders + a->n_holders; p++) {
        const struct request *r = p->pod->request;
        const struct ledger_node *best = NULL;
        struct ledger_share shares[REQUEST_MAX_CARDS] = {0};
        struct resources wants = ledger_pod_requests(p->pod);
        int64_t least = INT64_MAX;
        uint64_t cards = 0, chosen;
        cleanup_buf struct buf key = {0};
        buf_printf(&key, "%.*s/%.*s", SHOW_POD(p->pod));
        json_t *row = json_pack("{s:o,s:o*,s:o*,s:s,s:s*,s:o*}", "node",
                                show_json_text(p->host->ledger->name), "usedMiB",
                                p->used ? json_integer(p->used) : NULL, "neededMiB",
                                p->need ? json_integer(p->need) : NULL, "couldShare",
                                p->why    ? "no"
                                : p->tied ? "on its node"
                                          : "yes",
                                "reason", p->why ?: p->tied ?: json_string_value(p->asks),
                                "asks", p->asks);
        json_object_set_new(a->pods, key.p, row);
        for (const struct host *h = a->hosts; h < a->hosts + a->n_hosts; h++) {
            const struct ledger_node *to = h->ledger;
            if (select_fit(to, r) != FIT_YES ||
                (h != p->host &&
                 (p->tied || p->why || !span_eq(h->model, p->host->model))))
                continue;
            struct resources taken = ledger_node_requested(to);
            struct select_view view;
            select_view(&view, to, NULL, SELECT_AS_IS);
            if (select_cards(&view, r, SELECT_ALL_CARDS, &chosen) != FIT_YES ||
                !ledger_requests_fit(to, &taken, &wants))
                continue;
            const struct card *c = &to->cards[__builtin_ctzll(chosen)];
            int64_t order = c->free_mib + (c->pods ? 0 : MIB_MAX);
            if (order >= least || (h != p->host && !defrag_rules_allow(p->pod, to, true)))
                continue;
            least = order;
            best = to;
            cards = chosen;
        }
        for (uint32_t i = 0; cards; cards &= cards - 1)
            shares[i++] =
                (struct ledger_share){.card = best->cards[__builtin_ctzll(cards)].index,
                                      .mib = r->mib_per_card};
        if (best)
            ledger_pod_place(a->ledger, p->pod, best->name, shares, r->cards);
        else if (p->host->ledger->largest_mib)
            count(a, p->host, "cardsNeeded", r->cards);
    }
    for (const struct host *h = a->hosts; h < a->hosts + a->n_hosts; h++) {
        int64_t held = h->alone + (int64_t)json_object_size(h->shared);
        held = held < h->cards ? held : h->cards;
        if (held)
            count(a, h, "cardsHeld", held);
        if (held && !h->ledger->largest_mib) /* they stay as they are */
            count(a, h, "cardsNeeded", held);
        for (uint32_t c = 0; c < h->ledger->n_cards; c++)
            count(a, h, "cardsNeeded", h->ledger->cards[c].pods > 0);
    }
}

/* Appends a table with the keys of the rows and these members of them; tabs separate. */
static void write_rows(struct buf *out, json_t *rows, const char *header,
                       const char *members, bool colors)
{
    cleanup_table struct table t = {.colors = colors};
    const char *name;
    json_t *row;
    table_header(&t, header);
    json_object_foreach(rows, name, row)
    {
        table_cell(&t, PLAIN, "%s", name);
        for (struct span rest = span_of(members); rest.n;) {
            struct span key = span_cut(&rest, '\t');
            const json_t *value = json_object_getn(row, key.p, key.n);
            if (json_is_integer(value))
                table_cell(&t, PLAIN, "%lld", (long long)json_integer_value(value));
            else
                table_span(&t, PLAIN,
                           value ? span_of(json_string_value(value)) : SPAN("-"));
        }
        table_end(&t);
    }
    table_write(&t, out);
}

int assess_write(struct buf *out, const json_t *documents, const struct cli_config *c,
                 bool colors, struct err *err)
{
    static const struct ledger_settings settings = {.unit_mib = 1};
    struct assess a = {.documents = documents,
                       .config = c,
                       .hami = dialect_hami,
                       .unit_mib = c->unit_mib ?: 1024,
                       .ledger = ledger_new(&settings, 1),
                       .scvs = json_object(),
                       .used = json_object(),
                       .used_cards = json_object(),
                       .models = json_object(),
                       .pods = json_object()};
    const json_t *list;
    size_t i, most = 1;
    int rc = 0;
    json_array_foreach(documents, i, list)
    {
        most += json_array_size(json_object_get(list, "items"));
        struct span kind = jpath_text(list, "kind");
        if (!rc && json_object_get(list, "nodes")) /* the extender's view */
            rc = dialect_configure(&a.hami, jpath_text(list, "hamiValues"), err);
        else if (!rc && !kind.n)
            rc = read_answer(&a, list, err);
        else if (!rc && !json_is_array(json_object_get(list, "items")))
            rc = err_set(
                err, ERR_INVALID,
                "a single %.*s: expected a list, such as of `kubectl get -o json`",
                SPAN_ARG(kind));
    }
    cleanup_free struct host *hosts = a.hosts = xcalloc(most, sizeof *hosts);
    cleanup_free struct holder *holders = a.holders = xcalloc(most, sizeof *holders);
    each(&a, "Scv", read_scv);
    each(&a, "Node", read_host);
    each(&a, "Pod", read_pod);
    place_all(&a);
    if (!rc && c->format == SHOW_JSON) {
        show_dump(out, json_pack("{s:O,s:O}", "models", a.models, "pods", a.pods));
    } else if (!rc) {
        write_rows(out, a.pods, "POD\tNODE\tUSED(MiB)\tNEEDS(MiB)\tCOULD SHARE\tREASON",
                   "node\tusedMiB\tneededMiB\tcouldShare\treason", colors);
        table_line(out, "%s", "");
        write_rows(out, a.models, "MODEL\tCARDS\tHELD\tNEEDED\tPODS\tCOULD SHARE",
                   "cards\tcardsHeld\tcardsNeeded\tpods\tpodsThatCouldShare", colors);
        if (!a.answered)
            table_line(out, "%s",
                       "USED is of this moment; with --prometheus, the most of a week.");
    }
    for (i = 0; i < a.n_hosts; i++)
        json_decref(hosts[i].shared);
    json_decref(a.scvs);
    json_decref(a.used);
    json_decref(a.used_cards);
    json_decref(a.models);
    json_decref(a.pods);
    ledger_free(a.ledger);
    return rc;
}

/* -- the command -- */

int assess_run(struct buf *out, struct session *s, bool colors, struct err *err)
{
    static const char *const lists[] = {"/api/v1/nodes", "/api/v1/pods",
                                        "/apis/core.run-linux.com/v1/scvs"};
    const struct cli_config *c = s->config;
    json_auto_t *documents = json_array();
    json_error_t why;
    for (size_t i = 0; i < c->from.n; i++)
        if (json_array_append_new(documents,
                                  json_load_file(c->from.items[i], JSON_ALLOW_NUL, &why)))
            return err_set(err, ERR_INVALID, "%s: %s", c->from.items[i], why.text);
    if (!c->from.n && session_connect(s, err))
        return -1;
    if (!c->from.n)
        json_array_append(documents, (json_t *)session_view(s)); /* or nothing */
    for (size_t i = 0; !c->from.n && i < ARRAY_LEN(lists); i++)
        if (json_array_append_new(documents, session_list(s, lists[i], err)) &&
            (i < 2 || (err->code != ERR_NOT_FOUND && err->code != ERR_FORBIDDEN)))
            return -1; /* without scv-agent, there are no Scvs */
    if (c->prometheus) {
        cleanup_buf struct buf path = {0};
        struct session of = {.config = c,
                             .client = kube_client_at(c->prometheus, NULL, NULL, err)};
        buf_adds(&path, "/api/v1/query?query=");
        list_watch_escape(&path, SPAN(QUERY));
        json_t *answer = of.client ? session_get(&of, path.p, err) : NULL;
        kube_client_free(of.client);
        if (json_array_append_new(documents, answer))
            return err_wrap(err, "--prometheus");
    }
    return assess_write(out, documents, c, colors, err);
}
