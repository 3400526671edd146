"""Both ends of one ASGI call, without a server."""

import asyncio
import json

DISCONNECT = {"type": "http.disconnect"}


def chunk(body, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


def scope(method="POST", path="/v1/streams", **headers):
    raw = [(name.replace("_", "-").encode(), str(value).encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": raw}


class Client:
    """Gives the messages one after the other, then waits for ever, as a server does; keeps what is sent."""

    def __init__(self, *messages):
        self.messages = list(messages)
        self.received = 0
        self.sent = []

    async def receive(self):
        if not self.messages:
            await asyncio.Event().wait()
        self.received += 1
        return self.messages.pop(0)

    async def send(self, message):
        self.sent.append(message)

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def problem(self):
        return json.loads(self.body)
