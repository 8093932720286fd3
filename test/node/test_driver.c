/* SPDX-License-Identifier: Apache-2.0 */
#include "node/driver.h"

#include "lib/driver_tree.h"
#include "lib/temp.h"
#include "lib/unit.h"

#define LIBS DRIVER_TREE_LIBRARIES
#define DEVICE(name, node)                                                               \
    "{\"name\":\"" name "\",\"containerEdits\":{\"deviceNodes\":[{\"path\":\"" node      \
    "\"}]}}"
#define SPEC_OF(devices, more)                                                           \
    "{\"cdiVersion\":\"0.5.0\",\"kind\":\"nvidia.com/gpu\",\"devices\":[" devices        \
    "],\"containerEdits\":{" more "}}"
#define TWO_DEVICES DEVICE("GPU-a", "/dev/nvidia3") "," DEVICE("GPU-b", "/dev/nvidia0")
#define MOUNT(path) "\"mounts\":[{\"hostPath\":\"" path "\",\"containerPath\":\"/x\"}]"
#define GENERATED   SPEC_OF(TWO_DEVICES, "")

static char *dir, *host, *cdi;
static struct driver_view_settings settings;
static char unfit[256]; /* why a generator's names are not used */
static char no_hook[256];
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
    snprintf(unfit, sizeof unfit, "%s", v->unfit);
    snprintf(no_hook, sizeof no_hook, "%s", v->no_hook);
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
               "- name: GPU-a\n  containerEdits:\n    deviceNodes:\n"
               "    - path: /dev/nvidia3\n");
    finds(1, "nvidia.com/gpu");
    finds(2, DRIVER_CDI_KIND); /* it lacks GPU-b */
    ck_assert_str_eq(unfit, "");
    temp_remove(cdi, "nvidia.yaml");
    make("/etc/cdi/x.json");
    temp_write(host, "etc/cdi/x.json", GENERATED);
    finds(2, "nvidia.com/gpu");
}

/* The runtime cannot start a container with such a name, or drops the name. */
TEST(names_of_a_generator_that_lead_nowhere)
{
    static const struct {
        const char *etc, *more, *cdi, *why; /* two files of /etc/cdi, one of --cdi-dir */
    } cases[] = {
        {GENERATED, NULL, NULL, ""},
        {SPEC_OF(TWO_DEVICES, MOUNT(LIBS "/libcuda.so.570.12")), NULL, NULL, ""},
        /* What the plugin cannot see is taken to be there. */
        {SPEC_OF(TWO_DEVICES, MOUNT("/lib/firmware/nvidia/525.147.05/gsp.bin")), NULL,
         NULL, ""},
        {SPEC_OF(TWO_DEVICES, MOUNT("/etc/vulkan/icd.d/nvidia_icd.json")), NULL, NULL,
         ""},
        /* Of a former driver. */
        {SPEC_OF(TWO_DEVICES, MOUNT(LIBS "/libcuda.so.525.147.05")), NULL, NULL,
         "/etc/cdi/a.json names " LIBS
         "/libcuda.so.525.147.05, which is not on the host"},
        {SPEC_OF(TWO_DEVICES, "\"deviceNodes\":[{\"path\":\"/dev/nvidia-nvswitchctl\"}]"),
         NULL, NULL, "/etc/cdi/a.json names /dev/nvidia-nvswitchctl, which is not on"},
        {SPEC_OF(TWO_DEVICES, "\"hooks\":[{\"hookName\":\"createContainer\","
                              "\"path\":\"/usr/bin/nvidia-gone\"}]"),
         NULL, NULL,
         "/etc/cdi/a.json names /usr/bin/nvidia-gone, which is not on the host"},
        {SPEC_OF(DEVICE("GPU-a", "/dev/nvidia3") "," DEVICE("GPU-b", "/dev/nvidia1"), ""),
         NULL, NULL, "/etc/cdi/a.json names /dev/nvidia1, which is not on the host"},
        {SPEC_OF(DEVICE("GPU-a", "/dev/nvidia3") ",{\"name\":\"GPU-b\"}", ""), NULL, NULL,
         "/etc/cdi/a.json has no device node for GPU-b"},
        {SPEC_OF("{\"name\":\"GPU-a\",\"containerEdits\":{\"deviceNodes\":[{\"path\":"
                 "\"/dev/nvidia3\",\"hostPath\":\"/dev/nvidia7\"}]}}," DEVICE(
                     "GPU-b", "/dev/nvidia0"),
                 ""),
         NULL, NULL, "/etc/cdi/a.json names /dev/nvidia7, which is not on the host"},
        /* Two files of a directory spoil the names that both have, for both directories. */
        {GENERATED, GENERATED, NULL, "both define the name GPU-"},
        {GENERATED, SPEC_OF(DEVICE("GPU-b", "/dev/nvidia0"), ""), NULL,
         "both define the name GPU-b"},
        {GENERATED, GENERATED, GENERATED, "both define the name GPU-"},
        {SPEC_OF(DEVICE("GPU-a", "/dev/nvidia3"), ""),
         SPEC_OF(DEVICE("GPU-b", "/dev/nvidia0") "," DEVICE("all", "/dev/nvidia0"), ""),
         NULL, ""},
        /* The later directory hides the names of the former. */
        {SPEC_OF(TWO_DEVICES, MOUNT(LIBS "/libcuda.so.525.147.05")), NULL, GENERATED, ""},
        {GENERATED, NULL, SPEC_OF(TWO_DEVICES, MOUNT(LIBS "/libcuda.so.525.147.05")),
         "nvidia.json names " LIBS "/libcuda.so.525.147.05, which is not on the host"},
    };
    driver_tree_make(host, "");
    make("/etc/cdi/other.txt");
    array_items(c, cases) {
        const char *const files[] = {"a.json", "b.json"};
        const char *const texts[] = {c->etc, c->more};
        cleanup_free char *etc = temp_path(dir, "host/etc/cdi");
        array_indices(i, files) {
            cleanup_free char *path = temp_path(etc, files[i]);
            unlink(path);
            if (texts[i])
                temp_write(etc, files[i], texts[i]);
        }
        cleanup_free char *path = temp_path(cdi, "nvidia.json");
        unlink(path);
        if (c->cdi)
            temp_write(cdi, "nvidia.json", c->cdi);
        finds(2, *c->why ? DRIVER_CDI_KIND : "nvidia.com/gpu");
        ck_assert_msg(*c->why ? strstr(unfit, c->why) != NULL : !*unfit,
                      "\"%s\" and not \"%s\"", unfit, c->why);
    }
}

