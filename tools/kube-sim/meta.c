/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/meta_priv.h"

#include <stdio.h>

#include "base/mem.h"
#include "kube-sim/names_priv.h"

enum { ANNOTATIONS_MAX = 256 * 1024 };

static void check_name(const struct kind *kind, const json_t *object, struct faultlist *f)
{
    struct span name = sim_jsonx_span(object, "metadata.name");
    bool label = strcmp(kind->kind, "Namespace") == 0;
    if (!name.n)
        sim_fault_required(f, "metadata.name", "name or generateName is required");
    else if (label && memchr(name.p, '.', name.n))
        sim_fault_invalid(f, "metadata.name", name, "must not contain dots");
    else if (label ? !sim_name_is_dns_label(name) : !sim_name_is_dns_subdomain(name))
        sim_fault_invalid(f, "metadata.name", name,
                          label ? sim_name_dns_label_rule : sim_name_dns_subdomain_rule);
}

static void check_labels(json_t *labels, struct faultlist *f)
{
    const char *key;
    json_t *value;
    json_object_foreach(labels, key, value)
    {
        if (!sim_name_is_qualified(span_of(key)))
            sim_fault_invalid(f, "metadata.labels", span_of(key),
                              key[0] == '/' ? "prefix part must be non-empty"
                                            : sim_name_qualified_rule);
        if (!sim_name_is_label_value(sim_jsonx_text(value)))
            sim_fault_invalid(f, "metadata.labels", sim_jsonx_text(value),
                              sim_name_label_value_rule);
    }
}

static void check_annotations(json_t *annotations, struct faultlist *f)
{
    const char *key;
    json_t *value;
    size_t total = 0;
    json_object_foreach(annotations, key, value)
    {
        /* Annotation keys are validated in lower case. */
        cleanup_free char *lower = xstrdup(key);
        for (char *c = lower; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c + ('a' - 'A'));
        if (!sim_name_is_qualified(span_of(lower)))
            sim_fault_invalid(f, "metadata.annotations", span_of(key),
                              key[0] == '/' ? "prefix part must be non-empty"
                                            : sim_name_qualified_rule);
        total += strlen(key) + json_string_length(value);
    }
    if (total > ANNOTATIONS_MAX)
        sim_fault_too_long(f, "metadata.annotations", ANNOTATIONS_MAX);
}

void sim_meta_check(const struct kind *kind, const json_t *object, struct faultlist *f)
{
    check_name(kind, object, f);
    check_labels(sim_jsonx_at(object, "metadata.labels"), f);
    check_annotations(sim_jsonx_at(object, "metadata.annotations"), f);
}

static void carry(json_t *meta, const json_t *old, const char *key, bool fixed,
                  struct faultlist *f)
{
    json_t *before = json_object_get(old, key), *after = json_object_get(meta, key);
    if (!after || json_is_null(after) || !fixed) {
        if (before)
            json_object_set(meta, key, before);
        else
            json_object_del(meta, key);
        return;
    }
    if (before && json_equal(before, after))
        return;
    cleanup_buf struct buf field = {0}, value = {0};
    buf_printf(&field, "metadata.%s", key);
    if (json_is_string(after))
        buf_add_span(&value, sim_jsonx_text(after));
    else
        sim_jsonx_dump(&value, after);
    sim_fault_invalid(f, field.p, buf_span(&value), "field is immutable");
}

void sim_meta_carry_over(json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const fixed[] = {"name", "namespace", "uid", "deletionTimestamp",
                                        "deletionGracePeriodSeconds"};
    json_t *meta = json_object_get(object, "metadata");
    const json_t *before = json_object_get(old, "metadata");
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        carry(meta, before, fixed[i], true, f);
    carry(meta, before, "creationTimestamp", false, f);
    carry(meta, before, "generation", false, f);
}

static bool is_ignored(const char *key, bool but_status)
{
    return strcmp(key, "metadata") == 0 || strcmp(key, "kind") == 0 ||
           strcmp(key, "apiVersion") == 0 || (but_status && strcmp(key, "status") == 0);
}

static bool covers(const json_t *a, const json_t *b, bool but_status)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a, key,
                        v) if (!is_ignored(key, but_status) &&
                               !json_equal(v, json_object_get(b, key))) return false;
    return true;
}

void sim_meta_count_change(json_t *object, const json_t *old, bool but_status)
{
    if (covers(object, old, but_status) && covers(old, object, but_status))
        return;
    sim_jsonx_set_int(json_object_get(object, "metadata"), "generation",
                      sim_jsonx_int(old, "metadata.generation", 0) + 1);
}

bool sim_meta_has_finalizers(const json_t *object)
{
    return json_array_size(sim_jsonx_at(object, "metadata.finalizers")) > 0;
}
