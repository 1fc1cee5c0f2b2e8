// What goes over the ranking surface's borders: from the server (app/widgets/labels/ranker.py), to it, into storage.

/** A rank, 1 is best; null: not placed yet. */
export type Rank = number | null;
/** By display place. */
export type Ranks = Rank[];

export interface Message {
  role: string;
  content: string;
}

/** What was said of a task so far, or in the end: a draft, or an answer that was sent. */
export interface Saved {
  ranks: Ranks;
  rest?: boolean;
  acceptable?: (boolean | null)[];
  flags?: string[][];
  quality?: Ranks;
  strength?: Rank;
  rationale?: string;
  status?: string;
  skip_reason?: string;
  display_order?: number[];
  at?: number;
  elapsed_ms?: number;
}

export interface Task {
  task_id: string;
  lease_token?: string | null;
  display_order: number[];
  prompt: Message[];
  responses: string[];
  facts?: string;
  badges?: string[][];
  draft?: Saved | null;
}

/** What goes with a ranking, and with "no response is acceptable". */
export interface Said {
  acceptable?: (boolean | null)[];
  flags?: string[][];
  quality?: Ranks;
  rationale?: string;
}

/** An answer as it is sent. */
export interface Body extends Said {
  ranks?: number[];
  unplaced?: number[];
  strength?: number;
  unacceptable?: true;
  skip_reason?: string;
}

/** An answer on its way to the server. */
export interface Item extends Body {
  submission_key: string;
  task_id: string;
  lease_token: string | null;
  display_order: number[];
  duration_ms: number;
  guidelines_version: number;
  edit_of?: string;
  sent_at?: number;
}

/** The server's word on an answer. */
export interface Ack {
  key: string;
  outcome: string;
  reason?: string | null;
}

/** What the project lets its annotators say beside the ranks. */
export interface Asks {
  partial: boolean;
  acceptable: boolean;
  flags: string[];
  quality: boolean;
  strength: boolean;
  rationale: boolean;
}

/** That, with how many responses there are, and whether a sent answer is being changed. */
export interface Has extends Asks {
  n: number;
  editing: boolean;
}

/** An answer in the history. */
export interface Line extends Saved {
  task_id: string;
  prompt: string;
  version: number;
  is_frozen: boolean;
  at: number;
}

export interface HistoryPage {
  n: number;
  offset: number;
  size: number;
  lines: Line[];
  at: number;
}

export interface Opened {
  at: number;
  task?: Task;
  answer: Saved;
  edit_of: string;
}

export interface Paused {
  reason: string;
  ask: string[];
}

/** What the server sends with every change; with `trouble`, only that and the person. */
export interface Data {
  person: string;
  trouble?: string;
  project: { id: string; name: string };
  guidelines: { text: string; version: number };
  asks: Asks;
  skip_reasons: string[];
  n_done: number;
  n_today: number;
  pace_s: number | null;
  tasks: Task[];
  waiting: { n: number; first_free_at: number | null };
  paused: Paused | null;
  acks: Ack[];
  history?: HistoryPage;
  opened?: Opened;
}

/** What Streamlit hands to a component with each change. */
export interface Component<T> {
  data: T;
  parentElement: HTMLElement;
  setStateValue(name: string, value: unknown): void;
}

/** What a key or a button has opened; null is the page itself. */
export type Mode = "skip" | "none" | "flags" | "quality" | "strength" | "rationale" | null;

/** Where a response is dropped: onto one, into the gap beside one, or into an empty order. */
export interface Target {
  tie?: number;
  before?: number;
  after?: number;
  only?: true;
}

/** A key as an event says it, or as it was held. */
export interface Key {
  key: string;
  code?: string;
  shiftKey?: boolean;
  repeat?: boolean;
}

/** A line of the list of keys. */
export interface KeyLine {
  keys: string[];
  shown?: string;
  context: string;
  label: string;
  action: string;
  follows?: string;
  opener?: string;
  when?: (has: Has) => boolean;
}

/** What buttons, handles and overlays ask for. */
export interface Actions {
  rank(place: number, rank: number): void;
  mark(place: number): void;
  pick(place: number): void;
  drop(place: number, target: Target | null): void;
  undo(): void;
  placeRest(): void;
  acceptable(place: number, wanted: boolean | undefined, event?: { detail: number }): void;
  rate(place: number, quality: number, event?: { detail: number }): void;
  flag(place: number, name: string): void;
  openFlags(place: number): void;
  compare(strength: number, event?: { detail: number }): void;
  write(text: string): void;
  toggleRaw(): void;
  toggleFold(): void;
  differences(): void;
  togglePair(): void;
  openNone(): void;
  none(): void;
  openSkip(): void;
  skip(reason: string): void;
  close(): void;
  submit(): void;
  mayDrag(): boolean;
  ranks(): Ranks;
  leaveEdit(): void;
  openHelp(): void;
  openHistory(): void;
  toggleGuidelines(): void;
  overlayClosed(): void;
  backUp(): void;
  ask(offset: number): void;
  reopen(line: Line): void;
  takeFile(file: File): void;
}
