# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Writes OCI image layouts with tar, gzip and sha256sum alone: no daemon, no registry, and no
# root permissions, because the files of a layer get root as owner. The same files, times and
# arguments give the same bytes. For bash with -eu -o pipefail, to be sourced:
#
#   oci_begin WORK EPOCH [ARCH]  begins a layout in the folder WORK, which the caller owns;
#                                EPOCH is the time of layers and images without their own,
#                                ARCH the architecture of the images, by default this machine's
#   oci_machine                  prints the architecture of this machine in OCI terms, such as amd64
#   oci_layer DIR [EPOCH]        adds the files of DIR as a layer; prints its descriptor
#   oci_image NAME CONFIG ANNOTATIONS LAYER...
#                                adds an image of layers, by their descriptors, lowest first.
#                                CONFIG: members of "config" in the image configuration;
#                                ANNOTATIONS: members. Both are JSON and may be empty
#   oci_artifact REF TYPE CONFIG ANNOTATIONS TYPE=FILE[=ANNOTATIONS]...
#                                adds an artifact that is no image: TYPE is the media type of the
#                                file CONFIG, and then of each FILE; REF names it. Moves the files
#   oci_together NAME ANNOTATIONS WORK...
#                                adds the only image of each layout WORK, all together as one
#                                image of several architectures; docker without OCI layouts does
#                                not know it
#   oci_write OUT                writes all images as the tar file OUT, which appears when complete
#   oci_digests                  prints the digest of each entry of the layout

oci_begin() {
    oci=$1 oci_epoch=$2 oci_arch=${3:-$(oci_machine)}
    mkdir -p "$oci/blobs/sha256" "$oci/diff"
    : >"$oci/index"
    : >"$oci/docker"
}

oci_machine() {
    local m
    m=$(dpkg --print-architecture 2>/dev/null || uname -m)
    case $m in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    i?86) echo 386 ;;
    arm*) [ "$m" = arm64 ] && echo "$m" || echo arm ;;
    ppc64el) echo ppc64le ;;
    *) echo "$m" ;;
    esac
}

# MEDIA-TYPE FILE: moves the file to the blobs; prints its descriptor, without braces.
oci_file() {
    local sum size
    sum=$(sha256sum <"$2" | cut -d' ' -f1)
    size=$(stat -c %s "$2")
    mv "$2" "$oci/blobs/sha256/$sum"
    printf '"mediaType": "%s", "digest": "sha256:%s", "size": %s' "$1" "$sum" "$size"
}

oci_blob() {
    oci_file "application/vnd.oci.image.$1" "$2"
}

