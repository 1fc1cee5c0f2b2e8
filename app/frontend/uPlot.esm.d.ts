// What we use of uPlot 1.6.
export type Column = (number | null | undefined)[];
export interface Range {
  min: number;
  max: number;
}
export default class uPlot {
  constructor(options: object, data: Column[], root: HTMLElement);
  static sync(key: string): { key: string };
  width: number;
  scales: { x: Range };
  cursor: { idx: number | null | undefined };
  select: { left: number; width: number };
  setData(data: Column[], resetScales: boolean): void;
  setScale(name: string, range: Range): void;
  setSelect(area: { left: number; top: number; width: number; height: number }, fire: boolean): void;
  setSize(size: { width: number; height: number }): void;
  posToVal(position: number, scale: string): number;
  redraw(): void;
  destroy(): void;
}
