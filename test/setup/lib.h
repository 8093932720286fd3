/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <inttypes.h>
#include <time.h>

#include "lib/temp.h"
#include "lib/unit.h"
#include "setup/edit.h"
#include "setup/facts.h"

/* A control plane node of kubeadm: a folder with its files and its /proc. */

#define KUBEADM     "test/data/kubeadm/kube-scheduler-"
#define CONFIG      "policy/kube-scheduler-config.yaml"
#define MANIFESTS   "root/etc/kubernetes/manifests"
#define MANIFEST_AT MANIFESTS "/kube-scheduler.yaml"
#define CONFIG_AT   "root" FACTS_CONFIG
#define PROCESS     "root/proc/4711"

static char *dir, *root;

static void begin(void)
{
    static const char *const folders[] = {
        "root",      "root/etc", "root/etc/kubernetes", MANIFESTS, "root" FACTS_TLS_DIR,
        "root/proc", PROCESS};
    dir = temp_dir();
    root = temp_path(dir, "root");
    array_items(folder, folders)
        temp_mkdir(dir, *folder);
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
    free(root);
}

/* kubeadm's manifest of a version ("1.31"). */
static inline char *lib_kubeadm(const char *version)
{
    cleanup_free char *path = xasprintf(KUBEADM "%s.yaml", version);
    return temp_read(".", path);
}

/* Replaces every `from`, of which there must be at least one. Takes the text. */
static inline char *lib_swap(char *text, const char *from, const char *to)
{
    struct buf out = {0};
    const char *at = text, *next = strstr(text, from);
    ck_assert_msg(next != NULL, "no \"%s\" in: %s", from, text);
    for (; next; at = next + strlen(from), next = strstr(at, from)) {
        buf_add(&out, at, (size_t)(next - at));
        buf_adds(&out, to);
    }
    buf_adds(&out, at);
    free(text);
    return buf_take(&out);
}

/* kubeadm's manifest with --config and its mount added. */
static inline char *lib_manifest(const char *version)
{
    char *text = lib_swap(lib_kubeadm(version), "    - --leader-elect=true\n",
                          "    - --leader-elect=true\n    - --config=" FACTS_CONFIG "\n");
    text = lib_swap(text, "    volumeMounts:\n",
                    "    volumeMounts:\n    - mountPath: " FACTS_CONFIG
                    "\n      name: added\n");
    return lib_swap(text, "  volumes:\n",
                    "  volumes:\n  - hostPath:\n      path: " FACTS_CONFIG
                    "\n    name: added\n");
}

/* Replaces a file of the node (NULL: removes it). Takes the text. */
static inline void lib_write(const char *name, char *text)
{
    cleanup_free char *path = temp_path(dir, name);
    if (text)
        temp_write_bytes(dir, name, span_of(text));
    else
        unlink(path);
    free(text);
}

static inline void lib_read_node(struct facts *f)
{
    facts_fini(f);
    f->root = root;
    facts_read_node(f);
}

/* Adds the process of the manifest's command and `more`, started so much from now. */
static inline void lib_add_process(const char *folder, int64_t from_now_s,
                                   const char *more)
{
    struct facts f = {.root = root};
    struct timespec up;
    cleanup_buf struct buf line = {0};
    facts_read_node(&f);
    const json_t *words = jpath(f.container, "command");
    for (size_t i = 0; i < json_array_size(words); i++) {
        buf_adds(&line, json_string_value(json_array_get(words, i)));
        buf_addc(&line, '\0');
    }
    buf_adds(&line, more);
    facts_fini(&f);
    clock_gettime(CLOCK_BOOTTIME, &up);
    cleanup_free char *stat =
        xasprintf("1 (a) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 9 0 %" PRId64 " 1\n",
                  (up.tv_sec + from_now_s) * sysconf(_SC_CLK_TCK));
    const struct {
        const char *name;
        struct span text;
    } files[] = {{"comm", SPAN("kube-scheduler\n")},
                 {"stat", span_of(stat)},
                 {"cmdline", buf_span(&line)}};
    array_items(file, files) {
        cleanup_free char *name = xasprintf("%s/%s", folder, file->name);
        temp_write_bytes(dir, name, file->text);
    }
}
