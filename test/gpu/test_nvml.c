/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml_fixture.h"

TEST(everything_that_a_card_tells_is_in_the_sample)
{
    opens("driver 535.129.03\ncuda 12020\n" T4 H200);
    ck_assert_str_eq(sample.driver, "535.129.03");
    ck_assert_str_eq(sample.cuda, "12.2");
    ck_assert_uint_eq(sample.n_cards, 2);
    card_is(0, "0|GPU-t4|Tesla T4|00000000:3B:00.0|ok| minor=1 memoryTotal=16106127360 "
               "memoryFree=15569256448 memoryUsed=3145728 memoryReserved=533725184 "
               "clockSmMax=1590 clockMemoryMax=5001 pcieGenerationMax=3 pcieWidthMax=16 "
               "powerLimit=70000 utilization=7 temperature=31 retiredPagesPending=0 "
               "events processes 7:2097152:-1 812:1048576:-1");
    card_is(1, "1|GPU-h200|NVIDIA H200|00000000:5D:00.0|ok| minor=0 "
               "memoryTotal=150754820096 memoryFree=150198026240 memoryUsed=0 "
               "memoryReserved=556793856 clockSmMax=1980 clockMemoryMax=3201 "
               "pcieGenerationMax=5 pcieWidthMax=16 powerLimit=700000 utilization=0 "
               "temperature=27 remapFailed=0 remapPending=0 recoveryAction=0 migMode=0 "
               "events processes");
}

TEST(a_card_that_supports_nothing_but_memory_is_fine)
{
    opens("card total=1000;free=1000\n");
    card_is(0, "0||||ok| memoryTotal=1000 memoryFree=1000 memoryUsed=0 memoryReserved=0");
    ck_assert_str_eq(sample.driver, "");
    ck_assert_str_eq(sample.cuda, "");
}

TEST(any_call_may_fail)
{
    static const char *const calls[] = {
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetCudaDriverVersion",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeMode",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetMemoryAffinity",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
        "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        "nvmlDeviceGetProcessUtilization",
        "nvmlEventSetCreate",
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlDeviceRegisterEvents",
    };
    static const int codes[] = {3, 4, 13, 25, 999, 12345};
    array_items(call, calls)
        array_items(code, codes) {
            cleanup_free char *script = xasprintf("fail %s %d\n" T4 H200, *call, *code);
            opens(script);
            ck_assert_msg(card(0)->state == GPU_OK && card(1)->state == GPU_OK, "%s",
                          *call);
            ck_assert(gpu_knows(card(0), GPU_MEM_TOTAL));
            /* The first version of the memory has no reserve. */
            ck_assert(gpu_knows(card(0), GPU_MEM_USED) == !strstr(*call, "MemoryInfo"));
            /* A list that fails is no empty list. */
            ck_assert(*code != 999 ||
                      card(0)->processes_known == !strstr(*call, "Running"));
        }
}

TEST(a_library_of_old_will_do)
{
    fixture_script("driver 450.80\ncuda 11000\n" T4 "event 1 GPU-t4 8 13\n");
    open_library("old/libnvidia-ml.so.1");
    fixture_sample();
    ck_assert_str_eq(sample.cuda, "11.0");
    card_is(0, "0|GPU-t4|Tesla T4|00000000:3B:00.0|ok| minor=1 memoryTotal=16106127360 "
               "memoryFree=15569256448 clockSmMax=1590 clockMemoryMax=5001 "
               "pcieGenerationMax=3 pcieWidthMax=16 powerLimit=70000 utilization=7 "
               "temperature=31 retiredPagesPending=0 events processes 7:2097152:-1 "
               "812:1048576:-1");
    fixture_script(T4 "event 1 GPU-t4 8 13\nevent 2 GPU-t4 8 79\n");
    event_is("xid 79 of 0 GPU-t4");
}

