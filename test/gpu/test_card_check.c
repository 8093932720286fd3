/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fake_cuda.h"
#include "gpu/fixture.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* gpushare-card-check with the fake drivers, an nvidia-smi of ours and a /dev of ours. */

#define UUID "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
#define CARD_WITH(more)                                                                  \
    "driver 535.129.03\ncuda 12020\n"                                                    \
    "card uuid=" UUID ";name=Tesla T4;bus=3b;minor=1;total=17179869184;"                 \
    "free=17179869184;used=0;reserved=0;maxclock1=1590;temp=31" more "\n"
#define CARD CARD_WITH("")

/* As nvidia-smi of driver 535 writes it. */
#define CSV(uuid, total)                                                                 \
    uuid ", 535.129.03, Tesla T4, 00000000:3B:00.0, " total                              \
         ", 0, 0, 16384, 1590, 5001, 3, 16, 70.00, 33, 5\n"

#define PAIR                                                                             \
    "driver 1\n"                                                                         \
    "card uuid=GPU-a;bus=3b;total=1000;free=900;links=2:5d;path=0,50\n"                  \
    "card uuid=GPU-b;bus=5d;total=1000;free=900;links=2:3b;path=50,0\n"
#define TOPO(words)                                                                      \
    "\t\033[4mGPU0\tGPU1\tNIC0\tCPU Affinity\033[0m\nGPU0\t X \t" words                  \
    "\tPIX\t0-7\nGPU1\t" words "\t X \tSYS\t0-7\nNIC0\tPIX\tSYS\t X \n"

static char *folder(const char *name)
{
    cleanup_free char *relative = xasprintf(
        "%s/%s", getenv("GPUSHARE_BUILD") ? getenv("GPUSHARE_BUILD") : "build", name);
    char *path = realpath(relative, NULL);
    ck_assert_msg(path != NULL, "%s", relative);
    return path;
}

/* The report, with these operands. Its temporary folder is empty afterwards. */
static char *report(const char *operands, int status)
{
    cleanup_free char *build = folder("");
    cleanup_free char *tmp = temp_path(dir, "tmp");
    mkdir(tmp, 0755);
    cleanup_free char *line = xasprintf(
        "LD_LIBRARY_PATH='%s/fake-cuda:%s/fake-nvml/guest' TMPDIR='%s' PYTHONPATH='%s' "
        "FAKE_LIMITS='%s/limits' FAKE_CGROUP_ROOT='%s/cgroup' "
        "PATH='%s:%s' GUEST='%s/gpushare-card-guest' '%s/gpushare-card-check' "
        "--nvml-library '%s/fake-nvml/libnvidia-ml.so.1' --nvidia-smi '%s/smi' "
        "--root '%s' --cgroup-root '%s/cgroup' %s >'%s/out' 2>&1 && rmdir '%s' || { "
        "rc=$?; rmdir '%s' && exit $rc; "
        "}",
        build, build, tmp, dir, dir, dir, dir, getenv("PATH"), build, build, build, dir,
        dir, dir, operands, dir, tmp, tmp);
    int rc = system(line);
    cleanup_free char *out = temp_read(dir, "out");
    ck_assert_msg(WIFEXITED(rc) && WEXITSTATUS(rc) == status, "%d: %s", rc, out);
    return steal(&out);
}

static void says(const char *script, const char *operands, int status,
                 const char *const *parts)
{
    fixture_script(script);
    cleanup_free char *out = report(operands, status);
    for (; *parts; parts++)
        ck_assert_has(out, *parts);
}
#define SAYS(script, operands, status, ...)                                              \
    says(script, operands, status, (const char *const[]){__VA_ARGS__, NULL})

static void smi_prints(const char *text)
{
    cleanup_free char *smi = xasprintf("cat '%s/text'", dir);
    temp_write(dir, "text", text);
    temp_script(dir, "smi", smi);
}

/* The step `symbols` reads the driver's libraries, and needs no card. The fake driver has one
 * function of the future. */
