/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVIDIA's driver on the host: finding its files, and the names that a specification of the
 * Container Device Interface gives to the cards.
 */

#include "node/driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/jwrite.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu.h"
#include "wire/yaml.h"

#define GENERATED_KIND  "nvidia.com/gpu"
#define PLAIN_LIBRARIES "/usr/local/nvidia/lib64"
#define OLD_HOOK                                                                         \
    "%s cannot be read, or has no " DRIVER_LIMIT_HOOK                                    \
    ": needs nvidia-container-toolkit 1.20.1 or newer"
#define MOUNT_OPTIONS "[\"ro\",\"nosuid\",\"nodev\",\"rbind\",\"rprivate\"]"

enum {
    FILES_MAX = 512, /* of one list; the driver has about 60 libraries */
    SPEC_MAX = 4 << 20,
    MINORS_MAX = 1 << 20,
};

/* The files */

static const char *const other_files[] = {"/usr/bin/nvidia-smi",
                                          "/usr/bin/nvidia-debugdump",
                                          "/usr/bin/nvidia-persistenced",
                                          "/usr/bin/nvidia-cuda-mps-control",
                                          "/usr/bin/nvidia-cuda-mps-server",
                                          "/run/nvidia-persistenced/socket"};

static const char *const common_nodes[DRIVER_NODES_MAX] = {
    "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};

/* Where nvidia-container-toolkit is installed by packages and by the GPU Operator. */
static const struct {
    const char *path;
    bool is_ctk;
} hooks[] = {{"/usr/bin/nvidia-cdi-hook", false},
             {"/usr/local/nvidia/toolkit/nvidia-cdi-hook", false},
             {"/usr/bin/nvidia-ctk", true},
             {"/usr/local/nvidia/toolkit/nvidia-ctk", true}};

struct search {
    int fd;             /* the directory in which absolute paths are resolved */
    const char *prefix; /* its path on the host, without a final slash */
    struct arena *a;
};

static bool exists(const struct search *s, const char *path, mode_t type)
{
    struct stat st;
    cleanup_close int fd = file_open_inside(s->fd, path, O_PATH);
    return fd >= 0 && fstat(fd, &st) == 0 && (!type || (st.st_mode & S_IFMT) == type);
}

/* Whether the bytes of the file have the text. */
static bool has_text(const struct search *s, const char *path, const char *text)
{
    const size_t n = strlen(text);
    char block[1 << 16];
    size_t kept = 0;
    ssize_t got;
    cleanup_close int fd = file_open_inside(s->fd, path, O_RDONLY);
    while (fd >= 0 && (got = read(fd, block + kept, sizeof block - kept)) > 0) {
        const size_t have = kept + (size_t)got;
        if (memmem(block, have, text, n))
            return true;
        kept = have < n ? have : n - 1;
        memmove(block, block + have - kept, kept);
    }
    return false;
}

/* The GPU Operator installs each program as a script that runs PROGRAM.real. */
static bool has_limit_hook(const struct search *s, const char *program)
{
    cleanup_free char *real = xasprintf("%s.real", program);
    return has_text(s, program, DRIVER_LIMIT_HOOK) ||
           has_text(s, real, DRIVER_LIMIT_HOOK);
}

static struct driver_file file_of(const struct search *s, const char *path)
{
    const char *host = arena_printf(s->a, "%s%s", s->prefix, path);
    return (struct driver_file){host, host + strlen(s->prefix)};
}

static size_t find_files(const struct search *s, const char *const *paths, size_t n,
                         mode_t type, struct driver_file **files)
{
    size_t found = 0;
    *files = arena_zalloc(s->a, n * sizeof **files);
    for (size_t i = 0; i < n; i++)
        if (exists(s, paths[i], type))
            (*files)[found++] = file_of(s, paths[i]);
    return found;
}

/* libNAME.so.VERSION */
static bool is_library(const char *name, struct span ending)
{
    return strlen(name) > 3 + ending.n && !strncmp(name, "lib", 3) &&
           span_ends(span_of(name), ending);
}

/* Files and links begin with their paths. */
static int by_path(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds a file of the directory `at`, if it is a library or a link to one in the same directory. */
static void add_library(const struct search *s, int dir, const char *at, const char *name,
                        struct span ending, struct driver_files *out)
{
    char target[256], real[PATH_MAX], self[64];
    struct stat st;
    if (strncmp(name, "lib", 3) != 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    if (S_ISREG(st.st_mode) && is_library(name, ending) && out->n_libraries < FILES_MAX) {
        cleanup_free char *path = xasprintf("%s/%s", at, name);
        out->libraries[out->n_libraries++] = file_of(s, path);
    }
    ssize_t n =
        S_ISLNK(st.st_mode) ? readlinkat(dir, name, target, sizeof target - 1) : -1;
    if (n <= 0 || memchr(target, '/', (size_t)n) || out->n_links == FILES_MAX)
        return;
    target[n] = '\0';
    cleanup_close int fd = openat(dir, name, O_PATH | O_CLOEXEC);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    n = fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)
            ? -1
            : readlink(self, real, sizeof real - 1);
    if (n <= 0)
        return;
    real[n] = '\0';
    const char *base = strrchr(real, '/');
    if (base && is_library(base + 1, ending))
        out->links[out->n_links++] = (struct driver_link){
            arena_printf(s->a, "%s/%s", at, name), arena_printf(s->a, "%s", target),
            arena_printf(s->a, "%s%s%s", s->prefix, at, base)};
}

/* The libraries of all directories, each directory once. */
static void find_libraries(const struct search *s, const char *version,
                           struct driver_files *out)
{
    struct stat seen[GPU_LIBRARY_DIRS];
    size_t n_seen = 0;
    cleanup_free char *ending = xasprintf(".so.%s", version);
    out->libraries = arena_zalloc(s->a, FILES_MAX * sizeof *out->libraries);
    out->links = arena_zalloc(s->a, FILES_MAX * sizeof *out->links);
    for (size_t i = 0; version[0] && i < GPU_LIBRARY_DIRS; i++) {
        struct stat *st = &seen[n_seen];
        const char *at = gpu_library_dirs[i];
        int fd = file_open_inside(s->fd, at, O_RDONLY | O_DIRECTORY);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        bool known = !dir || fstat(fd, st);
        for (size_t k = 0; k < n_seen && !known; k++)
            known = seen[k].st_dev == st->st_dev && seen[k].st_ino == st->st_ino;
        n_seen += !known;
        for (const struct dirent *e; !known && (e = readdir(dir));)
            add_library(s, fd, at, e->d_name, span_of(ending), out);
        if (dir)
            closedir(dir);
        else if (fd >= 0)
            close(fd);
    }
    /* The same files give the same specification. */
    qsort(out->libraries, out->n_libraries, sizeof *out->libraries, by_path);
    qsort(out->links, out->n_links, sizeof *out->links, by_path);
}

/* The kernel's list is the same in every container. Cards are named by their minor number. */
static void find_caps(const struct search *host, const struct search *dev,
                      const char *mount, const struct card_seen *cards, size_t n,
                      struct driver_files *out)
{
#define MINORS "/proc/driver/nvidia-caps/mig-minors"
    cleanup_buf struct buf minors = {0};
    cleanup_free char *path = xasprintf("%s" MINORS, mount);
    struct err ignored;
    out->caps = arena_zalloc(dev->a, (n + 1) * sizeof *out->caps);
    for (size_t i = 0; i < n; i++) {
        const struct card_place *at = &cards[i].place;
        struct driver_caps *caps = &out->caps[out->n_caps];
        size_t found = 0;
        if (at->gpu_instance < 0)
            continue;
        if (!minors.n)
            file_read(exists(host, MINORS, S_IFREG) ? path : MINORS, MINORS_MAX, &minors,
                      &ignored);
        cleanup_free char *gi =
                              xasprintf("gpu%d/gi%d/access", at->minor, at->gpu_instance),
                          *ci = xasprintf("gpu%d/gi%d/ci%d/access", at->minor,
                                          at->gpu_instance, at->compute_instance);
        for (; found < 2; found++) {
            const struct span capability = span_of(found ? ci : gi);
            int64_t cap = -1; /* of the line "gpu0/gi1/access 3"; -1: there is none */
            for (struct span rest = buf_span(&minors); rest.n && cap < 0;) {
                struct span number = span_cut(&rest, '\n');
                if (span_eq(span_cut(&number, ' '), capability) && number.n)
                    cap = strtol(number.p, NULL, 10);
            }
            cleanup_free char *node =
                xasprintf("/dev/nvidia-caps/nvidia-cap%lld", (long long)cap);
            if (!exists(dev, node, S_IFCHR))
                break;
            caps->files[found] = file_of(dev, node);
        }
        caps->place = *at;
        out->n_caps += found == 2;
    }
}

/* The host's root is mounted at `mount`; the driver's root on the host is "/", or the
 * directory of a driver container. Libraries have names that end with the driver's version,
 * as NVML returns it. What is missing is missing: a host without a driver has no file. */
static int find_driver(const char *mount, const char *driver_root, const char *version,
                       const struct card_seen *cards, size_t n, struct arena *a,
                       struct driver_files *out, struct err *err)
{
    cleanup_close int host = open(mount, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host < 0)
        return err_set(err, ERR_NOT_FOUND, "%s: %m", mount);
    struct search own = {host, "", a}, driver = own;
    cleanup_close int inside = file_open_inside(host, driver_root, O_PATH | O_DIRECTORY);
    if (inside < 0)
        return err_set(err, ERR_NOT_FOUND, "%s on the host: %m", driver_root);
    if (strspn(driver_root, "/") != strlen(driver_root))
        driver = (struct search){inside, driver_root, a};
    bool has_dev = driver.prefix[0] && exists(&driver, "/dev/nvidiactl", S_IFCHR);
    const struct search *dev = has_dev ? &driver : &own;
    out->dev = arena_printf(a, "%s", dev->prefix);
    out->n_nodes =
        find_files(dev, common_nodes, ARRAY_LEN(common_nodes), S_IFCHR, &out->nodes);
    for (unsigned minor = 0; minor < DRIVER_CARDS_MAX; minor++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%u", minor);
        out->has_card[minor] = exists(dev, path, S_IFCHR);
    }
    find_caps(&own, dev, mount, cards, n, out);
    find_libraries(&driver, version, out);
    out->n_others =
        find_files(&driver, other_files, ARRAY_LEN(other_files), 0, &out->others);
    /* The toolkit is on the host in both cases. */
    for (size_t i = 0; i < ARRAY_LEN(hooks) && !out->hook_limits; i++) {
        bool limits = has_limit_hook(&own, hooks[i].path);
        if (!exists(&own, hooks[i].path, 0) || (out->hook && !limits))
            continue;
        out->hook = hooks[i].path;
        out->hook_is_ctk = hooks[i].is_ctk;
        out->hook_limits = limits;
    }
    return 0;
}

size_t driver_card_files(const struct driver_files *files, const struct card_place *place,
                         struct arena *a, struct driver_file out[DRIVER_CARD_FILES])
{
    const int32_t minor = place->minor;
    if (minor < 0 || minor >= DRIVER_CARDS_MAX || !files->has_card[minor])
        return 0;
    out->container = arena_printf(a, "/dev/nvidia%d", (int)minor);
    out->host = arena_printf(a, "%s%s", files->dev, out->container);
    if (place->gpu_instance < 0)
        return 1;
    ARRAY_EACH_ITEM(const struct driver_caps, caps, files->caps, files->n_caps)
    {
        if (caps->place.minor != minor ||
            caps->place.gpu_instance != place->gpu_instance ||
            caps->place.compute_instance != place->compute_instance)
            continue;
        memcpy(out + 1, caps->files, sizeof caps->files);
        return DRIVER_CARD_FILES;
    }
    return 0;
}

/* Specifications */

static void add_node(struct jwrite *w, const struct driver_file *f)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "path", span_of(f->container));
    jwrite_str(w, "hostPath", span_of(f->host));
    jwrite_object_end(w);
}

