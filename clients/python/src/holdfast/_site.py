# SPDX-License-Identifier: Apache-2.0
"""Which cell of a site has which names (docs/PROTOCOL.md, section 23)."""

from __future__ import annotations

import bisect
import hashlib
import json
import os
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from ._errors import ConfigError


class Site(NamedTuple):
    """A site, as the client of one of its cells knows it. What it says grants nothing: each cell refuses names that it does not have."""

    #: The number of the client's own cell.
    own: int
    #: From which place of a name on, in rising order, which cell has it.
    ranges: List[Tuple[int, int]]
    #: Which cell has the names with a prefix, whatever their places are.
    pins: List[Tuple[str, int]]
    #: The paths of the cells' volumes, where the endpoint is the directory of the site.
    paths: Mapping[int, str] = {}

    def route(self, name: str) -> int:
        """Return the cell of a name."""
        pinned = [p for p in self.pins if name.startswith(p[0])]
        if pinned:
            return max(pinned, key=lambda p: len(p[0]))[1]
        place = int.from_bytes(hashlib.sha256(_tag(name).encode(errors="surrogatepass")).digest()[:8], "big")
        return self.ranges[bisect.bisect(self.ranges, (place, 1 << 64)) - 1][1]


def _tag(name: str) -> str:
    """Return what decides the place of a name: the text in its first braces, else all of it."""
    _, _, after = name.partition("{")
    tag, closed, _ = after.partition("}")
    return tag if closed and tag else name


def told(division: Any, own: int, paths: Optional[Mapping[int, str]] = None) -> Site:
    """Return the site of which JSON says who has which names. It raises ConfigError if it says nothing that can be used."""
    try:
        ranges = [(int(r["from"], 16), int(r.get("cell") or 0)) for r in division["ranges"]]
        pins = [(str(p["prefix"]), int(p.get("cell") or 0)) for p in division.get("pins") or []]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f"which cell of the site has which names: {e!r}") from e
    if not ranges or ranges[0][0] != 0 or ranges != sorted(ranges):
        raise ConfigError("which cell of the site has which names: the places are out of order")
    return Site(own, ranges, pins, paths or {})


def read(path: str) -> Optional[Site]:
    """Return the site of which this is the directory, with its first cell as the own one; None if no site is there."""
    try:
        with open(os.path.join(path, "SITE"), encoding="utf-8") as f:
            where = json.load(f)
        with open(os.path.join(path, "SITE.init"), encoding="utf-8") as f:
            plan = json.load(f)
        paths = {int(c.get("cell") or 0): os.path.join(path, str(c["path"])) for c in where["cells"]}
        division, same = plan["division"], where["site_id"] == plan["site_id"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f"endpoint {path}: SITE: {e!r}") from e
    if not paths or not same:
        raise ConfigError(f"endpoint {path}: SITE names no cell, or is of another site than SITE.init")
    return told(division, min(paths), paths)
