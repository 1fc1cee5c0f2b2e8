export interface Change {
  value: string[];
  added?: boolean;
  removed?: boolean;
}
export function diffArrays(before: string[], after: string[], options: { maxEditLength: number }): Change[] | undefined;
