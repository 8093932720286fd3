/* SPDX-License-Identifier: Apache-2.0 */
#include "node/workload.h"

enum {
    SUFFIX = 5, /* characters of a generated pod name */
    HASH_MIN = 6,
    HASH_MAX = 10,   /* of a pod-template-hash */
    MINUTES_MIN = 8, /* digits of a CronJob's time */
    ORDINAL_MAX = 5, /* digits */
};

static bool all_of(struct span s, const char *alphabet)
{
    for (size_t i = 0; i < s.n; i++)
        if (!s.p[i] || !strchr(alphabet, s.p[i]))
            return false;
    return s.n > 0;
}

static bool is_digits(struct span s)
{
    return all_of(s, "0123456789");
}

static bool is_generated(struct span s)
{
    return all_of(s, "bcdfghjklmnpqrstvwxz2456789");
}

/* Cuts *rest at its last '-' and returns the part after it; {NULL, 0}: there is none, or
 * nothing before it. */
static struct span cut_last(struct span *rest)
{
    const char *at = rest->n ? memrchr(rest->p, '-', rest->n) : NULL;
    if (!at || at == rest->p)
        return (struct span){0};
    struct span last = {at + 1, rest->n - (size_t)(at + 1 - rest->p)};
    rest->n = (size_t)(at - rest->p);
    return last;
}

const char *workload_kind(struct span text)
{
    static const char *const kinds[] = {"Deployment", "CronJob", "StatefulSet",
                                        "Controller", "Pod"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (span_eq(text, span_of(kinds[i])))
            return kinds[i];
    return NULL;
}

struct workload workload_of(struct span pod)
{
    struct span name = pod;
    struct span last = cut_last(&name);
    if (is_digits(last) && last.n <= ORDINAL_MAX && (last.p[0] != '0' || last.n == 1) &&
        !(last.n == SUFFIX && is_generated(last)))
        return (struct workload){"StatefulSet", name};
    if (last.n != SUFFIX || !is_generated(last))
        return (struct workload){"Pod", pod};
    struct span before = name;
    last = cut_last(&before);
    if (is_digits(last) && last.n >= MINUTES_MIN)
        return (struct workload){"CronJob", before};
    if (is_generated(last) && last.n >= HASH_MIN && last.n <= HASH_MAX)
        return (struct workload){"Deployment", before};
    return (struct workload){"Controller", name};
}
