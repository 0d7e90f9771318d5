#!/bin/sh
# A HIP compiler and a Composable Kernel tree for machines without ROCm: no root, about 700 MB, nothing outside FOLDER.
#   sh envs/toolchain.sh FOLDER     then FOLDER/bin/hipcc [clang's arguments], and FOLDER/ck is the tree
# Every file is checked against its SHA-256. clang is that of the PyPI package ziglang; its headers, those of HIP and
# the device libraries are Debian's; the tree is that in the source package amd-aiter. Shared libraries made here leave
# the symbols of the HIP runtime undefined. Needs python3 with pip, g++ (its headers), curl, dpkg-deb, xz.
set -eu
folder=$(readlink -m "${1:?usage: sh envs/toolchain.sh FOLDER}")
python=${PYTHON:-python3}
debian=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
files=${PYPI_FILES:-https://files.pythonhosted.org}

for program in g++ curl dpkg-deb xz "$python"; do
    command -v "$program" > /dev/null || { echo "toolchain: $program is missing; on Debian: apt-get install g++ curl dpkg xz-utils python3-pip" >&2; exit 2; }
done
recipe=$(sha256sum "$0" | cut -c1-16)
if [ "$(cat "$folder/recipe" 2> /dev/null)" = "$recipe" ]; then
    echo "toolchain: $folder is complete"
    exit 0
fi

# Built beside the folder and renamed at the end: an interrupted run leaves nothing that looks complete.
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT

fetch() { # URL SHA256 FILE
    curl --fail --location --silent --show-error --retry 3 --output "$3" "$1" || {
        echo "toolchain: $1 cannot be had; set DEBIAN_MIRROR (https://snapshot.debian.org/archive/debian/DATE keeps old versions) or PYPI_FILES" >&2
        exit 2
    }
    echo "$2  $3" | sha256sum --check --quiet || { echo "toolchain: $1 has another content than expected" >&2; exit 2; }
}

while read -r sum path; do
    fetch "$debian/pool/main/$path" "$sum" "$work/package.deb"
    dpkg-deb -x "$work/package.deb" "$work"
done << 'END'
d31b418241204d709f2a4e39532756560434fe851dd0e8137495b4f69e4fcffc l/llvm-toolchain-22/libclang-common-22-dev_22.1.8-1+b2_amd64.deb
f2a3a542d41883f87a45e2d0554c1c84ccf350c836b9e8b35473dadbc34ced5e r/rocm-hipamd/libamdhip64-dev_6.4.3-5_amd64.deb
5b22b3d5acaf1a282a4a6404d387c356899100f389564d7b27c2000885683287 r/rocm-llvm/rocm-device-libs-21_7.0.2+dfsg-3_amd64.deb
END

echo "ziglang==0.17.0 --hash=sha256:97079827064a7492cce5541ceb438ae8003ce1e54e399676da2d62fb7a5dc08b" > "$work/requirements"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --target "$work/python" --requirement "$work/requirements"

fetch "$files/packages/44/9e/f9de430c9bf15b5b803814568f334a69e2f4435279dce9956ffa871804e1/amd_aiter-0.1.7.post2.dev18.tar.gz" \
    561b9b2baa4e75ea02890f2e54d1c2ce9e5c128bd1012b4f4780d47e1a5a41a1 "$work/ck.tar.gz"
mkdir "$work/ck"
tar -xzf "$work/ck.tar.gz" -C "$work/ck" --strip-components=4 --wildcards \
    '*/3rdparty/composable_kernel/include/*' '*/3rdparty/composable_kernel/LICENSE*'

mkdir "$work/bin"
# clang looks for the linker under these names; zig holds it as a subcommand.
cat > "$work/bin/lld" << 'END'
#!/bin/sh
[ "$1" = -flavor ] && shift 2
exec "$(dirname "$0")/../python/ziglang/zig" ld.lld "$@"
END
cp "$work/bin/lld" "$work/bin/ld.lld"
# ziglang has no bundler. Device and host parts of an object go one after the other, with a table before them.
cat > "$work/bin/clang-offload-bundler" << 'END'
#!/usr/bin/env python3
import struct
import sys

given = [argument.lstrip("-").partition("=") for argument in sys.argv[1:]]
options = {key: value for key, _, value in given}
inputs = [value for key, _, value in given if key == "input"]
targets, align = options["targets"].split(","), int(options.get("bundle-align", 1))
parts = [b"" if path == "/dev/null" else open(path, "rb").read() for path in inputs]
table = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(targets))
begin, body = len(table) + sum(24 + len(target) for target in targets), b""
for target, part in zip(targets, parts, strict=True):
    body += bytes(-(begin + len(body)) % align)
    table += struct.pack("<QQQ", begin + len(body), len(part), len(target)) + target.encode()
    body += part
with open(options["output"], "wb") as output:
    output.write(table + body)
END
# The tree goes with ROCm 7, whose HIP has a bf16 of the compiler. Debian's HIP is older, so the tree is told: it makes the
# same machine code with the headers of HIP 7.2.4. With the older bf16 clang cannot select gfx950's additions to memory.
cat > "$work/bin/hipcc" << 'END'
#!/bin/sh
here=$(readlink -f "$(dirname "$0")")/..
PATH=$here/bin:$PATH
export PATH
exec "$here/python/ziglang/zig" clang --driver-mode=g++ -target x86_64-linux-gnu \
    --gcc-install-dir="$(dirname "$(g++ -print-libgcc-file-name)")" -resource-dir "$here/usr/lib/llvm-22/lib/clang/22" \
    --rocm-path="$here/usr" --rocm-device-lib-path="$here/usr/lib/llvm-21/lib/clang/21/amdgcn/bitcode" -no-hip-rt \
    -fuse-ld=lld -B"$here/bin" -D__AMDGCN_WAVEFRONT_SIZE=64 -D__AMDGCN_WAVEFRONT_SIZE__=64 -DCK_TILE_USE_LLVM_BUILTIN_BF16=1 \
    -Wno-deprecated-attributes -Wno-unused-command-line-argument -x hip "$@"
END
chmod +x "$work"/bin/*
rm "$work/package.deb" "$work/ck.tar.gz" "$work/requirements"
"$work/bin/hipcc" --version > "$work/version"
echo "$recipe" > "$work/recipe"
chmod 755 "$work"
rm -rf "$folder"
mv "$work" "$folder"
trap - EXIT
echo "toolchain: $folder: $(head -1 "$folder/version"), Composable Kernel of November 2025"
