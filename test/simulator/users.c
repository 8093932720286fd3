/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Users and failures: pods of every form are created and deleted, kubelets run them, Scv
 * objects disappear and return, cards become unhealthy, administrators list them in
 * ConfigMaps, the history is compacted, replicas crash and stall, the Lease is deleted.
 */

enum {
    PODS_MAX = 30, /* pending at a time */
    RENEW_MS = 2000,
};
#define LEASES "/apis/coordination.k8s.io/v1/namespaces/"

/* -- scv-agents -- */

void put_scv(struct world *w, int node, bool create)
{
    bool published = kubelet_publishes(w, node);
    cleanup_json_value json_t *reply = NULL;
    cleanup_buf struct buf body = {0};
    cleanup_free char *path =
        xasprintf("/apis/core.run-linux.com/v1/scvs%s%s", create ? "" : "/",
                  create ? "" : node_names[node]);
    buf_printf(&body,
               "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
               "\"name\":\"n%d\"},\"spec\":{\"updateInterval\":1000},\"status\":{"
               "\"cardList\":[",
               node);
    const struct link_table *links = &w->links[node];
    int n = 0;
    for (int card = 0; card < oracle_cards(node); card++) {
        bool instance = oracle_is_instance(node, card);
        char uuid[32], parent[32] = "";
        if (node == MIG_NODE && card >= MIG_CARD &&
            w->mig == (instance ? MIG_OFF : MIG_ON))
            continue;
        if (instance)
            oracle_uuid(node, MIG_CARD, parent);
        buf_printf(
            &body,
            "%s{\"id\":%d,\"health\":\"%s\",\"model\":\"%s\",\"clock\":%d,"
            "\"uuid\":\"%s\",\"totalMemory\":%lld,\"freeMemory\":%lld,"
            "\"migProfile\":\"%s\",\"parentUUID\":\"%s\"",
            n++ ? "," : "", oracle_id(node, card),
            w->unhealthy[node][card] || (instance && w->mig == MIG_ENDS) ? "Unhealthy"
                                                                         : "Healthy",
            oracle_model(node, card), oracle_clock(node, card),
            oracle_uuid(node, card, uuid), (long long)oracle_card_mib(w, node, card),
            (long long)oracle_card_mib(w, node, card), oracle_profile(node, card),
            parent);
        for (int i = 0; i < oracle_cards(node) && links->known; i++)
            buf_printf(&body, "%s%s", i ? " " : ",\"links\":\"",
                       i == card ? "X" : oracle_links[links->row[card][i]]);
        buf_adds(&body, links->known ? "\"}" : "}");
    }
    buf_adds(&body, w->isolation[node] ? "],\"isolation\":[\"of a later version\""
                                       : "],\"isolation\":null");
    for (size_t i = 0; i < ARRAY_LEN(oracle_enforcers); i++)
        if (w->isolation[node] >> i & 1)
            buf_printf(&body, ",\"%s\"", oracle_enforcers[i]);
    buf_printf(
        &body, "%s%s,\"cardNumber\":%d,\"podList\":%s", w->isolation[node] ? "]" : "",
        w->in_words && node == HAMI_NODE && !w->left ? ",\"dialect\":\"hami\"" : "", n,
        published ? "[" : "null}}");
    oracle_update_pod_list(w, node, published);
    if (published) {
        kubelet_add_list(w, &body, node);
        buf_adds(&body, "]}}");
    }
    unsigned status = api_reply_of(w, create ? "POST" : "PATCH", path, body.p, &reply);
    if (!create && status == 404)
        put_scv(w, node, true);
    else if (status >= 300)
        violated(w, "cannot write the Scv of n%d: %u", node, status);
    else
        kubelet_published(w, node, published,
                          sim_jsonx_str(reply, "metadata.resourceVersion"));
}

