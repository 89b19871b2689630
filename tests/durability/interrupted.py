"""A program whose main thread is interrupted, as by Ctrl-C, at any point of a put, also while it commits for others.

    python interrupted.py URL

Exits with 0 when the other threads' puts went through, all that was
acknowledged is there, and the saver goes on working.
"""

import faulthandler
import signal
import sys
import threading
import time

import lives

import threadline

SECONDS = 2.0


class Interrupted(BaseException):
    """What the signal handler raises."""


class Interrupts:
    """Raises Interrupted in the main thread a moment after it is armed, and never when it is not."""

    def __init__(self):
        self.is_armed = False
        signal.signal(signal.SIGALRM, self.interrupt)

    def interrupt(self, *_):
        if self.is_armed:
            self.is_armed = False
            raise Interrupted

    def arm(self, seconds):
        self.is_armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def disarm(self):
        self.is_armed = False


def keep_writing(saver, name, is_over, written, errors):
    step = 0
    while not is_over.is_set():
        try:
            saver.put(*lives.put_arguments(name, step))
        except BaseException as error:
            errors.append(error)
            return
        written[name] = step
        step += 1


def interrupted_puts(saver, errors):
    """How many puts of the main thread were interrupted, and the last step that was not."""
    interrupts, interrupted, step = Interrupts(), 0, 0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            interrupts.arm(0.0002 + 0.00031 * ((step + interrupted) % 11))
            saver.put(*lives.put_arguments("main", step))
            interrupts.disarm()
            step += 1
        except Interrupted:
            interrupted += 1
        except threadline.ThreadlineError as error:
            errors.append(error)
            break
    interrupts.disarm()
    return interrupted, step


def main():
    faulthandler.dump_traceback_later(30, exit=True)
    saver = threadline.connect(sys.argv[1], timeout=5.0)
    saver.open()
    is_over, written, errors = threading.Event(), {}, []
    others = [
        threading.Thread(target=keep_writing, args=(saver, f"other-{n}", is_over, written, errors)) for n in range(3)
    ]
    for other in others:
        other.start()
    interrupted, step = interrupted_puts(saver, errors)
    is_over.set()
    for other in others:
        other.join()
    assert not errors, errors
    assert interrupted > 20
    for name, last in written.items():
        steps = [lives.check(found, name) for found in saver.list(lives.config(name))]
        assert steps[0] in (last, last + 1)
        assert steps == list(reversed(range(steps[0] + 1)))
    saver.put(*lives.put_arguments("main", step))
    assert lives.check(saver.get_tuple(lives.config("main")), "main") == step


if __name__ == "__main__":
    main()