/* "ROW|NUMA|DOWN" of a card. */
static void links_are(size_t i, const char *want)
{
    cleanup_free char *got = xasprintf("%.*s|%lld|%lld", SPAN_ARG(card(i)->links),
                                       (long long)gpu_value(card(i), GPU_NUMA_NODE, -1),
                                       (long long)gpu_value(card(i), GPU_LINKS_DOWN, -1));
    ck_assert_str_eq(got, want);
}

#define LINKED(bus, more)                                                                \
    "card uuid=GPU-" bus ";bus=" bus ";total=1000;free=1000;" more "\n"

TEST(words_between_cards_are_those_of_nvidia_smi)
{
    /* A bridge, and PCIe at every level. */
    opens(LINKED("1a", "links=2:1b,2:down;path=0,10,20,30,40,50;affinity=1")
              LINKED("1b", "links=4:1a;path=10,0,20,30,40,50;affinity=2")
                  LINKED("1c", "links=4:down;path=20,20,0,30,40,50;affinity=3")
                      LINKED("1d", "path=30,30,30,0,40,50")
                          LINKED("1e", "path=40,40,40,40,0,50")
                              LINKED("1f", "path=50,50,50,50,50,0"));
    links_are(0, "X NV2 PXB PHB NODE SYS|0|2");
    links_are(1, "NV4 X PXB PHB NODE SYS|1|0");
    links_are(2, "PXB PXB X PHB NODE SYS|-1|-1");
    links_are(5, "SYS SYS SYS SYS SYS X|-1|-1");
}

TEST(cards_at_switches_have_the_smaller_number_of_links)
{
    opens(LINKED("1a", "links=12:switch;path=0,50,50") LINKED(
        "1b", "links=11:switch,1:down;path=50,0,50") LINKED("1c", "path=50,50,0"));
    links_are(0, "X NV11 SYS|-1|0");
    links_are(1, "NV11 X SYS|-1|1");
    links_are(2, "SYS SYS X|-1|-1");
}

/* Hundreds of calls: not at each sample. */
TEST(links_are_read_again_when_a_card_returns)
{
    opens(LINKED("1a", "links=1:1b;path=0,50") LINKED("1b", "open=15"));
    links_are(0, "X SYS|-1|-1"); /* its bus is not known yet */
    reads(LINKED("1a", "links=1:1b;path=0,50") LINKED("1b", "links=1:1a;path=50,0"));
    links_are(0, "X NV1|-1|0");
    links_are(1, "NV1 X|-1|0");
    reads(LINKED("1a", "path=0,50") LINKED("1b", "open=15"));
    links_are(1, "NV1 X|-1|-1"); /* the last known */
    reads(LINKED("1a", "path=0,50") LINKED("1b", "path=50,0"));
    links_are(0, "X SYS|-1|0");
}

/* Otherwise a pod that demands them could never fit until the card returns. */
TEST(a_lost_card_keeps_its_links)
{
    opens(LINKED("1a", "links=2:1b;path=0,50") LINKED("1b", "links=2:1a;path=50,0"));
    links_are(0, "X NV2|-1|0");
    reads(LINKED("1a", "open=15") LINKED("1b", "links=2:down;path=50,0"));
    links_are(0, "X NV2|-1|-1");
    links_are(1, "NV2 X|-1|0"); /* read then; the next time they are down */
    reads(LINKED("1a", "links=2:down;path=0,50") LINKED("1b", "open=15"));
    links_are(0, "X NV2|-1|2");
    links_are(1, "NV2 X|-1|-1");
}

/* Those of a card that never had one up may lead nowhere. */
TEST(a_card_whose_last_link_goes_down_has_it_down)
{
    opens(LINKED("1a", "links=2:1b;path=0,50,50")
              LINKED("1b", "links=2:1a,2:down;path=50,0,50")
                  LINKED("1c", "links=4:down;path=50,50,0"));
    links_are(0, "X NV2 SYS|-1|0");
    links_are(1, "NV2 X SYS|-1|2");
    links_are(2, "SYS SYS X|-1|-1");
    gpu_reopen(gpu);
    reads(LINKED("1a", "links=2:down;path=0,50,50") LINKED(
        "1b", "links=4:down;path=50,0,50") LINKED("1c", "links=4:down;path=50,50,0"));
    links_are(0, "X SYS SYS|-1|2");
    links_are(1, "SYS X SYS|-1|4");
    links_are(2, "SYS SYS X|-1|-1");
}

