"""The functional API: tasks side by side, a question, what is kept for the next call, and a failure."""

from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt


async def program(saver, face):
    ran = []

    @task
    def square(number: int) -> dict:
        ran.append(number)
        return {"number": number, "square": number * number}

    @task
    def fragile(text: str) -> str:
        ran.append(text)
        if ran.count(text) == 1:
            raise RuntimeError(f"{text} is broken")
        return text.upper()

    @entrypoint(checkpointer=saver)
    def flow(given: dict, *, previous=None) -> entrypoint.final:
        squares = [one.result() for one in [square(number) for number in given["numbers"]]]
        answer = interrupt({"squares": squares})
        total = sum(one["square"] for one in squares) + (previous or {"total": 0})["total"]
        word = fragile(f"{answer} {total}").result()
        return entrypoint.final(value={"word": word, "before": previous}, save={"total": total})

    config = {"configurable": {"thread_id": "functional"}}
    results = [await face.invoke(flow, {"numbers": [1, 2, 3]}, config)]
    for _ in range(2):
        try:
            results.append(await face.invoke(flow, Command(resume="yes"), config))
        except RuntimeError as error:
            results += [error, await face.get_state(flow, config)]
    results.append(await face.invoke(flow, {"numbers": [4]}, config))
    try:
        await face.invoke(flow, Command(resume="no"), config)
    except RuntimeError as error:
        results.append(error)
    results.append(await face.invoke(flow, None, config))
    return [results, sorted(map(str, ran)), await face.all(flow, "get_state_history", config)]
