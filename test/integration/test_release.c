/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sim.h"
#include "lib/yamlfile.h"

/*
 * What scripts/release writes for the architecture of this machine: checksums and signatures
 * match, the SBOM names what is in the files, and the chart names the images by digest.
 * `make test-release` has both architectures and a registry.
 */

/* The release, built once for all tests. $MADE is its folder, $OUT what is published. */
static char *made;

/* The output of a shell script, which must end with the status; new. It runs in lib_dir, and
 * $TOP is the folder of the sources. */
static char *run(const char *script, int status)
{
    return lib_output(status, ARGV("bash", "-euo", "pipefail", "-c",
                                   lib_fmt("TOP=$PWD; cd; %s", script)));
}

static char *output_of(const char *script)
{
    return run(script, 0);
}

static void does(const char *script)
{
    output_of(script);
}

static char *refusal_of(const char *script)
{
    return run(script, 1);
}

/* As does, without the limit of program_wait: on a busy machine it takes its time. */
static void does_all(const char *script)
{
    setenv("SCRIPT", script, 1);
    int status = system("bash -euo pipefail -c \"$SCRIPT\" >\"$MADE/log\" 2>&1");
    const char *said = lib_file(lib_fmt("%s/log", made));
    ck_assert_msg(status == 0, "%s: status %d: %s", script, status, said);
}

static void make_release(void)
{
    lib_dir = made = temp_dir(); /* for output_of */
    setenv("MADE", made, 1);
    setenv("OUT", lib_fmt("%s/%s", made, "out"), 1);
    setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
    setenv("MAINTAINER", "A Person <person@example.org>", 1);
    setenv("PROJECT_URL", "https://example.org/gpushare", 1);
    does_all("env -u MAKEFLAGS -u MAKELEVEL make -s install "
             "DESTDIR=\"$MADE/build/installed\" PREFIX=/usr/local\n"
             "ln -s installed/usr/local/bin/kubectl-inspect-gpushare \"$MADE/build\"\n"
             "scripts/release/all " GPUSHARE_VERSION
             " registry.example/gpu https://there/v" GPUSHARE_VERSION " \"$OUT\" "
             "\"$(dpkg --print-architecture)=$MADE/build=\"");
    does("openssl ecparam -name prime256v1 -genkey -noout -out \"$MADE/key\"\n"
         "openssl pkey -in \"$MADE/key\" -pubout -out \"$MADE/public\"\n"
         "\"$TOP\"/scripts/release/sign \"$OUT\" \"$MADE/key\"");
}

static void remove_made(void)
{
    temp_dir_remove(made);
}

TEST(every_file_has_its_checksum)
{
    char *names = output_of("cd \"$OUT\"; sha256sum --check --quiet SHA256SUMS;"
                            "ls | grep -v 'SHA256SUMS\\|\\.sig\\.oci\\.tar$'");
    char *summed = output_of("sed 's/.*  //' \"$OUT/SHA256SUMS\" | LC_ALL=C sort");

    ck_assert_str_eq(
        summed,
        output_of("cd \"$OUT\"; ls | LC_ALL=C sort | grep -v 'SHA256SUMS\\|\\.sig\\.'"));
    ck_assert_contains(names, "gpushare-" GPUSHARE_VERSION ".tgz\n");
    ck_assert_contains(names, "gpushare-" GPUSHARE_VERSION ".spdx.json\n");
    ck_assert_contains(names, "gpushare-node-" GPUSHARE_VERSION ".oci.tar\n");
    ck_assert_contains(names, "inspect-gpushare.yaml\n");
    ck_assert_contains(names, "RELEASE_NOTES.md\n");
}

TEST(the_signature_is_of_the_checksums)
{
    static const char verify[] =
        "base64 -d \"$OUT/SHA256SUMS.sig\" >sig; "
        "openssl dgst -sha256 -verify \"$MADE/public\" -signature sig ";

    ck_assert_str_eq(output_of(lib_fmt("%s\"$OUT/SHA256SUMS\"", verify)),
                     "Verified OK\n");
    refusal_of(lib_fmt(
        "sed 's/^0/1/; s/^[1-9a-f]/0/' \"$OUT/SHA256SUMS\" >other; %s other", verify));
}

