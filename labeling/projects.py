"""Projects: making one, and changing what it asks of its annotators. Reading them is `data.labels.projects`."""

from __future__ import annotations

from typing import Any

from data.label_settings import LabelSettings
from data.labels import projects
from data.labels.roles import Actor, acting
from data.records import Project, Role
from data.store import Store


def new_project(store: Store, who: Actor, name: str, **settings: Any) -> Project:
    """Make a project. `settings` and what is raised: see `data.labels.projects.create_project`; also NotAllowed."""
    with acting(store, who, Role.RESEARCHER) as tx:
        return projects.create_project(tx, name, **settings)


def change_project(
    store: Store,
    who: Actor,
    project_id: str,
    *,
    settings: LabelSettings | None = None,
    flags: tuple[str, ...] | None = None,
    skip_reasons: tuple[str, ...] | None = None,
    guidelines: str | None = None,
) -> Project:
    """Change what is given, all of it or nothing. Raises NotAllowed, and as the functions of `data.labels.projects`."""
    with acting(store, who, Role.RESEARCHER) as tx:
        project = projects.set_settings(tx, project_id, settings=settings, flags=flags, skip_reasons=skip_reasons)
        return project if guidelines is None else projects.set_guidelines(tx, project_id, guidelines)