static void add_mount(struct jwrite *w, const char *host, const char *container)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "hostPath", span_of(host));
    jwrite_str(w, "containerPath", span_of(container));
    jwrite_raw(w, "options", SPAN(MOUNT_OPTIONS));
    jwrite_object_end(w);
}

/* Opens the hook's object and its arguments. */
static void begin_hook(struct jwrite *w, const struct driver_files *files,
                       const char *stage, const char *name)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "hookName", span_of(stage));
    jwrite_str(w, "path", span_of(files->hook));
    jwrite_array(w, "args");
    jwrite_str(w, NULL, span_of(files->hook_is_ctk ? "nvidia-ctk" : "nvidia-cdi-hook"));
    if (files->hook_is_ctk)
        jwrite_str(w, NULL, SPAN("hook"));
    jwrite_str(w, NULL, span_of(name));
}

static void add_arg(struct jwrite *w, const char *flag, struct span value)
{
    jwrite_str(w, NULL, span_of(flag));
    jwrite_str(w, NULL, value);
}

static void end_hook(struct jwrite *w)
{
    jwrite_array_end(w);
    jwrite_object_end(w);
}

/* Hooks make the links and the loader's cache. */
static void add_hooks(struct jwrite *w, const struct driver_files *files)
{
    struct span last = {0};
    if (!files->hook || !files->n_libraries)
        return;
    jwrite_array(w, "hooks");
    if (files->n_links) {
        begin_hook(w, files, "createContainer", "create-symlinks");
        ARRAY_EACH_ITEM(const struct driver_link, link, files->links, files->n_links)
        {
            cleanup_free char *value = xasprintf("%s::%s", link->target, link->path);
            add_arg(w, "--link", span_of(value));
        }
        end_hook(w);
    }
    begin_hook(w, files, "createContainer", "update-ldcache");
    /* Each directory once; libraries are sorted by path. */
    for (size_t i = 0; i < files->n_libraries; i++) {
        const char *path = files->libraries[i].container;
        struct span dir = {path, (size_t)(strrchr(path, '/') - path)};
        if (!span_eq(dir, last))
            add_arg(w, "--folder", dir);
        last = dir;
    }
    end_hook(w);
    jwrite_array_end(w);
}