/* As cosign reads it: a manifest for each digest, with the tag of the digest; its payload names
 * repository and digest, and the signature of the payload is in the annotation of its layer.
 * Three images for one architecture have two digests each, and the chart has one. */
TEST(each_image_is_signed_for_cosign)
{
    ck_assert_str_eq(
        output_of(
            "while IFS=@ read -r name digest; do\n"
            "  repository=${name%:*}\n"
            "  rm -rf layout; mkdir layout\n"
            "  tar -C layout -xf \"$OUT/${repository##*/}.sig.oci.tar\"\n"
            "  grep -q \"ref.name\\\": \\\"${digest/:/-}.sig\\\"\" layout/index.json\n"
            "  for manifest in $(grep -l simplesigning layout/blobs/sha256/*); do\n"
            "    payload=layout/blobs/sha256/$(sed -n 's/.*simplesigning.*\"digest\": "
            "\"sha256:\\([0-9a-f]*\\).*/\\1/p' $manifest)\n"
            "    grep -q \"\\\"docker-reference\\\":\\\"$repository\\\"\" $payload\n"
            "    of=$(sed 's/.*manifest-digest\":\"sha256:\\([0-9a-f]*\\).*/\\1/' "
            "$payload)\n"
            "    grep -q \"sha256:${manifest##*/}.*sha256-$of.sig\" layout/index.json\n"
            "    sed -n 's/.*cosign\\/signature\": \"\\([^\"]*\\)\".*/\\1/p' $manifest | "
            "base64 -d >sig\n"
            "    openssl dgst -sha256 -verify \"$MADE/public\" -signature sig $payload\n"
            "  done\n"
            "done <\"$OUT/images.txt\" | sort | uniq -c | sed 's/^ *//'"),
        "7 Verified OK\n");
}

TEST(a_key_of_another_kind_is_refused)
{
    ck_assert_contains(refusal_of("openssl genpkey -algorithm ed25519 -out ed 2>&1\n"
                                  "\"$TOP\"/scripts/release/sign \"$OUT\" ed 2>&1"),
                       "sign: ed is no private key on the curve P-256");
    ck_assert_contains(
        refusal_of("cp -r \"$OUT\" changed; echo >>changed/images.txt\n"
                   "\"$TOP\"/scripts/release/sign changed \"$MADE/key\" 2>&1"),
        "SHA256SUMS does not match its files");
}

TEST(a_file_that_is_no_image_is_not_signed)
{
    ck_assert_contains(refusal_of("cp -r \"$OUT\" signed; cd signed; rm SHA256SUMS.sig\n"
                                  "head -c 2000 gpushare-node-" GPUSHARE_VERSION
                                  ".oci.tar >cut\n"
                                  "mv cut gpushare-node-" GPUSHARE_VERSION ".oci.tar\n"
                                  "sha256sum gpushare-node-" GPUSHARE_VERSION
                                  ".oci.tar images.txt >SHA256SUMS\n"
                                  "\"$TOP\"/scripts/release/sign . \"$MADE/key\" 2>&1"),
                       "in ./gpushare-node-" GPUSHARE_VERSION ".oci.tar");
    refusal_of("test -e signed/SHA256SUMS.sig");
}

/* -- publish -- */

/* Runs scripts/release/publish on a copy of the release after `change`; skopeo only writes its
 * arguments to the file `calls`. New. */
static char *publish(const char *change, int status)
{
    return run(lib_fmt("rm -rf copy calls; cp -r \"$OUT\" copy; mkdir -p bin\n"
                       "cat >bin/skopeo <<'END'\n"
                       "#!/bin/bash\n"
                       "echo \"$*\" >>calls\n"
                       "of=\"$*\" of=${of#*docker://} of=${of%%%% *}\n"
                       "while [ $# -gt 1 ]; do\n"
                       "  [ \"$1\" != --digestfile ] || sed -n \"s|^$of@||p\" "
                       "copy/images.txt >\"$2\"\n"
                       "  shift\n"
                       "done\n"
                       "END\n"
                       "chmod +x bin/skopeo; (cd copy; %s)\n"
                       "PATH=$PWD/bin:$PATH \"$TOP\"/scripts/release/publish copy 2>&1",
                       change),
               status);
}

