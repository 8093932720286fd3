/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

#include "core/rig.h"
#include "view/changes.h"

/* What one reader is sent: every node once, then changes, in chunks of any size. */

static unsigned reads; /* how often the lock is held now */

static const struct core *read_core(void *ctx)
{
    ck_assert_uint_eq(reads++, 0);
    return ((struct rig *)ctx)->core;
}

static void end_read(void *ctx)
{
    (void)ctx;
    reads--;
}

static const struct view_source source = {read_core, end_read, &r, true, NULL};

static void set_node(const char *name, bool cordoned, bool deleted)
{
    struct node node = {.meta = {.name = span_of(name)}, .cordoned = cordoned};
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_NODES,
                                 .run = r.runs[CORE_NODES],
                                 .node = &node,
                                 .deleted = deleted});
}

static void begin(void)
{
    rig_new((struct core_settings){.observer = true});
    set_node("n1", false, false);
    set_node("n2", false, false);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        rig_list_end((enum core_kind)kind);
}

/* One scan in chunks; returns the lines. */
static const char *scan(struct view_changes *c, size_t chunk, struct buf *all)
{
    bool complete = false;
    buf_clear(all);
    buf_adds(all, "");
    for (int i = 0; !complete; i++) {
        cleanup_buf struct buf out = {0};
        complete = view_changes_write(c, chunk, &out);
        ck_assert(complete || out.n >= chunk);
        buf_add_span(all, buf_span(&out));
        ck_assert_int_lt(i, 100);
    }
    ck_assert_uint_eq(reads, 0);
    buf_addc(all, '\0');
    return all->p;
}

static size_t lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

TEST(every_node_once_then_its_changes)
{
    begin();
    struct view_changes *all = view_changes_new(&source),
                        *small = view_changes_new(&source);
    cleanup_buf struct buf a = {0}, b = {0};
    ck_assert_uint_eq(lines(scan(all, 1 << 20, &a)), 2);
    ck_assert_str_eq(a.p, scan(small, 1, &b));
    ck_assert_str_eq(scan(all, 1, &a), "");
    set_node("n2", true, false);
    set_node("n3", false, false);
    scan(all, 1 << 20, &a);
    ck_assert_uint_eq(lines(a.p), 2);
    ck_assert_lacks(a.p, "\"name\":\"n1\"");
    ck_assert_contains(a.p, "\"schedulingDisabled\":true");
    ck_assert_str_eq(scan(all, 1, &a), "");
    ck_assert_uint_eq(lines(scan(small, 1, &b)), 2); /* each reader has its own */
    view_changes_free(all);
    view_changes_free(small);
    rig_free();
}

TEST(a_deleted_node_is_named_once)
{
    begin();
    struct view_changes *c = view_changes_new(&source);
    cleanup_buf struct buf out = {0};
    scan(c, 1 << 20, &out);
    set_node("n1", false, true);
    set_node("n4", false, false); /* may take its slot */
    scan(c, 1, &out);
    ck_assert_contains(out.p, "{\"Node\":{\"name\":\"n1\"},\"Type\":\"DELETED\"}\n");
    ck_assert_contains(out.p, "\"name\":\"n4\"");
    ck_assert_uint_eq(lines(out.p), 2);
    ck_assert_str_eq(scan(c, 1, &out), "");
    view_changes_free(c);
    rig_free();
}
