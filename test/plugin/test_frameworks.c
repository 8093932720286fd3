/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/file.h"
#include "domain/objects.h"
#include "lib/temp.h"
#include "lib/yamlfile.h"
#include "plugin/response.h"

/*
 * manifests/samples/frameworks: what the scripts of these pods compute from the variables of
 * the device plugin. The variables are those that response_of sets. The frameworks are stubs
 * that print the limit that they are given. It must not exceed what the pod was promised on
 * any card, and not be much less.
 */

#define PAGE "docs/user-guide.md"

static struct arena arena;
static struct cards cards;
static char *dir;

struct frame {
    const char *name;
    int64_t unit_mib;
    int64_t card_mib[2];   /* 0: no second card */
    const char *resource;  /* KEY_GPU_MEM or KEY_GPU_COUNT */
    int64_t mine, others;  /* limits of this container and of the other; 0: none */
    const char *isolation; /* of the node */
};

static const struct frame frames[] = {
    {"GiB", 1024, {16276}, KEY_GPU_MEM, 4, 0, "none"},
    {"GiB, a large card", 1024, {81559}, KEY_GPU_MEM, 8, 0, "none"},
    {"GiB, the units of the card", 1024, {15360}, KEY_GPU_MEM, 14, 0, "none"},
    {"GiB, a small card", 1024, {4095}, KEY_GPU_MEM, 1, 0, "none"},
    {"MiB", 1, {16276}, KEY_GPU_MEM, 8138, 0, "none"},
    {"MiB, a small part", 1, {81559}, KEY_GPU_MEM, 1024, 0, "none"},
    {"256 MiB", 256, {16276}, KEY_GPU_MEM, 21, 0, "none"},
    {"two containers", 1024, {16276}, KEY_GPU_MEM, 4, 6, "none"},
    {"two cards", 1024, {16276, 16276}, KEY_GPU_MEM, 16, 0, "none"},
    {"two cards, MiB", 1, {16276, 16276}, KEY_GPU_MEM, 16276, 0, "none"},
    {"two different cards", 1024, {16384, 24576}, KEY_GPU_MEM, 8, 0, "none"},
    {"a whole card", 1024, {16276}, KEY_GPU_COUNT, 1, 0, "none"},
    {"two whole cards, MiB", 1, {16276, 24576}, KEY_GPU_COUNT, 2, 0, "none"},
    {"MPS", 1024, {16276}, KEY_GPU_MEM, 4, 0, "mps"},
    {"limit", 1024, {16276}, KEY_GPU_MEM, 4, 0, "limit"},
    {"limit, MiB, two containers", 1, {16276}, KEY_GPU_MEM, 4000, 6000, "limit"},
    {"limit, two cards", 1024, {16276, 16276}, KEY_GPU_MEM, 16, 0, "limit"},
};

static int n_cards(const struct frame *f)
{
    return f->card_mib[1] ? 2 : 1;
}

static bool is_whole(const struct frame *f)
{
    return strcmp(f->resource, KEY_GPU_COUNT) == 0;
}

static bool is_limited(const struct frame *f)
{
    return strcmp(f->isolation, "limit") == 0;
}

/* What the container was promised on card i. */
static double promised_mib(const struct frame *f, int i)
{
    return is_whole(f) ? (double)f->card_mib[i]
                       : (double)(f->mine * f->unit_mib) / n_cards(f);
}

/* The size of card i as a program in the container sees it. */
static double seen_mib(const struct frame *f, int i)
{
    if (!is_limited(f))
        return (double)f->card_mib[i];
    return (double)((f->mine + f->others) * f->unit_mib) / n_cards(f);
}

static void see_cards(const struct frame *f)
{
    const struct cards_settings settings = {.unit_mib = f->unit_mib};
    struct card_seen seen[] = {{.uuid = "GPU-0", .index = 0, .mib = f->card_mib[0]},
                               {.uuid = "GPU-1", .index = 1, .mib = f->card_mib[1]}};
    struct err err;
    cards_init(&cards, &settings);
    ck_assert(cards_sampled(&cards, 1, seen, (size_t)n_cards(f), &err));
}

static struct pod_allocation *pod_of(const struct frame *f)
{
    cleanup_free char *other =
        f->others ? xasprintf(",{'name':'b','resources':{'limits':{'%s':'%lld'}}}",
                              f->resource, (long long)f->others)
                  : xstrdup("");
    struct pod pod = object_pod(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'p','namespace':'ns','uid':'u','labels':{%s},"
               "'annotations':{'" KEY_MEM_IDX "':'%s'}},'spec':{'nodeName':'n1',"
               "'containers':[{'name':'a','resources':{'limits':{'%s':'%lld'}}}%s]},"
               "'status':{'phase':'Pending'}}",
               n_cards(f) == 2 && !is_whole(f) ? "'" KEY_GPU_COUNT "':'2'" : "",
               n_cards(f) == 2 ? "0,1" : "0", f->resource, (long long)f->mine, other));
    return pod_allocation_new(&pod, f->unit_mib);
}

