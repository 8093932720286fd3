/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/lib.h"

/*
 * The images of `make images`: they contain only the expected files, and the programs start
 * from them alone.
 */

enum { BLOB_MAX = 256 << 20, LAYERS = 2 };

#define OCI "application/vnd.oci.image."

static const struct image {
    const char *name, *user;
} images[] = {{"gpushare-extender", "65532:65532"},
              {"gpushare-device-plugin", "0:0"},
              {"scv-agent", "0:0"}};

/* The images, built twice: in the folders "a" and "b". Shared by all tests. */
static char *made;

/* -- building -- */

/* Starts `make images` for made/FOLDER. */
static void start_make(struct program *p, const char *folder)
{
    const char *build = getenv("GPUSHARE_BUILD");
    const char *sanitize = build ? strchr(build, '/') : NULL;
    cleanup_free char *out = xasprintf("IMAGES=%s/%s", made, folder);
    cleanup_free char *with = xasprintf("SANITIZE=%s", sanitize ? sanitize + 1 : "");
    program_start(p, made,
                  ARGV("env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL",
                       "SOURCE_DATE_EPOCH=1700000000", "make", "-s", out, with,
                       "images"));
}

static void make_twice(void)
{
    struct program first, second;
    made = temp_dir();
    start_make(&first, "a");
    start_make(&second, "b");
    free(program_end(&first, 0));
    free(program_end(&second, 0));
}

static void remove_made(void)
{
    temp_dir_remove(made);
}

static void do_it(const char *const *argv)
{
    free(lib_output(0, argv));
}

static char *archive(const char *folder, const struct image *image)
{
    return xasprintf("%s/%s/%s-0.1.0.tar", made, folder, image->name);
}

/* -- layouts -- */

/* A file of the layout in lib_dir. */
static char *blob_path(const char *digest)
{
    ck_assert_int_eq(strncmp(digest, "sha256:", 7), 0);
    return xasprintf("%s/blobs/sha256/%s", lib_dir, digest + 7);
}

/* The bytes of a descriptor, whose size must match. (test_release.c: the digests.) */
static void read_blob(const json_t *descriptor, const char *type, struct buf *out)
{
    struct err err = {0};
    const char *digest = lib_str(descriptor, "digest");
    cleanup_free char *path = blob_path(digest);
    ck_assert_str_eq(lib_str(descriptor, "mediaType"), type);
    buf_clear(out);
    ck_assert_done(file_read(path, BLOB_MAX, out, &err), err);
    ck_assert_int_eq(json_integer_value(lib_at(descriptor, "size")), (json_int_t)out->n);
}

static json_t *read_json(const json_t *descriptor, const char *type)
{
    cleanup_buf struct buf text = {0};
    read_blob(descriptor, type, &text);
    json_t *j = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(j != NULL, "invalid JSON: %.*s", (int)text.n, text.p);
    return j;
}

static json_t *load(const char *name)
{
    cleanup_free char *text = temp_read(lib_dir, name);
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(j != NULL, "%s: invalid JSON: %s", name, text);
    return j;
}

static void clear(const char *folder)
{
    cleanup_free char *path = temp_path(lib_dir, folder);
    do_it(ARGV("rm", "-rf", path));
}

/* Unpacks the image's archive into lib_dir. */
static void open_layout(const struct image *image)
{
    cleanup_free char *tar = archive("a", image);
    clear("blobs");
    do_it(ARGV("tar", "-C", lib_dir, "-xf", tar));
}

static json_t *manifest_of(const json_t *index)
{
    ck_assert_uint_eq(json_array_size(lib_at(index, "manifests")), 1);
    return read_json(json_array_get(lib_at(index, "manifests"), 0),
                     OCI "manifest.v1+json");
}

