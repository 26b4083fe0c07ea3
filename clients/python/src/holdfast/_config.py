# SPDX-License-Identifier: Apache-2.0
"""What the environment and the files of host and user say: endpoints, credential and certificate."""

from __future__ import annotations

import os
import re
import stat
from typing import Callable, Dict, Mapping, Optional

from ._errors import ConfigError

#: Where `holdfast dev` serves.
DEFAULT_ENDPOINTS = "127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603"

_OF_HOST = "/etc/holdfast/client.toml"
_KEYS = ("endpoints", "ca", "key-file", "cert", "cert-key", "output")
_MAX_CREDENTIAL = 16 << 10  # bytes

#: Returns a key or a ticket, "" for none. The argument is the ID of the cluster that the server has
#: proved to be of, "" if it has proved none: a ticket is one cluster's, and is not shown to another.
Credential = Callable[[str], str]


def _directory(env: Mapping[str, str]) -> str:
    """Return the user's directory for the configuration of programs, "" if there is none."""
    own, home = env.get("XDG_CONFIG_HOME", ""), env.get("HOME", "")
    if os.path.isabs(own):
        return own
    return os.path.join(home, ".config") if os.path.isabs(home) else ""


def parse_toml(text: str, name: str) -> Dict[str, str]:
    """Return the keys of a client's configuration, which has nothing but texts."""
    values: Dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        found = re.fullmatch(r"""([a-z-]+)\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*(?:#.*)?""", line)
        if found is None or found[1] not in _KEYS:
            raise ConfigError(f'{name}, line {number}: use KEY = "TEXT", with one of the keys {", ".join(_KEYS)}')
        values[found[1]] = found[2] if found[2] is not None else found[3]
    return values


def read_files(env: Mapping[str, str]) -> Dict[str, str]:
    """Return what the files configure. That of the user wins over that of the host, key by key."""
    names = [_OF_HOST]
    if _directory(env):
        names.append(os.path.join(_directory(env), "holdfast", "config.toml"))
    only = env.get("HOLDFAST_CLIENT_CONFIG", "")
    values: Dict[str, str] = {}
    for name in [only] if only else names:
        try:
            with open(name, encoding="utf-8") as f:
                values.update(parse_toml(f.read(), name))
        except FileNotFoundError:
            if only:
                raise ConfigError(f"HOLDFAST_CLIENT_CONFIG: there is no file {name}") from None
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"read the configuration {name}: {e}") from e
    return values


def setting(env: Mapping[str, str], variable: str, key: str) -> str:
    """Return a setting: that of the environment, else that of the files, else ""."""
    return env.get(variable, "") or read_files(env).get(key, "")


def checked(text: str, origin: str) -> str:
    """Return a credential without the space around it. The error says where it is from, and not the text."""
    text = text.strip()
    word = all("!" <= c <= "~" for c in text) and len(text) <= _MAX_CREDENTIAL
    if not word or not text.startswith(("hfk_", "hft_")):
        raise ConfigError(f"{origin} has no credential: it is one word that begins with hfk_ or hft_")
    return text


def _from_file(name: str) -> str:
    try:
        with open(name, encoding="ascii", errors="replace") as f:
            return checked(f.read(_MAX_CREDENTIAL + 2), name)
    except OSError as e:
        raise ConfigError(f"read the credential: {e}") from e


def _from_ticket(env: Mapping[str, str], cluster: str) -> str:
    if not cluster or not _directory(env):
        return ""
    name = os.path.join(_directory(env), "holdfast", cluster + ".ticket")
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        return ""
    except OSError as e:
        raise ConfigError(f"read the ticket: {e}") from e
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"ticket {name}: others may read it: type: rm {name}   and holdfast login")
    return _from_file(name)


def credential_from_environment(env: Optional[Mapping[str, str]] = None) -> Credential:
    """Return the Credential that returns the first of these that is there, or "":

    HOLDFAST_KEY; the file that HOLDFAST_KEY_FILE names; $CREDENTIALS_DIRECTORY/holdfast.key, which
    systemd makes; the file that key-file in a configuration of clients names; and, unless a
    certificate is configured, the ticket that `holdfast login` wrote.
    """
    variables: Mapping[str, str] = os.environ if env is None else env

    def find(cluster: str) -> str:
        if variables.get("HOLDFAST_KEY"):
            return checked(variables["HOLDFAST_KEY"], "HOLDFAST_KEY")
        if variables.get("HOLDFAST_KEY_FILE"):
            return _from_file(variables["HOLDFAST_KEY_FILE"])
        if variables.get("CREDENTIALS_DIRECTORY"):
            name = os.path.join(variables["CREDENTIALS_DIRECTORY"], "holdfast.key")
            if os.path.exists(name):
                return _from_file(name)
        files = read_files(variables)
        if files.get("key-file"):
            return _from_file(files["key-file"])
        if variables.get("HOLDFAST_CERT") or files.get("cert"):
            return ""
        return _from_ticket(variables, cluster)

    return find