/* The kubelet keeps the names of our file that were given to a container, whatever is used now. */
TEST(our_file_follows_the_driver)
{
    driver_tree_make(host, "");
    finds(2, DRIVER_CDI_KIND);
    temp_write(cdi, "nvidia.json", GENERATED); /* a generator comes */
    finds(2, "nvidia.com/gpu");
    /* A driver of another version, as far as the list of libraries tells. */
    make(LIBS "/libnvidia-new.so.570.12");
    finds(2, "nvidia.com/gpu");
    SPEC_HAS("libnvidia-new.so.570.12");
    temp_remove(cdi, DRIVER_CDI_FILE); /* a reboot empties /var/run/cdi */
    finds(2, "nvidia.com/gpu");
    SPEC_HAS("libnvidia-new.so.570.12");
    settings.cdi_kind = "a/b";
    make(LIBS "/libnvidia-newer.so.570.12");
    finds(2, "a/b");
    SPEC_HAS("libnvidia-newer.so.570.12");
    settings.cdi_kind = "";
    settings.strategy = DRIVER_ENVVAR;
    make(LIBS "/libnvidia-newest.so.570.12");
    finds(2, "");
    SPEC_HAS("libnvidia-newest.so.570.12");
    /* A driver that is gone takes nothing away. */
    settings.strategy = DRIVER_AUTO;
    settings.driver_root = "/run/none";
    finds(2, "/run/none on the host: No such file or directory");
    SPEC_HAS("libnvidia-newest.so.570.12");
}

TEST(a_copy_of_our_file_spoils_its_names)
{
    driver_tree_make(host, "");
    finds(2, DRIVER_CDI_KIND);
    cleanup_free char *text = temp_read(cdi, DRIVER_CDI_FILE);
    cleanup_free char *why = xasprintf(
        "%s/backup.json defines names of the kind gpushare.io/gpu too, so that they "
        "are valid in neither file",
        cdi);
    temp_write(cdi, "backup.json", text);
    finds(2, why);
    temp_remove(cdi, "backup.json");
    finds(2, DRIVER_CDI_KIND);
}

/* An older manifest mounts no host: the names of a generator need none. */
TEST(names_of_a_generator_need_no_host_root)
{
    settings.host_root = "";
    finds(2, "--host-root is not set");
    temp_write(cdi, "nvidia.json", GENERATED);
    finds(2, "nvidia.com/gpu");
}

