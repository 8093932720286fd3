/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * Programs that bind pods without the extender: another scheduler without knowledge of
 * cards, users who set nodeName (sometimes with the annotations of a previous pod), and an
 * older extender without leader election, which decides from old state and writes
 * annotations and Binding in one call or in two.
 *
 * They may overcommit a card, which cannot be prevented. But their pods count for every
 * promise of a replica after their delivery.
 */

static void say(struct world *w, const char *who, const char *name, unsigned status)
{
    trace(w, "%s: %s: %u", who, name, status);
}

static unsigned bind(struct world *w, const char *name, int node, const char *annotations)
{
    char body[512];
    snprintf(body, sizeof body,
             "{\"metadata\":{\"name\":\"%s\"%s%s},\"target\":{\"kind\":\"Node\","
             "\"name\":\"n%d\"}}",
             name, annotations ? ",\"annotations\":" : "", annotations ? annotations : "",
             node);
    return api_call(w, "POST", body, POD_PATH "%s/binding", name);
}

static void another_scheduler(struct world *w)
{
    struct oracle_pod *p = oracle_pick(w, false);
    if (!p)
        return;
    cleanup_free char *name = xstrdup(p->name);
    say(w, "another scheduler binds", name,
        bind(w, name, (int)rng_below(&w->rng, NODES), NULL));
}

/* Number 1 is the last of its list. */
static void add_container(struct buf *b, const char *name, int number,
                          const char *restart_policy, const char *resource, int64_t n)
{
    buf_printf(b,
               "{\"name\":\"%s%d\",\"image\":\"i\",\"resources\":{\"limits\":{\"%s\":"
               "\"%lld\"}}",
               name, number, resource, (long long)n);
    if (restart_policy)
        buf_printf(b, ",\"restartPolicy\":\"%s\"", restart_policy);
    buf_adds(b, number > 1 ? "}," : "}");
}

static void by_hand(struct world *w)
{
    static const char of_daemon_set[] =
        ",\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":\"DaemonSet\","
        "\"name\":\"d\",\"uid\":\"d\"}]";
    static const char old[] =
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_DEV\":"
        "\"15\",\"ALIYUN_COM_GPU_MEM_POD\":\"3\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"
        "\"false\",\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1\"";
    cleanup_buf struct buf body = {0};
    char name[32];
    bool whole = rng_below(&w->rng, 4) == 0, in_labels = false;
    bool stale = rng_below(&w->rng, 2);
    const char *flaw = rng_below(&w->rng, 2) ? flaw_pick(w, &in_labels) : NULL;
    const char *resource = whole ? "aliyun.com/gpu-count" : "aliyun.com/gpu-mem";
    snprintf(name, sizeof name, "h%llu", (unsigned long long)++w->stats.pods);
    buf_printf(
        &body,
        "{\"metadata\":{\"name\":\"%s\",\"labels\":{%s},\"annotations\":{%s%s%s}%s},"
        "\"spec\":{\"nodeName\":\"n%d\",\"initContainers\":[",
        name, in_labels ? flaw : "", stale ? old : "",
        stale && flaw && !in_labels ? "," : "", flaw && !in_labels ? flaw : "",
        rng_below(&w->rng, 2) ? of_daemon_set : "", (int)rng_below(&w->rng, NODES));
    for (int i = (int)rng_below(&w->rng, 3); i > 0; i--)
        add_container(&body, "i", i, rng_below(&w->rng, 2) ? "Always" : NULL, resource,
                      between(w, 1, whole ? 2 : 8));
    buf_adds(&body, "],\"containers\":[");
    add_container(&body, "c", 1, NULL, resource, between(w, 1, whole ? 2 : 8));
    buf_adds(&body, "]}}");
    unsigned status = policy_create(w, body.p);
    say(w, "by hand on a node", name, status);
    if (status != 201 && !(w->policy && status == 403))
        violated(w, "cannot create the pod: %u %s", status, body.p);
}

/* The older extender, between its decision and its write. */
struct elder {
    char name[64], version[32], annotations[256];
    int node;
    bool two_writes, annotated;
};

static void on_elder(struct world *w, void *arg)
{
    struct elder *e = arg;
    if (e->two_writes && !e->annotated) {
        char body[512];
        snprintf(body, sizeof body,
                 "{\"metadata\":{\"resourceVersion\":\"%s\",\"annotations\":%s}}",
                 e->version, e->annotations);
        unsigned status = api_call(w, "PATCH", body, POD_PATH "%s", e->name);
        say(w, "the older extender annotates", e->name, status);
        e->annotated = status == 200;
        if (e->annotated)
            at(w, w->now_ms + between(w, 0, 500), on_elder, e, free);
        else
            free(e);
        return;
    }
    say(w, "the older extender binds", e->name,
        bind(w, e->name, e->node, e->annotated ? NULL : e->annotations));
    free(e);
}

/* A card on which the pod fits now. */
static int card_for(const struct oracle *o, const struct oracle_pod *p, int node)
{
    for (int card = 0; card < oracle_cards(node); card++) {
        bool untouched;
        int64_t left = oracle_free_mib(o, node, card, &untouched);
        if (oracle_health(o, node, card) && (p->whole ? untouched : left >= p->mib))
            return card;
    }
    return -1;
}

static void older_extender(struct world *w)
{
    const struct oracle_pod *p = oracle_pick(w, false);
    int node = (int)rng_below(&w->rng, NODES);
    int card = p ? card_for(w->oracle, p, node) : -1;
    if (card < 0 || p->cards != 1)
        return;
    struct elder *e = xcalloc(1, sizeof *e);
    snprintf(e->name, sizeof e->name, "%s", p->name);
    snprintf(e->annotations, sizeof e->annotations,
             "{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_POD\":\"%lld\","
             "\"ALIYUN_COM_GPU_MEM_DEV\":\"%lld\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"
             "\"false\",\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"%lld\"}",
             card, (long long)p->units,
             (long long)oracle_card_mib(w->oracle, node, card) / 1024,
             (long long)wall_ms(w) * 1000000);
    e->node = node;
    e->two_writes = rng_below(&w->rng, 2);
    json_t *pod = api_get(w, POD_PATH "%s", p->name);
    const char *version = json_string_value(
        json_object_get(json_object_get(pod, "metadata"), "resourceVersion"));
    snprintf(e->version, sizeof e->version, "%s", version ? version : "");
    json_decref(pod);
    at(w, w->now_ms + between(w, 1, 3000), on_elder, e, free);
}

void outsiders_act(struct world *w)
{
    uint64_t dice = rng_below(&w->rng, 4);
    plain_act(w);
    if (dice == 0)
        another_scheduler(w);
    else if (dice == 1)
        by_hand(w);
    else
        older_extender(w);
}
