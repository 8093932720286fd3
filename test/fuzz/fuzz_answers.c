/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Responses of the API server (other than lists and watches) and the output of credential
 * plugins. The first byte is "e" for the output of a plugin, "g" for a PodGroup or Workload,
 * or selects the status of a response; the rest is the content. Only a complete object says
 * how many members a gang needs. An accepted token is valid in a header, and accepted
 * times are valid. A response other than success gives an error code that matches the
 * status and a text without control characters.
 */

#include "fuzz/fuzz.h"

#include "base/clock.h"
#include "base/jread.h"
#include "base/mem.h"
#include "kube/client.h"
#include "kube/client_priv.h"
#include "kube/kubeconfig_priv.h"
#include "kube/pod_group.h"

static bool is_printable(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return false;
    return true;
}

static void check_plugin(struct span text)
{
    static char user[] = "u", version[] = "client.authentication.k8s.io/v1";
    char *argv[] = {user, NULL}, *env[] = {NULL};
    struct kube_exec e = {.user = user, .api_version = version, .argv = argv, .env = env};
    struct kube_exec_credential answer = {0};
    struct err err = {0};
    if (kube_exec_parse(&e, text, &answer, &err)) {
        if (err.code == ERR_NONE || !is_printable(err.msg))
            fuzz_fail("an error without text, or with control characters");
    } else {
        if (!answer.token && !answer.cert_pem.n)
            fuzz_fail("an empty credential");
        if (answer.token && !kube_token_ok(span_of(answer.token)))
            fuzz_fail("a token that is not valid in a header");
        if (!answer.cert_pem.n != !answer.key_pem.n)
            fuzz_fail("a certificate without a key, or the reverse");
        if (answer.cert_pem.n &&
            (!kube_is_pem(answer.cert_pem) || !kube_is_pem(answer.key_pem)))
            fuzz_fail("a certificate that is not PEM");
    }
    kube_exec_credential_fini(&answer);
}

static void check_reply(unsigned status, struct span body)
{
    struct err err = {0};
    int rc = kube_reply_check(status, body, &err);
    if ((rc == 0) != (status >= 200 && status < 300) ||
        (rc == 0) != (err.code == ERR_NONE))
        fuzz_fail("the result contradicts the status");
    if (rc && (!err.msg[0] || !is_printable(err.msg)))
        fuzz_fail("an error without text, or with control characters");
    if ((status == 404 && err.code != ERR_NOT_FOUND) ||
        (status == 410 && err.code != ERR_GONE) ||
        (status == 401 && err.code != ERR_UNAUTHORIZED) ||
        (status == 403 && err.code != ERR_FORBIDDEN))
        fuzz_fail("an error code that does not match the status");
}

static int answer(void *ctx, const struct kube_request *request,
                  struct httpc_reply *reply, struct err *err)
{
    (void)request, (void)err;
    *reply = (struct httpc_reply){.status = 200};
    buf_add_span(&reply->body, *(const struct span *)ctx);
    return 0;
}

static void check_group(struct span body)
{
    const struct pod_group_reader from = {answer, &body, clock_mono_ms};
    struct jread j;
    jread_init(&j, body.p, body.n);
    jread_skip(&j);
    bool whole = jread_finish(&j, NULL) == 0;
    for (int kind = GANG_POD_GROUP; kind <= GANG_VOLCANO; kind++) {
        const struct gang gang = {
            .kind = (enum gang_kind)kind, .name = SPAN("g"), .group = SPAN("all")};
        uint32_t minimum = 0;
        struct err err;
        if (pod_group_read(&from, SPAN("ns"), &gang, 60000, &minimum, &err))
            fuzz_fail("an answer was not read");
        if (minimum > INT32_MAX || (minimum && !whole))
            fuzz_fail("a number that the object does not say");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned statuses[] = {200, 201, 400, 401, 403, 404, 409,
                                        410, 422, 429, 500, 503, 504, 302};
    if (size < 1)
        return 0;
    struct span rest = {(const char *)data + 1, size - 1};
    if (data[0] == 'e')
        check_plugin(rest);
    else if (data[0] == 'g')
        check_group(rest);
    else
        check_reply(statuses[data[0] % ARRAY_LEN(statuses)], rest);
    return 0;
}