static void check_config(const struct image *image, const json_t *config)
{
    cleanup_free char *program = xasprintf("/usr/local/bin/%s", image->name);
    const json_t *labels = lib_at(config, "config.Labels");
    static const char prefix[] = "org.opencontainers.image.";
    static const char *const wanted[][2] = {{"version", "0.1.0"},
                                            {"licenses", "Apache-2.0"}};
    ck_assert_str_eq(lib_str(config, "os"), "linux");
    ck_assert_str_eq(lib_str(config, "created"), "2023-11-14T22:13:20Z");
    ck_assert_str_eq(lib_str(config, "config.User"), image->user);
    const json_t *entry = lib_at(config, "config.Entrypoint");
    ck_assert_uint_eq(json_array_size(entry), 1);
    ck_assert_str_eq(json_string_value(json_array_get(entry, 0)), program);
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        cleanup_free char *key = xasprintf("%s%s", prefix, wanted[i][0]);
        const char *is = json_string_value(json_object_get(labels, key));
        ck_assert_msg(is && strcmp(is, wanted[i][1]) == 0, "%s is %s", key, is);
    }
    const char *title =
        json_string_value(json_object_get(labels, "org.opencontainers.image.title"));
    ck_assert_str_eq(title, image->name);
}

/* The names under which containerd, podman, skopeo and docker load the image. */
static void check_names(const struct image *image, const json_t *index,
                        const json_t *manifest)
{
    cleanup_free char *name = xasprintf("localhost/%s:0.1.0", image->name);
    cleanup_json json_t *docker = load("manifest.json");
    const json_t *notes =
        lib_at(json_array_get(lib_at(index, "manifests"), 0), "annotations");
    const json_t *only = json_array_get(docker, 0);
    ck_assert_str_eq(
        json_string_value(json_object_get(notes, "io.containerd.image.name")), name);
    ck_assert_str_eq(
        json_string_value(json_object_get(notes, "org.opencontainers.image.ref.name")),
        "0.1.0");
    ck_assert_uint_eq(json_array_size(docker), 1);
    ck_assert_str_eq(json_string_value(json_array_get(lib_at(only, "RepoTags"), 0)),
                     name);
    ck_assert_contains(lib_str(only, "Config"), lib_str(manifest, "config.digest") + 7);
    for (size_t i = 0; i < LAYERS; i++)
        ck_assert_contains(
            json_string_value(json_array_get(lib_at(only, "Layers"), i)),
            lib_str(json_array_get(lib_at(manifest, "layers"), i), "digest") + 7);
}

START_TEST(every_layout_is_whole)
{
    cleanup_free char *libraries = NULL;
    for (size_t i = 0; i < ARRAY_LEN(images); i++) {
        open_layout(&images[i]);
        cleanup_json json_t *index = load("index.json"), *version = load("oci-layout");
        cleanup_json json_t *manifest = manifest_of(index), *config = NULL;
        config = read_json(lib_at(manifest, "config"), OCI "config.v1+json");
        ck_assert_str_eq(lib_str(version, "imageLayoutVersion"), "1.0.0");
        ck_assert_int_eq(json_integer_value(lib_at(index, "schemaVersion")), 2);
        ck_assert_int_eq(json_integer_value(lib_at(manifest, "schemaVersion")), 2);
        ck_assert_uint_eq(json_array_size(lib_at(manifest, "layers")), LAYERS);
        check_config(&images[i], config);
        check_names(&images[i], index, manifest);
        /* Two layers, a configuration, a manifest, and no blob without a reference. */
        cleanup_free char *count =
            lib_output(0, ARGV("sh", "-c", "ls \"$1/blobs/sha256\" | wc -l", "sh",
                               lib_dir));
        ck_assert_int_eq(atoi(count), LAYERS + 2);
        const char *lowest =
            lib_str(json_array_get(lib_at(manifest, "layers"), 0), "digest");
        if (libraries)
            ck_assert_str_eq(libraries, lowest);
        else
            libraries = xstrdup(lowest);
    }
}
END_TEST

/* -- contents -- */

/* Lists the layers, or unpacks them into lib_dir/root. */
static char *each_layer(const struct image *image, const char *how)
{
    struct buf all = {0};
    open_layout(image);
    cleanup_json json_t *index = load("index.json"), *manifest = manifest_of(index);
    cleanup_free char *root = temp_path(lib_dir, "root");
    mkdir(root, 0755);
    for (size_t i = 0; i < LAYERS; i++) {
        const json_t *layer = json_array_get(lib_at(manifest, "layers"), i);
        cleanup_free char *path = blob_path(lib_str(layer, "digest"));
        cleanup_free char *text =
            lib_output(0, ARGV("tar", "--numeric-owner", "-C", root, how, path));
        buf_adds(&all, text);
    }
    return buf_take(&all);
}

