#!/bin/sh
# Build the image of envs/Dockerfile without a registry or a daemon, and reproduce the committed models in it.
# Needs root, a mirror of Debian, and Debian's packages buildah, crun and debootstrap.
# usage: envs/container_test.sh FOLDER     (BUILD_OPTIONS: more options of buildah, say --volume for a pip.conf)
set -eu
folder=${1:?usage: $0 FOLDER}
mkdir -p "$folder"
store="--root $folder/store --runroot $folder/run --storage-driver vfs"
export BUILDAH_ISOLATION=chroot

if [ ! -e "$folder/debian/.ready" ]; then
    debootstrap --variant=minbase bookworm "$folder/debian"
    touch "$folder/debian/.ready"
fi
# A base image that stands for that of the Dockerfile.
base=$(buildah $store from scratch)
buildah $store add -q "$base" "$folder/debian" /
buildah $store commit -q "$base" localhost/debian:12
buildah $store rm "$base"
# shellcheck disable=SC2086  # options are words
buildah $store bud --pull-never --build-arg BASE=localhost/debian:12 ${BUILD_OPTIONS:-} -f envs/Dockerfile -t tileseer .
made=$(buildah $store from --pull-never localhost/tileseer)
buildah $store run "$made" -- python tools/reproduce.py
buildah $store rm "$made"
