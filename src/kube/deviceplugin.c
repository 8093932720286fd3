/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/deviceplugin.h"

#include "kube/deviceplugin.pb-c.h"
#include "kube/proto_priv.h"

/*
 * All messages except AllocateResponse, which is in deviceplugin_allocation.c.
 */

static int check_ids(const struct span *ids, size_t n, const char *what, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i].n < 1 || ids[i].n > DP_ID_MAX)
            return err_set(err, ERR_INVALID, "%s[%zu]: %zu bytes, expected 1 to %d", what,
                           i, ids[i].n, DP_ID_MAX);
    return 0;
}

static Dp__Options options_of(const struct dp_options *m)
{
    Dp__Options p = DP__OPTIONS__INIT;
    p.pre_start_required = m->pre_start_required;
    p.get_preferred_allocation_available = m->preferred_allocation;
    return p;
}

int dp_options_encode(const struct dp_options *m, struct buf *out, struct err *err)
{
    Dp__Options p = options_of(m);
    return proto_pack(&p.base, DP_MESSAGE_MAX, out, err);
}

static struct dp_options options_from(const Dp__Options *p)
{
    return (struct dp_options){p->pre_start_required,
                               p->get_preferred_allocation_available};
}

int dp_options_decode(struct span bytes, struct dp_options *out, struct err *err)
{
    cleanup_proto Dp__Options *p = proto_unpack(&dp__options__descriptor, bytes, err);
    if (!p)
        return err_wrap(err, "DevicePluginOptions");
    *out = options_from(p);
    return 0;
}

int dp_register_encode(const struct dp_register *m, struct buf *out, struct err *err)
{
    Dp__RegisterRequest p = DP__REGISTER_REQUEST__INIT;
    Dp__Options options = options_of(&m->options);
    p.options = &options;
    if (proto_bytes(m->version, "version", 0, &p.version, err) ||
        proto_bytes(m->endpoint, "endpoint", 0, &p.endpoint, err) ||
        proto_bytes(m->resource, "resource_name", 0, &p.resource_name, err) ||
        proto_pack(&p.base, DP_MESSAGE_MAX, out, err))
        return err_wrap(err, "RegisterRequest");
    return 0;
}

int dp_register_decode(struct span bytes, struct arena *a, struct dp_register *out,
                       struct err *err)
{
    cleanup_proto Dp__RegisterRequest *p =
        proto_unpack(&dp__register_request__descriptor, bytes, err);
    *out = (struct dp_register){0};
    if (!p || proto_text(&p->version, a, "version", 0, &out->version, err) ||
        proto_text(&p->endpoint, a, "endpoint", 0, &out->endpoint, err) ||
        proto_text(&p->resource_name, a, "resource_name", 0, &out->resource, err))
        return err_wrap(err, "RegisterRequest");
    if (p->options)
        out->options = options_from(p->options);
    return 0;
}

static int device_of(const struct dp_device *d, size_t i, struct arena *a, Dp__Device *p,
                     struct err *err)
{
    static uint8_t healthy[] = "Healthy", unhealthy[] = "Unhealthy";
    const ProtobufCBinaryData health[] = {{sizeof unhealthy - 1, unhealthy},
                                          {sizeof healthy - 1, healthy}};
    dp__device__init(p);
    p->health = health[d->is_healthy];
    p->topology = proto_topology_of(d->numa, d->n_numa, a);
    return proto_bytes(d->id, "devices", i, &p->id, err);
}

int dp_devices_encode(const struct dp_devices *m, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    void **pointers;
    Dp__DeviceList p = DP__DEVICE_LIST__INIT;
    Dp__Device *devices = proto_array(&a, m->n, sizeof *devices, &pointers);
    p.n_devices = m->n;
    p.devices = (Dp__Device **)pointers;
    for (size_t i = 0; i < m->n; i++)
        if (check_ids(&m->items[i].id, 1, "id", err) ||
            device_of(&m->items[i], i, &a, &devices[i], err))
            return err_wrap(err, "ListAndWatchResponse: device %zu", i);
    if (proto_pack(&p.base, DP_MESSAGE_MAX, out, err))
        return err_wrap(err, "ListAndWatchResponse of %zu devices", m->n);
    return 0;
}

static int device_from(const Dp__Device *p, size_t i, struct arena *a,
                       struct dp_device *out, struct err *err)
{
    struct span health = {(const char *)p->health.data, p->health.len};
    *out = (struct dp_device){.is_healthy = span_eq(health, SPAN("Healthy"))};
    out->n_numa = proto_topology_from(p->topology, a, &out->numa);
    return proto_text(&p->id, a, "id", i, &out->id, err);
}

int dp_devices_decode(struct span bytes, struct arena *a, struct dp_devices *out,
                      struct err *err)
{
    cleanup_proto Dp__DeviceList *p =
        proto_unpack(&dp__device_list__descriptor, bytes, err);
    if (!p)
        return err_wrap(err, "ListAndWatchResponse");
    struct dp_device *items = arena_alloc(a, p->n_devices * sizeof *items);
    for (size_t i = 0; i < p->n_devices; i++)
        if (device_from(p->devices[i], i, a, &items[i], err))
            return err_wrap(err, "ListAndWatchResponse");
    *out = (struct dp_devices){items, p->n_devices};
    return 0;
}