oci_digest() { # DESCRIPTOR, as oci_blob prints it
    local rest=${1##*'"digest": "sha256:'}
    echo "${rest%%'"'*}"
}

oci_tar() { # EPOCH DIR NAME...
    local epoch=$1 dir=$2
    shift 2
    # --mode=ug-s: the folders of a checkout may have the setgid bit.
    tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=ug-s --format=gnu \
        -C "$dir" -cf - "$@"
}

oci_layer() {
    local layer
    oci_tar "${2-$oci_epoch}" "$1" . >"$oci/layer"
    sha256sum <"$oci/layer" | cut -d' ' -f1 >"$oci/diff-id"
    gzip -n6 <"$oci/layer" >"$oci/layer.gz"
    rm "$oci/layer"
    layer=$(oci_blob layer.v1.tar+gzip "$oci/layer.gz")
    mv "$oci/diff-id" "$oci/diff/$(oci_digest "$layer")"
    echo "$layer"
}

oci_joined() { # BEFORE AFTER WORD...: each word between BEFORE and AFTER, separated by commas
    local before=$1 after=$2 comma=
    shift 2
    while [ $# -gt 0 ]; do
        printf '%s%s%s%s' "$comma" "$before" "$1" "$after"
        comma=', '
        shift
    done
}

# containerd and podman read the first annotation as name of the image, skopeo the second.
oci_names() {
    printf '"io.containerd.image.name": "%s", "org.opencontainers.image.ref.name": "%s"' "$1" "${1##*:}"
}

oci_image() {
    local name=$1 config=$2 notes=$3 layer diffs=() paths=() created
    shift 3
    for layer; do
        layer=$(oci_digest "$layer")
        paths+=("$layer")
        diffs+=("$(cat "$oci/diff/$layer")")
    done
    created=$(date -u -d "@$oci_epoch" +%Y-%m-%dT%H:%M:%SZ)
    cat >"$oci/config" <<JSON
{"created": "$created", "architecture": "$oci_arch", "os": "linux",
 "config": {$config},
 "rootfs": {"type": "layers", "diff_ids": [$(oci_joined '"sha256:' '"' "${diffs[@]}")]}}
JSON
    config=$(oci_blob config.v1+json "$oci/config")
    cat >"$oci/manifest" <<JSON
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
 "config": {$config},
 "layers": [$(oci_joined '{' '}' "$@")],
 "annotations": {$notes}}
JSON
    notes=$(oci_names "$name")
    printf '{%s, "platform": {"architecture": "%s", "os": "linux"}, "annotations": {%s}}\n' \
        "$(oci_blob manifest.v1+json "$oci/manifest")" "$oci_arch" "$notes" >>"$oci/index"
    # The same in the format of docker save, for docker versions without OCI layouts.
    printf '{"Config": "blobs/sha256/%s", "RepoTags": ["%s"], "Layers": [%s]}\n' \
        "$(oci_digest "$config")" "$name" \
        "$(oci_joined '"blobs/sha256/' '"' "${paths[@]}")" >>"$oci/docker"
}

oci_artifact() {
    local ref=$1 type=$2 config=$3 notes=$4 part file more blob blobs=()
    shift 4
    config=$(oci_file "$type" "$config")
    for part; do
        file=${part#*=} more=
        [[ $file != *=* ]] || more=${file#*=} file=${file%%=*}
        blob=$(oci_file "${part%%=*}" "$file")
        blobs+=("$blob${more:+, \"annotations\": {$more\}}")
    done
    cat >"$oci/manifest" <<JSON
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
 "config": {$config},
 "layers": [$(oci_joined '{' '}' "${blobs[@]}")],
 "annotations": {$notes}}
JSON
    printf '{%s, "annotations": {"org.opencontainers.image.ref.name": "%s"}}\n' \
        "$(oci_blob manifest.v1+json "$oci/manifest")" "$ref" >>"$oci/index"
}

oci_together() {
    local name=$1 notes=$2 work entries=()
    shift 2
    for work; do
        cp -l "$work"/blobs/sha256/* "$oci/blobs/sha256" # all links, and the same where it exists
        entries+=("$(sed 's/, "annotations": .*/}/' "$work/index")")
    done
    cat >"$oci/manifest" <<JSON
{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
 "manifests": [$(oci_joined '' '' "${entries[@]}")],
 "annotations": {$notes}}
JSON
    printf '{%s, "annotations": {%s}}\n' "$(oci_blob index.v1+json "$oci/manifest")" \
        "$(oci_names "$name")" >>"$oci/index"
}

oci_digests() {
    local entry
    while read -r entry; do
        echo "sha256:$(oci_digest "$entry")"
    done <"$oci/index"
}

oci_write() {
    local entries files=(oci-layout index.json blobs)
    mapfile -t entries <"$oci/index"
    printf '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",\n "manifests": [%s]}\n' \
        "$(oci_joined '' '' "${entries[@]}")" >"$oci/index.json"
    if [ -s "$oci/docker" ]; then
        mapfile -t entries <"$oci/docker"
        printf '[%s]\n' "$(oci_joined '' '' "${entries[@]}")" >"$oci/manifest.json"
        files=(oci-layout index.json manifest.json blobs)
    fi
    echo '{"imageLayoutVersion": "1.0.0"}' >"$oci/oci-layout"
    oci_tar "$oci_epoch" "$oci" "${files[@]}" >"$1.new"
    mv "$1.new" "$1"
}