/*
 * Heartbeats. n0 always renews its Lease, n1 is sometimes suspended; n2 and n3 have the Scv of
 * another daemon and no Lease. Whatever happens to watches, lists and processes, n0, n2 and n3
 * must never be stale in any replica; not even when the API server is unreachable for replicas
 * and agents alike.
 */
void agents_check(struct world *w, const struct replica *r)
{
    EACH_NODE(w, i)
    {
        const struct ledger_node *n = replica_node(r, i);
        bool stale = n && n->state == NODE_STALE;
        w->stats.stale += stale;
        if (stale && i != 1)
            violated(w, "r%d has a stale heartbeat of n%d", r->id, i);
    }
}

static void renew(struct world *w, int node)
{
    static const char leases[] = LEASES "nvidia-gpu-scheduler-node-lease/leases";
    cleanup_buf struct buf body = {0};
    buf_printf(
        &body,
        "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
        "{\"name\":\"n%d\"},\"spec\":{\"holderIdentity\":\"n%d\","
        "\"leaseDurationSeconds\":20,\"renewTime\":\"",
        node, node);
    clock_format_us(&body, wall_ms(w) * 1000);
    buf_adds(&body, "\"}}");
    if (api_call(w, "PATCH", body.p, "%s/n%d", leases, node) == 404 &&
        api_call(w, "POST", body.p, "%s", leases) != 201)
        violated(w, "cannot create the Lease of n%d", node);
}

static void renew_leases(struct world *w, void *arg)
{
    (void)arg;
    if (w->now_ms >= w->hangs_until && chance(w, 150))
        w->hangs_until = w->now_ms + between(w, 2000, 4 * GRACE_MS);
    if (w->now_ms >= w->agents_cut_until) {
        renew(w, 0);
        if (w->quiet || w->now_ms >= w->hangs_until)
            renew(w, 1);
    }
    at(w, w->now_ms + RENEW_MS, renew_leases, NULL, NULL);
}

void agents_start(struct world *w)
{
    api_call(w, "POST",
             "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":"
             "\"nvidia-gpu-scheduler-node-lease\"}}",
             "/api/v1/namespaces");
    renew_leases(w, NULL);
}

/* -- invalid requests that the API server accepts --
 *
 * The extender binds no such pod, but other programs do, and users edit bound pods.
 */

static const struct {
    const char *member; /* the new value; null: removed */
    bool in_labels;
} flaws[] = {
    /* The first ones make most requests invalid. */
    {"\"aliyun.com/gpu-count\":\"3\"", true},
    {"\"aliyun.com/gpu-count\":\"x\"", true},
    {"\"scv/memory\":\"8Gi\"", true},
    {"\"scv/number\":\"0\"", true},
    {"\"gpushare/placement\":\"best\"", false},
    {"\"nvidia-gpu-scheduler/gpu.model\":\" , \"", false},
    {"\"aliyun.com/gpu-count\":\"1.5\"", false},
    {"\"gpushare/gang-minimum\":\"four\"", false},
    {"\"gpushare/isolation\":\"limits\"", false},
    /* These are other requests, or a repair. */
    {"\"scv/memory\":\"500\"", true},
    {"\"scv/memory\":\"8100\"", true}, /* in units as much as the instance */
    {"\"scv/memory\":\"9000\"", true},
    {"\"scv/number\":\"1\"", true},
    {"\"aliyun.com/gpu-count\":\"2\"", true},
    {"\"aliyun.com/gpu-count\":null", true},
    {"\"scv/memory\":null", true},
    {"\"scv/number\":null,\"scv/memory\":null,\"scv/clock\":null", true},
    {"\"gpushare/placement\":null", false},
    {"\"nvidia-gpu-scheduler/gpu.model\":null", false},
    {"\"aliyun.com/gpu-count\":null", false},
    {"\"gpushare/isolation\":\"driver\"", false},
    {"\"gpushare/isolation\":null", false},
    {"\"gpushare/memory\":\"1Mi\"", false},
    {"\"gpushare/memory\":\"80%\"", false},
    {"\"gpushare/memory\":null", false},
};
enum { FLAWS = 8 };

