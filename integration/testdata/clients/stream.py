"""Reads a streamed answer of a chat API, as openai's library does: stream.py LIBRARY URL.

The server sends the first word, and the rest only after it has been told that the first has arrived.
"""

import asyncio
import json
import sys
import uuid

library, base = sys.argv[1:]
stream_id = uuid.uuid4().hex
ask = f"{base}/v1/chat/completions?id={stream_id}"
seen = f"{base}/seen?id={stream_id}"
body = {"model": "any", "stream": True, "messages": [{"role": "user", "content": "two words"}]}
words = []


def word(line):
    """Keeps the word of a line, if there is one."""
    if isinstance(line, bytes):
        line = line.decode()
    data = line.strip().removeprefix("data: ")
    if not data or data == "[DONE]":
        return False
    words.append(json.loads(data)["choices"][0]["delta"]["content"])
    return True


def with_requests():
    import requests

    with requests.post(ask, json=body, stream=True, timeout=30) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines(chunk_size=1):
            if word(line) and len(words) == 1:
                requests.get(seen, timeout=30).raise_for_status()


def with_httpx():
    import httpx

    with httpx.Client(timeout=30) as client, client.stream("POST", ask, json=body) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if word(line) and len(words) == 1:
                client.get(seen).raise_for_status()


async def with_aiohttp():
    import aiohttp

    async with aiohttp.ClientSession(trust_env=True) as client, client.post(ask, json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if word(line) and len(words) == 1:
                async with client.get(seen) as told:
                    told.raise_for_status()


if library == "aiohttp":
    asyncio.run(with_aiohttp())
else:
    {"requests": with_requests, "httpx": with_httpx}[library]()
print(*words)
