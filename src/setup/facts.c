/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/facts.h"

#include <stdlib.h>

#include "base/mem.h"
#include "wire/yaml.h"

enum { SLACK_NS = 20 * 1000 * 1000 }; /* more than the error of a process's start */

void facts_file_fini(struct facts_file *file)
{
    free(file->path);
    buf_fini(&file->bytes);
    json_decref(file->json);
}

void facts_fini(struct facts *f)
{
    free(f->manifests);
    for (size_t i = 0; i < f->n_files; i++)
        facts_file_fini(&f->files[i]);
    free(f->files);
    for (size_t i = 0; i < f->n_settings; i++)
        facts_file_fini(&f->settings[i]);
    free(f->settings);
    free(f->service_option);
    facts_file_fini(&f->applied);
    facts_file_fini(&f->undone);
    for (size_t i = 0; i < f->n_processes; i++)
        buf_fini(&f->processes[i].arguments);
    free(f->processes);
    facts_file_fini(&f->config);
    for (size_t i = 0; i < ARRAY_LEN(f->tls); i++)
        facts_file_fini(&f->tls[i]);
    for (int i = 0; i < FACTS_KINDS; i++)
        json_decref(f->lists[i].json);
    client_secret_fini(&f->secret);
    free(f->reachable_at);
    *f = (struct facts){0};
}

void facts_file_parse(struct facts_file *file)
{
    cleanup_yaml struct yaml *y =
        yaml_parse(file->path, file->bytes.p, file->bytes.n, &file->why);
    cleanup_buf struct buf text = {0};
    json_error_t bad;
    if (!y)
        return;
    if (yaml_count(y) != 1 || !yaml_document(y, 0)) {
        err_set(&file->why, ERR_INVALID, "%s: %s", file->path,
                yaml_count(y) > 1 ? "more than one document" : "empty");
        return;
    }
    yaml_json(yaml_document(y, 0), &text);
    file->json = json_loadb(text.p, text.n, 0, &bad);
    if (!file->json)
        err_set(&file->why, ERR_INVALID, "%s: %s", file->path, bad.text);
    else if (!json_is_object(file->json))
        err_set(&file->why, ERR_INVALID, "%s: not a mapping", file->path);
}

const char *facts_namespace(const struct facts *f)
{
    return f->namespace ? f->namespace : "kube-system";
}

char *facts_server_name(const struct facts *f)
{
    return xasprintf("gpushare-schd-extender.%s.svc", facts_namespace(f));
}

const char *facts_admin(const struct facts *f)
{
    return f->platform == FACTS_K3S    ? "/etc/rancher/k3s/k3s.yaml"
           : f->platform == FACTS_RKE2 ? "/etc/rancher/rke2/rke2.yaml"
                                       : "/etc/kubernetes/admin.conf";
}

const struct facts_file *facts_manifest(const struct facts *f, struct scheduler_pod *pod)
{
    const struct facts_file *first = NULL;
    struct scheduler_pod other;
    for (size_t i = 0; i < f->n_files; i++) {
        if (!f->files[i].json || !scheduler_pod_read(f->files[i].json, &other))
            continue;
        bool kubeadm = !strcmp(other.name, "kube-scheduler");
        if (first && !kubeadm)
            continue;
        first = &f->files[i];
        *pod = other;
        if (kubeadm)
            break;
    }
    return first;
}

const struct facts_process *facts_scheduler(const struct facts *f,
                                            const struct scheduler_pod *pod)
{
    const struct facts_process *youngest = NULL;
    struct scheduler_pod applied;
    if (f->platform == FACTS_RKE2) {
        if (!f->applied.json || !scheduler_pod_read(f->applied.json, &applied))
            return NULL;
        pod = &applied;
    }
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_process *p = &f->processes[i];
        if ((f->platform == FACTS_K3S ||
             scheduler_pod_is_process(pod, buf_span(&p->arguments))) &&
            (!youngest || p->started_ns > youngest->started_ns))
            youngest = p;
    }
    return youngest;
}

bool facts_process_is_older(const struct facts_process *p, const struct facts_file *file)
{
    return p->started_ns < file->changed_ns - SLACK_NS;
}

const struct facts_file *facts_newer_file(const struct facts *f,
                                          const struct facts_process *p)
{
    const struct facts_file *ca = &f->tls[CLIENT_SECRET_CA];
    if (facts_process_is_older(p, &f->config))
        return &f->config;
    return ca->path && facts_process_is_older(p, ca) ? ca : NULL;
}

int facts_minor(const struct facts *f, const struct scheduler_pod *pod)
{
    if (pod->minor)
        return pod->minor;
    return scheduler_pod_parse_minor(
        jsonpath_str(f->lists[FACTS_VERSION].json, "gitVersion"));
}
