/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/deviceplugin.h"

#include "kube/deviceplugin.pb-c.h"
#include "kube/proto_priv.h"

/* The messages between the kubelet and a device plugin. */

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

static int entries_of(const struct dp_entry *m, size_t n, struct arena *a,
                      const char *what, Dp__Entry ***out, struct err *err)
{
    void **pointers;
    Dp__Entry *p = proto_array(a, n, sizeof *p, &pointers);
    *out = (Dp__Entry **)pointers;
    for (size_t i = 0; i < n; i++) {
        dp__entry__init(&p[i]);
        if (proto_bytes(m[i].key, what, i, &p[i].key, err) ||
            proto_bytes(m[i].value, what, i, &p[i].value, err))
            return -1;
    }
    return 0;
}

static int check_names(const struct dp_entry *envs, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!envs[i].key.n || memchr(envs[i].key.p, '=', envs[i].key.n))
            return err_set(err, ERR_INVALID, "envs[%zu]: invalid variable name \"%.*s\"",
                           i, SPAN_ARG(envs[i].key));
    return 0;
}

static int mounts_of(const struct dp_allocation *m, struct arena *a,
                     Dp__ContainerAllocation *out, struct err *err)
{
    void **pointers;
    Dp__Mount *p = proto_array(a, m->n_mounts, sizeof *p, &pointers);
    out->n_mounts = m->n_mounts;
    out->mounts = (Dp__Mount **)pointers;
    for (size_t i = 0; i < m->n_mounts; i++) {
        const struct dp_mount *from = &m->mounts[i];
        dp__mount__init(&p[i]);
        p[i].read_only = from->read_only;
        if (proto_bytes(from->container_path, "mounts", i, &p[i].container_path, err) ||
            proto_bytes(from->host_path, "mounts", i, &p[i].host_path, err))
            return -1;
    }
    return 0;
}

static int specs_of(const struct dp_allocation *m, struct arena *a,
                    Dp__ContainerAllocation *out, struct err *err)
{
    void **pointers;
    Dp__DeviceSpec *p = proto_array(a, m->n_specs, sizeof *p, &pointers);
    out->n_devices = m->n_specs;
    out->devices = (Dp__DeviceSpec **)pointers;
    for (size_t i = 0; i < m->n_specs; i++) {
        const struct dp_spec *from = &m->specs[i];
        dp__device_spec__init(&p[i]);
        if (proto_bytes(from->container_path, "devices", i, &p[i].container_path, err) ||
            proto_bytes(from->host_path, "devices", i, &p[i].host_path, err) ||
            proto_bytes(from->permissions, "devices", i, &p[i].permissions, err))
            return -1;
    }
    return 0;
}

static int cdi_of(const struct dp_allocation *m, struct arena *a,
                  Dp__ContainerAllocation *out, struct err *err)
{
    void **pointers;
    Dp__CdiDevice *p = proto_array(a, m->n_cdi, sizeof *p, &pointers);
    out->n_cdi_devices = m->n_cdi;
    out->cdi_devices = (Dp__CdiDevice **)pointers;
    for (size_t i = 0; i < m->n_cdi; i++) {
        dp__cdi_device__init(&p[i]);
        if (proto_bytes(m->cdi[i], "cdi_devices", i, &p[i].name, err))
            return -1;
    }
    return 0;
}

static int allocation_of(const struct dp_allocation *m, struct arena *a,
                         Dp__ContainerAllocation *p, struct err *err)
{
    dp__container_allocation__init(p);
    p->n_envs = m->n_envs;
    p->n_annotations = m->n_annotations;
    if (check_names(m->envs, m->n_envs, err) ||
        entries_of(m->envs, m->n_envs, a, "envs", &p->envs, err) ||
        entries_of(m->annotations, m->n_annotations, a, "annotations", &p->annotations,
                   err) ||
        mounts_of(m, a, p, err) || specs_of(m, a, p, err))
        return -1;
    return cdi_of(m, a, p, err);
}

