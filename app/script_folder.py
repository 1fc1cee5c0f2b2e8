"""The folder of `main.py` on the module path: settled once in a process, so that no page run has to touch the path.

Streamlit puts the folder of the script in front of the path before each page run and takes it off again afterwards, in
the threads of all sessions, unless it stands somewhere on the path. So it stands at the end, where what it holds hides
nothing, and Streamlit leaves the path alone.

The server settles it before it serves. Under `streamlit run app/main.py` nobody has; there the first page run does.
"""

from __future__ import annotations

import os
import sys
import threading

FOLDER = os.path.dirname(os.path.abspath(__file__))  # as Streamlit writes it
_one_at_a_time = threading.Lock()


def settle() -> None:
    """The folder above `app` is on the path, in front if it has to be put there; `app` itself is at the end, once.

    An installed copy's folder above is site-packages, which stays where it is, behind the standard library.
    """
    with _one_at_a_time:
        others = [folder for folder in sys.path if folder != FOLDER]
        above = os.path.dirname(FOLDER)
        is_there = any(os.path.realpath(folder or os.curdir) == os.path.realpath(above) for folder in others)
        wanted = [*([] if is_there else [above]), *others, FOLDER]
        if sys.path != wanted:
            sys.path[:] = wanted
