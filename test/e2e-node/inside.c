/* SPDX-License-Identifier: Apache-2.0 */

/* What containers of the real kubelet can open, and the driver's folder. */

#include "e2e-node/inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"

#define LISTS "/sys/fs/cgroup/devices"

enum {
    GUEST_CARDS = 8, /* that it tries to open */
    NVIDIA_MAJOR = 195,
};

/* What runc allows every container (libcontainer/specconv), also without a line in its
 * specification. */
static const char *const always[] = {
    "c *:* m",   "b *:* m",   "c 1:3 rwm", "c 1:5 rwm",   "c 1:7 rwm",   "c 1:8 rwm",
    "c 1:9 rwm", "c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm", "c 10:200 rwm"};

static char *id_of(const char *pod)
{
    cleanup_json json_t *p = cluster_pod(pod);
    const char *id =
        lib_str(p, "status.containerStatuses.0.containerID");
    const char *at = strstr(id, "://");
    ck_assert_msg(at != NULL, "the container of %s has the id \"%s\"", pod, id);
    return xstrdup(at + 3);
}

/* The output of ctr without its own log lines, new. */
static char *ctr(const char *const *args)
{
    cleanup_buf struct buf all = {0};
    struct buf out = {0};
    struct err err;
    ck_assert_done(real_ctr(args, &all, &err), err);
    buf_adds(&out, "");
    for (struct span rest = buf_span(&all); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (line.n < 5 || memcmp(line.p, "time=", 5) != 0)
            buf_printf(&out, "%.*s\n", SPAN_ARG(line));
    }
    return buf_take(&out);
}

char *inside_run(const char *pod, const char *what, const char *dir)
{
    static int n;
    cleanup_free char *id = id_of(pod);
    cleanup_free char *exec = xasprintf("look-%d", ++n);
    return ctr(ARGV("tasks", "exec", "--exec-id", exec, id, "/guest", what, dir));
}

void inside_update(const char *pod)
{
    cleanup_free char *id = id_of(pod);
    struct err err;
    ck_assert_done(real_update(id, &err), err);
}

/* -- cards -- */

/* The indexes of the pod's cards in the ledger, which are their minors, as a set. */
unsigned inside_cards(const char *pod)
{
    cleanup_json json_t *n = extender_inspect(&cluster.extender, NODE);
    json_t *dev, *p;
    unsigned set = 0;
    size_t i, k;
    json_array_foreach(lib_at(n, "devs"), i, dev)
    {
        json_array_foreach(lib_at(dev, "pods"), k, p)
        {
            if (strcmp(lib_str(p, "name"), pod) == 0)
                set |= 1U << json_integer_value(lib_at(dev, "id"));
        }
    }
    return set;
}

/* What the guest prints if it has these device files, and may open those of `open`. */
static char *expected(unsigned cards, unsigned open)
{
    struct buf out = {0};
    buf_adds(&out, "nvidia-uvm open\n");
    for (int i = 0; i < NODE_CARDS; i++)
        if (cards >> i & 1)
            buf_printf(&out, "nvidia%d open\n", i);
    buf_adds(&out, "nvidiactl open\n");
    for (int i = 0; i < GUEST_CARDS; i++)
        buf_printf(&out, "card %d %s\n", i, open >> i & 1 ? "open" : "refused");
    return buf_take(&out);
}

void inside_check_opens(const char *pod, unsigned cards, unsigned open)
{
    cleanup_free char *want = expected(cards, open);
    cleanup_free char *is = inside_run(pod, "devices", NULL);
    ck_assert_msg(strcmp(is, want) == 0, "pod %s of cards 0x%x has\n%snot\n%s", pod,
                  cards, is, want);
}

/* -- lists of cgroup v1 -- */

bool inside_has_lists(void)
{
    return access(LISTS "/devices.allow", F_OK) == 0;
}

static long pid_of(const char *id)
{
    cleanup_free char *all = ctr(ARGV("tasks", "ls"));
    const char *at = strstr(all, id);
    long pid = at ? strtol(at + strlen(id), NULL, 10) : 0;
    ck_assert_msg(pid > 0, "ctr tasks ls has no process of %s: %s", id, all);
    return pid;
}