static struct allocation *allocation_of(const struct frame *f)
{
    static const char *const uuids[] = {"GPU-0", "GPU-1"};
    struct allocation *al =
        allocation_new(SPAN("u"), SPAN("ns"), SPAN("p"), SPAN("a"), CONTAINER_APP,
                       is_whole(f) ? IDS_COUNT : IDS_MEM);
    for (int i = 0; i < n_cards(f); i++) {
        if (is_whole(f))
            allocation_add(al, span_of(uuids[i]), i, -1);
        for (int64_t k = 0; k < f->mine / n_cards(f) && !is_whole(f); k++)
            allocation_add(al, span_of(uuids[i]), i, k);
    }
    return al;
}

static const struct response *respond(const struct frame *f)
{
    const struct response_settings settings = {
        .isolation = is_limited(f)                      ? ISOLATION_LIMIT
                     : strcmp(f->isolation, "mps") == 0 ? ISOLATION_MPS
                                                        : ISOLATION_NONE,
        .mps_dir = "/run/mps",
        .limit_dir = "/l",
        .cgpu_disable = true,
        .unit_mib = f->unit_mib};
    struct err err;
    see_cards(f);
    struct pod_allocation *pod = pod_of(f);
    struct allocation *al = allocation_of(f);
    const struct response *r =
        response_of(&settings, &cards, pod, pod->containers, al, &arena, &err);
    ck_assert_msg(r != NULL, "%s: %s", f->name, err.msg);
    allocation_free(al);
    pod_allocation_free(pod);
    return r;
}

/* The script of a sample. New. */
static char *text_of(const char *sample)
{
    cleanup_free char *path = xasprintf("manifests/samples/frameworks/%s.yaml", sample);
    json_t *all = json_array(), *container;
    yamlfile_read(all, path);
    container =
        json_object_get(json_object_get(json_array_get(all, 0), "spec"), "containers");
    container = json_array_get(container, 0);
    const char *text =
        json_string_value(json_array_get(json_object_get(container, "args"), 0));
    ck_assert_msg(text != NULL, "%s has no script", path);
    char *copy = xstrdup(text);
    json_decref(all);
    return copy;
}

/* The same with the path of the limit in `dir`. */
static char *script_of(const char *sample)
{
    static const char at[] = "/usr/local/gpushare/limit";
    cleanup_free char *text = text_of(sample);
    const char *found = strstr(text, at);
    ck_assert_ptr_nonnull(found);
    return xasprintf("%.*s%s/limit%s", (int)(found - text), text, dir,
                     found + sizeof at - 1);
}

/* `mib` is what the framework takes of card i at most. */
static void check(const struct frame *f, int i, double mib)
{
    double least = is_whole(f) ? 0.895 : 0.7; /* a whole card loses no unit to rounding */
    ck_assert_msg(mib <= promised_mib(f, i), "%s: %.0f MiB of GPU%d exceed %.0f", f->name,
                  mib, i, promised_mib(f, i));
    if (f->card_mib[1] == 0 || f->card_mib[1] == f->card_mib[0])
        ck_assert_msg(mib >= least * promised_mib(f, i), "%s: only %.0f MiB of %.0f",
                      f->name, mib, promised_mib(f, i));
}

/* The last number that a stub prints when the script runs in the container of the frame. */
static double run(const struct frame *f, const char *program)
{
    const struct response *r = respond(f);
    cleanup_buf struct buf command = {0}, sizes = {0};
    char line[256];
    double last = -1;
    for (int i = 0; i < n_cards(f); i++)
        buf_printf(&sizes, "%.0f\n", seen_mib(f, i));
    temp_write(dir, "sizes", sizes.p);
    temp_write(dir, "limit", "");
    if (!is_limited(f))
        temp_remove(dir, "limit");
    buf_printf(&command, "env -i PATH=%s:\"$PATH\" HOME=%s PYTHONPATH=%s", dir, dir, dir);
    for (size_t i = 0; i < r->dp.n_envs; i++)
        if (strcmp(r->dp.envs[i].key.p, "LD_PRELOAD") != 0) /* it is not installed here */
            buf_printf(&command, " %s='%s'", r->dp.envs[i].key.p, r->dp.envs[i].value.p);
    buf_printf(&command, " %s %s/script 2>&1", program, dir);
    FILE *out = popen(command.p, "re");
    ck_assert_ptr_nonnull(out);
    while (fgets(line, sizeof line, out))
        if (sscanf(line, "limit %lf", &last) != 1)
            ck_abort_msg("%s: %s", f->name, line);
    ck_assert_msg(pclose(out) == 0 && last > 0, "%s: no limit", f->name);
    return last;
}

