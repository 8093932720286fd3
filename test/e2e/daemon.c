/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"

#include "lib/attempt.h"
#include "lib/network.h"
#include "lib/yamlfile.h"

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

void daemon_scheduler(struct program *p, const char *config, const char *user)
{
    const char *kubeconfig = lib_fmt("%s/%s.kubeconfig", cluster.dir, user);
    json_t *all = yamlfile_one(config), *extender = lib_at(all, "extenders.0");
    json_object_set_new(all, "clientConnection",
                        json_pack("{ss}", "kubeconfig", kubeconfig));
    if (extender) {
        json_object_del(extender, "enableHTTPS");
        json_object_del(extender, "tlsConfig");
        json_object_set_new(extender, "urlPrefix",
                            json_sprintf("http://%s/gpushare-scheduler",
                                         network_at(cluster.extender.verbs.port)));
    }
    temp_write(lib_dir, "scheduler.json", lib_text(all, ""));
    program_start(p, lib_dir,
                  ARGV(cluster_program("kube-scheduler"), "--config",
                       lib_path("scheduler.json"), "--secure-port", "0",
                       "--authentication-kubeconfig", kubeconfig,
                       "--authorization-kubeconfig", kubeconfig));
}