const char *flaw_pick(struct world *w, bool *in_labels)
{
    int i = any(w, FLAWS);
    *in_labels = flaws[i].in_labels;
    return flaws[i].member;
}

static bool dice(struct world *w, uint64_t sides)
{
    return any(w, sides) == 0;
}

static void edit(struct world *w, const struct oracle_pod *p)
{
    /* The last ones are of slots. */
    int i = p->raw_slots && dice(w, 2) ? (int)ARRAY_LEN(flaws) - 1 - any(w, 3)
                                       : any(w, ARRAY_LEN(flaws));
    cleanup_free char *body =
        xasprintf("{\"metadata\":{\"%s\":{%s}}}",
                  flaws[i].in_labels ? "labels" : "annotations", flaws[i].member);
    trace(w, "users: edit %s: %s", p->uid, flaws[i].member);
    policy_patch(w, p->name, body);
    w->stats.edits++;
}

/* Pods that request by labels or slots are rare, and edits matter most for them. */
static void edit_any(struct world *w)
{
    bool bound = any(w, 4);
    const struct oracle_pod *p = oracle_pick(w, bound);
    for (int i = 0; p && !p->labeled && !p->raw_slots && i < 3; i++)
        p = oracle_pick(w, bound);
    if (p)
        edit(w, p);
}

static void on_edit(struct world *w, void *arg)
{
    const struct oracle_pod *p = oracle_find(w, arg);
    if (p)
        edit(w, p);
    free(arg);
}

void flaws_edit_soon(struct world *w, const char *uid)
{
    at(w, w->now_ms + between(w, 0, 500), on_edit, xstrdup(uid), free);
}

/* -- pods -- */

static void add_container(struct buf *b, const char *name, bool first, bool sidecar,
                          const char *resource, int64_t n, int64_t core)
{
    buf_printf(b, "%s{\"name\":\"%s%d\",\"image\":\"i\"%s", first ? "" : ",", name,
               (int)b->n, sidecar ? ",\"restartPolicy\":\"Always\"" : "");
    if (n)
        buf_printf(b, ",\"resources\":{\"limits\":{\"%s\":\"%lld\"", resource,
                   (long long)n);
    if (n && core)
        buf_printf(b, ",\"aliyun.com/gpu-core.percentage\":\"%lld\"", (long long)core);
    buf_adds(b, n ? "}}}" : "}");
}

static void add_annotations(struct world *w, struct buf *body, bool slots,
                            const char *flaw, const char *gang)
{
    static const char *const memory[] = {"6Gi", "2048Mi", "1537Mi", "12Gi", "1Gi",
                                         "50%", "33%",    "10%",    "100%", "75%"};
    static const char *const models[] = {"Tesla T4",        " tesla v100 ",
                                         "1g.8gb,Tesla T4", "Tesla V100, A100",
                                         "1G.8gb",          "A100 MIG 1g.8gb"};
    static const char *const links[] = {"NV", "NODE", "PIX", "NV", "PHB", "PXB", "NV2"};
    static const char *const isolations[] = {"driver",    "limit",  "mps",       "none",
                                             "limit-env", "driver", "limit-file"};
    buf_adds(body, ",\"annotations\":{\"a\":\"b\"");
    if (slots)
        buf_printf(body, ",\"gpushare/memory\":\"%s\"", ONE_OF(w, memory));
    if (dice(w, 4))
        buf_adds(body, ",\"gpushare/placement\":\"spread\"");
    if (dice(w, 8))
        buf_printf(body, ",%s", old_promise);
    if (w->stats.pods % 5 == 0)
        buf_printf(body, ",\"gpushare/min-link\":\"%s\"",
                   links[w->stats.pods / 5 % ARRAY_LEN(links)]);
    if (w->stats.pods % 6 < 3)
        buf_printf(body, ",\"gpushare/topology\":\"%s\"",
                   w->stats.pods % 6 && (gang || w->stats.pods % 18 == 1) ? "gang"
                                                                          : "none");
    if (w->stats.pods % 4 == 0)
        buf_printf(body, ",\"gpushare/isolation\":\"%s\"",
                   isolations[w->stats.pods / 4 % ARRAY_LEN(isolations)]);
    if (dice(w, 4))
        buf_printf(body, ",\"nvidia-gpu-scheduler/gpu.model\":\"%s\"", ONE_OF(w, models));
    if (flaw) /* the last value of a duplicate key counts */
        buf_printf(body, ",%s", flaw);
    buf_addc(body, '}');
}

