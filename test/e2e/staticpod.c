/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/staticpod.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "lib/yamlfile.h"

static struct {
    const char *root, *manifest, *container;
    pthread_t thread;
    atomic_bool stopping;
    struct program program; /* used by the thread only */
} pod;

/* Copies the files of the container's volume mounts into the chroot. A file that is absent
 * is reported by the program. */
static void copy_mounts(const json_t *spec)
{
    json_t *mount;
    lib_output(0, ARGV("rm", "-rf", lib_fmt("%s/etc", pod.container)));
    lib_each(mount, lib_at(spec, "containers.0.volumeMounts")) {
        const json_t *volume =
            lib_find(lib_at(spec, "volumes"), "name", lib_str(mount, "name"));
        lib_output(-1,
                   ARGV("sh", "-c", "mkdir -p \"${2%/*}\"; cp -rT \"$1\" \"$2\"", "sh",
                        lib_fmt("%s%s", pod.root, lib_str(volume, "hostPath.path")),
                        lib_fmt("%s%s", pod.container, lib_str(mount, "mountPath"))));
    }
}

/* Runs the command of the manifest's first container in the chroot. */
static void start_program(void)
{
    const json_t *spec = lib_at(yamlfile_one(pod.manifest), "spec");
    static const char *const lists[] = {"containers.0.command", "containers.0.args"};
    const char *argv[PROGRAM_ARGS] = {"unshare", "-r", "chroot", pod.container};
    size_t n = 4;
    json_t *word;
    array_items(list, lists)
        lib_each(word, lib_at(spec, *list))
            n = program_args(argv, n, ARGV(lib_str(word, "")));
    copy_mounts(spec);
    program_start(&pod.program, "/", argv + (getuid() == 0 ? 2 : 0));
}

static void stop_program(void)
{
    program_signal(&pod.program, SIGTERM);
    if (pod.program.pid)
        program_wait(&pod.program);
    program_fini(&pod.program);
}

static void *thread_main(void *arg)
{
    cleanup_free char *running = xstrdup(""); /* the manifest */
    while (!pod.stopping) {
        size_t mark = lib_mark();
        const char *text = access(pod.manifest, F_OK) == 0 ? lib_file(pod.manifest) : "";
        if (strcmp(text, running) != 0 || !program_runs(&pod.program)) {
            stop_program();
            free(running);
            running = xstrdup(text);
            if (*text)
                start_program();
        }
        lib_release(mark);
        lib_pause();
    }
    stop_program();
    return arg;
}

void static_pod_start(const char *root, const char *manifest, const char *program)
{
    const char *bin = lib_fmt("%s/container/usr/bin", root);
    pod.root = root;
    pod.manifest = manifest;
    pod.container = lib_fmt("%s/container", root);
    lib_output(0, ARGV("mkdir", "-p", bin));
    lib_output(0, ARGV("cp", "--reflink=auto", program, bin));
    ck_assert_int_eq(pthread_create(&pod.thread, NULL, thread_main, NULL), 0);
}

void static_pod_stop(void)
{
    pod.stopping = true;
    pthread_join(pod.thread, NULL);
}
