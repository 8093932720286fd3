/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "base/mem.h"
#include "cli/lib.h"
#include "cli/show.h"
#include "kube/kubeconfig_priv.h"
#include "lib/program.h"
#include "lib/stub.h"

/* The memory unit, where no option sets it, and the addresses of the extender. */

START_TEST(the_unit_follows_from_capacities)
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
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLUSTER(.nodes = cases[i].nodes);
        ck_assert_int_eq(session_unit_of_cluster(cs), cases[i].mib);
    }
}
END_TEST

/* The unit of the options is not that of the device plugin. */
START_TEST(a_wrong_unit_is_reported)
{
    CLUSTER(.nodes = NODE("n1", "59", "1"),
            .scvs = SCV_OF("n1", CARD_OF("0", "Healthy", "T4", "15109", "0")));
    cleanup_buf struct buf out = {0};
    ck_assert(show_write(&out, cs, &(struct show){0}));
    ck_assert_contains(out.p, "! n1: capacity is 59 aliyun.com/gpu-mem, but its cards "
                              "make 14 (check that --memory-unit is the same ");
}
END_TEST

/* -- the extender -- */

static json_t *get(const char *body, const char *address, bool by_service, char **request,
                   struct err *err)
{
    struct stub *server = stub_start(stub_echo, (void *)body);
    cleanup_free char *slash = xasprintf("%s/", stub_url(server));
    struct kube_config config = {.server = stub_url(server), .path_prefix = "/k8s"};
    struct kube_client *client = kube_client_new(&config, err);
    ck_assert_ptr_nonnull(client);
    const struct cli_config from = {.extender = by_service ? (char *)address : slash};
    json_t *view = session_check_extender(&from, err)
                       ? NULL
                       : session_call_extender(client, &from, 5000, err);
    *request = stub_requests(server) ? stub_request(server, 0) : xstrdup("");
    kube_client_free(client);
    stub_stop(server);
    return view;
}

START_TEST(a_url_and_a_service_behind_the_api_server)
{
    struct err err = {0};
    char *request;
    json_t *view = get("{\"nodes\":[]}", NULL, false, &request, &err);
    ck_assert_msg(view != NULL, "%s", err.msg);
    ck_assert_contains(request, "GET /gpushare-scheduler/inspect HTTP/1.1\r\n");
    json_decref(view);
    free(request);
    view = get("{\"nodes\":[]}", "kube-system/ext:http", true, &request, &err);
    ck_assert_msg(view != NULL, "%s", err.msg);
    ck_assert_contains(request,
                       "GET /k8s/api/v1/namespaces/kube-system/services/ext%3Ahttp/"
                       "proxy/gpushare-scheduler/inspect HTTP/1.1\r\n");
    json_decref(view);
    free(request);
}
END_TEST

START_TEST(invalid_responses_and_addresses)
{
    struct err err = {0};
    char *request;
    ck_assert_ptr_null(get("<html>", "kube-system/ext:1", true, &request, &err));
    ck_assert_contains(err.msg, "the response is not JSON: ");
    free(request);
    static const char *const bad[] = {
        "", "ext", "ns/ext", "ns/ext:", "/x:1", "ns/a/b:1", "ftp://x/", "ns/:1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_ptr_null(get("{}", bad[i], true, &request, &err));
        ck_assert_int_eq(err.code, ERR_INVALID);
        ck_assert_str_eq(request, "");
        free(request);
    }
}
END_TEST

START_TEST(a_token_is_not_sent_over_plain_http)
{
    static const struct {
        const char *address;
        bool good;
    } cases[] = {{"http://127.0.0.1:1", false},
                 {"kube-system/ext:1", false},
                 {NULL, false},
                 {"https://127.0.0.1:1", true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        const struct cli_config c = {.extender = (char *)cases[i].address,
                                     .extender_token = (char *)"/t"};
        ck_assert_int_eq(session_check_extender(&c, &err), cases[i].good ? 0 : -1);
        ck_assert(cases[i].good || strstr(err.msg, "needs --extender https://HOST:PORT"));
    }
}
END_TEST

UNIT_MAIN("session", the_unit_follows_from_capacities, a_wrong_unit_is_reported,
          a_token_is_not_sent_over_plain_http, a_url_and_a_service_behind_the_api_server,
          invalid_responses_and_addresses)
