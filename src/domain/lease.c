/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes Leases. */
#include "domain/lease.h"

#include "base/jwrite.h"
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

void lease_write(struct buf *out, const struct lease *lease)
{
    struct jwrite w = {.out = out};
    jwrite_object(&w, NULL);
    jwrite_str(&w, "apiVersion", SPAN("coordination.k8s.io/v1"));
    jwrite_str(&w, "kind", SPAN("Lease"));
    jwrite_object(&w, "metadata");
    jwrite_str(&w, "name", lease->meta.name);
    jwrite_str_set(&w, "namespace", lease->meta.ns);
    jwrite_str_set(&w, "resourceVersion", lease->meta.version);
    jwrite_object_end(&w);
    jwrite_object(&w, "spec");
    jwrite_str(&w, "holderIdentity", lease->holder);
    jwrite_i64(&w, "leaseDurationSeconds", lease->duration_s);
    jwrite_str_set(&w, "acquireTime", lease->acquire_time);
    jwrite_str_set(&w, "renewTime", lease->renew_time);
    jwrite_i64(&w, "leaseTransitions", lease->transitions);
    jwrite_object_end(&w);
    jwrite_object_end(&w);
}
