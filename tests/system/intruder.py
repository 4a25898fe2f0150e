"""What another user of the machine can try on a Ray: a script that knows its ports and no token.

It prints, as JSON, whom it is and each attempt with what came of it. Python itself may lie where
another user cannot read it, so everything is imported before the user changes.
"""

import json
import os
import sys
import urllib.error
import urllib.request

import grpc
from ray._raylet import GcsClient

METHODS = (
    "InternalKVGcsService/InternalKVKeys",
    "InternalKVGcsService/InternalKVPut",
    "CoreWorkerService/GetCoreWorkerStats",
    "NodeManagerService/GetNodeStats",
    "ObjectManagerService/Pull",
)
GUESS = ("authorization", f"Bearer {'0' * 64}")


def attempt(action):
    try:
        return f"in: {action()!r}"
    except grpc.RpcError as error:
        return error.code().name
    except urllib.error.HTTPError as error:
        return f"http {error.code}"
    except Exception as error:
        return type(error).__name__


def call(channel, method, metadata):
    stub = channel.unary_unary(f"/ray.rpc.{method}")
    return stub(b"", timeout=20, metadata=metadata)


def post(address):
    request = urllib.request.Request(
        f"http://{address}/get_or_create_runtime_env", data=b"", method="POST"
    )
    return urllib.request.urlopen(request, timeout=20).status  # noqa: S310 - http, as it says


def main(gcs, addresses):
    import encodings.idna  # noqa: F401 - urllib would look for it later

    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    tried = {"uid": os.getuid()}
    tried["keys"] = attempt(lambda: GcsClient(address=gcs).internal_kv_keys(b"", b"fun", 20))
    tried["get"] = attempt(lambda: GcsClient(address=gcs).internal_kv_get(b"x", b"fun", 20))
    tried["put"] = attempt(
        lambda: GcsClient(address=gcs).internal_kv_put(b"x", b"y", True, b"fun", 20)
    )
    for address in addresses:
        tried[f"post {address}"] = attempt(lambda address=address: post(address))
        channel = grpc.insecure_channel(address)
        for method in METHODS:
            for metadata in ((), (GUESS,)):
                tried[f"{method} {address} {len(metadata)}"] = attempt(
                    lambda c=channel, m=method, d=metadata: call(c, m, d)
                )
    print(json.dumps(tried))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
