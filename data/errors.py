"""The project's own errors: what a person can cause, or has to know.

    ProjectError
    ├── InvalidInput        a file, a line, a field or a command that can't be used as it is
    │   └── InvalidConfig   a configuration field: unknown name, wrong type, out of range
    ├── NotFound            no such project, prompt, run, snapshot, person, model
    ├── Conflict            it is already there, or its state does not allow this
    ├── NotAllowed          the person's role does not allow this
    ├── StoreUnavailable    the store can't be opened or written
    │   └── StoreTooNew     the store was written by a newer version of the program
    ├── Fenced              this worker no longer owns the run; it has to stop at once
    └── WorkFailed          a run ended without success

Each message says what was found, where, and what to do.
"""

from __future__ import annotations


class ProjectError(Exception):
    """Root of all errors whose message is meant for a person."""


class InvalidInput(ProjectError):
    """Input can't be used as it is."""


class InvalidConfig(InvalidInput):
    """A configuration field is unknown, of the wrong type, or out of range."""


class NotFound(ProjectError):
    """The thing named does not exist."""


class Conflict(ProjectError):
    """The thing exists already, or its state forbids what was asked."""


class NotAllowed(ProjectError):
    """The person's role does not allow what was asked."""


class StoreUnavailable(ProjectError):
    """The store can't be opened or written."""


class StoreTooNew(StoreUnavailable):
    """The store was written by a newer version of the program."""


class Fenced(ProjectError):
    """Another worker owns the run now. Whoever gets this must stop without writing anything more."""


class WorkFailed(ProjectError):
    """A run ended without success."""