/* `yoda`: the labels are the whole request. */
static void add_labels(struct world *w, struct buf *body, int64_t k, bool yoda,
                       const char *flaw, const char *gang)
{
    static const int clocks[] = {877, 3003, 5001, 9000};
    int form = any(w, 3);
    buf_adds(body, ",\"labels\":{\"a\":\"b\"");
    if (k > 1)
        buf_printf(body, ",\"aliyun.com/gpu-count\":\"%lld\"", (long long)k);
    if (yoda && form < 2)
        buf_printf(body, ",\"scv/memory\":\"%lld\"", (long long)between(w, 1, 12000));
    if (yoda && form > 0)
        buf_printf(body, ",\"scv/number\":\"%lld\"", (long long)between(w, 1, 2));
    if (dice(w, 8))
        buf_printf(body, ",\"scv/clock\":\"%d\"", ONE_OF(w, clocks));
    if (gang)
        buf_printf(body, ",\"scheduling.x-k8s.io/pod-group\":\"%s\"", gang);
    if (flaw)
        buf_printf(body, ",%s", flaw);
    buf_addc(body, '}');
}

/* Whole cards, MiB, percent, or all of a card and a part of its compute. */
static void add_words(struct world *w, struct buf *b, bool first)
{
    int64_t k = first && dice(w, 3) ? 2 : 1; /* rarely of another number than the first */
    buf_printf(b, "%s{\"name\":\"h%d\",\"image\":\"i\",\"resources\":{\"limits\":{",
               first ? "" : ",", (int)b->n);
    buf_printf(b, "\"nvidia.com/gpu\":\"%lld\"", (long long)k);
    int form = any(w, 6);
    if (form < 3)
        buf_printf(b, ",\"nvidia.com/gpumem\":\"%lld\"",
                   (long long)between(w, 500, 5000));
    else if (form < 5)
        buf_printf(b, ",\"nvidia.com/gpumem-percentage\":\"%lld\"",
                   (long long)between(w, 5, 50));
    if (form == 5 || dice(w, 3))
        buf_printf(b, ",\"nvidia.com/gpucores\":\"%lld\"",
                   (long long)(dice(w, 8) ? 100 : between(w, 1, 50)));
    buf_adds(b, "}}}");
}