/* The hook of `limited`, a full card; NULL: none. */
static void add_device(struct jwrite *w, const char *name,
                       const struct driver_file *nodes, size_t n,
                       const struct driver_files *files, const char *driver_root,
                       const char *limited)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "name", span_of(name));
    jwrite_object(w, "containerEdits");
    jwrite_array(w, "deviceNodes");
    for (size_t i = 0; i < n; i++)
        add_node(w, &nodes[i]);
    jwrite_array_end(w);
    if (limited) {
        jwrite_array(w, "hooks");
        begin_hook(w, files, "createRuntime", DRIVER_LIMIT_HOOK);
        add_arg(w, "--driver-root", span_of(driver_root));
        add_arg(w, "--gpu-id", span_of(limited));
        end_hook(w);
        jwrite_array_end(w);
    }
    jwrite_object_end(w);
    jwrite_object_end(w);
}

/* Appends our specification: every card of the sample that has a device node, by UUID and
 * (unless it is an instance) by index, with the driver's files. Version 0.5.0 of the format,
 * which every runtime with CDI reads. With NVIDIA's hook, libraries are at the host's paths, and
 * hooks make the links and the loader's cache; without it they are in /usr/local/nvidia/lib64,
 * which CUDA images have in LD_LIBRARY_PATH. Returns the number of cards. */
