/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/oracle.h"

/*
 * The promises, computed from the API objects alone. This code shares nothing with the
 * ledger: it parses with jansson, and reads a promise from the five annotations of the Go
 * extender. A pod without them may be on any card of its node, and counts on each.
 */

enum { MIB_PER_UNIT = 1024 };

static json_t *items(const struct peer *api, const char *path)
{
    cleanup_json json_t *j = peer_json(api, "GET", path, NULL);
    return json_incref(lib_at(j, "items"));
}

static void add(json_t *sums, const char *node, const char *card, json_int_t units)
{
    cleanup_free char *key = xasprintf("%s/%s", node, card);
    units += json_integer_value(json_object_get(sums, key));
    if (units)
        json_object_set_new(sums, key, json_integer(units));
}

static bool holds(const json_t *pod)
{
    const char *phase = lib_str(pod, "status.phase");
    return *lib_str(pod, "spec.nodeName") && strcmp(phase, "Succeeded") != 0 &&
           strcmp(phase, "Failed") != 0;
}

/* Units of each card in its Scv. */
static json_t *sizes(const struct peer *api)
{
    cleanup_json json_t *scvs = items(api, "/apis/core.run-linux.com/v1/scvs");
    json_t *sums = json_object(), *scv, *card;
    size_t i, k;
    json_array_foreach(scvs, i, scv)
    {
        json_array_foreach(lib_at(scv, "status.cardList"), k, card)
        {
            char index[32];
            snprintf(index, sizeof index, "%lld",
                     (long long)json_integer_value(lib_at(card, "id")));
            add(sums, lib_str(scv, "metadata.name"), index,
                json_integer_value(lib_at(card, "totalMemory")) / MIB_PER_UNIT);
        }
    }
    return sums;
}

static bool has_card(const json_t *size, const char *node, int card)
{
    cleanup_free char *key = xasprintf("%s/%d", node, card);
    return json_object_get(size, key);
}

static long limit(const json_t *pod)
{
    size_t i;
    json_t *c;
    long sum = 0;
    json_array_foreach(lib_at(pod, "spec.containers"), i, c)
    {
        sum += atol(lib_in(c, "resources.limits", "aliyun.com/gpu-mem"));
    }
    return sum;
}

static void add_pod(json_t *sums, const json_t *size, const json_t *pod)
{
    const char *node = lib_str(pod, "spec.nodeName");
    cleanup_free char *cards = xstrdup(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"));
    long units = atol(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD"));
    long n = 0;
    for (int i = 0; !*cards && has_card(size, node, i); i++) {
        cleanup_free char *card = xasprintf("%d", i);
        add(sums, node, card, limit(pod));
    }
    for (const char *p = cards; *p; p++)
        n += p == cards || *p == ',';
    for (char *rest = cards, *card; (card = strsep(&rest, ",")) && *card;)
        add(sums, node, card, units / n);
}

json_t *oracle_promised(const struct peer *api)
{
    cleanup_json json_t *pods = items(api, "/api/v1/pods"), *size = sizes(api);
    json_t *sums = json_object(), *pod;
    size_t i;
    json_array_foreach(pods, i, pod)
    {
        if (holds(pod))
            add_pod(sums, size, pod);
    }
    return sums;
}

void oracle_check(const struct peer *api)
{
    cleanup_json json_t *promised = oracle_promised(api), *size = sizes(api);
    const char *card;
    json_t *units;
    json_object_foreach(promised, card, units)
    {
        json_int_t has = json_integer_value(json_object_get(size, card));
        ck_assert_msg(json_integer_value(units) <= has,
                      "%s has %d units, but %d are promised", card, (int)has,
                      (int)json_integer_value(units));
    }
}

/* The inspect reply in the same form. */
static json_t *inspected(const struct extender *e, bool *quiet)
{
    cleanup_json json_t *j = peer_json(&e->observers, "GET", "/inspect", NULL);
    json_t *sums = json_object(), *node, *card;
    size_t i, k;
    json_array_foreach(lib_at(j, "nodes"), i, node){
        json_array_foreach(lib_at(node, "devs"), k, card){char index[32];
    snprintf(index, sizeof index, "%lld",
             (long long)json_integer_value(lib_at(card, "id")));
    add(sums, lib_str(node, "name"), index, json_integer_value(lib_at(card, "usedGPU")));
}
}
*quiet = json_integer_value(lib_at(j, "bindsInFlight")) == 0;
return sums;
}

static bool agree(const struct peer *api, const struct extender *e, char **seen)
{
    bool quiet;
    cleanup_json json_t *ours = oracle_promised(api), *theirs = inspected(e, &quiet);
    cleanup_free char *a = json_dumps(ours, JSON_SORT_KEYS);
    cleanup_free char *b = json_dumps(theirs, JSON_SORT_KEYS);
    free(*seen);
    *seen = xasprintf("annotations say %s, inspect says %s%s", a, b,
                      quiet ? "" : ", binds are in flight");
    return quiet && json_equal(ours, theirs);
}

void oracle_agrees(const struct peer *api, const struct extender *e)
{
    oracle_agrees_within(api, e, LIB_WAIT_MS);
}

void oracle_agrees_within(const struct peer *api, const struct extender *e, int64_t ms)
{
    cleanup_free char *seen = NULL;
    int64_t end = lib_now_ms() + ms;
    while (!agree(api, e, &seen)) {
        ck_assert_msg(lib_now_ms() < end, "%s; the extender: %s", seen,
                      program_output((struct program *)&e->program));
        lib_pause();
    }
    oracle_check(api);
}
