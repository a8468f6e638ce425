"""Draw life cycles, layers and a turn of a worker for docs/concepts and docs/architecture.md.

    python scripts/concept_pictures.py

A test compares the files with the output of this program, and the states with the code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
HEIGHT = 46
INK, LINE = "#263238", "#546e7a"
COLOURS = {
    "plain": ("#eceff1", "#90a4ae"),
    "active": ("#e3f2fd", "#1e88e5"),
    "good": ("#e8f5e9", "#43a047"),
    "bad": ("#ffebee", "#e53935"),
    "wait": ("#fff8e1", "#ffa000"),
}
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A state, or a part of the architecture."""

    x: float
    y: float
    width: float
    title: str
    note: str = ""
    colour: str = "plain"
    height: float = HEIGHT


@dataclass(frozen=True)
class Arrow:
    """A transition along points, with a label at a separate position."""

    points: Sequence[Point]
    label: str = ""
    at: Point = (0, 0)
    anchor: str = "middle"


@dataclass(frozen=True)
class Picture:
    """One picture, written to one file."""

    name: str
    title: str
    width: int
    height: int
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]


JOB = Picture(
    "job",
    "Life cycle of a job",
    820,
    388,
    [
        Box(20, 50, 130, "idle", "not committed"),
        Box(230, 50, 130, "queued", "due or scheduled", "wait"),
        Box(440, 50, 130, "running", "leased by a worker", "active"),
        Box(670, 50, 130, "done", "result stored", "good"),
        Box(20, 150, 130, "cancelled", "stopped on request"),
        Box(230, 150, 130, "retry_wait", "backoff", "wait"),
        Box(670, 150, 130, "dlq", "dead letter", "bad"),
        Box(230, 225, 130, "waiting", "holds no worker", "wait"),
        Box(230, 320, 130, "replaying", "queued again", "wait"),
        Box(440, 320, 130, "blocked", "needs something", "bad"),
        Box(670, 320, 130, "discarded", "by an operator"),
    ],
    [
        Arrow([(150, 73), (230, 73)], "commit", (172, 66)),
        Arrow([(360, 73), (440, 73)], "claim", (400, 66)),
        Arrow([(570, 73), (670, 73)], "success", (620, 66)),
        Arrow([(250, 96), (250, 125), (85, 125), (85, 150)], "cancel", (140, 119)),
        Arrow([(465, 96), (465, 185), (360, 185)], "failed", (412, 179)),
        Arrow([(330, 150), (330, 122), (450, 122), (450, 96)], "backoff over", (385, 116)),
        Arrow([(490, 96), (490, 248), (360, 248)], "sleep, wait_for", (422, 242)),
        Arrow([(230, 248), (212, 248), (212, 85), (230, 85)], "time, signal", (188, 230), "end"),
        Arrow([(545, 96), (545, 173), (670, 173)], "gave up", (607, 167)),
        Arrow([(520, 96), (520, 320)], "Blocked", (526, 270), "start"),
        Arrow([(735, 196), (735, 320)], "discard", (742, 262), "start"),
        Arrow([(690, 196), (690, 298), (300, 298), (300, 320)], "replay", (395, 292)),
        Arrow([(440, 348), (360, 348)], "unblock", (400, 342)),
        Arrow([(230, 343), (195, 343), (195, 24), (505, 24), (505, 50)], "claim", (380, 18)),
    ],
)

MESSAGE = Picture(
    "message",
    "Life cycle of a message",
    820,
    250,
    [
        Box(20, 40, 140, "source", "Redis stream, receive()"),
        Box(250, 40, 140, "event stored", "once per source and id", "good"),
        Box(480, 40, 140, "job: handler A", "own attempts", "active"),
        Box(480, 120, 140, "job: handler B", "own attempts", "active"),
        Box(690, 40, 110, "done", "", "good"),
        Box(690, 120, 110, "dead letter", "", "bad"),
        Box(250, 120, 140, "duplicate", "nothing happens"),
        Box(20, 120, 140, "acknowledged", "after the commit"),
        Box(250, 185, 140, "unreadable entry", "dead letter", "bad"),
    ],
    [
        Arrow([(160, 63), (250, 63)], "read", (205, 56)),
        Arrow([(205, 63), (205, 143), (250, 143)], "known id", (200, 112), "end"),
        Arrow([(205, 143), (205, 208), (250, 208)], "cannot decode", (200, 196), "end"),
        Arrow([(390, 63), (480, 63)], "same commit", (435, 56)),
        Arrow([(435, 63), (435, 143), (480, 143)]),
        Arrow([(620, 63), (690, 63)], "success", (654, 56)),
        Arrow([(620, 143), (690, 143)], "gave up", (654, 136)),
        Arrow([(90, 86), (90, 120)], "XACK", (84, 107), "end"),
        Arrow([(745, 166), (745, 200), (550, 200), (550, 166)], "replay this handler only", (648, 216)),
    ],
)

