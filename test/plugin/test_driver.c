/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/driver.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/driver_tree.h"
#include "lib/temp.h"
#include "lib/unit.h"

#define LIBS DRIVER_TREE_LIBRARIES

static char *dir, *host, *cdi;

static void make(const char *at)
{
    driver_tree_file(host, at);
}

static void make_node(const char *at)
{
    driver_tree_node(host, at);
}

static void make_host(const char *root)
{
    driver_tree_make(host, root);
}

static void begin(void)
{
    dir = temp_dir();
    temp_mkdir(dir, "host");
    temp_mkdir(dir, "cdi");
    host = temp_path(dir, "host");
    cdi = temp_path(dir, "cdi");
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
    free(host);
    free(cdi);
}

/* In the tree of driver_tree_make. */
static const struct card_seen two[] = {{.uuid = "GPU-a", .index = 0, .minor = 3},
                                       {.uuid = "GPU-b", .index = 1, .minor = 0}};

static struct driver_view *view(const char *driver_root, enum driver_strategy strategy,
                                const struct card_seen *cards, size_t n)
{
    const struct driver_view_settings settings = {.strategy = strategy,
                                                  .host_root = host,
                                                  .driver_root = driver_root,
                                                  .cdi_dir = cdi,
                                                  .cdi_kind = ""};
    return driver_view_new(&settings, "570.12", cards, n);
}

static char *spec(void)
{
    return temp_read(cdi, DRIVER_CDI_FILE);
}

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "%s\nlacks\n%s", text, part);
}

static void has_not(const char *text, const char *part)
{
    ck_assert_msg(!strstr(text, part), "%s\nhas\n%s", text, part);
}

START_TEST(the_plugin_writes_a_specification_where_nobody_did)
{
    make_host("");
    struct driver_view *v = view("/", DRIVER_AUTO, two, 2);
    ck_assert_str_eq(v->reason, "");
    ck_assert_str_eq(v->cdi_kind, DRIVER_CDI_KIND);
    ck_assert(v->is_ours);
    cleanup_free char *text = spec();
    has(text, "{\"cdiVersion\":\"0.5.0\",\"kind\":\"gpushare.io/gpu\",\"devices\":["
              "{\"name\":\"0\",\"containerEdits\":{\"deviceNodes\":[{\"path\":"
              "\"/dev/nvidia3\",\"hostPath\":\"/dev/nvidia3\"}]}},{\"name\":\"GPU-a\"");
    has(text, "{\"path\":\"/dev/nvidiactl\",\"hostPath\":\"/dev/nvidiactl\"}");
    has(text, "\"env\":[\"NVIDIA_VISIBLE_DEVICES=void\"]");
    /* Without NVIDIA's hook, the library is mounted under each of its names. */
    has(text, "{\"hostPath\":\"" LIBS "/libcuda.so.570.12\",\"containerPath\":"
              "\"/usr/local/nvidia/lib64/libcuda.so.1\"");
    has(text, "\"/usr/local/nvidia/lib64/libcuda.so\"");
    has(text, "\"hostPath\":\"/usr/bin/nvidia-smi\",\"containerPath\":"
              "\"/usr/bin/nvidia-smi\"");
    has_not(text, "nvidia-uvm-tools");
    has_not(text, "535.1");
    has_not(text, "570.120");
    has_not(text, "libc.so");
    has_not(text, "libout");
    has_not(text, "passwd");
    has_not(text, "\"/lib/"); /* one directory, found once */
    has_not(text, "hooks");
    driver_view_free(v);
    /* It is a specification with the names of all cards: another plugin that finds it under
     * the kind of a generator uses it. */
    char *kind = strstr(text, "gpushare.io/gpu");
    memcpy(kind, "nvidia.com/gpu\"", 15);
    kind[15] = ' ';
    temp_write(cdi, "copy.json", text);
    for (int by_index = 0; by_index < 2; by_index++) {
        const struct driver_view_settings settings = {.host_root = host,
                                                      .driver_root = "/",
                                                      .cdi_dir = cdi,
                                                      .cdi_kind = "",
                                                      .by_index = by_index};
        v = driver_view_new(&settings, "570.12", two, 2);
        ck_assert_str_eq(v->cdi_kind, "nvidia.com/gpu");
        driver_view_free(v);
    }
}
END_TEST

