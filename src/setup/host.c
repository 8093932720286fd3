/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/host.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "setup/host_priv.h"

#define KUBELET   "/var/lib/kubelet/config.yaml"
#define MANIFESTS "/etc/kubernetes/manifests"

enum { FILE_MAX = 1 << 20 };

void host_read_file(struct facts_file *file)
{
    struct stat st;
    if (stat(file->path, &st)) {
        enum err_code code = errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND
                             : errno == EACCES                   ? ERR_FORBIDDEN
                                                                 : ERR_UNAVAILABLE;
        err_set(&file->why, code, "%s: %m", file->path);
        return;
    }
    file->changed_ns = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec;
    if (!S_ISREG(st.st_mode))
        err_set(&file->why, ERR_UNAVAILABLE, "%s: %s", file->path,
                S_ISDIR(st.st_mode) ? "is a directory" : "is not a regular file");
    else
        file_read(file->path, FILE_MAX, &file->bytes, &file->why);
}

static void read_yaml(struct facts_file *file)
{
    host_read_file(file);
    if (file->why.code == ERR_NONE)
        facts_file_parse(file);
}

/* The kubelet's staticPodPath. */
static char *manifests_of(const char *root)
{
    struct facts_file kubelet = {.path = xasprintf("%s%s", root, KUBELET)};
    read_yaml(&kubelet);
    const char *path = jsonpath_str(kubelet.json, "staticPodPath");
    char *out = xasprintf("%s%s", root, *path == '/' ? path : MANIFESTS);
    facts_file_fini(&kubelet);
    return out;
}

static bool is_of_scheduler(const struct facts_file *file)
{
    struct scheduler_pod pod;
    if (file->json)
        return scheduler_pod_read(file->json, &pod);
    return strstr(strrchr(file->path, '/'), "scheduler") ||
           (file->bytes.n && memmem(file->bytes.p, file->bytes.n, "kube-scheduler",
                                    strlen("kube-scheduler")));
}

static void add_file(struct facts *f, const char *name)
{
    struct facts_file file = {.path = xasprintf("%s/%s", f->manifests, name)};
    struct stat st;
    /* The kubelet also reads regular files only. */
    if (stat(file.path, &st) == 0 && S_ISREG(st.st_mode))
        read_yaml(&file);
    if (!file.why.code && !file.json) {
        facts_file_fini(&file);
        return;
    }
    if (!is_of_scheduler(&file)) {
        facts_file_fini(&file);
        return;
    }
    f->files = xreallocarray(f->files, f->n_files + 1, sizeof *f->files);
    f->files[f->n_files++] = file;
}

static void read_manifests(const char *root, struct facts *f)
{
    struct dirent **names;
    f->manifests = manifests_of(root);
    int n = scandir(f->manifests, &names, NULL, alphasort);
    if (n < 0) {
        err_set(&f->manifests_why,
                errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_FORBIDDEN,
                "%s: %m", f->manifests);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') /* the kubelet skips these, too */
            add_file(f, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* A file by its path in the container. False: not mounted. */
static bool file_of(const char *root, const struct scheduler_pod *pod, const char *inside,
                    struct facts_file *out)
{
    cleanup_buf struct buf path = {0};
    bool mounted = scheduler_pod_host_path(pod, inside, &path);
    out->path = mounted ? xasprintf("%s%s", root, path.p) : xstrdup(inside);
    if (!mounted)
        err_set(&out->why, ERR_NOT_FOUND,
                "%s is not mounted in the container of kube-scheduler", inside);
    return mounted;
}

static void read_config(const char *root, struct facts *f)
{
    struct scheduler_pod pod;
    bool policy;
    if (!facts_manifest(f, &pod))
        return;
    const char *inside = scheduler_pod_config_option(&pod, &policy);
    if (!*inside)
        return;
    f->config_mounted = file_of(root, &pod, inside, &f->config);
    if (!f->config_mounted)
        return;
    read_yaml(&f->config);
    const json_t *ours = extender_entry_find(f->config.json);
    for (int i = 0; i < CLIENT_SECRET_FILES; i++) {
        cleanup_free char *member =
            xasprintf("tlsConfig.%s", client_secret_member((enum client_secret_file)i));
        const char *named = jsonpath_str(ours, member);
        if (*named && file_of(root, &pod, named, &f->tls[i]))
            host_read_file(&f->tls[i]);
    }
}

size_t host_addresses(char (*out)[64], size_t max)
{
    struct ifaddrs *all;
    size_t n = 0;
    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *a = all; a && n < max; a = a->ifa_next) {
        const struct sockaddr_in *in =
            (const struct sockaddr_in *)(const void *)a->ifa_addr;
        if (!in || in->sin_family != AF_INET || ntohl(in->sin_addr.s_addr) >> 24 == 127)
            continue;
        n += inet_ntop(AF_INET, &in->sin_addr, out[n], sizeof out[n]) != NULL;
    }
    freeifaddrs(all);
    return n;
}

/* A static pod of kubeadm counts, whatever else was installed on the node once. That of
 * OpenShift has another name. */
static void read_platform(const char *root, struct facts *f)
{
    struct scheduler_pod pod;
    f->platform = host_find_platform(root);
    read_manifests(root, f);
    if (facts_manifest(f, &pod) &&
        (f->platform != FACTS_OPENSHIFT || !strcmp(pod.name, "kube-scheduler")))
        f->platform = FACTS_KUBEADM;
    if (f->platform == FACTS_KUBEADM)
        return;
    while (f->n_files)
        facts_file_fini(&f->files[--f->n_files]);
    free(f->files);
    f->files = NULL;
    f->manifests_why = (struct err){0};
    if (f->platform != FACTS_OPENSHIFT)
        host_read_rancher(root, f);
}

void host_read(const char *root, const char *proc, struct facts *f)
{
    f->now_s = clock_wall_ns() / 1000000000;
    read_platform(root, f);
    if (f->platform == FACTS_OPENSHIFT || f->manifests_why.code != ERR_NONE)
        return;
    read_config(root, f);
    host_read_processes(proc, f);
}
