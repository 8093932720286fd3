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
#define POLICY     "policy/scheduler-policy-config.json"
#define CONFIG_AT  "/etc/kubernetes/kube-scheduler-config.yaml"
#define POLICY_AT  "/etc/kubernetes/scheduler-policy-config.json"

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

/* kubeadm's manifest of a version ("1.31") with the option and its mount added. */
static inline char *lib_manifest(const char *version, const char *option, const char *at)
{
    cleanup_free char *path = xasprintf(KUBEADM "%s.yaml", version);
    cleanup_free char *command =
        xasprintf("    - --leader-elect=true\n    - --%s=%s\n", option, at);
    cleanup_free char *mount =
        xasprintf("    volumeMounts:\n    - mountPath: %s\n      name: added\n", at);
    cleanup_free char *volume =
        xasprintf("  volumes:\n  - hostPath:\n      path: %s\n    name: added\n", at);
    char *text = lib_swap(lib_read(path), "    - --leader-elect=true\n", command);
    text = lib_swap(text, "    volumeMounts:\n", mount);
    return lib_swap(text, "  volumes:\n", volume);
}

/* The Secret of kube-scheduler's certificate, as read; its texts are no certificates. */
static inline void lib_secret(struct facts *f)
{
    for (int i = 0; i < CLIENT_SECRET_FILES; i++)
        buf_printf(&f->secret.pem[i], "pem of %s\n",
                   client_secret_member((enum client_secret_file)i));
    f->secret_read = true;
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