TEST(signatures_are_published)
{
    publish("true", 0);

    ck_assert_str_eq(output_of("grep -c 'sig.oci.tar:sha256-' calls"), "7\n");
    publish("rm *.sig *.sig.oci.tar", 0);
    refusal_of("grep sig.oci.tar calls");
}

TEST(a_signed_release_is_published_only_with_each_signature)
{
    static const char *const changes[] = {
        "rm gpushare-node.sig.oci.tar", ": >gpushare-node.sig.oci.tar",
        "head -c 100 gpushare-node.sig.oci.tar >cut; mv cut gpushare-node.sig.oci.tar",
        "mv gpushare-extender.sig.oci.tar gpushare-node.sig.oci.tar"};
    array_items(change, changes) {
        char *said = publish(*change, 1);
        ck_assert_contains(said, "publish: copy/");
        ck_assert_contains(said, ".sig.oci.tar has no signature of sha256:");
        refusal_of("test -e calls");
    }
}

TEST(a_folder_of_other_files_is_not_removed)
{
    char *said = refusal_of("mkdir mine; echo text >mine/file\n"
                            "\"$TOP\"/scripts/release/all " GPUSHARE_VERSION
                            " registry.example/gpu https://there "
                            "\"$PWD/mine\" 2>&1 || { cat mine/file; exit 1; }");
    ck_assert_contains(said, "mine is not empty and has no SHA256SUMS");
    ck_assert_contains(said, "\ntext\n");
}

/* -- SBOM -- */

static const json_t *package_with(const json_t *sbom, const char *key, const char *value)
{
    const json_t *p;
    lib_each(p, lib_at(sbom, "packages"))
        if (strcmp(lib_str(p, key), value) == 0)
            return p;
    return NULL;
}

static bool is_related(const json_t *sbom, const char *from, const char *type,
                       const char *to)
{
    const json_t *r;
    lib_each(r, lib_at(sbom, "relationships"))
        if (strcmp(lib_str(r, "spdxElementId"), from) == 0 &&
            strcmp(lib_str(r, "relationshipType"), type) == 0 &&
            strcmp(lib_str(r, "relatedSpdxElement"), to) == 0)
            return true;
    return false;
}

static json_t *read_sbom(void)
{
    char *path = lib_fmt("%s/out/gpushare-" GPUSHARE_VERSION ".spdx.json", made);
    json_error_t error;
    json_t *sbom = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(sbom != NULL, "%s:%d: %s", path, error.line, error.text);
    return sbom;
}

/* The fields that SPDX 2.3 requires, sections 6, 7 and 11. */
TEST(the_sbom_is_a_document_of_spdx)
{
    cleanup_json json_t *sbom = read_sbom(), *ids = json_object();
    const json_t *p;
    ck_assert_at(sbom, "spdxVersion", "SPDX-2.3");
    ck_assert_at(sbom, "dataLicense", "CC0-1.0");
    ck_assert_at(sbom, "SPDXID", "SPDXRef-DOCUMENT");
    ck_assert_at(sbom, "name", "gpushare-" GPUSHARE_VERSION);
    ck_assert_at(sbom, "creationInfo.created", "2023-11-14T22:13:20Z");
    ck_assert_uint_eq(lib_size(sbom, "creationInfo.creators"), 1);
    ck_assert_int_eq(strncmp(lib_str(sbom, "documentNamespace"), "https://", 8), 0);
    json_object_set_new(ids, "SPDXRef-DOCUMENT", json_true());
    lib_each(p, lib_at(sbom, "packages")) {
        const char *id = lib_str(p, "SPDXID");
        ck_assert_msg(strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "0123456789.-") == strlen(id),
                      "%s", id);
        ck_assert_msg(json_object_get(ids, id) == NULL, "%s is there twice", id);
        json_object_set_new(ids, id, json_true());
        ck_assert_msg(*lib_str(p, "name") && *lib_str(p, "downloadLocation"), "%s", id);
    }
    lib_each(p, lib_at(sbom, "relationships")) {
        ck_assert_ptr_nonnull(json_object_get(ids, lib_str(p, "spdxElementId")));
        ck_assert_ptr_nonnull(json_object_get(ids, lib_str(p, "relatedSpdxElement")));
    }
}

