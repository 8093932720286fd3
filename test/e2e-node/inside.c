/* SPDX-License-Identifier: Apache-2.0 */

/* What containers of the real kubelet can open, and the driver's folder. */

#include "e2e-node/inside.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "e2e-node/node.h"
#include "e2e-node/real.h"

#define LISTS "/sys/fs/cgroup/devices"

enum {
    GUEST_CARDS = NODE_CARDS + INSIDE_CAPS, /* that it tries to open */
    NVIDIA_MAJOR = 195,
};

/* What runc allows every container (libcontainer/specconv), also without a line in its
 * specification. */
static const char *const always[] = {
    "c *:* m",   "b *:* m",   "c 1:3 rwm", "c 1:5 rwm",   "c 1:7 rwm",   "c 1:8 rwm",
    "c 1:9 rwm", "c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm", "c 10:200 rwm"};

static const char *id_of(const char *pod)
{
    const char *id = lib_str(cluster_pod(pod), "status.containerStatuses.0.containerID");
    const char *at = strstr(id, "://");
    ck_assert_msg(at != NULL, "the container of %s has the id \"%s\"", pod, id);
    return at + 3;
}

/* The output of ctr without its own log lines. */
static char *ctr(const char *const *args)
{
    struct err err;
    const char *all = real_ctr(args, &err);
    char *out = lib_fmt("%s", "");
    ck_assert_msg(all != NULL, "%s", err.msg);
    for (struct span rest = span_of(all); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (!span_starts(line, SPAN("time=")))
            out = lib_fmt("%s%.*s\n", out, SPAN_ARG(line));
    }
    return out;
}

char *inside_run(const char *pod, const char *what, const char *dir)
{
    static int n;
    return ctr(ARGV("tasks", "exec", "--exec-id", lib_fmt("look-%d", ++n), id_of(pod),
                    "/guest", what, dir));
}

void inside_kill(const char *pod)
{
    ctr(ARGV("tasks", "kill", "--signal", "SIGKILL", id_of(pod)));
}

void inside_update(const char *pod)
{
    real_update(id_of(pod));
}

/* -- cards -- */

/* The indexes of the pod's cards in the ledger, which are their minors, as a set. */
unsigned inside_cards(const char *pod)
{
    json_t *dev;
    unsigned set = 0;
    lib_each(dev, lib_at(extender_node(&cluster.extender, NODE), "devs"))
        if (lib_find(lib_at(dev, "pods"), "name", pod))
            set |= 1U << lib_int(dev, "id");
    return set;
}

/* What the guest prints if it has these device files, and may open those of `open`. */
static char *expected(unsigned cards, unsigned open)
{
    char *out =
        lib_fmt("%snvidia-uvm open\n", cards >> NODE_CARDS ? "nvidia-caps open\n" : "");
    for (int i = 0; i < NODE_CARDS; i++)
        if (cards >> i & 1)
            out = lib_fmt("%snvidia%d open\n", out, i);
    out = lib_fmt("%snvidiactl open\n", out);
    for (int i = 0; i < GUEST_CARDS; i++)
        out = lib_fmt("%scard %d %s\n", out, i, open >> i & 1 ? "open" : "refused");
    return out;
}

void inside_check_opens(const char *pod, unsigned cards, unsigned open)
{
    const char *want = expected(cards, open), *is = inside_run(pod, "devices", NULL),
               *caps = "";
    ck_assert_msg(strcmp(is, want) == 0, "pod %s of cards 0x%x has\n%snot\n%s", pod,
                  cards, is, want);
    for (int i = NODE_CARDS; i < GUEST_CARDS; i++)
        if (cards >> i & 1)
            caps = lib_fmt("%snvidia-cap%d\n", caps, i);
    ck_assert_str_eq(inside_run(pod, "files", "/dev/nvidia-caps"), caps);
}

/* -- lists of cgroup v1 -- */

bool inside_has_lists(void)
{
    return access(LISTS "/devices.allow", F_OK) == 0;
}