START_TEST(the_hook_makes_links_and_the_cache_of_the_loader)
{
    make_host("");
    make("/usr/bin/nvidia-ctk");
    driver_view_free(view("/", DRIVER_CDI_CRI, two, 2));
    cleanup_free char *ctk = spec();
    has(ctk, "\"path\":\"/usr/bin/nvidia-ctk\",\"args\":[\"nvidia-ctk\",\"hook\","
             "\"create-symlinks\",\"--link\",\"libcuda.so.1::" LIBS "/libcuda.so\","
             "\"--link\",\"libcuda.so.570.12::" LIBS "/libcuda.so.1\"]}");
    has(ctk, "\"update-ldcache\",\"--folder\",\"" LIBS "\"]}]}}");
    has(ctk, "\"containerPath\":\"" LIBS "/libcuda.so.570.12\"");
    has_not(ctk, "/usr/local/nvidia");
    make("/usr/bin/nvidia-cdi-hook");
    driver_view_free(view("/", DRIVER_CDI_CRI, two, 2));
    cleanup_free char *hook = spec();
    has(hook, "\"args\":[\"nvidia-cdi-hook\",\"create-symlinks\"");
}
END_TEST

START_TEST(debians_packages_have_a_directory_of_their_own)
{
    make_host("");
    make(LIBS "/nvidia/current/libnvidia-opencl.so.570.12");
    make("/usr/bin/nvidia-cdi-hook");
    driver_view_free(view("/", DRIVER_CDI_CRI, two, 2));
    cleanup_free char *text = spec();
    has(text, "\"containerPath\":\"" LIBS "/nvidia/current/libnvidia-opencl.so.570.12\"");
    has(text, "\"update-ldcache\",\"--folder\",\"" LIBS "\",\"--folder\",\"" LIBS
              "/nvidia/current\"]");
}
END_TEST

/* As the GPU Operator's driver container shows it. */
START_TEST(a_driver_container_has_a_root_of_its_own)
{
    make_host("/run/nvidia/driver");
    struct driver_view *v = view("/run/nvidia/driver", DRIVER_AUTO, two, 2);
    ck_assert_str_eq(v->reason, "");
    cleanup_free char *text = spec();
    has(text,
        "{\"path\":\"/dev/nvidia3\",\"hostPath\":\"/run/nvidia/driver/dev/nvidia3\"}");
    has(text, "{\"hostPath\":\"/run/nvidia/driver" LIBS "/libcuda.so.570.12\"");
    driver_view_free(v);
    /* Its /dev can be empty: the nodes are the host's then. */
    make_node("/dev/nvidia3");
    make_node("/dev/nvidiactl");
    cleanup_free char *ctl = xasprintf("%s/run/nvidia/driver/dev/nvidiactl", host);
    unlink(ctl);
    driver_view_free(view("/run/nvidia/driver", DRIVER_AUTO, two, 2));
    cleanup_free char *other = spec();
    has(other, "{\"path\":\"/dev/nvidia3\",\"hostPath\":\"/dev/nvidia3\"}");
}
END_TEST