static size_t write_spec(const struct driver_files *files, const char *driver_root,
                         const struct card_seen *cards, size_t n, struct buf *out)
{
    cleanup_arena struct arena a = {0};
    struct jwrite w = {.out = out};
    size_t found = 0;
    jwrite_object(&w, NULL);
    jwrite_str(&w, "cdiVersion", SPAN("0.5.0"));
    jwrite_str(&w, "kind", SPAN(DRIVER_CDI_KIND));
    jwrite_array(&w, "devices");
    for (size_t i = 0; i < n; i++) {
        struct driver_file nodes[DRIVER_CARD_FILES];
        char index[16];
        size_t n_nodes = driver_card_files(files, &cards[i].place, &a, nodes);
        snprintf(index, sizeof index, "%d", cards[i].index);
        if (!n_nodes)
            continue;
        found++;
        const bool is_full = !cards[i].parent[0];
        const char *limited =
            files->hook_limits && is_full && cards[i].uuid[0] ? cards[i].uuid : NULL;
        if (is_full)
            add_device(&w, index, nodes, n_nodes, files, driver_root, limited);
        if (cards[i].uuid[0])
            add_device(&w, cards[i].uuid, nodes, n_nodes, files, driver_root, limited);
    }
    jwrite_array_end(&w);
    jwrite_object(&w, "containerEdits");
    /* NVIDIA's runtime, where it is the default one, would add the cards that the image's
     * own variable names. */
    jwrite_raw(&w, "env", SPAN("[\"NVIDIA_VISIBLE_DEVICES=void\"]"));
    jwrite_array(&w, "deviceNodes");
    for (size_t i = 0; i < files->n_nodes; i++)
        add_node(&w, &files->nodes[i]);
    jwrite_array_end(&w);
    jwrite_array(&w, "mounts");
    ARRAY_EACH_ITEM(const struct driver_file, f, files->libraries, files->n_libraries)
    {
        cleanup_free char *plain =
            xasprintf(PLAIN_LIBRARIES "%s", strrchr(f->container, '/'));
        add_mount(&w, f->host, files->hook ? f->container : plain);
    }
    for (size_t i = 0; i < files->n_links && !files->hook; i++) {
        cleanup_free char *plain =
            xasprintf(PLAIN_LIBRARIES "%s", strrchr(files->links[i].path, '/'));
        add_mount(&w, files->links[i].library, plain);
    }
    for (size_t i = 0; i < files->n_others; i++)
        add_mount(&w, files->others[i].host, files->others[i].container);
    jwrite_array_end(&w);
    add_hooks(&w, files);
    jwrite_object_end(&w);
    jwrite_object_end(&w);
    buf_addc(out, '\n');
    return found;
}

