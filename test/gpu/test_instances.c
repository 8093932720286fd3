/* SPDX-License-Identifier: Apache-2.0 */
/* The instances of cards in MIG mode. */
#include "gpu/nvml_fixture.h"

#define A100                                                                             \
    "card uuid=GPU-a;name=NVIDIA "                                                       \
    "A100;bus=3b;minor=4;total=42949672960;free=40000000000;"                            \
    "used=0;reserved=0;temp=41;util=3;utilmem=1;powerlimit=400000;mig=1;events=8;"       \
    "remap=0;pages=0\n"
#define INSTANCE_OF(gi, at, uuid, more)                                                  \
    "instance card=0;at=" at ";uuid=" uuid                                               \
    ";name=NVIDIA A100 MIG 1g.5gb;total=5100273664;"                                     \
    "free=5000000000;used=20273664;reserved=80000000;gi=" gi ";ci=0;" more "\n"
#define INSTANCE(at, uuid, more) INSTANCE_OF(at, at, uuid, more)

/* "PARENT PROFILE" of an instance. */
static void is_instance_of(size_t i, const char *want)
{
    cleanup_free char *got = xasprintf("%s %s", card(i)->parent_uuid, card(i)->profile);
    ck_assert_str_eq(got, want);
}

TEST(an_instance_is_a_card)
{
    opens(A100 T4 INSTANCE("2", "MIG-2", "processes=812:1048576"));
    ck_assert_uint_eq(sample.n_cards, 3);
    state_is(0, GPU_MIG, "in MIG mode, with 1 instance");
    is_instance_of(0, " ");
    is_instance_of(1, " ");
    /* What NVML does not know of the instance is that of the card, but for its use. */
    card_is(2, "66|MIG-2|NVIDIA A100 MIG 1g.5gb|00000000:3B:00.0|ok| minor=4 "
               "memoryTotal=5100273664 memoryFree=5000000000 memoryUsed=20273664 "
               "memoryReserved=80000000 powerLimit=400000 temperature=41 "
               "retiredPagesPending=0 remapFailed=0 remapPending=0 gpuInstance=2 "
               "computeInstance=0 events "
               "processes 812:1048576:-1");
    is_instance_of(2, "GPU-a 1g.5gb");
    /* The other card is the only one that is connected to anything. */
    ck_assert_uint_eq(card(2)->links.n, 0);
}

/* Compute instances of one GPU instance have one memory, which is promised once. */
TEST(instances_with_one_memory_are_one_card)
{
    opens(A100 INSTANCE_OF("3", "0", "MIG-0", "") INSTANCE_OF("3", "1", "MIG-1", "")
              INSTANCE_OF("4", "2", "MIG-2", ""));
    state_is(1, GPU_OK, NULL);
    state_is(2, GPU_UNREADABLE, "shares its memory with MIG-0");
    state_is(3, GPU_OK, NULL);
}

TEST(a_driver_without_profiles_in_names_has_attributes)
{
    opens(A100 "instance card=0;uuid=MIG-0;name=NVIDIA A100;total=9;free=9;slices=3;"
               "mib=19968\n"
               "instance card=0;at=1;uuid=MIG-1;name=NVIDIA A100;total=9;free=9;slices=2;"
               "cslices=1;mib=9728\n"
               "instance card=0;at=2;uuid=MIG-2;name=NVIDIA A100;total=9;free=9\n");
    is_instance_of(1, "GPU-a 3g.20gb");
    ck_assert_str_eq(card(1)->model, "NVIDIA A100 MIG 3g.20gb");
    is_instance_of(2, "GPU-a 1c.2g.10gb");
    state_is(3, GPU_UNREADABLE, "profile");
}

TEST(its_health_is_that_of_the_card)
{
    opens("card uuid=GPU-a;total=9;free=9;mig=1;remap=2\n" INSTANCE("0", "MIG-0", ""));
    state_is(0, GPU_MIG, "in MIG mode");
    state_is(1, GPU_ECC, "row remapping failed");
    opens("fail nvmlDeviceGetMemoryInfo_v2 15 1024\n" A100 INSTANCE("0", "MIG-0", ""));
    state_is(1, GPU_LOST, "GPU is lost");
    opens("fail nvmlDeviceGetUUID 15 0\n" A100 INSTANCE("0", "MIG-0", ""));
    ck_assert_uint_eq(sample.n_cards, 1);
    state_is(0, GPU_LOST, "GPU is lost");
}

TEST(instances_come_and_go)
{
    opens(A100 INSTANCE("0", "MIG-0", "") INSTANCE("1", "MIG-1", ""));
    ck_assert_uint_eq(sample.n_cards, 3);
    reads(A100 INSTANCE("1", "MIG-1", ""));
    ck_assert_uint_eq(sample.n_cards, 2);
    ck_assert_int_eq(card(1)->index, 65);
    reads(A100);
    ck_assert_uint_eq(sample.n_cards, 1);
    state_is(0, GPU_MIG, "with 0 instances");
    reads(T4 INSTANCE("1", "MIG-1", "")); /* not in MIG mode */
    ck_assert_uint_eq(sample.n_cards, 1);
    state_is(0, GPU_OK, NULL);
}