/* `gang`: its name; NULL: none. */
static void create_pod(struct world *w, const char *gang)
{
    cleanup_buf struct buf body = {0}, apps = {0}, inits = {0};
    bool whole = dice(w, 6), devices = !whole && dice(w, w->in_words ? 3 : 10);
    bool words = devices && w->in_words;
    bool labels = !whole && !devices && dice(w, 6);
    bool shared = !whole && !devices && !labels;
    bool slots = shared && dice(w, 4);
    int64_t k = shared && dice(w, 5) ? between(w, 2, 3) : 1;
    const char *resource = whole     ? "aliyun.com/gpu-count"
                           : devices ? "nvidia.com/gpu"
                           : slots   ? "aliyun.com/gpu-share"
                                     : "aliyun.com/gpu-mem";
    int64_t most = labels ? 0 : whole || devices ? 2 : gang ? 3 : 10;
    int containers = (int)between(w, 1, words ? 2 : 3);
    for (int i = 0; i < containers && words; i++)
        add_words(w, &apps, i == 0);
    for (int i = 0; i < containers && !words; i++) {
        int64_t core = i == 0 && shared && dice(w, 3) ? k * 5 * between(w, 1, 20) : 0;
        int64_t n = labels      ? 0
                    : i == 0    ? k * between(w, 1, most / k)
                    : any(w, 3) ? 0
                                : k * between(w, 1, 2);
        n = slots && n ? k : n; /* on each of k cards */
        add_container(&apps, "c", i == 0, false, resource, n, core);
    }
    if (k == 1 && !labels && !words && dice(w, 4)) {
        int64_t core = shared && dice(w, 9) ? 30 : 0, n = between(w, 1, most);
        n = slots ? k : n;
        add_container(&inits, "i", true, any(w, 2), resource, n, core);
    }
    if (!labels && !w->in_words && dice(w, 30)) /* two resources in one pod */
        add_container(&apps, "x", false, false,
                      devices || whole ? "aliyun.com/gpu-mem" : "nvidia.com/gpu", 1, 0);
    bool in_labels = false;
    const char *flaw = dice(w, 15) ? flaw_pick(w, &in_labels) : NULL;
    buf_printf(&body,
               "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
               "\"%s%sp%llu\"",
               gang ? gang : "", gang ? "." : "", /* scheduler.c reads it */
               (unsigned long long)++w->stats.pods);
    add_annotations(w, &body, slots, in_labels ? NULL : flaw, gang);
    add_labels(w, &body, slots ? 1 : k, labels, in_labels ? flaw : NULL, gang);
    /* Priorities, and pods that a preemption has to leave alone. */
    if (w->preempts && dice(w, 8))
        buf_adds(&body, ",\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":"
                        "\"DaemonSet\",\"name\":\"d\",\"uid\":\"d\"}]");
    buf_adds(&body, "},\"spec\":{");
    if (w->preempts)
        buf_printf(&body, "\"priority\":%lld,", (long long)between(w, 0, 3) * 10);
    if (w->preempts && dice(w, 8))
        buf_adds(&body, "\"preemptionPolicy\":\"Never\",");
    buf_printf(&body, "\"containers\":[%s],\"initContainers\":[%s]", apps.p,
               inits.n ? inits.p : "");
    if (w->decides && !w->preempts && dice(w, 3))
        buf_printf(&body, ",\"priority\":%lld", (long long)between(w, -1, 2));
    buf_adds(&body, "}}");
    policy_create(w, body.p);
}

static void on_member(struct world *w, void *gang)
{
    if (!w->quiet)
        create_pod(w, gang);
    free(gang);
}

/* The members are created one after the other, or one is missing for a while. In every
 * third gang they do not wait for each other, and every third has a minimum, which fewer or more
 * members can have. */
static void create_gang(struct world *w)
{
    const struct oracle_pod *waits = dice(w, 3) ? permit_first(w) : NULL;
    char name[48];
    if (waits) { /* its members have reservations, and are judged again with a new one */
        snprintf(name, sizeof name, "%.*s", (int)strcspn(waits->name, "."), waits->name);
        create_pod(w, name);
        permit_restart(w);
        return;
    }
    if (!*w->gang || !dice(w, 5)) {
        uint64_t gang = ++w->stats.gangs;
        snprintf(w->gang, sizeof w->gang, "%c%llu", gang % 3 ? 'g' : 'b',
                 (unsigned long long)gang);
    }
    int64_t slow_ms = gangs_minimum(w, w->gang) ? between(w, 0, 2 * GANG_WAIT_MS) : 0;
    create_pod(w, w->gang);
    for (int64_t n = between(w, 0, 4); n > 0; n--)
        at(w, w->now_ms + between(w, 0, slow_ms), on_member, xstrdup(w->gang), free);
}

static void create_some(struct world *w)
{
    int pending = 0;
    EACH_POD(w, p)
    pending += oracle_pending(p);
    if (pending >= PODS_MAX)
        return;
    if (w->gangs && dice(w, 3))
        create_gang(w);
    else
        create_pod(w, NULL);
}