/* The folder of the control group. */
static char *group_of(const char *id)
{
    const char *all = ctr(ARGV("tasks", "ls")), *at = strstr(all, id);
    ck_assert_msg(at != NULL, "ctr tasks ls has no process of %s: %s", id, all);
    const char *groups =
        lib_file(lib_fmt("/proc/%ld/cgroup", strtol(at + strlen(id), NULL, 10)));
    at = strstr(groups, ":devices:");
    ck_assert_msg(at != NULL, "no group of devices: %s", groups);
    at += strlen(":devices:");
    return lib_fmt(LISTS "%.*s", (int)strcspn(at, "\n"), at);
}

static void put(const char *group, const char *file, const char *rule)
{
    char *path = lib_fmt("%s/%s", group, file);
    FILE *f = fopen(path, "we");
    ck_assert_msg(f && fputs(rule, f) >= 0 && fclose(f) == 0, "%s: %s: %s", path, rule,
                  strerror(errno));
}

void inside_allow(const char *pod, int minor)
{
    put(group_of(id_of(pod)), "devices.allow",
        lib_fmt("c %d:%d rw", NVIDIA_MAJOR, minor));
}

static const char *number(const json_t *rule, const char *name)
{
    const char *text = lib_text(rule, name);
    return *text && *text != '-' ? text : "*";
}

void inside_restore(const char *pod)
{
    const char *id = id_of(pod), *group = group_of(id),
               *text = ctr(ARGV("containers", "info", id));
    const json_t *rules =
        lib_at(lib_parse(text, strlen(text)), "Spec.linux.resources.devices");
    json_t *r;
    ck_assert_msg(json_array_size(rules) > 0, "no devices in %s", text);
    put(group, "devices.deny", "a");
    array_items(one, always)
        put(group, "devices.allow", *one);
    lib_each(r, rules)
        if (json_is_true(lib_at(r, "allow")))
            put(group, "devices.allow",
                lib_fmt("%s %s:%s %s", lib_str(r, "type"), number(r, "major"),
                        number(r, "minor"), lib_str(r, "access")));
}

/* -- the driver -- */

static void add_device(const char *driver, const char *name, unsigned minor)
{
    char *path = lib_fmt("%s/dev/%s", driver, name);
    ck_assert_msg(mknod(path, S_IFCHR | 0666, makedev(NVIDIA_MAJOR, minor)) == 0,
                  "mknod %s: %m", path);
}

/* The libraries of the driver, each of which is the fake NVML, and their links. */
static void add_libraries(const char *driver, const char *version, const char *nvml)
{
    static const char *const names[] = {"libcuda", "libnvidia-ml"};
    array_items(name, names) {
        const char *file = lib_fmt("%s.so.%s", *name, version);
        lib_output(0,
                   ARGV("cp", nvml, lib_fmt("%s" DRIVER_LIBRARIES "/%s", driver, file)));
        ck_assert_int_eq(
            symlink(file, lib_fmt("%s" DRIVER_LIBRARIES "/%s.so.1", driver, *name)), 0);
    }
}

char *inside_make_driver(void)
{
    char *driver = lib_fmt("%s/driver", cell_dir());
    if (access(driver, F_OK) == 0)
        return driver;
    lib_output(0, ARGV("mkdir", "-p", lib_fmt("%s/dev/nvidia-caps", driver),
                       lib_fmt("%s/usr/bin", driver),
                       lib_fmt("%s" DRIVER_LIBRARIES, driver)));
    for (unsigned i = 0; i < NODE_CARDS; i++)
        add_device(driver, lib_fmt("nvidia%u", i), i);
    for (unsigned i = NODE_CARDS; i < GUEST_CARDS; i++)
        add_device(driver, lib_fmt("nvidia-caps/nvidia-cap%u", i), i);
    add_device(driver, "nvidia-uvm", 254);
    add_device(driver, "nvidiactl", 255);
    add_libraries(driver, DRIVER_VERSION, node_nvml());
    temp_write(driver, "usr/bin/nvidia-smi", "");
    return driver;
}

void inside_change_driver(const char *version, const char *nvml)
{
    const char *driver = inside_make_driver();
    const char *const *file = lib_glob(lib_fmt("%s" DRIVER_LIBRARIES "/*", driver));
    for (; *file; file++)
        ck_assert_int_eq(unlink(*file), 0);
    add_libraries(driver, version, nvml);
    node_set_driver(version);
}
