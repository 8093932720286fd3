/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e-node/look_priv.h"
#include "e2e-node/refusals.h"

/* Compares all sides while nothing changes. */

enum { REST_MS = 30 * 1000 };

#define ANNOTATION(pod, key)                                                             \
    json_string_value(json_object_get(lib_at(pod, "metadata.annotations"), key))

/* {uid: {uuid: units}}. New. */
static json_t *ledger(void)
{
    cleanup_json json_t *n = extender_inspect(&cluster.extender, NODE);
    json_t *all = json_object(), *card, *pod;
    size_t i, k;
    json_array_foreach(lib_at(n, "devs"), i, card)
    {
        json_array_foreach(lib_at(card, "pods"), k, pod)
        {
            const char *uid = lib_str(pod, "uid");
            if (!json_object_get(all, uid))
                json_object_set_new(all, uid, json_object());
            json_object_set(json_object_get(all, uid), lib_str(card, "uuid"),
                            lib_at(pod, "usedGPU"));
        }
    }
    return all;
}

static int limit(const json_t *container, const char **resource)
{
    const char *name;
    json_t *value;
    json_object_foreach(lib_at(container, "resources.limits"), name, value)
    {
        if (strncmp(name, "aliyun.com/", 11) == 0) {
            *resource = name + 11;
            return atoi(json_string_value(value));
        }
    }
    return 0;
}

static const char *uuid_at(const char *index)
{
    int i = atoi(index);
    ck_assert_int_lt(i, NODE_CARDS);
    return node_cards[i].uuid;
}

/* The units that the annotations promise to the container, by card: {uuid: units}. */
static json_t *promised(const json_t *pod, size_t container)
{
    cleanup_json json_t *all =
        json_loads(ANNOTATION(pod, "scheduler.framework.gpushare.allocation"), 0, NULL);
    json_t *cards = json_object(), *units;
    const char *index;
    char key[16];
    snprintf(key, sizeof key, "%zu", container);
    json_object_foreach(json_object_get(all, key), index, units)
        json_object_set(cards, uuid_at(index), units);
    return cards;
}

static void variable_is(const char *who, const char *log, const char *name,
                        const char *value)
{
    cleanup_free char *is = look_variable(log, name);
    ck_assert_msg(strcmp(is, value) == 0, "container %s: %s is \"%s\", not \"%s\"", who,
                  name, is, value);
}

/* Fails unless the ids match the promised cards and amounts. */
static void check_ids(const char *who, const json_t *ids, json_t *cards, bool whole)
{
    cleanup_json json_t *tags = look_tags(ids);
    const char *tag;
    json_t *n;
    json_object_foreach(tags, tag, n)
    {
        const char *uuid = look_card(tag);
        if (!uuid)
            continue; /* no container has held ids of only this card yet */
        json_t *units = json_object_get(cards, uuid);
        if (!units || !(whole || json_equal(units, n)))
            look_note_wrong("container %s holds %d of %s, promised are %d", who,
                            (int)json_integer_value(n), uuid,
                            (int)json_integer_value(units));
    }
}

static void check_seen(const char *who, const char *visible, const json_t *cards)
{
    cleanup_json json_t *seen = look_set(visible);
    bool same = json_object_size(seen) == json_object_size(cards);
    const char *uuid;
    json_t *v;
    json_object_foreach(seen, uuid, v) same &= json_object_get(cards, uuid) != NULL;
    if (!same) {
        cleanup_free char *text = json_dumps(cards, 0);
        look_note_wrong("container %s sees %s, promised are %s", who, visible, text);
    }
}

/* The kubelet's UID of the pod; for a mirror pod it differs from the API's. */
static const char *uid_of(const json_t *pod)
{
    const char *uid = ANNOTATION(pod, "kubernetes.io/config.hash");
    return uid ? uid : lib_str(pod, "metadata.uid");
}