TEST(calls_about_instances_may_fail)
{
    static const struct {
        const char *call;
        size_t cards;
        enum gpu_state state;
    } cases[] = {
        {"nvmlDeviceGetMaxMigDeviceCount", 1, GPU_OK},
        {"nvmlDeviceGetMigDeviceHandleByIndex", 1, GPU_OK},
        {"nvmlDeviceGetGpuInstanceId", 2, GPU_OK},
        {"nvmlDeviceGetComputeInstanceId", 2, GPU_OK},
        {"nvmlDeviceGetUUID", 1, GPU_OK}, /* whose instances would they be? */
        {"nvmlDeviceGetName", 2, GPU_UNREADABLE},
        {"nvmlDeviceGetMemoryInfo_v2", 2, GPU_OK},
    };
    array_items(c, cases) {
        cleanup_free char *script =
            xasprintf("fail %s 999\n" A100 INSTANCE("0", "MIG-0", ""), c->call);
        opens(script);
        state_is(0, GPU_MIG, "in MIG mode");
        ck_assert_msg(sample.n_cards == c->cards, "%s", c->call);
        if (sample.n_cards == 2)
            ck_assert_msg(card(1)->state == c->state, "%s", c->call);
    }
    opens("fail nvmlDeviceGetMigDeviceHandleByIndex 999\n" A100);
    state_is(0, GPU_MIG, "cannot be read: Unknown Error (999)");
    open_library("old/libnvidia-ml.so.1");
    reads(A100 INSTANCE("0", "MIG-0", "")); /* it does not know MIG */
    ck_assert_uint_eq(sample.n_cards, 1);
}

/* 500 instances of one card, 16 cards of 7. */
TEST(more_instances_than_there_can_be)
{
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "card uuid=GPU-a;name=A;total=9;free=9;mig=1;instances=500\n");
    for (int i = 0; i < 500; i++)
        buf_printf(&text, "instance card=0;at=%d;uuid=MIG-%d;name=A MIG 1g.5gb;total=9\n",
                   i, i);
    opens(text.p);
    ck_assert_uint_eq(sample.n_cards, 9);
    state_is(0, GPU_MIG, "with 8 instances; others are left out");
    buf_clear(&text);
    for (int c = 0; c < 16; c++)
        buf_printf(&text, "card uuid=GPU-%d;name=A;total=9;free=9;mig=1\n", c);
    for (int i = 0; i < 16 * 7; i++)
        buf_printf(&text,
                   "instance card=%d;at=%d;uuid=MIG-%d;name=A MIG 1g.5gb;total=9\n",
                   i / 7, i % 7, i);
    reads(text.p);
    ck_assert_uint_eq(sample.n_cards, GPU_MAX_CARDS);
    state_is(5, GPU_MIG, "with 7 instances");
    state_is(6, GPU_MIG, "with 6 instances; others are left out");
    state_is(15, GPU_MIG, "with 0 instances; others are left out");
}

TEST(instances_that_cannot_be)
{
    opens(A100 INSTANCE("0", "MIG-0", "") INSTANCE("1", "MIG-0", "")
              INSTANCE("2", "GPU-a", "") INSTANCE("3", "", ""));
    state_is(1, GPU_OK, NULL);
    state_is(2, GPU_UNREADABLE, "has the UUID of card 64");
    state_is(3, GPU_UNREADABLE, "no UUID of an instance");
    state_is(4, GPU_UNREADABLE, "no UUID of an instance");
    ck_assert_str_eq(card(2)->uuid, "");
}

static void takes(const char *text)
{
    cleanup_free char *path = temp_path(dir, "cards"), *copy = xstrdup(text);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    temp_write(dir, "cards", copy);
    gpu_free(gpu);
    gpu = gpu_file_new(path);
    fixture_sample();
}

#define OF(parent, profile)                                                              \
    "'uuid':'MIG-0','parentUUID':'" parent "','migProfile':'" profile                    \
    "','memoryTotal':9,'gpuInstance':3}"

TEST(a_file_has_instances)
{
    takes("{'cards':[{'uuid':'GPU-a','memoryTotal':9,'migMode':1},"
          "{'index':64," OF("GPU-a", "1g.5gb") "]}");
    state_is(0, GPU_MIG, "in MIG mode");
    card_is(1, "64|MIG-0|||ok| memoryTotal=9 memoryFree=9 gpuInstance=3");
    is_instance_of(1, "GPU-a 1g.5gb");
    /* Its card has left, or is not in MIG mode. */
    takes("{'cards':[{'index':64," OF("GPU-a", "1g.5gb") "]}");
    state_is(0, GPU_LOST, "its parent");
    takes("{'cards':[{'uuid':'GPU-a','memoryTotal':9},{'index':64," OF("GPU-a",
                                                                       "1g.5gb") "]}");
    state_is(0, GPU_OK, NULL);
    state_is(1, GPU_LOST, "its parent");
}

TEST(a_file_with_a_wrong_instance_is_refused)
{
    static const char *const wrong[] = {
        "{'cards':[{'index':64," OF("GPU-a", "") "]}",
        "{'cards':[{'index':64," OF("", "1g.5gb") "]}",
        "{'cards':[{'index':63," OF("GPU-a", "1g.5gb") "]}",
        "{'cards':[{'index':576," OF("GPU-a", "1g.5gb") "]}",
        "{'cards':[{'index':64," OF("GPU a", "1g.5gb") "]}",
        "{'cards':[{'index':64,'memoryTotal':9}]}",
    };
    takes("{}");
    array_items(c, wrong) {
        cleanup_free char *copy = xstrdup(*c);
        for (char *p = copy; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        temp_write(dir, "cards", copy);
        ck_assert_msg(gpu_sample(gpu, &sample, &err) == -1, "%s", *c);
        ck_assert_int_eq(err.code, ERR_INVALID);
    }
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
