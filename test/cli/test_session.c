/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "cli/lib.h"
#include "cli/show.h"
#include "kube/kubeconfig_priv.h"
#include "lib/program.h"
#include "lib/stub.h"

/* The memory unit, where no option sets it, and the addresses of the extender. */

TEST(the_unit_follows_from_capacities)
{
    static const struct {
        const char *nodes;
        int64_t mib;
    } cases[] = {
        {NODE("n1", "28", "2"), 1024},
        {NODE("n1", "2048", "2"), 1024},
        {NODE("n1", "2050", "2"), 1},
        {NODE("n1", "28", "2") "," NODE("n2", "15109", "1"), 1},
        {NODE("n1", "15109", "0"), 1024}, /* no number of cards */
        {NULL, 1024},
    };
    array_items(c, cases) {
        CLUSTER(.nodes = c->nodes);
        ck_assert_int_eq(session_unit_of_cluster(cs), c->mib);
    }
}

/* The unit of the options is not that of the device plugin. */
TEST(a_wrong_unit_is_reported)
{
    CLUSTER(.nodes = NODE("n1", "59", "1"),
            .scvs = SCV_OF("n1", CARD_OF("0", "Healthy", "T4", "15109", "0")));
    cleanup_buf struct buf out = {0};
    ck_assert(show_write(&out, cs, &(struct show){0}));
    ck_assert_contains(out.p, "! n1: capacity is 59 aliyun.com/gpu-mem, but its cards "
                              "make 14 (check that --memory-unit is the same ");
}

/* -- the extender -- */

/* Reads the view of a server that answers with this body: at its URL if `address` is NULL,
 * else as the API server. Is the request this? NULL: none is sent. */
static bool reads(const char *body, const char *address, const char *request,
                  struct err *err)
{
    struct stub *server = stub_start(stub_echo, (void *)body);
    cleanup_free char *slash = xasprintf("%s/", stub_url(server));
    struct kube_config config = {.server = stub_url(server), .path_prefix = "/k8s"};
    struct kube_client *client = kube_client_new(&config, err);
    ck_assert_ptr_nonnull(client);
    const struct cli_config from = {.extender = address ? (char *)address : slash};
    json_t *view = session_check_extender(&from, err)
                       ? NULL
                       : session_call_extender(client, &from, 5000, err);
    cleanup_free char *sent = stub_requests(server) ? stub_request(server, 0) : NULL;
    ck_assert_msg(!request ? !sent : sent && strstr(sent, request) == sent, "%s", sent);
    kube_client_free(client);
    stub_stop(server);
    json_decref(view);
    return view != NULL;
}

TEST(a_url_and_a_service_behind_the_api_server)
{
    static const char *const bad[] = {
        "", "ext", "ns/ext", "ns/ext:", "/x:1", "ns/a/b:1", "ftp://x/", "ns/:1"};
    struct err err = {0};
    ck_assert_msg(reads("{\"nodes\":[]}", NULL,
                        "GET /gpushare-scheduler/inspect HTTP/1.1\r\n", &err),
                  "%s", err.msg);
    ck_assert_msg(reads("{\"nodes\":[]}", "kube-system/ext:http",
                        "GET /k8s/api/v1/namespaces/kube-system/services/ext%3Ahttp/"
                        "proxy/gpushare-scheduler/inspect HTTP/1.1\r\n",
                        &err),
                  "%s", err.msg);
    ck_assert(!reads("<html>", "kube-system/ext:1", "GET ", &err));
    ck_assert_contains(err.msg, "text/html instead of JSON: ");
    ck_assert(!reads("none", "kube-system/ext:1", "GET ", &err));
    ck_assert_contains(err.msg, "the response is not JSON: ");
    array_items(c, bad) {
        ck_assert(!reads("{}", *c, NULL, &err));
        ck_assert_int_eq(err.code, ERR_INVALID);
    }
}

TEST(a_token_is_not_sent_over_plain_http)
{
    static const struct {
        const char *address;
        bool good;
    } cases[] = {{"http://127.0.0.1:1", false},
                 {"kube-system/ext:1", false},
                 {NULL, false},
                 {"https://127.0.0.1:1", true}};
    array_items(p, cases) {
        struct err err = {0};
        const struct cli_config c = {.extender = (char *)p->address,
                                     .extender_token = (char *)"/t"};
        ck_assert_int_eq(session_check_extender(&c, &err), p->good ? 0 : -1);
        ck_assert(p->good || strstr(err.msg, "needs --extender https://HOST:PORT"));
    }
}
