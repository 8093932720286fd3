/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/podresources.h"

#include "kube/podresources.pb-c.h"
#include "kube/proto_priv.h"

/* The messages of the kubelet's podresources API, field by field (kube/proto_priv.h). */

static const struct proto_type devices_type = {
    &podres__devices__descriptor,
    NULL,
    sizeof(struct podres_devices),
    {{.at = offsetof(struct podres_devices, resource)},
     {.at = offsetof(struct podres_devices, ids)},
     {.at = offsetof(struct podres_devices, numa),
      .type = &proto_topology,
      .rule = PROTO_IF_FILLED}}};

static const struct proto_type container_type = {
    &podres__container__descriptor,
    NULL,
    sizeof(struct podres_container),
    {{.at = offsetof(struct podres_container, name)},
     {.at = offsetof(struct podres_container, devices), .type = &devices_type}}};

static const struct proto_type pod_type = {
    &podres__pod__descriptor,
    NULL,
    sizeof(struct podres_pod),
    {{.at = offsetof(struct podres_pod, name)},
     {.at = offsetof(struct podres_pod, ns)},
     {.at = offsetof(struct podres_pod, containers), .type = &container_type}}};

static const struct proto_type list_type = {
    &podres__list__descriptor,
    "ListPodResourcesResponse",
    sizeof(struct podres_list),
    {{.at = offsetof(struct podres_list, pods), .type = &pod_type}}};

static const struct proto_type get_type = {&podres__get_response__descriptor,
                                           "GetPodResourcesResponse",
                                           sizeof(struct podres_pod),
                                           {{.type = &pod_type, .rule = PROTO_REQUIRED}}};

static const struct proto_type allocatable_type = {
    &podres__allocatable__descriptor,
    "AllocatableResourcesResponse",
    sizeof(struct podres_allocatable),
    {{.at = offsetof(struct podres_allocatable, devices), .type = &devices_type}}};

struct get_request {
    struct span name, ns;
};

static const struct proto_type get_request_type = {
    &podres__get_request__descriptor,
    "GetPodResourcesRequest",
    sizeof(struct get_request),
    {{.at = offsetof(struct get_request, name)},
     {.at = offsetof(struct get_request, ns)}}};

int podres_get_request_encode(struct span ns, struct span name, struct buf *out,
                              struct err *err)
{
    const struct get_request m = {name, ns};
    return proto_encode(&get_request_type, &m, PODRES_MESSAGE_MAX, out, err);
}

int podres_get_request_decode(struct span bytes, struct arena *a, struct span *ns,
                              struct span *name, struct err *err)
{
    struct get_request m;
    int rc = proto_decode(&get_request_type, bytes, a, &m, err);
    *ns = m.ns;
    *name = m.name;
    return rc;
}

int podres_list_encode(const struct podres_list *m, struct buf *out, struct err *err)
{
    return proto_encode(&list_type, m, PODRES_MESSAGE_MAX, out, err);
}

int podres_list_decode(struct span bytes, struct arena *a, struct podres_list *out,
                       struct err *err)
{
    return proto_decode(&list_type, bytes, a, out, err);
}

int podres_get_encode(const struct podres_pod *m, struct buf *out, struct err *err)
{
    return proto_encode(&get_type, m, PODRES_MESSAGE_MAX, out, err);
}

int podres_get_decode(struct span bytes, struct arena *a, struct podres_pod *out,
                      struct err *err)
{
    return proto_decode(&get_type, bytes, a, out, err);
}

int podres_allocatable_encode(const struct podres_allocatable *m, struct buf *out,
                              struct err *err)
{
    return proto_encode(&allocatable_type, m, PODRES_MESSAGE_MAX, out, err);
}

int podres_allocatable_decode(struct span bytes, struct arena *a,
                              struct podres_allocatable *out, struct err *err)
{
    return proto_decode(&allocatable_type, bytes, a, out, err);
}
