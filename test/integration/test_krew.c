/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "lib/sim.h"
#include "lib/yamlfile.h"

/*
 * The output of `make krew`, installed as krew does it: the archive is unpacked in krew's
 * store, and the program is linked under its name with underscores instead of dashes.
 */

/* The output of a shell command, which must succeed; new. */
static char *output_of(const char *line)
{
    return lib_output(0, ARGV("sh", "-euc", line));
}

/* The folders "a" and "b", in which archive and manifest were built. Shared by all tests. */
static char *made;

static void build(const char *folder, const char *mask)
{
    output_of(lib_fmt("umask %s; scripts/krew '%s/%s' 1.2.3 "
                      "https://there/v1.2.3 \"$(dpkg "
                      "--print-architecture)=%s=\"",
                      mask, made, folder, lib_built("kubectl-inspect-gpushare")));
}

static void build_twice(void)
{
    lib_dir = made = temp_dir(); /* for output_of */
    setenv("MADE", made, 1);
    build("a", "022");
    build("b", "077");
}

static void remove_made(void)
{
    temp_dir_remove(made);
}

static json_t *manifest_in(const char *folder)
{
    cleanup_json json_t *all = json_array();
    yamlfile_read(all, lib_fmt("%s/%s/inspect-gpushare.yaml", made, folder));
    ck_assert_uint_eq(json_array_size(all), 1);
    return json_incref(json_array_get(all, 0));
}

static json_t *platform_of(const json_t *manifest)
{
    return lib_at(manifest, "spec.platforms.0");
}

TEST(the_archive_is_reproducible)
{
    cleanup_json json_t *first = manifest_in("a"), *second = manifest_in("b");
    ck_assert(json_equal(first, second));
    ck_assert_at(first, "metadata.name", "inspect-gpushare");
    ck_assert_at(first, "spec.version", "v1.2.3");
    const json_t *platform = platform_of(first);
    char *name = lib_fmt("kubectl-inspect-gpushare-linux-%s.tar.gz",
                         lib_str(platform, "selector.matchLabels.arch"));
    ck_assert_at(platform, "uri", lib_fmt("https://there/v1.2.3/%s", name));

    ck_assert_str_eq(
        output_of(
            lib_fmt("cd \"$MADE/a\"; sha256sum %s | cut -d' ' -f1; cmp %s ../b/%s; "
                    "tar -tvzf %s | sed 's/ .* / /' | grep -v /", /* the top folder */
                    name, name, name, name)),
        lib_fmt("%s\n-rw-r--r-- LICENSE\n-rwxr-xr-x kubectl-inspect-gpushare\n"
                "-rwxr-xr-x kubectl_complete-inspect-gpushare\n",
                lib_str(platform, "sha256")));
}

/* The indented lines of the caveats. */
static char *commands_of(const json_t *manifest)
{
    cleanup_buf struct buf out = {0};
    struct span rest = span_of(lib_str(manifest, "spec.caveats"));
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        if (!span_starts(line, SPAN("  ")))
            continue;
        buf_add_span(&out, span_trim(line));
        buf_addc(&out, '\n');
    }
    ck_assert_uint_gt(out.n, 0);
    return buf_take(&out);
}

TEST(the_caveats_add_the_documented_name)
{
    cleanup_json json_t *manifest = manifest_in("a");
    cleanup_free char *commands = commands_of(manifest);
    /* A KREW_ROOT as krew leaves it. */
    output_of(lib_fmt(
        "store='%s/krew root/store/inspect-gpushare/v1.2.3'; bin='%s/krew root/bin'; "
        "mkdir -p \"$store\" \"$bin\"; tar -C \"$store\" -xzf "
        "\"$MADE\"/a/kubectl-inspect-gpushare-linux-*.tar.gz; "
        "ln -s \"$store/%s\" \"$bin/kubectl-inspect_gpushare\"",
        lib_dir, lib_dir, lib_str(platform_of(manifest), "bin")));
    for (int i = 0; i < 2; i++) { /* the second time as after an upgrade */
        output_of(lib_fmt("export KREW_ROOT='%s/krew root'\n%s", lib_dir, commands));
    }
    char *version =
        output_of(lib_fmt("'%s' --version", lib_built("kubectl-inspect-gpushare")));

    ck_assert_str_eq(
        output_of(
            lib_fmt("PATH='%s/krew root/bin':$PATH; kubectl-inspect_gpushare --version; "
                    "kubectl-inspect-gpushare --version; "
                    "kubectl_complete-inspect-gpushare explain ''",
                    lib_dir)),
        lib_fmt("%s%spod\n:4\n", version, version));
}

/* Whether this machine lets a program have another root folder. */
static bool can_be_alone(void)
{
    struct program p;
    program_start(&p, lib_dir,
                  geteuid() ? ARGV("unshare", "--map-root-user", "--root=/", "true")
                            : ARGV("unshare", "--root=/", "true"));
    bool can = program_wait(&p) == 0;
    if (!can) {
        printf("measured: the plugin was not started alone: %s", program_output(&p));
        fflush(stdout);
    }
    program_fini(&p);
    return can;
}

/* krew installs no libraries, and the machine may have another C library, or none. krew unpacks
 * folders and files only. */
TEST(the_plugin_needs_only_the_archive)
{
    char *loader = output_of(lib_fmt(
        "cd '%s'; mkdir root; tar -C root -xzf "
        "\"$MADE\"/a/kubectl-inspect-gpushare-linux-*.tar.gz; find root -not -type d "
        "-not -type f; ls root/lib/ld-linux*",
        lib_dir));
    loader[strcspn(loader, "\n")] = '\0';
    ck_assert_int_eq(strncmp(loader, "root/lib/", 9), 0); /* no link was listed */
    if (!can_be_alone())
        return;

    ck_assert_int_eq(
        strncmp(
            output_of(lib_fmt(
                "unshare %s --root='%s/root' --wd=/ '%s' --library-path /lib --argv0 it "
                "/lib/kubectl-inspect-gpushare --version",
                geteuid() ? "--map-root-user" : "", lib_dir, loader + 4)),
            "kubectl-inspect-gpushare ", 25),
        0);
}

/* The libraries come with the licenses that they require. */
TEST(each_library_has_its_license)
{
    output_of(lib_fmt(
        "cd '%s'; tar -xzf \"$MADE\"/a/kubectl-inspect-gpushare-linux-*.tar.gz licenses; "
        "ls \"$MADE\"/a/packages-*/ >known; test -s known; for p in $(cat known); do "
        "test -s licenses/$p/copyright; grep -qx \"Package: $p\" "
        "\"$MADE\"/a/packages-*/$p; "
        "done; "
        "test -s licenses/common-licenses/LGPL-2.1; test -s "
        "licenses/libgnutls30/copyright",
        lib_dir));
}

TEST(a_project_url_that_is_no_address_is_refused)
{
    static const char *const wrong[] = {"example.org", "https://a b",
                                        "https://a\"\n  bin: x"};
    array_items(c, wrong) {
        char *url = lib_fmt("PROJECT_URL=%s", *c);
        char *out = lib_fmt("%s/%s", made, "c");
        ck_assert_contains(lib_output(1, ARGV("env", url, "scripts/krew", out, "1.2.3",
                                              "https://there")),
                           "\" is no address\n");
    }
}

LIB_MAIN_ONCE(60, build_twice, remove_made)
