// Two responses side by side, the others out of sight: which two.

export class Pair {
  begin(elements) {
    this.elements = elements;
    this.show(null);
  }

  // `places`: the left and the right one; null shows all.
  show(places) {
    this.places = places;
    this.elements.forEach((element, place) => {
      const at = places ? places.indexOf(place) : 0;
      element.hidden = at < 0;
      element.style.order = places ? String(at) : "";
    });
    this.elements[0]?.parentElement?.classList.toggle("pair", places !== null);
  }

  other(marked) {
    return this.places[this.places[0] === marked ? 1 : 0];
  }

  // The next (or the one before) response in the place of the one that is not marked.
  turn(step, marked) {
    const n = this.elements.length;
    const side = this.places[0] === marked ? 1 : 0;
    let place = this.places[side];
    do place = (place + step + n) % n;
    while (place === marked);
    this.put(side, place);
  }

  // The marked response is always one of the two: a new one takes the place of the one that was marked.
  follow(marked, before) {
    if (!this.places || this.places.includes(marked)) return;
    this.put(this.places[1] === before ? 1 : 0, marked);
  }

  put(side, place) {
    const places = [...this.places];
    places[side] = place;
    this.show(places);
  }
}