PARTITION = Picture(
    "partition",
    "Life cycle of a partition",
    820,
    300,
    [
        Box(20, 110, 120, "scheduled", "cron, backfill", "wait"),
        Box(220, 110, 130, "pending", "queued or running", "active"),
        Box(540, 40, 150, "success", "current run, readable", "good"),
        Box(540, 180, 150, "failed", "waits for a retry", "wait"),
        Box(540, 244, 150, "terminal", "gave up", "bad"),
        Box(220, 30, 130, "run", "new raw data", "active"),
    ],
    [
        Arrow([(140, 133), (220, 133)], "enqueue", (180, 126)),
        Arrow([(285, 110), (285, 76)], "claim", (278, 98), "end"),
        Arrow([(350, 53), (540, 53)], "checks accept it", (445, 47)),
        Arrow([(350, 66), (430, 66), (430, 195), (540, 195)], "checks reject it", (436, 122), "start"),
        Arrow([(540, 212), (310, 212), (310, 156)], "retry by policy or operator", (424, 226)),
        Arrow([(615, 226), (615, 244)]),
        Arrow([(540, 270), (255, 270), (255, 156)], "operator grants attempts", (390, 284)),
        Arrow([(690, 63), (750, 63), (750, 14), (285, 14), (285, 30)], "reprocess: the current run stays readable", (560, 30)),
    ],
)

ITEM = Picture(
    "item",
    "Life cycle of a batch item",
    820,
    210,
    [
        Box(20, 60, 130, "pending", "to be sent", "wait"),
        Box(260, 60, 130, "sent", "one pass of a batch", "active"),
        Box(540, 20, 150, "acknowledged", "accepted", "good"),
        Box(540, 110, 150, "giveup", "set aside", "bad"),
    ],
    [
        Arrow([(150, 76), (260, 76)], "send", (205, 69)),
        Arrow([(390, 70), (460, 70), (460, 43), (540, 43)], "accepted", (500, 37)),
        Arrow([(260, 96), (150, 96)], "rejected", (205, 112)),
        Arrow([(390, 92), (460, 92), (460, 133), (540, 133)], "5th rejection", (500, 127)),
        Arrow([(540, 145), (500, 145), (500, 180), (85, 180), (85, 106)], "operator reopens it", (300, 174)),
    ],
)

ARCHITECTURE = Picture(
    "architecture",
    "The parts of Redrive",
    820,
    330,
    [
        Box(20, 30, 220, "your service", "@retry, submit(), receive()", "active", 60),
        Box(320, 30, 180, "ledger", "SQLite file or Postgres", "good", 60),
        Box(580, 30, 220, "workers", "redrive work shop:app", "active", 60),
        Box(290, 150, 240, "console and command line", "redrive serve, redrive dead", "wait", 60),
        Box(20, 260, 780, "services, databases and storage that your code calls", "", "plain", 46),
    ],
    [
        Arrow([(240, 60), (320, 60)], "submit", (280, 53)),
        Arrow([(500, 48), (580, 48)], "claim", (540, 41)),
        Arrow([(580, 72), (500, 72)], "settle", (540, 88)),
        Arrow([(410, 150), (410, 90)], "look, replay, audit", (418, 125), "start"),
        Arrow([(130, 90), (130, 260)], "calls with retries", (138, 235), "start"),
        Arrow([(690, 90), (690, 260)], "jobs run your functions", (682, 235), "end"),
    ],
)

ESCALATION = Picture(
    "escalation",
    "From a call to a dead letter",
    820,
    190,
    [
        Box(20, 40, 160, "call", "attempts in the process", "active"),
        Box(300, 40, 180, "job in the ledger", "attempts by workers", "active"),
        Box(600, 40, 180, "dead letter", "an operator decides", "bad"),
        Box(20, 130, 160, "done", "value returned", "good"),
        Box(300, 130, 180, "done", "result stored", "good"),
        Box(600, 130, 180, "discarded", "with a reason"),
    ],
    [
        Arrow([(180, 63), (300, 63)], "gave up, spill", (240, 56)),
        Arrow([(480, 63), (600, 63)], "gave up", (540, 56)),
        Arrow([(100, 86), (100, 130)], "success", (108, 112), "start"),
        Arrow([(360, 86), (360, 130)], "success", (352, 112), "end"),
        Arrow([(710, 86), (710, 130)], "discard", (718, 112), "start"),
        Arrow([(640, 86), (640, 106), (430, 106), (430, 86)], "replay", (535, 120)),
    ],
)

