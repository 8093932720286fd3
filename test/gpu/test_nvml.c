/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/rig.h"

#include <dirent.h>
#include <dlfcn.h>

#define T4                                                                               \
    "card uuid=GPU-t4;name=Tesla T4;bus=3b;minor=1;total=16106127360;free=15569256448;"  \
    "used=3145728;reserved=533725184;maxclock0=1590;maxclock1=1590;maxclock2=5001;"      \
    "clock0=300;clock1=300;clock2=405;gen=3;width=16;powerlimit=70000;power=9000;"       \
    "util=7;utilmem=1;temp=31;ecc0=3;ecc1=0;pages=0;events=11;"                          \
    "processes=812:1048576,7:2097152\n"
#define H200                                                                             \
    "card uuid=GPU-h200;name=NVIDIA H200;bus=5d;minor=0;total=150754820096;"             \
    "free=150198026240;used=0;reserved=556793856;maxclock1=1980;maxclock2=3201;gen=5;"   \
    "width=16;powerlimit=700000;util=0;utilmem=0;temp=27;remap=0;recovery=0;mig=0;"      \
    "events=11;processes=\n"

static void open_library(const char *name)
{
    cleanup_free char *library = rig_library(name);
    gpu = gpu_nvml_new(library);
}

static void open_fake(const char *script)
{
    rig_script(script);
    open_library("libnvidia-ml.so.1");
}

static void refused(enum err_code code, const char *words)
{
    err = (struct err){0};
    ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
    ck_assert_int_eq(err.code, code);
    ck_assert_has(err.msg, words);
    ck_assert_uint_eq(sample.n_cards, 0);
}

static const struct gpu_card *card(size_t i)
{
    ck_assert_uint_lt(i, sample.n_cards);
    return &sample.cards[i];
}

/* The state and, unless it is ok, a part of the reason. */
static void state_is(size_t i, enum gpu_state state, const char *why)
{
    ck_assert_msg(card(i)->state == state, "card %zu is %s (%s)", i,
                  gpu_state_name(card(i)->state), card(i)->why);
    if (why)
        ck_assert_has(card(i)->why, why);
    else
        ck_assert_str_eq(card(i)->why, "");
}

START_TEST(everything_that_a_card_tells_is_in_the_sample)
{
    static const struct {
        enum gpu_metric metric;
        int64_t value;
    } want[] = {
        {GPU_MINOR, 1},
        {GPU_MEM_TOTAL, 16106127360},
        {GPU_MEM_FREE, 15569256448},
        {GPU_MEM_USED, 3145728},
        {GPU_MEM_RESERVED, 533725184},
        {GPU_CLOCK_GRAPHICS_MAX, 1590},
        {GPU_CLOCK_SM_MAX, 1590},
        {GPU_CLOCK_MEM_MAX, 5001},
        {GPU_CLOCK_GRAPHICS, 300},
        {GPU_CLOCK_SM, 300},
        {GPU_CLOCK_MEM, 405},
        {GPU_PCIE_GEN_MAX, 3},
        {GPU_PCIE_WIDTH_MAX, 16},
        {GPU_POWER_LIMIT, 70000},
        {GPU_POWER, 9000},
        {GPU_UTILIZATION, 7},
        {GPU_UTILIZATION_MEM, 1},
        {GPU_TEMPERATURE, 31},
        {GPU_ECC_CORRECTED, 3},
        {GPU_ECC_UNCORRECTED, 0},
        {GPU_PAGES_PENDING, 0},
    };
    open_fake("driver 535.129.03\ncuda 12020\n" T4 H200);
    rig_sample();
    ck_assert_str_eq(sample.driver, "535.129.03");
    ck_assert_int_eq(sample.cuda_major, 12);
    ck_assert_int_eq(sample.cuda_minor, 2);
    ck_assert_uint_eq(sample.n_cards, 2);
    const struct gpu_card *c = card(0);
    ck_assert_int_eq(c->index, 0);
    ck_assert_str_eq(c->uuid, "GPU-t4");
    ck_assert_str_eq(c->model, "Tesla T4");
    ck_assert_str_eq(c->bus_id, "00000000:3B:00.0");
    ck_assert(c->events);
    uint32_t known = 0;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        ck_assert_msg(c->value[want[i].metric] == want[i].value, "%s is %ld",
                      gpu_metric_name(want[i].metric), (long)c->value[want[i].metric]);
        known |= UINT32_C(1) << want[i].metric;
    }
    ck_assert_uint_eq(c->known, known);
    ck_assert(c->processes_known);
    ck_assert_uint_eq(c->n_processes, 2);
    ck_assert_int_eq(c->processes[0].pid, 7);
    ck_assert_int_eq(c->processes[0].bytes, 2097152);
    ck_assert_int_eq(c->processes[1].pid, 812);
    state_is(0, GPU_OK, NULL);
    c = card(1);
    ck_assert_int_eq(gpu_value(c, GPU_RECOVERY, -1), 0);
    ck_assert_int_eq(gpu_value(c, GPU_MIG_MODE, -1), 0);
    ck_assert_int_eq(gpu_value(c, GPU_REMAP_FAILED, -1), 0);
    ck_assert_int_eq(gpu_value(c, GPU_CLOCK_GRAPHICS_MAX, -1), -1);
    ck_assert(c->processes_known && c->n_processes == 0);
    state_is(1, GPU_OK, NULL);
}
END_TEST

