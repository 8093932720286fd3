/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/cdi_spec.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/yaml.h"

#define PLAIN_LIBRARIES "/usr/local/nvidia/lib64"
#define MOUNT_OPTIONS   "[\"ro\",\"nosuid\",\"nodev\",\"rbind\",\"rprivate\"]"

struct list {
    struct buf *out;
    bool any;
};

static struct buf *next(struct list *l)
{
    if (l->any)
        buf_addc(l->out, ',');
    l->any = true;
    return l->out;
}

static void add_node(struct list *l, const struct driver_file *f)
{
    struct buf *out = next(l);
    buf_adds(out, "{\"path\":");
    buf_add_json(out, span_of(f->container));
    buf_adds(out, ",\"hostPath\":");
    buf_add_json(out, span_of(f->host));
    buf_addc(out, '}');
}

static void add_mount(struct list *l, const char *host, const char *container)
{
    struct buf *out = next(l);
    buf_adds(out, "{\"hostPath\":");
    buf_add_json(out, span_of(host));
    buf_adds(out, ",\"containerPath\":");
    buf_add_json(out, span_of(container));
    buf_adds(out, ",\"options\":" MOUNT_OPTIONS "}");
}

/* Opens the hook's object and its arguments. */
static void begin_hook(struct list *l, const struct driver_files *files, const char *name)
{
    struct buf *out = next(l);
    buf_adds(out, "{\"hookName\":\"createContainer\",\"path\":");
    buf_add_json(out, span_of(files->hook));
    buf_printf(out, ",\"args\":[%s,\"%s\"",
               files->hook_is_ctk ? "\"nvidia-ctk\",\"hook\"" : "\"nvidia-cdi-hook\"",
               name);
}

static void add_arg(struct buf *out, const char *flag, const char *value)
{
    buf_printf(out, ",\"%s\",", flag);
    buf_add_json(out, span_of(value));
}

/* Each directory once; libraries are sorted by path. */
static void add_folders(struct buf *out, const struct driver_files *files)
{
    cleanup_free char *last = xstrdup("");
    for (size_t i = 0; i < files->n_libraries; i++) {
        const char *path = files->libraries[i].container, *end = strrchr(path, '/');
        cleanup_free char *dir = xasprintf("%.*s", (int)(end - path), path);
        if (strcmp(dir, last) == 0)
            continue;
        add_arg(out, "--folder", dir);
        free(last);
        last = xstrdup(dir);
    }
}

static void add_hooks(struct buf *out, const struct driver_files *files)
{
    struct list l = {.out = out};
    if (!files->hook || !files->n_libraries)
        return;
    buf_adds(out, ",\"hooks\":[");
    if (files->n_links) {
        begin_hook(&l, files, "create-symlinks");
        for (size_t i = 0; i < files->n_links; i++) {
            const struct driver_link *link = &files->links[i];
            cleanup_free char *value =
                xasprintf("%s::%s/%s", link->target, link->directory, link->name);
            add_arg(out, "--link", value);
        }
        buf_adds(out, "]}");
    }
    begin_hook(&l, files, "update-ldcache");
    add_folders(out, files);
    buf_adds(out, "]}]");
}

static void add_mounts(struct buf *out, const struct driver_files *files)
{
    struct list l = {.out = out};
    buf_adds(out, ",\"mounts\":[");
    for (size_t i = 0; i < files->n_libraries; i++) {
        const struct driver_file *f = &files->libraries[i];
        cleanup_free char *plain =
            xasprintf(PLAIN_LIBRARIES "%s", strrchr(f->container, '/'));
        add_mount(&l, f->host, files->hook ? f->container : plain);
    }
    for (size_t i = 0; i < files->n_links && !files->hook; i++) {
        cleanup_free char *plain = xasprintf(PLAIN_LIBRARIES "/%s", files->links[i].name);
        add_mount(&l, files->links[i].library, plain);
    }
    for (size_t i = 0; i < files->n_others; i++)
        add_mount(&l, files->others[i].host, files->others[i].container);
    buf_addc(out, ']');
}

static void add_device(struct list *l, const char *name, const struct driver_file *node)
{
    struct buf *out = next(l);
    struct list nodes = {.out = out};
    buf_adds(out, "{\"name\":");
    buf_add_json(out, span_of(name));
    buf_adds(out, ",\"containerEdits\":{\"deviceNodes\":[");
    add_node(&nodes, node);
    buf_adds(out, "]}}");
}

static size_t add_devices(struct buf *out, const struct driver_files *files,
                          const struct card_seen *cards, size_t n)
{
    cleanup_arena struct arena a = {0};
    struct list l = {.out = out};
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        struct driver_file node;
        char index[16];
        snprintf(index, sizeof index, "%d", cards[i].index);
        if (!driver_files_card(files, cards[i].minor, &a, &node))
            continue;
        found++;
        add_device(&l, index, &node);
        if (cards[i].uuid[0])
            add_device(&l, cards[i].uuid, &node);
    }
    return found;
}

size_t cdi_spec_write(const struct driver_files *files, const struct card_seen *cards,
                      size_t n, struct buf *out)
{
    struct list nodes = {.out = out};
    buf_adds(out,
             "{\"cdiVersion\":\"0.5.0\",\"kind\":\"" CDI_SPEC_KIND "\",\"devices\":[");
    size_t found = add_devices(out, files, cards, n);
    /* NVIDIA's runtime, where it is the default one, would add the cards that the image's
     * own variable names. */
    buf_adds(out, "],\"containerEdits\":{\"env\":[\"NVIDIA_VISIBLE_DEVICES=void\"],"
                  "\"deviceNodes\":[");
    for (size_t i = 0; i < files->n_nodes; i++)
        add_node(&nodes, &files->nodes[i]);
    buf_addc(out, ']');
    add_mounts(out, files);
    add_hooks(out, files);
    buf_adds(out, "}}\n");
    return found;
}

static bool has_device(const struct yaml_node *devices, const char *name)
{
    struct span text;
    struct err ignored;
    for (size_t i = 0; devices && devices->type == YAML_SEQUENCE && i < devices->n; i++)
        if (yaml_text(devices->items[i], "name", &text, &ignored) == 0 &&
            span_eq(text, span_of(name)))
            return true;
    return false;
}

bool cdi_spec_names_all(const char *path, const char *kind, bool by_index,
                        const struct card_seen *cards, size_t n, struct err *err)
{
    struct span text;
    err->code = ERR_NONE;
    cleanup_yaml struct yaml *y = yaml_load(path, err);
    const struct yaml_node *root = y && yaml_count(y) ? yaml_document(y, 0) : NULL;
    if (!y || yaml_text(root, "kind", &text, err) || !span_eq(text, span_of(kind)))
        return false;
    const struct yaml_node *devices = yaml_get(root, "devices");
    for (size_t i = 0; i < n; i++) {
        char index[16];
        snprintf(index, sizeof index, "%d", cards[i].index);
        if (!has_device(devices, by_index || !cards[i].uuid[0] ? index : cards[i].uuid))
            return false;
    }
    return n > 0;
}
