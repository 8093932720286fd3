/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/lib.h"

/*
 * The release of `make release` for amd64 and arm64, published to a registry on this machine
 * with scripts/release/publish, and fetched from there: by digest, and by helm. The programs of
 * arm64 run under qemu-user.
 */

static struct program registry;
static char *made; /* the folder of the registry */

/* The output of a shell script, which must succeed. It runs in lib_dir. $TOP is the folder of
 * the sources, $OUT the release, $HOST the address of the registry. */
static char *output_of(const char *script)
{
    return lib_output(
        0,
        ARGV("bash", "-euo", "pipefail", "-c",
             lib_fmt(
                 "TOP=$PWD OUT=$PWD/build/release HELM=$(scripts/e2e-programs helm)/helm "
                 "ARM=$(scripts/debian-root arm64) AMD=$(scripts/debian-root amd64)\n"
                 "cd; %s",
                 script)));
}

static void start_registry(void)
{
    lib_dir = made = temp_dir();
    temp_write(
        made, "config.yml",
        lib_fmt("version: 0.1\nstorage: {filesystem: {rootdirectory: \"%s/data\"}}\n"
                "http: {addr: \"127.0.0.1:0\"}\n",
                made));
    program_start(
        &registry, getenv("HOME"),
        ARGV("sh", "-c",
             lib_fmt("exec \"${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/registry/usr/bin/"
                     "docker-registry\" serve '%s/config.yml'",
                     made)));
    setenv("HOST", lib_fmt("127.0.0.1:%u", program_port(&registry, "listening on ")), 1);
    output_of("openssl ecparam -name prime256v1 -genkey -noout -out key\n"
              "openssl pkey -in key -pubout -out public\n"
              "cp -r \"$OUT\" signed; \"$TOP\"/scripts/release/sign signed key\n"
              "\"$TOP\"/scripts/release/publish signed $HOST/g --dest-tls-verify=false");
}

static void stop_registry(void)
{
    program_kill(&registry);
    temp_dir_remove(made);
}

/* What the registry says of /v2/g/NAME/manifests/REFERENCE. */
static json_t *manifest(const char *name, const char *reference)
{
    const char *text = output_of(lib_fmt(
        "curl -sSf -H 'Accept: application/vnd.oci.image.index.v1+json, "
        "application/vnd.oci.image.manifest.v1+json' http://$HOST/v2/g/%s/manifests/%s",
        name, reference));
    return lib_parse(text, strlen(text));
}

static char *digest_of(const char *name)
{
    char *digest =
        output_of(lib_fmt("sed -n 's|.*/%s:[^@]*@||p' \"$OUT/images.txt\"", name));
    digest[strcspn(digest, "\n")] = '\0';
    ck_assert_uint_eq(strlen(digest), 71);
    return digest;
}

static const char *const images[] = {"gpushare-extender", "gpushare-node",
                                     "gpushare-setup"};
enum { OF_CHART = 2 }; /* the first images */

TEST(each_image_is_there_by_digest_for_both_architectures)
{
    array_items(image, images) {
        const char *digest = digest_of(*image);
        const json_t *index = manifest(*image, digest);
        ck_assert(json_equal(index, manifest(*image, GPUSHARE_VERSION)));
        ck_assert_uint_eq(lib_size(index, "manifests"), 2);
        ck_assert_at(index, "manifests.0.platform.architecture", "amd64");
        ck_assert_at(index, "manifests.1.platform.architecture", "arm64");
        output_of(lib_fmt("skopeo copy --quiet --all --src-tls-verify=false "
                          "docker://$HOST/g/%s@%s dir:%s",
                          *image, digest, *image));
    }
}

/* The signature of a digest, at the tag where cosign looks for it. */
static void check_signature(const char *image, const char *digest)
{
    const json_t *layer =
        lib_at(manifest(image, lib_fmt("sha256-%s.sig", digest + 7)), "layers.0");
    ck_assert_at(layer, "mediaType", "application/vnd.dev.cosign.simplesigning.v1+json");
    output_of(lib_fmt("curl -sSf http://$HOST/v2/g/%s/blobs/%s >payload\n"
                      "echo '%s' | base64 -d >sig; grep -q '\"%s\"' payload\n"
                      "grep -q '\"docker-reference\":\"localhost/gpushare/%s\"' payload\n"
                      "openssl dgst -sha256 -verify '%s/public' -signature sig payload",
                      image, lib_str(layer, "digest"),
                      lib_in(layer, "annotations", "dev.cosignproject.cosign/signature"),
                      digest, image, made));
}

/* Debian's skopeo and podman cannot verify these signatures. */
TEST(each_image_has_its_signature_beside_it)
{
    array_items(image, images) {
        const char *digest = digest_of(*image);
        json_t *one;
        check_signature(*image, digest);
        lib_each(one, lib_at(manifest(*image, digest), "manifests"))
            check_signature(*image, lib_str(one, "digest"));
    }
    check_signature("gpushare", digest_of("gpushare"));
}