static void delete_pod(struct world *w)
{
    struct oracle_pod *waits = w->gangs && dice(w, 4) ? permit_first(w) : NULL;
    struct oracle_pod *p = waits ? waits : oracle_pick(w, any(w, 4));
    if (!p)
        return;
    bool at_once = any(w, 2);
    trace(w, "users: delete %s%s", p->uid, at_once ? " at once" : "");
    api_call(w, "DELETE",
             at_once ? "{\"gracePeriodSeconds\":0}" : "{\"gracePeriodSeconds\":2}",
             POD_PATH "%s", p->name);
    w->stats.deleted++;
}

/* A kubelet sets the next phase of a pod. */
static void move_pod(struct world *w, const char *phase)
{
    struct oracle_pod *p = oracle_pick(w, true);
    bool runs = !strcmp(phase, "Running");
    if (!p)
        return;
    if (runs && !kubelet_starts(w, p)) {
        trace(w, "device plugin: rejects %s", p->uid);
        if (any(w, 2))
            return;
        phase = "Failed";
        runs = false;
    }
    cleanup_free char *body = xasprintf("{\"status\":{\"phase\":\"%s\"}}", phase);
    bool gives = p->devices && !p->held && runs && oracle_allocate(w, p);
    int node = oracle_index(p->node);
    trace(w, "kubelet: %s is %s", p->uid, phase);
    api_call(w, "PATCH", body, POD_PATH "%s/status", p->name);
    if (gives)
        put_scv(w, node, false);
}

static void run_pod(struct world *w)
{
    move_pod(w, "Running");
}

static void end_pod(struct world *w)
{
    move_pod(w, any(w, 2) ? "Succeeded" : "Failed");
}

/* -- cards -- */

static void flip(struct world *w, bool cards[ALL_NODES][CARDS])
{
    int node = any(w, NODES);
    bool *card = &cards[node][any(w, (uint64_t)oracle_cards(node))];
    *card = !*card;
    put_scv(w, node, false);
}

static void flip_health(struct world *w)
{
    flip(w, w->unhealthy);
}

/* A card shrinks, as after MIG was enabled, and grows back. */
static void shrink_card(struct world *w)
{
    flip(w, w->shrunk);
}

/* A card gets or loses its instances, which nothing can while a container has one of them. The
 * pods that were promised what is gone are still there. */
static void change_mig(struct world *w)
{
    EACH_POD(w, p)
    if (oracle_index(p->node) == MIG_NODE && !p->over && (p->held | p->given) >> MIG_CARD)
        return;
    w->mig = (w->mig + 1) % MIG_STATES;
    w->stats.mig++;
    EACH_POD(w, p)
    for (int i = 0; i < p->n_cards && oracle_index(p->node) == MIG_NODE && !p->over; i++)
        w->stats.stranded += !oracle_exists(w, MIG_NODE, p->card[i]);
    put_scv(w, MIG_NODE, false);
}

/* A link is lost, maybe seen from one of its ends alone; none is known; or all are back. */
static void change_links(struct world *w)
{
    int node = (int)between(w, 2, NODES - 1), n = oracle_cards(node), how = any(w, 5);
    int a = any(w, (uint64_t)n), b = (a + (int)between(w, 1, n - 1)) % n;
    struct link_table *links = &w->links[node];
    if (how > 2)
        oracle_all_links(node, links);
    else if (how == 0)
        links->known = false;
    else
        links->row[a][b] = (int8_t)any(w, (uint64_t)links->row[a][b] + 1);
    if (how == 1)
        links->row[b][a] = links->row[a][b];
    w->stats.links_lost += how < 3;
    put_scv(w, node, false);
}

/* Another driver, plugin or program: what the node can enforce changes, or nobody says it. Or a label
 * is changed, and a node leaves the dialect, or comes back. */
