/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
#include "lib/driver_tree.h"
#include "placement/links_fixture.h"

/*
 * What the kubelet gets from gpushare-device-plugin on nodes with different runtimes and
 * drivers.
 */

#define INSTANCE(index, gi)                                                              \
    ",{\"index\":" index ",\"uuid\":\"MIG-" index "\",\"parentUUID\":\"GPU-2\","         \
    "\"minor\":5,\"migProfile\":\"1g.8gb\",\"memoryTotal\":8589934592,"                  \
    "\"gpuInstance\":" gi ",\"computeInstance\":0}"
#define INSTANCES                                                                        \
    ",{\"uuid\":\"GPU-2\",\"migMode\":1,\"minor\":5,\"memoryTotal\":"                    \
    "17179869184}" INSTANCE("80", "7") INSTANCE("81", "8")

static const char *third = ""; /* or a card in MIG mode and its instances */

/* The files of the second instance are missing. */
static void make_instances(void)
{
    driver_tree_node(lib_path("host"), "/dev/nvidia5");
    driver_tree_node(lib_path("host"), "/dev/nvidia-caps/nvidia-cap66");
    driver_tree_node(lib_path("host"), "/dev/nvidia-caps/nvidia-cap67");
    driver_tree_file(lib_path("host"), "/proc/driver/nvidia-caps/mig-minors");
    temp_write(lib_dir, "host/proc/driver/nvidia-caps/mig-minors",
               "config 1\nmonitor 2\ngpu5/gi7/access 66\ngpu5/gi7/ci0/access 67\n"
               "gpu5/gi8/access 75\ngpu5/gi8/ci0/access 76\n");
}

static void add_node(const char *runtime)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"},"
             "\"status\":{\"nodeInfo\":{\"kubeletVersion\":\"v1.35.4\","
             "\"containerRuntimeVersion\":\"%s\"}}}",
             runtime);
    temp_mkdir(lib_dir, "host");
    temp_mkdir(lib_dir, "cdi");
    driver_tree_make(lib_path("host"), "");
    if (*third)
        make_instances();
    kubelet_start(&kubelet);
}

static void start_plugin(const char *const *more)
{
    const char *options[PROGRAM_ARGS] = {"--host-root", lib_path("host"), "--cdi-dir",
                                         lib_path("cdi")};
    program_args(options, 4, more);
    plugin_start(&plugin, &sim, options);
    kubelet_wait_registered(&kubelet, -1);
}

static void write_cards(void)
{
    temp_write(lib_dir, "cards.json",
               lib_fmt("{\"driverVersion\":\"" DRIVER_TREE_VERSION
                       "\",\"cudaVersion\":\"12.8\",\"cards\":["
                       "{\"uuid\":\"GPU-0\",\"minor\":3,\"memoryTotal\":17179869184},"
                       "{\"uuid\":\"GPU-1\",\"minor\":0,\"memoryTotal\":17179869184}%s]}",
                       third));
}

static void set_up(const char *runtime, const char *const *more)
{
    add_node(runtime);
    write_cards();
    start_plugin(more);
}

/* A pod of 4 GiB on the card gets exactly these devices. */
static void check_devices(const char *name, int card, const char *devices,
                          const char *variable)
{
    cleanup_answer struct kubelet_answer a = {0};
    plugin_pod(&sim, name, 4, card);
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", MEM, 4, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
    ck_assert_str_eq(a.devices, devices);
    ck_assert_at(a.env, "NVIDIA_VISIBLE_DEVICES", variable);
}

#define COMMON "/dev/nvidiactl:/dev/nvidiactl:rw /dev/nvidia-uvm:/dev/nvidia-uvm:rw "

TEST(an_old_runtime_gets_the_variable_and_device_nodes)
{
    set_up("containerd://1.7.28", NULL);
    ck_assert(program_wait_output(&plugin.program, "auto stands for envvar"));
    check_devices("p", 1, "/dev/nvidia0:/dev/nvidia0:rw " COMMON, "GPU-1");
    check_devices("q", 0, "/dev/nvidia3:/dev/nvidia3:rw " COMMON, "GPU-0");
}

TEST(a_runtime_with_cdi_gets_names_of_our_specification)
{
    set_up("containerd://2.1.4", NULL);
    ck_assert(program_wait_output(&plugin.program, "auto stands for cdi-cri"));
    check_devices("p", 1, "gpushare.io/gpu=GPU-1 ", "");
    ck_assert_contains(lib_read("cdi/gpushare.io-gpu.json"),
                       "\"name\":\"GPU-1\",\"containerEdits\":{\"deviceNodes\":"
                       "[{\"path\":\"/dev/nvidia0\"");
}

