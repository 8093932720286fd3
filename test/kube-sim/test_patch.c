/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/mem.h"
#include "lib/unit.h"

struct patch_case {
    const char *target, *patch, *result; /* result NULL: refused */
};

static void run(const struct patch_case *c, bool strategic)
{
    struct err err = {0};
    cleanup_json_value json_t *target = sim_jsonx_parse(span_of(c->target), NULL);
    cleanup_json_value json_t *patch = sim_jsonx_parse(span_of(c->patch), NULL);
    cleanup_json_value json_t *kept = json_deep_copy(patch);
    ck_assert_msg(target && patch, "%s", c->patch);
    int rc = 0;
    if (strategic)
        rc = sim_patch_strategic(target, patch, &err);
    else
        sim_patch_merge(target, patch);
    ck_assert_msg(json_equal(patch, kept), "the patch was changed: %s", c->patch);
    ck_assert_msg((rc == 0) == (c->result != NULL), "%s: %s", c->patch, err.msg);
    if (rc) {
        cleanup_json_value json_t *before = sim_jsonx_parse(span_of(c->target), NULL);
        ck_assert_msg(json_equal(target, before), "a refused patch: %s", c->patch);
        return;
    }
    cleanup_buf struct buf out = {0};
    sim_jsonx_dump(&out, target);
    ck_assert_msg(strcmp(out.p, c->result) == 0, "%s + %s = %s", c->target, c->patch,
                  out.p);
}

START_TEST(a_merge_patch_merges_objects_and_replaces_all_else)
{
    static const struct patch_case cases[] = {
        {"{\"a\":1}", "{}", "{\"a\":1}"},
        {"{\"a\":1}", "{\"a\":2}", "{\"a\":2}"},
        {"{\"a\":1,\"b\":2}", "{\"a\":null}", "{\"b\":2}"},
        {"{\"a\":1}", "{\"b\":null}", "{\"a\":1}"},
        {"{\"a\":{\"b\":1}}", "{\"a\":{\"c\":2}}", "{\"a\":{\"b\":1,\"c\":2}}"},
        {"{\"a\":[1,2]}", "{\"a\":[3]}", "{\"a\":[3]}"},
        {"{\"a\":\"x\"}", "{\"a\":{\"b\":1}}", "{\"a\":{\"b\":1}}"},
        {"{\"a\":{\"b\":1}}", "{\"a\":\"x\"}", "{\"a\":\"x\"}"},
        {"{}", "{\"a\":{\"b\":{\"c\":null}}}", "{\"a\":{\"b\":{}}}"},
        {"{\"a\":[{\"b\":1}]}", "{\"a\":[{\"b\":null}]}", "{\"a\":[{\"b\":null}]}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        run(&cases[i], false);
}

START_TEST(a_strategic_patch_merges_objects_and_refuses_lists_and_directives)
{
    static const struct patch_case cases[] = {
        {"{\"a\":1}", "{\"a\":null,\"b\":{\"c\":null}}", "{\"b\":{}}"},
        {"{\"m\":{\"a\":1,\"b\":2}}", "{\"m\":{\"b\":\"x\"}}",
         "{\"m\":{\"a\":1,\"b\":\"x\"}}"},
        {"{\"l\":[1]}", "{\"m\":1}", "{\"l\":[1],\"m\":1}"},
        {"{\"m\":{\"l\":[1]}}", "{\"m\":{\"l\":[2]}}", NULL},
        {"{}", "{\"l\":[]}", NULL},
        {"{\"m\":{\"a\":1}}", "{\"m\":{\"$patch\":\"replace\"}}", NULL},
        {"{}", "{\"$retainKeys\":\"x\"}", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        run(&cases[i], true);
}

UNIT_MAIN("patch", a_merge_patch_merges_objects_and_replaces_all_else,
          a_strategic_patch_merges_objects_and_refuses_lists_and_directives)