/* Names that other specifications give to the cards */

/* What the runtime makes of the names of one kind. It drops a name that two files of the same
 * directory define; of two directories, the later one counts. */
struct named {
    const struct driver_view_settings *settings;
    const struct card_seen *cards;
    size_t n;
    struct search host;  /* fd -1: --host-root is not set, and nothing can be checked */
    const char *program; /* of the hook of the last card that had one; NULL: none had */
    bool has_hook;       /* that program has DRIVER_LIMIT_HOOK */
    struct {
        const char *file;  /* that defines the name in this directory; NULL: none */
        bool found;        /* in a directory */
        const char *unfit; /* why the name cannot be used; NULL: it can */
        bool twice;        /* `unfit`, whatever a later directory has */
        const char
            *no_hook; /* why the name brings no limit of the driver; NULL: it does */
    } of[CARDS_MAX];
};

/* Whether a path that is not there is not on the host either: the rest of it is not mounted. */
static bool is_missing(const struct named *names, const char *path)
{
    struct span at = span_of(path), root = span_of(names->settings->driver_root);
    bool seen = span_starts(at, SPAN("/dev/")) || span_starts(at, SPAN("/usr/")) ||
                (root.n > 1 && span_starts(at, root));
    if (!seen)
        return false;
    cleanup_close int fd = file_open_inside(names->host.fd, path, O_PATH);
    if (fd >= 0 || (errno != ENOENT && errno != ENOTDIR))
        return false;
    /* A link can lead out of what is mounted. */
    cleanup_close int link = file_open_inside(names->host.fd, path, O_PATH | O_NOFOLLOW);
    return link < 0;
}

