// The guidelines beside the work: open where there is room or where the person wants them, and when they have changed.

export class Guide {
  constructor(host) {
    this.host = host; // the controller: project, data, storage, view
  }

  show() {
    const { project, data, storage, view } = this.host;
    const { text, version } = data.guidelines;
    const seen = storage.recall("guidelines") ?? {};
    if (seen[project.id] !== version) {
      storage.remember("guidelines", { ...seen, [project.id]: version });
      if (seen[project.id] !== undefined) {
        view.showNotice(`The guidelines have changed since your last visit: version ${version}.`, "guidelines");
        storage.remember("guided", true);
      }
    }
    const isWanted = storage.recall("guided") ?? view.hasRoomForGuidelines;
    view.showGuidelines(Boolean(text.trim()) && isWanted);
  }

  toggle() {
    const { root, data, storage, view } = this.host;
    if (!data?.guidelines.text.trim()) return;
    const isOpen = !root.classList.contains("guided");
    storage.remember("guided", isOpen);
    view.showGuidelines(isOpen);
    view.say(isOpen ? "The guidelines are open." : "The guidelines are closed.");
    if (isOpen) view.guidelines.scrollIntoView({ block: "nearest" });
  }
}
