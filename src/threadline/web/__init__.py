"""The page: `threadline web`, or `app.mount("/threads", threadline.web.app(saver))` in an application of one's own.

Needs the extra `web`.
"""

from __future__ import annotations

from .site import app

__all__ = ["app"]
