/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes Leases. */
#include "domain/lease.h"

#include "base/mem.h"
#include "domain/fields.h"

#define SPEC(key, member) FIELD("spec.", key, lease, member)

static const struct field spec_fields[] = {
    {SPEC("holderIdentity", holder)},
    {SPEC("leaseDurationSeconds", duration_s), FIELD_IS_NUMBER},
    {SPEC("renewTime", renew_time)},
    {SPEC("acquireTime", acquire_time)},
    {SPEC("leaseTransitions", transitions), FIELD_IS_NUMBER},
    FIELDS_END,
};

static void read_meta(struct field_reader *r, const struct field *f, void *at)
{
    struct lease *lease = at;
    const struct object_field fields[] = {{OBJECT_OWNER, SPAN("Node"), &lease->node}};
    (void)f;
    object_meta_read(r->j, r->a, &lease->meta, fields, ARRAY_LEN(fields));
}

static const struct field lease_fields[] = {
    {FIELD("", "metadata", lease, meta), .type = FIELD_OTHER, .read = read_meta},
    {FIELD("", "spec", lease, meta), FIELD_IS_OBJECT(spec_fields)},
    FIELDS_END,
};

void lease_read(struct jread *j, struct arena *a, struct lease *lease)
{
    struct field_reader r = {.j = j, .a = a};
    *lease = (struct lease){0};
    fields_read(&r, "lease", lease_fields, lease);
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
    if (lease->owner_uid.n)
        object_write_owner(&w, lease->meta.name, lease->owner_uid);
    jwrite_str_set(&w, "resourceVersion", lease->meta.version);
    jwrite_object_end(&w);
    jwrite_object(&w, "spec");
    jwrite_str(&w, "holderIdentity", lease->holder);
    jwrite_i64(&w, "leaseDurationSeconds", lease->duration_s);
    jwrite_str_set(&w, "acquireTime", lease->acquire_time);
    jwrite_str_set(&w, "renewTime", lease->renew_time);
    if (lease->transitions >= 0)
        jwrite_i64(&w, "leaseTransitions", lease->transitions);
    jwrite_object_end(&w);
    jwrite_object_end(&w);
}
