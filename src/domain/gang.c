/* SPDX-License-Identifier: Apache-2.0 */
/* The gang of a pod, of the labels, annotations and fields that name it. */
#include "domain/gang.h"

#include "base/array.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/object.h"
#include "domain/quantity.h"

/* Where a pod names its gang, and the minimum; the first name that is not empty counts. */
#define AT(member)         offsetof(struct pod_gang, member)
#define COSCHEDULING(name) GANG_COSCHEDULING, "label " name
#define OLD_MINIMUM        "label " KEY_COSCHEDULING_MINIMUM, AT(old_minimum)
static const struct source {
    enum gang_kind kind;
    const char *name; /* for messages */
    size_t name_at;
    const char *minimum; /* NULL: the pod does not say it */
    size_t minimum_at;
} sources[] = {
    {GANG_POD_GROUP, "spec.schedulingGroup.podGroupName", AT(group), NULL, 0},
    {GANG_WORKLOAD, "spec.workloadRef.name", AT(workload), NULL, 0},
    {COSCHEDULING(KEY_COSCHEDULING), AT(coscheduling), OLD_MINIMUM},
    {COSCHEDULING(KEY_COSCHEDULING_GROUP), AT(old_group), OLD_MINIMUM},
    {COSCHEDULING(KEY_COSCHEDULING_NAME), AT(old_name), OLD_MINIMUM},
    {GANG_KUEUE, "label " KEY_KUEUE_GROUP, AT(kueue), "annotation " KEY_KUEUE_TOTAL,
     AT(kueue_total)},
    {GANG_VOLCANO, "annotation " KEY_VOLCANO_GROUP, AT(volcano), NULL, 0},
    {GANG_VOLCANO, "annotation " KEY_VOLCANO_KUBE_GROUP, AT(volcano_kube), NULL, 0},
};

enum { SHOWN_MAX = 64 }; /* bytes of an invalid value in a message */

static struct span text_at(const struct pod *pod, size_t offset)
{
    return *(const struct span *)((const char *)&pod->gang + offset);
}

static int refuse(struct err *err, const char *where, struct span text, const char *why)
{
    return err_set(err, ERR_INVALID, "%s: \"%.*s\"%s", where,
                   (int)(text.n < SHOWN_MAX ? text.n : SHOWN_MAX), text.p, why);
}

static int check_name(const char *where, struct span name, struct err *err)
{
    if (!name.n || object_is_name(name))
        return 0;
    return refuse(err, where, name, " cannot be a name");
}

/* *minimum: 0 if the text is absent, or cannot be read (-1). */
static int read_minimum(const char *where, struct span text, uint32_t *minimum,
                        struct err *err)
{
    int64_t n = 0;
    *minimum = 0;
    if (!text.p)
        return 0;
    if (quantity_read(span_trim(text), &n, NULL) || n < 1 || n > INT32_MAX)
        return refuse(err, where, text, " is not a number of members (1..2147483647)");
    *minimum = (uint32_t)n;
    return 0;
}

/* Fills in what can be read also when it returns -1. */
static int read_gang(const struct pod *pod, struct gang *gang, struct err *err)
{
    static const char own[] = "annotation " KEY_GANG_MINIMUM;
    static const char alone[] = ", but the pod names no gang";
    const struct pod_gang *raw = &pod->gang;
    struct span topology = span_trim(pod->topology);
    const struct source *s = sources, *end = sources + ARRAY_LEN(sources);
    *gang = (struct gang){0};
    while (s < end && !text_at(pod, s->name_at).n)
        s++;
    if (s < end) {
        bool of_workload = s->kind == GANG_WORKLOAD;
        *gang =
            (struct gang){.kind = s->kind,
                          .name = text_at(pod, s->name_at),
                          .group = of_workload ? raw->workload_group : (struct span){0},
                          .replica = of_workload ? raw->replica : (struct span){0}};
        if (check_name(s->name, gang->name, err) ||
            check_name("spec.workloadRef.podGroup", gang->group, err) ||
            check_name("spec.workloadRef.podGroupReplicaKey", gang->replica, err)) {
            gang->kind = GANG_NONE;
            return -1;
        }
        if (raw->minimum.p || !s->minimum)
            return read_minimum(own, raw->minimum, &gang->minimum, err);
        return read_minimum(s->minimum, text_at(pod, s->minimum_at), &gang->minimum, err);
    }
    if (span_eq(topology, SPAN("gang")))
        return refuse(err, "annotation " KEY_TOPOLOGY, topology, alone);
    const char *where = own;
    struct span text = raw->minimum;
    uint32_t minimum;
    for (s = sources; s < end && !text.p; s++)
        if (s->minimum) {
            where = s->minimum;
            text = text_at(pod, s->minimum_at);
        }
    if (read_minimum(where, text, &minimum, err))
        return -1;
    return minimum > 1 ? refuse(err, where, text, alone) : 0;
}

int gang_check(const struct pod *pod, struct err *err)
{
    struct gang gang;
    return read_gang(pod, &gang, err);
}

bool gang_of(const struct pod *pod, struct gang *gang)
{
    read_gang(pod, gang, NULL);
    if (gang->kind != GANG_NONE && gang->minimum != 1)
        return true;
    *gang = (struct gang){0};
    return false;
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

void gang_of_key(struct span key, struct span *ns, struct gang *gang)
{
    struct span kind = span_cut(&key, '/');
    *ns = span_cut(&key, '/');
    *gang = (struct gang){.kind = (enum gang_kind)(kind.p[0] - '0')};
    gang->name = span_cut(&key, '/');
    gang->group = span_cut(&key, '/');
    gang->replica = span_cut(&key, '/');
}
