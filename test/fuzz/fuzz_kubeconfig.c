/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A kubeconfig. An accepted one can be used as it is (URLs and headers have no control
 * characters), and naming the file twice changes nothing, because the first file wins.
 * The files that it names do not exist.
 */

#include "fuzz/fuzz.h"

#include "domain/object.h"
#include "kube/client.h"
#include "kube/kubeconfig_priv.h"

static void check_exec(const struct kube_exec *e)
{
    fuzz_fail_if(!e->argv || !e->argv[0] || !e->argv[0][0] || !e->env,
                 "a credential plugin without a command");
    for (size_t i = 0; e->env[i]; i++)
        fuzz_fail_if(!strchr(e->env[i], '='), "a variable without a value");
    fuzz_fail_if(strncmp(e->info, "{\"kind\":\"ExecCredential\"", 24),
                 "KUBERNETES_EXEC_INFO is wrong");
}

static void check(const struct kube_config *c)
{
    fuzz_fail_if(strncmp(c->server, "https://", 8) && strncmp(c->server, "http://", 7),
                 "a server URL without a scheme");
    fuzz_fail_if(!fuzz_is_plain(span_of(c->server), '!') ||
                     !fuzz_is_plain(span_of(c->path_prefix), '!') ||
                     (*c->path_prefix && *c->path_prefix != '/'),
                 "an invalid URL");
    fuzz_fail_if(!object_is_namespace(c->ns) || !c->source,
                 "no valid namespace, or no source");
    fuzz_fail_if(c->token && !kube_token_ok(span_of(c->token)),
                 "a token that is not valid in a header");
    fuzz_fail_if(!c->cert_pem.n != !c->key_pem.n || (c->ca_pem.n && c->insecure),
                 "inconsistent certificate settings");
    if (c->exec)
        check_exec(c->exec);
}

/* All but `source`. */
static void describe(const struct kube_config *c, struct buf *out)
{
    const char *const texts[] = {c->server, c->path_prefix, c->server_name, c->proxy,
                                 c->token,  c->token_file,  c->ns};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        buf_printf(out, "%s\n", texts[i] ? texts[i] : "(none)");
    buf_printf(out, "%d %d\n%.*s\n%.*s\n%.*s", c->insecure, c->exec != NULL,
               SPAN_ARG(c->ca_pem), SPAN_ARG(c->cert_pem), SPAN_ARG(c->key_pem));
}

static int load(const char *list, struct kube_config *config, struct err *err)
{
    const struct kube_config_sources sources = {.kubeconfig = list};
    return kube_config_load(&sources, config, err);
}

void fuzz_input(struct span in)
{
    const char *path = fuzz_file(in);
    cleanup_free char *twice = xasprintf("%s::%s", path, path);
    struct kube_config one = {0}, two = {0};
    cleanup_buf struct buf once = {0}, again = {0};
    struct err err = {0}, other = {0};
    int rc = load(path, &one, &err);
    fuzz_fail_if(rc != load(twice, &two, &other),
                 "accepted once but rejected when named twice");
    if (rc) {
        fuzz_check_error(&err);
        fuzz_fail_if(err.code != other.code, "a different error when named twice");
    } else {
        check(&one);
        describe(&one, &once);
        describe(&two, &again);
        fuzz_check_same(&once, &again, "the file named twice differs");
    }
    kube_config_fini(&one);
    kube_config_fini(&two);
}