/* The first file of the host that these containerEdits need and that is not there; NULL: none. */
static const char *find_missing(const struct named *names, const struct yaml_node *edits)
{
    static const char *const lists[][3] = {{"deviceNodes", "hostPath", "path"},
                                           {"mounts", "hostPath", "hostPath"},
                                           {"hooks", "path", "path"}};
    for (size_t i = 0; i < ARRAY_LEN(lists) && names->host.fd >= 0; i++) {
        const struct yaml_node *list = yaml_get(edits, lists[i][0]);
        for (size_t k = 0; list && list->type == YAML_SEQUENCE && k < list->n; k++) {
            struct span path = {0};
            struct err ignored;
            if (yaml_text(list->items[k], lists[i][1], &path, &ignored) || !path.n)
                yaml_text(list->items[k], lists[i][2], &path, &ignored);
            const char *at = arena_copy(names->host.a, path).p;
            if (path.n && is_missing(names, at))
                return at;
        }
    }
    return NULL;
}

/* The program of the hook in these containerEdits that limits the card; NULL: there is none. */
static const char *find_limit_hook(const struct named *names,
                                   const struct yaml_node *edits, const char *uuid)
{
    const struct yaml_node *list = yaml_get(edits, "hooks");
    for (size_t i = 0; list && list->type == YAML_SEQUENCE && i < list->n; i++) {
        const struct yaml_node *args = yaml_get(list->items[i], "args");
        struct span path = {0};
        struct err ignored;
        bool limits = false, is_of_card = false;
        for (size_t k = 0; args && args->type == YAML_SEQUENCE && k < args->n; k++) {
            limits |= span_eq(args->items[k]->text, SPAN(DRIVER_LIMIT_HOOK));
            is_of_card |= span_eq(args->items[k]->text, span_of(uuid));
        }
        if (limits && is_of_card && !yaml_text(list->items[i], "path", &path, &ignored))
            return arena_copy(names->host.a, path).p;
    }
    return NULL;
}

/* Why a device of the file `shown` brings no limit of the driver on the card; NULL: it does. */
static const char *check_limit_hook(struct named *names, const char *shown,
                                    const struct yaml_node *root,
                                    const struct yaml_node *edits, const char *uuid)
{
    const char *program =
        find_limit_hook(names, edits, uuid)
            ?: find_limit_hook(names, yaml_get(root, "containerEdits"), uuid);
    if (!program)
        return arena_printf(names->host.a,
                            "%s has no hook " DRIVER_LIMIT_HOOK
                            " for %s: run `nvidia-ctk cdi "
                            "generate` of nvidia-container-toolkit 1.20.1 or newer",
                            shown, uuid);
    if (!names->program || strcmp(names->program, program) != 0)
        names->has_hook = names->host.fd >= 0 && has_limit_hook(&names->host, program);
    names->program = program;
    return names->has_hook ? NULL : arena_printf(names->host.a, OLD_HOOK, program);
}

/* Takes a device of the file `shown`, if it has the name of a card: the UUID, or (--device-list)
 * the index. */
static void take_device(struct named *names, const char *shown,
                        const struct yaml_node *root, const struct yaml_node *device)
{
    struct span name = {0};
    struct err ignored;
    if (yaml_text(device, "name", &name, &ignored))
        return;
    for (size_t i = 0; i < names->n && i < CARDS_MAX; i++) {
        const struct card_seen *card = &names->cards[i];
        char index[16];
        snprintf(index, sizeof index, "%d", card->index);
        bool indexed = (names->settings->by_index && !card->parent[0]) || !card->uuid[0];
        if (!span_eq(name, span_of(indexed ? index : card->uuid)))
            continue;
        const struct yaml_node *edits = yaml_get(device, "containerEdits");
        const struct yaml_node *nodes = yaml_get(edits, "deviceNodes");
        const char *missing = find_missing(names, edits);
        missing = missing ?: find_missing(names, yaml_get(root, "containerEdits"));
        names->of[i].found = true;
        names->of[i].no_hook = check_limit_hook(names, shown, root, edits, card->uuid);
        if (names->of[i].file) {
            names->of[i].twice = true;
            names->of[i].unfit =
                arena_printf(names->host.a, "%s and %s both define the name %.*s",
                             names->of[i].file, shown, SPAN_ARG(name));
        } else if (!names->of[i].twice) {
            names->of[i].unfit =
                missing
                    ? arena_printf(names->host.a, "%s names %s, which is not on the host",
                                   shown, missing)
                : nodes && nodes->type == YAML_SEQUENCE && nodes->n
                    ? NULL
                    : arena_printf(names->host.a, "%s has no device node for %.*s", shown,
                                   SPAN_ARG(name));
        }
        names->of[i].file = shown;
    }
}

