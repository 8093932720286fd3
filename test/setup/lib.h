/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/unit.h"
#include "setup/facts.h"

/* Files of a control plane node. */

#define KUBEADM    "test/data/kubeadm/kube-scheduler-"
#define CONFIG     "policy/kube-scheduler-config.yaml"
#define CONFIG_ALL "policy/kube-scheduler-config-all-pods.yaml"
#define CONFIG_AT  "/etc/kubernetes/kube-scheduler-config.yaml"

static inline char *lib_read(const char *path)
{
    struct buf b = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 20, &b, &err), err);
    return buf_take(&b);
}

/* Replaces every `from`, of which there must be at least one. Takes the text. */
static inline char *lib_swap(char *text, const char *from, const char *to)
{
    struct buf out = {0};
    const char *at = text, *next;
    size_t n = 0;
    for (; (next = strstr(at, from)); at = next + strlen(from), n++) {
        buf_add(&out, at, (size_t)(next - at));
        buf_adds(&out, to);
    }
    ck_assert_msg(n > 0, "no \"%s\" in: %s", from, text);
    buf_adds(&out, at);
    free(text);
    return buf_take(&out);
}

/* kubeadm's manifest of a version ("1.31") with --config and its mount added. */
static inline char *lib_manifest(const char *version)
{
    const char *at = CONFIG_AT;
    cleanup_free char *path = xasprintf(KUBEADM "%s.yaml", version);
    cleanup_free char *command =
        xasprintf("    - --leader-elect=true\n    - --config=%s\n", at);
    cleanup_free char *mount =
        xasprintf("    volumeMounts:\n    - mountPath: %s\n      name: added\n", at);
    cleanup_free char *volume =
        xasprintf("  volumes:\n  - hostPath:\n      path: %s\n    name: added\n", at);
    char *text = lib_swap(lib_read(path), "    - --leader-elect=true\n", command);
    text = lib_swap(text, "    volumeMounts:\n", mount);
    return lib_swap(text, "  volumes:\n", volume);
}

/* A file with this content. Takes the text. */
static inline struct facts_file lib_file(const char *path, char *text)
{
    struct facts_file file = {.path = xstrdup(path), .changed_ns = 1000000000};
    buf_adds(&file.bytes, text);
    facts_file_parse(&file);
    free(text);
    return file;
}

/* A node with this manifest and configuration (NULL: no such file). Takes the texts. */
static inline struct facts lib_node(char *manifest, char *config)
{
    struct facts f = {.manifests = xstrdup("/etc/kubernetes/manifests"),
                      .n_files = 1,
                      .files = xcalloc(1, sizeof *f.files)};
    struct scheduler_config_pod pod;
    cleanup_buf struct buf path = {0};
    f.files[0] = lib_file("/etc/kubernetes/manifests/kube-scheduler.yaml", manifest);
    if (config)
        f.config = lib_file(CONFIG_AT, config);
    else
        err_set(&f.config.why, ERR_NOT_FOUND, "not there");
    const char *option =
        facts_manifest(&f, &pod) ? scheduler_config_option(&pod, "config") : NULL;
    f.config_mounted = option && scheduler_config_host_path(&pod, option, &path);
    return f;
}
