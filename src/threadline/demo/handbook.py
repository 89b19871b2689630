"""The document that the agent of the demo looks after, and the talk about it.

A handbook of two dozen pages of about 2 KB. It is made up, and the same on every
run: what the demo measures must not depend on chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from random import Random

__all__ = [
    "REQUESTS",
    "REVIEW",
    "SECOND_THOUGHT",
    "amend",
    "broken_links",
    "doubled_words",
    "first_edition",
    "split_request",
]

REQUESTS = (
    "Holidays: thirty days a year, for everyone.",
    "Remote work: three days a week, from anywhere.",
    "Sick leave: call before nine, no note for three days.",
    "Travel: trains first, flights only above six hours.",
    "Expenses: receipts within thirty days, paid within ten.",
    "Laptops: replaced every four years, or when they break.",
    "Passwords: a password manager, and a key for each person.",
    "Meetings: none before ten and none on Wednesdays.",
    "On call: one week in six, with the next Monday off.",
    "Hiring: two people decide, and one of them is a peer.",
    "First day: lunch with the team and a mentor for a month.",
    "Training: five days a year, chosen by you.",
    "Books: buy what helps you, then share it.",
    "Office: we move to Lisbon in May.",
    "Parking: bicycles inside, cars by arrangement.",
    "Kitchen: who empties the pot fills the pot.",
    "Visitors: sign in, wear a badge, never walk alone.",
    "Fire drill: twice a year, announced the week before.",
    "Pay: on the twenty-fifth, with a letter that explains it.",
    "Pension: we add half of what you put in.",
    "Parental leave: six months, for every parent.",
    "Sabbatical: three months after five years.",
    "Complaints: to any lead, answered within a week.",
    "Leaving: a month of notice and a proper farewell.",
)
REVIEW = "Review: check spelling and links, then publish it."
SECOND_THOUGHT = "Remote work: always, we close the office."

PAGE_CHARACTERS = 2_000
VOCABULARY = (
    "people teams customers projects rules habits reviews releases offices budgets contracts "
    "tools plans questions answers mistakes lessons promises letters records visits calls "
    "help shape guide follow change explain support question repeat improve replace answer "
    "small early clear honest useful simple careful open shared quiet steady patient written "
    "always often seldom together again later first soon before after with without between"
)


def first_edition() -> dict[str, str]:
    """The handbook before anybody asked for a change: text by title."""
    titles = [split_request(request)[0] for request in REQUESTS]
    following = [*titles[1:], titles[0]]
    return {title: _page(title, see) for title, see in zip(titles, following, strict=True)}


def split_request(request: str) -> tuple[str, str]:
    """The page that a request is about, and what it should say."""
    title, _, wish = request.partition(": ")
    return title, wish


def amend(text: str, wish: str) -> str:
    """A page with a new rule at its end."""
    return f"{text}\nNew rule: {wish}"


def doubled_words(pages: Mapping[str, str]) -> list[str]:
    """Titles of the pages where a word is written twice in a row."""
    return [
        title for title, text in pages.items() if any(word == following for word, following in pairwise(text.split()))
    ]


def broken_links(title: str, pages: Mapping[str, str]) -> list[str]:
    """Pages that this page refers to and that are not in the handbook."""
    named = [line[len("See: ") :] for line in pages[title].splitlines() if line.startswith("See: ")]
    return [name for name in named if name not in pages]


def _page(title: str, see: str) -> str:
    chance, vocabulary = Random(title), VOCABULARY.split()
    sentences: list[str] = []
    while sum(map(len, sentences)) < PAGE_CHARACTERS:
        sentences.append(" ".join(chance.sample(vocabulary, 9)).capitalize() + ".")
    return f"{title}\n{' '.join(sentences)}\nSee: {see}"
