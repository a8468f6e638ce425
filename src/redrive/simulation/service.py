"""ServiceModel: when the service responds to each request, and how."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .scenario import ServiceOutage, SimulatedService

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

SUCCESS, ERROR, REJECTED, TIMEOUT = 0, 1, 2, 3
"""Results of an attempt: a good response, an error, a full queue, no response in time."""


class Responses(NamedTuple):
    """The responses to some requests."""

    at: Floats
    """When each arrives. Infinite: never."""
    results: Codes


class ServiceModel:
    """A queue in front of a number of requests per second. Requests are passed in order of time.

    Each request that is accepted takes a slot of `1 / capacity` seconds, the earliest free one. Its
    response follows `latency` seconds after the begin of the slot.
    """

    def __init__(self, service: SimulatedService, outages: tuple[ServiceOutage, ...]) -> None:
        self._service = service
        self._outages = outages
        self._free_at = 0.0
        """When the next slot is free."""

    def respond(self, at: Floats, draws: Floats, shares: Floats) -> Responses:
        """Return the responses to requests that arrive within one time step.

        Args:
            at: Arrival of each request, sorted.
            draws: A random number for each, for its latency.
            shares: A random number for each, for outages of a part of the requests.
        """
        service = self._service
        responds_at = np.full(len(at), np.inf)
        results = np.full(len(at), ERROR, dtype=np.int8)
        accepted = np.ones(len(at), dtype=bool)
        capacity = service.capacity
        first, last = float(at[0]), float(at[-1])
        for outage in self._outages:
            if outage.at > last or outage.end <= first:
                continue
            if outage.kind == "slow":
                capacity = service.capacity * (outage.capacity or 1.0)
                continue
            hit = accepted & (at >= outage.at) & (at < outage.end) & (shares < outage.share)
            if outage.kind == "down":
                responds_at[hit] = at[hit] + service.error_latency
            accepted &= ~hit
        where = np.flatnonzero(accepted)
        if len(where):
            begins, fits = self._queue(at[where], 1 / capacity)
            latency = service.latency * (1 + service.spread * (2 * draws[where] - 1))
            responds_at[where] = np.where(fits, begins + latency, at[where] + service.error_latency)
            results[where] = np.where(fits, SUCCESS, REJECTED)
        return Responses(responds_at, results)

    def _queue(self, at: Floats, slot: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return when each request begins, and whether it fits in the queue."""
        # begins[i] = max(at[i], begins[i - 1] + slot), without a loop.
        offsets = np.arange(len(at)) * slot
        begins = np.maximum.accumulate(np.maximum(at, self._free_at) - offsets) + offsets
        limit = self._service.queue
        if float(np.max(begins - at)) <= limit:
            self._free_at = float(begins[-1]) + slot
            return begins, np.ones(len(at), dtype=bool)
        fits = np.zeros(len(at), dtype=bool)
        free_at = self._free_at
        for place, arrival in enumerate(at.tolist()):
            begin = arrival if arrival > free_at else free_at
            begins[place] = begin
            if begin - arrival <= limit:
                fits[place] = True
                free_at = begin + slot
        self._free_at = free_at
        return begins, fits