TEST(a_pair_that_is_unknown_makes_its_rows_unknown)
{
    opens("fail nvmlDeviceGetTopologyCommonAncestor 999 1\n" LINKED("1a", "path=0,10")
              LINKED("1b", "path=10,0"));
    links_are(0, "X PIX|-1|-1");
    links_are(1, "|-1|-1");
    opens(LINKED("1a", "path=0;affinity=1"));
    links_are(0, "|0|-1");
}

TEST(a_card_in_mig_mode_is_recognized)
{
    opens("card uuid=GPU-0;name=NVIDIA A100;total=1000;free=900;mig=1;events=8\n" T4);
    state_is(0, GPU_MIG, "MIG mode");
    state_is(1, GPU_OK, NULL);
    reads("card uuid=GPU-0;name=NVIDIA A100;mig=1\n" T4);
    state_is(0, GPU_MIG, "MIG mode");
}

TEST(memory_that_is_in_trouble)
{
    static const struct {
        const char *more;
        enum gpu_state state;
        const char *why;
    } cases[] = {
        {"remap=0", GPU_OK, NULL},
        {"remap=1", GPU_WARN, "row remapping is pending until the card is reset"},
        {"remap=2", GPU_ECC, "row remapping failed"},
        {"pages=1", GPU_ECC, "until the driver is reloaded"},
        {"recovery=1;remap=2", GPU_RESET, "a reset of the card"},
        {"recovery=2", GPU_RESET, "a reboot of the node"},
        {"recovery=4", GPU_RESET, "draining and a reset"},
        {"recovery=77", GPU_RESET, "action 77"},
    };
    array_items(c, cases) {
        cleanup_free char *script =
            xasprintf("card uuid=GPU-0;total=1000;free=900;%s\n", c->more);
        opens(script);
        state_is(0, c->state, c->why);
    }
}

/* NVML answers for such a card, and cuInit or cuCtxCreate does not: 46, 802. */
TEST(a_card_on_which_cuda_cannot_start)
{
    static const struct {
        const char *more;
        enum gpu_state state;
        const char *why;
    } cases[] = {
        {"mode=0;fabric=3", GPU_OK, NULL},
        {"mode=0;fabric=0", GPU_OK, NULL},
        {"mode=2", GPU_NOT_READY, "compute mode PROHIBITED"},
        {"mode=1", GPU_WARN, "compute mode EXCLUSIVE_PROCESS"},
        {"mode=3", GPU_WARN, "compute mode EXCLUSIVE_PROCESS"},
        {"mode=7", GPU_OK, NULL},
        {"fabric=1", GPU_NOT_READY, "NVLink fabric has not started"},
        {"fabric=2", GPU_NOT_READY, "NVLink fabric is in progress"},
        {"fabric=2;fabricstatus=999", GPU_NOT_READY, "NVLink fabric is in progress"},
        {"fabric=3;fabricstatus=999", GPU_NOT_READY, "NVLink fabric failed (999)"},
        {"fabric=0;fabricstatus=999", GPU_OK, NULL},
        {"mode=3;fabric=2", GPU_NOT_READY, "is in progress"},
        {"mode=2;pages=1", GPU_ECC, "page retirement"},
    };
    static const char *const libraries[] = {"libnvidia-ml.so.1", "old/libnvidia-ml.so.1"};
    array_items(library, libraries) {
        open_library(*library);
        array_items(c, cases) {
            cleanup_free char *script =
                xasprintf("card uuid=GPU-0;total=1000;free=900;%s\n", c->more);
            reads(script);
            state_is(0, c->state, c->why);
        }
    }
    opens("card uuid=GPU-0;total=1000;free=900;mode=3;remap=1\n");
    state_is(0, GPU_WARN, "until the card is reset; compute mode EXCLUSIVE_PROCESS");
    /* The instances of a card have its compute mode. */
    reads("card uuid=GPU-0;total=1000;free=900;mig=1;mode=2\n"
          "instance card=0;at=0;uuid=MIG-0;name=A100 MIG "
          "1g.10gb;total=9;free=9;gi=1;ci=0\n");
    state_is(0, GPU_MIG, "with 1 instance");
    state_is(1, GPU_NOT_READY, "compute mode PROHIBITED");
}

