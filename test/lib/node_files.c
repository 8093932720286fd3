/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/node_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/lib.h"

static char *read_repo(const char *path)
{
    struct buf b = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 20, &b, &err), err);
    return buf_take(&b);
}

char *node_files_swap(char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "no \"%s\" in: %s", from, text);
    char *out = xasprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

static char *kubeadm(void)
{
    return read_repo("test/data/kubeadm/kube-scheduler-1.35.yaml");
}

static void make_folder(const char *name)
{
    cleanup_free char *path = temp_path(lib_dir, name);
    ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/* Adds a process that started `from_now_s` seconds from now, with the options of
 * kubeadm's manifest, `more` (or NULL) and the port of its health check (0: none). */
void node_files_add_process(int64_t from_now_s, const char *more, unsigned port)
{
    struct timespec up;

    clock_gettime(CLOCK_BOOTTIME, &up);
    int64_t ticks = (up.tv_sec + from_now_s) * sysconf(_SC_CLK_TCK);
    cleanup_free char *stat = xasprintf(
        NODE_FILES_PID
        " (kube-scheduler) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 9 0 %" PRId64
        " 1 1 1\n",
        ticks);
    cleanup_buf struct buf line = {0};
    static const char *const words[] = {
        "kube-scheduler",
        "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--bind-address=127.0.0.1",
        "--kubeconfig=/etc/kubernetes/scheduler.conf",
        "--leader-elect=true"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        buf_add(&line, words[i], strlen(words[i]) + 1);
    if (port) {
        cleanup_free char *option = xasprintf("--secure-port=%u", port);
        buf_add(&line, option, strlen(option) + 1);
    }
    if (more)
        buf_add(&line, more, strlen(more) + 1);
    make_folder("proc/" NODE_FILES_PID);
    temp_write(lib_dir, "proc/" NODE_FILES_PID "/comm", "kube-scheduler\n");
    temp_write(lib_dir, "proc/" NODE_FILES_PID "/stat", stat);
    temp_write_bytes(lib_dir, "proc/" NODE_FILES_PID "/cmdline", buf_span(&line));
}

/* A node of kubeadm; kube-scheduler serves /healthz on `port` (0: the default). */
void node_files_make(unsigned port)
{
    static const char *const folders[] = {"root",
                                          "root/etc",
                                          "root/etc/kubernetes",
                                          NODE_FILES_MANIFESTS,
                                          "root/var",
                                          "root/var/lib",
                                          "proc"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        make_folder(folders[i]);
    temp_write(lib_dir, "root/etc/kubernetes/scheduler.conf", "kind: Config\n");
    char *manifest = kubeadm();
    if (port) {
        cleanup_free char *lines =
            xasprintf("--leader-elect=true\n    - --secure-port=%u\n", port);
        manifest = node_files_swap(manifest, "--leader-elect=true\n", lines);
    }
    temp_write(lib_dir, NODE_FILES_MANIFEST, manifest);
    free(manifest);
}

/* Plain HTTP: the configuration for an extender with --insecure. */
static char *without_tls(char *config)
{
    config = node_files_swap(config, "enableHTTPS: true", "enableHTTPS: false");
    char *from = strstr(config, "  tlsConfig:\n"),
         *to = strstr(config, "  # The default is");
    ck_assert(from && to);
    memmove(from, to, strlen(to) + 1);
    return config;
}

/* The node after an installation with this URL. */
void node_files_make_installed(const char *url)
{
    node_files_make(0);
    char *manifest =
        node_files_swap(kubeadm(), "    - --leader-elect=true\n",
                        "    - --leader-elect=true\n    - " NODE_FILES_OPTION "\n");
    manifest = node_files_swap(manifest, "    volumeMounts:\n",
                               "    volumeMounts:\n    - mountPath: /etc/kubernetes/"
                               "kube-scheduler-config.yaml\n      name: c\n");
    manifest = node_files_swap(manifest, "  volumes:\n",
                               "  volumes:\n  - hostPath:\n      path: /etc/kubernetes/"
                               "kube-scheduler-config.yaml\n    name: c\n");
    char *config = node_files_swap(read_repo("policy/kube-scheduler-config.yaml"),
                                   "https://127.0.0.1:32766/gpushare-scheduler", url);
    if (!strncmp(url, "http:", 5))
        config = without_tls(config);
    temp_write(lib_dir, NODE_FILES_MANIFEST, manifest);
    temp_write(lib_dir, NODE_FILES_CONFIG, config);
    free(manifest);
    free(config);
    node_files_add_process(1, NODE_FILES_OPTION, 0);
}

char *node_files_install(int status, const char *const *options)
{
    struct program p;
    cleanup_free char *build = xasprintf("BUILD=%s", getenv("GPUSHARE_BUILD"));
    cleanup_free char *root = temp_path(lib_dir, "root"),
                      *proc = temp_path(lib_dir, "proc");
    const char *argv[PROGRAM_ARGS] = {"env",    build, "scripts/install", "--root", root,
                                      "--proc", proc};
    program_args(argv, 7, options);
    program_start(&p, lib_dir, argv);
    return program_end(&p, status);
}

void node_files_says(int status, const char *text, const char *const *options)
{
    cleanup_free char *said = node_files_install(status, options);
    ck_assert_contains(said, text);
}

char *node_files_check(int status)
{
    return node_files_install(status, NODE_FILES_CHECK);
}

char *node_files_url(unsigned port)
{
    return xasprintf("http://127.0.0.1:%u/gpushare-scheduler", port);
}

char *node_files_state(const char *path)
{
    cleanup_free char *full = temp_path(lib_dir, path);
    struct stat st;
    if (stat(full, &st))
        return xstrdup("absent");
    cleanup_free char *text = temp_read(lib_dir, path);
    return xasprintf("%o\n%s", (unsigned)st.st_mode & 07777, text);
}