/* -- the hook of the driver's limit -- */

#define TOOLKIT "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
#define NEW                                                                              \
    "\x7f"                                                                               \
    "ELF update-ldcacheapply-cuda-memory-limits"
#define OLD                                                                              \
    "\x7f"                                                                               \
    "ELF update-ldcache"
#define HOOK(program, more, uuid)                                                        \
    "{\"hookName\":\"createRuntime\",\"path\":\"" program "\",\"args\":[" more           \
    "\"apply-cuda-memory-limits\",\"--driver-root\",\"/\",\"--gpu-id\",\"" uuid "\"]}"
#define HOOKED(name, node, hook)                                                         \
    "{\"name\":\"" name "\",\"containerEdits\":{\"deviceNodes\":[{\"path\":\"" node      \
    "\"}],\"hooks\":[" hook "]}}"
#define CDI_HOOK(program, uuid) HOOK(program, "\"nvidia-cdi-hook\",", uuid)

static void make_program(const char *at, const char *text)
{
    if (!text)
        return;
    driver_tree_file(host, at);
    temp_write(host, at + 1, text);
}

/* A generated specification names the hook, of which the program may know nothing. */
TEST(the_hook_of_a_generator_holds_if_its_program_has_it)
{
#define BOTH_CARDS(program)                                                              \
    SPEC_OF(HOOKED("GPU-a", "/dev/nvidia3", CDI_HOOK(program, "GPU-a")) "," HOOKED(      \
                "GPU-b", "/dev/nvidia0", CDI_HOOK(program, "GPU-b")),                    \
            "")
    static const struct {
        const char *spec, *program, *real, *why;
    } cases[] = {
        {BOTH_CARDS(TOOLKIT), NEW, NULL, ""},
        {BOTH_CARDS(TOOLKIT), "#!/bin/sh\nexec nvidia-cdi-hook.real", NEW, ""},
        {BOTH_CARDS(TOOLKIT), OLD, NULL,
         TOOLKIT " cannot be read, or has no apply-cuda-memory-limits: needs "
                 "nvidia-container-toolkit 1.20.1"},
        {BOTH_CARDS(TOOLKIT), "#!/bin/sh\nexec nvidia-cdi-hook.real", OLD,
         TOOLKIT " cannot be read, or has no"},
        /* What is not mounted here cannot be checked. */
        {BOTH_CARDS("/opt/nvidia-cdi-hook"), NEW, NULL,
         "/opt/nvidia-cdi-hook cannot be read, or has no"},
        {SPEC_OF(
             HOOKED("GPU-a", "/dev/nvidia3",
                    HOOK(TOOLKIT, "\"nvidia-ctk\",\"hook\",",
                         "GPU-a")) "," HOOKED("GPU-b", "/dev/nvidia0",
                                              HOOK(TOOLKIT, "\"nvidia-ctk\",\"hook\",",
                                                   "GPU-b")),
             ""),
         NEW, NULL, ""},
        /* For all names of the file. */
        {SPEC_OF(TWO_DEVICES, "\"hooks\":[" CDI_HOOK(TOOLKIT, "GPU-b") "," CDI_HOOK(
                                  TOOLKIT, "GPU-a") "]"),
         NEW, NULL, ""},
        {SPEC_OF(HOOKED("GPU-a", "/dev/nvidia3",
                        CDI_HOOK(TOOLKIT, "GPU-a")) "," DEVICE("GPU-b", "/dev/nvidia0"),
                 ""),
         NEW, NULL,
         "/etc/cdi/nvidia.json has no hook apply-cuda-memory-limits for GPU-b: run "
         "`nvidia-ctk cdi generate` of nvidia-container-toolkit 1.20.1"},
        {SPEC_OF(HOOKED("GPU-a", "/dev/nvidia3", CDI_HOOK(TOOLKIT, "GPU-b")) "," HOOKED(
                     "GPU-b", "/dev/nvidia0", CDI_HOOK(TOOLKIT, "GPU-b")),
                 ""),
         NEW, NULL,
         "/etc/cdi/nvidia.json has no hook apply-cuda-memory-limits for GPU-a"},
        {GENERATED, NEW, NULL, "has no hook apply-cuda-memory-limits for GPU-a"},
    };
    driver_tree_make(host, "");
    make("/etc/cdi/nvidia.json");
    array_indices(i, cases) {
        make_program(TOOLKIT, cases[i].program);
        make_program(TOOLKIT ".real", cases[i].real ?: "");
        temp_write(host, "etc/cdi/nvidia.json", cases[i].spec);
        finds(2, "nvidia.com/gpu");
        ck_assert_msg(*cases[i].why ? strstr(no_hook, cases[i].why) != NULL : !*no_hook,
                      "case %zu: \"%s\"", i, no_hook);
        /* The operator's kind is checked as well, and used whatever is found. */
        settings.cdi_kind = "nvidia.com/gpu";
        finds(2, "nvidia.com/gpu");
        ck_assert_msg(!*no_hook == !*cases[i].why, "case %zu: \"%s\"", i, no_hook);
        settings.cdi_kind = "";
    }
    settings.cdi_kind = "a/b";
    finds(2, "a/b");
    ck_assert_str_eq(no_hook, "no specification names a card");
    ck_assert_str_eq(unfit, "");
}

