/* SPDX-License-Identifier: Apache-2.0 */
#include "node/limit_slots.h"

#include <sys/stat.h>

#include "base/rng.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "limit/state.h"

/* The process 10 of the host is 7 in its namespace, and runs in pod "u". */

static char *root;
static struct arena arena;
static struct limit_state state;

static void limit(int card, const char *uuid)
{
    struct limit_file file = {.magic = LIMIT_FILE_MAGIC, .version = LIMIT_VERSION};
    cleanup_free char *path = xasprintf("pods/u/limit/%d", card);
    memcpy(file.uuid, uuid, strlen(uuid)); /* without a 0 byte if it is as long */
    temp_write_bytes(root, path, (struct span){(const char *)&file, sizeof file});
}

static void write_state(int card, size_t n)
{
    cleanup_free char *path = xasprintf("pods/u/state/%d", card);
    temp_write_bytes(root, path, (struct span){(const char *)&state, n});
}

static void begin(void)
{
    static const char *const folders[] = {"pods",         "pods/u", "pods/u/limit",
                                          "pods/u/state", "proc",   "proc/10"};
    root = temp_dir();
    array_items(folder, folders)
        temp_mkdir(root, *folder);
    temp_write(root, "proc/10/stat",
               "10 (python) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 99 9 8\n");
    temp_write(root, "proc/10/status", "Name:\tpython\nNSpid:\t10\t7\nThreads:\t1\n");
    temp_mkdir(root, "proc/11");
    temp_write(root, "proc/11/stat",
               "11 (python) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 88 9 8\n");
    temp_write(root, "proc/11/status", "NSpid:\t11\t8\n");
    state = (struct limit_state){.magic = LIMIT_STATE_MAGIC, .version = LIMIT_VERSION};
    state.slots[3] = (struct limit_slot){.pid = 7, .start_time = 99, .version = 1};
    limit(0, "GPU-0");
    write_state(0, sizeof state);
}

static void end(void)
{
    arena_fini(&arena);
    temp_dir_remove(root);
    free(root);
}

static const struct gpu_sample no_sample;
static struct err err;

/* The cards of which it has a slot, such as "GPU-0 GPU-1"; "none": its pod has no limit. */
static const char *slots_of(struct usage_place place)
{
    struct buf text = {0};
    const char *between = "";
    limit_slots_read(root, root, &no_sample, &place, 1, &arena, &err);
    if (!place.slots)
        return "none";
    buf_set(&text, SPAN(""));
    for (size_t i = 0; i < place.n_slots; i++) {
        if (place.slots[i].used < 0)
            continue;
        buf_printf(&text, "%s%.*s", between, SPAN_ARG(place.slots[i].uuid));
        between = " ";
    }
    const char *copy = arena_copy(&arena, buf_span(&text)).p;
    buf_fini(&text);
    return copy;
}

static const struct usage_place process = {
    .pid = {10, 99}, .kind = USAGE_CONTAINER, .pod_uid = SPAN("u")};

TEST(a_process_with_a_slot)
{
    ck_assert_str_eq(slots_of(process), "GPU-0");
    limit(1, "GPU-1");
    ck_assert_str_eq(slots_of(process), "GPU-0"); /* without a state */
    write_state(1, sizeof state);
    ck_assert_str_eq(slots_of(process), "GPU-0 GPU-1");
}

TEST(a_process_without_a_slot)
{
    state.slots[3].pid = 8; /* of another process */
    write_state(0, sizeof state);
    ck_assert_str_eq(slots_of(process), "");
    state.slots[3] = (struct limit_slot){.pid = 7, .start_time = 98, .version = 1};
    write_state(0, sizeof state); /* of one that had its pid before */
    ck_assert_str_eq(slots_of(process), "");
    state.slots[3].start_time = 0; /* it could not read it */
    write_state(0, sizeof state);
    ck_assert_str_eq(slots_of(process), "GPU-0");
}

TEST(pods_without_a_limit)
{
    struct usage_place place = process;
    place.pod_uid = SPAN("v");
    ck_assert_str_eq(slots_of(place), "none");
    place = process;
    place.kind = USAGE_OUTSIDE;
    ck_assert_str_eq(slots_of(place), "none");
    place = process;
    place.pid.started = 98; /* it has ended */
    ck_assert_str_eq(slots_of(place), "none");
    temp_remove(root, "proc/10/status");
    ck_assert_str_eq(slots_of(process), "none");
}

/* Whatever the pod writes: no slot, or that of the process. */
TEST(a_state_that_the_pod_wrote)
{
    struct rng rng;
    cleanup_free char *path = temp_path(root, "pods/u/state/0");
    rng_init(&rng, 5);
    for (size_t n = 0; n < offsetof(struct limit_state, slots) + 3 * 64 + 64; n += 8) {
        write_state(0, n);
        ck_assert_str_eq(slots_of(process), "");
    }
    state.version = 2;
    write_state(0, sizeof state);
    ck_assert_str_eq(slots_of(process), "");
    for (int i = 0; i < 300; i++) {
        uint64_t *words = (uint64_t *)&state;
        for (size_t k = 0; k < sizeof state / 8; k++)
            words[k] = rng_next(&rng);
        state.magic = LIMIT_STATE_MAGIC;
        state.version = LIMIT_VERSION;
        write_state(0, rng_below(&rng, sizeof state + 1));
        ck_assert_str_eq(slots_of(process), "");
    }
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0666), 0);
    ck_assert_str_eq(slots_of(process), "");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/dev/zero", path), 0);
    ck_assert_str_eq(slots_of(process), "");
}

