/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A static pod of kube-scheduler and the file that it names, with a NUL between: whatever
 * they say, what is wrong with them can be told, and a plan that can be made leads to
 * files that need no further change. A plan for a node changes nothing but what was
 * verified, so this cannot show what went wrong in an edit; test/setup compares bytes.
 */

#include "base/file.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "setup/judge.h"
#include "setup/plan.h"

enum { FILE_MAX = 1 << 20 };

static struct buf config, policy; /* of policy/ */

static int not_there(void *ctx, const char *path, struct buf *out, struct err *err)
{
    (void)ctx;
    (void)out;
    return err_set(err, ERR_NOT_FOUND, "%s: not there", path);
}

static struct setup_file file(const char *path, struct span text)
{
    struct setup_file f = {.path = xstrdup(path), .mode = 0644};
    buf_add_span(&f.bytes, text);
    setup_file_parse(&f);
    return f;
}

/* `text` NULL: the second file is not there. */
static struct setup_facts facts(struct span manifest, const struct span *text)
{
    struct setup_facts f = {.n_files = 1, .files = xcalloc(1, sizeof *f.files)};
    struct setup_pod pod;
    cleanup_buf struct buf path = {0};
    bool old;
    f.files[0] = file("/m/s.yaml", manifest);
    if (text)
        f.config = file("/c.yaml", *text);
    else
        err_set(&f.config.why, ERR_NOT_FOUND, "not there");
    if (setup_active(&f, &pod))
        f.config_mounted =
            setup_pod_host_path(&pod, setup_config_option(&pod, &old), &path);
    return f;
}

static int make(const struct setup_facts *f, struct plan *plan)
{
    struct err err = {0};
    const struct plan_input in = {.facts = f,
                                  .root = "",
                                  .address = "h:1",
                                  .config = buf_span(&config),
                                  .policy = buf_span(&policy),
                                  .read = not_there};
    int rc = plan_make(&in, plan, &err);
    if (rc && (err.code == ERR_NONE || !*err.msg))
        fuzz_fail("an error without words");
    return rc;
}

static struct span of(const struct plan *plan, enum plan_kind kind, struct span old)
{
    const struct plan_change *c = &plan->changes[kind];
    return c->path ? buf_span(&c->bytes) : old;
}

static void check_plan(struct setup_facts *f, struct span manifest, struct span text)
{
    struct plan plan = {0}, again = {0};
    if (make(f, &plan) == 0) {
        struct span second = of(&plan, PLAN_CONFIG, text);
        struct setup_facts after = facts(of(&plan, PLAN_MANIFEST, manifest), &second);
        if (make(&after, &again))
            fuzz_fail("what was planned is refused");
        if (again.changes[PLAN_MANIFEST].path || again.changes[PLAN_CONFIG].path)
            fuzz_fail("what was planned is to be changed again");
        setup_facts_fini(&after);
    }
    plan_fini(&plan);
    plan_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = {(const char *)data, size}, manifest = span_cut(&text, '\0');
    struct found found = {0};
    cleanup_buf struct buf said = {0};
    if (!config.n &&
        (file_read("policy/kube-scheduler-config.yaml", FILE_MAX, &config, NULL) ||
         file_read("policy/scheduler-policy-config.json", FILE_MAX, &policy, NULL)))
        exit(1);
    struct setup_facts f = facts(manifest, text.p ? &text : NULL);
    setup_url_read("http://h:1", &f.reach.url, NULL);
    err_set(&f.cluster_why, ERR_UNAVAILABLE, "not asked");
    judge(&f, &found);
    found_write(&found, &said);
    if (!said.n || !found_status(&found))
        fuzz_fail("nothing is said, though nothing was asked");
    check_plan(&f, manifest, text);
    found_fini(&found);
    setup_facts_fini(&f);
    return 0;
}