START_TEST(names_of_a_generator_come_first)
{
    static const char yaml[] = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n"
                               "- name: \"0\"\n  containerEdits: {}\n"
                               "- name: GPU-a\n  containerEdits: {}\n";
    make_host("");
    temp_write(cdi, "broken.yaml", "kind: [");
    temp_write(cdi, "list.json", "[1]");
    temp_write(cdi, "other.json",
               "{\"kind\":\"a/b\",\"devices\":[{\"name\":\"GPU-a\"}]}");
    temp_write(cdi, "nvidia.yaml", yaml);
    struct driver_view *v = view("/", DRIVER_AUTO, two, 1);
    ck_assert_str_eq(v->cdi_kind, "nvidia.com/gpu");
    ck_assert(!v->is_ours);
    driver_view_free(v);
    /* It lacks GPU-b. */
    v = view("/", DRIVER_AUTO, two, 2);
    ck_assert_str_eq(v->cdi_kind, DRIVER_CDI_KIND);
    driver_view_free(v);
    /* In /etc/cdi of the host. */
    temp_remove(cdi, "nvidia.yaml");
    make("/etc/cdi/x.json");
    temp_write(dir, "host/etc/cdi/x.json",
               "{\"kind\":\"nvidia.com/gpu\",\"devices\":[{\"name\":\"GPU-a\"},"
               "{\"name\":\"GPU-b\"}]}");
    v = view("/", DRIVER_AUTO, two, 2);
    ck_assert_str_eq(v->cdi_kind, "nvidia.com/gpu");
    driver_view_free(v);
}
END_TEST

/* An older manifest mounts no host: the names of a generator need none. */
START_TEST(names_of_a_generator_need_no_host_root)
{
    const struct driver_view_settings settings = {.strategy = DRIVER_CDI_CRI,
                                                  .host_root = "",
                                                  .driver_root = "/",
                                                  .cdi_dir = cdi,
                                                  .cdi_kind = ""};
    struct driver_view *v = driver_view_new(&settings, "570.12", two, 2);
    ck_assert_ptr_null(v->cdi_kind);
    ck_assert_str_eq(v->reason, "--host-root is not set");
    driver_view_free(v);
    temp_write(cdi, "nvidia.json",
               "{\"kind\":\"nvidia.com/gpu\",\"devices\":[{\"name\":\"GPU-a\"},"
               "{\"name\":\"GPU-b\"}]}");
    v = driver_view_new(&settings, "570.12", two, 2);
    ck_assert_str_eq(v->cdi_kind, "nvidia.com/gpu");
    driver_view_free(v);
}
END_TEST

/* The reasons that a person reads in the log and in events. */
START_TEST(no_names_without_a_driver)
{
    struct driver_view *v = view("/", DRIVER_AUTO, two, 2);
    ck_assert_ptr_null(v->cdi_kind);
    ck_assert_str_eq(v->reason, "no library of the driver below / on the host");
    driver_view_free(v);
    make(LIBS "/libcuda.so.570.12");
    v = view("/", DRIVER_AUTO, two, 2);
    ck_assert_str_eq(v->reason, "no card has a device node /dev/nvidia<n> on the host");
    driver_view_free(v);
    v = view("/run/none", DRIVER_AUTO, two, 2);
    ck_assert_str_eq(v->reason, "/run/none on the host: No such file or directory");
    driver_view_free(v);
    make_host("");
    v = view("/", DRIVER_ENVVAR, two, 2); /* no name is needed: nothing is written */
    ck_assert_ptr_null(v->cdi_kind);
    ck_assert(v->files.has_card[3] && !v->files.has_card[1]);
    cleanup_free char *path = temp_path(cdi, DRIVER_CDI_FILE);
    ck_assert_int_ne(access(path, F_OK), 0);
    driver_view_free(v);
}
END_TEST

int main(void)
{
    static const struct unit_fixtures around = {.begin = begin, .end = end};
    const TTest *const tests[] = {the_plugin_writes_a_specification_where_nobody_did,
                                  the_hook_makes_links_and_the_cache_of_the_loader,
                                  debians_packages_have_a_directory_of_their_own,
                                  a_driver_container_has_a_root_of_its_own,
                                  names_of_a_generator_come_first,
                                  names_of_a_generator_need_no_host_root,
                                  no_names_without_a_driver};
    return unit_run_with("driver", tests, ARRAY_LEN(tests), 60, &around);
}
