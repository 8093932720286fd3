/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdlib.h>
#include <string.h>

/*
 * The request of a pod, by the oracle's own reading of the JSON. It shares no code with
 * src/domain: it implements docs/user-guide.md, and Kubernetes for the sums.
 */

const char *ask_text(json_t *object, const char *a, const char *b)
{
    return json_string_value(json_object_get(json_object_get(object, a), b));
}

static int64_t limit(json_t *container, const char *resource)
{
    json_t *resources = json_object_get(container, "resources");
    const char *text = ask_text(resources, "limits", resource);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* App containers and sidecars run concurrently; each init container with the sidecars before
 * it. */
static int64_t total(json_t *spec, const char *resource)
{
    int64_t sidecars = 0, peak = 0, apps = 0;
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(spec, "initContainers"), i, c)
    {
        const char *policy = json_string_value(json_object_get(c, "restartPolicy"));
        int64_t n = limit(c, resource);
        if (policy && !strcmp(policy, "Always"))
            sidecars += n;
        if (sidecars + (policy ? 0 : n) > peak)
            peak = sidecars + (policy ? 0 : n);
    }
    json_array_foreach(json_object_get(spec, "containers"), i, c) apps +=
        limit(c, resource);
    return apps + sidecars > peak ? apps + sidecars : peak;
}

static int64_t label(json_t *meta, const char *key)
{
    const char *text = ask_text(meta, "labels", key);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* A whole number from 1; 0: absent; -1: invalid. */
static int64_t number(const char *text)
{
    char *end;
    long long n = text ? strtoll(text, &end, 10) : 0;
    return !text ? 0 : n < 1 || *end || !*text ? -1 : n;
}

static bool is_blank(const char *models)
{
    return models && models[strspn(models, " ,")] == '\0';
}

/* Can each container's memory be split evenly over k cards? */
static bool splits(json_t *spec, int64_t k)
{
    bool even = true;
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(spec, "initContainers"), i, c) even &=
        limit(c, "aliyun.com/gpu-mem") % k == 0 &&
        (k == 1 || json_object_get(c, "restartPolicy") ||
         !limit(c, "aliyun.com/gpu-mem"));
    json_array_foreach(json_object_get(spec, "containers"), i, c) even &=
        limit(c, "aliyun.com/gpu-mem") % k == 0 &&
        limit(c, "aliyun.com/gpu-core.percentage") % k == 0;
    return even;
}

/* Labels beside limits must not request more, and every value must be well-formed. */
static bool is_invalid(const struct oracle_pod *p, json_t *meta, json_t *spec, int64_t k)
{
    const char *place = ask_text(meta, "annotations", "gpushare/placement");
    int64_t n = number(ask_text(meta, "labels", "scv/number"));
    int64_t mib = number(ask_text(meta, "labels", "scv/memory"));
    int64_t clock = number(ask_text(meta, "labels", "scv/clock"));
    int64_t cards = p->raw_cards ? p->raw_cards : p->devices ? p->devices : k;
    if ((p->raw_mem > 0) + (p->raw_cards > 0) + (p->devices > 0) > 1)
        return true;
    if (n < 0 || mib < 0 || clock < 0 ||
        is_blank(ask_text(meta, "annotations", "nvidia-gpu-scheduler/gpu.model")))
        return true;
    if (!p->devices && place && strcmp(place, "binpack") && strcmp(place, "spread"))
        return true;
    if (p->raw_core && (!p->raw_mem || (k > 0 && p->raw_core > 100 * k)))
        return true;
    if (p->raw_mem && (k < 0 || !splits(spec, k) || mib > p->raw_mem / k * 1024))
        return true;
    return !p->labeled && n && n != cards;
}

/* gpu-count as a label or annotation; 1: absent; -1: malformed, or they differ. */
static int64_t split_of(json_t *meta)
{
    const char *label = ask_text(meta, "labels", "aliyun.com/gpu-count");
    const char *note = ask_text(meta, "annotations", "aliyun.com/gpu-count");
    if (label && note && strcmp(label, note) != 0)
        return -1;
    int64_t k = number(label ? label : note);
    return k ? k : 1;
}

/* The request of the pod, by limits or labels. */
static void read_ask(struct oracle_pod *p, json_t *meta, json_t *spec)
{
    int64_t n = number(ask_text(meta, "labels", "scv/number"));
    int64_t mib = number(ask_text(meta, "labels", "scv/memory"));
    int64_t k = split_of(meta);
    const char *models = ask_text(meta, "annotations", "nvidia-gpu-scheduler/gpu.model");
    p->raw_mem = total(spec, "aliyun.com/gpu-mem");
    p->raw_cards = total(spec, "aliyun.com/gpu-count");
    p->raw_core = total(spec, "aliyun.com/gpu-core.percentage");
    p->devices = (int)total(spec, "nvidia.com/gpu");
    p->labeled = !p->raw_mem && !p->raw_cards && !p->devices;
    p->clock = (int)label(meta, "scv/clock");
    p->models = models ? xstrdup(models) : NULL;
    p->nothing = p->labeled && !n && !mib && !p->clock;
    p->invalid = !p->nothing && is_invalid(p, meta, spec, k);
    k = p->invalid ? 1 : k;
    p->whole = p->raw_cards > 0;
    p->cards = p->raw_cards ? (int)p->raw_cards : p->raw_mem ? (int)k : 0;
    p->mib = p->raw_mem / k * 1024;
    if (p->labeled && !p->invalid && !p->nothing) {
        p->cards = n ? (int)n : 1;
        p->mib = mib;
        p->whole = p->mib == 0;
    }
    p->least = !p->labeled && !p->raw_mem ? mib : 0;
    p->units = (p->mib + 1023) / 1024;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

void ask_take(struct oracle_pod *p, const struct oracle_ask *a)
{
    p->units = a->units;
    p->mib = a->mib;
    p->least = a->least;
    p->cards = a->cards;
    p->clock = a->clock;
    p->models = a->models ? xstrdup(a->models) : NULL;
    p->whole = a->whole;
    p->invalid = a->invalid;
    p->nothing = a->nothing;
}

void ask_update(struct oracle_pod *p, bool known, json_t *meta, json_t *spec)
{
    struct oracle_ask *old = xmalloc(sizeof *old);
    *old = (struct oracle_ask){p->units,  p->mib,   p->least,   p->cards,   p->clock,
                               p->models, p->whole, p->invalid, p->nothing, p->asks};
    read_ask(p, meta, spec);
    bool same = !known ||
                (old->units == p->units && old->mib == p->mib && old->least == p->least &&
                 old->cards == p->cards && old->clock == p->clock &&
                 old->whole == p->whole && old->invalid == p->invalid &&
                 old->nothing == p->nothing && same_text(old->models, p->models));
    p->edited |= !same;
    p->version += !same || !known;
    if (p->node && !p->foreign) {
        free(p->models);
        ask_take(p, old);
        same = true;
    }
    if (same) {
        free(old->models);
        free(old);
    } else {
        p->asks = old;
    }
}

void ask_fini(struct oracle_pod *p)
{
    for (struct oracle_ask *a = p->asks, *next; a; a = next) {
        next = a->next;
        free(a->models);
        free(a);
    }
    free(p->models);
}
