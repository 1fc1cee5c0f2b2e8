declare const katex: { render(source: string, element: HTMLElement, settings: object): void };
export default katex;