/* Reads the specifications of the kind in a directory, JSON or YAML, other than ours. `on_host`:
 * its path there. An invalid file defines nothing. */
static void read_names(struct named *names, const char *dir, const char *on_host,
                       const char *kind)
{
    cleanup_folder DIR *d = opendir(dir);
    for (size_t i = 0; i < CARDS_MAX; i++)
        names->of[i].file = NULL;
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        struct span text;
        struct err ignored;
        if (!dot || strcmp(e->d_name, DRIVER_CDI_FILE) == 0 ||
            (strcmp(dot, ".json") != 0 && strcmp(dot, ".yaml") != 0))
            continue;
        cleanup_free char *path = xasprintf("%s/%s", dir, e->d_name);
        cleanup_yaml struct yaml *y = yaml_load(path, &ignored);
        const struct yaml_node *root = y && yaml_count(y) ? yaml_document(y, 0) : NULL;
        const struct yaml_node *devices = yaml_get(root, "devices");
        if (!y || yaml_text(root, "kind", &text, &ignored) ||
            !span_eq(text, span_of(kind)) || !devices || devices->type != YAML_SEQUENCE)
            continue;
        const char *shown = arena_printf(names->host.a, "%s/%s", on_host, e->d_name);
        for (size_t i = 0; i < devices->n; i++)
            take_device(names, shown, root, devices->items[i]);
    }
}

/* Whether a generator's names can be used for all cards. If not: why, if it gave some. */
static bool has_generated(struct driver_view *v,
                          const struct driver_view_settings *settings,
                          const struct card_seen *cards, size_t n, const char *kind)
{
    cleanup_close int host =
        settings->host_root[0]
            ? open(settings->host_root, O_PATH | O_DIRECTORY | O_CLOEXEC)
            : -1;
    struct named names = {settings, cards, n, {host, "", &v->arena}, NULL, false, {{0}}};
    cleanup_free char *etc = xasprintf("%s/etc/cdi", settings->host_root);
    bool all = n > 0;
    read_names(&names, etc, "/etc/cdi", kind);
    read_names(&names, settings->cdi_dir, settings->cdi_dir, kind);
    v->no_hook[0] = '\0';
    for (size_t i = 0; i < n && i < CARDS_MAX; i++) {
        all &= names.of[i].found && !names.of[i].unfit;
        if (!v->no_hook[0] && (names.of[i].no_hook || !names.of[i].found))
            snprintf(v->no_hook, sizeof v->no_hook, "%s",
                     names.of[i].no_hook ?: "no specification names a card");
        if (names.of[i].unfit && !v->unfit[0])
            snprintf(v->unfit, sizeof v->unfit, "%s", names.of[i].unfit);
    }
    return all;
}

static int write_ours(struct driver_view *v, const struct driver_view_settings *settings,
                      const struct card_seen *cards, size_t n, struct err *err)
{
    const struct driver_files *files = &v->files;
    struct named others = {settings, cards, n, {-1, "", &v->arena}, NULL, false, {{0}}};
    cleanup_buf struct buf text = {0}, before = {0};
    struct err ignored;
    read_names(&others, settings->cdi_dir, settings->cdi_dir, DRIVER_CDI_KIND);
    for (size_t i = 0; i < n && i < CARDS_MAX; i++)
        if (others.of[i].found)
            return err_set(err, ERR_CONFLICT,
                           "%s defines names of the kind " DRIVER_CDI_KIND
                           " too, so that they are valid in neither file",
                           others.of[i].file);
    if (!files->n_libraries)
        return err_set(err, ERR_NOT_FOUND,
                       "no library of the driver below %s on the host",
                       settings->driver_root);
    if (!write_spec(files, settings->driver_root, cards, n, &text))
        return err_set(err, ERR_NOT_FOUND,
                       "no card has a device node %s/dev/nvidia<n> on the host",
                       files->dev);
    cleanup_free char *path = xasprintf("%s/" DRIVER_CDI_FILE, settings->cdi_dir);
    if (file_read(path, SPEC_MAX, &before, &ignored) == 0 &&
        span_eq(buf_span(&before), buf_span(&text)))
        return 0;
    if (file_write(path, buf_span(&text), err))
        return -1;
    log_info("cdi", "wrote the specification of the cards", LOG_S("file", path),
             LOG_S("kind", DRIVER_CDI_KIND));
    return 0;
}