/* A line of tar: "-rwxr-xr-x 0/0 1234 DATE TIME ./usr/..." */
static void check_entry(const char *line)
{
    bool link = *line == 'l';
    ck_assert_msg(strchr("-dl", *line) != NULL, "not a file, folder or link: %s", line);
    ck_assert_msg(strncmp(line + 10, " 0/0 ", 5) == 0, "not owned by root: %s", line);
    ck_assert_msg(link || line[8] != 'w', "writable by others: %s", line);
    ck_assert_msg(!memchr(line, 's', 10) && !memchr(line, 'S', 10),
                  "setuid or setgid: %s", line);
}

START_TEST(the_images_contain_only_expected_files)
{
    for (size_t i = 0; i < ARRAY_LEN(images); i++) {
        size_t programs = 0, entries = 0;
        cleanup_free char *list = each_layer(&images[i], "-tvzf");
        struct span rest = span_of(list);
        while (rest.n) {
            struct span line = span_cut(&rest, '\n');
            cleanup_free char *text = xmemdup0(line.p, line.n);
            check_entry(text);
            programs += strstr(text, "/bin/") && *text == '-';
            entries++;
        }
        ck_assert_uint_gt(entries, 100);
        ck_assert_uint_eq(programs, 1); /* no shell, no package manager */
    }
}
END_TEST

/* Every package of a library is listed for scanners, with its license. */
START_TEST(packages_come_with_their_licenses)
{
    static const char script[] =
        "cd root && for f in usr/lib/*-linux-*/*.so*; do\n"
        "  [ -L $f ] && continue\n"
        "  { dpkg-query -S /$f || dpkg-query -S /${f#usr/}; } 2>/dev/null | sed "
        "'s/[:,].*//'\n"
        "done | sort -u >../want\n"
        "echo base-files >>../want; sort -uo ../want ../want\n"
        "ls var/lib/dpkg/status.d >../known; cmp ../want ../known\n"
        "for p in $(cat ../known); do\n"
        "  grep -qx \"Package: $p\" var/lib/dpkg/status.d/$p\n"
        "  grep -qx 'Version: [0-9].*' var/lib/dpkg/status.d/$p\n"
        "  test -s usr/share/doc/$p/copyright\n"
        "done\n"
        "test -s usr/share/doc/gpushare/copyright\n"
        "test -s usr/share/common-licenses/LGPL-2.1\n"
        "test -s etc/debian_version && grep -q '^ID=' etc/os-release\n";
    free(each_layer(&images[0], "-xzf"));
    do_it(ARGV("sh", "-euc", "cd \"$1\"; eval \"$2\"", "sh", lib_dir, script));
}
END_TEST

/* -- starting the programs -- */

/* Runs the program with lib_dir/root as root folder and with /proc, as in a container. */
static void run_alone(struct program *p, const char *user, const char *program,
                      const char *const *args)
{
    cleanup_free char *path = xasprintf("/usr/local/bin/%s", program);
    cleanup_free char *root = temp_path(lib_dir, "root");
    bool is_root = geteuid() == 0; /* otherwise root of a user namespace */
    const char *argv[24] = {"env",
                            "-i",
                            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                            "FAKE_NVML=/nvml",
                            "unshare",
                            is_root ? "--mount" : "--map-root-user",
                            "--mount",
                            "sh",
                            "-euc",
                            "mount --rbind /proc \"$1/proc\"; root=$1 user=$2; shift 2; "
                            "exec chroot --userspec=\"$user\" --groups= \"$root\" \"$@\"",
                            "sh",
                            root,
                            is_root ? user : "0:0",
                            path};
    for (size_t n = 14; *args; n++)
        argv[n] = *args++;
    program_start(p, lib_dir, argv);
}

/* Whether this machine supports that. */
static bool can_be_alone(void)
{
    struct program p;
    program_start(
        &p, lib_dir,
        ARGV("unshare", geteuid() ? "--map-root-user" : "--mount", "--mount", "true"));
    bool can = program_wait(&p) == 0;
    if (!can) {
        printf("measured: no image was started here: %s", program_output(&p));
        fflush(stdout);
    }
    program_fini(&p);
    return can;
}

