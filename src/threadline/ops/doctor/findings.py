"""What the doctor found: each finding says how bad it is and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...base.printable import printable

__all__ = ["Finding", "NOTE", "OK", "PROBLEM", "WARNING", "checked", "note", "ok", "problem", "warning"]

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about a store. `advice` is what to do about it; empty where nothing is to be done."""

    level: str
    subject: str
    text: str
    advice: str = ""


def ok(subject: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(level=OK, subject=subject, text=text)


def note(subject: str, text: str, advice: str = "") -> Finding:
    """Good to know."""
    return Finding(level=NOTE, subject=subject, text=text, advice=advice)


def warning(subject: str, text: str, advice: str) -> Finding:
    """It will hurt some day."""
    return Finding(level=WARNING, subject=subject, text=text, advice=advice)


def problem(subject: str, text: str, advice: str) -> Finding:
    """It hurts, or loses what was acknowledged."""
    return Finding(level=PROBLEM, subject=subject, text=text, advice=advice)


def checked(subject: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check. One that cannot be made is itself a finding, and ends no other."""
    try:
        return list(check())
    except Exception as error:  # whatever a driver raises: rights that are missing, a view that this version lacks
        reason = printable(str(error)).splitlines()[0] if str(error) else ""
        told = f"could not be checked ({type(error).__name__}{': ' if reason else ''}{reason})"
        return [note(subject, told, "give the role the right to look, or look there by hand")]