TEST(the_sbom_says_what_is_in_the_files)
{
    cleanup_json json_t *sbom = read_sbom();
    const json_t *gnutls = package_with(sbom, "name", "libgnutls30");
    const json_t *jansson = package_with(sbom, "name", "libjansson4");
    const json_t *image = package_with(sbom, "packageFileName",
                                       "gpushare-extender-" GPUSHARE_VERSION ".oci.tar");
    char *files = output_of("sed 's/.*  //' \"$OUT/SHA256SUMS\" | grep "
                            "'\\.tar\\|\\.tgz\\|\\.deb'");
    char *version = output_of("dpkg-query -W -f '${Version}' libgnutls30");
    struct span rest = span_of(files);
    ck_assert_ptr_nonnull(gnutls);
    ck_assert_ptr_nonnull(jansson);
    ck_assert_at(gnutls, "versionInfo", version);
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        cleanup_free char *name = xmemdup0(line.p, line.n);
        const json_t *p = package_with(sbom, "packageFileName", name);
        ck_assert_msg(p != NULL, "%s is not in the SBOM", name);
        ck_assert(
            is_related(sbom, "SPDXRef-DOCUMENT", "DESCRIBES", lib_str(p, "SPDXID")));
    }
    ck_assert(is_related(sbom, lib_str(image, "SPDXID"), "CONTAINS",
                         lib_str(gnutls, "SPDXID")));
    const json_t *purl = lib_at(gnutls, "externalRefs.0");
    ck_assert_int_eq(
        strncmp(lib_str(purl, "referenceLocator"), "pkg:deb/debian/libgnutls30@", 27), 0);
}

/* -- chart, packages, notes -- */

TEST(the_chart_installs_these_images)
{
    ck_assert_str_eq(
        output_of(
            "tar -xzf \"$OUT/gpushare-" GPUSHARE_VERSION
            ".tgz\"; v=gpushare/values.yaml\n"
            "grep -qx '  registry: registry.example/gpu' $v\n"
            "grep -qx 'version: " GPUSHARE_VERSION "' gpushare/Chart.yaml\n"
            "grep -qx 'home: \"https://example.org/gpushare\"' gpushare/Chart.yaml\n"
            "grep -qx 'sources: \\[\"https://example.org/gpushare\"\\]' "
            "gpushare/Chart.yaml\n"
            "grep -qx '  homepage: \"https://example.org/gpushare\"' "
            "\"$OUT/inspect-gpushare.yaml\"\n"
            "mkdir c; tar -C c -xf \"$OUT/gpushare-" GPUSHARE_VERSION ".oci.tar\"\n"
            "grep -q '\"home\":\"https://example.org/gpushare\",\"sources\":"
            "\\[\"https://example.org/gpushare\"\\],' c/blobs/sha256/*\n"
            "for p in gpushare-extender gpushare-node; do\n"
            "  digest=$(sed -n \"s|^registry.example/gpu/$p:" GPUSHARE_VERSION "@||p\" "
            "\"$OUT/images.txt\")\n"
            "  test -n \"$digest\"\n"
            "  grep -q \"{repository: $p, tag: \\\"\\\", digest: \\\"$digest\\\"}\" $v\n"
            "  mkdir $p; tar -C $p -xf \"$OUT/$p-" GPUSHARE_VERSION ".oci.tar\"\n"
            "  grep -q \"$digest\" $p/index.json; test -f "
            "$p/blobs/sha256/${digest#sha256:}\n"
            "  sha256sum $p/blobs/sha256/* | awk '{ sub(/.*\\//, \"\", $2); if ($1 != "
            "$2) "
            "exit 1 "
            "}'\n"
            "done\n"
            "(diff -r gpushare \"$TOP\"/manifests/chart || true) | grep -c '^>'"),
        "4\n"); /* the registry and three digests, two of one image */
}

