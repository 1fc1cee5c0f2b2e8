"""The demo project: everyday prompts with responses that were really sampled, shipped inside the package.

The first ranking needs no model, no download and no account anywhere. Where the texts come from: app/demo/SOURCE.md.
"""

from __future__ import annotations

from pathlib import Path

from data.labels.projects import list_projects
from data.labels.roles import Actor
from data.records import Project
from data.store import Store
from labeling.files.imports import import_responses
from labeling.projects import new_project

DEMO_PROJECT = "Demo project"
DEMO_FILE = Path(__file__).with_name("responses.jsonl")


def create_demo_project(store: Store, who: Actor) -> Project:
    """Make the demo project with its tasks, or return it if it is there already. Raises NotAllowed."""
    with store.read() as tx:
        found = [project for project in list_projects(tx) if project.name == DEMO_PROJECT]
    if found:
        return found[0]
    project = new_project(store, who, DEMO_PROJECT, k=4, nonce="demo-project")
    import_responses(store, who, project.id, DEMO_FILE)
    return project
