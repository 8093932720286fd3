/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sim/cases_http.h"
#include "sim/cases_pure.h"
#include "sim/same.h"
#include "support/unit.h"

/*
 * The cases in test/sim/conformance against the real API server: it answers as the cases
 * say, and as kube-sim does, but for what test/sim/differences.json names.
 */

static char **files;
static size_t n_files;
static struct cases_http *http;

static void make(const char *path, const char *body)
{
    unsigned status = cases_http_ask(http, "POST", path, body);
    ck_assert_msg(status == 201 || status == 409, "%s %s: %u", path, body, status);
}

/* Pods are refused before there is an account, which a controller would make. */
static void space(void *ctx, const char *name)
{
    cleanup_free char *ns = xasprintf("{\"metadata\":{\"name\":\"%s\"}}", name);
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/serviceaccounts", name);
    (void)ctx;
    make("/api/v1/namespaces", ns);
    make(path, "{\"metadata\":{\"name\":\"default\"},"
               "\"automountServiceAccountToken\":false}");
}

static struct cases_http *connect_api(void)
{
    const char *dir = getenv("E2E_DIR");
    cleanup_free char *ca = xasprintf("%s/pki/ca.crt", dir);
    cleanup_free char *cert = xasprintf("%s/pki/admin.crt", dir);
    cleanup_free char *key = xasprintf("%s/pki/admin.key", dir);
    cleanup_free char *url = xasprintf("https://127.0.0.1:%s", getenv("E2E_PORT"));
    return cases_http_new(&(struct cases_http_config){url, ca, cert, key});
}

START_TEST(the_real_server_answers_as_the_case_says_and_as_kube_sim)
{
    struct cases_pure p;
    struct cases_server real = {.name = "kubernetes", .space = space}, sim;
    cleanup_free char *name = cases_name(files[_i]);
    cleanup_free char *id =
        xasprintf("%s%s", name, getenv("E2E_RUN") ? getenv("E2E_RUN") : "");
    http = connect_api();
    cases_http_server(http, &real);
    size_t faults = 0;
    json_t *theirs = cases_run(files[_i], id, &real, &faults);
    cases_pure_init(&p);
    cases_pure_server(&p, &sim);
    json_t *ours = cases_run(files[_i], id, &sim, &faults);
    if (theirs && ours)
        faults += same_check(files[_i], theirs, ours);
    cases_pure_fini(&p);
    json_decref(theirs);
    json_decref(ours);
    cases_http_free(http);
    ck_assert_uint_eq(faults, 0);
}

int main(void)
{
    files = cases_files(&n_files);
    Suite *suite = suite_create("conformance");
    TCase *tcase = tcase_create("conformance");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, the_real_server_answers_as_the_case_says_and_as_kube_sim,
                        0, (int)n_files);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    cases_free(files, n_files);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