static void each(const char *sample, const char *program, bool in_mib)
{
    cleanup_free char *script = script_of(sample);
    temp_write(dir, "script", script);
    for (size_t k = 0; k < ARRAY_LEN(frames); k++) {
        const struct frame *f = &frames[k];
        double limit = run(f, program);
        for (int i = 0; i < n_cards(f); i++)
            check(f, i, in_mib ? limit : limit * seen_mib(f, i));
    }
}

static void set_up(void)
{
    dir = temp_dir();
}

static void tear_down(void)
{
    temp_dir_remove(dir);
    free(dir);
    arena_fini(&arena);
}

START_TEST(vllm_takes_no_more_than_its_pod_requested)
{
    set_up();
    temp_script(dir, "vllm",
                "while [ \"$1\" != --gpu-memory-utilization ]; do shift; done\n"
                "echo limit \"$2\"\n");
    each("vllm", "sh", false);
    tear_down();
}
END_TEST

START_TEST(pytorch_takes_no_more_than_its_pod_requested)
{
    set_up();
    temp_write(dir, "torch.py",
               "class cuda:\n"
               "    device_count = lambda: 2\n"
               "    set_per_process_memory_fraction = lambda part, card: "
               "print('limit', part)\n"
               "def rand(*shape, device):\n"
               "    raise SystemExit\n");
    each("pytorch", "python3 -S", false);
    tear_down();
}
END_TEST

/* The text from `first` to `last`. */
static char *part_of(const char *sample, const char *first, const char *last)
{
    cleanup_free char *text = text_of(sample);
    char *from = strstr(text, first), *to = from ? strstr(from, last) : NULL;
    ck_assert_ptr_nonnull(to);
    return xasprintf("%.*s", (int)(to - from), from);
}

START_TEST(tensorflow_takes_no_more_than_its_pod_requested)
{
    set_up();
    cleanup_free char *mine = part_of("tensorflow", "def share", "\n\n");
    cleanup_free char *other = part_of("pytorch", "def share", "\n\n");
    ck_assert_str_eq(mine, other);
    temp_write(dir, "tensorflow.py",
               "class config:\n"
               "    list_physical_devices = lambda kind: ['GPU:0', 'GPU:1']\n"
               "    LogicalDeviceConfiguration = lambda memory_limit: memory_limit\n"
               "    set_logical_device_configuration = lambda card, limits: "
               "print('limit', limits[0])\n"
               "class random:\n"
               "    def uniform(shape):\n"
               "        raise SystemExit\n");
    cleanup_free char *sizes = xasprintf("cat %s/sizes\n", dir);
    temp_script(dir, "nvidia-smi", sizes);
    each("tensorflow", "python3 -S", true);
    tear_down();
}
END_TEST

START_TEST(the_page_has_the_code_of_the_samples)
{
    cleanup_buf struct buf page = {0};
    struct err err;
    ck_assert_done(file_read(PAGE, 1 << 20, &page, &err), err);
    cleanup_free char *python = part_of("pytorch", "def share", "\n\n");
    cleanup_free char *shell = part_of("vllm", "cards=0", "exec");
    ck_assert_msg(strstr(page.p, python) != NULL, PAGE " lacks\n%s", python);
    ck_assert_msg(strstr(page.p, shell) != NULL, PAGE " lacks\n%s", shell);
}
END_TEST

START_TEST(the_page_has_a_row_for_each_variable)
{
    cleanup_buf struct buf page = {0};
    struct err err;
    ck_assert_done(file_read(PAGE, 1 << 20, &page, &err), err);
    size_t n = 0;
    for (size_t k = 0; k < ARRAY_LEN(frames); k++) {
        const struct response *r = respond(&frames[k]);
        for (size_t i = 0; i < r->dp.n_envs; i++, n++) {
            cleanup_free char *cell = xasprintf("\n| `%s`", r->dp.envs[i].key.p);
            ck_assert_msg(strstr(page.p, cell) != NULL, PAGE " has no row for %s",
                          r->dp.envs[i].key.p);
        }
    }
    ck_assert_uint_gt(n, 100);
    arena_fini(&arena);
}
END_TEST

UNIT_MAIN("frameworks", vllm_takes_no_more_than_its_pod_requested,
          pytorch_takes_no_more_than_its_pod_requested,
          tensorflow_takes_no_more_than_its_pod_requested,
          the_page_has_the_code_of_the_samples, the_page_has_a_row_for_each_variable)
