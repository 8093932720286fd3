/* SPDX-License-Identifier: Apache-2.0 */
/* The gang of a pod, of the labels, annotations and fields that name it. */
#include "domain/gang.h"

#include "base/mem.h"
#include "domain/object.h"
#include "domain/quantity.h"

static uint32_t number(struct span text)
{
    int64_t n = 0;
    if (!text.n || quantity_read(span_trim(text), &n, NULL) || n < 1 || n > INT32_MAX)
        return 0;
    return (uint32_t)n;
}

static bool is_name_or_empty(struct span text)
{
    return text.n == 0 || object_is_name(text);
}

/* The first text that is not empty. */
static struct span first_of(struct span a, struct span b)
{
    return a.n ? a : b;
}

static void name_it(const struct pod_gang *raw, struct gang *gang)
{
    struct span coscheduling =
        first_of(raw->coscheduling, first_of(raw->old_group, raw->old_name));
    struct span volcano = first_of(raw->volcano, raw->volcano_kube);
    if (raw->group.n)
        *gang = (struct gang){.kind = GANG_POD_GROUP, .name = raw->group};
    else if (raw->workload.n)
        *gang = (struct gang){.kind = GANG_WORKLOAD,
                              .name = raw->workload,
                              .group = raw->workload_group,
                              .replica = raw->replica};
    else if (coscheduling.n)
        *gang = (struct gang){.kind = GANG_COSCHEDULING,
                              .name = coscheduling,
                              .minimum = number(raw->old_minimum)};
    else if (raw->kueue.n)
        *gang = (struct gang){
            .kind = GANG_KUEUE, .name = raw->kueue, .minimum = number(raw->kueue_total)};
    else if (volcano.n)
        *gang = (struct gang){.kind = GANG_VOLCANO, .name = volcano};
}

bool gang_of(const struct pod *pod, struct gang *gang)
{
    *gang = (struct gang){0};
    name_it(&pod->gang, gang);
    uint32_t minimum = number(pod->gang.minimum);
    if (minimum)
        gang->minimum = minimum;
    if (gang->kind == GANG_NONE || gang->minimum == 1 || !object_is_name(gang->name) ||
        !is_name_or_empty(gang->group) || !is_name_or_empty(gang->replica)) {
        *gang = (struct gang){0};
        return false;
    }
    return true;
}

void gang_key(struct buf *out, struct span ns, const struct gang *gang)
{
    const struct span parts[] = {ns, gang->name, gang->group, gang->replica};
    buf_addc(out, (char)('0' + gang->kind));
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) { /* no name has a slash */
        buf_addc(out, '/');
        buf_add_span(out, parts[i]);
    }
}
