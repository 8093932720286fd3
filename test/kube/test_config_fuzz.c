/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/base64.h"
#include "domain/object.h"
#include "kube/client.h"
#include "kube/kubeconfig_priv.h"
#include "kube/credential_priv.h"
#include "lib/mutate.h"
#include "lib/temp.h"
#include "lib/unit.h"

/* Mutated kubeconfigs and base64: every result is an error or a consistent config. */

#define PEM_B64                                                                          \
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="

static const char seed_text[] =
    "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
    "contexts:\n- name: c\n  context: {cluster: a, user: b, namespace: n}\n"
    "clusters:\n- name: a\n  cluster:\n    server: https://h:1/p\n"
    "    certificate-authority-data: " PEM_B64 "\n    tls-server-name: n\n"
    "    extensions: [{name: client.authentication.k8s.io/exec, extension: {a: [1, "
    "x]}}]\n"
    "users:\n- name: b\n  user:\n    client-certificate-data: " PEM_B64 "\n"
    "    client-key-data: " PEM_B64 "\n    token: abc\n    tokenFile: t\n    exec:\n"
    "      apiVersion: client.authentication.k8s.io/v1\n      command: ./login\n"
    "      args: [a, b]\n      env: [{name: A, value: b}]\n"
    "      provideClusterInfo: true\n      installHint: x\n";

static const char *const words[] = {
    "\n",   "  ",  ": ",      "- ",     "[",   "]",     "{",      "}",        ",",
    "name", "'",   "\"",      "|\n",    "---", "~",     "\\x",    "\\0",      "\t",
    "a",    "c",   "cluster", "user",   "=",   "https", "true",   "\xc3\xa4", "null",
    "as",   "../", "/",       "!!str ", "#",   "%",     "server", "\xff",     NULL};

static void check_config(const struct kube_config *c)
{
    ck_assert(strstr(c->server, "https://") == c->server ||
              strstr(c->server, "http://") == c->server);
    ck_assert(!*c->path_prefix || *c->path_prefix == '/');
    ck_assert(object_is_namespace(c->ns));
    ck_assert_ptr_nonnull(c->source);
    ck_assert(!c->token || kube_token_ok(span_of(c->token)));
    ck_assert(!c->cert_pem.n == !c->key_pem.n);
    ck_assert(!c->ca_pem.n || kube_is_pem(c->ca_pem));
    ck_assert(!c->ca_pem.n || !c->insecure);
    if (c->exec) {
        ck_assert(c->exec->argv && *c->exec->argv[0]);
        ck_assert(strstr(c->exec->info, "{\"kind\":\"ExecCredential\"") == c->exec->info);
    }
    struct kube_config copy;
    kube_config_copy(&copy, c);
    kube_config_fini(&copy);
}

START_TEST(mutated_kubeconfigs_are_safe)
{
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "k");
    struct kube_config_sources sources = {.kubeconfig = path};
    struct rng rng;
    unsigned good = 0;
    rng_init(&rng, 2);
    for (int round = 0; round < 6000; round++) {
        struct kube_config config = {0};
        struct err err = {0};
        cleanup_buf struct buf b = {0};
        buf_adds(&b, seed_text);
        if (round)
            mutate(&rng, words, &b);
        temp_write_bytes(dir, "k", buf_span(&b));
        int rc = kube_config_load(&sources, &config, &err);
        good += rc == 0;
        if (!rc)
            check_config(&config);
        else
            ck_assert_msg(strstr(err.msg, path) != NULL, "%s", err.msg);
        kube_config_fini(&config);
        ck_assert(round > 0 || rc == 0);
    }
    ck_assert_uint_gt(good, 100);
    ck_assert_uint_lt(good, 5700);
    temp_dir_remove(dir);
}
END_TEST

START_TEST(mutated_base64_is_rejected_or_round_trips)
{
    static const char *const pieces[] = {"=", "==", " ", "\n", "A", "-", "\xff", NULL};
    struct rng rng;
    unsigned good = 0;
    rng_init(&rng, 5);
    for (int round = 0; round < 20000; round++) {
        cleanup_buf struct buf text = {0}, bytes = {0}, again = {0}, packed = {0};
        for (uint64_t n = rng_below(&rng, 40); n; n--)
            buf_addc(&packed, (char)rng_next(&rng));
        base64_encode(buf_span(&packed), &text);
        mutate(&rng, pieces, &text);
        cleanup_free char *exact = xmalloc(text.n);
        memcpy(exact, text.p, text.n);
        if (!base64_decode((struct span){exact, text.n}, &bytes))
            continue;
        good++;
        /* Encoded again, it must be the same text except for white space. */
        base64_encode(buf_span(&bytes), &again);
        size_t k = 0;
        for (size_t i = 0; i < text.n; i++)
            if (!strchr(" \n\r\t", text.p[i]) || !text.p[i])
                ck_assert(k < again.n && again.p[k++] == text.p[i]);
        ck_assert_uint_eq(k, again.n);
    }
    ck_assert_uint_gt(good, 500);
    ck_assert_uint_lt(good, 19500);
}
END_TEST

UNIT_MAIN("config_fuzz", mutated_kubeconfigs_are_safe,
          mutated_base64_is_rejected_or_round_trips)
