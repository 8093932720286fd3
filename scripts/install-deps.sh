#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that the build and the tests need, if any is missing. On Debian and its
# derivatives it uses apt, through sudo if not root. On other systems it prints the names.
#
#   scripts/install-deps.sh          packages for `make demo` and `make test`
#   scripts/install-deps.sh --fuzz   also for `make fuzz`: clang with libFuzzer
#   scripts/install-deps.sh --e2e    also for `make e2e`: etcd, Go
#   scripts/install-deps.sh --e2e-node   also for `make e2e-node`: containerd, runc, CNI plugins
#   scripts/install-deps.sh --release    also for `make release`: compilers and packages of amd64
#                                    and arm64, qemu-user, skopeo, a registry for the test
#   scripts/install-deps.sh --peers  also for `make peers`: node, npm
#   scripts/install-deps.sh --web    also for `make web-test`: node, npm and Chromium
set -eu

packages="gcc make pkg-config libc6-dev libmicrohttpd-dev libgnutls28-dev
libjansson-dev libcurl4-openssl-dev libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler libyaml-dev
zlib1g-dev check curl ca-certificates openssl patch groff-base musl musl-tools
shellcheck"
python3 -c 'import ctypes' >/dev/null 2>&1 || packages="$packages python3" # scripts of samples, card check
fuzz='' e2e='' node='' peers='' web='' release=''
cd "$(dirname "$0")/.."
case ${1-} in
"") ;;
--fuzz) # libclang-rt-dev has libFuzzer and the sanitizers, llvm symbolizes their reports
    fuzz=yes
    packages="$packages clang libclang-rt-dev llvm" ;;
--e2e | --e2e-node) # an old Go suffices: it downloads a newer one
    e2e=yes
    [ "$1" = --e2e ] || { # runc needs libseccomp2, kube-proxy iptables
        node=yes
        packages="$packages iproute2 iptables libseccomp2"
    }
    scripts/go-toolchain --fetch >/dev/null 2>&1 || packages="$packages golang-go" ;;
--release) # the compiler of the architecture that is not this machine's
    command -v apt-get >/dev/null 2>&1 || {
        echo "install-deps: --release needs Debian 12: apt and dpkg" >&2
        exit 1
    }
    release=yes
    packages="$packages dpkg-dev qemu-user skopeo"
    case $(dpkg --print-architecture 2>/dev/null) in
    arm64) packages="$packages gcc-x86-64-linux-gnu" ;;
    *) packages="$packages gcc-aarch64-linux-gnu" ;;
    esac ;;
--peers | --web) # any installed node suffices
    peers=yes
    [ "$1" = --peers ] || { # without a font, Chromium shows boxes for letters
        web=yes
        packages="$packages chromium fonts-dejavu-core"
    }
    { command -v node && command -v npm; } >/dev/null 2>&1 || packages="$packages nodejs npm" ;;
*)
    echo "install-deps: unknown option \"$1\"; expected --fuzz, --e2e, --e2e-node, --release, --peers, --web or none" >&2
    exit 1 ;;
esac

