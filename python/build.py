#!/usr/bin/env python3
"""Makes wheels that have the program greta in them.

    python3 python/build.py                       this machine's, into python/dist
    python3 python/build.py --all --out DIR       Linux, macOS and Windows, compiled across (CGO_ENABLED=0)
    python3 python/build.py --platform linux/arm64 --program FILE    of a program that is there

The same sources, Go and Python give the same bytes. It needs Go and Python 3.11 or later, and nothing of PyPI's.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: What Go calls a platform → what a wheel's name calls it. The program for Linux uses no symbol of glibc's newer than
#: 2.17; Go's own programs need macOS 12.
PLATFORMS = {
    ("linux", "amd64"): "manylinux_2_17_x86_64.manylinux2014_x86_64",
    ("linux", "arm64"): "manylinux_2_17_aarch64.manylinux2014_aarch64",
    ("darwin", "amd64"): "macosx_12_0_x86_64",
    ("darwin", "arm64"): "macosx_12_0_arm64",
    ("windows", "amd64"): "win_amd64",
}


def own_platform() -> tuple[str, str]:
    system = {"linux": "linux", "darwin": "darwin", "win32": "windows"}.get(sys.platform, sys.platform)
    machine = platform.machine().lower()
    return system, {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(machine, machine)


def compile_program(goos: str, goarch: str, to: Path) -> None:
    env = {**os.environ, "GOOS": goos, "GOARCH": goarch, "CGO_ENABLED": "0"}
    command = ["go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", str(to), "./cmd/greta"]
    subprocess.run(command, cwd=HERE.parent, env=env, check=True)


#: How a platform's programs begin: magic bytes, and where a number says for which processor.
HEADERS = {
    ("linux", "amd64"): (b"\x7fELF", 18, b"\x3e\x00"),
    ("linux", "arm64"): (b"\x7fELF", 18, b"\xb7\x00"),
    ("darwin", "amd64"): (b"\xcf\xfa\xed\xfe", 4, b"\x07\x00\x00\x01"),
    ("darwin", "arm64"): (b"\xcf\xfa\xed\xfe", 4, b"\x0c\x00\x00\x01"),
    ("windows", "amd64"): (b"MZ", 4, b"\x64\x86"),
}


def wrong(program: bytes, goos: str, goarch: str) -> str:
    """Why a file is not the greta of a platform; empty where it is."""
    magic, at, machine = HEADERS[goos, goarch]
    if not program.startswith(magic):
        return f"this is no program for {goos}"
    if goos == "windows":  # the header lies where the old one says
        start = int.from_bytes(program[60:64], "little")
        at += start
        if program[start : start + 4] != b"PE\0\0":
            return f"this is no program for {goos}"
    if program[at : at + len(machine)] != machine:
        return f"this program is not for {goarch}"
    found = re.search(r"^module (\S+)$", (HERE.parent / "go.mod").read_text("utf-8"), re.M)
    assert found is not None
    if f"path\t{found[1]}/cmd/greta\n".encode() not in program:
        return "this program is not greta"
    return ""


def metadata(project: dict[str, object], version: str) -> str:
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        "License: Apache-2.0",
        "Project-URL: Source, " + project["urls"]["Source"],  # type: ignore[index]
    ]
    for extra, packages in extras.items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {p}; extra == "{extra}"' for p in packages]
    lines += ["Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text("utf-8")]
    return "\n".join(lines)


def build(goos: str, goarch: str, out: Path, program: Path | None = None) -> Path:
    """Makes one platform's wheel, of a program or one that is compiled for it, and gives its path."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]
    scope: dict[str, str] = {}
    exec((HERE / "greta" / "_version.py").read_text("utf-8"), scope)
    version, tags = scope["__version__"], PLATFORMS[goos, goarch]
    info = f"greta-{version}.dist-info"
    files: dict[str, tuple[bytes, int]] = {}
    for path in sorted((HERE / "greta").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and "bin" not in path.parts:
            files[path.relative_to(HERE).as_posix()] = (path.read_bytes(), 0o644)
    name = "greta.exe" if goos == "windows" else "greta"
    with tempfile.TemporaryDirectory() as folder:
        if program is None:
            program = Path(folder) / name
            compile_program(goos, goarch, program)
        files[f"greta/bin/{name}"] = (program.read_bytes(), 0o755)
    files[f"{info}/METADATA"] = (metadata(project, version).encode(), 0o644)
    tag_lines = "".join(f"Tag: py3-none-{t}\n" for t in tags.split("."))
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: greta\nRoot-Is-Purelib: false\n{tag_lines}".encode(),
        0o644,
    )
    files[f"{info}/entry_points.txt"] = (b"[console_scripts]\ngreta = greta._binary:main\n", 0o644)
    files[f"{info}/licenses/LICENSE"] = ((HERE.parent / "LICENSE").read_bytes(), 0o644)
    record = ""
    for file, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{file},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"greta-{version}-py3-none-{tags}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        # The metadata last, as wheels have it.
        for entry_name in sorted(files, key=lambda p: (p.startswith(info), p.endswith("/RECORD"), p)):
            data, mode = files[entry_name]
            entry = zipfile.ZipInfo(entry_name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            z.writestr(entry, data)
    return wheel


def main() -> None:
    p = argparse.ArgumentParser(description="makes wheels that have the program greta in them")
    p.add_argument("--all", action="store_true", help="those of all platforms")
    p.add_argument("--platform", action="append", metavar="OS/ARCH", help="as Go calls it; may be repeated")
    p.add_argument("--out", type=Path, default=HERE / "dist", help="folder (default: python/dist)")
    p.add_argument("--program", type=Path, metavar="FILE", help="the one platform's greta; left out, it is compiled")
    args = p.parse_args()
    chosen = list(PLATFORMS) if args.all else [own_platform()]
    if args.platform:
        chosen = [(a, b) for a, _, b in (text.partition("/") for text in args.platform)]
    if args.program and (len(chosen) != 1 or not args.program.is_file()):
        p.error(f"--program {args.program}: a file is expected, and one platform")
    for pair in chosen:
        if pair not in PLATFORMS:
            known = ", ".join("/".join(k) for k in PLATFORMS)
            p.error(f"there is no wheel of {'/'.join(pair)}; there are {known}")
        if args.program and (why := wrong(args.program.read_bytes(), *pair)):
            p.error(f"--program {args.program}: {why}; expected is greta for {'/'.join(pair)}")
        wheel = build(*pair, args.out, args.program)
        print(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
