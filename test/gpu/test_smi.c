/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fixture.h"

#include <sys/wait.h>

/* The program of `make test-gpu`, against the fake library and an nvidia-smi of ours. */

#define T4                                                                               \
    "driver 535.129.03\ncuda 12020\n"                                                    \
    "card uuid=GPU-t4;name=Tesla T4;bus=3b;minor=1;total=16106127360;free=15569256448;"  \
    "used=3145728;reserved=533725184;maxclock1=1590;maxclock2=5001;"                     \
    "gen=3;width=16;powerlimit=70000;util=7;utilmem=1;temp=31\n"

/* As nvidia-smi of driver 535 writes it. */
#define CSV(uuid, total)                                                                 \
    uuid ", 535.129.03, Tesla T4, 00000000:3B:00.0, " total                              \
         ", 509, 2, 14850, 1590, 5001, 3, 16, 70.00, 33, 5\n"

#define PAIR                                                                             \
    "card uuid=GPU-a;bus=3b;total=1000;free=900;links=2:5d;path=0,50\n"                  \
    "card uuid=GPU-b;bus=5d;total=1000;free=900;links=2:3b;path=50,0\n"
#define TOPO(words)                                                                      \
    "\t\033[4mGPU0\tGPU1\tNIC0\tCPU Affinity\033[0m\nGPU0\t X \t" words                  \
    "\tPIX\t0-7\nGPU1\t" words "\t X \tSYS\t0-7\nNIC0\tPIX\tSYS\t X \n"

/* Lines of `nvidia-smi topo -m`. */
START_TEST(what_connects_the_cards_is_compared)
{
    static const struct {
        const char *topo, *says;
    } cases[] = {
        {TOPO("NV2"), "X NV2 | X NV2"},
        {TOPO("NV4"), "X NV2 | X NV4"},
        {"", "2 unknown to one of them"},
    };
    cleanup_free char *library = fixture_library("libnvidia-ml.so.1");
    const char *build = getenv("GPUSHARE_BUILD");
    cleanup_free char *line = xasprintf("%s/test-gpu '%s' '%s/smi' >'%s/out'",
                                        build ? build : "build", library, dir, dir);
    cleanup_free char *smi =
        xasprintf("if [ \"$1\" = topo ]; then cat '%s/topo'; fi", dir);
    temp_script(dir, "smi", smi);
    fixture_script("driver 1\n" PAIR);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        temp_write(dir, "topo", cases[i].topo);
        ck_assert_int_ne(system(line), -1);
        cleanup_free char *out = temp_read(dir, "out");
        ck_assert_has(out, cases[i].says);
        ck_assert_has(out, i == 1 ? "DIFFERENT  GPU-b"
                           : i    ? "unknown    GPU-b"
                                  : "same       GPU-b");
    }
}
END_TEST

START_TEST(cards_are_compared_with_those_of_nvidia_smi)
{
    static const struct {
        const char *csv, *script;
        int status;
        const char *says[3];
    } cases[] = {
        {CSV("GPU-t4", "15360"),
         T4,
         0,
         {"\"kind\":\"Scv\"", "509 MiB reserved by the driver, 3 in use, 0 processes",
          "0 unknown to one of them\n16 passed, 0 failed"}},
        {CSV("GPU-t4", "15362"),
         T4,
         1,
         {"\"totalMemory\":15360", "15360 | 15362", "15 passed, 1 failed"}},
        {CSV("GPU-t4", "[N/A]"), T4, 0, {"1 unknown to one of them\n15 passed"}},
        {CSV("GPU-t5", "15360"), T4, 1, {"none | GPU-t5", "1 passed, 1 failed"}},
        {CSV("GPU-t4", "15360") "garbage\n", T4, 1, {"none | garbage", ", 2 failed"}},
        {"", T4, 1, {"1 | 0", "0 passed, 1 failed"}},
        {"",
         "down 9\n",
         0,
         {"there is no card to test with: NVML: initializing: Driver Not Loaded (9)"}},
        {"", "driver 1\n", 0, {"NVML knows of none"}},
    };
    cleanup_free char *library = fixture_library("libnvidia-ml.so.1");
    const char *build = getenv("GPUSHARE_BUILD");
    cleanup_free char *line = xasprintf("%s/test-gpu '%s' '%s/smi' >'%s/out'",
                                        build ? build : "build", library, dir, dir);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *smi = xasprintf("cat '%s/csv'", dir);
        temp_script(dir, "smi", smi);
        temp_write(dir, "csv", cases[i].csv);
        fixture_script(cases[i].script);
        int rc = system(line);
        cleanup_free char *out = temp_read(dir, "out");
        ck_assert_msg(WIFEXITED(rc) && WEXITSTATUS(rc) == cases[i].status, "%d: %s", rc,
                      out);
        for (size_t k = 0; k < ARRAY_LEN(cases[i].says) && cases[i].says[k]; k++)
            ck_assert_has(out, cases[i].says[k]);
    }
}
END_TEST

UNIT_MAIN_AROUND("smi", fixture_begin, fixture_end,
                 cards_are_compared_with_those_of_nvidia_smi,
                 what_connects_the_cards_is_compared)