TURN = Picture(
    "turn",
    "A turn of the dispatcher",
    820,
    330,
    [
        Box(20, 40, 170, "threads, event loop", "executors.py, attempt.py", "active"),
        Box(20, 130, 170, "sources", "arrivals.py", "active"),
        Box(270, 20, 190, "1. collect results", "completer.py"),
        Box(270, 85, 190, "2. plan the turn", "turn.py", "wait"),
        Box(270, 150, 190, "3. settle, claim, store", "dispatcher.py, one write", "good"),
        Box(270, 215, 190, "4. work sources", "work_source.py"),
        Box(270, 272, 190, "5. maintenance", "maintenance.py"),
        Box(590, 110, 190, "ledger", "SQLite or Postgres", "good", 126),
    ],
    [
        Arrow([(190, 55), (270, 43)], "results", (228, 40)),
        Arrow([(190, 153), (270, 167)], "events", (212, 178)),
        Arrow([(365, 66), (365, 85)]),
        Arrow([(365, 131), (365, 150)]),
        Arrow([(365, 196), (365, 215)]),
        Arrow([(365, 261), (365, 272)]),
        Arrow([(460, 165), (590, 165)], "settlements, demand", (525, 158)),
        Arrow([(590, 184), (460, 184)], "leases", (525, 200)),
        Arrow([(460, 230), (590, 220)], "partitions", (525, 240)),
        Arrow([(460, 300), (685, 300), (685, 236)], "heartbeat, renewal, recovery", (572, 294)),
        Arrow([(270, 185), (230, 185), (230, 105), (105, 105), (105, 86)], "start jobs", (165, 99)),
        Arrow([(270, 290), (8, 290), (8, 12), (365, 12), (365, 20)], "wait for the next turn", (120, 307)),
    ],
)

LAYER_ROWS = (
    ("django", "tasks, requests, migrations, a worker command, the console as a view", "wait"),
    ("cli", "", "wait"),
    ("console · demo · mcp", "pages and REST API; the demo; tools for agents", "wait"),
    ("ops · flask", "everything an operator can do; requests of Flask", "wait"),
    ("app", "App: the ledger and the registered functions", "active"),
    ("partitions · temporal · celery", "data by customer and day; commands on Temporal; failed tasks of Celery", "active"),
    ("commands · messages · batch · idempotency · http · grpc · storage", "", "active"),
    ("worker", "claims jobs and runs them", "good"),
    ("ledger · native", "durable state; policies as other clients' options", "good"),
    ("analysis · simulation", "the worst case of nested retries, the load of a fleet in an outage", "plain"),
    ("engine", "retry(...)", "plain"),
    ("journal · settings", "log records, configuration", "plain"),
    ("core · errors · backoff", "pure values and decisions", "plain"),
)
LAYERS = Picture(
    "layers",
    "The layers of the package",
    820,
    20 + 42 * len(LAYER_ROWS),
    [Box(60, 10 + 42 * place, 740, title, note, colour, 38) for place, (title, note, colour) in enumerate(LAYER_ROWS)],
    [Arrow([(30, 14), (30, 10 + 42 * len(LAYER_ROWS))], "imports", (30, 8 + 21 * len(LAYER_ROWS)))],
)

PICTURES = (JOB, MESSAGE, PARTITION, ITEM, ARCHITECTURE, ESCALATION, TURN, LAYERS)


def draw(picture: Picture) -> str:
    """Draw a picture as SVG."""
    size = f'viewBox="0 0 {picture.width} {picture.height}"'
    text = f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(picture.title)}"'
    tip = f'<path d="M0 0L10 5L0 10z" fill="{LINE}"/>'
    marker = f'viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">{tip}'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {text}>',
        f'<defs><marker id="end" {marker}</marker></defs>',
        f'<rect width="{picture.width}" height="{picture.height}" rx="6" fill="#ffffff"/>',
    ]
    for arrow in picture.arrows:
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in arrow.points)
        parts.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.4" marker-end="url(#end)"/>')
    for box in picture.boxes:
        parts += _box(box)
    parts += [_label(arrow) for arrow in picture.arrows if arrow.label]
    return "\n".join([*parts, "</svg>", ""])


def _box(box: Box) -> list[str]:
    fill, stroke = COLOURS[box.colour]
    middle, line = box.x + box.width / 2, box.y + box.height / 2
    size = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'
    title = f'x="{middle:g}" y="{line + (-3 if box.note else 5):g}" text-anchor="middle" font-weight="bold" font-size="13"'
    parts = [
        f'<rect {size} rx="6" fill="{fill}" stroke="{stroke}"/>',
        f'<text {title} fill="{INK}">{escape(box.title)}</text>',
    ]
    if box.note:
        note = f'x="{middle:g}" y="{line + 13:g}" text-anchor="middle" font-size="11" fill="{LINE}"'
        parts.append(f"<text {note}>{escape(box.note)}</text>")
    return parts


def _label(arrow: Arrow) -> str:
    x, y = arrow.at
    position = f'x="{x:g}" y="{y:g}" text-anchor="{arrow.anchor}"'
    return f'<text {position} fill="{INK}" stroke="#ffffff" stroke-width="3" paint-order="stroke">{escape(arrow.label)}</text>'


def main() -> int:
    """Write every picture."""
    for picture in PICTURES:
        (FOLDER / f"{picture.name}.svg").write_text(draw(picture), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
