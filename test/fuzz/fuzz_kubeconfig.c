/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A kubeconfig. An accepted one can be used as it is: URLs and headers have no control
 * characters. The files that it names do not exist.
 */

#include "fuzz/fuzz.h"

#include "domain/object.h"
#include "kube/client.h"
#include "kube/kubeconfig_priv.h"

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
}

void fuzz_input(struct span in)
{
    const struct kube_config_sources sources = {.kubeconfig = fuzz_file(in)};
    struct kube_config config = {0};
    struct err err = {0};
    if (kube_config_load(&sources, &config, &err))
        fuzz_check_error(&err);
    else
        check(&config);
    kube_config_fini(&config);
}