/* The folder of the control group, new. */
static char *group_of(const char *id)
{
    cleanup_free char *path = xasprintf("/proc/%ld/cgroup", pid_of(id));
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_done(file_read(path, 1 << 16, &text, &err), err);
    const char *at = strstr(text.p, ":devices:");
    ck_assert_msg(at != NULL, "%s has no group of devices: %s", path, text.p);
    at += strlen(":devices:");
    return xasprintf(LISTS "%.*s", (int)strcspn(at, "\n"), at);
}

static void put(const char *group, const char *file, const char *rule)
{
    cleanup_free char *path = xasprintf("%s/%s", group, file);
    FILE *f = fopen(path, "we");
    ck_assert_msg(f && fputs(rule, f) >= 0 && fclose(f) == 0, "%s: %s: %s", path, rule,
                  strerror(errno));
}

void inside_allow(const char *pod, int minor)
{
    cleanup_free char *id = id_of(pod), *group = group_of(id);
    cleanup_free char *rule = xasprintf("c %d:%d rw", NVIDIA_MAJOR, minor);
    put(group, "devices.allow", rule);
}

static void add_number(struct buf *out, const json_t *n)
{
    if (json_is_integer(n) && json_integer_value(n) >= 0)
        buf_add_i64(out, json_integer_value(n));
    else
        buf_addc(out, '*');
}

void inside_restore(const char *pod)
{
    cleanup_free char *id = id_of(pod), *group = group_of(id);
    cleanup_free char *text = ctr(ARGV("containers", "info", id));
    cleanup_json json_t *info = json_loads(text, 0, NULL);
    const json_t *rules = lib_at(info, "Spec.linux.resources.devices");
    json_t *r;
    size_t i;
    ck_assert_msg(json_array_size(rules) > 0, "no devices in %s", text);
    put(group, "devices.deny", "a");
    for (i = 0; i < ARRAY_LEN(always); i++)
        put(group, "devices.allow", always[i]);
    json_array_foreach(rules, i, r)
    {
        cleanup_buf struct buf rule = {0};
        if (!json_is_true(json_object_get(r, "allow")))
            continue;
        buf_printf(&rule, "%s ", lib_str(r, "type"));
        add_number(&rule, json_object_get(r, "major"));
        buf_addc(&rule, ':');
        add_number(&rule, json_object_get(r, "minor"));
        buf_printf(&rule, " %s", lib_str(r, "access"));
        put(group, "devices.allow", rule.p);
    }
}

/* -- the driver -- */

static void add_device(const char *driver, const char *name, unsigned minor)
{
    cleanup_free char *path = xasprintf("%s/dev/%s", driver, name);
    ck_assert_msg(mknod(path, S_IFCHR | 0666, makedev(NVIDIA_MAJOR, minor)) == 0,
                  "mknod %s: %m", path);
}

/* A library of the driver, which is the fake NVML, and its link. */
static void add_library(const char *driver, const char *name)
{
    cleanup_free char *path =
        xasprintf("%s" DRIVER_LIBRARIES "/%s.so." DRIVER_VERSION, driver, name);
    cleanup_free char *link = xasprintf("%s" DRIVER_LIBRARIES "/%s.so.1", driver, name);
    cleanup_free char *target = xasprintf("%s.so." DRIVER_VERSION, name),
                      *nvml = node_nvml();
    cleanup_buf struct buf library = {0};
    struct err err;
    ck_assert_done(file_read(nvml, 1 << 24, &library, &err), err);
    ck_assert_done(file_write(path, buf_span(&library), &err), err);
    ck_assert_int_eq(symlink(target, link), 0);
}

char *inside_make_driver(void)
{
    char *driver = temp_path(cell_dir(), "driver");
    if (access(driver, F_OK) == 0)
        return driver;
    static const char *const dirs[] = {"",         "/dev",     "/usr",
                                       "/usr/bin", "/usr/lib", DRIVER_LIBRARIES};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        cleanup_free char *path = xasprintf("%s%s", driver, dirs[i]);
        ck_assert_msg(mkdir(path, 0755) == 0, "mkdir %s: %m", path);
    }
    for (unsigned i = 0; i < NODE_CARDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "nvidia%u", i);
        add_device(driver, name, i);
    }
    add_device(driver, "nvidia-uvm", 254);
    add_device(driver, "nvidiactl", 255);
    add_library(driver, "libcuda");
    add_library(driver, "libnvidia-ml");
    temp_write(driver, "usr/bin/nvidia-smi", "");
    return driver;
}
