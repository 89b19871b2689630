"""Builds the native module along with the package, where there is a compiler; else the package is pure Python."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "src/threadline/base"
SOURCES, HEADERS = (
    [f"{FOLDER}/compiled.c", f"{FOLDER}/straight.c"],
    [f"{FOLDER}/compiled.h", f"{FOLDER}/lanes.h", f"{FOLDER}/values.h", f"{FOLDER}/blake.h"],
)
MODULE = "threadline.base.compiled"


class NativeModule(BuildHookInterface):
    """Compiles a few C files; a failure is said, and is no error."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("THREADLINE_NATIVE") == "0":
            return
        try:
            built = self._build()
        except (Exception, SystemExit) as error:
            print(f"threadline: built without its native module ({error}); it works all the same", file=sys.stderr)
            return
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["artifacts"].append(built)

    def _build(self) -> str:
        """Compile beside the source, for an editable install too; returns where it is."""
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        root = Path(self.root)
        with tempfile.TemporaryDirectory() as made:
            extension = Extension(MODULE, SOURCES, depends=HEADERS)
            command = build_ext(Distribution({"name": "threadline", "ext_modules": [extension]}))
            command.build_lib, command.build_temp = made, made
            before = os.getcwd()
            os.chdir(root)
            try:
                command.ensure_finalized()
                command.run()
            finally:
                os.chdir(before)
            compiled = Path(command.get_ext_fullpath(MODULE))
            place = root / FOLDER / compiled.name
            # In one step, and as a new file: a running process may have the old one mapped.
            shutil.copy(compiled, place.with_suffix(".new"))
            os.replace(place.with_suffix(".new"), place)
        return place.relative_to(root).as_posix()