TEST(without_a_card_only_the_libraries_are_checked)
{
    SAYS("driver 1\n", "", 1, "gpushare-card-check " GPUSHARE_VERSION ", report 1, ",
         "not present  cards      no card to check: NVML knows of none\n",
         "not present  mps        no card", "ok           symbols    functions of ",
         "1 ok, 1 differ, 10 not present\n");
    SAYS("driver 1\n", "--nvml-library /nonexistent/libnvidia-ml.so.1", 1,
         "not present  cards      no card to check: NVML: /nonexistent/",
         "1 ok, 1 differ, 10 not present\n");
    SAYS(
        "down 9\n", "nvml symbols", 1,
        "differs      nvml       no card to check: NVML: initializing: Driver Not Loaded "
        "(9)\n",
        "ok           symbols    functions of ", "1 ok, 2 differ, 0 not present\n");
    SAYS("", "everything", 2, "there is no step everything");
}

TEST(cards_are_those_of_nvidia_smi)
{
    temp_script(dir, "smi", "exit 9");
    SAYS(CARD, "cards", 1, "differs      cards      ", "exit status 9:\n");
    smi_prints(CSV(UUID, "16384"));
    SAYS(CARD, "cards", 0, "ok           cards      driver 535.129.03, CUDA 12.2\n",
         "memoryTotal: NVML 16384, nvidia-smi 16384\n",
         "not present  cards      " UUID " powerLimit: NVML , nvidia-smi 70.00\n",
         "ok           cards      cards: NVML 1, nvidia-smi 1\n", " 0 differ, ");
    smi_prints(CSV(UUID, "16386") CSV("GPU-\033[31m", "1"));
    SAYS(CARD, "cards", 1,
         "differs      cards      " UUID " memoryTotal: NVML 16384, nvidia-smi 16386\n",
         "differs      cards      card uuid: NVML none, nvidia-smi GPU-?[31m\n",
         "differs      cards      cards: NVML 1, nvidia-smi 2\n", " 3 differ, ");
}

TEST(every_field_has_a_line)
{
    SAYS(CARD, "nvml", 0, "ok           nvml       " UUID " state: ok\n",
         "ok           nvml       " UUID " memoryTotal: 17179869184\n",
         "ok           nvml       " UUID " temperature: 31\n",
         "not present  nvml       " UUID " powerLimit\n");
    SAYS(CARD_WITH(";open=15"), "nvml", 1, "state: lost ");
    SAYS("fail nvmlDeviceGetMemoryInfo 999\nfail nvmlDeviceGetMemoryInfo_v2 999\n"
         "" CARD,
         "nvml", 1, "state: unreadable ", " 1 differ, ");
    /* The driver before version 2 lacks functions. */
    cleanup_free char *old = folder("fake-nvml/old/libnvidia-ml.so.1");
    cleanup_free char *operands = xasprintf("--nvml-library '%s' nvml", old);
    SAYS(CARD, operands, 0, "not present  nvml       " UUID " memoryReserved\n");
}

TEST(instances_are_those_of_nvidia_smi)
{
    static const char script[] =
        "driver 1\ncard uuid=GPU-0;bus=3b;total=9000;free=9000;mig=1;instances=7\n"
        "instance card=0;at=2;uuid=MIG-2;name=NVIDIA A100 MIG 1g.10gb;total=900;"
        "free=900;gi=9;ci=0\n";
    SAYS(CARD, "mig", 0, "not present  mig        no card is in MIG mode\n");
    smi_prints("GPU 0: A100 (UUID: GPU-0)\n  MIG 1g.10gb Device 0: (UUID: MIG-2)\n");
    SAYS(script, "mig", 0, "ok           mig        MIG-2, 1g.10gb of GPU-0: ");
    smi_prints("GPU 0: A100 (UUID: GPU-0)\n");
    SAYS(script, "mig", 1, "differs      mig        MIG-2, ");
}

TEST(what_connects_the_cards_is_compared)
{
    smi_prints(TOPO("NV2"));
    SAYS(PAIR, "topology", 0,
         "ok           topology   GPU-a links: NVML X NV2, nvidia-smi X NV2\n",
         "2 ok, 0 differ");
    smi_prints(TOPO("NV4"));
    SAYS(PAIR, "topology", 1,
         "differs      topology   GPU-b links: NVML NV2 X, nvidia-smi NV4 X\n");
    smi_prints("");
    SAYS(PAIR, "topology", 0, "2 not present\n");
}

