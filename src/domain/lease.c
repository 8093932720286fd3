/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/lease.h"

#include "base/mem.h"

static void read_spec(struct jread *j, struct arena *a, struct lease *lease)
{
    struct jread_str key;
    jread_object(j, "spec");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "holderIdentity"))
            jread_text(j, "spec.holderIdentity", a, &lease->holder);
        else if (jread_key_is(key, "leaseDurationSeconds"))
            jread_i64(j, "spec.leaseDurationSeconds", &lease->duration_s);
        else if (jread_key_is(key, "renewTime"))
            jread_text(j, "spec.renewTime", a, &lease->renew_time);
        else if (jread_key_is(key, "acquireTime"))
            jread_text(j, "spec.acquireTime", a, &lease->acquire_time);
        else if (jread_key_is(key, "leaseTransitions"))
            jread_i64(j, "spec.leaseTransitions", &lease->transitions);
        else
            jread_skip(j);
    }
}

void lease_read(struct jread *j, struct arena *a, struct lease *lease)
{
    struct jread_str key;
    *lease = (struct lease){0};
    const struct object_field fields[] = {{OBJECT_OWNER, SPAN("Node"), &lease->node}};
    jread_object(j, "lease");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &lease->meta, fields, ARRAY_LEN(fields));
        else if (jread_key_is(key, "spec"))
            read_spec(j, a, lease);
        else
            jread_skip(j);
    }
    object_meta_check(j, &lease->meta);
}

bool lease_is_of_scv_agent(const struct lease *lease)
{
    return span_eq(lease->holder, lease->meta.name) &&
           span_eq(lease->node, lease->meta.name);
}

static void add_member(struct buf *out, const char *key, struct span value)
{
    if (!value.n)
        return;
    buf_adds(out, key);
    buf_add_json(out, value);
}

void lease_write(struct buf *out, const struct lease *lease)
{
    buf_adds(out, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                  "\"metadata\":{\"name\":");
    buf_add_json(out, lease->meta.name);
    add_member(out, ",\"namespace\":", lease->meta.ns);
    add_member(out, ",\"resourceVersion\":", lease->meta.version);
    buf_adds(out, "},\"spec\":{\"holderIdentity\":");
    buf_add_json(out, lease->holder);
    buf_adds(out, ",\"leaseDurationSeconds\":");
    buf_add_i64(out, lease->duration_s);
    add_member(out, ",\"acquireTime\":", lease->acquire_time);
    add_member(out, ",\"renewTime\":", lease->renew_time);
    buf_adds(out, ",\"leaseTransitions\":");
    buf_add_i64(out, lease->transitions);
    buf_adds(out, "}}");
}
