/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/node_match.h"

#include <errno.h>
#include <stdlib.h>

#include "base/str.h"

#define CORDON_KEY "node.kubernetes.io/unschedulable"

static const json_t *at(const json_t *o, const char *a, const char *b)
{
    return json_object_get(json_object_get(o, a), b);
}

static struct span text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

static bool is_in(const json_t *values, const char *value)
{
    const json_t *item;
    size_t i;
    json_array_foreach(values, i, item)
    {
        const char *text = json_string_value(item);
        if (text && !strcmp(text, value))
            return true;
    }
    return false;
}

static bool read_int(const char *text, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return *text && !*end && !errno;
}

/* Gt and Lt: one value, and both are integers. */
static bool compares(const json_t *values, const char *value, bool greater)
{
    const char *limit = json_string_value(json_array_get(values, 0));
    long long a, b;
    if (json_array_size(values) != 1 || !limit || !value || !read_int(value, &a) ||
        !read_int(limit, &b))
        return false;
    return greater ? a > b : a < b;
}

/* `value` NULL: the node has no such label. */
static bool expression_matches(const json_t *e, const char *value)
{
    struct span operator= text_at(e, "operator");
    const json_t *values = json_object_get(e, "values");
    if (span_eq(operator, SPAN("In")))
        return value && is_in(values, value);
    if (span_eq(operator, SPAN("NotIn")))
        return !value || !is_in(values, value);
    if (span_eq(operator, SPAN("Exists")))
        return value != NULL;
    if (span_eq(operator, SPAN("DoesNotExist")))
        return !value;
    if (span_eq(operator, SPAN("Gt")))
        return compares(values, value, true);
    return span_eq(operator, SPAN("Lt")) && compares(values, value, false);
}

/* A term without expressions matches no node. */
static bool term_matches(const json_t *term, const json_t *node)
{
    const json_t *expressions = json_object_get(term, "matchExpressions");
    const json_t *fields = json_object_get(term, "matchFields"), *e;
    size_t i;
    if (!json_array_size(expressions) && !json_array_size(fields))
        return false;
    json_array_foreach(expressions, i, e)
    {
        const char *key = json_string_value(json_object_get(e, "key"));
        const json_t *value =
            key ? json_object_get(at(node, "metadata", "labels"), key) : NULL;
        if (!key || !expression_matches(e, json_string_value(value)))
            return false;
    }
    json_array_foreach(fields, i, e)
    {
        if (!span_eq(text_at(e, "key"), SPAN("metadata.name")) ||
            !expression_matches(e, json_string_value(at(node, "metadata", "name"))))
            return false;
    }
    return true;
}

static bool selector_matches(const json_t *selector, const json_t *node)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)selector, key, value)
    {
        const char *label =
            json_string_value(json_object_get(at(node, "metadata", "labels"), key));
        if (!label || !json_is_string(value) || strcmp(label, json_string_value(value)))
            return false;
    }
    return true;
}

bool node_match_affinity(const json_t *spec, const json_t *node)
{
    const json_t *required =
        json_object_get(at(spec, "affinity", "nodeAffinity"),
                        "requiredDuringSchedulingIgnoredDuringExecution");
    const json_t *term;
    size_t i;
    if (!selector_matches(json_object_get(spec, "nodeSelector"), node))
        return false;
    if (!json_is_object(required))
        return true;
    json_array_foreach(json_object_get(required, "nodeSelectorTerms"), i, term)
    {
        if (term_matches(term, node))
            return true;
    }
    return false;
}

/* As in kube-scheduler: an empty key with Exists matches all keys, an empty effect all
 * effects. */
static bool tolerates(const json_t *spec, struct span key, struct span value,
                      struct span effect)
{
    const json_t *t;
    size_t i;
    json_array_foreach(json_object_get(spec, "tolerations"), i, t)
    {
        struct span of_key = text_at(t, "key"), of_effect = text_at(t, "effect");
        struct span operator= text_at(t, "operator");
        bool exists = span_eq(operator, SPAN("Exists"));
        bool equal = (!operator.n || span_eq(operator, SPAN("Equal"))) && of_key.n &&
                     span_eq(text_at(t, "value"), value);
        if ((of_key.n ? span_eq(of_key, key) : exists) && (exists || equal) &&
            (!of_effect.n || span_eq(of_effect, effect)))
            return true;
    }
    return false;
}

bool node_match_taints(const json_t *spec, const json_t *node, bool cordoned_too)
{
    const json_t *taint;
    size_t i;
    json_array_foreach(at(node, "spec", "taints"), i, taint)
    {
        struct span key = text_at(taint, "key"), effect = text_at(taint, "effect");
        if (span_eq(effect, SPAN("PreferNoSchedule")) ||
            (!cordoned_too && span_eq(key, SPAN(CORDON_KEY))))
            continue;
        if (!tolerates(spec, key, text_at(taint, "value"), effect))
            return false;
    }
    return !cordoned_too || !json_is_true(at(node, "spec", "unschedulable")) ||
           tolerates(spec, SPAN(CORDON_KEY), (struct span){"", 0}, SPAN("NoSchedule"));
}
