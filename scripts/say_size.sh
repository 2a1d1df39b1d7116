#!/bin/sh
# say_size.sh MB GB: print how much the installation downloads and stores, before it starts.
echo "Installing: about $1 MB to download, $2 GB on disk (what is already there is not downloaded again)."
if [ "$(uname -s)" = Linux ] && [ -z "${TORCH_INDEX:-}${PIP_EXTRA_INDEX_URL:-}${PIP_FIND_LINKS:-}" ]; then
    echo "On Linux the torch of PyPI brings CUDA: several GB more. Without a GPU, stop and use"
    echo "  make TORCH_INDEX=https://download.pytorch.org/whl/cpu demo"
fi