/* It is of the driver before an upgrade: no container could start with its names. */
TEST(names_of_a_stale_generator_are_not_used)
{
    add_node("containerd://2.1.4");
    driver_tree_file(lib_path("host"), "/etc/cdi/nvidia.yaml");
    temp_write(lib_dir, "host/etc/cdi/nvidia.yaml",
               "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n"
               "- {name: GPU-0, containerEdits: {deviceNodes: [{path: /dev/nvidia3}]}}\n"
               "- {name: GPU-1, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}\n"
               "containerEdits:\n  mounts:\n"
               "  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.525.147.05\n"
               "    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.525.147.05\n");
    write_cards();
    start_plugin(NULL);
    ck_assert(program_wait_output(
        &plugin.program,
        "names of the kind nvidia.com/gpu are not used: /etc/cdi/nvidia.yaml names "
        "/usr/lib/x86_64-linux-gnu/libcuda.so.525.147.05, which is not on the host. "
        "Run"));
    check_devices("p", 1, "gpushare.io/gpu=GPU-1 ", "");
}

TEST(names_of_a_generator_are_passed_on_in_an_annotation)
{
    set_up("containerd://1.7.28", ARGV("--device-list-strategy", "cdi-annotations",
                                       "--cdi-kind", "nvidia.com/gpu"));
    check_devices("p", 0, "cdi.k8s.io/gpushare_gpu-mem=nvidia.com/gpu=GPU-0 ", "");
}

/* A driver is removed while the node runs: no container starts without its card. */
TEST(a_card_without_a_device_node_is_rejected)
{
    cleanup_answer struct kubelet_answer a = {0};
    set_up("containerd://2.1.4", ARGV("--device-list-strategy", "cdi-cri"));
    check_devices("p", 1, "gpushare.io/gpu=GPU-1 ", "");
    temp_remove(lib_dir, "host/dev/nvidia0");
    /* Another card: the plugin looks at the host again. */
    temp_write(lib_dir, "cards.json",
               "{\"driverVersion\":\"" DRIVER_TREE_VERSION "\",\"cards\":[{\"uuid\":"
               "\"GPU-0\",\"minor\":3,\"memoryTotal\":17179869184},{\"uuid\":\"GPU-1\","
               "\"minor\":0,\"memoryTotal\":17179869184},{\"uuid\":\"GPU-2\","
               "\"minor\":3,\"memoryTotal\":17179869184}]}");
    lib_wait((kubelet_serve(&kubelet), kubelet_devices(&kubelet, MEM, true) == 48));
    plugin_pod(&sim, "q", 4, 1);
    kubelet_add(&kubelet, "q", ARGV("c"));
    kubelet_admit(&kubelet, "q", "c", MEM, 4, &a);
    ck_assert_int_eq(a.status, GRPC_FAILED_PRECONDITION);
    ck_assert_contains(a.words, "no-cdi-name): the card GPU-1 has no device node");
}

/* -- several cards -- */

/* The cards GPU-0 and so on of a machine for the fake NVML, behind one in MIG mode. */
static void write_machine(const struct machine *m)
{
    struct span words = span_of(m->rows);
    const char *text = "driver " DRIVER_TREE_VERSION
                       "\ncard uuid=GPU-mig;bus=0f;minor=9;mig=1;total=1000;free=1000;"
                       "path=0,50,50,50,50,50,50,50,50\n";
    for (unsigned i = 0; i < m->n; i++) {
        const char *links = "";
        for (unsigned k = 0; k < m->n; k++) {
            struct span word = span_cut(&words, ' ');
            if (span_starts(word, SPAN("NV")))
                links =
                    lib_fmt("%s%s%d:1%x", links, *links ? "," : "", atoi(word.p + 2), k);
        }
        text = lib_fmt("%scard uuid=GPU-%u;bus=1%x;minor=%u;total=17179869184;"
                       "free=17179869184;links=%s;path=50,50,50,50,50,50,50,50,50;"
                       "affinity=%d\n",
                       text, i, i, i, links, 1 << (m->numa[i] - '0'));
        driver_tree_node(lib_path("host"), lib_fmt("/dev/nvidia%u", i));
    }
    agent_script(text);
}