TEST(helm_installs_the_chart_from_there)
{
    const char *said = output_of(
        "$HELM pull oci://$HOST/g/gpushare --version " GPUSHARE_VERSION
        " --plain-http 2>&1\n"
        "cmp gpushare-" GPUSHARE_VERSION ".tgz \"$OUT/gpushare-" GPUSHARE_VERSION
        ".tgz\"\n"
        "$HELM lint --kube-version 1.36 gpushare-" GPUSHARE_VERSION ".tgz\n"
        "$HELM template gpushare gpushare-" GPUSHARE_VERSION ".tgz -n kube-system "
        "--kube-version 1.36 --set image.registry=$HOST/g >objects\n"
        "grep -o 'image: .*' objects | sort -u");
    ck_assert_contains(said, digest_of("gpushare"));
    for (size_t i = 0; i < OF_CHART; i++)
        ck_assert_contains(
            said, lib_fmt("%s/g/%s@%s", getenv("HOST"), images[i], digest_of(images[i])));
}

/* From the layers alone; the arm64 image has its loader and all libraries. */
TEST(the_programs_start_from_the_images_of_both_architectures)
{
    const char *said = output_of(
        "for p in gpushare-extender gpushare-node gpushare-setup; do\n"
        "  for a in amd64 arm64; do\n"
        "    rm -rf all root; mkdir all root\n"
        "    skopeo copy --quiet --src-tls-verify=false --override-arch $a "
        "docker://$HOST/g/$p:" GPUSHARE_VERSION " dir:all\n"
        "    for l in $(grep -o '\"digest\": \"sha256:[0-9a-f]*' all/manifest.json | "
        "tail -n +2 | sed 's/.*://'); do tar -C root -xzf all/$l; done\n"
        "    if [ $a = arm64 ]; then qemu-aarch64 -L root root/usr/local/bin/$p "
        "--version\n"
        "    else root/lib64/ld-linux-x86-64.so.2 --inhibit-cache --library-path "
        "root/usr/lib/x86_64-linux-gnu root/usr/local/bin/$p --version; fi\n"
        "    test $p != gpushare-node ||\n"
        "      readelf -h root/usr/local/lib/gpushare/libgpushare-limit.so | grep -o "
        "'AArch64\\|X86-64'\n"
        "  done\n"
        "done");
    ck_assert_str_eq(said, "gpushare-extender " GPUSHARE_VERSION
                           "\ngpushare-extender " GPUSHARE_VERSION "\n"
                           "gpushare-node " GPUSHARE_VERSION
                           "\nX86-64\ngpushare-node " GPUSHARE_VERSION "\nAArch64\n"
                           "gpushare-setup " GPUSHARE_VERSION
                           "\ngpushare-setup " GPUSHARE_VERSION "\n");
}

TEST(the_plugin_and_the_package_run_on_both_architectures)
{
    const char *said = output_of(
        "for a in amd64 arm64; do\n"
        "  mkdir $a; tar -C $a -xzf \"$OUT\"/kubectl-inspect-gpushare-linux-$a.tar.gz\n"
        "  dpkg-deb -x \"$OUT\"/gpushare_" GPUSHARE_VERSION "_$a.deb $a/deb\n"
        "done\n"
        "amd64/kubectl-inspect-gpushare --version\n"
        "qemu-aarch64 arm64/lib/ld-linux-aarch64.so.1 --library-path arm64/lib "
        "arm64/lib/kubectl-inspect-gpushare --version\n"
        "qemu-x86_64 -L $AMD amd64/deb/usr/bin/gpushare-setup --version\n"
        "qemu-aarch64 -L $ARM arm64/deb/usr/bin/gpushare-setup --version");
    ck_assert_str_eq(said, "kubectl-inspect-gpushare " GPUSHARE_VERSION
                           "\nkubectl-inspect-gpushare " GPUSHARE_VERSION
                           "\ngpushare-setup " GPUSHARE_VERSION
                           "\ngpushare-setup " GPUSHARE_VERSION "\n");
}

/* Without the limit of program_wait: on a busy machine it takes its time. */
TEST(the_same_programs_give_the_same_bytes)
{
    setenv("AGAIN", lib_dir, 1);
    int status = system("scripts/release/all " GPUSHARE_VERSION
                        " localhost/gpushare https://localhost "
                        "\"$AGAIN/again\" amd64=build/amd64=$(scripts/debian-root amd64) "
                        "arm64=build/arm64=$(scripts/debian-root arm64)");
    ck_assert_int_eq(status, 0);
    output_of("diff -r -x '*.sig*' again \"$OUT\"");
}

int main(void)
{
    /* The programs of this suite get another HOME. */
    setenv("XDG_CACHE_HOME", lib_fmt("%s/.cache", getenv("HOME")), 0);
    return lib_run(300, (struct unit_fixtures){.begin_all = start_registry,
                                               .end_all = stop_registry});
}
