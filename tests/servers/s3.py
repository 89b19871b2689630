"""Servers of S3: SeaweedFS, rclone over a folder, and moto; each with one bucket and one pair of keys."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

from .processes import free_port
from .server import Server, program

__all__ = ["BUCKET", "KEY", "SECRET", "MotoServer", "RcloneServer", "S3Server", "SeaweedServer"]

BUCKET, KEY, SECRET = "cold-chunks", "tests-own-key", "tests-own-secret"


class S3Server(Server):
    """A server of S3. `environment` is how obstore finds it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def make_bucket(self, name: str = BUCKET) -> None:
        """Make a bucket; one that is there stays."""
        try:
            urllib.request.urlopen(urllib.request.Request(self._signed(name), method="PUT"), timeout=20).close()
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    def _signed(self, bucket: str) -> str:
        import obstore
        from obstore.store import S3Store

        options: Any = {"client_options": {"allow_http": True}}
        store = S3Store(
            bucket, endpoint=self.url, access_key_id=KEY, secret_access_key=SECRET, region="us-east-1", **options
        )
        return obstore.sign(store, "PUT", "", timedelta(minutes=5))

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code < 500
        except OSError:
            return False
        return True


class SeaweedServer(S3Server):
    """SeaweedFS in one process: master, volumes, filer and S3."""

    kind = "seaweedfs"

    def __init__(self) -> None:
        super().__init__()
        self._ports = [free_port() for _ in range(3)]

    def _prepare(self) -> None:
        allowed = {"accessKey": KEY, "secretKey": SECRET}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = [{"name": "tests", "credentials": [allowed], "actions": actions}]
        path = self.folder / "s3.json"
        path.write_text(json.dumps({"identities": identities}))
        path.chmod(0o644)

    def _command(self) -> list[str]:
        master, volume, filer = self._ports
        return [
            program("weed"),
            "server",
            f"-dir={self.folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            "-master.volumeSizeLimitMB=64",
            f"-volume.port={volume}",
            "-volume.max=16",
            "-filer",
            f"-filer.port={filer}",
            "-s3",
            f"-s3.port={self.port}",
            f"-s3.config={self.folder}/s3.json",
            # These listen on ports that are the same for every server of a machine.
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
        ]


class RcloneServer(S3Server):
    """`rclone serve s3` over a folder. It knows no conditions."""

    kind = "rclone"

    def make_bucket(self, name: str = BUCKET) -> None:
        (self.folder / "served" / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "served" / name).chmod(0o777)

    def _prepare(self) -> None:
        (self.folder / "served").mkdir(exist_ok=True)
        (self.folder / "served").chmod(0o777)

    def _command(self) -> list[str]:
        address, keys = f"127.0.0.1:{self.port}", f"{KEY},{SECRET}"
        served = str(self.folder / "served")
        return [
            program("rclone"),
            "serve",
            "s3",
            "--config",
            "/dev/null",
            "--addr",
            address,
            "--auth-key",
            keys,
            served,
        ]


class MotoServer(S3Server):
    """moto's server: everything in its memory."""

    kind = "moto"

    def _runs_as(self) -> dict[str, Any]:
        return {}  # its Python may lie where only we may look

    def _command(self) -> list[str]:
        return [program("moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