/* A pod of a unit on each of these n cards. */
static void admit(const char *name, const char *indexes, int n, struct kubelet_answer *a)
{
    sim_add_bound_pod(&sim, name, n, "n1",
                      lib_fmt("{\"ALIYUN_COM_GPU_MEM_IDX\":\"%s\","
                              "\"aliyun.com/gpu-count\":\"%d\"}",
                              indexes, n));
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", MEM, n, a);
    ck_assert_msg(a->status == GRPC_OK, "%s", a->words);
    ck_assert_at(a->env, "ALIYUN_COM_GPU_MEM_IDX", indexes);
}

TEST(several_cards_are_named_in_the_order_of_their_ring)
{
    cleanup_answer struct kubelet_answer two = {0}, four = {0};
    add_node("containerd://1.7.28");
    write_machine(&machines[0]);
    start_plugin(ARGV("--gpu-source", agent_nvml()));
    admit("two", "1,2", 2, &two);
    ck_assert_at(two.env, "NVIDIA_VISIBLE_DEVICES", "GPU-0,GPU-1");
    ck_assert_at(two.env, "GPUSHARE_NUMA_NODE", "0");
    admit("four", "1,2,5,6", 4, &four);
    ck_assert_at(four.env, "NVIDIA_VISIBLE_DEVICES", "GPU-0,GPU-1,GPU-5,GPU-4");
    ck_assert_ptr_null(json_object_get(four.env, "GPUSHARE_NUMA_NODE"));
    ck_assert_str_eq(four.devices,
                     "/dev/nvidia0:/dev/nvidia0:rw /dev/nvidia1:/dev/nvidia1:rw "
                     "/dev/nvidia4:/dev/nvidia4:rw /dev/nvidia5:/dev/nvidia5:rw " COMMON);
}

/* -- MIG -- */

static void set_up_instances(const char *runtime)
{
    third = INSTANCES;
    set_up(runtime, NULL);
}

TEST(an_instance_gets_the_files_of_its_card_and_its_own)
{
    set_up_instances("containerd://1.7.28");
    check_devices(
        "p", 80,
        "/dev/nvidia5:/dev/nvidia5:rw "
        "/dev/nvidia-caps/nvidia-cap66:/dev/nvidia-caps/nvidia-cap66:rw "
        "/dev/nvidia-caps/nvidia-cap67:/dev/nvidia-caps/nvidia-cap67:rw " COMMON,
        "MIG-80");
}

static void write_mig_modes(int first, int second)
{
    agent_script(lib_fmt("driver 535.1\n"
                         "card uuid=GPU-0;name=A100;minor=0;total=17179869184;"
                         "free=17179869184;used=0;reserved=0;mig=%d\n"
                         "card uuid=GPU-1;name=A100;minor=1;total=17179869184;"
                         "free=17179869184;used=0;reserved=0;mig=%d\n",
                         first, second));
}

static bool lists(size_t healthy, size_t unhealthy)
{
    kubelet_serve(&kubelet);
    return kubelet_devices(&kubelet, MEM, true) == healthy &&
           kubelet_devices(&kubelet, MEM, false) == unhealthy;
}

TEST(a_card_in_mig_mode_is_left_out)
{
    const char *const *more = ARGV("--gpu-source", agent_nvml());
    agent_setup(&sim);
    write_mig_modes(0, 0);
    kubelet_start(&kubelet);
    agent_start(&agent, &sim, agent_nvml(), NULL);
    plugin_start(&plugin, &sim, more);
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(lists(32, 0));
    lib_wait(agent_number(&sim, "status.cardNumber") == 2);
    write_mig_modes(1, 0); /* by the MIG manager, while both run */
    lib_wait(lists(16, 16));
    lib_wait(agent_number(&sim, "status.cardNumber") == 1 &&
             agent_scv_is(&sim, "Healthy",
                          "GPU0 is left out: the card is in MIG mode, "
                          "with 0 instances"));
    plugin_stop(&plugin); /* the next process never knew the card */
    plugin_start(&plugin, &sim, more);
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(lists(16, 0));
    write_mig_modes(1, 1);
    lib_wait(agent_scv_is(&sim, "",
                          "GPU0 is left out: the card is in MIG mode, with 0 instances; "
                          "GPU1 is left out: the card is in MIG mode, with 0 instances"));
    lib_wait(lists(0, 16));
}

SUITE_MAIN(60, NULL)