static void check_container(const json_t *pod, size_t i, const json_t *container,
                            const json_t *held)
{
    const char *resource, *name = lib_str(pod, "metadata.name");
    const char *uid = uid_of(pod);
    int n = limit(container, &resource);
    if (!n)
        return;
    cleanup_free char *who = xasprintf("%s/%s", name, lib_str(container, "name"));
    cleanup_free char *log = node_log(name, uid, lib_str(container, "name"));
    cleanup_json json_t *cards = promised(pod, i);
    json_t *ids = json_object_get(held, who);
    ck_assert_msg(log != NULL, "container %s has printed nothing", who);
    ck_assert_msg((int)json_array_size(ids) == n, "container %s holds %zu ids of %d", who,
                  json_array_size(ids), n);
    if (look_is_of_go(ids)) {
        variable_is(who, log, "NVIDIA_VISIBLE_DEVICES",
                    ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_IDX"));
        look_note(uid, lib_str(container, "name"));
        return;
    }
    look_at_container(who, ids, log);
    check_ids(who, ids, cards, strcmp(resource, "gpu-count") == 0);
    cleanup_free char *visible = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    check_seen(who, visible, cards);
    variable_is(who, log, "ALIYUN_COM_GPU_MEM_POD",
                ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_POD"));
    look_note(uid, lib_str(container, "name"));
}

/* An init container has no entry in podresources and in the allocation. */
static void check_init(const json_t *pod, const json_t *container)
{
    const char *resource, *name = lib_str(pod, "metadata.name");
    const char *uid = uid_of(pod), *uuid;
    if (!limit(container, &resource))
        return;
    cleanup_free char *log = node_log(name, uid, lib_str(container, "name"));
    ck_assert_msg(log != NULL, "an init container of %s has printed nothing", name);
    cleanup_free char *visible = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    cleanup_json json_t *seen = look_set(visible);
    cleanup_json json_t *cards = look_set(ANNOTATION(pod, "gpushare/card-uuid"));
    json_t *v;
    ck_assert_uint_gt(json_object_size(seen), 0);
    json_object_foreach(seen, uuid, v)
    {
        if (!json_object_get(cards, uuid))
            look_note_wrong(
                "an init container of %s sees %s, which was not promised to it", name,
                uuid);
    }
    look_note(uid, lib_str(container, "name"));
}

static size_t check_pod(const json_t *pod, const json_t *held, const json_t *books)
{
    const char *name = lib_str(pod, "metadata.name"), *uuid;
    const char *notes = ANNOTATION(pod, "gpushare/card-uuid");
    if (!notes)
        return 0;
    cleanup_json json_t *cards = look_set(notes);
    const json_t *entry = json_object_get(books, lib_str(pod, "metadata.uid"));
    json_t *v, *c;
    size_t i, n = json_array_size(lib_at(pod, "spec.containers"));
    json_int_t sum = 0;
    ck_assert_msg(json_object_size(entry) == json_object_size(cards),
                  "the ledger has pod %s on %zu cards, its annotations on %s", name,
                  json_object_size(entry), notes);
    json_object_foreach((json_t *)entry, uuid, v)
    {
        ck_assert_msg(json_object_get(cards, uuid) != NULL,
                      "the ledger has pod %s on %s, its annotations on %s", name, uuid,
                      notes);
        sum += json_integer_value(v);
    }
    ck_assert_int_eq(sum, atoi(ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_POD")));
    json_array_foreach(lib_at(pod, "spec.containers"), i, c)
        check_container(pod, i, c, held);
    size_t sidecars = 0;
    json_array_foreach(lib_at(pod, "spec.initContainers"), i, c)
    {
        if (strcmp(lib_str(c, "restartPolicy"), "Always") == 0)
            check_container(pod, n + sidecars++, c, held);
        else
            check_init(pod, c);
    }
    return n + json_array_size(lib_at(pod, "spec.initContainers"));
}

static bool is_over(const json_t *pod)
{
    return strcmp(lib_str(pod, "status.phase"), "Failed") == 0;
}

/* Does every pod run, and has every container printed its environment? */
static bool at_rest(const json_t *pods, const json_t **who)
{
    size_t i, k;
    json_t *pod, *c;
    json_array_foreach(pods, i, pod)
    {
        *who = pod;
        if (is_over(pod))
            continue;
        if (strcmp(lib_str(pod, "status.phase"), "Running") != 0 ||
            *lib_str(pod, "metadata.deletionTimestamp"))
            return false;
        const char *assigned = ANNOTATION(pod, "ALIYUN_COM_GPU_MEM_ASSIGNED");
        if (assigned && strcmp(assigned, "true") != 0)
            return false;
        json_array_foreach(lib_at(pod, "spec.containers"), k, c)
        {
            cleanup_free char *log =
                node_log(lib_str(pod, "metadata.name"), uid_of(pod), lib_str(c, "name"));
            if (!log)
                return false;
        }
    }
    return true;
}

static json_t *await_rest(void)
{
    for (int64_t end = lib_now_ms() + 2 * PROGRAM_WAIT_MS;; lib_pause()) {
        json_t *pods = cluster_items(CLUSTER_PODS);
        const json_t *who = NULL;
        if (at_rest(pods, &who))
            return pods;
        if (lib_now_ms() >= end) {
            cleanup_free char *status = json_dumps(lib_at(who, "status"), 0);
            ck_abort_msg("pod %s does not run: %s", lib_str(who, "metadata.name"),
                         status);
        }
        json_decref(pods);
    }
}

/* A restarted kubelet shows no pods at first. */
static bool shows_all(const json_t *held, const json_t *pods)
{
    size_t i, k;
    json_t *pod, *c;
    const char *resource;
    json_array_foreach(pods, i, pod)
    {
        json_array_foreach(lib_at(pod, "spec.containers"), k, c)
        {
            cleanup_free char *who =
                xasprintf("%s/%s", lib_str(pod, "metadata.name"), lib_str(c, "name"));
            if (limit(c, &resource) && !is_over(pod) && !json_object_get(held, who))
                return false;
        }
    }
    return true;
}

static json_t *await_held(const json_t *pods)
{
    json_t *held = NULL;
    lib_wait((json_decref(held), held = look_held()) && shows_all(held, pods));
    return held;
}

size_t look_check(void)
{
    cleanup_json json_t *pods = await_rest();
    oracle_agrees_within(&cluster.api, &cluster.extender, REST_MS);
    cleanup_json json_t *held = await_held(pods), *books = ledger();
    json_t *pod;
    size_t i, n = 0;
    json_array_foreach(pods, i, pod) n += is_over(pod) ? 0 : check_pod(pod, held, books);
    ck_assert(node_metric("mismatches_total") == 0); /* the plugin's audit */
    ck_assert_msg(look_wrong() == 0, "%zu containers are on another card", look_wrong());
    return n;
}

void look_finish(void)
{
    refusals_tell();
    look_tell();
    node_down();
    cluster_agrees();
    cleanup_json json_t *promised = oracle_promised(&cluster.api);
    ck_assert_uint_eq(json_object_size(promised), 0);
}
