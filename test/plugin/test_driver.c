/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/driver.h"

#include "lib/driver_tree.h"
#include "lib/temp.h"
#include "lib/unit.h"

#define LIBS DRIVER_TREE_LIBRARIES
#define GENERATED                                                                        \
    "{\"kind\":\"nvidia.com/"                                                            \
    "gpu\",\"devices\":[{\"name\":\"GPU-a\"},{\"name\":\"GPU-b\"}]}"

static char *dir, *host, *cdi;
static struct driver_view_settings settings;
static bool has_node; /* /dev/nvidia3, and no /dev/nvidia1 */

static void make(const char *at)
{
    driver_tree_file(host, at);
}

static void begin(void)
{
    dir = temp_dir();
    temp_mkdir(dir, "host");
    temp_mkdir(dir, "cdi");
    host = temp_path(dir, "host");
    cdi = temp_path(dir, "cdi");
    settings = (struct driver_view_settings){.strategy = DRIVER_AUTO,
                                             .host_root = host,
                                             .driver_root = "/",
                                             .cdi_dir = cdi,
                                             .cdi_kind = ""};
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
    free(host);
    free(cdi);
}

/* Looks at the host with the first n cards of driver_tree_make. The kind of the names must be
 * this one, or the reason why there are none. */
static void finds(size_t n, const char *kind_or_reason)
{
    static const struct card_seen two[] = {
        {.uuid = "GPU-a", .index = 0, .place = {3, -1, -1}},
        {.uuid = "GPU-b", .index = 1, .place = {0, -1, -1}}};
    struct driver_view *v = driver_view_new(&settings, "570.12", two, n);
    const char *kind = v->cdi_kind;
    ck_assert_str_eq(kind ? kind : v->reason, kind_or_reason);
    ck_assert(!kind || !v->reason[0]);
    ck_assert(v->is_ours == (kind && strcmp(kind, DRIVER_CDI_KIND) == 0));
    has_node = v->files.has_card[3] && !v->files.has_card[1];
    driver_view_free(v);
}

/* The specification has these texts; "!": it has not. */
static void spec_has(const char *const *parts)
{
    cleanup_free char *text = temp_read(cdi, DRIVER_CDI_FILE);
    for (; *parts; parts++) {
        bool lacks = **parts == '!';
        ck_assert_msg(!strstr(text, *parts + lacks) == lacks, "%s\n%s", text, *parts);
    }
}
#define SPEC_HAS(...) spec_has((const char *const[]){__VA_ARGS__, NULL})

TEST(the_plugin_writes_a_specification_where_nobody_did)
{
    driver_tree_make(host, "");
    finds(2, DRIVER_CDI_KIND);
    /* Without NVIDIA's hook, the library is mounted under each of its names. Its directory is
     * found once. */
    SPEC_HAS("{\"cdiVersion\":\"0.5.0\",\"kind\":\"gpushare.io/gpu\",\"devices\":["
             "{\"name\":\"0\",\"containerEdits\":{\"deviceNodes\":[{\"path\":"
             "\"/dev/nvidia3\",\"hostPath\":\"/dev/nvidia3\"}]}},{\"name\":\"GPU-a\"",
             "{\"path\":\"/dev/nvidiactl\",\"hostPath\":\"/dev/nvidiactl\"}",
             "\"env\":[\"NVIDIA_VISIBLE_DEVICES=void\"]",
             "{\"hostPath\":\"" LIBS "/libcuda.so.570.12\",\"containerPath\":"
             "\"/usr/local/nvidia/lib64/libcuda.so.1\"",
             "\"/usr/local/nvidia/lib64/libcuda.so\"",
             "\"hostPath\":\"/usr/bin/nvidia-smi\",\"containerPath\":"
             "\"/usr/bin/nvidia-smi\"",
             "!nvidia-uvm-tools", "!535.1", "!570.120", "!libc.so", "!libout", "!passwd",
             "!\"/lib/", "!hooks");
    /* It is a specification with the names of all cards: another plugin that finds it under
     * the kind of a generator uses it. */
    cleanup_free char *text = temp_read(cdi, DRIVER_CDI_FILE);
    char *kind = strstr(text, "gpushare.io/gpu");
    memcpy(kind, "nvidia.com/gpu\"", 15);
    kind[15] = ' ';
    temp_write(cdi, "copy.json", text);
    finds(2, "nvidia.com/gpu");
    settings.by_index = true;
    finds(2, "nvidia.com/gpu");
}

TEST(the_hook_makes_links_and_the_cache_of_the_loader)
{
    driver_tree_make(host, "");
    make("/usr/bin/nvidia-ctk");
    finds(2, DRIVER_CDI_KIND);
    SPEC_HAS("\"path\":\"/usr/bin/nvidia-ctk\",\"args\":[\"nvidia-ctk\",\"hook\","
             "\"create-symlinks\",\"--link\",\"libcuda.so.1::" LIBS "/libcuda.so\","
             "\"--link\",\"libcuda.so.570.12::" LIBS "/libcuda.so.1\"]}",
             "\"update-ldcache\",\"--folder\",\"" LIBS "\"]}]}}",
             "\"containerPath\":\"" LIBS "/libcuda.so.570.12\"", "!/usr/local/nvidia");
    make("/usr/bin/nvidia-cdi-hook");
    finds(2, DRIVER_CDI_KIND);
    SPEC_HAS("\"args\":[\"nvidia-cdi-hook\",\"create-symlinks\"");
    /* Debian's packages have a directory of their own. */
    make(LIBS "/nvidia/current/libnvidia-opencl.so.570.12");
    finds(2, DRIVER_CDI_KIND);
    SPEC_HAS("\"containerPath\":\"" LIBS "/nvidia/current/libnvidia-opencl.so.570.12\"",
             "\"update-ldcache\",\"--folder\",\"" LIBS "\",\"--folder\",\"" LIBS
             "/nvidia/current\"]");
}

