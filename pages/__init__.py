"""The documentation as a site: `make docs`, or `python -m pages`.

The pages are the plain Markdown of `docs/` and of the folder above it. Three steps make a site of them:

    staging.py      copies them into one folder, with links that hold there
    reference.py    writes the reference of the public names from their docstrings
    building.py     has Zensical build it, strictly, and checks what came out
"""
