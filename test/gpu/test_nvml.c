/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml_fixture.h"

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
        {GPU_CLOCK_SM_MAX, 1590},
        {GPU_CLOCK_MEM_MAX, 5001},
        {GPU_PCIE_GEN_MAX, 3},
        {GPU_PCIE_WIDTH_MAX, 16},
        {GPU_POWER_LIMIT, 70000},
        {GPU_UTILIZATION, 7},
        {GPU_TEMPERATURE, 31},
        {GPU_PAGES_PENDING, 0},
    };
    open_fake("driver 535.129.03\ncuda 12020\n" T4 H200);
    fixture_sample();
    ck_assert_str_eq(sample.driver, "535.129.03");
    ck_assert_str_eq(sample.cuda, "12.2");
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
    ck_assert_int_eq(gpu_value(c, GPU_PAGES_PENDING, -1), -1);
    ck_assert(c->processes_known && c->n_processes == 0);
    state_is(1, GPU_OK, NULL);
}
END_TEST

START_TEST(a_card_that_supports_nothing_but_memory_is_fine)
{
    open_fake("card total=1000;free=1000\n");
    fixture_sample();
    state_is(0, GPU_OK, NULL);
    ck_assert_uint_eq(card(0)->known, 1U << GPU_MEM_TOTAL | 1U << GPU_MEM_FREE |
                                          1U << GPU_MEM_USED | 1U << GPU_MEM_RESERVED);
    ck_assert_str_eq(card(0)->uuid, "");
    ck_assert_str_eq(card(0)->model, "");
    ck_assert_str_eq(card(0)->bus_id, "");
    ck_assert_str_eq(sample.driver, "");
    ck_assert_str_eq(sample.cuda, "");
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
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetProcessUtilization",
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
            fixture_sample();
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
    fixture_sample();
    ck_assert_int_eq(gpu_value(card(0), GPU_MEM_FREE, -1), 15569256448);
    ck_assert(!gpu_knows(card(0), GPU_MEM_USED));
    ck_assert(!gpu_knows(card(0), GPU_MEM_RESERVED));
    state_is(0, GPU_OK, NULL);
}
END_TEST

START_TEST(a_library_of_old_will_do)
{
    fixture_script("driver 450.80\ncuda 11000\n" T4 "event 1 GPU-t4 8 13\n");
    open_library("old/libnvidia-ml.so.1");
    fixture_sample();
    ck_assert_str_eq(card(0)->uuid, "GPU-t4");
    ck_assert_str_eq(card(0)->bus_id, "00000000:3B:00.0");
    ck_assert_int_eq(gpu_value(card(0), GPU_MEM_TOTAL, -1), 16106127360);
    ck_assert(!gpu_knows(card(0), GPU_MEM_USED));
    ck_assert_uint_eq(card(0)->n_processes, 2);
    ck_assert_int_eq(card(0)->processes[1].bytes, 1048576);
    ck_assert_str_eq(sample.cuda, "11.0");
    fixture_script("driver 450.80\ncuda 11000\n" T4 "event 1 GPU-t4 8 13\n"
                   "event 2 GPU-t4 8 79\n");
    struct gpu_event event;
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_XID);
    ck_assert_int_eq(event.xid, 79);
    ck_assert_str_eq(event.uuid, "GPU-t4");
}
END_TEST

