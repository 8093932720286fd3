/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/* Many concurrent clients request more memory than the cluster has. */

enum { CLIENTS = 64 };

enum outcome { PENDING, BOUND, FILTERED_OUT, BIND_FAILED };

struct burst {
    struct sim sim;
    struct extender extender;
    const char *prefix;       /* of the pod names */
    const char *const *nodes; /* NULL at the end */
    int units;
    pthread_barrier_t start;
    enum outcome outcome[CLIENTS];
    struct buf why[CLIENTS];
    int retries;
};

static void pod_name(const struct burst *b, char *name, size_t i)
{
    snprintf(name, 16, "%s%02zu", b->prefix, i);
}

/* Filters all nodes. Returns one of the nodes that passed, or NULL with the reply in
 * *why. */
static const char *pick(struct burst *b, const char *pod, size_t skip, struct buf *why)
{
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, pod, b->units, b->nodes);
    unsigned status =
        peer_call(&b->extender.verbs, "POST", "/gpushare-scheduler/filter", body.p, why);
    cleanup_json json_t *j = json_loadb(why->p, why->n, 0, NULL);
    json_t *names = lib_at(j, "NodeNames");
    size_t n = json_array_size(names), known = 0;
    while (b->nodes[known])
        known++;
    if (status != 200 || !n)
        return NULL;
    const char *name = json_string_value(json_array_get(names, skip % n));
    for (size_t i = 0; i < known; i++)
        if (strcmp(b->nodes[i], name) == 0)
            return b->nodes[i];
    return NULL;
}

/* Repeats filter and bind until the pod is bound or filter rejects every node. A failed
 * bind is retried, as kube-scheduler does. */
static void client(void *ctx, size_t i)
{
    struct burst *b = ctx;
    char name[16];
    pod_name(b, name, i);
    pthread_barrier_wait(&b->start);
    for (int k = 0; k < 100 && b->outcome[i] != BOUND; k++) {
        const char *node = pick(b, name, i, &b->why[i]);
        if (!node) {
            b->outcome[i] = FILTERED_OUT;
            return;
        }
        if (extender_bind(&b->extender, name, node, &b->why[i]))
            b->outcome[i] = BOUND;
        else
            b->outcome[i] = BIND_FAILED;
        __atomic_add_fetch(&b->retries, b->outcome[i] != BOUND, __ATOMIC_RELAXED);
    }
}

static void add_pods(struct burst *b)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        char name[16];
        pod_name(b, name, i);
        sim_add_pod(&b->sim, name, b->units);
    }
}

static void burst_begin(struct burst *b, const char *const *nodes, int cards, int card,
                        int units)
{
    *b = (struct burst){.prefix = "p", .nodes = nodes, .units = units};
    sim_start(&b->sim, ARGV(NULL));
    for (size_t i = 0; nodes[i]; i++)
        sim_add_node(&b->sim, nodes[i], cards, card);
    add_pods(b);
    extender_start(&b->extender, &b->sim, ARGV(NULL));
    pthread_barrier_init(&b->start, NULL, CLIENTS);
}

static void burst_end(struct burst *b)
{
    for (size_t i = 0; i < CLIENTS; i++)
        buf_fini(&b->why[i]);
    pthread_barrier_destroy(&b->start);
    extender_stop(&b->extender);
    sim_stop(&b->sim);
}

/* Every pod is bound, or rejected with a reason in terms of cards. Returns how many are
 * bound. */
static int check_outcomes(struct burst *b)
{
    int bound = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        char name[16], path[64];
        pod_name(b, name, i);
        snprintf(path, sizeof path, "/api/v1/namespaces/default/pods/%s", name);
        cleanup_json json_t *pod = peer_json(&b->sim.api, "GET", path, NULL);
        bool has_node = *lib_str(pod, "spec.nodeName");
        ck_assert_msg(has_node == (b->outcome[i] == BOUND), "%s: %s node; reply: %s",
                      name, has_node ? "bound to a" : "has no", b->why[i].p);
        if (b->outcome[i] != BOUND)
            ck_assert_contains(b->why[i].p, "on one card; most free: ");
        bound += has_node;
    }
    return bound;
}

START_TEST(no_more_pods_are_bound_than_fit)
{
    struct burst b;
    /* 4 cards of 16 units take three pods of 5 each. */
    burst_begin(&b, ARGV("n1", "n2"), 2, 16, 5);
    lib_threads(CLIENTS, client, &b);
    ck_assert_int_eq(check_outcomes(&b), 12);
    oracle_agrees(&b.sim.api, &b.extender);
    cleanup_json json_t *promised = oracle_promised(&b.sim.api);
    ck_assert_uint_eq(json_object_size(promised), 4);
    const char *card;
    json_t *units;
    json_object_foreach(promised, card, units)
        ck_assert_int_eq(json_integer_value(units), 15);
    /* One Binding per bound pod: a rejection sends no request to the API server. */
    ck_assert_int_eq(sim_count(&b.sim, "create", "pods", "binding"), 12);
    burst_end(&b);
}

/* Memory of deleted pods is available to the pods that were rejected. */
START_TEST(freed_memory_is_used_again)
{
    struct burst b;
    burst_begin(&b, ARGV("n1", "n2"), 2, 16, 5);
    lib_threads(CLIENTS, client, &b);
    ck_assert_int_eq(check_outcomes(&b), 12);
    for (size_t i = 0; i < CLIENTS; i++) {
        char name[16];
        pod_name(&b, name, i);
        sim_delete_pod(&b.sim, name);
        b.outcome[i] = PENDING;
    }
    b.prefix = "q";
    add_pods(&b);
    oracle_agrees(&b.sim.api, &b.extender);
    lib_threads(CLIENTS, client, &b);
    ck_assert_int_eq(check_outcomes(&b), 12);
    oracle_agrees(&b.sim.api, &b.extender);
    burst_end(&b);
}

LIB_MAIN("burst", 150, no_more_pods_are_bound_than_fit, freed_memory_is_used_again)
