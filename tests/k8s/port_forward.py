"""The API server's half of a port-forward: websocket frames, channel byte first, to one TCP port.

Channel 0 carries data, channel 1 errors; each begins with a frame that names the port, little
endian, as the Kubernetes client expects.
"""

from __future__ import annotations

import asyncio
import struct

from aiohttp import WSMsgType, web

PROTOCOL = "v4.channel.k8s.io"


async def forward(request: web.Request) -> web.StreamResponse:
    port = int(request.query["ports"])
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(request)
    for channel in (b"\0", b"\1"):
        await socket.send_bytes(channel + struct.pack("<H", port))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        await socket.send_bytes(b"\1" + f"cannot connect: {error}".encode())
        await socket.close()
        return socket
    outgoing = asyncio.ensure_future(_to_client(reader, socket))
    async for message in socket:
        if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
            writer.write(message.data[1:])
            await writer.drain()
    outgoing.cancel()
    writer.close()
    return socket


async def _to_client(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while data := await reader.read(65536):
        await socket.send_bytes(b"\0" + data)
    await socket.close()