int dp_allocations_encode(const struct dp_allocations *m, struct buf *out,
                          struct err *err)
{
    cleanup_arena struct arena a = {0};
    void **pointers;
    Dp__AllocateResponse p = DP__ALLOCATE_RESPONSE__INIT;
    Dp__ContainerAllocation *items = proto_array(&a, m->n, sizeof *items, &pointers);
    p.n_containers = m->n;
    p.containers = (Dp__ContainerAllocation **)pointers;
    for (size_t i = 0; i < m->n; i++)
        if (allocation_of(&m->items[i], &a, &items[i], err))
            return err_wrap(err, "AllocateResponse: container %zu", i);
    return proto_pack(&p.base, DP_MESSAGE_MAX, out, err);
}

static int entries_from(Dp__Entry *const *p, size_t n, struct arena *a, const char *what,
                        const struct dp_entry **out, struct err *err)
{
    struct dp_entry *items = arena_alloc(a, n * sizeof *items);
    *out = items;
    for (size_t i = 0; i < n; i++)
        if (proto_text(&p[i]->key, a, what, i, &items[i].key, err) ||
            proto_text(&p[i]->value, a, what, i, &items[i].value, err))
            return -1;
    return 0;
}

static int mounts_from(const Dp__ContainerAllocation *p, struct arena *a,
                       struct dp_allocation *out, struct err *err)
{
    struct dp_mount *items = arena_alloc(a, p->n_mounts * sizeof *items);
    out->mounts = items;
    out->n_mounts = p->n_mounts;
    for (size_t i = 0; i < p->n_mounts; i++) {
        const Dp__Mount *from = p->mounts[i];
        items[i].read_only = from->read_only;
        if (proto_text(&from->container_path, a, "mounts", i, &items[i].container_path,
                       err) ||
            proto_text(&from->host_path, a, "mounts", i, &items[i].host_path, err))
            return -1;
    }
    return 0;
}

static int specs_from(const Dp__ContainerAllocation *p, struct arena *a,
                      struct dp_allocation *out, struct err *err)
{
    struct dp_spec *items = arena_alloc(a, p->n_devices * sizeof *items);
    out->specs = items;
    out->n_specs = p->n_devices;
    for (size_t i = 0; i < p->n_devices; i++) {
        const Dp__DeviceSpec *from = p->devices[i];
        if (proto_text(&from->container_path, a, "devices", i, &items[i].container_path,
                       err) ||
            proto_text(&from->host_path, a, "devices", i, &items[i].host_path, err) ||
            proto_text(&from->permissions, a, "devices", i, &items[i].permissions, err))
            return -1;
    }
    return 0;
}

static int cdi_from(const Dp__ContainerAllocation *p, struct arena *a,
                    struct dp_allocation *out, struct err *err)
{
    struct span *items = arena_alloc(a, p->n_cdi_devices * sizeof *items);
    out->cdi = items;
    out->n_cdi = p->n_cdi_devices;
    for (size_t i = 0; i < p->n_cdi_devices; i++)
        if (proto_text(&p->cdi_devices[i]->name, a, "cdi_devices", i, &items[i], err))
            return -1;
    return 0;
}

static int allocation_from(const Dp__ContainerAllocation *p, struct arena *a,
                           struct dp_allocation *out, struct err *err)
{
    *out = (struct dp_allocation){.n_envs = p->n_envs, .n_annotations = p->n_annotations};
    if (entries_from(p->envs, p->n_envs, a, "envs", &out->envs, err) ||
        entries_from(p->annotations, p->n_annotations, a, "annotations",
                     &out->annotations, err) ||
        mounts_from(p, a, out, err) || specs_from(p, a, out, err))
        return -1;
    return cdi_from(p, a, out, err);
}

int dp_allocations_decode(struct span bytes, struct arena *a, struct dp_allocations *out,
                          struct err *err)
{
    cleanup_proto Dp__AllocateResponse *p =
        proto_unpack(&dp__allocate_response__descriptor, bytes, err);
    if (!p)
        return -1;
    struct dp_allocation *items = arena_alloc(a, p->n_containers * sizeof *items);
    for (size_t i = 0; i < p->n_containers; i++)
        if (allocation_from(p->containers[i], a, &items[i], err))
            return err_wrap(err, "AllocateResponse: container %zu", i);
    *out = (struct dp_allocations){items, p->n_containers};
    return 0;
}
