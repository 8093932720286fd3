/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "lib/lib.h"

/*
 * The images of `make images`: they contain only the expected files, and the programs start
 * from them alone.
 */

enum { LAYERS = 2 };

#define OCI "application/vnd.oci.image."

static const struct image {
    const char *name, *user;
} images[] = {{"gpushare-extender", "65532:65532"},
              {"gpushare-node", "0:0"},
              {"gpushare-setup", "0:0"}};

/* The images, built twice: in the folders "a" and "b". Shared by all tests. */
static char *made;

/* -- building -- */

/* Starts `make images` for made/FOLDER. */
static void start_make(struct program *p, const char *folder)
{
    const char *build = getenv("GPUSHARE_BUILD");
    const char *sanitize = build ? strchr(build, '/') : NULL;
    program_start(p, made,
                  ARGV("env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL",
                       "SOURCE_DATE_EPOCH=1700000000", "make", "-s",
                       lib_fmt("IMAGES=%s/%s", made, folder),
                       lib_fmt("SANITIZE=%s", sanitize ? sanitize + 1 : ""), "images"));
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

static char *archive(const char *folder, const struct image *image)
{
    return lib_fmt("%s/%s/%s-" GPUSHARE_VERSION ".tar", made, folder, image->name);
}

/* -- layouts -- */

/* A file of the layout in lib_dir; its size must be that of the descriptor. Kept. (The digests
 * are tested in test_release.c.) */
static char *blob_path(const json_t *descriptor)
{
    struct stat st;
    char *path = lib_fmt("%s/blobs/sha256/%s", lib_dir,
                         strchr(lib_str(descriptor, "digest"), ':') + 1);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(lib_int(descriptor, "size"), st.st_size);
    return path;
}

static json_t *load(const char *path)
{
    const char *text = lib_file(path);
    return lib_parse(text, strlen(text));
}

static json_t *read_json(const json_t *descriptor, const char *type)
{
    ck_assert_at(descriptor, "mediaType", type);
    return load(blob_path(descriptor));
}

/* Unpacks the image's archive into lib_dir; returns its manifest. */
static json_t *open_layout(const struct image *image)
{
    lib_output(0, ARGV("rm", "-rf", lib_path("blobs")));
    lib_output(0, ARGV("tar", "-C", lib_dir, "-xf", archive("a", image)));
    const json_t *index = load(lib_path("index.json"));
    ck_assert_uint_eq(lib_size(index, "manifests"), 1);
    return read_json(lib_at(index, "manifests.0"), OCI "manifest.v1+json");
}

static void check_config(const struct image *image, const json_t *config)
{
    static const char prefix[] = "org.opencontainers.image";
    ck_assert_at(config, "os", "linux");
    ck_assert_at(config, "created", "2023-11-14T22:13:20Z");
    ck_assert_at(config, "config.User", image->user);
    ck_assert_str_eq(lib_text(config, "config.Entrypoint"),
                     lib_fmt("[\"/usr/local/bin/%s\"]", image->name));
    const char *const wanted[][2] = {{"version", GPUSHARE_VERSION},
                                     {"licenses", "Apache-2.0"},
                                     {"title", image->name}};
    array_indices(i, wanted)
        ck_assert_str_eq(
            lib_in(config, "config.Labels", lib_fmt("%s.%s", prefix, wanted[i][0])),
            wanted[i][1]);
}

/* The names under which containerd, podman, skopeo and docker load the image. */
static void check_names(const struct image *image, const json_t *index,
                        const json_t *manifest)
{
    const char *name = lib_fmt("localhost/%s:" GPUSHARE_VERSION, image->name);
    const json_t *docker = load(lib_path("manifest.json"));
    ck_assert_str_eq(lib_in(index, "manifests.0.annotations", "io.containerd.image.name"),
                     name);
    ck_assert_str_eq(
        lib_in(index, "manifests.0.annotations", "org.opencontainers.image.ref.name"),
        GPUSHARE_VERSION);
    ck_assert_uint_eq(json_array_size(docker), 1);
    ck_assert_at(docker, "0.RepoTags.0", name);
    ck_assert_contains(lib_str(docker, "0.Config"),
                       lib_str(manifest, "config.digest") + 7);
    for (size_t i = 0; i < LAYERS; i++)
        ck_assert_contains(lib_str(docker, lib_fmt("0.Layers.%zu", i)),
                           lib_str(manifest, lib_fmt("layers.%zu.digest", i)) + 7);
}

TEST(every_layout_is_whole)
{
    const char *libraries = NULL;
    array_items(image, images) {
        const json_t *manifest = open_layout(image),
                     *index = load(lib_path("index.json"));
        ck_assert_at(load(lib_path("oci-layout")), "imageLayoutVersion", "1.0.0");
        ck_assert_int_eq(lib_int(index, "schemaVersion"), 2);
        ck_assert_int_eq(lib_int(manifest, "schemaVersion"), 2);
        ck_assert_uint_eq(lib_size(manifest, "layers"), LAYERS);
        check_config(image, read_json(lib_at(manifest, "config"), OCI "config.v1+json"));
        check_names(image, index, manifest);
        /* Two layers, a configuration, a manifest, and no blob without a reference. */
        ck_assert_int_eq(
            atoi(lib_output(
                0, ARGV("sh", "-c", "ls \"$1/blobs/sha256\" | wc -l", "sh", lib_dir))),
            LAYERS + 2);
        const char *lowest = lib_str(manifest, "layers.0.digest");
        ck_assert_str_eq(libraries ? libraries : lowest, lowest);
        libraries = lowest;
    }
}

/* -- contents -- */

/* Lists the layers, or unpacks them into lib_dir/root. Kept. */
static const char *each_layer(const struct image *image, const char *how)
{
    const char *all = "";
    const json_t *manifest = open_layout(image);
    lib_output(0, ARGV("mkdir", "-p", lib_path("root")));
    for (size_t i = 0; i < LAYERS; i++)
        all = lib_fmt(
            "%s%s", all,
            lib_output(0, ARGV("tar", "--numeric-owner", "-C", lib_path("root"), how,
                               blob_path(lib_at(manifest, lib_fmt("layers.%zu", i))))));
    return all;
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

TEST(the_images_contain_only_expected_files)
{
    array_items(image, images) {
        size_t programs = 0, entries = 0;
        const char *list = each_layer(image, "-tvzf");
        struct span rest = span_of(list);
        while (rest.n) {
            struct span line = span_cut(&rest, '\n');
            const char *text = lib_fmt("%.*s", SPAN_ARG(line));
            check_entry(text);
            programs += strstr(text, "/bin/") && *text == '-';
            entries++;
        }
        ck_assert_uint_gt(entries, 100);
        ck_assert_uint_eq(programs, 1); /* no shell, no package manager */
    }
}

/* Every package of a library is listed for scanners, with its license. */
TEST(packages_come_with_their_licenses)
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
    each_layer(&images[0], "-xzf");
    lib_output(0, ARGV("sh", "-euc", "cd \"$1\"; eval \"$2\"", "sh", lib_dir, script));
}

/* -- starting the programs -- */

/* Runs the program with lib_dir/root as root folder and with /proc, as in a container. */
static void run_alone(struct program *p, const char *user, const char *program,
                      const char *const *args)
{
    bool is_root = geteuid() == 0; /* otherwise root of a user namespace */
    const char *argv[PROGRAM_ARGS] = {
        "env",
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
        lib_path("root"),
        is_root ? user : "0:0",
        lib_fmt("/usr/local/bin/%s", program)};
    program_args(argv, 14, args);
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

static void check_output(const struct image *image, const char *program,
                         const char *option, const char *begins)
{
    struct program p;
    run_alone(&p, image->user, program, ARGV(option));
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_msg(strncmp(said, begins, strlen(begins)) == 0, "%s: %s", program, said);
}

TEST(programs_start_from_the_images_alone)
{
    for (size_t i = 0; can_be_alone() && i < ARRAY_LEN(images); i++) {
        each_layer(&images[i], "-xzf");
        if (!strcmp(images[i].name, "gpushare-setup"))
            lib_file(lib_path("root/policy/kube-scheduler-config.yaml"));
        check_output(&images[i], images[i].name, "--version",
                     lib_fmt("%s " GPUSHARE_VERSION "\n", images[i].name));
        check_output(&images[i], images[i].name, "--help",
                     lib_fmt("%s: ", images[i].name));
        lib_output(0, ARGV("rm", "-rf", lib_path("root")));
    }
}

/* Manifests of 1.0 name the modes, and --host-root=/host needs the processes of the host. */
TEST(the_image_of_the_node_has_the_names_of_its_modes_and_the_processes)
{
    static const char *const names[] = {"scv-agent", "gpushare-device-plugin"};
    if (!can_be_alone())
        return;
    each_layer(&images[1], "-xzf");
    ck_assert_str_eq(lib_output(0, ARGV("readlink", lib_path("root/host/proc"))),
                     "../proc\n");
    array_items(name, names)
        check_output(&images[1], *name, "--version",
                     lib_fmt("%s " GPUSHARE_VERSION "\n", *name));
}

/* The program of card-check.yaml.example, which finds its files beside itself. */
TEST(the_image_of_the_node_checks_cards)
{
    struct program p;
    if (!can_be_alone())
        return;
    each_layer(&images[1], "-xzf");
    lib_output(0, ARGV("mkdir", "-m", "1777", lib_path("root/tmp")));
    run_alone(&p, images[1].user, "../lib/gpushare/gpushare-card-check", ARGV(NULL));
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "0 ok, 0 differ, 11 not present\n");
    run_alone(&p, images[1].user, "../lib/gpushare/gpushare-card-check",
              ARGV("--copy-to", "/tmp"));
    free(program_end(&p, 0));
    lib_output(0, ARGV("test", "-s", lib_path("root/tmp/libgpushare-limit.so")));
}

/* NVIDIA's runtime mounts the library into Debian's library folder, without updating the
 * cache of the loader. */
TEST(nvml_is_found_where_the_runtime_puts_it)
{
    static const char put[] =
        "cat \"$2\" >\"$(echo \"$1\"/root/usr/lib/*-linux-*)/libnvidia-ml.so.1\"";
    struct program p;
    if (!can_be_alone())
        return;
    each_layer(&images[1], "-xzf");
    lib_output(0, ARGV("sh", "-euc", put, "sh", lib_dir,
                       lib_built("fake-nvml/libnvidia-ml.so.1")));
    temp_write(
        lib_path("root"), "nvml",
        "driver 535.129.03\ncuda 12020\n"
        "card uuid=GPU-1;name=Tesla T4;bus=3b;minor=0;total=17179869184;"
        "free=17179869184;used=0;reserved=0;util=0;temp=30;events=15;processes=\n");
    run_alone(&p, images[1].user, images[1].name, ARGV("--once", "--node-name", "n"));
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "GPU-1");
}

TEST(a_second_build_is_identical)
{
    array_items(image, images)
        lib_output(0, ARGV("cmp", archive("a", image), archive("b", image)));
}

/* The Containerfile takes the files from scripts/images and sets these values itself. */
TEST(the_containerfile_sets_the_same_values)
{
    const char *file = lib_file("Containerfile");
    ck_assert_contains(file, "\nARG VERSION=" GPUSHARE_VERSION "\n");
    array_items(image, images) {
        const char *name = image->name;
        ck_assert_contains(file,
                           lib_fmt("\nFROM libraries AS %s\n"
                                   "COPY --from=build /gpushare/build/images/root/%s/ /\n"
                                   "USER %s\nENTRYPOINT [\"/usr/local/bin/%s\"]\n",
                                   name, name, image->user, name));
    }
}

TEST(a_missing_program_is_named)
{
    char *said =
        lib_output(1, ARGV("scripts/images", lib_dir, GPUSHARE_VERSION, lib_dir));
    ck_assert_contains(said, "images: ");
    ck_assert_contains(said, "/usr/local/bin/gpushare-extender not found");
}

LIB_MAIN_ONCE(60, make_twice, remove_made)