/* A row of nvidia-smi has a word for each card; an instance has no row, and no links. */
TEST(instances_do_not_count_as_cards_that_are_connected)
{
    static const char instances[] =
        "driver 1\n"
        "card uuid=GPU-a;bus=3b;total=9000;free=9000;path=0,30;mig=1;instances=7\n"
        "card uuid=GPU-b;bus=5d;total=9000;free=9000;path=30,0;mig=1;instances=7\n"
        "instance card=0;at=0;uuid=MIG-1;name=A MIG 1g.10gb;total=9;free=9;gi=9;ci=0\n"
        "instance card=1;at=0;uuid=MIG-2;name=A MIG 1g.10gb;total=9;free=9;gi=9;ci=0\n";
    smi_prints(TOPO("PHB"));
    SAYS(instances, "topology", 0,
         "ok           topology   GPU-a links: NVML X PHB, nvidia-smi X PHB\n",
         "2 ok, 0 differ, 0 not present\n");
    smi_prints(TOPO("PIX"));
    SAYS(instances, "topology", 1,
         "differs      topology   GPU-b links: NVML PHB X, nvidia-smi PIX X\n");
    SAYS("driver 1\n"
         "card uuid=GPU-a;bus=3b;total=9000;free=9000;mig=1;instances=7\n"
         "instance card=0;at=0;uuid=MIG-1;name=A MIG 1g.10gb;total=9;free=9;gi=9;ci=0\n",
         "topology", 0, "not present  topology   one card has no links\n");
}

TEST(the_files_of_the_container_are_listed)
{
    SAYS(CARD, "container", 1, "differs      container  /dev/nvidia1 is missing\n",
         "not present  container  /proc/driver/nvidia/version\n");
    cleanup_free char *make = xasprintf(
        "cd '%s' && mkdir -p dev proc/self proc/driver/nvidia/gpus/0000:3b:00.0 && "
        "touch dev/nvidiactl dev/nvidia-uvm dev/nvidia1 && "
        "echo 'tmpfs /usr/bin/nvidia-smi ext4 ro 0 0' >proc/self/mounts && "
        "echo 'NVRM version: 535.129.03' >proc/driver/nvidia/version",
        dir);
    ck_assert_int_eq(system(make), 0);
    SAYS(
        CARD, "container", 0, "ok           container  /dev/nvidia1\n",
        "ok           container  /proc/driver/nvidia/version: NVRM version: 535.129.03\n",
        "ok           container  /proc/driver/nvidia/gpus: 1, NVML 1\n",
        "fake-cuda/libcuda.so.1\n",
        "ok           container  mounted: /usr/bin/nvidia-smi\n");
    temp_write(dir, "proc/driver/nvidia/version", "NVRM version: 470\n");
    SAYS(CARD, "container", 1, "differs      container  /proc/driver/nvidia/version: ");
}

/* The fake driver has one function of the future. */
TEST(functions_that_are_not_replaced_are_listed)
{
    fixture_script(CARD);
    cleanup_free char *out = report("symbols", 1);
    ck_assert_has(out, "differs      symbols    cuMemCreate_v2 allocates, and "
                       "libgpushare-limit.so does not replace it\n");
    ck_assert_has(out, " are replaced, ");
    ck_assert_has(out, "1 ok, 1 differ, 0 not present\n");
}

/* A card whose NVML shows the driver's books. */
TEST(the_limit_holds_in_processes_of_c)
{
    struct fake_books books = {.capacity = 1ull << 40, .watch = 1ull << 40};
    temp_write_bytes(dir, "books", (struct span){(const char *)&books, sizeof books});
    cleanup_free char *path = temp_path(dir, "books");
    setenv("FAKE_CUDA_BOOKS", path, 1);
    SAYS(CARD_WITH(";books=0"), "limit", 0,
         "ok           limit      3000 MiB, without the library: allocated\n",
         "ok           limit      2100 of 2048 MiB: out of memory\n",
         "ok           limit      1200 MiB more, in another process: out of memory\n",
         "ok           limit      1200 MiB, in a process of a neighbor: allocated\n",
         "NVML 1204 MiB, of which 4 MiB are the context\n",
         "counts 1204 MiB, of which 4 MiB are the context\n",
         "ok           limit      1200 MiB, after SIGKILL: allocated\n",
         "10 ok, 0 differ, 0 not present\n");
    unsetenv("FAKE_CUDA_BOOKS");
}