TEST(figures_that_cannot_be_true)
{
    static const char *const wrong[] = {
        "total=1000;free=900;used=1001;reserved=0",
        "total=1000;free=1001;used=0;reserved=0",
        "total=0;free=0",
        "total=1000;free=0;used=0;reserved=1001",
        "total=18446744073709551615;free=1;used=1;reserved=1",
        "total=1152921504606846977;free=1;used=1;reserved=1",
    };
    array_items(c, wrong) {
        cleanup_free char *script = xasprintf("card uuid=GPU-0;%s\n" T4, *c);
        opens(script);
        state_is(0, GPU_UNREADABLE, "implausible memory values");
        ck_assert(!gpu_knows(card(0), GPU_MEM_TOTAL));
        state_is(1, GPU_OK, NULL);
    }
    /* Used with the reserve in it, and without. */
    opens("card total=1000;free=900;used=100;reserved=40\n"
          "card total=1000;free=900;used=60;reserved=40\n"
          "card total=1000;free=900;used=61;reserved=40\n"
          "fail nvmlDeviceGetMemoryInfo 3 3\n"
          "fail nvmlDeviceGetMemoryInfo_v2 3 3\ncard uuid=GPU-3\n");
    ck_assert_int_eq(card(0)->value[GPU_MEM_USED], 60);
    ck_assert_int_eq(card(1)->value[GPU_MEM_USED], 60);
    ck_assert_int_eq(card(2)->value[GPU_MEM_USED], 21);
    state_is(3, GPU_UNREADABLE, "its memory is that of the system");
}

TEST(memory_of_the_system_has_the_size_of_the_option)
{
    static const char spark[] = "fail nvmlDeviceGetMemoryInfo 3 0\n"
                                "fail nvmlDeviceGetMemoryInfo_v2 3 0\n"
                                "card uuid=GPU-0;name=NVIDIA GB10;processes=7:100,8:50\n";
    opens(spark);
    state_is(0, GPU_UNREADABLE, "--unified-memory does not say");
    cleanup_free char *library = fixture_library("libnvidia-ml.so.1");
    gpu_free(gpu);
    gpu = gpu_nvml_new(library, 1000);
    reads(spark);
    state_is(0, GPU_OK, NULL);
    ck_assert_int_eq(card(0)->value[GPU_MEM_TOTAL], 1000);
    ck_assert_int_eq(card(0)->value[GPU_MEM_USED], 150);
    ck_assert_int_eq(card(0)->value[GPU_MEM_FREE], 850);
    reads("card uuid=GPU-0;total=2000;free=2000;used=0;reserved=0\n");
    ck_assert_int_eq(card(0)->value[GPU_MEM_TOTAL], 2000);
    reads("fail nvmlDeviceGetMemoryInfo 999 0\nfail nvmlDeviceGetMemoryInfo_v2 999 0\n"
          "card uuid=GPU-0\n");
    state_is(0, GPU_UNREADABLE, "cannot read its memory");
}

TEST(names_that_are_none)
{
    opens("driver \x1b[31m535\n"
          "card uuid=GPU-0,GPU-1;name=\xff\xfeTesla\x01 T4\xc2\x85 ;total=9;free=9\n"
          "card uuid=GPU 1;name=;total=9;free=9\n"
          "card uuid=\xc3\xa4;name=K\xc3\xb6ln;total=9;free=9\n");
    ck_assert_str_eq(sample.driver, "?[31m535");
    ck_assert_str_eq(card(0)->uuid, "");
    ck_assert_str_eq(card(0)->model, "??Tesla? T4?");
    ck_assert_str_eq(card(1)->uuid, "");
    ck_assert_str_eq(card(1)->model, "");
    ck_assert_str_eq(card(2)->uuid, "");
    ck_assert_str_eq(card(2)->model, "K\xc3\xb6ln");
}