/* A UUID as long as its field, any card, and the file of a version with further fields. */
TEST(limits_of_other_forms)
{
    char uuid[LIMIT_UUID_MAX + 1] = "";
    memset(uuid, 'u', LIMIT_UUID_MAX);
    limit(0, uuid);
    ck_assert_str_eq(slots_of(process), uuid);
    limit(0, "");
    limit(1, "GPU-1");
    write_state(1, sizeof state);
    ck_assert_str_eq(slots_of(process), " GPU-1");
    temp_write(root, "pods/u/limit/0", "short");
    ck_assert_str_eq(slots_of(process), "GPU-1");
}

/* -- the correction -- */

enum { MIB = 1 << 20 };

static struct gpu_process on_card[] = {{.pid = 10, .bytes = 700 * MIB},
                                       {.pid = 11, .bytes = 300 * MIB - 5},
                                       {.pid = 12, .bytes = 900 * MIB}};
static struct gpu_card card = {
    .uuid = "GPU-0", .processes_known = true, .processes = on_card, .n_processes = 3};
static const struct gpu_sample sample = {.cards = &card, .n_cards = 1};

/* Corrects so many times what process 10 counts, in MiB; process 11 of the pod has no slot, and
 * 12 is of another pod. Returns `extra` in MiB. */
static int64_t corrected(int times, int64_t used)
{
    struct usage_place places[] = {
        process,
        {.pid = {11, 88}, .kind = USAGE_CONTAINER, .pod_uid = SPAN("u")},
        {.pid = {12, 77}}};
    struct limit_file file;
    cleanup_free char *path = temp_path(root, "pods/u/limit/0");
    state.slots[3].used = (uint64_t)used * MIB;
    write_state(0, sizeof state);
    while (times--)
        ck_assert_done(limit_slots_read(root, root, &sample, places, 3, &arena, &err),
                       err);
    FILE *f = fopen(path, "r");
    ck_assert_uint_eq(fread(&file, 1, sizeof file, f), sizeof file);
    fclose(f);
    ck_assert_uint_eq(file.closed, 0);
    ck_assert_uint_eq(file.extra % MIB, 0);
    return (int64_t)(file.extra / MIB);
}

TEST(the_limit_counts_what_nvml_shows)
{
    ck_assert_int_eq(corrected(LIMIT_SLOTS_RISE - 1, 600), 0);
    ck_assert_int_eq(corrected(1, 600), 100 + 300);
    ck_assert_int_eq(corrected(1, 650), 50 + 300); /* falls at once */
    ck_assert_int_eq(corrected(LIMIT_SLOTS_RISE, 800), 300);
    card.processes_known = false;
    ck_assert_int_eq(corrected(1, 800), 300);
    card.processes_known = true;
    on_card[0].bytes = -1;
    ck_assert_int_eq(corrected(1, 800), 300);
    on_card[0].bytes = 700 * MIB;
    card.n_processes = 0; /* all have ended */
    ck_assert_int_eq(corrected(1, 0), 0);
    card.n_processes = 3;
}

/* The memory that a process frees between NVML's answer and the reading of its slot. */
TEST(a_moment_is_no_correction)
{
    for (int i = 0; i < 4 * LIMIT_SLOTS_RISE; i++)
        ck_assert_int_eq(corrected(1, i % LIMIT_SLOTS_RISE ? 300 : 700),
                         i >= LIMIT_SLOTS_RISE - 1 ? 300 : 0);
    ck_assert_int_eq(corrected(1, 700), 300);
    ck_assert_int_eq(corrected(LIMIT_SLOTS_RISE - 1, 0), 300);
    ck_assert_int_eq(corrected(1, 500), 500); /* the least */
}

TEST(the_slots_of_a_hostile_pod)
{
    ck_assert_int_eq(corrected(LIMIT_SLOTS_RISE, 0), 700 + 300); /* no more than NVML */
    ck_assert_int_eq(corrected(1, INT64_MAX / MIB), 300); /* no less than nothing */
    struct usage_place place = process;
    state.slots[3].used = state.slots[3].context = UINT64_MAX;
    write_state(0, sizeof state);
    limit_slots_read(root, root, &no_sample, &place, 1, &arena, &err);
    ck_assert_int_eq(place.slots[0].used, INT64_MAX);
    ck_assert_int_eq(place.slots[0].context, INT64_MAX);
}

TEST(a_file_that_cannot_be_corrected)
{
    struct usage_place place = process;
    cleanup_free char *path = temp_path(root, "pods/u/limit/1");
    ck_assert_int_eq(symlink("0", path), 0);
    ck_assert_int_eq(limit_slots_read(root, root, &sample, &place, 1, &arena, &err), -1);
    ck_assert_contains(err.msg, "/pods/u/limit/1: ");
    temp_remove(root, "pods/u/limit/1");
    temp_write(root, "pods/u/limit/0", "short"); /* of an older plugin, perhaps */
    ck_assert_done(limit_slots_read(root, root, &sample, &place, 1, &arena, &err), err);
    ck_assert_done(limit_slots_read("/no", root, &sample, &place, 1, &arena, &err), err);
}

UNIT_MAIN_AROUND(begin, end)