START_TEST(a_card_that_supports_nothing_but_memory_is_fine)
{
    open_fake("card total=1000;free=1000\n");
    rig_sample();
    state_is(0, GPU_OK, NULL);
    ck_assert_uint_eq(card(0)->known, 1U << GPU_MEM_TOTAL | 1U << GPU_MEM_FREE |
                                          1U << GPU_MEM_USED | 1U << GPU_MEM_RESERVED);
    ck_assert_str_eq(card(0)->uuid, "");
    ck_assert_str_eq(card(0)->model, "");
    ck_assert_str_eq(card(0)->bus_id, "");
    ck_assert_str_eq(sample.driver, "");
    ck_assert_int_eq(sample.cuda_major, 0);
    ck_assert(!card(0)->processes_known && !card(0)->events);
}
END_TEST

START_TEST(any_call_may_fail)
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
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlEventSetCreate",
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlDeviceRegisterEvents",
    };
    static const int codes[] = {3, 4, 13, 999, 12345};
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        for (size_t k = 0; k < ARRAY_LEN(codes); k++) {
            cleanup_free char *script =
                xasprintf("fail %s %d\n" T4 H200, calls[i], codes[k]);
            open_fake(script);
            rig_sample();
            ck_assert_msg(card(0)->state == GPU_OK && card(1)->state == GPU_OK, "%s",
                          calls[i]);
            ck_assert(gpu_knows(card(0), GPU_MEM_TOTAL));
            gpu_free(gpu);
        }
    gpu = NULL;
}
END_TEST

START_TEST(without_version_2_memory_has_no_reserve)
{
    static const char script[] = "fail nvmlDeviceGetMemoryInfo_v2 25\n" T4;
    open_fake(script);
    rig_sample();
    ck_assert_int_eq(gpu_value(card(0), GPU_MEM_FREE, -1), 15569256448);
    ck_assert(!gpu_knows(card(0), GPU_MEM_USED));
    ck_assert(!gpu_knows(card(0), GPU_MEM_RESERVED));
    state_is(0, GPU_OK, NULL);
}
END_TEST

START_TEST(a_library_of_old_will_do)
{
    rig_script("driver 390.1\ncuda 9010\n" T4 "event 1 GPU-t4 8 13\n");
    open_library("old/libnvidia-ml.so.1");
    rig_sample();
    ck_assert_str_eq(card(0)->uuid, "GPU-t4");
    ck_assert_str_eq(card(0)->bus_id, "00000000:3B:00.0");
    ck_assert_int_eq(gpu_value(card(0), GPU_MEM_TOTAL, -1), 16106127360);
    ck_assert(!gpu_knows(card(0), GPU_MEM_USED));
    ck_assert_uint_eq(card(0)->n_processes, 2);
    ck_assert_int_eq(card(0)->processes[1].bytes, 1048576);
    ck_assert_int_eq(sample.cuda_major, 9);
    ck_assert_int_eq(sample.cuda_minor, 1);
    rig_script("driver 390.1\ncuda 9010\n" T4 "event 1 GPU-t4 8 13\n"
               "event 2 GPU-t4 8 79\n");
    struct gpu_event event;
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_XID);
    ck_assert_int_eq(event.xid, 79);
    ck_assert_str_eq(event.uuid, "GPU-t4");
}
END_TEST

