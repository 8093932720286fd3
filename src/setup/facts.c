/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/facts.h"

#include <stdlib.h>

#include "base/mem.h"
#include "wire/yaml.h"

enum { SLACK_NS = 20 * 1000 * 1000 }; /* what the start of a process is not exact to */

void setup_file_fini(struct setup_file *file)
{
    free(file->path);
    buf_fini(&file->bytes);
    json_decref(file->json);
}

void setup_facts_fini(struct setup_facts *f)
{
    free(f->manifests);
    for (size_t i = 0; i < f->n_files; i++)
        setup_file_fini(&f->files[i]);
    free(f->files);
    for (size_t i = 0; i < f->n_processes; i++)
        buf_fini(&f->processes[i].arguments);
    free(f->processes);
    setup_file_fini(&f->config);
    setup_file_fini(&f->kubeconfig);
    for (size_t i = 0; i < ARRAY_LEN(f->tls); i++)
        setup_file_fini(&f->tls[i]);
    for (int i = 0; i < SETUP_KINDS; i++)
        json_decref(f->lists[i].json);
    json_decref(f->denied);
    free(f->elsewhere);
    *f = (struct setup_facts){0};
}

void setup_file_parse(struct setup_file *file)
{
    cleanup_yaml struct yaml *y =
        yaml_parse(file->path, file->bytes.p, file->bytes.n, &file->why);
    cleanup_buf struct buf text = {0};
    json_error_t bad;
    if (!y)
        return;
    if (yaml_count(y) != 1 || !yaml_document(y, 0)) {
        err_set(&file->why, ERR_INVALID, "%s: %s", file->path,
                yaml_count(y) > 1 ? "more than one document" : "it is empty");
        return;
    }
    yaml_json(yaml_document(y, 0), &text);
    file->json = json_loadb(text.p, text.n, 0, &bad);
    if (!file->json)
        err_set(&file->why, ERR_INVALID, "%s: %s", file->path, bad.text);
    else if (!json_is_object(file->json))
        err_set(&file->why, ERR_INVALID, "%s: not a mapping", file->path);
}

const struct setup_file *setup_active(const struct setup_facts *f, struct setup_pod *pod)
{
    const struct setup_file *first = NULL;
    struct setup_pod other;
    for (size_t i = 0; i < f->n_files; i++) {
        if (!f->files[i].json || !setup_pod_of(f->files[i].json, &other))
            continue;
        bool kubeadms = !strcmp(other.name, "kube-scheduler");
        if (first && !kubeadms)
            continue;
        first = &f->files[i];
        *pod = other;
        if (kubeadms)
            break;
    }
    return first;
}

const char *setup_config_option(const struct setup_pod *pod, bool *policy)
{
    const char *config = setup_pod_option(pod, "config");
    const char *old = setup_pod_option(pod, "policy-config-file");
    *policy = !config && old;
    return config ? config : old ? old : "";
}

const struct setup_process *setup_running(const struct setup_facts *f,
                                          const struct setup_pod *pod)
{
    const struct setup_process *youngest = NULL;
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct setup_process *p = &f->processes[i];
        if (setup_pod_is_run_by(pod, buf_span(&p->arguments)) &&
            (!youngest || p->started_ns > youngest->started_ns))
            youngest = p;
    }
    return youngest;
}

bool setup_process_is_older(const struct setup_process *p, const struct setup_file *file)
{
    return p->started_ns < file->changed_ns - SLACK_NS;
}

int setup_minor(const struct setup_facts *f, const struct setup_pod *pod)
{
    if (pod->minor)
        return pod->minor;
    return setup_minor_of(setup_str(f->lists[SETUP_VERSION].json, "gitVersion"));
}