TEST(the_limit_holds_in_python)
{
    SAYS(CARD, "python", 0, "ok           python     size of the card: 2048 MiB",
         "ok           python     1800 of 2048 MiB: allocated\n",
         "ok           python     2100 of 2048 MiB: out of memory\n",
         "ok           python     1200 MiB beside 1200 MiB of another process: out of");
    temp_write(dir, "torch.py", "raise ImportError\n");
    SAYS(CARD, "torch", 0, "not present  torch      there is no PyTorch that finds");
    /* A PyTorch that allocates as the guest does. */
    temp_write(dir, "torch.py",
               "import os\n"
               "uint8 = None\n"
               "class OutOfMemoryError(Exception): pass\n"
               "class cuda:\n"
               "    OutOfMemoryError = OutOfMemoryError\n"
               "    is_available = lambda: True\n"
               "    mem_get_info = lambda: (0, 1024 << 20)\n"
               "    empty_cache = lambda: None\n"
               "def empty(n, dtype, device):\n"
               "    if os.system(f'$GUEST {n >> 20} >/dev/null'):\n"
               "        raise OutOfMemoryError\n");
    SAYS(CARD, "torch", 1,
         "differs      torch      size of the card: 1024 MiB, expected 2048\n",
         "ok           torch      2100 of 2048 MiB: out of memory\n", "3 ok, 1 differ");
    temp_script(dir, "python3", "echo Traceback; exit 1");
    SAYS(CARD, "python", 1, "differs      python     exit status 1: Traceback");
}

/* The driver without a card knows no MPS, so its clients are not limited. */
TEST(clients_of_mps_are_compared)
{
    temp_script(dir, "nvidia-cuda-mps-control", "echo no server; exit 1");
    SAYS(CARD, "mps", 0,
         "not present  mps        nvidia-cuda-mps-control -d: exit status 1");
    temp_script(dir, "nvidia-cuda-mps-control",
                "[ -d \"$CUDA_MPS_PIPE_DIRECTORY\" ] && cat >\"$0.in\" || exit 1");
    SAYS(CARD, "mps", 1,
         "ok           mps        800 of 1024 MiB, another client: allocated",
         "differs      mps        1100 of 1024 MiB, another client: allocated (0), "
         "expected "
         "out of memory\n");
    /* A client that hangs does not keep the daemon. */
    cleanup_free char *in = temp_read(dir, "nvidia-cuda-mps-control.in");
    ck_assert_str_eq(in, "quit -t 10\n");
}

#define DRIVER_615(more)                                                                 \
    "driver 615.32.01\ncuda 13040\ncard uuid=" UUID                                      \
    ";bus=3b;total=17179869184;free=17179869184;used=0;reserved=0" more "\n"

static void has_no_cgroup(void)
{
    cleanup_free char *path = temp_path(dir, "cgroup/gpushare-card-check");
    ck_assert_int_ne(access(path, F_OK), 0);
}