TEST(a_chart_without_the_line_is_refused)
{
    ck_assert_contains(
        refusal_of("echo \"other-program sha256:$(printf %064d 0)\" >images\n"
                   "\"$TOP\"/scripts/release/chart " GPUSHARE_VERSION
                   " registry.example/gpu "
                   "\"$PWD/images\" \"$PWD\" 2>&1"),
        "chart: values.yaml has no image other-program");
    ck_assert_contains(refusal_of("echo 'gpushare-node latest' >images\n"
                                  "\"$TOP\"/scripts/release/chart " GPUSHARE_VERSION
                                  " registry.example/gpu "
                                  "\"$PWD/images\" \"$PWD\" 2>&1"),
                       "\"latest\" is no digest of gpushare-node");
}

TEST(the_debian_package_brings_what_a_person_runs)
{
    does("deb=$(echo \"$OUT\"/gpushare_" GPUSHARE_VERSION
         "_*.deb); dpkg-deb -x $deb root\n"
         "for p in kubectl-inspect-gpushare gpushare-setup gpushare-replay; do\n"
         "  root/usr/bin/$p --version | grep -qx \"$p " GPUSHARE_VERSION "\"\n"
         "  ls root/usr/share/man/man[18]/$p.[18].gz >/dev/null\n"
         "done\n"
         "test -x root/usr/bin/gpushare-install\n"
         "dpkg-deb -e $deb control; (cd root; md5sum --quiet -c ../control/md5sums)\n"
         "dpkg-deb -f $deb Depends | grep -q 'libcurl4 (>= [0-9.a-z~+-]*), libgnutls30 "
         "(>='\n"
         "test \"$(dpkg-deb -f $deb Maintainer)\" = 'A Person <person@example.org>'\n"
         "test -z \"$(dpkg-deb -c $deb | grep -v ' root/root ')\"\n"
         "diff -r \"$TOP\"/manifests root/usr/share/gpushare/manifests\n");
}

TEST(a_release_candidate_sorts_before_the_release)
{
    does("\"$TOP\"/scripts/release/deb \"$MADE/build/installed\" 0.2.0-rc.1 \"$PWD\"\n"
         "is=$(dpkg-deb -f gpushare_0.2.0-rc.1_*.deb Version)\n"
         "test \"$is\" = 0.2.0~rc.1; dpkg --compare-versions \"$is\" lt 0.2.0\n");
}

/* Without apt-get, as on other systems. */
TEST(a_release_needs_debian)
{
    ck_assert_str_eq(
        refusal_of(
            "mkdir -p other; for p in dirname id grep; do ln -sf $(command -v $p) other; "
            "done\n"
            "PATH=$PWD/other /bin/sh \"$TOP\"/scripts/install-deps.sh --release 2>&1"),
        "install-deps: --release needs Debian 12: apt and dpkg\n");
}

TEST(release_notes_are_cut_from_the_changelog)
{
    ck_assert_str_eq(
        output_of(
            "printf '# Changelog\\n\\n## [Unreleased]\\n\\n- new\\n\\n## [0.2.0] - "
            "2026-01-01\\n\\n### Added\\n\\n- second\\n\\n## [0.1.0]\\n\\n- "
            "first\\n\\n[0.1.0]: "
            "https://there\\n' >log\n"
            "for v in 0.2.0 0.1.0 0.3.0; do \"$TOP\"/scripts/release/notes $v log; done"),
        "### Added\n\n- second\n- first\n- new\n");
    ck_assert_str_eq(
        output_of("printf '## [0.2.0]\n\n[a](docs/a.md#b), [c](https://c/d)\n' >log\n"
                  "PROJECT_URL=https://p \"$TOP\"/scripts/release/notes 0.2.0 log"),
        "[a](https://p/blob/v0.2.0/docs/a.md#b), [c](https://c/d)\n");
    ck_assert_contains(
        refusal_of("printf '# Changelog\\n\\n## [0.1.0]\\n\\n- first\\n' >log\n"
                   "\"$TOP\"/scripts/release/notes 0.2.0 log 2>&1"),
        "has no text for the version 0.2.0");
}

