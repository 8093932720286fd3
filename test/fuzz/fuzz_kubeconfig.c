/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A kubeconfig. An accepted one can be used as it is (URLs and headers have no control
 * characters), and naming the file twice changes nothing, because the first file wins.
 * The files that it names do not exist.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "domain/object.h"
#include "fuzz/fuzz_file.h"
#include "kube/client.h"
#include "kube/kubeconfig_priv.h"

static bool same(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool is_one_word(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
            return false;
    return true;
}

static void check_exec(const struct kube_exec *e)
{
    if (!e->argv || !e->argv[0] || !e->argv[0][0] || !e->env)
        fuzz_fail("a credential plugin without a command");
    for (size_t i = 0; e->env[i]; i++)
        if (!strchr(e->env[i], '='))
            fuzz_fail("a variable without a value");
    if (strncmp(e->info, "{\"kind\":\"ExecCredential\"", 24))
        fuzz_fail("KUBERNETES_EXEC_INFO is wrong");
}

static void check(const struct kube_config *c)
{
    if (strncmp(c->server, "https://", 8) && strncmp(c->server, "http://", 7))
        fuzz_fail("a server URL without a scheme");
    if (!is_one_word(c->server) || !is_one_word(c->path_prefix) ||
        (*c->path_prefix && *c->path_prefix != '/'))
        fuzz_fail("an invalid URL");
    if (!object_is_namespace(c->ns) || !c->source)
        fuzz_fail("no valid namespace, or no source");
    if (c->token && !kube_token_ok(span_of(c->token)))
        fuzz_fail("a token that is not valid in a header");
    if (!c->cert_pem.n != !c->key_pem.n || (c->ca_pem.n && c->insecure))
        fuzz_fail("inconsistent certificate settings");
    if (c->exec)
        check_exec(c->exec);
}

/* Are the configurations equal, apart from `source`? */
static void compare(const struct kube_config *a, const struct kube_config *b)
{
    if (!same(a->server, b->server) || !same(a->path_prefix, b->path_prefix) ||
        !same(a->server_name, b->server_name) || !same(a->proxy, b->proxy) ||
        !same(a->token, b->token) || !same(a->token_file, b->token_file) ||
        !same(a->ns, b->ns) || a->insecure != b->insecure ||
        !span_eq(a->ca_pem, b->ca_pem) || !span_eq(a->cert_pem, b->cert_pem) ||
        !span_eq(a->key_pem, b->key_pem) || !a->exec != !b->exec)
        fuzz_fail("the file named twice differs");
}

static int load(const char *list, struct kube_config *config, struct err *err)
{
    const struct kube_config_sources sources = {.kubeconfig = list};
    return kube_config_load(&sources, config, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    cleanup_free char *twice = xasprintf("%s::%s", path, path);
    struct kube_config one = {0}, two = {0};
    struct err err = {0}, other = {0};
    int rc = load(path, &one, &err);
    if (rc != load(twice, &two, &other))
        fuzz_fail("accepted once but rejected when named twice");
    if (rc && (err.code == ERR_NONE || !err.msg[0] || err.code != other.code))
        fuzz_fail("an error without text, or a different error");
    if (!rc) {
        check(&one);
        compare(&one, &two);
    }
    kube_config_fini(&one);
    kube_config_fini(&two);
    return 0;
}