/* As the GPU Operator's driver container shows it. */
TEST(a_driver_container_has_a_root_of_its_own)
{
    settings.driver_root = "/run/nvidia/driver";
    driver_tree_make(host, settings.driver_root);
    finds(2, DRIVER_CDI_KIND);
    SPEC_HAS(
        "{\"path\":\"/dev/nvidia3\",\"hostPath\":\"/run/nvidia/driver/dev/nvidia3\"}",
        "{\"hostPath\":\"/run/nvidia/driver" LIBS "/libcuda.so.570.12\"");
    /* Its /dev can be empty: the nodes are the host's then. */
    driver_tree_node(host, "/dev/nvidia3");
    driver_tree_node(host, "/dev/nvidiactl");
    temp_remove(host, "run/nvidia/driver/dev/nvidiactl");
    finds(2, DRIVER_CDI_KIND);
    SPEC_HAS("{\"path\":\"/dev/nvidia3\",\"hostPath\":\"/dev/nvidia3\"}");
}

#define NODE(path) "{\"path\":\"" path "\",\"hostPath\":\"" path "\"}"

/* Of card 0, whose minor number is 3, there are two instances. Only one has both files. */
TEST(an_instance_has_the_files_of_its_card_and_its_own)
{
    static const struct card_seen seen[] = {
        {.uuid = "GPU-b", .index = 1, .place = {0, -1, -1}},
        {.uuid = "MIG-a", .parent = "GPU-a", .index = 64, .place = {3, 1, 0}},
        {.uuid = "MIG-b", .parent = "GPU-a", .index = 65, .place = {3, 11, 0}},
        {.uuid = "MIG-c", .parent = "GPU-a", .index = 66, .place = {3, INT32_MAX, 0}}};
    driver_tree_make(host, "");
    driver_tree_node(host, "/dev/nvidia-caps/nvidia-cap12");
    driver_tree_node(host, "/dev/nvidia-caps/nvidia-cap13");
    driver_tree_node(host, "/dev/nvidia-caps/nvidia-cap14");
    make("/proc/driver/nvidia-caps/mig-minors");
    temp_write(host, "proc/driver/nvidia-caps/mig-minors",
               "config 1\nmonitor 2\ngpu0/gi1/access 7\ngpu3/gi1/access 12\n"
               "gpu3/gi1/ci0/access 13\ngpu3/gi11/access 14\ngpu3/gi11/ci0/access 15\n");
    settings.by_index = true;
    struct driver_view *v = driver_view_new(&settings, "570.12", seen, ARRAY_LEN(seen));
    ck_assert_str_eq(v->cdi_kind, DRIVER_CDI_KIND);
    SPEC_HAS(
        "\"devices\":[{\"name\":\"1\"", "{\"name\":\"GPU-b\"",
        "{\"name\":\"MIG-a\",\"containerEdits\":{\"deviceNodes\":[" NODE(
            "/dev/nvidia3") "," NODE("/dev/nvidia-caps/nvidia-cap12") "," NODE("/dev/"
                                                                               "nvidia-"
                                                                               "caps/"
                                                                               "nvidia-"
                                                                               "cap13") "]}}",
        "!\"64\"", "!MIG-b", "!MIG-c", "!nvidia-cap14");
    struct driver_file files[DRIVER_CARD_FILES];
    cleanup_arena struct arena a = {0};
    array_indices(i, seen) {
        static const size_t n[] = {1, 3, 0, 0};
        ck_assert_uint_eq(driver_card_files(&v->files, &seen[i].place, &a, files), n[i]);
    }
    driver_view_free(v);
}

TEST(names_of_a_generator_come_first)
{
    driver_tree_make(host, "");
    temp_write(cdi, "broken.yaml", "kind: [");
    temp_write(cdi, "list.json", "[1]");
    temp_write(cdi, "other.json",
               "{\"kind\":\"a/b\",\"devices\":[{\"name\":\"GPU-a\"}]}");
    temp_write(cdi, "nvidia.yaml",
               "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n"
               "- name: \"0\"\n  containerEdits: {}\n"
               "- name: GPU-a\n  containerEdits: {}\n");
    finds(1, "nvidia.com/gpu");
    finds(2, DRIVER_CDI_KIND); /* it lacks GPU-b */
    temp_remove(cdi, "nvidia.yaml");
    make("/etc/cdi/x.json");
    temp_write(host, "etc/cdi/x.json", GENERATED);
    finds(2, "nvidia.com/gpu");
}

/* An older manifest mounts no host: the names of a generator need none. */
TEST(names_of_a_generator_need_no_host_root)
{
    settings.host_root = "";
    finds(2, "--host-root is not set");
    temp_write(cdi, "nvidia.json", GENERATED);
    finds(2, "nvidia.com/gpu");
}

/* The reasons that a person reads in the log and in events. */
TEST(no_names_without_a_driver)
{
    finds(2, "no library of the driver below / on the host");
    make(LIBS "/libcuda.so.570.12");
    finds(2, "no card has a device node /dev/nvidia<n> on the host");
    settings.driver_root = "/run/none";
    finds(2, "/run/none on the host: No such file or directory");
    settings.driver_root = "/";
    settings.strategy = DRIVER_ENVVAR; /* no name is needed: nothing is written */
    driver_tree_make(host, "");
    finds(2, "");
    ck_assert(has_node);
    cleanup_free char *path = temp_path(cdi, DRIVER_CDI_FILE);
    ck_assert_int_ne(access(path, F_OK), 0);
}

UNIT_MAIN_AROUND(begin, end)
