// One answer while it is made: ranks, what is said beside them, and the way back. No elements, no server.

import { denseRanks, letter, moved, nextOpen, open } from "./ranker_judgement.js";

/** @import { Asks, Body, Ranks, Said, Saved, Target } from "./ranker_types" */

export const QUALITY = 7;
export const STRENGTHS = ["negligibly", "slightly", "clearly", "significantly"];

export class Answer {
  /** @type {Ranks} */
  ranks;
  /** @type {(boolean | null)[]} */
  acceptable;
  /** @type {string[][]} */
  flags;
  /** @type {Ranks} */
  quality;
  /** @type {number | null} */
  strength;
  /** @type {string[]} */
  steps;

  /**
   * @param {number} n
   * @param {Asks} asks
   */
  constructor(n, asks) {
    this.n = n;
    this.asks = asks;
    this.ranks = Array(n).fill(null);
    this.rest = false;
    this.acceptable = Array(n).fill(null);
    this.flags = Array.from({ length: n }, () => []);
    this.quality = Array(n).fill(null);
    this.strength = null;
    this.rationale = "";
    this.marked = 0;
    this.steps = [];
  }

  /**
   * An answer that was begun (a draft) or sent. What can't be right for this task is left out.
   * @param {Saved | null | undefined} saved
   * @param {number} n
   * @param {Asks} asks
   */
  static from(saved, n, asks) {
    const answer = new Answer(n, asks);
    answer.ranks = goodOf(saved?.ranks, answer.ranks, (value) => isIn(value, n));
    answer.acceptable = goodOf(saved?.acceptable, answer.acceptable, (value) => typeof value === "boolean");
    answer.quality = goodOf(saved?.quality, answer.quality, (value) => isIn(value, QUALITY));
    answer.flags = goodOf(saved?.flags, answer.flags, Array.isArray);
    answer.flags = answer.flags.map((names) => names.filter((name) => asks.flags.includes(name)));
    answer.strength = saved && isIn(saved.strength, STRENGTHS.length) ? (saved.strength ?? null) : null;
    answer.rationale = typeof saved?.rationale === "string" ? saved.rationale : "";
    answer.rest = saved?.rest === true && asks.partial && answer.mayPlaceRest;
    answer.marked = Math.max(0, answer.ranks.indexOf(null));
    return answer;
  }

  // ---- gestures

  /**
   * @param {number} place
   * @param {number} rank
   */
  rank(place, rank) {
    this.step(place);
    this.ranks[place] = rank;
    this.marked = this.rest ? place : nextOpen(this.ranks, place);
    this.settle();
  }

  /** @param {number} place */
  unplace(place) {
    if (this.ranks[place] === null) return false;
    this.step(place);
    this.ranks[place] = null;
    this.marked = place;
    this.settle();
    return true;
  }

  /**
   * Into the order by dragging; see `moved`. A target among the rest counts as the end of the order.
   * @param {number} place
   * @param {Target | null} target
   */
  move(place, target) {
    const after = moved(this.ranks, place, target);
    if (JSON.stringify(after) === JSON.stringify(this.ranks)) return false;
    this.step(place);
    this.ranks = after;
    this.marked = this.rest || after[place] === null ? place : nextOpen(after, place);
    this.settle();
    return true;
  }

  get mayPlaceRest() {
    const left = open(this.ranks).length;
    return left > 0 && left < this.n;
  }

  placeRest() {
    if (!this.mayPlaceRest || this.rest) return false;
    this.step(this.marked);
    this.rest = true;
    return true;
  }

  /**
   * yes, no, left open, and again
   * @param {number} place
   * @param {boolean | undefined} wanted
   */
  toggleAcceptable(place, wanted) {
    this.step(place);
    const before = this.acceptable[place];
    const next = before === null ? true : before ? false : null;
    this.acceptable[place] = wanted === undefined ? next : wanted === before ? null : wanted;
  }

  /**
   * @param {number} place
   * @param {string} name
   */
  toggleFlag(place, name) {
    this.step(place);
    const names = this.flags[place];
    this.flags[place] = names.includes(name) ? names.filter((each) => each !== name) : [...names, name];
  }

  /**
   * @param {number} place
   * @param {number} quality
   */
  rate(place, quality) {
    this.step(place);
    this.quality[place] = this.quality[place] === quality ? null : quality;
  }

  /** @param {number} strength */
  compare(strength) {
    this.step(this.marked);
    this.strength = this.strength === strength ? null : strength;
  }

  /** @param {number} marked */
  step(marked) {
    this.steps.push(JSON.stringify({ ...this.kept(), marked }));
  }

  undo() {
    const step = this.steps.pop();
    if (step === undefined) return false;
    Object.assign(this, JSON.parse(step));
    return true;
  }

  settle() {
    if (!this.mayPlaceRest) this.rest = false;
  }

  // ---- what it is

  get isComplete() {
    return this.missing.length === 0;
  }

  get missing() {
    return this.rest ? [] : open(this.ranks).map(letter);
  }

  get isTouched() {
    return this.steps.length > 0 || this.ranks.some((rank) => rank !== null) || this.rationale !== "";
  }

  /** @returns {Saved} */
  draft() {
    return { ...this.kept(), rationale: this.rationale };
  }

  kept() {
    const { ranks, rest, acceptable, flags, quality, strength } = this;
    return { ranks, rest, acceptable, flags, quality, strength };
  }

  /**
   * As it is sent: the rest shares the last rank; one response alone has simply its place.
   * @returns {Body}
   */
  ranking() {
    const ranks = denseRanks(this.ranks);
    const rest = this.rest ? open(this.ranks) : [];
    const last = Math.max(...ranks.filter((rank) => rank !== null)) + 1;
    /** @type {Body} */
    const sent = { ranks: ranks.map((rank) => rank ?? last), ...this.said() };
    if (rest.length > 1) sent.unplaced = rest;
    if (this.strength !== null) sent.strength = this.strength;
    return sent;
  }

  /**
   * What goes with a ranking, and with "no response is acceptable".
   * @returns {Said}
   */
  said() {
    /** @type {Said} */
    const sent = {};
    if (this.acceptable.some((each) => each !== null)) sent.acceptable = this.acceptable;
    if (this.flags.some((names) => names.length)) sent.flags = this.flags;
    if (this.quality.some((each) => each !== null)) sent.quality = this.quality;
    if (this.rationale.trim()) sent.rationale = this.rationale.trim();
    return sent;
  }
}

/**
 * @param {unknown} value
 * @param {number} most
 */
const isIn = (value, most) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= most;

/**
 * What of some saved values can be right, in the place of what there was.
 * @template V
 * @param {V[] | undefined} saved
 * @param {V[]} before
 * @param {(value: unknown) => boolean} isGood
 */
const goodOf = (saved, before, isGood) =>
  Array.isArray(saved) && saved.length === before.length
    ? saved.map((value, place) => (isGood(value) ? value : before[place]))
    : before;
