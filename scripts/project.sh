# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the files of a release say of the project. For bash, to be sourced:
#
#   project_url    prints PROJECT_URL in double quotes, for YAML and JSON; nothing if it is not set.
#                  Fails if it is no address

project_url() {
    [ -n "${PROJECT_URL-}" ] || return 0
    if ! [[ $PROJECT_URL =~ ^https?://[^[:space:]\"\'\\\|]+$ ]]; then
        echo "PROJECT_URL: \"$PROJECT_URL\" is no address" >&2
        return 1
    fi
    echo "\"$PROJECT_URL\""
}