TEST(the_list_of_processes_grows)
{
    cleanup_buf struct buf script = {0};
    buf_adds(&script, "card total=9;free=9;graphics=40:5,9000:6;processes=");
    for (int i = 0; i < 300; i++)
        buf_printf(&script, "%s%d:%d", i ? "," : "", 300 - i, i == 7 ? -1 : 1000 + i);
    buf_addc(&script, '\n');
    opens(script.p);
    ck_assert(card(0)->processes_known);
    ck_assert_uint_eq(card(0)->n_processes, 301);
    for (size_t i = 0; i < 300; i++)
        ck_assert_int_eq(card(0)->processes[i].pid, (int)i + 1);
    ck_assert_int_eq(card(0)->processes[292].bytes, -1);
    ck_assert_int_eq(card(0)->processes[39].bytes, 1260);
    ck_assert_int_eq(card(0)->processes[300].pid, 9000);
    /* One that always wants more room. */
    reads("fail nvmlDeviceGetComputeRunningProcesses_v2 7\n" T4);
    ck_assert(!card(0)->processes_known);
    state_is(0, GPU_OK, NULL);
}

/* A card with this member and n processes: 1 to n, of 1001 bytes and more. */
static void reads_many(const char *member, int n)
{
    cleanup_buf struct buf script = {0};
    buf_printf(&script, "card total=9;free=9;%s;processes=", member);
    for (int i = 1; i <= n; i++)
        buf_printf(&script, "%s%d:%d", i > 1 ? "," : "", i, 1000 + i);
    buf_addc(&script, '\n');
    reads(script.p);
    state_is(0, GPU_OK, NULL);
}

/* The buffer has room for 32, 64, ... items: one more process than it is the largest list that
 * fits without another try. */
TEST(processes_have_items_of_another_size)
{
    static const int counts[] = {1, 2, 3, 24, 25, 31, 32, 33, 64, 96, 97, 110, 300};
    static const struct {
        const char *library, *member;
        bool known;
    } cases[] = {
        {"libnvidia-ml.so.1", "size_v3=32", true},
        {"libnvidia-ml.so.1", "size_v2=32;size_v3=32", true},
        {"libnvidia-ml.so.1", "size_v2=28", true}, /* of 32, with padding */
        {"libnvidia-ml.so.1", "size_v2=40", true},
        {"libnvidia-ml.so.1", "size_v2=128", true},
        {"libnvidia-ml.so.1", "size_v2=16", false},
        {"libnvidia-ml.so.1", "size_v2=24;unset=1", false},
        {"libnvidia-ml.so.1", "size_v2=32;unset=1", false},
        {"old/libnvidia-ml.so.1", "size=16", true},
        {"old/libnvidia-ml.so.1", "size=24", true},
        {"old/libnvidia-ml.so.1", "size=32", true},
        {"old/libnvidia-ml.so.1", "size=16;unset=1", false},
    };
    array_items(c, cases) {
        open_library(c->library);
        array_items(n, counts) {
            reads_many(c->member, *n);
            ck_assert_msg(card(0)->processes_known == c->known, "%s: %d", c->member, *n);
            ck_assert_uint_eq(card(0)->n_processes, c->known ? (size_t)*n : 0);
            for (int i = 0; c->known && i < *n; i++) {
                ck_assert_int_eq(card(0)->processes[i].pid, i + 1);
                ck_assert_int_eq(card(0)->processes[i].bytes, 1001 + i);
            }
        }
        reads_many(c->member, 0);
        ck_assert(card(0)->processes_known);
    }
    reads_many("size_v2=136", 7); /* more than the room of an item */
    ck_assert(card(0)->processes_known);
}

