# SPDX-License-Identifier: Apache-2.0
"""Where servers are, and by what a client recognizes them.

An endpoint is one of these; docs/security.md has the table:

    /mnt/share/holdfast                     the path of the volume: TLS if ca.crt is there
    holdfast://h1:7601,h2:7601/?pin=PIN     what `holdfast join` prints: TLS
    https://h1:7601,h2:7601                 servers with certificates that this machine trusts: TLS
    unix:///run/holdfast/holdfast.sock      a socket of this host: plain text
    h1:7601,h2:7601                         plain text; with a file ca.crt, TLS
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import json
import os
import queue
import re
import socket
import ssl
import threading
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from ._errors import ConfigError, HoldfastError, Unavailable
from ._site import Site
from ._site import read as read_site

T = TypeVar("T")

_JOIN = "holdfast://"
_PIN = "/?pin="
_OUTSIDE = "https://"
_MAX_SERVERS = 64
_VOLUME_WAIT = 5.0  # seconds that a volume may take to say what is there
_CLUSTER_NAME = re.compile(r"([0-9a-f]{32})\.holdfast")
_PARTIAL_CHAIN = 0x80000  # ssl.VERIFY_X509_PARTIAL_CHAIN, which Python 3.9 does not name


class Address(NamedTuple):
    """Where a server listens: host and port, or the path of a socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return "unix:" + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse host:port, [v6]:port or unix:PATH."""
    if text.startswith("unix:"):
        path = text[len("unix:") :]
        return Address("localhost", 0, path[2:] if path.startswith("//") else path)
    found = re.fullmatch(r"(?:\[([^\]\s]+)\]|([^:/?@#%\s]+)):([0-9]{1,5})", text)
    if found is None or not 0 < int(found[3]) < 65536:
        raise ConfigError(f"endpoint {text!r}: use host:port, such as localhost:7601")
    return Address(found[1] or found[2], int(found[3]))


def through(gateways: Sequence[Address], further: int) -> List[str]:
    """Return the addresses by which gateways lead to the cell whose number is higher by further: they have a port for each."""
    return [str(a._replace(port=a.port + further)) for a in gateways if not a.path and 0 < a.port + further < 65536]


def parse_join(text: str) -> Tuple[List[Address], str]:
    """Parse a join string; return the addresses and the pin."""
    rest, mark, pin = text[len(_JOIN) :].partition(_PIN)
    try:
        raw = base64.urlsafe_b64decode(pin + "=")
    except (binascii.Error, ValueError):
        raw = b""
    exact = base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == pin
    if not mark or len(raw) != 32 or not exact:
        raise ConfigError(f"join string {text[:100]!r}: its pin is no pin of 43 characters: copy all of what holdfast join prints")
    return _parse_list(rest), pin


def _parse_list(text: str) -> List[Address]:
    all_ = [parse_address(a) for a in text.split(",")]
    if len(all_) > _MAX_SERVERS:
        raise ConfigError(f"{len(all_)} endpoints: use {_MAX_SERVERS} at most")
    return all_


def is_path(text: str) -> bool:
    """Report whether an endpoint is the path of a volume."""
    return text.startswith(("/", "./", "../"))


class Certificate(NamedTuple):
    """The files with a client's certificate and its key, in PEM."""

    cert: str
    key: str


class Connected(NamedTuple):
    """A connection to a server, after its handshake."""

    sock: socket.socket
    #: The cluster that the server has proved to be of; "" = it has proved none.
    cluster: str
    #: A credential that is sent on it can be read by nobody on the way.
    private: bool


class Untrusted(OSError):
    """Whoever answers is not known to be a server of the cluster."""


