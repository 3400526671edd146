"""What a plan comes to, as JSON, as tables, and as bars in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.api.admission import counter_offers, refusal, said
from gateway.capacity.plan_file import PlanItem
from gateway.capacity.planning import PlanAnswer, StreamAnswer, profiled, rejected_kinds
from gateway.capacity.shares import Share, promised, refused_shares, shares
from gateway.core.offers import WIDEST
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, ServiceClass
from gateway.core.verdict import Reason

if TYPE_CHECKING:
    from rich.console import RenderableType

#: How the time that real-time streams do not need is called.
NOT_PROMISED = "not promised"
#: Characters of a full bar.
_WIDTH = 40
_MOST_LISTED = 12
_NO_OFFER = (
    "  no single change of rate, deadline or shape would be admitted"
    f" (periods and deadlines up to {WIDEST} times as long were tried)"
)
_NOT_ROOM = "Time that is not promised is not room for more: deadlines decide what fits, not only use."


@dataclass(frozen=True)
class Result:
    """A plan on one profile.

    Attributes:
        path: Of the profile.
        profile: As it was planned with.
        time_scale: By which its times were multiplied.
        items: The plan.
        answer: Of the engine.
        parts: What the admitted streams need of the device.
        refused: What the refused ones would need of it without the others.
    """

    path: Path
    profile: Profile
    time_scale: float
    items: tuple[PlanItem, ...]
    answer: PlanAnswer
    parts: tuple[Share, ...]
    refused: tuple[Share, ...] = ()

    @classmethod
    def of(cls, path: Path, profile: Profile, scale: float, items: Sequence[PlanItem], answer: PlanAnswer) -> Result:
        """Return the result with its shares."""
        names = [item.name for item in items]
        told = [*answer.rejected, *(kind.refusal for kind in answer.how_many if kind.refusal is not None)]
        parts, refused = shares(answer.admitted, names, profile), refused_shares(told, names, profile)
        return cls(path, profile, scale, tuple(items), answer, tuple(parts), tuple(refused))

    @property
    def utilization(self) -> float:
        """Return what the real-time streams need of the device, at least."""
        return promised(self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {
            "admitted": len(self.answer.admitted),
            "rejected": len(self.answer.rejected),
            "utilization": self.utilization,
            "streams": [_stream(stream, self.profile) for stream in self.answer.streams],
            "how_many": [
                {
                    "name": kind.name,
                    "fits": kind.fits,
                    "next": None if kind.refusal is None else _stream(kind.refusal, self.profile),
                }
                for kind in self.answer.how_many
            ],
            "shares": [
                {"name": part.name, "category": str(part.category), "streams": part.streams, "share": part.share}
                | {"service_class": part.category.service_class.value}
                for part in self.parts
            ],
            "profile": str(self.path),
            "device": self.profile.device,
            "time_scale": self.time_scale,
        }


def _stream(answer: StreamAnswer, profile: Profile) -> dict[str, Any]:
    worst_ns = answer.verdict.worst_latency_ns
    data: dict[str, Any] = {
        "name": answer.name,
        "admitted": answer.verdict.admitted,
        "test": answer.verdict.test,
        "reason": None if answer.verdict.reason is None else answer.verdict.reason.value,
        "worst_latency_ms": None if worst_ns is None else worst_ns / NS_PER_MS,
        "counter_offers": [offer.model_dump(exclude_none=True) for offer in counter_offers(answer.offers)],
        "model": answer.spec.model,
        "version": answer.spec.version,
        "at_ms": answer.at_ns / NS_PER_MS,
        "evidence": answer.evidence.model_dump(),
    }
    if not answer.verdict.admitted:
        data["explanation"] = _why(answer, profile)
    if answer.verdict.reason is Reason.NOT_PROFILED:
        data["profiled"] = profiled(profile, answer.spec)
    return data


def _why(answer: StreamAnswer, profile: Profile) -> str:
    """Return the refusal in words; what is offered, or profiled, has lines of its own."""
    known = None if answer.verdict.reason is Reason.NOT_PROFILED else profile
    return refusal(answer.evidence, (), answer.spec, profile=known).detail


# ---------------------------------------------------------------- for people


def result_view(result: Result) -> RenderableType:
    """Return the answer to every item, the refusals in words, and the bars."""
    from rich.console import Group
    from rich.text import Text

    scale = "" if result.time_scale == 1 else f", its times multiplied by {result.time_scale:g}"
    device = f" ({result.profile.device})" if result.profile.device else ""
    parts: list[RenderableType] = [Text(f"{result.path}{device}{scale}"), _table(result)]
    parts += [Text(line) for line in [*_turns(result), *_how_many(result)]]
    for answer, count in rejected_kinds(result.answer.streams):
        parts += [Text(line) for line in _refusal(result, answer, count)]
    parts += [Text(line, no_wrap=True, overflow="ignore") for line in bars(result)]
    parts.append(Text(_NOT_ROOM))
    return Group(*parts)


def _table(result: Result) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("stream", "admitted", "test", "worst ms", "deadline ms", "refused"):
        table.add_column(name, justify="right" if "ms" in name else "left", overflow="fold")
        table.columns[-1].no_wrap = name in {"stream", "test", "refused"}
    for place, item in enumerate(result.items):
        told = [answer for answer in result.answer.streams if answer.item == place]
        fit = [answer for answer in told if answer.verdict.admitted]
        worst = [a.verdict.worst_latency_ns for a in fit if a.verdict.worst_latency_ns is not None]
        refused = next((a.verdict for a in told if not a.verdict.admitted), None)
        table.add_row(
            item.name,
            f"{len(fit)} (as many as fit)" if item.count is None else f"{len(fit)} of {item.count}",
            ", ".join(dict.fromkeys(answer.verdict.test for answer in told)),
            f"{max(worst) / NS_PER_MS:.1f}" if worst else "",
            f"{item.spec.deadline_ns / NS_PER_MS:g}",
            refused.reason.value if refused and refused.reason else "",
        )
    return table


def _turns(result: Result) -> list[str]:
    """Return how the models do that take turns, once all that fit are admitted; nothing if none do."""
    in_order = sorted(result.answer.admitted, key=lambda answer: answer.at_ns)
    swap = in_order[-1].evidence.swap if in_order else None
    if swap is None:
        return []
    return [
        f"{', '.join(swap.models)} take turns in memory, up to {swap.longest_turn_ms:.0f} ms each with unload and load;"
        f" in the worst case turns take {swap.utilization:.0%} of the time."
    ]


def _how_many(result: Result) -> list[str]:
    out = []
    asked = sorted(enumerate(result.items), key=lambda pair: pair[1].at_ns)
    most = [place for place, item in enumerate(result.items) if item.count is None]
    for place, kind in zip(most, result.answer.how_many, strict=True):
        what = f"{kind.fits} stream{'' if kind.fits == 1 else 's'} like {kind.name} fit{'s' if kind.fits == 1 else ''}"
        if len(asked) > 1 and place == asked[-1][0]:
            what += f", with all others{' that fit' if result.answer.rejected else ''} admitted first"
        if kind.refusal is None:
            out.append(f"{what}.")
        else:
            out += [f"{what}. {'One more' if kind.fits else 'The first'}: {_why(kind.refusal, result.profile)}"]
            out += _instead(result, kind.refusal)
    return out


def _refusal(result: Result, answer: StreamAnswer, count: int) -> list[str]:
    of_them = f" (and {count - 1} more like it)" if count > 1 else ""
    return [f"{answer.name}{of_them}: {_why(answer, result.profile)}", *_instead(result, answer)]


def _instead(result: Result, answer: StreamAnswer) -> list[str]:
    """Return what could be asked for instead; a line each."""
    out: list[str] = []
    if answer.verdict.reason is Reason.NOT_PROFILED:
        known = profiled(result.profile, answer.spec)
        out += [f"  profiled: {line}" for line in known[:_MOST_LISTED]] or ["  the profile is empty"]
        if len(known) > _MOST_LISTED:
            out.append(f"  and {len(known) - _MOST_LISTED} more")
    for offer in counter_offers(answer.offers):
        value = said(offer.value)
        rate = f" ({offer.fps:.2f} fps)" if offer.fps is not None else ""
        out.append(f"  would be admitted with {offer.field} {value}{rate}")
    return out or [_NO_OFFER] * (answer.searched and answer.verdict.reason is not Reason.MEMORY)


def bars(result: Result) -> list[str]:
    """Return a bar for each item that sends, and one for the time that is not promised, as shares of the device."""
    rows = [(f"{part.name} x{part.streams}", part) for part in result.parts]
    wide = max((len(name) for name, _ in rows), default=0)
    wide = max(wide, len(NOT_PROMISED))
    out = [f"Needed of the device, at least ({result.utilization:.0%} for the promised streams):"]
    for name, part in rows:
        mark = "" if part.category.service_class is ServiceClass.REAL_TIME else "  best effort"
        out.append(f"{name:<{wide}}  {_bar(part.share)} {part.share:6.1%}{mark}")
    left = max(0.0, 1 - result.utilization)
    out.append(f"{NOT_PROMISED:<{wide}}  {_bar(left, '░')} {left:6.1%}")
    return out


def _bar(share: float, fill: str = "█") -> str:
    return (fill * round(min(1.0, share) * _WIDTH)).ljust(_WIDTH, "·")


def comparison(results: Sequence[Result]) -> RenderableType:
    """Return a table of the profiles, and which of them suffice."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    kinds = list(dict.fromkeys(kind.name for result in results for kind in result.answer.how_many))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("profile", no_wrap=True, overflow="fold")
    table.add_column("device", overflow="fold")
    for name in ("admitted", "rejected", "utilization", *(f"{kind} fit" for kind in kinds)):
        table.add_column(name, justify="right")
    table.add_column("suffices")
    for result, called in zip(results, _called(results), strict=True):
        fits = {kind.name: str(kind.fits) for kind in result.answer.how_many}
        table.add_row(
            called,
            result.profile.device,
            str(len(result.answer.admitted)),
            str(len(result.answer.rejected)),
            f"{result.utilization:.1%}",
            *(fits.get(kind, "") for kind in kinds),
            "yes" if result.answer.suffices else "no",
        )
    good = [str(result.path) for result in results if result.answer.suffices]
    return Group(table, Text("Suffices: " + (", ".join(good) if good else "none of them") + "."))


def _called(results: Sequence[Result]) -> list[str]:
    """Return the file names of the profiles without their ending; where two are the same, paths on several lines."""
    stems = [result.path.stem for result in results]
    if len(set(stems)) == len(stems):
        return stems
    return [str(result.path).replace("/", "/\n") for result in results]
