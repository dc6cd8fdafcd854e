"""Certificates for receivers: an authority, a server by some name, a client. Made by `openssl`, valid for a day."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Certificates:
    """Files in a directory: ``ca.pem``, ``server.pem`` and ``client.pem`` with their keys."""

    def __init__(self, directory: Path, names: str = "IP:127.0.0.1,DNS:localhost") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=authority",
                 "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"))
        for who in ("server", "client"):
            extensions = directory / f"{who}.ext"
            extensions.write_text(f"subjectAltName={names}\n")
            _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={who}", "-keyout", self.path(f"{who}.key"),
                     "-out", self.path(f"{who}.csr"))
            _openssl("x509", "-req", "-in", self.path(f"{who}.csr"), "-CA", self.path("ca.pem"), "-CAkey",
                     self.path("ca.key"), "-CAcreateserial", "-days", "1", "-extfile", str(extensions),
                     "-out", self.path(f"{who}.pem"))

    def path(self, name: str) -> str:
        """A file."""
        return str(self.directory / name)

    def server(self, *, wants_client: bool = False) -> ssl.SSLContext:
        """The context of a server, which may want a certificate of its client."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        if wants_client:
            context.load_verify_locations(self.path("ca.pem"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context
