/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"

#include "lib/attempt.h"

char *daemon_kubeconfig(const char *component, struct peer **api)
{
    const char *token = cluster_token_of(component, "n1");
    if (api)
        *api = attempt_token(token);
    return lib_keep(
        lib_kubeconfig(component, "https", cluster.api.port,
                       lib_fmt(", certificate-authority: \"%s\"", cluster_pki("ca.crt")),
                       lib_fmt("token: \"%s\"", token)),
        free);
}

void daemon_refused(const struct peer *as, const char *method, const char *path,
                    const char *body, const char *words)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(as, method, path, body, &reply);
    ck_assert_msg(status == 403 || status == 422, "%s %s: %u %s", method, path, status,
                  reply.p);
    ck_assert_contains(reply.p, words);
}

void daemon_was_allowed(struct program *p)
{
    const char *said = program_output(p);
    ck_assert_lacks(said, "forbidden");
}
