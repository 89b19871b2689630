"""A program that sets a store up in two threads, again and again, while its main thread forks or closes savers."""

import os
import sys
import threading
import time

from threadline import Closed, connect


def forks(path: str) -> None:
    saver, is_over, failures = connect(f"sqlite:///{path}", index_metadata=["k"]), threading.Event(), []
    saver.open()

    def set_up() -> None:
        try:
            while not is_over.is_set():
                saver.setup()
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=set_up) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    is_over.set()
    for thread in threads:
        thread.join()
    print(failures)


def closes(path: str) -> None:
    others = []
    for _ in range(200):
        saver = connect(f"sqlite:///{path}", index_metadata=["k"])
        saver.open()

        def set_up(saver=saver) -> None:
            try:
                for _ in range(20):
                    saver.setup()
            except Closed:
                pass
            except BaseException as error:
                others.append(repr(error))

        thread = threading.Thread(target=set_up)
        thread.start()
        time.sleep(0.001)
        saver.close()
        thread.join()
    print(others)


if __name__ == "__main__":
    {"forks": forks, "closes": closes}[sys.argv[1]](sys.argv[2])