static void check_output(const struct image *image, const char *option,
                         const char *begins)
{
    struct program p;
    run_alone(&p, image->user, image->name, ARGV(option));
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_msg(strncmp(said, begins, strlen(begins)) == 0, "%s: %s", image->name,
                  said);
}

START_TEST(programs_start_from_the_images_alone)
{
    for (size_t i = 0; can_be_alone() && i < ARRAY_LEN(images); i++) {
        cleanup_free char *version = xasprintf("%s 0.1.0\n", images[i].name);
        cleanup_free char *help = xasprintf("%s: ", images[i].name);
        free(each_layer(&images[i], "-xzf"));
        check_output(&images[i], "--version", version);
        check_output(&images[i], "--help", help);
        clear("root");
    }
}
END_TEST

/* NVIDIA's runtime mounts the library into Debian's library folder, without updating the
 * cache of the loader. */
START_TEST(nvml_is_found_where_the_runtime_puts_it)
{
    static const char put[] =
        "cat \"$2\" >\"$(echo \"$1\"/root/usr/lib/*-linux-*)/libnvidia-ml.so.1\"";
    cleanup_free char *library = program_path("fake-nvml/libnvidia-ml.so.1");
    struct program p;
    if (!can_be_alone())
        return;
    free(each_layer(&images[2], "-xzf"));
    do_it(ARGV("sh", "-euc", put, "sh", lib_dir, library));
    cleanup_free char *root = temp_path(lib_dir, "root");
    temp_write(
        root, "nvml",
        "driver 535.129.03\ncuda 12020\n"
        "card uuid=GPU-1;name=Tesla T4;bus=3b;minor=0;total=17179869184;"
        "free=17179869184;used=0;reserved=0;util=0;temp=30;events=15;processes=\n");
    run_alone(&p, images[2].user, images[2].name, ARGV("--once", "--node-name", "n"));
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "GPU-1");
}
END_TEST

START_TEST(a_second_build_is_identical)
{
    for (size_t i = 0; i < ARRAY_LEN(images); i++) {
        cleanup_free char *a = archive("a", &images[i]), *b = archive("b", &images[i]);
        do_it(ARGV("cmp", a, b));
    }
}
END_TEST

/* The Containerfile takes the files from scripts/images and sets these values itself. */
START_TEST(the_containerfile_sets_the_same_values)
{
    cleanup_buf struct buf file = {0};
    struct err err = {0};
    ck_assert_done(file_read("Containerfile", 1 << 20, &file, &err), err);
    ck_assert_contains(file.p, "\nARG VERSION=0.1.0\n");
    for (size_t i = 0; i < ARRAY_LEN(images); i++) {
        const char *name = images[i].name;
        cleanup_free char *stage =
            xasprintf("\nFROM libraries AS %s\n"
                      "COPY --from=build /gpushare/build/images/root/%s/ /\n"
                      "USER %s\nENTRYPOINT [\"/usr/local/bin/%s\"]\n",
                      name, name, images[i].user, name);
        ck_assert_contains(file.p, stage);
    }
}
END_TEST

START_TEST(a_missing_program_is_named)
{
    cleanup_free char *said =
        lib_output(1, ARGV("scripts/images", lib_dir, "0.1.0", lib_dir));
    ck_assert_contains(said, "images: ");
    ck_assert_contains(said, "/usr/local/bin/gpushare-extender not found");
}
END_TEST

int main(void)
{
    static const struct unit_fixtures around = {.begin_all = make_twice,
                                                .end_all = remove_made};
    const TTest *const tests[] = {every_layout_is_whole,
                                  the_images_contain_only_expected_files,
                                  packages_come_with_their_licenses,
                                  programs_start_from_the_images_alone,
                                  nvml_is_found_where_the_runtime_puts_it,
                                  a_second_build_is_identical,
                                  the_containerfile_sets_the_same_values,
                                  a_missing_program_is_named};
    return lib_run_with("images", tests, ARRAY_LEN(tests), 60, &around);
}