static int ids_of(const struct dp_ids *m, struct arena *a, const char *what,
                  ProtobufCBinaryData **out, struct err *err)
{
    if (check_ids(m->items, m->n, what, err))
        return -1;
    return proto_bytes_list(m->items, m->n, a, what, out, err);
}

int dp_ids_encode(const struct dp_ids *m, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    Dp__Ids p = DP__IDS__INIT;
    p.n_ids = m->n;
    if (ids_of(m, &a, "ids", &p.ids, err) ||
        proto_pack(&p.base, DP_MESSAGE_MAX, out, err))
        return err_wrap(err, "PreStartContainerRequest");
    return 0;
}

int dp_ids_decode(struct span bytes, struct arena *a, struct dp_ids *out, struct err *err)
{
    cleanup_proto Dp__Ids *p = proto_unpack(&dp__ids__descriptor, bytes, err);
    if (!p || proto_texts(p->ids, p->n_ids, a, "ids", &out->items, err))
        return err_wrap(err, "PreStartContainerRequest");
    out->n = p->n_ids;
    return 0;
}

int dp_groups_encode(const struct dp_groups *m, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    void **pointers;
    Dp__ContainersIds p = DP__CONTAINERS_IDS__INIT;
    Dp__Ids *groups = proto_array(&a, m->n, sizeof *groups, &pointers);
    p.n_containers = m->n;
    p.containers = (Dp__Ids **)pointers;
    for (size_t i = 0; i < m->n; i++) {
        dp__ids__init(&groups[i]);
        groups[i].n_ids = m->items[i].n;
        if (ids_of(&m->items[i], &a, "ids", &groups[i].ids, err))
            return err_wrap(err, "ids of container %zu", i);
    }
    return proto_pack(&p.base, DP_MESSAGE_MAX, out, err);
}

int dp_groups_decode(struct span bytes, struct arena *a, struct dp_groups *out,
                     struct err *err)
{
    cleanup_proto Dp__ContainersIds *p =
        proto_unpack(&dp__containers_ids__descriptor, bytes, err);
    if (!p)
        return -1;
    struct dp_ids *items = arena_alloc(a, p->n_containers * sizeof *items);
    for (size_t i = 0; i < p->n_containers; i++) {
        items[i].n = p->containers[i]->n_ids;
        if (proto_texts(p->containers[i]->ids, items[i].n, a, "ids", &items[i].items,
                        err))
            return err_wrap(err, "container %zu", i);
    }
    *out = (struct dp_groups){items, p->n_containers};
    return 0;
}

static int preference_of(const struct dp_preference *m, struct arena *a,
                         Dp__ContainerPreference *p, struct err *err)
{
    dp__container_preference__init(p);
    p->n_available = m->available.n;
    p->n_must_include = m->must_include.n;
    p->size = m->size;
    if (ids_of(&m->available, a, "available", &p->available, err) ||
        ids_of(&m->must_include, a, "must_include", &p->must_include, err))
        return -1;
    return m->size < 0 ? err_set(err, ERR_INVALID, "negative size %d", (int)m->size) : 0;
}

int dp_preferences_encode(const struct dp_preferences *m, struct buf *out,
                          struct err *err)
{
    cleanup_arena struct arena a = {0};
    void **pointers;
    Dp__PreferredRequest p = DP__PREFERRED_REQUEST__INIT;
    Dp__ContainerPreference *items = proto_array(&a, m->n, sizeof *items, &pointers);
    p.n_containers = m->n;
    p.containers = (Dp__ContainerPreference **)pointers;
    for (size_t i = 0; i < m->n; i++)
        if (preference_of(&m->items[i], &a, &items[i], err))
            return err_wrap(err, "PreferredAllocationRequest: container %zu", i);
    return proto_pack(&p.base, DP_MESSAGE_MAX, out, err);
}

static int preference_from(const Dp__ContainerPreference *p, struct arena *a,
                           struct dp_preference *out, struct err *err)
{
    out->available.n = p->n_available;
    out->must_include.n = p->n_must_include;
    out->size = p->size;
    if (p->size < 0)
        return err_set(err, ERR_INVALID, "negative size %d", (int)p->size);
    if (proto_texts(p->available, p->n_available, a, "available", &out->available.items,
                    err))
        return -1;
    return proto_texts(p->must_include, p->n_must_include, a, "must_include",
                       &out->must_include.items, err);
}

int dp_preferences_decode(struct span bytes, struct arena *a, struct dp_preferences *out,
                          struct err *err)
{
    cleanup_proto Dp__PreferredRequest *p =
        proto_unpack(&dp__preferred_request__descriptor, bytes, err);
    if (!p)
        return -1;
    struct dp_preference *items = arena_alloc(a, p->n_containers * sizeof *items);
    for (size_t i = 0; i < p->n_containers; i++)
        if (preference_from(p->containers[i], a, &items[i], err))
            return err_wrap(err, "PreferredAllocationRequest: container %zu", i);
    *out = (struct dp_preferences){items, p->n_containers};
    return 0;
}
