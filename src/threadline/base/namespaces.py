"""Checkpoint namespaces: where a subgraph's checkpoints live.

`""` is the root graph; each level below adds `node:task`, levels joined by `|`. The task id makes the
namespace of one run of a subgraph; without the task ids it names the subgraph itself.
"""

from __future__ import annotations

__all__ = ["LEVEL", "ROOT", "TASK", "recast"]

ROOT = ""
LEVEL = "|"
TASK = ":"


def recast(namespace: str) -> str:
    """The namespace without task ids and without the numbers of repeated calls: `a:1|0|b:2` is `a|b`."""
    levels = (level.partition(TASK)[0] for level in namespace.split(LEVEL))
    return LEVEL.join(level for level in levels if not level.isdecimal())
