/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/staticpod.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "wire/yaml.h"

enum { ARGS_MAX = 32 };

struct static_pod {
    char *root, *manifest, *container;
    pthread_t thread;
    atomic_bool stopping;
    /* used by the thread only */
    struct buf text; /* the running manifest */
    struct program program;
};

/* Runs a command. A failure is not reported here: the container then lacks a file, and
 * its program reports that. */
static void run_command(const char *const *argv)
{
    struct program p;
    program_start(&p, "/", argv);
    program_wait(&p);
    program_fini(&p);
}

/* Copies the files of the container's volume mounts into the chroot. */
static void copy_mounts(struct static_pod *s, const struct yaml_node *spec,
                        const struct yaml_node *container)
{
    const struct yaml_node *mounts = yaml_get(container, "volumeMounts");
    const struct yaml_node *volumes = yaml_get(spec, "volumes");
    cleanup_free char *etc = xasprintf("%s/etc", s->container);
    run_command(ARGV("rm", "-rf", etc));
    for (size_t i = 0; mounts && i < mounts->n; i++) {
        for (size_t k = 0; volumes && k < volumes->n; k++) {
            struct span name = {0}, volume = {0}, path = {0}, mount_path = {0};
            yaml_text(mounts->items[i], "name", &name, NULL);
            yaml_text(volumes->items[k], "name", &volume, NULL);
            if (!span_eq(name, volume))
                continue;
            yaml_text(yaml_get(volumes->items[k], "hostPath"), "path", &path, NULL);
            yaml_text(mounts->items[i], "mountPath", &mount_path, NULL);
            cleanup_free char *from = xasprintf("%s%.*s", s->root, SPAN_ARG(path));
            cleanup_free char *to =
                xasprintf("%s%.*s", s->container, SPAN_ARG(mount_path));
            struct stat st;
            bool folder = stat(from, &st) == 0 && S_ISDIR(st.st_mode);
            if (folder)
                run_command(ARGV("mkdir", "-p", to));
            run_command(folder ? ARGV("cp", "-rT", from, to)
                               : ARGV("install", "-D", from, to));
        }
    }
}

/* Runs the command of the manifest's first container in the chroot. */
static void start_program(struct static_pod *s)
{
    static const char *const lists[] = {"command", "args"};
    const char *argv[ARGS_MAX + 4] = {"unshare", "-r", "chroot", s->container};
    size_t n = 4, skip = getuid() == 0 ? 2 : 0;
    cleanup_yaml struct yaml *y = yaml_parse("manifest", s->text.p, s->text.n, NULL);
    const struct yaml_node *spec = y ? yaml_get(yaml_document(y, 0), "spec") : NULL;
    const struct yaml_node *all = yaml_get(spec, "containers");
    for (size_t k = 0; all && all->n && k < ARRAY_LEN(lists); k++) {
        const struct yaml_node *words = yaml_get(all->items[0], lists[k]);
        for (size_t i = 0; words && i < words->n && n < ARGS_MAX; i++)
            argv[n++] = words->items[i]->text.p; /* NUL-terminated */
    }
    if (n == 4)
        return;
    copy_mounts(s, spec, all->items[0]);
    argv[n] = NULL;
    program_start(&s->program, "/", argv + skip);
}

static void stop_program(struct static_pod *s)
{
    if (!s->program.pid && !s->program.out)
        return;
    if (s->program.pid) {
        program_signal(&s->program, SIGTERM);
        program_wait(&s->program);
    }
    program_fini(&s->program);
    s->program = (struct program){0};
}

static void *thread_main(void *arg)
{
    struct static_pod *s = arg;
    while (!s->stopping) {
        struct buf text = {0};
        bool exists = file_read(s->manifest, 1 << 20, &text, NULL) == 0;
        bool same = exists && span_eq(buf_span(&text), buf_span(&s->text));
        if (!exists || !same || !s->program.pid || !program_runs(&s->program)) {
            stop_program(s);
            buf_fini(&s->text);
            s->text = text;
            text = (struct buf){0};
            if (exists)
                start_program(s);
        }
        buf_fini(&text);
        lib_pause();
    }
    stop_program(s);
    return NULL;
}

struct static_pod *static_pod_start(const char *root, const char *manifest,
                                    const char *program)
{
    struct static_pod *s = xcalloc(1, sizeof *s);
    s->root = xstrdup(root);
    s->manifest = xasprintf("%s/%s", root, manifest);
    s->container = xasprintf("%s/container", root);
    cleanup_free char *bin = xasprintf("%s/usr/bin", s->container);
    run_command(ARGV("mkdir", "-p", bin));
    run_command(ARGV("ln", program, bin)); /* copy if it is on another file system */
    run_command(ARGV("cp", "-n", program, bin));
    ck_assert_int_eq(pthread_create(&s->thread, NULL, thread_main, s), 0);
    return s;
}

void static_pod_stop(struct static_pod *s)
{
    s->stopping = true;
    pthread_join(s->thread, NULL);
    buf_fini(&s->text);
    free(s->root);
    free(s->manifest);
    free(s->container);
    free(s);
}
