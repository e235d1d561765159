"""A server for tests of the replay tier: answers completions in the way that its argument names.

Run as `python replay_stub.py PORT MODE [SECONDS]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from aiohttp import web


class Stub:
    def __init__(self, mode: str, seconds: float) -> None:
        self.mode = mode
        self.seconds = seconds
        self.turn = asyncio.Lock()
        self.count = 0

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self.mode == "unready" else 200)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.count += 1
        await self.misbehave()
        if self.mode == "refuse" and len(body["prompt"]) > 100:
            return web.json_response({"error": {"message": "no", "type": "overloaded"}}, status=503)
        if self.mode == "cuda":
            message = "CUDA out of memory. Tried to allocate 2.00 GiB"
            return web.json_response({"object": "error", "message": message, "code": 500}, status=500)
        if self.mode == "queue":
            async with self.turn:
                await asyncio.sleep(self.seconds)
        elif self.mode == "hang":
            await asyncio.sleep(3600)
        return await self.stream(request, body["max_tokens"])

    async def misbehave(self) -> None:
        if self.count <= int(self.seconds):
            return
        if self.mode == "exit":
            print("the last words", flush=True)
            os._exit(3)
        if self.mode == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode == "starved":
            print("MemoryError: nothing left", flush=True)
            os._exit(1)

    async def stream(self, request: web.Request, tokens: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        tokens = tokens - 1 if self.mode == "short" else tokens
        for index in range(tokens):
            finish = "length" if index == tokens - 1 else None
            chunk = {"choices": [{"index": 0, "text": "x", "finish_reason": finish}]}
            await response.write(f"data: {json.dumps(chunk)}\r\n\r\n".encode())
            if self.mode == "midway" and index == 0:
                error = {"error": {"message": "gone", "type": "out_of_memory"}}
                await response.write(f"data: {json.dumps(error)}\n\n".encode())
                return response
            if self.mode == "cut" and index == 0:
                return response
        usage = {"choices": [], "usage": {"completion_tokens": tokens}}
        await response.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
        return response


def main(port: int, mode: str, seconds: float) -> None:
    print(f"stub: {mode}", flush=True)
    if mode == "crash":
        sys.exit("cannot start: no weights")
    if mode == "family":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path("child.pid").write_text(str(child.pid))
    stub = Stub(mode, seconds)
    app = web.Application()
    app.add_routes([web.get("/health", stub.health), web.post("/v1/completions", stub.complete)])
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
