/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/driver_view.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

enum { SPEC_MAX = 4 << 20 };

const char *driver_strategy_name(enum driver_strategy s)
{
    static const char *const names[] = {[DRIVER_AUTO] = "auto",
                                        [DRIVER_ENVVAR] = "envvar",
                                        [DRIVER_VOLUME_MOUNTS] = "volume-mounts",
                                        [DRIVER_CDI_ANNOTATIONS] = "cdi-annotations",
                                        [DRIVER_CDI_CRI] = "cdi-cri"};
    return names[s];
}

static bool is_spec(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(name, CDI_SPEC_FILE) != 0 &&
           (strcmp(dot, ".json") == 0 || strcmp(dot, ".yaml") == 0);
}

/* Does a file in the directory define names of this kind for all cards? */
static bool names_all(const char *dir, const char *kind,
                      const struct driver_view_settings *settings,
                      const struct card_seen *cards, size_t n)
{
    bool found = false;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && !found && (e = readdir(d));) {
        struct err err;
        if (!is_spec(e->d_name))
            continue;
        cleanup_free char *path = xasprintf("%s/%s", dir, e->d_name);
        found = cdi_spec_names_all(path, kind, settings->by_index, cards, n, &err);
    }
    if (d)
        closedir(d);
    return found;
}

static bool is_generated(const struct driver_view_settings *settings,
                         const struct card_seen *cards, size_t n)
{
    cleanup_free char *etc = xasprintf("%s/etc/cdi", settings->host_root);
    const char *kind = CDI_SPEC_GENERATED_KIND;
    return names_all(etc, kind, settings, cards, n) ||
           names_all(settings->cdi_dir, kind, settings, cards, n);
}

static int write_ours(const struct driver_view_settings *settings,
                      const struct driver_files *files, const struct card_seen *cards,
                      size_t n, struct err *err)
{
    cleanup_buf struct buf text = {0}, before = {0};
    struct err ignored;
    if (!files->n_libraries)
        return err_set(err, ERR_NOT_FOUND,
                       "no library of the driver below %s on the host",
                       settings->driver_root);
    if (!cdi_spec_write(files, cards, n, &text))
        return err_set(err, ERR_NOT_FOUND,
                       "no card has a device node %s/dev/nvidia<n> on "
                       "the host",
                       files->dev);
    cleanup_free char *path = xasprintf("%s/" CDI_SPEC_FILE, settings->cdi_dir);
    if (file_read(path, SPEC_MAX, &before, &ignored) == 0 &&
        span_eq(buf_span(&before), buf_span(&text)))
        return 0;
    if (file_write(path, buf_span(&text), err))
        return -1;
    log_info("cdi", "wrote the specification of the cards", LOG_S("file", path),
             LOG_S("kind", CDI_SPEC_KIND));
    return 0;
}

static void find_kind(struct driver_view *v, const struct driver_view_settings *settings,
                      const struct card_seen *cards, size_t n)
{
    struct err err;
    if (settings->strategy == DRIVER_ENVVAR || settings->strategy == DRIVER_VOLUME_MOUNTS)
        return;
    if (settings->cdi_kind[0]) {
        v->cdi_kind = settings->cdi_kind;
    } else if (is_generated(settings, cards, n)) {
        v->cdi_kind = CDI_SPEC_GENERATED_KIND;
    } else if (!settings->host_root[0]) {
        snprintf(v->reason, sizeof v->reason, "--host-root is not set");
    } else if (write_ours(settings, &v->files, cards, n, &err)) {
        snprintf(v->reason, sizeof v->reason, "%s", err.msg);
    } else {
        v->cdi_kind = CDI_SPEC_KIND;
        v->is_ours = true;
    }
}

struct driver_view *driver_view_new(const struct driver_view_settings *settings,
                                    const char *version, const struct card_seen *cards,
                                    size_t n)
{
    struct driver_view *v = xcalloc(1, sizeof *v);
    const struct driver_root root = {settings->host_root, settings->driver_root};
    struct err err;
    v->files.dev = "";
    if (settings->host_root[0] &&
        driver_files_find(&root, version, &v->arena, &v->files, &err))
        snprintf(v->reason, sizeof v->reason, "%s", err.msg);
    else
        find_kind(v, settings, cards, n);
    return v;
}

void driver_view_free(struct driver_view *v)
{
    if (!v)
        return;
    arena_fini(&v->arena);
    free(v);
}

/* Whether the text is NAME followed by a version of at least major.minor. A containerd that
 * somebody built can say "v2.1.4". */
static bool is_at_least(const char *text, const char *name, unsigned major,
                        unsigned minor)
{
    unsigned x, y;
    size_t n = strlen(name);
    if (strncmp(text, name, n) != 0)
        return false;
    text += n;
    return sscanf(text + (*text == 'v'), "%5u.%5u", &x, &y) == 2 &&
           (x > major || (x == major && y >= minor));
}

enum driver_strategy driver_view_choose(const struct driver_view *view,
                                        const struct driver_node *node, struct buf *why)
{
    if (!view || !view->cdi_kind) {
        buf_printf(why, "no CDI specification names the cards: %s",
                   view ? view->reason : "no sample of the cards yet");
        return DRIVER_ENVVAR;
    }
    if (!is_at_least(node->kubelet, "v", 1, 29)) {
        buf_printf(why, "kubelet \"%s\" passes no CDI names before v1.29", node->kubelet);
        return DRIVER_ENVVAR;
    }
    if (!is_at_least(node->runtime, "containerd://", 2, 0) &&
        !is_at_least(node->runtime, "cri-o://", 1, 28)) {
        buf_printf(why,
                   "container runtime \"%s\" takes no CDI names by default before "
                   "containerd 2.0 and CRI-O 1.28",
                   node->runtime);
        return DRIVER_ENVVAR;
    }
    buf_printf(why, "%s and kubelet %s take names of the kind %s", node->runtime,
               node->kubelet, view->cdi_kind);
    return DRIVER_CDI_CRI;
}
