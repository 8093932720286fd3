/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/store_rig.h"

#include "extender/reflector_thread.h"
#include "kube/config.h"
#include "lib/stub.h"

/* Requests come from many threads, possibly out of order. */

struct door {
    struct gate *gate;
};

/* Does not answer until the gate opens. */
static void hold(struct stub_conn *conn, void *ctx)
{
    struct door *door = ctx;
    if (stub_read(conn))
        gate_wait(door->gate);
}

START_TEST(an_older_request_does_not_cancel_a_newer_list)
{
    struct store_rig rig;
    struct ledger_settings settings = {.unit_mib = 1};
    struct door door = {gate_new()};
    struct err err = {0};
    rig_start(&rig, &settings, false);
    struct stub *server = stub_start(hold, &door);
    struct kube_config config = {.server = (char *)stub_url(server),
                                 .path_prefix = (char *)""};
    struct kube_client *client = kube_client_new(&config, &err);
    ck_assert_msg(client != NULL, "%s", err.msg);
    struct reflector_thread *sync =
        reflector_thread_start(rig.store, client, NULL, false);

    struct core_output list = {.type = CORE_LIST, .kind = CORE_PODS, .run = 11};
    struct core_output older = {
        .type = CORE_WATCH, .kind = CORE_PODS, .run = 10, .version = "5"};
    struct core_output nodes = {.type = CORE_LIST, .kind = CORE_NODES, .run = 12};
    reflector_thread_add(sync, &list);
    wait_for(stub_requests(server) == 1);
    reflector_thread_add(sync, &older);
    reflector_thread_add(sync, &nodes); /* started after the older request was handled */
    wait_for(stub_requests(server) == 2);
    char *first = stub_request(server, 0), *second = stub_request(server, 1);
    ck_assert_ptr_nonnull(strstr(first, "/pods"));
    ck_assert_ptr_nonnull(strstr(second, "/nodes"));
    ck_assert_uint_eq(stub_connections(server), 2);
    free(first);
    free(second);

    list.run = 13; /* a newer request cancels it */
    reflector_thread_add(sync, &list);
    wait_for(stub_requests(server) == 3);
    reflector_thread_stop(sync);
    gate_open(door.gate);
    reflector_thread_free(sync);
    stub_stop(server);
    gate_free(door.gate);
    kube_client_free(client);
    rig_stop(&rig);
}
END_TEST

UNIT_MAIN("reflector_thread", an_older_request_does_not_cancel_a_newer_list)