static void change_isolation(struct world *w)
{
    int node = any(w, NODES);
    uint8_t before = oracle_enforces(w->isolation[node]);
    w->left = w->in_words && dice(w, 3);
    w->isolation[node] =
        dice(w, 4) ? 0 : (uint8_t)(SCV_ISOLATION_KNOWN | (unsigned)any(w, 8));
    w->stats.isolations_lost += (before & ~oracle_enforces(w->isolation[node]) & 7) != 0;
    put_scv(w, node, false);
    if (w->in_words)
        put_scv(w, HAMI_NODE, false);
}

static void write_scv(struct world *w)
{
    put_scv(w, any(w, NODES), false);
}

static void delete_scv(struct world *w)
{
    api_call(w, "DELETE", "", "/apis/core.run-linux.com/v1/scvs/n%d", any(w, NODES));
}

#define CONFIGMAPS "/api/v1/namespaces/kube-system/configmaps"

static void put_unhealthy(struct world *w)
{
    bool clear = any(w, 2);
    int node = any(w, NODES);
    if (clear) {
        api_call(w, "DELETE", "", CONFIGMAPS "/unhealthy-gpu-n%d", node);
        return;
    }
    cleanup_free char *body = xasprintf(
        "{\"metadata\":{\"name\":\"unhealthy-gpu-n%d\"},\"data\":{\"gpus\":\"%d\"}}",
        node, oracle_id(node, any(w, 4)));
    if (api_call(w, "PUT", body, CONFIGMAPS "/unhealthy-gpu-n%d", node) == 404)
        api_call(w, "POST", body, CONFIGMAPS);
}

/* -- failures -- */

/* Prefers the leader: its failures matter most. */
static struct replica *a_replica(struct world *w)
{
    for (int i = 0; i < w->n_replicas && any(w, 2); i++)
        if (replica_up(w, &w->replicas[i]) && core_is_leader(w->replicas[i].core))
            return &w->replicas[i];
    return &w->replicas[any(w, (uint64_t)w->n_replicas)];
}

/* No forwarding between this replica and another one, in one direction or both. */
static void part(struct world *w, const struct replica *r)
{
    int a = r->id, b = any(w, (uint64_t)w->n_replicas);
    int64_t until = w->now_ms + between(w, 1000, 20000);
    trace(w, "r%d and r%d do not reach each other", a, b);
    w->apart_until[a][b] = until;
    if (any(w, 2))
        w->apart_until[b][a] = until;
}

void cut_off_all(struct world *w, int64_t ms, int64_t agents_ms)
{
    if (w->agents_cut_until < w->now_ms + agents_ms)
        w->agents_cut_until = w->now_ms + agents_ms;
    EACH_REPLICA(w, r)
    replica_cut_off(w, r, ms);
}

/* The API server is unreachable for one replica; or for all replicas and nodes. */
static void cut_off(struct world *w, struct replica *r)
{
    bool outages = w->seed % 32 == 27; /* longer than the grace period of heartbeats */
    int64_t ms = between(w, outages ? GRACE_MS : 500, 20000);
    if (!outages && any(w, 2)) {
        replica_cut_off(w, r, ms);
        return;
    }
    /* The replicas may reach the API server again before an agent renews its Lease. */
    cut_off_all(w, ms, ms + (outages ? 3000 : 0));
}

