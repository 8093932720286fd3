/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/raw.h"
#include "lib/world.h"

/*
 * Objects from which the ledger could count less than a card really has promised: copied
 * and repeated UUIDs, a node whose clock is behind, a Node that is gone. Each time a pod
 * that would overcommit the card must be rejected, also after a restart.
 */

#define SCV     "/apis/core.run-linux.com/v1/scvs/n1"
#define NO_ROOM "no card of node"

/* `cards`: the cardList of the Scv. */
static void begin(struct world *w, const char *cards)
{
    sim_start(&w->sim, ARGV(NULL));
    sim_load(&w->sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                      "\"n1\"}}");
    sim_load(&w->sim,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"n1\"},\"status\":{\"updateTime\":\"2020-01-01T00:00:00Z\","
             "\"cardList\":[%s]}}",
             cards);
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

static void set_cards(const struct world *w, const char *time, const char *cards)
{
    cleanup_free char *body =
        xasprintf("{\"status\":{\"updateTime\":\"%s\",\"cardList\":[%s]}}", time, cards);
    json_decref(peer_json(&w->sim.api, "PATCH", SCV, body));
}

static void ck_bound(const struct world *w, const char *name, const char *meta,
                     const char *spec)
{
    cleanup_buf struct buf why = {0};
    world_add_pod(w, name, meta, spec);
    ck_assert_msg(extender_bind(&w->extender, name, "n1", &why), "%s", why.p);
}

static void ck_rejected(const struct world *w, const char *name, const char *spec,
                        const char *reason)
{
    cleanup_buf struct buf why = {0};
    world_add_pod(w, name, "", spec);
    ck_assert_msg(!extender_bind(&w->extender, name, "n1", &why), "%s is bound", name);
    ck_assert_contains(why.p, reason);
}

static bool is_shown(const struct world *w, size_t index, const char *field,
                     json_int_t value)
{
    cleanup_json json_t *j = extender_inspect(&w->extender, "n1");
    json_t *card = json_array_get(lib_at(j, "devs"), index);
    return json_integer_value(json_object_get(card, field)) == value;
}

#define CARD(id, more)                                                                   \
    "{\"id\":" #id                                                                       \
    ",\"health\":\"Healthy\",\"totalMemory\":16276,\"freeMemory\":16276" more "}"

/* A manifest that was copied from a pod of another card. */
START_TEST(a_copied_uuid_does_not_hide_a_promise)
{
    struct world w;
    begin(&w, CARD(0, ""));
    ck_bound(&w, "a", ",\"annotations\":{\"gpushare/card-uuid\":\"GPU-other\"}",
             MEM("12"));
    set_cards(&w, "2020-01-01T00:01:00Z", CARD(0, ",\"uuid\":\"GPU-0\""));
    world_restart(&w);
    ck_assert_int_eq(world_promised(&w, "n1", 0), 12288);
    ck_rejected(&w, "b", MEM("12"), NO_ROOM);
    world_stop(&w);
}
END_TEST

#define BOUND_TO(index)                                                                  \
    ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"" index                              \
    "\",\"ALIYUN_COM_GPU_MEM_POD\":\"10\",\"ALIYUN_COM_GPU_MEM_DEV\":\"15\","            \
    "\"scheduler."                                                                       \
    "framework.gpushare.allocation\":\"{\\\"0\\\":{\\\"" index                           \
    "\\\":10}}\",\"gpushare/card-uuid\":\"GPU-0\"}"

START_TEST(cards_with_one_uuid_keep_their_promises_apart)
{
    struct world w;
    begin(&w, CARD(0, ",\"uuid\":\"GPU-0\"") "," CARD(1, ",\"uuid\":\"GPU-0\""));
    world_add_pod(&w, "a", BOUND_TO("0"), "\"nodeName\":\"n1\"," MEM("10"));
    world_add_pod(&w, "b", BOUND_TO("1"), "\"nodeName\":\"n1\"," MEM("10"));
    for (int round = 0; round < 2; round++) {
        for (size_t card = 0; card < 2; card++)
            lib_wait(is_shown(&w, card, "promisedMiB", 10240));
        cleanup_free char *name = xasprintf("c%d", round);
        ck_rejected(&w, name, MEM("1"), "UUID");
        world_restart(&w);
    }
    world_stop(&w);
}
END_TEST

static void set_phase(const struct world *w, const char *phase)
{
    cleanup_free char *body = xasprintf("{\"status\":{\"phase\":\"%s\"}}", phase);
    json_decref(peer_json(&w->sim.api, "PATCH",
                          "/api/v1/namespaces/default/pods/a/status", body));
}

/* The Scv's time is years behind. 8 GiB are used by a process outside Kubernetes, and not
 * by the pod that has left, which ran when the extender started. */
START_TEST(a_departed_pod_does_not_hide_memory_in_use)
{
    struct world w;
    static const char used[] =
        "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":16276,\"freeMemory\":8084,"
        "\"usedMemory\":8192,\"uuid\":\"GPU-0\"}";
    begin(&w, CARD(0, ",\"usedMemory\":0,\"uuid\":\"GPU-0\""));
    ck_bound(&w, "a", "", MEM("8"));
    set_phase(&w, "Running");
    world_restart(&w);
    set_phase(&w, "Succeeded"); /* the object stays, as that of a Job does */
    lib_wait(is_shown(&w, 0, "promisedMiB", 0));
    set_cards(&w, "2020-01-01T00:01:00Z", used);
    lib_wait(is_shown(&w, 0, "usedMiB", 8192));
    ck_rejected(&w, "b", MEM("12"), NO_ROOM);
    world_restart(&w);
    ck_rejected(&w, "c", MEM("12"), NO_ROOM);
    world_stop(&w);
}
END_TEST

START_TEST(a_deleted_node_gets_no_pods)
{
    struct world w;
    begin(&w, CARD(0, ",\"uuid\":\"GPU-0\""));
    ck_bound(&w, "a", "", MEM("1"));
    json_decref(peer_json(&w.sim.api, "DELETE", "/api/v1/nodes/n1", NULL));
    world_restart(&w);
    ck_rejected(&w, "b", MEM("1"), "no Node object of this name exists");
    world_stop(&w);
}
END_TEST

LIB_MAIN("ledger", 120, a_copied_uuid_does_not_hide_a_promise,
         cards_with_one_uuid_keep_their_promises_apart,
         a_departed_pod_does_not_hide_memory_in_use, a_deleted_node_gets_no_pods)
