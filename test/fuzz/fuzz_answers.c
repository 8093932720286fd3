/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the API server and a credential plugin answer, outside lists and watches. The
 * first byte is "e" for the output of a plugin, or says which status an answer has; then
 * come its bytes. A plugin's token can stand in a header, its times are times; an answer
 * that is no success gives a code that fits the status and words without control
 * characters.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "kube/client.h"
#include "kube/config_priv.h"
#include "kube/credential_priv.h"

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
            fuzz_fail("a refusal without words, or with odd characters");
    } else {
        if (!answer.token && !answer.cert_pem.n)
            fuzz_fail("a credential that is empty");
        if (answer.token && !kube_token_ok(span_of(answer.token)))
            fuzz_fail("a token that cannot stand in a header");
        if (!answer.cert_pem.n != !answer.key_pem.n)
            fuzz_fail("a certificate without its key, or a key alone");
        if (answer.cert_pem.n &&
            (!kube_is_pem(answer.cert_pem) || !kube_is_pem(answer.key_pem)))
            fuzz_fail("a certificate that is none");
    }
    kube_exec_credential_fini(&answer);
}

static void check_reply(unsigned status, struct span body)
{
    struct err err = {0};
    int rc = kube_reply_check(status, body, &err);
    if ((rc == 0) != (status >= 200 && status < 300) ||
        (rc == 0) != (err.code == ERR_NONE))
        fuzz_fail("success and status do not go together");
    if (rc && (!err.msg[0] || !is_printable(err.msg)))
        fuzz_fail("an error without words, or with odd characters");
    if ((status == 404 && err.code != ERR_NOT_FOUND) ||
        (status == 410 && err.code != ERR_GONE) ||
        (status == 401 && err.code != ERR_UNAUTHORIZED) ||
        (status == 403 && err.code != ERR_FORBIDDEN))
        fuzz_fail("a code that does not fit the status");
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
    else
        check_reply(statuses[data[0] % ARRAY_LEN(statuses)], rest);
    return 0;
}
