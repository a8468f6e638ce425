"""Draw docs/pictures/outage.svg, a simulation of a job type in an outage of an hour.

A job is submitted every 4 seconds. The service that the jobs call is down from minute 5 to minute 65. The simulation uses
the rules of `redrive.core.outage` with a simulated clock.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from redrive.core.outage import End, Parking, Recent, is_charged

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "outage.svg"
DOWN, UP, END = 300, 3900, 4500
"""Seconds to the start of the outage, to its end, and to the end of the picture."""
EVERY = 4
BACKOFF = (5, 30, 120, 600)
CUSTOMERS = ("ann", "bob", "cid")


@dataclass
class Job:
    """A job of the simulation."""

    number: int
    due: float
    charged: int = 0
    uncharged: int = 0
    attempts: int = 0


@dataclass
class Timeline:
    """Events of the simulation."""

    dots: list[tuple[float, str]] = field(default_factory=list)
    """Time and result of each attempt."""
    queued: list[tuple[float, int]] = field(default_factory=list)
    parked: list[tuple[float, float]] = field(default_factory=list)
    done: list[Job] = field(default_factory=list)


def simulate(parking: Parking) -> Timeline:
    """Simulate the job type in steps of a second."""
    timeline, recent = Timeline(), Recent(parking)
    jobs: dict[int, Job] = {}
    since: float | None = None
    probes, probe_at = 0, 0.0
    for now in range(END):
        if now % EVERY == 0:
            jobs[now] = Job(now, now)
        due = sorted((job for job in jobs.values() if job.due <= now), key=lambda job: (job.due, job.number))
        if since is not None:
            due = due[:1] if now >= probe_at else []
        for job in due:
            is_probe = since is not None and now >= probe_at
            if since is not None and not is_probe:
                break
            job.attempts += 1
            if not DOWN <= now < UP:
                recent.add(_end(job, "success", now))
                timeline.dots.append((now, "success"))
                timeline.done.append(jobs.pop(job.number))
                if since is not None:
                    timeline.parked.append((since, now))
                    since = None
                continue
            if is_probe:
                probes += 1
                probe_at = now + parking.wait(probes)
            charged = is_charged("evidence", parking, outage=since is not None, uncharged=job.uncharged)
            job.charged, job.uncharged = job.charged + charged, job.uncharged + (not charged)
            job.due = now + BACKOFF[min(max(job.charged, 1), len(BACKOFF)) - 1]
            timeline.dots.append((now, "probe" if is_probe else "failed"))
            if recent.add(_end(job, "evidence", now)) is not None and since is None:
                since, probes, probe_at = now, 0, now + parking.wait(0)
                for end in recent.take_failures(now):
                    returned = jobs[int(str(end.key))]
                    count = min(len(end.attempts), returned.charged, parking.uncharged - returned.uncharged)
                    returned.charged, returned.uncharged = returned.charged - count, returned.uncharged + count
        timeline.queued.append((now, len(jobs)))
    return timeline


def _end(job: Job, verdict: str, now: float) -> End:
    group = CUSTOMERS[job.number // EVERY % len(CUSTOMERS)]
    return End(job.number, verdict, "503", group, now, (job.attempts,))  # type: ignore[arg-type]


LEFT, RIGHT, TOP, ROW = 185, 780, 46, 34
ROWS = (("success", "succeeded", "#2e7d32"), ("failed", "failed, given back", "#c62828"), ("probe", "probe failed", "#ef6c00"))


def draw(timeline: Timeline) -> str:
    """Draw the timeline as SVG."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 330" font-family="sans-serif" font-size="13">',
        '<rect width="820" height="330" fill="#ffffff"/>',
        f'<rect x="{_x(DOWN):.1f}" y="22" width="{_x(UP) - _x(DOWN):.1f}" height="248" fill="#fbe9e7"/>',
        f'<text x="{_x(DOWN) + 4:.1f}" y="17" fill="#b23c17">service down for 60 min</text>',
    ]
    for begin, end in timeline.parked:
        parts.append(f'<rect x="{_x(begin):.1f}" y="26" width="{_x(end) - _x(begin):.1f}" height="8" fill="#90a4ae"/>')
    parts.append('<text x="12" y="35" fill="#455a64">job type parked</text>')
    counts = Counter(kind for _, kind in timeline.dots)
    for row, (kind, label, colour) in enumerate(ROWS):
        y = TOP + ROW * row + 14
        parts.append(f'<text x="12" y="{y + 4}" fill="{colour}">{label} ({counts[kind]})</text>')
        positions = dict.fromkeys(round(_x(at), 1) for at, each in timeline.dots if each == kind)
        parts += [f'<circle cx="{x}" cy="{y}" r="2.6" fill="{colour}"/>' for x in positions]
    most = max(count for _, count in timeline.queued)
    base, height = 270, 105
    points = [(_x(at), base - height * count / most) for at, count in _thin_out(timeline.queued)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts += [
        f'<text x="12" y="{base - height / 2:.0f}" fill="#1565c0">queued jobs</text>',
        f'<text x="12" y="{base - height / 2 + 16:.0f}" fill="#1565c0">(at most {most})</text>',
        f'<polyline points="{line}" fill="none" stroke="#1565c0" stroke-width="1.6"/>',
        f'<line x1="{LEFT}" y1="{base}" x2="{RIGHT}" y2="{base}" stroke="#455a64"/>',
    ]
    for minute in range(0, END // 60 + 1, 15):
        x = _x(minute * 60)
        parts.append(f'<text x="{x:.1f}" y="{base + 18}" text-anchor="middle" fill="#455a64">{minute}</text>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2:.0f}" y="{base + 36}" text-anchor="middle" fill="#455a64">minutes</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(at: float) -> float:
    return LEFT + (RIGHT - LEFT) * at / END


def _thin_out(points: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    return [(at, count) for at, count in points if at % 30 == 0 or UP - 5 <= at <= UP + 330]


if __name__ == "__main__":
    PICTURE.write_text(draw(simulate(Parking())), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.name}\n")
