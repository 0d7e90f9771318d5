#!/bin/sh
# A CUDA compiler and the CUTLASS headers for machines without CUDA: no root, no GPU, about 400 MB, nothing outside FOLDER.
#   sh envs/cuda-toolchain.sh FOLDER     then FOLDER/bin/nvcc [arguments], and FOLDER/cutlass is the tree
# Everything comes from PyPI, checked by hash: NVIDIA's compiler packages (under NVIDIA's licence, which they hold) and
# CUTLASS. Needs python3 with pip, and g++ for the host's part of the code.
set -eu
folder=$(readlink -m "${1:?usage: sh envs/cuda-toolchain.sh FOLDER}")
python=${PYTHON:-python3}

for program in g++ "$python"; do
    command -v "$program" > /dev/null || { echo "cuda-toolchain: $program is missing; on Debian: apt-get install g++ python3-pip" >&2; exit 2; }
done
recipe=$(sha256sum "$0" | cut -c1-16)
if [ "$(cat "$folder/recipe" 2> /dev/null)" = "$recipe" ]; then
    echo "cuda-toolchain: $folder is complete"
    exit 0
fi

# Built beside the folder and renamed at the end: an interrupted run leaves nothing that looks complete.
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat > "$work/requirements" << 'END'
nvidia-cuda-nvcc==13.5.37 --hash=sha256:f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7
nvidia-cuda-crt==13.5.37 --hash=sha256:e898b7f73d3035fa89915a3f7bf3b54a73e90249746111aed295822c4729bb29
nvidia-cuda-runtime==13.5.37 --hash=sha256:df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d
nvidia-cuda-cccl==13.3.5.0.6 --hash=sha256:d5230098fa2df5021e1a00c0c4eee41797671a91119d31e892463e5ccf3ee326
nvidia-nvvm==13.5.37 --hash=sha256:c41bfa362e407405163f103c2229f0765f8cc2ed7d148b754dc77f228bf7e070
nvidia-cutlass==4.2.0.0 --hash=sha256:f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6
END
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --target "$work/python" --requirement "$work/requirements"
# The packages bring the runtime under its versioned name alone, which a linker does not look for.
ln -s libcudart.so.13 "$work/python/nvidia/cu13/lib/libcudart.so"
ln -s python/nvidia/cu13/bin "$work/bin"
ln -s python/nvidia/cu13/lib "$work/lib"
ln -s python/cutlass_library/source "$work/cutlass"
rm "$work/requirements"
"$work/bin/nvcc" --version > "$work/version"
echo "$recipe" > "$work/recipe"
chmod 755 "$work"
rm -rf "$folder"
mv "$work" "$folder"
trap - EXIT
echo "cuda-toolchain: $folder: $(sed -n 4p "$folder/version"), CUTLASS 4.2"
