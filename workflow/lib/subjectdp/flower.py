"""Flower as the carrier of a federation's messages. Needs ``pip install 'subjectdp[pipeline,flower]'``.

``ClientApp`` passes bytes on to the silo's own process and reads nothing in them; ``ServerApp`` leads the federation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from subjectdp.federation.wire import ask_silo

_POLL_SECONDS = 0.1
_BYTES = "bytes"


def client_app(socket: str | None = None) -> ClientApp:
    """The silo's side: ``silo="/path/to/silo.sock"`` in the SuperNode's ``--node-config`` names the socket."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        address = socket or str(context.node_config["silo"])
        return Message(_record(ask_silo(address, _content(message))), reply_to=message)

    return app


def server_app(file: str | None = None) -> ServerApp:
    """The server's side: ``federation`` of the app's run config names the server's file, or ``file`` does."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        from subjectdp.federation.server import lead, read_federation  # here: a silo's messenger loads no torch

        lead(read_federation(file or str(context.run_config["federation"])), FlowerLink(grid), print)

    return app


class FlowerLink:
    """The SuperNodes of a grid (``federation.server.Link``)."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def nodes(self) -> Iterable[int]:
        return list(self._grid.get_node_ids())

    def ask(self, requests: Mapping[int, bytes], seconds: float) -> dict[int, bytes]:
        if not requests:
            return {}
        records = ((node, _record(content)) for node, content in requests.items())
        messages = [Message(record, dst_node_id=node, message_type="train") for node, record in records]
        waiting, replies = set(self._grid.push_messages(messages)), dict[int, bytes]()
        end = time.monotonic() + seconds
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                if not reply.has_error():
                    replies[reply.metadata.src_node_id] = _content(reply)
            time.sleep(_POLL_SECONDS)
        return replies


def _record(content: bytes) -> RecordDict:
    return RecordDict({_BYTES: ArrayRecord({_BYTES: Array(np.frombuffer(content, np.uint8))})})


def _content(message: Message) -> bytes:
    return bytes(message.content[_BYTES][_BYTES].numpy().tobytes())
