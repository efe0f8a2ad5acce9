"""A proxy that delays what it passes on, for servers that are far away."""

import asyncio
import contextlib
import sys


async def pump(reader, writer, delay):
    """Passes on each piece of a stream `delay` seconds after it came."""
    loop = asyncio.get_running_loop()
    try:
        while piece := await reader.read(1 << 16):
            loop.call_later(delay, writer.write, piece)
    finally:
        loop.call_later(delay, writer.close)


async def serve(port, to, delay):
    async def pass_on(reader, writer):
        with contextlib.suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
            await asyncio.gather(pump(reader, far_writer, delay), pump(far_reader, writer, delay))

    server = await asyncio.start_server(pass_on, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
