/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml_fixture.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

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
    refused(ERR_UNAVAILABLE, "libc.so.6 lacks function nvmlInit_v2");
    gpu_reopen(gpu);
}
END_TEST

/* A file below the root, with its directories; `target`: a symbolic link to it. */
static void put(const char *at, const char *target)
{
    cleanup_free char *library = fixture_library("libnvidia-ml.so.1");
    cleanup_free char *path = temp_path(dir, at);
    cleanup_buf struct buf bytes = {0};
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0755);
        *p = '/';
    }
    ck_assert_done(file_read(library, 1 << 24, &bytes, &err), err);
    if (target)
        ck_assert_int_eq(symlink(target, path), 0);
    else
        ck_assert_done(file_write(path, buf_span(&bytes), &err), err);
}

/* Debian's packages of the driver: absolute links, as in the root itself. */
START_TEST(the_library_is_found_in_the_root_of_a_driver)
{
    cleanup_free char *root = temp_path(dir, "driver");
    temp_mkdir(dir, "driver");
    fixture_script(T4);
    gpu = gpu_nvml_new(root);
    refused(ERR_NOT_FOUND, "no libnvidia-ml.so.1 in the library directories below");
    put("driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "/etc/alternatives/nvidia-ml");
    refused(ERR_NOT_FOUND, "no libnvidia-ml.so.1");
    put("driver/etc/alternatives/nvidia-ml", "/opt/libnvidia-ml.so.570.12");
    put("driver/opt/libnvidia-ml.so.570.12", NULL); /* the driver container is ready */
    fixture_sample();
    state_is(0, GPU_OK, NULL);
    /* An update: another directory, which comes first. */
    put("driver/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.580.1");
    temp_write(dir, "driver/usr/lib64/libnvidia-ml.so.580.1", "this is no library");
    gpu_reopen(gpu);
    refused(ERR_NOT_FOUND, "usr/lib64/libnvidia-ml.so.580.1");
}
END_TEST

START_TEST(a_driver_that_comes_goes_and_comes_back)
{
    open_fake("down 9\n" T4);
    refused(ERR_UNAVAILABLE, "Driver Not Loaded (9)");
    refused(ERR_UNAVAILABLE, "initializing");
    fixture_script(T4);
    fixture_sample();
    state_is(0, GPU_OK, NULL);
    fixture_script("down 18\n" T4);
    refused(ERR_UNAVAILABLE, "Driver/library version mismatch (18)");
    struct gpu_event event;
    ck_assert_int_eq(gpu_wait(gpu, 1000, &event, &err), -1);
    fixture_script(T4 H200);
    fixture_sample();
    ck_assert_uint_eq(sample.n_cards, 2);
    /* In the middle of a card, and while events are waited for. */
    fixture_script("fail nvmlDeviceGetTemperature 1 1\n" T4 H200);
    refused(ERR_UNAVAILABLE, "reading a card: Uninitialized (1)");
    fixture_script("fail nvmlDeviceGetHandleByIndex_v2 9 1\n" T4 H200);
    refused(ERR_UNAVAILABLE, "Not Loaded");
    fixture_script(T4 H200);
    fixture_sample();
    fixture_script("down 9\n");
    ck_assert_int_eq(gpu_wait(gpu, 5000, &event, &err), -1);
    ck_assert_has(err.msg, "waiting for events: Driver Not Loaded");
    fixture_script(T4);
    fixture_sample();
    ck_assert_done(gpu_wait(gpu, 0, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_NONE);
}
END_TEST

START_TEST(a_lost_card_keeps_its_name)
{
    open_fake(T4 H200);
    fixture_sample();
    fixture_script(T4 "card uuid=GPU-h200;open=15\n");
    fixture_sample();
    ck_assert_uint_eq(sample.n_cards, 2);
    state_is(0, GPU_OK, NULL);
    state_is(1, GPU_LOST, "GPU is lost (15)");
    ck_assert_str_eq(card(1)->uuid, "GPU-h200");
    ck_assert_str_eq(card(1)->model, "NVIDIA H200");
    ck_assert_str_eq(card(1)->bus_id, "00000000:5D:00.0");
    ck_assert_int_eq(gpu_value(card(1), GPU_MEM_TOTAL, -1), 150754820096);
    ck_assert_int_eq(gpu_value(card(1), GPU_PCIE_GEN_MAX, -1), 5);
    ck_assert(!gpu_knows(card(1), GPU_MEM_FREE));
    ck_assert(!gpu_knows(card(1), GPU_TEMPERATURE));
    /* It answers some calls and not others. */
    fixture_script("fail nvmlDeviceGetMemoryInfo_v2 15 1\n" T4 H200);
    fixture_sample();
    state_is(1, GPU_LOST, "GPU is lost");
    ck_assert_str_eq(card(1)->uuid, "GPU-h200");
    fixture_script("fail nvmlDeviceGetUUID 15 1\n" T4 H200);
    for (int i = 0; i < 2; i++) {
        fixture_sample();
        state_is(1, GPU_LOST, "GPU is lost");
        ck_assert_str_eq(card(1)->uuid, "GPU-h200");
        ck_assert_str_eq(card(1)->model, "NVIDIA H200");
    }
    fixture_script("fail nvmlDeviceGetPowerManagementLimit 16 1\n" T4 H200);
    fixture_sample();
    state_is(1, GPU_LOST, "requires reset (16)");
    ck_assert(!gpu_knows(card(1), GPU_MEM_FREE));
    gpu_reopen(gpu);
    fixture_script(T4 H200);
    fixture_sample();
    state_is(1, GPU_OK, NULL);
    ck_assert(card(1)->events);
}
END_TEST

START_TEST(a_name_is_not_given_to_two_cards)
{
    /* Lost from the beginning: there is no name to know. */
    open_fake("card open=999\n" H200);
    fixture_sample();
    state_is(0, GPU_LOST, "Unknown Error (999)");
    ck_assert_str_eq(card(0)->uuid, "");
    ck_assert_uint_eq(card(0)->known, 0);
    /* The second moves up, and in its old place is one that cannot be opened. */
    gpu_reopen(gpu);
    fixture_script(H200 "card open=15\n");
    fixture_sample();
    ck_assert_str_eq(card(0)->uuid, "GPU-h200");
    state_is(1, GPU_LOST, "GPU is lost");
    ck_assert_str_eq(card(1)->uuid, "");
    /* And down again: what is lost in its old place is not it. */
    fixture_script("card open=15\n" H200);
    fixture_sample();
    state_is(0, GPU_LOST, "GPU is lost");
    ck_assert_str_eq(card(0)->uuid, "");
    state_is(1, GPU_OK, NULL);
    ck_assert_str_eq(card(1)->uuid, "GPU-h200");
    fixture_script(H200 T4 H200);
    fixture_sample();
    state_is(0, GPU_OK, NULL);
    state_is(2, GPU_UNREADABLE, "has the UUID of card 0, GPU-h200");
    ck_assert_str_eq(card(2)->uuid, "");
}
END_TEST

START_TEST(events_are_returned_once)
{
    struct gpu_event event;
    open_fake(T4 H200 "event 5 GPU-t4 8 48\n");
    fixture_sample();
    ck_assert_done(gpu_wait(gpu, 0, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_NONE);
    fixture_script(T4 H200 "event 5 GPU-t4 8 48\nevent 6 GPU-h200 8 79\nevent 7 ? 8 31\n"
                           "event 8 GPU-t4 2 0\nevent 9 GPU-t4 8 18446744073709551615\n");
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.kind, GPU_EVENT_XID);
    ck_assert_int_eq(event.xid, 79);
    ck_assert_str_eq(event.uuid, "GPU-h200");
    ck_assert_int_eq(event.index, 1);
    ck_assert(!gpu_xid_is_application_error(event.xid));
    ck_assert_done(gpu_wait(gpu, 5000, &event, &err), err);
    ck_assert_int_eq(event.xid, 31);
    ck_assert_int_eq(event.index, -1);
    ck_assert_str_eq(event.uuid, "");
    ck_assert(gpu_xid_is_application_error(event.xid));
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
    fixture_sample();
    fixture_script(T4 "card uuid=GPU-h200;open=15\n");
    fixture_sample();
    state_is(1, GPU_LOST, "GPU is lost");
    fixture_script(T4 "card uuid=GPU-h200;open=15\nevent 1 GPU-h200 8 79\n");
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
    fixture_sample();
    ck_assert(!card(0)->events);
    ck_assert_int_eq(gpu_wait(gpu, 60000, &event, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    ck_assert_has(err.msg, "no card supports events");
    fixture_script("card uuid=GPU-0;total=9;free=9;events=0\n"
                   "card uuid=GPU-1;total=9;free=9;events=8\n");
    fixture_sample();
    ck_assert(!card(0)->events && card(1)->events);
    ck_assert_done(gpu_wait(gpu, 0, &event, &err), err);
}
END_TEST

START_TEST(a_broken_event_set_is_recreated)
{
    struct gpu_event event;
    open_fake(T4);
    fixture_sample();
    fixture_script("fail nvmlEventSetWait_v2 15\n" T4);
    ck_assert_int_eq(gpu_wait(gpu, 1000, &event, &err), -1);
    ck_assert_has(err.msg, "GPU is lost");
    ck_assert_int_eq(gpu_wait(gpu, 1000, &event, &err), -1);
    ck_assert_has(err.msg, "no card supports events");
    fixture_script(T4);
    fixture_sample();
    fixture_script(T4 "event 1 GPU-t4 8 79\n");
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
    cleanup_free char *path = fixture_library("libnvidia-ml.so.1");
    void *library = dlopen(path, RTLD_NOW);
    void (*held)(int *, int *);
    void *symbol = dlsym(library, "fake_nvml_held");
    int inits, sets;
    memcpy(&held, &symbol, sizeof held);
    open_fake(T4 H200);
    fixture_sample();
    int files = open_files();
    for (int i = 0; i < 200; i++) {
        fixture_script(i % 2 ? "down 9\n" : "fail nvmlDeviceGetName 18 1\n" T4 H200);
        ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
        held(&inits, &sets);
        ck_assert_int_eq(inits, 0);
        ck_assert_int_eq(sets, 0);
        fixture_script(T4 H200);
        fixture_sample();
        if (i % 3 == 0)
            gpu_reopen(gpu);
        fixture_sample();
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

UNIT_MAIN_AROUND("nvml_trouble", fixture_begin, fixture_end,
                 there_is_no_library_or_it_is_another_one,
                 the_library_is_found_in_the_root_of_a_driver,
                 a_driver_that_comes_goes_and_comes_back, a_lost_card_keeps_its_name,
                 a_name_is_not_given_to_two_cards, events_are_returned_once,
                 an_event_of_a_card_that_is_lost_by_then, cards_without_events,
                 a_broken_event_set_is_recreated, nothing_is_held_that_was_given_back)
