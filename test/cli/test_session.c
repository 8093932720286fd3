/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "base/mem.h"
#include "cli/check.h"
#include "cli/lib.h"
#include "cli/show.h"
#include "kube/kubeconfig_priv.h"
#include "lib/program.h"
#include "lib/stub.h"

/* The memory unit, where no option sets it, and the addresses of the extender. */

#define T4(id)          CARD_OF(id, "Healthy", "T4", "15109", "0") /* 14.75 GiB */
#define ONE_T4(name)    SCV_OF(name, T4("0"))
#define TWO_T4(name)    SCV_OF(name, T4("0") "," T4("1"))
#define UNHEALTHY(name) SCV_OF(name, CARD_OF("0", "Bad", "T4", "15109", "0"))
#define DAMAGED(name)   "{\"metadata\":{\"name\":\"" name "\"},\"status\":7}"
#define NO_CARDS(name)  SCV_OF(name, "")

START_TEST(the_unit_follows_from_capacity_and_cards)
{
    static const struct {
        const char *nodes, *scvs;
        bool sure;
        int64_t mib;
    } cases[] = {
        {NODE("n1", "28", "2"), TWO_T4("n1"), true, 1024},
        {NODE("n1", "30218", "2"), TWO_T4("n1"), true, 1},
        {NODE("n1", "15109", "1"), UNHEALTHY("n1"), true, 1},
        {NODE("n1", "59", "1"), ONE_T4("n1"), true, 256},
        {NODE("n1", "3776", "2"), TWO_T4("n1"), true, 8},
        /* A card that is not reported (yet) does not change the unit. */
        {NODE("n1", "14", "1") "," NODE("n2", "14", "1"), ONE_T4("n1") "," TWO_T4("n2"),
         true, 1024},
        {NODE("n1", "15109", "1") "," NODE("n2", "15109", "1"),
         ONE_T4("n1") "," TWO_T4("n2"), true, 1},
        {NODE("n1", "7", "1"), ONE_T4("n1"), false, 1024}, /* not 2 GiB */
        {NODE("n1", "20", "1"), ONE_T4("n1"), false, 1024},
        {NODE("n1", "59", "1") "," NODE("n2", "29", "1"), ONE_T4("n1") "," ONE_T4("n2"),
         false, 1024},
        {NODE("n1", "14", "1") "," NODE("n2", "15109", "1"),
         ONE_T4("n1") "," ONE_T4("n2"), false, 1},
        /* Scv and capacity differ in the number of cards: not comparable. */
        {NODE("n1", "280", "2"),
         SCV_OF("n1", CARD_OF("0", "Healthy", "H200", "143771", "0")), true, 1024},
        /* Nothing speaks against GiB. */
        {NODE("n1", "0", "0"), TWO_T4("n1"), true, 1024},
        {NODE("n1", "15109", "1"), DAMAGED("n1"), true, 1024},
        {NODE("n1", "15109", "1"), NO_CARDS("n1"), true, 1024},
        {NULL, TWO_T4("n1"), true, 1024},
        {NULL, NULL, true, 1024},
        /* Without an Scv. */
        {NODE("n1", "160", "2"), NULL, true, 1024},
        {NODE("n1", "30218", "2"), NULL, false, 1},
        {NODE("n1", "30218", "2") "," NODE("n2", "15109", "1"), ONE_T4("n2"), true, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cluster_state *cs = lib_cluster_state(
            &(struct lists){.nodes = cases[i].nodes, .scvs = cases[i].scvs});
        int64_t mib = 0;
        bool sure = session_unit_of_cluster(cs, &mib);
        ck_assert_msg(sure == cases[i].sure && mib == cases[i].mib, "%zu: %d, %lld MiB",
                      i, sure, (long long)mib);
        cluster_state_free(cs);
    }
}
END_TEST

START_TEST(or_from_the_extenders_view)
{
    static const struct {
        const char *view;
        int64_t mib; /* 0: none */
    } cases[] = {
        {"{\"unit\":\"GiB\"}", 1024},   {"{\"unit\":\"MiB\"}", 1},
        {"{\"unit\":\"256MiB\"}", 256}, {"{\"unit\":\"0MiB\"}", 0},
        {"{\"unit\":\"\"}", 0},         {"{\"unit\":5}", 0},
        {"{\"nodes\":[]}", 0},          {"[]", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *view = json_loads(cases[i].view, 0, NULL);
        int64_t mib = 0;
        ck_assert_ptr_nonnull(view);
        ck_assert_msg(session_unit_of_view(view, &mib) == (cases[i].mib > 0), "%zu", i);
        ck_assert_msg(!cases[i].mib || mib == cases[i].mib, "%zu", i);
        json_decref(view);
    }
    int64_t mib;
    ck_assert(!session_unit_of_view(NULL, &mib));
}
END_TEST

START_TEST(an_assumed_unit_is_reported)
{
    struct cluster_state *cs =
        lib_cluster_state(&(struct lists){.nodes = NODE("n1", "15", "1")});
    struct show show = {.unit_assumed = true};
    cleanup_buf struct buf out = {0}, sure = {0}, json = {0};
    ck_assert(show_write(&out, cs, &show));
    ck_assert_contains(out.p,
                       "! cannot derive the unit of aliyun.com/gpu-mem from the nodes' "
                       "capacity, and the extender is unavailable: assuming GiB (set "
                       "--memory-unit)\n");
    show.format = SHOW_JSON;
    ck_assert(show_write(&json, cs, &show));
    ck_assert_contains(json.p, "\"unitAssumed\": true");
    show = (struct show){0};
    ck_assert(show_write(&sure, cs, &show));
    ck_assert_ptr_null(strchr(sure.p, '!'));
    cluster_state_free(cs);
}
END_TEST

/* Both would compute with different amounts. */
START_TEST(the_extender_has_another_unit)
{
    struct cluster_state *cs = lib_cluster_state(&(struct lists){0});
    cleanup_buf struct buf out = {0};
    json_t *view = json_loads("{\"nodes\":[],\"unit\":\"MiB\"}", 0, NULL);
    ck_assert_uint_eq(check_extender(&out, cs, view, (struct span){0}), 1);
    ck_assert_str_eq(out.p,
                     "one unit of aliyun.com/gpu-mem is 1024 MiB, but 1 MiB for the "
                     "extender\n");
    json_decref(view);
    cluster_state_free(cs);
}
END_TEST

/* -- the extender -- */

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

UNIT_MAIN("session", the_unit_follows_from_capacity_and_cards, or_from_the_extenders_view,
          an_assumed_unit_is_reported, the_extender_has_another_unit,
          a_token_is_not_sent_over_plain_http, a_url_and_a_service_behind_the_api_server,
          invalid_responses_and_addresses)
