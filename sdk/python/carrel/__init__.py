"""Carrel: every AI agent gets its own computer.

Client and Machine wait for each answer; AsyncClient and AsyncMachine are for asyncio and have the same methods.
"""
from . import _types as types
from ._aio import AsyncClient, AsyncFiles, AsyncMachine, AsyncProcess
from ._http import CarrelError
from ._result import Contender, Result, event_bytes, port_request
from ._sync import Client, Files, Machine, Process

__all__ = ["AsyncClient", "AsyncFiles", "AsyncMachine", "AsyncProcess", "CarrelError", "Client", "Contender", "Files",
           "Machine", "Process", "Result", "event_bytes", "port_request", "types"]
