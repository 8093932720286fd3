/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/oracle.h"

/*
 * The promises, computed from the API objects alone. This code shares nothing with the
 * ledger: it parses with jansson, and reads a promise from the five annotations of the Go
 * extender. A pod without them may be on any card of its node, and counts on each.
 */

enum { MIB_PER_UNIT = 1024 };

static void add(json_t *sums, const char *node, const char *card, json_int_t units)
{
    const char *key = lib_fmt("%s/%s", node, card);
    units += json_integer_value(json_object_get(sums, key));
    if (units)
        json_object_set_new(sums, key, json_integer(units));
}

/* The sums of a member of the cards, which are in a list of each object. */
static json_t *sum(const json_t *objects, const char *name, const char *list,
                   const char *member, json_int_t unit)
{
    json_t *sums = lib_own(json_object()), *object, *card;
    lib_each(object, objects)
        lib_each(card, lib_at(object, list))
            add(sums, lib_str(object, name), lib_text(card, "id"),
                lib_int(card, member) / unit);
    return sums;
}

/* Units of each card in its Scv. */
static json_t *sizes(const struct peer *api)
{
    return sum(lib_at(peer_get(api, "/apis/core.run-linux.com/v1/scvs"), "items"),
               "metadata.name", "status.cardList", "totalMemory", MIB_PER_UNIT);
}

static long limit(const json_t *pod, const char *resource)
{
    json_t *c;
    long sum = 0;
    lib_each(c, lib_at(pod, "spec.containers"))
        sum += atol(lib_in(c, "resources.limits", resource));
    return sum;
}

static void add_pod(json_t *sums, const json_t *size, const json_t *pod)
{
    const char *node = lib_str(pod, "spec.nodeName"),
               *cards = lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX");
    long units = atol(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD")), n = 1;
    bool in_mib = limit(pod, "aliyun.com/gpu-share") || limit(pod, "nvidia.com/gpu");
    if (!*cards) {
        for (int i = 0; json_object_get(size, lib_fmt("%s/%d", node, i)); i++)
            add(sums, node, lib_fmt("%d", i),
                MIB_PER_UNIT * limit(pod, "aliyun.com/gpu-mem"));
        return;
    }
    for (const char *p = cards; *p; p++)
        n += *p == ',';
    for (struct span rest = span_of(cards); rest.n;) {
        struct span card = span_cut(&rest, ',');
        add(sums, node, lib_fmt("%.*s", SPAN_ARG(card)),
            units * (in_mib ? 1 : MIB_PER_UNIT) / n);
    }
}

json_t *oracle_promised(const struct peer *api, const char *but)
{
    json_t *size = sizes(api), *sums = lib_own(json_object()),
           *units = lib_own(json_object()), *pod, *mib;
    const char *card;
    lib_each(pod, lib_at(peer_get(api, "/api/v1/pods"), "items")) {
        const char *phase = lib_str(pod, "status.phase");
        if (*lib_str(pod, "spec.nodeName") && strcmp(phase, "Succeeded") != 0 &&
            strcmp(phase, "Failed") != 0 &&
            (!but || strcmp(lib_str(pod, "metadata.name"), but) != 0))
            add_pod(sums, size, pod);
    }
    json_object_foreach(sums, card, mib)
    {
        json_int_t n = json_integer_value(mib) / MIB_PER_UNIT;
        if (n)
            json_object_set_new(units, card, json_integer(n));
    }
    return units;
}

void oracle_check(const struct peer *api)
{
    json_t *promised = oracle_promised(api, NULL), *size = sizes(api), *units;
    const char *card;
    json_object_foreach(promised, card, units)
    {
        json_int_t has = json_integer_value(json_object_get(size, card));
        ck_assert_msg(json_integer_value(units) <= has,
                      "%s has %d units, but %d are promised", card, (int)has,
                      (int)json_integer_value(units));
    }
}

/* Why inspect does not match; NULL: it does. Kept. */
static char *difference(const struct peer *api, const struct extender *e)
{
    const json_t *seen = peer_get(&e->observers, "/inspect"),
                 *theirs = sum(lib_at(seen, "nodes"), "name", "devs", "usedGPU", 1),
                 *ours = oracle_promised(api, NULL);
    json_int_t binds = lib_int(seen, "bindsInFlight");
    if (binds == 0 && json_equal(ours, theirs))
        return NULL;
    return lib_fmt("annotations say %s, inspect says %s, %d binds are in flight",
                   lib_text(ours, ""), lib_text(theirs, ""), (int)binds);
}

void oracle_agrees(const struct peer *api, const struct extender *e)
{
    oracle_agrees_within(api, e, LIB_WAIT_MS);
}

void oracle_agrees_within(const struct peer *api, const struct extender *e, int64_t ms)
{
    const char *why;
    lib_wait_within(ms, (why = difference(api, e)) == NULL, "%s; the extender: %s", why,
                    program_output((struct program *)&e->program));
    oracle_check(api);
}
