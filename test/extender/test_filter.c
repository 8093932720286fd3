/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/store_rig.h"

#include "base/mem.h"
#include "base/rng.h"
#include "extender/verbs.h"

/* Filter over many nodes in random order with all kinds of names: the result for each
 * node is as if it were the only one. (Results of single nodes: test/golden/filter.) */

enum { NODES = 150 };

static json_t *one_node(int i)
{
    char name[80];
    if (i % 7 == 0) /* too long to be stored inline */
        snprintf(name, sizeof name,
                 "a-node-whose-name-is-longer-than-most-names-are-%09d", i);
    else
        snprintf(name, sizeof name, "n%d", i);
    return json_pack("{s:s,s:s,s:{s:s},s:{s:[{s:i,s:s,s:i}]}}", "apiVersion",
                     "core.run-linux.com/v1", "kind", "Scv", "metadata", "name", name,
                     "status", "cardList", "id", 0, "health",
                     i % 5 ? "Healthy" : "Unhealthy", "totalMemory", 1000 * (i % 3 + 1));
}

static json_t *filter(struct verbs *v, json_t *names)
{
    cleanup_buf struct buf reply = {0};
    json_t *body = json_pack("{s:{s:{s:s,s:s,s:s},s:{s:[{s:{s:{s:s}}}]}},s:O}", "Pod",
                             "metadata", "name", "p", "namespace", "default", "uid", "u",
                             "spec", "containers", "resources", "limits",
                             "aliyun.com/gpu-mem", "1500", "NodeNames", names);
    char *text = json_dumps(body, JSON_COMPACT);
    ck_assert_uint_eq(verb_filter(v, span_of(text), &reply), 200);
    free(text);
    json_decref(body);
    json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

/* 'p': the node passes. 'f' or 'u', and the reason: it is in FailedNodes, or in
 * FailedAndUnresolvableNodes. */
static char *verdict(json_t *reply, const char *name)
{
    size_t i;
    json_t *passed;
    unsigned times = 0;
    json_array_foreach(json_object_get(reply, "NodeNames"), i, passed) times +=
        !strcmp(json_string_value(passed), name);
    const char *failed =
        json_string_value(json_object_get(json_object_get(reply, "FailedNodes"), name));
    const char *unresolvable = json_string_value(
        json_object_get(json_object_get(reply, "FailedAndUnresolvableNodes"), name));
    ck_assert_uint_eq(times + (failed != NULL) + (unresolvable != NULL), 1);
    return xasprintf("%c %s",
                     times    ? 'p'
                     : failed ? 'f'
                              : 'u',
                     failed         ? failed
                     : unresolvable ? unresolvable
                                    : "");
}

START_TEST(the_result_for_a_node_does_not_depend_on_the_others)
{
    struct store_rig rig;
    struct ledger_settings settings = {.unit_mib = 1};
    json_t *objects = json_array(), *names = json_array();
    char *alone[NODES + 2];
    unsigned kinds[128] = {0};
    for (int i = 0; i < NODES; i++) {
        json_t *scv = one_node(i);
        json_array_append(names,
                          json_object_get(json_object_get(scv, "metadata"), "name"));
        json_array_append_new(objects, scv);
    }
    json_array_append_new(names, json_string("not-known"));
    json_array_append_new(names, json_string("not-known-either"));
    rig_start(&rig, &settings, false);
    rig_deliver(&rig, objects);
    struct verbs *v = verbs_new(&(struct verbs_config){.store = rig.store});
    for (size_t i = 0; i < ARRAY_LEN(alone); i++) {
        json_t *one = json_pack("[O]", json_array_get(names, i)), *reply = filter(v, one);
        alone[i] = verdict(reply, json_string_value(json_array_get(names, i)));
        kinds[(unsigned char)alone[i][0]]++;
        json_decref(reply);
        json_decref(one);
    }
    ck_assert(kinds['p'] > 20 && kinds['f'] > 10 && kinds['u'] > 20);
    struct rng rng;
    rng_init(&rng, 1);
    for (int round = 0; round < 50; round++) {
        size_t order[ARRAY_LEN(alone)], n = 1 + rng_below(&rng, ARRAY_LEN(alone));
        for (size_t i = 0; i < ARRAY_LEN(alone); i++)
            order[i] = i;
        json_t *some = json_array();
        for (size_t i = 0; i < n; i++) {
            size_t k = i + rng_below(&rng, ARRAY_LEN(alone) - i), pick = order[k];
            order[k] = order[i];
            order[i] = pick;
            json_array_append(some, json_array_get(names, pick));
        }
        json_t *reply = filter(v, some);
        for (size_t i = 0; i < n; i++) {
            cleanup_free char *got =
                verdict(reply, json_string_value(json_array_get(some, i)));
            ck_assert_str_eq(got, alone[order[i]]);
        }
        json_decref(reply);
        json_decref(some);
    }
    for (size_t i = 0; i < ARRAY_LEN(alone); i++)
        free(alone[i]);
    verbs_free(v);
    rig_stop(&rig);
    json_decref(objects);
    json_decref(names);
}
END_TEST

UNIT_MAIN("filter", the_result_for_a_node_does_not_depend_on_the_others)