# FOLDER PACKAGE...: unpacks Debian packages into the cache, without installing them.
unpack() {
    into=${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/$1
    shift
    echo "install-deps: unpacking" "$@" "into $into"
    mkdir -p "$into/new"
    for p; do
        (cd "$into/new" && apt-get download "$p" >/dev/null 2>&1) || {
            $sudo apt-get update
            (cd "$into/new" && apt-get download "$p")
        }
        dpkg-deb -x "$into/new/$p"_*.deb "$into"
    done
    rm -rf "$into/new"
}

# etcd and etcdctl. Not installed, because the package etcd-server starts etcd now and at every
# boot.
etcd_programs() {
    packages=
    PATH=$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/etcd/usr/bin
    command -v etcd >/dev/null 2>&1 || packages="etcd-server"
    command -v etcdctl >/dev/null 2>&1 || packages="$packages etcd-client"
    # shellcheck disable=SC2086
    [ -z "$packages" ] || unpack etcd $packages
}

# Not installed, because the package starts containerd. test/e2e-node uses only these copies.
node_programs() {
    dir=${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/node/usr
    [ -x "$dir/bin/containerd" ] && [ -x "$dir/sbin/runc" ] && [ -x "$dir/lib/cni/bridge" ] ||
        unpack node containerd runc containernetworking-plugins
}

# promtool, which checks /metrics and the alert rules. Not installed, because the package starts
# Prometheus.
promtool_program() {
    scripts/promtool --where >/dev/null 2>&1 || unpack prometheus prometheus
}

# Not installed, because the package starts a registry.
registry_program() {
    [ -x "${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/registry/usr/bin/docker-registry" ] ||
        unpack registry docker-registry
}

finish() {
    ! command -v apt-get >/dev/null 2>&1 || promtool_program
    if [ -n "$e2e" ]; then
        scripts/go-toolchain --fetch >/dev/null
        etcd_programs
    fi
    if [ -n "$release" ]; then
        for arch in amd64 arm64; do
            scripts/debian-root $arch --fetch
        done
        registry_program
    fi
    [ -z "$node" ] || ! command -v apt-get >/dev/null 2>&1 || node_programs
    exit 0
}

sudo=''
if [ "$(id -u)" != 0 ]; then
    sudo=sudo
fi
missing=''
if command -v dpkg-query >/dev/null 2>&1; then
    for p in $packages; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $p"
    done
    [ -n "$missing" ] || finish
fi

if ! command -v apt-get >/dev/null 2>&1; then
    # Not Debian: check whether the build would work, and print the missing programs otherwise.
    if command -v gcc >/dev/null 2>&1 && command -v pkg-config >/dev/null 2>&1 &&
        command -v protoc-c >/dev/null 2>&1 && pkg-config --exists libmicrohttpd gnutls jansson \
            libcurl libnghttp2 libprotobuf-c yaml-0.1 zlib check &&
        scripts/promtool --where >/dev/null 2>&1 && command -v groff >/dev/null 2>&1 &&
        command -v shellcheck >/dev/null 2>&1 &&
        { [ -z "$fuzz" ] || command -v clang >/dev/null 2>&1; } &&
        { [ -z "$peers" ] || { command -v node && command -v npm; } >/dev/null; } &&
        { [ -z "$web" ] || command -v chromium >/dev/null 2>&1; } &&
        { [ -z "$e2e" ] || { command -v etcd && command -v etcdctl && scripts/go-toolchain --fetch; } >/dev/null; }; then
        exit 0
    fi
    echo "install-deps: this is not a Debian system. Install these, with headers:" >&2
    echo "  gcc, GNU make, pkg-config, curl, openssl, libmicrohttpd >= 0.9.75 with TLS," >&2
    echo "  gnutls >= 3.6.13, jansson >= 2.13," >&2
    echo "  libcurl >= 7.85 (with OpenSSL), nghttp2 >= 1.52, protobuf-c >= 1.4 with protoc-c, libyaml," >&2
    echo "  zlib, Check (the unit test framework), promtool (of Prometheus), groff, shellcheck" >&2
    [ -z "$fuzz" ] || echo "  clang with compiler-rt (libFuzzer, AddressSanitizer)" >&2
    [ -z "$peers" ] || echo "  node >= 18 with npm" >&2
    [ -z "$web" ] || echo "  chromium" >&2
    [ -z "$e2e" ] || echo "  etcd and etcdctl >= 3.4, Go >= 1.21" >&2
    echo "Fedora: dnf install gcc make pkgconf libmicrohttpd-devel gnutls-devel jansson-devel libcurl-devel libnghttp2-devel protobuf-c-devel protobuf-c-compiler libyaml-devel zlib-devel check-devel openssl golang-github-prometheus groff-base ShellCheck" >&2
    echo "Alpine: apk add build-base pkgconf libmicrohttpd-dev gnutls-dev jansson-dev curl-dev nghttp2-dev protobuf-c-dev protobuf-c-compiler yaml-dev zlib-dev check-dev openssl curl prometheus groff shellcheck" >&2
    exit 1
fi

if [ -n "$sudo" ] && ! command -v sudo >/dev/null 2>&1; then
    echo "install-deps: not root, and sudo not found. Install as root:$missing" >&2
    exit 1
fi
echo "install-deps: installing$missing"
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
    $sudo apt-get update
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
finish
