// What we use of markdown-it 14.
export interface Token {
  type: string;
  tag: string;
  nesting: -1 | 0 | 1;
  hidden: boolean;
  block: boolean;
  content: string;
  markup: string;
  info: string;
  map: [number, number] | null;
  children: Token[] | null;
  attrGet(name: string): string | null;
}
interface State {
  src: string;
  level: number;
  push(type: string, tag: string, nesting: -1 | 0 | 1): Token;
  without?: Record<string, number>; // ours: from where on a closing sign was looked for in vain
}
export interface InlineState extends State {
  pos: number;
  pending: string;
}
export interface BlockState extends State {
  line: number;
  blkIndent: number;
  bMarks: number[];
  eMarks: number[];
  tShift: number[];
  sCount: number[];
  getLines(start: number, end: number, indent: number, keepLastLineEnd: boolean): string;
  isEmpty(line: number): boolean;
}
type InlineRule = (state: InlineState, silent: boolean) => boolean;
type BlockRule = (state: BlockState, startLine: number, endLine: number, silent: boolean) => boolean;
interface Ruler<Rule> {
  at(name: string, rule: Rule): void;
  before(beforeName: string, name: string, rule: Rule, options?: { alt: string[] }): void;
}
export default class MarkdownIt {
  constructor(options: object);
  disable(names: string[]): void;
  parse(source: string, environment: object): Token[];
  validateLink: (address: string) => boolean;
  inline: { ruler: Ruler<InlineRule> };
  block: {
    ruler: Ruler<BlockRule>;
    tokenize: (this: object, state: BlockState, startLine: number, endLine: number) => void;
  };
}