START_TEST(there_is_no_library_or_it_is_another_one)
{
    cleanup_free char *path = temp_path(dir, "none.so");
    gpu = gpu_nvml_new(path);
    refused(ERR_NOT_FOUND, "none.so");
    struct gpu_event event;
    ck_assert_int_eq(gpu_wait(gpu, 1000, &event, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    temp_write(dir, "none.so", "this is no library");
    refused(ERR_NOT_FOUND, "none.so");
    gpu_free(gpu);
    gpu = gpu_nvml_new("libc.so.6");
    refused(ERR_UNAVAILABLE, "libc.so.6 has no function nvmlInit_v2");
    gpu_reopen(gpu);
}
END_TEST

START_TEST(a_driver_that_comes_goes_and_comes_back)
{
    open_fake("down 9\n" T4);
    refused(ERR_UNAVAILABLE, "the NVIDIA driver is not loaded (9)");
    refused(ERR_UNAVAILABLE, "initialising");
    rig_script(T4);
    rig_sample();
    state_is(0, GPU_OK, NULL);
    rig_script("down 18\n" T4);
    refused(ERR_UNAVAILABLE, "driver and library are of different versions (18)");
    struct gpu_event event;
    ck_assert_int_eq(gpu_wait(gpu, 1000, &event, &err), -1);
    rig_script(T4 H200);
    rig_sample();
    ck_assert_uint_eq(sample.n_cards, 2);
    /* In the middle of a card, and while events are waited for. */
    rig_script("fail nvmlDeviceGetTemperature 1 1\n" T4 H200);
    refused(ERR_UNAVAILABLE, "reading a card: NVML is not initialised (1)");
    rig_script("fail nvmlDeviceGetHandleByIndex_v2 9 1\n" T4 H200);
    refused(ERR_UNAVAILABLE, "not loaded");
    rig_script(T4 H200);
    rig_sample();
    rig_script("down 9\n");
    ck_assert_int_eq(gpu_wait(gpu, 5000, &event, &err), -1);
    ck_assert_has(err.msg, "waiting for events: the NVIDIA driver is not loaded");
    rig_script(T4);
    rig_sample();
    ck_assert_done(gpu_wait(gpu, 0, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_NONE);
}
END_TEST

START_TEST(a_lost_card_keeps_its_name)
{
    open_fake(T4 H200);
    rig_sample();
    rig_script(T4 "card uuid=GPU-h200;open=15\n");
    rig_sample();
    ck_assert_uint_eq(sample.n_cards, 2);
    state_is(0, GPU_OK, NULL);
    state_is(1, GPU_LOST, "fell off the bus (15)");
    ck_assert_str_eq(card(1)->uuid, "GPU-h200");
    ck_assert_str_eq(card(1)->model, "NVIDIA H200");
    ck_assert_str_eq(card(1)->bus_id, "00000000:5D:00.0");
    ck_assert_int_eq(gpu_value(card(1), GPU_MEM_TOTAL, -1), 150754820096);
    ck_assert_int_eq(gpu_value(card(1), GPU_PCIE_GEN_MAX, -1), 5);
    ck_assert(!gpu_knows(card(1), GPU_MEM_FREE));
    ck_assert(!gpu_knows(card(1), GPU_TEMPERATURE));
    /* It answers some calls and not others. */
    rig_script("fail nvmlDeviceGetMemoryInfo_v2 15 1\n" T4 H200);
    rig_sample();
    state_is(1, GPU_LOST, "fell off the bus");
    ck_assert_str_eq(card(1)->uuid, "GPU-h200");
    rig_script("fail nvmlDeviceGetUUID 15 1\n" T4 H200);
    for (int i = 0; i < 2; i++) {
        rig_sample();
        state_is(1, GPU_LOST, "fell off the bus");
        ck_assert_str_eq(card(1)->uuid, "GPU-h200");
        ck_assert_str_eq(card(1)->model, "NVIDIA H200");
    }
    rig_script("fail nvmlDeviceGetPowerManagementLimit 16 1\n" T4 H200);
    rig_sample();
    state_is(1, GPU_LOST, "has to be reset (16)");
    ck_assert(!gpu_knows(card(1), GPU_MEM_FREE));
    gpu_reopen(gpu);
    rig_script(T4 H200);
    rig_sample();
    state_is(1, GPU_OK, NULL);
    ck_assert(card(1)->events);
}
END_TEST

START_TEST(a_name_is_not_given_to_two_cards)
{
    /* Lost from the beginning: there is no name to know. */
    open_fake("card open=999\n" H200);
    rig_sample();
    state_is(0, GPU_LOST, "an error of the driver (999)");
    ck_assert_str_eq(card(0)->uuid, "");
    ck_assert_uint_eq(card(0)->known, 0);
    /* The second moves up, and in its old place is one that cannot be opened. */
    gpu_reopen(gpu);
    rig_script(H200 "card open=15\n");
    rig_sample();
    ck_assert_str_eq(card(0)->uuid, "GPU-h200");
    state_is(1, GPU_LOST, "fell off the bus");
    ck_assert_str_eq(card(1)->uuid, "");
    /* And down again: what is lost in its old place is not it. */
    rig_script("card open=15\n" H200);
    rig_sample();
    state_is(0, GPU_LOST, "fell off the bus");
    ck_assert_str_eq(card(0)->uuid, "");
    state_is(1, GPU_OK, NULL);
    ck_assert_str_eq(card(1)->uuid, "GPU-h200");
    rig_script(H200 T4 H200);
    rig_sample();
    state_is(0, GPU_OK, NULL);
    state_is(2, GPU_UNREADABLE, "has the uuid of card 0, GPU-h200");
    ck_assert_str_eq(card(2)->uuid, "");
}
END_TEST

START_TEST(a_card_in_instances_is_told_apart)
{
    open_fake("card uuid=GPU-0;name=NVIDIA A100;total=1000;free=900;mig=1;events=8\n" T4);
    rig_sample();
    state_is(0, GPU_MIG, "MIG is enabled");
    state_is(1, GPU_OK, NULL);
    rig_script("card uuid=GPU-0;name=NVIDIA A100;mig=1\n" T4);
    rig_sample();
    state_is(0, GPU_MIG, "MIG is enabled");
}
END_TEST

START_TEST(memory_that_is_in_trouble)
{
    static const struct {
        const char *more;
        enum gpu_state state;
        const char *why;
    } cases[] = {
        {"remap=0", GPU_OK, NULL},
        {"remap=1", GPU_OK, NULL},
        {"remap=2", GPU_ECC, "could not be remapped"},
        {"pages=1", GPU_ECC, "until the driver is reloaded"},
        {"ecc0=5;ecc1=2", GPU_OK, NULL},
        {"recovery=1;remap=2", GPU_RESET, "a reset of the card"},
        {"recovery=2", GPU_RESET, "a reboot of the node"},
        {"recovery=4", GPU_RESET, "draining and a reset"},
        {"recovery=77", GPU_RESET, "action 77"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *script =
            xasprintf("card uuid=GPU-0;total=1000;free=900;%s\n", cases[i].more);
        open_fake(script);
        rig_sample();
        state_is(0, cases[i].state, cases[i].why);
        gpu_free(gpu);
    }
    gpu = NULL;
}
END_TEST

START_TEST(figures_that_cannot_be_true)
{
    static const char *const wrong[] = {
        "total=1000;free=900;used=1001;reserved=0",
        "total=1000;free=1001;used=0;reserved=0",
        "total=0;free=0",
        "total=1000;free=0;used=0;reserved=1001",
        "total=18446744073709551615;free=1;used=1;reserved=1",
        "total=1152921504606846977;free=1;used=1;reserved=1",
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        cleanup_free char *script = xasprintf("card uuid=GPU-0;%s\n" T4, wrong[i]);
        open_fake(script);
        rig_sample();
        state_is(0, GPU_UNREADABLE, "its memory cannot be as it says");
        ck_assert(!gpu_knows(card(0), GPU_MEM_TOTAL));
        state_is(1, GPU_OK, NULL);
        gpu_free(gpu);
    }
    /* Used with the reserve in it, and without. */
    open_fake("card total=1000;free=900;used=100;reserved=40\n"
              "card total=1000;free=900;used=60;reserved=40\n"
              "card total=1000;free=900;used=61;reserved=40\n"
              "fail nvmlDeviceGetMemoryInfo 3 3\n"
              "fail nvmlDeviceGetMemoryInfo_v2 3 3\ncard uuid=GPU-3\n");
    rig_sample();
    ck_assert_int_eq(card(0)->value[GPU_MEM_USED], 60);
    ck_assert_int_eq(card(1)->value[GPU_MEM_USED], 60);
    ck_assert_int_eq(card(2)->value[GPU_MEM_USED], 21);
    state_is(3, GPU_UNREADABLE, "its memory cannot be read: not supported (3)");
}
END_TEST

START_TEST(names_that_are_none)
{
    static const char text[] =
        "driver \x1b[31m535\n"
        "card uuid=GPU-0,GPU-1;name=\xff\xfeTesla\x01 T4\xc2\x85 ;total=9;free=9\n"
        "card uuid=GPU 1;name=;total=9;free=9\n"
        "card uuid=\xc3\xa4;name=K\xc3\xb6ln;total=9;free=9\n";
    rig_script(text);
    open_library("libnvidia-ml.so.1");
    rig_sample();
    ck_assert_str_eq(sample.driver, "?[31m535");
    ck_assert_str_eq(card(0)->uuid, "");
    ck_assert_str_eq(card(0)->model, "??Tesla? T4?");
    ck_assert_str_eq(card(1)->uuid, "");
    ck_assert_str_eq(card(1)->model, "");
    ck_assert_str_eq(card(2)->uuid, "");
    ck_assert_str_eq(card(2)->model, "K\xc3\xb6ln");
    cleanup_buf struct buf again = {0};
    gpu_sample_write(&again, &sample);
    ck_assert_has(again.p, "K\xc3\xb6ln");
}
END_TEST

START_TEST(the_list_of_processes_grows)
{
    cleanup_buf struct buf script = {0};
    buf_adds(&script, "card total=9;free=9;graphics=40:5,9000:6;processes=");
    for (int i = 0; i < 300; i++)
        buf_printf(&script, "%s%d:%d", i ? "," : "", 300 - i, i == 7 ? -1 : 1000 + i);
    buf_addc(&script, '\n');
    open_fake(script.p);
    rig_sample();
    ck_assert(card(0)->processes_known);
    ck_assert_uint_eq(card(0)->n_processes, 301);
    for (size_t i = 0; i < 300; i++)
        ck_assert_int_eq(card(0)->processes[i].pid, (int)i + 1);
    ck_assert_int_eq(card(0)->processes[292].bytes, -1);
    ck_assert_int_eq(card(0)->processes[39].bytes, 1260);
    ck_assert_int_eq(card(0)->processes[300].pid, 9000);
    /* One that always wants more room. */
    rig_script("fail nvmlDeviceGetComputeRunningProcesses_v3 7\n" T4);
    rig_sample();
    ck_assert(!card(0)->processes_known);
    state_is(0, GPU_OK, NULL);
}
END_TEST

START_TEST(more_cards_than_there_can_be)
{
    cleanup_buf struct buf script = {0};
    for (int i = 0; i < GPU_MAX_CARDS; i++)
        buf_printf(&script, "card uuid=GPU-%d;total=9;free=9\n", i);
    open_fake(script.p);
    rig_sample();
    ck_assert_uint_eq(sample.n_cards, GPU_MAX_CARDS);
    ck_assert_str_eq(card(63)->uuid, "GPU-63");
    buf_adds(&script, "card uuid=GPU-64;total=9;free=9\n");
    rig_script(script.p);
    refused(ERR_UNAVAILABLE, "65 cards; there can be no more than 64");
    rig_script("driver 1\n");
    rig_sample();
    ck_assert_uint_eq(sample.n_cards, 0);
}
END_TEST

START_TEST(events_are_told_once)
{
    struct gpu_event event;
    open_fake(T4 H200 "event 5 GPU-t4 8 48\n");
    rig_sample();
    ck_assert_done(gpu_wait(gpu, 0, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_NONE);
    rig_script(T4 H200 "event 5 GPU-t4 8 48\nevent 6 GPU-h200 8 79\nevent 7 ? 8 31\n"
                       "event 8 GPU-t4 2 0\nevent 9 GPU-t4 8 18446744073709551615\n");
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_XID);
    ck_assert_int_eq(event.xid, 79);
    ck_assert_str_eq(event.uuid, "GPU-h200");
    ck_assert_int_eq(event.index, 1);
    ck_assert(!gpu_xid_is_of_program(event.xid));
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.xid, 31);
    ck_assert_int_eq(event.index, -1);
    ck_assert_str_eq(event.uuid, "");
    ck_assert(gpu_xid_is_of_program(event.xid));
    /* The T4 has but XIDs and double bit errors; the latter were asked for. */
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_ECC);
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.xid, 999);
    ck_assert_done(gpu_wait(gpu, 10, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_NONE);
    ck_assert_int_eq(event.index, -1);
}
END_TEST

START_TEST(an_event_of_a_card_that_is_lost_by_then)
{
    struct gpu_event event;
    open_fake(T4 H200);
    rig_sample();
    rig_script(T4 "card uuid=GPU-h200;open=15\n");
    rig_sample();
    state_is(1, GPU_LOST, "fell off the bus");
    rig_script(T4 "card uuid=GPU-h200;open=15\nevent 1 GPU-h200 8 79\n");
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.xid, 79);
    ck_assert_int_eq(event.index, 1);
    ck_assert_str_eq(event.uuid, "GPU-h200");
}
END_TEST

START_TEST(cards_without_events)
{
    struct gpu_event event;
    open_fake("card uuid=GPU-0;total=9;free=9;events=0\n");
    rig_sample();
    ck_assert(!card(0)->events);
    ck_assert_int_eq(gpu_wait(gpu, 60000, &event, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    ck_assert_has(err.msg, "no card tells its events");
    rig_script("card uuid=GPU-0;total=9;free=9;events=0\n"
               "card uuid=GPU-1;total=9;free=9;events=8\n");
    rig_sample();
    ck_assert(!card(0)->events && card(1)->events);
    ck_assert_done(gpu_wait(gpu, 0, &event, &err), err);
}
END_TEST

START_TEST(a_set_that_broke_is_made_anew)
{
    struct gpu_event event;
    open_fake(T4);
    rig_sample();
    rig_script("fail nvmlEventSetWait_v2 15\n" T4);
    ck_assert_int_eq(gpu_wait(gpu, 1000, &event, &err), -1);
    ck_assert_has(err.msg, "fell off the bus");
    ck_assert_int_eq(gpu_wait(gpu, 1000, &event, &err), -1);
    ck_assert_has(err.msg, "no card tells its events");
    rig_script(T4);
    rig_sample();
    rig_script(T4 "event 1 GPU-t4 8 79\n");
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.xid, 79);
}
END_TEST

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

START_TEST(nothing_is_held_that_was_given_back)
{
    cleanup_free char *path = rig_library("libnvidia-ml.so.1");
    void *library = dlopen(path, RTLD_NOW);
    void (*held)(int *, int *);
    void *symbol = dlsym(library, "fake_nvml_held");
    int inits, sets;
    memcpy(&held, &symbol, sizeof held);
    open_fake(T4 H200);
    rig_sample();
    int files = open_files();
    for (int i = 0; i < 200; i++) {
        rig_script(i % 2 ? "down 9\n" : "fail nvmlDeviceGetName 18 1\n" T4 H200);
        ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
        held(&inits, &sets);
        ck_assert_int_eq(inits, 0);
        ck_assert_int_eq(sets, 0);
        rig_script(T4 H200);
        rig_sample();
        if (i % 3 == 0)
            gpu_reopen(gpu);
        rig_sample();
        held(&inits, &sets);
        ck_assert_int_eq(inits, 1);
        ck_assert_int_eq(sets, 1);
    }
    ck_assert_int_eq(open_files(), files);
    gpu_free(gpu);
    gpu = NULL;
    held(&inits, &sets);
    ck_assert_int_eq(inits, 0);
    ck_assert_int_eq(sets, 0);
    dlclose(library);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        everything_that_a_card_tells_is_in_the_sample,
        a_card_that_supports_nothing_but_memory_is_fine,
        any_call_may_fail,
        without_version_2_memory_has_no_reserve,
        a_library_of_old_will_do,
        there_is_no_library_or_it_is_another_one,
        a_driver_that_comes_goes_and_comes_back,
        a_lost_card_keeps_its_name,
        a_name_is_not_given_to_two_cards,
        a_card_in_instances_is_told_apart,
        memory_that_is_in_trouble,
        figures_that_cannot_be_true,
        names_that_are_none,
        the_list_of_processes_grows,
        more_cards_than_there_can_be,
        events_are_told_once,
        an_event_of_a_card_that_is_lost_by_then,
        cards_without_events,
        a_set_that_broke_is_made_anew,
        nothing_is_held_that_was_given_back,
    };
    return unit_run_with("nvml", tests, ARRAY_LEN(tests), 60,
                         &(struct unit_fixtures){.begin = rig_begin, .end = rig_end});
}
