#!/usr/bin/env python3
"""Let the CUDA build of torch import on a machine without the nvidia-* packages.

    make_cuda_stubs.py SITE_PACKAGES

The Python package index has no CPU-only torch for Linux on x86-64. The CUDA build links about
14 NVIDIA libraries (2.7 GB installed), here only to find out that there is no GPU. This compiles
one small shared library with every NVIDIA symbol that torch's libraries leave undefined (each
returns 100, cudaErrorNoDevice) and puts it into torch/lib under each missing name, where torch's
own RPATH finds it. Needs gcc and binutils (nm, readelf).
"""

import glob
import os
import re
import subprocess
import sys

NVIDIA_LIBRARY = re.compile(r"^lib(cu[a-z]|nccl|nvrtc|nvshmem|nvJitLink)")
DRIVER = "libcuda.so.1"  # comes with a GPU's driver and is loaded late: no stand-in for it
NVIDIA_SYMBOL = re.compile(
    r"^(__cuda|cuda|cu[A-Z]|cublas|cudnn|cufft|curand|cusparse|cusolver|cuFile|cupti|"
    r"nccl|pnccl|nvrtc|nvshmem|nvJitLink|nvtx)"
)
NO_DEVICE = "long {0}(void){{return 100;}}"
# Called from static constructors, or by code that only asks whether there is a GPU.
SPECIAL = {
    "__cudaRegisterFatBinary": "void* {0}(void){{static void*h[8];return h;}}",
    "__cudaInitModule": "char {0}(void){{return 1;}}",
    "cudaGetErrorString": 'const char* {0}(void){{return "no CUDA device (stub)";}}',
    "cudaGetErrorName": 'const char* {0}(void){{return "cudaErrorNoDevice";}}',
    "cudaGetLastError": "long {0}(void){{return 0;}}",
    "cudaPeekAtLastError": "long {0}(void){{return 0;}}",
    "cudaGetDeviceCount": "long {0}(int*n){{if(n)*n=0;return 100;}}",
}


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def scan(libraries):
    """The library names that are needed, and symbol -> version of what stays undefined."""
    needed, undefined, defined = set(), {}, set()
    for path in libraries:
        needed |= set(re.findall(r"NEEDED.*\[(.+?)\]", output_of("readelf", "-d", path)))
        for line in output_of("nm", "-D", path).splitlines():
            fields = line.split()
            name, _, version = fields[-1].partition("@")
            if fields[-2] in "Uvw":
                undefined[name] = version.lstrip("@") or undefined.get(name, "")
            else:
                defined.add(name)
    return needed, {s: v for s, v in undefined.items() if s not in defined}


def main():
    folder = os.path.join(sys.argv[1], "torch", "lib")
    libraries = sorted(
        path
        for path in glob.glob(folder + "/*.so*")
        if not os.path.islink(path) and "cuda_stub" not in path
    )
    needed, undefined = scan(libraries)
    have = {os.path.basename(path) for path in libraries}
    missing = sorted(name for name in needed - have - {DRIVER} if NVIDIA_LIBRARY.match(name))
    symbols = sorted(name for name in undefined if NVIDIA_SYMBOL.match(name))

    source = os.path.join(folder, "cuda_stub.c")
    with open(source, "w") as f:
        for name in symbols:
            f.write(SPECIAL.get(name, NO_DEVICE).format(name) + "\n")
    # The loader insists on the version names that torch was linked against (libcudart.so.13, ...).
    versions = os.path.join(folder, "cuda_stub.map")
    with open(versions, "w") as f:
        for version in sorted({undefined[name] for name in symbols} - {""}):
            of_it = " ".join(name + ";" for name in symbols if undefined[name] == version)
            f.write(f"{version} {{ global: {of_it} }};\n")
    stub = os.path.join(folder, "libcuda_stub.so")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-w", "-fno-builtin", "-Wl,-soname,libcuda_stub.so",
         "-Wl,--version-script," + versions, "-o", stub, source],
        check=True,
    )
    for name in missing:
        link = os.path.join(folder, name)
        if not os.path.lexists(link):
            os.symlink("libcuda_stub.so", link)
    size = os.path.getsize(stub) // 1024
    print(f"{len(symbols)} symbols, {size} KiB, stands in for: {' '.join(missing)}")


if __name__ == "__main__":
    main()
