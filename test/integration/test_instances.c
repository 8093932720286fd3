/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

/*
 * Instances of a card in MIG mode, from the fake NVML to the container: scv-agent, the
 * extender and gpushare-device-plugin of one node.
 */

#define GIB16 "total=17179869184;free=17179869184;used=0;reserved=0"
#define CARDS                                                                            \
    "driver 535.1\n"                                                                     \
    "card uuid=GPU-0;name=A100;minor=0;" GIB16 ";mig=0\n"                                \
    "card uuid=GPU-1;name=A100;minor=1;" GIB16 ";mig=1;instances=2\n"
#define INSTANCE(at)                                                                     \
    "instance card=1;at=" at ";uuid=MIG-" at ";name=A100 MIG 1g.8gb;gi=" at              \
    ";ci=0;total=8589934592;free=8589934592;used=0;reserved=0\n"

static void set_up(void)
{
    agent_setup(&sim);
    agent_script(CARDS INSTANCE("0") INSTANCE("1"));
    kubelet_start(&kubelet);
    agent_start(&agent, &sim, agent_nvml(),
                ARGV("--update-interval", "100ms", "--podresources-socket",
                     lib_path("podresources.sock"), "--pods-interval", "1s"));
    plugin_start(&plugin, &sim, ARGV("--gpu-source", agent_nvml()));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(agent_scv_is(&sim, "Healthy Healthy Healthy",
                          "GPU1 is left out: the card is in MIG mode, with 2 instances"));
    suite_extender(NULL);
    lib_wait(lib_size(extender_node(&extender, "n1"), "devs") == 3);
}

/* A pod of one whole card. `model`: of the annotation, or "". */
static void add_pod(const char *name, const char *model)
{
    const char *notes =
        *model ? lib_fmt("\"nvidia-gpu-scheduler/gpu.model\":\"%s\"", model) : "";
    sim_load(
        &sim,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":{%s}},\"spec\":"
        "{\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":"
        "{\"aliyun.com/gpu-count\":\"1\"}}}]}}",
        name, name, notes);
}

/* The pod is bound, and its container gets this card. */
static void gets(const char *name, int resource, int amount, const char *uuid)
{
    cleanup_buf struct buf why = {0};
    cleanup_answer struct kubelet_answer a = {0};
    bool bound = false;
    lib_wait((buf_clear(&why), bound = extender_bind(&extender, name, "n1", &why)));
    ck_assert_msg(bound, "%s: %s", name, why.p);
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", resource, amount, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s: %s", name, a.words);
    ck_assert_at(a.env, "NVIDIA_VISIBLE_DEVICES", uuid);
}

static bool holds(const char *pod, const char *cards)
{
    json_t *item;
    lib_each(item, lib_at(agent_scv(&sim), "status.podList"))
        if (!strcmp(lib_str(item, "name"), pod))
            return !strcmp(lib_text(item, "cards"), cards);
    return false;
}

TEST(an_instance_is_shared_or_taken_by_its_profile)
{
    cleanup_buf struct buf why = {0};
    set_up();
    add_pod("whole", "");
    gets("whole", COUNT, 1, "GPU-0");
    add_pod("second", "");
    ck_assert(!extender_bind(&extender, "second", "n1", &why));
    ck_assert_contains(why.p, "needs 1 whole card; free cards: 0 of 1");
    add_pod("instance", "1g.8gb");
    gets("instance", COUNT, 1, "MIG-0");
    sim_add_pod(&sim, "shared", 3);
    gets("shared", MEM, 3, "MIG-1");
    lib_wait(holds("instance", "[\"MIG-0\"]") && holds("shared", "[\"MIG-1\"]"));
    /* The second instance is destroyed: its promise stays, and is reported. */
    agent_script(CARDS INSTANCE("0"));
    lib_wait(agent_scv_is(&sim, "Healthy Healthy Unhealthy",
                          "GPU73 is Unhealthy: NVML no longer lists the card; GPU1 is "
                          "left out: the card is in MIG mode, with 1 instance"));
    lib_wait(
        !strcmp(lib_str(extender_node(&extender, "n1"), "devs.2.health"), "Unhealthy"));
    const json_t *card = lib_at(extender_node(&extender, "n1"), "devs.2");
    ck_assert_at(card, "uuid", "MIG-1");
    ck_assert_at(card, "migProfile", "1g.8gb");
    ck_assert_at(card, "pods.0.name", "shared");
    lib_wait((kubelet_serve(&kubelet), kubelet_devices(&kubelet, COUNT, false) == 1));
}

SUITE_MAIN(60, NULL)
