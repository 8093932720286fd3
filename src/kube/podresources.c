/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/podresources.h"

#include <string.h>
#include <time.h>

#include "kube/podresources.pb-c.h"
#include "wire/grpcc.h"

/* The messages of the kubelet's podresources API, field by field (kube/proto.h). */

static const struct proto_type devices_type = {
    &podres__devices__descriptor,
    NULL,
    sizeof(struct podres_devices),
    {{PROTO_AT(podres_devices, resource)}, {PROTO_AT(podres_devices, ids)}}};

static const struct proto_type container_type = {
    &podres__container__descriptor,
    NULL,
    sizeof(struct podres_container),
    {{PROTO_AT(podres_container, name)},
     {PROTO_AT(podres_container, devices), .type = &devices_type}}};

static const struct proto_type pod_type = {
    &podres__pod__descriptor,
    NULL,
    sizeof(struct podres_pod),
    {{PROTO_AT(podres_pod, name)},
     {PROTO_AT(podres_pod, ns)},
     {PROTO_AT(podres_pod, containers), .type = &container_type}}};

const struct proto_type podres_list_type = {
    &podres__list__descriptor,
    "ListPodResourcesResponse",
    sizeof(struct podres_list),
    {{PROTO_AT(podres_list, pods), .type = &pod_type}}};

const struct proto_type podres_allocatable_type = {
    &podres__allocatable__descriptor,
    "AllocatableResourcesResponse",
    sizeof(struct podres_allocatable),
    {{PROTO_AT(podres_allocatable, devices), .type = &devices_type}}};

const struct proto_type podres_get_type = {&podres__get_response__descriptor,
                                           "GetPodResourcesResponse",
                                           sizeof(struct podres_pod),
                                           {{.type = &pod_type}}};

const struct proto_type podres_get_request_type = {
    &podres__get_request__descriptor,
    "GetPodResourcesRequest",
    sizeof(struct podres_get_request),
    {{PROTO_AT(podres_get_request, name)}, {PROTO_AT(podres_get_request, ns)}}};

/* -- calls -- */

enum {
    CALL_MS = 2000,
    BUSY_TRIES = 20,
    BUSY_MS = 25,
};

/* *status: of the last answer. */
static int call(const char *socket, const char *method, struct span message,
                const struct proto_type *type, struct arena *a, void *to,
                enum grpc_status *status, struct err *err)
{
    cleanup_buf struct buf reply = {0};
    struct grpcc_request request = {.socket = socket,
                                    .method = method,
                                    .message = message,
                                    .timeout_ms = CALL_MS,
                                    .max_message = PODRES_MESSAGE_MAX};
    for (int i = 0;; i++) {
        buf_clear(&reply);
        if (grpcc_call(&request, &reply, status, err) == 0)
            return proto_decode(type, buf_span(&reply), a, to, err);
        if (*status != GRPC_RESOURCE_EXHAUSTED || i == BUSY_TRIES ||
            err->code == ERR_TOO_LARGE)
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = BUSY_MS * 1000000}, NULL);
    }
}

int podresources_client_list(const char *socket, struct arena *a,
                             struct podres_list *list, struct err *err)
{
    enum grpc_status status;
    return call(socket, PODRES_LIST, (struct span){0}, &podres_list_type, a, list,
                &status, err);
}

/* Where Get is disabled, kubelets answer FAILED_PRECONDITION or UNKNOWN. */
static bool is_unsupported(enum grpc_status status, const struct err *err)
{
    return status == GRPC_UNIMPLEMENTED || status == GRPC_FAILED_PRECONDITION ||
           (status == GRPC_UNKNOWN && strstr(err->msg, "disabled"));
}

int podresources_client_allocatable(const char *socket, struct arena *a,
                                    struct podres_allocatable *all, struct err *err)
{
    enum grpc_status status = GRPC_OK;
    *all = (struct podres_allocatable){0};
    if (call(socket, PODRES_ALL, (struct span){0}, &podres_allocatable_type, a, all,
             &status, err) == 0)
        return 0;
    if (!is_unsupported(status, err))
        return -1;
    *err = (struct err){0};
    return 0;
}

/* The status of an absent pod depends on the kubelet's version. */
static bool is_absent(enum grpc_status status, const struct err *err)
{
    return status == GRPC_NOT_FOUND ||
           (status == GRPC_UNKNOWN && strstr(err->msg, "not found"));
}

enum podresources_result podresources_client_get(const char *socket, struct span ns,
                                                 struct span name, struct arena *a,
                                                 struct podres_pod *pod, struct err *err)
{
    cleanup_buf struct buf message = {0};
    enum grpc_status status = GRPC_OK;
    if (proto_encode(&podres_get_request_type, &(struct podres_get_request){name, ns},
                     PODRES_MESSAGE_MAX, &message, err))
        return PODRESOURCES_FAILED;
    if (call(socket, PODRES_GET, buf_span(&message), &podres_get_type, a, pod, &status,
             err) == 0) {
        if (pod->name.n)
            return PODRESOURCES_FOUND;
        err_set(err, ERR_INVALID, "GetPodResourcesResponse: pod: missing");
        return PODRESOURCES_FAILED;
    }
    return is_unsupported(status, err) ? PODRESOURCES_UNSUPPORTED
           : is_absent(status, err)    ? PODRESOURCES_ABSENT
                                       : PODRESOURCES_FAILED;
}
