/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/podresources.h"

#include <stdatomic.h>

#include "lib/temp.h"
#include "lib/unit.h"
#include "wire/grpcd.h"

static char *dir, *path;
static struct grpcd *kubelet;
static enum grpc_status status; /* of the answer to Get */
static const char *message;
static atomic_int calls, busy; /* busy: calls that the rate limit rejects first */

static void on_get(void *ctx, struct grpcd_call *call, struct span request)
{
    struct buf reply = {0};
    const struct podres_pod pod = {.name = SPAN("p"), .ns = SPAN("ns")};
    (void)ctx;
    (void)request;
    calls++;
    if (busy > 0) {
        busy--;
        grpcd_end(call, GRPC_RESOURCE_EXHAUSTED, "rejected by rate limit");
    } else if (status != GRPC_OK) {
        grpcd_end(call, status, "%s", message);
    } else {
        ck_assert_int_eq(
            proto_encode(&podres_get_type, &pod, PODRES_MESSAGE_MAX, &reply, NULL), 0);
        grpcd_reply(call, &reply);
    }
}

static const struct grpcd_method methods[] = {{.path = PODRES_GET, .start = on_get}, {0}};

static void begin(void)
{
    dir = temp_dir();
    path = temp_path(dir, "kubelet.sock");
    const struct grpcd_config config = {.path = path, .methods = methods};
    struct err err;
    kubelet = grpcd_start(&config, &err);
    ck_assert_msg(kubelet != NULL, "%s", err.msg);
}

static void end(void)
{
    grpcd_free(kubelet);
    temp_dir_remove(dir);
    free(dir);
    free(path);
}

static enum podresources_result get(struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct podres_pod pod = {0};
    enum podresources_result result =
        podresources_client_get(path, SPAN("ns"), SPAN("p"), &a, &pod, err);
    if (result == PODRESOURCES_FOUND)
        ck_assert_span_eq(pod.name, "p");
    return result;
}

/* What kubelets of different versions answer. */
static const struct {
    enum grpc_status status;
    const char *message;
    enum podresources_result result;
} answers[] = {
    {GRPC_OK, "", PODRESOURCES_FOUND},
    {GRPC_NOT_FOUND, "pod ns/p", PODRESOURCES_ABSENT},
    {GRPC_UNKNOWN, "pod p in namespace ns not found", PODRESOURCES_ABSENT},
    {GRPC_UNIMPLEMENTED, "unknown method Get", PODRESOURCES_UNSUPPORTED},
    {GRPC_FAILED_PRECONDITION, "feature gate", PODRESOURCES_UNSUPPORTED},
    {GRPC_UNKNOWN, "Podresources Get method disabled", PODRESOURCES_UNSUPPORTED},
    {GRPC_UNKNOWN, "some error", PODRESOURCES_FAILED},
    {GRPC_UNAVAILABLE, "shutting down", PODRESOURCES_FAILED},
};

TEST(the_result_of_get)
{
    array_items(answer, answers) {
        struct err err = {0};
        status = answer->status;
        message = answer->message;
        ck_assert_msg(get(&err) == answer->result, "%d %s", (int)status, message);
    }
}

TEST(a_rate_limited_call_is_repeated)
{
    struct err err = {0};
    status = GRPC_OK;
    busy = 3;
    ck_assert_int_eq(get(&err), PODRESOURCES_FOUND);
    ck_assert_int_eq(calls, 4);
    busy = 1000;
    ck_assert_int_eq(get(&err), PODRESOURCES_FAILED);
    ck_assert_int_lt(calls, 100);
}

TEST(no_kubelet_is_an_error)
{
    struct err err = {0};
    grpcd_free(kubelet);
    kubelet = NULL;
    ck_assert_int_eq(get(&err), PODRESOURCES_FAILED);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
}

UNIT_MAIN_AROUND(begin, end)
