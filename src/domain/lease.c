/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/lease.h"

static void read_spec(struct json *j, struct arena *a, struct lease *lease)
{
    struct json_str key;
    json_object(j, "spec");
    while (json_member(j, &key)) {
        if (json_key_is(key, "holderIdentity"))
            json_text(j, "spec.holderIdentity", a, &lease->holder);
        else if (json_key_is(key, "leaseDurationSeconds"))
            json_i64(j, "spec.leaseDurationSeconds", &lease->duration_s);
        else if (json_key_is(key, "renewTime"))
            json_text(j, "spec.renewTime", a, &lease->renew_time);
        else if (json_key_is(key, "acquireTime"))
            json_text(j, "spec.acquireTime", a, &lease->acquire_time);
        else if (json_key_is(key, "leaseTransitions"))
            json_i64(j, "spec.leaseTransitions", &lease->transitions);
        else
            json_skip(j);
    }
}

void lease_read(struct json *j, struct arena *a, struct lease *lease)
{
    struct json_str key;
    *lease = (struct lease){0};
    json_object(j, "lease");
    while (json_member(j, &key)) {
        if (json_key_is(key, "metadata"))
            object_meta_read(j, a, &lease->meta, NULL, 0);
        else if (json_key_is(key, "spec"))
            read_spec(j, a, lease);
        else
            json_skip(j);
    }
    object_meta_check(j, &lease->meta);
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
