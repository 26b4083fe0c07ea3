# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel with the standard library alone: python3 build_wheel.py [DIRECTORY]. It prints the path of the wheel.

The same sources give the same bytes.
"""

import base64
import hashlib
import pathlib
import re
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME = "holdfast_lock"
EPOCH = (1980, 1, 1, 0, 0, 0)


def field(text: str, pattern: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"nothing is like {pattern}")
    return found[1]


def metadata(version: str) -> str:
    project = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    lines = [
        "Metadata-Version: 2.1",
        "Name: " + field(project, r'^name = "(.*)"$'),
        "Version: " + version,
        "Summary: " + field(project, r'^description = "(.*)"$'),
        "License: Apache-2.0",
        "Requires-Python: " + field(project, r'^requires-python = "(.*)"$'),
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


def build(directory: pathlib.Path) -> pathlib.Path:
    source = HERE / "src"
    version = field((source / "holdfast" / "__init__.py").read_text(encoding="utf-8"), r'^__version__ = "(.*)"$')
    info = f"{NAME}-{version}.dist-info"
    files = {p.relative_to(source).as_posix(): p.read_bytes() for p in sorted(source.glob("holdfast/*")) if p.suffix in (".py", ".typed")}
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{NAME}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            z.writestr(entry, content)
    return wheel


if __name__ == "__main__":
    print(build(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "dist"))
