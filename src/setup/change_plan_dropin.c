/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/change_plan_priv.h"
#include "setup/platform.h"
#include "setup/rancher.h"

#define TLS_MOUNT CLIENT_SECRET_DIR ":" CLIENT_SECRET_DIR ":ro"

/*
 * k3s and RKE2: a file of our own in config.yaml.d, whose keys append to the user's. No
 * file of the user changes.
 */

static char *dropin_path(const struct change_plan_work *w)
{
    return xasprintf("%s%s.d/" RANCHER_DROPIN, w->in->root, rancher_config(w->in->facts));
}

static const struct facts_file *existing(const struct change_plan_work *w,
                                         const char *path)
{
    const struct facts *f = w->in->facts;
    for (size_t i = 0; i < f->n_settings; i++)
        if (!strcmp(f->settings[i].path, path))
            return &f->settings[i];
    return NULL;
}

static void write_text(bool option, bool mount, struct buf *out)
{
    buf_adds(out,
             "# Written by scripts/install of gpushare; --undo removes it. A key with "
             "\"+\" adds to the\n# values of the other files.\n");
    if (option)
        buf_adds(out, RANCHER_ARGS "+:\n- config=" CHANGE_PLAN_CONFIG_AT "\n");
    if (mount)
        buf_adds(out, RANCHER_MOUNTS "+:\n- " TLS_MOUNT "\n");
}

/* Does a file that is read after ours replace a list of ours? NULL: none. */
static const char *find_later(const struct change_plan_work *w, const char *path,
                              const char *key)
{
    const struct facts *f = w->in->facts;
    for (size_t i = 0; i < f->n_settings; i++)
        if (strcmp(f->settings[i].path, path) > 0 &&
            json_object_get(f->settings[i].json, key))
            return f->settings[i].path;
    return NULL;
}

int change_plan_dropin(struct change_plan_work *w, struct err *err)
{
    cleanup_free char *path = dropin_path(w);
    const struct facts_file *old = existing(w, path);
    cleanup_buf struct buf now = {0}, canonical = {0};
    if (!w->add_option && !w->add_mount)
        return 0;
    bool had_option = old && json_object_get(old->json, RANCHER_ARGS "+");
    bool had_mount = old && json_object_get(old->json, RANCHER_MOUNTS "+");
    write_text(had_option, had_mount, &canonical);
    write_text(had_option || w->add_option, had_mount || w->add_mount, &now);
    if (old && !span_eq(buf_span(&canonical), buf_span(&old->bytes))) {
        buf_printf(&w->out->by_hand, "in %s:\n%s", path, now.p);
        return err_set(err, ERR_INVALID, "%s was edited, and is not replaced", path);
    }
    const char *later = w->add_option ? find_later(w, path, RANCHER_ARGS) : NULL;
    if (!later && w->add_mount)
        later = find_later(w, path, RANCHER_MOUNTS);
    if (later)
        return err_set(err, ERR_INVALID,
                       "%s is read after %s, and replaces its values: write \"+\" after "
                       "the key in the former",
                       later, path);
    change_plan_keep(w->out, CHANGE_PLAN_MANIFEST, path, &now);
    return 0;
}

int change_plan_service(struct change_plan_work *w, struct err *err)
{
    const struct facts *f = w->in->facts;
    if (!f->service_option)
        return 0;
    return err_set(err, ERR_INVALID,
                   "%s takes precedence over %s. Move this setting to that file, restart "
                   "%s, and run this program again",
                   f->service_option, rancher_config(f), rancher_name(f));
}

int change_plan_platform(struct change_plan_work *w, struct err *err)
{
    struct err fact = {0};
    enum platform_state state = platform_state(w->in->facts, &fact);
    cleanup_free char *remedy = platform_remedy(w->in->facts, state, "");
    if (state == PLATFORM_USABLE)
        return 0;
    return err_set(err, fact.code, "%s%s%s", fact.msg, *remedy ? ". Instead: " : "",
                   remedy);
}
