"""A proxy before memcached servers, which does to their answers what networks and broken servers
do; a process of its own, told by lines of JSON on its standard input.

Line one: {"servers": [[ADDRESS, PORT, PATH], ...]}: it listens at the address for the server with
the socket PATH, and answers "ready". Then {"server": N, "way": WAY, "number": X} changes how
server N is reached, {"cut": [HOST, ...]} which hosts are cut off from all others, until the next
such line. Host H's connections come from 127.0.1.(H+1); its own server is number H.

Ways: pass; slow (each piece waits for X seconds); trickle (a few bytes at a time, X seconds
between); cut (connections end in the middle of a piece); flip (a bit of each long piece is
turned, of answers, where X > 0.5 of requests, too); endless (a line of an answer that never
ends); silent (nothing comes through any more, until another way is set); refuse (nobody
listens).
"""

import asyncio
import contextlib
import json
import random
import sys

PIECE = 1 << 16
LONG = 256  # bytes of a piece in which bits are turned: values have them, short answers have not
STEP_S = 0.02


class Server:
    def __init__(self, number, address, port, path):
        self.number, self.address, self.port, self.path = number, address, port, path
        self.way, self.amount = "pass", 0.0
        self.listener = None
        self.writers = set()


class Proxy:
    def __init__(self, servers, dice):
        self.servers = [Server(n, *words) for n, words in enumerate(servers)]
        self.cut = set()
        self.dice = dice

    async def listen(self, server):
        if server.listener is None:
            server.listener = await asyncio.start_server(
                lambda r, w: self.serve(server, r, w), server.address, server.port)

    async def set(self, server, way, amount):
        server.way, server.amount = way, amount
        if way == "refuse":
            if server.listener:
                server.listener.close()
                server.listener = None
            for writer in list(server.writers):
                writer.transport.abort()
        else:
            await self.listen(server)

    async def serve(self, server, reader, writer):
        client = int(writer.get_extra_info("peername")[0].split(".")[3]) - 1
        server.writers.add(writer)
        try:
            # A client that is cut off would not even have come so far.
            await self.open_way(server, client)
            back_reader, back_writer = await asyncio.open_unix_connection(server.path)
        except OSError:
            back_writer = None
        if back_writer is None:
            writer.transport.abort()
            server.writers.discard(writer)
            return
        server.writers.add(back_writer)
        pumps = [asyncio.ensure_future(self.pump(server, client, reader, back_writer, False)),
                 asyncio.ensure_future(self.pump(server, client, back_reader, writer, True))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, back_writer):
            end.transport.abort()
            server.writers.discard(end)

    def is_shut(self, server, client):
        apart = client != server.number and (client in self.cut or server.number in self.cut)
        return apart or server.way == "silent"

    async def open_way(self, server, client):
        while self.is_shut(server, client):
            await asyncio.sleep(STEP_S)

    async def pump(self, server, client, reader, writer, is_answer):
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                await self.open_way(server, client)
                if not await self.send(server, writer, piece, is_answer):
                    return

    async def send(self, server, writer, piece, is_answer):
        """One piece, in the server's way; False: the connection is over."""
        way, amount = server.way, server.amount
        if way == "slow":
            await asyncio.sleep(amount)
        elif way == "cut":
            writer.write(piece[:self.dice.randrange(len(piece))])
            await writer.drain()
            return False
        elif way == "flip" and self.is_turned(piece, is_answer, amount):
            changed = bytearray(piece)
            at = self.dice.randrange(LONG // 2, len(changed))
            changed[at] ^= 1 << self.dice.randrange(8)
            piece = bytes(changed)
        elif way == "trickle" and is_answer:
            return await self.trickle(server, writer, piece)
        elif way == "endless" and is_answer:
            return await self.never_end(server, writer)
        writer.write(piece)
        await writer.drain()
        return True

    def is_turned(self, piece, is_answer, amount):
        """What servers say of their settings is compared by the ranks, and cannot be checked."""
        return len(piece) > LONG and not piece.startswith(b"STAT ") and (is_answer or amount > 0.5)

    async def trickle(self, server, writer, piece):
        for i in range(0, len(piece), 7):
            writer.write(piece[i:i + 7])
            await writer.drain()
            if server.way == "trickle":
                await asyncio.sleep(server.amount)
        return True

    async def never_end(self, server, writer):
        writer.write(b"VALUE ")
        while server.way == "endless":
            writer.write(b"x" * 4096)
            await writer.drain()
            await asyncio.sleep(STEP_S)
        return False

    async def obey(self, line):
        order = json.loads(line)
        if "cut" in order:
            self.cut = set(order["cut"])
        else:
            await self.set(self.servers[order["server"]], order["way"], order.get("number", 0.0))


async def main():
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    first = json.loads(await orders.readline())
    proxy = Proxy(first["servers"], random.Random(first.get("seed", 0)))
    for server in proxy.servers:
        await proxy.listen(server)
    print("ready", flush=True)
    while line := await orders.readline():
        await proxy.obey(line)
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