TEST(the_limit_of_the_driver_is_checked)
{
    temp_mkdir(dir, "cgroup");
    temp_script(dir, "nvidia-cuda-mps-control", "cat >\"$0.in\"");
#define LINE(status, text) status " driver-limit " text "\n"
    SAYS(
        DRIVER_615(""), "driver-limit", 0,
        LINE("ok          ", "limit: set 2048 MiB, read 2147483648 bytes, soft 0"),
        LINE("ok          ", "size of the card in the cgroup: 2048 MiB"),
        LINE("ok          ", "2100 of 2048 MiB: out of memory"),
        "the largest allocation that fits: 204", " of 2048 MiB\n",
        LINE("ok          ", "used: 1204 MiB with 1200 allocated, 4 for the context"),
        LINE("ok          ", "1200 MiB more, in another process: out of memory"),
        LINE("ok          ", "1200 MiB, in a process of a neighbor: allocated"),
        LINE("ok          ", "raised: set 4096 MiB, read 4294967296 bytes, soft 0"),
        LINE("ok          ", "1200 MiB more, in another process: allocated"),
        LINE("ok          ", "recorded: lowered to 1000 MiB with 1200 in use: accepted"),
        LINE("ok          ", "recorded: then the limit is 1000 MiB, 1204 are used"),
        LINE("ok          ", "recorded: then the program that holds it lives, and 1 MiB "
                             "more is: out of memory"),
        LINE("ok          ", "recorded: beneath MPS 2100 of 2048 MiB are: out of memory"),
        LINE("ok          ", "2100 MiB, of 2048 on the parent: out of memory"),
        LINE("ok          ", "recorded: size of the card below the parent's limit: "
                             "1048576 MiB"),
        "a cgroup that is made again: ", "it has no limit", " 0 differ, 0 not present\n");
    has_no_cgroup();
    /* It is not assumed what the driver does with less than is used. */
    SAYS(DRIVER_615(";below=2"), "driver-limit", 0,
         "recorded: lowered to 1000 MiB with 1200 in use: ",
         "the driver refuses these values", "then the limit is 4096 MiB, 1204 are used\n",
         "and 1 MiB more is: allocated\n");
    temp_script(dir, "nvidia-cuda-mps-control", "exit 1");
    SAYS(DRIVER_615(""), "driver-limit", 0,
         LINE("not present ", "nvidia-cuda-mps-control "
                              "-d: exit status 1:"));
}

TEST(where_the_driver_has_no_limit_the_step_says_why)
{
    temp_mkdir(dir, "cgroup");
    SAYS(CARD, "driver-limit", 0, LINE("not present ", "driver 535.129.03: needs 615"),
         "1 not present\n");
    SAYS("fail nvmlDeviceSetMemoryLimits_v1 4\n" DRIVER_615(""), "driver-limit", 0,
         "not present  driver-limit limit: set 2048 MiB: ", "needs root", " 0 differ, 1");
    SAYS("fail nvmlDeviceGetMemoryLimits_v1 3 0\n" DRIVER_615(""), "driver-limit", 0,
         "not present  driver-limit ", "Not Supported (3)\n");
    has_no_cgroup();
    /* A driver that forgets, and one that does not hold what it says. */
    SAYS("sometimes nvmlDeviceGetMemoryLimits_v1 6 3\n" DRIVER_615(""), "driver-limit", 1,
         "differs      driver-limit limit: set 2048 MiB, read: ", "it has no limit");
    cleanup_free char *cuda = temp_path(dir, "elsewhere");
    setenv("FAKE_CGROUP", cuda, 1); /* the programs are not in the cgroup */
    SAYS(DRIVER_615(""), "driver-limit", 1,
         "differs      driver-limit size of the card in the cgroup: 1048576 MiB\n",
         "differs      driver-limit 2100 of 2048 MiB: allocated (0), expected out of "
         "memory\n",
         "differs      driver-limit used: 0 MiB with 1200 allocated\n");
    unsetenv("FAKE_CGROUP");
    has_no_cgroup();
    temp_remove(dir, "limits");
    cleanup_free char *root = temp_path(dir, "cgroup");
    ck_assert_int_eq(rmdir(root), 0);
    SAYS(DRIVER_615(""), "driver-limit", 0, "not present  driver-limit ",
         "the driver opens no cgroup v2 there");
}

/* Each call of the fake NVML opens its script, and a FIFO without a writer is opened never. */
TEST(a_driver_that_hangs_or_crashes_ends_only_its_step)
{
    cleanup_free char *script = temp_path(dir, "script");
    ck_assert_int_eq(mkfifo(script, 0600), 0);
    cleanup_free char *out = report("--step-timeout 100ms nvml mig", 1);
    ck_assert_has(out, "differs      nvml       no answer in 100 ms");
    ck_assert_has(out, "differs      mig        no answer in 100 ms");
    ck_assert_int_eq(unlink(script), 0);
    temp_script(dir, "smi", "kill -9 $PPID");
    SAYS(CARD, "cards nvml", 1, "ok           cards      driver",
         "differs      cards      the step ended with status 0x9: Killed\n",
         "ok           nvml       " UUID " state: ok");
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
