/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/staticpod.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "wire/yaml.h"

enum { WORDS = 32 };

struct static_pod {
    char *root, *manifest, *container;
    pthread_t thread;
    atomic_bool stops;
    /* of the thread */
    struct buf text; /* of the manifest that runs */
    struct program program;
};

/* A command that may fail: what was not copied the program does not find. */
static void does(const char *const *argv)
{
    struct program p;
    program_start(&p, "/", argv);
    program_wait(&p);
    program_fini(&p);
}

/* The mounts of the first container, as copies. */
static void copy_mounts(struct static_pod *s, const struct yaml_node *spec,
                        const struct yaml_node *container)
{
    const struct yaml_node *mounts = yaml_get(container, "volumeMounts");
    const struct yaml_node *volumes = yaml_get(spec, "volumes");
    cleanup_free char *etc = xasprintf("%s/etc", s->container);
    does(ARGV("rm", "-rf", etc));
    for (size_t i = 0; mounts && i < mounts->n; i++) {
        for (size_t k = 0; volumes && k < volumes->n; k++) {
            struct span name = {0}, of = {0}, path = {0}, at = {0};
            yaml_text(mounts->items[i], "name", &name, NULL);
            yaml_text(volumes->items[k], "name", &of, NULL);
            if (!span_eq(name, of))
                continue;
            yaml_text(yaml_get(volumes->items[k], "hostPath"), "path", &path, NULL);
            yaml_text(mounts->items[i], "mountPath", &at, NULL);
            cleanup_free char *from = xasprintf("%s%.*s", s->root, SPAN_ARG(path));
            cleanup_free char *to = xasprintf("%s%.*s", s->container, SPAN_ARG(at));
            does(ARGV("install", "-D", from, to));
        }
    }
}

/* Does what the text says. */
static void run(struct static_pod *s)
{
    struct span command[WORDS];
    const char *argv[WORDS + 4] = {"unshare", "-r", "chroot", s->container};
    size_t n = 4, skip = getuid() == 0 ? 2 : 0;
    cleanup_yaml struct yaml *y = yaml_parse("manifest", s->text.p, s->text.n, NULL);
    const struct yaml_node *spec = y ? yaml_get(yaml_document(y, 0), "spec") : NULL;
    const struct yaml_node *all = yaml_get(spec, "containers");
    const struct yaml_node *words =
        all && all->n ? yaml_get(all->items[0], "command") : NULL;
    if (!words || words->n >= WORDS)
        return;
    copy_mounts(s, spec, all->items[0]);
    for (size_t i = 0; i < words->n; i++) {
        command[i] = words->items[i]->text;
        argv[n++] = command[i].p; /* with a NUL behind it */
    }
    argv[n] = NULL;
    program_start(&s->program, "/", argv + skip);
}

static void end(struct static_pod *s)
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

static void *play(void *arg)
{
    struct static_pod *s = arg;
    while (!s->stops) {
        struct buf text = {0};
        bool there = file_read(s->manifest, 1 << 20, &text, NULL) == 0;
        bool same = there && span_eq(buf_span(&text), buf_span(&s->text));
        if (!there || !same || !s->program.pid || !program_runs(&s->program)) {
            end(s);
            buf_fini(&s->text);
            s->text = text;
            text = (struct buf){0};
            if (there)
                run(s);
        }
        buf_fini(&text);
        kit_pause();
    }
    end(s);
    return NULL;
}

struct static_pod *static_pod_start(const char *root, const char *name,
                                    const char *program)
{
    struct static_pod *s = xcalloc(1, sizeof *s);
    s->root = xstrdup(root);
    s->manifest = xasprintf("%s/etc/kubernetes/manifests/%s.yaml", root, name);
    s->container = xasprintf("%s/container", root);
    cleanup_free char *bin = xasprintf("%s/usr/bin", s->container);
    does(ARGV("mkdir", "-p", bin));
    does(ARGV("ln", program, bin)); /* and if it is on another file system */
    does(ARGV("cp", "-n", program, bin));
    ck_assert_int_eq(pthread_create(&s->thread, NULL, play, s), 0);
    return s;
}

void static_pod_stop(struct static_pod *s)
{
    s->stops = true;
    pthread_join(s->thread, NULL);
    buf_fini(&s->text);
    free(s->root);
    free(s->manifest);
    free(s->container);
    free(s);
}
