/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fake_cuda.h"
#include "gpu/fixture.h"

#include <sys/wait.h>

/* The program of `make test-gpu` for libgpushare-limit.so, with drivers without a card. */

#define CARD_WITH(more)                                                                  \
    "driver 535.129.03\ncuda 12020\n"                                                    \
    "card uuid=GPU-00010203-0405-0607-0809-0a0b0c0d0e0f;name=Tesla T4;bus=3b;"           \
    "total=17179869184;free=17179869184;used=0;reserved=0" more "\n"
#define CARD CARD_WITH("")

/* Found first, so that no test starts the real daemon. */
static void without_mps(void)
{
    temp_script(dir, "nvidia-cuda-mps-control", "exit 1");
}

/* What the program prints, with a script of the fake NVML. */
static char *said(const char *script, int status)
{
    const char *build = getenv("GPUSHARE_BUILD");
    cleanup_free char *relative = fixture_library("libnvidia-ml.so.1");
    cleanup_free char *library = realpath(relative, NULL);
    cleanup_free char *root = realpath(build ? build : "build", NULL);
    fixture_script(script);
    cleanup_free char *line =
        xasprintf("LD_LIBRARY_PATH='%s/fake-cuda:%s/fake-nvml/guest' PYTHONPATH='%s' "
                  "TMPDIR='%s' PATH='%s:%s' GUEST='%s/test/limit/guest/guest' "
                  "'%s/test-gpu-limit' '%s' >'%s/out' 2>&1",
                  root, root, dir, dir, dir, getenv("PATH"), root, root, library, dir);
    int rc = system(line);
    cleanup_free char *out = temp_read(dir, "out");
    ck_assert_msg(WIFEXITED(rc) && WEXITSTATUS(rc) == status, "%d: %s", rc, out);
    return xstrdup(out);
}

START_TEST(without_a_card_it_is_skipped)
{
    cleanup_free char *none = said("down 9\n", 0);
    ck_assert_has(none, "skipped, because there is no card to test with: NVML: "
                        "initializing: Driver Not Loaded (9)");
    cleanup_free char *empty = said("driver 1\n", 0);
    ck_assert_has(empty, "NVML knows of none");
}
END_TEST

START_TEST(a_card_gives_a_table)
{
    without_mps();
    temp_write(dir, "torch.py", "raise ImportError\n");
    cleanup_free char *out = said(CARD, 0);
    ck_assert_has(out, "| 2000 of 2048 MiB | allocated | allocated |\n"
                       "| 2100 of 2048 MiB | out of memory | out of memory |\n");
    ck_assert_has(out, "| 1200 MiB more, in another process | out of memory | out of");
    ck_assert_has(out,
                  "| 1200 MiB, in a process of a neighbor | allocated | allocated |");
    ck_assert_has(out, "| 1200 MiB, after SIGKILL | allocated | allocated |");
    ck_assert_has(out, "skipped: there is no PyTorch that finds the card");
    ck_assert_has(out, "9 passed, 0 failed, ");
    ck_assert_has(out, "| functions that are not replaced | listed | ");
    ck_assert_has(out, " cuMemCreate_v2 ");
    ck_assert_ptr_null(strstr(out, " cuMemAlloc_v2 "));
}
END_TEST

/* A card whose NVML shows the driver's books. */
START_TEST(what_the_library_counts_is_what_nvml_shows)
{
    without_mps();
    temp_write(dir, "torch.py", "raise ImportError\n");
    struct fake_books books = {.capacity = 1ull << 40, .watch = 1ull << 40};
    temp_write_bytes(dir, "books", (struct span){(const char *)&books, sizeof books});
    cleanup_free char *path = temp_path(dir, "books");
    setenv("FAKE_CUDA_BOOKS", path, 1);
    cleanup_free char *out = said(CARD_WITH(";books=0"), 0);
    unsetenv("FAKE_CUDA_BOOKS");
    ck_assert_has(out, "| NVML's memory of a process | at least 1200 MiB | 1204 MiB, of "
                       "which 4 MiB are the context |\n"
                       "| the same, as the library counts it | NVML's within 64 MiB | "
                       "1204 MiB, of which 4 MiB are the context |\n");
}
END_TEST

/* A PyTorch that allocates as the guest does, and a card that is always of 2048 MiB. */
START_TEST(pytorch_is_asked_where_there_is_one)
{
    without_mps();
    temp_write(dir, "torch.py",
               "import os\n"
               "uint8 = None\n"
               "class OutOfMemoryError(Exception): pass\n"
               "class cuda:\n"
               "    OutOfMemoryError = OutOfMemoryError\n"
               "    is_available = lambda: True\n"
               "    mem_get_info = lambda: (0, 2048 << 20)\n"
               "def empty(n, dtype, device):\n"
               "    if os.system(f'$GUEST more dlsym {n >> 20} >/dev/null'):\n"
               "        raise OutOfMemoryError\n");
    cleanup_free char *out = said(CARD, 0);
    ck_assert_has(out,
                  "| PyTorch: mem_get_info | 2048 MiB in total | 2048 MiB in total |");
    ck_assert_has(out, "| PyTorch: 2100 of 2048 MiB | out of memory | out of memory |");
    ck_assert_has(out, "| PyTorch: 1200 MiB beside 1200 MiB of another process | out of "
                       "memory | out of memory |");
    ck_assert_has(out, "13 passed, 0 failed, ");
}
END_TEST

START_TEST(a_file_that_cannot_be_written_fails)
{
    without_mps();
    temp_write(dir, "torch.py",
               "import glob, os\n"
               "os.mkdir(glob.glob(os.environ['TMPDIR'] + '/test-gpu.*')[0] + "
               "'/torch-test.py')\n"
               "class cuda:\n"
               "    is_available = lambda: True\n");
    cleanup_free char *out = said(CARD, 1);
    ck_assert_has(out, "| PyTorch | a file | cannot be written (DIFFERENT) |");
    ck_assert_has(out, "9 passed, 1 failed, ");
}
END_TEST

/* The driver without a card knows no MPS, so its clients are not limited. */
START_TEST(what_differs_fails)
{
    temp_write(dir, "torch.py", "raise ImportError\n");
    temp_script(dir, "nvidia-cuda-mps-control",
                "[ -d \"$CUDA_MPS_PIPE_DIRECTORY\" ] && cat >\"$0.in\" || exit 1");
    cleanup_free char *out = said(CARD, 1);
    ck_assert_has(out,
                  "| MPS: 800 of 1024 MiB, another client | allocated | allocated |");
    ck_assert_has(out, "| MPS: 1100 of 1024 MiB, another client | out of memory | "
                       "allocated (DIFFERENT) |");
    ck_assert_has(out, "11 passed, 1 failed, ");
    /* A client that hangs does not keep the daemon. */
    cleanup_free char *in = temp_read(dir, "nvidia-cuda-mps-control.in");
    ck_assert_str_eq(in, "quit -t 10\n");
}
END_TEST

UNIT_MAIN_AROUND("real_limit", fixture_begin, fixture_end, without_a_card_it_is_skipped,
                 a_card_gives_a_table, what_the_library_counts_is_what_nvml_shows,
                 pytorch_is_asked_where_there_is_one, a_file_that_cannot_be_written_fails,
                 what_differs_fails)