/* The view */

const char *driver_strategy_name(enum driver_strategy s)
{
    static const char *const names[] = {[DRIVER_AUTO] = "auto",
                                        [DRIVER_ENVVAR] = "envvar",
                                        [DRIVER_VOLUME_MOUNTS] = "volume-mounts",
                                        [DRIVER_CDI_ANNOTATIONS] = "cdi-annotations",
                                        [DRIVER_CDI_CRI] = "cdi-cri"};
    return names[s];
}

/* Our file is written even where it is not used: the kubelet keeps names that were given to a
 * container, and they must lead to the present driver when the container restarts. */
struct driver_view *driver_view_new(const struct driver_view_settings *settings,
                                    const char *version, const struct card_seen *cards,
                                    size_t n)
{
    struct driver_view *v = xcalloc(1, sizeof *v);
    struct err err;
    cleanup_free char *path = xasprintf("%s/" DRIVER_CDI_FILE, settings->cdi_dir);
    const bool wanted =
        settings->strategy != DRIVER_ENVVAR && settings->strategy != DRIVER_VOLUME_MOUNTS;
    v->files.dev = "";
    if (settings->host_root[0] &&
        find_driver(settings->host_root, settings->driver_root, version, cards, n,
                    &v->arena, &v->files, &err)) {
        snprintf(v->reason, sizeof v->reason, "%s", err.msg);
        return v;
    }
    const bool may = settings->host_root[0] && (wanted || access(path, F_OK) == 0);
    const bool written = may && !write_ours(v, settings, cards, n, &err);
    if (!wanted)
        return v;
    const char *kind = settings->cdi_kind[0] ? settings->cdi_kind : GENERATED_KIND;
    if (has_generated(v, settings, cards, n, kind) || settings->cdi_kind[0]) {
        v->cdi_kind = kind;
    } else if (!may) {
        snprintf(v->reason, sizeof v->reason, "--host-root is not set");
    } else if (!written) {
        snprintf(v->reason, sizeof v->reason, "%s", err.msg);
    } else {
        v->cdi_kind = DRIVER_CDI_KIND;
        v->is_ours = true;
        v->no_hook[0] = '\0';
        if (!v->files.hook_limits)
            snprintf(v->no_hook, sizeof v->no_hook, OLD_HOOK,
                     v->files.hook ?: "nvidia-cdi-hook");
    }
    if (settings->cdi_kind[0])
        v->unfit[0] = '\0';
    if (!v->cdi_kind)
        snprintf(v->no_hook, sizeof v->no_hook, "%s", v->reason);
    else if (!v->no_hook[0] && access(settings->cdi_dir, W_OK))
        snprintf(v->no_hook, sizeof v->no_hook, "--cdi-dir=%s: %m", settings->cdi_dir);
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

bool driver_node_is_since(const struct driver_node *node, unsigned minor)
{
    return is_at_least(node->kubelet, "v", 1, minor);
}

enum driver_strategy driver_view_choose(const struct driver_view *view,
                                        const struct driver_node *node, struct buf *why)
{
    if (!view || !view->cdi_kind) {
        buf_printf(why, "no CDI specification names the cards: %s",
                   view ? view->reason : "no sample of the cards yet");
        return DRIVER_ENVVAR;
    }
    if (!driver_node_is_since(node, 29)) {
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
