/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/node_files.h"

#include "lib/lib.h"

static void make_folder(const char *name)
{
    lib_output(0, ARGV("mkdir", "-p", lib_path(name)));
}

void node_files_make(const char *release, unsigned port)
{
    make_folder(NODE_FILES_MANIFESTS);
    make_folder("root/var/lib");
    make_folder("root/proc");
    temp_write(lib_dir, "root/etc/kubernetes/scheduler.conf", "kind: Config\n");
    temp_write(lib_dir, NODE_FILES_MANIFEST,
               lib_file(lib_fmt("test/data/kubeadm/kube-scheduler-%s.yaml", release)));
    if (port)
        lib_edit(NODE_FILES_MANIFEST, "--leader-elect=true\n",
                 lib_fmt("--leader-elect=true\n    - --secure-port=%u\n", port));
}

char *node_files_without_tls(const char *config)
{
    char *plain = lib_swap(lib_swap(config, "https://", "http://"), "enableHTTPS: true",
                           "enableHTTPS: false");
    char *from = strstr(plain, "  tlsConfig:\n"),
         *to = strstr(plain, "  # The default is");
    ck_assert(from && to);
    memmove(from, to, strlen(to) + 1);
    return plain;
}

void node_files_begin(struct program *p, const char *const *options)
{
    const char *argv[PROGRAM_ARGS] = {"env", lib_fmt("BUILD=%s", lib_built("")),
                                      "scripts/install", "--root", lib_path("root")};
    program_args(argv, 5, options);
    program_start(p, lib_dir, argv);
}

char *node_files_install(int status, const char *const *options)
{
    struct program p;
    node_files_begin(&p, options);
    return lib_keep(program_end(&p, status), free);
}