class Trust:
    """Recognizes servers, and connects to them. Subclasses say by what. Safe for use by several threads."""

    def __init__(self, certificate: Optional[Certificate] = None) -> None:
        self._certificate = certificate

    def connect(self, address: Address, timeout: float) -> Connected:
        """Connect to a server. It raises OSError; nothing was asked then."""
        return self._secure(_dial(address, timeout), address, timeout)

    def elsewhere(self, addresses: Sequence[str], pin: str) -> Union[str, List[str]]:
        """Return the endpoints of another cluster, of which a server told that is recognized by this.

        pin is that of its authority, "" if it is served in plain text. It is never asked in plain text where the server that told was not.
        A server tells of hosts and ports only: the path of a volume, or of a socket of this host, is none of its business.
        """
        if any(parse_address(a).path for a in addresses):
            raise ConfigError(f"a server told of a socket as another one's address: {addresses}")
        return self._elsewhere(addresses, pin)

    def _elsewhere(self, addresses: Sequence[str], pin: str) -> Union[str, List[str]]:
        if pin:
            return _JOIN + ",".join(addresses) + _PIN + pin
        if not self._plain():
            raise ConfigError(f"the servers at {', '.join(addresses)} are served in plain text, and those that told of them are not")
        return list(addresses)

    def _plain(self) -> bool:
        return False

    def _secure(self, raw: socket.socket, address: Address, timeout: float) -> Connected:
        return Connected(raw, "", _local(raw))

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])
        if self._certificate is not None:  # it is read each time, so a renewed one is shown
            context.load_cert_chain(self._certificate.cert, self._certificate.key)
        return context


class PlainTrust(Trust):
    """There is nothing to recognize servers by: plain text."""

    def _plain(self) -> bool:
        return True


class OutsideTrust(Trust):
    """Servers have certificates for the names that are dialed, of authorities that this machine trusts."""

    def _elsewhere(self, addresses: Sequence[str], pin: str) -> Union[str, List[str]]:
        return [_OUTSIDE + a for a in addresses]

    def _secure(self, raw: socket.socket, address: Address, timeout: float) -> Connected:
        context = self._context()
        context.load_default_certs()
        return Connected(_handshake(context, raw, address.host, address), "", True)


class AuthorityTrust(Trust):
    """Servers have certificates of the cluster's authority, whose certificate is in a file.

    Of a volume, the cluster's ID is known, and there is plain text until there is an authority.
    """

    def __init__(self, path: str, cluster: str = "", certificate: Optional[Certificate] = None) -> None:
        super().__init__(certificate)
        self._path, self._cluster = path, cluster
        self._secured = False  # since a server has shown its certificate: there is no way back

    def _plain(self) -> bool:
        return bool(self._cluster) and not self._secured and not os.path.exists(self._path)

    def _secure(self, raw: socket.socket, address: Address, timeout: float) -> Connected:
        try:
            with open(self._path, encoding="ascii") as f:
                authority = ssl.PEM_cert_to_DER_cert(f.read().strip())
        except FileNotFoundError:
            if self._cluster:
                return super()._secure(raw, address, timeout)
            raise ConfigError(f"the certificate of the cluster's authority: there is no file {self._path}") from None
        except ValueError as e:
            raise ConfigError(f"{self._path} is not one certificate in PEM: {e}") from e
        secured = _believe(self._context(), raw, address, authority, self._cluster)
        self._secured = True
        return secured


class PinTrust(Trust):
    """Servers show the certificate of an authority whose public key has this SHA-256."""

    def __init__(self, pin: str, certificate: Optional[Certificate] = None) -> None:
        super().__init__(certificate)
        self._pin = pin
        self._authority: Optional[bytes] = None  # it is the same whichever thread asks for it

    def _secure(self, raw: socket.socket, address: Address, timeout: float) -> Connected:
        authority = self._authority
        if authority is None:
            # What this connection shows proves nothing but the pin of the authority's certificate,
            # which is all that is taken from it.
            authority = self._authority = self._ask(raw, address)
            raw = _dial(address, timeout)
        return _believe(self._context(), raw, address, authority, "")

    def _ask(self, raw: socket.socket, address: Address) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["http/1.1"])
        with _handshake(context, raw, None, address) as secured:
            for der in _chain(secured)[1:]:
                if pin_of(der) == self._pin:
                    return der
        raise Untrusted(f"{address} is not a server of this cluster: no certificate that it shows has the pin of the join string")