TEST(our_specification_has_the_hook_where_the_host_has_it)
{
    driver_tree_make(host, "");
    finds(2, DRIVER_CDI_KIND);
    ck_assert_contains(no_hook, "nvidia-cdi-hook cannot be read, or has no");
    make_program("/usr/bin/nvidia-ctk", OLD);
    finds(2, DRIVER_CDI_KIND);
    ck_assert_contains(no_hook, "/usr/bin/nvidia-ctk cannot be read, or has no");
    SPEC_HAS("!apply-cuda-memory-limits", "\"nvidia-ctk\",\"hook\",\"update-ldcache\"");
    make_program("/usr/bin/nvidia-ctk", NEW);
    finds(2, DRIVER_CDI_KIND);
    ck_assert_str_eq(no_hook, "");
#define OURS(args, uuid)                                                                 \
    "\"hooks\":[{\"hookName\":\"createRuntime\",\"path\":\"/usr/" args                   \
    "\"apply-cuda-memory-limits\",\"--driver-root\",\"/\",\"--gpu-id\",\"" uuid "\"]}]"
    SPEC_HAS("{\"name\":\"0\",\"containerEdits\":{\"deviceNodes\":[{\"path\":"
             "\"/dev/nvidia3\",\"hostPath\":\"/dev/nvidia3\"}]," OURS(
                 "bin/nvidia-ctk\",\"args\":[\"nvidia-ctk\",\"hook\",", "GPU-a") "}}",
             OURS("bin/nvidia-ctk\",\"args\":[\"nvidia-ctk\",\"hook\",", "GPU-b"));
    /* Of two programs, the one that has the hook. A wrapper knows nothing itself. */
    make_program("/usr/bin/nvidia-ctk", OLD);
    make_program(TOOLKIT, "#!/bin/sh");
    make_program(TOOLKIT ".real", NEW);
    finds(2, DRIVER_CDI_KIND);
    ck_assert_str_eq(no_hook, "");
    SPEC_HAS(OURS("local/nvidia/toolkit/nvidia-cdi-hook\",\"args\":[\"nvidia-cdi-hook\",",
                  "GPU-a"));
    settings.driver_root = "/run/nvidia/driver";
    driver_tree_make(host, settings.driver_root);
    finds(2, DRIVER_CDI_KIND);
    SPEC_HAS("\"--driver-root\",\"/run/nvidia/driver\",\"--gpu-id\",\"GPU-b\"");
    /* The limits are written to this directory too. */
    settings.cdi_kind = "nvidia.com/gpu";
    temp_remove(cdi, DRIVER_CDI_FILE);
    ck_assert_int_eq(rmdir(cdi), 0);
    make("/etc/cdi/nvidia.json");
    temp_write(host, "etc/cdi/nvidia.json", BOTH_CARDS(TOOLKIT));
    finds(2, "nvidia.com/gpu");
    ck_assert_contains(no_hook, "No such file or directory");
}

/* The text of a large program can be anywhere in it. */
TEST(the_hook_is_found_across_blocks)
{
    static char program[(1 << 16) + 100];
    driver_tree_make(host, "");
    make("/usr/bin/nvidia-cdi-hook");
    memset(program, 'x', sizeof program - 1);
    for (size_t at = (1 << 16) - 30; at <= 1 << 16; at++) {
        memset(program, 'x', sizeof program - 1);
        memcpy(program + at, DRIVER_LIMIT_HOOK, strlen(DRIVER_LIMIT_HOOK));
        temp_write(host, "usr/bin/nvidia-cdi-hook", program);
        finds(2, DRIVER_CDI_KIND);
        ck_assert_msg(!*no_hook, "at %zu: %s", at, no_hook);
    }
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