static void break_replica(struct world *w)
{
    static const int64_t most_ms[] = {1000, 10 * 1000, 3600 * 1000, 315360000000};
    struct replica *r = a_replica(w);
    int64_t ms;
    if (!r->alive)
        replica_boot(w, r);
    else if (replica_up(w, r))
        switch (w->seed % 32 == 27 && dice(w, 3) ? 7 : any(w, 10)) {
        case 0:
            replica_crash(w, r);
            break;
        case 1:
            replica_pause(w, r, between(w, 10, 12000));
            break;
        case 2:
            replica_restart(w, r);
            break;
        case 3:
            ms = between(w, 1000, 12000);
            trace(w, "r%d cannot write the lease for %lld ms", r->id, (long long)ms);
            if (any(w, 2))
                r->last_gasp_ms = ms;
            else
                r->lease_trouble_until = w->now_ms + ms;
            break;
        case 4:
            replica_freeze(w, r, between(w, 10, 12000));
            break;
        case 5:
            ms = ONE_OF(w, most_ms);
            r->wall_off_ms = between(w, -ms, ms);
            w->stats.clocks_set++;
            trace(w, "the wall clock of r%d is off by %lld ms", r->id,
                  (long long)r->wall_off_ms);
            break;
        case 6:
            part(w, r);
            break;
        case 7:
            cut_off(w, r);
            break;
        default:
            ms = between(w, 1000, 20000);
            trace(w, "r%d gets no watch events for %lld ms", r->id, (long long)ms);
            r->watches_stall_until = w->now_ms + ms;
        }
}

static void compact(struct world *w)
{
    api_compact(w->api);
    w->stats.compactions++;
    /* A restarted API server has no history, and breaks all connections. */
    for (int i = 0; i < w->n_replicas && dice(w, 2); i++)
        if (w->replicas[i].alive)
            replica_cut_watches(w, &w->replicas[i]);
}

static void cut_watches(struct world *w)
{
    struct replica *r = a_replica(w);
    if (r->alive)
        replica_cut_watches(w, r);
}

static void delete_lease(struct world *w)
{
    if (replicas_differ(w)) /* core/core.h: not while the duration is being reduced */
        return;
    trace(w, "users: delete the lease");
    api_call(w, "DELETE", "", LEASES "kube-system/leases/gpushare-extender");
}

static const struct {
    int weight;
    void (*act)(struct world *w);
} acts[] = {
    {400, create_some}, {200, delete_pod},      {100, run_pod},      {80, end_pod},
    {50, flip_health},  {20, delete_scv},       {50, write_scv},     {20, put_unhealthy},
    {20, compact},      {25, break_replica},    {11, cut_watches},   {4, delete_lease},
    {10, shrink_card},  {50, edit_any},         {20, outsiders_act}, {20, change_links},
    {10, change_mig},   {20, change_isolation}, {300, tenants_act}, /* the last one */
};

void agents_restored(struct world *w)
{
    for (int node = 0; node < NODES; node++)
        put_scv(w, node, false);
    for (struct oracle_pod *p = w->pods, *next; p; p = next) {
        next = p->next; /* the kubelet ends what was about to end */
        if (p->deleting)
            api_call(w, "DELETE", "{\"gracePeriodSeconds\":0}", POD_PATH "%s", p->name);
    }
}

static void act(struct world *w, void *arg)
{
    (void)arg;
    if (w->quiet) { /* undoes all failures, so that the oracle knows what fits */
        memset(w->shrunk, 0, sizeof w->shrunk);
        w->mig += w->mig == MIG_CARELESS;
        for (int node = 0; node < NODES; node++) {
            put_scv(w, node, false);
            api_call(w, "DELETE", "", CONFIGMAPS "/unhealthy-gpu-n%d", node);
        }
        return;
    }
    if (w->now_ms < w->down_until) {
        at(w, w->down_until, act, NULL, NULL);
        return;
    }
    size_t i = 0;
    for (int left = any(w, w->tenants ? 1410 : 1110); left >= acts[i].weight; i++)
        left -= acts[i].weight;
    acts[i].act(w);
    at(w, w->now_ms + between(w, 1, 100), act, NULL, NULL);
}

void users_start(struct world *w)
{
    if (w->stats.pods == 0) {
        for (int node = 0; node < NODES; node++)
            put_scv(w, node, true);
        api_call(w, "POST",
                 "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                 "\"metadata\":{\"name\":\"gpushare-extender\"},\"spec\":{}}",
                 LEASES "kube-system/leases");
    }
    act(w, NULL);
}