def _dial(address: Address, timeout: float) -> socket.socket:
    if address.path:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            s.settimeout(timeout)
            s.connect(address.path)
        except OSError:
            s.close()
            raise
        return s
    s = socket.create_connection((address.host, address.port), timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def _local(raw: socket.socket) -> bool:
    """Report whether a connection does not leave this host."""
    if raw.family not in (socket.AF_INET, socket.AF_INET6):
        return True
    return ipaddress.ip_address(raw.getpeername()[0].partition("%")[0]).is_loopback


def _handshake(context: ssl.SSLContext, raw: socket.socket, name: Optional[str], address: Address) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(raw, server_hostname=name)
    except ssl.SSLCertVerificationError as e:
        raw.close()
        raise Untrusted(f"{address} is not a server of this cluster: {e.verify_message}") from e
    except ssl.SSLError as e:
        raw.close()
        raise OSError(f"TLS with {address}: {e}: does the server serve TLS?") from e
    except OSError:
        raw.close()
        raise


def _believe(context: ssl.SSLContext, raw: socket.socket, address: Address, authority: bytes, cluster: str) -> Connected:
    """Make TLS with a server that has a certificate of the authority, for the name of the cluster, or of any if that is ""."""
    context.load_verify_locations(cadata=authority)
    context.verify_flags |= _PARTIAL_CHAIN  # the authority may be vouched for by an older one
    context.check_hostname = bool(cluster)
    secured = _handshake(context, raw, cluster + ".holdfast" if cluster else None, address)
    names = [name for kind, name in _names(secured) if kind == "DNS"]
    for name in names:
        found = _CLUSTER_NAME.fullmatch(name)
        if found is not None and cluster in ("", found[1]):
            return Connected(secured, found[1], True)
    secured.close()
    raise Untrusted(f"{address} is not a server of this cluster: its certificate is for {names}")


def _names(secured: ssl.SSLSocket) -> Sequence[Tuple[str, str]]:
    cert: Any = secured.getpeercert()
    names: Sequence[Tuple[str, str]] = cert.get("subjectAltName", ()) if cert else ()
    return names


def _chain(secured: ssl.SSLSocket) -> List[bytes]:
    """Return the certificates that a server has shown, in DER."""
    public: Any = getattr(secured, "get_unverified_chain", None)  # Python 3.13
    if public is not None:
        return list(public())
    private: Any = getattr(getattr(secured, "_sslobj", None), "get_unverified_chain", None)  # Python 3.10
    if private is None:
        raise ConfigError("a join string needs Python 3.10: use the path of the volume, or host:port with a copy of its ca.crt (HOLDFAST_CA)")
    return [ssl.PEM_cert_to_DER_cert(c.public_bytes()) for c in private()]


def pin_of(der: bytes) -> str:
    """Return the pin of a certificate: the SHA-256 of its SubjectPublicKeyInfo, in base64url."""
    return base64.urlsafe_b64encode(hashlib.sha256(_public_key(der)).digest()).rstrip(b"=").decode()


def _public_key(der: bytes) -> bytes:
    """Return the SubjectPublicKeyInfo of a certificate (RFC 5280, 4.1), "" of anything else."""
    try:
        at, _ = _element(der, 0)  # Certificate
        at, _ = _element(der, at)  # TBSCertificate
        if der[at] == 0xA0:  # version
            at = _element(der, at)[1]
        for _ in range(5):  # serialNumber, signature, issuer, validity, subject
            at = _element(der, at)[1]
        return der[at : _element(der, at)[1]]
    except IndexError:
        return b""


def _element(der: bytes, at: int) -> Tuple[int, int]:
    """Return where the content of the element at this offset begins, and where it ends."""
    size, begin = der[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, begin = int.from_bytes(der[begin : begin + count], "big"), begin + count
    if begin + size > len(der):
        raise IndexError("the element is cut off")
    return begin, begin + size


def _from_site(site: Site, certificate: Optional[Certificate]) -> Tuple[List[Address], Trust, Site]:
    """Return what the volume of a site's cell says, the first that can be read."""
    why: List[HoldfastError] = []
    for cell, path in site.paths.items():
        try:
            addresses, trust = _from_volume(path, certificate)
            return addresses, trust, site._replace(own=cell)
        except (ConfigError, Unavailable) as e:
            why.append(e)
    raise next((e for e in why if isinstance(e, Unavailable)), why[0])  # which is worth another try


def _cluster_file(path: str) -> Any:
    with open(os.path.join(path, "CLUSTER"), encoding="utf-8") as f:
        return json.load(f)


def _from_volume(path: str, certificate: Optional[Certificate]) -> Tuple[List[Address], Trust]:
    try:
        body = within(_VOLUME_WAIT, lambda: _cluster_file(path))
        cluster = str(body["cluster_id"])
        addresses = [parse_address(m.get("http") or m["client"]) for m in body["servers"]]
    except TimeoutError as e:
        raise Unavailable(f"endpoint {path}: the volume there does not answer: is the server of its filesystem up?") from e
    except OSError as e:
        raise ConfigError(f"endpoint {path}: no volume is there: {e}: is the share mounted?") from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f"endpoint {path}: CLUSTER: {e!r}") from e
    if not re.fullmatch("[0-9a-f]{32}", cluster) or not addresses:
        raise ConfigError(f"endpoint {path}: CLUSTER names no cluster, or no server")
    return addresses, AuthorityTrust(os.path.join(path, "ca.crt"), cluster, certificate)


def within(seconds: float, read: Callable[[], T]) -> T:
    """Return what read returns. A filesystem that hangs holds up nobody for longer: its thread is left behind, and this raises TimeoutError."""
    ended: "queue.SimpleQueue[Tuple[List[T], Optional[BaseException]]]" = queue.SimpleQueue()

    def run() -> None:
        try:
            ended.put(([read()], None))
        except BaseException as e:
            ended.put(([], e))

    threading.Thread(target=run, name="holdfast read", daemon=True).start()
    try:
        result, error = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError("it hangs") from None
    if error is not None:
        raise error
    return result[0]


def resolve(endpoints: Union[str, Sequence[str]], ca: str = "", certificate: Optional[Certificate] = None) -> Tuple[List[Address], Trust, Optional[Site]]:
    """Return the addresses of servers, by what they are recognized, and the site whose directory the endpoint is."""
    texts = [endpoints] if isinstance(endpoints, str) else list(endpoints)
    if len(texts) == 1 and not is_path(texts[0]) and not texts[0].startswith((_JOIN, _OUTSIDE)):
        texts = [t.strip() for t in texts[0].split(",") if t.strip()]
    if not texts:
        raise ConfigError("no endpoints: name at least one server, host:port")
    whole = [t for t in texts if is_path(t) or t.startswith(_JOIN)]
    outside = [t for t in texts if t.startswith(_OUTSIDE)]
    if (whole and len(texts) > 1) or (outside and len(outside) < len(texts)):
        raise ConfigError(f"endpoints {texts}: a path or a join string stands for all servers, so give it alone, and https:// with every address or with none")
    if ca and (whole or outside):
        raise ConfigError("a file ca.crt goes with host:port endpoints only: this endpoint says by itself how servers are recognized")
    if whole and is_path(texts[0]):
        site = read_site(texts[0])
        return _from_site(site, certificate) if site else (*_from_volume(texts[0], certificate), None)
    if whole:
        addresses, pin = parse_join(texts[0])
        return addresses, PinTrust(pin, certificate), None
    if outside:
        listed = ",".join(t[len(_OUTSIDE) :] for t in outside).replace(_OUTSIDE, "").replace("/", "")
        return _parse_list(listed), OutsideTrust(certificate), None
    trust = AuthorityTrust(ca, certificate=certificate) if ca else PlainTrust(certificate)
    return [parse_address(t) for t in texts], trust, None
