/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml_fixture.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include "base/file.h"

TEST(there_is_no_library_or_it_is_another_one)
{
    cleanup_free char *path = temp_path(dir, "none.so");
    gpu = gpu_nvml_new(path, 0);
    refused(ERR_NOT_FOUND, "none.so");
    no_events("not initialized");
    temp_write(dir, "none.so", "this is no library");
    refused(ERR_NOT_FOUND, "none.so");
    gpu_free(gpu);
    gpu = gpu_nvml_new("libc.so.6", 0);
    refused(ERR_UNAVAILABLE, "libc.so.6 lacks function nvmlInit_v2");
    gpu_reopen(gpu);
}

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
TEST(the_library_is_found_in_the_root_of_a_driver)
{
    cleanup_free char *root = temp_path(dir, "driver");
    temp_mkdir(dir, "driver");
    fixture_script(T4);
    gpu = gpu_nvml_new(root, 0);
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

TEST(a_driver_that_comes_goes_and_comes_back)
{
    fixture_script("down 9\n" T4);
    open_library("libnvidia-ml.so.1");
    refused(ERR_UNAVAILABLE, "Driver Not Loaded (9)");
    refused(ERR_UNAVAILABLE, "initializing");
    reads(T4);
    state_is(0, GPU_OK, NULL);
    fixture_script("down 18\n" T4);
    refused(ERR_GONE, "Driver/library version mismatch (18)");
    fixture_script("down 999\n" T4);
    refused(ERR_GONE, "(999)");
    no_events("not initialized");
    reads(T4 H200);
    ck_assert_uint_eq(sample.n_cards, 2);
    /* In the middle of a card, and while events are waited for. */
    fixture_script("fail nvmlDeviceGetTemperature 1 1\n" T4 H200);
    refused(ERR_UNAVAILABLE, "reading a card: Uninitialized (1)");
    fixture_script("fail nvmlDeviceGetHandleByIndex_v2 9 1\n" T4 H200);
    refused(ERR_UNAVAILABLE, "Not Loaded");
    reads(T4 H200);
    fixture_script("down 9\n");
    no_events("waiting for events: Driver Not Loaded");
    reads(T4);
    event_is("none");
}

/* What does not change is known of it. */
#define LOST(why)                                                                        \
    "1|GPU-h200|NVIDIA H200|00000000:5D:00.0|lost: " why "| minor=0 "                    \
    "memoryTotal=150754820096 memoryReserved=556793856 clockSmMax=1980 "                 \
    "clockMemoryMax=3201 pcieGenerationMax=5 "                                           \
    "pcieWidthMax=16 powerLimit=700000"

TEST(a_lost_card_keeps_its_name)
{
    static const struct {
        const char *script, *is;
    } cases[] = {
        {T4 "card uuid=GPU-h200;open=15\n", LOST("GPU is lost (15)")},
        /* It answers some calls and not others. */
        {"fail nvmlDeviceGetMemoryInfo_v2 15 1\n" T4 H200, LOST("GPU is lost (15)")},
        {"fail nvmlDeviceGetUUID 15 1\n" T4 H200, LOST("GPU is lost (15)")},
        {"fail nvmlDeviceGetUUID 15 1\n" T4 H200, LOST("GPU is lost (15)")},
        {"fail nvmlDeviceGetPowerManagementLimit 16 1\n" T4 H200,
         LOST("GPU requires reset (16)")},
    };
    opens(T4 H200);
    array_items(c, cases) {
        reads(c->script);
        ck_assert_uint_eq(sample.n_cards, 2);
        state_is(0, GPU_OK, NULL);
        card_is(1, c->is);
    }
    gpu_reopen(gpu);
    reads(T4 H200);
    state_is(1, GPU_OK, NULL);
    ck_assert(card(1)->events);
}

TEST(a_name_is_not_given_to_two_cards)
{
    /* Lost from the beginning: there is no name to know. */
    opens("card open=999\n" H200);
    card_is(0, "0||||lost: Unknown Error (999)|");
    /* The second moves up, and in its old place is one that cannot be opened. */
    gpu_reopen(gpu);
    reads(H200 "card open=15\n");
    ck_assert_str_eq(card(0)->uuid, "GPU-h200");
    card_is(1, "1||||lost: GPU is lost (15)|");
    /* And down again: what is lost in its old place is not it. */
    reads("card open=15\n" H200);
    card_is(0, "0||||lost: GPU is lost (15)|");
    state_is(1, GPU_OK, NULL);
    ck_assert_str_eq(card(1)->uuid, "GPU-h200");
    reads(H200 T4 H200);
    state_is(0, GPU_OK, NULL);
    state_is(2, GPU_UNREADABLE, "has the UUID of card 0, GPU-h200");
    ck_assert_str_eq(card(2)->uuid, "");
}

TEST(events_are_returned_once)
{
    opens(T4 H200 "event 5 GPU-t4 8 48\n");
    event_is("none");
    fixture_script(T4 H200 "event 5 GPU-t4 8 48\nevent 6 GPU-h200 8 79\nevent 7 ? 8 31\n"
                           "event 8 GPU-t4 2 0\nevent 9 GPU-t4 8 18446744073709551615\n");
    event_is("xid 79 of 1 GPU-h200");
    event_is("xid 31 of -1 ");
    /* The T4 has but XIDs and double bit errors; the latter were asked for. */
    event_is("ecc 0 of 0 GPU-t4");
    event_is("xid 999 of 0 GPU-t4");
    event_is("none");
    /* A card that is lost by then. */
    reads(T4 "card uuid=GPU-h200;open=15\n");
    state_is(1, GPU_LOST, "GPU is lost");
    fixture_script(T4 "card uuid=GPU-h200;open=15\nevent 10 GPU-h200 8 79\n");
    event_is("xid 79 of 1 GPU-h200");
}

TEST(cards_without_events)
{
    opens("card uuid=GPU-0;total=9;free=9;events=0\n");
    ck_assert(!card(0)->events);
    ck_assert_str_eq(card(0)->unchecked, "its XIDs are not watched: Not Supported (3)");
    no_events("no card supports events");
    reads("card uuid=GPU-0;total=9;free=9;events=0\n"
          "card uuid=GPU-1;total=9;free=9;events=8\n");
    ck_assert(!card(0)->events && card(1)->events);
    event_is("none");
}

TEST(a_broken_event_set_is_recreated)
{
    opens(T4);
    fixture_script("fail nvmlEventSetWait_v2 15\n" T4);
    no_events("GPU is lost");
    no_events("no card supports events");
    reads(T4);
    fixture_script(T4 "event 1 GPU-t4 8 79\n");
    event_is("xid 79 of 0 GPU-t4");
}

/* A check that cannot run must not read as one that passes. What a card does not have, and
 * what a driver does not know, is no such check. */
TEST(checks_that_cannot_run)
{
#define XIDS "its XIDs are not watched: "
    static const struct {
        const char *script, *unchecked;
        bool events;
    } cases[] = {
        {"", "", true},
        {"fail nvmlDeviceRegisterEvents 3 1\n", XIDS "Not Supported (3)", false},
        {"fail nvmlDeviceRegisterEvents 999\n", XIDS "Unknown Error (999)", false},
        {"fail nvmlEventSetCreate 999\n", XIDS "Unknown Error (999)", false},
        {"fail nvmlDeviceGetSupportedEventTypes 999\n", "", true},
        {"fail nvmlDeviceGetRetiredPagesPendingStatus 999\n",
         "its retired pages cannot be read: Unknown Error (999)", true},
        {"fail nvmlDeviceGetRetiredPagesPendingStatus 3\n", "", true},
        {"fail nvmlDeviceGetRemappedRows 999\nfail nvmlDeviceGetComputeMode 4 1\n",
         "its remapped rows cannot be read: Unknown Error (999); "
         "its compute mode cannot be read: Unknown Error (4)",
         true},
        {"fail nvmlDeviceGetGpuFabricInfoV 25\n", "", true},
        {"fail nvmlDeviceGetGpuFabricInfoV 999\nfail nvmlDeviceGetGpuFabricInfo 999\n",
         "its NVLink fabric cannot be read: Unknown Error (999)", true},
        {"fail nvmlDeviceGetFieldValues 2\n", "", true},
        {"fail nvmlDeviceGetFieldValues 999\n",
         "its recovery action cannot be read: Unknown Error (999)", true},
        {"fail nvmlDeviceGetMigMode 999\n",
         "its MIG mode cannot be read: Unknown Error (999)", true},
        {"fail nvmlDeviceGetMigMode 13\nfail nvmlDeviceGetRemappedRows 13\n", "", true},
    };
    array_items(c, cases) {
        cleanup_free char *script = xasprintf("%s%s%s", c->script, T4, H200);
        opens(script);
        state_is(1, GPU_OK, NULL);
        ck_assert_msg(!strcmp(card(1)->unchecked, c->unchecked), "%s: %s", c->script,
                      card(1)->unchecked);
        ck_assert(card(1)->events == c->events);
    }
    opens(
        "card uuid=GPU-0;total=9;free=9;events=2\n"); /* ECC errors are watched, XIDs not */
    ck_assert(!card(0)->events);
    ck_assert_str_eq(card(0)->unchecked, XIDS "Not Supported (3)");
    /* A lost card has one reason. */
    opens("fail nvmlDeviceGetComputeMode 999\n" T4);
    reads("fail nvmlDeviceGetComputeMode 999\ncard open=15\n");
    ck_assert_str_eq(card(0)->unchecked, "");
    /* The events of an instance are those of its card. */
    opens("fail nvmlDeviceRegisterEvents 3\n"
          "card uuid=GPU-0;name=NVIDIA "
          "A100;total=1000;free=900;mig=1;instances=7;events=8\n"
          "instance card=0;at=2;uuid=MIG-2;name=NVIDIA A100 MIG "
          "1g.10gb;total=900;free=900\n");
    ck_assert_str_eq(card(1)->parent_uuid, "GPU-0");
    ck_assert_str_eq(card(1)->unchecked, XIDS "Not Supported (3)");
}

TEST(events_that_fail_again_and_again_are_not_watched)
{
    opens(T4);
    for (int i = 0; i < 3; i++) {
        ck_assert(card(0)->events == (i < 2));
        fixture_script("fail nvmlEventSetWait_v2 999\n" T4);
        no_events("Unknown Error (999)");
        fixture_sample();
    }
    ck_assert_str_eq(card(0)->unchecked, XIDS "Unknown Error (999)");
    fixture_script(T4);
    event_is("none");
    fixture_sample();
    ck_assert(card(0)->events);
    ck_assert_str_eq(card(0)->unchecked, "");
}

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

TEST(nothing_is_held_that_was_given_back)
{
    cleanup_free char *path = fixture_library("libnvidia-ml.so.1");
    void *library = dlopen(path, RTLD_NOW);
    void (*held)(int *, int *);
    void *symbol = dlsym(library, "fake_nvml_held");
    int inits, sets;
    memcpy(&held, &symbol, sizeof held);
    opens(T4 H200);
    int files = open_files();
    for (int i = 0; i < 200; i++) {
        fixture_script(i % 2 ? "down 9\n" : "fail nvmlDeviceGetName 18 1\n" T4 H200);
        ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
        held(&inits, &sets);
        ck_assert_int_eq(inits, 0);
        ck_assert_int_eq(sets, 0);
        reads(T4 H200);
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

/* The fake library lets a program do what the real one lets nvidia-smi do. */
TEST(a_shutdown_with_a_set_of_events_is_legal)
{
    cleanup_free char *path = fixture_library("libnvidia-ml.so.1");
    void *library = dlopen(path, RTLD_NOW), *set = NULL;
    int (*init)(unsigned), (*create)(void **), (*shutdown)(void);
    memcpy(&init, &(void *){dlsym(library, "nvmlInitWithFlags")}, sizeof init);
    memcpy(&create, &(void *){dlsym(library, "nvmlEventSetCreate")}, sizeof create);
    memcpy(&shutdown, &(void *){dlsym(library, "nvmlShutdown")}, sizeof shutdown);
    fixture_script(T4);
    ck_assert(init && create && shutdown);
    ck_assert_int_eq(init(0), 0);
    ck_assert_int_eq(create(&set), 0);
    ck_assert_int_eq(shutdown(), 0);
    ck_assert_int_eq(shutdown(), 1);
    free(set);
    dlclose(library);
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
