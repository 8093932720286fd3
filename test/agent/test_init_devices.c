/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/init_devices.h"

#include "base/mem.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "node/checkpoint.h"

/* From the state file of the device plugin to the devices of init containers. */

static char *dir, *path;
static struct arena arena;
static struct container_devices devices;
static struct allocation_set set;

static void begin(void)
{
    dir = temp_dir();
    path = temp_path(dir, "state.json");
}

static void end(void)
{
    allocation_set_fini(&set);
    arena_fini(&arena);
    temp_dir_remove(dir);
    free(dir);
    free(path);
}

static void allocate(const char *uid, const char *container, enum container_role role,
                     const char *uuid, int units)
{
    struct allocation *al =
        allocation_new(span_of(uid), SPAN("ns"), SPAN("p"), span_of(container), role,
                       units ? IDS_MEM : IDS_COUNT);
    for (int i = 0; i < units; i++)
        allocation_add(al, span_of(uuid), 0, i);
    if (!units)
        allocation_add(al, span_of(uuid), 0, -1);
    allocation_set_put(&set, al);
}

static int read_file(struct err *err)
{
    return init_devices_read(path, SPAN("n1"), &arena, &devices, err);
}

START_TEST(init_containers_and_the_sidecars_beside_them)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    allocate("u1", "late", CONTAINER_SIDECAR, "GPU-0", 1);
    allocate("u1", "i", CONTAINER_INIT, "GPU-0", 6);
    allocate("u1", "side", CONTAINER_SIDECAR, "GPU-0", 2);
    allocate("u1", "other-card", CONTAINER_SIDECAR, "GPU-1", 4);
    allocate("u1", "main", CONTAINER_APP, "GPU-0", 8);
    allocate("u2", "side", CONTAINER_SIDECAR, "GPU-0", 5);
    allocate("u2", "w", CONTAINER_INIT, "GPU-2", 0);
    checkpoint_write(&text, &set, SPAN("n1"));
    temp_write(dir, "state.json", text.p);
    ck_assert_msg(read_file(&err) == 0, "%s", err.msg);
    ck_assert(devices.inits_known);
    ck_assert_uint_eq(devices.n_inits, 2);
    const struct container_devices_init *i = devices.inits;
    ck_assert_span_eq(i->pod_uid, "u1");
    ck_assert_span_eq(i->ns, "ns");
    ck_assert_span_eq(i->pod, "p");
    ck_assert_span_eq(i->container, "i");
    ck_assert_span_eq(i->uuid, "GPU-0");
    ck_assert(!i->whole);
    ck_assert_int_eq(i->units, 6);
    ck_assert_int_eq(i->beside, 3);
    ck_assert(i[1].whole);
    ck_assert_span_eq(i[1].uuid, "GPU-2");
    ck_assert_int_eq(i[1].beside, 0);
}
END_TEST

/* Without our device plugin there is no file. */
START_TEST(no_file_is_no_error)
{
    struct err err;
    ck_assert_int_eq(read_file(&err), 0);
    ck_assert(devices.inits_known);
    ck_assert_uint_eq(devices.n_inits, 0);
}
END_TEST

START_TEST(other_files_are_not_believed)
{
    static const char *const texts[] = {"", "{", "[]",
                                        "{\"version\":2,\"node\":\"n1\",\"grants\":[]}",
                                        "{\"version\":1,\"node\":\"n2\",\"grants\":[]}"};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        devices = (struct container_devices){0};
        temp_write(dir, "state.json", texts[i]);
        ck_assert_int_eq(read_file(&err), -1);
        ck_assert(!devices.inits_known && !devices.n_inits);
    }
    temp_remove(dir, "state.json");
    temp_mkdir(dir, "state.json");
    ck_assert_int_eq(read_file(&err), -1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {init_containers_and_the_sidecars_beside_them,
                                  no_file_is_no_error, other_files_are_not_believed};
    const struct unit_fixtures around = {.begin = begin, .end = end};
    return unit_run_with("init_devices", tests, ARRAY_LEN(tests), 60, &around);
}
