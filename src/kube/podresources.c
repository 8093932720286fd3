/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/podresources.h"

#include "kube/podresources.pb-c.h"
#include "kube/proto_priv.h"

static int devices_from(Podres__Devices *const *p, size_t n, struct arena *a,
                        const struct podres_devices **out, struct err *err)
{
    struct podres_devices *items = arena_zalloc(a, n * sizeof *items);
    *out = items;
    for (size_t i = 0; i < n; i++) {
        items[i].n_ids = p[i]->n_device_ids;
        if (proto_text(&p[i]->resource_name, a, "resource_name", i, &items[i].resource,
                       err) ||
            proto_texts(p[i]->device_ids, p[i]->n_device_ids, a, "device_ids",
                        &items[i].ids, err))
            return err_wrap(err, "devices %zu", i);
        items[i].n_numa = proto_topology_from(p[i]->topology, a, &items[i].numa);
    }
    return 0;
}

static int pod_from(const Podres__Pod *p, struct arena *a, struct podres_pod *out,
                    struct err *err)
{
    size_t n = out->n_containers = p->n_containers;
    struct podres_container *items = arena_alloc(a, n * sizeof *items);
    out->containers = items;
    if (proto_text(&p->name, a, "name", 0, &out->name, err) ||
        proto_text(&p->namespace_, a, "namespace", 0, &out->ns, err))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const Podres__Container *c = p->containers[i];
        items[i].n_devices = c->n_devices;
        if (proto_text(&c->name, a, "name", 0, &items[i].name, err) ||
            devices_from(c->devices, c->n_devices, a, &items[i].devices, err))
            return err_wrap(err, "%.*s/%.*s: container %zu", SPAN_ARG(out->ns),
                            SPAN_ARG(out->name), i);
    }
    return 0;
}

int podres_list_decode(struct span bytes, struct arena *a, struct podres_list *out,
                       struct err *err)
{
    cleanup_proto Podres__List *p = proto_unpack(&podres__list__descriptor, bytes, err);
    if (!p)
        return err_wrap(err, "ListPodResourcesResponse");
    struct podres_pod *pods = arena_alloc(a, p->n_pods * sizeof *pods);
    for (size_t i = 0; i < p->n_pods; i++)
        if (pod_from(p->pods[i], a, &pods[i], err))
            return err_wrap(err, "ListPodResourcesResponse: pod %zu", i);
    *out = (struct podres_list){pods, p->n_pods};
    return 0;
}

int podres_get_decode(struct span bytes, struct arena *a, struct podres_pod *out,
                      struct err *err)
{
    cleanup_proto Podres__GetResponse *p =
        proto_unpack(&podres__get_response__descriptor, bytes, err);
    if (p && !p->pod)
        err_set(err, ERR_INVALID, "no pod");
    if (!p || !p->pod || pod_from(p->pod, a, out, err))
        return err_wrap(err, "GetPodResourcesResponse");
    return 0;
}

int podres_allocatable_decode(struct span bytes, struct arena *a,
                              struct podres_allocatable *out, struct err *err)
{
    cleanup_proto Podres__Allocatable *p =
        proto_unpack(&podres__allocatable__descriptor, bytes, err);
    if (!p || devices_from(p->devices, p->n_devices, a, &out->devices, err))
        return err_wrap(err, "AllocatableResourcesResponse");
    out->n = p->n_devices;
    return 0;
}

int podres_get_request_encode(struct span ns, struct span name, struct buf *out,
                              struct err *err)
{
    Podres__GetRequest p = PODRES__GET_REQUEST__INIT;
    if (proto_bytes(name, "pod_name", 0, &p.pod_name, err) ||
        proto_bytes(ns, "pod_namespace", 0, &p.pod_namespace, err))
        return err_wrap(err, "GetPodResourcesRequest");
    return proto_pack(&p.base, PODRES_MESSAGE_MAX, out, err);
}

int podres_get_request_decode(struct span bytes, struct arena *a, struct span *ns,
                              struct span *name, struct err *err)
{
    cleanup_proto Podres__GetRequest *p =
        proto_unpack(&podres__get_request__descriptor, bytes, err);
    if (!p || proto_text(&p->pod_name, a, "pod_name", 0, name, err) ||
        proto_text(&p->pod_namespace, a, "pod_namespace", 0, ns, err))
        return err_wrap(err, "GetPodResourcesRequest");
    return 0;
}

static int devices_of(const struct podres_devices *m, size_t n, struct arena *a,
                      Podres__Devices ***out, struct err *err)
{
    void **pointers;
    Podres__Devices *p = proto_array(a, n, sizeof *p, &pointers);
    *out = (Podres__Devices **)pointers;
    for (size_t i = 0; i < n; i++) {
        podres__devices__init(&p[i]);
        p[i].n_device_ids = m[i].n_ids;
        p[i].topology = proto_topology_of(m[i].numa, m[i].n_numa, a);
        if (proto_bytes(m[i].resource, "resource_name", i, &p[i].resource_name, err) ||
            proto_bytes_list(m[i].ids, m[i].n_ids, a, "device_ids", &p[i].device_ids,
                             err))
            return err_wrap(err, "devices %zu", i);
    }
    return 0;
}

static int pod_of(const struct podres_pod *m, struct arena *a, Podres__Pod *p,
                  struct err *err)
{
    void **pointers;
    Podres__Container *items = proto_array(a, m->n_containers, sizeof *items, &pointers);
    podres__pod__init(p);
    p->n_containers = m->n_containers;
    p->containers = (Podres__Container **)pointers;
    if (proto_bytes(m->name, "name", 0, &p->name, err) ||
        proto_bytes(m->ns, "namespace", 0, &p->namespace_, err))
        return -1;
    for (size_t i = 0; i < m->n_containers; i++) {
        const struct podres_container *c = &m->containers[i];
        podres__container__init(&items[i]);
        items[i].n_devices = c->n_devices;
        if (proto_bytes(c->name, "name", 0, &items[i].name, err) ||
            devices_of(c->devices, c->n_devices, a, &items[i].devices, err))
            return err_wrap(err, "container %zu", i);
    }
    return 0;
}

int podres_list_encode(const struct podres_list *m, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    void **pointers;
    Podres__List p = PODRES__LIST__INIT;
    Podres__Pod *pods = proto_array(&a, m->n, sizeof *pods, &pointers);
    p.n_pods = m->n;
    p.pods = (Podres__Pod **)pointers;
    for (size_t i = 0; i < m->n; i++)
        if (pod_of(&m->pods[i], &a, &pods[i], err))
            return err_wrap(err, "ListPodResourcesResponse: pod %zu", i);
    return proto_pack(&p.base, PODRES_MESSAGE_MAX, out, err);
}

int podres_get_encode(const struct podres_pod *m, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    Podres__GetResponse p = PODRES__GET_RESPONSE__INIT;
    Podres__Pod pod;
    p.pod = &pod;
    if (pod_of(m, &a, &pod, err))
        return err_wrap(err, "GetPodResourcesResponse");
    return proto_pack(&p.base, PODRES_MESSAGE_MAX, out, err);
}

int podres_allocatable_encode(const struct podres_allocatable *m, struct buf *out,
                              struct err *err)
{
    cleanup_arena struct arena a = {0};
    Podres__Allocatable p = PODRES__ALLOCATABLE__INIT;
    p.n_devices = m->n;
    if (devices_of(m->devices, m->n, &a, &p.devices, err))
        return err_wrap(err, "AllocatableResourcesResponse");
    return proto_pack(&p.base, PODRES_MESSAGE_MAX, out, err);
}