TEST(a_list_with_an_impossible_process_is_unknown)
{
    static const char *const lists[] = {
        "processes=5:1,0:2",
        "processes=4294967295:1,5:1",
        "processes=5:1,4194304:1",
        "processes=5:1;graphics=0:1",
        "processes=5:1;mps=2779096485:1",
    };
    array_items(c, lists) {
        cleanup_free char *script = xasprintf("card total=9;free=9;%s\n", *c);
        opens(script);
        state_is(0, GPU_OK, NULL);
        ck_assert_msg(!card(0)->processes_known, "%s", *c);
    }
    opens("card total=9;free=9;processes=4194303:1\n");
    ck_assert(card(0)->processes_known);
}

/* What a later driver has behind a struct is not read, and harms nothing. */
TEST(structs_of_a_later_driver_are_larger)
{
    static const char *const libraries[] = {"libnvidia-ml.so.1", "old/libnvidia-ml.so.1"};
    array_items(library, libraries) {
        open_library(*library);
        reads(
            "card "
            "uuid=GPU-0;bus=3b;total=1000;free=900;used=60;reserved=40;util=7;utilmem=1;"
            "recovery=1;mode=0;fabric=3;links=1:5d;spill=60;events=11;processes=\n"
            "card uuid=GPU-1;bus=5d;total=1000;free=900;mig=1;spill=60;links=1:3b\n"
            "instance card=1;at=0;uuid=MIG-0;total=9;free=9;slices=1;mib=900;spill=60\n");
        ck_assert_int_eq(card(0)->value[GPU_MEM_TOTAL], 1000);
        ck_assert_int_eq(card(0)->value[GPU_UTILIZATION], 7);
        ck_assert_str_eq(card(0)->bus_id, "00000000:3B:00.0");
        fixture_script("card uuid=GPU-0;spill=60;events=11\nevent 7 GPU-0 8 79\n");
        event_is("xid 79 of 0 GPU-0");
    }
}

#define CARD "card total=9;free=9;"
#define IS(i)                                                                            \
#i "||||ok| memoryTotal=9 memoryFree=9 memoryUsed=0 memoryReserved=0 processes"

TEST(a_process_is_listed_once)
{
    /* NVML_VALUE_NOT_AVAILABLE, all ones, is neither 0 nor the largest size. */
    opens(CARD "processes=5:100,6:18446744073709551615,7:40;"
               "graphics=5:100,8:3,6:12;mps=7:40,9:2\n");
    card_is(0, IS(0) " 5:100:-1 6:12:-1 7:40:-1 8:3:-1 9:2:-1");
}

TEST(utilization_of_processes)
{
    /* The driver leaves items unset: pid 0, or a percentage beyond 100. Nothing since the
     * window began: NVML_ERROR_NOT_FOUND. Without support it is unknown. */
    opens(CARD "processes=5:1,6:1,7:1;sm=5:40,0:3,6:4294967295\n" CARD
               "processes=5:1;sm=5:40;smage=60000000\n" CARD "processes=5:1\n" CARD
               "processes=5:1;sm=5:40\n"
               "fail nvmlDeviceGetProcessUtilization 7 3\n");
    card_is(0, IS(0) " 5:1:40 6:1:0 7:1:0");
    card_is(1, IS(1) " 5:1:0");
    card_is(2, IS(2) " 5:1:-1");
    card_is(3, IS(3) " 5:1:-1");
}

TEST(more_cards_than_there_can_be)
{
    cleanup_buf struct buf script = {0};
    for (int i = 0; i < GPU_MAX_CARDS; i++)
        buf_printf(&script, "card uuid=GPU-%d;total=9;free=9\n", i);
    opens(script.p);
    ck_assert_uint_eq(sample.n_cards, GPU_MAX_CARDS);
    ck_assert_str_eq(card(63)->uuid, "GPU-63");
    buf_adds(&script, "card uuid=GPU-64;total=9;free=9\n");
    fixture_script(script.p);
    refused(ERR_UNAVAILABLE, "65 cards, more than the limit of 64");
    reads("driver 1\n");
    ck_assert_uint_eq(sample.n_cards, 0);
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
