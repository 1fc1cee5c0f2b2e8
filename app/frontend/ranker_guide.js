// The guidelines: open on a person's first visit of a project, after that where there is room or where the person wants
// them, and when they have changed.

import { there } from "./ranker_dom.js";

/** @import { Ranker } from "./ranker_control.js" */

export class Guide {
  /** @type {string | null} */
  firstVisit;

  /** @param {Ranker} host */
  constructor(host) {
    this.host = host; // the controller: project, data, storage, view
    this.firstVisit = null; // the project that is visited for the first time, while its guidelines are open for that
  }

  show() {
    const { storage, view } = this.host;
    const [project, data] = [there(this.host.project), there(this.host.data)];
    const { text, version } = data.guidelines;
    const seen = storage.recall("guidelines") ?? {};
    if (seen[project.id] !== version) {
      storage.remember("guidelines", { ...seen, [project.id]: version });
      if (seen[project.id] === undefined) this.firstVisit = project.id;
      else {
        view.showNotice(`The guidelines have changed since your last visit: version ${version}.`, "guidelines");
        storage.remember("guided", true);
      }
    }
    const isWanted = this.firstVisit === project.id || (storage.recall("guided") ?? view.hasRoomForGuidelines);
    view.showGuidelines(Boolean(text.trim()) && isWanted);
  }

  toggle() {
    const { root, data, storage, view } = this.host;
    if (!data?.guidelines.text.trim()) return;
    const isOpen = !root.classList.contains("guided");
    this.firstVisit = null;
    storage.remember("guided", isOpen);
    view.showGuidelines(isOpen);
    view.say(isOpen ? "The guidelines are open." : "The guidelines are closed.");
    if (isOpen) view.guidelines.scrollIntoView({ block: "nearest" });
  }
}