/* -- the version -- */

/* In a copy of what the scripts read; $V: the version. */
#define COPY                                                                             \
    "export BUILD=$(cd \"$TOP\"; realpath \"${GPUSHARE_BUILD:-build}\")\n"               \
    "V=" GPUSHARE_VERSION " names=test/golden/stable.txt; rm -rf copy; mkdir copy\n"     \
    "(cd \"$TOP\"; tar -cf - Makefile Containerfile README.md CHANGELOG.md docs "        \
    "manifests "                                                                         \
    "scripts include test/golden) | tar -C copy -xf -; cd copy\n"

TEST(every_place_has_the_version)
{
    does(COPY "grep -qx \"VERSION  ?= $V\" Makefile\n"
              "grep -qx \"version: $V\" manifests/chart/Chart.yaml\n"
              "grep -qx \"appVersion: $V\" manifests/chart/Chart.yaml\n"
              "test $(grep -cx \"ARG VERSION=$V\" Containerfile) = 2\n"
              "grep -q \"^## \\[\\(Unreleased\\|$V\\)\\]\" CHANGELOG.md\n");
    /* Our images, with a registry before them or not, and what scripts/release writes. */
    ck_assert_str_eq(
        output_of(COPY
                  "names='gpushare(-[a-z]+)*|scv-agent'\n"
                  "all=$(grep -rhoE \"(^|[ /])($names)[:-][0-9]+\\.[0-9]+[0-9a-z.-]*\" "
                  "Containerfile README.md docs manifests)\n"
                  "test $(wc -l <<<\"$all\") -ge 4\n"
                  "grep -vE \"[:-]${V//./\\\\.}(\\.|[-.][a-z].*)?$\" <<<\"$all\" "
                  "|| true\n"),
        "");
}

TEST(one_script_sets_the_version_everywhere)
{
    const char *said = output_of(
        COPY "export SOURCE_DATE_EPOCH=1700000000\n"
             "sed -i '0,/^## \\[/s/^## \\[.*/## [Unreleased] next/' CHANGELOG.md\n"
             "rm -f $names; cp -r . ../before\n"
             "scripts/release/set-version 9.8.7-rc.1 >/dev/null\n"
             "grep -m 1 '^## ' CHANGELOG.md\n"
             "! grep -rF -- \"$V\" Makefile Containerfile docs/releasing.md manifests\n"
             "sed -i '$a value.gone' $names\n"
             "! scripts/release/set-version 9.9.0 2>&1\n"
             "scripts/release/set-version $V >/dev/null; rm $names\n"
             "diff -rq . ../before || true\n"
             "! scripts/release/set-version $V 2>&1\n"
             "! scripts/release/set-version 1.0 2>&1\n");
    ck_assert_str_eq(said,
                     "## [9.8.7-rc.1] - 2023-11-14\n"
                     "set-version: 9.x promises to keep: value.gone\n"
                     "Files ./CHANGELOG.md and ../before/CHANGELOG.md differ\n"
                     "set-version: the version is " GPUSHARE_VERSION " already\n"
                     "set-version: \"1.0\" is no version such as 1.0.0 or 1.1.0-rc.1\n");
}

/* Of the last release, in the table of docs/api.md. Before 1.0 nothing was promised. */
TEST(the_promised_names_are_there)
{
    does(COPY
         "now=$(scripts/release/stable \"$BUILD\")\n"
         "while read -r name; do grep -qxF \"$name\" <<<\"$now\"; done <<END\n"
         "key ALIYUN_COM_GPU_MEM_IDX\nscv .status.cardList.totalMemory\n"
         "route POST /gpushare-scheduler/filter\noption scv-agent --update-interval\n"
         "option scripts/install --check\nmetric gpushare_pending_pods\n"
         "value extender.replicas\nEND\n");
    if (strncmp(GPUSHARE_VERSION, "0.", 2) != 0)
        ck_assert_str_eq(
            output_of(COPY
                      "scripts/release/stable \"$BUILD\" | LC_ALL=C comm -23 $names -"),
            "");
}

LIB_MAIN_ONCE(60, make_release, remove_made)
