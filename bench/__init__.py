"""Threadline side by side with LangGraph's own savers, on the same work, in one run.

The rules of every measurement:

1. Both sides do the same work with the same values, one right after the other, and the order
   turns round with every round, because machines are noisy.
2. Both sides are equally durable: WAL and `synchronous=FULL`, checked on the peer's connection; a
   server flushes before it acknowledges, and is asked whether it does.
3. What is read back is compared with what was put. A wrong value ends the run; a missed target
   does not, it is printed as missed.
4. A ratio is taken within a round; the median over the rounds is what counts.
"""