START_TEST(a_card_in_mig_mode_is_recognized)
{
    open_fake("card uuid=GPU-0;name=NVIDIA A100;total=1000;free=900;mig=1;events=8\n" T4);
    fixture_sample();
    state_is(0, GPU_MIG, "MIG mode");
    state_is(1, GPU_OK, NULL);
    fixture_script("card uuid=GPU-0;name=NVIDIA A100;mig=1\n" T4);
    fixture_sample();
    state_is(0, GPU_MIG, "MIG mode");
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
        {"remap=2", GPU_ECC, "row remapping failed"},
        {"pages=1", GPU_ECC, "until the driver is reloaded"},
        {"recovery=1;remap=2", GPU_RESET, "a reset of the card"},
        {"recovery=2", GPU_RESET, "a reboot of the node"},
        {"recovery=4", GPU_RESET, "draining and a reset"},
        {"recovery=77", GPU_RESET, "action 77"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *script =
            xasprintf("card uuid=GPU-0;total=1000;free=900;%s\n", cases[i].more);
        open_fake(script);
        fixture_sample();
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
        fixture_sample();
        state_is(0, GPU_UNREADABLE, "implausible memory values");
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
    fixture_sample();
    ck_assert_int_eq(card(0)->value[GPU_MEM_USED], 60);
    ck_assert_int_eq(card(1)->value[GPU_MEM_USED], 60);
    ck_assert_int_eq(card(2)->value[GPU_MEM_USED], 21);
    state_is(3, GPU_UNREADABLE, "cannot read its memory: Not Supported (3)");
}
END_TEST

START_TEST(names_that_are_none)
{
    static const char text[] =
        "driver \x1b[31m535\n"
        "card uuid=GPU-0,GPU-1;name=\xff\xfeTesla\x01 T4\xc2\x85 ;total=9;free=9\n"
        "card uuid=GPU 1;name=;total=9;free=9\n"
        "card uuid=\xc3\xa4;name=K\xc3\xb6ln;total=9;free=9\n";
    fixture_script(text);
    open_library("libnvidia-ml.so.1");
    fixture_sample();
    ck_assert_str_eq(sample.driver, "?[31m535");
    ck_assert_str_eq(card(0)->uuid, "");
    ck_assert_str_eq(card(0)->model, "??Tesla? T4?");
    ck_assert_str_eq(card(1)->uuid, "");
    ck_assert_str_eq(card(1)->model, "");
    ck_assert_str_eq(card(2)->uuid, "");
    ck_assert_str_eq(card(2)->model, "K\xc3\xb6ln");
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
    fixture_sample();
    ck_assert(card(0)->processes_known);
    ck_assert_uint_eq(card(0)->n_processes, 301);
    for (size_t i = 0; i < 300; i++)
        ck_assert_int_eq(card(0)->processes[i].pid, (int)i + 1);
    ck_assert_int_eq(card(0)->processes[292].bytes, -1);
    ck_assert_int_eq(card(0)->processes[39].bytes, 1260);
    ck_assert_int_eq(card(0)->processes[300].pid, 9000);
    /* One that always wants more room. */
    fixture_script("fail nvmlDeviceGetComputeRunningProcesses_v3 7\n" T4);
    fixture_sample();
    ck_assert(!card(0)->processes_known);
    state_is(0, GPU_OK, NULL);
}
END_TEST

static const struct gpu_process *process_of(size_t i, int64_t pid)
{
    for (size_t k = 0; k < card(i)->n_processes; k++)
        if (card(i)->processes[k].pid == pid)
            return &card(i)->processes[k];
    ck_abort_msg("process %lld is not listed", (long long)pid);
    return NULL;
}

START_TEST(a_process_is_listed_once)
{
    /* NVML_VALUE_NOT_AVAILABLE, all ones, is neither 0 nor the largest size. */
    open_fake("card total=9;free=9;processes=5:100,6:18446744073709551615,7:40;"
              "graphics=5:100,8:3,6:12;mps=7:40,9:2\n");
    fixture_sample();
    ck_assert(card(0)->processes_known);
    ck_assert_uint_eq(card(0)->n_processes, 5);
    ck_assert_int_eq(process_of(0, 5)->bytes, 100);
    ck_assert_int_eq(process_of(0, 6)->bytes, 12);
    ck_assert_int_eq(process_of(0, 7)->bytes, 40);
    ck_assert_int_eq(process_of(0, 8)->bytes, 3);
    ck_assert_int_eq(process_of(0, 9)->bytes, 2);
    ck_assert_int_eq(process_of(0, 5)->sm_percent, -1);
}
END_TEST

START_TEST(a_failed_list_of_processes_is_no_empty_list)
{
    static const char *const calls[] = {"nvmlDeviceGetComputeRunningProcesses_v3",
                                        "nvmlDeviceGetGraphicsRunningProcesses_v3",
                                        "nvmlDeviceGetMPSComputeRunningProcesses_v3"};
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        cleanup_free char *script =
            xasprintf("fail %s 999\ncard total=9;free=9;processes=5:100\n", calls[i]);
        open_fake(script);
        fixture_sample();
        ck_assert_msg(!card(0)->processes_known, "%s", calls[i]);
        state_is(0, GPU_OK, NULL);
        gpu_free(gpu);
    }
    gpu = NULL;
}
END_TEST

START_TEST(utilization_of_processes)
{
    /* The driver leaves items unset: pid 0, or a percentage beyond 100. */
    open_fake("card total=9;free=9;processes=5:1,6:1,7:1;sm=5:40,0:3,6:4294967295\n");
    fixture_sample();
    ck_assert_int_eq(process_of(0, 5)->sm_percent, 40);
    ck_assert_int_eq(process_of(0, 6)->sm_percent, 0);
    ck_assert_int_eq(process_of(0, 7)->sm_percent, 0);
    /* Nothing since the window began: NVML_ERROR_NOT_FOUND. */
    fixture_script("card total=9;free=9;processes=5:1;sm=5:40;smage=60000000\n");
    fixture_sample();
    ck_assert_int_eq(process_of(0, 5)->sm_percent, 0);
    /* Not supported, or failed: unknown. */
    fixture_script("card total=9;free=9;processes=5:1\n");
    fixture_sample();
    ck_assert_int_eq(process_of(0, 5)->sm_percent, -1);
    fixture_script("fail nvmlDeviceGetProcessUtilization 7\n"
                   "card total=9;free=9;processes=5:1;sm=5:40\n");
    fixture_sample();
    ck_assert_int_eq(process_of(0, 5)->sm_percent, -1);
    ck_assert_int_eq(process_of(0, 5)->bytes, 1);
}
END_TEST

START_TEST(more_cards_than_there_can_be)
{
    cleanup_buf struct buf script = {0};
    for (int i = 0; i < GPU_MAX_CARDS; i++)
        buf_printf(&script, "card uuid=GPU-%d;total=9;free=9\n", i);
    open_fake(script.p);
    fixture_sample();
    ck_assert_uint_eq(sample.n_cards, GPU_MAX_CARDS);
    ck_assert_str_eq(card(63)->uuid, "GPU-63");
    buf_adds(&script, "card uuid=GPU-64;total=9;free=9\n");
    fixture_script(script.p);
    refused(ERR_UNAVAILABLE, "65 cards, more than the limit of 64");
    fixture_script("driver 1\n");
    fixture_sample();
    ck_assert_uint_eq(sample.n_cards, 0);
}
END_TEST

UNIT_MAIN_AROUND("nvml", fixture_begin, fixture_end,
                 everything_that_a_card_tells_is_in_the_sample,
                 a_card_that_supports_nothing_but_memory_is_fine, any_call_may_fail,
                 without_version_2_memory_has_no_reserve, a_library_of_old_will_do,
                 a_card_in_mig_mode_is_recognized, memory_that_is_in_trouble,
                 figures_that_cannot_be_true, names_that_are_none,
                 the_list_of_processes_grows, a_process_is_listed_once,
                 a_failed_list_of_processes_is_no_empty_list, utilization_of_processes,
                 more_cards_than_there_can_be)
