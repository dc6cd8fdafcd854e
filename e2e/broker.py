"""A real Kafka of one node, from the directory that KAFKA_HOME names (the distribution, or only its `libs/`)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self


def missing() -> str:
    """Why there is no Kafka here; empty where there is."""
    home = os.environ.get("KAFKA_HOME", "")
    if not home or not any(Path(home, "libs").glob("kafka_*.jar")):
        return "KAFKA_HOME names no directory with Kafka's libs/"
    return "" if shutil.which("java") else "there is no `java` on PATH"


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


class Broker:
    """Broker and controller in one process. Topics are made when they are first used, with three partitions."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port, self.control = _port(), _port()
        self.address = f"127.0.0.1:{self.port}"
        self.log = place / "kafka.log"

    def _java(self, *argv: str) -> list[str]:
        libs = Path(os.environ["KAFKA_HOME"], "libs")
        return ["java", "-Xmx384m", "-Xms128m", "-cp", f"{libs}/*", *argv]

    def __enter__(self) -> Self:
        self.place.mkdir(parents=True, exist_ok=True)
        settings = self.place / "server.properties"
        settings.write_text(f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{self.control}
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.control}
advertised.listeners=PLAINTEXT://{self.address}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={self.place}/data
num.partitions=3
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
""")
        subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings)),
            check=True, capture_output=True, timeout=120,
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self._java("kafka.Kafka", str(settings)), stdout=log, stderr=log)
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.3)
        self.__exit__()
        raise RuntimeError(self.log.read_text(errors="replace")[-2000:])

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
