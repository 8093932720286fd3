# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Writes OCI image layouts with tar, gzip and sha256sum alone: no daemon, no registry, and no
# rights, since what is in a layer belongs to root whoever wrote it. The same files, times and
# words make the same bytes. For bash with -eu -o pipefail, to be sourced:
#
#   oci_begin WORK EPOCH         begins a layout in the folder WORK, which is the caller's;
#                                EPOCH is the time of what has none of its own
#   oci_machine                  what images call this machine, as amd64
#   oci_layer DIR [EPOCH]        what is in DIR, compressed; prints its descriptor
#   oci_image NAME CONFIG ANNOTATIONS LAYER...
#                                an image of layers, by their descriptors, the lowest first.
#                                CONFIG: members of its configuration's "config";
#                                ANNOTATIONS: members. Both are JSON and may be empty
#   oci_write OUT                all images so far, as a tar that is there when it is complete

oci_begin() {
    oci=$1 oci_epoch=$2
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

# MEDIA-TYPE FILE: the file becomes a blob; prints its descriptor, without braces.
oci_blob() {
    local sum size
    sum=$(sha256sum <"$2" | cut -d' ' -f1)
    size=$(stat -c %s "$2")
    mv "$2" "$oci/blobs/sha256/$sum"
    printf '"mediaType": "application/vnd.oci.image.%s", "digest": "sha256:%s", "size": %s' \
        "$1" "$sum" "$size"
}

oci_digest() { # what oci_blob printed
    local rest=${1##*'"digest": "sha256:'}
    echo "${rest%%'"'*}"
}

oci_tar() { # EPOCH DIR NAME...
    local epoch=$1 dir=$2
    shift 2
    # Folders of a checkout may give their group to what is made in them.
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

oci_joined() { # BEFORE AFTER WORD...: the words between these, with commas
    local before=$1 after=$2 comma=
    shift 2
    while [ $# -gt 0 ]; do
        printf '%s%s%s%s' "$comma" "$before" "$1" "$after"
        comma=', '
        shift
    done
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
{"created": "$created", "architecture": "$(oci_machine)", "os": "linux",
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
    # The names by which containerd and podman, and by which skopeo, know an image.
    notes="\"io.containerd.image.name\": \"$name\", \"org.opencontainers.image.ref.name\": \"${name##*:}\""
    printf '{%s, "platform": {"architecture": "%s", "os": "linux"}, "annotations": {%s}}\n' \
        "$(oci_blob manifest.v1+json "$oci/manifest")" "$(oci_machine)" "$notes" >>"$oci/index"
    # The same once more, for versions of docker that know no OCI layout.
    printf '{"Config": "blobs/sha256/%s", "RepoTags": ["%s"], "Layers": [%s]}\n' \
        "$(oci_digest "$config")" "$name" \
        "$(oci_joined '"blobs/sha256/' '"' "${paths[@]}")" >>"$oci/docker"
}

oci_write() {
    local entries
    mapfile -t entries <"$oci/index"
    printf '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",\n "manifests": [%s]}\n' \
        "$(oci_joined '' '' "${entries[@]}")" >"$oci/index.json"
    mapfile -t entries <"$oci/docker"
    printf '[%s]\n' "$(oci_joined '' '' "${entries[@]}")" >"$oci/manifest.json"
    echo '{"imageLayoutVersion": "1.0.0"}' >"$oci/oci-layout"
    oci_tar "$oci_epoch" "$oci" oci-layout index.json manifest.json blobs >"$1.new"
    mv "$1.new" "$1"
}
