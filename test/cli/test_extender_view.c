/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "base/mem.h"
#include "lib/program.h"
#include "lib/stub.h"

/* Addresses of the extender. */

static json_t *get(const char *body, const char *address, bool by_service, char **request,
                   struct err *err)
{
    struct stub *server = stub_start(stub_echo, (void *)body);
    cleanup_free char *slash = xasprintf("%s/", stub_url(server));
    const struct kube_config config = {.server = (char *)stub_url(server),
                                       .path_prefix = (char *)"/k8s"};
    struct kube_client *client = kube_client_new(&config, err);
    ck_assert_ptr_nonnull(client);
    const struct session_extender from = {.address = by_service ? address : slash};
    json_t *view = session_call_extender(client, &from, 5000, err);
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
    struct err err = {0};
    struct session_extender from = {.address = "http://127.0.0.1:1", .token_file = "/t"};
    ck_assert_int_eq(session_check_extender(&from, &err), -1);
    ck_assert_contains(err.msg, "a bearer token needs an address https://HOST:PORT");
    from.address = "kube-system/ext:1";
    ck_assert_int_eq(session_check_extender(&from, &err), -1);
    from.address = "https://127.0.0.1:1";
    ck_assert_int_eq(session_check_extender(&from, &err), 0);
}
END_TEST

UNIT_MAIN("extender_view", a_token_is_not_sent_over_plain_http,
          a_url_and_a_service_behind_the_api_server, invalid_responses_and_addresses)
