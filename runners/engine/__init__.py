"""A small continuous-batching engine: an OpenAI-compatible server around any decoder of a few methods.

Read it in this order: `protocol` (what a model must offer), `model` (a tiny one), `scheduler` (what is batched
when, and who pays when memory runs out), `server` (HTTP on one side, the scheduler's thread on the other).

It runs under the tracked project's interpreter, from the folder alone (`python <this folder> --port N`), and
imports nothing of its surroundings: torch, aiohttp and the standard library are all it needs.
"""
