/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/deviceplugin.h"
#include "kube/deviceplugin.pb-c.h"
#include "kube/proto_priv.h"

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
