/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fixture.h"
#include "gpu/smi.h"

#include <sys/wait.h>

/* As nvidia-smi of driver 535 writes it, without what nobody asks for. */
#define XML(total, uuid)                                                                 \
    "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "                         \
    "\"nvsmi_device_v12.dtd\">\n"                                                        \
    "<nvidia_smi_log>\n<driver_version>535.129.03</driver_version>\n"                    \
    "<cuda_version>12.2</cuda_version>\n<attached_gpus>1</attached_gpus>\n"              \
    "<gpu id=\"00000000:3B:00.0\">\n<product_name>Tesla T4</product_name>\n"             \
    "<mig_mode>\n<current_mig>N/A</current_mig></mig_mode>\n"                            \
    "<uuid>" uuid "</uuid>\n<minor_number>1</minor_number>\n"                            \
    "<pci><pci_bus_id>00000000:3B:00.0</pci_bus_id><pci_gpu_link_info><pcie_gen>\n"      \
    "<max_link_gen>3</max_link_gen></pcie_gen><link_widths>\n"                           \
    "<max_link_width>16x</max_link_width></link_widths></pci_gpu_link_info></pci>\n"     \
    "<fb_memory_usage><total>" total "</total><reserved>509 MiB</reserved>\n"            \
    "<used>2 MiB</used><free>14850 MiB</free></fb_memory_usage>\n"                       \
    "<utilization><gpu_util>5 %</gpu_util></utilization>\n"                              \
    "<temperature><gpu_temp>33 C</gpu_temp></temperature>\n"                             \
    "<gpu_power_readings><current_power_limit>70.00 W</current_power_limit>\n"           \
    "</gpu_power_readings><max_clocks><graphics_clock>1590 MHz</graphics_clock>\n"       \
    "<sm_clock>1590 MHz</sm_clock><mem_clock>5001 MHz</mem_clock></max_clocks>\n"        \
    "</gpu></nvidia_smi_log>\n"

#define T4                                                                               \
    "driver 535.129.03\ncuda 12020\n"                                                    \
    "card uuid=GPU-t4;name=Tesla T4;bus=3b;minor=1;total=16106127360;free=15569256448;"  \
    "used=3145728;reserved=533725184;maxclock1=1590;maxclock2=5001;"                \
    "gen=3;width=16;powerlimit=70000;util=7;utilmem=1;temp=31\n"

static struct smi_result compared(const char *xml, const char *part)
{
    cleanup_free char *library = fixture_library("libnvidia-ml.so.1");
    cleanup_buf struct buf out = {0};
    fixture_script(T4);
    gpu_free(gpu);
    gpu = gpu_nvml_new(library);
    fixture_sample();
    struct smi_result r = smi_compare(&out, &sample, span_of(xml));
    ck_assert_has(out.p, part);
    return r;
}

START_TEST(what_is_the_same_is_found_to_be)
{
    struct smi_result r = compared(XML("15360 MiB", "GPU-t4"), "Tesla T4 | Tesla T4");
    ck_assert_uint_eq(r.different, 0);
    ck_assert_uint_eq(r.same, 17);
    ck_assert_uint_eq(r.unknown, 0);
}
END_TEST

START_TEST(what_differs_is_found)
{
    struct smi_result r = compared(XML("15362 MiB", "GPU-t4"), "15360 | 15362 MiB");
    ck_assert_uint_eq(r.different, 1);
    ck_assert_uint_eq(r.same, 16);
    r = compared(XML("[N/A]", "GPU-t4"), "unknown");
    ck_assert_uint_eq(r.unknown, 1);
    r = compared(XML("15360 MiB", "GPU-t5"), "GPU-t4 | nothing");
    ck_assert_uint_eq(r.different, 1);
    r = compared("", "DIFFERENT");
    ck_assert_uint_eq(r.different, 2);
    ck_assert_uint_eq(r.same, 0);
    r = compared("<gpu <gpu> <gpu id=\"<\"> </gpu", "DIFFERENT");
    ck_assert_uint_eq(r.same, 0);
}
END_TEST

/* The program of `make test-gpu`, against the fake library and an nvidia-smi of ours. */
static char *said(const char *xml, const char *script, int status)
{
    cleanup_free char *library = fixture_library("libnvidia-ml.so.1");
    cleanup_free char *smi = temp_path(dir, "smi"), *xml_path = temp_path(dir, "xml");
    cleanup_free char *out = temp_path(dir, "out");
    cleanup_free char *text = xasprintf("[ \"$*\" = '-q -x' ] && cat '%s'", xml_path);
    const char *build = getenv("GPUSHARE_BUILD");
    temp_script(dir, "smi", text);
    temp_write(dir, "xml", xml);
    fixture_script(script);
    cleanup_free char *line = xasprintf("%s/test-gpu '%s' '%s' >'%s'",
                                        build ? build : "build", library, smi, out);
    int rc = system(line);
    ck_assert(WIFEXITED(rc));
    ck_assert_int_eq(WEXITSTATUS(rc), status);
    return temp_read(dir, "out");
}

START_TEST(the_program_says_what_it_found)
{
    cleanup_free char *good = said(XML("15360 MiB", "GPU-t4"), T4, 0);
    ck_assert_has(good, "\"kind\":\"Scv\"");
    ck_assert_has(good, "\"totalMemory\":15360");
    ck_assert_has(good, "509 MiB reserved by the driver, 3 in use, 0 processes");
    ck_assert_has(good, "17 passed, 0 failed");
    cleanup_free char *bad = said(XML("15350 MiB", "GPU-t4"), T4, 1);
    ck_assert_has(bad, "16 passed, 1 failed");
    cleanup_free char *none = said("", "down 9\n", 0);
    ck_assert_has(none, "there is no card to test with: NVML: initializing: the NVIDIA "
                        "driver is not loaded (9)");
    cleanup_free char *empty = said("", "driver 1\n", 0);
    ck_assert_has(empty, "NVML knows of none");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {what_is_the_same_is_found_to_be, what_differs_is_found,
                                  the_program_says_what_it_found};
    return unit_run_with(
        "smi", tests, ARRAY_LEN(tests), 60,
        &(struct unit_fixtures){.begin = fixture_begin, .end = fixture_end});
}
