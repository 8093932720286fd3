/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the kubelet's podresources API. */
#include "node/podresources_client.h"

#include <time.h>

#include "wire/grpcc.h"

enum {
    CALL_MS = 2000,
    BUSY_TRIES = 20,
    BUSY_MS = 25,
};

static int call(const char *socket, const char *method, struct span message,
                struct buf *reply, enum grpc_status *status, struct err *err)
{
    struct grpcc_request request = {.socket = socket,
                                    .method = method,
                                    .message = message,
                                    .timeout_ms = CALL_MS,
                                    .max_message = PODRES_MESSAGE_MAX};
    for (int i = 0;; i++) {
        buf_clear(reply);
        int rc = grpcc_call(&request, reply, status, err);
        if (rc == 0 || *status != GRPC_RESOURCE_EXHAUSTED || i == BUSY_TRIES ||
            err->code == ERR_TOO_LARGE)
            return rc;
        nanosleep(&(struct timespec){.tv_nsec = BUSY_MS * 1000000}, NULL);
    }
}

int podresources_client_list(const char *socket, struct arena *a,
                             struct podres_list *list, struct err *err)
{
    cleanup_buf struct buf reply = {0};
    enum grpc_status status;
    if (call(socket, PODRES_LIST, (struct span){0}, &reply, &status, err))
        return -1;
    return podres_list_decode(arena_copy(a, buf_span(&reply)), a, list, err);
}

int podresources_client_allocatable(const char *socket, struct arena *a,
                                    struct podres_allocatable *devices, struct err *err)
{
    cleanup_buf struct buf reply = {0};
    enum grpc_status status;
    if (call(socket, PODRES_ALLOCATABLE, (struct span){0}, &reply, &status, err))
        return -1;
    return podres_allocatable_decode(arena_copy(a, buf_span(&reply)), a, devices, err);
}

/* Where Get is disabled, kubelets answer FAILED_PRECONDITION or UNKNOWN. */
static bool is_unsupported(enum grpc_status status, const struct err *err)
{
    return status == GRPC_UNIMPLEMENTED || status == GRPC_FAILED_PRECONDITION ||
           (status == GRPC_UNKNOWN && strstr(err->msg, "disabled"));
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
    cleanup_buf struct buf message = {0}, reply = {0};
    enum grpc_status status = GRPC_OK;
    if (podres_get_request_encode(ns, name, &message, err))
        return PODRESOURCES_FAILED;
    if (call(socket, PODRES_GET, buf_span(&message), &reply, &status, err))
        return is_unsupported(status, err) ? PODRESOURCES_UNSUPPORTED
               : is_absent(status, err)    ? PODRESOURCES_ABSENT
                                           : PODRESOURCES_FAILED;
    if (podres_get_decode(arena_copy(a, buf_span(&reply)), a, pod, err))
        return PODRESOURCES_FAILED;
    return PODRESOURCES_FOUND;
}
